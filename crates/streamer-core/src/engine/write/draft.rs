//! Drafts of subscriptions: checked one by one, and encoded for their partitions.
//!
//! ```text
//!   item ─► check ─► id, texts, ...     the parts of a record
//!             └────► its form ─► the store of its partition, half filled: a write assigns the slots
//! ```
//!
//! A form that the host may still narrow waits unencoded, and so do the first few of a partition.
//!
//! Cost: for each subscription its texts, and its part of a store: a write adds only complete drafts to the engine.
//! Rejected: to keep the parsed forms until then: a load takes a fifth more memory, and a tenth more time.

use crate::engine::index::access::CostClass;
use crate::engine::state::addition::{Addition, Item};
use crate::engine::state::name::PartitionName;
use crate::engine::verify::encoded::{CannotBuild, FastHash};
use crate::engine::verify::paths::PathSets;
use crate::engine::verify::store::{StoreBuilder, flags};
use crate::error::SubscriptionError;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::{Atom, NormalForm};
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Draft {
    pub(super) items: Vec<DraftItem>,
    pub(super) stores: Stores,
}

/// An item of a draft, or the reason to refuse it.
pub(super) type DraftItem = Result<Box<Drafted>, Box<SubscriptionError>>;

/// An item that could be read.
#[derive(Debug)]
pub(super) struct Drafted {
    /// Tenant and collection were moved out, and the form, unless it waits.
    pub addition: Addition,
    /// Its cost class, or the reason to refuse it.
    pub class: Result<CostClass, Box<SubscriptionError>>,
    /// The number of its partition.
    pub partition: u32,
    /// Its place in the store of its partition; None while its form waits.
    pub place: Option<u32>,
}

/// The store of each partition, while it is filled.
#[derive(Debug, Default)]
pub(super) struct Stores {
    each: Vec<PartitionDraft>,
    numbers: HashTable<u32>,
    hasher: FastHash,
    /// Why one of them could not be filled.
    failed: Option<CannotBuild>,
}

/// A partition. The store is in a box: there may be as many partitions as subscriptions, and they are moved.
#[derive(Debug)]
pub(super) struct PartitionDraft {
    pub name: PartitionName,
    waiting: u32,
    pub store: Option<Box<StoreBuilder>>,
}

/// This many forms of a partition wait unencoded: they are smaller than a new store.
const FEW: u32 = 8;

impl Stores {
    /// The number of a partition.
    fn number(&mut self, name: PartitionName) -> u32 {
        let Stores { each, numbers, hasher, .. } = self;
        let hash = hasher.hash_one(&name);
        if let Some(number) = numbers.find(hash, |number| each[*number as usize].name == name) {
            return *number;
        }
        let number = each.len() as u32;
        each.push(PartitionDraft { name, waiting: 0, store: None });
        numbers.insert_unique(hash, number, |number| hasher.hash_one(&each[*number as usize].name));
        number
    }

    /// Put a form into the store of a partition, and return its place. The first few wait instead.
    fn push(&mut self, partition: u32, flags: u8, form: &mut NormalForm) -> Option<u32> {
        let part = &mut self.each[partition as usize];
        if part.waiting < FEW {
            part.waiting += 1;
            return None;
        }
        Some(self.add(partition, flags, form))
    }

    /// Put a form into the store of a partition, and return its place.
    fn add(&mut self, partition: u32, flags: u8, form: &mut NormalForm) -> u32 {
        let store = self.each[partition as usize].store.get_or_insert_default();
        let place = store.len() as u32;
        if self.failed.is_none() {
            // The record needs the rest.
            let rest = NormalForm { unknowns: form.unknowns, ..NormalForm::default() };
            self.failed = store.add(0, flags, &std::mem::replace(form, rest)).err();
        }
        place
    }

    /// The name of a partition.
    pub fn name(&self, partition: u32) -> &PartitionName {
        &self.each[partition as usize].name
    }

    /// The store of each partition, by number, with only these subscriptions, whose places are set.
    pub fn settle(mut self, drafts: &mut [&mut Drafted]) -> Result<Vec<PartitionDraft>, CannotBuild> {
        let mut counts = vec![0; self.each.len()];
        for one in &mut *drafts {
            if one.place.is_none() {
                one.place = Some(self.add(one.partition, one.addition.flags, &mut one.addition.form));
            }
            counts[one.partition as usize] += 1;
        }
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        // If some were refused, or exist unchanged, the others move up.
        let mut moved: HashMap<u32, Vec<u32>, FastHash> = HashMap::default();
        for (number, PartitionDraft { store, .. }) in (0..).zip(&mut self.each) {
            let (count, all) = (counts[number as usize], store.as_ref().map_or(0, |store| store.len()));
            if count == 0 {
                *store = None;
            } else if count < all {
                moved.insert(number, vec![u32::MAX; all]);
            }
        }
        if !moved.is_empty() {
            self.move_up(moved, drafts)?;
        }
        Ok(self.each)
    }

    /// Remove the other subscriptions from the partitions in *moved*, which has a word for each place in their stores.
    fn move_up(&mut self, mut moved: HashMap<u32, Vec<u32>, FastHash>, drafts: &mut [&mut Drafted]) -> Result<(), CannotBuild> {
        for (partition, place) in drafts.iter().filter_map(|one| Some((one.partition, one.place?))) {
            if let Some(places) = moved.get_mut(&partition) {
                places[place as usize] = 0;
            }
        }
        for (number, places) in &mut moved {
            (0..).zip(places.iter_mut().filter(|place| **place == 0)).for_each(|(new, place)| *place = new);
            if let Some(store) = &mut self.each[*number as usize].store {
                let whole = std::mem::take(&mut **store).build(&mut PathSets::default());
                store.add_store(&whole, |at| places[at as usize] != u32::MAX)?;
            }
        }
        for one in drafts {
            if let (Some(places), Some(place)) = (moved.get(&one.partition), &mut one.place) {
                *place = places[*place as usize];
            }
        }
        Ok(())
    }
}

impl Drafted {
    fn new(mut addition: Addition, stores: &mut Stores) -> Drafted {
        let collection = addition.collection.take().unwrap_or_else(|| "*".into());
        let partition = stores.number(PartitionName { tenant: std::mem::take(&mut addition.tenant), collection });
        let class = check(&addition);
        let is_settled = class.is_ok() && !addition.external_cel;
        let place = if is_settled { stores.push(partition, addition.flags, &mut addition.form) } else { None };
        Drafted { addition, class, partition, place }
    }
}

/// Check the requirements of a form, and return its cost class.
fn check(addition: &Addition) -> Result<CostClass, Box<SubscriptionError>> {
    for atom in addition.form.conjunctions.iter().flat_map(|one| &one.clauses).flat_map(|clause| &clause.atoms) {
        if let Atom::Regexp(regexp) = atom {
            CompiledRegexp::compile(regexp).map_err(|reason| Box::new(SubscriptionError::of(&addition.id, reason)))?;
        }
    }
    Ok(CostClass::of(&addition.form))
}

impl Draft {
    /// Take one more in, or why there is none.
    pub fn push(&mut self, item: Item) {
        self.items.push(item.map(|addition| Box::new(Drafted::new(addition, &mut self.stores))));
    }

    /// How many there are, and were refused.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// A subscription of the draft, without its tenant and collection; None for one that was refused.
    pub fn get(&self, position: usize) -> Option<&Addition> {
        self.items.get(position)?.as_ref().ok().map(|drafted| &drafted.addition)
    }

    /// Complete a subscription with external CEL: whether it mentions `before`, and a narrower form.
    pub fn explain(&mut self, position: usize, mentions_before: bool, narrow: impl FnOnce(&mut NormalForm)) {
        if let Some(Ok(drafted)) = self.items.get_mut(position)
            && drafted.place.is_none()
        {
            if mentions_before {
                drafted.addition.flags |= flags::BEFORE;
            }
            narrow(&mut drafted.addition.form);
            drafted.class = check(&drafted.addition);
        }
    }

    /// Mark another text as equal in meaning to that of a subscription.
    pub fn say_same(&mut self, position: usize, text: &[u8]) {
        if let Some(Ok(drafted)) = self.items.get_mut(position) {
            drafted.addition.same_as = Some(text.into());
        }
    }

    /// Put an error in the place of a subscription, and in earlier places that are still empty.
    pub fn refuse(&mut self, position: usize, error: SubscriptionError) {
        while self.items.len() <= position {
            self.items.push(Err(Box::new(error.clone())));
        }
        self.items[position] = Err(Box::new(error));
    }
}

impl FromIterator<Item> for Draft {
    fn from_iter<T: IntoIterator<Item = Item>>(items: T) -> Draft {
        let mut draft = Draft::default();
        items.into_iter().for_each(|item| draft.push(item));
        draft
    }
}
