//! An event as programs see it: its parts, `data` and `before` parsed once, at first use.
//!
//! ```text
//!   event       {"type": "update", "data": {"a": [1, 2]}, "before": {"a": []}}
//!   Document     type ───► "update"     data ──► parsed when a program reads it    before ──► (not yet)
//!   as_before    type ───► shared       data ──► value of `before` above, shared   before ──► null
//! ```
//!
//! The trees lie in an [`Arena`]: 24 bytes an element, 48 a member; strings without escapes point into the event.
//! Parsing is a loop over an explicit stack, and linear but for maps of many members, whose names are sorted.
//!
//! A program that selects members by name ([`members`](super::members)) gets a map of only these members, as long as
//! they are few. Their places come from the flattening if it found them, else the other members are passed over.
//! Programs that select the same members share one map.
//!
//! Rejected: programs over the bytes of the event. A macro in a macro reads the same list again and again, so the bytes would
//! be skipped through once for each element of each.

use super::ast::Variable;
use super::outcome::Reason;
use super::times::Timestamp;
use super::values::{Detail, Failure, Key, Map, Partial, UnknownPaths, Value};
use crate::error::EventError;
use crate::flatten::{Flat, WantedMembers, elements};
use crate::json::skip;
use crate::json::token::{self, Result, peek, space};
use crate::json::utf8_first;
use crate::layout::{EventLayout, EventType, index};
use crate::limits::Limits;
use bumpalo::Bump;
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Memory for the documents of an event. One for a thread: [`Arena::reset`] keeps its memory for the next event.
#[derive(Debug, Default)]
pub struct Arena(Bump);

impl Arena {
    /// Forget all documents.
    pub fn reset(&mut self) {
        self.0.reset();
    }
}

/// A JSON Pointer's tokens.
type Tokens<'d> = &'d [&'d str];

/// An event, or its old side, as programs see it. See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Document<'d> {
    arena: &'d Bump,
    data: &'d DocumentTree<'d>,
    before: &'d DocumentTree<'d>,
    record: ChangeRecord<'d>,
    collection: Value<'d>,
    tenant: Value<'d>,
    event_type: Value<'d>,
    topic: Value<'d>,
    ts: Value<'d>,
    /// The pointers that the source did not carry, and the places of `data` and `before`, also if they are missing.
    unknown: &'d [Tokens<'d>],
    /// The places of documents of which only the members with these names are known. The names are sorted.
    rests: &'d [(Tokens<'d>, &'d [&'d str])],
    data_at: Option<Tokens<'d>>,
    before_at: Option<Tokens<'d>>,
    /// `data` and `before` with their unknown values, once some program has read them.
    covered: &'d [OnceCell<Value<'d>>; 2],
}

/// The record that the event is, without its documents: the same on both sides.
#[derive(Clone, Copy, Debug)]
struct ChangeRecord<'d> {
    layout: &'d EventLayout,
    text: &'d str,
    unknown: &'d [Tokens<'d>],
    value: &'d OnceCell<Value<'d>>,
}

/// A document: its text and, once somebody has read it, its value.
#[derive(Debug)]
struct DocumentTree<'d> {
    text: &'d str,
    /// The offset of its first byte; `None` for null.
    start: Option<usize>,
    value: OnceCell<Value<'d>>,
    /// The members that the flattening found.
    wanted: Option<WantedMembers<'d>>,
    /// The units spent on reading members without the others.
    spent: Cell<usize>,
    /// The members that were read without the others, the last first.
    selections: Cell<Option<&'d Selected<'d>>>,
}

/// A map of only the members with some names. Other programs may select the same ones.
#[derive(Debug)]
struct Selected<'d> {
    names: &'d [&'d str],
    members: Value<'d>,
    earlier: Option<&'d Selected<'d>>,
}

/// After this many units a document is parsed as a whole. Looking up a member costs 1.
const MOST_SPENT: usize = 16;
/// The units for passing over the other members.
const PASS: usize = 8;
/// As many members are read by themselves.
const MOST_MEMBERS: usize = 8;

impl<'d> DocumentTree<'d> {
    fn read(&self, arena: &'d Bump) -> Result<Value<'d>> {
        match (self.value.get(), self.start) {
            (Some(value), _) => Ok(*value),
            (None, None) => Ok(Value::Null),
            (None, Some(start)) => {
                let value = parse(self.text, start, arena)?;
                Ok(*self.value.get_or_init(|| value))
            }
        }
    }

    fn new(text: &'d str, start: Option<usize>, wanted: Option<WantedMembers<'d>>) -> DocumentTree<'d> {
        DocumentTree { text, start, value: OnceCell::new(), wanted, spent: Cell::new(0), selections: Cell::new(None) }
    }

    /// A map of only the members with these *names*; None if the document was parsed, or should be parsed, as a whole.
    fn members<'p>(&self, names: impl Iterator<Item = &'p str>, arena: &'d Bump) -> Result<Option<Value<'d>>> {
        let (None, Some(start)) = (self.value.get(), self.start) else { return Ok(None) };
        let mut wanted_names = [""; MOST_MEMBERS];
        let mut count = 0;
        for name in names {
            if !wanted_names[..count].contains(&name) {
                let Some(place) = wanted_names.get_mut(count) else { return Ok(None) };
                *place = name;
                count += 1;
            }
        }
        let wanted_names = &wanted_names[..count];
        let mut selections = std::iter::successors(self.selections.get(), |selected| selected.earlier);
        if let Some(selected) = selections.find(|selected| selected.names == wanted_names) {
            return Ok(Some(selected.members));
        }
        if self.spent.get() >= MOST_SPENT {
            return Ok(None);
        }
        let mut starts_of = [None; MOST_MEMBERS];
        let are_known = self.wanted.is_some_and(|wanted| {
            wanted_names.iter().zip(&mut starts_of).all(|(name, place)| wanted.start(name).map(|start| *place = start).is_some())
        });
        self.spent.set(self.spent.get() + count + if are_known { 0 } else { PASS });
        if !are_known && !find_members(self.text, start, wanted_names, &mut starts_of, arena)? {
            return Ok(None);
        }
        let names = &*arena.alloc_slice_fill_iter(wanted_names.iter().map(|name| &*arena.alloc_str(name)));
        let members = arena.alloc_slice_fill_copy(starts_of.iter().flatten().count(), (Key::Bool(false), Value::Null));
        let places = names.iter().zip(starts_of).filter_map(|(name, start)| Some((*name, start?)));
        for ((name, start), member) in places.zip(&mut *members) {
            *member = (Key::String(name), parse(self.text, start, arena)?);
        }
        let members = Value::Map(arena.alloc(Map::new(arena, members)));
        self.selections.set(Some(arena.alloc(Selected { names, members, earlier: self.selections.get() })));
        Ok(Some(members))
    }
}

impl<'d> Document<'d> {
    /// An event that was flattened, checked in full.
    ///
    /// # Errors
    ///
    /// `bad_utf8`, if the flattening did not check the whole of *event*.
    pub fn new(flat: &Flat<'d>, arena: &'d Arena, limits: &Limits) -> std::result::Result<Document<'d>, EventError> {
        let arena = &arena.0;
        let event = flat.event;
        let text = if flat.text.len() == event.len() { flat.text } else { utf8_first(event, Ok(()))?.0 };
        let tree = |start, wanted| &*arena.alloc(DocumentTree::new(text, start, wanted));
        let parts = flat.parts();
        let unknown = flat.unknown(limits.max_depth);
        let tokens = |pointer: &[Box<str>]| -> Tokens<'d> {
            arena.alloc_slice_fill_iter(pointer.iter().map(|token| &*arena.alloc_str(token)))
        };
        let string =
            |text: Option<&'d str>, is_unknown| if is_unknown { Value::Unknown } else { Value::String(text.unwrap_or("")) };
        Ok(Document {
            arena,
            data: tree(flat.data_start(), flat.wanted_members()),
            before: tree(flat.before_start(), None),
            record: ChangeRecord {
                layout: &flat.trie().layout,
                text,
                unknown: arena.alloc_slice_fill_iter(unknown.pointers.iter().map(|pointer| tokens(pointer))),
                value: arena.alloc(OnceCell::new()),
            },
            collection: string(parts.collection, false),
            tenant: string(Some(parts.tenant), false),
            event_type: string(parts.event_type.map(EventType::as_str), unknown.event_type),
            topic: string(parts.topic, unknown.topic),
            ts: match parts.ts_ns.map(Timestamp::of) {
                _ if unknown.ts => Value::Unknown,
                Some(Ok(ts)) => Value::Timestamp(ts),
                Some(Err(_)) | None => Value::Null, // out of range it would not have been flattened
            },
            unknown: arena.alloc_slice_fill_iter(unknown.pointers.iter().map(|pointer| tokens(pointer))),
            rests: arena.alloc_slice_fill_iter(unknown.rests.iter().map(|rest| {
                let names = arena.alloc_slice_fill_iter(rest.names.0.iter().map(|name| &*arena.alloc_str(name)));
                (tokens(&rest.at), &*names)
            })),
            data_at: unknown.data_at.as_deref().map(tokens),
            before_at: unknown.before_at.as_deref().map(tokens),
            covered: arena.alloc(Default::default()),
        })
    }

    /// Whether all of its `data` was parsed.
    #[cfg(test)]
    pub(super) fn is_parsed(&self) -> bool {
        self.data.value.get().is_some()
    }

    /// The old side of an update: `data` is the former `before`, and `before` is null.
    #[must_use]
    pub fn as_before(&self) -> Document<'d> {
        let empty = self.arena.alloc(DocumentTree::new("", None, None));
        let mut side = Document { data: self.before, before: empty, covered: self.arena.alloc(Default::default()), ..*self };
        if let (Some(data_at), Some(before_at)) = (self.data_at, self.before_at) {
            let mut unknown = Vec::with_capacity(self.unknown.len());
            for pointer in self.unknown {
                if let Some(below) = pointer.strip_prefix(before_at) {
                    unknown.push(&*self.arena.alloc_slice_copy(&[data_at, below].concat()));
                } else if before_at.starts_with(pointer) {
                    // It covers the whole of `before`, which is now `data`.
                    unknown.push(*pointer);
                    if !data_at.starts_with(pointer) {
                        unknown.push(data_at);
                    }
                } else if !pointer.starts_with(data_at) {
                    unknown.push(*pointer);
                }
            }
            side.unknown = self.arena.alloc_slice_copy(&unknown);
            let of_before: Vec<_> = self.rests.iter().filter(|(place, _)| *place == before_at).collect();
            side.rests = self.arena.alloc_slice_fill_iter(of_before.iter().map(|(_, names)| (data_at, *names)));
        }
        side
    }

    /// The value of a part; the first reader of a document parses it.
    pub(super) fn read(&self, variable: Variable) -> std::result::Result<Value<'d>, EventError> {
        Ok(match variable {
            Variable::Data => self.covered(0, self.data, self.data_at)?,
            Variable::Before => self.covered(1, self.before, self.before_at)?,
            Variable::Collection => self.collection,
            Variable::Tenant => self.tenant,
            Variable::Type => self.event_type,
            Variable::Topic => self.topic,
            Variable::Ts => self.ts,
            Variable::Envelope => self.record.read(self.arena)?,
        })
    }

    /// As [`Document::read`], for a program that reads only the members with these *names* of a document.
    pub(super) fn read_members<'p>(
        &self,
        variable: Variable,
        names: impl Iterator<Item = &'p str>,
    ) -> std::result::Result<Value<'d>, EventError> {
        let tree = match variable {
            Variable::Data => self.data,
            Variable::Before => self.before,
            _ => return self.read(variable),
        };
        // The unknown values are collected once, for a whole document.
        let is_known = self.unknown.is_empty() && self.rests.is_empty();
        match if is_known { tree.members(names, self.arena)? } else { None } {
            Some(members) => Ok(members),
            None => self.read(variable),
        }
    }

    /// A document with its unknown values, which are gathered once for all programs.
    fn covered(&self, part: usize, tree: &DocumentTree<'d>, at: Option<Tokens<'d>>) -> Result<Value<'d>> {
        if let Some(value) = self.covered[part].get() {
            return Ok(*value);
        }
        let value = self.cover(tree.read(self.arena)?, at);
        Ok(*self.covered[part].get_or_init(|| value))
    }

    /// A document at *at*, with its unknown values.
    fn cover(&self, value: Value<'d>, at: Option<Tokens<'d>>) -> Value<'d> {
        let Some(at) = at.filter(|_| !self.unknown.is_empty() || !self.rests.is_empty()) else { return value };
        if self.unknown.iter().any(|pointer| at.starts_with(pointer)) {
            return Value::Unknown;
        }
        let below = self.unknown.iter().filter_map(|pointer| pointer.strip_prefix(at)).collect();
        let names = self.rests.iter().find(|(place, _)| *place == at).map(|(_, names)| *names);
        partial(value, below, names, self.arena)
    }
}

impl<'d> ChangeRecord<'d> {
    /// Its members but those with a document, and the unknown values in them; null if it lies in a document.
    fn read(&self, arena: &'d Bump) -> Result<Value<'d>> {
        if let Some(value) = self.value.get() {
            return Ok(*value);
        }
        let value = self.made(arena)?;
        Ok(*self.value.get_or_init(|| value))
    }

    fn made(&self, arena: &'d Bump) -> Result<Value<'d>> {
        let mut document = None;
        for pointer in self.layout.records() {
            if let Some(start) = object_at(self.text, pointer, arena)? {
                document = Some((start, pointer));
                break;
            }
        }
        let Some((start, pointer)) = document else { return Ok(Value::Null) };
        let documents = self.layout.documents_in(pointer);
        let Value::Map(whole) = parse(self.text, start, arena)? else { return Ok(Value::Null) };
        let is_member = |name: &str| !documents.contains(&name);
        let members = whole.entries.iter().filter(|(key, _)| matches!(key, Key::String(name) if is_member(name)));
        let members = arena.alloc_slice_copy(&members.copied().collect::<Vec<_>>());
        let value = Value::Map(arena.alloc(Map::new(arena, members)));
        let at: Vec<&str> = pointer.iter().map(|token| &**token).collect();
        if self.unknown.iter().any(|pointer| at.starts_with(pointer)) {
            return Ok(Value::Unknown);
        }
        let below = self.unknown.iter().filter_map(|pointer| pointer.strip_prefix(&*at));
        let below = below.filter(|below| below.first().is_some_and(|name| is_member(name))).collect();
        Ok(partial(value, below, None, arena))
    }
}

/// A document with its unknown values: at the pointers *below* it, and at each name that is not among *names*.
fn partial<'d>(value: Value<'d>, mut below: Vec<Tokens<'d>>, names: Option<&'d [&'d str]>, arena: &'d Bump) -> Value<'d> {
    if below.is_empty() && names.is_none() {
        return value;
    }
    if let Value::Null = value {
        return Value::Unknown;
    }
    below.sort_unstable();
    let unknown = UnknownPaths { pointers: arena.alloc_slice_copy(&below), depth: 0, names };
    Value::Partial(arena.alloc(Partial { value, unknown }))
}

/// The start of the object at a pointer.
fn object_at(text: &str, pointer: &[Box<str>], arena: &Bump) -> Result<Option<usize>> {
    let mut start = 0;
    for token in pointer {
        let bytes = text.as_bytes();
        if peek(bytes, space(bytes, start)) == b'[' {
            let Some(at) = index(token) else { return Ok(None) };
            let Some((element, _)) = elements(bytes, space(bytes, start)).nth(at) else { return Ok(None) };
            start = element;
            continue;
        }
        let mut next_start = [None];
        if !find_members(text, start, &[&**token], &mut next_start, arena)? {
            return Ok(None);
        }
        let [Some(next)] = next_start else { return Ok(None) };
        start = next;
    }
    let bytes = text.as_bytes();
    Ok((peek(bytes, space(bytes, start)) == b'{').then_some(start))
}

// --- parsing ------------------------------------------------------------------------------------------------------------

/// A container that is still open: the start of its elements among those of all open ones.
enum OpenBuild<'d> {
    List(usize),
    Map(usize, &'d str),
}

/// Find the offsets of the members with some *names* in the object that begins at *start*; of duplicates the last
/// counts. Return false if it is not an object.
fn find_members(text: &str, start: usize, names: &[&str], starts: &mut [Option<usize>], arena: &Bump) -> Result<bool> {
    let bytes = text.as_bytes();
    let mut at = space(bytes, start);
    if peek(bytes, at) != b'{' {
        return Ok(false);
    }
    at = space(bytes, at + 1);
    if peek(bytes, at) == b'}' {
        return Ok(true);
    }
    loop {
        let (name, value) = read_name(text, at, arena)?;
        if let Some(place) = names.iter().position(|wanted| *wanted == name) {
            starts[place] = Some(value);
        }
        at = space(bytes, skip::trusted(bytes, value)?);
        match peek(bytes, at) {
            b',' => at = space(bytes, at + 1),
            b'}' => return Ok(true),
            _ => return Err(token::expected_more(bytes, at, true)),
        }
    }
}

/// Parse the value that begins at *start*; ignore the text after it.
fn parse<'d>(text: &'d str, start: usize, arena: &'d Bump) -> Result<Value<'d>> {
    let bytes = text.as_bytes();
    let mut open: Vec<OpenBuild<'d>> = Vec::new();
    let mut elements: Vec<Value<'d>> = Vec::new();
    let mut members: Vec<(Key<'d>, Value<'d>)> = Vec::new();
    let mut at = space(bytes, start);
    loop {
        // Here a value begins.
        let mut value = match peek(bytes, at) {
            bracket @ (b'{' | b'[') => {
                at = space(bytes, at + 1);
                if peek(bytes, at) != bracket + 2 {
                    if bracket == b'{' {
                        let (name, after) = read_name(text, at, arena)?;
                        open.push(OpenBuild::Map(members.len(), name));
                        at = after;
                    } else {
                        open.push(OpenBuild::List(elements.len()));
                    }
                    continue;
                }
                at += 1;
                if bracket == b'{' { Value::Map(arena.alloc(Map::default())) } else { Value::List(&[]) }
            }
            b'"' => {
                let (string, after) = read_string(text, at, arena)?;
                at = after;
                Value::String(string)
            }
            b'-' | b'0'..=b'9' => {
                let (end, _) = token::number(bytes, at)?;
                let literal = &text[at..end];
                at = end;
                number(literal, arena)
            }
            first => {
                at = token::literal(bytes, at)?;
                if first == b'n' { Value::Null } else { Value::Bool(first == b't') }
            }
        };
        // A value is complete: add it to its container, and close each container that ends with it.
        loop {
            let Some(container) = open.pop() else { return Ok(value) };
            at = space(bytes, at);
            match container {
                OpenBuild::List(first) => {
                    elements.push(value);
                    match peek(bytes, at) {
                        b',' => {
                            at = space(bytes, at + 1);
                            open.push(OpenBuild::List(first));
                            break;
                        }
                        b']' => {
                            value = Value::List(arena.alloc_slice_copy(&elements[first..]));
                            elements.truncate(first);
                        }
                        _ => return Err(token::expected_more(bytes, at, false)),
                    }
                }
                OpenBuild::Map(first, name) => {
                    members.push((Key::String(name), value));
                    match peek(bytes, at) {
                        b',' => {
                            let (name, after) = read_name(text, space(bytes, at + 1), arena)?;
                            open.push(OpenBuild::Map(first, name));
                            at = after;
                            break;
                        }
                        b'}' => {
                            value = Value::Map(arena.alloc(map(&members[first..], arena)));
                            members.truncate(first);
                        }
                        _ => return Err(token::expected_more(bytes, at, true)),
                    }
                }
            }
            at += 1;
        }
    }
}

/// Make a map of members. The last of several with one name wins, in the place of the first.
fn map<'d>(members: &[(Key<'d>, Value<'d>)], arena: &'d Bump) -> Map<'d> {
    let made = Map::new(arena, arena.alloc_slice_copy(members));
    if !made.has_repeated_keys() {
        return made;
    }
    let mut unique: Vec<(Key<'d>, Value<'d>)> = Vec::with_capacity(members.len());
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (key, value) in members {
        let Key::String(name) = key else { continue };
        match places.entry(name) {
            Entry::Occupied(place) => unique[*place.get()].1 = *value,
            Entry::Vacant(place) => {
                place.insert(unique.len());
                unique.push((*key, *value));
            }
        }
    }
    Map::new(arena, arena.alloc_slice_copy(&unique))
}

fn read_name<'d>(text: &'d str, at: usize, arena: &'d Bump) -> Result<(&'d str, usize)> {
    let bytes = text.as_bytes();
    if peek(bytes, at) != b'"' {
        return Err(token::expected_name(bytes, at));
    }
    let (name, after) = read_string(text, at, arena)?;
    let at = space(bytes, after);
    if peek(bytes, at) != b':' {
        return Err(token::expected_colon(bytes, at));
    }
    Ok((name, space(bytes, at + 1)))
}

fn read_string<'d>(text: &'d str, at: usize, arena: &'d Bump) -> Result<(&'d str, usize)> {
    let (end, is_escaped) = token::string(text.as_bytes(), at)?;
    let inside = &text[at + 1..end - 1];
    if !is_escaped {
        return Ok((inside, end));
    }
    let mut plain = Vec::with_capacity(inside.len());
    token::unescape(inside.as_bytes(), &mut plain);
    // Well-formed text unescapes to well-formed text.
    Ok((arena.alloc_str(&String::from_utf8_lossy(&plain)), end))
}

/// An integer in int64 is an int, one in uint64 a uint, any other number a double.
fn number<'d>(literal: &'d str, arena: &'d Bump) -> Value<'d> {
    let digits = literal.strip_prefix('-').unwrap_or(literal).as_bytes();
    // A number with this few digits cannot overflow.
    if digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) {
        let size = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        return Value::Int(if digits.len() < literal.len() { -size } else { size });
    }
    if let Ok(int) = literal.parse() {
        return Value::Int(int);
    }
    if let Ok(uint) = literal.parse() {
        return Value::Uint(uint);
    }
    match literal.parse::<f64>() {
        Ok(double) if double.is_finite() => Value::Double(double),
        _ => Value::Failure(arena.alloc(Failure { reason: Reason::BeyondFloat64, detail: Detail::BeyondFloat(literal) })),
    }
}
