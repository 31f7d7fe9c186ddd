//! Events that were begun and are not settled: what of them is lost to a panic or an interrupt is counted all the same.

use crate::errors;
use pyo3::prelude::*;
use std::time::{Duration, Instant};
use streamer_core::engine::{Matched, Telemetry};

/// One event from its beginning to its settling. Dropped before that, it counts as one at which the engine failed.
pub struct Open<'s> {
    telemetry: &'s Telemetry,
    is_open: bool,
    matches: usize,
    uncertain: usize,
    /// Of an event of the sample: what it took so far.
    spent: Option<Duration>,
}

impl<'s> Open<'s> {
    pub fn new(telemetry: &'s Telemetry) -> Open<'s> {
        Open { telemetry, is_open: true, matches: 0, uncertain: 0, spent: None }
    }

    /// The core has matched the event, and settled it unless something is pending.
    pub fn matched(&mut self, matched: &Matched<'_>) {
        self.is_open = matched.is_open();
        self.matches = matched.certain.len() + matched.told.len();
        self.uncertain = matched.told.iter().filter(|(_, outcome)| !outcome.certain).count();
        self.spent = matched.spent;
    }

    /// The core has settled it.
    pub fn settled(&mut self) {
        self.is_open = false;
    }

    /// Settle the event: *more* of what was pending matched, *uncertain* of them not for certain; the host took the time since *since*.
    pub fn settle(&mut self, more: usize, uncertain: usize, since: Option<Instant>) {
        if std::mem::take(&mut self.is_open) {
            let rest = since.map(|since| since.elapsed());
            if let Some(rest) = rest {
                self.telemetry.cel(rest);
            }
            let took = self.spent.map(|spent| spent + rest.unwrap_or_default());
            self.telemetry.settle(self.matches + more, self.uncertain + uncertain, took);
        }
    }

    /// The time, for an event of the sample.
    pub fn now(&self) -> Option<Instant> {
        self.spent.map(|_| Instant::now())
    }

    /// Settle the event as rejected, if *result* is an error.
    pub fn unless<T>(&mut self, py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
        if let Err(error) = &result
            && std::mem::take(&mut self.is_open)
        {
            self.telemetry.reject(errors::code_of(py, error));
        }
        result
    }
}

impl Open<'_> {
    /// Settle the event if it could not even be read; otherwise it is begun anew where it is matched.
    pub fn unless_read<T>(mut self, py: Python<'_>, text: PyResult<T>) -> PyResult<T> {
        let text = self.unless(py, text);
        self.settled();
        text
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.telemetry.reject(None);
        }
    }
}
