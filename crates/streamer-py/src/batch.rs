//! Several events at once, with the interpreter let go, in as many threads as are given.
//!
//! ```text
//!   events ─ read (interpreter held) ─► chunk, sorted by tenant and collection ─┬─ thread 1: a run of them ─┐
//!                                                                               └─ thread 2: the rest ──────┴─► results, in order
//! ```
//!
//! Events of one partition are matched one after the other, so that its index stays in the cache. Between two chunks pending
//! signals are looked at.

use crate::core::{Core, Found};
use crate::errors::{self, guard};
use crate::host::{Asked, Text};
use crate::judging;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::panic::resume_unwind;
use std::sync::Arc;
use streamer_core::engine::{CelError, Root, Scratch};
use streamer_core::error::EventError;

/// So many events, or bytes, are in a chunk for each thread.
const CHUNK: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;
/// A thread costs some 20 µs to start; it is not worth it for fewer events.
const FEWEST: usize = 16;

/// What a thread found: of each of its events the position, and what became of it.
#[derive(Default)]
struct Run {
    found: Vec<(usize, Result<Found, EventError>)>,
    errors: Vec<CelError>,
    /// What the host raised: an interrupt, which ends the batch.
    raised: Option<PyErr>,
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
    ) -> PyResult<Bound<'py, PyList>> {
        guard(py, || {
            let events = events.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            let threads = threads.clamp(1, events.len().div_ceil(FEWEST).max(1));
            let root = self.shared.engine.root();
            let results = PyList::empty(py);
            let mut scratches: Vec<Box<Scratch>> = (0..threads).map(|_| self.shared.scratch()).collect();
            let mut index = 0;
            while index < events.len() {
                // Read with the interpreter held, match with it let go, make objects with it held.
                let mut texts: Vec<PyResult<Text<'py>>> = Vec::with_capacity((CHUNK * threads).min(events.len()));
                let mut bytes = 0;
                while index + texts.len() < events.len() && texts.len() < CHUNK * threads && bytes < CHUNK_BYTES * threads {
                    let text = Text::of(&self.shared.host, &events[index + texts.len()]);
                    let text = self.shared.open().unless_read(py, text);
                    bytes += text.as_ref().map_or(0, |text| text.as_bytes().len());
                    texts.push(text);
                }
                let each = texts.iter().enumerate();
                let readable: Vec<(usize, &[u8])> =
                    each.filter_map(|(at, text)| Some((at, text.as_ref().ok()?.as_bytes()))).collect();
                let runs = py.detach(|| self.runs(&root, readable, tenant, collection, &mut scratches));
                py.check_signals()?;
                let mut found: Vec<Option<Result<Found, EventError>>> = Vec::new();
                found.resize_with(texts.len(), || None);
                for run in runs {
                    if let Some(error) = run.raised {
                        return Err(error);
                    }
                    self.shared.tell(py, &run.errors)?;
                    run.found.into_iter().for_each(|(at, one)| found[at] = Some(one));
                }
                for (text, found) in texts.iter().zip(found) {
                    let result = match (text, found) {
                        (Ok(text), Some(Ok(found))) => {
                            let hits = self.hits(py, &root, &Asked { text, tenant, collection }, found);
                            Bound::new(py, hits).map(Bound::into_any)
                        }
                        (Ok(text), Some(Err(error))) => errors::event_error(py, &error, text.is_text()),
                        (Err(error), _) => Err(error.clone_ref(py)),
                        (Ok(_), None) => Err(PyRuntimeError::new_err("an event that was not matched")),
                    };
                    results.append(errors::in_its_place(py, result, index)?)?;
                    index += 1;
                }
            }
            scratches.into_iter().for_each(|scratch| self.shared.keep(scratch));
            Ok(results)
        })
    }

    /// Match a chunk in as many threads as there are scratches.
    fn runs(
        &self,
        root: &Arc<Root>,
        mut events: Vec<(usize, &[u8])>,
        tenant: Option<&str>,
        collection: Option<&str>,
        scratches: &mut [Box<Scratch>],
    ) -> Vec<Run> {
        let engine = &self.shared.engine;
        let Some((first, others)) = scratches.split_first_mut() else { return Vec::new() };
        if tenant.is_none() || collection.is_none() {
            events.sort_by_cached_key(|(_, event)| engine.locality(event, tenant, collection, first));
        }
        let run = |events: &[(usize, &[u8])], scratch: &mut Scratch| {
            let mut run = Run::default();
            for (at, event) in events {
                let mut open = self.shared.open();
                let matched = engine.match_event_on(root, event, tenant, collection, scratch);
                open.settled();
                if let Ok(matched) = &matched {
                    run.errors.extend_from_slice(matched.errors);
                }
                run.found.push((*at, matched.map(|matched| Found::of(&matched))));
                run.raised = judging::raised();
                if run.raised.is_some() {
                    break;
                }
            }
            run
        };
        let size = events.len().div_ceil(others.len() + 1).max(FEWEST);
        let mut parts = events.chunks(size);
        let own = parts.next().unwrap_or_default();
        std::thread::scope(|scope| {
            let others: Vec<_> = parts.zip(others).map(|(part, scratch)| scope.spawn(move || run(part, scratch))).collect();
            let mut runs = vec![run(own, first)];
            runs.extend(others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic))));
            runs
        })
    }
}
