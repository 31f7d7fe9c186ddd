//! Which subscription is slot n? Ids and texts, found without a lock.
//!
//! ```text
//!   chunks   [ 1024 slots ] [ 2048 ......... ] [ 4096 ................... ]     a chunk is made once and never moves
//!   slot 17 ─► record: id, gateway, order of adding, text
//! ```
//!
//! A match is a slot. A slot whose subscription was removed is given to another one only when no reader can hold it any
//! more: each root belongs to a generation, a token that readers share; freed slots wait until all tokens of their time are
//! gone.
//!
//! Invariant: while a token of generation g lives, no slot freed in g or later is given away, and its record stays.
//!
//! Cost: 8 bytes a slot and one allocation a record; a lookup is two loads and a counter.
//!
//! Rejected: slots that are never used again (1,000,000 rounds of add and remove would hold 8 MB, and 2^32 end some day);
//! ids with a generation number inside (64 bits a match, and every lookup must check).

use crate::cel::Executable;
use crate::engine::access::CostClass;
use crate::engine::mapped::Mapped;
use crate::engine::partitions::Name;
use arc_swap::{ArcSwapOption, Guard};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

/// What a host keeps with a subscription; never looked into here.
pub type Host = Arc<dyn Any + Send + Sync>;

/// What is known of a subscription besides its conditions.
#[derive(Debug)]
pub struct Record {
    /// Its id.
    pub id: Box<str>,
    /// Who gets the match.
    pub gateway_id: Option<Arc<str>>,
    /// Where it is filed.
    pub partition: Arc<Name>,
    /// Its place in the order of adding; a replacement keeps it.
    pub order: u64,
    /// Its CEL part.
    pub program: Option<Arc<Executable>>,
    /// Whether its CEL part is the [`Judge`](crate::engine::Judge)'s to evaluate.
    pub portable: bool,
    /// When its errors were told last, and how many were not; see `programs.rs`.
    pub(super) heard: AtomicU64,
    /// As it was given, for the host.
    pub text: Box<[u8]>,
    /// Its conditions as JSON, where *text* is none.
    pub conditions: Option<Box<[u8]>>,
    /// What the host keeps with it, from the beginning or from when it first wants to.
    pub host: OnceLock<Host>,
    /// How quickly it is found.
    pub cost_class: CostClass,
    /// See [`crate::engine::store::flags`].
    pub flags: u8,
}

const FIRST: u32 = 1024;
const CHUNKS: usize = 22; // 1024 * (2^22 - 1) slots: just below 2^32

/// See the head of this file.
#[derive(Debug)]
pub struct Records {
    chunks: [OnceLock<Box<[ArcSwapOption<Record>]>>; CHUNKS],
    /// Of what lies in a file, records are made when they are asked for.
    mapped: OnceLock<Mapped>,
}

impl Default for Records {
    fn default() -> Records {
        Records { chunks: [const { OnceLock::new() }; CHUNKS], mapped: OnceLock::new() }
    }
}

/// The chunk of a slot, and its place in it.
fn place(slot: u32) -> (usize, usize) {
    let chunk = (slot / FIRST + 1).ilog2();
    (chunk as usize, (slot - FIRST * ((1 << chunk) - 1)) as usize)
}

impl Records {
    /// The record of a slot; a caller that holds a token of the time in which it found the slot always gets one.
    #[inline]
    pub fn get(&self, slot: u32) -> Guard<Option<Arc<Record>>> {
        let made = self.made(slot);
        if made.is_none() && self.mapped.get().is_some() { Guard::from_inner(self.make(slot)) } else { made }
    }

    /// The record of a slot, unless it lies in a file and nobody has asked for it yet.
    #[inline]
    pub(super) fn made(&self, slot: u32) -> Guard<Option<Arc<Record>>> {
        let (chunk, at) = place(slot);
        match self.chunks.get(chunk).and_then(OnceLock::get) {
            Some(chunk) => chunk[at].load(),
            None => Guard::from_inner(None),
        }
    }

    /// What lies in a file.
    pub(super) fn mapped(&self) -> Option<&Mapped> {
        self.mapped.get()
    }

    /// Hold what lies in a file; once.
    pub(super) fn map(&self, mapped: Mapped) {
        let _ = self.mapped.set(mapped);
    }

    fn entry(&self, slot: u32) -> &ArcSwapOption<Record> {
        let (chunk, at) = place(slot);
        let size = (FIRST as usize) << chunk;
        &self.chunks[chunk].get_or_init(|| (0..size).map(|_| ArcSwapOption::empty()).collect())[at]
    }

    /// Only the writer calls this.
    fn set(&self, slot: u32, record: Option<Arc<Record>>) {
        self.entry(slot).store(record);
    }

    /// Set a record that any thread may have made; the first one stays.
    pub(super) fn set_first(&self, slot: u32, record: Arc<Record>) -> Arc<Record> {
        let before = self.entry(slot).compare_and_swap(&None::<Arc<Record>>, Some(record.clone()));
        before.as_ref().cloned().unwrap_or(record)
    }
}

/// A token that the readers of a span of versions share.
#[derive(Debug, Default)]
pub struct Generation(());

/// The slots that are free, or will be. Owned by the writer.
#[derive(Debug, Default)]
pub struct Slots {
    next: u32,
    free: Vec<u32>,
    generation: Arc<Generation>,
    freed: Vec<u32>,
    waiting: VecDeque<(Weak<Generation>, Vec<u32>)>,
}

/// So many slots are freed before the readers get a new token, if older ones are still held.
const BATCH: usize = 1024;

impl Slots {
    /// The token for the next root.
    pub fn generation(&self) -> Arc<Generation> {
        self.generation.clone()
    }

    /// Take a slot for a record; None where all 2^32 are taken.
    pub fn take(&mut self, records: &Records, record: Arc<Record>) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if place(self.next).0 < CHUNKS => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        records.set(slot, Some(record));
        Some(slot)
    }

    /// Give a slot back that no published root has seen.
    pub fn give_back(&mut self, records: &Records, slot: u32) {
        records.set(slot, None);
        self.free.push(slot);
    }

    /// Let a slot wait until no reader can hold it. The next published root must not have it any more.
    pub fn release(&mut self, slot: u32) {
        self.freed.push(slot);
    }

    /// Give away what no reader can hold, and begin a new generation if that helps. Called before a root is published.
    pub fn advance(&mut self, records: &Records) {
        while self.waiting.front().is_some_and(|(generation, _)| generation.strong_count() == 0) {
            for slot in self.waiting.pop_front().into_iter().flat_map(|(_, slots)| slots) {
                records.set(slot, None);
                self.free.push(slot);
            }
        }
        if self.freed.len() >= BATCH || (!self.freed.is_empty() && self.waiting.is_empty()) {
            let old = std::mem::take(&mut self.generation);
            self.waiting.push_back((Arc::downgrade(&old), std::mem::take(&mut self.freed)));
        }
    }

    /// Begin after the slots of a file; false where one was taken already.
    pub(super) fn begin_after(&mut self, taken: u32) -> bool {
        let is_new = self.next == 0;
        self.next = self.next.max(taken);
        is_new
    }

    /// Slots are numbered below this.
    pub fn end(&self) -> u32 {
        self.next
    }
}
