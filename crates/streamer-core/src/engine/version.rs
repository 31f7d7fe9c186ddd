//! One version of an engine's complete content.

use crate::engine::partitions::Partitions;
use crate::engine::registry::Generation;
use std::sync::Arc;

/// One version of the content. Immutable.
#[derive(Debug)]
pub struct Version {
    pub(super) number: u64,
    pub(super) partitions: Partitions,
    pub(super) generation: Arc<Generation>,
    pub(super) any_tenant: usize,
    pub(super) any_collection: usize,
    pub(super) len: usize,
}

impl Version {
    /// Keeps the slots of its matches, without the segments that found them.
    pub fn pin(&self) -> Pin {
        Pin(Some(self.generation.clone()))
    }

    /// A copy of *root* under the next version, to be changed and published.
    pub(super) fn after(version: &Version) -> Version {
        Version {
            number: version.number + 1,
            partitions: version.partitions.clone(),
            generation: version.generation.clone(),
            any_tenant: version.any_tenant,
            any_collection: version.any_collection,
            len: version.len,
        }
    }
}

/// Keeps the slots of a match from being reused for other subscriptions; empty for a match without slots.
#[derive(Clone, Debug, Default)]
pub struct Pin(#[allow(dead_code, reason = "it keeps the generation alive")] pub(super) Option<Arc<Generation>>);
