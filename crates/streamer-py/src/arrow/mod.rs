//! Events from Arrow buffers and results into Arrow buffers, without a Python object for each row or match.
//!
//! ```text
//!   chunk   validity │ offsets │ data         lent by pyarrow, read in place
//!              └─► blocks of rows ─► threads ─► a Part each: columns of the matches, the events, the rejected and the ignored
//!                                                  └─► bytes of validity, offsets and data, for pyarrow to wrap
//! ```
//!
//! Invariant: a row is read through offsets that were checked against the data when the call began, and is looked up with
//! bounds checked all the same. Offsets that decrease or lead beyond the data are a ValueError.
//!
//! The one `unsafe` here is `LentBuffer::bytes` of `rows.rs`: a buffer of Arrow is read while the GIL is released, which is
//! sound because Arrow's buffers are immutable once they are shared.
//!
//! The subscriptions that matched in a block of rows are named at its end, so that the cache misses of many overlap.
//!
//! Cost: the results are written twice, once by the thread that finds them and once, all threads' together, into the
//! bytes that pyarrow wraps. Rejected: the C data interface (a table of function pointers and a release callback, all
//! of it unsafe, for the same data as the buffer protocol); copying the rows out (a tenth of the time to match them).

pub mod columns;
mod rows;

use crate::errors::guard;
use crate::named;
use crate::parallel::{MOST_THREADS, Pulse, parallel};
use crate::shared::Shared;
use columns::{Part, events, ignored, matches, rejected};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rows::Rows;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streamer_core::engine::{Event, Group, Identity, Located, Matched, PREFETCHED, Scratch, Version};
use streamer_core::error::Ignored;

/// How rows are matched.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub tenant: Option<&'a str>,
    pub collection: Option<&'a str>,
    pub threads: usize,
    /// A column of more bytes has wide offsets.
    pub text_limit: usize,
    /// The event that reaches this number of matches is the last one; only one thread matches then.
    pub max_matches: Option<usize>,
    /// Whether to match; otherwise events are only read and named.
    pub is_matching: bool,
}

impl Shared {
    /// Match the rows of *chunks*; see `streamer/_native.pyi`.
    pub fn columns<'py>(&self, py: Python<'py>, chunks: &Bound<'py, PyAny>, ask: &Ask<'_>) -> PyResult<Bound<'py, PyAny>> {
        let Ask { tenant, collection, threads, text_limit: limit, max_matches, is_matching } = *ask;
        guard(py, || {
            let rows = Rows::of(py, chunks)?;
            // It pins every slot until the last text is copied.
            let version = self.engine.version();
            let threads = match max_matches {
                None if !self.is_stream() => threads.min(MOST_THREADS).clamp(1, rows.blocks.len().max(1)),
                // Several would match events, and count them, that come after the last one. And a stream has an order.
                _ => 1,
            };
            let budget = max_matches.map(AtomicUsize::new);
            let mut scratches: Vec<Box<Scratch>> = (0..threads).map(|_| self.scratch()).collect();
            let parts = parallel(py, rows.blocks.len(), &mut scratches, |block, scratch, pulse| match is_matching {
                true => self.match_rows(&version, rows.block(block), tenant, collection, budget.as_ref(), scratch, pulse),
                false => self.identify_rows(rows.block(block), tenant, collection, scratch, pulse),
            })?;
            scratches.into_iter().for_each(|scratch| self.keep(scratch));
            let is_whole = parts.iter().map(|part| part.events.types.len()).sum::<usize>() == rows.len();
            if !is_whole && budget.is_none_or(|budget| budget.into_inner() > 0) {
                return Err(PyRuntimeError::new_err("a row without a result"));
            }
            for part in &parts {
                self.tell(py, &part.errors)?;
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

    /// Match rows, up to *budget* matches if there is a limit; then only one thread counts them.
    #[allow(clippy::too_many_arguments, reason = "a block of rows, and how it is matched")]
    fn match_rows<'e>(
        &'e self,
        version: &'e Arc<Version>,
        rows: impl Iterator<Item = (usize, Option<&'e [u8]>)>,
        tenant: Option<&'e str>,
        collection: Option<&'e str>,
        budget: Option<&AtomicUsize>,
        scratch: &mut Scratch,
        pulse: &mut Pulse<'_>,
    ) -> Part {
        let mut part = Part::default();
        // In the order of the rows, so that the results are.
        let rows: Vec<_> = rows.collect();
        let is_mixed = self.is_mixed(rows.iter().map(|(_, event)| *event), tenant, collection, scratch);
        let mut located: Vec<Option<Located<'e>>> = Vec::new();
        let mut group = Group::new(version);
        for (at, (row, event)) in rows.iter().copied().enumerate() {
            if is_mixed && at.is_multiple_of(PREFETCHED) {
                // Prefetch the data of the next rows together; otherwise each row would wait for its own.
                located.clear();
                let next = rows[at..].iter().take(PREFETCHED);
                let mut locate = |event: &'e [u8]| self.engine.locate(Event::new(event, tenant, collection), scratch);
                located.extend(next.map(|(_, event)| event.map(&mut locate)));
                self.engine.prefetch(version, located.iter().copied().flatten());
            }
            if let Some(Some(located)) = located.get(at % PREFETCHED) {
                group.expect(*located);
            }
            if budget.is_some_and(|budget| budget.load(Ordering::Relaxed) == 0) || !pulse.beat() {
                break;
            }
            let Part { matches, events, rejected, passed, errors, .. } = &mut part;
            let mut open = self.open();
            let Some(event) = event else {
                open.settled();
                self.engine.telemetry().ignore(Ignored::Null);
                events.push(None);
                passed.push(row, Ignored::Null);
                continue;
            };
            let tell = |identity: Identity<'_>| events.push(Some(identity));
            let text = self.text_of(event).inspect_err(|error| self.engine.telemetry().reject(Some(error.code)));
            let matched = match &text {
                Ok(text) => self.engine.match_in_full(&mut group, Event::new(text, tenant, collection), scratch, tell),
                Err(error) => Err(error.clone()),
            };
            open.settled();
            match matched {
                Ok((Matched { ignored: Some(reason), .. }, _)) => {
                    events.push(None);
                    passed.push(row, reason);
                }
                Ok((matched, stays)) => {
                    matches.extend(row, &matched, stays);
                    if let Some(budget) = budget {
                        let count = matched.certain.len() + matched.others.len();
                        budget.store(budget.load(Ordering::Relaxed).saturating_sub(count), Ordering::Relaxed);
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
        part.matches.name(&self.engine);
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
                Some(event) => self.engine.identify(Event::new(event, tenant, collection), scratch, tell),
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
