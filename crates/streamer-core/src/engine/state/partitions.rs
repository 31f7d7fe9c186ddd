//! All partitions of an engine: an immutable map from (tenant, collection) to segments.
//!
//! ```text
//!   version 8 of all     ┌─ 0 ─ (acme, orders)            a change copies the nodes from the root to its partition:
//!     trie by hash ─────┼─ 1 ─┬─ (acme, users)           16 words a level, and one leaf of up to 16 partitions
//!                       │     └─ (*, orders)
//!                       └─ ...
//! ```
//!
//! Invariant: a node never changes while more than one version references it.
//!
//! Cost: a lookup is one step for each 16-fold of partitions beyond 16; a change copies as many nodes. About 24 bytes a
//! partition for the map.
//!
//! Rejected: one table that is copied for each change (300,000 partitions: 2.4 MB a change); a lock around a mutable one.

use crate::bloom::filter::BloomFilter;
use crate::engine::index::segment::Segment;
use crate::engine::state::name::PartitionName;
use crate::engine::state::shares::Share;
use crate::engine::state::snapshot_sections::{Section, SnapshotFault};
use std::sync::{Arc, OnceLock};

/// The subscriptions of one tenant (or `*`) and collection (or `*`).
#[derive(Clone, Debug)]
pub struct Partition {
    /// Which partition.
    pub name: Arc<PartitionName>,
    /// Its segments.
    pub segments: Vec<Arc<Segment>>,
    /// Phase 1 for all of them; None if it is not worth it.
    pub filter: Option<Arc<BloomFilter>>,
    /// The counts of its share; None if too many partitions are counted already.
    pub share: Option<Arc<Share>>,
    /// Its place in a file, until the first write to it; then it has no segments of its own.
    pub section: Option<Arc<Unopened>>,
}

/// A section of a file, and the partition that its lines make once somebody has opened it.
#[derive(Debug)]
pub struct Unopened {
    /// The section.
    pub section: Arc<Section>,
    /// The result of opening it.
    pub(in crate::engine) opened: OnceLock<Result<Arc<Partition>, SnapshotFault>>,
}

impl Unopened {
    pub(in crate::engine) fn new(section: Arc<Section>) -> Unopened {
        Unopened { section, opened: OnceLock::new() }
    }

    /// The partition that its lines make, if it was opened and is sound.
    pub(in crate::engine) fn opened(&self) -> Option<&Arc<Partition>> {
        self.opened.get().and_then(|opened| opened.as_ref().ok())
    }
}

impl Partition {
    /// Its content, opened if it has been by now.
    pub(in crate::engine) fn present(self: &Arc<Partition>) -> &Arc<Partition> {
        self.section.as_ref().and_then(|section| section.opened()).unwrap_or(self)
    }

    fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.section.is_none()
    }
}

const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

#[derive(Clone, Debug)]
enum PartitionNode {
    Leaf(Vec<(u64, Arc<Partition>)>),
    Branch([Option<Arc<PartitionNode>>; WIDTH]),
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Partitions {
    root: Arc<PartitionNode>,
    count: usize,
}

impl Default for Partitions {
    fn default() -> Partitions {
        Partitions { root: Arc::new(PartitionNode::Leaf(Vec::new())), count: 0 }
    }
}

impl Partitions {
    /// How many partitions there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Find a partition.
    pub fn get(&self, hash: u64, tenant: &str, collection: &str) -> Option<&Arc<Partition>> {
        let (mut node, mut rest) = (&*self.root, hash);
        loop {
            match node {
                PartitionNode::Branch(children) => {
                    node = children[rest as usize % WIDTH].as_deref()?;
                    rest >>= BITS;
                }
                PartitionNode::Leaf(entries) => {
                    let fits = |(other, partition): &&(u64, Arc<Partition>)| {
                        *other == hash && *partition.name.tenant == *tenant && *partition.name.collection == *collection
                    };
                    return entries.iter().find(fits).map(|(_, partition)| partition);
                }
            }
        }
    }

    /// Put a partition in the place of the one of its name, or take that one out if the new one has no segments.
    pub fn set(&mut self, hash: u64, partition: Partition) {
        let (mut node, mut rest, mut depth) = (&mut self.root, hash, 0);
        loop {
            if let PartitionNode::Leaf(entries) = &**node {
                // Hashes that agree in all bits stay in one leaf.
                if entries.len() >= WIDTH && depth < u64::BITS / BITS {
                    let mut children: [Option<Arc<PartitionNode>>; WIDTH] = Default::default();
                    for (other, partition) in entries {
                        let child = &mut children[(other >> (depth * BITS)) as usize % WIDTH];
                        let leaf = Arc::make_mut(child.get_or_insert_with(|| Arc::new(PartitionNode::Leaf(Vec::new()))));
                        if let PartitionNode::Leaf(entries) = leaf {
                            entries.push((*other, partition.clone()));
                        }
                    }
                    *node = Arc::new(PartitionNode::Branch(children));
                }
            }
            match Arc::make_mut(node) {
                PartitionNode::Branch(children) => {
                    node = children[rest as usize % WIDTH].get_or_insert_with(|| Arc::new(PartitionNode::Leaf(Vec::new())));
                    rest >>= BITS;
                    depth += 1;
                }
                PartitionNode::Leaf(entries) => {
                    let at = entries.iter().position(|(other, old)| *other == hash && old.name == partition.name);
                    match at {
                        Some(at) if partition.is_empty() => {
                            entries.swap_remove(at);
                            self.count -= 1;
                        }
                        Some(at) => entries[at].1 = Arc::new(partition),
                        None if partition.is_empty() => {}
                        None => {
                            entries.push((hash, Arc::new(partition)));
                            self.count += 1;
                        }
                    }
                    return;
                }
            }
        }
    }

    /// Call *visit* with each partition.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Partition>)) {
        let mut pending = vec![&*self.root];
        while let Some(node) = pending.pop() {
            match node {
                PartitionNode::Leaf(entries) => entries.iter().for_each(|(_, partition)| visit(partition)),
                PartitionNode::Branch(children) => pending.extend(children.iter().flatten().map(|child| &**child)),
            }
        }
    }
}
