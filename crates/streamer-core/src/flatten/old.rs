//! The old side of a change: the same event with `data` := `before` and `before` := null (semantics.md section 7).
//!
//! ```text
//!   event      {"type": "update", "data": {"a": 2}, "before": {"a": 1}}
//!   old text   {"type": "update", "data": {"a": 1}, "before": null}        flattened for the same trie
//! ```
//!
//! Invariant: all parts but the two documents are those of the original event, even if the layout has them inside a
//! document.
//!
//! Cost: a copy of the text and another flattening. If the event has values at several places for `before`, or `data` is
//! missing, the event is parsed, changed and written.
//!
//! Rejected: paths of `data` read below `before`, as a delete without `data` does: patterns see the raw event, in which a
//! pointer of the layout may lead anywhere, through arrays and into the other document.

use super::entries::Entry;
use super::flat::{Flat, Parts};
use super::flattener::{Flattener, Validation};
use super::scan::Scan;
use super::trie::{ALWAYS, BEFORE, DATA, FALLBACK, PathTrie};
use crate::error::EventError;
use crate::json::{self, ParseOptions};
use crate::layout::{Pointer, index};
use crate::value::{Kind, Scalar, Value};

/// The text of an old side.
#[derive(Debug)]
pub struct OldText {
    text: Vec<u8>,
    data: DataAt,
    /// The index of the record, which both sides share.
    record: u16,
}

/// The place of the document in an old text.
#[derive(Debug)]
enum DataAt {
    /// At this base of `data`.
    Base(u16),
    /// At this pointer.
    Pointer(Pointer),
    /// At this base of `before`: the layout has no place for `data`, and the text is that of the event.
    Before(u16),
}

impl Flat<'_> {
    /// Whether the event carries a document before the change, in addition to the one that counts as `data`.
    pub fn has_old_side(&self) -> bool {
        self.before != ALWAYS && self.before != self.data
    }

    /// The old side of the event; None if the event does not carry one, or if `lazy` validation cannot read it.
    pub fn old_text(&self) -> Option<OldText> {
        let (event, record) = (self.event, self.record);
        if !self.has_old_side() {
            return None;
        }
        let data_pointers = self.trie.layout.data.pointers();
        if data_pointers.is_empty() {
            return Some(OldText { text: event.to_vec(), data: DataAt::Before(self.before), record });
        }
        let before = self.place_of(self.before)?;
        if let (Some(data), true) = (self.place_of(self.data), self.is_only_before()) {
            let (data, before) = ((data.start as usize, data.end as usize), (before.start as usize, before.end as usize));
            let spliced = |parts: [&[u8]; 5]| Some(OldText { text: parts.concat(), data: DataAt::Base(self.data), record });
            if data.1 <= before.0 {
                let document = &event[before.0..before.1];
                return spliced([&event[..data.0], document, &event[data.1..before.0], b"null", &event[before.1..]]);
            }
            if before.1 <= data.0 {
                let document = &event[before.0..before.1];
                return spliced([&event[..before.0], b"null", &event[before.1..data.0], document, &event[data.1..]]);
            }
        }
        self.rebuilt()
    }

    /// Whether the event has a value at only one of the layout's places for `before`.
    fn is_only_before(&self) -> bool {
        let [.., data, before, _] = &self.trie.places;
        let own = usize::from(self.before).checked_sub(data.len());
        (0..).zip(before).all(|(at, place)| Some(at) == own || self.entries.value(place.node).is_none())
    }

    fn place_of(&self, base: u16) -> Option<&Entry> {
        let [.., data, before, _] = &self.trie.places;
        self.entries.value(data.iter().chain(before).nth(base.into())?.node)
    }

    #[cold]
    fn rebuilt(&self) -> Option<OldText> {
        let layout = &self.trie.layout;
        let pointer_of = |base: u16| {
            let [.., data, before, _] = &self.trie.places;
            data.iter().chain(before).nth(base.into()).map(|place| place.pointer.clone())
        };
        // As spelled: an integer and a double of the same value are not the same to all of CEL.
        let json::Spelled(mut raw) =
            json::parse(self.event, ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX }).ok()?;
        let before_at = pointer_of(self.before)?;
        let room = |pointer: &&Pointer| find(&raw, pointer.split_last().map_or(&[][..], |(_, way)| way)).is_some();
        let pointers = layout.data.pointers();
        let data_at = pointer_of(self.data).or_else(|| pointers.iter().find(room).or(pointers.first()).cloned())?;
        let document = find(&raw, &before_at)?.clone();
        for pointer in layout.before.pointers() {
            if *pointer == before_at || find(&raw, pointer).is_some() {
                substitute(&mut raw, pointer, Value::Scalar(Scalar::Null));
            }
        }
        substitute(&mut raw, &data_at, document);
        Some(OldText { text: json::write(&raw).into_bytes(), data: DataAt::Pointer(data_at), record: self.record })
    }
}

/// The value at a pointer.
pub(crate) fn find<'v>(raw: &'v Value, pointer: &[Box<str>]) -> Option<&'v Value> {
    pointer.iter().try_fold(raw, |value, token| match value {
        Value::List(elements) => elements.get(index(token)?),
        value => value.get(token),
    })
}

/// Replace the value at a pointer; missing objects along it are created.
pub(crate) fn substitute(mut value: &mut Value, pointer: &[Box<str>], new: Value) {
    for token in pointer {
        let element = match value {
            Value::List(elements) => index(token).filter(|at| *at < elements.len()),
            Value::Map(_) => None,
            _ => {
                *value = Value::Map(Vec::new());
                None
            }
        };
        if let (Value::List(_), None) = (&*value, element) {
            *value = Value::Map(Vec::new());
        }
        value = match (value, element) {
            (Value::List(elements), Some(at)) => &mut elements[at],
            (Value::Map(members), _) => {
                let at = members.binary_search_by(|(name, _)| (**name).cmp(token)).unwrap_or_else(|at| {
                    members.insert(at, (token.clone(), Value::Map(Vec::new())));
                    at
                });
                &mut members[at].1
            }
            _ => return, // cannot occur: every value but a list is an object by now
        };
    }
    *value = new;
}

impl Flattener {
    /// Flatten an old side for *trie*; *parts* are those of the event.
    ///
    /// # Errors
    ///
    /// Only errors that lazy validation missed.
    pub fn flatten_old<'a>(
        &'a mut self,
        trie: &'a PathTrie,
        old: &'a OldText,
        parts: &Parts<'a>,
        validation: Validation,
    ) -> Result<Flat<'a>, EventError> {
        match validation {
            Validation::Full => self.read_old::<true>(trie, old, parts),
            Validation::Lazy => self.read_old::<false>(trie, old, parts),
        }
    }

    fn read_old<'a, const CHECKED: bool>(
        &'a mut self,
        trie: &'a PathTrie,
        old: &'a OldText,
        parts: &Parts<'a>,
    ) -> Result<Flat<'a>, EventError> {
        let Flattener { entries, scratch, .. } = self;
        let text = &*old.text;
        // The event was not too deep, but its document may be deeper now than `before` was.
        let max_depth = usize::MAX;
        let mut scan = Scan::<CHECKED>::new(text, trie, &mut *entries, scratch, max_depth);
        let scanned = scan.event();
        let read = match &scanned {
            Ok(scanned) if !CHECKED => scanned.end,
            _ => text.len(),
        };
        let (checked, _) = json::utf8_first(&text[..read], scanned)?;
        let data = match &old.data {
            DataAt::Base(base) => *base,
            DataAt::Before(base) => *base,
            DataAt::Pointer(pointer) => {
                let is_there = |node| entries.value(node).is_some_and(|entry| entry.kind == Kind::Map);
                let position = trie.places[DATA].iter().position(|place| place.pointer == *pointer && is_there(place.node));
                position.map_or(ALWAYS, |base| base as u16)
            }
        };
        if let DataAt::Before(base) = old.data {
            let node = trie.places[BEFORE][usize::from(base) - trie.places[DATA].len()].node;
            if trie.nodes[node as usize].flags & FALLBACK != 0
                && let Some(start) = entries.value(node).map(|entry| entry.start as usize)
            {
                let mut scan = Scan::<CHECKED>::new(text, trie, &mut *entries, scratch, max_depth);
                scan.fallback(start, node)?;
            }
        }
        let entries = &*entries;
        let plain = simdutf8::basic::from_utf8(&entries.plain).unwrap_or_default();
        Ok(Flat { trie, entries, event: text, text: checked, plain, parts: *parts, data, before: ALWAYS, record: old.record })
    }
}
