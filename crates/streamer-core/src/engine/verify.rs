//! Does a clause, or what a whole subscription must pass besides, hold for an event?

use crate::automaton::cidr::{net_holds, parse_address};
use crate::automaton::folding::fold;
use crate::automaton::places::topic_matches;
use crate::automaton::ranges::NumberCut;
use crate::automaton::wildcards::wildcard_matches;
use crate::engine::consistency::{Spent, consistent};
use crate::engine::encoded::AtomView;
use crate::engine::store::{ClauseView, Store, flags};
use crate::engine::values::Values;
use crate::flatten::{PathId, Position};
use crate::subscriptions::normal_form::Relation;
use crate::value::{Kind, ScalarRef, Value};
use crate::watch::spend;
use std::ops::Range;

/// From so many values on work is counted, for so many at a time.
const MANY: usize = 64;

/// Whether a clause of *store* holds.
#[inline]
pub fn clause_holds(store: &Store, clause: u32, map: &[PathId], values: &mut Values<'_>) -> bool {
    let clause = store.clause(clause);
    let found = values.at(map[clause.path as usize], store.mode(clause.path));
    if found.is_empty() {
        return clause.atoms.into_iter().any(|atom| matches!(atom.view, AtomView::Kinds(kinds) if kinds.has(Kind::Missing)));
    }
    if found.len() < MANY {
        return found.into_iter().any(|at| any_atom_holds(store, &clause, values, at));
    }
    let cost = if store.wide(&clause).is_some() { 1 } else { clause.length as usize / 32 + 1 };
    found.clone().step_by(MANY).any(|from| {
        let some = from..found.end.min(from + MANY);
        spend(cost * some.len());
        some.into_iter().any(|at| any_atom_holds(store, &clause, values, at))
    })
}

/// Whether an atom of a clause of *store* holds for a value that is there.
#[inline]
pub(super) fn any_atom_holds(store: &Store, clause: &ClauseView<'_>, values: &mut Values<'_>, at: usize) -> bool {
    if let Some(wide) = store.wide(clause) {
        return wide.holds(store, values, at);
    }
    clause.atoms.into_iter().any(|atom| atom_holds(&atom.view, values, at))
}

/// Whether an atom holds for a value that is there.
#[inline]
pub(super) fn atom_holds(atom: &AtomView<'_>, values: &mut Values<'_>, at: usize) -> bool {
    let seen = values.get(at);
    match (atom, seen.scalar) {
        (AtomView::Equal(operand), Some(scalar)) => *operand == scalar,
        (AtomView::Numbers(from, to), Some(ScalarRef::Number(number))) => {
            let point = NumberCut::before(number);
            from.is_none_or(|from| from <= point) && to.is_none_or(|to| point < to)
        }
        (AtomView::Times(of, from, to), _) => seen.leaf.time(*of).is_some_and(|number| {
            let point = NumberCut::before(number);
            from.is_none_or(|from| from <= point) && to.is_none_or(|to| point < to)
        }),
        (AtomView::Size(least, most), _) => size_of(values, at).is_some_and(|size| (*least..=*most).contains(&size)),
        (AtomView::Kinds(kinds), _) => kinds.has(seen.kind),
        (AtomView::Other(kinds, none_of), _) => {
            kinds.has(seen.kind) && none_of.into_iter().all(|atom| atom_fails(&atom.view, values, at))
        }
        (AtomView::EqualTree(tree), _) => {
            seen.kind == tree.kind() && values.tree(at).is_some_and(|value| value.equals(tree) == Some(true))
        }
        (AtomView::Element(element), _) => {
            matches!(values.tree(at), Some(Value::List(elements)) if elements.iter().any(|one| one.equals(element) == Some(true)))
        }
        (atom, Some(ScalarRef::String(text))) => text_atom_holds(atom, text),
        _ => false,
    }
}

/// Whether an atom is known not to hold: a list or object with a number beyond float64 in it may not be told apart.
#[inline]
pub(super) fn atom_fails(atom: &AtomView<'_>, values: &mut Values<'_>, at: usize) -> bool {
    match atom {
        AtomView::EqualTree(tree) => {
            values.get(at).kind != tree.kind() || values.tree(at).is_some_and(|value| value.equals(tree) == Some(false))
        }
        AtomView::Element(element) => match values.tree(at) {
            Some(Value::List(elements)) => elements.iter().all(|one| one.equals(element) == Some(false)),
            _ => values.get(at).kind != Kind::List,
        },
        atom => !atom_holds(atom, values, at),
    }
}

/// How many characters, elements or members a value has.
fn size_of(values: &mut Values<'_>, at: usize) -> Option<u32> {
    let size = match values.get(at).scalar {
        Some(ScalarRef::String(text)) => text.chars().count(),
        Some(_) => return None,
        None => match values.tree(at)? {
            Value::List(elements) => elements.len(),
            Value::Map(members) => members.len(),
            _ => return None,
        },
    };
    u32::try_from(size).ok()
}

fn text_atom_holds(atom: &AtomView<'_>, text: &str) -> bool {
    match *atom {
        AtomView::Strings(from, to) => from.is_none_or(|from| from <= text) && to.is_none_or(|to| text < to),
        AtomView::Prefix(operand) => text.starts_with(operand),
        AtomView::Suffix(operand) => text.ends_with(operand),
        AtomView::Substring(operand) => memchr::memmem::find(text.as_bytes(), operand.as_bytes()).is_some(),
        AtomView::PrefixIgnoreCase(operand) => fold(text).starts_with(operand),
        AtomView::SuffixIgnoreCase(operand) => fold(text).ends_with(operand),
        AtomView::EqualIgnoreCase(operand) => fold(text) == operand,
        AtomView::Wildcard(pieces) => wildcard_matches(pieces, text),
        AtomView::Regexp(program) => program.search(text),
        AtomView::Cidr(net) => parse_address(text).is_some_and(|address| net_holds(net, address)),
        AtomView::Topic(words) => topic_matches(words.symbols(), text),
        _ => false,
    }
}

/// Whether what a candidate, one of whose conjunctions holds, must pass besides holds.
///
/// # Errors
///
/// That takes more than the budget of `consistency.rs`.
pub(super) fn verification_holds(
    store: &Store,
    subscription: u32,
    map: &[PathId],
    values: &mut Values<'_>,
) -> Result<bool, Spent> {
    let Some(verification) = store.verification(subscription) else {
        return Ok(true);
    };
    let changed = verification.changed.iter().all(|(before, now)| {
        let before = values.at(map[*before as usize], store.mode(*before));
        let now = values.at(map[*now as usize], store.mode(*now));
        differ(before.start..before.end, now.start..now.end, values)
    });
    let holds = changed
        && verification.compared.iter().all(|(one, relation, other)| {
            let one = values.at(map[*one as usize], store.mode(*one));
            let other = values.at(map[*other as usize], store.mode(*other));
            !one.is_empty() && !other.is_empty() && compares(one.start, *relation, other.start, values)
        });
    match &verification.tree {
        Some(tree) if holds => {
            let in_arrays_only = store.flags[subscription as usize] & flags::ARRAYS != 0;
            if in_arrays_only && !any_in_array(store, &verification.fields, map, values) {
                return Ok(true);
            }
            consistent(store, verification, tree, map, values)
        }
        _ => Ok(holds),
    }
}

/// Whether any value that one of these clauses asks for lies in an array.
fn any_in_array(store: &Store, clauses: &[u32], map: &[PathId], values: &mut Values<'_>) -> bool {
    clauses.iter().any(|clause| {
        let path = store.clause(*clause).path;
        values.at(map[path as usize], store.mode(path)).any(|at| values.get(at).leaf.position() != Position::NONE)
    })
}

/// Whether two values that are there compare so.
fn compares(one: usize, relation: Relation, other: usize, values: &mut Values<'_>) -> bool {
    let (left, right) = (values.get(one), values.get(other));
    match (relation, left.scalar, right.scalar) {
        (Relation::Equal, Some(left), Some(right)) => left == right,
        (Relation::Equal, None, None) if left.kind == right.kind => {
            let left = values.tree(one).cloned();
            left.zip(values.tree(other)).is_some_and(|(left, right)| left.equals(right) == Some(true))
        }
        (Relation::Less | Relation::LessOrEqual, Some(left), Some(right)) if left.kind() == right.kind() => {
            left.kind() != Kind::Null && if relation == Relation::Less { left < right } else { left <= right }
        }
        _ => false,
    }
}

/// Whether two values, each at most one, differ; a number beyond float64 cannot be compared.
fn differ(one: Range<usize>, other: Range<usize>, values: &mut Values<'_>) -> bool {
    if one.is_empty() || other.is_empty() {
        return one.is_empty() != other.is_empty();
    }
    let (left, right) = (values.get(one.start), values.get(other.start));
    match (left.scalar, right.scalar) {
        (Some(left), Some(right)) => left != right,
        _ if left.kind == Kind::BeyondFloat || right.kind == Kind::BeyondFloat => false,
        _ if left.kind != right.kind => true,
        _ => {
            let left = values.tree(one.start).cloned();
            left.zip(values.tree(other.start)).is_some_and(|(left, right)| left.equals(right) == Some(false))
        }
    }
}
