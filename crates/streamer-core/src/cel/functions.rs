//! The functions of cel-spec's standard library, and `list.contains` (semantics.md section 4); `extensions` has the other ones.
//!
//! Their arguments are neither errors nor unknown; a combination of types that a function does not support is
//! `no_such_overload`. The charge of each is in docs/cel-cost.md; it is charged before the work.

use super::ast::Function;
use super::evaluate::{Result, Run};
use super::matches::{size_before, units_of_compiling};
use super::outcome::Reason;
use super::times::{self, TimePart, Timestamp};
use super::values::{Detail, Value};
use crate::regexps::program::units_of_search;
use memchr::memmem;

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

impl<'r> Run<'r> {
    /// Whether a regexp is found in *text*.
    fn matches(&mut self, text: &'r str, source: &'r str) -> Result<Value<'r>> {
        if let Some(regexp) = self.regexps.filters() {
            return Ok(Value::Bool(regexp.search(text)));
        }
        if let Some(regexp) = self.regexps.constant(source) {
            self.charge(units_of_search(text, regexp.size()))?;
            return Ok(Value::Bool(regexp.is_match(text)));
        }
        let met = match self.regexps.met(source) {
            Some(met) => {
                self.charge(units_of_search(text, met.size))?;
                met
            }
            None => {
                let size = size_before(source);
                self.charge(units_of_search(text, size))?;
                self.charge(units_of_compiling(size))?;
                self.regexps.compile(source, size)
            }
        };
        Ok(match met.regexp {
            Ok(regexp) => Value::Bool(regexp.is_match(text)),
            Err(what) => {
                let what = self.arena.alloc_str(&what);
                self.fail(Reason::BadRegexp, Detail::Regexp(what))
            }
        })
    }

    /// Call a function with arguments that are neither errors nor unknown.
    pub(super) fn call(&mut self, function: Function, args: &[Value<'r>]) -> Result<Value<'r>> {
        use Value::{Bool, Bytes, Duration, Int, List, Map, String, Type};
        Ok(match (function, args) {
            (Function::Size, [String(text)]) => {
                self.charge_text(text.len())?;
                Int(text.chars().count() as i64)
            }
            (Function::Size, [Bytes(bytes)]) => {
                self.charge_text(bytes.len())?;
                Int(bytes.len() as i64)
            }
            (Function::Size, [List(elements)]) => Int(elements.len() as i64),
            (Function::Size, [Map(map)]) => Int(map.entries.len() as i64),
            (Function::Contains, [String(text), String(part)]) => {
                self.charge_text(text.len() + part.len())?;
                Bool(memmem::find(text.as_bytes(), part.as_bytes()).is_some())
            }
            (Function::Contains, [List(elements), item]) => self.is_member(*item, elements)?,
            (Function::StartsWith, [String(text), String(part)]) => {
                self.charge_text(part.len())?;
                Bool(text.starts_with(part))
            }
            (Function::EndsWith, [String(text), String(part)]) => {
                self.charge_text(part.len())?;
                Bool(text.ends_with(part))
            }
            (Function::Matches, [String(text), String(source)]) => self.matches(text, source)?,
            (Function::Type, [value]) => Type(value.type_of()),
            (Function::Dyn, [value]) => *value,
            (Function::Int, [value]) => self.int(*value)?,
            (Function::Uint, [value]) => self.uint(*value)?,
            (Function::Double, [value]) => self.double(*value)?,
            (Function::String, [value]) => self.string(*value)?,
            (Function::Bytes, [Bytes(bytes)]) => Bytes(bytes),
            (Function::Bytes, [String(text)]) => {
                self.charge_text(text.len())?;
                Bytes(text.as_bytes())
            }
            (Function::Bool, [Bool(truth)]) => Bool(*truth),
            (Function::Bool, [String(text)]) => {
                self.charge_text(text.len())?;
                match *text {
                    "1" | "t" | "true" | "TRUE" | "True" => Bool(true),
                    "0" | "f" | "false" | "FALSE" | "False" => Bool(false),
                    text => self.fail(Reason::BadValue, Detail::Spelling(text, "bool")),
                }
            }
            (Function::Timestamp, [Value::Timestamp(moment)]) => Value::Timestamp(*moment),
            (Function::Timestamp, [Int(seconds)]) => self.timestamp(Timestamp::of(i128::from(*seconds) * 1_000_000_000)),
            (Function::Timestamp, [String(text)]) => {
                self.charge_text(text.len())?;
                self.timestamp(times::parse_timestamp(text))
            }
            (Function::Duration, [Duration(ns)]) => Duration(*ns),
            (Function::Duration, [String(text)]) => {
                self.charge_text(text.len())?;
                self.duration(times::parse_duration(text))
            }
            (Function::Extension(extension), args) => self.call_extension(extension, args)?,
            _ => match (getter(function), args) {
                (Some((_, part)), [Value::Timestamp(moment)]) => self.part(times::timestamp_part(*moment, part, "")),
                (Some((_, part)), [Value::Timestamp(moment), String(zone)]) => {
                    self.charge_text(zone.len())?;
                    self.part(times::timestamp_part(*moment, part, zone))
                }
                (Some((name, part)), [Duration(ns)]) => match times::duration_part(*ns, part) {
                    Some(part) => Int(part),
                    None => self.no_overload(name, args),
                },
                _ => self.no_overload(name(function), args),
            },
        })
    }

    /// The result of a calculation with times.
    pub(super) fn timestamp(&self, made: std::result::Result<Timestamp, times::Refused>) -> Value<'r> {
        made.map_or_else(|(reason, words)| self.fail(reason, Detail::Words(words)), Value::Timestamp)
    }

    /// The result of a calculation with durations.
    pub(super) fn duration(&self, made: std::result::Result<i64, times::Refused>) -> Value<'r> {
        made.map_or_else(|(reason, words)| self.fail(reason, Detail::Words(words)), Value::Duration)
    }

    fn part(&self, made: std::result::Result<i64, times::Refused>) -> Value<'r> {
        made.map_or_else(|(reason, words)| self.fail(reason, Detail::Words(words)), Value::Int)
    }

    fn int(&mut self, value: Value<'r>) -> Result<Value<'r>> {
        let beyond = |run: &Run<'r>| run.fail(Reason::Overflow, Detail::Range(value, "int"));
        Ok(match value {
            Value::Int(_) => value,
            Value::Uint(number) => i64::try_from(number).map_or_else(|_| beyond(self), Value::Int),
            // cel-spec's suite requires that -2^63 itself is refused, too: as a double it may be the rounding of a
            // smaller number.
            Value::Double(number) if number > -TWO_63 && number < TWO_63 => Value::Int(number as i64),
            Value::Double(_) => beyond(self),
            Value::String(text) => {
                self.charge_text(text.len())?;
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                match digits_of(digits) {
                    None => self.fail(Reason::BadValue, Detail::Spelling(text, "int")),
                    Some(size) => {
                        let number = if text.starts_with('-') { -size } else { size };
                        i64::try_from(number).map_or_else(|_| beyond(self), Value::Int)
                    }
                }
            }
            Value::Timestamp(moment) => Value::Int(moment.seconds),
            _ => self.no_overload("int", &[value]),
        })
    }

    fn uint(&mut self, value: Value<'r>) -> Result<Value<'r>> {
        let beyond = |run: &Run<'r>| run.fail(Reason::Overflow, Detail::Range(value, "uint"));
        Ok(match value {
            Value::Uint(_) => value,
            Value::Int(number) => u64::try_from(number).map_or_else(|_| beyond(self), Value::Uint),
            Value::Double(number) if (0.0..TWO_64).contains(&number) => Value::Uint(number as u64),
            Value::Double(_) => beyond(self),
            Value::String(text) => {
                self.charge_text(text.len())?;
                match digits_of(text) {
                    None => self.fail(Reason::BadValue, Detail::Spelling(text, "uint")),
                    Some(number) => u64::try_from(number).map_or_else(|_| beyond(self), Value::Uint),
                }
            }
            _ => self.no_overload("uint", &[value]),
        })
    }

    fn double(&mut self, value: Value<'r>) -> Result<Value<'r>> {
        Ok(match value {
            Value::Double(_) => value,
            Value::Int(number) => Value::Double(number as f64),
            Value::Uint(number) => Value::Double(number as f64),
            Value::String(text) => {
                self.charge_text(text.len())?;
                match text.parse::<f64>() {
                    Ok(number) if number.is_infinite() && !text.contains(['n', 'N']) => {
                        self.fail(Reason::Overflow, Detail::Range(value, "double"))
                    }
                    Ok(number) => Value::Double(number),
                    Err(_) => self.fail(Reason::BadValue, Detail::Spelling(text, "double")),
                }
            }
            _ => self.no_overload("double", &[value]),
        })
    }

    fn string(&mut self, value: Value<'r>) -> Result<Value<'r>> {
        Ok(match value {
            Value::String(_) => value,
            Value::Bool(truth) => Value::String(if truth { "true" } else { "false" }),
            Value::Int(number) => self.text(&number.to_string()),
            Value::Uint(number) => self.text(&number.to_string()),
            Value::Double(number) => self.text(&format_double(number)),
            Value::Bytes(bytes) => {
                self.charge_text(bytes.len())?;
                match simdutf8::basic::from_utf8(bytes) {
                    Ok(text) => Value::String(text),
                    Err(_) => self.fail(Reason::BadValue, Detail::Words("the bytes are not UTF-8")),
                }
            }
            Value::Timestamp(moment) => self.text(&times::format_timestamp(moment)),
            Value::Duration(ns) => self.text(&times::format_duration(ns)),
            _ => self.no_overload("string", &[value]),
        })
    }
}

/// The number that digits spell: zeros, then at most 20 digits; more would be out of range of everything.
fn digits_of(text: &str) -> Option<i128> {
    let digits = text.trim_start_matches('0');
    let is_number = !text.is_empty() && digits.len() <= 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.bytes().fold(0, |sum, digit| sum * 10 + i128::from(digit - b'0')))
}

/// The fewest digits that read back as *value*, with an exponent from 1e+06 on and below 1e-04, as cel-cpp writes it.
fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let written = format!("{value:e}");
    let (mantissa, power) = written.split_once('e').unwrap_or((&written, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if (-4..6).contains(&power) {
        // Rust writes as few digits without an exponent, too; only its `-0` and integers look the same.
        return format!("{value}");
    }
    format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.unsigned_abs())
}

/// The part that a getter gets, and its name.
fn getter(function: Function) -> Option<(&'static str, TimePart)> {
    Some(match function {
        Function::GetFullYear => ("getFullYear", TimePart::FullYear),
        Function::GetMonth => ("getMonth", TimePart::Month),
        Function::GetDate => ("getDate", TimePart::Date),
        Function::GetDayOfMonth => ("getDayOfMonth", TimePart::DayOfMonth),
        Function::GetDayOfWeek => ("getDayOfWeek", TimePart::DayOfWeek),
        Function::GetDayOfYear => ("getDayOfYear", TimePart::DayOfYear),
        Function::GetHours => ("getHours", TimePart::Hours),
        Function::GetMinutes => ("getMinutes", TimePart::Minutes),
        Function::GetSeconds => ("getSeconds", TimePart::Seconds),
        Function::GetMilliseconds => ("getMilliseconds", TimePart::Milliseconds),
        _ => return None,
    })
}

fn name(function: Function) -> &'static str {
    match function {
        Function::Size => "size",
        Function::Contains => "contains",
        Function::StartsWith => "startsWith",
        Function::EndsWith => "endsWith",
        Function::Matches => "matches",
        Function::Int => "int",
        Function::Uint => "uint",
        Function::Double => "double",
        Function::String => "string",
        Function::Bytes => "bytes",
        Function::Bool => "bool",
        Function::Timestamp => "timestamp",
        Function::Duration => "duration",
        Function::Type => "type",
        Function::Dyn => "dyn",
        Function::Extension(extension) => extension.row().name,
        other => getter(other).map_or("a function", |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_written_with_the_fewest_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (999_999.5, "999999.5"),
            (1e6, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (1e-4, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (1e100, "1e+100"),
            (1e-100, "1e-100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn digits_may_have_any_number_of_zeros_in_front() {
        assert_eq!(digits_of("0"), Some(0));
        assert_eq!(digits_of(&format!("{}18446744073709551616", "0".repeat(100))), Some(1 << 64));
        for bad in ["", "1_0", "+1", " 1", "٣", "123456789012345678901"] {
            assert_eq!(digits_of(bad), None, "{bad}");
        }
    }
}
