//! CEL programs that the host evaluates: those of the portable evaluator, on the candidates that the index leaves over.
//!
//! ```text
//!   candidate ─► acquire the GIL ─► host.read(event), once for an event ─► host.verdict(compiled, event, old) ─► Verdict
//! ```
//!
//! An exception of the host is an interrupt, never an error of CEL: see `interrupts.rs`.

use crate::gil;
use crate::host::{self, HostData};
use crate::interrupts::{has_raised, set_raised};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::any::Any;
use streamer_core::cel::Verdict;
use streamer_core::engine::{Event, ExternalCel, Record, Side};

/// Calls the host.
pub struct HostCel {
    pub host: Py<PyAny>,
}

impl ExternalCel for HostCel {
    fn verdict(
        &self,
        record: &Record,
        event: &Event<'_>,
        side: Side,
        event_object: &mut Option<Box<dyn Any>>,
    ) -> Option<Verdict> {
        if has_raised() {
            return None;
        }
        let verdict = gil::with(|py| self.ask(py, record, event, side, event_object));
        verdict.map_err(set_raised).ok()
    }
}

impl HostCel {
    fn ask(
        &self,
        py: Python<'_>,
        record: &Record,
        event: &Event<'_>,
        side: Side,
        event_object: &mut Option<Box<dyn Any>>,
    ) -> PyResult<Verdict> {
        let host = self.host.bind(py);
        let read = match event_object.as_ref().and_then(|event_object| event_object.downcast_ref::<Py<PyAny>>()) {
            Some(read) => read.bind(py).clone(),
            None => {
                let read = host.call_method1("read", (PyBytes::new(py, event.text), event.tenant, event.collection))?;
                *event_object = Some(Box::new(read.clone().unbind()));
                read
            }
        };
        let compile = || Ok::<_, PyErr>(host.call_method1("compile", (host::source_of(py, record),))?.unbind());
        let compiled = match record.host_or(|| HostData::host(None)).downcast_ref::<HostData>() {
            Some(event_object) => gil::once(&event_object.compiled, compile)?.bind(py).clone(),
            None => compile()?.into_bound(py),
        };
        let verdict = host.call_method1("verdict", (compiled, read, side == Side::Old))?.cast_into::<PyString>()?;
        Ok(match verdict.to_str()? {
            "true" => Verdict::True,
            "false" => Verdict::False,
            "unknown" => Verdict::Unknown,
            _ => Verdict::Error,
        })
    }
}
