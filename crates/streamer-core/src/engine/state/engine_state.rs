//! The state of an engine: the present version of everything, and the data that readers and the writer share.
//!
//! ```text
//!   version ─► version 811        readers load it once, lock-free
//!   writer, ids, sets          locks of the writer, which matching never locks
//!   records                    the subscription of each slot; telemetry and errors: counted by all, reported on request
//! ```
//!
//! Its operations have files of their own in `matching/`, `write/` and `file/`, each an `impl EngineState`, and its
//! reports are in `inspect.rs`.
//!
//! Invariant: `locations[slot]` of the writer is the position of a live subscription in that segment of its partition that has it
//! there and alive.

use crate::cel::Reason;
use crate::engine::state::engine_version::Version;
use crate::engine::state::options::{Options, Phase1};
use crate::engine::state::partitions::Partitions;
use crate::engine::state::record::{Record, RecordRef};
use crate::engine::state::registry::{AT_ONCE, Records};
use crate::engine::state::telemetry::{Counters, Telemetry};
use crate::engine::state::writer::{Reentered, Writer, Writing, this_thread};
use crate::engine::verify::failures::{Failing, Heard};
use crate::engine::verify::paths::PathSets;
use crate::flatten::{Locator, PathTrie, limits_of_changes};
use crate::layout::Format;
use crate::limits::Limits;
use crate::value::Seed;
use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashTable;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

/// The number of records that are prefetched at a time.
const NEAR: usize = 4 * AT_ONCE;

/// See the head of this file.
pub struct EngineState {
    pub(in crate::engine) options: Options,
    /// The limits of a record; those of an event in `options` allow for more in a record's changes.
    pub(in crate::engine) record_limits: Limits,
    pub(in crate::engine) seed: Seed,
    /// The hash of `*`, the name of every tenant and of every collection.
    pub(in crate::engine) all: u64,
    pub(in crate::engine) locator: Locator,
    pub(in crate::engine) id_locator: Locator,
    /// For events that are read for only their parts.
    pub(in crate::engine) no_paths: PathTrie,
    /// The budget of one evaluation of a program; it may change while the engine runs.
    pub(super) cel_budget: AtomicU64,
    /// By reason.
    pub(in crate::engine) cel_errors: [AtomicU64; Reason::ALL.len()],
    /// By reason of a refusal.
    pub(in crate::engine) heard: [Heard; Reason::ALL.len()],
    pub(in crate::engine) failing: Failing,
    pub(in crate::engine) started: Instant,
    pub(in crate::engine) version: ArcSwap<Version>,
    /// How phase 1 works; it may change while the engine runs.
    pub(in crate::engine) phase1: ArcSwapOption<Phase1>,
    /// One reference for each share of a partition.
    pub(in crate::engine) shares: Arc<()>,
    pub(in crate::engine) records: Records,
    pub(super) writer: Mutex<Writer>,
    /// The thread that has the writer; 0 for none.
    pub(super) writing: AtomicUsize,
    /// How often a thread came to the writer's lock.
    #[cfg(test)]
    pub(in crate::engine) came: AtomicUsize,
    pub(in crate::engine) ids: RwLock<HashTable<u32>>,
    /// Heap bytes of the writer and of the ids, for those who do not wait for either.
    pub(in crate::engine) writer_bytes: AtomicUsize,
    pub(in crate::engine) id_bytes: AtomicUsize,
    pub(in crate::engine) telemetry: Telemetry,
    /// The text of the first event in which the layout found only missing parts.
    pub(in crate::engine) first_bare: OnceLock<Box<[u8]>>,
    pub(super) sets: Mutex<PathSets>,
}

impl EngineState {
    /// An engine without subscriptions.
    pub(in crate::engine) fn new(mut options: Options) -> EngineState {
        let record_limits = options.limits.clone();
        if options.layout.format.is_some_and(Format::has_changes) {
            options.limits = limits_of_changes(&options.limits);
        }
        let writer = Writer::default();
        let version = Version {
            number: 1,
            partitions: Partitions::default(),
            generation: writer.slots.generation(),
            any_tenant: 0,
            any_collection: 0,
            len: 0,
        };
        let seed = options.seed.map_or_else(Seed::random, Seed::new);
        EngineState {
            locator: Locator::new(&options.layout),
            id_locator: Locator::of_id(&options.layout),
            no_paths: PathTrie::builder(options.layout.clone()).build(),
            cel_budget: AtomicU64::new(options.limits.cel_budget),
            cel_errors: Default::default(),
            heard: Default::default(),
            failing: Failing::default(),
            started: Instant::now(),
            phase1: ArcSwapOption::new(options.bloom.map(Arc::new)),
            options,
            record_limits,
            all: seed.hash_bytes(b"*"),
            seed,
            version: ArcSwap::from_pointee(version),
            shares: Arc::default(),
            records: Records::default(),
            writer: Mutex::new(writer),
            writing: AtomicUsize::new(0),
            #[cfg(test)]
            came: AtomicUsize::new(0),
            ids: RwLock::default(),
            writer_bytes: AtomicUsize::new(0),
            id_bytes: AtomicUsize::new(0),
            telemetry: Telemetry::default(),
            first_bare: OnceLock::new(),
            sets: Mutex::default(),
        }
    }

    /// How it works.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The seed of all hashes.
    pub fn seed(&self) -> u64 {
        self.seed.seed()
    }

    /// The present state of everything, to match several events on.
    pub fn version(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// Its counters.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The text of the first event in which the layout found no collection, type or document, if there was one.
    pub fn first_bare(&self) -> Option<&[u8]> {
        self.first_bare.get().map(|text| &**text)
    }

    /// The counts.
    pub fn counters(&self) -> Counters {
        self.telemetry.counters()
    }

    /// The record of a slot, lock-free. It exists while a [`Pin`] of the match with this slot lives.
    pub fn record(&self, slot: u32) -> Option<RecordRef> {
        self.records.get(slot).clone()
    }

    /// Look at the records of many slots, in their order, some at a time: faster than [`EngineState::record`] for each.
    ///
    /// # Errors
    ///
    /// The error of *look*, which ends it.
    pub fn records<E>(&self, slots: &[u32], mut look: impl FnMut(&[Option<&Record>]) -> Result<(), E>) -> Result<(), E> {
        for near in slots.chunks(NEAR) {
            self.records.prefetch(near);
            for some in near.chunks(AT_ONCE) {
                let loaded = self.records.get_some(some);
                let records: [Option<&Record>; AT_ONCE] = std::array::from_fn(|at| loaded[at].as_deref());
                look(&records[..some.len()])?;
            }
        }
        Ok(())
    }

    /// Set the budget of one evaluation of a CEL program from now on.
    pub fn set_cel_budget(&self, budget: u64) {
        self.cel_budget.store(budget, Ordering::Relaxed);
    }

    /// How many cost units an evaluation may use.
    pub fn cel_budget(&self) -> u64 {
        self.cel_budget.load(Ordering::Relaxed)
    }

    /// Wait for earlier writers. If this thread is inside a write already, [`Reentered`] is thrown.
    pub(in crate::engine) fn lock_writer(&self) -> Writing<'_> {
        let me = this_thread();
        if self.writing.load(Ordering::Relaxed) == me {
            resume_unwind(Box::new(Reentered));
        }
        #[cfg(test)]
        self.came.fetch_add(1, Ordering::Relaxed);
        // A writer that panicked has not published; its unfinished work is not reachable.
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.writing.store(me, Ordering::Relaxed);
        Writing { writer, thread: &self.writing }
    }

    pub(in crate::engine) fn sets(&self) -> MutexGuard<'_, PathSets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn find_id(&self, ids: &HashTable<u32>, id: &str) -> Option<u32> {
        self.find_hashed(ids, self.seed.hash_bytes(id.as_bytes()), id)
    }

    /// The slot of an id of which the hash is known.
    pub(in crate::engine) fn find_hashed(&self, ids: &HashTable<u32>, hash: u64, id: &str) -> Option<u32> {
        ids.find(hash, |slot| self.records.get(*slot).as_ref().is_some_and(|record| record.id() == id)).copied()
    }
}
