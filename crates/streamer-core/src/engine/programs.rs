//! The CEL parts of an event's candidates, and what went wrong in them.
//!
//! The event's documents are parsed when the first program reads them, and shared by all. Errors are counted by reason; of
//! one subscription at most one a [`MINUTE`] is told in words, for the host to log: a wrong expression fails for every event.
//!
//! A program that is *portable* is the host's: it is asked for the verdict, at the place where a native one is evaluated, so that sides,
//! holes and transitions are the same for both.
//!
//! Cost: nothing for an event without candidates that have CEL. An error costs a look at the clock.
//!
//! Rejected: telling the host each error, since that would need the interpreter for about every event of a wrong expression.

use crate::automaton::{places, regexps};
use crate::cel::{self, Arena, Document, Executable, Reason, Verdict};
use crate::engine::engine::Inner;
use crate::engine::registry::Record;
use crate::engine::segment::Output;
use crate::engine::telemetry::Tally;
use crate::error::EventError;
use crate::flatten::{Flat, Flattener, Given, Validation};
use crate::watch::spend;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Seconds between two errors of one subscription that are told.
const MINUTE: u64 = 60;

/// An error of a subscription's program that is to be told.
#[derive(Clone, Debug)]
pub struct CelError {
    /// The subscription's slot; none for a regexp and for a topic, which are looked for once for all subscriptions that have them.
    pub slot: Option<u32>,
    /// Why.
    pub reason: Reason,
    /// The same in words.
    pub detail: String,
    /// How many of its errors were not told since the last that was.
    pub silenced: u32,
}

/// Forget what this thread refused, and what its event has spent: it is no part of what comes next.
pub(super) fn forget_refused() {
    _ = regexps::take_refused();
    _ = places::take_refused();
}

/// What one thread reuses for CEL.
#[derive(Debug, Default)]
pub struct CelScratch {
    arena: Arena,
    flattener: Flattener,
    scratch: cel::Scratch,
}

/// An event for a [`Judge`].
#[derive(Clone, Copy, Debug)]
pub struct Judged<'e> {
    /// Its text.
    pub text: &'e [u8],
    /// What the caller says.
    pub tenant: Option<&'e str>,
    /// Likewise.
    pub collection: Option<&'e str>,
}

/// Evaluates the programs that are not the core's to evaluate. Called by the threads that match, several at once.
pub trait Judge: Send + Sync {
    /// What the program of *record* says of one side of an event; it counts and tells errors by itself. None where it was
    /// interrupted: nobody is told what the event matched, and it counts as one that the engine failed at.
    ///
    /// *kept* is empty at the first program of an event, and is handed on to the next ones.
    fn verdict(&self, record: &Record, event: &Judged<'_>, side: Side, kept: &mut Option<Box<dyn Any>>) -> Option<Verdict>;
}

/// Which document counts as `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That of the event as it is.
    New,
    /// That before the change.
    Old,
}

/// The programs of one event. See the head of this file.
pub(super) struct Programs<'e> {
    inner: &'e Inner,
    event: &'e [u8],
    flat: &'e Flat<'e>,
    given: Given<'e>,
    arena: &'e Arena,
    flattener: Option<&'e mut Flattener>,
    scratch: &'e mut cel::Scratch,
    errors: &'e mut Vec<CelError>,
    documents: Option<[Document<'e>; 2]>,
    /// What the judge keeps for the event.
    kept: Option<Box<dyn Any>>,
    /// Whether the judge was interrupted.
    is_cut_off: bool,
    /// Whether it is measured how long programs run, and how long they ran.
    is_timed: bool,
    took: Option<Duration>,
}

impl<'e> Programs<'e> {
    pub fn new(
        inner: &'e Inner,
        event: &'e [u8],
        flat: &'e Flat<'e>,
        given: Given<'e>,
        scratch: &'e mut CelScratch,
        errors: &'e mut Vec<CelError>,
        is_timed: bool,
    ) -> Programs<'e> {
        let CelScratch { arena, flattener, scratch } = scratch;
        arena.reset();
        let (flattener, documents, kept, is_cut_off, took) = (Some(flattener), None, None, false, None);
        Programs { inner, event, flat, given, arena, flattener, scratch, errors, documents, kept, is_cut_off, is_timed, took }
    }

    /// Whether any of them was interrupted.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Count and tell what went wrong besides.
    pub fn count(&mut self, output: &mut Output) {
        for slot in output.spent.drain(..) {
            self.spent(slot);
        }
        if let Some((refused, last)) = regexps::take_refused() {
            self.refused(Reason::RegexpBudget, refused, last);
        }
        if let Some((refused, last)) = places::take_refused() {
            self.refused(Reason::TopicBudget, refused, last);
        }
    }

    /// The same, now that the event is judged, and how long programs ran.
    pub fn end(mut self, output: &mut Output, tally: &Tally) {
        self.count(output);
        output.is_cut_off = self.is_cut_off;
        if let Some(took) = self.took {
            tally.cel(took);
        }
    }

    /// The event and its old side, as programs see them.
    ///
    /// # Errors
    ///
    /// The event is bad where lazy validation has not looked.
    fn document(&mut self, side: Side) -> Result<Document<'e>, EventError> {
        if self.documents.is_none() {
            let (inner, limits) = (self.inner, &self.inner.options.limits);
            let document = match self.flattener.take() {
                Some(flattener) if inner.options.validation == Validation::Lazy => {
                    let flat = flattener.flatten(&inner.no_paths, self.event, Validation::Full, &self.given, limits)?;
                    Document::new(&flat, self.event, self.arena, limits)?
                }
                _ => Document::new(self.flat, self.event, self.arena, limits)?,
            };
            self.documents = Some([document, document.as_before()]);
        }
        Ok(self.documents.expect("made above")[usize::from(side == Side::Old)])
    }

    /// Check the event in full, if that was not done.
    ///
    /// # Errors
    ///
    /// Those that lazy validation has passed over.
    pub fn check(&mut self) -> Result<(), EventError> {
        self.document(Side::New).map(|_| ())
    }

    /// The pattern of the subscription in *slot* takes more than its budget: an error.
    pub fn spent(&mut self, slot: u32) -> Verdict {
        if let Some(record) = self.inner.records.get(slot).as_ref() {
            self.inner.cel_errors[Reason::PatternBudget as usize].fetch_add(1, Ordering::Relaxed);
            if let Some(silenced) = self.is_due(&record.heard) {
                let detail = "the choice of array elements for its pattern takes more than its budget".to_owned();
                self.errors.push(CelError { slot: Some(slot), reason: Reason::PatternBudget, detail, silenced });
            }
        }
        Verdict::Error
    }

    /// So many searches of regexps, or patterns of topics, were refused, the last of them as *detail* says.
    #[cold]
    fn refused(&mut self, reason: Reason, refused: u32, detail: String) {
        self.inner.cel_errors[reason as usize].fetch_add(u64::from(refused), Ordering::Relaxed);
        if let Some(silenced) = self.is_due(&self.inner.heard[reason as usize]) {
            self.errors.push(CelError { slot: None, reason, detail, silenced });
        }
    }

    /// Whether an error of what was *heard* of then is to be told; if so, how many were not since the last that was.
    fn is_due(&self, heard_at: &AtomicU64) -> Option<u32> {
        // Two threads at once may both tell; that is no harm.
        let now = self.inner.started.elapsed().as_secs() + 1;
        let heard = heard_at.load(Ordering::Relaxed);
        let (told, silenced) = (heard >> 32, heard as u32);
        let is_due = told == 0 || now >= told + MINUTE;
        let next = if is_due { now << 32 } else { told << 32 | u64::from(silenced.saturating_add(1)) };
        heard_at.store(next, Ordering::Relaxed);
        is_due.then_some(silenced)
    }

    /// Evaluate the CEL part of the subscription in *slot*; true where it has none.
    ///
    /// # Errors
    ///
    /// The event is bad where lazy validation has not looked.
    pub fn verdict(&mut self, slot: u32, side: Side) -> Result<Verdict, EventError> {
        let record = self.inner.records.get(slot);
        match record.as_ref().and_then(|record| Some((record, record.program.as_ref()?))) {
            Some((record, program)) => {
                let since = self.is_timed.then(Instant::now);
                let verdict = self.evaluate(slot, record, program, side);
                if let Some(since) = since {
                    self.took = Some(self.took.unwrap_or_default() + since.elapsed());
                }
                verdict
            }
            None if record.as_ref().is_some_and(|record| record.portable) => self.judged(slot, side),
            None => Ok(Verdict::True),
        }
    }

    /// Ask the judge.
    #[cold]
    fn judged(&mut self, slot: u32, side: Side) -> Result<Verdict, EventError> {
        // It reads the event in full.
        self.check()?;
        let record = self.inner.records.get(slot);
        let (Some(record), Some(judge)) = (record.as_ref(), &self.inner.options.judge) else { return Ok(Verdict::Error) };
        let since = self.is_timed.then(Instant::now);
        let Given { tenant, collection, .. } = self.given;
        let verdict = judge.verdict(record, &Judged { text: self.event, tenant, collection }, side, &mut self.kept);
        if let Some(since) = since {
            self.took = Some(self.took.unwrap_or_default() + since.elapsed());
        }
        self.is_cut_off |= verdict.is_none();
        Ok(verdict.unwrap_or(Verdict::Error))
    }

    fn evaluate(&mut self, slot: u32, record: &Record, program: &Executable, side: Side) -> Result<Verdict, EventError> {
        let document = self.document(side)?;
        let budget = self.inner.cel_budget.load(Ordering::Relaxed);
        let outcome = program.evaluate(&document, budget, self.scratch)?;
        spend(outcome.cost as usize + 1);
        if let Some(reason) = outcome.reason {
            self.inner.cel_errors[reason as usize].fetch_add(1, Ordering::Relaxed);
            if let Some(silenced) = self.is_due(&record.heard) {
                let (_, detail) = program.evaluate_in_words(&document, budget, self.scratch)?;
                self.errors.push(CelError { slot: Some(slot), reason, detail, silenced });
            }
        }
        Ok(outcome.verdict)
    }
}
