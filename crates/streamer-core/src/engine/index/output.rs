//! The results of an event: gathered segment by segment, then returned.

use crate::engine::verify::failures::CelError;
use crate::engine::verify::transition::{Change, Outcome, Transition};
use crate::error::Ignored;

/// The results of an event.
#[derive(Debug, Default)]
pub struct Output {
    /// Slots of subscriptions that match.
    pub certain: Vec<u32>,
    /// Slots that match in another way than the event's change.
    pub others: Vec<(u32, Outcome)>,
    /// Slots that match if their CEL part is true.
    pub candidates_for_cel: Vec<u32>,
    /// Slots that may match an event with unknown values.
    pub unknown: Vec<u32>,
    /// Slots of those whose pattern took more than its budget.
    pub spent: Vec<u32>,
    /// Errors of CEL to report.
    pub errors: Vec<CelError>,
    /// How many conjunctions of indexes were verified or returned.
    pub candidates: u64,
    /// How many conjunctions of plain lists were verified or returned.
    pub listed: u64,
    /// How many subscriptions were found by an index and then evaluated.
    pub evaluated: u64,
    /// How many of `certain` were found in the event as it is.
    pub counted: usize,
    /// Whether a program was interrupted, so that this result is discarded.
    pub is_cut_off: bool,
}

impl Output {
    /// Begin with another event.
    pub fn clear(&mut self) {
        self.certain.clear();
        self.others.clear();
        self.candidates_for_cel.clear();
        self.unknown.clear();
        self.spent.clear();
        self.errors.clear();
        (self.candidates, self.listed, self.evaluated, self.counted, self.is_cut_off) = (0, 0, 0, 0, false);
    }

    /// Add the counts and the errors of another event.
    pub fn add_counts(&mut self, other: &mut Output) {
        self.errors.append(&mut other.errors);
        self.candidates += other.candidates;
        self.listed += other.listed;
        self.evaluated += other.evaluated;
        self.is_cut_off |= other.is_cut_off;
    }
}

/// The matches of an event. Slots stay valid as long as its version, or a [`Pin`] of it, lives.
#[derive(Debug)]
pub struct Matched<'s> {
    /// Slots of subscriptions that match with the transition of [`Matched::change`].
    pub certain: &'s [u32],
    /// Slots that match in another way.
    pub others: &'s [(u32, Outcome)],
    /// Errors of CEL to report.
    pub errors: &'s [CelError],
    /// The transition of [`Matched::certain`].
    pub change: Change,
    /// How many conjunctions were looked at.
    pub work: u64,
    /// Why the event was ignored.
    pub ignored: Option<Ignored>,
    /// See [`OldScratch::old_slots`].
    pub(in crate::engine) old_slots: &'s [u32],
}

impl Matched<'_> {
    /// The result of an event that is ignored.
    pub(in crate::engine) fn ignored(reason: Ignored) -> Self {
        let change = Change::Untold;
        Matched { certain: &[], others: &[], errors: &[], change, work: 0, ignored: Some(reason), old_slots: &[] }
    }
}

/// Which of the matches of an event matched the document before an update too.
#[derive(Clone, Copy, Debug)]
pub struct Stays<'s>(pub(in crate::engine) Option<&'s [u32]>);

impl Stays<'_> {
    /// The transition of an ordinary match, of a subscription with *flags*.
    pub fn transition(&self, change: Change, slot: u32, flags: u8) -> Option<Transition> {
        change.transition(flags).unwrap_or_else(|| {
            let is_there = |stays: &[u32]| stays.binary_search(&slot).is_ok();
            self.0.map(|stays| if is_there(stays) { Transition::Stay } else { Transition::Enter })
        })
    }
}
