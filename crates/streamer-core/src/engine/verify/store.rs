//! The subscriptions of a segment, flat: for verification, and as the source of merges.
//!
//! ```text
//!   subscription 0   slot 17  flags ─┐          conjunction 0 ─► clauses 4 9      targets 0 2
//!   subscription 1   slot 3          ├─ targets conjunction 1 ─► clauses 4        targets 1
//!   subscription 2   slot 90        ─┘          clause 4 ─► words (see encoded/)
//! ```
//!
//! Invariant: equal clauses are stored once, and equal conjunctions are stored once with all their subscriptions as
//! targets; so a condition that many users share is verified once.
//!
//! Cost: about 20 bytes a subscription, 4 a conjunction that one has and 8 any other, 4 a clause in a conjunction, and the distinct clauses.

use crate::engine::verify::check_records::StoreCounts;
use crate::engine::verify::encoded::{
    CannotBuild, ClauseEncoder, ClauseView, EncodedClauses, FastHash, Pool, Rows, begin_clause,
};
use crate::engine::verify::paths::{PathSet, PathSets};
use crate::engine::verify::verification_table::{
    Verification, Verifications, VerificationsBuilder, VerifiedPattern, VerifiedTree,
};
use crate::engine::verify::wide_clauses::{WIDE, Wide};
use crate::map::{Array, Packed};
use crate::stored::{ImageReader, ImageWriter, is_rows};
use crate::subscriptions::normal_form::{Atom, Mode, NormalForm, Path, Verify};
use crate::value::Seed;
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::slice;
use std::sync::Arc;

/// Further properties of a subscription, as bits.
pub mod flags {
    /// It has several conjunctions, so it may be found several times.
    pub const SEVERAL: u8 = 1;
    /// It has a part that is checked on a candidate.
    pub const VERIFY: u8 = 2;
    /// It has a CEL part, which is evaluated on candidates.
    pub const CEL: u8 = 4;
    /// It also matches when a document leaves its set.
    pub const TRANSITIONS: u8 = 8;
    /// It looks at `before`, so it is evaluated once, without transition.
    pub const BEFORE: u8 = 16;
    /// A match that the event leaves open is not reported.
    pub const SKIP: u8 = 32;
    /// This one is the host's own.
    pub const HOST: u8 = 64;
    /// It has a pattern that its conjunctions express completely. The check of a candidate is whether one choice of
    /// array elements satisfies the pattern. It is skipped if none of its values lies in an array.
    pub const ARRAYS: u8 = 128;
}

/// See the head of this file.
#[derive(Debug)]
pub struct Store {
    /// The paths that clauses name by position.
    pub paths: Arc<PathSet>,
    pub(in crate::engine) encoded: EncodedClauses,
    conjunction_at: Array<u32>,
    clauses: Array<u32>,
    /// Empty if each conjunction has one target.
    target_at: Array<u32>,
    targets: Array<u32>,
    /// The slot of each subscription in the registry.
    pub slots: Array<u32>,
    /// The flags of each subscription.
    pub flags: Array<u8>,
    /// All flags of any subscription.
    pub any_flags: u8,
    verify: Verifications,
    /// Clauses of many alternatives; see [`Store::widen`].
    wide: HashMap<u32, Wide, FastHash>,
}

impl Store {
    /// How many subscriptions there are, removed ones too.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a subscription has any of the flags *open*; without flags, each is open.
    #[inline]
    pub fn is_open(&self, at: u32, open: Option<u8>) -> bool {
        open.is_none_or(|open| self.flags[at as usize] & open != 0)
    }

    /// How many distinct conjunctions there are.
    pub fn conjunctions(&self) -> usize {
        self.conjunction_at.len() - 1
    }

    /// How many distinct clauses there are.
    pub fn distinct_clauses(&self) -> usize {
        self.encoded.len()
    }

    /// The clauses of a conjunction.
    #[inline]
    pub fn clauses(&self, conjunction: u32) -> &[u32] {
        let at = conjunction as usize;
        &self.clauses[self.conjunction_at[at] as usize..self.conjunction_at[at + 1] as usize]
    }

    /// The subscriptions that have a conjunction.
    #[inline]
    pub fn targets(&self, conjunction: u32) -> &[u32] {
        let at = conjunction as usize;
        match self.target_at.get(at..at + 2) {
            Some(ends) => &self.targets[ends[0] as usize..ends[1] as usize],
            None => slice::from_ref(&self.targets[at]),
        }
    }

    /// Read a clause.
    #[inline]
    pub fn clause(&self, clause: u32) -> ClauseView<'_> {
        self.encoded.clause(clause)
    }

    /// Build value tables for clauses of many alternatives. A store without such clauses has none.
    pub(in crate::engine) fn widen(&mut self, seed: &Seed) {
        let wide = (0..self.distinct_clauses() as u32).filter(|clause| self.clause(*clause).length > WIDE);
        self.wide = wide.map(|clause| (clause, Wide::new(&self.encoded, seed, self.clause(clause).atoms))).collect();
    }

    /// The value table of a clause.
    #[inline]
    pub(super) fn wide(&self, clause: &ClauseView<'_>) -> Option<&Wide> {
        if clause.length > WIDE { self.wide.get(&clause.number) } else { None }
    }

    /// How many alternatives its distinct clauses have.
    pub(in crate::engine) fn atoms(&self) -> usize {
        (0..self.distinct_clauses() as u32).map(|clause| self.clause(clause).count as usize).sum()
    }

    /// The verification of a candidate.
    pub fn verification(&self, subscription: u32) -> Option<&Verification> {
        self.verify.get(subscription)
    }

    /// The mode of a path.
    #[inline]
    pub fn mode(&self, path: u32) -> Mode {
        self.paths.paths[path as usize].1
    }

    /// Renumber subscription n to `places[n]`; *places* has each number once.
    pub fn renumber(&mut self, places: &[u32]) {
        let (mut slots, mut flags) = (vec![0; self.slots.len()], vec![0; self.flags.len()]);
        for (old, new) in places.iter().enumerate() {
            slots[*new as usize] = self.slots[old];
            flags[*new as usize] = self.flags[old];
        }
        (self.slots, self.flags) = (slots.into(), flags.into());
        // A store that is renumbered was just built.
        self.targets.own_mut().into_iter().flatten().for_each(|at| *at = places[*at as usize]);
        self.verify.renumber(places);
    }

    /// Its arrays.
    pub(in crate::engine) fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        self.encoded.each_array(visit);
        for words in [&mut self.conjunction_at, &mut self.clauses, &mut self.target_at, &mut self.targets, &mut self.slots] {
            visit(words);
        }
        visit(&mut self.flags);
    }

    /// Heap bytes used, without those of shared trees and programs.
    pub fn bytes(&self) -> usize {
        let words = [&self.conjunction_at, &self.clauses, &self.target_at, &self.targets];
        let words: usize = words.iter().map(|words| words.bytes()).sum();
        let wide: usize = self.wide.values().map(Wide::bytes).sum();
        self.encoded.bytes() + words + wide + self.slots.bytes() + self.flags.bytes() + self.verify.bytes()
    }
}

/// A store in an image: paths, the pool's small things and verifications are packed, the rest are arrays.
impl Store {
    pub(in crate::engine) fn write(&self, out: &mut ImageWriter) {
        self.paths.pack(&mut out.pack);
        self.encoded.write(out);
        for array in [&self.conjunction_at, &self.clauses, &self.target_at, &self.targets] {
            out.array(array);
        }
        out.array(&self.slots);
        out.array(&self.flags);
        self.encoded.pool.write(out);
        out.pack.several(self.verify.iter(), |pack, (subscription, verification)| {
            pack.number(subscription as usize);
            verification.pack(pack);
        });
    }

    /// Read a store of *count* subscriptions, whose slots are numbered from *base* on.
    pub(in crate::engine) fn read(from: &mut ImageReader<'_>, count: u32, base: u32, sets: &mut PathSets) -> Option<Store> {
        let all = count as usize;
        let paths = PathSet::unpack(&mut from.pack)?;
        let (words, starts) = EncodedClauses::read(from)?;
        let (conjunction_at, clauses): (Array<u32>, Array<u32>) = (from.array()?, from.array()?);
        let (target_at, targets): (Array<u32>, Array<u32>) = (from.array()?, from.array()?);
        let (lines, flags): (Array<u32>, Array<u8>) = (from.array()?, from.array()?);
        let encoded = EncodedClauses { pool: Pool::read(from)?, words, starts };
        let below = |array: &[u32], end: usize| array.iter().all(|number| (*number as usize) < end);
        let is_sound = encoded.is_sound(paths.len())
            && is_rows(&conjunction_at, clauses.len())
            && match target_at.len() {
                0 => targets.len() + 1 == conjunction_at.len(),
                rows => is_rows(&target_at, targets.len()) && rows == conjunction_at.len(),
            }
            && lines.len() == all
            && flags.len() == all
            && below(&clauses, encoded.len())
            && below(&targets, all);
        if !is_sound {
            return None;
        }
        let mut slots = Vec::with_capacity(all);
        let mut is_present = vec![false; all];
        for &line in &*lines {
            if std::mem::replace(is_present.get_mut(line as usize)?, true) {
                return None;
            }
            slots.push(base.checked_add(line)?);
        }
        let mut verifications = VerificationsBuilder::default();
        let mut pattern = |tree, fields: &[u32]| {
            let fields = fields.iter().map(|clause| encoded.clause(*clause).path).collect();
            verifications.pattern(tree, fields, |path| &paths[path as usize].0.names)
        };
        let verify = from
            .pack
            .several(|one| Some((one.below(all)?, Verification::unpack(one, paths.len(), encoded.len(), &mut pattern)?)))?;
        let is_sorted = verify.is_sorted_by(|(left, _), (right, _)| left < right);
        verify.into_iter().for_each(|(subscription, verification)| verifications.add(subscription, verification));
        is_sorted.then(|| Store {
            paths: sets.get(paths),
            encoded,
            conjunction_at,
            clauses,
            target_at,
            targets,
            any_flags: flags.iter().fold(0, |all, flags| all | flags),
            slots: slots.into(),
            flags,
            verify: verifications.build(),
            wide: HashMap::default(),
        })
    }

    /// The numbers that the records of its index may use.
    pub(in crate::engine) fn counts(&self) -> StoreCounts {
        StoreCounts {
            subscriptions: self.len(),
            conjunctions: self.conjunctions(),
            clauses: self.distinct_clauses(),
            paths: self.paths.paths.len(),
        }
    }
}

/// The mode under which a clause about an element of a list is filed: among the elements of the list, or the leaves of
/// lists in the list.
pub(in crate::engine) fn element_mode(mode: Mode) -> Option<Mode> {
    match mode {
        Mode::Scalar => Some(Mode::Element),
        Mode::Element | Mode::Member => Some(Mode::AnyLeaf),
        Mode::AnyLeaf | Mode::Changed => None,
    }
}

/// Fills a [`Store`].
#[derive(Debug, Default)]
pub struct StoreBuilder {
    paths: Vec<(Path, Mode)>,
    path_of: HashTable<u32>,
    hasher: FastHash,
    writer: ClauseEncoder,
    clauses: Rows,
    conjunctions: Rows,
    targets: Vec<(u32, u32)>, // conjunction, subscription
    slots: Vec<u32>,
    flags: Vec<u8>,
    verify: VerificationsBuilder,
    buffer: Vec<u32>,
}

impl StoreBuilder {
    /// How many subscriptions were added.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Give a subscription another slot than it was added with.
    pub fn set_slot(&mut self, subscription: u32, slot: u32) {
        self.slots[subscription as usize] = slot;
    }

    fn path(&mut self, path: &Path, mode: Mode) -> u32 {
        let (paths, hasher) = (&mut self.paths, &self.hasher);
        let hash = hasher.hash_one((path, mode));
        if let Some(at) = self.path_of.find(hash, |at| paths[*at as usize].0 == *path && paths[*at as usize].1 == mode) {
            return *at;
        }
        let at = paths.len() as u32;
        paths.push((path.clone(), mode));
        self.path_of.insert_unique(hash, at, |at| hasher.hash_one((&paths[*at as usize].0, paths[*at as usize].1)));
        at
    }

    fn conjunction(&mut self, clauses: &mut Vec<u32>, subscription: u32) -> Result<(), CannotBuild> {
        clauses.sort_unstable();
        clauses.dedup();
        self.targets.push((self.conjunctions.intern(clauses)?, subscription));
        Ok(())
    }

    fn verification(&mut self, verify: &Verify) -> Result<Verification, CannotBuild> {
        let paths: Vec<u32> = verify.paths.iter().map(|(path, mode)| self.path(path, *mode)).collect();
        let mut fields = Vec::new();
        let tree = verify.pattern.as_ref().map(|pattern| VerifiedTree::of(pattern, &mut fields));
        let mut clauses = Vec::with_capacity(fields.len());
        let mut words = Vec::new();
        for (path, atoms) in &fields {
            begin_clause(paths[*path as usize], atoms.len(), &mut words)?;
            for atom in atoms.iter() {
                self.writer.atom(atom, &mut words)?;
            }
            clauses.push(self.clauses.intern(&words)?);
        }
        let changed = verify.changed.iter().map(|(left, right)| (paths[*left as usize], paths[*right as usize])).collect();
        let compared =
            verify.compared.iter().map(|(left, relation, right)| (paths[*left as usize], *relation, paths[*right as usize]));
        let pattern = tree.map(|tree| {
            let fields = fields.iter().map(|(path, _)| paths[*path as usize]).collect();
            self.verify.pattern(tree, fields, |path| &self.paths[path as usize].0.names)
        });
        Ok(Verification { changed, compared: compared.collect(), fields: clauses.into(), pattern })
    }

    /// Add a subscription. After an error the builder is unusable.
    pub fn add(&mut self, slot: u32, mut flags: u8, form: &NormalForm) -> Result<(), CannotBuild> {
        let subscription = self.slots.len() as u32;
        if form.conjunctions.len() > 1 {
            flags |= flags::SEVERAL;
        }
        if let Some(verify) = &form.verify {
            let verification = self.verification(verify)?;
            let in_arrays_only = verification.changed.is_empty() && verification.compared.is_empty() && !verify.is_cut;
            flags |= if in_arrays_only { flags::ARRAYS } else { flags::VERIFY };
            self.verify.add(subscription, verification);
        }
        let mut words = std::mem::take(&mut self.buffer);
        let mut clauses = Vec::with_capacity(8);
        for conjunction in &form.conjunctions {
            clauses.clear();
            for clause in &conjunction.clauses {
                begin_clause(self.path(&clause.path, clause.mode), clause.atoms.len(), &mut words)?;
                let is_any = clause.mode == Mode::Scalar;
                let is_filed_there = |atom: &Atom| match atom {
                    Atom::Element(value) => is_any || value.as_scalar().is_some(),
                    atom => matches!(atom, Atom::ElementIgnoreCase(_)),
                };
                if let Some(elements) = element_mode(clause.mode).filter(|_| clause.atoms.iter().any(is_filed_there)) {
                    self.path(&clause.path, elements);
                }
                for atom in &clause.atoms {
                    self.writer.atom(atom, &mut words)?;
                }
                clauses.push(self.clauses.intern(&words)?);
            }
            self.conjunction(&mut clauses, subscription)?;
        }
        self.buffer = words;
        self.slots.push(slot);
        self.flags.push(flags);
        Ok(())
    }

    /// Add the subscriptions of *store* that *keep* accepts, by position, in their order.
    pub fn add_store(&mut self, store: &Store, keep: impl Fn(u32) -> bool) -> Result<(), CannotBuild> {
        let paths: Vec<u32> = store.paths.paths.iter().map(|(path, mode)| self.path(path, *mode)).collect();
        let mut new_of = vec![u32::MAX; store.len()];
        for old in 0..store.len() as u32 {
            if !keep(old) {
                continue;
            }
            let new = self.slots.len() as u32;
            new_of[old as usize] = new;
            self.slots.push(store.slots[old as usize]);
            self.flags.push(store.flags[old as usize]);
        }
        let mut clause_of = vec![u32::MAX; store.distinct_clauses()];
        let mut pattern_of: HashMap<*const VerifiedPattern, Arc<VerifiedPattern>, FastHash> = HashMap::default();
        let mut clauses = Vec::new();
        for (old, verification) in store.verify.iter() {
            let new = new_of[old as usize];
            if new == u32::MAX {
                continue;
            }
            clauses.clear();
            for field in &verification.fields {
                clauses.push(self.copy_clause(store, *field, &paths, &mut clause_of)?);
            }
            let changed =
                verification.changed.iter().map(|(left, right)| (paths[*left as usize], paths[*right as usize])).collect();
            let compared = verification
                .compared
                .iter()
                .map(|(left, relation, right)| (paths[*left as usize], *relation, paths[*right as usize]))
                .collect();
            let pattern = verification.pattern.as_ref().map(|pattern| {
                let copy = || self.verify.copied(pattern, &paths, |path| &self.paths[path as usize].0.names);
                pattern_of.entry(Arc::as_ptr(pattern)).or_insert_with(copy).clone()
            });
            self.verify.add(new, Verification { changed, compared, fields: clauses.as_slice().into(), pattern });
        }
        for conjunction in 0..store.conjunctions() as u32 {
            let targets = store.targets(conjunction);
            if targets.iter().all(|target| new_of[*target as usize] == u32::MAX) {
                continue;
            }
            clauses.clear();
            for &old in store.clauses(conjunction) {
                clauses.push(self.copy_clause(store, old, &paths, &mut clause_of)?);
            }
            for target in targets {
                let new = new_of[*target as usize];
                if new != u32::MAX {
                    self.conjunction(&mut clauses, new)?;
                }
            }
        }
        Ok(())
    }

    /// Copy the clause *old* of *store*, whose paths are *paths* here; *clause_of* keeps the copies.
    fn copy_clause(&mut self, store: &Store, old: u32, paths: &[u32], clause_of: &mut [u32]) -> Result<u32, CannotBuild> {
        if clause_of[old as usize] == u32::MAX {
            let clause = store.clause(old);
            let mut words = std::mem::take(&mut self.buffer);
            begin_clause(paths[clause.path as usize], clause.count as usize, &mut words)?;
            for atom in clause.atoms {
                self.writer.copy(atom.view, &mut words)?;
            }
            clause_of[old as usize] = self.clauses.intern(&words)?;
            self.buffer = words;
        }
        Ok(clause_of[old as usize])
    }

    /// Make the store.
    pub fn build(mut self, sets: &mut PathSets) -> Store {
        self.targets.sort_unstable();
        self.targets.dedup();
        let conjunctions = self.conjunctions.at.len() - 1;
        let mut target_at = Vec::new();
        // Each has one target at least.
        if self.targets.len() > conjunctions {
            let mut at = 0;
            target_at.extend((0..=conjunctions as u32).map(|conjunction| {
                at += self.targets[at..].iter().take_while(|(other, _)| *other < conjunction).count();
                at as u32
            }));
        }
        Store {
            paths: sets.get(self.paths),
            encoded: EncodedClauses {
                pool: self.writer.into_pool(),
                words: self.clauses.words.into(),
                starts: self.clauses.at.into(),
            },
            conjunction_at: self.conjunctions.at.into(),
            clauses: self.conjunctions.words.into(),
            target_at: target_at.into(),
            targets: self.targets.into_iter().map(|(_, subscription)| subscription).collect(),
            any_flags: self.flags.iter().fold(0, |all, flags| all | flags),
            slots: self.slots.into(),
            flags: self.flags.into(),
            verify: self.verify.build(),
            wide: HashMap::default(),
        }
    }
}
