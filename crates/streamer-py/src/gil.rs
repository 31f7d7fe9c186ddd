//! The GIL released, held again, and forked: the only place where that is done, so that `streamer_core::fork` knows.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::OnceLock;
use streamer_core::fork;

/// Run *act* with the GIL released; its locks are waited for only here, since who has one may be waiting for the GIL.
#[allow(clippy::disallowed_methods, reason = "here only")]
pub fn released<T: Send>(py: Python<'_>, act: impl FnOnce() -> T + Send) -> T {
    py.detach(|| fork::detached(act))
}

/// Run *act* with the GIL held.
#[allow(clippy::disallowed_methods, reason = "here only")]
pub fn held<T>(act: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| fork::attached(|| act(py)))
}

thread_local! {
    static LENT: Cell<usize> = const { Cell::new(0) };
}

/// What this thread works on is lent to so many others, which it waits for, until this is dropped.
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
/// What one of them raised.
pub fn look_for_signals() -> PyResult<()> {
    let process = std::process::id();
    let result = held(|py| py.check_signals());
    if LENT.get() > 0 && std::process::id() != process {
        // The others are not in the child, so that nothing could end this call.
        eprintln!(
            "streamer: a signal handler forked within a match in several threads, and returned in the child; end the child there"
        );
        std::process::abort();
    }
    result
}

/// What *cell* holds, or what *make* makes: outside of the cell, for Python may run there, and match, or fork. The first of
/// several stays.
pub fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&T> {
    match cell.get() {
        Some(made) => Ok(made),
        None => {
            let made = make()?;
            Ok(cell.get_or_init(|| made))
        }
    }
}

/// Wait, before a fork, until no other thread holds a lock of a core, and let none of them take one.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    released(py, fork::before);
}

/// Let them go on, in the parent.
#[pyfunction]
pub fn after_fork() {
    fork::after();
}

/// Begin anew, in the child.
#[pyfunction]
pub fn after_fork_in_child() {
    fork::after_in_child();
}
