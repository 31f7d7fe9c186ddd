//! The wraps and gaps of change records: JSON in a string, values that were not carried, a `before` that is not a whole
//! document.
//!
//! ```text
//!   encoded   {"after": "{\"a\": 1}"}                         is read as   {"after": {"a": 1}}
//!   changed   {"data": {"a": 2, "b": 3}, "old": {"a": 1}}     is read as   {"data": {"a": 2, "b": 3}, "old": {"a": 1,"b": 3}}
//!   partial   {"before": {"id": 1}, "after": {"id": 1, "a": 2}}            has an unknown value at /before/a
//!             {"before": {"id": 1}, "op": "d"}                             has one at all below /before but /before/id
//! ```
//!
//! Invariant: an event that is rewritten has been read once in its original form, so only the inserted text is still
//! unread. The offset of an error in inserted text is that of the original text that it replaces.
//!
//! Cost: for an ordinary event only a search of its documents for the texts of `unknown_value`, and for one with both
//! documents under `partial` the names of both. An event that is rewritten is copied and read a second time.
//!
//! Rejected: encoded parts as roots of their own in the trie: patterns, old sides and CEL would each have to know of them.

use super::carried::{self, NotCarried};
use super::entries::{Entries, Entry};
use super::envelope::Resolved;
use super::flat::Flat;
use super::trie::{ALWAYS, BEFORE, DATA, PartPlace, PathTrie};
use super::typed::{self, Columns, Reader};
use super::unknown::Names;
use crate::error::EventError;
use crate::json::token::{self, JsonFault, peek, space};
use crate::json::{self, ParseOptions, skip};
use crate::layout::{BeforeHolds, EventLayout, EventType, Format, Pointer, encode_pointer};
use crate::value::{Kind, Value};
use std::borrow::Cow;
use std::collections::HashSet;

/// A piece of a text in the place of another.
#[derive(Clone, Copy, Debug)]
struct Splice {
    start: usize,
    end: usize,
    length: usize,
    /// The offset at which an error in it is reported.
    shown: usize,
}

/// How the text that was read came to be of the event: the pieces put in, those of one writing in the order of the text.
#[derive(Debug, Default)]
pub(super) struct Origin(Vec<Vec<Splice>>);

impl Origin {
    /// Convert the offset of an error in the made text into one in the original event.
    pub(super) fn place(&self, mut error: EventError) -> EventError {
        error.offset = error.offset.map(|offset| self.0.iter().rev().fold(offset, |offset, splices| before(splices, offset)));
        error
    }

    fn write(&mut self, text: &[u8], mut pieces: Vec<(Splice, Vec<u8>)>) -> Result<Vec<u8>, EventError> {
        pieces.sort_by_key(|(splice, _)| splice.start);
        let made = put_in(text, pieces.iter().map(|(splice, piece)| (splice.start, splice.end, &**piece)));
        // Offsets are u32.
        json::check_length(made.len(), usize::MAX)?;
        self.0.push(pieces.into_iter().map(|(splice, _)| splice).collect());
        Ok(made)
    }
}

/// Convert an *offset* into one before pieces were inserted; inside a piece, the offset at which its errors are
/// reported.
fn before(splices: &[Splice], offset: usize) -> usize {
    let mut shift = 0_isize;
    for splice in splices {
        let start = splice.start.wrapping_add_signed(shift);
        if offset < start {
            break;
        }
        if offset < start + splice.length {
            return splice.shown;
        }
        shift += splice.length as isize - (splice.end - splice.start) as isize;
    }
    offset.wrapping_add_signed(-shift)
}

/// The place of a part that is present and not null.
pub(super) fn places_of<'r>(
    trie: &'r PathTrie,
    entries: &'r Entries,
    part: usize,
) -> impl Iterator<Item = (&'r PartPlace, &'r Entry)> {
    let there = |place: &'r PartPlace| Some((place, entries.value(place.node).filter(|entry| entry.kind != Kind::Null)?));
    trie.places[part].iter().filter_map(there)
}

/// The event with the JSON that is encoded in `data` and `before` in the place of its text, and with values of Debezium
/// as what they mean; None if nothing differs.
pub(super) fn decode(
    trie: &PathTrie,
    entries: &Entries,
    event: &[u8],
    max_depth: usize,
    columns: &mut Columns,
    origin: &mut Origin,
) -> Result<Option<Vec<u8>>, EventError> {
    let is_debezium = trie.layout.format == Some(Format::Debezium);
    let mut pieces = Vec::new();
    let mut typed = Vec::new();
    let mut open = Vec::new();
    for (part, name) in [(DATA, "data"), (BEFORE, "before")] {
        for (place, entry) in places_of(trie, entries, part) {
            if entry.kind != Kind::String {
                // The schema is next to the payload.
                if is_debezium && entry.kind == Kind::Map {
                    let (start, end) = (entry.start as usize, end_of(entry, event));
                    let first = typed.len();
                    let mut row = Reader { text: event, unavailable: &trie.unavailable, pieces: &mut typed };
                    if let [_, name] = &place.pointer[..] {
                        columns.learn(event);
                        columns.read(&mut row, name, start, end);
                    }
                    row.scaled(first, start, end);
                }
                break;
            }
            let (start, end) = (entry.start as usize, entry.end as usize);
            let text = match entry.plain as usize {
                0 => &event[start + 1..end - 1],
                at => &entries.plain[at - 1..at - 1 + entry.plain_length as usize],
            };
            let first = space(text, 0);
            // Check it under `lazy`, too: that costs little next to the copy, and all inserted text was read.
            let last = match whole(text, first, place.pointer.len(), max_depth, &mut open) {
                Ok(last) => last,
                // Its data may be any text, which is no document.
                Err(_) if trie.layout.format == Some(Format::CloudEvents) => break,
                Err(fault) => {
                    return Err(EventError {
                        code: fault.code,
                        offset: Some(start),
                        place: Some(encode_pointer(&place.pointer).into()),
                        reason: format!("the JSON in {name}, at byte {} of it: {}", fault.offset, fault.reason).into(),
                    });
                }
            };
            let inner = &text[first..last];
            let inner = if is_debezium { typed::put_in_all(inner, &typed::extended(inner)) } else { inner.to_vec() };
            pieces.push((Splice { start, end, length: inner.len(), shown: start }, inner));
            // Null is as good as missing.
            if peek(text, first) != b'n' {
                break;
            }
        }
    }
    let typed = typed.into_iter();
    pieces.extend(typed.map(|(start, end, piece)| (Splice { start, end, length: piece.len(), shown: start }, piece)));
    if pieces.is_empty() { Ok(None) } else { origin.write(event, pieces).map(Some) }
}

/// A text with pieces in the place of what begins and ends at these offsets, in the order of the text.
pub(super) fn put_in<'p>(text: &[u8], pieces: impl Iterator<Item = (usize, usize, &'p [u8])> + Clone) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len() + pieces.clone().map(|(_, _, piece)| piece.len()).sum::<usize>());
    let mut from = 0;
    for (start, end, piece) in pieces {
        made.extend_from_slice(&text[from..start]);
        made.extend_from_slice(piece);
        from = end;
    }
    made.extend_from_slice(&text[from..]);
    made
}

/// The end of the value that is all of a text from *at* on, *depth* containers deep in the event.
pub(super) fn whole(text: &[u8], at: usize, depth: usize, max_depth: usize, open: &mut Vec<u64>) -> Result<usize, JsonFault> {
    let end = skip::checked(text, at, depth, max_depth, open)?;
    let after = space(text, end);
    if after < text.len() { Err(JsonFault::malformed(text, after, "expected the text to end after the value")) } else { Ok(end) }
}

/// A member: its name as it is between its quotes, the place of the quotes, and the end of the member.
pub(super) struct Member<'t> {
    pub(super) name: Cow<'t, [u8]>,
    pub(super) from: usize,
    pub(super) value: usize,
    pub(super) to: usize,
}

/// The members of the object that begins at *at*.
pub(super) struct Members<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Members<'t> {
    pub(super) fn of(text: &'t [u8], entry: &Entry) -> Members<'t> {
        Members::at(text, entry.start as usize)
    }

    /// The members of the object that begins at *at*; none if there is no object.
    pub(super) fn at(text: &'t [u8], at: usize) -> Members<'t> {
        Members { text, at }
    }

    fn read(&mut self) -> Result<Option<Member<'t>>, JsonFault> {
        let text = self.text;
        // Behind the brace that opens it, or the comma.
        let from = space(text, self.at + 1);
        if peek(text, self.at) == b'}' || peek(text, from) == b'}' {
            return Ok(None);
        }
        if peek(text, from) != b'"' {
            return Err(token::expected_name(text, from));
        }
        let (end, is_escaped) = token::string(text, from)?;
        let inside = &text[from + 1..end - 1];
        let name = if is_escaped { token::unescaped(inside) } else { Cow::Borrowed(inside) };
        let colon = space(text, end);
        if peek(text, colon) != b':' {
            return Err(token::expected_colon(text, colon));
        }
        let value = space(text, colon + 1);
        let to = self.pass(value)?;
        Ok(Some(Member { name, from, value, to }))
    }

    /// Pass over the member whose value begins at *value*; return its end.
    fn pass(&mut self, value: usize) -> Result<usize, JsonFault> {
        let to = skip::trusted(self.text, value)?;
        self.at = space(self.text, to);
        if !matches!(peek(self.text, self.at), b',' | b'}') {
            return Err(token::expected_more(self.text, self.at, true));
        }
        Ok(to)
    }
}

impl<'t> Iterator for Members<'t> {
    type Item = Result<Member<'t>, JsonFault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// The end of a value. A lazy pass may not have read the end of the root.
pub(super) fn end_of(entry: &Entry, text: &[u8]) -> usize {
    if entry.end > entry.start { entry.end as usize } else { text.len() }
}

/// The members of *data* that *before* lacks. Most often the two have the same names in the same order.
fn lacking<'t>(text: &'t [u8], data: &Entry, before: &Entry) -> Result<Vec<Member<'t>>, JsonFault> {
    let (mut new, mut old) = (Members::of(text, data), Members::of(text, before));
    let (new_end, old_end) = (end_of(data, text), end_of(before, text));
    loop {
        // Only members that differ are read.
        let rest = |at: usize, end: usize| text.get(at..end).unwrap_or_default();
        let (new_rest, old_rest) = (rest(new.at, new_end), rest(old.at, old_end));
        let same = alike(new_rest, old_rest);
        if same == new_rest.len().max(old_rest.len()) || peek(text, new.at) == b'}' {
            return Ok(Vec::new());
        }
        let differ = new.at + same;
        let last = skip::last_member(text, new.at, differ);
        (new.at, old.at) = (last, old.at + (last - new.at));
        match new.read()? {
            None => return Ok(Vec::new()),
            // Both have its name.
            Some(member) if member.value < differ => _ = old.pass(old.at + (member.value - last))?,
            Some(member) if old.read()?.is_some_and(|old| old.name == member.name) => {}
            Some(_) => break,
        }
    }
    let names: HashSet<Cow<'_, [u8]>> =
        Members::of(text, before).map(|member| Ok(member?.name)).collect::<Result<_, JsonFault>>()?;
    Members::of(text, data).filter(|member| !member.as_ref().is_ok_and(|member| names.contains(&member.name))).collect()
}

/// How many bytes two texts have in common at their beginning.
fn alike(one: &[u8], other: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK)).take_while(|(one, other)| one == other);
    let whole = BLOCK * blocks.count();
    whole + one[whole..].iter().zip(&other[whole..]).take_while(|(one, other)| one == other).count()
}

/// The documents of an event, if it carries both.
fn both<'r>(trie: &'r PathTrie, entries: &'r Entries) -> Option<(&'r Entry, &'r Entry)> {
    let document = |part| places_of(trie, entries, part).next().map(|(_, entry)| entry).filter(|entry| entry.kind == Kind::Map);
    Some((document(DATA)?, document(BEFORE)?))
}

/// The event with `before` completed by the members of `data` that it lacks; None if it lacks none.
pub(super) fn complete(
    trie: &PathTrie,
    entries: &Entries,
    event: &[u8],
    origin: &mut Origin,
) -> Result<Option<Vec<u8>>, EventError> {
    let Some((data, before)) = both(trie, entries) else { return Ok(None) };
    let lacking = lacking(event, data, before)?;
    if lacking.is_empty() {
        return Ok(None);
    }
    let mut piece = Vec::new();
    let is_empty = Members::of(event, before).next().is_none();
    for (index, member) in lacking.iter().enumerate() {
        if index > 0 || !is_empty {
            piece.push(b',');
        }
        piece.extend_from_slice(&event[member.from..member.to]);
    }
    let start = before.end as usize - 1;
    let splice = Splice { start, end: start, length: piece.len(), shown: before.start as usize };
    origin.write(event, vec![(splice, piece)]).map(Some)
}

/// The offset of the closing brace of `before`, in the original event.
pub(super) fn end_of_before(trie: &PathTrie, entries: &Entries) -> usize {
    // A lazy pass may not have read the end of the root.
    let end = |entry: &Entry| if entry.end > entry.start { entry.end as usize - 1 } else { u32::MAX as usize };
    places_of(trie, entries, BEFORE).next().map_or(0, |(_, entry)| end(entry))
}

/// Find the unknown values by the rules of the layout, in addition to those that the event names; both are in the
/// entries afterwards.
pub(super) fn find_unknown(
    trie: &PathTrie,
    entries: &mut Entries,
    text: &[u8],
    resolved: &Resolved,
    collection: Option<&str>,
) -> Result<(), EventError> {
    let layout = &trie.layout;
    let mut unknown = Vec::new();
    let document = |base: u16| document(trie, entries, base).filter(|_| base != ALWAYS);
    let before = document(resolved.before);
    let data = document(resolved.data).filter(|_| resolved.data != resolved.before);
    for (entry, place) in [data, before].into_iter().flatten() {
        let start = entry.start as usize;
        let slice = &text[start..end_of(entry, text)];
        if trie.unavailable.may_be_in(slice) {
            let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
            let value = json::parse::<Value>(slice, options)
                .map_err(|error| EventError { offset: error.offset.map(|at| at + start), ..error })?;
            trie.unavailable.collect(&place.pointer, &value, &mut unknown);
        }
    }
    let is_whole = carried::has_whole_rows(layout, text, collection, before.or(data).map(|(_, place)| &place.pointer))?;
    // Images of AWS DMS and Sequin have the changed columns alone; only their deletes can be declared whole.
    let may_lack = layout.before_holds == BeforeHolds::Partial && (!is_whole || layout.format == Some(Format::Dms));
    if let (true, Some((new, _)), Some((old, place))) = (may_lack, data, before) {
        for member in lacking(text, new, old)? {
            let name = String::from_utf8_lossy(&member.name);
            unknown.push([&place.pointer[..], &[Box::from(&*name)]].concat().into());
        }
    }
    let not_carried = match layout.format {
        Some(format) => carried::find(format, trie, entries, text, resolved, is_whole, &mut unknown)?,
        None => NotCarried::default(),
    };
    let is_update = resolved.event_type == Some(EventType::Update);
    let is_partial = layout.before_holds == BeforeHolds::Partial && !trie.places[BEFORE].is_empty();
    // Maxwell has been seen to write an update without `old`.
    let may_be_untold = is_partial || layout.format == Some(Format::Maxwell);
    let in_before = |pointer: &Pointer| before.is_some_and(|(_, place)| pointer.starts_with(&place.pointer));
    let only_before = trie.before_is_apart && unknown.iter().all(in_before);
    let (has_before, is_known) = (before.is_some(), is_whole && before.is_some());
    entries.untold = may_be_untold && is_update && !has_before;
    // A delete with neither document has the same for both.
    let is_delete = resolved.event_type == Some(EventType::Delete);
    entries.is_partial_delete = is_partial && is_delete && resolved.data == resolved.before && !is_known;
    entries.only_before = only_before && !not_carried.any() && (entries.untold || !unknown.is_empty());
    entries.unknown = unknown;
    entries.not_carried = not_carried;
    Ok(())
}

/// The document at a base, which counts through the places of `data`, then those of `before`.
pub(super) fn document<'r>(trie: &'r PathTrie, entries: &'r Entries, base: u16) -> Option<(&'r Entry, &'r PartPlace)> {
    if base == ALWAYS {
        return None;
    }
    let [.., data, before, _] = &trie.places;
    let place = data.iter().chain(before).nth(base.into())?;
    Some((entries.value(place.node)?, place))
}

impl Flat<'_> {
    /// Add the unknown values that `before` gets from `data` for the members that it did not have.
    pub(super) fn add_unchanged(&self, unknown: &mut Vec<Pointer>, data_at: &Pointer, before_at: &Pointer) {
        let Some((entry, _)) = document(self.trie, self.entries, self.before) else { return };
        let names = self.member_names(entry, self.entries.before_end as usize);
        for pointer in std::mem::take(unknown) {
            if data_at.starts_with(&pointer) {
                unknown.push(before_at.clone());
            } else if let Some(below @ [name, ..]) = pointer.strip_prefix(&data_at[..])
                && !names.has(name)
            {
                unknown.push([&before_at[..], below].concat().into());
            }
            unknown.push(pointer);
        }
    }

    /// The names of the members of an object up to *end*.
    pub(super) fn member_names(&self, entry: &Entry, end: usize) -> Names {
        let members = Members::of(self.event, entry).map_while(Result::ok).take_while(|member| member.from < end);
        let mut names: Vec<Box<str>> = members.map(|member| String::from_utf8_lossy(&member.name).into()).collect();
        names.sort_unstable();
        Names(names.into())
    }
}

impl EventLayout {
    /// Whether an event may have unknown values that it does not name.
    pub(crate) fn tells_of_unknown(&self) -> bool {
        self.before_holds == BeforeHolds::Partial
            || !self.unknown_value.is_empty()
            || self.format.is_some_and(|format| format.has_rows() || format.may_be_partial())
    }
}
