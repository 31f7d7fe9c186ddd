//! The name of a partition.

use crate::engine::state::record::shared_size;
use crate::value::Seed;

/// Which partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionName {
    /// A tenant, or `*` for all.
    pub tenant: Box<str>,
    /// A collection, or `*` for all.
    pub collection: Box<str>,
}

impl PartitionName {
    /// Heap bytes used, if it is shared.
    pub(super) fn bytes(&self) -> usize {
        shared_size::<PartitionName>() + self.tenant.len() + self.collection.len()
    }

    /// Its hash.
    pub fn hash(&self, seed: &Seed) -> u64 {
        join(seed, seed.hash_bytes(self.tenant.as_bytes()), seed.hash_bytes(self.collection.as_bytes()))
    }
}

/// The hash of a partition from those of its tenant and collection.
pub fn join(seed: &Seed, tenant: u64, collection: u64) -> u64 {
    seed.hash_words(tenant, collection)
}
