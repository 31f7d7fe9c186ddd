//! Optional types: a value or none. `.?name` and `[?key]` return one; on one, `.name` and `[key]` do the same.
//!
//! An optional whose value has unknown values below is a [`Partial`] of the optional, so that it is unknown for everything
//! that does not continue into it.

use super::super::ast::{Function, Macro, MacroKind};
use super::super::evaluate::{Result, Run, stopped};
use super::super::macros;
use super::super::outcome::Reason;
use super::super::times::Timestamp;
use super::super::types::Name::{Bool, Dyn, List, Optional};
use super::super::values::{Partial, Value};
use super::{Overload, Row, row, unfit};

const OF_LIST: &[Overload] = &[(&[List], Optional)];
const UNWRAP: &[Overload] = &[(&[List], List)];

pub(super) const ROWS: &[Row] = &[
    row("first", OF_LIST, |run, args| at_end(run, args, <[Value<'_>]>::first)),
    row("hasValue", &[(&[Optional], Bool)], |_, args| Ok(Value::Bool(!matches!(args, [Value::Optional(None)])))),
    row("last", OF_LIST, |run, args| at_end(run, args, <[Value<'_>]>::last)),
    row("optional.none", &[(&[], Optional)], |_, _| Ok(NONE)),
    row("optional.of", &[(&[Dyn], Optional)], of),
    row("optional.ofNonZeroValue", &[(&[Dyn], Optional)], of_non_zero),
    row("optional.unwrap", UNWRAP, unwrap),
    row("or", &[(&[Optional, Optional], Optional)], or_else),
    row("orValue", &[(&[Optional, Dyn], Dyn)], or_else),
    row("unwrapOpt", UNWRAP, unwrap),
    row("value", &[(&[Optional], Dyn)], value),
];

/// The optional without a value.
pub(in super::super) const NONE: Value<'static> = Value::Optional(None);

/// Whether a value is an optional.
#[inline]
pub(in super::super) fn is_optional(value: Value<'_>) -> bool {
    match value {
        Value::Optional(_) => true,
        Value::Partial(partial) => matches!(partial.value, Value::Optional(_)),
        _ => false,
    }
}

fn of<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [value] = *args else { return unfit(run, args) };
    Ok(run.some(value))
}

fn of_non_zero<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [value] = *args else { return unfit(run, args) };
    Ok(if is_zero(value) { NONE } else { run.some(value) })
}

fn is_zero(value: Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) | Value::Optional(None) => true,
        Value::Double(number) => number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.entries.is_empty(),
        // The first moment of the year 1.
        Value::Timestamp(moment) => moment == Timestamp { seconds: -62_135_596_800, nanos: 0 },
        _ => false,
    }
}

/// The argument, if the optional that `or` or `orValue` is called on has no value; see [`Run::early`] for the other case.
fn or_else<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::Optional(None), other] = *args else { return unfit(run, args) };
    Ok(other)
}

fn value<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    match *args {
        [Value::Optional(Some(value))] => Ok(*value),
        [Value::Optional(None)] => Ok(run.bad_value("the optional has no value")),
        _ => unfit(run, args),
    }
}

fn at_end<'r>(
    run: &mut Run<'r>,
    args: &[Value<'r>],
    end: for<'a> fn(&'a [Value<'r>]) -> Option<&'a Value<'r>>,
) -> Result<Value<'r>> {
    let [Value::List(items)] = *args else { return unfit(run, args) };
    Ok(match end(items).copied() {
        None => NONE,
        Some(failure @ Value::Failure(_)) => failure,
        Some(item) => run.some(item),
    })
}

fn unwrap<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(items)] = *args else { return unfit(run, args) };
    run.charge(items.len())?;
    let mut made = Vec::with_capacity(items.len());
    for item in items {
        match *item {
            Value::Optional(value) => made.extend(value),
            item => return Ok(stopped(item).unwrap_or_else(|| run.no_overload("unwrap", &[item]))),
        }
    }
    Ok(run.list_of(&made))
}

impl<'r> Run<'r> {
    /// An optional with a value, which is neither an error nor unknown.
    fn some(&self, value: Value<'r>) -> Value<'r> {
        match value {
            Value::Partial(partial) => {
                let value = Value::Optional(Some(&partial.value));
                Value::Partial(self.arena.alloc(Partial { value, unknown: partial.unknown }))
            }
            value => Value::Optional(Some(self.arena.alloc(value))),
        }
    }

    /// The value of an optional, if it has one; any other value as it is.
    pub(in super::super) fn content(&self, value: Value<'r>) -> Option<Value<'r>> {
        match value {
            Value::Optional(value) => value.copied(),
            Value::Partial(Partial { value: Value::Optional(value), unknown }) => {
                let value = (*value)?;
                Some(Value::Partial(self.arena.alloc(Partial { value: *value, unknown: *unknown })))
            }
            value => Some(value),
        }
    }

    /// The result of a select or an index of *operands* as an optional: none if only the member is missing.
    pub(in super::super) fn result_or_none(&self, result: Value<'r>, operands: &[Value<'r>]) -> Value<'r> {
        match result {
            Value::Unknown => result,
            Value::Failure(failure) => {
                let is_absent = matches!(failure.reason, Reason::NoSuchField | Reason::IndexOutOfRange);
                let is_own = !operands.iter().any(|operand| matches!(operand, Value::Failure(_)));
                if is_absent && is_own { NONE } else { result }
            }
            result => self.some(result),
        }
    }

    /// `value[?key]`.
    pub(in super::super) fn find(&mut self, value: Value<'r>, key: Value<'r>) -> Result<Value<'r>> {
        let Some(inner) = self.content(value) else { return Ok(stopped(key).unwrap_or(NONE)) };
        let member = self.index(inner, key)?;
        Ok(self.result_or_none(member, &[inner, key]))
    }

    /// The result of a method of an optional that needs neither its arguments nor the unknown values.
    pub(in super::super) fn early(&self, function: Function, value: Value<'r>) -> Option<Value<'r>> {
        let Function::Extension(extension) = function else { return None };
        let row = extension.row();
        if !row.is_lazy() && !matches!(row.name, "hasValue" | "value") {
            return None;
        }
        if !is_optional(value) {
            return stopped(value).filter(|_| row.is_lazy());
        }
        let inner = self.content(value)?;
        Some(match row.name {
            "hasValue" => Value::Bool(true),
            "or" => value,
            _ => inner,
        })
    }

    /// `optMap` and `optFlatMap`.
    pub(in super::super) fn optional_macro(&mut self, step: &'r Macro, value: Value<'r>) -> Result<Value<'r>> {
        if !is_optional(value) {
            return Ok(stopped(value).unwrap_or_else(|| self.no_overload(macros::name(step.kind), &[value])));
        }
        let (Some(inner), Some(result)) = (self.content(value), step.result) else { return Ok(NONE) };
        self.charge(1)?;
        self.locals[step.slot as usize] = inner;
        let result = self.evaluate(result)?;
        Ok(match result {
            Value::Unknown | Value::Failure(_) => result,
            _ if step.kind == MacroKind::OptMap => self.some(result),
            _ if is_optional(result) => result,
            _ => stopped(result).unwrap_or_else(|| self.no_overload(macros::name(step.kind), &[result])),
        })
    }
}
