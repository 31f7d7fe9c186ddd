//! Values of Debezium as what they mean: by the schema next to the payload, and of MongoDB's Extended JSON (semantics.md
//! section 1, "Types").
//!
//! ```text
//!   {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}   "YbI="   is read as   250.10
//!   {"type": "int32", "name": "io.debezium.time.Date"}                                                 20484    "2026-01-31"
//!   {"type": "string", "name": "io.debezium.data.Json"}                                                "{…}"    the JSON in it
//!   a document of MongoDB                                                     {"$numberLong": "250"}            250
//! ```
//!
//! Contract: a value that does not fit its type stays as it is.
//!
//! Cost: free for an event without a schema. A schema is parsed once, as long as events come with the same text of it;
//! then each event is copied and read a second time, with the values of these columns in place.

use super::records::{Member, Members, put_in};
use super::timestamps;
use super::unavailable::Unavailable;
use crate::json::token::{self, peek, space};
use crate::json::{self, ParseOptions, skip};
use crate::value::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

/// How the values of a column are read.
#[derive(Debug, PartialEq)]
enum SchemaType {
    Decimal(i32),
    VariableDecimal,
    Json,
    Date,
    /// The time of a day, in parts of a second.
    Time(i64),
    /// A time since 1970, in parts of a second.
    Timestamp(i64),
    List(Box<SchemaType>),
    Map(Box<SchemaType>),
    Struct(Fields),
}

/// The fields of a struct whose values are not read as they stand; of several with one name the last counts.
#[derive(Debug, Default, PartialEq)]
struct Fields {
    all: Box<[(Box<str>, SchemaType)]>,
    /// The positions by name, if there are many.
    index: HashMap<Box<str>, usize>,
}

/// Up to this many fields are searched one by one.
const FEW: usize = 16;

impl Fields {
    fn new(all: Vec<(Box<str>, SchemaType)>) -> Fields {
        let named = || all.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
        let index = if all.len() > FEW { named().collect() } else { HashMap::new() };
        Fields { all: all.into(), index }
    }

    fn find(&self, name: &[u8]) -> Option<&SchemaType> {
        if self.all.len() <= FEW {
            return self.all.iter().rev().find(|(field, _)| field.as_bytes() == name).map(|(_, kind)| kind);
        }
        let at = self.index.get(std::str::from_utf8(name).ok()?)?;
        Some(&self.all[*at].1)
    }
}

/// The columns of `before` and `after`, by the schema that came last.
#[derive(Debug, Default)]
pub(super) struct Columns {
    schema: Vec<u8>,
    parsed: Option<Value>,
    rows: Fields,
}

/// A value and the text that is read in its place.
pub(super) type Piece = (usize, usize, Vec<u8>);

/// The most levels of a schema, and of a document of MongoDB.
const DEEPEST: usize = 65;
const DEEPEST_DOCUMENT: usize = 100;
/// The most levels of JSON in a column.
const DEEPEST_JSON: usize = 64;
/// The largest scale of a decimal, more than any database writes, and the most digits.
const LARGEST_SCALE: i32 = 20_000;
const MOST_DIGITS: usize = 4_300;
/// Up to this scale a decimal is written with all of its zeros.
const PLAIN_SCALE: i32 = 100;

const PARTS: [(&str, i64); 3] = [("", 1_000), ("Micro", 1_000_000), ("Nano", 1_000_000_000)];

impl Columns {
    /// Remember the columns of an event's schema, unless it is the one that is known.
    pub(super) fn learn(&mut self, event: &[u8]) {
        let root = Members::at(event, space(event, 0));
        let schema = root.map_while(Result::ok).find(|member| &*member.name == b"schema");
        self.learn_schema(schema.map_or(&[], |member| &event[member.value..member.to]));
    }

    /// Remember the columns of a schema, which is empty if there is none.
    pub(super) fn learn_schema(&mut self, text: &[u8]) {
        if text == self.schema {
            return;
        }
        self.schema.clear();
        self.schema.extend_from_slice(text);
        let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
        self.parsed = json::parse::<Value>(text, options).ok();
        self.rows = Fields::new(self.parsed.as_ref().map_or_else(Vec::new, rows));
    }

    /// Add the pieces of a row that the schema itself describes.
    pub(super) fn read_all(&self, row: &mut Reader<'_, '_>) {
        for member in Members::at(row.text, 0).map_while(Result::ok) {
            if let Some(kind) = self.rows.find(&member.name) {
                row.value(member.value, member.to, kind);
            }
        }
    }

    /// The defaults of the columns of a row: of the member *name* of the payload, or of all of it.
    pub(super) fn defaults(&self, name: Option<&str>, unavailable: &Unavailable) -> Defaults<'_> {
        let row = self.parsed.as_ref().and_then(|schema| name.map_or(Some(schema), |name| column(schema, name)));
        row.map_or_else(Defaults::default, |row| defaults_of(row, unavailable))
    }

    /// Add the pieces of a row, the member *name* of the payload, by the schema next to it.
    pub(super) fn read(&self, row: &mut Reader<'_, '_>, name: &str, at: usize, end: usize) {
        // Both have the same columns, and some sources describe them once.
        if let Some(columns) = self.rows.find(name.as_bytes()).or_else(|| self.rows.find(b"after").filter(|_| name == "before")) {
            row.value(at, end, columns);
        }
    }
}

/// The columns that a schema describes, by their names.
fn columns_of(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = match schema.get("fields") {
        Some(Value::List(fields)) => &fields[..],
        _ => &[],
    };
    fields.iter().filter_map(|field| Some((field.get("field")?.as_str()?, field)))
}

/// A column that a schema describes; of several with one name the last counts.
pub(super) fn column<'v>(schema: &'v Value, name: &str) -> Option<&'v Value> {
    columns_of(schema).filter(|(known, _)| *known == name).last().map(|(_, column)| column)
}

/// The default of each column that has one: as written, and as the type of the column reads it.
pub(super) type Defaults<'v> = HashMap<&'v str, Vec<Cow<'v, Value>>>;

/// The defaults of the columns of a row that a schema describes.
pub(super) fn defaults_of<'v>(row: &'v Value, unavailable: &Unavailable) -> Defaults<'v> {
    let columns: HashMap<&str, &Value> = columns_of(row).collect();
    let both = |(name, column): (&'v str, &'v Value)| {
        let read = default_of(column, unavailable).map(Cow::Owned);
        Some((name, std::iter::once(Cow::Borrowed(column.get("default")?)).chain(read).collect()))
    };
    columns.into_iter().filter_map(both).collect()
}

/// The rows of a schema, also those whose values are all read as they stand.
fn rows(schema: &Value) -> Vec<(Box<str>, SchemaType)> {
    let Some(Value::List(fields)) = schema.get("fields") else { return Vec::new() };
    let row = |field: &Value| Some((field.get("field")?.as_str()?.into(), type_of(field, 0)));
    let as_it_stands = || SchemaType::Struct(Fields::default());
    fields.iter().filter_map(row).map(|(name, kind)| (name, kind.unwrap_or_else(as_it_stands))).collect()
}

/// A column's default as its values are read; None if it has none, or if that is read as it stands.
fn default_of(column: &Value, unavailable: &Unavailable) -> Option<Value> {
    let kind = type_of(column, 0)?;
    let text = json::write(column.get("default")?).into_bytes();
    let mut pieces = Vec::new();
    Reader { text: &text, unavailable, pieces: &mut pieces }.value(0, text.len(), &kind);
    if pieces.is_empty() {
        return None;
    }
    let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
    json::parse::<Value>(&put_in_all(&text, &pieces), options).ok()
}

/// A text with pieces in the place of its values.
pub(super) fn put_in_all(text: &[u8], pieces: &[Piece]) -> Vec<u8> {
    put_in(text, pieces.iter().map(|(start, end, piece)| (*start, *end, &**piece)))
}

/// The fields of a struct whose values are not read as they stand.
fn fields(schema: &Value, depth: usize) -> Vec<(Box<str>, SchemaType)> {
    let Some(Value::List(fields)) = schema.get("fields") else { return Vec::new() };
    fields.iter().filter_map(|field| Some((field.get("field")?.as_str()?.into(), type_of(field, depth)?))).collect()
}

fn type_of(schema: &Value, depth: usize) -> Option<SchemaType> {
    if depth > DEEPEST {
        return None;
    }
    if let Some(name) = schema.get("name").and_then(Value::as_str)
        && let Some(kind) = logical(name, schema)
    {
        return kind;
    }
    let inner = |name: &str| schema.get(name).and_then(|inner| type_of(inner, depth + 1)).map(Box::new);
    match schema.get("type")?.as_str()? {
        "array" => inner("items").map(SchemaType::List),
        "map" => inner("values").map(SchemaType::Map),
        "struct" => Some(fields(schema, depth + 1))
            .filter(|fields| !fields.is_empty())
            .map(|fields| SchemaType::Struct(Fields::new(fields))),
        _ => None,
    }
}

/// The type that the name of a schema stands for; inside, None if it cannot be read.
#[expect(clippy::option_option, reason = "an unknown name differs from a name without a scale")]
fn logical(name: &str, schema: &Value) -> Option<Option<SchemaType>> {
    let named = |prefix: &str, name: &str| name.strip_prefix(prefix).map(str::to_owned);
    Some(match name {
        "org.apache.kafka.connect.data.Decimal" => scale_of(schema).map(SchemaType::Decimal),
        "io.debezium.data.VariableScaleDecimal" => Some(SchemaType::VariableDecimal),
        "io.debezium.data.Json" => Some(SchemaType::Json),
        "org.apache.kafka.connect.data.Date" | "io.debezium.time.Date" => Some(SchemaType::Date),
        "org.apache.kafka.connect.data.Time" => Some(SchemaType::Time(1_000)),
        "org.apache.kafka.connect.data.Timestamp" => Some(SchemaType::Timestamp(1_000)),
        _ => {
            let of = named("io.debezium.time.", name)?;
            let (parts, what) = PARTS.iter().rev().find_map(|(prefix, parts)| Some((*parts, of.strip_prefix(prefix)?)))?;
            match what {
                "Time" => Some(SchemaType::Time(parts)),
                "Timestamp" => Some(SchemaType::Timestamp(parts)),
                _ => return None,
            }
        }
    })
}

fn scale_of(schema: &Value) -> Option<i32> {
    let scale = schema.get("parameters")?.get("scale")?;
    let scale = match scale.as_str() {
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => text.parse().ok()?,
        Some(_) => return None,
        None => i32::try_from(integer(json::write(scale).as_bytes())?).ok()?,
    };
    (-LARGEST_SCALE..=LARGEST_SCALE).contains(&scale).then_some(scale)
}

/// Reads rows, and adds the pieces of those values that are not read as they stand.
pub(super) struct Reader<'t, 'p> {
    pub(super) text: &'t [u8],
    pub(super) unavailable: &'t Unavailable,
    pub(super) pieces: &'p mut Vec<Piece>,
}

impl Reader<'_, '_> {
    /// Add the pieces of the value from *at* to *end*. Recursive, as deep as the schema.
    fn value(&mut self, at: usize, end: usize, kind: &SchemaType) {
        let text = self.text;
        match (kind, peek(text, at)) {
            (SchemaType::Struct(columns), b'{') => {
                for member in Members::at(text, at).map_while(Result::ok) {
                    if let Some(kind) = columns.find(&member.name) {
                        self.value(member.value, member.to, kind);
                    }
                }
            }
            (SchemaType::Map(kind), b'{') => {
                for member in Members::at(text, at).map_while(Result::ok) {
                    self.value(member.value, member.to, kind);
                }
            }
            // Debezium writes the placeholder of some arrays as numbers.
            (SchemaType::List(_), b'[') if self.unavailable.is_spelled(&text[at..end]) => {}
            (SchemaType::List(kind), b'[') => {
                for (at, end) in elements(text, at) {
                    self.value(at, end, kind);
                }
            }
            _ => {
                if let Some(piece) = self.converted(at, end, kind) {
                    self.pieces.push((at, end, piece));
                }
            }
        }
    }

    /// Add the pieces of decimals in a row that have their scales, which need no schema. The pieces from *first* on
    /// are those of values that a schema types.
    pub(super) fn scaled(&mut self, first: usize, at: usize, end: usize) {
        let row = &self.text[at..end];
        // Such a decimal is an object, which most rows have none of. In a document in a text, the quote has an escape.
        let is_object = |at: usize| peek(row, space(row, at + 2)) == b'"';
        let has_objects = memchr::memchr_iter(b'{', &row[1..]).any(is_object);
        if !has_objects || self.unavailable.scale.find(row).is_none() && !self.unavailable.may_spell_names_in(row) {
            return;
        }
        let typed = first..self.pieces.len();
        for member in Members::at(self.text, at).map_while(Result::ok) {
            self.add_scaled(&typed, member.value, member.to, 0);
        }
    }

    /// Recursive, at most [`DEEPEST`] deep.
    fn add_scaled(&mut self, typed: &Range<usize>, at: usize, end: usize, depth: usize) {
        if depth >= DEEPEST {
            return;
        }
        match peek(self.text, at) {
            b'{' => {
                let members: Vec<_> = Members::at(self.text, at).map_while(Result::ok).collect();
                let has = |name: &[u8]| members.iter().any(|member| &*member.name == name);
                if has(b"scale") && has(b"value") && members.iter().all(|member| matches!(&*member.name, b"scale" | b"value")) {
                    let pieces = &self.pieces[typed.clone()];
                    let next = pieces.partition_point(|(start, _, _)| *start < at);
                    if pieces.get(next).is_none_or(|(start, _, _)| *start >= end) {
                        self.value(at, end, &SchemaType::VariableDecimal);
                    }
                    return;
                }
                members.iter().for_each(|member| self.add_scaled(typed, member.value, member.to, depth + 1));
            }
            b'[' => {
                for (at, end) in elements(self.text, at) {
                    self.add_scaled(typed, at, end, depth + 1);
                }
            }
            _ => {}
        }
    }

    fn converted(&self, at: usize, end: usize, kind: &SchemaType) -> Option<Vec<u8>> {
        let (text, first) = (&self.text[at..end], peek(self.text, at));
        let quoted = |text: String| format!("\"{text}\"").into_bytes();
        match (kind, first) {
            (SchemaType::Decimal(scale), b'"') => decimal(&self.carried(text)?, *scale),
            (SchemaType::VariableDecimal, b'{') => {
                let (mut scale, mut digits) = (None, None);
                for member in Members::at(self.text, at).map_while(Result::ok) {
                    let value = &self.text[member.value..member.to];
                    match &*member.name {
                        b"scale" => scale = Some(i32::try_from(integer(value)?).ok()?),
                        b"value" => digits = Some(self.carried(value)?),
                        _ => return None,
                    }
                }
                decimal(&digits?, scale?)
            }
            (SchemaType::Json, b'"') => {
                let inner = self.carried(text)?;
                let from = space(&inner, 0);
                let to = skip::checked(&inner, from, 0, DEEPEST_JSON, &mut Vec::new()).ok()?;
                (space(&inner, to) == inner.len()).then(|| inner[from..to].to_vec())
            }
            (SchemaType::Date, b'-' | b'0'..=b'9') => date(integer(text)?).map(quoted),
            (SchemaType::Time(parts), b'-' | b'0'..=b'9') => {
                let value = integer(text)?;
                let seconds = value.div_euclid(*parts);
                (0..=86_400).contains(&seconds).then(|| quoted(clock(seconds, value.rem_euclid(*parts), *parts)))
            }
            (SchemaType::Timestamp(parts), b'-' | b'0'..=b'9') => {
                let value = integer(text)?;
                let seconds = value.div_euclid(*parts);
                let clock = clock(seconds.rem_euclid(86_400), value.rem_euclid(*parts), *parts);
                Some(quoted(format!("{}T{clock}Z", date(seconds.div_euclid(86_400))?)))
            }
            _ => None,
        }
    }

    /// The text in a JSON string, if it is one that the source carries.
    fn carried(&self, quoted: &[u8]) -> Option<Vec<u8>> {
        let inside = string_of(quoted)?;
        (!self.unavailable.is_in(std::str::from_utf8(&inside).ok()?)).then(|| inside.into_owned())
    }
}

/// The text in a JSON string.
fn string_of(quoted: &[u8]) -> Option<Cow<'_, [u8]>> {
    Some(token::unescaped(quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?))
}

/// The elements of the list that begins at *at*, each by its first offset and the one behind it.
pub(crate) fn elements(text: &[u8], at: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = space(text, at + 1);
    std::iter::from_fn(move || {
        if peek(text, at) == b']' {
            return None;
        }
        let element = (at, skip::trusted(text, at).ok()?);
        at = space(text, element.1);
        if peek(text, at) == b',' {
            at = space(text, at + 1);
        }
        Some(element)
    })
}

/// A JSON number without fraction and exponent, of 64 bits.
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if all { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// A decimal: a big-endian integer in two's complement in base64, of which *scale* digits are behind the point.
fn decimal(encoded: &[u8], scale: i32) -> Option<Vec<u8>> {
    if !(-LARGEST_SCALE..=LARGEST_SCALE).contains(&scale) {
        return None;
    }
    let mut bytes = base64(encoded)?;
    let is_negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    if is_negative {
        // Its magnitude is the complement, plus one.
        let mut carry = true;
        for byte in bytes.iter_mut().rev() {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
        if carry {
            bytes.insert(0, 1);
        }
    }
    let mut digits = digits_of(&bytes)?;
    let is_zero = digits == b"0";
    if scale.abs() > PLAIN_SCALE {
        // A short value cannot become a long text.
        if !is_zero {
            digits.extend(format!("E{}", -scale).into_bytes());
        }
    } else if scale > 0 {
        let scale = scale as usize;
        if digits.len() <= scale {
            digits.splice(0..0, std::iter::repeat_n(b'0', scale + 1 - digits.len()));
        }
        digits.insert(digits.len() - scale, b'.');
    } else if !is_zero {
        digits.extend(std::iter::repeat_n(b'0', scale.unsigned_abs() as usize));
    }
    if is_negative {
        digits.insert(0, b'-');
    }
    Some(digits)
}

/// An integer's digits; None for more than Python prints.
fn digits_of(bytes: &[u8]) -> Option<Vec<u8>> {
    // More bytes than these digits need.
    let bytes = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len())..];
    if bytes.len() > MOST_DIGITS / 2 {
        return None;
    }
    // In groups of nine digits, the lowest first. Each pass adds four words: their divisions run at the same time.
    let mut words = vec![0; bytes.len().next_multiple_of(16) - bytes.len()];
    words.extend_from_slice(bytes);
    let mut groups = vec![0_u32];
    for words in words.chunks_exact(16) {
        let mut carries = [0, 4, 8, 12].map(|at| words[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        groups.extend([0; 5]);
        for group in &mut groups {
            for carry in &mut carries {
                let value = (u64::from(*group) << 32) + *carry;
                (*group, *carry) = ((value % 1_000_000_000) as u32, value / 1_000_000_000);
            }
        }
        groups.truncate(groups.iter().rposition(|group| *group > 0).unwrap_or(0) + 1);
    }
    let mut text = String::new();
    for (at, group) in groups.iter().rev().enumerate() {
        _ = if at == 0 { write!(text, "{group}") } else { write!(text, "{group:09}") };
    }
    (text.len() <= MOST_DIGITS).then(|| text.into_bytes())
}

/// The bytes in a text of base64 with its padding.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = &text[..text.len() - padding];
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

/// A date, days after 1970, in the years 1 to 9999.
fn date(days: i64) -> Option<String> {
    let ns = timestamps::in_range(i128::from(days) * 86_400 * 1_000_000_000).ok()?;
    let mut text = String::new();
    timestamps::write_rfc3339(&mut text, ns);
    text.truncate("2026-01-31".len());
    Some(text)
}

fn clock(seconds: i64, rest: i64, parts: i64) -> String {
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if rest > 0 {
        // The first digit is that of the sum alone.
        let digits = (parts + rest).to_string();
        text.push('.');
        text.push_str(digits[1..].trim_end_matches('0'));
    }
    text
}

// --- Extended JSON

/// The pieces of a document of MongoDB: its numbers, ids and dates as plain JSON.
pub(super) fn extended(text: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if memchr::memmem::find(text, b"$").is_some() || memchr::memmem::find(text, b"\\u0024").is_some() {
        add_extended(text, space(text, 0), 0, &mut pieces);
    }
    pieces
}

/// Recursive, at most [`DEEPEST_DOCUMENT`] deep.
fn add_extended(text: &[u8], at: usize, depth: usize, pieces: &mut Vec<Piece>) {
    if depth > DEEPEST_DOCUMENT {
        return;
    }
    match peek(text, at) {
        b'{' => {
            // Only a member can be a value, not the document.
            if depth > 0
                && let Some(member) = only_member(text, at)
                && let Some(piece) = plain(&member.name, &text[member.value..member.to])
            {
                let end = space(text, member.to) + 1;
                pieces.push((at, end, piece));
                return;
            }
            // A date outside of the years 1 to 9999 stays as it is.
            for member in Members::at(text, at).map_while(Result::ok).filter(|member| &*member.name != b"$date") {
                add_extended(text, member.value, depth + 1, pieces);
            }
        }
        b'[' => {
            for (at, _) in elements(text, at) {
                add_extended(text, at, depth + 1, pieces);
            }
        }
        _ => {}
    }
}

/// The member of an object that has one, if its name is one of Extended JSON; of several with that name, the last.
fn only_member(text: &[u8], at: usize) -> Option<Member<'_>> {
    let mut members = Members::at(text, at).map_while(Result::ok);
    let mut last = members.next().filter(|first| first.name.first() == Some(&b'$'))?;
    for member in members {
        if member.name != last.name {
            return None;
        }
        last = member;
    }
    Some(last)
}

/// The plain JSON of a value of Extended JSON; None for other objects, and for values that have no plain form.
fn plain(name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    match name {
        b"$oid" | b"$uuid" | b"$symbol" => (peek(value, 0) == b'"').then(|| value.to_vec()),
        b"$numberInt" | b"$numberLong" | b"$numberDouble" | b"$numberDecimal" => {
            let digits = string_of(value)?;
            if [&b"NaN"[..], b"Infinity", b"-Infinity"].contains(&&digits[..]) {
                return Some(value.to_vec());
            }
            let (end, _) = token::number(&digits, 0).ok().filter(|_| matches!(peek(&digits, 0), b'-' | b'0'..=b'9'))?;
            (end == digits.len()).then(|| digits.into_owned())
        }
        b"$date" => moment(value),
        b"$binary" => uuid(value),
        _ => None,
    }
}

/// A date of Extended JSON as RFC 3339 text.
fn moment(value: &[u8]) -> Option<Vec<u8>> {
    let ns = moment_ns(value)?;
    let mut text = String::with_capacity("\"2026-01-31T12:00:00.000Z\"".len());
    text.push('"');
    // In milliseconds.
    timestamps::write_rfc3339(&mut text, ns - ns.rem_euclid(1_000_000));
    text.push('"');
    Some(text.into_bytes())
}

/// A date of Extended JSON, in nanoseconds since the epoch: milliseconds, also in `{"$numberLong": "…"}`, or a text.
pub(super) fn moment_ns(value: &[u8]) -> Option<i128> {
    let mut value = value;
    if peek(value, 0) == b'{' {
        let long = Members::at(value, 0).map_while(Result::ok).find(|member| &*member.name == b"$numberLong")?;
        value = &value[long.value..long.to];
    }
    let text = if peek(value, 0) == b'"' { string_of(value)? } else { Cow::Borrowed(value) };
    // Digits in a text may begin with a zero, which those of JSON do not.
    let is_number = token::number(&text, 0).is_ok_and(|(end, _)| end == text.len());
    match integer(&text).filter(|_| is_number) {
        Some(ms) => timestamps::in_range(i128::from(ms) * 1_000_000).ok(),
        None => timestamps::rfc3339(std::str::from_utf8(&text).ok()?).ok(),
    }
}

/// A UUID of Extended JSON: 16 bytes of the binary subtype 4.
fn uuid(value: &[u8]) -> Option<Vec<u8>> {
    let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
    let value: Value = json::parse(value, options).ok()?;
    let kind = value.get("subType")?;
    let kind = kind.as_str().map_or_else(|| json::write(kind), str::to_owned);
    let is_uuid = |bytes: &Vec<u8>| kind.trim_start_matches('0') == "4" && bytes.len() == 16;
    let bytes = base64(value.get("base64")?.as_str()?.as_bytes()).filter(is_uuid)?;
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        _ = write!(text, "{byte:02x}");
    }
    let mut quoted = String::new();
    json::write_string(&mut quoted, &text);
    Some(quoted.into_bytes())
}
