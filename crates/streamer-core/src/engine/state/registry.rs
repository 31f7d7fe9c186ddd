//! Which subscription is slot n? Ids and texts, found without a lock.
//!
//! ```text
//!   chunks   [ 1280 slots ] [ 81,920 ... ] [ 81,920 ... ] ... [ 163,840 ....... ]     a chunk is made once and never moves
//!   slot 17 ─► record: id, gateway, order of adding, text
//! ```
//!
//! A match is a slot. The slot of a removed subscription is reused only when no reader can use it any more: each
//! version belongs to a generation, a token that readers share; a freed slot waits until all tokens of its time are
//! dropped, from the generation in which it was allocated to that in which it was freed.
//!
//! ```text
//!   generation      3       4       5       6            a token of 3 lives for a year, of 5 for a while
//!   slot 17     ────allocated───────freed                waits for 5, then for 3
//!   slot 18                         allocated─freed      waits for 5 and 6, but not for the year of 3
//! ```
//!
//! Invariant: while a token of generation g lives, slots that were allocated in g or before and freed in g or later are
//! not reused, and their records stay.
//!
//! Cost: 12 bytes a slot and one allocation a record; a lookup is two loads and two writes to a line that is the
//! thread's own. To keep a record longer is a write to the record, which waits for it and blocks later instructions: a
//! reader of many records looks up [`AT_ONCE`] of them.
//!
//! Rejected: slots that are never reused (1,000,000 rounds of add and remove would keep 8 MB, and 2^32 end some day);
//! ids with a generation number inside (64 bits a match, and every lookup must check); slots that wait for all older
//! tokens, too (one match that is kept would keep all slots that are removed from then on).

use crate::engine::state::record::{Record, RecordBytes, RecordRef};
use crate::engine::state::snapshot_sections::Mapped;
use crate::heap::block;
use crate::prefetch::{prefetch, prefetch_at};
use arc_swap::{ArcSwapAny, Guard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Slots of the first chunk, the only one in an engine of a few subscriptions.
const FIRST: u32 = 1280;
/// Slots of the second chunk. An allocator puts blocks of up to half a megabyte together, megabytes at once: while one
/// of them lives, it does not return the memory of the others.
const SECOND: u32 = 64 * FIRST;
/// This many chunks have one size, then as many have twice that: at most an eighth of all slots is in the chunk that
/// was begun last.
const ALIKE: u32 = 8;
/// The number of records that are read together: a thread may borrow this many without counting.
pub const AT_ONCE: usize = 8;
const CHUNKS: usize = 1 + 12 * ALIKE as usize; // 1280 + 81,920 * 8 * (2^12 - 1) slots: more than 2^31

type Entry = ArcSwapAny<Option<RecordRef>>;

/// See the head of this file.
#[derive(Debug)]
pub struct Records {
    chunks: [OnceLock<Box<[Entry]>>; CHUNKS],
    /// Records of subscriptions in a file are made at their first use.
    mapped: OnceLock<Mapped>,
    /// Heap bytes of the stored records.
    record_bytes: AtomicUsize,
    text_bytes: AtomicUsize,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            chunks: [const { OnceLock::new() }; CHUNKS],
            mapped: OnceLock::new(),
            record_bytes: AtomicUsize::new(0),
            text_bytes: AtomicUsize::new(0),
        }
    }
}

/// The chunk of a slot, and its place in it.
fn place(slot: u32) -> (usize, usize) {
    let Some(beyond) = slot.checked_sub(FIRST) else { return (0, slot as usize) };
    let of_second = beyond / SECOND;
    let doublings = (of_second / ALIKE + 1).ilog2();
    let smaller = ALIKE * ((1 << doublings) - 1);
    let alike = (of_second - smaller) >> doublings;
    ((1 + ALIKE * doublings + alike) as usize, (beyond - SECOND * (smaller + (alike << doublings))) as usize)
}

/// The number of slots of a chunk.
fn size(chunk: usize) -> usize {
    chunk.checked_sub(1).map_or(FIRST as usize, |beyond| (SECOND as usize) << (beyond / ALIKE as usize))
}

impl Records {
    /// The record of a slot; a caller that has a token of the time at which it found the slot always gets one.
    ///
    /// A call each would cost a loop over many ids 5 %.
    #[inline(always)]
    pub fn get(&self, slot: u32) -> Guard<Option<RecordRef>> {
        let made = self.made(slot);
        if made.is_none() && self.mapped.get().is_some() { Guard::from_inner(self.make(slot)) } else { made }
    }

    /// The records of some slots, at most [`AT_ONCE`], as [`Records::get`] gives each. The processor waits for them together.
    #[inline]
    pub fn get_some(&self, slots: &[u32]) -> [Guard<Option<RecordRef>>; AT_ONCE] {
        let mut slots = slots.iter();
        std::array::from_fn(|_| match slots.next() {
            None => Guard::from_inner(None),
            Some(slot) => {
                let record = self.get(*slot);
                if let Some(record) = record.as_ref() {
                    prefetch_at(&raw const **record);
                }
                record
            }
        })
    }

    /// Prefetch the entries of some slots.
    #[inline]
    pub fn prefetch(&self, slots: &[u32]) {
        for slot in slots {
            let (chunk, at) = place(*slot);
            if let Some(chunk) = self.chunks.get(chunk).and_then(OnceLock::get) {
                prefetch(chunk, at);
            }
        }
    }

    /// The record of a slot, unless it lies in a file and was not used yet.
    #[inline]
    pub(in crate::engine) fn made(&self, slot: u32) -> Guard<Option<RecordRef>> {
        let (chunk, at) = place(slot);
        match self.chunks.get(chunk).and_then(OnceLock::get) {
            Some(chunk) => chunk[at].load(),
            None => Guard::from_inner(None),
        }
    }

    /// The subscriptions in a file.
    pub(in crate::engine) fn mapped(&self) -> Option<&Mapped> {
        self.mapped.get()
    }

    /// Set the subscriptions of a file; once.
    pub(in crate::engine) fn map(&self, mapped: Mapped) {
        let _ = self.mapped.set(mapped);
    }

    /// The record of a slot whose line lies in a file; None for any other slot.
    #[cold]
    fn make(&self, slot: u32) -> Option<RecordRef> {
        let record = RecordRef::new(self.mapped()?.record(slot)?);
        Some(self.set_first(slot, record))
    }

    fn entry(&self, slot: u32) -> &Entry {
        let (chunk, at) = place(slot);
        &self.chunks[chunk].get_or_init(|| (0..size(chunk)).map(|_| Entry::new(None)).collect())[at]
    }

    /// Set the records of unused slots. Only the writer calls this.
    ///
    /// A chunk is made with its records: an entry that readers may see has to be swapped, and each swap checks what
    /// every thread reads.
    pub(in crate::engine) fn set_all(&self, records: impl Iterator<Item = (u32, RecordRef)>) {
        let mut records = records.peekable();
        while let Some((slot, _)) = records.peek() {
            let (chunk, at) = place(*slot);
            let slots = slot - at as u32..;
            let mut is_made = false;
            self.chunks[chunk].get_or_init(|| {
                is_made = true;
                let entry = |slot| {
                    let record = records.next_if(|(next, _)| *next == slot).map(|(_, record)| record);
                    record.iter().for_each(|record| self.count(record));
                    Entry::new(record)
                };
                slots.take(size(chunk)).map(entry).collect()
            });
            if !is_made && let Some((slot, record)) = records.next() {
                self.set(slot, Some(record));
            }
        }
    }

    /// Only the writer calls this.
    fn set(&self, slot: u32, record: Option<RecordRef>) {
        record.iter().for_each(|record| self.count(record));
        if let Some(before) = self.entry(slot).swap(record) {
            let RecordBytes { records, texts } = before.bytes();
            self.record_bytes.fetch_sub(records, Ordering::Relaxed);
            self.text_bytes.fetch_sub(texts, Ordering::Relaxed);
        }
    }

    fn count(&self, record: &Record) {
        let RecordBytes { records, texts } = record.bytes();
        self.record_bytes.fetch_add(records, Ordering::Relaxed);
        self.text_bytes.fetch_add(texts, Ordering::Relaxed);
    }

    /// Heap bytes of the stored records, and of the chunks.
    pub(in crate::engine) fn bytes(&self) -> RecordBytes {
        let chunks: usize = self.chunks.iter().filter_map(OnceLock::get).map(|chunk| block(size_of_val(&**chunk))).sum();
        RecordBytes {
            records: chunks + self.record_bytes.load(Ordering::Relaxed),
            texts: self.text_bytes.load(Ordering::Relaxed),
        }
    }

    /// Set a record that any thread may have made; the first one stays.
    fn set_first(&self, slot: u32, record: RecordRef) -> RecordRef {
        let before = self.entry(slot).compare_and_swap(&None::<RecordRef>, Some(record.clone()));
        if before.is_none() {
            self.count(&record);
        }
        before.as_ref().cloned().unwrap_or(record)
    }
}

/// A token that the readers of a span of versions share.
#[derive(Debug, Default)]
pub struct Generation(());

/// The slots that are free, or will be. Owned by the writer.
#[derive(Debug, Default)]
pub struct FreeSlots {
    next: u32,
    free: Vec<u32>,
    generation: Arc<Generation>,
    /// The number of this generation; the last number stands for all later ones, which then count as one.
    number: u32,
    /// The generation in which each slot was last allocated.
    allocated_in: Vec<u32>,
    freed: Vec<u32>,
    /// By generation.
    waiting: VecDeque<Waiting>,
}

/// Slots that a token may protect.
#[derive(Debug)]
struct Waiting {
    generation: Weak<Generation>,
    number: u32,
    slots: Vec<u32>,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.generation.strong_count() == 0
    }
}

/// This many slots are freed before the readers get a new token, if older ones still live.
const BATCH: usize = 1024;

impl FreeSlots {
    /// The token for the next version.
    pub fn generation(&self) -> Arc<Generation> {
        self.generation.clone()
    }

    /// Allocate a slot for a record; None if all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if place(self.next).0 < CHUNKS => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.allocated_in.resize(self.allocated_in.len().max(self.next as usize), 0);
        self.allocated_in[slot as usize] = self.number;
        Some(slot)
    }

    /// Give a slot back that no published version has seen, or none any more.
    pub fn give_back(&mut self, records: &Records, slot: u32) {
        records.set(slot, None);
        self.free.push(slot);
    }

    /// Let a slot wait until no reader can use it. The next published version must not have it any more.
    pub fn release(&mut self, slot: u32) {
        self.freed.push(slot);
    }

    /// Free the slots that no reader can use, and begin a new generation if that helps. Called before a version is
    /// published.
    pub fn advance(&mut self, records: &Records) {
        self.reclaim(records);
        if self.freed.len() >= BATCH || (!self.freed.is_empty() && self.waiting.is_empty()) {
            let generation = Arc::downgrade(&std::mem::take(&mut self.generation));
            self.waiting.push_back(Waiting { generation, number: self.number, slots: std::mem::take(&mut self.freed) });
            self.number = self.number.saturating_add(1);
            self.give_away(records);
        }
    }

    /// Free the slots that no reader can use. Called after a version was published, too: the next write may be hours
    /// away.
    pub fn reclaim(&mut self, records: &Records) {
        if self.waiting.front().is_some_and(Waiting::is_over) {
            self.give_away(records);
        }
    }

    /// Free the slots whose tokens are dropped. Those that an older token may protect wait for it instead.
    fn give_away(&mut self, records: &Records) {
        let mut merged: VecDeque<Waiting> = VecDeque::with_capacity(self.waiting.len());
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.is_over() {
                if let Some(before) = merged.back_mut() {
                    let is_its = |slot: &mut u32| self.allocated_in[*slot as usize] <= before.number;
                    before.slots.extend(waiting.slots.extract_if(.., is_its));
                }
                for slot in waiting.slots {
                    self.give_back(records, slot);
                }
            } else {
                merged.push_back(waiting);
            }
        }
        self.waiting = merged;
    }

    /// Begin after the slots of a file; return false if a slot was allocated already.
    pub(super) fn begin_after(&mut self, count: u32) -> bool {
        let is_new = self.next == 0;
        self.next = self.next.max(count);
        self.allocated_in.resize(self.next as usize, 0);
        is_new
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        let lists =
            [&self.free, &self.allocated_in, &self.freed].into_iter().chain(self.waiting.iter().map(|waiting| &waiting.slots));
        lists.map(|slots| block(slots.capacity() * size_of::<u32>())).sum()
    }

    /// Slots are numbered below this.
    pub fn end(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_one_after_the_other_in_as_many_chunks_as_there_are() {
        let mut first = 0;
        for chunk in 0..CHUNKS {
            assert_eq!(place(first), (chunk, 0));
            let last = first + size(chunk) as u32 - 1;
            assert_eq!(place(last), (chunk, size(chunk) - 1));
            first = last + 1;
        }
        assert_eq!(place(first).0, CHUNKS);
    }
}
