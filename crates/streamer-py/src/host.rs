//! The work that the core leaves to Python: `streamer.native.core.Host`, called through here only.
//!
//! The host reads events that are not bytes, logs errors of CEL, supplies the labels of subscriptions, and evaluates
//! CEL with the portable evaluator (`external_cel.rs`).

use crate::errors;
use crate::plain::{self, Refused};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString};
use std::sync::OnceLock;
use streamer_core::engine::{Host, Record, Transition};
use streamer_core::error::{EventCode, EventError};
use streamer_core::prefetch::prefetch_at;

/// The flags of a record that are the host's own.
pub mod flags {
    /// It carries labels.
    pub const LABELS: u8 = streamer_core::engine::flags::HOST;
}

/// The core's data of a subscription for Python.
pub struct HostData {
    /// The object, if JSON cannot express all of it.
    object: Option<Py<PyAny>>,
    /// Its id, made at its first match: a reference to it costs a third of making it.
    id: OnceLock<Py<PyString>>,
    /// Its labels as JSON from its first message on; empty if it turns out to have no labels.
    labels: OnceLock<Box<str>>,
    /// Compiled by the host, when it first evaluates the CEL part.
    pub compiled: OnceLock<Py<PyAny>>,
}

impl HostData {
    /// Keep an object, or none yet.
    pub fn host(object: Option<Py<PyAny>>) -> Host {
        Box::new(HostData { object, id: OnceLock::new(), labels: OnceLock::new(), compiled: OnceLock::new() })
    }
}

/// A subscription in the host's form: its JSON text, or the object.
pub fn source<'py>(py: Python<'py>, text: &[u8], host: Option<&Host>) -> Bound<'py, PyAny> {
    match host.and_then(|host| host.downcast_ref::<HostData>()?.object.as_ref()) {
        Some(object) => object.bind(py).clone(),
        None => PyBytes::new(py, text).into_any(),
    }
}

/// The subscription of a record.
pub fn source_of<'py>(py: Python<'py>, record: &Record) -> Bound<'py, PyAny> {
    source(py, &record.text(), record.host())
}

/// Prefetch the data that is kept with a record.
pub fn prefetch_host_data(record: &Record) {
    if let Some(host) = record.host() {
        prefetch_at((&raw const **host).cast::<u8>());
    }
}

/// Prefetch the id of a record, if it was made.
pub fn prefetch_id(record: &Record) {
    if let Some(id) = record.host().and_then(|host| host.downcast_ref::<HostData>()?.id.get()) {
        prefetch_at(id.as_ptr());
    }
}

/// The id of a record.
pub fn id_of<'py>(py: Python<'py>, record: &Record) -> Bound<'py, PyString> {
    let made = || PyString::new(py, record.id());
    match record.host_or(|| HostData::host(None)).downcast_ref::<HostData>() {
        Some(cache) => cache.id.get_or_init(|| made().unbind()).bind(py).clone(),
        None => made(),
    }
}

/// The word of a transition.
pub fn word_of(py: Python<'_>, transition: Transition) -> Bound<'_, PyString> {
    let word = match transition {
        Transition::Enter => intern!(py, "enter"),
        Transition::Stay => intern!(py, "stay"),
        Transition::Leave => intern!(py, "leave"),
    };
    word.clone()
}

/// The labels of a record as JSON, if it has labels.
pub fn labels_of<'r>(py: Python<'_>, host: &Py<PyAny>, record: &'r Record) -> PyResult<Option<&'r str>> {
    if record.flags & flags::LABELS == 0 {
        return Ok(None);
    }
    let cache = record.host_or(|| HostData::host(None)).downcast_ref::<HostData>();
    let cache = cache.ok_or_else(|| PyRuntimeError::new_err("a subscription that another host keeps"))?;
    let text = match cache.labels.get() {
        Some(text) => text,
        None => {
            let text: Option<String> = host.bind(py).call_method1("labels_text", (source_of(py, record),))?.extract()?;
            cache.labels.get_or_init(|| text.unwrap_or_default().into())
        }
    };
    Ok(Some(&**text).filter(|text| !text.is_empty()))
}

/// The text of an event, wherever it lies.
pub enum Text<'py> {
    Bytes(Bound<'py, PyBytes>),
    Str(Bound<'py, PyString>),
    /// The text of plain values.
    Plain(Vec<u8>),
    /// Written by the host; whether places in it are places in the event.
    Written(Bound<'py, PyBytes>, bool),
}

impl<'py> Text<'py> {
    /// Read an event in its original form, of at most *most* bytes if it is not a text.
    pub fn of(host: &Py<PyAny>, most: usize, event: &Bound<'py, PyAny>) -> PyResult<Text<'py>> {
        if let Ok(bytes) = event.cast::<PyBytes>() {
            return Ok(Text::Bytes(bytes.clone()));
        }
        if let Ok(text) = event.cast::<PyString>()
            && text.to_str().is_ok()
        {
            return Ok(Text::Str(text.clone()));
        }
        let mut answers = Vec::new();
        if event.is_exact_instance_of::<PyDict>() {
            let default = || host.bind(event.py()).getattr(intern!(event.py(), "default"));
            match plain::write_event(event, most, default, &mut answers)? {
                Ok(text) => return Ok(Text::Plain(text)),
                Err(Refused::TooLong) => return Err(too_long(event.py(), most)),
                Err(Refused::NotPlain) => {}
            }
        }
        let is_text = event.is_instance_of::<PyByteArray>() || event.is_instance_of::<PyMemoryView>();
        let host = host.bind(event.py());
        let written = match answers.is_empty() {
            true => host.call_method1("encode", (event,))?,
            false => host.call_method1("encode", (event, answers))?,
        };
        Ok(Text::Written(written.cast_into()?, is_text))
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Bytes(bytes) | Text::Written(bytes, _) => bytes.as_bytes(),
            Text::Plain(text) => text,
            // It was found to be readable, and the object keeps it alive.
            Text::Str(text) => text.to_str().unwrap_or_default().as_bytes(),
        }
    }

    /// Whether an offset in it is one in the event.
    pub fn is_text(&self) -> bool {
        !matches!(self, Text::Plain(_) | Text::Written(_, false))
    }

    pub fn to_bytes(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match self {
            Text::Bytes(bytes) | Text::Written(bytes, _) => bytes.clone(),
            Text::Plain(_) | Text::Str(_) => PyBytes::new(py, self.as_bytes()),
        }
    }
}

fn too_long(py: Python<'_>, most: usize) -> PyErr {
    let error = EventError::at(EventCode::TooLong, 0, format!("more than {most} bytes as JSON"));
    errors::event_error(py, &error, false).map_or_else(|other| other, PyErr::from_value)
}

/// An event for the host: its text, and the parts that the caller supplies.
pub struct Request<'py, 'a> {
    pub text: &'a Text<'py>,
    pub tenant: Option<&'a str>,
    pub collection: Option<&'a str>,
}
