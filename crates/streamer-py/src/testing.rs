//! Hooks into a core for tests and benchmarks only.

use crate::core::Core;
use crate::errors::guard;
use crate::gil;
use crate::parallel::{Pulse, parallel};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Display;
use std::sync::PoisonError;
use std::thread;
use streamer_core::engine::Scratch;
use streamer_core::naive::{NaiveEvent, wants};
use streamer_core::subscriptions::Subscription;

/// Hooks into a core for tests and benchmarks only.
#[pyclass(frozen, module = "streamer._native")]
pub struct CoreHooks {
    core: Py<Core>,
}

#[pymethods]
impl CoreHooks {
    #[new]
    fn new(core: Py<Core>) -> CoreHooks {
        CoreHooks { core }
    }

    /// Switch counting on or off, to measure its cost.
    fn record(&self, on: bool) {
        self.core.get().shared.engine.telemetry().record(on);
    }

    /// Merge the segments of each partition into one, in this thread; else that happens by itself.
    fn merge(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || {
            gil::released(py, || self.core.get().shared.engine.merge());
            Ok(())
        })
    }

    /// Return the sorted ids that match by the naive oracle, which judges for the fuzzers.
    ///
    /// Args:
    ///     texts: subscriptions without `cel` and `transitions`, as JSON.
    ///     tenant: whose the event is.
    ///     collection: the event's.
    #[pyo3(signature = (texts, event, tenant, collection))]
    fn naive_ids(&self, texts: Vec<Vec<u8>>, event: &[u8], tenant: &str, collection: Option<&str>) -> PyResult<Vec<String>> {
        let options = self.core.get().shared.engine.options();
        let read = NaiveEvent::read(event, &options.layout, &options.limits).map_err(refused)?;
        let mut ids = Vec::new();
        for text in &texts {
            let subscription = Subscription::parse(text, options.defaults(), &options.limits).map_err(refused)?;
            let is_of = &*subscription.tenant == "*" || &*subscription.tenant == tenant;
            if is_of
                && subscription.collection.as_deref().is_none_or(|name| collection == Some(name))
                && wants(&subscription, &read)
            {
                ids.push(subscription.id.to_string());
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Call this inside each write before it is published; an exception of it is a panic there.
    fn before_publish(&self, call: Option<Py<PyAny>>) {
        *self.core.get().hook.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Panic, in a thread that is not the caller's if there are several.
    #[pyo3(signature = (threads=1))]
    fn panic(&self, py: Python<'_>, threads: usize) -> PyResult<()> {
        guard(py, || {
            let shared = &self.core.get().shared;
            let caller = thread::current().id();
            let mut scratches: Vec<Box<Scratch>> = (0..threads).map(|_| shared.scratch()).collect();
            let work = |_, _: &mut Scratch, pulse: &mut Pulse<'_>| {
                assert!(threads > 1 && thread::current().id() == caller, "as it was asked to");
                while pulse.beat() {
                    thread::yield_now();
                }
            };
            parallel(py, threads, &mut scratches, work).map(|_| ())
        })
    }
}

fn refused(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
