//! The filters of partitions: the writer makes and grows cheap ones, larger ones are rebuilt in parallel; and reports
//! on them.
//!
//! ```text
//!   write    ─► segment built ─► its keys set in the partition's filter ─► version published        no reader misses a key
//!   rebuild  ─► a pinned version's live keys, lock-free ─► lock: newer keys ─► version published with the new filter
//! ```
//!
//! Invariant: the filter of a partition contains the keys of all keyed subscriptions of that partition's segments that
//! are alive in the version.

use crate::bloom::blocked::Blocked;
use crate::bloom::filter::{BloomFilter, BloomState, KeyPlace, for_each_hash};
use crate::bloom::keys::{Access, KeyScope};
use crate::bloom::kinds::KeyKind;
use crate::engine::index::segment::{INDEXED_FROM, Segment};
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::name::PartitionName;
use crate::engine::state::options::Phase1;
use crate::engine::state::partitions::Partition;
use crate::engine::verify::store::Store;
use crate::fork;
use std::collections::HashSet;
use std::sync::Arc;

/// The writer itself grows a filter up to this many subscriptions, or if one write at least doubles them.
const SMALL: usize = 1 << 16;
/// The most room of a filter beyond four times the existing keys, however many keys it is requested for.
const SPARE: usize = 1 << 20;
/// A rebuild gathers the keys of up to this many subscriptions under the writer's lock: a millisecond.
const LITTLE: usize = 4096;

/// The version that the writer makes, with any number.
const NEXT: u64 = u64::MAX;

/// The filter of a partition.
#[derive(Clone, Debug)]
pub struct FilterState {
    /// Which partition.
    pub name: Arc<PartitionName>,
    /// Subscriptions with access keys, which it guards, and those without.
    pub keyed: (usize, usize),
    /// Its state.
    pub state: BloomState,
}

/// Live access keys: their places and their hashes.
#[derive(Default)]
struct LiveKeys {
    places: HashSet<KeyPlace>,
    hashes: Vec<u64>,
}

impl EngineState {
    /// The access keys of a store. Segments know them without a filter, too: there may be one later.
    pub(in crate::engine) fn access(&self, store: &Store) -> Access {
        Access::of(store, KeyScope::Guarding)
    }

    /// Add the keys of the subscriptions at *version*: a published one, since an unfinished write may be rolled back.
    fn collect(&self, segment: &Segment, access: &Access, version: u64, keys: &mut LiveKeys) {
        let is_live = |at: u32| !segment.is_gone(at, version);
        let mut keys_of_paths: HashSet<(u32, KeyKind)> = HashSet::new();
        for_each_hash(&segment.store, access, &self.seed, is_live, |path, kind, hash| {
            keys_of_paths.insert((path, kind));
            keys.hashes.push(hash);
        });
        keys.places.extend(keys_of_paths.into_iter().map(|(path, kind)| {
            let (path, mode) = &segment.store.paths.paths[path as usize];
            (path.clone(), *mode, kind)
        }));
    }

    /// The filter of a partition that will have *segments*; *new* is the one of them that it does not know yet.
    pub(in crate::engine) fn filter_with(
        &self,
        previous: Option<&Arc<Partition>>,
        segments: &[Arc<Segment>],
        new: Option<(&Segment, &Access)>,
    ) -> Option<Arc<BloomFilter>> {
        let options = **self.phase1.load().as_ref()?;
        let previous = previous.and_then(|partition| partition.filter.as_ref());
        let live: usize = segments.iter().map(|segment| segment.live()).sum();
        // Dropped a little below, so that one subscription that comes and goes does not make it and drop it.
        let is_small = live < if previous.is_some() { INDEXED_FROM / 2 } else { INDEXED_FROM };
        if is_small || segments.iter().all(|segment| segment.keyed().0 == 0) {
            return None;
        }
        let mut keys = LiveKeys::default();
        if let Some(previous) = previous {
            let Some((segment, access)) = new else { return Some(previous.clone()) };
            self.collect(segment, access, NEXT, &mut keys);
            let filter = previous.with_places(&keys.places, &mut self.sets(), &self.seed);
            filter.add(keys.hashes.iter().copied());
            let (known, capacity) = filter.load();
            let is_costly = live > SMALL && segment.live() * 2 < live;
            if known <= capacity as u64 || is_costly {
                return Some(filter);
            }
            keys = LiveKeys::default();
        }
        segments.iter().for_each(|segment| self.collect(segment, &self.access(&segment.store), NEXT, &mut keys));
        keys.hashes.sort_unstable();
        keys.hashes.dedup();
        let room = options.initial_capacity.min(4 * keys.hashes.len() + SPARE);
        let capacity = room.max(2 * keys.hashes.len());
        let (filter, added) = self.fill_filter(capacity, options.key_rate(keys.places.len()), &keys);
        let previous = previous.map(|previous| &**previous);
        let filter = BloomFilter::new(filter, capacity, added, keys.places, &mut self.sets(), &self.seed, previous);
        if previous.is_some() {
            filter.note_grown();
        }
        Some(Arc::new(filter))
    }

    /// A filter of distinct keys, and how many of them set a bit.
    fn fill_filter(&self, capacity: usize, key_rate: f64, keys: &LiveKeys) -> (Blocked, u64) {
        let filter = Blocked::new(capacity, key_rate);
        let added = keys.hashes.iter().map(|hash| u64::from(filter.add(*hash))).sum();
        (filter, added)
    }

    /// Set the options of phase 1 from now on, None without it. Existing filters keep their size.
    pub fn set_bloom(&self, phase1: Option<Phase1>) {
        let _inside = fork::inside();
        let mut writer = self.lock_writer();
        let was = self.phase1.swap(phase1.map(Arc::new));
        if was.is_some() == phase1.is_some() {
            return;
        }
        let version = self.version.load_full();
        let mut next = Version::after(&version);
        version.partitions.for_each(|partition| {
            let partition = partition.present();
            if partition.section.is_some() {
                // It lies in a file, and gets its filter when it is opened.
                return;
            }
            let filter = self.filter_with(None, &partition.segments, None);
            let (name, segments) = (partition.name.clone(), partition.segments.clone());
            self.put(&mut next, Partition { name, segments, filter, share: None, section: None });
        });
        self.publish(&mut writer, next);
    }

    /// The state of each filter.
    pub fn filters(&self) -> Vec<FilterState> {
        let mut states = Vec::new();
        self.version.load().partitions.for_each(|partition| {
            let partition = partition.present();
            if let Some(filter) = &partition.filter {
                let keyed = keyed(&partition.segments);
                states.push(FilterState { name: partition.name.clone(), keyed, state: filter.state() });
            }
        });
        states
    }

    pub(super) fn pinned(&self, name: &PartitionName) -> Option<(Arc<Version>, Arc<Partition>)> {
        let version = self.version.load_full();
        // A partition that was never opened has no filter.
        let handle = version.partitions.get(name.hash(&self.seed), &name.tenant, &name.collection)?;
        let partition = handle.present().clone();
        Some((version, partition))
    }

    /// Rebuild the filter of a partition from its live keys, for *capacity* of them at an error rate of *key_rate*
    /// each, and replace the old one. Neither readers nor writers wait while it is built. Return false if there is
    /// none.
    pub fn rebuild_filter(&self, name: &PartitionName, capacity: usize, key_rate: f64) -> bool {
        let mut gathered: Vec<Arc<Segment>> = Vec::new();
        let mut keys = LiveKeys::default();
        let mut filled = None;
        loop {
            let Some((version, partition)) = self.pinned(name).filter(|(_, partition)| partition.filter.is_some()) else {
                return false;
            };
            let mut more = LiveKeys::default();
            for segment in unseen(&partition.segments, &gathered) {
                self.collect(&segment, &self.access(&segment.store), version.number, &mut more);
                gathered.push(segment);
            }
            more.hashes.sort_unstable();
            more.hashes.dedup();
            keys.places.extend(more.places.drain());
            match &mut filled {
                None => {
                    // A little room, so that it does not outgrow its rate at once.
                    let capacity = capacity.max(more.hashes.len() + more.hashes.len() / 4).min(4 * more.hashes.len() + SPARE);
                    filled = Some((capacity, self.fill_filter(capacity, key_rate, &more)));
                }
                Some((_, (filter, added))) => {
                    *added += more.hashes.iter().map(|hash| u64::from(filter.add(*hash))).sum::<u64>();
                }
            }
            let mut swap = || {
                let _inside = fork::inside();
                let mut writer = self.lock_writer();
                let (version, partition) = self.pinned(name).filter(|(_, partition)| partition.filter.is_some())?;
                let new = unseen(&partition.segments, &gathered);
                if new.iter().map(|segment| segment.store.len()).sum::<usize>() > LITTLE {
                    return Some(false);
                }
                let mut last = LiveKeys::default();
                for segment in &new {
                    self.collect(segment, &self.access(&segment.store), version.number, &mut last);
                }
                keys.places.extend(last.places);
                let (capacity, (filter, added)) = filled.take()?;
                let (places, seed, previous) = (keys.places.drain(), &self.seed, partition.filter.as_deref());
                let rebuilt = BloomFilter::new(filter, capacity, added, places, &mut self.sets(), seed, previous);
                rebuilt.add(last.hashes.into_iter());
                let mut next = Version::after(&version);
                let (name, segments) = (partition.name.clone(), partition.segments.clone());
                self.put(&mut next, Partition { name, segments, filter: Some(Arc::new(rebuilt)), share: None, section: None });
                self.publish(&mut writer, next);
                Some(true)
            };
            match swap() {
                Some(true) => return true,
                // A large merge has come between: its keys are gathered without the lock, too.
                Some(false) => {}
                None => return false,
            }
        }
    }

    /// Settle the samples of a partition's filter against the keys that are live: a look at each of them.
    pub fn measure_filter(&self, name: &PartitionName) {
        let Some((version, partition)) = self.pinned(name) else { return };
        let Some(filter) = &partition.filter else { return };
        filter.settle(|visit| {
            for segment in &partition.segments {
                let is_live = |at: u32| !segment.is_gone(at, version.number);
                let access = self.access(&segment.store);
                for_each_hash(&segment.store, &access, &self.seed, is_live, |_, _, hash| visit(hash));
            }
        });
    }
}

fn keyed(segments: &[Arc<Segment>]) -> (usize, usize) {
    segments.iter().map(|segment| segment.keyed()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

fn unseen(segments: &[Arc<Segment>], gathered: &[Arc<Segment>]) -> Vec<Arc<Segment>> {
    segments.iter().filter(|segment| !gathered.iter().any(|other| Arc::ptr_eq(segment, other))).cloned().collect()
}
