//! A segment: subscriptions of one partition, indexed, immutable but for tombstones.
//!
//! ```text
//!   partition (acme, orders)   [ 20,000 ................ ] [ 512 . ] [ 64 ] [ 8 ] [ 1 ]      an LSM tree of segments
//!   removed                        ^ at version 812                          ^ at version 840
//! ```
//!
//! A subscription that is added alone becomes a segment of one; eight of a kind are merged into one of the next kind. Below
//! [`INDEXED_FROM`] a segment is a plain list, verified one by one, without index. So there is no other delta, and nothing
//! that a reader sees ever grows.
//!
//! A removal is the version from which on the subscription is gone, written beside it before the root of that version is
//! published. A reader that pinned an older root still sees it: a replace across partitions is atomic.
//!
//! Invariant: a version is written once, and no reader has pinned it yet when it is.
//!
//! Cost: nothing for tombstones until the first one; then 8 bytes a subscription and a load for each that is found.
//!
//! Rejected: a bitmap in the root, copied for each removal (125 kB at 1,000,000 subscriptions); a bit set in place (a reader
//! could miss both the old and the new side of a replace); a mutable append array with an index of its own beside the
//! segments (a second kind of index, with locks or unsafe code).

use crate::engine::buckets::{Found, Index, MatcherScratch, Visit, hand_out};
use crate::engine::build::{Depth, build};
use crate::engine::judge::Outcome;
use crate::engine::paths::PathMap;
use crate::engine::store::{Store, flags};
use crate::engine::values::Values;
use crate::engine::verify;
use crate::engine::words::Refused;
use crate::value::Seed;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// From so many subscriptions on a segment has an index.
pub const INDEXED_FROM: usize = 64;

/// See the head of this file.
#[derive(Debug)]
pub struct Segment {
    /// The subscriptions.
    pub store: Store,
    index: Option<Index>,
    removed: OnceLock<Box<[AtomicU64]>>,
    dead: AtomicU32,
}

/// Scratch of one segment after another.
#[derive(Debug, Default)]
pub struct SegmentScratch {
    found: Found,
    matchers: MatcherScratch,
    stamps: Vec<u32>,
    epoch: u32,
}

/// What an event found.
#[derive(Debug, Default)]
pub struct Output {
    /// Slots of subscriptions that match.
    pub certain: Vec<u32>,
    /// Slots of those that match in another way than the event's change.
    pub told: Vec<(u32, Outcome)>,
    /// Slots of subscriptions whose CEL part, or the whole of which, the host must judge, with their flags.
    pub pending: Vec<(u32, u8)>,
    /// How many conjunctions of indexes were verified or handed out.
    pub candidates: u64,
    /// Likewise of plain lists.
    pub listed: u64,
}

/// In which state of the engine, and how, a segment is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The version of the root.
    pub version: u64,
    /// How the segment's paths are named in the view.
    pub map: &'a PathMap,
    /// The engine's.
    pub seed: &'a Seed,
}

impl Output {
    /// Begin with another event.
    pub fn clear(&mut self) {
        self.certain.clear();
        self.told.clear();
        self.pending.clear();
        (self.candidates, self.listed) = (0, 0);
    }
}

impl Segment {
    /// Index *store*.
    ///
    /// # Errors
    ///
    /// There are too many conjunctions for 30 bits.
    pub fn new(mut store: Store, seed: &Seed, depth: Depth) -> Result<Segment, Refused> {
        let index = if store.len() < INDEXED_FROM { None } else { Some(build(&mut store, seed, depth)?) };
        Ok(Segment { store, index, removed: OnceLock::new(), dead: AtomicU32::new(0) })
    }

    /// How many subscriptions are not removed.
    pub fn live(&self) -> usize {
        self.store.len() - self.dead.load(Ordering::Relaxed) as usize
    }

    /// From which version on a subscription is gone; 0 for one that is there.
    pub fn removed_at(&self, subscription: u32) -> u64 {
        self.removed.get().map_or(0, |removed| removed[subscription as usize].load(Ordering::Relaxed))
    }

    /// Let a subscription be gone from *version* on. Only the writer calls this, before it publishes that version.
    pub fn remove(&self, subscription: u32, version: u64) {
        let removed = self.removed.get_or_init(|| (0..self.store.len()).map(|_| AtomicU64::new(0)).collect());
        if removed[subscription as usize].swap(version, Ordering::Relaxed) == 0 {
            self.dead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Take a removal back that was not published.
    pub fn restore(&self, subscription: u32) {
        let was = self.removed.get().map_or(0, |removed| removed[subscription as usize].swap(0, Ordering::Relaxed));
        if was != 0 {
            self.dead.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Put all that is there at *version*, or what has one of the flags *need*, out for the host to judge whole.
    pub fn everything(&self, version: u64, need: Option<u8>, output: &mut Output) {
        let is_there = |at: u32| !(1..=version).contains(&self.removed_at(at));
        let is_meant = |at: u32| need.is_none_or(|need| self.store.flags[at as usize] & need != 0);
        let all = (0..self.store.len() as u32).filter(|at| is_there(*at) && is_meant(*at));
        output.pending.extend(all.map(|at| (self.store.slots[at as usize], self.store.flags[at as usize] | flags::WHOLE)));
    }

    /// Find what one side of an event matches among what is there at *version*.
    pub fn find(&self, asked: &Asked<'_>, values: &mut Values<'_>, scratch: &mut SegmentScratch, output: &mut Output) {
        let store = &self.store;
        self.search(asked, values, scratch, output);
        let found = &scratch.found.once;
        let verified = flags_verified(values);
        if self.removed.get().is_none() && store.any_flags & (verified | flags::CEL | flags::WHOLE) == 0 {
            output.certain.extend(found.iter().map(|at| store.slots[*at as usize]));
            return;
        }
        for &at in found.iter().chain(&store.whole) {
            if self.holds(at, asked, values, verified) {
                let flags = store.flags[at as usize];
                if flags & (flags::CEL | flags::WHOLE) == 0 {
                    output.certain.push(store.slots[at as usize]);
                } else {
                    output.pending.push((store.slots[at as usize], flags));
                }
            }
        }
    }

    /// Find what the old side of an event matches, of subscriptions that have all of the flags *need* and do not look at
    /// `before`; slots, with their flags.
    pub fn find_old(
        &self,
        need: u8,
        asked: &Asked<'_>,
        values: &mut Values<'_>,
        scratch: &mut SegmentScratch,
        output: &mut Output,
        found: &mut Vec<(u32, u8)>,
    ) {
        let store = &self.store;
        if store.any_flags & need != need {
            return;
        }
        self.search(asked, values, scratch, output);
        let verified = flags_verified(values);
        for &at in &scratch.found.once {
            let flags = store.flags[at as usize];
            if flags & (need | flags::BEFORE) == need && self.holds(at, asked, values, verified) {
                found.push((store.slots[at as usize], flags));
            }
        }
    }

    /// Find the subscriptions of which a conjunction holds; each stands once in the scratch.
    fn search(&self, asked: &Asked<'_>, values: &mut Values<'_>, scratch: &mut SegmentScratch, output: &mut Output) {
        let SegmentScratch { found, matchers, stamps, epoch } = scratch;
        let Asked { map, seed, .. } = *asked;
        found.once.clear();
        found.several.clear();
        found.candidates = 0;
        let store = &self.store;
        match &self.index {
            Some(index) => {
                Visit { store, index, map: &map.ids, positions: &map.positions, values, seed, found, scratch: matchers }.run();
                output.candidates += found.candidates;
            }
            None => {
                for conjunction in 0..store.conjunctions() as u32 {
                    if store.clauses(conjunction).iter().all(|clause| verify::clause_holds(store, *clause, &map.ids, values)) {
                        hand_out(store, conjunction, false, found);
                    }
                }
                output.listed += store.conjunctions() as u64;
            }
        }
        if !found.several.is_empty() {
            if stamps.len() < store.len() {
                stamps.resize(store.len(), 0);
            }
            *epoch = epoch.wrapping_add(1);
            if *epoch == 0 {
                stamps.fill(0);
                *epoch = 1;
            }
            let Found { once, several, .. } = found;
            once.extend(several.drain(..).filter(|at| std::mem::replace(&mut stamps[*at as usize], *epoch) != *epoch));
        }
    }

    /// Whether a subscription, one of whose conjunctions holds, is there and passes what is verified besides.
    #[inline]
    fn holds(&self, at: u32, asked: &Asked<'_>, values: &mut Values<'_>, verified: u8) -> bool {
        let gone = self.removed_at(at);
        !(gone != 0 && gone <= asked.version)
            && (self.store.flags[at as usize] & verified == 0
                || verify::verification_holds(&self.store, at, &asked.map.ids, values))
    }

    /// How many conjunctions have no access predicate; all of a plain list.
    pub fn unkeyed(&self) -> usize {
        self.index.as_ref().map_or(self.store.conjunctions(), |index| index.unkeyed() as usize)
    }

    /// Whether there is an index.
    pub fn is_indexed(&self) -> bool {
        self.index.is_some()
    }

    /// Heap bytes held by the subscriptions and by their index.
    pub fn bytes(&self) -> (usize, usize) {
        (self.store.bytes() + size_of::<Segment>(), self.index.as_ref().map_or(0, Index::bytes))
    }
}

/// The flags of what is verified on a candidate. Arrays apart, the clauses of a pattern without `$or` have already been found
/// to hold.
fn flags_verified(values: &Values<'_>) -> u8 {
    if values.flat().has_arrays() { flags::VERIFY | flags::ARRAYS } else { flags::VERIFY }
}
