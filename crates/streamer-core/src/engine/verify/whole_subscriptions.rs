//! Is the verification of a whole subscription, beyond its conjunctions, true for an event?

use crate::engine::verify::atoms::long_list;
use crate::engine::verify::element_choice::{MOST_FIELDS, choice_holds};
use crate::engine::verify::scopes::{Spent, consistent};
use crate::engine::verify::store::{Store, flags};
use crate::engine::verify::values::Values;
use crate::engine::verify::verification_table::VerifiedPattern;
use crate::flatten::PathId;
use crate::json::Element;
use crate::subscriptions::normal_form::Relation;
use crate::value::Kind;
use std::ops::Range;

/// Whether a candidate with a true conjunction passes its verification.
///
/// # Errors
///
/// It exceeds the budget of `scopes.rs`.
pub(in crate::engine) fn verification_holds(
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
        differ(before, now, values)
    });
    let holds = changed
        && verification.compared.iter().all(|(one, relation, other)| {
            let one = values.at(map[*one as usize], store.mode(*one));
            let other = values.at(map[*other as usize], store.mode(*other));
            !one.is_empty() && !other.is_empty() && compares(one.start, *relation, other.start, values)
        });
    match verification.pattern.as_deref() {
        Some(VerifiedPattern { tree, shared, .. }) if holds => {
            let in_arrays_only = store.flags[subscription as usize] & flags::ARRAYS != 0;
            if in_arrays_only && !any_shared(shared, map, values) {
                return Ok(true);
            }
            if tree.any_of.is_empty() && verification.fields.len() <= MOST_FIELDS {
                return Ok(choice_holds(store, verification, map, values));
            }
            consistent(store, verification, tree, map, values)
        }
        _ => Ok(holds),
    }
}

/// Whether an array that two fields of a pattern share may contain a leaf of one: only there can a choice of leaves
/// contradict itself.
fn any_shared(shared: &[(u32, u32)], map: &[PathId], values: &mut Values<'_>) -> bool {
    shared.iter().any(|(path, names)| values.names_to_array(map[*path as usize]) <= *names)
}

/// Whether two values that are there compare so.
fn compares(one: usize, relation: Relation, other: usize, values: &mut Values<'_>) -> bool {
    let (left, right) = (values.get(one), values.get(other));
    match (relation, left.scalar, right.scalar) {
        (Relation::Equal, Some(left), Some(right)) => left == right,
        (Relation::Equal, None, None) if left.kind == right.kind => {
            let left = values.shared_tree(one);
            left.zip(values.tree(other)).is_some_and(|(left, right)| left.equals(right) == Some(true))
        }
        (Relation::Less | Relation::LessOrEqual, Some(left), Some(right)) if left.kind() == right.kind() => {
            left.kind() != Kind::Null && if relation == Relation::Less { left < right } else { left <= right }
        }
        _ => false,
    }
}

/// Whether two values, each at most one, differ; a number beyond float64 cannot be compared, and nothing below one be read.
pub(super) fn differ(one: Range<usize>, other: Range<usize>, values: &mut Values<'_>) -> bool {
    let is_unreadable = |at: &Range<usize>| !at.is_empty() && values.get(at.start).kind == Kind::Unreadable;
    if is_unreadable(&one) || is_unreadable(&other) {
        return false;
    }
    if one.is_empty() || other.is_empty() {
        return one.is_empty() != other.is_empty();
    }
    let (left, right) = (values.get(one.start), values.get(other.start));
    match (left.scalar, right.scalar) {
        (Some(left), Some(right)) => left != right,
        _ if left.kind == Kind::BeyondFloat || right.kind == Kind::BeyondFloat => false,
        _ if left.kind != right.kind => true,
        _ if left.leaf.raw() == right.leaf.raw() => false,
        _ => match (long_list(values, one.start), long_list(values, other.start)) {
            (Some(one), Some(other)) => lists_differ(one, other),
            _ => {
                let left = values.shared_tree(one.start);
                left.zip(values.tree(other.start)).is_some_and(|(left, right)| left.equals(right) == Some(false))
            }
        },
    }
}

/// Whether two lists differ, as two values do.
fn lists_differ<'t>(mut one: impl Iterator<Item = Element<'t>>, mut other: impl Iterator<Item = Element<'t>>) -> bool {
    loop {
        match (one.next(), other.next()) {
            (Some(left), Some(right)) if left.differs(&right) => return true,
            (Some(_), Some(_)) => {}
            (left, right) => return left.is_some() != right.is_some(),
        }
    }
}
