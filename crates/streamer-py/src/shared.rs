//! An engine with its host, shared by all objects that match.

use crate::errors;
use crate::gil;
use crate::host::{self, Request, Text};
use crate::interrupts;
use crate::open::Open;
use crate::reader::RecordReader;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use streamer_core::engine::{CelError, Change, Engine, Event, Matched, Outcome, Pin, RecordRef, Scratch, Version};
use streamer_core::error::{EventError, Ignored};

/// An event from this size on is matched with the GIL released: that costs about 80 ns, and this takes microseconds.
const LARGE_EVENT: usize = 4096;
/// An event is also matched with the GIL released if the last event made the index visit this many conjunctions.
const MUCH_WORK: u64 = 256;
/// Scratches that are kept: one for each thread that matches at the same time.
const MOST_POOLED: usize = 32;

/// The engine and its host, shared with all hits.
pub struct Shared {
    pub engine: Engine,
    pub host: Py<PyAny>,
    /// The reader of the messages of a stream, which the host shares, if events are such messages.
    stream: Option<Py<RecordReader>>,
    /// The most bytes of an event.
    most_bytes: usize,
    /// Only used under the GIL, so it is free when the process forks.
    #[allow(clippy::vec_box, reason = "each event moves one out and back: a pointer, not the scratch")]
    scratches: Mutex<Vec<Box<Scratch>>>,
    is_costly: AtomicBool,
    /// Whether the host has received the first event in which the layout found only missing parts.
    has_bare: AtomicBool,
}

/// The matches of one event, outside of the scratch.
#[derive(Default)]
pub struct EventMatches {
    pub slots: Box<[u32]>,
    /// Empty, or aligned.
    pub outcomes: Box<[Option<Outcome>]>,
    pub change: Change,
    pub ignored: Option<Ignored>,
    pub pin: Pin,
}

impl EventMatches {
    /// Whether the event has no matches and was not ignored.
    pub fn is_nothing(&self) -> bool {
        self.slots.is_empty() && self.ignored.is_none()
    }

    /// Whether the transition of any of them is found in the event's text.
    pub fn needs_text(&self) -> bool {
        let is_plain = self.outcomes.is_empty() || self.outcomes.contains(&None);
        self.change == Change::Compare && !self.slots.is_empty() && is_plain
    }

    pub fn of(version: &Version, matched: &Matched<'_>) -> EventMatches {
        let others = matched.others.iter();
        let outcomes = match matched.others {
            [] => Box::default(),
            _ => matched.certain.iter().map(|_| None).chain(others.clone().map(|(_, outcome)| Some(*outcome))).collect(),
        };
        EventMatches {
            slots: matched.certain.iter().copied().chain(others.map(|(slot, _)| *slot)).collect(),
            outcomes,
            change: matched.change,
            ignored: matched.ignored,
            // Two writes to a line that all threads share, which most events can do without.
            pin: if matched.certain.is_empty() && matched.others.is_empty() { Pin::default() } else { version.pin() },
        }
    }
}

/// The argument for the name of a tenant or a collection.
type OptionalName<'n, 'py> = Option<&'n Bound<'py, PyAny>>;

impl Shared {
    pub fn new(engine: Engine, host: Py<PyAny>, stream: Option<Py<RecordReader>>) -> Shared {
        let most_bytes = engine.options().limits.max_event_bytes;
        let (is_costly, has_bare) = (AtomicBool::new(false), AtomicBool::new(false));
        Shared { engine, host, stream, most_bytes, scratches: Mutex::default(), is_costly, has_bare }
    }

    /// The text of an event.
    pub fn text<'py>(&self, event: &Bound<'py, PyAny>) -> PyResult<Text<'py>> {
        let text = Text::of(&self.host, self.most_bytes, event)?;
        let Some(stream) = &self.stream else { return Ok(text) };
        if matches!(text, Text::Plain(_)) {
            // The host refuses a message that is no text.
            self.host.bind(event.py()).call_method1(intern!(event.py(), "encode"), (event,))?;
        }
        let record = stream.get().record(text.as_bytes());
        record.map(|record| Text::Plain(record.into_bytes())).map_err(|error| raised(event.py(), &error, text.is_text()))
    }

    /// Whether an event needs those before it.
    pub fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The text of an event that is given as bytes.
    pub fn text_of<'e>(&self, event: &'e [u8]) -> Result<Cow<'e, [u8]>, EventError> {
        match &self.stream {
            None => Ok(Cow::Borrowed(event)),
            Some(stream) => stream.get().record(event).map(|record| Cow::Owned(record.into_bytes())),
        }
    }

    /// The names that a caller passes with an event.
    pub fn names<'n>(
        &self,
        tenant: OptionalName<'n, '_>,
        collection: OptionalName<'n, '_>,
    ) -> PyResult<(Option<&'n str>, Option<&'n str>)> {
        let text = |name: OptionalName<'n, '_>| name.map(|name| name.cast::<PyString>().ok()?.to_str().ok());
        match (text(tenant), text(collection)) {
            (Some(None), _) | (_, Some(None)) => {
                let py = tenant.or(collection).expect("a name that is none").py();
                self.host.bind(py).call_method1(intern!(py, "check_names"), (tenant, collection))?;
                Err(PyRuntimeError::new_err("a name that the host takes for one"))
            }
            (tenant, collection) => Ok((tenant.flatten(), collection.flatten())),
        }
    }

    /// The record of a slot that a pinned match gave.
    pub fn record(&self, slot: u32) -> PyResult<RecordRef> {
        self.engine.record(slot).ok_or_else(no_record)
    }

    /// The ids of slots that a pinned match gave.
    pub fn ids<'py>(&self, py: Python<'py>, slots: &[u32]) -> PyResult<Bound<'py, PyList>> {
        let mut ids = Vec::with_capacity(slots.len());
        self.engine.records(slots, |records| {
            // Each pass waits for memory that the pass before has requested, but for all records at once.
            records.iter().flatten().for_each(|record| record.prefetch_host());
            records.iter().flatten().for_each(|record| host::prefetch_host_data(record));
            records.iter().flatten().for_each(|record| host::prefetch_id(record));
            for record in records {
                ids.push(host::id_of(py, record.ok_or_else(no_record)?));
            }
            Ok::<(), PyErr>(())
        })?;
        PyList::new(py, ids)
    }

    pub fn scratch(&self) -> Box<Scratch> {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(|| Box::new(self.engine.scratch()))
    }

    /// Put a scratch back; one in which a panic happened is not.
    pub fn keep(&self, scratch: Box<Scratch>) {
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        if scratches.len() < MOST_POOLED {
            scratches.push(scratch);
        }
    }

    /// Begin an event.
    pub fn open(&self) -> Open<'_> {
        Open::new(self.engine.telemetry())
    }

    /// Match one event on *version*, and *use_* the result while it lies in the scratch.
    pub fn find_event<T>(
        &self,
        py: Python<'_>,
        version: &Arc<Version>,
        request: &Request<'_, '_>,
        open: &mut Open<'_>,
        use_: impl FnOnce(&Matched<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let event = Event::new(request.text.as_bytes(), request.tenant, request.collection);
        let (is_large, is_text) = (event.text.len() >= LARGE_EVENT, request.text.is_text());
        self.find(py, is_large, is_text, open, |scratch| self.engine.match_event_on(version, event, scratch), use_)
    }

    /// Match one event as *find* does, with the GIL released if it *is_large*, and *use_* the result.
    pub fn find<T>(
        &self,
        py: Python<'_>,
        is_large: bool,
        is_text: bool,
        open: &mut Open<'_>,
        find: impl for<'s> FnOnce(&'s mut Scratch) -> Result<Matched<'s>, EventError> + Send,
        use_: impl FnOnce(&Matched<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut scratch = self.scratch();
        let outcome = if is_large || self.is_costly.load(Ordering::Relaxed) {
            let scratch = &mut *scratch;
            gil::released(py, || find(scratch))
        } else {
            find(&mut scratch)
        };
        let result = match outcome {
            Ok(matched) => {
                open.settled();
                let is_costly = matched.work >= MUCH_WORK;
                if is_costly != self.is_costly.load(Ordering::Relaxed) {
                    self.is_costly.store(is_costly, Ordering::Relaxed);
                }
                match interrupts::raised() {
                    Some(error) => Err(error),
                    None => self.tell(py, matched.errors).and_then(|()| use_(&matched)),
                }
            }
            Err(error) => {
                open.settled();
                Err(interrupts::raised().unwrap_or_else(|| raised(py, &error, is_text)))
            }
        };
        self.keep(scratch);
        result
    }

    /// Pass errors of CEL to the host, and the first event in which the layout found only missing parts.
    pub fn tell(&self, py: Python<'_>, errors: &[CelError]) -> PyResult<()> {
        if let Some(text) = self.engine.first_bare()
            && !self.has_bare.load(Ordering::Relaxed)
            && !self.has_bare.swap(true, Ordering::Relaxed)
        {
            self.host.bind(py).call_method1("bare", (PyBytes::new(py, text),))?;
        }
        for error in errors {
            let record = error.slot.map(|slot| self.record(slot)).transpose()?;
            let id = record.map(|record| host::id_of(py, &record));
            let arguments = (id, error.reason.as_str(), &error.detail, error.count);
            self.host.bind(py).call_method1("cel_error", arguments)?;
        }
        Ok(())
    }
}

fn no_record() -> PyErr {
    PyRuntimeError::new_err("a slot without a subscription")
}

/// The event's error, ready to be raised.
fn raised(py: Python<'_>, error: &EventError, is_text: bool) -> PyErr {
    errors::event_error(py, error, is_text).map_or_else(|other| other, PyErr::from_value)
}
