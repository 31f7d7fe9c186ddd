//! Several events at once, with the interpreter let go, in as many threads as are given.
//!
//! ```text
//!   events ─ read (interpreter held) ─► blocks, each by tenant and collection where they differ ─► threads ─► Batch
//!   Batch: slots │ 4 7 │ 7 │ │ 4 9 9 │   and of each event where its own are, or its error        batch[2] ─► Hits
//! ```
//!
//! Events of one tenant and collection are matched one after the other, so that what they share is looked up once and its index
//! stays in the cache. Nothing of Python is made for an event but the hits that somebody asks for, and the errors.
//!
//! Cost: the names of three events of a block, to see whether they differ. Rejected: hits for each event at once (an allocation
//! and an object each, which the collector of garbage then walks through).

use crate::core::{Core, Found, Shared};
use crate::errors::{self, guard};
use crate::hits::{Hits, OldSide};
use crate::host::Text;
use crate::shared_out::{MOST_THREADS, Pulse, shared_out};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::Range;
use std::sync::Arc;
use streamer_core::engine::{CelError, Change, Group, Matched, Outcome, Pin, Root, Scratch};
use streamer_core::error::EventError;

/// So many events, or bytes, are read before any of them is matched, for each thread.
const ROUND: usize = 8192;
const ROUND_BYTES: usize = 16 << 20;
/// Events of a block, at least and at most: a thread costs some 20 µs to start, and is not worth it for fewer.
const FEWEST: usize = 16;
const MOST: usize = 256;
/// Likewise bytes.
const MOST_BYTES: usize = 1 << 20;

/// Where what an event matched is.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    length: usize,
    /// Where its outcomes are, of the last of its slots.
    outcomes: usize,
    told: usize,
    change: Change,
}

/// What became of the events of a block, in their order; what they matched is in the order in which they were matched.
#[derive(Default)]
struct Run {
    spans: Vec<Option<Result<Span, EventError>>>,
    slots: Vec<u32>,
    outcomes: Vec<Outcome>,
    errors: Vec<CelError>,
}

impl Run {
    fn settle(&mut self, at: usize, matched: Result<Matched<'_>, EventError>) {
        let found = matched.map(|matched| {
            let span = Span {
                start: self.slots.len(),
                length: matched.certain.len() + matched.told.len(),
                outcomes: self.outcomes.len(),
                told: matched.told.len(),
                change: matched.change,
            };
            self.slots.extend_from_slice(matched.certain);
            self.slots.extend(matched.told.iter().map(|(slot, _)| *slot));
            self.outcomes.extend(matched.told.iter().map(|(_, outcome)| *outcome));
            self.errors.extend_from_slice(matched.errors);
            span
        });
        self.spans[at] = Some(found);
    }
}

/// An event's place in a batch.
enum Place {
    Found(Span),
    Bad(Py<PyAny>),
}

/// What several events matched; see `streamer/_native.pyi`.
#[pyclass(frozen, sequence, module = "streamer._native")]
pub struct Batch {
    shared: Arc<Shared>,
    /// Keeps the slots from being given to others.
    pin: Pin,
    /// Only where there are `texts`: it keeps all that is held at one moment.
    root: Option<Arc<Root>>,
    tenant: Option<Box<str>>,
    collection: Option<Box<str>>,
    places: Vec<Place>,
    slots: Vec<u32>,
    outcomes: Vec<Outcome>,
    /// The texts of events whose transitions need them, by position.
    texts: Vec<(usize, Py<PyBytes>)>,
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.places.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, position: isize) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || {
            let position = usize::try_from(position).ok().filter(|at| *at < self.places.len());
            let position = position.ok_or_else(|| PyIndexError::new_err("no such position"))?;
            match &self.places[position] {
                Place::Bad(error) => Ok(error.bind(py).clone()),
                Place::Found(span) => Bound::new(py, self.hits(py, position, span)).map(Bound::into_any),
            }
        })
    }
}

impl Batch {
    fn hits(&self, py: Python<'_>, position: usize, span: &Span) -> Hits {
        let certain = span.length - span.told;
        let told = &self.outcomes[span.outcomes..][..span.told];
        let outcomes = match told {
            [] => Box::default(),
            _ => (0..certain).map(|_| None).chain(told.iter().copied().map(Some)).collect(),
        };
        let slots = self.slots[span.start..][..span.length].into();
        let found = Found { slots, outcomes, change: span.change, pin: self.pin.clone() };
        let text = self.texts.binary_search_by_key(&position, |(at, _)| *at).ok().map(|at| self.texts[at].1.bind(py).clone());
        let old_side =
            self.root.as_ref().zip(text).map(|(root, text)| {
                OldSide::new(root.clone(), text.unbind(), self.tenant.as_deref(), self.collection.as_deref())
            });
        Hits::new(&self.shared, found, old_side)
    }

    /// Take what became of the events from *texts* on, which are *first* and those after it.
    fn extend(
        &mut self,
        py: Python<'_>,
        root: &Arc<Root>,
        texts: &[PyResult<Text<'_>>],
        runs: Vec<Run>,
        blocks: &[Range<usize>],
    ) -> PyResult<()> {
        for (run, block) in runs.into_iter().zip(blocks) {
            let (slots, outcomes) = (self.slots.len(), self.outcomes.len());
            for (text, found) in texts[block.clone()].iter().zip(run.spans) {
                let position = self.places.len();
                let bad = match (text, found) {
                    (Ok(text), Some(Ok(span))) => {
                        if span.change == Change::Compare && span.length > span.told {
                            self.root.get_or_insert_with(|| root.clone());
                            self.texts.push((position, text.to_bytes(py).unbind()));
                        }
                        let span = Span { start: span.start + slots, outcomes: span.outcomes + outcomes, ..span };
                        self.places.push(Place::Found(span));
                        continue;
                    }
                    (Ok(text), Some(Err(error))) => errors::event_error(py, &error, text.is_text()),
                    (Err(error), _) => Err(error.clone_ref(py)),
                    (Ok(_), None) => Err(PyRuntimeError::new_err("an event that was not matched")),
                };
                self.places.push(Place::Bad(errors::in_its_place(py, bad, position)?.unbind()));
            }
            match slots {
                0 if self.slots.is_empty() => self.slots = run.slots,
                _ => self.slots.extend_from_slice(&run.slots),
            }
            self.outcomes.extend_from_slice(&run.outcomes);
        }
        Ok(())
    }
}

/// Cut texts into blocks, so many that *threads* have something to do.
fn blocks(texts: &[Option<&[u8]>], threads: usize) -> Vec<Range<usize>> {
    let most = texts.len().div_ceil(threads * 4).clamp(FEWEST, MOST);
    let mut blocks = Vec::with_capacity(texts.len().div_ceil(most));
    let (mut from, mut bytes) = (0, 0);
    for (at, text) in texts.iter().enumerate() {
        bytes += text.map_or(0, <[u8]>::len);
        if at + 1 == texts.len() || at + 1 - from >= most || bytes >= MOST_BYTES {
            blocks.push(from..at + 1);
            (from, bytes) = (at + 1, 0);
        }
    }
    blocks
}

impl Core {
    /// Match *events*; see `streamer/_native.pyi`.
    pub fn batch<'py>(
        &self,
        py: Python<'py>,
        events: &Bound<'py, PyAny>,
        tenant: Option<&str>,
        collection: Option<&str>,
        threads: usize,
    ) -> PyResult<Batch> {
        guard(py, || {
            let events = events.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            let threads = threads.min(MOST_THREADS).clamp(1, events.len().div_ceil(FEWEST).max(1));
            let root = self.shared.engine.root();
            let mut batch = Batch {
                shared: self.shared.clone(),
                pin: root.pin(),
                root: None,
                tenant: tenant.map(Box::from),
                collection: collection.map(Box::from),
                places: Vec::with_capacity(events.len()),
                slots: Vec::new(),
                outcomes: Vec::new(),
                texts: Vec::new(),
            };
            let mut scratches: Vec<Box<Scratch>> = (0..threads).map(|_| self.shared.scratch()).collect();
            let mut index = 0;
            while index < events.len() {
                // Read with the interpreter held, match with it let go.
                let mut texts: Vec<PyResult<Text<'py>>> = Vec::with_capacity((ROUND * threads).min(events.len() - index));
                let mut bytes = 0;
                while index < events.len() && texts.len() < ROUND * threads && bytes < ROUND_BYTES * threads {
                    let text = Text::of(&self.shared.host, &events[index]);
                    let text = self.shared.open().unless_read(py, text);
                    bytes += text.as_ref().map_or(0, |text| text.as_bytes().len());
                    texts.push(text);
                    index += 1;
                }
                // One that cannot be read has no bytes to match, and its error stands in its place in `texts`.
                let readable: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_ref().ok()?.as_bytes())).collect();
                let blocks = blocks(&readable, threads);
                let runs = shared_out(py, blocks.len(), &mut scratches, |block, scratch, pulse| {
                    self.run(&root, &readable[blocks[block].clone()], tenant, collection, scratch, pulse)
                })?;
                for run in &runs {
                    self.shared.tell(py, &run.errors)?;
                }
                batch.extend(py, &root, &texts, runs, &blocks)?;
            }
            scratches.into_iter().for_each(|scratch| self.shared.keep(scratch));
            Ok(batch)
        })
    }

    /// Match the events of a block.
    fn run(
        &self,
        root: &Arc<Root>,
        events: &[Option<&[u8]>],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
        pulse: &mut Pulse<'_>,
    ) -> Run {
        let engine = &self.shared.engine;
        let mut run = Run::default();
        run.spans.resize_with(events.len(), || None);
        let mut group = Group::new(root);
        let mut locality = |at: usize| events[at].map_or(0, |event| engine.locality(event, tenant, collection, scratch));
        let is_mixed = events.len() > 2 && (tenant.is_none() || collection.is_none()) && {
            let first = locality(0);
            first != locality(events.len() / 2) || first != locality(events.len() - 1)
        };
        let mut order: Vec<(u64, usize)> = Vec::new();
        if is_mixed {
            order.extend((0..events.len()).map(|at| (locality(at), at)));
            order.sort_unstable();
        }
        let mut last = 0;
        for at in 0..events.len() {
            if !pulse.beat() {
                break;
            }
            let (key, at) = order.get(at).copied().unwrap_or((0, at));
            if key != last {
                group.leave();
                last = key;
            }
            let Some(event) = events[at] else { continue };
            let mut open = self.shared.open();
            let matched = engine.match_in(&mut group, event, tenant, collection, scratch);
            open.settled();
            run.settle(at, matched);
        }
        run
    }
}
