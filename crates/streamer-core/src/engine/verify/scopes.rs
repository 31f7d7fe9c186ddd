//! Is there one choice of leaves for all fields of a pattern that no array contradicts?
//!
//! ```text
//!   {"a": {"b": [1], "c": [4]}}     event {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}
//!
//!   root ── array a ─┬─ element 0: satisfies {b}
//!                    └─ element 1: satisfies {c}            no element satisfies {b, c}: no match
//! ```
//!
//! The root is a *scope*, each element of each array is one. A scope satisfies some fields by the leaves that lie
//! directly in it, and in each array inside it one element may be chosen. Scopes that are equal in this are one
//! *shape*, so 10,000 like elements cost no more than one. A pattern without `$or` needs all fields. Within one scope
//! all leaves of a field lie in one array. So a field that any element of an array satisfies must be satisfied in the
//! element that is chosen. Each array is decided separately, and the whole is polynomial. `$or` is split into
//! conjunctions, and those that no choice of elements can satisfy are dropped early.
//!
//! Invariant: the fields satisfied outside of arrays and those of the elements chosen are exactly the fields that the
//! choice satisfies.
//!
//! Cost: one look at each leaf of each field, then the satisfying ones. With `$or` over arrays it can be exponential,
//! since it decides satisfiability of clauses. So each conjunction that is tried costs a unit a shape, at most
//! [`BUDGET`] in all; past it the result is open. `streamer/reference/patterns.py` counts the same.
//!
//! Rejected: trying all choices of leaves one after the other (exponential without `$or` too).

use crate::cel::Verdict;
use crate::engine::verify::clauses::any_atom_holds;
use crate::engine::verify::encoded::AtomView;
use crate::engine::verify::store::Store;
use crate::engine::verify::values::Values;
use crate::engine::verify::verification_table::{Verification, VerifiedTree};
use crate::flatten::{PathId, Position};
use crate::value::Kind;
use crate::watch::spend;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Units that the choice of elements for one pattern and event may cost (semantics.md section 5).
const BUDGET: usize = 1_000_000;

/// A set of fields.
///
/// Invariant: the last word is not 0, so that equal sets are equal words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::engine) struct Fields(Vec<u64>);

impl Fields {
    pub fn insert(&mut self, field: u32) {
        let word = field as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (field % 64);
    }

    pub fn has(&self, field: u32) -> bool {
        self.0.get(field as usize / 64).is_some_and(|word| word & (1 << (field % 64)) != 0)
    }

    pub fn join(&mut self, other: &Fields) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    pub fn remove(&mut self, other: &Fields) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
        self.trim();
    }

    fn keep(&mut self, other: &Fields) {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter_mut().zip(others).for_each(|(word, both)| *word &= both);
        self.trim();
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn meets(&self, other: &Fields) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one & other != 0)
    }
}

/// The root or an element of an array.
#[derive(Debug, Default)]
struct Scope {
    /// The fields that its known leaves satisfy, and those that they may satisfy together with the unknown ones.
    sure: Fields,
    maybe: Fields,
    arrays: BTreeMap<u32, Vec<usize>>,
}

/// The fields of one pattern that an event satisfies, by scope; the root is 0, and inner scopes come after outer ones.
#[derive(Debug)]
pub(in crate::engine) struct Scopes(Vec<Scope>);

/// The budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Spent;

impl Scopes {
    pub fn new() -> Scopes {
        Scopes(vec![Scope::default()])
    }

    /// A new scope: an element of *array*, which lies in the scope *outer*.
    pub fn enter(&mut self, outer: usize, array: u32) -> usize {
        let inner = self.0.len();
        self.0.push(Scope::default());
        self.0[outer].arrays.entry(array).or_default().push(inner);
        inner
    }

    /// Note the fields that a known leaf satisfies.
    pub fn add(&mut self, scope: usize, fields: &Fields) {
        self.0[scope].sure.join(fields);
        self.0[scope].maybe.join(fields);
    }

    /// Note the fields that an unknown leaf may satisfy.
    pub fn add_unknown(&mut self, scope: usize, fields: &Fields) {
        self.0[scope].maybe.join(fields);
    }

    /// Whether some choice satisfies a pattern: for sure, perhaps (unknown), or not.
    ///
    /// *sure* and *maybe* are fields that are true without a leaf, surely or perhaps.
    pub fn verdict(&self, tree: &VerifiedTree, sure: &Fields, maybe: &Fields, has_unknown: bool) -> Result<Verdict, Spent> {
        let shapes = Shapes::new(self);
        let joined = |free: &Fields, of: fn(&Shape) -> &Fields| {
            shapes.all.iter().fold(free.clone(), |mut all, shape| {
                all.join(of(shape));
                all
            })
        };
        // These are the fields with a leaf that satisfies them: necessary, and sufficient if no array requires a
        // choice.
        if !suffices(tree, &joined(maybe, |shape| &shape.maybe)) {
            return Ok(Verdict::False);
        }
        if suffices(tree, &joined(sure, |shape| &shape.sure)) && shapes.satisfy(tree, |shape| &shape.sure, sure)? {
            return Ok(Verdict::True);
        }
        if has_unknown && shapes.satisfy(tree, |shape| &shape.maybe, maybe)? {
            return Ok(Verdict::Unknown);
        }
        Ok(Verdict::False)
    }
}

/// Whether these fields are enough for the pattern.
fn suffices(tree: &VerifiedTree, set: &Fields) -> bool {
    tree.fields.clone().all(|field| set.has(field))
        && tree.any_of.iter().all(|alternatives| alternatives.iter().any(|one| suffices(one, set)))
}

/// The common properties of scopes that are equal for a choice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    sure: Fields,
    maybe: Fields,
    /// For each array the shapes of those of its elements that may satisfy anything.
    arrays: Vec<Vec<u32>>,
}

/// All shapes of an event, inner ones before outer ones; the last is the root's.
struct Shapes {
    all: Vec<Shape>,
    /// The fields that leaves in each, or in arrays inside it, may satisfy.
    reaches: Vec<Fields>,
    /// The fields that leaves in each of its arrays may satisfy.
    arrays: Vec<Vec<Fields>>,
    root: u32,
    is_free: bool,
}

impl Shapes {
    fn new(scopes: &Scopes) -> Shapes {
        let mut numbers: HashMap<Shape, u32> = HashMap::new();
        let mut of_scope = vec![0; scopes.0.len()];
        let mut shapes = Shapes { all: Vec::new(), reaches: Vec::new(), arrays: Vec::new(), root: 0, is_free: true };
        for (at, scope) in scopes.0.iter().enumerate().rev() {
            let mut arrays: Vec<Vec<u32>> = Vec::new();
            for elements in scope.arrays.values() {
                // An element that does not satisfy any field is never chosen.
                let satisfying = elements.iter().map(|inner| of_scope[*inner]);
                let mut inner: Vec<u32> = satisfying.filter(|shape| !shapes.reaches[*shape as usize].is_empty()).collect();
                inner.sort_unstable();
                inner.dedup();
                if !inner.is_empty() {
                    arrays.push(inner);
                }
            }
            arrays.sort_unstable();
            arrays.dedup();
            let shape = Shape { sure: scope.sure.clone(), maybe: scope.maybe.clone(), arrays };
            of_scope[at] = match numbers.get(&shape) {
                Some(number) => *number,
                None => {
                    let number = shapes.all.len() as u32;
                    numbers.insert(shape.clone(), number);
                    shapes.push(shape);
                    number
                }
            };
        }
        shapes.root = of_scope[0];
        shapes
    }

    fn push(&mut self, shape: Shape) {
        let mut reach = shape.maybe.clone();
        let of_arrays = shape.arrays.iter().map(|inner| {
            let mut all = Fields::default();
            inner.iter().for_each(|shape| all.join(&self.reaches[*shape as usize]));
            reach.join(&all);
            all
        });
        let of_arrays = of_arrays.collect();
        self.is_free &= shape.arrays.iter().all(|inner| inner.len() == 1);
        self.arrays.push(of_arrays);
        self.reaches.push(reach);
        self.all.push(shape);
    }

    /// Whether one choice satisfies a pattern that all leaves together satisfy.
    fn satisfy(&self, tree: &VerifiedTree, of: fn(&Shape) -> &Fields, free: &Fields) -> Result<bool, Spent> {
        if self.is_free {
            return Ok(true);
        }
        let mut choice = Choice { shapes: self, of, free, possible: HashMap::new(), left: BUDGET };
        Ok(!choice.conjunctions(tree)?.is_empty())
    }
}

/// The fields that can be true at once, by one choice of an element in each array.
struct Choice<'s> {
    shapes: &'s Shapes,
    /// The fields that a shape satisfies.
    of: fn(&Shape) -> &Fields,
    /// Fields that are true without a leaf.
    free: &'s Fields,
    possible: HashMap<Fields, bool>,
    left: usize,
}

impl Choice<'_> {
    /// The conjunctions of the disjunctive form that can be true. Recursive over `$or`, which nests to a bounded depth.
    fn conjunctions(&mut self, tree: &VerifiedTree) -> Result<HashSet<Fields>, Spent> {
        let mut own = Fields::default();
        tree.fields.clone().for_each(|field| own.insert(field));
        own.remove(self.free);
        let mut sets = HashSet::from([own]);
        for alternatives in &tree.any_of {
            let mut inner = HashSet::new();
            for alternative in alternatives {
                inner.extend(self.conjunctions(alternative)?);
            }
            let mut joined = HashSet::new();
            for fields in sets {
                if self.is_possible(&fields) {
                    let cost = inner.len().saturating_mul(self.shapes.all.len());
                    self.left = self.left.checked_sub(cost).ok_or(Spent)?;
                    spend(cost);
                    joined.extend(inner.iter().map(|more| {
                        let mut both = fields.clone();
                        both.join(more);
                        both
                    }));
                }
            }
            sets = joined;
        }
        sets.retain(|fields| self.is_possible(fields));
        Ok(sets)
    }

    fn is_possible(&mut self, fields: &Fields) -> bool {
        if let Some(known) = self.possible.get(fields) {
            return *known;
        }
        let is_possible = self.choose(fields);
        self.possible.insert(fields.clone(), is_possible);
        is_possible
    }

    fn choose(&self, fields: &Fields) -> bool {
        let shapes = self.shapes;
        // For each shape: whether each of its arrays has an element with all fields that the array must satisfy.
        let mut holds: Vec<bool> = Vec::with_capacity(shapes.all.len());
        for (shape, reaches) in shapes.all.iter().zip(&shapes.arrays) {
            let each = shape.arrays.iter().zip(reaches).all(|(elements, reach)| {
                if !fields.meets(reach) {
                    return true;
                }
                let mut wanted = fields.clone();
                wanted.keep(reach);
                elements.iter().any(|element| holds[*element as usize] && self.covers(*element, &wanted))
            });
            holds.push(each);
        }
        holds[shapes.root as usize] && self.covers(shapes.root, fields)
    }

    fn covers(&self, shape: u32, fields: &Fields) -> bool {
        let mut missing = fields.clone();
        missing.remove((self.of)(&self.shapes.all[shape as usize]));
        self.shapes.arrays[shape as usize].iter().for_each(|reach| missing.remove(reach));
        missing.is_empty()
    }
}

/// Whether the leaves of an event satisfy the pattern of *verification* in one choice of elements.
pub(super) fn consistent(
    store: &Store,
    verification: &Verification,
    tree: &VerifiedTree,
    map: &[PathId],
    values: &mut Values<'_>,
) -> Result<bool, Spent> {
    let mut scopes = Scopes::new();
    let mut scope_of: HashMap<Position, usize> = HashMap::from([(Position::NONE, 0)]);
    let mut free = Fields::default();
    let mut way = Vec::new();
    for (&field, number) in verification.fields.iter().zip(0..) {
        let clause = store.clause(field);
        let leaves = values.at(map[clause.path as usize], store.mode(clause.path));
        if leaves.is_empty() {
            let mut atoms = clause.atoms;
            if atoms.any(|atom| matches!(atom.view, AtomView::Kinds(kinds) if kinds.has(Kind::Missing))) {
                free.insert(number);
            }
        }
        let mut own = Fields::default();
        own.insert(number);
        for at in leaves {
            if any_atom_holds(store, &clause, values, at) {
                // Outer scopes first; the way ends at the root, which is there.
                let mut position = values.get(at).leaf.position();
                while !scope_of.contains_key(&position) {
                    way.push(position);
                    position = values.flat().outer(position);
                }
                let mut scope = scope_of[&position];
                while let Some(inner) = way.pop() {
                    scope = scopes.enter(scope, values.flat().array(inner));
                    scope_of.insert(inner, scope);
                }
                scopes.add(scope, &own);
            }
        }
    }
    Ok(scopes.verdict(tree, &free, &free, false)? == Verdict::True)
}
