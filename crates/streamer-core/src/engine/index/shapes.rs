//! The conjunctions of a segment by the paths of their clauses, for events with unknown values.
//!
//! ```text
//!   a = 1 AND b = 2 ─┐
//!   a = 1 AND b = 7 ─┼─ shape {a, b}    by a: 1 1 5    by b: 2 7 9
//!   a = 5 AND b = 9 ─┘
//!   c > 3 ───────────── shape {c}
//! ```
//!
//! A subscription is unknown only if it reads an unknown value. So an event with unknown values needs what the index finds, and
//! the shapes with an unknown path: of those the conjunctions that its value at a known path leads to.
//!
//! Cost: 4 bytes a conjunction and 16 an equality in it, from the first event with unknown values on.

use crate::engine::verify::encoded::{AtomView, ClauseView};
use crate::engine::verify::store::Store;
use crate::subscriptions::normal_form::Unknowns;
use crate::value::{Kind, Seed};
use std::collections::HashMap;
use std::ops::Range;

/// See the head of this file.
#[derive(Debug)]
pub(in crate::engine) struct Shapes {
    pub each: Box<[Shape]>,
    /// Subscriptions whose clauses tell nothing.
    pub hidden: Box<[u32]>,
    /// For each equality of a shape: the hashes of values, sorted, each with a conjunction.
    hashes: Box<[(u64, u32)]>,
}

/// Conjunctions with clauses about the same paths.
#[derive(Debug)]
pub(in crate::engine) struct Shape {
    pub conjunctions: Box<[u32]>,
    pub fields: Box<[ShapeField]>,
    /// Whether their subscriptions may read more than these paths.
    pub reads_more: bool,
}

/// A path of a shape.
#[derive(Debug)]
pub(in crate::engine) struct ShapeField {
    pub path: u32,
    /// The hashes of the values that each conjunction requires here; empty if some require something else.
    hashes: Range<u32>,
}

/// Paths, each with whether a clause there is an equality, and whether more is read.
type ShapeKey = (Vec<(u32, bool)>, bool);

impl ShapeField {
    pub fn has_hashes(&self) -> bool {
        !self.hashes.is_empty()
    }
}

impl Shapes {
    /// Group the conjunctions of *store*; *unknowns*: what the clauses of a subscription tell, by its position.
    pub fn new(store: &Store, seed: &Seed, unknowns: impl Fn(u32) -> Unknowns) -> Shapes {
        let unknowns: Vec<Unknowns> = (0..store.len() as u32).map(unknowns).collect();
        let mut groups: HashMap<ShapeKey, Vec<u32>> = HashMap::new();
        for conjunction in 0..store.conjunctions() as u32 {
            let shown = store.targets(conjunction).iter().map(|at| unknowns[*at as usize]).filter(|one| *one != Unknowns::Hidden);
            let Some(most) = shown.max() else { continue };
            let clauses = first_clauses(store, conjunction);
            let fields = clauses.iter().map(|clause| (clause.path, is_equality(clause))).collect();
            groups.entry((fields, most == Unknowns::Anywhere)).or_default().push(conjunction);
        }
        let mut hashes = Vec::new();
        let shapes = groups.into_iter().map(|((fields, reads_more), conjunctions)| {
            // Each conjunction once: it may have thousands of clauses.
            let mut of_fields = vec![Vec::new(); fields.len()];
            for conjunction in &conjunctions {
                let clauses = first_clauses(store, *conjunction).into_iter().zip(&fields);
                for ((clause, (_, is_equality)), of_field) in clauses.zip(&mut of_fields) {
                    let equal = clause.atoms.filter_map(|atom| match atom.view {
                        AtomView::Equal(scalar) if *is_equality => Some((scalar.hash(seed), *conjunction)),
                        _ => None,
                    });
                    of_field.extend(equal);
                }
            }
            let field = |((path, _), mut of_field): ((u32, bool), Vec<(u64, u32)>)| {
                let start = hashes.len() as u32;
                of_field.sort_unstable();
                hashes.append(&mut of_field);
                ShapeField { path, hashes: start..hashes.len() as u32 }
            };
            let fields = fields.into_iter().zip(of_fields).map(field).collect();
            Shape { conjunctions: conjunctions.into(), fields, reads_more }
        });
        let each = shapes.collect();
        let hidden = (0..store.len() as u32).filter(|at| unknowns[*at as usize] == Unknowns::Hidden).collect();
        Shapes { each, hidden, hashes: hashes.into() }
    }

    /// The conjunctions that require a value with this hash at a field.
    pub fn requiring(&self, field: &ShapeField, hash: u64) -> impl Iterator<Item = &u32> {
        let all = &self.hashes[field.hashes.start as usize..field.hashes.end as usize];
        let start = all.partition_point(|(other, _)| *other < hash);
        all[start..].iter().take_while(move |(other, _)| *other == hash).map(|(_, conjunction)| conjunction)
    }
}

/// The first clause of a conjunction about each path, by path.
fn first_clauses(store: &Store, conjunction: u32) -> Vec<ClauseView<'_>> {
    let mut clauses: Vec<ClauseView<'_>> = store.clauses(conjunction).iter().map(|clause| store.clause(*clause)).collect();
    clauses.sort_by_key(|clause| clause.path);
    clauses.dedup_by_key(|clause| clause.path);
    clauses
}

/// Whether a clause is that a value is one of some, of which none is a bool: a condition that is just a bool is an error for any
/// other value.
fn is_equality(clause: &ClauseView<'_>) -> bool {
    let mut atoms = clause.atoms;
    clause.count > 0 && atoms.all(|atom| matches!(atom.view, AtomView::Equal(scalar) if scalar.kind() != Kind::Bool))
}
