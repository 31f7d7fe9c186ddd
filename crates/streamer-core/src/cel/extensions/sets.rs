//! The library sets: lists as sets, whose elements are equal as by `==`. An error is absorbed as by `all` and `exists`.

use super::super::evaluate::{Result, Run};
use super::super::types::Name::{Bool, List};
use super::super::values::Value;
use super::{Overload, Row, row, unfit};

const SETS: &[Overload] = &[(&[List, List], Bool)];

pub(super) const ROWS: &[Row] =
    &[row("sets.contains", SETS, contains), row("sets.equivalent", SETS, equivalent), row("sets.intersects", SETS, intersects)];

fn contains<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(items), Value::List(wanted)] = *args else { return unfit(run, args) };
    any(run, wanted, items, false)
}

fn intersects<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(one), Value::List(other)] = *args else { return unfit(run, args) };
    any(run, one, other, true)
}

fn equivalent<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(one), Value::List(other)] = *args else { return unfit(run, args) };
    let first = any(run, other, one, false)?;
    if matches!(first, Value::Bool(false)) {
        return Ok(first);
    }
    let second = any(run, one, other, false)?;
    Ok(match (first, second) {
        (_, Value::Bool(false)) | (Value::Bool(true), _) => second,
        _ => first,
    })
}

/// Whether the membership of an item in *among* is ever *decisive*; else the first error, or the opposite.
fn any<'r>(run: &mut Run<'r>, items: &'r [Value<'r>], among: &'r [Value<'r>], decisive: bool) -> Result<Value<'r>> {
    let mut error = None;
    for item in items {
        run.charge(1)?;
        match run.is_member(*item, among)? {
            Value::Bool(is_member) if is_member == decisive => return Ok(Value::Bool(decisive)),
            failure @ Value::Failure(_) => error = error.or(Some(failure)),
            _ => {}
        }
    }
    Ok(error.unwrap_or(Value::Bool(!decisive)))
}
