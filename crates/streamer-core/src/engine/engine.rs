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

use crate::automaton::regexps::Program;
use crate::engine::build::{CostClass, Depth, access_of};
use crate::engine::merging::{Signal, large_merge, small_merge};
use crate::engine::partitions::{Name, Partition, Partitions, join};
use crate::engine::paths::{PathSets, Views};
use crate::engine::registry::{Generation, Host, Record, Records, Slots};
use crate::engine::segment::{Output, Segment, SegmentScratch};
use crate::engine::store::{StoreBuilder, flags};
use crate::engine::values::{Values, ValuesScratch};
use crate::engine::words::{FastHash, Refused};
use crate::error::{EventError, SubscriptionError, SubscriptionErrorKind};
use crate::flatten::{Flattener, Given, Locator, Validation};
use crate::layout::{EventLayout, EventType};
use crate::limits::Limits;
use crate::subscriptions::normal_form::{Atom, NormalForm};
use crate::value::Seed;
use arc_swap::ArcSwap;
use hashbrown::HashTable;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

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
    /// Its conditions, `cel` apart.
    pub form: NormalForm,
    /// [`flags::CEL`] or [`flags::WHOLE`]: what the host must judge.
    pub flags: u8,
    /// As it was given.
    pub text: Box<[u8]>,
    /// What the host keeps with it.
    pub host: Option<Host>,
}

/// What to do with an id that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is an error.
    Add,
    /// The new subscription takes its place.
    Replace,
    /// Likewise, unless its text is the same; and what is not given is removed.
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
    generation: Arc<Generation>,
    any_tenant: usize,
    any_collection: usize,
    len: usize,
}

impl Root {
    /// The same under the next version, to be changed and published.
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

/// Counters since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events matched or rejected.
    pub events: u64,
    /// Conjunctions that indexes brought up.
    pub candidates: u64,
    /// Conjunctions of plain lists that were verified.
    pub listed: u64,
    /// Subscriptions that matched, or were handed to the host.
    pub matches: u64,
}

#[derive(Debug, Default)]
struct AtomicCounters {
    events: AtomicU64,
    candidates: AtomicU64,
    listed: AtomicU64,
    matches: AtomicU64,
}

/// What the writer alone touches.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub slots: Slots,
    pub sets: PathSets,
    pub locations: Vec<u32>,
    next_order: u64,
    gateways: HashSet<Arc<str>>,
    names: HashSet<Arc<Name>>,
    purge_at: usize,
    pub merges: Vec<Arc<Name>>,
}

pub(super) struct Inner {
    pub options: Options,
    pub seed: Seed,
    locator: Locator,
    pub root: ArcSwap<Root>,
    pub records: Records,
    pub writer: Mutex<Writer>,
    ids: RwLock<HashTable<u32>>,
    counters: AtomicCounters,
}

/// See the head of this file.
pub struct Engine {
    pub(super) inner: Arc<Inner>,
    pub(super) signal: Arc<Signal>,
}

/// What one thread reuses from event to event.
#[derive(Debug, Default)]
pub struct Scratch {
    flattener: Flattener,
    views: Views,
    values: ValuesScratch,
    segment: SegmentScratch,
    output: Output,
}

/// What an event matches. Slots stay valid while *pin* is held.
#[derive(Debug)]
pub struct Matched<'s> {
    /// Slots of subscriptions that match.
    pub certain: &'s [u32],
    /// Slots, with their flags, of what the host must still judge: the `cel` part, or the whole. Where the event has holes
    /// the index is not asked, and this is all that the event's partitions hold.
    pub pending: &'s [(u32, u8)],
    /// What happened to the document.
    pub event_type: Option<EventType>,
    /// Whether the event carries the document before the change.
    pub has_before: bool,
    /// How many conjunctions were looked at.
    pub work: u64,
    /// Keeps the slots from being given to others.
    pub pin: Pin,
}

/// Keeps the slots of a match from being given to other subscriptions.
#[derive(Clone, Debug)]
pub struct Pin(#[allow(dead_code, reason = "held, never read")] Arc<Generation>);

impl Writer {
    /// Where the subscriptions of a new segment are.
    pub fn locate(&mut self, segment: &Segment) {
        for (slot, at) in segment.store.slots.iter().zip(0..) {
            self.locations[*slot as usize] = at;
        }
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// One allocation for each gateway that is in use.
    fn gateway(&mut self, gateway: &str) -> Arc<str> {
        if let Some(known) = self.gateways.get(gateway) {
            return known.clone();
        }
        if self.gateways.len() >= self.purge_at {
            self.gateways.retain(|gateway| Arc::strong_count(gateway) > 1);
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.purge_at = 1024.max(2 * (self.gateways.len() + self.names.len()));
        }
        let gateway: Arc<str> = gateway.into();
        self.gateways.insert(gateway.clone());
        gateway
    }

    /// Likewise for each partition.
    fn name(&mut self, name: Name) -> Arc<Name> {
        if let Some(known) = self.names.get(&name) {
            return known.clone();
        }
        if self.names.len() >= self.purge_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.purge_at = 1024.max(2 * (self.gateways.len() + self.names.len()));
        }
        let name = Arc::new(name);
        self.names.insert(name.clone());
        name
    }
}

/// The segments of partitions, and those of them that are new.
type Built = (Vec<(Arc<Name>, Vec<Arc<Segment>>)>, Vec<Arc<Segment>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A writer that panicked has published nothing; what it left half done is not reachable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        let inner = Inner {
            locator: Locator::new(&options.layout),
            options,
            seed: Seed::random(),
            root: ArcSwap::from_pointee(root),
            records: Records::default(),
            writer: Mutex::new(writer),
            ids: RwLock::default(),
            counters: AtomicCounters::default(),
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

    /// The counters.
    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Counters {
            events: read(&counters.events),
            candidates: read(&counters.candidates),
            listed: read(&counters.listed),
            matches: read(&counters.matches),
        }
    }

    /// The record of a slot, without a lock. It is there while a [`Pin`] of the match that gave the slot is held.
    pub fn record(&self, slot: u32) -> Option<Arc<Record>> {
        self.inner.records.get(slot).clone()
    }

    /// The slot and the record of an id.
    pub fn get(&self, id: &str) -> Option<(u32, Arc<Record>)> {
        let ids = self.inner.ids.read().unwrap_or_else(PoisonError::into_inner);
        let slot = self.inner.find_id(&ids, id)?;
        Some((slot, self.record(slot)?))
    }

    /// The slots and records that *selection* means, in order of adding.
    pub fn select(&self, selection: &Selection<'_>) -> Vec<(u32, Arc<Record>)> {
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
        let changes = self.inner.write(items, mode, skip);
        self.wake();
        changes
    }

    /// Remove what *selection* means.
    pub fn remove(&self, selection: &Selection<'_>) -> Changes {
        let mut writer = lock(&self.inner.writer);
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

    /// Find what an event matches.
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
        self.inner.match_event(&self.root(), event, tenant, collection, scratch)
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
        self.inner.match_event(root, event, tenant, collection, scratch)
    }

    /// Heap bytes of all segments: subscriptions, and their indexes. Records and ids apart.
    pub fn bytes(&self) -> (usize, usize) {
        let root = self.inner.root.load();
        let (mut stores, mut indexes) = (0, 0);
        root.partitions.for_each(|partition| {
            for segment in &partition.segments {
                let (store, index) = segment.bytes();
                stores += store;
                indexes += index;
            }
        });
        (stores, indexes)
    }

    /// How many partitions and segments there are.
    pub fn shape(&self) -> (usize, usize) {
        let root = self.inner.root.load();
        let mut segments = 0;
        root.partitions.for_each(|partition| segments += partition.segments.len());
        (root.partitions.count(), segments)
    }
}

/// Check what a form must have to be taken, and tell its cost class.
fn check(addition: &Addition, options: &Options) -> Result<CostClass, SubscriptionError> {
    let refuse = |reason: String| SubscriptionError {
        subscription_id: Some(addition.id.to_string()),
        ..SubscriptionError::new("", reason)
    };
    let mut class = CostClass::Keyed;
    if addition.flags & flags::WHOLE != 0 {
        class = CostClass::Whole;
    }
    for conjunction in &addition.form.conjunctions {
        class = class.max(access_of(conjunction).1);
        for atom in conjunction.clauses.iter().flat_map(|clause| &clause.atoms) {
            if let Atom::Regexp(regexp) = atom {
                Program::compile(regexp).map_err(&refuse)?;
            }
        }
    }
    if class >= CostClass::Unindexed && !options.allow_unindexed {
        let reason = "it would be evaluated for every event, since no condition of it can be looked up (limits.allow_unindexed)";
        return Err(refuse(reason.into()));
    }
    Ok(class)
}

impl Inner {
    pub(super) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    fn find_id(&self, ids: &HashTable<u32>, id: &str) -> Option<u32> {
        let hash = self.seed.hash_bytes(id.as_bytes());
        ids.find(hash, |slot| self.records.get(*slot).as_ref().is_some_and(|record| *record.id == *id)).copied()
    }

    fn write(
        &self,
        items: Vec<Result<Addition, SubscriptionError>>,
        mode: Mode,
        skip: bool,
    ) -> Result<Changes, Vec<(usize, SubscriptionError)>> {
        let mut changes = Changes::default();
        let mut accepted: Vec<(usize, Addition, CostClass)> = Vec::with_capacity(items.len());
        let mut seen: HashSet<Box<str>, FastHash> = HashSet::default();
        for (at, item) in items.into_iter().enumerate() {
            if let Err(SubscriptionError { subscription_id: Some(id), .. }) = &item {
                seen.insert(id.as_str().into());
            }
            let checked = item.and_then(|addition| {
                if !seen.insert(addition.id.clone()) {
                    return Err(duplicate(&addition.id, "this id comes twice in one call"));
                }
                let class = check(&addition, &self.options)?;
                Ok((addition, class))
            });
            match checked {
                Ok((addition, class)) => accepted.push((at, addition, class)),
                Err(error) => changes.errors.push((at, error)),
            }
        }
        let mut writer = self.lock_writer();
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        let mut gone: Vec<u32> = Vec::new();
        let mut new: Vec<(usize, Addition, CostClass, Option<Arc<Record>>)> = Vec::with_capacity(accepted.len());
        for (at, addition, class) in accepted {
            let held = self.find_id(&ids, &addition.id).and_then(|slot| Some((slot, self.records.get(slot).clone()?)));
            match held {
                None => new.push((at, addition, class, None)),
                Some(_) if mode == Mode::Add => {
                    let error = duplicate(&addition.id, "this id is held already; replace=True puts the new one in its place");
                    changes.errors.push((at, error));
                }
                Some((_, record)) if mode == Mode::Apply && record.text == addition.text => changes.unchanged.push(at),
                Some((slot, record)) => {
                    gone.push(slot);
                    new.push((at, addition, class, Some(record)));
                }
            }
        }
        changes.errors.sort_by_key(|(at, _)| *at);
        if !changes.errors.is_empty() && !skip {
            return Err(changes.errors);
        }
        if mode == Mode::Apply {
            let mut removed: Vec<(u32, Arc<Record>)> = ids
                .iter()
                .filter_map(|slot| Some((*slot, self.records.get(*slot).clone()?)))
                .filter(|(_, record)| !seen.contains(&record.id))
                .collect();
            removed.sort_unstable_by_key(|(_, record)| record.order);
            gone.extend(removed.iter().map(|(slot, _)| *slot));
            changes.removed = removed.into_iter().map(|(_, record)| record).collect();
        }
        drop(ids);
        if new.is_empty() && gone.is_empty() {
            return Ok(changes);
        }
        changes.freed = gone.clone();
        let order_of: Vec<(usize, bool)> = new.iter().map(|(at, .., held)| (*at, held.is_some())).collect();
        let additions = new.into_iter().map(|(_, addition, class, held)| (addition, class, held)).collect();
        match self.commit(&mut writer, gone, additions) {
            Ok(slots) => {
                for ((at, is_replaced), slot) in order_of.into_iter().zip(slots) {
                    if is_replaced { &mut changes.replaced } else { &mut changes.added }.push((at, slot));
                }
                Ok(changes)
            }
            Err(refused) => {
                let reason = match refused {
                    Refused::Regexp(reason) => reason,
                    Refused::Full => "more than 2^32 bytes of conditions in one partition".into(),
                };
                Err(order_of.into_iter().map(|(at, _)| (at, SubscriptionError::new("", reason.clone()))).collect())
            }
        }
    }

    /// Take *gone* out and put *new* in, in one new root; the slots of *new* in order. On an error nothing has changed.
    fn commit(
        &self,
        writer: &mut Writer,
        gone: Vec<u32>,
        new: Vec<(Addition, CostClass, Option<Arc<Record>>)>,
    ) -> Result<Vec<u32>, Refused> {
        let root = self.root.load_full();
        let version = root.version + 1;
        let mut touched: HashMap<Arc<Name>, StoreBuilder, FastHash> = HashMap::default();
        let mut removed: Vec<(Arc<Segment>, u32)> = Vec::with_capacity(gone.len());
        for &slot in &gone {
            let Some(record) = self.records.get(slot).clone() else { continue };
            let partition = self.partition(&root.partitions, &record.partition);
            let at = writer.locations[slot as usize];
            let has_it =
                |segment: &&Arc<Segment>| segment.store.slots.get(at as usize) == Some(&slot) && segment.removed_at(at) == 0;
            if let Some(segment) = partition.and_then(|partition| partition.segments.iter().find(has_it)) {
                segment.remove(at, version);
                removed.push((segment.clone(), at));
            }
            touched.entry(record.partition.clone()).or_default();
        }
        let next_order = writer.next_order;
        let mut slots = Vec::with_capacity(new.len());
        // A panic in here is undone like a refusal: nothing of it is published, so nothing of it may stay.
        let built = catch_unwind(AssertUnwindSafe(|| {
            self.fill(writer, new, &mut touched, &mut slots)?;
            let (built, new) = self.segments(writer, &root, touched)?;
            let mut next = Root { len: root.len + slots.len() - removed.len(), ..Root::after(&root) };
            for (name, segments) in built {
                self.put(&mut next, name, segments);
            }
            if let Some(hook) = &self.options.before_publish {
                hook();
            }
            Ok((next, new))
        }));
        let (next, new) = match built {
            Ok(Ok(built)) => built,
            failed => {
                removed.iter().for_each(|(segment, at)| segment.restore(*at));
                slots.iter().for_each(|slot| writer.slots.give_back(&self.records, *slot));
                writer.next_order = next_order;
                return failed.unwrap_or_else(|panic| resume_unwind(panic)).map(|_| slots);
            }
        };
        for segment in new {
            writer.locate(&segment);
        }
        gone.iter().for_each(|slot| writer.slots.release(*slot));
        let forgotten: Vec<(u32, Box<str>)> =
            gone.iter().filter_map(|slot| Some((*slot, self.records.get(*slot).as_ref()?.id.clone()))).collect();
        self.publish(writer, next);
        let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        for (slot, id) in forgotten {
            if let Ok(entry) = ids.find_entry(self.seed.hash_bytes(id.as_bytes()), |other| *other == slot) {
                entry.remove();
            }
        }
        let hash = |slot: &u32| self.records.get(*slot).as_ref().map_or(0, |record| self.seed.hash_bytes(record.id.as_bytes()));
        ids.reserve(slots.len(), hash);
        for slot in &slots {
            ids.insert_unique(hash(slot), *slot, hash);
        }
        if ids.capacity() > 1024 && ids.len() < ids.capacity() / 8 {
            ids.shrink_to_fit(hash);
        }
        Ok(slots)
    }

    /// Give *new* records and slots, and put them into the builders of their partitions.
    fn fill(
        &self,
        writer: &mut Writer,
        new: Vec<(Addition, CostClass, Option<Arc<Record>>)>,
        touched: &mut HashMap<Arc<Name>, StoreBuilder, FastHash>,
        slots: &mut Vec<u32>,
    ) -> Result<(), Refused> {
        for (addition, cost_class, held) in new {
            let collection = addition.collection.unwrap_or_else(|| "*".into());
            let name = writer.name(Name { tenant: addition.tenant, collection });
            let order = held.map_or_else(|| writer.order(), |held| held.order);
            let record = Record {
                id: addition.id,
                gateway_id: addition.gateway_id.map(|gateway| writer.gateway(&gateway)),
                partition: name.clone(),
                order,
                text: addition.text,
                host: addition.host.map_or_else(OnceLock::new, OnceLock::from),
                cost_class,
                flags: addition.flags,
            };
            let slot = writer.slots.take(&self.records, Arc::new(record)).ok_or(Refused::Full)?;
            slots.push(slot);
            touched.entry(name).or_default().add(slot, addition.flags, &addition.form)?;
        }
        writer.locations.resize(writer.slots.end() as usize, u32::MAX);
        Ok(())
    }

    /// The segments of each touched partition: what was added, merged with what is small or mostly gone, and the others. And
    /// those of them that are new.
    fn segments(
        &self,
        writer: &mut Writer,
        root: &Root,
        touched: HashMap<Arc<Name>, StoreBuilder, FastHash>,
    ) -> Result<Built, Refused> {
        let mut built = Vec::with_capacity(touched.len());
        let mut new = Vec::new();
        for (name, mut builder) in touched {
            let held = self.partition(&root.partitions, &name).map_or(&[][..], |partition| &partition.segments);
            let held: Vec<Arc<Segment>> = held.iter().filter(|segment| segment.live() > 0).cloned().collect();
            let merged = small_merge(&held, builder.len());
            let mut segments = Vec::with_capacity(held.len() + 1);
            for (segment, is_merged) in held.into_iter().zip(merged) {
                if is_merged {
                    builder.add_store(&segment.store, |at| segment.removed_at(at) == 0)?;
                } else {
                    segments.push(segment);
                }
            }
            if !builder.is_empty() {
                let store = builder.build(&mut writer.sets);
                let segment = Arc::new(Segment::new(store, &self.seed, self.options.depth)?);
                new.push(segment.clone());
                segments.push(segment);
            }
            if large_merge(&segments).is_some() {
                writer.merges.push(name.clone());
            }
            built.push((name, segments));
        }
        Ok((built, new))
    }

    /// The partition of a name.
    pub(super) fn partition<'r>(&self, partitions: &'r Partitions, name: &Name) -> Option<&'r Arc<Partition>> {
        partitions.get(name.hash(&self.seed), &name.tenant, &name.collection)
    }

    /// Put the segments of a partition into a root that is not published yet.
    pub(super) fn put(&self, root: &mut Root, name: Arc<Name>, segments: Vec<Arc<Segment>>) {
        let before = root.partitions.count();
        let (is_any_tenant, is_any_collection) = (*name.tenant == *"*", *name.collection == *"*");
        root.partitions.set(name.hash(&self.seed), Partition { name, segments });
        let after = root.partitions.count();
        if is_any_tenant {
            root.any_tenant = root.any_tenant + after - before;
        }
        if is_any_collection {
            root.any_collection = root.any_collection + after - before;
        }
    }

    /// Make *root* what readers see.
    pub(super) fn publish(&self, writer: &mut Writer, mut root: Root) {
        writer.slots.advance(&self.records);
        root.generation = writer.slots.generation();
        self.root.store(Arc::new(root));
    }
}

impl Inner {
    /// The partitions that an event of *tenant* and *collection* sees: its own, and those for all collections or tenants.
    fn seen_by<'r>(&self, root: &'r Root, tenant: &str, collection: Option<&str>) -> [Option<&'r Arc<Partition>>; 4] {
        let all = self.seed.hash_bytes(b"*");
        let tenant_hash = self.seed.hash_bytes(tenant.as_bytes());
        let find = |hash, tenant, collection| root.partitions.get(hash, tenant, collection);
        let mut seen = [None; 4];
        if let Some(name) = collection {
            let hash = self.seed.hash_bytes(name.as_bytes());
            seen[0] = find(join(&self.seed, tenant_hash, hash), tenant, name);
            if root.any_tenant > 0 {
                seen[1] = find(join(&self.seed, all, hash), "*", name);
            }
        }
        if root.any_collection > 0 {
            seen[2] = find(join(&self.seed, tenant_hash, all), tenant, "*");
            if root.any_tenant > 0 {
                seen[3] = find(join(&self.seed, all, all), "*", "*");
            }
        }
        seen
    }

    fn match_event<'s>(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        let Scratch { flattener, views, values, segment, output } = scratch;
        output.certain.clear();
        output.pending.clear();
        (output.candidates, output.listed) = (0, 0);
        let options = &self.options;
        let given = Given { tenant, collection, default_tenant: options.default_tenant.as_deref() };
        let (located, name) = flattener.locate(&self.locator, event, &given, &options.limits);
        let mut seen = self.seen_by(root, located.unwrap_or_default(), name);
        let mut is_settled = false;
        let (event_type, has_before) = loop {
            let segments = || seen.iter().flatten().flat_map(|partition| &partition.segments);
            let view = views.get(segments().map(|segment| &*segment.store.paths), &options.layout);
            let flat = match flattener.flatten(&view.trie, event, options.validation, &given, &options.limits) {
                Ok(flat) => flat,
                Err(error) => {
                    self.counters.events.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
            };
            let parts = flat.parts();
            let found = (parts.event_type, flat.has_before());
            if parts.has_unknown {
                for segment in self.seen_by(root, parts.tenant, parts.collection).iter().flatten().flat_map(|seen| &seen.segments)
                {
                    segment.everything(root.version, output);
                }
                break found;
            }
            if !is_settled {
                // What was located is a guess: an event with duplicates, say, may belong elsewhere.
                is_settled = true;
                let settled = self.seen_by(root, parts.tenant, parts.collection);
                let is_same = |(one, other): (&Option<&Arc<Partition>>, &Option<&Arc<Partition>>)| match (one, other) {
                    (None, None) => true,
                    (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                    _ => false,
                };
                if !seen.iter().zip(&settled).all(is_same) {
                    seen = settled;
                    continue;
                }
            }
            let mut read = Values::begin(&flat, &self.seed, values);
            for (segment_seen, map) in segments().zip(&view.maps) {
                segment_seen.find(root.version, map, &mut read, &self.seed, segment, output);
            }
            read.end(values);
            break found;
        };
        self.counters.events.fetch_add(1, Ordering::Relaxed);
        self.counters.candidates.fetch_add(output.candidates, Ordering::Relaxed);
        self.counters.listed.fetch_add(output.listed, Ordering::Relaxed);
        self.counters.matches.fetch_add((output.certain.len() + output.pending.len()) as u64, Ordering::Relaxed);
        Ok(Matched {
            certain: &output.certain,
            pending: &output.pending,
            event_type,
            has_before,
            work: output.candidates + output.listed,
            pin: Pin(root.generation.clone()),
        })
    }
}

fn duplicate(id: &str, reason: &str) -> SubscriptionError {
    SubscriptionError {
        kind: SubscriptionErrorKind::Duplicate,
        subscription_id: Some(id.into()),
        ..SubscriptionError::new("id", reason)
    }
}
