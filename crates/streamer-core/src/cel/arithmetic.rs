//! Arithmetic: overflow is an error, types do not mix, division goes toward zero.

use super::ast::BinaryOp;
use super::evaluate::{Result, Run};
use super::outcome::Reason;
use super::times::{Timestamp, duration};
use super::values::{Detail, Value};

impl<'r> Run<'r> {
    pub(super) fn negate(&self, value: Value<'r>) -> Value<'r> {
        match value {
            Value::Int(number) => self.in_range(number.checked_neg().map(Value::Int), "arithmetic beyond int"),
            Value::Double(number) => Value::Double(-number),
            _ => self.no_overload("-", &[value]),
        }
    }

    fn in_range(&self, made: Option<Value<'r>>, words: &'static str) -> Value<'r> {
        made.unwrap_or_else(|| self.fail(Reason::Overflow, Detail::Words(words)))
    }

    pub(super) fn arithmetic(&mut self, op: BinaryOp, left: Value<'r>, right: Value<'r>) -> Result<Value<'r>> {
        use BinaryOp::{Add, Divide, Multiply, Remainder, Subtract};
        Ok(match (op, left, right) {
            (Divide | Remainder, Value::Int(_), Value::Int(0)) | (Divide | Remainder, Value::Uint(_), Value::Uint(0)) => {
                let words = if op == Divide { "/ by zero" } else { "% by zero" };
                self.fail(Reason::DivisionByZero, Detail::Words(words))
            }
            (_, Value::Int(one), Value::Int(other)) => {
                let made = match op {
                    Add => one.checked_add(other),
                    Subtract => one.checked_sub(other),
                    Multiply => one.checked_mul(other),
                    Divide => one.checked_div(other),
                    _ => one.checked_rem(other), // overflows exactly if the quotient does
                };
                self.in_range(made.map(Value::Int), "arithmetic beyond int")
            }
            (_, Value::Uint(one), Value::Uint(other)) => {
                let made = match op {
                    Add => one.checked_add(other),
                    Subtract => one.checked_sub(other),
                    Multiply => one.checked_mul(other),
                    Divide => one.checked_div(other),
                    _ => one.checked_rem(other),
                };
                self.in_range(made.map(Value::Uint), "arithmetic beyond uint")
            }
            (Add, Value::Double(one), Value::Double(other)) => Value::Double(one + other),
            (Subtract, Value::Double(one), Value::Double(other)) => Value::Double(one - other),
            (Multiply, Value::Double(one), Value::Double(other)) => Value::Double(one * other),
            (Divide, Value::Double(one), Value::Double(other)) => Value::Double(one / other),
            (Add, Value::String(one), Value::String(other)) => {
                self.charge_text(one.len() + other.len())?;
                self.text(&[one, other].concat())
            }
            (Add, Value::Bytes(one), Value::Bytes(other)) => {
                self.charge_text(one.len() + other.len())?;
                Value::Bytes(self.arena.alloc_slice_copy(&[one, other].concat()))
            }
            (Add, Value::List(one), Value::List(other)) => {
                self.charge(one.len() + other.len())?;
                Value::List(self.arena.alloc_slice_copy(&[one, other].concat()))
            }
            (Add, Value::Timestamp(moment), Value::Duration(ns)) | (Add, Value::Duration(ns), Value::Timestamp(moment)) => {
                self.timestamp(Timestamp::of(moment.ns() + i128::from(ns)))
            }
            (Subtract, Value::Timestamp(moment), Value::Duration(ns)) => {
                self.timestamp(Timestamp::of(moment.ns() - i128::from(ns)))
            }
            (Subtract, Value::Timestamp(one), Value::Timestamp(other)) => self.duration(duration(one.ns() - other.ns())),
            (Subtract, Value::Duration(one), Value::Duration(other)) => {
                self.duration(duration(i128::from(one) - i128::from(other)))
            }
            (Add, Value::Duration(one), Value::Duration(other)) => self.duration(duration(i128::from(one) + i128::from(other))),
            _ => self.no_overload(op.symbol(), &[left, right]),
        })
    }
}
