//! Equality, order and membership: numbers by mathematical value, containers in order and deep first, without recursion.

use super::ast::BinaryOp;
use super::evaluate::{Result, Run, lookup};
use super::values::{Below, Key, Map, Partial, Value};
use std::cmp::Ordering;

/// The pairs still to compare of two containers of equal size.
enum Pairs<'r> {
    Lists(&'r [Value<'r>], &'r [Value<'r>]),
    Maps(&'r [(Key<'r>, Value<'r>)], &'r Map<'r>),
}

impl<'r> Run<'r> {
    /// Compare up to the first difference. Return a bool, or the error of an unreadable element if the rest is equal.
    pub(super) fn equal(&mut self, one: Value<'r>, other: Value<'r>) -> Result<Value<'r>> {
        let mut error = None;
        let mut open: Vec<Pairs<'r>> = Vec::new();
        let mut pair = (one, other);
        loop {
            match pair {
                (failure @ Value::Failure(_), _) | (_, failure @ Value::Failure(_)) => error = error.or(Some(failure)),
                (Value::List(one), Value::List(other)) if one.len() == other.len() => open.push(Pairs::Lists(one, other)),
                (Value::Map(one), Value::Map(other)) if one.entries.len() == other.entries.len() => {
                    open.push(Pairs::Maps(one.entries, other));
                }
                (Value::Optional(Some(one)), Value::Optional(Some(other))) => {
                    open.push(Pairs::Lists(std::slice::from_ref(one), std::slice::from_ref(other)));
                }
                (one, other) => {
                    if !self.equal_scalars(one, other)? {
                        return Ok(Value::Bool(false));
                    }
                }
            }
            pair = loop {
                match open.last_mut() {
                    None => return Ok(error.unwrap_or(Value::Bool(true))),
                    Some(Pairs::Lists([one, ones @ ..], [other, others @ ..])) => {
                        let pair = (*one, *other);
                        open.pop();
                        open.push(Pairs::Lists(ones, others));
                        self.charge(1)?;
                        break pair;
                    }
                    Some(Pairs::Maps([(key, value), entries @ ..], map)) => {
                        let (key, value, map) = (*key, *value, *map);
                        open.pop();
                        open.push(Pairs::Maps(entries, map));
                        self.charge_key(key)?;
                        self.charge(1)?;
                        match map.get(key) {
                            Some(other) => break (value, other),
                            None => return Ok(Value::Bool(false)),
                        }
                    }
                    Some(_) => _ = open.pop(),
                }
            };
        }
    }

    /// Compare two values, of which containers differ in size or in type.
    #[inline]
    fn equal_scalars(&mut self, one: Value<'r>, other: Value<'r>) -> Result<bool> {
        Ok(match (one, other) {
            (Value::String(one), Value::String(other)) => {
                self.charge_text(one.len().min(other.len()))?;
                one == other
            }
            (Value::Bytes(one), Value::Bytes(other)) => {
                self.charge_text(one.len().min(other.len()))?;
                one == other
            }
            (Value::Null, Value::Null) => true,
            (Value::Bool(one), Value::Bool(other)) => one == other,
            (Value::Timestamp(one), Value::Timestamp(other)) => one == other,
            (Value::Duration(one), Value::Duration(other)) => one == other,
            (Value::Type(one), Value::Type(other)) => one == other,
            (Value::Optional(None), Value::Optional(None)) => true,
            _ => one.compare_numbers(other) == Some(Some(Ordering::Equal)),
        })
    }

    /// Search *item* in a list; an element that cannot be read is an error unless another one is equal.
    pub(super) fn is_member(&mut self, item: Value<'r>, elements: &[Value<'r>]) -> Result<Value<'r>> {
        let mut error = None;
        for element in elements {
            self.charge(1)?;
            match self.equal(item, *element)? {
                Value::Bool(false) => {}
                Value::Bool(true) => return Ok(Value::Bool(true)),
                failure => error = error.or(Some(failure)),
            }
        }
        Ok(error.unwrap_or(Value::Bool(false)))
    }

    pub(super) fn is_in(&mut self, item: Value<'r>, container: Value<'r>) -> Result<Value<'r>> {
        match container {
            Value::List(elements) => self.is_member(item, elements),
            Value::Map(map) if matches!(item, Value::Double(_)) || Key::of(item).is_some() => {
                let Some(key) = lookup(item) else { return Ok(Value::Bool(false)) };
                self.charge_key(key)?;
                Ok(Value::Bool(map.get(key).is_some()))
            }
            _ => Ok(self.no_overload("in", &[item, container])),
        }
    }

    /// Whether a map with unknown values has a member: known unless the source did not carry that member.
    pub(super) fn in_partial(&mut self, key: Value<'r>, partial: &Partial<'r>) -> Result<Value<'r>> {
        let map = match partial.value {
            Value::Map(map) => map,
            Value::List(_) => return Ok(Value::Unknown),
            value => return Ok(self.no_overload("in", &[key, value])),
        };
        if let Value::String(name) = key {
            match partial.unknown.below(name) {
                Below::Unknown => return Ok(Value::Unknown),
                Below::Partial(_) if map.field(name).is_none() => return Ok(Value::Unknown),
                Below::Partial(_) | Below::Known => {}
            }
        }
        self.is_in(key, partial.value)
    }

    pub(super) fn order(&mut self, op: BinaryOp, left: Value<'r>, right: Value<'r>) -> Result<Value<'r>> {
        match (left, right) {
            (Value::String(one), Value::String(other)) => self.charge_text(one.len().min(other.len()))?,
            (Value::Bytes(one), Value::Bytes(other)) => self.charge_text(one.len().min(other.len()))?,
            _ => {}
        }
        let Some(order) = left.order(right) else { return Ok(self.no_overload(op.symbol(), &[left, right])) };
        let is_so = order.is_some_and(|order| match op {
            BinaryOp::Less => order.is_lt(),
            BinaryOp::LessOrEqual => order.is_le(),
            BinaryOp::Greater => order.is_gt(),
            _ => order.is_ge(),
        });
        Ok(Value::Bool(is_so))
    }
}
