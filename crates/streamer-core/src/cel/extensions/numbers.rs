//! The library math.

use super::super::evaluate::{Result, Run};
use super::super::outcome::Reason;
use super::super::types::Name::{Bool, Double, Dyn, Int, List, Uint};
use super::super::values::{Detail, Value};
use super::{Overload, Row, row, takes, unfit, unreadable};
use std::cmp::Ordering;

const DOUBLE: &[Overload] = &[(&[Double], Double)];
const TEST: &[Overload] = &[(&[Double], Bool)];
const NUMBERS: &[Overload] = &[(&[Int], Int), (&[Uint], Uint), (&[Double], Double)];
const PAIRS: &[Overload] = &[(&[Int, Int], Int), (&[Uint, Uint], Uint)];
const SHIFTS: &[Overload] = &[(&[Int, Int], Int), (&[Uint, Int], Uint)];
const ONE_OR_LIST: &[Overload] = &[(&[List], Dyn), (&[Int], Int), (&[Uint], Uint), (&[Double], Double)];

pub(super) const ROWS: &[Row] = &[
    row("math.abs", NUMBERS, absolute),
    row("math.bitAnd", PAIRS, |run, args| bits(run, args, |one, other| one & other)),
    row("math.bitNot", &[(&[Int], Int), (&[Uint], Uint)], bit_not),
    row("math.bitOr", PAIRS, |run, args| bits(run, args, |one, other| one | other)),
    row("math.bitShiftLeft", SHIFTS, |run, args| shift(run, args, |bits, by| bits << by)),
    row("math.bitShiftRight", SHIFTS, |run, args| shift(run, args, |bits, by| bits >> by)),
    row("math.bitXor", PAIRS, |run, args| bits(run, args, |one, other| one ^ other)),
    row("math.ceil", DOUBLE, |run, args| rounded(run, args, f64::ceil)),
    row("math.floor", DOUBLE, |run, args| rounded(run, args, f64::floor)),
    Row { takes_many: true, ..row("math.greatest", ONE_OR_LIST, greatest) },
    row("math.isFinite", TEST, |run, args| test(run, args, f64::is_finite)),
    row("math.isInf", TEST, |run, args| test(run, args, f64::is_infinite)),
    row("math.isNaN", TEST, |run, args| test(run, args, f64::is_nan)),
    Row { takes_many: true, ..row("math.least", ONE_OR_LIST, least) },
    row("math.round", DOUBLE, |run, args| rounded(run, args, f64::round)),
    row("math.sign", NUMBERS, sign),
    row("math.sqrt", &[(&[Double], Double), (&[Int], Double), (&[Uint], Double)], square_root),
    row("math.trunc", DOUBLE, |run, args| rounded(run, args, f64::trunc)),
];

fn greatest<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    extreme(run, args, "math.greatest", Ordering::Greater)
}

fn least<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    extreme(run, args, "math.least", Ordering::Less)
}

/// The first of the numbers than which no other is better.
fn extreme<'r>(run: &mut Run<'r>, args: &[Value<'r>], name: &'static str, better: Ordering) -> Result<Value<'r>> {
    let numbers = match *args {
        [Value::List(items)] => {
            run.charge(items.len())?;
            items
        }
        _ => args,
    };
    if let Some(failure) = unreadable(numbers) {
        return Ok(failure);
    }
    let Some(mut best) = numbers.first().copied() else { return Ok(run.bad_value("the least or greatest of an empty list")) };
    for number in numbers {
        if !takes(super::Name::Number, *number) {
            return Ok(run.no_overload(name, &[*number]));
        }
        if numbers.len() > 1 && matches!(number, Value::Double(number) if number.is_nan()) {
            return Ok(run.bad_value("NaN has no order"));
        }
        if number.compare_numbers(best) == Some(Some(better)) {
            best = *number;
        }
    }
    Ok(best)
}

fn rounded<'r>(run: &mut Run<'r>, args: &[Value<'r>], compute: fn(f64) -> f64) -> Result<Value<'r>> {
    let [Value::Double(number)] = *args else { return unfit(run, args) };
    Ok(Value::Double(compute(number)))
}

fn test<'r>(run: &mut Run<'r>, args: &[Value<'r>], test: fn(f64) -> bool) -> Result<Value<'r>> {
    let [Value::Double(number)] = *args else { return unfit(run, args) };
    Ok(Value::Bool(test(number)))
}

fn absolute<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    Ok(match *args {
        [Value::Int(number)] => match number.checked_abs() {
            Some(size) => Value::Int(size),
            None => run.fail(Reason::Overflow, Detail::Words("arithmetic beyond int")),
        },
        [Value::Double(number)] => Value::Double(number.abs()),
        [Value::Uint(number)] => Value::Uint(number),
        _ => return unfit(run, args),
    })
}

fn sign<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    Ok(match *args {
        [Value::Int(number)] => Value::Int(number.signum()),
        [Value::Uint(number)] => Value::Uint(number.min(1)),
        // `signum` of a zero is 1.
        [Value::Double(number)] => Value::Double(if number == 0.0 { 0.0 } else { number.signum() }),
        _ => return unfit(run, args),
    })
}

fn square_root<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    Ok(Value::Double(match *args {
        [Value::Int(number)] => (number as f64).sqrt(),
        [Value::Uint(number)] => (number as f64).sqrt(),
        [Value::Double(number)] => number.sqrt(),
        _ => return unfit(run, args),
    }))
}

fn bits<'r>(run: &mut Run<'r>, args: &[Value<'r>], compute: fn(u64, u64) -> u64) -> Result<Value<'r>> {
    Ok(match *args {
        [Value::Int(one), Value::Int(other)] => Value::Int(compute(one as u64, other as u64) as i64),
        [Value::Uint(one), Value::Uint(other)] => Value::Uint(compute(one, other)),
        _ => return unfit(run, args),
    })
}

fn bit_not<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    Ok(match *args {
        [Value::Int(number)] => Value::Int(!number),
        [Value::Uint(number)] => Value::Uint(!number),
        _ => return unfit(run, args),
    })
}

/// Shift the bits of a number; the sign is one of them.
fn shift<'r>(run: &mut Run<'r>, args: &[Value<'r>], compute: fn(u64, u32) -> u64) -> Result<Value<'r>> {
    let [number, Value::Int(by)] = *args else { return unfit(run, args) };
    if by < 0 {
        return Ok(run.bad_value("a shift by a negative number of bits"));
    }
    let shifted = |bits: u64| if by < 64 { compute(bits, by as u32) } else { 0 };
    Ok(match number {
        Value::Int(number) => Value::Int(shifted(number as u64) as i64),
        Value::Uint(number) => Value::Uint(shifted(number)),
        _ => return unfit(run, args),
    })
}
