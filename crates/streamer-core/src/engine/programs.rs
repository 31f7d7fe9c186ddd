//! The CEL parts of an event's candidates, and what went wrong in them.
//!
//! The event's documents are parsed when the first program reads them, and shared by all. Errors are counted by reason and by
//! subscription; of one subscription at most one a [`MINUTE`] is told in words, for the host to log: a wrong expression fails for
//! every event.
//!
//! A program that is *portable* is the host's: it is asked for the verdict, at the place where a native one is evaluated, so that sides,
//! holes and transitions are the same for both.
//!
//! Cost: nothing for an event without candidates that have CEL. An error costs a look at the clock and an addition to the
//! subscription's [`Heard`].
//!
//! Rejected: telling the host each error, since that would need the GIL for about every event of a wrong expression; a map
//! of the errors of each subscription, since all threads would take its lock for each of them.

use crate::automaton::{places, regexps};
use crate::cel::{self, Arena, Document, Executable, Reason, Verdict};
use crate::engine::engine::Inner;
use crate::engine::registry::Record;
use crate::engine::segment::Output;
use crate::engine::telemetry::Tally;
use crate::error::{EventError, Unread};
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
    /// Why, in words.
    pub detail: String,
    /// How many errors of it there were, this one included.
    pub count: u64,
}

/// How many errors a subscription had, in the lower bits, and when one of them was told last, in seconds of the engine's life.
#[derive(Debug, Default)]
pub(super) struct Heard(AtomicU64);

/// 68 billion errors; the seconds above them are 8 years.
const COUNT_BITS: u32 = 36;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Heard {
    /// Count so many errors; if one is to be told at *now*, how many there are. *now* is not 0.
    fn add(&self, errors: u64, now: u64) -> Option<u64> {
        let before = self.0.fetch_add(errors, Ordering::Relaxed);
        let told = before >> COUNT_BITS;
        if told != 0 && now < told + MINUTE {
            return None;
        }
        // Of the threads that see that it is time, one tells.
        let tell = |heard: u64| (heard >> COUNT_BITS == told).then_some(now << COUNT_BITS | heard & COUNT);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, tell).ok().map(|_| (before + errors) & COUNT)
    }

    /// How many errors there were.
    pub fn errors(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & COUNT
    }
}

/// Which subscriptions have errors, so many at most: those of which it is worth asking how many.
///
/// ```text
///   slot ── hash ──► a group of [`WAYS`] entries: slot and the reason that was told last
/// ```
///
/// Where a group is full, the subscription with the fewest errors gives way. One that goes on failing is told of once a minute,
/// and is back then. Without a lock, since the process may be forked at any moment: of two that are told at once one may be missing
/// until then.
#[derive(Debug)]
pub(super) struct Failing([AtomicU64; GROUPS * WAYS]);

const GROUPS: usize = 128;
const WAYS: usize = 8;

impl Default for Failing {
    fn default() -> Failing {
        Failing([const { AtomicU64::new(0) }; GROUPS * WAYS])
    }
}

impl Failing {
    #[cold]
    fn tell(&self, slot: u32, reason: Reason, errors: impl Fn(u32) -> u64) {
        let group = (slot.wrapping_mul(0x9E37_79B9) >> (32 - GROUPS.ilog2())) as usize;
        let rank = |held: Option<u32>| match held {
            Some(held) if held == slot => (0, 0),
            None => (1, 0),
            Some(held) => (2, errors(held)),
        };
        let ways = &self.0[group * WAYS..][..WAYS];
        let place = ways.iter().min_by_key(|way| rank(Failing::entry(way).map(|(held, _)| held)));
        if let Some(place) = place {
            place.store(u64::from(slot) << 8 | (reason as u64 + 1), Ordering::Relaxed);
        }
    }

    fn entry(way: &AtomicU64) -> Option<(u32, Reason)> {
        let entry = way.load(Ordering::Relaxed);
        let reason = (entry & 0xFF).checked_sub(1)?;
        Some(((entry >> 8) as u32, *Reason::ALL.get(reason as usize)?))
    }

    /// The slots, and the reasons.
    pub fn read(&self) -> impl Iterator<Item = (u32, Reason)> {
        self.0.iter().filter_map(Failing::entry)
    }
}

/// A subscription whose evaluations ended in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingSubscription {
    /// Its id.
    pub id: String,
    /// How many.
    pub errors: u64,
    /// Why, when it was told last.
    pub reason: Reason,
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
    /// The tenant that the caller says.
    pub tenant: Option<&'e str>,
    /// The collection that the caller says.
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

    /// Count what went wrong, now that the event is judged, and how long programs ran.
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
                    let flat = flattener.flatten(&inner.no_paths, self.event, Validation::Full, &self.given, limits);
                    let flat = flat.map_err(Unread::into_error)?;
                    Document::new(&flat, self.arena, limits)?
                }
                _ => Document::new(self.flat, self.arena, limits)?,
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
            let reason = Reason::PatternBudget;
            if let Some(count) = self.failed(slot, record, reason) {
                let detail = "the choice of array elements for its pattern takes more than its budget".to_owned();
                self.errors.push(CelError { slot: Some(slot), reason, detail, count });
            }
        }
        Verdict::Error
    }

    /// So many searches of regexps, or patterns of topics, were refused, the last of them as *detail* says.
    #[cold]
    fn refused(&mut self, reason: Reason, refused: u32, detail: String) {
        self.inner.cel_errors[reason as usize].fetch_add(u64::from(refused), Ordering::Relaxed);
        if let Some(count) = self.inner.heard[reason as usize].add(u64::from(refused), self.now()) {
            self.errors.push(CelError { slot: None, reason, detail, count });
        }
    }

    /// Count an error of a subscription; if it is to be told, how many there are.
    fn failed(&self, slot: u32, record: &Record, reason: Reason) -> Option<u64> {
        self.inner.cel_errors[reason as usize].fetch_add(1, Ordering::Relaxed);
        let count = record.heard.add(1, self.now())?;
        self.inner
            .failing
            .tell(slot, reason, |slot| self.inner.records.made(slot).as_ref().map_or(0, |record| record.heard.errors()));
        Some(count)
    }

    /// Seconds of the engine's life, from 1 on.
    fn now(&self) -> u64 {
        self.inner.started.elapsed().as_secs() + 1
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
        if let Some(reason) = outcome.reason
            && let Some(count) = self.failed(slot, record, reason)
        {
            let (_, detail) = program.evaluate_in_words(&document, budget, self.scratch)?;
            self.errors.push(CelError { slot: Some(slot), reason, detail, count });
        }
        Ok(outcome.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_counted_and_one_a_minute_is_told_by_one_of_the_threads() {
        let heard = Heard::default();
        let told = AtomicU64::new(0);
        for minute in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for second in 0..1000 {
                            let now = 1 + MINUTE * minute + second % MINUTE;
                            told.fetch_add(u64::from(heard.add(1, now).is_some()), Ordering::Relaxed);
                        }
                    });
                }
            });
        }
        assert_eq!(heard.errors(), 12_000);
        assert_eq!(told.into_inner(), 3);
        let later = 10 * MINUTE;
        assert_eq!((heard.add(5, later), heard.add(1, later + MINUTE - 1)), (Some(12_005), None));
        assert_eq!(heard.add(1, later + MINUTE), Some(12_007));
    }

    #[test]
    fn what_fails_most_stays_however_many_others_fail() {
        let failing = Failing::default();
        let errors = |slot: u32| if slot % 1000 == 7 { 1_000_000 } else { 1 };
        for slot in 0..100_000 {
            failing.tell(slot, if slot % 1000 == 7 { Reason::Overflow } else { Reason::NotBool }, errors);
        }
        let held: Vec<_> = failing.read().collect();
        assert_eq!(held.len(), GROUPS * WAYS);
        let worst = held.iter().filter(|(slot, reason)| slot % 1000 == 7 && *reason == Reason::Overflow).count();
        assert_eq!(worst, 100);
        failing.tell(7, Reason::Budget, errors);
        assert_eq!(failing.read().filter(|(slot, _)| *slot == 7).collect::<Vec<_>>(), [(7, Reason::Budget)]);
    }
}
