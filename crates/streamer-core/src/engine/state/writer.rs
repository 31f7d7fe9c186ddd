//! The data of the writer, and the lock that makes writers wait for one another.

use crate::engine::index::segment::Segment;
use crate::engine::state::name::PartitionName;
use crate::engine::state::record::Filing;
use crate::engine::state::registry::FreeSlots;
use crate::engine::state::texts::Shapes;
use crate::engine::verify::encoded::FastHash;
use crate::heap::block;
use hashbrown::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

/// The data that only the writer uses.
#[derive(Debug, Default)]
pub(in crate::engine) struct Writer {
    pub slots: FreeSlots,
    pub locations: Vec<u32>,
    pub next_order: u64,
    pub shapes: Shapes,
    filings: HashSet<Arc<Filing>, FastHash>,
    names: HashSet<Arc<PartitionName>, FastHash>,
    /// Heap bytes of the filings and names.
    shared_bytes: usize,
    purge_at: usize,
    pub merges: Vec<Arc<PartitionName>>,
}

impl Writer {
    /// Note the places of the subscriptions of a new segment.
    pub fn locate(&mut self, segment: &Segment) {
        for (slot, at) in segment.store.slots.iter().zip(0..).filter(|(_, at)| segment.removed_at(*at) == 0) {
            self.locations[*slot as usize] = at;
        }
    }

    /// Begin after the subscriptions of a file; return false if there were others before.
    pub fn begin_after(&mut self, slots: u32, order: u64) -> bool {
        self.locations.resize(slots as usize, u32::MAX);
        self.next_order = order;
        self.slots.begin_after(slots)
    }

    pub fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// One allocation for each partition and gateway that are in use together.
    pub fn filing(&mut self, filing: Filing) -> Arc<Filing> {
        if let Some(known) = self.filings.get(&filing) {
            return known.clone();
        }
        self.purge();
        self.shared_bytes += filing.bytes();
        let filing = Arc::new(filing);
        self.filings.insert(filing.clone());
        filing
    }

    /// One allocation for each partition's name.
    pub fn name(&mut self, name: PartitionName) -> Arc<PartitionName> {
        if let Some(known) = self.names.get(&name) {
            return known.clone();
        }
        self.purge();
        self.shared_bytes += name.bytes();
        let name = Arc::new(name);
        self.names.insert(name.clone());
        name
    }

    /// Drop unused entries, now and then.
    fn purge(&mut self) {
        if self.filings.len() + self.names.len() >= self.purge_at {
            self.filings.retain(|filing| Arc::strong_count(filing) > 1);
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.purge_at = 1024.max(2 * (self.filings.len() + self.names.len()));
            let filings = self.filings.iter().map(|filing| filing.bytes());
            self.shared_bytes = filings.chain(self.names.iter().map(|name| name.bytes())).sum();
        }
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        let sets = self.filings.allocation_size() + self.names.allocation_size() + self.shared_bytes;
        self.slots.bytes() + self.shapes.bytes() + block(self.locations.capacity() * size_of::<u32>()) + sets
    }
}

/// A write inside a write of the same thread, by a function that it calls; it did not change the engine.
#[derive(Debug)]
pub struct Reentered;

/// The writer, while no other thread has it.
pub(in crate::engine) struct Writing<'i> {
    pub writer: MutexGuard<'i, Writer>,
    pub thread: &'i AtomicUsize,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.thread.store(0, Ordering::Relaxed);
    }
}

impl Deref for Writing<'_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

/// A number that is unique to this thread, and never 0.
pub(super) fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
