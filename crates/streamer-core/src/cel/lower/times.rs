//! Times that no event changes: `timestamp('2024-01-01T00:00:00Z') - duration('1h')`.

use super::reads::unwrap;
use crate::cel::ast::{Ast, BinaryOp, Constant, Function, Node, NodeId};
use crate::cel::moments::{Times, of_seconds};
use crate::cel::times::{Timestamp, duration, parse_duration, parse_timestamp};

/// Which function a call is of.
pub(super) fn function(function: Function) -> Option<Times> {
    match function {
        Function::Timestamp => Some(Times::Timestamps),
        Function::Duration => Some(Times::Durations),
        _ => None,
    }
}

/// The result of reading a constant.
pub(super) enum Moment {
    /// This many nanoseconds.
    At(Times, i128),
    /// An error, for every event.
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
