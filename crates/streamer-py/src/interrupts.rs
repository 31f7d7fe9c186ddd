//! Interrupts of a match: an exception that the host raised in a thread, and whether the match continues.
//!
//! An exception of the host waits in the thread until its event is done, and is raised then, because a match cannot
//! return an error of Python. An exception of a signal handler waits in the same way, while the match of the event
//! stops.

use crate::gil;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static TEAM: RefCell<Option<Team>> = const { RefCell::new(None) };
}

/// The threads of a call, of which this is one.
#[derive(Clone)]
struct Team {
    stop: Arc<AtomicBool>,
    /// Whether this is the caller's thread, the only one that handles signals.
    is_caller: bool,
}

/// While it lives, this thread works in a team; dropped, in the one before.
pub struct InTeam(Option<Team>);

impl InTeam {
    pub fn new(stop: &Arc<AtomicBool>, is_caller: bool) -> InTeam {
        InTeam(TEAM.replace(Some(Team { stop: stop.clone(), is_caller })))
    }
}

impl Drop for InTeam {
    fn drop(&mut self) {
        TEAM.set(self.0.take());
    }
}

/// Whether a long match continues. Handlers of signals run in here, and may match and write.
pub fn goes_on() -> bool {
    if has_raised() {
        return false;
    }
    match TEAM.with_borrow(Clone::clone) {
        Some(team) if team.stop.load(Ordering::Relaxed) => false,
        Some(team) if !team.is_caller => true,
        _ => gil::look_for_signals().map_err(set_raised).is_ok(),
    }
}

/// Whether the host raised an exception in this thread that `raised` has not returned yet.
pub fn has_raised() -> bool {
    RAISED.with_borrow(Option::is_some)
}

/// Return and clear the exception that the host raised in this thread.
pub fn raised() -> Option<PyErr> {
    RAISED.with(RefCell::take)
}

/// Let an exception wait until the event is done.
pub fn set_raised(error: PyErr) {
    RAISED.set(Some(error));
}
