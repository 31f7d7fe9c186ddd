//! Releases and acquires the GIL, and forks: the only place that does so, so that `streamer_core::fork` can count
//! threads.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::OnceLock;
use streamer_core::fork;

/// Run *act* with the GIL released; its locks are waited for only here, since who has one may be waiting for the GIL.
#[allow(clippy::disallowed_methods, reason = "here only")]
pub fn released<T: Send>(py: Python<'_>, act: impl FnOnce() -> T + Send) -> T {
    py.detach(|| fork::detached(act))
}

/// Run *act* with the GIL.
#[allow(clippy::disallowed_methods, reason = "here only")]
pub fn with<T>(act: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| fork::attached(|| act(py)))
}

thread_local! {
    static LENT: Cell<usize> = const { Cell::new(0) };
}

/// While this lives, this thread's work is lent to other threads, for which it waits.
pub struct Lent(usize);

impl Lent {
    pub fn to(others: usize) -> Lent {
        LENT.set(LENT.get() + others);
        Lent(others)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        LENT.set(LENT.get() - self.0);
    }
}

/// Run the handlers of signals that have come.
///
/// # Errors
///
/// The exception of a handler.
pub fn look_for_signals() -> PyResult<()> {
    let process = std::process::id();
    let result = with(|py| py.check_signals());
    if LENT.get() > 0 && std::process::id() != process {
        // The other threads do not exist in the child, so this call could never end.
        eprintln!(
            "streamer: a signal handler forked within a match in several threads, and returned in the child; end the child there"
        );
        std::process::abort();
    }
    result
}

/// The value of *cell*. An empty cell is filled by *make*, which runs outside of the cell: it may run Python, which may
/// match, or fork. If several threads make a value, the first one stays.
pub fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&T> {
    match cell.get() {
        Some(made) => Ok(made),
        None => {
            let made = make()?;
            Ok(cell.get_or_init(|| made))
        }
    }
}

/// Wait, before a fork, until the locks of a core are free, and keep other threads from locking them.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    released(py, fork::before);
}

/// Let the other threads continue, in the parent.
#[pyfunction]
pub fn after_fork() {
    fork::after();
}

/// Reset the state, in the child.
#[pyfunction]
pub fn after_fork_in_child() {
    fork::after_in_child();
}
