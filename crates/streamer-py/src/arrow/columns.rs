//! The results of rows, as the columns that pyarrow wraps.

use crate::gil;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::convert::Infallible;
use streamer_core::engine::{CelError, EngineState, Identity, Matched, Outcome, Stays, Transition, flags};
use streamer_core::error::{EventError, Ignored};
use streamer_core::flatten::EventId;
use streamer_core::layout::EventType;

pub(super) const NULL: u32 = u32::MAX;

/// A column of texts.
#[derive(Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// The length of each row, or [`NULL`].
    lengths: Vec<u32>,
}

impl Texts {
    pub(super) fn push(&mut self, text: Option<&str>) {
        match text {
            Some(text) => {
                self.bytes.extend_from_slice(text.as_bytes());
                // An event, and so each text in it, is shorter than 4 GiB; so is a subscription.
                self.lengths.push(u32::try_from(text.len()).unwrap_or(NULL - 1).min(NULL - 1));
            }
            None => self.lengths.push(NULL),
        }
    }

    pub(super) fn push_all(&mut self, texts: &[&str]) {
        let begin = self.bytes.len();
        texts.iter().for_each(|text| self.bytes.extend_from_slice(text.as_bytes()));
        self.lengths.push((self.bytes.len() - begin).min(NULL as usize - 1) as u32);
    }
}

/// The words of a column, by their number; 0 is null.
pub(super) const TRANSITIONS: [&str; 4] = ["", "enter", "stay", "leave"];
pub(super) const TYPES: [&str; 4] = ["", "insert", "update", "delete"];

/// The results of the rows of a block.
#[derive(Default)]
pub(super) struct Part {
    pub(super) matches: MatchColumns,
    pub(super) events: Events,
    pub(super) rejected: Rejected,
    pub(super) passed: Passed,
    pub(super) errors: Vec<CelError>,
    /// The lowest and the highest address that the engine read events at.
    pub(super) read: Option<(usize, usize)>,
}

#[derive(Default)]
pub(super) struct MatchColumns {
    rows: Vec<i64>,
    /// The matches, until they are named.
    slots: Vec<u32>,
    subscriptions: Texts,
    gateways: Texts,
    transitions: Vec<u8>,
    certain: Vec<bool>,
}

#[derive(Default)]
pub(super) struct Events {
    pub(super) ids: Texts,
    pub(super) tenants: Texts,
    pub(super) collections: Texts,
    pub(super) types: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Rejected {
    rows: Vec<i64>,
    codes: Texts,
    details: Texts,
    /// -1 if unknown.
    positions: Vec<i64>,
}

/// The ignored rows.
#[derive(Default)]
pub(super) struct Passed {
    rows: Vec<i64>,
    reasons: Texts,
}

impl Passed {
    pub(super) fn push(&mut self, row: usize, reason: Ignored) {
        self.rows.push(row as i64);
        self.reasons.push(Some(reason.as_str()));
    }
}

impl Events {
    pub(super) fn push(&mut self, identity: Option<Identity<'_>>) {
        match identity.and_then(|identity| identity.id) {
            Some(EventId::Text(text)) => self.ids.push(Some(text)),
            Some(EventId::Integer(number)) => self.ids.push(Some(&number.to_string())),
            None => self.ids.push(None),
        }
        self.tenants.push(identity.map(|identity| identity.tenant));
        self.collections.push(identity.and_then(|identity| identity.collection));
        self.types.push(match identity.and_then(|identity| identity.event_type) {
            None => 0,
            Some(EventType::Insert) => 1,
            Some(EventType::Update) => 2,
            Some(EventType::Delete) => 3,
        });
    }
}

impl Rejected {
    pub(super) fn push(&mut self, row: usize, error: &EventError) {
        self.rows.push(row as i64);
        self.codes.push(Some(error.code.as_str()));
        match &error.place {
            Some(place) if !place.is_empty() => self.details.push_all(&[&shortened(place), ": ", &error.reason]),
            _ => self.details.push(Some(&error.reason)),
        }
        self.positions.push(error.offset.map_or(-1, |offset| offset as i64));
    }
}

/// Cut out the middle of a text that a hostile name made long, as `streamer.errors` does.
pub(super) fn shortened(place: &str) -> String {
    let length = place.chars().count();
    match length > 300 {
        true => place.chars().take(200).chain(" ... ".chars()).chain(place.chars().skip(length - 80)).collect(),
        false => place.to_owned(),
    }
}

impl MatchColumns {
    fn push(&mut self, row: usize, slot: u32, Outcome { transition, certain }: Outcome) {
        self.rows.push(row as i64);
        self.slots.push(slot);
        self.transitions.push(match transition {
            None => 0,
            Some(Transition::Enter) => 1,
            Some(Transition::Stay) => 2,
            Some(Transition::Leave) => 3,
        });
        self.certain.push(certain);
    }

    pub(super) fn extend(&mut self, row: usize, matched: &Matched<'_>, stays: Stays<'_>) {
        for slot in matched.certain {
            let transition = stays.transition(matched.change, *slot, 0);
            self.push(row, *slot, Outcome { transition, certain: true });
        }
        matched.others.iter().for_each(|(slot, outcome)| self.push(row, *slot, *outcome));
    }

    /// Name the matches: many together, so that the cache misses of their records overlap.
    pub(super) fn name(&mut self, engine: &EngineState) {
        let mut transitions = self.transitions.iter_mut();
        let _: Result<(), Infallible> = engine.records(&std::mem::take(&mut self.slots), |records| {
            // Each pass waits for memory that the pass before has requested, but for all records at once.
            records.iter().flatten().for_each(|record| record.prefetch_id());
            for (record, transition) in records.iter().zip(&mut transitions) {
                let record = record.expect("a pinned slot has a subscription");
                if record.flags & flags::BEFORE != 0 {
                    // It looks at `before` itself, so it has no transition.
                    *transition = 0;
                }
                self.subscriptions.push(Some(record.id()));
                self.gateways.push(record.gateway_id());
            }
            Ok(())
        });
    }
}

impl Part {
    pub(super) fn saw(&mut self, event: &[u8]) {
        let (from, to) = (event.as_ptr() as usize, event.as_ptr() as usize + event.len());
        self.read = Some(self.read.map_or((from, to), |(lowest, highest)| (lowest.min(from), highest.max(to))));
    }
}

/// Validity, offsets, data, and the number of nulls: the arguments of `pyarrow.Array.from_buffers`, after the kind of
/// column.
pub(super) type Column<'py> =
    (&'static str, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>, usize);

/// Bytes that are written with the GIL released.
pub(super) fn bytes<'py>(py: Python<'py>, length: usize, write: impl FnOnce(&mut [u8]) + Send) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, length, |bytes| {
        gil::released(py, || write(bytes));
        Ok(())
    })
}

/// A bitmap of *length* bits, lowest first.
pub(super) fn bitmap<'py>(
    py: Python<'py>,
    length: usize,
    bits: impl Iterator<Item = bool> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, length.div_ceil(8), |bytes| {
        for (at, bit) in bits.enumerate() {
            bytes[at / 8] |= u8::from(bit) << (at % 8);
        }
    })
}

pub(super) fn numbers<'py, 'p>(
    py: Python<'py>,
    length: usize,
    parts: impl Iterator<Item = &'p Vec<i64>> + Send + Clone,
    is_nullable: bool,
) -> PyResult<Column<'py>> {
    let values = parts.flatten().copied();
    let nulls = if is_nullable { values.clone().filter(|value| *value < 0).count() } else { 0 };
    let validity = (nulls > 0).then(|| bitmap(py, length, values.clone().map(|value| value >= 0))).transpose()?;
    let data = bytes(py, length * 8, |bytes| {
        for (place, value) in bytes.chunks_exact_mut(8).zip(values) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
    })?;
    Ok(("int64", validity, None, data, nulls))
}

pub(super) fn flags<'py, 'p>(
    py: Python<'py>,
    length: usize,
    parts: impl Iterator<Item = &'p Vec<bool>> + Send,
) -> PyResult<Column<'py>> {
    Ok(("bool", None, None, bitmap(py, length, parts.flatten().copied())?, 0))
}

/// A column of texts that are *lengths* long, or null, with *write* for the texts themselves. Past *limit* bytes offsets are wide.
pub(super) fn text_column<'py>(
    py: Python<'py>,
    length: usize,
    lengths: impl Iterator<Item = u32> + Send + Clone,
    limit: usize,
    write: impl FnOnce(&mut [u8]) + Send,
) -> PyResult<Column<'py>> {
    let counted = lengths.clone();
    let (total, nulls) = gil::released(py, || {
        let add = |(total, nulls), length| if length == NULL { (total, nulls + 1) } else { (total + length as usize, nulls) };
        counted.fold((0, 0), add)
    });
    let is_large = total > limit.min(i32::MAX as usize);
    let validity = (nulls > 0).then(|| bitmap(py, length, lengths.clone().map(|length| length != NULL))).transpose()?;
    let width = if is_large { 8 } else { 4 };
    let offsets = bytes(py, (length + 1) * width, |bytes| {
        let mut end = 0;
        // The first offset is 0, as the bytes are.
        for (place, length) in bytes.chunks_exact_mut(width).skip(1).zip(lengths) {
            end += if length == NULL { 0 } else { length as usize };
            match is_large {
                true => place.copy_from_slice(&(end as i64).to_ne_bytes()),
                false => place.copy_from_slice(&(end as i32).to_ne_bytes()),
            }
        }
    })?;
    let data = bytes(py, total, write)?;
    Ok((if is_large { "large_string" } else { "string" }, validity, Some(offsets), data, nulls))
}

pub(super) fn texts<'py, 'p>(
    py: Python<'py>,
    length: usize,
    parts: impl Iterator<Item = &'p Texts> + Send + Clone,
    limit: usize,
) -> PyResult<Column<'py>> {
    let lengths = parts.clone().flat_map(|part| part.lengths.iter().copied());
    text_column(py, length, lengths, limit, |mut bytes| {
        for part in parts {
            let (here, rest) = bytes.split_at_mut(part.bytes.len());
            here.copy_from_slice(&part.bytes);
            bytes = rest;
        }
    })
}

pub(super) fn words<'py, 'p>(
    py: Python<'py>,
    length: usize,
    parts: impl Iterator<Item = &'p Vec<u8>> + Send + Clone,
    words: &'static [&'static str; 4],
    limit: usize,
) -> PyResult<Column<'py>> {
    let numbers = parts.flatten().map(|number| usize::from(*number));
    let lengths = numbers.clone().map(|number| if number == 0 { NULL } else { words[number].len() as u32 });
    text_column(py, length, lengths, limit, |mut bytes| {
        for number in numbers {
            let (here, rest) = bytes.split_at_mut(words[number].len());
            here.copy_from_slice(words[number].as_bytes());
            bytes = rest;
        }
    })
}

/// How many rows, and the columns.
pub type Buffers<'py> = (usize, Bound<'py, PyList>);

pub(super) fn batch<'py, const N: usize>(py: Python<'py>, length: usize, columns: [Column<'py>; N]) -> PyResult<Buffers<'py>> {
    Ok((length, PyList::new(py, columns)?))
}

pub(super) fn matches<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
    let parts = parts.iter().map(|part| &part.matches);
    let length = parts.clone().map(|part| part.rows.len()).sum();
    let columns = [
        numbers(py, length, parts.clone().map(|part| &part.rows), false)?,
        texts(py, length, parts.clone().map(|part| &part.subscriptions), limit)?,
        texts(py, length, parts.clone().map(|part| &part.gateways), limit)?,
        words(py, length, parts.clone().map(|part| &part.transitions), &TRANSITIONS, limit)?,
        flags(py, length, parts.map(|part| &part.certain))?,
    ];
    batch(py, length, columns)
}

pub(super) fn events<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
    let parts = parts.iter().map(|part| &part.events);
    let length = parts.clone().map(|part| part.types.len()).sum();
    let columns = [
        texts(py, length, parts.clone().map(|part| &part.ids), limit)?,
        texts(py, length, parts.clone().map(|part| &part.tenants), limit)?,
        texts(py, length, parts.clone().map(|part| &part.collections), limit)?,
        words(py, length, parts.map(|part| &part.types), &TYPES, limit)?,
    ];
    batch(py, length, columns)
}

pub(super) fn rejected<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
    let parts = parts.iter().map(|part| &part.rejected);
    let length = parts.clone().map(|part| part.rows.len()).sum();
    let columns = [
        numbers(py, length, parts.clone().map(|part| &part.rows), false)?,
        texts(py, length, parts.clone().map(|part| &part.codes), limit)?,
        texts(py, length, parts.clone().map(|part| &part.details), limit)?,
        numbers(py, length, parts.map(|part| &part.positions), true)?,
    ];
    batch(py, length, columns)
}

pub(super) fn ignored<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
    let parts = parts.iter().map(|part| &part.passed);
    let length = parts.clone().map(|part| part.rows.len()).sum();
    let columns = [
        numbers(py, length, parts.clone().map(|part| &part.rows), false)?,
        texts(py, length, parts.map(|part| &part.reasons), limit)?,
    ];
    batch(py, length, columns)
}
