//! What an event found: gathered segment by segment, then handed out.

use crate::engine::failures::CelError;
use crate::engine::transition::{Change, Outcome, Transition};
use crate::error::Ignored;

/// What an event found.
#[derive(Debug, Default)]
pub struct Output {
    /// Slots of subscriptions that match.
    pub certain: Vec<u32>,
    /// Slots of those that match in another way than the event's change.
    pub told: Vec<(u32, Outcome)>,
    /// Slots of those that match but for their CEL part.
    pub candidates_for_cel: Vec<u32>,
    /// Slots of those that may match an event with unknown values.
    pub unknown: Vec<u32>,
    /// Slots of those whose pattern took more than its budget.
    pub spent: Vec<u32>,
    /// Errors of CEL that are to be told.
    pub errors: Vec<CelError>,
    /// How many conjunctions of indexes were verified or handed out.
    pub candidates: u64,
    /// How many conjunctions of plain lists were verified or handed out.
    pub listed: u64,
    /// How many subscriptions were found by an index and then evaluated.
    pub evaluated: u64,
    /// How many of `certain` were found in the event as it is.
    pub counted: usize,
    /// Whether a program was interrupted, so that nobody is told of this.
    pub is_cut_off: bool,
}

impl Output {
    /// Begin with another event.
    pub fn clear(&mut self) {
        self.certain.clear();
        self.told.clear();
        self.candidates_for_cel.clear();
        self.unknown.clear();
        self.spent.clear();
        self.errors.clear();
        (self.candidates, self.listed, self.evaluated, self.counted, self.is_cut_off) = (0, 0, 0, 0, false);
    }
}

/// What an event matches. Slots stay valid while its version is held, or a [`Pin`] of it.
#[derive(Debug)]
pub struct Matched<'s> {
    /// Slots of subscriptions that match, as [`Matched::change`] says.
    pub certain: &'s [u32],
    /// Slots of those that match in another way.
    pub told: &'s [(u32, Outcome)],
    /// Errors of CEL that are to be told.
    pub errors: &'s [CelError],
    /// What the transition of [`Matched::certain`] is.
    pub change: Change,
    /// How many conjunctions were looked at.
    pub work: u64,
    /// Why nobody was asked.
    pub ignored: Option<Ignored>,
    /// See [`OldScratch::found`].
    pub(super) found: &'s [u32],
}

impl Matched<'_> {
    /// Of an event that is ignored.
    pub(super) fn ignored(reason: Ignored) -> Self {
        let change = Change::Untold;
        Matched { certain: &[], told: &[], errors: &[], change, work: 0, ignored: Some(reason), found: &[] }
    }
}

/// Which of the matches of an event matched the document before an update too.
#[derive(Clone, Copy, Debug)]
pub struct Stays<'s>(pub(super) Option<&'s [u32]>);

impl Stays<'_> {
    /// The transition of an ordinary match, of a subscription with *flags*.
    pub fn transition(&self, change: Change, slot: u32, flags: u8) -> Option<Transition> {
        change.transition(flags).unwrap_or_else(|| {
            let is_there = |stays: &[u32]| stays.binary_search(&slot).is_ok();
            self.0.map(|stays| if is_there(stays) { Transition::Stay } else { Transition::Enter })
        })
    }
}
