//! Events that were begun and are not settled: an event that a panic or an interrupt ends is counted all the same.

use crate::errors;
use pyo3::prelude::*;
use streamer_core::engine::Telemetry;

/// One event from its beginning to its settling. Dropped before that, it counts as one at which the engine failed.
pub struct Open<'s> {
    telemetry: &'s Telemetry,
    is_open: bool,
}

impl<'s> Open<'s> {
    pub fn new(telemetry: &'s Telemetry) -> Open<'s> {
        Open { telemetry, is_open: true }
    }

    /// The core has settled it.
    pub fn settled(&mut self) {
        self.is_open = false;
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
    /// Settle the event if it could not even be read; otherwise the match opens it again.
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
