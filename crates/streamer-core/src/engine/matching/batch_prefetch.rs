//! Prefetches the data that the events of a mixed batch read first, before they are matched.
//!
//! ```text
//!   next events:    a   b   c   d   ...
//!   step 1          their partitions                 each step requests the lines that the next one reads,
//!   step 2          filters, lists of segments       of all of these events, so that the waiting for memory
//!   step 3          segments                         is done once for all of them
//!   step 4          the first lines of a search
//! ```
//!
//! A thousand collections exceed every cache, and an event by itself waits for one line after the other: its partition,
//! then the partition's filter, then the filter's arrays. The partitions of a batch's events are known beforehand.
//!
//! Invariant: it does not change, open or count anything; a line that is requested and not read costs only itself.
//!
//! Rejected: all events of a block at once, whose lines drive one another out of the first cache.

use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::event::Located;
use crate::engine::state::partitions::Partition;
use crate::prefetch::{prefetch, prefetch_all};
use std::sync::Arc;

/// The number of events that are prefetched at once.
pub const PREFETCHED: usize = 16;
/// The segments of a partition that are worth it.
const SEGMENTS: usize = 2;

impl EngineState {
    /// Prefetch the data that events at these places read first, for at most [`PREFETCHED`] of them.
    pub fn prefetch<'e>(&self, version: &Version, located: impl Iterator<Item = Located<'e>>) {
        let mut prefetched: [Option<&Arc<Partition>>; PREFETCHED] = [None; PREFETCHED];
        let (mut count, mut last) = (0, None);
        for Located { key, tenant, collection } in located.take(PREFETCHED) {
            if last.replace(key) == Some(key) {
                continue;
            }
            let (Some(tenant), Some(collection)) = (tenant, collection) else { continue };
            let Some(partition) = version.partitions.get(key, tenant, collection) else { continue };
            prefetch_all(&**partition);
            prefetched[count] = Some(partition);
            count += 1;
        }
        let prefetched = || prefetched[..count].iter().flatten().map(|partition| partition.present());
        for partition in prefetched() {
            prefetch(&partition.segments, 0);
            partition.filter.as_deref().inspect(|filter| prefetch_all(*filter));
        }
        for partition in prefetched() {
            partition.filter.as_deref().inspect(|filter| filter.prefetch());
            partition.segments.iter().take(SEGMENTS).for_each(|segment| prefetch_all(&**segment));
        }
        for partition in prefetched() {
            partition.segments.iter().take(SEGMENTS).for_each(|segment| segment.prefetch());
        }
    }
}
