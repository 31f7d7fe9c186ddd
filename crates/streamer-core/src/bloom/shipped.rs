//! A shipped filter, queried with whole events: the answers of the Python package's `streamer.bloom.ShippedFilter`.
//!
//! ```text
//!   event bytes ─ flatten, in full ─► values at the places ─► bytes of their keys ─ murmur3 ─► bits        all unset: NO
//! ```
//!
//! Invariant: it answers NO only if `ShippedFilter.ask` does. An event with unknown values is left to Python
//! ([`ShippedAnswer::Unknown`]), so that only one program computes which of them touch a place. A malformed event is an
//! error, never NO: a NO would hide it.
//!
//! Cost: about that of reading the event in full, and 50 to 100 ns for each key that it carries.

use crate::bloom::answer::Answer;
use crate::bloom::keys::{begin_key, end_key};
use crate::bloom::kinds::{KeyKind, KeyProbe, of_scalar};
use crate::bloom::portable::Slices;
use crate::error::{EventError, Unread};
use crate::flatten::{self, CallerParts, Flat, Flattener, Leaf, PathId, PathTrie, Validation};
use crate::json;
use crate::layout::{EventLayout, Format};
use crate::limits::Limits;
use crate::subscriptions::normal_form::{Mode, Path};
use crate::value::{self, Value};
use std::sync::Arc;

/// A place at which an event is read for keys of a kind.
pub type ShippedPlace = (Path, Mode, KeyKind);

/// See the head of this file.
#[derive(Debug)]
pub struct Shipped {
    trie: PathTrie,
    places: Box<[ShippedKeys]>,
    slices: Slices,
    bits: Box<[u8]>,
    reading: EventReading,
}

/// How events are read, and whose they are.
#[derive(Clone, Debug)]
pub struct EventReading {
    /// The places of the parts of an event.
    pub layout: Arc<EventLayout>,
    /// The tenant of events that have none.
    pub default_tenant: Option<Box<str>>,
    /// Bounds on an event.
    pub limits: Limits,
    /// The tenant of the events that the filter covers.
    pub tenant: Box<str>,
    /// The collection of the events that the filter covers.
    pub collection: Option<Box<str>>,
    /// Whether the old side of an update is checked, too.
    pub transitions: bool,
}

#[derive(Debug)]
struct ShippedKeys {
    path: PathId,
    mode: Mode,
    kind: KeyKind,
    /// The common beginning of its keys' bytes.
    begin: Box<[u8]>,
}

/// The answer of a filter for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShippedAnswer {
    /// As `ShippedFilter.ask` does.
    Answer(Answer),
    /// Undecided: the event has unknown values.
    Unknown,
}

/// Buffers that one thread reuses between events.
#[derive(Debug, Default)]
pub struct ShippedScratch {
    new: Flattener,
    old: Flattener,
    key: Vec<u8>,
}

impl Shipped {
    /// A filter of these bits; None if they are too few.
    pub fn new(reading: EventReading, mut places: Vec<ShippedPlace>, slices: Slices, bits: &[u8]) -> Option<Shipped> {
        if bits.len() < slices.bytes() {
            return None;
        }
        let mut builder = PathTrie::builder(reading.layout.clone());
        // Places with one path come one after the other.
        places.sort_unstable_by(|one, other| (&one.0.names, one.2).cmp(&(&other.0.names, other.2)));
        let probes = places.iter().map(|(path, mode, kind)| {
            let mut begin = Vec::new();
            begin_key(&mut begin, path, *mode);
            ShippedKeys { path: builder.want(path, *mode), mode: *mode, kind: *kind, begin: begin.into() }
        });
        let places = probes.collect();
        Some(Shipped { places, trie: builder.build(), slices, bits: bits.into(), reading })
    }

    /// Whether any subscription can want an event; *tenant* and *collection* replace those of the event.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn ask(
        &self,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut ShippedScratch,
    ) -> Result<ShippedAnswer, EventError> {
        let reading = &self.reading;
        let caller = CallerParts { tenant, collection, default_tenant: reading.default_tenant.as_deref() };
        if !reading.layout.format.is_some_and(Format::has_changes) {
            return self.ask_of(event, &caller, &reading.limits, scratch);
        }
        let changes = match flatten::changes(&reading.layout, event, &reading.limits) {
            Ok(changes) => changes,
            Err(Unread::Ignored(_)) => return Ok(ShippedAnswer::Answer(Answer::Maybe)),
            Err(Unread::Bad(error)) => return Err(error),
        };
        let limits = flatten::limits_of_changes(&reading.limits);
        for (at, change) in changes.iter().enumerate() {
            let answer = self.ask_of(change.as_bytes(), &caller, &limits, scratch);
            match answer.map_err(|error| flatten::of_change(Unread::Bad(error), at).into_error())? {
                ShippedAnswer::Answer(Answer::No) => {}
                other => return Ok(other),
            }
        }
        Ok(ShippedAnswer::Answer(Answer::No))
    }

    /// Whether any subscription can want an event with the layout's own places.
    fn ask_of(
        &self,
        event: &[u8],
        caller: &CallerParts<'_>,
        limits: &Limits,
        scratch: &mut ShippedScratch,
    ) -> Result<ShippedAnswer, EventError> {
        let ShippedScratch { new, old, key } = scratch;
        let reading = &self.reading;
        let flat = match new.flatten(&self.trie, event, Validation::Full, caller, limits) {
            Ok(flat) => flat,
            // The engine that matches the event counts it.
            Err(Unread::Ignored(_)) => return Ok(ShippedAnswer::Answer(Answer::Maybe)),
            Err(Unread::Bad(error)) => return Err(error),
        };
        let parts = flat.parts();
        if *parts.tenant != *reading.tenant || parts.collection != reading.collection.as_deref() {
            return Ok(ShippedAnswer::Answer(Answer::Maybe));
        }
        if parts.has_unknown {
            return Ok(ShippedAnswer::Unknown);
        }
        if self.carries(&flat, key) {
            return Ok(ShippedAnswer::Answer(Answer::Maybe));
        }
        if reading.transitions && flat.has_old_side() {
            let Some(text) = flat.old_text() else { return Ok(ShippedAnswer::Unknown) };
            let Ok(side) = old.flatten_old(&self.trie, &text, parts, Validation::Full) else { return Ok(ShippedAnswer::Unknown) };
            if self.carries(&side, key) {
                return Ok(ShippedAnswer::Answer(Answer::Maybe));
            }
        }
        Ok(ShippedAnswer::Answer(Answer::No))
    }

    /// Whether a side carries a key that may be in the filter, or too many keys to check.
    fn carries(&self, flat: &Flat<'_>, key: &mut Vec<u8>) -> bool {
        self.places.iter().any(|place| match place.mode {
            Mode::Scalar => flat.value(place.path).is_some_and(|leaf| self.has(place, leaf, key)),
            Mode::AnyLeaf => flat.leaves(place.path).any(|leaf| self.has(place, leaf, key)),
            Mode::Element | Mode::Member => flat.value(place.path).is_some_and(|leaf| {
                let mut is_there = false;
                let count = leaf.for_each_element(place.mode == Mode::Member, |leaf| is_there |= self.has(place, leaf, key));
                is_there || count.is_none()
            }),
            // There is no key of this.
            Mode::Changed => true,
        })
    }

    fn has(&self, place: &ShippedKeys, leaf: Leaf<'_>, key: &mut Vec<u8>) -> bool {
        let mut is_there = false;
        let mut ask = |probe: KeyProbe<'_>| {
            if !is_there {
                key.clear();
                key.extend_from_slice(&place.begin);
                end_key(key, &probe);
                is_there = self.slices.bits_of(key).all(|(byte, bit)| self.bits[byte] & bit != 0);
            }
        };
        if place.kind == KeyKind::Element {
            if leaf.kind() == value::Kind::List {
                let options = json::ParseOptions { max_depth: usize::MAX, max_bytes: usize::MAX };
                // It was read in full.
                let Ok(list) = json::parse::<Value>(leaf.raw().as_bytes(), options) else { return true };
                let Value::List(elements) = &list else { return true };
                elements.iter().filter_map(Value::as_scalar).for_each(|scalar| ask(KeyProbe::Element(scalar)));
            }
        } else if let Some(scalar) = leaf.scalar()
            && !of_scalar(place.kind, scalar, &mut ask)
        {
            return true;
        }
        is_there
    }
}
