//! The slow oracle: a subscription evaluated as semantics.md states it, on a parsed event.
//!
//! It has no normal form, no slots and no index: the oracle of this crate's tests and fuzz targets. It is recursive
//! over the event and exponential in `$or`s, so it is for events of bounded depth and patterns of bounded size.

use crate::automaton::cidr::{net_holds, parse_address};
use crate::automaton::folding::fold;
use crate::automaton::wildcards::wildcard_matches;
use crate::error::EventError;
use crate::flatten::substitute;
use crate::json::{self, Build, ParseOptions};
use crate::layout::{BeforeHolds, EventLayout, EventType, Part, Pointer, TypeMeaning, index};
use crate::limits::Limits;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::Subscription;
use crate::subscriptions::normal_form::{Atom, Root};
use crate::subscriptions::operators::Filter;
use crate::subscriptions::operators::{Operator, folded};
use crate::subscriptions::patterns::{AllOf, Field};
use crate::value::{Kind, Scalar, Value};
use std::cmp::Ordering;

/// A parsed event with its parts. The parts are not checked: an event that a flattener refuses has no meaning here.
#[derive(Clone, Debug)]
pub struct NaiveEvent {
    /// The original event.
    pub raw: Value,
    /// The change of the document.
    pub event_type: Option<EventType>,
    /// The routing key.
    pub topic: Option<Box<str>>,
    /// The document, an object.
    pub data: Option<Value>,
    /// The document before the change.
    pub before: Option<Value>,
    /// The record without its documents, an object.
    pub envelope: Option<Value>,
}

impl NaiveEvent {
    /// Parse an event and find its parts.
    ///
    /// # Errors
    ///
    /// The errors of its text.
    pub fn read(text: &[u8], layout: &EventLayout, limits: &Limits) -> Result<NaiveEvent, EventError> {
        let options = ParseOptions { max_depth: limits.max_depth, max_bytes: limits.max_event_bytes };
        let mut raw: Value = json::parse(text, options)?;
        if layout.encoded {
            for part in [&layout.data, &layout.before] {
                // If the text is `null`, the next place counts.
                while let Some((pointer, Value::Scalar(Scalar::String(text)))) = find_at(&raw, part) {
                    let inside: Value = json::parse(text.as_bytes(), options)?;
                    substitute(&mut raw, &pointer.clone(), inside);
                }
            }
        }
        if layout.before_holds == BeforeHolds::Changed
            && let (Some((_, Value::Map(data))), Some((at, Value::Map(before)))) =
                (find_at(&raw, &layout.data), find_at(&raw, &layout.before))
        {
            // The last of two wins.
            let whole = Value::object(data.iter().chain(before).cloned().collect());
            substitute(&mut raw, &at.clone(), whole);
        }
        let text_of = |part: &Part| match (find(&raw, part), part.constant()) {
            (Some(value), _) => value.as_str().map(Box::from),
            (None, Some(Scalar::String(constant))) => Some(constant.clone()),
            (None, _) => None,
        };
        let event_type = text_of(&layout.event_type).and_then(|word| match layout.event_type(&word)? {
            TypeMeaning::Type(event_type) => Some(event_type),
            TypeMeaning::Ignore | TypeMeaning::Untyped => None,
        });
        let topic = text_of(&layout.topic);
        let before = find(&raw, &layout.before).cloned();
        let mut data = find(&raw, &layout.data).cloned();
        if data.is_none() && event_type == Some(EventType::Delete) {
            data.clone_from(&before);
        }
        let envelope = envelope(&raw, layout);
        Ok(NaiveEvent { event_type, topic, data, before, envelope, raw })
    }
}

fn find<'v>(raw: &'v Value, part: &Part) -> Option<&'v Value> {
    find_at(raw, part).map(|(_, value)| value)
}

/// The first place of a part that is present and not null.
fn find_at<'v, 'p>(raw: &'v Value, part: &'p Part) -> Option<(&'p Pointer, &'v Value)> {
    let null = Value::Scalar(Scalar::Null);
    let value = |pointer| Some((pointer, value_at(raw, pointer).filter(|value| **value != null)?));
    part.pointers().iter().find_map(value)
}

fn value_at<'v>(raw: &'v Value, pointer: &Pointer) -> Option<&'v Value> {
    pointer.iter().try_fold(raw, |value, token| match value {
        Value::List(elements) => elements.get(index(token)?),
        value => value.get(token),
    })
}

/// The first record that is an object, without the members that contain a document.
fn envelope(raw: &Value, layout: &EventLayout) -> Option<Value> {
    layout.records().find_map(|pointer| match value_at(raw, pointer)? {
        Value::Map(members) => {
            let documents = layout.documents_in(pointer);
            let others = members.iter().filter(|(name, _)| !documents.contains(&&**name));
            Some(Value::object(others.cloned().collect()))
        }
        _ => None,
    })
}

/// Whether the subscription's types, topic, filters and pattern are all true; tenant, collection, groups and `cel` are
/// ignored.
pub fn wants(subscription: &Subscription, event: &NaiveEvent) -> bool {
    subscription.types.as_ref().is_none_or(|types| event.event_type.is_some_and(|kind| types.contains(&kind)))
        && subscription.topic.as_ref().is_none_or(|pattern| event.topic.as_ref().is_some_and(|key| pattern.matches(key)))
        && subscription.filters.iter().all(|filter| filter_holds(filter, event))
        && subscription.pattern.as_ref().is_none_or(|pattern| pattern_holds(pattern, &event.raw))
}

/// The value at a path of member names. An error stands for a number beyond float64 along it.
fn read<'v>(document: Option<&'v Value>, path: &[Box<str>]) -> Result<Option<&'v Value>, ()> {
    let mut value = document;
    for name in path {
        match value {
            Some(Value::BeyondFloat(_)) => return Err(()),
            Some(object) => value = object.get(name),
            None => return Ok(None),
        }
    }
    Ok(value)
}

/// Whether a filter is true: neither false nor an error.
pub fn filter_holds(filter: &Filter, event: &NaiveEvent) -> bool {
    let document = if filter.path.root == Root::Envelope { &event.envelope } else { &event.data };
    let now = read(document.as_ref(), &filter.path.names);
    let then = read(event.before.as_ref(), &filter.path.names);
    let value = &filter.value;
    // True, false, or None for an error.
    let is = |side: Result<Option<&Value>, ()>| match side {
        Ok(Some(actual)) => actual.equals(value),
        Ok(None) => Some(false),
        Err(()) => None,
    };
    match filter.op {
        Operator::Exists => match now {
            Ok(member) => member.is_some() == (*value == Value::Scalar(Scalar::Bool(true))),
            Err(()) => false,
        },
        Operator::Changed => match (now, then) {
            (Ok(Some(now)), Ok(Some(then))) => now.equals(then) == Some(false),
            (Ok(now), Ok(then)) => now.is_some() != then.is_some(),
            _ => false,
        },
        Operator::ChangedTo => is(now) == Some(true) && is(then) == Some(false),
        Operator::ChangedFrom => is(then) == Some(true) && is(now) == Some(false),
        op => match now {
            Ok(Some(actual)) if actual.kind() != Kind::BeyondFloat && filter.ignore_case && op != Operator::Matches => {
                compares(op, filter, &folded(actual))
            }
            Ok(Some(actual)) if actual.kind() != Kind::BeyondFloat => compares(op, filter, actual),
            _ => false,
        },
    }
}

fn compares(op: Operator, filter: &Filter, actual: &Value) -> bool {
    let value = &filter.value;
    let items = || if let Value::List(items) = value { &items[..] } else { &[] };
    let text = || actual.as_str().zip(value.as_str());
    match op {
        Operator::Equal => actual.equals(value) == Some(true),
        Operator::NotEqual => actual.equals(value) == Some(false),
        Operator::In => items().iter().any(|item| actual.equals(item) == Some(true)),
        Operator::NotIn => items().iter().all(|item| actual.equals(item) == Some(false)),
        Operator::Contains => match actual {
            Value::List(elements) => elements.iter().any(|element| element.equals(value) == Some(true)),
            _ => text().is_some_and(|(actual, value)| actual.contains(value)),
        },
        Operator::StartsWith => text().is_some_and(|(actual, value)| actual.starts_with(value)),
        Operator::EndsWith => text().is_some_and(|(actual, value)| actual.ends_with(value)),
        Operator::Matches => actual
            .as_str()
            .zip(filter.regexp.as_ref())
            .is_some_and(|(actual, regexp)| CompiledRegexp::compile(regexp).is_ok_and(|program| program.search(actual))),
        Operator::Less => order(actual, value).is_some_and(Ordering::is_lt),
        Operator::LessOrEqual => order(actual, value).is_some_and(Ordering::is_le),
        Operator::Greater => order(actual, value).is_some_and(Ordering::is_gt),
        Operator::GreaterOrEqual => order(actual, value).is_some_and(Ordering::is_ge),
        // The others look at more than one value.
        Operator::Exists | Operator::Changed | Operator::ChangedTo | Operator::ChangedFrom => false,
    }
}

/// How two values of one kind are ordered; there is none between other values.
fn order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Scalar(Scalar::Number(one)), Value::Scalar(Scalar::Number(other))) => Some(one.cmp(other)),
        (Value::Scalar(Scalar::String(one)), Value::Scalar(Scalar::String(other))) => Some(one.cmp(other)),
        (Value::Scalar(Scalar::Bool(one)), Value::Scalar(Scalar::Bool(other))) => Some(one.cmp(other)),
        _ => None,
    }
}

/// Whether a pattern matches an event: some choice of alternatives, and for it some choice of elements.
pub fn pattern_holds(pattern: &AllOf, raw: &Value) -> bool {
    choose(vec![pattern], Vec::new(), raw)
}

/// Split the patterns; *fields* are the fields that are required so far.
fn choose<'p>(mut pending: Vec<&'p AllOf>, mut fields: Vec<&'p Field>, raw: &Value) -> bool {
    let Some(pattern) = pending.pop() else {
        let needed: Vec<(&[Box<str>], &Field)> = fields
            .iter()
            .filter(|field| !field.atoms.contains(&Atom::kind(Kind::Missing)) || has_leaf(raw, &field.path))
            .map(|field| (&field.path[..], *field))
            .collect();
        return satisfiable(raw, &needed);
    };
    fields.extend(&pattern.fields);
    choose_each(&pattern.any_of, pending, fields, raw)
}

fn choose_each<'p>(any_of: &'p [Vec<AllOf>], pending: Vec<&'p AllOf>, fields: Vec<&'p Field>, raw: &Value) -> bool {
    match any_of {
        [] => choose(pending, fields, raw),
        [alternatives, rest @ ..] => alternatives.iter().any(|alternative| {
            let mut pending = pending.clone();
            pending.push(alternative);
            choose_each(rest, pending, fields.clone(), raw)
        }),
    }
}

/// Whether one choice of elements has a leaf for each field, whose paths continue from here.
///
/// Within one value all fields that go through an array go through the same one, so one of its elements must satisfy all.
fn satisfiable(value: &Value, fields: &[(&[Box<str>], &Field)]) -> bool {
    if fields.is_empty() {
        return true;
    }
    match value {
        Value::List(elements) => elements.iter().any(|element| satisfiable(element, fields)),
        Value::Map(_) => {
            let mut names: Vec<&str> = Vec::new();
            for (path, _) in fields {
                match path.first() {
                    Some(name) if !names.contains(&&**name) => names.push(name),
                    Some(_) => {}
                    None => return false,
                }
            }
            names.iter().all(|name| {
                let below: Vec<_> =
                    fields.iter().filter(|(path, _)| *path[0] == **name).map(|(path, f)| (&path[1..], *f)).collect();
                value.get(name).is_some_and(|member| satisfiable(member, &below))
            })
        }
        leaf => fields.iter().all(|(path, field)| path.is_empty() && field.atoms.iter().any(|atom| leaf_holds(atom, leaf))),
    }
}

fn has_leaf(value: &Value, path: &[Box<str>]) -> bool {
    match (value, path) {
        (Value::List(elements), path) => elements.iter().any(|element| has_leaf(element, path)),
        (Value::Map(_), [name, rest @ ..]) => value.get(name).is_some_and(|member| has_leaf(member, rest)),
        (Value::Map(_), []) => false,
        (_, path) => path.is_empty(),
    }
}

/// Whether a leaf satisfies a condition of a pattern.
fn leaf_holds(atom: &Atom, leaf: &Value) -> bool {
    match atom {
        Atom::Equal(scalar) => matches!(leaf, Value::Scalar(observed) if observed == scalar),
        Atom::Numbers(range) => matches!(leaf, Value::Scalar(Scalar::Number(number)) if range.contains(number)),
        Atom::Kinds(kinds) => kinds.has(leaf.kind()),
        Atom::Other { kinds, none_of } => kinds.has(leaf.kind()) && !none_of.iter().any(|atom| leaf_holds(atom, leaf)),
        atom => leaf.as_str().is_some_and(|text| text_holds(atom, text)),
    }
}

fn text_holds(atom: &Atom, text: &str) -> bool {
    match atom {
        Atom::Prefix(operand) => text.starts_with(&**operand),
        Atom::Suffix(operand) => text.ends_with(&**operand),
        Atom::PrefixIgnoreCase(operand) => fold(text).starts_with(&**operand),
        Atom::SuffixIgnoreCase(operand) => fold(text).ends_with(&**operand),
        Atom::EqualIgnoreCase(operand) => fold(text) == **operand,
        Atom::Wildcard(pieces) => wildcard_matches(pieces.iter().map(|piece| &**piece), text),
        Atom::Regexp(regexp) => CompiledRegexp::compile(regexp).is_ok_and(|program| program.search(text)),
        Atom::Cidr(net) => parse_address(text).is_some_and(|address| net_holds(*net, address)),
        _ => false,
    }
}
