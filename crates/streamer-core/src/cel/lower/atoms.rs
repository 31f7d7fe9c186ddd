//! The condition of one comparison or test on one value, as clauses.
//!
//! A path of `data` or `before` is missing, or one JSON value. An error makes an expression neither true nor false, so
//! every clause here states the kinds of value that it is about. The event's own parts `type`, `topic`, `collection`
//! and `tenant` are strings, empty if the event has none.
//!
//! [`strict`](super::strict) bounds the conditions that clauses cannot express.

use super::operators::{bounds, mirrored, opposite, text_atom};
use super::reads::{
    BOOL, EventRead, LIST, MAP, NUMBER, STRING, Scope, below, clause, constant, is, name_of, path_of, read, steps_from, text_of,
    unwrap,
};
use super::sets::EventSet;
use super::times::{self, Moment};
use super::{elements, strict, texts};
use crate::cel::ast::{BinaryOp, Constant, Function, Meaning, Node, NodeId, Step, TypeName, UnaryOp};
use crate::subscriptions::normal_form::{Atom, Clause, Path, Range, Relation, Root, Unknowns};
use crate::value::{Kind, Kinds, Number, Scalar, Value};
use std::sync::Arc;

/// The events whose value satisfies one of *atoms*; if not *wanted*, those whose value is of *kinds* and satisfies
/// none.
pub(super) fn one_of(path: Path, atoms: Vec<Atom>, kinds: Kinds, wanted: bool) -> EventSet {
    match (wanted, atoms.is_empty()) {
        (true, true) => EventSet::none(),
        (true, false) => EventSet::clause(clause(path, atoms)),
        (false, true) => EventSet::clause(is(path, kinds)),
        (false, false) => EventSet::clause(clause(path, vec![Atom::Other { kinds, none_of: atoms.into() }])),
    }
}

// --- comparisons

/// The events for which a comparison is *wanted*; `None` if clauses cannot express them.
pub(super) fn comparison(scope: &Scope<'_>, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    let ast = scope;
    if op == BinaryOp::In {
        return membership(ast, left, right, wanted);
    }
    if op == BinaryOp::Equal
        && let Some(set) = texts::equality(ast, left, right, wanted)
    {
        return Some(set);
    }
    if let Some(set) = special(ast, op, left, right, wanted).or_else(|| elements::indexed(ast, op, left, right, wanted)) {
        return Some(set);
    }
    let (read, value, op) = match (read(ast, left), read(ast, right)) {
        (Some(EventRead::Path(one)), Some(EventRead::Path(other))) if op == BinaryOp::Equal && !wanted => {
            return changed(one, other);
        }
        (Some(read), None) => (read, constant(ast, right)?, op),
        (None, Some(read)) => (read, constant(ast, left)?, mirrored(op)),
        _ => return None,
    };
    if op == BinaryOp::Equal {
        return equality(read, vec![value], wanted);
    }
    let (low, high) = bounds(if wanted { op } else { opposite(op)? })?;
    let atoms = Atom::ordered(&value, low, high);
    match read {
        EventRead::Path(path) => Some(one_of(path, atoms, Kinds::NONE, true)),
        EventRead::Text(root) => {
            let bound = value.as_str()?;
            let empty = crate::value::within("", low.map(|closed| (bound, closed)), high.map(|closed| (bound, closed)));
            Some(or_missing(root, atoms, empty))
        }
        EventRead::Document(_) => None,
    }
}

/// `data.a != before.a`: values that can be compared and are unequal.
fn changed(one: Path, other: Path) -> Option<EventSet> {
    let (data, before) = if one.root == Root::Data { (&one, &other) } else { (&other, &one) };
    if (data.root, before.root) != (Root::Data, Root::Before) || data.names != before.names {
        return None;
    }
    let changed = Clause::changed(data.clone());
    Some(EventSet::of(vec![vec![is(one, Kinds::READABLE), is(other, Kinds::READABLE), changed]]))
}

/// Equal to one of *values*, or to none.
fn equality(read: EventRead, values: Vec<Value>, wanted: bool) -> Option<EventSet> {
    match read {
        EventRead::Path(path) => {
            Some(one_of(path, values.into_iter().map(|value| Atom::equal(&value)).collect(), Kinds::READABLE, wanted))
        }
        EventRead::Text(root) => {
            let empty = values.iter().any(|value| value.as_str() == Some(""));
            Some(of_text(root, values.into_iter().map(|value| Atom::equal(&value)).collect(), empty, wanted))
        }
        EventRead::Document(_) => None,
    }
}

/// A test of a part that is a string; *empty* is its result for an empty one.
fn of_text(root: Root, atoms: Vec<Atom>, empty: bool, wanted: bool) -> EventSet {
    if wanted {
        return or_missing(root, atoms, empty);
    }
    let others = if atoms.is_empty() { Atom::Kinds(STRING) } else { Atom::Other { kinds: STRING, none_of: atoms.into() } };
    or_missing(root, vec![others], !empty)
}

/// The events whose part satisfies one of *atoms*, and if *empty* also those without the part.
fn or_missing(root: Root, mut atoms: Vec<Atom>, empty: bool) -> EventSet {
    if empty {
        atoms.push(Atom::Kinds(Kinds::MISSING));
    }
    if atoms.is_empty() { EventSet::none() } else { EventSet::clause(clause(Path::part(root), atoms)) }
}

fn membership(ast: &Scope<'_>, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    if let Node::List(items) = &ast[unwrap(ast, right)] {
        let values = items.iter().map(|item| constant(ast, *item)).collect::<Option<Vec<_>>>()?;
        return equality(read(ast, left)?, values, wanted);
    }
    let value = constant(ast, left)?;
    let name = value.as_str().map(Box::<str>::from);
    match (read(ast, right)?, name) {
        (EventRead::Document(root), Some(name)) => Some(has(Path::new(root, [name]), Path::part(root), wanted)),
        (EventRead::Path(path), _) if wanted => Some(EventSet::clause(elements::any_of(path, vec![Atom::equal(&value)]))),
        (EventRead::Path(path), Some(name)) => {
            let mut set = has(below(&path, &name), path.clone(), false);
            set.any_of.push(vec![clause(path, vec![without(value)])]);
            Some(set)
        }
        // A key of an object is a string, never a number or a bool, so `in` is false for every map.
        (EventRead::Path(path), None) if matches!(value.kind(), Kind::Bool | Kind::Number) => {
            Some(EventSet::clause(clause(path, vec![without(value), Atom::Kinds(MAP)])))
        }
        (EventRead::Path(path), None) => Some(EventSet::clause(clause(path, vec![without(value)]))),
        _ => None,
    }
}

/// A list of which no element is, and none may be, equal to *value*.
fn without(value: Value) -> Atom {
    Atom::Other { kinds: LIST, none_of: [Atom::Element(Arc::new(value))].into() }
}

/// A map with, or without, the member at *path*.
fn has(path: Path, map: Path, wanted: bool) -> EventSet {
    if wanted {
        return EventSet::clause(is(path, Kinds::PRESENT));
    }
    EventSet::of(vec![vec![is(map, MAP), is(path, Kinds::MISSING)]])
}

/// `size(data.a)` compared with a number, `type(data.a)` with a type, `timestamp(data.a)` and `duration(data.a)` with a
/// time.
fn special(ast: &Scope<'_>, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    if let Some(set) = time(ast, op, left, right, wanted) {
        return Some(set);
    }
    let (one, other) = (unwrap(ast, left), unwrap(ast, right));
    match (&ast[one], &ast[other]) {
        (Node::Call { function: Function::Type, args }, Node::Ident { meaning: Meaning::Type(name), .. })
        | (Node::Ident { meaning: Meaning::Type(name), .. }, Node::Call { function: Function::Type, args })
            if op == BinaryOp::Equal =>
        {
            let kinds = match name {
                TypeName::Bool => BOOL,
                TypeName::String => STRING,
                TypeName::List => LIST,
                TypeName::Map => MAP,
                TypeName::Null => Kinds::of(Kind::Null),
                _ => return None,
            };
            let kinds = if wanted { kinds } else { Kinds::from_bits(Kinds::READABLE.bits() & !kinds.bits()) };
            Some(EventSet::clause(is(path_of(ast, *args.first()?)?, kinds)))
        }
        (Node::Literal(Constant::Int(bound)), _) => size(ast, mirrored(op), other, *bound, wanted),
        (_, Node::Literal(Constant::Int(bound))) => size(ast, op, one, *bound, wanted),
        _ => None,
    }
}

fn size(ast: &Scope<'_>, op: BinaryOp, id: NodeId, bound: i64, wanted: bool) -> Option<EventSet> {
    let path = match &ast[id] {
        Node::Call { function: Function::Size, args } => path_of(ast, *args.first()?)?,
        Node::Chain { base, steps } => {
            let (Step::Method { function: Function::Size, .. }, steps) = steps.split_last()? else { return None };
            let EventRead::Path(path) = steps_from(read(ast, *base)?, ast, steps)? else { return None };
            path
        }
        _ => return None,
    };
    let is_empty = match (op, bound) {
        (BinaryOp::Equal | BinaryOp::LessOrEqual, 0) | (BinaryOp::Less, 1) => wanted,
        (BinaryOp::Greater, 0) | (BinaryOp::GreaterOrEqual, 1) => !wanted,
        _ => return sizes(path, if wanted { Some(op) } else { opposite(op) }, bound),
    };
    let empty = [Value::Scalar(Scalar::String("".into())), Value::List(Vec::new()), Value::Map(Vec::new())];
    let set = one_of(path, empty.into_iter().map(|value| Atom::equal(&value)).collect(), STRING.or(LIST).or(MAP), is_empty);
    // The size of a number is an error, though a number certainly differs from these.
    Some(EventSet { unknowns: Unknowns::Hidden, ..set })
}

/// The values whose size compares this way with *bound*; without an operator, those whose size differs from it.
fn sizes(path: Path, op: Option<BinaryOp>, bound: i64) -> Option<EventSet> {
    let within: Vec<(i64, i64)> = match op {
        None => vec![(0, bound.saturating_sub(1)), (bound.saturating_add(1), i64::MAX)],
        Some(BinaryOp::Equal) => vec![(bound, bound)],
        Some(BinaryOp::Less) => vec![(0, bound.saturating_sub(1))],
        Some(BinaryOp::LessOrEqual) => vec![(0, bound)],
        Some(BinaryOp::Greater) => vec![(bound.saturating_add(1), i64::MAX)],
        Some(BinaryOp::GreaterOrEqual) => vec![(bound, i64::MAX)],
        _ => return None,
    };
    // A size in an event always fits: an event is shorter.
    let fit = |size: i64| u32::try_from(size.max(0)).unwrap_or(u32::MAX);
    let is_some = |(least, most): &(i64, i64)| *least <= *most && *most >= 0 && *least < i64::from(u32::MAX);
    let atoms: Vec<Atom> = within.into_iter().filter(is_some).map(|(least, most)| Atom::Size(fit(least), fit(most))).collect();
    Some(one_of(path, atoms, Kinds::NONE, true))
}

fn time(ast: &Scope<'_>, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    let read = |id: NodeId| match &ast[unwrap(ast, id)] {
        Node::Call { function, args } => match (times::function(*function), &args[..]) {
            (Some(of), [argument]) => Some((of, path_of(ast, *argument)?)),
            _ => None,
        },
        _ => None,
    };
    let ((of, path), constant, op) = match (read(left), read(right)) {
        (Some(read), None) => (read, times::constant(ast, right)?, op),
        (None, Some(read)) => (read, times::constant(ast, left)?, mirrored(op)),
        _ => return None,
    };
    let at = match constant {
        Moment::Error => return Some(EventSet::none()),
        Moment::At(other, _) if other != of => return None,
        Moment::At(_, ns) => Number::from_nanoseconds(ns),
    };
    let within = |low: Option<bool>, high: Option<bool>| {
        Atom::Times(of, Range { low: low.map(|closed| (at, closed)), high: high.map(|closed| (at, closed)) })
    };
    let atoms = match (op, wanted) {
        (BinaryOp::Equal, true) => vec![within(Some(true), Some(true))],
        (BinaryOp::Equal, false) => vec![within(None, Some(false)), within(Some(false), None)],
        (op, wanted) => {
            let (low, high) = bounds(if wanted { op } else { opposite(op)? })?;
            vec![within(low, high)]
        }
    };
    Some(one_of(path, atoms, Kinds::NONE, true))
}

/// Two values of an event that must compare so.
pub(super) struct ComparedPaths {
    pub one: Path,
    /// None: the values differ.
    pub relation: Option<Relation>,
    pub other: Path,
    /// Conditions for the comparison: both values are readable and comparable.
    pub clauses: Vec<Clause>,
}

/// `data.a != before.a`, `data.a < data.b` and the like, or their negation, which are verified on candidates.
pub(super) fn pair(ast: &Scope<'_>, id: NodeId, wanted: bool) -> Option<ComparedPaths> {
    let (first, one) = match &ast[unwrap(ast, id)] {
        Node::Unary { op: UnaryOp::Not, count, operand } => return pair(ast, *operand, wanted ^ (count % 2 == 1)),
        Node::Operation { first, rest } => match &rest[..] {
            [one] => (*first, one),
            _ => return None,
        },
        _ => return None,
    };
    let (left, right) = (path_of(ast, first)?, path_of(ast, one.operand)?);
    let (is_swapped, relation) = match (one.op, wanted) {
        (BinaryOp::Equal, true) | (BinaryOp::NotEqual, false) => (false, Some(Relation::Equal)),
        (BinaryOp::NotEqual, true) | (BinaryOp::Equal, false) => (false, None),
        (BinaryOp::Less, true) | (BinaryOp::GreaterOrEqual, false) => (false, Some(Relation::Less)),
        (BinaryOp::LessOrEqual, true) | (BinaryOp::Greater, false) => (false, Some(Relation::LessOrEqual)),
        (BinaryOp::Greater, true) | (BinaryOp::LessOrEqual, false) => (true, Some(Relation::Less)),
        (BinaryOp::GreaterOrEqual, true) | (BinaryOp::Less, false) => (true, Some(Relation::LessOrEqual)),
        _ => return None,
    };
    // By that it can be found.
    if relation.is_none() && changed(left.clone(), right.clone()).is_some() {
        return None;
    }
    let kinds = match relation {
        None | Some(Relation::Equal) => Kinds::READABLE,
        Some(Relation::Less | Relation::LessOrEqual) => NUMBER.or(STRING).or(BOOL),
    };
    let clauses = vec![is(left.clone(), kinds), is(right.clone(), kinds)];
    let (one, other) = if is_swapped { (right, left) } else { (left, right) };
    Some(ComparedPaths { one, relation, other, clauses })
}

// --- tests

/// The events for which an expression without operators is *wanted*.
pub(super) fn condition(scope: &Scope<'_>, id: NodeId, wanted: bool) -> EventSet {
    let ast = scope;
    let set = match &ast[id] {
        Node::Literal(Constant::Bool(value)) => Some(if *value == wanted { EventSet::all() } else { EventSet::none() }),
        Node::Literal(_) => Some(EventSet::none()),
        Node::Has { target, name } => match read(ast, *target) {
            Some(EventRead::Document(root)) => Some(has(Path::new(root, [name]), Path::part(root), wanted)),
            Some(EventRead::Path(path)) => Some(has(below(&path, name), path, wanted)),
            _ => None,
        },
        Node::Call { function: Function::Matches, args } => args
            .first()
            .and_then(|target| read(ast, *target))
            .and_then(|target| text_test(scope, target, Function::Matches, &args[1..], wanted)),
        Node::Chain { base, steps } => chain(scope, id, *base, steps, wanted),
        _ => None,
    };
    set.unwrap_or_else(|| strict::value_of(ast, id))
}

fn chain(scope: &Scope<'_>, id: NodeId, base: NodeId, steps: &[Step], wanted: bool) -> Option<EventSet> {
    let ast = scope;
    let base = read(ast, base)?;
    let (last, steps) = steps.split_last()?;
    if name_of(ast, last).is_some() {
        let target = steps_from(base, ast, steps)?;
        let EventRead::Path(path) = steps_from(target, ast, std::slice::from_ref(last))? else { return None };
        return Some(EventSet::clause(clause(path, vec![Atom::Equal(Scalar::Bool(wanted))])));
    }
    let Some(target) = steps_from(base, ast, steps) else {
        return if wanted { elements::indexed_test(scope, id, last) } else { None };
    };
    match (last, target) {
        (Step::Method { function: Function::Contains, args, .. }, EventRead::Path(path)) => {
            let value = constant(ast, *args.first()?)?;
            let substring = value.as_str().map(|text| Atom::Substring(text.into()));
            if wanted {
                return Some(one_of(path, [Atom::Element(Arc::new(value))].into_iter().chain(substring).collect(), LIST, true));
            }
            let no_substring = substring.map(|atom| Atom::Other { kinds: STRING, none_of: [atom].into() });
            Some(EventSet::clause(clause(path, no_substring.into_iter().chain([without(value)]).collect())))
        }
        (Step::Method { function, args, .. }, target) => text_test(scope, target, *function, args, wanted),
        _ => None,
    }
}

/// A test of a string with a constant.
fn text_test(scope: &Scope<'_>, target: EventRead, function: Function, args: &[NodeId], wanted: bool) -> Option<EventSet> {
    let text = text_of(scope, *args.first()?)?;
    let (atom, empty) = text_atom(scope, function, text)?;
    match target {
        EventRead::Path(path) => Some(one_of(path, vec![atom], STRING, wanted)),
        EventRead::Text(root) => Some(of_text(root, vec![atom], empty, wanted)),
        EventRead::Document(_) => None,
    }
}
