//! The parts of an event, resolved through its layout and checked (semantics.md section 1).
//!
//! An error of an earlier part hides those of later ones; the order is that of the section's table.

use super::entries::{Entries, Entry};
use super::flat::{EventId, Flat, Parts};
use super::timestamps::{in_range, rfc3339};
use super::trie::{ALWAYS, BEFORE, COLLECTION, DATA, FALLBACK, ID, PartPlace, PathTrie, TENANT, TOPIC, TS, TYPE, UNKNOWN};
use crate::error::{EventCode, EventError, Ignored};
use crate::json::{self, ParseOptions, Tree};
use crate::layout::{
    EventType, Format, Part, Piece, Pointer, Template, TimestampFormat, TypeMeaning, decode_pointer, encode_pointer,
};
use crate::subscriptions::wording::{quote, shortened};
use crate::value::{Kind, Scalar};

/// The parts of an event that the caller supplies with its text.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerParts<'a> {
    /// Its tenant; wins over the event's.
    pub tenant: Option<&'a str>,
    /// Its collection; wins over the event's.
    pub collection: Option<&'a str>,
    /// The tenant of an event that has none; without it such an event is an error.
    pub default_tenant: Option<&'a str>,
}

/// A string part: the place of its text.
#[derive(Clone, Copy, Debug)]
enum PartText {
    None,
    Caller,
    Default,
    Constant,
    /// A template's text.
    Made,
    /// From and up to an offset, of the event's text or of the unescaped strings.
    Written(u32, u32),
    Unescaped(u32, u32),
}

impl PartText {
    /// The text of a string.
    #[inline(always)]
    fn of(entry: &Entry) -> PartText {
        match entry.plain {
            0 => PartText::Written(entry.start + 1, entry.end - 1),
            at => PartText::Unescaped(at - 1, at - 1 + entry.plain_length),
        }
    }
}

/// The parts, before anything borrows from the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolved {
    tenant: PartText,
    collection: PartText,
    topic: PartText,
    pub(super) event_type: Option<EventType>,
    ts_ns: Option<i128>,
    has_unknown: bool,
    is_bare: bool,
    /// See `Flat`.
    pub(super) data: u16,
    pub(super) before: u16,
    /// The start and the node of `before`, if it was only skipped and now counts as `data`.
    pub(super) fallback: Option<(usize, u32)>,
}

/// Why there is no event at all: an empty text, or the value of a tombstone.
#[cold]
pub(super) fn nothing(event: &[u8]) -> Option<Ignored> {
    let is_ink = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let Some(from) = event.iter().position(is_ink) else { return Some(Ignored::Empty) };
    let to = event.iter().rposition(is_ink).map_or(from, |last| last + 1);
    (&event[from..to] == b"null").then_some(Ignored::Null)
}

/// The reason to ignore an object, whatever its other parts are.
pub(super) fn ignored(trie: &PathTrie, entries: &Entries, text: &str) -> Option<Ignored> {
    let reader = PartReader { trie, entries, text };
    if reader.type_word().is_some_and(|word| trie.layout.event_type(word) == Some(TypeMeaning::Ignore)) {
        return Some(Ignored::Type);
    }
    let is_bare = || [TYPE, DATA, BEFORE, UNKNOWN].iter().all(|part| reader.find(*part).is_none());
    (trie.layout.ignores_no_change && is_bare()).then_some(Ignored::NoChange)
}

/// Find the parts and check them.
pub(super) fn resolve(
    trie: &PathTrie,
    entries: &Entries,
    text: &str,
    caller: &CallerParts<'_>,
    checked: bool,
    max_depth: usize,
    made: &mut String,
) -> Result<Resolved, EventError> {
    let reader = PartReader { trie, entries, text };
    let has = |part: usize| trie.has_part[part];
    if has(ID) {
        reader.id()?;
    }
    let mut tenant = reader.name(TENANT, caller.tenant)?;
    if let PartText::None = tenant {
        if caller.default_tenant.is_none() {
            return Err(EventError {
                code: EventCode::NoTenant,
                offset: None,
                place: None,
                reason: "the event has no tenant and the engine no default_tenant".into(),
            });
        }
        tenant = PartText::Default;
    }
    let collection = match &trie.layout.collection {
        Part::Made(templates, _) => reader.made(COLLECTION, templates, caller.collection, made)?,
        _ => reader.name(COLLECTION, caller.collection)?,
    };
    let event_type = if has(TYPE) { reader.event_type()? } else { None };
    let ts_ns = if has(TS) { reader.ts()? } else { None };
    let topic = if has(TOPIC) { reader.string(TOPIC)? } else { PartText::None };
    let mut data = reader.document()?.map_or(ALWAYS, |place| place as u16);
    let first_before = trie.places[DATA].len();
    let before = if has(BEFORE) { reader.object(BEFORE)? } else { None };
    let before = before.map_or(ALWAYS, |place| (first_before + place) as u16);
    let has_unknown = has(UNKNOWN) && reader.unknown(checked, max_depth)?;
    let mut fallback = None;
    // AWS DMS writes the key in `data` of a delete, and the row in `before-image`.
    let is_in_before = || data == ALWAYS || trie.layout.format == Some(Format::Dms);
    if event_type == Some(EventType::Delete) && before != ALWAYS && is_in_before() {
        data = before;
        let node = trie.places[BEFORE][usize::from(before) - first_before].node;
        if trie.nodes[node as usize].flags & FALLBACK != 0 {
            fallback = entries.value(node).map(|entry| (entry.start as usize, node));
        }
    }
    let is_bare = event_type.is_none() && data == ALWAYS && !has_unknown && reader.find(COLLECTION).is_none();
    Ok(Resolved { tenant, collection, topic, event_type, ts_ns, has_unknown, is_bare, data, before, fallback })
}

impl Resolved {
    pub(super) fn parts<'a>(
        &self,
        trie: &'a PathTrie,
        text: &'a str,
        plain: &'a str,
        made: &'a str,
        caller: &CallerParts<'a>,
    ) -> Parts<'a> {
        let read = |part: usize, place: PartText, caller: Option<&'a str>, default: Option<&'a str>| match place {
            PartText::None => None,
            PartText::Caller => caller,
            PartText::Default => default,
            PartText::Made => Some(made),
            PartText::Constant => match trie.layout.parts()[part].1.constant() {
                Some(Scalar::String(text)) => Some(&**text),
                _ => None,
            },
            PartText::Written(from, to) => Some(&text[from as usize..to as usize]),
            PartText::Unescaped(from, to) => Some(&plain[from as usize..to as usize]),
        };
        Parts {
            tenant: read(TENANT, self.tenant, caller.tenant, caller.default_tenant).unwrap_or_default(),
            collection: read(COLLECTION, self.collection, caller.collection, None),
            event_type: self.event_type,
            topic: read(TOPIC, self.topic, None, None),
            ts_ns: self.ts_ns,
            has_unknown: self.has_unknown,
            is_known_after: false,
            is_bare: self.is_bare,
        }
    }
}

fn text_of<'a>(entry: &Entry, text: &'a str, plain: &'a str) -> &'a str {
    if entry.plain != 0 {
        &plain[entry.plain as usize - 1..][..entry.plain_length as usize]
    } else {
        &text[entry.start as usize + 1..entry.end as usize - 1]
    }
}

struct PartReader<'r> {
    trie: &'r PathTrie,
    entries: &'r Entries,
    text: &'r str,
}

impl<'r> PartReader<'r> {
    /// The first place of a part that is present and not null.
    #[inline(always)]
    fn find(&self, part: usize) -> Option<(usize, &'r PartPlace, &'r Entry)> {
        // Most parts have one place, and most of those are missing.
        let there = |place: &'r PartPlace| self.entries.value(place.node).filter(|entry| entry.kind != Kind::Null);
        match &*self.trie.places[part] {
            [] => None,
            [place] => there(place).map(|entry| (0, place, entry)),
            places => self.find_among(places),
        }
    }

    #[inline(never)]
    fn find_among(&self, places: &'r [PartPlace]) -> Option<(usize, &'r PartPlace, &'r Entry)> {
        places.iter().enumerate().find_map(|(index, place)| {
            let entry = self.entries.value(place.node)?;
            (entry.kind != Kind::Null).then_some((index, place, entry))
        })
    }

    fn name_of(&self, part: usize) -> &'static str {
        self.trie.layout.parts()[part].0
    }

    fn constant(&self, part: usize) -> Option<&'r Scalar> {
        // Most layouts have none, and skip the lookup.
        self.trie.has_constants.then(|| self.trie.layout.parts()[part].1.constant()).flatten()
    }

    fn raw(&self, entry: &Entry) -> &'r str {
        &self.text[entry.start as usize..entry.end as usize]
    }

    /// The plain text of a string.
    fn plain(&self, entry: &Entry) -> &'r str {
        let plain = if entry.plain == 0 { "" } else { std::str::from_utf8(&self.entries.plain).unwrap_or_default() };
        text_of(entry, self.text, plain)
    }

    #[cold]
    fn error(&self, code: EventCode, reason: String, value: Option<(usize, &PartPlace, &Entry)>) -> EventError {
        EventError {
            code,
            offset: value.map(|(_, _, entry)| entry.start as usize),
            place: value.map(|(_, place, _)| encode_pointer(&place.pointer).into()),
            reason: reason.into(),
        }
    }

    #[cold]
    fn wrong_type(&self, part: usize, expected: &str, value: (usize, &PartPlace, &Entry)) -> EventError {
        let reason = format!("{} is {expected}, not {}", self.name_of(part), value.2.kind.json_type());
        self.error(EventCode::WrongType, reason, Some(value))
    }

    fn id(&self) -> Result<(), EventError> {
        match self.find(ID) {
            Some((_, _, entry)) if entry.kind == Kind::String || integer(self.raw(entry)).is_some() => Ok(()),
            Some(value) => Err(self.wrong_type(ID, "a string or an integer", value)),
            None => Ok(()),
        }
    }

    #[inline]
    fn string(&self, part: usize) -> Result<PartText, EventError> {
        match self.find(part) {
            Some((_, _, entry)) if entry.kind == Kind::String => Ok(PartText::of(entry)),
            Some(value) => Err(self.wrong_type(part, "a string", value)),
            None if self.constant(part).is_some() => Ok(PartText::Constant),
            None => Ok(PartText::None),
        }
    }

    fn name(&self, part: usize, argument: Option<&str>) -> Result<PartText, EventError> {
        let text = if self.trie.has_part[part] { self.string(part)? } else { PartText::None };
        match (text, argument) {
            (PartText::Written(..) | PartText::Unescaped(..), _) if self.is_star(text) => {
                Err(self.reserved(part, self.find(part)))
            }
            (_, Some("*")) => Err(self.reserved(part, None)),
            (_, Some(_)) => Ok(PartText::Caller),
            (text, None) => Ok(text),
        }
    }

    /// Write the text of a template to *made*.
    #[inline(never)]
    fn made(
        &self,
        part: usize,
        templates: &[Template],
        argument: Option<&str>,
        made: &mut String,
    ) -> Result<PartText, EventError> {
        let there = |at: &Pointer| {
            let mut places = self.trie.places[part].iter().filter(|place| place.pointer == *at);
            places.find_map(|place| Some((0, place, self.entries.value(place.node).filter(|entry| entry.kind != Kind::Null)?)))
        };
        let mut text = PartText::None;
        for template in templates {
            let pointers = || template.iter().filter_map(|piece| if let Piece::Pointer(at) = piece { Some(at) } else { None });
            if !pointers().all(|at| there(at).is_some()) {
                continue;
            }
            made.clear();
            for piece in template.iter() {
                match piece {
                    Piece::Text(text) => made.push_str(text),
                    Piece::Pointer(at) => match there(at) {
                        Some((_, _, entry)) if entry.kind == Kind::String => made.push_str(self.plain(entry)),
                        Some(value) => {
                            let expected = if template.len() == 1 { "a string" } else { "made of strings" };
                            return Err(self.wrong_type(part, expected, value));
                        }
                        None => {}
                    },
                }
            }
            if *made == "*" {
                return Err(self.reserved(part, pointers().next().and_then(&there)));
            }
            text = PartText::Made;
            break;
        }
        match argument {
            Some("*") => Err(self.reserved(part, None)),
            Some(_) => Ok(PartText::Caller),
            None => Ok(text),
        }
    }

    #[inline]
    fn is_star(&self, text: PartText) -> bool {
        match text {
            PartText::Written(from, to) => to - from == 1 && self.text.as_bytes()[from as usize] == b'*',
            PartText::Unescaped(from, to) => to - from == 1 && self.entries.plain[from as usize] == b'*',
            _ => false,
        }
    }

    #[cold]
    fn reserved(&self, part: usize, value: Option<(usize, &PartPlace, &Entry)>) -> EventError {
        let reason = format!("{} '*' means every one and cannot name one", self.name_of(part));
        self.error(EventCode::ReservedName, reason, value)
    }

    /// The event's word for its type, if that is a string.
    fn type_word(&self) -> Option<&'r str> {
        match (self.find(TYPE), self.constant(TYPE)) {
            (Some((_, _, entry)), _) => (entry.kind == Kind::String).then(|| self.plain(entry)),
            (None, Some(Scalar::String(word))) => Some(word),
            (None, _) => None,
        }
    }

    fn event_type(&self) -> Result<Option<EventType>, EventError> {
        // The type is missing, or it is not a string.
        let Some(word) = self.type_word() else { return self.string(TYPE).map(|_| None) };
        match self.trie.layout.event_type(word) {
            Some(TypeMeaning::Type(event_type)) => Ok(Some(event_type)),
            // An event to be ignored is not here.
            Some(TypeMeaning::Ignore | TypeMeaning::Untyped) => Ok(None),
            None => {
                let words: Vec<&str> = match &self.trie.layout.type_map {
                    None => EventType::ALL.map(EventType::as_str).to_vec(),
                    Some(words) => words.iter().map(|(word, _)| &**word).collect(),
                };
                let reason = format!("type is one of {}, not {}", words.join(", "), shown(word));
                Err(self.error(EventCode::BadValue, reason, self.find(TYPE)))
            }
        }
    }

    fn ts(&self) -> Result<Option<i128>, EventError> {
        let format = self.trie.layout.ts_format;
        let value = self.find(TS);
        let (text, whole) = match (&value, self.constant(TS)) {
            (Some((_, _, entry)), _) if entry.kind == Kind::String => (Some(self.plain(entry)), None),
            (Some((_, _, entry)), _) => (None, integer(self.raw(entry))),
            (None, Some(Scalar::String(text))) => (Some(&**text), None),
            (None, Some(Scalar::Number(number))) => (None, number.as_integer()),
            (None, _) => return Ok(None),
        };
        let expected = if format == TimestampFormat::Rfc3339 { "a string" } else { "an integer" };
        let ns = match (format, text, whole) {
            (TimestampFormat::Rfc3339, Some(text), _) => rfc3339(text),
            (TimestampFormat::Seconds, _, Some(whole)) => in_range(whole * 1_000_000_000),
            (TimestampFormat::Milliseconds, _, Some(whole)) => in_range(whole * 1_000_000),
            (TimestampFormat::Microseconds, _, Some(whole)) => in_range(whole * 1_000),
            (TimestampFormat::Nanoseconds, _, Some(whole)) => in_range(whole),
            _ => {
                return Err(match value {
                    Some(value) => self.wrong_type(TS, expected, value),
                    None => self.error(EventCode::WrongType, format!("ts is {expected}"), None),
                });
            }
        };
        match ns {
            // Cassandra's connector may write microseconds.
            Err(_) if self.trie.layout.format == Some(Format::Debezium) => Ok(None),
            ns => ns.map(Some).map_err(|reason| self.error(EventCode::BadTimestamp, reason.into(), value)),
        }
    }

    /// Which place of a document counts.
    fn object(&self, part: usize) -> Result<Option<usize>, EventError> {
        match self.find(part) {
            Some((index, _, entry)) if entry.kind == Kind::Map => Ok(Some(index)),
            Some(value) => Err(self.wrong_type(part, "an object or null", value)),
            None => Ok(None),
        }
    }

    /// The place of `data` that has the document. An event of CloudEvents may have any value there: then it has no
    /// document.
    fn document(&self) -> Result<Option<usize>, EventError> {
        let may_be_any = self.trie.layout.format == Some(Format::CloudEvents);
        if may_be_any && self.find(DATA).is_some_and(|(_, _, entry)| entry.kind != Kind::Map) {
            return Ok(None);
        }
        self.object(DATA)
    }

    /// Whether any pointer is in `unknown`. One with more steps than an event may have levels is refused.
    fn unknown(&self, checked: bool, max_depth: usize) -> Result<bool, EventError> {
        let Some(value) = self.find(UNKNOWN) else { return Ok(false) };
        let (_, place, entry) = value;
        if entry.kind != Kind::List {
            return Err(self.wrong_type(UNKNOWN, "a list of JSON Pointers", value));
        }
        // Under `lazy` it is still unchecked.
        let options = ParseOptions { max_depth, max_bytes: usize::MAX };
        let pointers = match json::parse::<Tree>(self.raw(entry).as_bytes(), options) {
            Ok(Tree::List(pointers)) => pointers,
            Err(error) if !checked => {
                return Err(EventError { offset: error.offset.map(|at| at + entry.start as usize), ..error });
            }
            Ok(_) | Err(_) => return Ok(true), // cannot be: it was checked
        };
        for (index, pointer) in pointers.iter().enumerate() {
            let (code, reason) = match pointer {
                Tree::Scalar(Scalar::String(pointer)) => match decode_pointer(pointer) {
                    Ok(steps) if steps.len() <= max_depth => continue,
                    Ok(steps) => {
                        let count = steps.len();
                        let reason =
                            format!("a pointer of {count} steps, into values deeper than the {max_depth} levels of an event");
                        (EventCode::BadPointer, reason)
                    }
                    Err(reason) => (EventCode::BadPointer, format!("{}: {reason}", shown(pointer))),
                },
                other => (EventCode::WrongType, format!("a member of unknown is a JSON Pointer, not {}", other.json_type())),
            };
            let place = format!("{}/{index}", encode_pointer(&place.pointer));
            return Err(EventError { place: Some(place.into()), ..self.error(code, reason, Some(value)) });
        }
        Ok(!pointers.is_empty())
    }
}

#[cold]
pub(super) fn not_an_object(first: u8, at: usize) -> EventError {
    let kind = match first {
        b'[' => Kind::List,
        b'"' => Kind::String,
        b't' | b'f' => Kind::Bool,
        b'n' => Kind::Null,
        _ => Kind::Number,
    };
    EventError::at(EventCode::NotAnObject, at, format!("an event is a JSON object, not {}", kind.json_type()))
}

#[cold]
pub(super) fn duplicate_member(trie: &PathTrie, node: u32, at: usize) -> EventError {
    let place = trie.pointer_of(node).map(|pointer| encode_pointer(&pointer).into());
    EventError { place, ..EventError::at(EventCode::DuplicateMember, at, "a member of the envelope stands twice") }
}

/// Quote a text of the event for an error, without its length.
fn shown(text: &str) -> String {
    quote(&shortened(text, 80))
}

/// The integer of 64 bits that a literal spells; `1.0` and `1e3` spell none.
fn integer(literal: &str) -> Option<i128> {
    literal.parse::<i64>().map(i128::from).or_else(|_| literal.parse::<u64>().map(i128::from)).ok()
}

impl<'a> Flat<'a> {
    /// The id of the event, as far as it was read: a lazy pass may have stopped before it.
    pub fn id(&self) -> Option<EventId<'a>> {
        id_of(self.trie, self.entries, self.text, self.plain)
    }
}

pub(super) fn id_of<'a>(trie: &'a PathTrie, entries: &'a Entries, text: &'a str, plain: &'a str) -> Option<EventId<'a>> {
    let reader = PartReader { trie, entries, text };
    match (reader.find(ID), reader.constant(ID)) {
        (Some((_, _, entry)), _) if entry.kind == Kind::String => Some(EventId::Text(text_of(entry, text, plain))),
        (Some((_, _, entry)), _) => integer(reader.raw(entry)).map(EventId::Integer),
        (None, Some(Scalar::String(text))) => Some(EventId::Text(text)),
        (None, Some(Scalar::Number(number))) => number.as_integer().map(EventId::Integer),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_one_by_its_spelling() {
        assert_eq!(integer("-9223372036854775808"), Some(i128::from(i64::MIN)));
        assert_eq!(integer("18446744073709551615"), Some(i128::from(u64::MAX)));
        for other in ["18446744073709551616", "1.0", "1e3", "true", "{}", "-9223372036854775809"] {
            assert_eq!(integer(other), None, "{other}");
        }
    }
}
