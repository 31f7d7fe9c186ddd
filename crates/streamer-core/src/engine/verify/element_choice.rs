//! One choice of elements for a pattern without `$or`: the decision of `scopes.rs`, without tables.
//!
//! ```text
//!   {"a": {"b": [1], "c": [4]}}     event {"a": [{"b": 1, "c": 2}, {"b": 1, "c": 4}]}
//!
//!   depth 1   element 0 of a: {b}     element 1 of a: {b, c}     a must give {b, c}, element 1 does
//!   depth 0   the root: {b, c}                                   all fields: the pattern matches
//! ```
//!
//! An array must supply every field that any of its elements satisfies. An element cannot satisfy more than that, so an
//! element that satisfies as much is the right choice, and any element with the most fields is as good. So each depth,
//! the innermost first, is one pass over its elements in the order of their arrays.
//!
//! Cost: one visit to each leaf of each field, and a sort of the satisfying ones. After warm-up it does not allocate.

use crate::engine::verify::clauses::{any_atom_holds, only_hash};
use crate::engine::verify::encoded::AtomView;
use crate::engine::verify::store::Store;
use crate::engine::verify::values::Values;
use crate::engine::verify::verification_table::Verification;
use crate::flatten::{Flat, PathId, Position};
use crate::value::Kind;
use crate::watch::spend;

/// A pattern of more fields has no room in a word.
pub(super) const MOST_FIELDS: usize = 64;

/// An element, and which fields it satisfies.
#[derive(Clone, Copy, Debug)]
struct Satisfied {
    depth: u32,
    array: u32,
    position: Position,
    fields: u64,
    /// Whether each array in it has an element to choose.
    is_open: bool,
}

impl Satisfied {
    fn new(flat: &Flat<'_>, position: Position, fields: u64, is_open: bool) -> Satisfied {
        Satisfied { depth: flat.depth(position), array: flat.array(position), position, fields, is_open }
    }
}

/// Buffers that are kept between choices to save allocations.
#[derive(Debug, Default)]
pub struct ChoiceScratch {
    satisfied: Vec<Satisfied>,
    /// The elements of one depth, and those around them.
    elements: Vec<Satisfied>,
    outer: Vec<Satisfied>,
}

/// Whether the leaves of an event satisfy all fields of *verification*, at most [`MOST_FIELDS`], in one choice of elements.
pub(super) fn choice_holds(store: &Store, verification: &Verification, map: &[PathId], values: &mut Values<'_>) -> bool {
    let mut scratch = std::mem::take(values.choice());
    scratch.satisfied.clear();
    let flat = values.flat();
    let wanted = u64::MAX.checked_shr((MOST_FIELDS - verification.fields.len()) as u32).unwrap_or(0);
    let mut holds = 0;
    for (&field, number) in verification.fields.iter().zip(0..) {
        let clause = store.clause(field);
        let leaves = values.at(map[clause.path as usize], store.mode(clause.path));
        spend(leaves.len() / 16);
        let own = 1 << number;
        if leaves.is_empty() {
            let mut atoms = clause.atoms;
            if atoms.any(|atom| matches!(atom.view, AtomView::Kinds(kinds) if kinds.has(Kind::Missing))) {
                holds |= own;
            }
        }
        let only = only_hash(&clause, values);
        for at in leaves {
            if only.is_some_and(|hash| !values.may_be(at, hash)) {
                continue;
            }
            if any_atom_holds(store, &clause, values, at) {
                match values.get(at).leaf.position() {
                    Position::NONE => holds |= own,
                    position => scratch.satisfied.push(Satisfied::new(flat, position, own, true)),
                }
            }
        }
    }
    let in_arrays = scratch.in_arrays(flat);
    *values.choice() = scratch;
    in_arrays.is_some_and(|fields| (holds | fields) & wanted == wanted)
}

impl ChoiceScratch {
    /// The fields that the outermost arrays must satisfy; None if an array lacks an element that satisfies all it must.
    fn in_arrays(&mut self, flat: &Flat<'_>) -> Option<u64> {
        let ChoiceScratch { satisfied, elements, outer } = self;
        satisfied.sort_unstable_by_key(|one| (one.depth, one.array, one.position));
        let mut fields = 0;
        outer.clear();
        let mut depth = satisfied.last().map_or(0, |deepest| deepest.depth);
        while depth > 0 {
            elements.clear();
            elements.append(outer);
            let is_sorted = elements.is_empty();
            elements.extend(satisfied.drain(satisfied.partition_point(|one| one.depth < depth)..));
            if !is_sorted {
                elements.sort_unstable_by_key(|one| (one.array, one.position));
            }
            // Keep one for each element.
            elements.dedup_by(|next, one| {
                let is_same = next.position == one.position;
                if is_same {
                    one.fields |= next.fields;
                    one.is_open &= next.is_open;
                }
                is_same
            });
            for array in elements.chunk_by(|one, next| one.array == next.array) {
                let must = array.iter().fold(0, |all, element| all | element.fields);
                let has_choice = array.iter().any(|element| element.is_open && element.fields == must);
                match flat.outer(array[0].position) {
                    Position::NONE if has_choice => fields |= must,
                    Position::NONE => return None,
                    around => outer.push(Satisfied::new(flat, around, must, has_choice)),
                }
            }
            depth -= 1;
        }
        Some(fields)
    }
}
