//! CEL that the host evaluates.

use crate::cel::Verdict;
use crate::engine::state::event::Event;
use crate::engine::state::record::Record;
use std::any::Any;

/// Evaluates the programs that are not the core's to evaluate. Called by the threads that match, several at once.
pub trait ExternalCel: Send + Sync {
    /// The verdict of *record*'s program for one side of an event; it counts and reports its errors. It returns None if
    /// it was interrupted: the matches of the event are discarded, and the event counts as one on which the engine
    /// failed.
    ///
    /// *document* is empty at the first program of an event, and is passed on to the next ones.
    fn verdict(&self, record: &Record, event: &Event<'_>, side: Side, document: &mut Option<Box<dyn Any>>) -> Option<Verdict>;
}

/// Which document counts as `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side of the event as it is.
    New,
    /// The side before the change.
    Old,
}
