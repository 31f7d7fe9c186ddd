//! A segment: subscriptions of one partition, indexed, immutable except for tombstones.
//!
//! ```text
//!   partition (acme, orders)   [ 20,000 ................ ] [ 512 . ] [ 64 ] [ 8 ] [ 1 ]      an LSM tree of segments
//!   removed                        ^ at version 812                          ^ at version 840
//! ```
//!
//! A subscription that is added by itself becomes a segment of one; eight of a kind are merged into one of the next
//! kind. Below [`INDEXED_FROM`] and with few alternatives a segment is a plain list, verified one by one, without
//! index. So there is no other delta, and the data that a reader sees never grows.
//!
//! A removal is the version from which on the subscription is gone ([`Tombstones`]), written before that version is
//! published. A reader that pinned an older version still sees the subscription: a replace across partitions is atomic.
//!
//! Invariant: a version is written once, and no reader has pinned it yet when it is.
//!
//! Cost: tombstones are free until the first one; then each match costs a look at a bit.
//!
//! Rejected: a bitmap in the version, copied for each removal (125 kB at 1,000,000 subscriptions); only a bit, set in
//! place (a reader could miss both the old and the new side of a replace); a mutable append array with an index of its
//! own next to the segments (a second kind of index, with locks or unsafe code).

use crate::bloom::answer::Answer;
use crate::bloom::keys::Access;
use crate::engine::index::buckets::Index;
use crate::engine::index::build::{Depth, build};
use crate::engine::index::output::Output;
use crate::engine::index::search::{MatcherScratch, Search, SearchResults, hand_out};
use crate::engine::index::shapes::Shapes;
use crate::engine::index::tombstones::Tombstones;
use crate::engine::verify::clauses;
use crate::engine::verify::encoded::CannotBuild;
use crate::engine::verify::paths::PathMap;
use crate::engine::verify::scopes::Spent;
use crate::engine::verify::store::{Store, flags};
use crate::engine::verify::values::Values;
use crate::engine::verify::whole_subscriptions::verification_holds;
use crate::fork;
use crate::heap::block;
use crate::map;
use crate::prefetch::{prefetch, prefetch_all};
use crate::subscriptions::normal_form::Unknowns;
use crate::value::Seed;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A segment with at least this many subscriptions has an index.
pub const INDEXED_FROM: usize = 64;
/// A segment with this many alternatives has one, too, however few subscriptions have them: a plain list compares each
/// with each leaf of an event.
const INDEXED_FROM_ATOMS: usize = 256;

/// Whether the subscriptions of a store are worth an index.
pub(in crate::engine) fn is_indexed(store: &Store) -> bool {
    store.len() >= INDEXED_FROM || store.atoms() >= INDEXED_FROM_ATOMS
}

/// See the head of this file.
#[derive(Debug)]
pub struct Segment {
    /// The subscriptions.
    pub store: Store,
    index: Option<Index>,
    removed: OnceLock<Tombstones>,
    dead: Dead,
    guard: Option<Guard>,
    /// From the first event with unknown values on. By then a slot may belong to another subscription, but readers do not see
    /// that position any more.
    shapes: OnceLock<Shapes>,
}

/// How many subscriptions are removed, with access keys and without: one word, so that a reader sees both counts as
/// they were at one time, even during a write.
#[derive(Debug, Default)]
struct Dead(AtomicU64);

impl Dead {
    fn one(is_unkeyed: bool) -> u64 {
        if is_unkeyed { 1 << 32 } else { 1 }
    }

    fn add(&self, is_unkeyed: bool) {
        self.0.fetch_add(Dead::one(is_unkeyed), Ordering::Relaxed);
    }

    fn take_back(&self, is_unkeyed: bool) {
        self.0.fetch_sub(Dead::one(is_unkeyed), Ordering::Relaxed);
    }

    /// The removed subscriptions with keys, and those without.
    fn counts(&self) -> (usize, usize) {
        let both = self.0.load(Ordering::Relaxed);
        ((both & u64::from(u32::MAX)) as usize, (both >> 32) as usize)
    }
}

/// The subscriptions that a filter does not cover.
#[derive(Debug)]
struct Guard {
    /// For a plain list, the conjunctions that are checked even after a NO of the filter.
    always: Box<[u32]>,
    /// Whether a NO rules out the whole segment.
    is_skipped: bool,
    /// A bit for each subscription, set for one without keys; empty if all are alike.
    unkeyed: Box<[u64]>,
    counts: (u32, u32),
    /// Keys of all subscriptions, each one's own.
    keys: u64,
}

impl Guard {
    fn of(store: &Store, access: &Access, is_list: bool) -> Guard {
        let all = 0..store.conjunctions() as u32;
        let always: Box<[u32]> = all.clone().filter(|conjunction| access.is_always(*conjunction)).collect();
        let (keyed, unkeyed) = access.counts();
        let mut bits = vec![0; if keyed > 0 && unkeyed > 0 { store.len().div_ceil(64) } else { 0 }];
        if !bits.is_empty() {
            let lacking = all.clone().filter(|conjunction| access.is_unkeyed(*conjunction)).flat_map(|one| store.targets(one));
            lacking.for_each(|at| bits[*at as usize / 64] |= 1_u64 << (at % 64));
        }
        Guard {
            is_skipped: always.is_empty(),
            always: if is_list { always } else { Box::default() },
            unkeyed: bits.into(),
            counts: (keyed as u32, unkeyed as u32),
            keys: access.keys(store),
        }
    }

    fn is_unkeyed(&self, subscription: u32) -> bool {
        match self.unkeyed.get(subscription as usize / 64) {
            Some(word) => word >> (subscription % 64) & 1 != 0,
            None => self.counts.0 == 0,
        }
    }
}

/// Scratch of one segment after another.
#[derive(Debug, Default)]
pub struct SegmentScratch {
    results: SearchResults,
    matchers: MatcherScratch,
    stamps: Vec<u32>,
    epoch: u32,
}

/// The state of the engine in which a segment is searched, and the filter's answer.
#[derive(Clone, Copy, Debug)]
pub struct SegmentQuery<'a> {
    /// The number of the version.
    pub version: u64,
    /// The answer of the partition's filter for the event.
    pub answer: Answer,
    /// How the segment's paths are named in the view.
    pub map: &'a PathMap,
    /// The engine's.
    pub seed: &'a Seed,
}

impl Segment {
    /// Index *store*; with *access*, its access keys, so that it can be guarded by a filter.
    ///
    /// # Errors
    ///
    /// There are too many conjunctions for 30 bits.
    pub fn new(mut store: Store, seed: &Seed, depth: Depth, access: Option<&Access>) -> Result<Segment, CannotBuild> {
        let is_always = |conjunction| access.is_some_and(|access| access.is_always(conjunction));
        let mut index = if is_indexed(&store) { Some(build(&mut store, seed, depth, is_always)?) } else { None };
        store.widen(seed);
        map::pack(|visit| {
            store.each_array(visit);
            index.iter_mut().for_each(|index| index.each_array(visit));
        });
        let guard = access.map(|access| Guard::of(&store, access, index.is_none()));
        Ok(Segment { store, index, removed: OnceLock::new(), dead: Dead::default(), guard, shapes: OnceLock::new() })
    }

    /// A segment of an index that was built before.
    pub(in crate::engine) fn indexed(mut store: Store, index: Index, seed: &Seed, access: Option<&Access>) -> Segment {
        store.widen(seed);
        let guard = access.map(|access| Guard::of(&store, access, false));
        Segment { store, index: Some(index), removed: OnceLock::new(), dead: Dead::default(), guard, shapes: OnceLock::new() }
    }

    /// Its index; None for a list.
    pub(in crate::engine) fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// How many subscriptions are not removed.
    pub fn live(&self) -> usize {
        let (keyed, unkeyed) = self.dead.counts();
        self.store.len() - keyed - unkeyed
    }

    /// From which version on a subscription is gone; 0 for one that is there.
    pub fn removed_at(&self, subscription: u32) -> u64 {
        self.removed.get().map_or(0, |removed| removed.removed_at(subscription))
    }

    /// Whether a subscription is gone for a reader of *version*.
    #[inline]
    pub fn is_gone(&self, subscription: u32, version: u64) -> bool {
        self.removed.get().is_some_and(|removed| removed.is_gone(subscription, version))
    }

    /// Let a subscription be gone from *version* on. Only the writer calls this, before it publishes that version.
    pub fn remove(&self, subscription: u32, version: u64) {
        let removed = self.removed.get_or_init(|| Tombstones::new(self.store.len()));
        if removed.set(subscription, version) {
            self.dead.add(self.is_unkeyed(subscription));
        }
    }

    /// Take a removal back that was not published.
    pub fn restore(&self, subscription: u32) {
        if self.removed.get().is_some_and(|removed| removed.clear(subscription)) {
            self.dead.take_back(self.is_unkeyed(subscription));
        }
    }

    /// How many subscriptions that are not removed have access keys, and how many have none.
    pub fn keyed(&self) -> (usize, usize) {
        let (keyed, unkeyed) = self.guard.as_ref().map_or((0, self.store.len() as u32), |guard| guard.counts);
        let dead = self.dead.counts();
        (keyed as usize - dead.0, unkeyed as usize - dead.1)
    }

    fn is_unkeyed(&self, subscription: u32) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.is_unkeyed(subscription))
    }

    /// How many keys a subscription has: the mean over those with any, rounded up.
    pub fn keys_of(&self, subscription: u32) -> u64 {
        let guard = self.guard.as_ref().filter(|guard| !guard.is_unkeyed(subscription));
        guard.map_or(0, |guard| guard.keys.div_ceil(u64::from(guard.counts.0).max(1)))
    }

    /// Its conjunctions by what they are about; *unknowns*: what the clauses of the subscription in a slot tell.
    pub(in crate::engine) fn shapes(&self, seed: &Seed, unknowns: impl Fn(u32) -> Unknowns) -> &Shapes {
        fork::once(&self.shapes, || Shapes::new(&self.store, seed, |at| unknowns(self.store.slots[at as usize])))
    }

    /// The subscriptions, by position, that have a conjunction which is true for one side of an event.
    pub(in crate::engine) fn satisfied<'s>(
        &self,
        query: &SegmentQuery<'_>,
        values: &mut Values<'_>,
        scratch: &'s mut SegmentScratch,
        output: &mut Output,
    ) -> &'s [u32] {
        self.search(0, query, values, scratch, output);
        &scratch.results.once
    }

    /// Find the matches of one side of an event at *version*.
    pub fn find(&self, query: &SegmentQuery<'_>, values: &mut Values<'_>, scratch: &mut SegmentScratch, output: &mut Output) {
        if self.is_skipped(query.answer) {
            return;
        }
        let store = &self.store;
        self.search(0, query, values, scratch, output);
        let once = &scratch.results.once;
        let verified = flags_verified(values);
        if store.any_flags & (verified | flags::CEL) == 0 {
            match self.removed.get() {
                None => output.certain.extend(once.iter().map(|at| store.slots[*at as usize])),
                Some(removed) => removed.extend_with_live(once, query.version, &store.slots, &mut output.certain),
            }
            return;
        }
        output.evaluated += once.len() as u64;
        // Each is read in place, but their cache misses overlap.
        for &at in once {
            prefetch(&store.flags, at as usize);
            prefetch(&store.slots, at as usize);
        }
        for &at in once {
            if self.holds(at, query, values, verified, output) {
                let list =
                    if store.flags[at as usize] & flags::CEL == 0 { &mut output.certain } else { &mut output.candidates_for_cel };
                list.push(store.slots[at as usize]);
            }
        }
    }

    /// Find the matches of the old side of an event, among subscriptions that have all of the flags *need* and do not
    /// look at `before`; slots, with their flags.
    pub fn find_old(
        &self,
        need: u8,
        query: &SegmentQuery<'_>,
        values: &mut Values<'_>,
        scratch: &mut SegmentScratch,
        output: &mut Output,
        flagged: &mut Vec<(u32, u8)>,
    ) {
        let store = &self.store;
        if store.any_flags & need != need || self.is_skipped(query.answer) {
            return;
        }
        self.search(need, query, values, scratch, output);
        let verified = flags_verified(values);
        for &at in &scratch.results.once {
            let flags = store.flags[at as usize];
            if flags & (need | flags::BEFORE) == need && self.holds(at, query, values, verified, output) {
                flagged.push((store.slots[at as usize], flags));
            }
        }
    }

    /// Prefetch the lines that a search reads first.
    pub fn prefetch(&self) {
        prefetch_all(&*self.store.paths);
        prefetch(&self.store.slots, 0);
        if let Some(index) = &self.index {
            index.prefetch();
        }
    }

    /// Whether the segment cannot have a match after an answer.
    #[inline]
    fn is_skipped(&self, answer: Answer) -> bool {
        answer == Answer::No && self.guard.as_ref().is_some_and(|guard| guard.is_skipped)
    }

    /// Find the subscriptions with a conjunction that is true; each is in the scratch once. Those that lack some of the
    /// flags *need* may be left out.
    fn search(
        &self,
        need: u8,
        query: &SegmentQuery<'_>,
        values: &mut Values<'_>,
        scratch: &mut SegmentScratch,
        output: &mut Output,
    ) {
        let guard = self.guard.as_ref().filter(|_| query.answer == Answer::No);
        let SegmentScratch { results, matchers, stamps, epoch } = scratch;
        let SegmentQuery { map, seed, .. } = *query;
        results.once.clear();
        results.several.clear();
        results.candidates = 0;
        let store = &self.store;
        match &self.index {
            Some(index) => {
                Search { store, index, map: &map.ids, positions: &map.positions, values, seed, results, scratch: matchers }
                    .run(query.answer);
                output.candidates += results.candidates;
            }
            None => {
                let is_needed = |at: &u32| store.flags[*at as usize] & need == need;
                let mut verify = |conjunction| {
                    if need != 0 && !store.targets(conjunction).iter().any(is_needed) {
                        return;
                    }
                    if store.clauses(conjunction).iter().all(|clause| clauses::clause_holds(store, *clause, &map.ids, values)) {
                        hand_out(store, conjunction, false, results);
                    }
                };
                match guard {
                    Some(guard) => {
                        guard.always.iter().for_each(|conjunction| verify(*conjunction));
                        output.listed += guard.always.len() as u64;
                    }
                    None => {
                        (0..store.conjunctions() as u32).for_each(verify);
                        output.listed += store.conjunctions() as u64;
                    }
                }
            }
        }
        if !results.several.is_empty() {
            if stamps.len() < store.len() {
                stamps.resize(store.len(), 0);
            }
            *epoch = epoch.wrapping_add(1);
            if *epoch == 0 {
                stamps.fill(0);
                *epoch = 1;
            }
            let SearchResults { once, several, .. } = results;
            once.extend(several.drain(..).filter(|at| std::mem::replace(&mut stamps[*at as usize], *epoch) != *epoch));
        }
    }

    /// Whether a subscription with a true conjunction exists and passes its verification.
    #[inline]
    fn holds(&self, at: u32, query: &SegmentQuery<'_>, values: &mut Values<'_>, verified: u8, output: &mut Output) -> bool {
        if self.is_gone(at, query.version) {
            return false;
        }
        self.store.flags[at as usize] & verified == 0
            || verification_holds(&self.store, at, &query.map.ids, values).unwrap_or_else(|Spent| {
                output.spent.push(self.store.slots[at as usize]);
                false
            })
    }

    /// How many conjunctions have no access predicate; all of a plain list.
    pub fn unkeyed(&self) -> usize {
        self.index.as_ref().map_or(self.store.conjunctions(), |index| index.unkeyed() as usize)
    }

    /// Whether there is an index.
    pub fn is_indexed(&self) -> bool {
        self.index.is_some()
    }

    /// Heap bytes used by the subscriptions and by their index, whose arrays lie in one block.
    pub fn bytes(&self) -> (usize, usize) {
        let (store, index) = (self.store.bytes(), self.index.as_ref().map_or(0, Index::bytes));
        (block(store + index) - index + block(size_of::<Segment>()), index)
    }
}

/// The flags of the verification of a candidate. If the event has no arrays, the clauses of a pattern without `$or` are
/// already known to be true.
fn flags_verified(values: &Values<'_>) -> u8 {
    if values.flat().has_arrays() { flags::VERIFY | flags::ARRAYS } else { flags::VERIFY }
}
