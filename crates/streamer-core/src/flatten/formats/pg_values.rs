//! Values of PostgreSQL, which its plugin pgoutput sends as texts, as the JSON that they mean.
//!
//! A number keeps all its digits and a document its spelling; a type that is not in the table is a string.

use super::super::records;
use super::text::{is_number, shown};
use crate::error::{EventCode, EventError};
use crate::json;
use crate::json::token::space;
use std::borrow::Cow;

/// The most digits of a number before its point: one with more may exceed the range of float64, and is a string.
const MOST_DIGITS: usize = 308;

/// How the values of a type are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PgType {
    element: ArrayElement,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrayElement {
    Text,
    Boolean,
    Bytes,
    Integer,
    Number,
    Document,
    Zoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    One,
    Array,
    /// A text that may be an array: the name of its type looks like that of one.
    ArrayOrText,
}

/// The types whose values are not plain strings: name, oid, oid of their arrays.
const BUILT_IN: [(&str, u32, u32, ArrayElement); 12] = [
    ("bool", 16, 1000, ArrayElement::Boolean),
    ("bytea", 17, 1001, ArrayElement::Bytes),
    ("int8", 20, 1016, ArrayElement::Integer),
    ("int2", 21, 1005, ArrayElement::Integer),
    ("int4", 23, 1007, ArrayElement::Integer),
    ("oid", 26, 1028, ArrayElement::Integer),
    ("json", 114, 199, ArrayElement::Document),
    ("float4", 700, 1021, ArrayElement::Number),
    ("float8", 701, 1022, ArrayElement::Number),
    ("timestamptz", 1184, 1185, ArrayElement::Zoned),
    ("numeric", 1700, 1231, ArrayElement::Number),
    ("jsonb", 3802, 3807, ArrayElement::Document),
];
/// Arrays of strings: text, varchar, bpchar, name, char, uuid, date, time, timestamp, interval, inet, cidr.
const OF_STRINGS: [u32; 12] = [1009, 1015, 1014, 1003, 1002, 2951, 1182, 1183, 1115, 1187, 1041, 651];

/// Why a text is no value of its type.
#[derive(Debug)]
pub(super) struct Fault {
    pub code: EventCode,
    pub reason: String,
}

fn fault(text: &str, is: &str) -> Fault {
    Fault { code: EventCode::BadValue, reason: format!("{} {is}", shown(text)) }
}

impl PgType {
    const fn new(element: ArrayElement, shape: Shape) -> PgType {
        PgType { element, shape }
    }

    /// The type of an oid.
    pub fn of(oid: u32) -> PgType {
        let entry = BUILT_IN.iter().find(|(_, one, many, _)| oid == *one || oid == *many);
        match entry {
            Some((_, one, _, element)) => PgType::new(*element, if oid == *one { Shape::One } else { Shape::Array }),
            None if OF_STRINGS.contains(&oid) => PgType::new(ArrayElement::Text, Shape::Array),
            None => PgType::new(ArrayElement::Text, Shape::One),
        }
    }

    /// The type that a message names: a domain's base type, an enum, an array.
    pub fn named(schema: &str, name: &str) -> PgType {
        let (shape, element) = match name.strip_prefix('_') {
            Some(element) => (Shape::Array, element),
            None => (Shape::One, name),
        };
        let entry = BUILT_IN.iter().find(|(known, ..)| *known == element && matches!(schema, "" | "pg_catalog"));
        match entry {
            Some((.., element)) => PgType::new(*element, shape),
            None if shape == Shape::Array => PgType::new(ArrayElement::Text, Shape::ArrayOrText),
            None => PgType::new(ArrayElement::Text, Shape::One),
        }
    }

    /// The JSON of a text.
    pub fn json(self, text: &str) -> Result<Cow<'_, str>, Fault> {
        match self.shape {
            Shape::One => self.element.json(text),
            Shape::Array => array(self.element, text)?.map(Cow::Owned).ok_or_else(|| fault(text, "is not an array")),
            Shape::ArrayOrText => Ok(array(self.element, text)?.unwrap_or_else(|| quoted(text)).into()),
        }
    }
}

impl ArrayElement {
    fn json(self, text: &str) -> Result<Cow<'_, str>, Fault> {
        Ok(match self {
            ArrayElement::Text => quoted(text).into(),
            ArrayElement::Boolean => match text {
                "t" => "true".into(),
                "f" => "false".into(),
                _ => return Err(fault(text, "is neither t nor f")),
            },
            ArrayElement::Bytes => match text.strip_prefix("\\x") {
                Some(digits) => base64_of(digits).ok_or_else(|| fault(text, "is not hex"))?.into(),
                // The other output format (`bytea_output = escape`).
                None => quoted(text).into(),
            },
            ArrayElement::Integer if is_number(text) && !text.contains(['.', 'e', 'E']) => text.into(),
            ArrayElement::Integer => return Err(fault(text, "is not an integer")),
            ArrayElement::Number => match text {
                // JSON has no such numbers, and null would mean that there is no value.
                "NaN" | "Infinity" | "-Infinity" => quoted(text).into(),
                _ if !is_number(text) => return Err(fault(text, "is not a number")),
                _ if text.split('.').next().unwrap_or_default().len() > MOST_DIGITS => quoted(text).into(),
                _ => text.into(),
            },
            ArrayElement::Document => document(text)?,
            ArrayElement::Zoned => zoned(text).unwrap_or_else(|| quoted(text)).into(),
        })
    }
}

fn quoted(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    json::write_string(&mut written, text);
    written
}

/// A document as it is spelled, on one line: between its tokens, a line break is a space.
fn document(text: &str) -> Result<Cow<'_, str>, Fault> {
    let bytes = text.as_bytes();
    match records::whole(bytes, space(bytes, 0), 0, usize::MAX, &mut Vec::new()) {
        Ok(_) if bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r')) => Ok(text.replace(['\n', '\r'], " ").into()),
        Ok(_) => Ok(text.into()),
        Err(bad) => {
            let offset = bad.offset;
            let EventError { code, reason, .. } = bad.into();
            Err(Fault { code, reason: format!("the JSON in it, at byte {offset}: {reason}") })
        }
    }
}

/// The base64 of bytes in hex, as a string.
fn base64_of(digits: &str) -> Option<String> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let bytes: Vec<u32> =
        digits.as_bytes().chunks(2).map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?)).collect::<Option<_>>()?;
    let mut written = String::with_capacity(bytes.len().div_ceil(3) * 4 + 2);
    written.push('"');
    for three in bytes.chunks(3) {
        let sum = three.iter().enumerate().fold(0, |sum, (at, byte)| sum | byte << (16 - 8 * at));
        for at in 0..4 {
            let letter = ALPHABET[(sum >> (18 - 6 * at) & 63) as usize];
            written.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    written.push('"');
    Some(written)
}

/// A time with its zone as RFC 3339 text, which CEL's `timestamp` reads; None for other years than 0000 to 9999.
fn zoned(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let fits = |from: usize, pattern: &[u8]| {
        let part = bytes.get(from..from + pattern.len());
        part.is_some_and(|part| {
            part.iter().zip(pattern).all(|(byte, of)| match of {
                b'0' => byte.is_ascii_digit(),
                b':' => byte.is_ascii_digit() || *byte == b':',
                b'+' => matches!(byte, b'+' | b'-'),
                other => byte == other,
            })
        })
    };
    if !fits(0, b"0000-00-00 ::::::::") {
        return None;
    }
    let mut at = 19;
    if fits(at, b".0") {
        at += 1 + bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    let rest = bytes.get(at + 3..)?;
    if !fits(at, b"+00") || !(rest.is_empty() || (rest.len() == 3 && rest[0] == b':' && fits(at + 4, b"00"))) {
        return None;
    }
    let zone = match (&text[at..at + 3], &text[at + 3..]) {
        ("+00" | "-00", "" | ":00") => Cow::Borrowed("Z"),
        (hours, "") => format!("{hours}:00").into(),
        _ => text[at..].into(),
    };
    Some(format!("\"{}T{}{zone}\"", &text[..10], &text[11..at]))
}

/// The JSON of an array, such as `{{1,2},{3,NULL}}` or `[0:1]={a,"b,c"}`; None for a text that is not one.
fn array(element: ArrayElement, text: &str) -> Result<Option<String>, Fault> {
    // Its bounds have no place in JSON.
    let body = if text.starts_with('[') { text.split_once('=').map_or("", |(_, body)| body) } else { text };
    let bytes = body.as_bytes();
    let mut written = String::with_capacity(body.len());
    let (mut depth, mut at, mut is_due) = (0_usize, 0, true);
    while at < bytes.len() && (depth > 0 || at == 0) {
        let from = at;
        at += 1;
        match bytes[from] {
            b'{' if is_due => {
                depth += 1;
                written.push('[');
            }
            b'}' if depth > 0 && (!is_due || written.ends_with('[')) => {
                depth -= 1;
                written.push(']');
                is_due = false;
            }
            b',' if depth > 0 && !is_due => {
                written.push(',');
                is_due = true;
            }
            b'"' if depth > 0 && is_due => {
                let Some((plain, end)) = unquoted(body, at) else { return Ok(None) };
                at = end;
                written.push_str(&element.json(&plain)?);
                is_due = false;
            }
            b'{' | b'}' | b',' | b'"' | b'\\' => return Ok(None),
            _ if depth > 0 && is_due => {
                at = bytes[from..]
                    .iter()
                    .position(|byte| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\'))
                    .map_or(bytes.len(), |to| from + to);
                match &body[from..at] {
                    "NULL" => written.push_str("null"),
                    plain => written.push_str(&element.json(plain)?),
                }
                is_due = false;
            }
            _ => return Ok(None),
        }
    }
    Ok((depth == 0 && at == bytes.len() && !written.is_empty()).then_some(written))
}

/// The text of a quoted element that begins at an offset, and the offset after its quote.
fn unquoted(body: &str, from: usize) -> Option<(Cow<'_, str>, usize)> {
    let end = from + body[from..].find(['"', '\\'])?;
    if body.as_bytes()[end] == b'"' {
        return Some((Cow::Borrowed(&body[from..end]), end + 1));
    }
    let (mut plain, mut rest) = (String::new(), body[from..].char_indices());
    loop {
        match rest.next()? {
            (at, '"') => return Some((plain.into(), from + at + 1)),
            (_, '\\') => plain.push(rest.next()?.1),
            (_, other) => plain.push(other),
        }
    }
}
