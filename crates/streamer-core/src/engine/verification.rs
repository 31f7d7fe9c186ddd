//! Does what a whole subscription must pass besides its conjunctions hold for an event?

use crate::engine::consistency::{Spent, consistent};
use crate::engine::store::{Store, flags};
use crate::engine::values::Values;
use crate::flatten::{PathId, Position};
use crate::subscriptions::normal_form::Relation;
use crate::value::Kind;
use std::ops::Range;

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
