//! `format` of the library strings: `'%s of %d'.format(['a', 1])`.
//!
//! Every piece is charged before it is added, so the budget bounds the result. A loop formats nested values, which may be
//! deeper than the stack.

use super::super::evaluate::{Result, Run};
use super::super::outcome::Reason;
use super::super::times;
use super::super::values::{Detail, Key, Value};
use super::unfit;
use std::fmt::Write;

/// More digits after the point are refused.
const MAX_PRECISION: usize = 1000;
const DEFAULT_PRECISION: usize = 6;

/// Replace each clause of a text by the value of an argument.
pub(super) fn format<'r>(run: &mut Run<'r>, args: &[Value<'r>]) -> Result<Value<'r>> {
    let [Value::String(text), Value::List(args)] = *args else { return unfit(run, args) };
    run.charge_text(text.len())?;
    let mut made = Made { run, text: String::new() };
    let (mut rest, mut used) = (text, 0);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("%%") {
            made.add("%")?;
            rest = after;
            continue;
        }
        let Some(clause) = rest.strip_prefix('%') else {
            let end = rest.find('%').unwrap_or(rest.len());
            made.add(&rest[..end])?;
            rest = &rest[end..];
            continue;
        };
        let digits = clause.strip_prefix('.').map(|after| &after[..after.bytes().take_while(u8::is_ascii_digit).count()]);
        let after = &clause[digits.map_or(0, |digits| digits.len() + 1)..];
        let Some(letter) = after.bytes().next().filter(|letter| b"sdfebxXo".contains(letter)) else {
            return Ok(made.run.bad_value("a clause that format does not have"));
        };
        let Some(precision) = digits.map_or(Some(DEFAULT_PRECISION), precision) else {
            return Ok(made.run.bad_value("the precision of a clause of format is 0 to 1000"));
        };
        let Some(arg) = args.get(used) else {
            return Ok(made.run.fail(Reason::IndexOutOfRange, Detail::Words("format has too few arguments")));
        };
        if let Some(failure) = made.clause(letter, precision, *arg)? {
            return Ok(failure);
        }
        used += 1;
        rest = &after[1..];
    }
    let text = made.text;
    Ok(run.text(&text))
}

fn precision(digits: &str) -> Option<usize> {
    let significant = digits.trim_start_matches('0');
    let value = if significant.is_empty() { Some(0) } else { significant.parse().ok() };
    value.filter(|value| !digits.is_empty() && *value <= MAX_PRECISION)
}

/// The result so far.
struct Made<'a, 'r> {
    run: &'a mut Run<'r>,
    text: String,
}

/// A part of a value that is still to be written.
enum FormatPart<'r> {
    Value(Value<'r>),
    Text(&'static str),
    Key(String),
}

impl<'r> Made<'_, 'r> {
    fn add(&mut self, piece: &str) -> Result<()> {
        self.run.charge_text(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    /// Add the value of an argument; return an error of it.
    fn clause(&mut self, clause: u8, precision: usize, value: Value<'r>) -> Result<Option<Value<'r>>> {
        let piece = match (clause, value) {
            (_, Value::Failure(_)) => return Ok(Some(value)),
            (b's', _) => return self.value(value),
            (b'd', Value::Double(number)) => double(number),
            (b'b', Value::Bool(truth)) => u8::from(truth).to_string(),
            (b'd' | b'b' | b'o' | b'x' | b'X', Value::Int(number)) => {
                format!("{}{}", if number < 0 { "-" } else { "" }, digits(clause, number.unsigned_abs()))
            }
            (b'd' | b'b' | b'o' | b'x' | b'X', Value::Uint(number)) => digits(clause, number),
            (b'x' | b'X', Value::String(text)) => self.hex(clause, text.as_bytes())?,
            (b'x' | b'X', Value::Bytes(bytes)) => self.hex(clause, bytes)?,
            (b'f' | b'e', Value::Int(number)) => decimal(clause, precision, number as f64),
            (b'f' | b'e', Value::Uint(number)) => decimal(clause, precision, number as f64),
            (b'f' | b'e', Value::Double(number)) => decimal(clause, precision, number),
            _ => return Ok(Some(self.run.no_overload("a clause of format", &[value]))),
        };
        self.add(&piece)?;
        Ok(None)
    }

    fn hex(&mut self, clause: u8, bytes: &[u8]) -> Result<String> {
        self.run.charge_text(2 * bytes.len())?;
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // Writing to a string never fails.
            _ = if clause == b'x' { write!(text, "{byte:02x}") } else { write!(text, "{byte:02X}") };
        }
        Ok(text)
    }

    /// Add a value as `%s` writes it.
    fn value(&mut self, value: Value<'r>) -> Result<Option<Value<'r>>> {
        let mut pending = vec![FormatPart::Value(value)];
        while let Some(part) = pending.pop() {
            match part {
                FormatPart::Text(text) => self.add(text)?,
                FormatPart::Key(text) => self.add(&text)?,
                FormatPart::Value(failure @ Value::Failure(_)) => return Ok(Some(failure)),
                FormatPart::Value(Value::List(items)) => {
                    self.run.charge(items.len())?;
                    pending.push(FormatPart::Text("]"));
                    for (index, item) in items.iter().enumerate().rev() {
                        pending.push(FormatPart::Value(*item));
                        if index > 0 {
                            pending.push(FormatPart::Text(", "));
                        }
                    }
                    pending.push(FormatPart::Text("["));
                }
                FormatPart::Value(Value::Map(map)) => self.map(map.entries, &mut pending)?,
                FormatPart::Value(Value::Bytes(bytes)) => {
                    self.run.charge_text(bytes.len())?;
                    match simdutf8::basic::from_utf8(bytes) {
                        Ok(text) => self.add(text)?,
                        Err(_) => return Ok(Some(self.run.bad_value("the bytes are not UTF-8"))),
                    }
                }
                FormatPart::Value(Value::String(text)) => self.add(text)?,
                FormatPart::Value(value @ Value::Optional(_)) => {
                    return Ok(Some(self.run.no_overload("a clause of format", &[value])));
                }
                FormatPart::Value(value) => self.add(&scalar(value))?,
            }
        }
        Ok(None)
    }

    /// Put the entries of a map, in the order of their keys, before what is pending.
    fn map(&mut self, entries: &[(Key<'r>, Value<'r>)], pending: &mut Vec<FormatPart<'r>>) -> Result<()> {
        let mut entries: Vec<(String, Value<'r>)> = entries.iter().map(|(key, value)| (written(*key), *value)).collect();
        self.run.charge_sorting(entries.len(), entries.iter().map(|(key, _)| key.len()).sum())?;
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        pending.push(FormatPart::Text("}"));
        for (index, (key, value)) in entries.into_iter().enumerate().rev() {
            pending.push(FormatPart::Value(value));
            pending.push(FormatPart::Key(format!("{}{key}: ", if index > 0 { ", " } else { "" })));
        }
        pending.push(FormatPart::Text("{"));
        Ok(())
    }
}

fn written(key: Key<'_>) -> String {
    match key {
        Key::String(text) => text.to_owned(),
        key => scalar(key.value()),
    }
}

fn scalar(value: Value<'_>) -> String {
    match value {
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => double(number),
        Value::Timestamp(moment) => {
            let text = times::format_timestamp(moment);
            match text.trim_end_matches('Z').split_once('.') {
                Some((whole, fraction)) => format!("{whole}.{}Z", fraction.trim_end_matches('0')),
                None => text,
            }
        }
        Value::Duration(ns) => {
            let (seconds, rest) = (ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000);
            let size = seconds as f64 + rest as f64 / 1e9;
            format!("{}s", double(if ns < 0 { -size } else { size }))
        }
        Value::Type(name) => name.name().to_owned(),
        _ => "null".to_owned(),
    }
}

fn digits(clause: u8, number: u64) -> String {
    match clause {
        b'b' => format!("{number:b}"),
        b'o' => format!("{number:o}"),
        b'x' => format!("{number:x}"),
        b'X' => format!("{number:X}"),
        _ => number.to_string(),
    }
}

/// The fewest digits that read back as *value*, without an exponent.
fn double(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        value => value.to_string(),
    }
}

fn decimal(clause: u8, precision: usize, value: f64) -> String {
    if !value.is_finite() {
        return double(value);
    }
    if clause == b'f' {
        return format!("{value:.precision$}");
    }
    let text = format!("{value:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{mantissa}e{sign}{power:0>2}")
}
