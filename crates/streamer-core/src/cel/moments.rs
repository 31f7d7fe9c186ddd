//! Times as points of a line: a comparison of `timestamp(data.t)` or `duration(data.d)` with a constant is a range of
//! nanoseconds, and an index over ranges finds it.
//!
//! ```text
//!   timestamp(data.t) < timestamp('2024-03-01T00:00:00Z')      Times(Timestamps, < 1709251200000000000)
//!   "2024-02-29T23:59:59.5+00:00"  ─ read ─►  1709251199500000000 ─►  within
//!   "yesterday", 1.5, null         ─ read ─►  nothing: an error of CEL, and no range holds nothing
//! ```
//!
//! A number of seconds is a timestamp only where it is spelled as an integer, so it is read from the event's text.
//!
//! Rejected: the text itself as the key. RFC 3339 sorts as its texts do only in one zone and with equally long fractions.

use super::ast::{Ast, BinaryOp, Constant, Function, Node, NodeId};
use super::atoms::unwrap;
use super::times::{Timestamp, duration, format_duration, format_timestamp, parse_duration, parse_timestamp};
use crate::flatten::Leaf;
use crate::value::{Kind, Number};

/// Which of CEL's functions reads a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Times {
    /// `timestamp(x)`: a string, or seconds since the epoch.
    Timestamps,
    /// `duration(x)`: a string.
    Durations,
}

impl Times {
    /// What it makes of a value of an event, in nanoseconds; `None` is CEL's error.
    pub fn read(self, leaf: &Leaf<'_>) -> Option<Number> {
        let ns = match (self, leaf.kind()) {
            (Times::Timestamps, Kind::String) => parse_timestamp(leaf.text()?).ok()?.ns(),
            (Times::Timestamps, Kind::Number) => of_seconds(leaf.raw().parse().ok()?)?,
            (Times::Durations, Kind::String) => parse_duration(leaf.text()?).ok()?.into(),
            _ => return None,
        };
        Some(Number::from_nanoseconds(ns))
    }

    /// A bound, as CEL writes it.
    pub fn in_words(self, bound: Number) -> String {
        match self {
            Times::Timestamps => Timestamp::of(bound.nanoseconds()).map_or_else(|_| bound.to_string(), format_timestamp),
            Times::Durations => duration(bound.nanoseconds()).map_or_else(|_| bound.to_string(), format_duration),
        }
    }

    /// The name of the function.
    pub fn as_str(self) -> &'static str {
        match self {
            Times::Timestamps => "timestamp",
            Times::Durations => "duration",
        }
    }
}

fn of_seconds(seconds: i64) -> Option<i128> {
    Timestamp::of(i128::from(seconds) * 1_000_000_000).ok().map(Timestamp::ns)
}

/// Which function a call is of.
pub(super) fn function(function: Function) -> Option<Times> {
    match function {
        Function::Timestamp => Some(Times::Timestamps),
        Function::Duration => Some(Times::Durations),
        _ => None,
    }
}

/// What reading a constant came to.
pub(super) enum Moment {
    /// So many nanoseconds.
    At(Times, i128),
    /// An error, whatever the event.
    Error,
}

/// A time that no event changes: `timestamp('2024-01-01T00:00:00Z') - duration('1h')`. Recursive: the parser limits the depth.
pub(super) fn constant(ast: &Ast, id: NodeId) -> Option<Moment> {
    match &ast[unwrap(ast, id)] {
        Node::Call { function: called, args } => {
            let of = function(*called)?;
            let [argument] = &args[..] else { return None };
            let read = match (of, &ast[unwrap(ast, *argument)]) {
                (Times::Timestamps, Node::Literal(Constant::String(text))) => parse_timestamp(text).ok().map(Timestamp::ns),
                (Times::Timestamps, Node::Literal(Constant::Int(seconds))) => of_seconds(*seconds),
                (Times::Durations, Node::Literal(Constant::String(text))) => parse_duration(text).ok().map(i128::from),
                _ => return None,
            };
            Some(read.map_or(Moment::Error, |ns| Moment::At(of, ns)))
        }
        Node::Operation { first, rest } => rest.iter().try_fold(constant(ast, *first)?, |sum, one| {
            let (Moment::At(left, a), Moment::At(right, b)) = (sum, constant(ast, one.operand)?) else {
                return Some(Moment::Error);
            };
            let (of, ns) = match (left, one.op, right) {
                (Times::Timestamps, BinaryOp::Add, Times::Durations) | (Times::Durations, BinaryOp::Add, Times::Timestamps) => {
                    (Times::Timestamps, a + b)
                }
                (Times::Timestamps, BinaryOp::Subtract, Times::Durations) => (Times::Timestamps, a - b),
                (Times::Timestamps, BinaryOp::Subtract, Times::Timestamps) => (Times::Durations, a - b),
                (Times::Durations, BinaryOp::Add, Times::Durations) => (Times::Durations, a + b),
                (Times::Durations, BinaryOp::Subtract, Times::Durations) => (Times::Durations, a - b),
                _ => return None,
            };
            let is_in_range = match of {
                Times::Timestamps => Timestamp::of(ns).is_ok(),
                Times::Durations => duration(ns).is_ok(),
            };
            Some(if is_in_range { Moment::At(of, ns) } else { Moment::Error })
        }),
        _ => None,
    }
}
