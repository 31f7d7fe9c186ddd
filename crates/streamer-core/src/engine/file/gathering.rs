//! The keys of a filter that is shipped: of every kind, of all partitions that an event sees, as the hashes that set its bits.
//!
//! ```text
//!   partitions ─► segments ─► access clauses of every kind ─► bytes of each key ─► murmur3 x64-128, sorted, each once
//!                                                                                   │
//!                                            a size for the keys and places ◄───────┴──► bits
//! ```
//!
//! Contract: the keys are those of the live subscriptions of one version. Neither readers nor writers wait.
//!
//! Cost: 0.1 to 0.2 us a key, 16 bytes for each; an equality has one, a range 10 to 40, most of them seen before.
//!
//! Rejected: the bytes themselves, which take five times the memory and are sorted in ten times the time; two keys of one hash
//! set the same bits anyway.

use crate::bloom::keys::{Access, KeyScope, begin_key, end_key, key_to_bytes};
use crate::bloom::kinds::{KeyKind, KeyProbe};
use crate::bloom::portable::{Slices, murmur3_x64_128, set};
use crate::engine::index::segment::Segment;
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::name::PartitionName;
use crate::engine::verify::store::flags;
use crate::subscriptions::normal_form::{Mode, Path, Root};
use crate::value::ScalarRef;
use std::collections::{BTreeSet, HashSet};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Gathered {
    hashes: Vec<(u64, u64)>,
    /// The places at which an event is read for them.
    pub places: Vec<(Path, Mode, KeyKind)>,
    /// How many subscriptions have no keys.
    pub unkeyed: usize,
    /// Whether any subscription wants to know when a document no longer matches.
    pub transitions: bool,
    /// Whether an event with unknown values has to pass the filter, because an error next to an unknown is unknown. CEL
    /// expressions that became clauses require that, and so do bools, because `> false` became one: it is an error for
    /// a value of another type.
    pub holes_pass: bool,
}

impl Gathered {
    /// How many distinct keys there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Set their bits, and return how many keys set one that was not set; *bits* are at least [`Slices::bytes`].
    pub fn fill(&self, bits: &mut [u8], slices: Slices) -> usize {
        self.hashes.iter().map(|hash| usize::from(set(bits, slices, *hash))).sum()
    }
}

impl EngineState {
    /// The keys of the subscriptions of these partitions.
    pub fn gather(&self, names: &[PartitionName]) -> Gathered {
        let version = self.version.load_full();
        let mut gathered = Gathered::default();
        let mut places: HashSet<(Path, Mode, KeyKind)> = HashSet::new();
        for name in names {
            let Some(partition) = self.partition(&version.partitions, name) else { continue };
            for segment in &partition.segments {
                self.gather_segment(segment, version.number, &mut gathered, &mut places);
            }
        }
        gathered.hashes.sort_unstable();
        gathered.hashes.dedup();
        gathered.places = places.into_iter().collect();
        gathered
    }

    fn gather_segment(
        &self,
        segment: &Segment,
        version: u64,
        gathered: &mut Gathered,
        places: &mut HashSet<(Path, Mode, KeyKind)>,
    ) {
        let store = &segment.store;
        // A subscription that a later version removes still exists in this one, and that write may be rolled back.
        let is_live = |at: u32| !segment.is_gone(at, version);
        let access = Access::of(store, KeyScope::Shipping);
        let begins: Vec<Vec<u8>> = store.paths.paths.iter().map(|(path, mode)| begun(path, *mode)).collect();
        let mut seen: HashSet<(u32, KeyKind)> = HashSet::new();
        let mut key = Vec::new();
        // Ranges share most of their buckets.
        let mut numbers: HashSet<(u32, KeyKind, u128)> = HashSet::new();
        access.for_each(store, is_live, |path, probe| {
            if let KeyProbe::Number(kind, number) = probe
                && !numbers.insert((path, kind, number))
            {
                return;
            }
            key.clear();
            key.extend_from_slice(&begins[path as usize]);
            end_key(&mut key, &probe);
            gathered.hashes.push(murmur3_x64_128(&key));
            seen.insert((path, probe.kind()));
            let (at, mode) = &store.paths.paths[path as usize];
            let is_bool = matches!(probe, KeyProbe::Equal(ScalarRef::Bool(_)));
            gathered.holes_pass |=
                is_bool && *mode == Mode::Scalar && matches!(at.root, Root::Data | Root::Before | Root::Envelope);
        });
        places.extend(seen.into_iter().map(|(path, kind)| {
            let (path, mode) = &store.paths.paths[path as usize];
            (path.clone(), *mode, kind)
        }));
        gathered.unkeyed += access.live(store, is_live).1;
        for at in (0..store.len() as u32).filter(|at| is_live(*at)) {
            gathered.transitions |= store.flags[at as usize] & flags::TRANSITIONS != 0;
            let record = self.records.get(store.slots[at as usize]);
            gathered.holes_pass |= record.as_ref().is_some_and(|record| record.has_cel && !record.external_cel());
        }
    }

    /// The bytes of all keys of a partition, sorted, and how many subscriptions have keys and have none.
    pub fn filter_keys(&self, name: &PartitionName) -> (BTreeSet<Vec<u8>>, (usize, usize)) {
        let mut all = BTreeSet::new();
        let version = self.version.load_full();
        let Some(partition) = self.partition(&version.partitions, name) else { return (all, (0, 0)) };
        let mut counts = (0, 0);
        for segment in &partition.segments {
            let is_live = |at: u32| !segment.is_gone(at, version.number);
            let access = Access::of(&segment.store, KeyScope::Shipping);
            access.for_each(&segment.store, is_live, |path, probe| {
                let (path, mode) = &segment.store.paths.paths[path as usize];
                all.insert(key_to_bytes(path, *mode, &probe));
            });
            let (keyed, unkeyed) = access.live(&segment.store, is_live);
            counts = (counts.0 + keyed, counts.1 + unkeyed);
        }
        (all, counts)
    }
}

fn begun(path: &Path, mode: Mode) -> Vec<u8> {
    let mut out = Vec::new();
    begin_key(&mut out, path, mode);
    out
}
