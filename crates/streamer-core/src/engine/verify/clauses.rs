//! Is a clause true for an event?

use crate::engine::verify::atoms::atom_holds;
use crate::engine::verify::encoded::{AtomView, ClauseView};
use crate::engine::verify::store::Store;
use crate::engine::verify::values::Values;
use crate::flatten::PathId;
use crate::value::Kind;
use crate::watch::spend;

/// Work on at least this many values or alternatives is counted, for this many values at a time.
const MANY: usize = 64;

/// Whether a clause of *store* is true.
#[inline]
pub fn clause_holds(store: &Store, clause: u32, map: &[PathId], values: &mut Values<'_>) -> bool {
    let clause = store.clause(clause);
    let places = values.at(map[clause.path as usize], store.mode(clause.path));
    if places.is_empty() {
        return clause.atoms.into_iter().any(|atom| matches!(atom.view, AtomView::Kinds(kinds) if kinds.has(Kind::Missing)));
    }
    // Reading a long value counts it.
    if places.len().max(clause.length as usize / 32) < MANY {
        return places.into_iter().any(|at| any_atom_holds(store, &clause, values, at));
    }
    let cost = if store.wide(&clause).is_some() { 1 } else { clause.length as usize / 32 + 1 };
    let only = only_hash(&clause, values);
    places.clone().step_by(MANY).any(|from| {
        let some = from..places.end.min(from + MANY);
        spend(cost * some.len());
        some.into_iter().any(|at| only.is_none_or(|hash| values.may_be(at, hash)) && any_atom_holds(store, &clause, values, at))
    })
}

/// Whether an atom of a clause of *store* is true for a present value.
#[inline]
pub(super) fn any_atom_holds(store: &Store, clause: &ClauseView<'_>, values: &mut Values<'_>, at: usize) -> bool {
    if let Some(wide) = store.wide(clause) {
        return wide.holds(&store.encoded, values, at);
    }
    clause.atoms.any_holds(|view| atom_holds(view, values, at))
}

/// The hash that each leaf has which satisfies a clause, if the clause is one equality: most leaves of a long list have another one.
pub(super) fn only_hash(clause: &ClauseView<'_>, values: &Values<'_>) -> Option<u64> {
    let mut atoms = clause.atoms;
    match atoms.next()?.view {
        AtomView::Equal(scalar) if clause.count == 1 => Some(scalar.hash(values.seed())),
        _ => None,
    }
}
