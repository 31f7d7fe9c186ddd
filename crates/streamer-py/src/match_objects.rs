//! Objects of classes of Python that are made once an event or a match: `Match`, `Matches`, `LineResult`.
//!
//! `Match` is a frozen dataclass with slots. Its `__init__` runs Python for each of them, and sets six values through
//! `object.__setattr__` by name: three times the cost of everything else. An object is allocated here as
//! `object.__new__` does it, and its slots are set by the functions that `object.__setattr__` would look up by name;
//! they are looked up once. Rejected: a native class in its place, which would be a second `Match` next to the
//! reference's, and would have to repeat the dataclass's `==`, `repr`, `replace`, pickling and patterns.
//!
//! The `unsafe` here is these calls of CPython, and those that fill a new tuple, for which `pyo3` has no safe names.

use crate::errors::guard;
use crate::gil;
use crate::hits::Hits;
use crate::host;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString, PyType};
use std::sync::OnceLock;
use streamer_core::engine::Outcome;

/// A class of Python, looked up once, and its slots.
macro_rules! class {
    ($name:ident, $module:literal, $class:literal, [$($slot:literal),*]) => {
        fn $name(py: Python<'_>) -> PyResult<&'static Class> {
            static CLASS: OnceLock<Class> = OnceLock::new();
            gil::once(&CLASS, || Class::of(py.import($module)?.getattr($class)?.cast_into::<PyType>()?, &[$($slot),*]))
        }
    };
}

class!(match_class, "streamer.model", "Match", ["subscription_id", "gateway_id", "event", "transition", "certain", "labels"]);
class!(matches_class, "streamer.core.matches", "Matches", ["_hits", "event"]);
class!(line_class, "streamer.core.matches", "LineResult", []);

struct Class {
    class: Py<PyType>,
    slots: Box<[Slot]>,
}

/// The setter of a slot: the class's attribute with its name, and the function that CPython calls to set such an
/// attribute.
struct Slot {
    descriptor: Py<PyAny>,
    set: ffi::descrsetfunc,
}

impl Slot {
    #[allow(unsafe_code, reason = "see the head of this file")]
    fn of(class: &Bound<'_, PyType>, name: &str) -> PyResult<Slot> {
        let descriptor = class.getattr(name)?;
        // SAFETY: the type of an object that is alive; this slot of it is a function with this signature, or null.
        let set: Option<ffi::descrsetfunc> =
            unsafe { std::mem::transmute(ffi::PyType_GetSlot(ffi::Py_TYPE(descriptor.as_ptr()), ffi::Py_tp_descr_set)) };
        let set = set.ok_or_else(|| PyTypeError::new_err(format!("{name} is not a slot")))?;
        Ok(Slot { descriptor: descriptor.unbind(), set })
    }
}

impl Class {
    fn of(class: Bound<'_, PyType>, slots: &[&str]) -> PyResult<Class> {
        let slots = slots.iter().map(|name| Slot::of(&class, name)).collect::<PyResult<_>>()?;
        Ok(Class { class: class.unbind(), slots })
    }

    /// A new object whose slots have these values.
    #[allow(unsafe_code, reason = "see the head of this file")]
    fn make<'py>(&self, py: Python<'py>, values: &[&Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: `class` is a type that is alive, and `py` proves that this thread has the GIL. The classes here have
        // only slots, and derive from `object` and from classes without any slots, whose `__new__` does just this. The
        // result is an owned reference, or null with an exception set.
        let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(self.class.as_ptr().cast(), 0)) }?;
        for (slot, value) in self.slots.iter().zip(values) {
            // SAFETY: all three are alive, and the function is that of the descriptor's type. It adds a reference of
            // its own, and raises if the object is not of the descriptor's class.
            if unsafe { (slot.set)(slot.descriptor.as_ptr(), made.as_ptr(), value.as_ptr()) } != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(made)
    }
}

/// A tuple of a class that derives from `tuple`.
#[allow(unsafe_code, reason = "see the head of this file")]
fn pair<'py>(class: &Bound<'py, PyType>, values: [Bound<'py, PyAny>; 2]) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    // SAFETY: as in `blank`; `LineResult` derives from `tuple`, whose objects have room for the requested number of
    // items, all null at first. This one is still private, so its items may be set, once each; the calls check all
    // that, and own the references that are passed to them.
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

/// Whether an event is a text, which leads to no other object.
fn is_text(event: &Bound<'_, PyAny>) -> bool {
    event.is_exact_instance_of::<PyBytes>() || event.is_exact_instance_of::<PyString>()
}

/// Exempt a new object from garbage collection, as Python does for a tuple of texts: its values never lead back to it.
/// For a caller that keeps thousands of them, the collector would walk each again and again, for a tenth of their cost.
#[allow(unsafe_code, reason = "see the head of this file")]
fn pass_over(made: &Bound<'_, PyAny>) {
    // SAFETY: `made` is alive, this thread has the GIL, and its class has garbage collection, as all of Python's own
    // classes with slots and all tuples have. It is freed as usual: freeing an object checks whether it is tracked.
    unsafe { ffi::PyObject_GC_UnTrack(made.as_ptr().cast()) }
}

#[allow(unsafe_code, reason = "see the head of this file")]
fn is_tracked(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is alive, and this thread has the GIL.
    unsafe { ffi::PyObject_GC_IsTracked(object.as_ptr()) != 0 }
}

/// Make the `Matches` of hits.
pub fn matches<'py>(hits: &Bound<'py, Hits>, event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = event.py();
    let made = matches_class(py)?.make(py, &[hits.as_any(), event])?;
    if is_text(event) {
        pass_over(&made);
    }
    Ok(made)
}

/// Make the `LineResult` of a line.
pub fn line_result(number: u64, result: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = result.py();
    let is_passed_over = !is_tracked(&result);
    let made = pair(line_class(py)?.class.bind(py), [number.into_pyobject(py)?.into_any(), result])?;
    if is_passed_over {
        pass_over(&made);
    }
    Ok(made)
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
    let (id, certain) = (host::id_of(py, &record), PyBool::new(py, certain));
    let made = match_class(py)?.make(py, &[&id, &gateway, event, &transition, &certain, &labels])?;
    if labels.is_none() && is_text(event) {
        pass_over(&made);
    }
    Ok(made)
}

/// Makes the matches of hits one after the other, when the iterator reaches them.
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
