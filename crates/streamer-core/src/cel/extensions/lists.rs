//! The library lists.

use super::super::ast::TypeName;
use super::super::evaluate::{Result, Run};
use super::super::outcome::Reason;
use super::super::types::Name::{Int, List};
use super::super::values::{Detail, Value};
use super::{Overload, Row, row, unfit, unreadable};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::mem::discriminant;

const LIST: &[Overload] = &[(&[List], List)];

pub(super) const ROWS: &[Row] = &[
    row("distinct", LIST, distinct),
    row("flatten", &[(&[List], List), (&[List, Int], List)], flatten),
    row("lists.range", &[(&[Int], List)], range),
    row("slice", &[(&[List, Int, Int], List)], slice),
    row("sort", LIST, sort),
];

fn slice<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(items), Value::Int(start), Value::Int(end)] = *args else { return unfit(run, args) };
    let place = |index: i64| usize::try_from(index).ok().filter(|index| *index <= items.len());
    let Some(from) = place(start) else { return Ok(run.out_of_range(start, items.len(), "list")) };
    let Some(to) = place(end) else { return Ok(run.out_of_range(end, items.len(), "list")) };
    let Some(part) = items.get(from..to) else {
        return Ok(run.fail(Reason::IndexOutOfRange, Detail::Words("a part of a list that ends before it starts")));
    };
    run.charge(part.len())?;
    Ok(Value::List(part))
}

fn flatten<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let (items, depth) = match *args {
        [Value::List(items)] => (items, 1),
        [Value::List(items), Value::Int(depth)] => (items, depth),
        _ => return unfit(run, args),
    };
    let Ok(depth) = usize::try_from(depth) else { return Ok(run.bad_value("flatten to a negative depth")) };
    let mut made = Vec::new();
    // The lists may be deeper than the stack.
    let mut pending = vec![items.iter()];
    while let Some(rest) = pending.last_mut() {
        let Some(item) = rest.next() else {
            pending.pop();
            continue;
        };
        run.charge(1)?;
        match item {
            Value::List(items) if pending.len() <= depth => pending.push(items.iter()),
            item => made.push(*item),
        }
    }
    Ok(run.list_of(&made))
}

fn range<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::Int(count)] = *args else { return unfit(run, args) };
    let count = usize::try_from(count).unwrap_or(0);
    run.charge(count)?;
    Ok(Value::List(run.arena.alloc_slice_fill_with(count, |index| Value::Int(index as i64))))
}

/// A value that is neither a list nor a map, for a set: numbers of any type are equal by value.
#[derive(PartialEq, Eq, Hash)]
enum Scalar<'r> {
    Null,
    Bool(bool),
    Whole(i128),
    /// The bits of a double that is not whole, or beyond `i128`.
    Double(u64),
    String(&'r str),
    Bytes(&'r [u8]),
    Timestamp(i64, u32),
    Duration(i64),
    Type(TypeName),
}

impl<'r> Scalar<'r> {
    fn of(value: Value<'r>) -> Scalar<'r> {
        match value {
            Value::Bool(truth) => Scalar::Bool(truth),
            Value::Int(number) => Scalar::Whole(number.into()),
            Value::Uint(number) => Scalar::Whole(number.into()),
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e38 => Scalar::Whole(number as i128),
            Value::Double(number) => Scalar::Double(number.to_bits()),
            Value::String(text) => Scalar::String(text),
            Value::Bytes(bytes) => Scalar::Bytes(bytes),
            Value::Timestamp(moment) => Scalar::Timestamp(moment.seconds, moment.nanos),
            Value::Duration(ns) => Scalar::Duration(ns),
            Value::Type(name) => Scalar::Type(name),
            _ => Scalar::Null,
        }
    }
}

fn distinct<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(items)] = *args else { return unfit(run, args) };
    let mut made = Vec::new();
    let mut scalars = HashSet::new();
    let mut containers = Vec::new();
    for item in items {
        run.charge(1)?;
        let is_new = match *item {
            Value::Failure(_) => return Ok(*item),
            Value::List(_) | Value::Map(_) | Value::Optional(_) => match run.is_member(*item, &containers)? {
                Value::Bool(known) => {
                    if !known {
                        containers.push(*item);
                    }
                    !known
                }
                failure => return Ok(failure),
            },
            // It differs from itself.
            Value::Double(number) if number.is_nan() => true,
            value => {
                if let Value::String(text) = value {
                    run.charge_text(text.len())?;
                } else if let Value::Bytes(bytes) = value {
                    run.charge_text(bytes.len())?;
                }
                scalars.insert(Scalar::of(value))
            }
        };
        if is_new {
            made.push(*item);
        }
    }
    Ok(run.list_of(&made))
}

fn sort<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::List(items)] = *args else { return unfit(run, args) };
    run.sorted_by("sort", items, items)
}

impl<'r> Run<'r> {
    /// Sort *items* in the order of their *keys*, which have one type that has an order.
    pub(in super::super) fn sorted_by(
        &mut self,
        name: &'static str,
        items: &[Value<'r>],
        keys: &[Value<'r>],
    ) -> Result<Value<'r>> {
        if let Some(failure) = unreadable(keys) {
            return Ok(failure);
        }
        let mut bytes = 0;
        for key in keys {
            match key {
                _ if discriminant(key) != discriminant(&keys[0]) => return Ok(self.no_overload(name, &[keys[0], *key])),
                Value::Double(number) if number.is_nan() => return Ok(self.bad_value("NaN has no order")),
                Value::String(text) => bytes += text.len(),
                Value::Bytes(octets) => bytes += octets.len(),
                Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bool(_) | Value::Timestamp(_) | Value::Duration(_) => {
                }
                _ => return Ok(self.no_overload(name, &[keys[0], *key])),
            }
        }
        self.charge_sorting(keys.len(), bytes)?;
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|one, other| compare(keys[*one], keys[*other]));
        let sorted: Vec<Value<'r>> = order.into_iter().map(|index| items[index]).collect();
        Ok(self.list_of(&sorted))
    }
}

/// The order of two values of one type that has one, without NaN.
fn compare(one: Value<'_>, other: Value<'_>) -> Ordering {
    one.order(other).flatten().unwrap_or(Ordering::Equal)
}
