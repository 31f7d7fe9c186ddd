//! CEL that the host evaluates.

use crate::cel::Verdict;
use crate::engine::event::Event;
use crate::engine::record::Record;
use std::any::Any;

/// Evaluates the programs that are not the core's to evaluate. Called by the threads that match, several at once.
pub trait ExternalCel: Send + Sync {
    /// What the program of *record* says of one side of an event; it counts and tells errors by itself. None where it was
    /// interrupted: nobody is told what the event matched, and it counts as one that the engine failed at.
    ///
    /// *kept* is empty at the first program of an event, and is handed on to the next ones.
    fn verdict(&self, record: &Record, event: &Event<'_>, side: Side, kept: &mut Option<Box<dyn Any>>) -> Option<Verdict>;
}

/// Which document counts as `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That of the event as it is.
    New,
    /// That before the change.
    Old,
}
