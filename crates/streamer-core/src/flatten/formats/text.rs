//! The text of a record that is known to be JSON: its values where they stand, and the errors about them.

use super::super::records::{self, Member, Members};
use super::super::typed;
use crate::error::{EventCode, EventError};
use crate::json::token::{self, JsonFault, peek, space};
use crate::layout::encode_pointer;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The text of one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'t>(pub &'t str);

impl<'t> Json<'t> {
    pub fn first(self) -> u8 {
        peek(self.0.as_bytes(), 0)
    }

    pub fn is_null(self) -> bool {
        self.first() == b'n'
    }

    /// The JSON type, for messages.
    pub fn named(self) -> &'static str {
        match self.first() {
            b'{' => "an object",
            b'[' => "an array",
            b'"' => "a string",
            b'n' => "null",
            b't' | b'f' => "a boolean",
            _ => "a number",
        }
    }

    /// The text of a string.
    pub fn string(self) -> Option<Cow<'t, str>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        match token::unescaped(inside.as_bytes()) {
            Cow::Borrowed(_) => Some(Cow::Borrowed(inside)),
            Cow::Owned(plain) => String::from_utf8(plain).ok().map(Cow::Owned),
        }
    }

    /// A number without fraction and exponent, of 64 bits.
    pub fn integer(self) -> Option<i128> {
        let digits = self.0.strip_prefix('-').unwrap_or(self.0);
        let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let value = if all { self.0.parse::<i128>().ok()? } else { return None };
        (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
    }

    pub fn elements(self) -> impl Iterator<Item = Json<'t>> {
        let elements = (self.first() == b'[').then(|| typed::elements(self.0.as_bytes(), 0));
        elements.into_iter().flatten().map(move |(from, to)| Json(&self.0[from..to]))
    }
}

/// The most members of a record or a row, more than any database has columns.
const MOST_MEMBERS: usize = 65_536;

/// An object of a record.
#[derive(Clone, Debug)]
pub(super) struct Object<'t> {
    /// In their order, with duplicates.
    pub members: Vec<(Cow<'t, str>, Json<'t>)>,
}

impl<'t> Object<'t> {
    /// The members of an object; none of another value.
    pub fn of(value: Json<'t>) -> Object<'t> {
        Object::first(value, usize::MAX)
    }

    /// The first members of an object.
    fn first(value: Json<'t>, most: usize) -> Object<'t> {
        let text = if value.first() == b'{' { value.0 } else { "" };
        let member = |member: Member<'t>| {
            let name = match member.name {
                Cow::Borrowed(name) => Some(Cow::Borrowed(&text[member.from + 1..][..name.len()])),
                Cow::Owned(name) => String::from_utf8(name).ok().map(Cow::Owned),
            };
            Some((name?, Json(&text[member.value..member.to])))
        };
        Object { members: Members::at(text.as_bytes(), 0).map_while(Result::ok).take(most).filter_map(member).collect() }
    }

    /// A member; of several with one name the last counts.
    pub fn get(&self, name: &str) -> Option<Json<'t>> {
        self.members.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The members in the order of their names, as [`Object::get`] returns each, which reads all of them.
    pub fn sorted(&self) -> BTreeMap<&str, Json<'t>> {
        self.members.iter().map(|(name, value)| (&**name, *value)).collect()
    }
}

/// What a member must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    Object,
    Array,
    String,
    Integer,
}

impl Expected {
    fn is(self, value: Json<'_>) -> bool {
        match self {
            Expected::Object => value.first() == b'{',
            Expected::Array => value.first() == b'[',
            Expected::String => value.first() == b'"',
            Expected::Integer => value.integer().is_some(),
        }
    }

    fn named(self) -> &'static str {
        match self {
            Expected::Object => "an object",
            Expected::Array => "an array",
            Expected::String => "a string",
            Expected::Integer => "an integer",
        }
    }
}

/// The name of a format, for errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct What(pub &'static str);

impl What {
    /// An error at a place.
    #[cold]
    pub fn error(self, code: EventCode, place: impl Into<Box<str>>, reason: &str) -> EventError {
        EventError { code, offset: None, place: Some(place.into()), reason: format!("{}: {reason}", self.0).into() }
    }

    /// A member of the object at *at*; None if it is null or missing.
    pub fn part<'t>(self, object: &Object<'t>, name: &str, expected: Expected, at: &str) -> Result<Option<Json<'t>>, EventError> {
        match object.get(name).filter(|value| !value.is_null()) {
            Some(value) if !expected.is(value) => {
                let reason = format!("{name} is {}, not {}", expected.named(), value.named());
                Err(self.error(EventCode::WrongType, below(at, name), &reason))
            }
            member => Ok(member),
        }
    }

    /// A member of the object at *at* that must be there.
    pub fn needed<'t>(self, object: &Object<'t>, name: &str, expected: Expected, at: &str) -> Result<Json<'t>, EventError> {
        let missing = || self.error(EventCode::WrongType, below(at, name), &format!("{name} is missing"));
        self.part(object, name, expected, at)?.ok_or_else(missing)
    }

    /// The text of a member that must be there.
    pub fn text<'t>(self, object: &Object<'t>, name: &str, at: &str) -> Result<Cow<'t, str>, EventError> {
        self.needed(object, name, Expected::String, at).map(|value| value.string().unwrap_or_default())
    }

    /// The number in a text, as it is spelled.
    pub fn number(self, text: &str, place: impl FnOnce() -> String) -> Result<&str, EventError> {
        if is_number(text) {
            return Ok(text);
        }
        let reason = format!("expected a number as JSON has it, not {}", shown(text));
        Err(self.error(EventCode::BadValue, place(), &reason))
    }

    /// The members of the object at *at*, if it has few enough.
    pub fn object<'t>(self, value: Json<'t>, at: impl FnOnce() -> String) -> Result<Object<'t>, EventError> {
        let object = Object::first(value, MOST_MEMBERS + 1);
        if object.members.len() <= MOST_MEMBERS {
            return Ok(object);
        }
        Err(self.too_many_members(Members::at(value.0.as_bytes(), 0).map_while(Result::ok).count(), at()))
    }

    /// The columns of a row in the list at *at*, if there are few enough.
    pub fn columns<'t>(self, list: Option<Json<'t>>, at: &str) -> Result<Vec<Json<'t>>, EventError> {
        let Some(list) = list else { return Ok(Vec::new()) };
        let columns: Vec<Json<'t>> = list.elements().take(MOST_MEMBERS + 1).collect();
        if columns.len() <= MOST_MEMBERS {
            return Ok(columns);
        }
        Err(self.too_many_members(list.elements().count(), at.into()))
    }

    #[cold]
    fn too_many_members(self, count: usize, at: String) -> EventError {
        let reason = format!("{} members: expected at most {}", thousands(count), thousands(MOST_MEMBERS));
        self.error(EventCode::TooLong, at, &reason)
    }

    /// The changes of a record in the list at *at*, if there are few enough.
    pub fn changes<'t>(self, list: Json<'t>, at: &str, most: usize) -> Result<Vec<Json<'t>>, EventError> {
        let changes: Vec<Json<'t>> = list.elements().take(most.saturating_add(1)).collect();
        if changes.len() <= most {
            return Ok(changes);
        }
        let count = thousands(list.elements().count());
        let reason = format!("the record has {count} events: expected at most {}", thousands(most));
        Err(self.error(EventCode::TooLong, at, &reason))
    }

    /// The JSON in a text; how deep it is shows when the change is read.
    pub fn json(self, text: &str, place: impl FnOnce() -> String) -> Result<&str, EventError> {
        let bytes = text.as_bytes();
        let from = space(bytes, 0);
        match records::whole(bytes, from, 0, usize::MAX, &mut Vec::new()) {
            Ok(end) => Ok(&text[from..end]),
            Err(fault) => Err(self.inside(fault, place())),
        }
    }

    /// A fault of the JSON that stands in a text.
    #[cold]
    pub fn inside(self, fault: JsonFault, place: impl Into<Box<str>>) -> EventError {
        let offset = fault.offset;
        let EventError { code, reason, .. } = fault.into();
        self.error(code, place, &format!("the JSON in it, at byte {offset}: {reason}"))
    }
}

/// Whether a text is a number of JSON.
pub(super) fn is_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!(peek(bytes, 0), b'-' | b'0'..=b'9') && token::number(bytes, 0).is_ok_and(|(end, _)| end == bytes.len())
}

/// The beginning of a text, quoted.
pub(super) fn shown(text: &str) -> String {
    let end = text.char_indices().nth(40).map_or(text.len(), |(at, _)| at);
    format!("'{}'", text[..end].escape_debug())
}

/// A number with commas, as `1,000`.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// A place below another.
pub(super) fn below(place: &str, name: &str) -> String {
    format!("{place}{}", encode_pointer(&[Box::from(name)]))
}
