//! Several events at once, with the GIL released, in as many threads as are given.
//!
//! ```text
//!   events ─ read (with the GIL) ─────► a round ─ by tenant and collection, if they differ ─► blocks ─► threads ─► Batch
//!   Batch: slots │ 4 7 │ 7 │ │ 4 9 9 │   and for each event the span of its slots, or its error   batch[2] ─► Matches
//! ```
//!
//! Events of one tenant and collection are matched one after the other, so that their shared parts are looked up once
//! and their index stays in the cache: this is the gain of a mixed batch. The only Python objects are the errors, and
//! the `Matches` of events that a caller reads.
//!
//! Cost: the names of a few events of a round, to see whether they differ. If they do, a sort, and the names of all,
//! which the matching of each event reuses. Rejected: order within each block (of a thousand collections a block of 256
//! events seldom has two of one); hits for each event at once (an allocation and an object each, which the garbage
//! collector then walks through).

use crate::errors::{self, guard};
use crate::gil;
use crate::hits::{Hits, Nothing, OldSide};
use crate::host::Text;
use crate::match_objects;
use crate::messages;
use crate::parallel::{MOST_THREADS, Pulse, parallel};
use crate::shared::{EventMatches, Shared};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::ops::Range;
use std::sync::Arc;
use streamer_core::engine::{CelError, Change, Event, Group, Located, Matched, Outcome, PREFETCHED, Pin, Scratch, Version};
use streamer_core::error::{EventError, Ignored};

/// The most events, and bytes, that are read for each thread before the first of them is matched.
const ROUND: usize = 8192;
const ROUND_BYTES: usize = 16 << 20;
/// Events of a block, at least and at most: a thread costs some 20 µs to start, and is not worth it for fewer.
const FEWEST: usize = 16;
const MOST: usize = 256;
/// Bytes of a block, at most.
const MOST_BYTES: usize = 1 << 20;
/// The number of events that are checked to see whether a round is mixed.
const LOOKS: usize = 8;
/// With fewer mixed events, one thread locates all of them.
const WORTH_THREADS: usize = 2048;

/// The place of an event's matches.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    length: usize,
    /// The start of its outcomes, which belong to the last of its slots.
    outcomes: usize,
    others: usize,
    change: Change,
    ignored: Option<Ignored>,
}

/// The results of the events of a block, in the order in which they were matched.
#[derive(Default)]
struct Run {
    spans: Vec<Option<Result<Span, EventError>>>,
    slots: Vec<u32>,
    outcomes: Vec<Outcome>,
    errors: Vec<CelError>,
}

impl Run {
    fn settle(&mut self, matched: Result<Matched<'_>, EventError>) {
        let spans = matched.map(|matched| {
            let span = Span {
                start: self.slots.len(),
                length: matched.certain.len() + matched.others.len(),
                outcomes: self.outcomes.len(),
                others: matched.others.len(),
                change: matched.change,
                ignored: matched.ignored,
            };
            self.slots.extend_from_slice(matched.certain);
            self.slots.extend(matched.others.iter().map(|(slot, _)| *slot));
            self.outcomes.extend(matched.others.iter().map(|(_, outcome)| *outcome));
            self.errors.extend_from_slice(matched.errors);
            span
        });
        self.spans.push(Some(spans));
    }
}

/// An event's place in a batch.
enum Place {
    Span(Span),
    Bad(Py<PyAny>),
}

/// The results of several events: `Matches`, made when they are read, and the errors of bad events.
#[pyclass(frozen, sequence, module = "streamer._native")]
pub struct Batch {
    shared: Arc<Shared>,
    /// The original events.
    events: Py<PyList>,
    /// Keeps the slots from being reused.
    pin: Pin,
    /// Only if there are `texts`: it keeps the state of one moment.
    version: Option<Arc<Version>>,
    tenant: Option<Box<str>>,
    collection: Option<Box<str>>,
    places: Vec<Place>,
    rejected: usize,
    slots: Vec<u32>,
    outcomes: Vec<Outcome>,
    /// The texts of events whose transitions need them, by position.
    texts: Vec<(usize, Py<PyBytes>)>,
    nothing: Nothing,
}

#[pymethods]
impl Batch {
    /// How many of them are errors.
    #[getter]
    fn rejected(&self) -> usize {
        self.rejected
    }

    /// The positions of events that something matches, and of errors, in order.
    fn matched(&self) -> Vec<usize> {
        let is_matched = |place: &Place| !matches!(place, Place::Span(Span { length: 0, .. }));
        (0..self.places.len()).filter(|at| is_matched(&self.places[*at])).collect()
    }

    fn __len__(&self) -> usize {
        self.places.len()
    }

    fn __iter__(slf: Bound<'_, Self>) -> ResultIterator {
        ResultIterator { batch: slf.unbind(), numbers: None, position: 0 }
    }

    /// Make the result of each line, with its number, when the iterator reaches it.
    fn lines(slf: Bound<'_, Self>, numbers: Vec<u64>) -> ResultIterator {
        ResultIterator { batch: slf.unbind(), numbers: Some(numbers), position: 0 }
    }

    /// Return a line of JSON for each match, by event.
    fn jsonl<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        guard(py, || {
            let mut text = String::with_capacity(128 * self.slots.len());
            for (row, place) in self.places.iter().enumerate() {
                let Place::Span(span @ Span { length: 1.., .. }) = place else { continue };
                let hits = self.hits(py, row, span);
                for position in 0..hits.slots.len() {
                    let record = hits.record(position)?;
                    let outcome = hits.outcome_of(py, position, &record)?;
                    messages::push_line(py, &self.shared, &mut text, row, &record, outcome)?;
                }
            }
            Ok(PyBytes::new(py, text.as_bytes()))
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, position: isize) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || {
            let position = usize::try_from(position).ok().filter(|at| *at < self.places.len());
            let position = position.ok_or_else(|| PyIndexError::new_err("position out of range"))?;
            self.result(py, position)
        })
    }
}

/// Makes the results of a batch one after the other, when the iterator reaches them.
#[pyclass(module = "streamer._native")]
pub struct ResultIterator {
    batch: Py<Batch>,
    /// The numbers of lines.
    numbers: Option<Vec<u64>>,
    position: usize,
}

#[pymethods]
impl ResultIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (batch, position) = (self.batch.get(), self.position);
        if position >= batch.places.len() {
            return Ok(None);
        }
        self.position += 1;
        guard(py, || {
            let result = batch.result(py, position)?;
            let Some(numbers) = &self.numbers else { return Ok(Some(result)) };
            let number = numbers.get(position).ok_or_else(|| PyIndexError::new_err("a line without a number"))?;
            match_objects::line_result(*number, result).map(Some)
        })
    }
}

impl Batch {
    fn result<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        let hits = match &self.places[position] {
            Place::Bad(error) => return Ok(error.bind(py).clone()),
            Place::Span(Span { length: 0, ignored: None, .. }) => self.nothing.hits(py, &self.shared)?,
            Place::Span(span) => Bound::new(py, self.hits(py, position, span))?,
        };
        match_objects::matches(&hits, &self.events.bind(py).get_item(position)?)
    }

    fn hits(&self, py: Python<'_>, position: usize, span: &Span) -> Hits {
        let certain = span.length - span.others;
        let others = &self.outcomes[span.outcomes..][..span.others];
        let outcomes = match others {
            [] => Box::default(),
            _ => (0..certain).map(|_| None).chain(others.iter().copied().map(Some)).collect(),
        };
        let slots = self.slots[span.start..][..span.length].into();
        let result = EventMatches { slots, outcomes, change: span.change, ignored: span.ignored, pin: self.pin.clone() };
        let text = self.texts.binary_search_by_key(&position, |(at, _)| *at).ok().map(|at| self.texts[at].1.bind(py).clone());
        let old_side = self.version.as_ref().zip(text).map(|(version, text)| {
            OldSide::new(version.clone(), text.unbind(), self.tenant.as_deref(), self.collection.as_deref())
        });
        Hits::new(&self.shared, result, old_side)
    }

    /// Add the results of the events with these *texts*.
    fn extend(
        &mut self,
        py: Python<'_>,
        version: &Arc<Version>,
        texts: &[PyResult<Text<'_>>],
        order: &Order<'_>,
        runs: Vec<Run>,
    ) -> PyResult<()> {
        let mut spans: Vec<Option<Result<Span, EventError>>> = Vec::new();
        spans.resize_with(texts.len(), || None);
        let mut matched = 0;
        for run in runs {
            let (slots, outcomes) = (self.slots.len(), self.outcomes.len());
            for span in run.spans {
                let moved = |span: Span| Span { start: span.start + slots, outcomes: span.outcomes + outcomes, ..span };
                spans[order.event(matched)] = span.map(|span| span.map(moved));
                matched += 1;
            }
            match slots {
                0 if self.slots.is_empty() => self.slots = run.slots,
                _ => self.slots.extend_from_slice(&run.slots),
            }
            self.outcomes.extend_from_slice(&run.outcomes);
        }
        for (text, spans) in texts.iter().zip(spans) {
            let position = self.places.len();
            let bad = match (text, spans) {
                (Ok(text), Some(Ok(span))) => {
                    if span.change == Change::Compare && span.length > span.others {
                        self.version.get_or_insert_with(|| version.clone());
                        self.texts.push((position, text.to_bytes(py).unbind()));
                    }
                    self.places.push(Place::Span(span));
                    continue;
                }
                (Ok(text), Some(Err(error))) => errors::event_error(py, &error, text.is_text()),
                (Err(error), _) => Err(error.clone_ref(py)),
                (Ok(_), None) => Err(PyRuntimeError::new_err("an event that was not matched")),
            };
            self.rejected += 1;
            self.places.push(Place::Bad(errors::in_its_place(py, bad, position)?.unbind()));
        }
        Ok(())
    }
}

/// The order in which the events of a round are matched: by partition, if they differ in it.
#[derive(Default)]
struct Order<'e> {
    /// The partition of each event, or empty.
    located: Vec<Option<Located<'e>>>,
    /// By key, and for each the event.
    sorted: Vec<(u64, u32)>,
}

impl<'e> Order<'e> {
    /// The order by the locations of the events.
    fn by(located: Vec<Option<Located<'e>>>) -> Order<'e> {
        let key = |located: &Option<Located<'_>>| located.as_ref().map_or(0, |located| located.key);
        let mut sorted: Vec<(u64, u32)> = located.iter().zip(0..).map(|(located, at)| (key(located), at)).collect();
        sorted.sort_unstable();
        Order { located, sorted }
    }

    /// The event that is matched at a position.
    fn event(&self, position: usize) -> usize {
        self.sorted.get(position).map_or(position, |(_, at)| *at as usize)
    }

    /// Whether the order differs from that of the events.
    fn is_sorted(&self) -> bool {
        !self.sorted.is_empty()
    }

    /// The partition of an event, if it was looked up.
    fn located(&self, event: usize) -> Option<Located<'e>> {
        *self.located.get(event)?
    }
}

/// Split texts, in their order, into enough blocks for all *threads*.
fn blocks(texts: &[Option<&[u8]>], order: &Order<'_>, threads: usize) -> Vec<Range<usize>> {
    let most = texts.len().div_ceil(threads * 4).clamp(FEWEST, MOST);
    let mut blocks = Vec::with_capacity(texts.len().div_ceil(most));
    let (mut from, mut bytes) = (0, 0);
    for at in 0..texts.len() {
        bytes += texts[order.event(at)].map_or(0, <[u8]>::len);
        if at + 1 == texts.len() || at + 1 - from >= most || bytes >= MOST_BYTES {
            blocks.push(from..at + 1);
            (from, bytes) = (at + 1, 0);
        }
    }
    blocks
}

impl Shared {
    /// Match events; see `streamer/_native.pyi`.
    pub fn batch<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        list: Bound<'py, PyList>,
        tenant: Option<&str>,
        collection: Option<&str>,
        threads: usize,
    ) -> PyResult<Batch> {
        guard(py, || {
            let events: Vec<_> = list.iter().collect();
            let threads = threads.min(MOST_THREADS).clamp(1, events.len().div_ceil(FEWEST).max(1));
            let version = self.engine.version();
            let mut batch = Batch {
                shared: self.clone(),
                events: list.unbind(),
                pin: version.pin(),
                version: None,
                tenant: tenant.map(Box::from),
                collection: collection.map(Box::from),
                places: Vec::with_capacity(events.len()),
                rejected: 0,
                slots: Vec::new(),
                outcomes: Vec::new(),
                texts: Vec::new(),
                nothing: Nothing::default(),
            };
            let mut scratches: Vec<Box<Scratch>> = (0..threads).map(|_| self.scratch()).collect();
            let mut index = 0;
            while index < events.len() {
                // Read with the GIL, match without it.
                let mut texts: Vec<PyResult<Text<'py>>> = Vec::with_capacity((ROUND * threads).min(events.len() - index));
                let mut bytes = 0;
                while index < events.len() && texts.len() < ROUND * threads && bytes < ROUND_BYTES * threads {
                    let text = self.text(&events[index]);
                    let text = self.open().unless_read(py, text);
                    bytes += text.as_ref().map_or(0, |text| text.as_bytes().len());
                    texts.push(text);
                    index += 1;
                }
                // An event that cannot be read has no bytes to match; its error is in its place in `texts`.
                let readable: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_ref().ok()?.as_bytes())).collect();
                let order = self.order(py, &readable, tenant, collection, &mut scratches)?;
                let blocks = blocks(&readable, &order, threads);
                let runs = parallel(py, blocks.len(), &mut scratches, |block, scratch, pulse| {
                    self.run(&version, &readable, &order, blocks[block].clone(), tenant, collection, scratch, pulse)
                })?;
                for run in &runs {
                    self.tell(py, &run.errors)?;
                }
                batch.extend(py, &version, &texts, &order, runs)?;
            }
            scratches.into_iter().for_each(|scratch| self.keep(scratch));
            Ok(batch)
        })
    }

    /// Whether events belong to different tenants or collections, judged from a few of them.
    pub fn is_mixed<'e>(
        &'e self,
        events: impl ExactSizeIterator<Item = Option<&'e [u8]>> + DoubleEndedIterator + Clone,
        tenant: Option<&'e str>,
        collection: Option<&'e str>,
        scratch: &mut Scratch,
    ) -> bool {
        let count = events.len();
        if count <= 2 || (tenant.is_some() && collection.is_some()) {
            return false;
        }
        let last = events.clone().next_back();
        let mut looks = events
            .step_by(count.div_ceil(LOOKS))
            .chain(last)
            .map(|event| event.map(|event| self.engine.locate(Event::new(event, tenant, collection), scratch).key));
        let first = looks.next();
        looks.any(|other| Some(other) != first)
    }

    /// Find the order in which the events of a round are matched.
    fn order<'e>(
        &'e self,
        py: Python<'_>,
        events: &[Option<&'e [u8]>],
        tenant: Option<&'e str>,
        collection: Option<&'e str>,
        scratches: &mut [Box<Scratch>],
    ) -> PyResult<Order<'e>> {
        let Some(own) = scratches.first_mut() else { return Ok(Order::default()) };
        if !self.is_mixed(events.iter().copied(), tenant, collection, own) {
            return Ok(Order::default());
        }
        let locate = |event: &Option<&'e [u8]>, scratch: &mut Scratch| {
            event.map(|event| self.engine.locate(Event::new(event, tenant, collection), scratch))
        };
        let parts: Vec<&[Option<&'e [u8]>]> = events.chunks(MOST).collect();
        let scratches = if events.len() < WORTH_THREADS { &mut scratches[..1] } else { scratches };
        let located = parallel(py, parts.len(), scratches, |part, scratch, pulse| {
            parts[part].iter().take_while(|_| pulse.beat()).map(|event| locate(event, scratch)).collect::<Vec<_>>()
        })?;
        Ok(gil::released(py, || Order::by(located.concat())))
    }

    /// Match the events of a block.
    #[allow(clippy::too_many_arguments, reason = "a block of a round, and how it is matched")]
    fn run<'e>(
        &'e self,
        version: &'e Arc<Version>,
        events: &[Option<&'e [u8]>],
        order: &Order<'e>,
        block: Range<usize>,
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
        pulse: &mut Pulse<'_>,
    ) -> Run {
        let engine = &self.engine;
        let mut run = Run::default();
        run.spans.reserve(block.len());
        let mut group = Group::new(version);
        for position in block.clone() {
            if !pulse.beat() {
                break;
            }
            if (position - block.start).is_multiple_of(PREFETCHED) && order.is_sorted() {
                engine.prefetch(version, (position..block.end).filter_map(|position| order.located(order.event(position))));
            }
            let at = order.event(position);
            let Some(event) = events[at] else {
                run.spans.push(None);
                continue;
            };
            if let Some(located) = order.located(at) {
                group.expect(located);
            }
            let mut open = self.open();
            let matched = engine.match_in(&mut group, Event::new(event, tenant, collection), scratch);
            open.settled();
            run.settle(matched);
        }
        run
    }
}
