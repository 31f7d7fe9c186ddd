//! Writes: the checks of a draft, and the next version.
//!
//! ```text
//!   draft (no lock) ─► lock ─► tombstones ─► records and slots ─► a store and a segment for each partition ─► swap ─► ids
//!                              └────────── rolled back if a part does not fit ──────────┘
//! ```

use crate::bloom::filter::BloomFilter;
use crate::bloom::keys::Access;
use crate::engine::index::access::CostClass;
use crate::engine::index::segment::Segment;
use crate::engine::state::addition::Addition;
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::name::PartitionName;
use crate::engine::state::partitions::{Partition, Partitions};
use crate::engine::state::record::{Filed, Filing, Record, RecordRef};
use crate::engine::state::shares::Share;
use crate::engine::state::writer::Writer;
use crate::engine::verify::encoded::{CannotBuild, FastHash};
use crate::engine::verify::store::StoreBuilder;
use crate::engine::write::changes::{Changes, WriteMode};
use crate::engine::write::draft::{Draft, DraftItem, Drafted, Stores};
use crate::engine::write::merging::{large_merge, small_merge};
use crate::error::{SubscriptionError, SubscriptionErrorKind};
use crate::value::Seed;
use hashbrown::HashTable;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

const UNINDEXED: &str = "its conditions cannot be looked up, so it may match any event (limits.allow_unindexed)";

/// The segments and filters of partitions, and those segments that are new.
type Built = (Vec<(Arc<PartitionName>, Vec<Arc<Segment>>, Option<Arc<BloomFilter>>)>, Vec<Arc<Segment>>);

/// The segments of a partition, and the one of them that is new.
type Merged = (Vec<Arc<Segment>>, Option<(Arc<Segment>, Access)>);

/// A subscription that is good by itself.
pub(super) struct Accepted {
    /// Which one of the call.
    at: usize,
    id_hash: u64,
    drafted: Box<Drafted>,
    /// The subscription that it replaces.
    previous: Option<RecordRef>,
}

/// The ids of a write's items, also of those that could not be read.
struct DraftIds<'d> {
    items: &'d [DraftItem],
    /// The hash of each; arbitrary if there is no id.
    hashes: Vec<u64>,
    seen: HashTable<usize>,
}

impl<'d> DraftIds<'d> {
    /// A set in which no id is marked.
    fn of(items: &'d [DraftItem], seed: &Seed) -> DraftIds<'d> {
        let hash = |item| id_of(item).map_or(0, |id| seed.hash_bytes(id.as_bytes()));
        DraftIds { items, hashes: items.iter().map(hash).collect(), seen: HashTable::with_capacity(items.len()) }
    }

    /// See the id of one; false if it was seen before.
    fn is_new(&mut self, at: usize) -> bool {
        let Some(id) = id_of(&self.items[at]) else { return true };
        let is_new = !self.has(self.hashes[at], id);
        if is_new {
            let hashes = &self.hashes;
            self.seen.insert_unique(hashes[at], at, |other| hashes[*other]);
        }
        is_new
    }

    /// Whether an id was seen.
    fn has(&self, hash: u64, id: &str) -> bool {
        self.seen.find(hash, |other| id_of(&self.items[*other]) == Some(id)).is_some()
    }
}

/// The new subscriptions of a write.
#[derive(Default)]
pub(in crate::engine) struct New {
    accepted: Vec<Accepted>,
    /// The stores of these, and of subscriptions that were not accepted.
    stores: Stores,
}

impl EngineState {
    /// Add, replace or apply; what [`Engine::write_among`](crate::engine::Engine::write_among) does.
    pub(in crate::engine) fn write_draft(
        &self,
        draft: Draft,
        mode: WriteMode,
        skip: bool,
        among: Option<&HashSet<String>>,
    ) -> Result<Changes, Vec<(usize, SubscriptionError)>> {
        self.have_ids();
        let may_change = |id: &str| among.is_none_or(|among| among.contains(id));
        let mut changes = Changes::default();
        let Draft { items, stores } = draft;
        let mut draft_ids = DraftIds::of(&items, &self.seed);
        // The valid items, and the subscription that each replaces.
        let mut good: Vec<(usize, Option<RecordRef>)> = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let is_new = draft_ids.is_new(at);
            let checked = item.as_ref().map_err(|error| SubscriptionError::clone(error)).and_then(|drafted| {
                let id = &drafted.addition.id;
                match &drafted.class {
                    _ if !is_new => Err(duplicate(id, "this id appears twice in one call")),
                    Err(error) => Err(SubscriptionError::clone(error)),
                    Ok(CostClass::Unindexed) if !self.options.allow_unindexed => Err(SubscriptionError::of(id, UNINDEXED)),
                    Ok(_) => Ok(()),
                }
            });
            match checked {
                Ok(()) => good.push((at, None)),
                Err(error) => changes.errors.push((at, error)),
            }
        }
        let mut writer = self.lock_writer();
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        let mut gone: Vec<u32> = Vec::new();
        good.retain_mut(|(at, previous)| {
            let Ok(Drafted { addition, .. }) = items[*at].as_deref() else { return false };
            let previous_slot = self.find_hashed(&ids, draft_ids.hashes[*at], &addition.id);
            let previous_slot = previous_slot.and_then(|slot| Some((slot, self.records.get(slot).clone()?)));
            match previous_slot {
                None => true,
                Some(_) if mode == WriteMode::Add || !may_change(&addition.id) => {
                    let error = duplicate(&addition.id, "this id exists already; replace=True replaces its subscription");
                    changes.errors.push((*at, error));
                    false
                }
                Some((_, record)) if mode == WriteMode::Apply && says_the_same(addition, &record) => {
                    changes.unchanged.push(*at);
                    false
                }
                Some((slot, record)) => {
                    gone.push(slot);
                    *previous = Some(record);
                    true
                }
            }
        });
        changes.errors.sort_by_key(|(at, _)| *at);
        if !changes.errors.is_empty() && !skip {
            return Err(changes.errors);
        }
        if mode == WriteMode::Apply {
            let mut removed: Vec<(u32, RecordRef)> = ids
                .iter()
                .filter_map(|slot| Some((*slot, self.records.get(*slot).clone()?)))
                .filter(|(_, record)| may_change(record.id()))
                .filter(|(_, record)| !draft_ids.has(self.seed.hash_bytes(record.id().as_bytes()), record.id()))
                .collect();
            removed.sort_unstable_by_key(|(_, record)| record.order);
            gone.extend(removed.iter().map(|(slot, _)| *slot));
            changes.removed = removed.into_iter().map(|(_, record)| record).collect();
        }
        drop(ids);
        if good.is_empty() && gone.is_empty() {
            return Ok(changes);
        }
        let DraftIds { hashes, .. } = draft_ids;
        let mut good = good.into_iter().peekable();
        let accept = |((at, item), id_hash)| {
            let (_, previous) = good.next_if(|(next, _)| *next == at)?;
            Some(Accepted { at, id_hash, drafted: Result::ok(item)?, previous })
        };
        let accepted: Vec<Accepted> = items.into_iter().enumerate().zip(hashes).filter_map(accept).collect();
        changes.freed = gone.clone();
        let order_of: Vec<(usize, bool)> = accepted.iter().map(|one| (one.at, one.previous.is_some())).collect();
        match self.commit(&mut writer, gone, New { accepted, stores }) {
            Ok(slots) => {
                for ((at, is_replaced), slot) in order_of.into_iter().zip(slots) {
                    if is_replaced { &mut changes.replaced } else { &mut changes.added }.push((at, slot));
                }
                Ok(changes)
            }
            Err(refused) => {
                let reason = match refused {
                    CannotBuild::Regexp(reason) => reason,
                    CannotBuild::Full => "more than 2^32 bytes of conditions in one partition".into(),
                };
                Err(order_of.into_iter().map(|(at, _)| (at, SubscriptionError::new("", reason.clone()))).collect())
            }
        }
    }

    /// Remove *gone* and add *new*, in one new version; return the slots of *new* in order. On an error the engine is
    /// unchanged.
    pub(in crate::engine) fn commit(&self, writer: &mut Writer, gone: Vec<u32>, new: New) -> Result<Vec<u32>, CannotBuild> {
        let version = self.version.load_full();
        let number = version.number + 1;
        if self.records.mapped().is_some() {
            // A section that cannot be opened is found before anything is changed.
            for &slot in &gone {
                if let Some(record) = self.records.get(slot).as_ref() {
                    self.partition(&version.partitions, record.partition());
                }
            }
            for Accepted { drafted, .. } in &new.accepted {
                self.partition(&version.partitions, new.stores.name(drafted.partition));
            }
        }
        let mut touched: HashMap<Arc<PartitionName>, Box<StoreBuilder>, FastHash> = HashMap::default();
        let mut removed: Vec<(Arc<Segment>, u32)> = Vec::with_capacity(gone.len());
        for &slot in &gone {
            let Some(record) = self.records.get(slot).clone() else { continue };
            let partition = self.partition(&version.partitions, record.partition());
            if writer.locations[slot as usize] == u32::MAX {
                // It lies in a file, and this is the first removal in its section.
                partition.iter().flat_map(|partition| &partition.segments).for_each(|segment| writer.locate(segment));
            }
            let at = writer.locations[slot as usize];
            let has_it =
                |segment: &&Arc<Segment>| segment.store.slots.get(at as usize) == Some(&slot) && segment.removed_at(at) == 0;
            if let Some(segment) = partition.and_then(|partition| partition.segments.iter().find(has_it)) {
                segment.remove(at, number);
                if let Some(filter) = partition.and_then(|partition| partition.filter.as_ref()) {
                    filter.note_removed(segment.keys_of(at));
                }
                removed.push((segment.clone(), at));
            }
            touched.entry(record.partition().clone()).or_default();
        }
        let next_order = writer.next_order;
        let id_hashes: Vec<u64> = new.accepted.iter().map(|one| one.id_hash).collect();
        let mut slots = Vec::with_capacity(new.accepted.len());
        // A panic in here is rolled back like a refusal: it was not published, so its changes must not stay.
        let built = catch_unwind(AssertUnwindSafe(|| {
            self.fill(writer, new, &mut touched, &mut slots)?;
            let (built, new) = self.segments(writer, &version, touched)?;
            let mut next = Version { len: version.len + slots.len() - removed.len(), ..Version::after(&version) };
            for (name, segments, filter) in built {
                self.put(&mut next, Partition { name, segments, filter, share: None, section: None });
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
            gone.iter().filter_map(|slot| Some((*slot, self.records.get(*slot).as_ref()?.id().into()))).collect();
        self.publish(writer, next);
        let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        for (slot, id) in forgotten {
            if let Ok(entry) = ids.find_entry(self.seed.hash_bytes(id.as_bytes()), |other| *other == slot) {
                entry.remove();
            }
        }
        let hash = |slot: &u32| self.id_hash(*slot);
        ids.reserve(slots.len(), hash);
        for (slot, id_hash) in slots.iter().zip(id_hashes) {
            ids.insert_unique(id_hash, *slot, hash);
        }
        if ids.capacity() > 1024 && ids.len() < ids.capacity() / 8 {
            ids.shrink_to_fit(hash);
        }
        self.count_ids(&ids);
        drop((ids, version));
        writer.slots.reclaim(&self.records);
        writer.shapes.forget(gone.len());
        Ok(slots)
    }

    /// Give *new* records and slots, and put their stores to those of the partitions that are touched.
    fn fill(
        &self,
        writer: &mut Writer,
        New { mut accepted, stores }: New,
        touched: &mut HashMap<Arc<PartitionName>, Box<StoreBuilder>, FastHash>,
        slots: &mut Vec<u32>,
    ) -> Result<(), CannotBuild> {
        let mut drafted: Vec<&mut Drafted> = accepted.iter_mut().map(|one| &mut *one.drafted).collect();
        let parts = stores.settle(&mut drafted)?.into_iter();
        let mut stores: Vec<_> = parts.map(|part| part.store.map(|store| (writer.name(part.name), store))).collect();
        let mut records = Vec::with_capacity(accepted.len());
        for Accepted { drafted, previous, .. } in accepted {
            let Drafted { mut addition, partition, place, .. } = *drafted;
            let (name, store) = stores[partition as usize].as_mut().expect("an accepted subscription has a store");
            let order = previous.map_or_else(|| writer.order(), |previous| previous.order);
            let filing = writer.filing(Filing { partition: name.clone(), gateway_id: addition.gateway_id.take() });
            let text = writer.shapes.split(std::mem::take(&mut addition.text));
            let filed = Filed { filing, order, text };
            let record = Record::of(addition, filed).ok_or(CannotBuild::Full)?;
            let slot = writer.slots.take().ok_or(CannotBuild::Full)?;
            records.push(RecordRef::new(record));
            slots.push(slot);
            store.set_slot(place.expect("a place, once it is settled"), slot);
        }
        self.records.set_all(slots.iter().copied().zip(records));
        touched.extend(stores.into_iter().flatten());
        writer.locations.resize(writer.slots.end() as usize, u32::MAX);
        Ok(())
    }

    /// The segments of each touched partition: the added ones, merged with small or mostly removed ones, and the
    /// others. And those of them that are new.
    fn segments(
        &self,
        writer: &mut Writer,
        version: &Version,
        touched: HashMap<Arc<PartitionName>, Box<StoreBuilder>, FastHash>,
    ) -> Result<Built, CannotBuild> {
        let mut built = Vec::with_capacity(touched.len());
        let mut new = Vec::new();
        for (name, builder) in touched {
            let partition = self.partition(&version.partitions, &name);
            let present = partition.map_or(&[][..], |partition| &partition.segments);
            let present: Vec<Arc<Segment>> = present.iter().filter(|segment| segment.live() > 0).cloned().collect();
            let added = builder.len();
            let merged = small_merge(&present, added);
            if merged.contains(&true) {
                self.telemetry.merged();
            }
            let (segments, unknown) = match self.merged(builder, &present, &merged) {
                Ok(built) => built,
                // Without new subscriptions the segments stay apart if they do not fit together.
                Err(_) if added == 0 => (present, None),
                Err(refused) => return Err(refused),
            };
            new.extend(unknown.iter().map(|(segment, _)| segment.clone()));
            let unknown = unknown.as_ref().map(|(segment, access)| (&**segment, access));
            let filter = self.filter_with(partition, &segments, unknown);
            if large_merge(&segments).is_some() {
                writer.merges.push(name.clone());
            }
            built.push((name, segments, filter));
        }
        Ok((built, new))
    }

    /// The segments, with the *merged* ones and the new subscriptions in one, and that one.
    fn merged(&self, mut builder: Box<StoreBuilder>, present: &[Arc<Segment>], merged: &[bool]) -> Result<Merged, CannotBuild> {
        let mut segments = Vec::with_capacity(present.len() + 1);
        for (segment, is_merged) in present.iter().zip(merged) {
            if *is_merged {
                builder.add_store(&segment.store, |at| segment.removed_at(at) == 0)?;
            } else {
                segments.push(segment.clone());
            }
        }
        if builder.is_empty() {
            return Ok((segments, None));
        }
        let store = builder.build(&mut self.sets());
        let access = self.access(&store);
        let segment = Arc::new(Segment::new(store, &self.seed, self.options.depth, Some(&access))?);
        segments.push(segment.clone());
        Ok((segments, Some((segment, access))))
    }

    /// The partition of a name, opened. A fault of a file is thrown.
    pub(in crate::engine) fn partition<'r>(
        &self,
        partitions: &'r Partitions,
        name: &PartitionName,
    ) -> Option<&'r Arc<Partition>> {
        Some(self.opened(partitions.get(name.hash(&self.seed), &name.tenant, &name.collection)?))
    }

    /// Put a partition into a version that is not published yet.
    pub(in crate::engine) fn put(&self, version: &mut Version, partition: Partition) {
        let before = version.partitions.count();
        let name = partition.name.clone();
        let hash = name.hash(&self.seed);
        let share_of_old =
            version.partitions.get(hash, &name.tenant, &name.collection).and_then(|old| old.present().share.clone());
        // A partition in a file gets its own when it is opened.
        let share = if partition.section.is_some() { None } else { share_of_old.or_else(|| Share::within(&self.shares)) };
        let (is_any_tenant, is_any_collection) = (*name.tenant == *"*", *name.collection == *"*");
        version.partitions.set(hash, Partition { share, ..partition });
        let after = version.partitions.count();
        if is_any_tenant {
            version.any_tenant = version.any_tenant + after - before;
        }
        if is_any_collection {
            version.any_collection = version.any_collection + after - before;
        }
    }

    /// Make *version* the one that readers see.
    pub(in crate::engine) fn publish(&self, writer: &mut Writer, mut version: Version) {
        writer.slots.advance(&self.records);
        version.generation = writer.slots.generation();
        self.writer_bytes.store(writer.bytes(), Ordering::Relaxed);
        self.version.store(Arc::new(version));
    }
}

fn id_of(item: &DraftItem) -> Option<&str> {
    match item {
        Ok(drafted) => Some(&drafted.addition.id),
        Err(error) => error.subscription_id.as_deref(),
    }
}

fn says_the_same(addition: &Addition, record: &Record) -> bool {
    let text = record.text();
    *text == *addition.text || addition.same_as.as_deref() == Some(&*text)
}

fn duplicate(id: &str, reason: &str) -> SubscriptionError {
    SubscriptionError { kind: SubscriptionErrorKind::Duplicate, place: "id".into(), ..SubscriptionError::of(id, reason) }
}
