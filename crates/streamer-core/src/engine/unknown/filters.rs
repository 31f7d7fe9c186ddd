//! A filter on an event with unknown values: true, false, an error or unknown (semantics.md sections 3, 4 and 8).
//!
//! Reading a path gives a [`Reading`]: a value, or why there is none. A number beyond float64 is there (`exists`), but to read
//! it is an error, also on the way to a field below it. An unknown value hides what it covers; where the document ends above an unknown value,
//! what lies on the way to the unknown value is unknown too.

use super::tree::UnknownTree;
use crate::cel::Verdict;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::filters::Filter;
use crate::subscriptions::operators::Operator;
use crate::value::{Scalar, Value};
use std::cmp::Ordering;

/// A document of one side, and what is unknown in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialDocument<'e> {
    value: Option<&'e Value>,
    unknown: &'e UnknownTree,
    /// The pointers' steps from the document on; None where none goes that way.
    at: Option<u32>,
    is_covered: bool,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'e> {
    /// Whether every step is there: false also where a step on the way is no object, an error where one cannot be read.
    present: Verdict,
    /// The value, where it is known.
    pub value: Option<&'e Value>,
    /// True if CEL could read the value, else an error or unknown.
    pub verdict: Verdict,
    /// Whether each step but the last leads to an object.
    on_the_way: bool,
}

pub(super) fn of(value: bool) -> Verdict {
    if value { Verdict::True } else { Verdict::False }
}

/// Combine by `&&`: false absorbs, then unknown beats an error.
pub(super) fn all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    let mut found = Verdict::True;
    for verdict in verdicts {
        found = match (found, verdict) {
            (Verdict::False, _) | (_, Verdict::False) => return Verdict::False,
            (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
            (Verdict::Error, _) | (_, Verdict::Error) => Verdict::Error,
            _ => Verdict::True,
        };
    }
    found
}

/// Combine by `||`.
fn any(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    negate(all(verdicts.into_iter().map(negate)))
}

fn negate(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::True => Verdict::False,
        Verdict::False => Verdict::True,
        other => other,
    }
}

impl<'e> PartialDocument<'e> {
    /// The document that stands at the pointer *at*.
    pub fn new(value: Option<&'e Value>, at: Option<&[Box<str>]>, unknown: &'e UnknownTree) -> PartialDocument<'e> {
        let mut document = PartialDocument { value, unknown, at: unknown.root(), is_covered: false };
        match at {
            None => document.at = None,
            Some(tokens) => {
                for token in tokens {
                    document.step(token);
                }
            }
        }
        document
    }

    fn step(&mut self, token: &str) {
        if let Some(at) = self.at {
            self.is_covered |= self.unknown.node(at).is_end;
            self.at = self.unknown.step(at, token);
        }
    }

    /// Follow a path of member names.
    pub fn read(mut self, path: &[Box<str>]) -> Reading<'e> {
        let absent = |present, verdict, on_the_way| Reading { present, value: None, verdict, on_the_way };
        let unknown = absent(Verdict::Unknown, Verdict::Unknown, true);
        for depth in 0..=path.len() {
            if self.is_covered || self.at.is_some_and(|at| self.unknown.node(at).is_end) {
                return unknown;
            }
            let Some(value) = self.value else {
                if self.at.is_some() {
                    return unknown;
                }
                return absent(Verdict::False, Verdict::Error, depth > 0);
            };
            let is_beyond = matches!(value, Value::BeyondFloat(_));
            let Some(name) = path.get(depth) else {
                let verdict = match (is_beyond, self.at) {
                    (true, _) => Verdict::Error,
                    (false, Some(_)) => Verdict::Unknown,
                    (false, None) => Verdict::True,
                };
                return Reading { present: Verdict::True, value: Some(value), verdict, on_the_way: true };
            };
            if is_beyond {
                return absent(Verdict::Error, Verdict::Error, false);
            }
            if !matches!(value, Value::Map(_)) {
                return absent(Verdict::False, Verdict::Error, false);
            }
            self.value = value.get(name);
            self.step(name);
        }
        unknown // cannot be: the loop ends at the last step
    }
}

/// What is known of a filter.
pub(super) fn filter(filter: &Filter, data: PartialDocument<'_>, before: PartialDocument<'_>) -> Verdict {
    let now = data.read(&filter.path);
    let value = &filter.value;
    match filter.op {
        Operator::Exists if *value == Value::Scalar(Scalar::Bool(true)) => {
            if now.on_the_way || now.present != Verdict::False {
                now.present
            } else {
                Verdict::Error
            }
        }
        Operator::Exists => negate(now.present),
        Operator::ChangedTo => all([is(now, value), negate(is(before.read(&filter.path), value))]),
        Operator::ChangedFrom => all([is(before.read(&filter.path), value), negate(is(now, value))]),
        Operator::Changed => changed(now, before.read(&filter.path)),
        op => match now.value {
            Some(seen) if now.verdict == Verdict::True => compare(op, filter, seen),
            _ => now.verdict,
        },
    }
}

fn changed(now: Reading<'_>, then: Reading<'_>) -> Verdict {
    let both = all([now.present, then.present]);
    match (both, now.value, then.value) {
        (Verdict::True, Some(one), Some(other)) => {
            let readable = [Verdict::Unknown, Verdict::Error];
            let strictly = readable.into_iter().find(|verdict| [now.verdict, then.verdict].contains(verdict));
            strictly.unwrap_or_else(|| negate(equal(other, one)))
        }
        (Verdict::False, ..) => any([now.present, then.present]),
        _ => both,
    }
}

/// Whether the value is present and equal to *value*.
fn is(reading: Reading<'_>, value: &Value) -> Verdict {
    let equal = match reading.value {
        Some(seen) if reading.verdict == Verdict::True => equal(seen, value),
        _ => reading.verdict,
    };
    all([reading.present, equal])
}

fn equal(one: &Value, other: &Value) -> Verdict {
    one.equals(other).map_or(Verdict::Error, of)
}

/// Apply an operator to a value that CEL can read.
fn compare(op: Operator, filter: &Filter, seen: &Value) -> Verdict {
    let value = &filter.value;
    let items = || if let Value::List(items) = value { &items[..] } else { &[] };
    let member = |item: &Value, items: &[Value]| any(items.iter().map(|candidate| equal(item, candidate)));
    let texts = |holds: &dyn Fn(&str, &str) -> bool| match (seen.as_str(), value.as_str()) {
        (Some(seen), Some(value)) => of(holds(seen, value)),
        _ => Verdict::Error,
    };
    let order = |holds: &dyn Fn(Ordering) -> bool| order(seen, value).map_or(Verdict::Error, |found| of(holds(found)));
    match op {
        Operator::Equal => equal(seen, value),
        Operator::NotEqual => negate(equal(seen, value)),
        Operator::In => member(seen, items()),
        Operator::NotIn => negate(member(seen, items())),
        Operator::Contains => match seen {
            Value::List(elements) => member(value, elements),
            _ => texts(&|seen, value| seen.contains(value)),
        },
        Operator::StartsWith => texts(&|seen, value| seen.starts_with(value)),
        Operator::EndsWith => texts(&|seen, value| seen.ends_with(value)),
        Operator::Matches => texts(&|seen, _| {
            let program = filter.regexp.as_ref().and_then(|regexp| CompiledRegexp::compile(regexp).ok());
            program.is_some_and(|program| program.search(seen))
        }),
        Operator::Less => order(&|found| found.is_lt()),
        Operator::LessOrEqual => order(&|found| found.is_le()),
        Operator::Greater => order(&|found| found.is_gt()),
        Operator::GreaterOrEqual => order(&|found| found.is_ge()),
        // The others look at more than one value.
        Operator::Exists | Operator::Changed | Operator::ChangedTo | Operator::ChangedFrom => Verdict::Error,
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
