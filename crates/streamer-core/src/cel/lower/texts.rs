//! `data.a.lowerAscii() == 'abc'`, `upperAscii` and `trim`, as clauses.
//!
//! The index finds texts by their Unicode simple case folding. It folds two letters of Unicode to letters of ASCII, U+017F to
//! `s` and U+212A to `k`, which `lowerAscii` leaves as they are. So the clause is exact for a text of ASCII without these, and
//! a superset for any other.

use super::atoms::one_of;
use super::reads::{EventRead, STRING, Scope, clause, read, steps_from, text_of, unwrap};
use super::sets::EventSet;
use crate::automaton::folding::fold;
use crate::cel::ast::{Function, Node, NodeId, Step};
use crate::subscriptions::normal_form::{Atom, Path};

/// The events for which the equality of a changed text of the event and a constant is *wanted*.
pub(super) fn equality(scope: &Scope<'_>, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    let ((path, function), text) = match changed(scope, left) {
        Some(changed) => (changed, text_of(scope, right)?),
        None => (changed(scope, right)?, text_of(scope, left)?),
    };
    let is_possible = match function {
        "lowerAscii" => !text.bytes().any(|byte| byte.is_ascii_uppercase()),
        "upperAscii" => !text.bytes().any(|byte| byte.is_ascii_lowercase()),
        "trim" if wanted && !text.is_empty() => {
            return Some(EventSet::within(vec![clause(path, vec![Atom::Substring(text)])]));
        }
        _ => return None,
    };
    if !is_possible {
        return Some(one_of(path, Vec::new(), STRING, wanted));
    }
    let atom = Atom::EqualIgnoreCase(fold(&text).into());
    if text.is_ascii() && !text.contains(['k', 'K', 's', 'S']) {
        return Some(one_of(path, vec![atom], STRING, wanted));
    }
    wanted.then(|| EventSet::within(vec![clause(path, vec![atom])]))
}

/// The path that a method without arguments changes, and its name.
fn changed(scope: &Scope<'_>, id: NodeId) -> Option<(Path, &'static str)> {
    let Node::Chain { base, steps } = &scope.program.ast[unwrap(scope, id)] else { return None };
    let (Step::Method { function: Function::Extension(extension), args, .. }, steps) = steps.split_last()? else { return None };
    match steps_from(read(scope, *base)?, scope, steps)? {
        EventRead::Path(path) if args.is_empty() => Some((path, extension.row().name)),
        _ => None,
    }
}
