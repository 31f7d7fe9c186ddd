//! Phase 1 of a partition: one filter over the access keys of all its keyed subscriptions.
//!
//! ```text
//!   places     data.status equal, data.user.id prefix8    the places of each kind of key; an event is read at them
//!   event      {"status": "sent", "user": {"id": "u8"}}  hash of each value's key of this kind, with its place
//!                                                         ─► blocked bits     all unset: NO         one may be set: MAYBE
//! ```
//!
//! Concurrency contract: readers query, and count, without a lock. Only the writer adds, before it publishes the
//! version that the keys belong to. A filter that gained a place shares bits and counters with the one before it: a
//! reader of an older version gets MAYBE more often, never a wrong NO. A rebuilt one has bits of its own and belongs to
//! a version of its own.
//!
//! Invariant (semantics.md section 9, *zero false negatives*): for every keyed subscription of the partition that the event
//! matches the answer is MAYBE.
//!
//! The measured rate is that of an *event*: how many of the events without a live key get MAYBE. Every [`EVERY`]th
//! MAYBE keeps its probes, until [`BloomFilter::settle`] checks which of them belong to a live key.
//!
//! Cost: a hash and a load for each value at a place; of an equality the hash is the one that the index needs too.

use crate::bloom::answer::Answer;
use crate::bloom::blocked::{Blocked, Measure};
use crate::bloom::keys::{Access, place_to_bytes};
use crate::bloom::kinds::{KeyKind, of_scalar};
use crate::engine::verify::paths::{MANY_PATHS, PathMap, PathSet, PathSets};
use crate::engine::verify::store::Store;
use crate::engine::verify::values::Values;
use crate::prefetch::{prefetch, prefetch_all};
use crate::subscriptions::normal_form::{Mode, Path};
use crate::value::{ScalarRef, Seed};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One answer in this number is sampled.
pub const EVERY: u64 = 16;
/// At most this many samples wait until they are settled, and at most [`MOST_PROBES`] probes of one event.
const MOST_SAMPLES: usize = 512;
const MOST_PROBES: usize = 64;

/// A place that has keys of a kind.
pub type KeyPlace = (Path, Mode, KeyKind);

/// See the head of this file.
#[derive(Debug)]
pub struct BloomFilter {
    bits: Arc<Bits>,
    /// The places that have keys.
    pub places: Arc<PathSet>,
    /// The keys at each place.
    salts: Box<[KeysAtPlace]>,
}

/// The keys at a place, by the salts with which they are hashed.
#[derive(Debug)]
struct KeysAtPlace {
    /// The salt of equalities; 0 if there are none.
    equal: u64,
    /// The salt of each other kind: a separate list, since most places have none.
    others: Box<[(KeyKind, u64)]>,
}

impl KeysAtPlace {
    fn kinds(&self) -> impl Iterator<Item = KeyKind> {
        let others = self.others.iter().map(|(kind, _)| *kind);
        (self.equal != 0).then_some(KeyKind::Equal).into_iter().chain(others)
    }

    /// Call *visit* with the hash of each key of a scalar except its equality.
    #[inline(never)]
    fn for_each_other(&self, scalar: ScalarRef<'_>, seed: &Seed, visit: &mut dyn FnMut(u64)) {
        for &(kind, salt) in &self.others {
            // `of_scalar` is complete for all kinds but grams, which are never here.
            of_scalar(kind, scalar, &mut |probe| visit(join(probe.hash(seed), salt)));
        }
    }
}

/// The parts that a filter shares with those that it was extended from.
#[derive(Debug)]
struct Bits {
    blocked: Blocked,
    capacity: usize,
    version: u64,
    keys: AtomicU64,
    stale: AtomicU64,
    counts: Arc<Counts>,
    /// The counters when this was built.
    since: (u64, u64),
    sampled: AtomicU64,
    false_positives: AtomicU64,
    samples: Mutex<Samples>,
}

/// Counters of a partition's filters, one version after the other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts {
    no: AtomicU64,
    maybe: AtomicU64,
    probes: AtomicU64,
    grown: AtomicU64,
}

#[derive(Debug, Default)]
struct Samples {
    /// The hashes of the keys that an event carried, one event after the other.
    probes: Vec<u64>,
    ends: Vec<u32>,
    /// How many answers the settled samples represent.
    settled: (u64, u64),
}

/// The state of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BloomState {
    /// How often it was built.
    pub version: u64,
    /// How many of these builds a write made, because the filter had more keys than it was sized for.
    pub grown: u64,
    /// Keys that were added since it was built.
    pub keys: u64,
    /// How many keys it was sized for.
    pub capacity: usize,
    /// Keys of subscriptions that were removed since it was built, estimated from the mean of their segments.
    pub stale: u64,
    /// Its bits.
    pub bits: Measure,
    /// Events that queried it, in all versions.
    pub asked: u64,
    /// Those that it stopped.
    pub no: u64,
    /// Keys that those events carried.
    pub probes: u64,
    /// Sampled events that carried no live key, since it was built.
    pub sampled: u64,
    /// Those of them that got MAYBE.
    pub false_positives: u64,
}

impl BloomFilter {
    /// A filter for *capacity* keys, of which *keys* were added, at these places; it continues the counts of *old*.
    pub fn new(
        blocked: Blocked,
        capacity: usize,
        keys: u64,
        places: impl IntoIterator<Item = KeyPlace>,
        sets: &mut PathSets,
        seed: &Seed,
        old: Option<&BloomFilter>,
    ) -> BloomFilter {
        let counts = old.map(|old| old.bits.counts.clone()).unwrap_or_default();
        let bits = Bits {
            blocked,
            capacity,
            version: old.map_or(1, |old| old.bits.version + 1),
            keys: AtomicU64::new(keys),
            stale: AtomicU64::new(0),
            since: (counts.no.load(Ordering::Relaxed), counts.maybe.load(Ordering::Relaxed)),
            counts,
            sampled: AtomicU64::new(0),
            false_positives: AtomicU64::new(0),
            samples: Mutex::default(),
        };
        let (places, salts) = arrange(places, sets, seed);
        BloomFilter { bits: Arc::new(bits), salts, places }
    }

    fn all_places(&self) -> impl Iterator<Item = (&Path, Mode, KeyKind)> {
        let salts = self.places.paths.iter().zip(&self.salts);
        salts.flat_map(|((path, mode), salts)| salts.kinds().map(move |kind| (path, *mode, kind)))
    }

    /// The filter with these places too: itself, if it has them all.
    pub fn with_places(self: &Arc<BloomFilter>, more: &HashSet<KeyPlace>, sets: &mut PathSets, seed: &Seed) -> Arc<BloomFilter> {
        let known: HashSet<(&Path, Mode, KeyKind)> = self.all_places().collect();
        let new: Vec<&KeyPlace> = more.iter().filter(|(path, mode, kind)| !known.contains(&(path, *mode, *kind))).collect();
        if new.is_empty() {
            return self.clone();
        }
        let known = known.into_iter().map(|(path, mode, kind)| (path.clone(), mode, kind));
        let (places, salts) = arrange(known.chain(new.into_iter().cloned()), sets, seed);
        Arc::new(BloomFilter { bits: self.bits.clone(), salts, places })
    }

    /// Add keys, as [`for_each_hash`] hashes them. Their places must be known. Only the writer calls this.
    pub fn add(&self, hashes: impl Iterator<Item = u64>) {
        let added = hashes.map(|hash| u64::from(self.bits.blocked.add(hash))).sum();
        self.bits.keys.fetch_add(added, Ordering::Relaxed);
    }

    /// Note that subscriptions with *keys* keys were removed.
    pub fn note_removed(&self, keys: u64) {
        self.bits.stale.fetch_add(keys, Ordering::Relaxed);
    }

    /// Note that a write built this in the place of one that was too small.
    pub fn note_grown(&self) {
        self.bits.counts.grown.fetch_add(1, Ordering::Relaxed);
    }

    /// How many keys were added, and how many it was sized for.
    pub fn load(&self) -> (u64, usize) {
        (self.bits.keys.load(Ordering::Relaxed), self.bits.capacity)
    }

    /// Whether any keyed subscription can match an event. The caller does not query events with unknown values: they
    /// get MAYBE.
    #[inline]
    pub fn ask(&self, map: &PathMap, values: &mut Values<'_>) -> Answer {
        let (mut probes, mut is_there) = (0, false);
        self.for_each_probe(map, values, |hash| {
            probes += 1;
            is_there |= self.bits.blocked.has(hash);
        });
        let counts = &self.bits.counts;
        counts.probes.fetch_add(probes, Ordering::Relaxed);
        if !is_there {
            counts.no.fetch_add(1, Ordering::Relaxed);
            return Answer::No;
        }
        if counts.maybe.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            self.sample(map, values);
        }
        Answer::Maybe
    }

    /// Prefetch the lines that are read first.
    pub fn prefetch(&self) {
        prefetch_all(&*self.bits);
        prefetch_all(&*self.places);
        prefetch(&self.salts, 0);
    }

    /// Query without counting.
    pub fn check(&self, map: &PathMap, values: &mut Values<'_>) -> Answer {
        let mut is_there = false;
        self.for_each_probe(map, values, |hash| is_there |= self.bits.blocked.has(hash));
        if is_there { Answer::Maybe } else { Answer::No }
    }

    /// Call *visit* with the hash of each key that an event carries at the places.
    #[inline]
    fn for_each_probe(&self, map: &PathMap, values: &mut Values<'_>, mut visit: impl FnMut(u64)) {
        let mut at_place = |place: usize, values: &mut Values<'_>| {
            let (salts, seed) = (&self.salts[place], values.seed());
            for at in values.at(map.ids[place], self.places.paths[place].1) {
                let Some(hash) = values.scalar_hash(at) else { continue };
                if salts.equal != 0 {
                    visit(join(hash, salts.equal));
                }
                if !salts.others.is_empty()
                    && let Some(scalar) = values.get(at).scalar
                {
                    salts.for_each_other(scalar, seed, &mut visit);
                }
            }
        };
        if self.salts.len() <= MANY_PATHS || map.positions.is_empty() {
            for place in 0..self.salts.len() {
                at_place(place, values);
            }
            return;
        }
        values.find_present();
        for at in 0..values.present().len() {
            let path = values.present()[at];
            for place in map.positions[path.0 as usize] {
                if place != u32::MAX {
                    at_place(place as usize, values);
                }
            }
        }
    }

    #[cold]
    fn sample(&self, map: &PathMap, values: &mut Values<'_>) {
        // Another thread that samples, or settles, is as good.
        let Ok(mut samples) = self.bits.samples.try_lock() else { return };
        if samples.ends.len() >= MOST_SAMPLES {
            return;
        }
        let start = samples.probes.len();
        self.for_each_probe(map, values, |hash| {
            if samples.probes.len() <= start + MOST_PROBES {
                samples.probes.push(hash);
            }
        });
        if samples.probes.len() > start + MOST_PROBES {
            // It has too many probes to keep, so it is not a sample.
            samples.probes.truncate(start);
        } else {
            let end = samples.probes.len() as u32;
            samples.ends.push(end);
        }
    }

    /// Check which samples carry a live key, and count those that do not. *live* calls its argument with the hash of
    /// each live key; see [`for_each_hash`].
    pub fn settle(&self, live: impl FnOnce(&mut dyn FnMut(u64))) {
        // Do not wait for this lock: if another thread had locked it during a fork, the child process continues without
        // samples.
        let Ok(mut samples) = self.bits.samples.try_lock() else { return };
        let counts = &self.bits.counts;
        let (no, maybe) = (counts.no.load(Ordering::Relaxed), counts.maybe.load(Ordering::Relaxed));
        let since = (self.bits.since.0 + samples.settled.0, self.bits.since.1 + samples.settled.1);
        let (new_no, new_maybe) = (no - since.0, maybe - since.1);
        let mut wanted: hashbrown::HashTable<(u64, bool)> = hashbrown::HashTable::new();
        for hash in &samples.probes {
            if wanted.find(*hash, |(other, _)| other == hash).is_none() {
                wanted.insert_unique(*hash, (*hash, false), |(hash, _)| *hash);
            }
        }
        if !wanted.is_empty() {
            live(&mut |hash| {
                if let Some((_, is_live)) = wanted.find_mut(hash, |(other, _)| *other == hash) {
                    *is_live = true;
                }
            });
        }
        let mut start = 0;
        let mut wrong = 0_u64;
        for end in &samples.ends {
            let end = *end as usize;
            let is_live = |hash: &u64| wanted.find(*hash, |(other, _)| other == hash).is_some_and(|(_, is_live)| *is_live);
            wrong += u64::from(!samples.probes[start..end].iter().any(is_live));
            start = end;
        }
        // If there were more answers than room for samples, the samples represent all of them.
        let sampled = samples.ends.len() as f64;
        let each = f64::max(1.0, new_maybe as f64 / EVERY as f64 / f64::max(sampled, 1.0));
        let wrong = (wrong as f64 * each).round() as u64;
        self.bits.false_positives.fetch_add(wrong, Ordering::Relaxed);
        self.bits.sampled.fetch_add(new_no / EVERY + wrong, Ordering::Relaxed);
        samples.settled = (no - new_no % EVERY - self.bits.since.0, maybe - self.bits.since.1);
        samples.probes.clear();
        samples.ends.clear();
    }

    /// Its state; it reads each of its words.
    pub fn state(&self) -> BloomState {
        let bits = &*self.bits;
        let no = bits.counts.no.load(Ordering::Relaxed);
        BloomState {
            version: bits.version,
            grown: bits.counts.grown.load(Ordering::Relaxed),
            keys: bits.keys.load(Ordering::Relaxed),
            capacity: bits.capacity,
            stale: bits.stale.load(Ordering::Relaxed),
            bits: bits.blocked.measure(),
            asked: no + bits.counts.maybe.load(Ordering::Relaxed),
            no,
            probes: bits.counts.probes.load(Ordering::Relaxed),
            sampled: bits.sampled.load(Ordering::Relaxed),
            false_positives: bits.false_positives.load(Ordering::Relaxed),
        }
    }
}

/// Call *visit* with the path, by position in the store's path set, the kind and the hash of each key of the
/// subscriptions of a store that *is_live* accepts.
pub fn for_each_hash(
    store: &Store,
    access: &Access,
    seed: &Seed,
    is_live: impl Fn(u32) -> bool,
    mut visit: impl FnMut(u32, KeyKind, u64),
) {
    // One path has only a few kinds.
    let mut salts: Vec<Vec<(KeyKind, u64)>> = vec![Vec::new(); store.paths.paths.len()];
    access.for_each(store, is_live, |path, probe| {
        let (kind, known) = (probe.kind(), &mut salts[path as usize]);
        let salt = known.iter().find(|(other, _)| *other == kind).map(|(_, salt)| *salt).unwrap_or_else(|| {
            let (place, mode) = &store.paths.paths[path as usize];
            let salt = salt(place, *mode, kind, seed);
            known.push((kind, salt));
            salt
        });
        visit(path, kind, join(probe.hash(seed), salt));
    });
}

/// A set of paths, and for each the kinds of keys with their salts; equal places make equal sets, in any order.
fn arrange(places: impl IntoIterator<Item = KeyPlace>, sets: &mut PathSets, seed: &Seed) -> (Arc<PathSet>, Box<[KeysAtPlace]>) {
    let mut by_path: HashMap<(Path, Mode), Vec<KeyKind>> = HashMap::new();
    for (path, mode, kind) in places {
        by_path.entry((path, mode)).or_default().push(kind);
    }
    let mut all: Vec<((Path, Mode), Vec<KeyKind>)> = by_path.into_iter().collect();
    all.sort_unstable();
    let salted = all.iter().map(|((path, mode), kinds)| {
        let salted = kinds.iter().map(|kind| (*kind, salt(path, *mode, *kind, seed)));
        let (equal, others): (Vec<_>, Vec<_>) = salted.partition(|(kind, _)| *kind == KeyKind::Equal);
        KeysAtPlace { equal: equal.first().map_or(0, |(_, salt)| *salt), others: others.into() }
    });
    let salts = salted.collect();
    (sets.get(all.into_iter().map(|(place, _)| place).collect()), salts)
}

/// What keys of a kind at a place are hashed with, never 0.
fn salt(path: &Path, mode: Mode, kind: KeyKind, seed: &Seed) -> u64 {
    let mut bytes = place_to_bytes(path, mode);
    if kind != KeyKind::Equal {
        bytes.extend_from_slice(kind.name().as_bytes());
    }
    seed.hash_bytes(&bytes) | 1
}

/// The hash of a key from those of its value and its place: both are seeded, so one multiplication suffices.
#[inline]
fn join(value: u64, salt: u64) -> u64 {
    let product = u128::from(value ^ salt) * u128::from(salt);
    product as u64 ^ (product >> 64) as u64
}
