//! Is there one choice of leaves for all fields of a pattern that no array contradicts?
//!
//! ```text
//!   {"a": {"b": [1], "c": [4]}}     event {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}
//!
//!   root ── array a ─┬─ element 0: satisfies {b}
//!                    └─ element 1: satisfies {c}            no element satisfies {b, c}: no match
//! ```
//!
//! Each place (the root, or an element of an array) satisfies some fields by the leaves that lie in it and in no deeper
//! array, and in each array inside it one element may be chosen. A pattern without `$or` needs all fields: then a field
//! that any element of an array satisfies must be satisfied in the one chosen, since within one place all leaves of a field
//! lie in the same array; so each array is decided on its own and the whole is polynomial. With `$or`, the sets of fields
//! that a place can satisfy are computed, only those that are in no other one, and the pattern is asked about each.
//!
//! Invariant: the fields satisfied outside of arrays and those of the elements chosen are exactly what the choice satisfies.
//!
//! Cost: one look at each leaf of each field, then the satisfying ones. With `$or` it can be exponential (it decides
//! satisfiability of clauses), so it is bounded by [`BUDGET`]; what would take more does not match.
//!
//! Rejected: trying all choices of leaves one after the other (exponential without `$or` too).

use crate::engine::store::{Store, Tree, Verification};
use crate::engine::values::Values;
use crate::engine::verify::any_atom_holds;
use crate::engine::words::AtomView;
use crate::flatten::{PathId, Position};
use crate::value::Kind;
use std::collections::BTreeMap;

/// How many sets of fields may be joined for one pattern and event.
const BUDGET: usize = 1 << 20;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields(Vec<u64>);

impl Fields {
    fn insert(&mut self, field: u32) {
        let word = field as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (field % 64);
    }

    fn has(&self, field: u32) -> bool {
        self.0.get(field as usize / 64).is_some_and(|word| word & (1 << (field % 64)) != 0)
    }

    fn join(&mut self, other: &Fields) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    fn remove(&mut self, other: &Fields) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
    }

    fn keep(&mut self, other: &Fields) {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter_mut().zip(others).for_each(|(word, both)| *word &= both);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn within(&self, other: &Fields) -> bool {
        self.0.iter().enumerate().all(|(at, word)| word & !other.0.get(at).copied().unwrap_or(0) == 0)
    }
}

/// The root or an element of an array that has satisfying leaves, or elements that have.
#[derive(Debug, Default)]
struct Place {
    own: Fields,
    arrays: BTreeMap<u32, Vec<Position>>,
}

/// What an event satisfies of the fields of one pattern. See the head of this file.
#[derive(Debug, Default)]
pub struct Choice {
    places: BTreeMap<Position, Place>,
    pending: Vec<(Position, u32, Position)>,
}

impl Choice {
    /// Look at each leaf of each field.
    pub fn new(store: &Store, verification: &Verification, map: &[PathId], values: &mut Values<'_>) -> Choice {
        let mut choice = Choice::default();
        choice.places.insert(Position::NONE, Place::default());
        for (&field, number) in verification.fields.iter().zip(0..) {
            let clause = store.clause(field);
            let leaves = values.at(map[clause.path as usize], store.mode(clause.path));
            if leaves.is_empty() {
                let mut atoms = clause.atoms;
                if atoms.any(|atom| matches!(atom.view, AtomView::Kinds(kinds) if kinds.has(Kind::Missing))) {
                    choice.insert(Position::NONE, number, values);
                }
            }
            for at in leaves {
                if any_atom_holds(&clause, values, at) {
                    choice.insert(values.get(at).leaf.position(), number, values);
                }
            }
        }
        choice
    }

    /// Note that a leaf at *position* satisfies *field*, and hang the place into those around it.
    fn insert(&mut self, position: Position, field: u32, values: &Values<'_>) {
        let flat = values.flat();
        let mut at = position;
        while !self.places.contains_key(&at) {
            self.places.insert(at, Place::default());
            // Outer places are made before they are hung in turn: the loop ends at the root, which is there.
            let outer = flat.outer(at);
            self.pending.push((outer, flat.array(at), at));
            at = outer;
        }
        for (outer, array, inner) in self.pending.drain(..) {
            if let Some(place) = self.places.get_mut(&outer) {
                place.arrays.entry(array).or_default().push(inner);
            }
        }
        if let Some(place) = self.places.get_mut(&position) {
            place.own.insert(field);
        }
    }

    /// Whether some choice satisfies the pattern.
    pub fn holds(&self, tree: &Tree) -> bool {
        if tree.any_of.is_empty() {
            let mut all = Fields::default();
            tree.fields.clone().for_each(|field| all.insert(field));
            return self.satisfies(Position::NONE, &all);
        }
        let mut budget = BUDGET;
        self.sets(Position::NONE, &mut budget).is_some_and(|sets| sets.iter().any(|set| suffices(tree, set)))
    }

    /// All fields that leaves at a place, or in arrays inside it, satisfy.
    fn reach(&self, at: Position) -> Fields {
        let mut all = Fields::default();
        let mut pending = vec![at];
        while let Some(at) = pending.pop() {
            if let Some(place) = self.places.get(&at) {
                all.join(&place.own);
                pending.extend(place.arrays.values().flatten());
            }
        }
        all
    }

    /// Whether one choice at a place satisfies all of *wanted*. As deep as arrays nest, which the flattener bounds.
    fn satisfies(&self, at: Position, wanted: &Fields) -> bool {
        let Some(place) = self.places.get(&at) else {
            return false;
        };
        let mut left = wanted.clone();
        left.remove(&place.own);
        place.arrays.values().all(|elements| {
            let mut inside = Fields::default();
            elements.iter().for_each(|element| inside.join(&self.reach(*element)));
            inside.keep(&left);
            left.remove(&inside);
            inside.is_empty() || elements.iter().any(|element| self.satisfies(*element, &inside))
        }) && left.is_empty()
    }

    /// The greatest sets of fields that a choice at a place satisfies; None where there are too many.
    fn sets(&self, at: Position, budget: &mut usize) -> Option<Vec<Fields>> {
        let place = self.places.get(&at)?;
        let mut sets = vec![place.own.clone()];
        for elements in place.arrays.values() {
            let mut options = Vec::new();
            for element in elements {
                for set in self.sets(*element, budget)? {
                    add_greatest(&mut options, set, budget)?;
                }
            }
            let mut joined = Vec::new();
            for set in &sets {
                for option in &options {
                    let mut both = set.clone();
                    both.join(option);
                    add_greatest(&mut joined, both, budget)?;
                }
            }
            sets = joined;
        }
        Some(sets)
    }
}

/// Add a set unless it is within another one; drop those that are within it.
fn add_greatest(sets: &mut Vec<Fields>, set: Fields, budget: &mut usize) -> Option<()> {
    *budget = budget.checked_sub(1 + sets.len())?;
    if !sets.iter().any(|other| set.within(other)) {
        sets.retain(|other| !other.within(&set));
        sets.push(set);
    }
    Some(())
}

/// Whether these fields are enough for the pattern.
fn suffices(tree: &Tree, set: &Fields) -> bool {
    tree.fields.clone().all(|field| set.has(field))
        && tree.any_of.iter().all(|alternatives| alternatives.iter().any(|one| suffices(one, set)))
}
