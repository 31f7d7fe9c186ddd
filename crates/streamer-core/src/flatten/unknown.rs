//! The documents of an event for a reader of whole documents (CEL): their start, and the values in them that the source
//! did not carry.

use super::flat::Flat;
use super::records::{document, end_of};
use super::trie::{ALWAYS, BEFORE, DATA, PathTrie, TOPIC, TS, TYPE, UNKNOWN};
use crate::json::{self, ParseOptions};
use crate::layout::{BeforeHolds, EventType, Pointer, decode_pointer, index};
use crate::value::{Kind, Value};
use std::sync::Arc;

/// The values that an event does not carry (semantics.md section 8).
#[derive(Clone, Debug, Default)]
pub(crate) struct Unknown {
    /// The pointers, from the root of the event.
    pub(crate) pointers: Vec<Pointer>,
    /// The documents that are known only as far as the event has them.
    pub(crate) rests: Vec<Rest>,
    /// The places of `data` and `before`, also if they are missing.
    pub(crate) data_at: Option<Pointer>,
    pub(crate) before_at: Option<Pointer>,
    /// The place of the record, as far as paths in it are wanted.
    pub(crate) record_at: Option<Pointer>,
    /// Whether a pointer covers `type`, `ts`, `topic`.
    pub(crate) event_type: bool,
    pub(crate) ts: bool,
    pub(crate) topic: bool,
    /// Whether it is an update without the document before, and `before` is partial.
    pub(crate) untold: bool,
}

/// An unknown value at each member of an object, except for the members that the event has.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    /// The place of the object.
    pub(crate) at: Pointer,
    pub(crate) names: Names,
}

impl Rest {
    /// Whether it hides the value at a place.
    pub(crate) fn covers(&self, place: &[Box<str>]) -> bool {
        matches!(place.strip_prefix(&*self.at), Some([name, ..]) if !self.names.has(name))
    }
}

/// The names of the members of an object, in order.
#[derive(Clone, Debug)]
pub(crate) struct Names(pub(crate) Arc<[Box<str>]>);

impl Names {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(name)).is_ok()
    }
}

/// Whether one pointer is the other or leads to a container of it.
pub(crate) fn is_prefix(short: &[Box<str>], long: &[Box<str>]) -> bool {
    long.starts_with(short)
}

impl<'a> Flat<'a> {
    /// The offset of the text of `data`; `None` if there is no document.
    pub(crate) fn data_start(&self) -> Option<usize> {
        document(self.trie, self.entries, self.data).map(|(entry, _)| entry.start as usize)
    }

    /// The offset of the text of `before`.
    pub(crate) fn before_start(&self) -> Option<usize> {
        document(self.trie, self.entries, self.before).map(|(entry, _)| entry.start as usize)
    }

    /// The unknown values of the event; free for an event without any.
    pub(crate) fn unknown(&self, max_depth: usize) -> Unknown {
        if !self.parts.has_unknown {
            return Unknown::default();
        }
        let mut pointers = self.unknown_pointers(max_depth);
        pointers.extend_from_slice(&self.entries.unknown);
        let overlaps = |place: &Option<Pointer>| {
            place.as_ref().is_some_and(|at| pointers.iter().any(|pointer| is_prefix(pointer, at) || is_prefix(at, pointer)))
        };
        let pointer_of = |base: u16| document(self.trie, self.entries, base).map(|(_, place)| place.pointer.clone());
        // A delete without `data` has fallen back to `before` already.
        let fell_back = self.data == self.before;
        let data_at = if fell_back { None } else { pointer_of(self.data) };
        let mut data_at = data_at.or_else(|| self.would_stand(DATA, &pointers));
        let before_at = pointer_of(self.before).or_else(|| self.would_stand(BEFORE, &pointers));
        let untold = self.entries.untold && !overlaps(&before_at);
        let not_carried = self.entries.not_carried;
        let rest_of = |is_known: bool, base: u16| {
            let (entry, place) = document(self.trie, self.entries, base).filter(|_| !is_known)?;
            Some(Rest { at: place.pointer.clone(), names: self.member_names(entry, end_of(entry, self.event)) })
        };
        let of_before = self.entries.is_partial_delete || not_carried.rest_of_before;
        let rests: Vec<Rest> =
            [rest_of(!of_before, self.before), rest_of(!not_carried.rest_of_data, self.data)].into_iter().flatten().collect();
        let lacks_before = self.entries.is_partial_delete && self.before == ALWAYS;
        let lacks_data = not_carried.data && !overlaps(&data_at);
        pointers.extend(before_at.clone().filter(|_| untold || lacks_before));
        pointers.extend(data_at.clone().filter(|_| lacks_data));
        let layout = &self.trie.layout;
        if let (BeforeHolds::Changed, false, Some(data_at), Some(before_at)) =
            (layout.before_holds, fell_back, &data_at, &before_at)
        {
            self.add_unchanged(&mut pointers, data_at, before_at);
        }
        let covers = |part: usize| {
            let places = &self.trie.places[part];
            let is_hidden =
                |at| rests.iter().any(|rest| rest.covers(at)) || pointers.iter().any(|pointer| is_prefix(pointer, at));
            places.iter().any(|place| is_hidden(&place.pointer))
        };
        let (event_type, ts, topic) = (covers(TYPE), covers(TS), covers(TOPIC));
        let overlaps = |place: &Option<Pointer>| {
            place.as_ref().is_some_and(|at| pointers.iter().any(|pointer| is_prefix(pointer, at) || is_prefix(at, pointer)))
        };
        let is_delete = self.parts.event_type == Some(EventType::Delete);
        let has_data = self.data != ALWAYS && !fell_back;
        // The last known document of a delete may be in `before`, even if it is an unknown value there.
        let is_before = self.before != ALWAYS || !overlaps(&data_at) || overlaps(&before_at);
        if is_delete && !has_data && before_at.is_some() && is_before {
            data_at.clone_from(&before_at);
        }
        let record_at = self.trie.records.get(usize::from(self.record)).map(|place| place.pointer.clone());
        Unknown { data_at, before_at, record_at, event_type, ts, topic, untold, pointers, rests }
    }

    fn unknown_pointers(&self, max_depth: usize) -> Vec<Pointer> {
        let place_of_unknown = self.trie.places[UNKNOWN].iter().find_map(|place| {
            let entry = self.entries.value(place.node)?;
            (entry.kind != Kind::Null).then_some(entry)
        });
        let Some(entry) = place_of_unknown else { return Vec::new() };
        // It was checked when the event was flattened.
        let text = &self.text.as_bytes()[entry.start as usize..entry.end as usize];
        match &json::parse::<Value>(text, ParseOptions { max_depth, max_bytes: usize::MAX }) {
            Ok(Value::List(pointers)) => pointers.iter().filter_map(|text| decode_pointer(text.as_str()?).ok()).collect(),
            _ => Vec::new(),
        }
    }

    /// The place of a missing document: at its unknown value, else at the first pointer whose parent exists, else at
    /// the first pointer.
    fn would_stand(&self, part: usize, unknown: &[Pointer]) -> Option<Pointer> {
        let pointers = pointers(self.trie, part);
        let is_unknown = |at: &&Pointer| unknown.iter().any(|pointer| is_prefix(pointer, at) || is_prefix(at, pointer));
        if let Some(pointer) = pointers.iter().find(is_unknown) {
            return Some(pointer.clone());
        }
        if pointers.len() > 1 {
            let options = ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
            let event = json::parse::<Value>(self.event, options).ok()?;
            if let Some(pointer) = pointers.iter().find(|at| leads(&event, at)) {
                return Some(pointer.clone());
            }
        }
        pointers.first().cloned()
    }
}

fn pointers(trie: &PathTrie, part: usize) -> &[Pointer] {
    trie.layout.parts()[part].1.pointers()
}

/// Whether there is something that the last token of a pointer could be a member of.
fn leads(event: &Value, pointer: &[Box<str>]) -> bool {
    let way = pointer.split_last().map_or(&[][..], |(_, way)| way);
    way.iter()
        .try_fold(event, |value, token| match value {
            Value::List(elements) => elements.get(index(token)?),
            value => value.get(token),
        })
        .is_some()
}
