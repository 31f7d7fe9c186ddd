//! The subscriptions of a segment, flat: what is verified, and what a merge builds from.
//!
//! ```text
//!   subscription 0   slot 17  flags ─┐          conjunction 0 ─► clauses 4 9      targets 0 2
//!   subscription 1   slot 3          ├─ targets conjunction 1 ─► clauses 4        targets 1
//!   subscription 2   slot 90        ─┘          clause 4 ─► words (see encoded.rs)
//! ```
//!
//! Invariant: equal clauses are stored once, and equal conjunctions are stored once with all their subscriptions as
//! targets; so what many users subscribe to alike is verified once.
//!
//! Cost: about 20 bytes a subscription, 8 a conjunction, 4 a clause in a conjunction, and the distinct clauses.

use crate::engine::encoded::{Atoms, CannotBuild, ClauseEncoder, FastHash, Pool, Rows};
use crate::engine::paths::{PathSet, PathSets};
use crate::engine::wide::{WIDE, Wide};
use crate::map::Array;
use crate::subscriptions::normal_form::{Atom, Mode, NormalForm, Path, PatternTree, Relation, Verify};
use crate::value::Seed;
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

/// What a subscription needs besides its conjunctions, as bits.
pub mod flags {
    /// It has several conjunctions, so it may be found several times.
    pub const SEVERAL: u8 = 1;
    /// It has a part that is checked on a candidate.
    pub const VERIFY: u8 = 2;
    /// It has a CEL part, which is evaluated on candidates.
    pub const CEL: u8 = 4;
    /// It is also told of documents that no longer match.
    pub const TRANSITIONS: u8 = 8;
    /// It looks at `before`, so it is evaluated once, without transition.
    pub const BEFORE: u8 = 16;
    /// What the event leaves open is not reported.
    pub const SKIP: u8 = 32;
    /// This one is the host's own.
    pub const HOST: u8 = 64;
    /// It has a pattern, and its conjunctions say all of it. What is checked on a candidate is whether one choice of array
    /// elements meets the pattern. Nothing is checked where none of its values lies in an array.
    pub const ARRAYS: u8 = 128;
}

/// See the head of this file.
#[derive(Debug)]
pub struct Store {
    /// The paths that clauses name by position.
    pub paths: Arc<PathSet>,
    pub(super) pool: Pool,
    pub(super) encoded: Array<u32>,
    pub(super) clause_at: Array<u32>,
    pub(super) conjunction_at: Array<u32>,
    pub(super) clauses: Array<u32>,
    pub(super) target_at: Array<u32>,
    pub(super) targets: Array<u32>,
    /// Of each subscription: its slot in the registry.
    pub slots: Box<[u32]>,
    /// Of each subscription: its flags.
    pub flags: Array<u8>,
    /// All flags of any subscription.
    pub any_flags: u8,
    pub(super) verify: Box<[(u32, Verification)]>,
    /// Clauses of many alternatives; see [`Store::widen`].
    pub(super) wide: HashMap<u32, Wide, FastHash>,
}

/// What is checked on a candidate.
#[derive(Clone, Debug)]
pub struct Verification {
    /// Pairs of paths, by position in the path set, whose values must differ.
    pub changed: Box<[(u32, u32)]>,
    /// Pairs of paths whose values must compare so.
    pub compared: Box<[(u32, Relation, u32)]>,
    /// The fields of the pattern tree: clauses.
    pub fields: Box<[u32]>,
    /// The pattern tree over them, whose choice of leaves must be consistent.
    pub tree: Option<Arc<VerifiedTree>>,
}

/// A pattern over fields that are numbered depth first.
#[derive(Debug)]
pub struct VerifiedTree {
    /// The fields that must all hold.
    pub fields: Range<u32>,
    /// Of each of these, one alternative must hold.
    pub any_of: Box<[Box<[VerifiedTree]>]>,
}

impl VerifiedTree {
    /// Number the fields of *pattern*. Patterns nest `$or` to a bounded depth.
    fn of<'a>(pattern: &'a PatternTree, fields: &mut Vec<&'a (u32, Box<[Atom]>)>) -> VerifiedTree {
        let start = fields.len() as u32;
        fields.extend(&pattern.fields);
        let end = fields.len() as u32;
        let any_of = pattern.any_of.iter().map(|all| all.iter().map(|one| VerifiedTree::of(one, fields)).collect()).collect();
        VerifiedTree { fields: start..end, any_of }
    }
}

/// A clause, read.
#[derive(Clone, Copy, Debug)]
pub struct ClauseView<'a> {
    /// Its number.
    pub number: u32,
    /// Its path, by position in the path set.
    pub path: u32,
    /// Its alternatives.
    pub atoms: Atoms<'a>,
    /// How many.
    pub count: u32,
    /// How many words they take, with what they exclude.
    pub length: u32,
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

    /// How many distinct conjunctions there are.
    pub fn conjunctions(&self) -> usize {
        self.conjunction_at.len() - 1
    }

    /// How many distinct clauses there are.
    pub fn distinct_clauses(&self) -> usize {
        self.clause_at.len() - 1
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
        &self.targets[self.target_at[at] as usize..self.target_at[at + 1] as usize]
    }

    /// Read a clause.
    #[inline]
    pub fn clause(&self, clause: u32) -> ClauseView<'_> {
        let words = &self.encoded[self.clause_at[clause as usize] as usize..self.clause_at[clause as usize + 1] as usize];
        let atoms = self.pool.atoms(&words[2..], words[1]);
        ClauseView { number: clause, path: words[0], count: words[1], length: words.len() as u32 - 2, atoms }
    }

    /// Let clauses of many alternatives be asked by value. A store that has none needs nothing.
    pub(super) fn widen(&mut self, seed: &Seed) {
        let wide = (0..self.distinct_clauses() as u32).filter(|clause| self.clause(*clause).length > WIDE);
        self.wide = wide.map(|clause| (clause, Wide::new(self, seed, self.clause(clause).atoms))).collect();
    }

    /// How a clause is asked by value.
    #[inline]
    pub(super) fn wide(&self, clause: &ClauseView<'_>) -> Option<&Wide> {
        if clause.length > WIDE { self.wide.get(&clause.number) } else { None }
    }

    /// How many alternatives its distinct clauses have.
    pub(super) fn atoms(&self) -> usize {
        (0..self.distinct_clauses() as u32).map(|clause| self.clause(clause).count as usize).sum()
    }

    /// Read the atom whose words are at *position*; see [`Store::position`].
    #[inline]
    pub fn atom_at(&self, position: u32) -> Atoms<'_> {
        self.pool.atoms(&self.encoded[position as usize..], 1)
    }

    /// Where *words*, a part of a clause of this store, begin.
    pub fn position(&self, words: &[u32]) -> u32 {
        ((words.as_ptr() as usize - self.encoded.as_ptr() as usize) / size_of::<u32>()) as u32
    }

    /// What is checked on a candidate.
    pub fn verification(&self, subscription: u32) -> Option<&Verification> {
        let at = self.verify.binary_search_by_key(&subscription, |(at, _)| *at).ok()?;
        Some(&self.verify[at].1)
    }

    /// The mode of a path.
    #[inline]
    pub fn mode(&self, path: u32) -> Mode {
        self.paths.paths[path as usize].1
    }

    /// Give subscription n the number `places[n]`; *places* holds each number once.
    pub fn renumber(&mut self, places: &[u32]) {
        let (mut slots, mut flags) = (vec![0; self.slots.len()], vec![0; self.flags.len()]);
        for (old, new) in places.iter().enumerate() {
            slots[*new as usize] = self.slots[old];
            flags[*new as usize] = self.flags[old];
        }
        (self.slots, self.flags) = (slots.into(), flags.into());
        // What is renumbered was just built.
        let targets = self.targets.own_mut().into_iter().flatten();
        let all = targets.chain(self.verify.iter_mut().map(|(at, _)| at));
        all.for_each(|at| *at = places[*at as usize]);
        self.verify.sort_unstable_by_key(|(subscription, _)| *subscription);
    }

    /// Heap bytes held, those of shared trees and programs left out.
    pub fn bytes(&self) -> usize {
        let words = [&self.encoded, &self.clause_at, &self.conjunction_at, &self.clauses, &self.target_at, &self.targets];
        let words: usize = words.iter().map(|words| words.bytes()).sum();
        let wide: usize = self.wide.values().map(Wide::bytes).sum();
        self.pool.bytes() + words + wide + self.slots.len() * 4 + self.flags.bytes() + self.verify.len() * 32
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
    verify: Vec<(u32, Verification)>,
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
        let tree = verify.pattern.as_ref().map(|pattern| Arc::new(VerifiedTree::of(pattern, &mut fields)));
        let mut clauses = Vec::with_capacity(fields.len());
        let mut words = Vec::new();
        for (path, atoms) in fields {
            words.clear();
            words.extend([paths[*path as usize], atoms.len() as u32]);
            for atom in atoms {
                self.writer.atom(atom, &mut words)?;
            }
            clauses.push(self.clauses.intern(&words)?);
        }
        let changed = verify.changed.iter().map(|(left, right)| (paths[*left as usize], paths[*right as usize])).collect();
        let compared =
            verify.compared.iter().map(|(left, relation, right)| (paths[*left as usize], *relation, paths[*right as usize]));
        Ok(Verification { changed, compared: compared.collect(), fields: clauses.into(), tree })
    }

    /// Add a subscription. After an error the builder is of no more use.
    pub fn add(&mut self, slot: u32, mut flags: u8, form: &NormalForm) -> Result<(), CannotBuild> {
        let subscription = self.slots.len() as u32;
        if form.conjunctions.len() > 1 {
            flags |= flags::SEVERAL;
        }
        if let Some(verify) = &form.verify {
            let verification = self.verification(verify)?;
            let in_arrays_only = verification.changed.is_empty() && verification.compared.is_empty() && !verify.is_cut;
            flags |= if in_arrays_only { flags::ARRAYS } else { flags::VERIFY };
            self.verify.push((subscription, verification));
        }
        let mut words = std::mem::take(&mut self.buffer);
        let mut clauses = Vec::with_capacity(8);
        for conjunction in &form.conjunctions {
            clauses.clear();
            for clause in &conjunction.clauses {
                words.clear();
                words.extend([self.path(&clause.path, clause.mode), clause.atoms.len() as u32]);
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

    /// Add the subscriptions of *store* that *keep* holds for, by position, in their order.
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
        let mut clause_of = vec![u32::MAX; store.clause_at.len()];
        let mut clauses = Vec::new();
        for (old, verification) in &store.verify {
            let new = new_of[*old as usize];
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
            let copy = Verification { changed, compared, fields: clauses.as_slice().into(), tree: verification.tree.clone() };
            self.verify.push((new, copy));
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

    /// The clause that is *old* in *store*, whose paths are *paths* here; *clause_of* keeps what was copied.
    fn copy_clause(&mut self, store: &Store, old: u32, paths: &[u32], clause_of: &mut [u32]) -> Result<u32, CannotBuild> {
        if clause_of[old as usize] == u32::MAX {
            let clause = store.clause(old);
            let mut words = std::mem::take(&mut self.buffer);
            words.clear();
            words.extend([paths[clause.path as usize], clause.count]);
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
        let mut target_at = Vec::with_capacity(conjunctions + 1);
        let mut at = 0;
        for conjunction in 0..=conjunctions as u32 {
            while at < self.targets.len() && self.targets[at].0 < conjunction {
                at += 1;
            }
            target_at.push(at as u32);
        }
        self.verify.sort_unstable_by_key(|(subscription, _)| *subscription);
        Store {
            paths: sets.get(self.paths),
            pool: self.writer.into_pool(),
            encoded: self.clauses.words.into(),
            clause_at: self.clauses.at.into(),
            conjunction_at: self.conjunctions.at.into(),
            clauses: self.conjunctions.words.into(),
            target_at: target_at.into(),
            targets: self.targets.into_iter().map(|(_, subscription)| subscription).collect(),
            any_flags: self.flags.iter().fold(0, |all, flags| all | flags),
            slots: self.slots.into(),
            flags: self.flags.into(),
            verify: self.verify.into(),
            wide: HashMap::default(),
        }
    }
}
