//! Reports on an engine: ids, sizes, partitions and errors.

use crate::cel::Reason;
use crate::engine::dump;
use crate::engine::index::segment::Segment;
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::name::PartitionName;
use crate::engine::state::record::{RecordBytes, RecordRef};
use crate::engine::verify::failures::FailingSubscription;
use crate::engine::write::changes::Selection;
use crate::heap::block;
use crate::watch;
use hashbrown::HashTable;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The sizes of a partition.
#[derive(Clone, Debug)]
pub struct PartitionSizes {
    /// Which partition.
    pub name: Arc<PartitionName>,
    /// How many subscriptions.
    pub subscriptions: usize,
    /// In how many segments.
    pub segments: usize,
    /// Heap bytes of their conditions.
    pub store_bytes: usize,
    /// Heap bytes of their indexes.
    pub index_bytes: usize,
}

impl EngineState {
    /// How many subscriptions there are.
    pub fn len(&self) -> usize {
        self.version.load().len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot and the record of an id.
    pub fn get(&self, id: &str) -> Option<(u32, RecordRef)> {
        self.have_ids();
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        let slot = self.find_id(&ids, id)?;
        Some((slot, self.record(slot)?))
    }

    /// The slots and records that *selection* means, in order of adding.
    pub fn select(&self, selection: &Selection<'_>) -> Vec<(u32, RecordRef)> {
        self.have_ids();
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        let mut records: Vec<(u32, RecordRef)> = match selection.ids {
            Some(wanted) => wanted
                .iter()
                .collect::<HashSet<_>>()
                .into_iter()
                .filter_map(|id| self.find_id(&ids, id))
                .filter_map(|slot| Some((slot, self.record(slot)?)))
                .collect(),
            None => ids.iter().filter_map(|slot| Some((*slot, self.record(*slot)?))).collect(),
        };
        drop(ids);
        records.retain(|(_, record)| {
            selection.gateway_id.is_none_or(|gateway| record.gateway_id() == Some(gateway))
                && selection.tenant.is_none_or(|tenant| *record.partition().tenant == *tenant)
                && selection.collection.is_none_or(|collection| *record.partition().collection == *collection)
        });
        records.sort_unstable_by_key(|(_, record)| record.order);
        records
    }

    /// How many errors of CEL there were, by reason.
    pub fn cel_errors(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().map(|reason| (reason, self.cel_errors[reason as usize].load(Ordering::Relaxed)))
    }

    /// The subscriptions with the most errors, the worst first, out of at most 1,024 with reported errors.
    pub fn failing(&self, most: usize) -> Vec<FailingSubscription> {
        let entries = self.failing.read().filter_map(|(slot, reason)| {
            let record = self.records.made(slot);
            let record = record.as_ref().filter(|record| record.errors() > 0)?;
            Some(FailingSubscription { id: record.id().to_owned(), errors: record.errors(), reason })
        });
        let mut failing: Vec<_> = entries.collect();
        failing.sort_by(|one, other| other.errors.cmp(&one.errors).then_with(|| one.id.cmp(&other.id)));
        failing.truncate(most);
        failing
    }

    /// Heap bytes of all segments: subscriptions, and their indexes. Records and ids are counted separately.
    pub fn bytes(&self) -> (usize, usize) {
        let version = self.version.load();
        let (mut stores, mut indexes) = (0, 0);
        version.partitions.for_each(|partition| {
            for segment in &partition.present().segments {
                let (store, index) = segment.bytes();
                stores += store;
                indexes += index;
            }
        });
        (stores, indexes)
    }

    /// Heap bytes of the subscriptions without their conditions, as of the last write: it does not wait for one.
    pub fn bytes_of_records(&self) -> RecordBytes {
        let RecordBytes { records, texts } = self.records.bytes();
        let [writer, ids] = [&self.writer_bytes, &self.id_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        RecordBytes { records: records + writer + ids, texts }
    }

    /// Note the size of the table of ids, after a write to it.
    pub(super) fn count_ids(&self, ids: &HashTable<u32>) {
        self.id_bytes.store(block(ids.allocation_size()), Ordering::Relaxed);
    }

    /// The sizes of each partition.
    pub fn partitions(&self) -> Vec<PartitionSizes> {
        let mut sizes = Vec::new();
        self.version.load().partitions.for_each(|partition| {
            let not_opened = partition
                .section
                .as_ref()
                .filter(|unopened| unopened.opened().is_none())
                .map_or(0, |unopened| unopened.section.len());
            let partition = partition.present();
            let bytes = |(stores, indexes): (usize, usize), segment: &Arc<Segment>| {
                let (store, index) = segment.bytes();
                (stores + store, indexes + index)
            };
            let (store_bytes, index_bytes) = partition.segments.iter().fold((0, 0), bytes);
            sizes.push(PartitionSizes {
                name: partition.name.clone(),
                subscriptions: not_opened + partition.segments.iter().map(|segment| segment.live()).sum::<usize>(),
                segments: partition.segments.len(),
                store_bytes,
                index_bytes,
            });
        });
        sizes
    }

    /// The name and the share of each partition that has one, see [`Share::counts`](crate::engine::state::shares::Share::counts).
    pub fn shares(&self) -> Vec<(Arc<PartitionName>, [u64; 3])> {
        let mut shares = Vec::new();
        self.version.load().partitions.for_each(|partition| {
            shares.extend(partition.present().share.as_ref().map(|share| (partition.name.clone(), share.counts())));
        });
        shares
    }

    /// The content of the index, as text for people; segments only up to *most* subscriptions.
    pub fn dump(&self, most: usize) -> String {
        watch::begin(self.options.ask);
        dump::dump(&self.version.load(), &self.records, &self.seed, most)
    }

    /// How many partitions and segments there are.
    pub fn shape(&self) -> (usize, usize) {
        let version = self.version.load();
        let mut segments = 0;
        version.partitions.for_each(|partition| segments += partition.present().segments.len());
        (version.partitions.count(), segments)
    }
}
