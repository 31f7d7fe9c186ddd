//! Objects of classes of Python that are made once an event or a match: `Match`, `Matches`, `LineResult`.
//!
//! `Match` is a frozen dataclass with slots. Its `__init__` runs Python for each of them, and puts six values in through
//! `object.__setattr__` by name: three times the cost of all the rest. An object is allocated here as `object.__new__` does it, and
//! its slots are set as `object.__setattr__` does. Rejected: a native class in its place, which would be a second `Match` beside the
//! reference's, and would have to say again what a dataclass says of `==`, `repr`, `replace`, pickling and patterns.
//!
//! The `unsafe` here is these calls of CPython, and those that fill a new tuple, which `pyo3` has no safe names for.

use crate::errors::guard;
use crate::gil;
use crate::hits::Hits;
use crate::host;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyType};
use std::sync::OnceLock;
use streamer_core::engine::Outcome;

/// A class of Python, looked up once.
macro_rules! class {
    ($name:ident, $module:literal, $class:literal) => {
        fn $name(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
            static CLASS: OnceLock<Py<PyType>> = OnceLock::new();
            let class = gil::once(&CLASS, || Ok(py.import($module)?.getattr($class)?.cast_into::<PyType>()?.unbind()))?;
            Ok(class.bind(py))
        }
    };
}

class!(match_class, "streamer.model", "Match");
class!(matches_class, "streamer.core.matches", "Matches");
class!(line_class, "streamer.core.matches", "LineResult");

/// A new object of a class, none of whose slots is set.
#[allow(unsafe_code, reason = "see the head of this file")]
fn blank<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `class` is a type that is alive, and the GIL is held, as its `Bound` says. The classes here have slots alone, and
    // derive from `object` and from classes without any slots, whose `__new__` does just this. What returns is an owned reference,
    // or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), ffi::PyType_GenericAlloc(class.as_type_ptr(), 0)) }
}

/// Set an attribute as `object.__setattr__` does, past a `__setattr__` of its class.
#[allow(unsafe_code, reason = "see the head of this file")]
fn set(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: all three are objects that are alive, and the GIL is held, as their `Bound` says; `name` is a string, which is all that
    // the call asks. It takes references of its own.
    match unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(object.py())),
    }
}

/// A tuple of a class that derives from `tuple`.
#[allow(unsafe_code, reason = "see the head of this file")]
fn pair<'py>(class: &Bound<'py, PyType>, values: [Bound<'py, PyAny>; 2]) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    // SAFETY: as in `blank`; `LineResult` derives from `tuple`, whose objects have room for as many items as are asked for, all null
    // at first. Nobody else has seen this one, so its items may be set, once each; the calls check all that, and take the references
    // that are given up to them.
    unsafe {
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class.as_type_ptr(), 2))?;
        for (at, value) in (0..).zip(values) {
            if ffi::PyTuple_SetItem(made.as_ptr(), at, value.into_ptr()) != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(made)
    }
}

/// Make the `Matches` of hits.
pub fn matches<'py>(hits: Hits, event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = event.py();
    let made = blank(matches_class(py)?)?;
    set(&made, intern!(py, "_hits"), Bound::new(py, hits)?.as_any())?;
    set(&made, intern!(py, "event"), event)?;
    Ok(made)
}

/// Make the `LineResult` of a line.
pub fn line_result(number: u64, result: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = result.py();
    pair(line_class(py)?, [number.into_pyobject(py)?.into_any(), result])
}

/// Gateways in a row are often the same; their names are made once.
#[derive(Default)]
pub struct LastGateway(Option<(Box<str>, Py<PyString>)>);

impl LastGateway {
    pub fn named<'py>(&mut self, py: Python<'py>, gateway: &str) -> Bound<'py, PyString> {
        match &self.0 {
            Some((known, made)) if **known == *gateway => made.bind(py).clone(),
            _ => {
                let made = PyString::new(py, gateway);
                self.0 = Some((gateway.into(), made.clone().unbind()));
                made
            }
        }
    }
}

/// Make the `Match` at a position.
pub fn make<'py>(
    py: Python<'py>,
    hits: &Hits,
    position: usize,
    event: &Bound<'py, PyAny>,
    gateways: &mut LastGateway,
) -> PyResult<Bound<'py, PyAny>> {
    let record = hits.record(position)?;
    let Outcome { transition, certain } = hits.outcome_of(py, position, &record)?;
    let none = py.None().into_bound(py);
    let gateway = record.gateway_id().map_or_else(|| none.clone(), |gateway| gateways.named(py, gateway).into_any());
    let transition = transition.map_or_else(|| none.clone(), |transition| host::word_of(py, transition).into_any());
    let labels = match record.flags & host::flags::LABELS {
        0 => none,
        _ => hits.shared.host.bind(py).call_method1("labels", (host::source_of(py, &record),))?,
    };
    let made = blank(match_class(py)?)?;
    set(&made, intern!(py, "subscription_id"), &host::id_of(py, &record))?;
    set(&made, intern!(py, "gateway_id"), &gateway)?;
    set(&made, intern!(py, "event"), event)?;
    set(&made, intern!(py, "transition"), &transition)?;
    set(&made, intern!(py, "certain"), &PyBool::new(py, certain))?;
    set(&made, intern!(py, "labels"), &labels)?;
    Ok(made)
}

/// Makes the matches of hits, one after the other, as they are asked for.
#[pyclass(module = "streamer._native")]
pub struct MatchIterator {
    hits: Py<Hits>,
    event: Py<PyAny>,
    position: usize,
    gateways: LastGateway,
}

impl MatchIterator {
    pub fn new(hits: Py<Hits>, event: Py<PyAny>) -> MatchIterator {
        MatchIterator { hits, event, position: 0, gateways: LastGateway::default() }
    }
}

#[pymethods]
impl MatchIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let hits = self.hits.get();
        if self.position >= hits.slots.len() {
            return Ok(None);
        }
        let position = self.position;
        self.position += 1;
        guard(py, || make(py, hits, position, self.event.bind(py), &mut self.gateways).map(Some))
    }
}
