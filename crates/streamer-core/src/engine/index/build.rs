//! Builds the recursive buckets of a segment: which clause of each conjunction is its access predicate, bucket by bucket.
//!
//! ```text
//!   bucket: 20,000 conjunctions        count each atom     status=paid 9,000   user.id=u7 1   amount in 5..9  est. 40
//!     └─ each is filed under its cheapest clause ─► groups of one atom each
//!          ├─ nothing left and alone        answer
//!          ├─ up to FEW                     verified one by one
//!          └─ more                          a bucket of its own, by what is left of them
//! ```
//!
//! The cost of a clause is how many conjunctions its atoms would bring up. For equalities that is counted. For other atoms it
//! is estimated and taken [`PENALTY`] times, since an equality leads to a bucket, in which the search continues. `exists`,
//! `exists: false` and negations cost as much as all: they serve only where nothing else does.
//!
//! Invariant: a conjunction is filed under every atom of one of its clauses, or is in a list of its bucket.
//!
//! Cost: one count and one sort of the atoms for each level; a conjunction is copied at most [`COPIES`] times below the
//! first level.

use crate::automaton::ranges::{Cut, CutRange, NumberCut, query_order};
use crate::automaton::table::Table;
use crate::engine::index::buckets::{
    Brief, Bucket, EQUALITIES, Equalities, Equality, FEW, Index, MOST, NamedValue, Next, Probe, value_hash,
};
use crate::engine::verify::check_records::{self, Wanted};
use crate::engine::verify::encoded::{AtomView, CannotBuild, ClauseView, EncodedAtom, FastHash};
use crate::engine::verify::matchers::{Class, Matcher, Recipe, RecipeBuilder, class_of, size_cuts};
use crate::engine::verify::slices::{Layout, Slices};
use crate::engine::verify::store::{Store, element_mode, flags};
use crate::subscriptions::normal_form::{Mode, Path};
use crate::value::{Kind, ScalarRef, Seed};
use std::collections::{HashMap, HashSet};
use std::iter::repeat_n;

/// How deep buckets nest; so deep is the recursion of a query and of this builder.
const DEEPEST: u32 = 12;
/// How often a conjunction may be copied because it is filed under clauses of several atoms, the first clause apart.
const COPIES: u32 = 8;
/// Words of checks that a conjunction may take in all the places where it is filed. One that is filed under thousands of values and excludes
/// as many others would take their product: what is more is read from the store.
const MOST_CHECKS: usize = 1 << 14;
/// So many conjunctions at least are ruled out together.
const SLICED: usize = if cfg!(test) { 64 } else { 1024 };
/// A clause that holds for a smaller share of values is selective: to look at what it brings up costs little.
const SELECTIVE: f64 = 1.0 / 32.0;
/// Conjunctions ruled out together by one look at a field take as long as verifying one.
const LOOK: f64 = 4096.0;
/// To look up an event's value in the cells of a field takes as long as verifying this number of them.
const ASK: f64 = if cfg!(test) { 0.0 } else { 4.0 };
/// How many times as many have to be verified otherwise.
const GAIN: f64 = 1.5;
/// How much dearer an access predicate is that is no equality.
const PENALTY: u64 = 4;

/// A conjunction in a bucket.
#[derive(Clone, Copy, Debug)]
struct Item {
    conjunction: u32,
    /// Which of its clauses are not known to hold: a bit each, the last for all from the 32nd on.
    unknown: u32,
    /// What is known only by the way in which it was filed here; not known if it is verified with the few instead.
    filed: u32,
    repeated: bool,
    copies: u32,
    /// How many atoms it was filed under in the first bucket.
    filings: u32,
}

/// An atom that something may be filed under.
#[derive(Clone, Copy, Debug)]
struct FilingKey<'s> {
    class: Class,
    path: u32,
    atom: EncodedAtom<'s>,
    count: u32,
    /// Whether the atom says all that its clause says: else the clause stays unknown.
    exact: bool,
}

/// How deep to nest; [`Depth::FLAT`] is one access predicate and then verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(u32);

impl Depth {
    /// As deep as it pays.
    pub const RECURSIVE: Depth = Depth(DEEPEST);
    /// One level, to measure what nesting gains.
    pub const FLAT: Depth = Depth(1);
}

/// Build the index of *store*, and renumber its subscriptions: those that are answered together stand together, so that
/// reading their slots is reading on.
///
/// Conjunctions for which *is_always* holds get a first bucket of their own, to be looked for without the others.
pub fn build(store: &mut Store, seed: &Seed, depth: Depth, is_always: impl Fn(u32) -> bool) -> Result<Index, CannotBuild> {
    build_with_recipe(store, seed, depth, is_always).map(|(index, _)| index)
}

/// Build the index, and return it with what the matchers were made of.
pub(in crate::engine) fn build_with_recipe(
    store: &mut Store,
    seed: &Seed,
    depth: Depth,
    is_always: impl Fn(u32) -> bool,
) -> Result<(Index, Recipe), CannotBuild> {
    let (index, recipe, places) = Builder::run(store, seed, depth, is_always)?;
    store.renumber(&places);
    Ok((index, recipe))
}

/// The index of a store that one was built of before, and what its matchers are made of; None where it would be too large.
///
/// Its subscriptions have the numbers that the first building gave them, so building again changes none.
pub(in crate::engine) fn rebuilt(
    store: &Store,
    seed: &Seed,
    depth: Depth,
    is_always: impl Fn(u32) -> bool,
) -> Option<(Index, Recipe)> {
    let (index, recipe, places) = Builder::run(store, seed, depth, is_always).ok()?;
    let is_same = places.iter().enumerate().all(|(old, new)| old == *new as usize);
    is_same.then_some((index, recipe))
}

impl<'s> Builder<'s> {
    /// The index, and for each subscription its new number.
    fn run(
        store: &'s Store,
        seed: &'s Seed,
        depth: Depth,
        is_always: impl Fn(u32) -> bool,
    ) -> Result<(Index, Recipe, Vec<u32>), CannotBuild> {
        if store.conjunctions() > MOST || store.len() > MOST {
            return Err(CannotBuild::Full);
        }
        let (always, guarded): (Vec<Item>, Vec<Item>) = (0..store.conjunctions() as u32)
            .filter(|conjunction| store.clauses(*conjunction).iter().all(|clause| store.clause(*clause).count > 0))
            .map(|conjunction| {
                let clauses = store.clauses(conjunction).len();
                let unknown = if clauses > 31 { u32::MAX } else { (1 << clauses) - 1 };
                Item { conjunction, unknown, filed: 0, repeated: false, copies: 1, filings: 1 }
            })
            .partition(|item| is_always(item.conjunction));
        let mut builder = Builder {
            store,
            seed,
            deepest: depth.0,
            equalities: Vec::new(),
            values: Vec::new(),
            hashes: Vec::new(),
            value_of: HashMap::default(),
            buckets: Vec::new(),
            lists: Vec::new(),
            checks: Vec::new(),
            probes: Vec::new(),
            matchers: Vec::new(),
            recipe: RecipeBuilder::default(),
            unkeyed: 0,
            elements: elements(store),
            places: vec![u32::MAX; store.len()],
            placed: 0,
        };
        let always = match (guarded.is_empty(), always.is_empty()) {
            (_, true) => {
                builder.bucket(guarded, 0);
                None
            }
            (true, false) => Some(builder.bucket(always, 0)),
            (false, false) => {
                builder.bucket(guarded, 0);
                Some(builder.bucket(always, 0))
            }
        };
        (0..store.len() as u32).for_each(|subscription| _ = builder.place(subscription));
        let Builder { equalities, values, hashes, buckets, lists, checks, probes, matchers, recipe, unkeyed, places, .. } =
            builder;
        if [checks.len(), equalities.len(), buckets.len()].into_iter().any(|count| count > MOST) {
            return Err(CannotBuild::Full);
        }
        let index = Index {
            dictionary: Table::new(&hashes),
            values: values.into(),
            equalities: Equalities::new(&equalities, seed),
            buckets: buckets.into(),
            lists: lists.into(),
            checks: checks.into(),
            probes: probes.into(),
            matchers: matchers.into(),
            always: always.map(|bucket| bucket as u32),
            unkeyed,
        };
        Ok((index, recipe.build(), places))
    }

    /// The new number of a subscription: the next one when it is first answered.
    fn place(&mut self, subscription: u32) -> u32 {
        let place = &mut self.places[subscription as usize];
        if *place == u32::MAX {
            *place = self.placed;
            self.placed += 1;
        }
        *place
    }
}

struct Builder<'s> {
    store: &'s Store,
    seed: &'s Seed,
    deepest: u32,
    equalities: Vec<Equality>,
    values: Vec<NamedValue>,
    hashes: Vec<(u64, u32)>,
    value_of: HashMap<(u32, &'s [u32]), u32, FastHash>,
    buckets: Vec<Bucket>,
    lists: Vec<u32>,
    checks: Vec<u32>,
    probes: Vec<Probe>,
    matchers: Vec<Matcher>,
    recipe: RecipeBuilder,
    unkeyed: u32,
    /// Of each path that of the elements of the list there, or NO_PATH.
    elements: Vec<u32>,
    places: Vec<u32>,
    placed: u32,
}

/// An item filed under a key.
type FiledItem = (u32, Item);

/// The distinct atoms of a bucket's open clauses, by number.
#[derive(Default)]
struct FilingKeys<'s> {
    all: Vec<FilingKey<'s>>,
    by_encoding: HashMap<(u32, &'s [u32]), u32, FastHash>,
    /// The sorted ends of all ranges of a path and class, to estimate how much of it a range covers.
    cuts: HashMap<(u32, Class), Vec<NumberCut>, FastHash>,
    texts: HashMap<u32, Vec<&'s str>, FastHash>,
    /// The cost of each clause as access predicate, by its number.
    costs: HashMap<u32, u64, FastHash>,
}

impl<'s> Builder<'s> {
    /// Make a bucket of *items* and return its number.
    fn bucket(&mut self, items: Vec<Item>, level: u32) -> usize {
        let number = self.buckets.len();
        self.buckets.push(Bucket::default());
        let (done, mut open): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| item.unknown == 0);
        if level == 0 {
            self.unkeyed += done.len() as u32;
        }
        let mut few = Vec::new();
        let (mut filed, mut probes) = (Vec::new(), Vec::new());
        let keys;
        if level > 0 && (open.len() <= FEW || level >= self.deepest) {
            few.append(&mut open);
            keys = FilingKeys::default();
        } else {
            keys = self.count(&open, level);
            if open.len() >= SLICED {
                self.slice(&mut open, level, &keys, &mut probes);
            }
            for item in open {
                self.file(item, level, &keys, &mut filed, &mut few);
            }
        }
        filed.sort_unstable_by_key(|(key, item)| {
            let FilingKey { class, path, .. } = keys.all[*key as usize];
            // Matchers for missing values first, then by path, so that a query finds a path by binary search.
            (class != Class::Missing, path, class, *key, item.conjunction)
        });
        let groups: Vec<&[FiledItem]> = filed.chunk_by(|left, right| same_probe(&keys, left, right)).collect();
        for group in groups {
            let is_small = group.len() <= 2 && few.len() + group.len() <= FEW && level > 0;
            if is_small && group.iter().all(|(_, item)| item.copies == 1 && !item.repeated) {
                // Asking one more path would cost more than verifying these.
                few.extend(group.iter().map(|(_, item)| Item { unknown: item.unknown | item.filed, ..*item }));
                continue;
            }
            self.probe(number as u32, &keys, group, level, &mut probes);
        }
        self.lists_of(number, &done, &few, &probes);
        number
    }

    fn lists_of(&mut self, number: usize, done: &[Item], few: &[Item], probes: &[Probe]) {
        let mut bucket = Bucket { answers: self.lists.len() as u32, ..Bucket::default() };
        let store = self.store;
        let several = |target: u32, item: &Item| item.repeated || store.flags[target as usize] & flags::SEVERAL != 0;
        for apart in [false, true] {
            if apart {
                bucket.several = self.lists.len() as u32;
            }
            for item in done {
                for &target in store.targets(item.conjunction) {
                    if several(target, item) == apart {
                        let place = self.place(target);
                        self.lists.push(place);
                    }
                }
            }
        }
        bucket.lists_end = self.lists.len() as u32;
        bucket.candidates = self.checks.len() as u32;
        for item in few {
            self.candidate(item);
        }
        bucket.candidates_end = self.checks.len() as u32;
        bucket.probes = self.probes.len() as u32;
        self.probes.extend_from_slice(probes);
        bucket.probes_end = self.probes.len() as u32;
        self.buckets[number] = bucket;
    }

    /// Count the atoms of all clauses that may serve as access predicate.
    fn count(&self, items: &[Item], level: u32) -> FilingKeys<'s> {
        let mut keys = FilingKeys::default();
        // Many conjunctions share a clause.
        let mut position: HashMap<u32, usize, FastHash> = HashMap::default();
        let mut clauses: Vec<(ClauseView<'s>, usize)> = Vec::new();
        for item in items {
            for (_, clause) in open_clauses(self.store, item) {
                if level > 0 && clause.count > COPIES {
                    continue;
                }
                let at = *position.entry(clause.number).or_insert(clauses.len());
                match clauses.get_mut(at) {
                    Some((_, times)) => *times += 1,
                    None => clauses.push((clause, 1)),
                }
            }
        }
        for &(clause, times) in &clauses {
            for atom in clause.atoms {
                let (path, atom) = self.filing(clause.path, atom);
                let number = keys.all.len() as u32;
                let number = *keys.by_encoding.entry((path, atom.encoded)).or_insert(number);
                if number as usize == keys.all.len() {
                    let (class, exact) = class_of(&atom.view);
                    keys.all.push(FilingKey { class, path, atom, count: 0, exact });
                }
                keys.all[number as usize].count += times as u32;
                let cuts = match atom.view {
                    AtomView::Numbers(from, to) | AtomView::Times(_, from, to) => Some((from, to)),
                    AtomView::Size(least, most) => Some(size_cuts(least, most)),
                    _ => None,
                };
                if let Some((from, to)) = cuts {
                    let (class, _) = class_of(&atom.view);
                    let cuts = keys.cuts.entry((path, class)).or_default();
                    cuts.extend(from.into_iter().chain(to).flat_map(|cut| repeat_n(cut, times)));
                }
                if let AtomView::Strings(from, to) = atom.view {
                    let texts = keys.texts.entry(path).or_default();
                    texts.extend(from.into_iter().chain(to).flat_map(|text| repeat_n(text, times)));
                }
            }
        }
        keys.cuts.values_mut().for_each(|cuts| cuts.sort_unstable());
        keys.texts.values_mut().for_each(|texts| texts.sort_unstable());
        let all = keys.cost_of_all();
        let cost_of = |clause: &ClauseView<'s>| {
            clause.atoms.map(|atom| cost(&keys, &keys.all[self.key(&keys, clause.path, atom).0 as usize], all)).sum()
        };
        keys.costs = clauses.iter().map(|(clause, _)| (clause.number, cost_of(clause))).collect();
        keys
    }

    /// Where an atom of a clause on *path* is filed: one that asks for an element of a list among the elements there. Those of a list in a
    /// list are among its leaves.
    fn filing(&self, path: u32, atom: EncodedAtom<'s>) -> (u32, EncodedAtom<'s>) {
        let AtomView::Element(equal) = atom.view else { return (path, atom) };
        match (self.elements[path as usize], equal.into_iter().next()) {
            (NO_PATH, _) => (path, atom),
            (elements, Some(equal @ EncodedAtom { view: AtomView::Equal(_) | AtomView::EqualIgnoreCase(_), .. })) => {
                (elements, equal)
            }
            // A list or an object is no leaf.
            (elements, Some(equal)) if self.store.mode(elements) == Mode::Element => (elements, equal),
            _ => (path, atom),
        }
    }

    /// The number of the key that an atom of a clause on *path* is filed under, and whether being found there says all that it says.
    fn key(&self, keys: &FilingKeys<'s>, path: u32, atom: EncodedAtom<'s>) -> (u32, bool) {
        let (place, filed) = self.filing(path, atom);
        let number = keys.by_encoding[&(place, filed.encoded)];
        (number, keys.all[number as usize].exact && (place == path || self.store.mode(path) == Mode::Scalar))
    }

    /// The cheapest clause of an item, with its cost; None where none can serve.
    fn cheapest(&self, item: &Item, level: u32, keys: &FilingKeys<'s>) -> Option<(u64, u32)> {
        let mut best: Option<(u64, u32, u32)> = None;
        for (bit, clause) in open_clauses(self.store, item) {
            if level > 0 && clause.count.saturating_mul(item.copies) > COPIES {
                continue;
            }
            let cost = keys.costs[&clause.number];
            if best.is_none_or(|(least, _, path)| (cost, clause.path) < (least, path)) {
                best = Some((cost, bit, clause.path));
            }
        }
        best.map(|(cost, bit, _)| (cost, bit))
    }

    /// File an item under the atoms of its cheapest clause, or put it with the few that are verified one by one.
    fn file(&mut self, item: Item, level: u32, keys: &FilingKeys<'s>, filed: &mut Vec<FiledItem>, few: &mut Vec<Item>) {
        let Some((cost, bit)) = self.cheapest(&item, level, keys) else {
            few.push(item);
            return;
        };
        if cost >= keys.cost_of_all() && level == 0 {
            self.unkeyed += 1;
        }
        let clause = self.store.clause(self.store.clauses(item.conjunction)[bit as usize]);
        let mut keys_of_clause: Vec<(u32, bool)> = clause.atoms.map(|atom| self.key(keys, clause.path, atom)).collect();
        keys_of_clause.sort_unstable();
        // The first of a key that is found twice is the one that says less.
        keys_of_clause.dedup_by_key(|(key, _)| *key);
        // Of one value one equality holds, and a text has no elements.
        let is_equal = |key: u32| matches!(keys.all[key as usize].class, Class::Equal | Class::Tree);
        let others = keys_of_clause.iter().filter(|(key, _)| !is_equal(*key)).count();
        let is_one_place = keys_of_clause.iter().all(|(key, _)| keys.all[*key as usize].path == clause.path);
        let disjoint = if is_one_place { others == 0 } else { is_text_or_element(self.store, clause) };
        for &(key, exact) in &keys_of_clause {
            let known = if exact { 1 << bit } else { 0 };
            filed.push((
                key,
                Item {
                    unknown: item.unknown & !known,
                    filed: item.unknown & known,
                    repeated: item.repeated || (keys_of_clause.len() > 1 && !disjoint),
                    copies: if level == 0 { 1 } else { item.copies * keys_of_clause.len() as u32 },
                    filings: if level == 0 { keys_of_clause.len() as u32 } else { item.filings },
                    ..item
                },
            ));
        }
    }

    /// Take out of *items* those that nothing selective tells from the others, if it pays to rule them out together.
    fn slice(&mut self, items: &mut Vec<Item>, level: u32, keys: &FilingKeys<'s>, probes: &mut Vec<Probe>) {
        let store = self.store;
        let mut named: HashMap<u32, u64, FastHash> = HashMap::default();
        for key in keys.all.iter().filter(|key| key.class == Class::Equal) {
            *named.entry(key.path).or_default() += u64::from(key.count);
        }
        let (mut clauses, mut shares, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let mut filed: HashMap<u32, f64, FastHash> = HashMap::default();
        let mut known = HashMap::default();
        for (at, item) in (0_u32..).zip(&*items) {
            let start = clauses.len();
            match self.unselective(item, level, keys, &named, &mut known, &mut shares) {
                Some(cheapest) => {
                    clauses.extend(open_clauses(store, item).map(|(_, clause)| clause.number));
                    rows.push((at, start..clauses.len()));
                    *filed.entry(cheapest).or_default() += 1.0;
                }
                None => shares.truncate(start),
            }
        }
        let levels = levels(rows.len(), filed.values());
        let mut verified = 0.0;
        rows.retain(|(_, row)| {
            let looks = looks(&mut shares[row.clone()], levels);
            verified += looks.unwrap_or(0.0);
            looks.is_some()
        });
        drop(shares);
        if rows.len() < SLICED {
            return;
        }
        let read = |fields: usize| fields as f64 * (ASK + rows.len() as f64 / LOOK);
        // A layout takes time, so it is made only if an event's reading of the fields is not too much by itself.
        let paths: HashSet<u32, FastHash> = clauses.iter().map(|clause| store.clause(*clause).path).collect();
        if verified < GAIN * read(paths.len().min(Layout::MOST_FIELDS)) {
            return;
        }
        let Some(layout) = Layout::of(store, rows.iter().map(|(_, row)| &clauses[row.clone()])) else { return };
        let mut unfiltered = read(layout.fields());
        let mut sorted = Vec::with_capacity(rows.len());
        for (at, row) in rows {
            let mut decided = 0_u32;
            let bits: Vec<u32> = open_clauses(store, &items[at as usize]).map(|(bit, _)| bit).collect();
            let (place, share) = layout.row(store, &clauses[row.clone()], |clause| decided |= 1 << bits[clause]);
            unfiltered += share;
            sorted.push((place, at, decided, row));
        }
        if verified < GAIN * unfiltered {
            return;
        }
        sorted.sort_unstable_by_key(|(place, at, ..)| (*place, *at));
        let mut leads = Vec::with_capacity(clauses.len());
        let mut is_member = vec![false; items.len()];
        for (_, at, decided, row) in sorted {
            is_member[at as usize] = true;
            let item = items[at as usize];
            if level == 0 && self.cheapest(&item, level, keys).is_none_or(|(cost, _)| cost >= keys.cost_of_all()) {
                self.unkeyed += 1;
            }
            let next = self.next_of(&Item { unknown: item.unknown & !decided, ..item });
            leads.extend(clauses[row].iter().map(|clause| [*clause, next.0]));
        }
        let mut is_member = is_member.into_iter();
        items.retain(|_| !is_member.next().unwrap_or(false));
        self.recipe.push(Class::Slices, &[], &leads);
        let slices = Slices::new(store, layout, &leads);
        probes.extend(slices.paths().take(1).map(|path| Probe { path, matcher: self.matchers.len() as u32 }));
        self.matchers.push(Matcher::Slices(slices));
    }

    /// Append to *shares* for which share of values each open clause of an item holds; return the clause that it is filed under in buckets.
    /// None if a clause holds for a small share of values, because then few candidates remain. *known* has the share of each clause, and how
    /// many conjunctions have one of its atoms.
    fn unselective(
        &self,
        item: &Item,
        level: u32,
        keys: &FilingKeys<'s>,
        named: &HashMap<u32, u64, FastHash>,
        known: &mut HashMap<u32, (f64, u64), FastHash>,
        shares: &mut Vec<Share>,
    ) -> Option<u32> {
        // Most have such an equality, whose cost is the number of conjunctions with one of its values.
        let is_selective = |clause: ClauseView<'_>| {
            let all = || named.get(&clause.path).map_or(1.0, |all| *all as f64);
            is_equality(clause) && keys.costs.get(&clause.number).is_some_and(|cost| (*cost as f64) < SELECTIVE * all())
        };
        if open_clauses(self.store, item).any(|(_, clause)| is_selective(clause)) {
            return None;
        }
        let mut cheapest = (true, u64::MAX, 0);
        for (_, clause) in open_clauses(self.store, item) {
            let is_equality = is_equality(clause);
            if level > 0 && clause.count > COPIES {
                // Its atoms were not counted.
                shares.push(Share { is_equality: false, of: 1.0 });
                continue;
            }
            let (of, count) = *known.entry(clause.number).or_insert_with(|| {
                clause.atoms.fold((0.0, 0_u64), |(of, count), atom| {
                    let key = &keys.all[self.key(keys, clause.path, atom).0 as usize];
                    (of + share(keys, key, named), count + u64::from(key.count))
                })
            });
            if of < SELECTIVE {
                return None;
            }
            shares.push(Share { is_equality, of: of as f32 });
            cheapest = cheapest.min((!is_equality, count, clause.number));
        }
        Some(cheapest.2)
    }

    /// Make the probe, or two, for what is filed under one path and class.
    fn probe(&mut self, bucket: u32, keys: &FilingKeys<'s>, group: &[FiledItem], level: u32, probes: &mut Vec<Probe>) {
        let FilingKey { class, path, .. } = keys.all[group[0].0 as usize];
        if class == Class::Equal {
            for same in group.chunk_by(|left, right| left.0 == right.0) {
                let key = keys.all[same[0].0 as usize];
                let AtomView::Equal(scalar) = key.atom.view else { continue };
                let next = self.next(same, level);
                let value = self.value(path, key.atom.encoded, scalar);
                if bucket == 0 {
                    self.values[value as usize].first = next;
                } else {
                    self.equalities.push(Equality { bucket, value, next });
                }
            }
            probes.push(Probe { path, matcher: EQUALITIES });
            return;
        }
        let [answers, others] = match class {
            Class::Numbers => self.ranges(keys, group, level, |view| match view {
                AtomView::Numbers(from, to) => (*from, *to),
                _ => (None, None),
            }),
            Class::Timestamps | Class::Durations => self.ranges(keys, group, level, |view| match view {
                AtomView::Times(_, from, to) => (*from, *to),
                _ => (None, None),
            }),
            Class::Sizes => self.ranges(keys, group, level, |view| match view {
                AtomView::Size(least, most) => size_cuts(*least, *most),
                _ => (None, None),
            }),
            Class::Strings => self.ranges(keys, group, level, |view| match view {
                AtomView::Strings(from, to) => (from.map(Box::<str>::from), to.map(Box::from)),
                _ => (None, None),
            }),
            _ => {
                let lead = |same: &[FiledItem]| {
                    let atom = self.store.encoded.position(keys.all[same[0].0 as usize].atom.encoded);
                    [atom, self.next(same, level).0]
                };
                [Vec::new(), group.chunk_by(|left, right| left.0 == right.0).map(lead).collect()]
            }
        };
        self.recipe.push(class, &answers, &others);
        let matcher = Matcher::new(&self.store.encoded, self.seed, class as u32, &answers, &others);
        probes.push(Probe { path, matcher: self.matchers.len() as u32 });
        self.matchers.push(matcher.expect("the atoms are of their class"));
    }

    /// The number of a value at a path.
    fn value(&mut self, path: u32, words: &'s [u32], scalar: ScalarRef<'_>) -> u32 {
        let new = self.values.len() as u32;
        let value = *self.value_of.entry((path, words)).or_insert(new);
        if value == new {
            self.hashes.push((value_hash(self.seed, scalar.hash(self.seed), path), value));
            let (atom, brief) = (self.store.encoded.position(words), Brief::of(scalar));
            self.values.push(NamedValue { path, atom, first: Next::NOWHERE, brief });
        }
        value
    }

    /// Two sets of ranges: those that answer with a subscription, and all others.
    fn ranges<K: Cut>(
        &mut self,
        keys: &FilingKeys<'s>,
        group: &[FiledItem],
        level: u32,
        ends: impl Fn(&AtomView<'s>) -> (Option<K>, Option<K>),
    ) -> [Vec<[u32; 2]>; 2] {
        let (mut direct, mut indirect) = (Vec::new(), Vec::new());
        for same in group.chunk_by(|left, right| left.0 == right.0) {
            let atom = &keys.all[same[0].0 as usize].atom;
            let ((from, to), at) = (ends(&atom.view), self.store.encoded.position(atom.encoded));
            let (answering, rest): (Vec<FiledItem>, Vec<FiledItem>) = same.iter().partition(|(_, item)| self.is_answer(item));
            for (entries, list) in [(answering, &mut direct), (rest, &mut indirect)] {
                if !entries.is_empty() {
                    let id = list.len() as u32;
                    list.push((CutRange { from: from.clone(), to: to.clone(), id }, entries, at));
                }
            }
        }
        // In the order in which a query finds them, so that what they lead to lies in that order too.
        let mut lists = [const { Vec::new() }; 2];
        for at in query_order(direct.iter().map(|(range, ..)| range)) {
            let (range, items, atom) = &direct[at as usize];
            // Slices of one-sided ranges are handed out as they are; the rank of all others is looked up once.
            let is_slice = range.from.is_none() || range.to.is_none();
            for target in items.iter().flat_map(|(_, item)| self.store.targets(item.conjunction)) {
                let place = self.place(*target);
                if is_slice {
                    lists[0].push([*atom, place]);
                } else {
                    lists[1].push([*atom, Next::answer(place).0]);
                }
            }
        }
        for at in query_order(indirect.iter().map(|(range, ..)| range)) {
            let (_, items, atom) = &indirect[at as usize];
            lists[1].push([*atom, self.next(items, level).0]);
        }
        lists
    }

    /// Whether an item needs no more, and none of those who want it can come up again.
    fn is_answer(&self, item: &Item) -> bool {
        let several = |target: &u32| self.store.flags[*target as usize] & flags::SEVERAL != 0;
        item.unknown == 0 && !item.repeated && !self.store.targets(item.conjunction).iter().any(several)
    }

    /// Write what is left to verify of an item; where it is.
    fn candidate(&mut self, item: &Item) -> usize {
        let store = self.store;
        let (wanted, apart) = match store.targets(item.conjunction) {
            [target] => (Wanted::One(self.place(*target)), store.flags[*target as usize] & flags::SEVERAL != 0),
            _ => (Wanted::All(item.conjunction), false),
        };
        let mut checks = std::mem::take(&mut self.checks);
        let start = check_records::begin(&mut checks, wanted, apart || item.repeated);
        let most = MOST_CHECKS / item.filings as usize;
        for (at, &number) in store.clauses(item.conjunction).iter().enumerate() {
            if item.unknown & (1 << at.min(31)) != 0 {
                let clause = store.clause(number);
                check_records::write(&mut checks, number, clause, most, |words, scalar| self.value(clause.path, words, scalar));
            }
            if checks.len() - start > most.max(4) {
                check_records::write_all(&mut checks, start, item.conjunction);
                break;
            }
        }
        check_records::end(&mut checks, start);
        self.checks = checks;
        start
    }

    /// Where all that is filed under one atom leads.
    fn next(&mut self, same: &[FiledItem], level: u32) -> Next {
        match same {
            [(_, item)] => self.next_of(item),
            _ => Next::bucket(self.bucket(same.iter().map(|(_, item)| *item).collect(), level + 1)),
        }
    }

    /// Where an item by itself leads.
    fn next_of(&mut self, item: &Item) -> Next {
        match self.store.targets(item.conjunction) {
            [target] if self.is_answer(item) => Next::answer(self.place(*target)),
            _ => Next::candidate(self.candidate(item)),
        }
    }
}

/// No path.
const NO_PATH: u32 = u32::MAX;

/// Of each path of a store where the elements of the lists there are.
fn elements(store: &Store) -> Vec<u32> {
    let paths = &store.paths.paths;
    let among = |mode: Mode| element_mode(mode).is_some() || mode == Mode::Element || mode == Mode::AnyLeaf;
    let mut elements = vec![NO_PATH; paths.len()];
    if paths.iter().any(|(_, mode)| matches!(mode, Mode::Element | Mode::Member)) {
        let known: HashMap<(&Path, Mode), u32, FastHash> =
            (0..).zip(paths).filter(|(_, (_, mode))| among(*mode)).map(|(at, (path, mode))| ((path, *mode), at)).collect();
        for (at, (path, mode)) in paths.iter().enumerate() {
            let id = element_mode(*mode).and_then(|mode| known.get(&(path, mode)));
            elements[at] = id.copied().unwrap_or(NO_PATH);
        }
    }
    elements
}

/// Whether a clause asks for values that it names.
fn is_equality(mut clause: ClauseView<'_>) -> bool {
    clause.atoms.all(|atom| matches!(atom.view, AtomView::Equal(_)))
}

/// Whether a clause asks for a part of a text or an element of a list: of one value no more than one of both holds.
fn is_text_or_element(store: &Store, clause: ClauseView<'_>) -> bool {
    let count = |is: fn(&AtomView<'_>) -> bool| clause.atoms.filter(|atom| is(&atom.view)).count();
    let texts = count(|view| matches!(view, AtomView::Substring(_) | AtomView::SubstringIgnoreCase(_)));
    let elements = count(|view| matches!(view, AtomView::Element(_)));
    store.mode(clause.path) == Mode::Scalar && texts <= 1 && texts + elements == clause.count as usize
}

fn same_probe(keys: &FilingKeys<'_>, left: &FiledItem, right: &FiledItem) -> bool {
    let (left, right) = (&keys.all[left.0 as usize], &keys.all[right.0 as usize]);
    (left.path, left.class) == (right.path, right.class)
}

/// The clauses of an item that may still serve as access predicate, with their positions.
fn open_clauses<'s>(store: &'s Store, item: &Item) -> impl Iterator<Item = (u32, ClauseView<'s>)> + use<'s> {
    let unknown = item.unknown;
    let clauses = store.clauses(item.conjunction);
    (0..31_u32.min(clauses.len() as u32))
        .filter(move |bit| unknown & (1 << bit) != 0)
        .map(move |bit| (bit, store.clause(clauses[bit as usize])))
}

impl FilingKeys<'_> {
    /// What costs as much as all, and so is no access predicate.
    fn cost_of_all(&self) -> u64 {
        self.all.len() as u64 * 4 + 1000
    }
}

/// For which share of values a clause holds.
#[derive(Clone, Copy, Debug)]
struct Share {
    is_equality: bool,
    of: f32,
}

/// How many equalities tell one of *rows* from others in buckets, if this number of them is filed under each clause.
fn levels<'f>(rows: usize, filed: impl Iterator<Item = &'f f64>) -> usize {
    let rows = rows as f64;
    // As many branches of one size would be.
    let branches = 1.0 / filed.map(|filed| (filed / rows).powi(2)).sum::<f64>();
    ((rows / FEW as f64).ln() / branches.ln()).ceil() as usize
}

/// Return how often buckets that are *levels* deep look at a row for an event, at most once a level. None if they leave no more of it
/// than one clause, which a matcher answers.
fn looks(shares: &mut [Share], levels: usize) -> Option<f64> {
    shares.sort_unstable_by(|one, other| other.is_equality.cmp(&one.is_equality).then(one.of.total_cmp(&other.of)));
    let (equal, others) = shares.split_at(shares.partition_point(|share| share.is_equality));
    let levels = levels.min(equal.len());
    let equalities = equal[..levels].iter().map(|share| f64::from(share.of)).product::<f64>();
    let other = others.first().map_or(1.0, |share| share.of.into());
    (equal.len() > levels || others.len() > 1).then_some(levels.max(1) as f64 * equalities * other)
}

/// For which share of the values at its path an atom is expected to hold.
fn share(keys: &FilingKeys<'_>, key: &FilingKey<'_>, named: &HashMap<u32, u64, FastHash>) -> f64 {
    fn between<K: Ord>(cuts: Option<&Vec<K>>, from: Option<K>, to: Option<K>) -> f64 {
        let Some(cuts) = cuts.filter(|cuts| !cuts.is_empty()) else { return 1.0 };
        let start = from.map_or(0, |from| cuts.partition_point(|cut| *cut < from));
        let end = to.map_or(cuts.len(), |to| cuts.partition_point(|cut| *cut < to));
        end.saturating_sub(start) as f64 / cuts.len() as f64
    }
    match key.atom.view {
        AtomView::Equal(_) => f64::from(key.count) / named.get(&key.path).map_or(1.0, |all| *all as f64),
        AtomView::Numbers(from, to) | AtomView::Times(_, from, to) => between(keys.cuts.get(&(key.path, key.class)), from, to),
        AtomView::Size(least, most) => {
            let (from, to) = size_cuts(least, most);
            between(keys.cuts.get(&(key.path, key.class)), from, to)
        }
        AtomView::Strings(from, to) => between(keys.texts.get(&key.path), from, to),
        _ if cost(keys, key, keys.cost_of_all()) >= keys.cost_of_all() => 1.0,
        _ => 0.0,
    }
}

/// How many conjunctions an atom is expected to bring up; *all* where it is no access predicate.
fn cost(keys: &FilingKeys<'_>, key: &FilingKey<'_>, all: u64) -> u64 {
    let count = u64::from(key.count);
    let literal = |length: usize| match length {
        0 => all,
        1..3 => 64 + PENALTY * count,
        _ => 8 + PENALTY * count,
    };
    let range = |from: Option<NumberCut>, to: Option<NumberCut>| match keys.cuts.get(&(key.path, key.class)) {
        Some(cuts) => {
            let start = from.map_or(0, |from| cuts.partition_point(|cut| *cut < from));
            let end = to.map_or(cuts.len(), |to| cuts.partition_point(|cut| *cut < to));
            PENALTY * (1 + end.saturating_sub(start) as u64)
        }
        None => all,
    };
    match key.atom.view {
        AtomView::Equal(_) => count,
        AtomView::Numbers(from, to) | AtomView::Times(_, from, to) => range(from, to),
        AtomView::Strings(from, to) => {
            if from.is_some() && to.is_some() {
                16 + PENALTY * count
            } else {
                64 + PENALTY * count
            }
        }
        AtomView::Prefix("") | AtomView::Suffix("") => all,
        AtomView::Prefix(_) | AtomView::Suffix(_) => 4 + PENALTY * count,
        AtomView::PrefixIgnoreCase(_) | AtomView::SuffixIgnoreCase(_) | AtomView::EqualIgnoreCase(_) => 6 + PENALTY * count,
        AtomView::Substring(text) | AtomView::SubstringIgnoreCase(text) => literal(text.len()),
        AtomView::Wildcard(pieces) => literal(pieces.map(str::len).max().unwrap_or(0)),
        AtomView::Regexp(program) => literal(program.required().len()).min(all - 1),
        AtomView::Cidr(_) => 8 + PENALTY * count,
        AtomView::Topic(_, words) => {
            if words.is_open() {
                all
            } else {
                8 + PENALTY * count
            }
        }
        AtomView::Kinds(kinds) if kinds.has(Kind::Missing) => all + 2,
        AtomView::Other(..) => all + 1,
        // What is not filed among the elements is about a list in a list, and few events have those.
        AtomView::Element(equal)
            if equal.into_iter().all(|atom| matches!(atom.view, AtomView::Equal(_) | AtomView::EqualIgnoreCase(_))) =>
        {
            64 + PENALTY * count
        }
        AtomView::EqualTree(_) => 8 + PENALTY * count,
        AtomView::Kinds(_) | AtomView::Element(_) => all,
        AtomView::Size(least, most) => {
            let (from, to) = size_cuts(least, most);
            range(from, to)
        }
    }
}
