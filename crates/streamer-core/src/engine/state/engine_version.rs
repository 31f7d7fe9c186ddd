//! One version of an engine's complete content.

use crate::engine::state::partitions::Partitions;
use crate::engine::state::registry::Generation;
use std::sync::Arc;

/// One version of the content. Immutable.
#[derive(Debug)]
pub struct Version {
    pub(in crate::engine) number: u64,
    pub(in crate::engine) partitions: Partitions,
    pub(in crate::engine) generation: Arc<Generation>,
    pub(in crate::engine) any_tenant: usize,
    pub(in crate::engine) any_collection: usize,
    pub(in crate::engine) len: usize,
}

impl Version {
    /// Keeps the slots of its matches, without the segments that found them.
    pub fn pin(&self) -> Pin {
        Pin(Some(self.generation.clone()))
    }

    /// A copy of *root* under the next version, to be changed and published.
    pub(in crate::engine) fn after(version: &Version) -> Version {
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
