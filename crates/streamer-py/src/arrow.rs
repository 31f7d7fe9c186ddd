//! Events from Arrow buffers and results into Arrow buffers, without a Python object for each row or match.
//!
//! ```text
//!   chunk   validity │ offsets │ data         lent by pyarrow, read where they lie
//!              └─► blocks of rows ─► threads ─► a Part each: columns of the matches, the events, the rejected and the ignored
//!                                                  └─► bytes of validity, offsets and data, for pyarrow to wrap
//! ```
//!
//! Invariant: a row is read through offsets that were checked against the data when the call began, and is looked up with
//! bounds checked all the same. Offsets that decrease or lead beyond the data are a ValueError.
//!
//! The one `unsafe` of this crate is [`Lent::bytes`]: a buffer of Arrow is read while the GIL is released, which is
//! sound because Arrow's buffers are immutable once they are shared.
//!
//! Cost: the results are written twice, once by the thread that finds them and once, all threads' together, into the bytes
//! that pyarrow wraps. Rejected: the C data interface (a table of function pointers and a release callback, all of it unsafe,
//! for what the buffer protocol gives); copying the rows out (a tenth of what matching them takes).

use crate::core::{Core, Shared};
use crate::errors::guard;
use crate::gil;
use crate::named;
use crate::parallel::{MOST_THREADS, Pulse, parallel};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streamer_core::engine::{
    CelError, Change, Event, Group, Identity, Matched, Outcome, Record, Scratch, Stays, Transition, Version,
};
use streamer_core::error::{EventError, Ignored};
use streamer_core::flatten::EventId;
use streamer_core::layout::EventType;

/// So many rows, or bytes, are in a block.
const BLOCK_ROWS: usize = 256;
const BLOCK_BYTES: usize = 1 << 20;
/// Records are looked up so many at a time, so that the processor waits for many cache lines at once.
const LOOKED_UP: usize = 32;

/// A buffer of Arrow, kept alive.
struct Lent(PyUntypedBuffer);

impl Lent {
    fn of(buffer: &Bound<'_, PyAny>) -> PyResult<Option<Lent>> {
        if buffer.is_none() {
            return Ok(None);
        }
        let buffer = PyUntypedBuffer::get(buffer)?;
        match buffer.is_c_contiguous() {
            true => Ok(Some(Lent(buffer))),
            false => Err(PyValueError::new_err("a buffer of Arrow is contiguous")),
        }
    }

    #[allow(unsafe_code, reason = "see the head of this file")]
    fn bytes(&self) -> &[u8] {
        let (start, length) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        if start.is_null() || length == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `length` bytes at `start` alive and in place until the buffer is released, which is when
        // `self` is dropped. Nobody writes to them: by the Arrow columnar format buffers are immutable once they are shared,
        // and every library that takes an array relies on that.
        unsafe { std::slice::from_raw_parts(start, length) }
    }
}

/// An array of texts, or a slice of one.
pub struct Chunk {
    validity: Option<Lent>,
    offsets: Option<Lent>,
    data: Option<Lent>,
    /// Where the slice begins.
    offset: usize,
    length: usize,
    is_large: bool,
}

impl Chunk {
    fn bytes(buffer: &Option<Lent>) -> &[u8] {
        buffer.as_ref().map_or(&[], Lent::bytes)
    }

    /// The offset of row *at*, counted from the beginning of the array; None beyond the buffer or where it is negative.
    fn offset(&self, at: usize) -> Option<usize> {
        let offsets = Chunk::bytes(&self.offsets);
        if self.is_large {
            let bytes = offsets.get(at.checked_mul(8)?..)?.first_chunk::<8>()?;
            usize::try_from(i64::from_ne_bytes(*bytes)).ok()
        } else {
            let bytes = offsets.get(at.checked_mul(4)?..)?.first_chunk::<4>()?;
            usize::try_from(i32::from_ne_bytes(*bytes)).ok()
        }
    }

    /// Row *at* of the slice; None where it is null.
    pub fn row(&self, at: usize) -> Option<&[u8]> {
        let at = self.offset.checked_add(at)?;
        if let Some(validity) = &self.validity
            && validity.bytes().get(at / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 0)
        {
            return None;
        }
        // A row without offsets is not there: `check` refuses such an array.
        Chunk::bytes(&self.data).get(self.offset(at)?..self.offset(at + 1)?)
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Check that all rows are there; what is wrong, in words.
    fn check(&self) -> Result<(), String> {
        if self.length == 0 {
            return Ok(());
        }
        let end = self.offset.checked_add(self.length).filter(|end| *end < isize::MAX as usize);
        let end = end.ok_or("more rows than there can be")?;
        if let Some(validity) = &self.validity
            && validity.bytes().len() < end.div_ceil(8)
        {
            return Err(format!("{} bytes of validity for {end} rows", validity.bytes().len()));
        }
        let (data, missing) =
            (Chunk::bytes(&self.data).len(), |at: usize| format!("no valid offset of row {}", at - self.offset));
        let mut from = self.offset(self.offset).ok_or_else(|| missing(self.offset))?;
        for at in self.offset + 1..=end {
            let to = self.offset(at).ok_or_else(|| missing(at))?;
            let row = at - 1 - self.offset;
            if to < from {
                return Err(format!("row {row} ends at byte {to}, before it begins at {from}"));
            }
            if to > data {
                return Err(format!("row {row} ends at byte {to} of {data}"));
            }
            from = to;
        }
        Ok(())
    }
}

/// Some rows of one chunk.
struct Block {
    chunk: usize,
    rows: Range<usize>,
    /// The number of the first of them, of all rows of all chunks.
    first: usize,
}

/// The rows of several chunks.
pub struct Rows {
    chunks: Vec<Chunk>,
    blocks: Vec<Block>,
}

impl Rows {
    /// Borrow chunks as `streamer.core.arrow` hands them over: validity, offsets, data, offset, length, whether offsets are wide.
    ///
    /// # Errors
    ///
    /// ValueError: an array whose buffers are not those of a valid one.
    pub fn of(py: Python<'_>, chunks: &Bound<'_, PyAny>) -> PyResult<Rows> {
        type ChunkParts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, usize, usize, bool);
        let borrowed = chunks.try_iter()?.map(|chunk| {
            let (validity, offsets, data, offset, length, is_large): ChunkParts<'_> = chunk?.extract()?;
            let (validity, offsets, data) = (Lent::of(&validity)?, Lent::of(&offsets)?, Lent::of(&data)?);
            Ok(Chunk { validity, offsets, data, offset, length, is_large })
        });
        let mut rows = Rows { chunks: borrowed.collect::<PyResult<_>>()?, blocks: Vec::new() };
        gil::released(py, || rows.cut()).map_err(PyValueError::new_err)?;
        Ok(rows)
    }

    /// Check the chunks and cut them into blocks.
    fn cut(&mut self) -> Result<(), String> {
        let mut first = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            chunk.check().map_err(|error| format!("chunk {number} is no valid Arrow array: {error}"))?;
            let (mut from, mut bytes) = (0, 0);
            for at in 0..chunk.len() {
                bytes += chunk.row(at).map_or(0, <[u8]>::len);
                if at + 1 == chunk.len() || at + 1 - from >= BLOCK_ROWS || bytes >= BLOCK_BYTES {
                    self.blocks.push(Block { chunk: number, rows: from..at + 1, first: first + from });
                    (from, bytes) = (at + 1, 0);
                }
            }
            first += chunk.len();
        }
        Ok(())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Chunk::len).sum()
    }

    /// The rows of a block, each with its number.
    fn block(&self, block: usize) -> impl Iterator<Item = (usize, Option<&[u8]>)> {
        let Block { chunk, rows, first } = &self.blocks[block];
        let chunk = &self.chunks[*chunk];
        rows.clone().map(move |at| (first + at - rows.start, chunk.row(at)))
    }
}

const NULL: u32 = u32::MAX;

/// A column of texts.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    /// Of each row, or [`NULL`].
    lengths: Vec<u32>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        match text {
            Some(text) => {
                self.bytes.extend_from_slice(text.as_bytes());
                // An event, and so what is in it, is shorter than 4 GiB, and a subscription too.
                self.lengths.push(u32::try_from(text.len()).unwrap_or(NULL - 1).min(NULL - 1));
            }
            None => self.lengths.push(NULL),
        }
    }

    fn push_all(&mut self, texts: &[&str]) {
        let begin = self.bytes.len();
        texts.iter().for_each(|text| self.bytes.extend_from_slice(text.as_bytes()));
        self.lengths.push((self.bytes.len() - begin).min(NULL as usize - 1) as u32);
    }
}

/// Words that a column holds, by their number; 0 is null.
const TRANSITIONS: [&str; 4] = ["", "enter", "stay", "leave"];
const TYPES: [&str; 4] = ["", "insert", "update", "delete"];

/// What became of the rows of a block.
#[derive(Default)]
struct Part {
    matches: Found,
    events: Events,
    rejected: Rejected,
    passed: Passed,
    errors: Vec<CelError>,
    /// The lowest and the highest address that the engine read events at.
    read: Option<(usize, usize)>,
}

#[derive(Default)]
struct Found {
    rows: Vec<i64>,
    subscriptions: Texts,
    gateways: Texts,
    transitions: Vec<u8>,
    certain: Vec<bool>,
}

#[derive(Default)]
struct Events {
    ids: Texts,
    tenants: Texts,
    collections: Texts,
    types: Vec<u8>,
}

#[derive(Default)]
struct Rejected {
    rows: Vec<i64>,
    codes: Texts,
    details: Texts,
    /// -1 where it is not known.
    positions: Vec<i64>,
}

/// What was ignored.
#[derive(Default)]
struct Passed {
    rows: Vec<i64>,
    reasons: Texts,
}

impl Passed {
    fn push(&mut self, row: usize, reason: Ignored) {
        self.rows.push(row as i64);
        self.reasons.push(Some(reason.as_str()));
    }
}

impl Events {
    fn push(&mut self, identity: Option<Identity<'_>>) {
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
    fn push(&mut self, row: usize, error: &EventError) {
        self.rows.push(row as i64);
        self.codes.push(Some(error.code.as_str()));
        match &error.place {
            Some(place) if !place.is_empty() => self.details.push_all(&[&shortened(place), ": ", &error.reason]),
            _ => self.details.push(Some(&error.reason)),
        }
        self.positions.push(error.offset.map_or(-1, |offset| offset as i64));
    }
}

/// Leave out the middle of what a hostile name made long, as `streamer.errors` does.
fn shortened(place: &str) -> String {
    let length = place.chars().count();
    match length > 300 {
        true => place.chars().take(200).chain(" ... ".chars()).chain(place.chars().skip(length - 80)).collect(),
        false => place.to_owned(),
    }
}

impl Found {
    fn push(&mut self, row: usize, record: &Record, transition: Option<Transition>, certain: bool) {
        self.rows.push(row as i64);
        self.subscriptions.push(Some(&record.id));
        self.gateways.push(record.gateway_id.as_deref());
        self.transitions.push(match transition {
            None => 0,
            Some(Transition::Enter) => 1,
            Some(Transition::Stay) => 2,
            Some(Transition::Leave) => 3,
        });
        self.certain.push(certain);
    }

    fn extend(&mut self, row: usize, shared: &Shared, matched: &Matched<'_>, stays: Stays<'_>) {
        let record = |slot: u32| shared.engine.record(slot).expect("a pinned slot has a subscription");
        let change: Change = matched.change;
        for slots in matched.certain.chunks(LOOKED_UP) {
            let mut records: [Option<Arc<Record>>; LOOKED_UP] = [const { None }; LOOKED_UP];
            records.iter_mut().zip(slots).for_each(|(place, slot)| *place = Some(record(*slot)));
            for (record, slot) in records.iter().flatten().zip(slots) {
                self.push(row, record, stays.transition(change, *slot, record.flags), true);
            }
        }
        for (slot, Outcome { transition, certain }) in matched.told {
            self.push(row, &record(*slot), *transition, *certain);
        }
    }
}

impl Part {
    fn saw(&mut self, event: &[u8]) {
        let (from, to) = (event.as_ptr() as usize, event.as_ptr() as usize + event.len());
        self.read = Some(self.read.map_or((from, to), |(lowest, highest)| (lowest.min(from), highest.max(to))));
    }
}

/// Validity, offsets, data, how many are null: what `pyarrow.Array.from_buffers` takes, after the kind of column.
type Column<'py> = (&'static str, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>, usize);

/// Bytes that are written with the GIL released.
fn bytes<'py>(py: Python<'py>, length: usize, write: impl FnOnce(&mut [u8]) + Send) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, length, |bytes| {
        gil::released(py, || write(bytes));
        Ok(())
    })
}

/// A bitmap of *length* bits, lowest first.
fn bitmap<'py>(py: Python<'py>, length: usize, bits: impl Iterator<Item = bool> + Send) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, length.div_ceil(8), |bytes| {
        for (at, bit) in bits.enumerate() {
            bytes[at / 8] |= u8::from(bit) << (at % 8);
        }
    })
}

fn numbers<'py, 'p>(
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

fn flags<'py, 'p>(py: Python<'py>, length: usize, parts: impl Iterator<Item = &'p Vec<bool>> + Send) -> PyResult<Column<'py>> {
    Ok(("bool", None, None, bitmap(py, length, parts.flatten().copied())?, 0))
}

/// A column of texts that are *lengths* long, or null, with *write* for the texts themselves. Past *limit* bytes offsets are wide.
fn text_column<'py>(
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

fn texts<'py, 'p>(
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

fn words<'py, 'p>(
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

fn batch<'py, const N: usize>(py: Python<'py>, length: usize, columns: [Column<'py>; N]) -> PyResult<Buffers<'py>> {
    Ok((length, PyList::new(py, columns)?))
}

fn matches<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
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

fn events<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
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

fn rejected<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
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

fn ignored<'py>(py: Python<'py>, parts: &[Part], limit: usize) -> PyResult<Buffers<'py>> {
    let parts = parts.iter().map(|part| &part.passed);
    let length = parts.clone().map(|part| part.rows.len()).sum();
    let columns = [
        numbers(py, length, parts.clone().map(|part| &part.rows), false)?,
        texts(py, length, parts.map(|part| &part.reasons), limit)?,
    ];
    batch(py, length, columns)
}

/// How rows are asked about.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub tenant: Option<&'a str>,
    pub collection: Option<&'a str>,
    pub threads: usize,
    /// A column of more bytes has wide offsets.
    pub text_limit: usize,
    /// The first event with which there are so many matches is the last one; one thread matches then.
    pub max_matches: Option<usize>,
    /// Whether to match; otherwise events are only told apart and called by name.
    pub is_matching: bool,
}

impl Core {
    /// Match the rows of *chunks*; see `streamer/_native.pyi`.
    pub fn columns<'py>(&self, py: Python<'py>, chunks: &Bound<'py, PyAny>, ask: &Ask<'_>) -> PyResult<Bound<'py, PyAny>> {
        let Ask { tenant, collection, threads, text_limit: limit, max_matches, is_matching } = *ask;
        guard(py, || {
            let rows = Rows::of(py, chunks)?;
            // It pins every slot until the last text is copied.
            let version = self.shared.engine.version();
            let threads = match max_matches {
                None => threads.min(MOST_THREADS).clamp(1, rows.blocks.len().max(1)),
                // Several would match events, and count them, that come after the last one.
                Some(_) => 1,
            };
            let left = max_matches.map(AtomicUsize::new);
            let mut scratches: Vec<Box<Scratch>> = (0..threads).map(|_| self.shared.scratch()).collect();
            let parts = parallel(py, rows.blocks.len(), &mut scratches, |block, scratch, pulse| match is_matching {
                true => self.match_rows(&version, rows.block(block), tenant, collection, left.as_ref(), scratch, pulse),
                false => self.identify_rows(rows.block(block), tenant, collection, scratch, pulse),
            })?;
            scratches.into_iter().for_each(|scratch| self.shared.keep(scratch));
            let is_whole = parts.iter().map(|part| part.events.types.len()).sum::<usize>() == rows.len();
            if !is_whole && left.is_none_or(|left| left.into_inner() > 0) {
                return Err(PyRuntimeError::new_err("a row that nothing became of"));
            }
            for part in &parts {
                self.shared.tell(py, &part.errors)?;
            }
            let span = |one: (usize, usize), other: (usize, usize)| (one.0.min(other.0), one.1.max(other.1));
            let read = parts.iter().filter_map(|part| part.read).reduce(span);
            let batches = [
                matches(py, &parts, limit)?,
                events(py, &parts, limit)?,
                rejected(py, &parts, limit)?,
                ignored(py, &parts, limit)?,
            ];
            let result = named::columns(py, batches, read)?;
            drop(version);
            Ok(result)
        })
    }

    /// Match rows, where there is a limit until *left* matches are found; they are counted by one thread.
    #[allow(clippy::too_many_arguments, reason = "a block of rows, and how it is matched")]
    fn match_rows<'e>(
        &self,
        version: &Arc<Version>,
        rows: impl Iterator<Item = (usize, Option<&'e [u8]>)>,
        tenant: Option<&str>,
        collection: Option<&str>,
        left: Option<&AtomicUsize>,
        scratch: &mut Scratch,
        pulse: &mut Pulse<'_>,
    ) -> Part {
        let mut part = Part::default();
        // In the order of the rows, so that the results are.
        let mut group = Group::new(version);
        for (row, event) in rows {
            if left.is_some_and(|left| left.load(Ordering::Relaxed) == 0) || !pulse.beat() {
                break;
            }
            let Part { matches, events, rejected, passed, errors, .. } = &mut part;
            let mut open = self.shared.open();
            let Some(event) = event else {
                open.settled();
                self.shared.engine.telemetry().ignore(Ignored::Null);
                events.push(None);
                passed.push(row, Ignored::Null);
                continue;
            };
            let tell = |identity: Identity<'_>| events.push(Some(identity));
            let asked = Event::new(event, tenant, collection);
            let matched = self.shared.engine.match_in_full(&mut group, asked, scratch, tell);
            open.settled();
            match matched {
                Ok((Matched { ignored: Some(reason), .. }, _)) => {
                    events.push(None);
                    passed.push(row, reason);
                }
                Ok((matched, stays)) => {
                    matches.extend(row, &self.shared, &matched, stays);
                    if let Some(left) = left {
                        let found = matched.certain.len() + matched.told.len();
                        left.store(left.load(Ordering::Relaxed).saturating_sub(found), Ordering::Relaxed);
                    }
                    errors.extend_from_slice(matched.errors);
                }
                Err(error) => {
                    events.push(None);
                    rejected.push(row, &error);
                }
            }
            part.saw(event);
        }
        part
    }

    fn identify_rows<'e>(
        &self,
        rows: impl Iterator<Item = (usize, Option<&'e [u8]>)>,
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
        pulse: &mut Pulse<'_>,
    ) -> Part {
        let mut part = Part::default();
        for (row, event) in rows {
            if !pulse.beat() {
                break;
            }
            let Part { events, rejected, passed, .. } = &mut part;
            let tell = |identity: Identity<'_>| events.push(Some(identity));
            let read = match event {
                Some(event) => self.shared.engine.identify(Event::new(event, tenant, collection), scratch, tell),
                None => Ok(Some(Ignored::Null)),
            };
            match read {
                Ok(None) => (),
                Ok(Some(reason)) => {
                    events.push(None);
                    passed.push(row, reason);
                }
                Err(error) => {
                    events.push(None);
                    rejected.push(row, &error);
                }
            }
            if let Some(event) = event {
                part.saw(event);
            }
        }
        part
    }
}
