//! The engine: one immutable root that readers pin, one writer at a time, a thread that merges.
//!
//! ```text
//!   root 811 ──► partitions ──► segments          a reader loads the root once and reads on in peace
//!   root 812 ──► (copied path) ─► new segment     a writer builds beside it and swaps one pointer
//! ```
//!
//! Concurrency contract: any number of threads match, each with a [`Scratch`] of its own; they take no lock and never wait,
//! also while a writer is at work. Writers take turns. What a write has returned for is seen by every match that begins
//! after. A write is one root: every match sees all of it or nothing.
//!
//! Invariant: `locations[slot]` is the position of a live subscription in that segment of its partition that has it there
//! and alive.
//!
//! Cost of a write: a segment for each partition that it touches (a merge of up to 8 like ones every 8th time), and the
//! copied path of the partition map. Large merges are the merging thread's.
//!
//! Rejected: locks around segments (a reader would wait for a build); a root for each partition (a replace across two could
//! be seen half done).

use crate::cel::{Executable, Reason};
use crate::engine::build::Depth;
use crate::engine::dump::dump;
use crate::engine::group::{Group, Located};
use crate::engine::guards::Phase1;
use crate::engine::judge::{Change, Outcome, Transition};
use crate::engine::merging::Signal;
use crate::engine::partitions::{Name, Partitions};
use crate::engine::paths::{PathSets, Views};
use crate::engine::programs::{CelError, CelScratch, Failing, FailingSubscription, Heard, Judge};
use crate::engine::registry::{Generation, Host, Record, Records};
use crate::engine::segment::{Output, Segment, SegmentScratch};
use crate::engine::telemetry::{Counters, Tally, Telemetry};
use crate::engine::values::ValuesScratch;
use crate::engine::write::Writer;
use crate::error::{EventError, Ignored, SubscriptionError};
use crate::flatten::{EventId, Flattener, Locator, PathTrie, Validation};
use crate::fork;
use crate::layout::{EventLayout, EventType};
use crate::limits::Limits;
use crate::subscriptions::normal_form::{NormalForm, Path};
use crate::value::Seed;
use crate::watch::Ask;
use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashTable;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// Runs what is given once.
pub type LetGo = Arc<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// How an engine works.
#[derive(Clone)]
pub struct Options {
    /// Where events keep their parts.
    pub layout: Arc<EventLayout>,
    /// The tenant of events that have none.
    pub default_tenant: Option<Box<str>>,
    /// How much of an event is checked.
    pub validation: Validation,
    /// Bounds on what users and events may cost.
    pub limits: Limits,
    /// Whether subscriptions are taken that would be a candidate for every event.
    pub allow_unindexed: bool,
    /// Whether a thread merges segments; else only [`Engine::merge`] does.
    pub background: bool,
    /// How deep buckets nest.
    pub depth: Depth,
    /// The field of `data` that flags a document as deleted.
    pub soft_delete: Option<Path>,
    /// Phase 1; None leaves it out.
    pub bloom: Option<Phase1>,
    /// What evaluates the CEL part of subscriptions that are [portable](Addition::portable); without one it is an error.
    pub judge: Option<Arc<dyn Judge>>,
    /// The seed of all hashes: that of a file which holds tables; None for a random one.
    pub seed: Option<u64>,
    /// Runs what may wait, with the host's lock (Python's GIL) released; None: nothing is held.
    pub let_go: Option<LetGo>,
    /// Asked each 20 ms by a match that takes long, whether to go on; see [`Interrupted`](crate::watch::Interrupted).
    pub ask: Option<Ask>,
    /// Called inside each write, with the writer's lock held, just before it is published.
    pub before_publish: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            layout: Arc::default(),
            default_tenant: Some("default".into()),
            validation: Validation::Full,
            limits: Limits::default(),
            allow_unindexed: true,
            background: true,
            depth: Depth::RECURSIVE,
            soft_delete: None,
            bloom: Some(Phase1::default()),
            judge: None,
            seed: None,
            let_go: None,
            ask: None,
            before_publish: None,
        }
    }
}

/// A subscription to add.
#[derive(Clone, Debug)]
pub struct Addition {
    /// Its id.
    pub id: Box<str>,
    /// Who gets the match.
    pub gateway_id: Option<Box<str>>,
    /// A tenant, or `*`.
    pub tenant: Box<str>,
    /// A collection; None for all.
    pub collection: Option<Box<str>>,
    /// Its conditions; what is left of its `cel` is evaluated on candidates, with [`flags::CEL`](crate::engine::flags::CEL).
    pub form: NormalForm,
    /// What it is besides, see [`crate::engine::flags`]; `SEVERAL` and `VERIFY` are found from its form.
    pub flags: u8,
    /// Its CEL part, also where its form says all of it: for events with holes.
    pub program: Option<Arc<Executable>>,
    /// Whether its CEL part is the [`Judge`]'s to evaluate; then it has no *program*, and the flag `CEL`.
    pub portable: bool,
    /// As it was given, or what stands for that: equal for equal subscriptions.
    pub text: Box<[u8]>,
    /// Another text that says the same: applied where that is held, it changes nothing.
    pub same_as: Option<Box<[u8]>>,
    /// Its conditions as JSON, where *text* is none.
    pub conditions: Option<Box<[u8]>>,
    /// What the host keeps with it.
    pub host: Option<Host>,
}

impl Addition {
    /// Of conditions alone, for events of every tenant and collection.
    pub fn new(id: impl Into<Box<str>>, form: NormalForm, text: &[u8]) -> Addition {
        Addition {
            id: id.into(),
            gateway_id: None,
            tenant: "*".into(),
            collection: None,
            form,
            flags: 0,
            program: None,
            portable: false,
            text: text.into(),
            same_as: None,
            conditions: None,
            host: None,
        }
    }
}

/// What to do with an id that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is an error.
    Add,
    /// The new subscription takes its place.
    Replace,
    /// The new subscription takes its place, unless their texts are equal. What is not given is removed.
    Apply,
}

/// What a write changed. Positions are those in the call.
#[derive(Debug, Default)]
pub struct Changes {
    /// Positions and slots of ids that were not held before.
    pub added: Vec<(usize, u32)>,
    /// Positions and new slots of ids whose subscription is another one now.
    pub replaced: Vec<(usize, u32)>,
    /// Positions of ids that were held already just so.
    pub unchanged: Vec<usize>,
    /// Records of ids that are no longer held, in order of adding.
    pub removed: Vec<Arc<Record>>,
    /// Slots that are no longer in use: of `removed`, and of what was replaced.
    pub freed: Vec<u32>,
    /// What was passed over, by position.
    pub errors: Vec<(usize, SubscriptionError)>,
}

/// What a partition holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which partition.
    pub name: Arc<Name>,
    /// How many subscriptions.
    pub subscriptions: usize,
    /// In how many segments.
    pub segments: usize,
    /// Heap bytes of their conditions.
    pub store_bytes: usize,
    /// Heap bytes of their indexes.
    pub index_bytes: usize,
}

/// Which subscriptions are meant: those that meet every criterion given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// These ids.
    pub ids: Option<&'a [&'a str]>,
    /// Of this gateway.
    pub gateway_id: Option<&'a str>,
    /// Filed under this tenant, or `*`.
    pub tenant: Option<&'a str>,
    /// Filed under this collection, or `*`.
    pub collection: Option<&'a str>,
}

/// One version of everything. Immutable.
#[derive(Debug)]
pub struct Root {
    pub(super) version: u64,
    pub(super) partitions: Partitions,
    pub(super) generation: Arc<Generation>,
    pub(super) any_tenant: usize,
    pub(super) any_collection: usize,
    pub(super) len: usize,
}

impl Root {
    /// Keeps the slots of its matches, without what they were found by.
    pub fn pin(&self) -> Pin {
        Pin(Some(self.generation.clone()))
    }

    /// A copy of *root* under the next version, to be changed and published.
    pub(super) fn after(root: &Root) -> Root {
        Root {
            version: root.version + 1,
            partitions: root.partitions.clone(),
            generation: root.generation.clone(),
            any_tenant: root.any_tenant,
            any_collection: root.any_collection,
            len: root.len,
        }
    }
}

pub(super) struct Inner {
    pub options: Options,
    pub seed: Seed,
    /// The hash of `*`, the name of every tenant and of every collection.
    pub(super) all: u64,
    pub(super) locator: Locator,
    pub(super) id_locator: Locator,
    /// For events that are read for their parts alone.
    pub(super) no_paths: PathTrie,
    /// What one evaluation of a program may cost; it may change while the engine runs.
    pub(super) cel_budget: AtomicU64,
    /// By reason.
    pub(super) cel_errors: [AtomicU64; Reason::ALL.len()],
    /// Of what was refused, by reason.
    pub(super) heard: [Heard; Reason::ALL.len()],
    pub(super) failing: Failing,
    pub(super) started: Instant,
    pub root: ArcSwap<Root>,
    /// How phase 1 works; it may change while the engine runs.
    pub(super) phase1: ArcSwapOption<Phase1>,
    /// Held once by each share of a partition.
    pub(super) shares: Arc<()>,
    pub records: Records,
    pub writer: Mutex<Writer>,
    /// The thread that has the writer; 0 for none.
    pub(super) writing: AtomicUsize,
    /// How often a thread came to the writer's lock.
    #[cfg(test)]
    pub(super) came: AtomicUsize,
    pub(super) ids: RwLock<HashTable<u32>>,
    pub(super) telemetry: Telemetry,
    pub(super) sets: Mutex<PathSets>,
}

/// See the head of this file.
pub struct Engine {
    pub(super) inner: Arc<Inner>,
    pub(super) signal: Arc<Signal>,
}

/// What one thread reuses from event to event.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) flattener: Flattener,
    pub(super) views: Views,
    pub(super) values: ValuesScratch,
    pub(super) segment: SegmentScratch,
    pub(super) output: Output,
    pub(super) old: OldScratch,
    pub(super) tally: Tally,
    pub(super) cel: CelScratch,
}

impl Scratch {
    /// Errors of CEL of the last event that are to be told, also where [`Engine::stays`] was asked.
    pub fn errors(&self) -> &[CelError] {
        &self.output.errors
    }
}

/// What one thread reuses for old sides.
#[derive(Debug, Default)]
pub(super) struct OldScratch {
    pub flattener: Flattener,
    pub values: ValuesScratch,
    /// Slots that match.
    pub found: Vec<u32>,
    /// Slots, with their flags, of what matches but for its CEL part.
    pub candidates: Vec<(u32, u8)>,
    /// Slots of subscriptions with `transitions` that want the new side.
    pub stays: Vec<u32>,
}

/// What an event matches. Slots stay valid while its root is held, or a [`Pin`] of it.
#[derive(Debug)]
pub struct Matched<'s> {
    /// Slots of subscriptions that match, as [`Matched::change`] says.
    pub certain: &'s [u32],
    /// Slots of those that match in another way.
    pub told: &'s [(u32, Outcome)],
    /// Errors of CEL that are to be told.
    pub errors: &'s [CelError],
    /// What the transition of [`Matched::certain`] is.
    pub change: Change,
    /// How many conjunctions were looked at.
    pub work: u64,
    /// Why nobody was asked.
    pub ignored: Option<Ignored>,
    /// See [`OldScratch::found`].
    pub(super) found: &'s [u32],
}

impl Matched<'_> {
    /// Of an event that is ignored.
    pub(super) fn ignored(reason: Ignored) -> Self {
        let change = Change::Untold;
        Matched { certain: &[], told: &[], errors: &[], change, work: 0, ignored: Some(reason), found: &[] }
    }
}

/// What an event is called, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'e> {
    /// What names it.
    pub id: Option<EventId<'e>>,
    /// Whose it is: the argument, else its own, else the default.
    pub tenant: &'e str,
    /// Which collection: the argument, else its own.
    pub collection: Option<&'e str>,
    /// What happened.
    pub event_type: Option<EventType>,
}

/// Which of the matches of an event matched the document before an update too.
#[derive(Clone, Copy, Debug)]
pub struct Stays<'s>(pub(super) Option<&'s [u32]>);

impl Stays<'_> {
    /// The transition of an ordinary match, of a subscription with *flags*.
    pub fn transition(&self, change: Change, slot: u32, flags: u8) -> Option<Transition> {
        change.transition(flags).unwrap_or_else(|| {
            let is_there = |stays: &[u32]| stays.binary_search(&slot).is_ok();
            self.0.map(|stays| if is_there(stays) { Transition::Stay } else { Transition::Enter })
        })
    }
}

/// Keeps the slots of a match from being given to other subscriptions; of a match without slots it need hold nothing.
#[derive(Clone, Debug, Default)]
pub struct Pin(#[allow(dead_code, reason = "held, never read")] pub(super) Option<Arc<Generation>>);

impl Engine {
    /// An engine without subscriptions.
    pub fn new(options: Options) -> Engine {
        let writer = Writer::default();
        let root = Root {
            version: 1,
            partitions: Partitions::default(),
            generation: writer.slots.generation(),
            any_tenant: 0,
            any_collection: 0,
            len: 0,
        };
        let seed = options.seed.map_or_else(Seed::random, Seed::new);
        let inner = Inner {
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
            all: seed.hash_bytes(b"*"),
            seed,
            root: ArcSwap::from_pointee(root),
            shares: Arc::default(),
            records: Records::default(),
            writer: Mutex::new(writer),
            writing: AtomicUsize::new(0),
            #[cfg(test)]
            came: AtomicUsize::new(0),
            ids: RwLock::default(),
            telemetry: Telemetry::default(),
            sets: Mutex::default(),
        };
        Engine { inner: Arc::new(inner), signal: Arc::default() }
    }

    /// How it works.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// How many subscriptions there are.
    pub fn len(&self) -> usize {
        self.inner.root.load().len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.inner.telemetry.counters()
    }

    /// Where it is counted.
    pub fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    /// A scratch for this engine, which takes no lock when it is first used.
    pub fn scratch(&self) -> Scratch {
        Scratch { tally: self.inner.telemetry.tally(), ..Scratch::default() }
    }

    /// The record of a slot, without a lock. It is there while a [`Pin`] of the match that gave the slot is held.
    pub fn record(&self, slot: u32) -> Option<Arc<Record>> {
        self.inner.records.get(slot).clone()
    }

    /// The slot and the record of an id.
    pub fn get(&self, id: &str) -> Option<(u32, Arc<Record>)> {
        self.inner.have_ids();
        let ids = self.inner.ids.read().unwrap_or_else(PoisonError::into_inner);
        let slot = self.inner.find_id(&ids, id)?;
        Some((slot, self.record(slot)?))
    }

    /// The slots and records that *selection* means, in order of adding.
    pub fn select(&self, selection: &Selection<'_>) -> Vec<(u32, Arc<Record>)> {
        self.inner.have_ids();
        let ids = self.inner.ids.read().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(u32, Arc<Record>)> = match selection.ids {
            Some(wanted) => wanted
                .iter()
                .collect::<HashSet<_>>()
                .into_iter()
                .filter_map(|id| self.inner.find_id(&ids, id))
                .filter_map(|slot| Some((slot, self.record(slot)?)))
                .collect(),
            None => ids.iter().filter_map(|slot| Some((*slot, self.record(*slot)?))).collect(),
        };
        drop(ids);
        found.retain(|(_, record)| {
            selection.gateway_id.is_none_or(|gateway| record.gateway_id.as_deref() == Some(gateway))
                && selection.tenant.is_none_or(|tenant| *record.partition.tenant == *tenant)
                && selection.collection.is_none_or(|collection| *record.partition.collection == *collection)
        });
        found.sort_unstable_by_key(|(_, record)| record.order);
        found
    }

    /// Add, replace or apply. Errors that were found before (the subscription could not be read) stand in *items*.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, by position, unless *skip*; then nothing was changed.
    pub fn write(
        &self,
        items: Vec<Result<Addition, SubscriptionError>>,
        mode: Mode,
        skip: bool,
    ) -> Result<Changes, Vec<(usize, SubscriptionError)>> {
        let _inside = fork::inside();
        let changes = self.inner.write(items, mode, skip);
        self.wake();
        changes
    }

    /// Remove what *selection* means.
    pub fn remove(&self, selection: &Selection<'_>) -> Changes {
        let _inside = fork::inside();
        self.inner.have_ids();
        let mut writer = self.inner.lock_writer();
        let gone: Vec<(u32, Arc<Record>)> = self.select(selection);
        let mut changes = Changes::default();
        if !gone.is_empty() {
            let slots = gone.iter().map(|(slot, _)| *slot).collect();
            // Removing builds no more than merges of what was there, which fitted before.
            if self.inner.commit(&mut writer, slots, Vec::new()).is_ok() {
                changes.freed = gone.iter().map(|(slot, _)| *slot).collect();
                changes.removed = gone.into_iter().map(|(_, record)| record).collect();
            }
        }
        drop(writer);
        self.wake();
        changes
    }

    /// The present state of everything, to match several events on.
    pub fn root(&self) -> Arc<Root> {
        self.inner.root.load_full()
    }

    /// Find what an event matches now. Who asks for the records of its slots while others write holds a root, and matches on it.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_event<'s>(
        &self,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        self.match_event_on(&self.inner.root.load(), event, tenant, collection, scratch)
    }

    /// Find what an event matches in the state that *root* is.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_event_on<'s>(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        self.inner.match_in(&mut Group::alone(root), event, tenant, collection, scratch)
    }

    /// Find what one of several events matches, with less effort where it is of the same tenant and collection as the last.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_in<'s>(
        &self,
        group: &mut Group<'_>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        self.inner.match_in(group, event, tenant, collection, scratch)
    }

    /// Find what one of several events matches, with all that can be said of it: what it is called, which is *told* if it can be
    /// read and is not ignored, and which matches of an update stay.
    ///
    /// # Errors
    ///
    /// The event cannot be read; nothing was told.
    pub fn match_in_full<'s>(
        &self,
        group: &mut Group<'_>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
        tell: impl FnOnce(Identity<'_>),
    ) -> Result<(Matched<'s>, Stays<'s>), EventError> {
        self.inner.match_in_full(group, event, tenant, collection, scratch, tell)
    }

    /// *Tell* what an event is called, without matching or counting it; or return why it is ignored.
    ///
    /// # Errors
    ///
    /// The event cannot be read; nothing was told. Lazily, matching may read on and find more.
    pub fn identify(
        &self,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
        tell: impl FnOnce(Identity<'_>),
    ) -> Result<Option<Ignored>, EventError> {
        self.inner.identify(event, tenant, collection, scratch, tell)
    }

    /// Which subscriptions match the document before an update, in the state that *root* is: slots, sorted. None where the
    /// event does not tell, or cannot be read.
    pub fn stays(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
    ) -> Option<Vec<u32>> {
        self.inner.stays(root, event, tenant, collection, scratch)
    }

    /// Where an event belongs, as far as can be told without reading all of it; for [`Group::expect`].
    pub fn locate<'e>(
        &'e self,
        event: &'e [u8],
        tenant: Option<&'e str>,
        collection: Option<&'e str>,
        scratch: &mut Scratch,
    ) -> Located<'e> {
        self.inner.locate(event, tenant, collection, &mut scratch.flattener)
    }

    /// Let one evaluation of a CEL program cost so much from now on.
    pub fn set_cel_budget(&self, budget: u64) {
        self.inner.cel_budget.store(budget, Ordering::Relaxed);
    }

    /// How many errors of CEL there were, by reason.
    pub fn cel_errors(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().map(|reason| (reason, self.inner.cel_errors[reason as usize].load(Ordering::Relaxed)))
    }

    /// The subscriptions with the most errors, the worst first, of at most 1,024 of which errors were told.
    pub fn failing(&self, most: usize) -> Vec<FailingSubscription> {
        let found = self.inner.failing.read().filter_map(|(slot, reason)| {
            let record = self.inner.records.made(slot);
            let record = record.as_ref().filter(|record| record.heard.errors() > 0)?;
            Some(FailingSubscription { id: record.id.to_string(), errors: record.heard.errors(), reason })
        });
        let mut failing: Vec<_> = found.collect();
        failing.sort_by(|one, other| other.errors.cmp(&one.errors).then_with(|| one.id.cmp(&other.id)));
        failing.truncate(most);
        failing
    }

    /// Heap bytes of all segments: subscriptions, and their indexes. Records and ids apart.
    pub fn bytes(&self) -> (usize, usize) {
        let root = self.inner.root.load();
        let (mut stores, mut indexes) = (0, 0);
        root.partitions.for_each(|partition| {
            for segment in &partition.present().segments {
                let (store, index) = segment.bytes();
                stores += store;
                indexes += index;
            }
        });
        (stores, indexes)
    }

    /// What is held as text: partitions, segments, buckets, probes and matchers, of at most so many subscriptions.
    pub fn dump(&self, most: usize) -> String {
        dump(&self.inner.root.load(), &self.inner.records, &self.inner.seed, most)
    }

    /// What each partition holds.
    pub fn partitions(&self) -> Vec<Held> {
        let mut held = Vec::new();
        self.inner.root.load().partitions.for_each(|partition| {
            let not_opened =
                partition.section.as_ref().filter(|section| section.opened().is_none()).map_or(0, |section| section.len());
            let partition = partition.present();
            let bytes = |(stores, indexes): (usize, usize), segment: &Arc<Segment>| {
                let (store, index) = segment.bytes();
                (stores + store, indexes + index)
            };
            let (store_bytes, index_bytes) = partition.segments.iter().fold((0, 0), bytes);
            held.push(Held {
                name: partition.name.clone(),
                subscriptions: not_opened + partition.segments.iter().map(|segment| segment.live()).sum::<usize>(),
                segments: partition.segments.len(),
                store_bytes,
                index_bytes,
            });
        });
        held
    }

    /// The name and the share of each partition that has one, see [`Share::counts`](crate::engine::shares::Share::counts).
    pub fn shares(&self) -> Vec<(Arc<Name>, [u64; 3])> {
        let mut found = Vec::new();
        self.inner.root.load().partitions.for_each(|partition| {
            found.extend(partition.present().share.as_ref().map(|share| (partition.name.clone(), share.counts())));
        });
        found
    }

    /// How many partitions and segments there are.
    pub fn shape(&self) -> (usize, usize) {
        let root = self.inner.root.load();
        let mut segments = 0;
        root.partitions.for_each(|partition| segments += partition.present().segments.len());
        (root.partitions.count(), segments)
    }
}
