//! Maps every error to its class in `streamer.errors`. This is the only place that depends on both.

use crate::gil;
use crate::interrupts;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use streamer_core::engine::{Reentered, SnapshotFault};
use streamer_core::error::{EventCode, EventError, SubscriptionError, SubscriptionErrorKind};
use streamer_core::watch::Interrupted;

struct ErrorClasses {
    event: Py<PyType>,
    internal: Py<PyType>,
    reentry: Py<PyType>,
    snapshot: Py<PyType>,
    subscription: Py<PyType>,
    pattern: Py<PyType>,
    cel: Py<PyType>,
    duplicate: Py<PyType>,
}

fn classes(py: Python<'_>) -> PyResult<&'static ErrorClasses> {
    static CLASSES: OnceLock<ErrorClasses> = OnceLock::new();
    gil::once(&CLASSES, || {
        let errors = py.import("streamer.errors")?;
        let class = |name| PyResult::Ok(errors.getattr(name)?.cast_into::<PyType>()?.unbind());
        Ok(ErrorClasses {
            event: class("EventError")?,
            internal: class("InternalError")?,
            reentry: class("ReentryError")?,
            snapshot: class("SnapshotError")?,
            subscription: class("SubscriptionError")?,
            pattern: class("PatternError")?,
            cel: class("CelError")?,
            duplicate: class("DuplicateSubscriptionError")?,
        })
    })
}

/// An `EventError`; without *offset* if the event was not a text.
pub fn event_error<'py>(py: Python<'py>, error: &EventError, is_text: bool) -> PyResult<Bound<'py, PyAny>> {
    let named = PyDict::new(py);
    named.set_item("offset", error.offset.filter(|_| is_text))?;
    named.set_item("place", error.place.as_deref())?;
    classes(py)?.event.bind(py).call((error.code.as_str(), &*error.reason), Some(&named))
}

/// The code of an `EventError`; None for any other error.
pub fn code_of(py: Python<'_>, error: &PyErr) -> Option<EventCode> {
    let is_event = error.is_instance(py, classes(py).ok()?.event.bind(py));
    let code = if is_event { error.value(py).getattr("code").ok()? } else { return None };
    EventCode::from_word(code.cast::<PyString>().ok()?.to_str().ok()?)
}

/// An event's result in its place of a batch: the `EventError`, made or raised, with its *index*. Other errors stay raised.
pub fn in_its_place<'py>(py: Python<'py>, result: PyResult<Bound<'py, PyAny>>, index: usize) -> PyResult<Bound<'py, PyAny>> {
    let event = classes(py)?.event.bind(py);
    let result = match result {
        Err(error) if error.is_instance(py, event) => {
            // A traceback would keep the frames of every bad one of a million alive.
            error.set_traceback(py, None);
            error.into_value(py).into_bound(py).into_any()
        }
        other => other?,
    };
    if result.is_instance(event)? {
        result.setattr("index", index)?;
    }
    Ok(result)
}

/// A `SubscriptionError` of the right class, with its *index* in the call, if the call has several.
pub fn subscription_error<'py>(
    py: Python<'py>,
    error: &SubscriptionError,
    index: impl Into<Option<usize>>,
) -> PyResult<Bound<'py, PyAny>> {
    let classes = classes(py)?;
    let class = match error.kind {
        SubscriptionErrorKind::Subscription => &classes.subscription,
        SubscriptionErrorKind::Pattern => &classes.pattern,
        SubscriptionErrorKind::Cel => &classes.cel,
        SubscriptionErrorKind::Duplicate => &classes.duplicate,
    };
    let named = PyDict::new(py);
    named.set_item("place", &error.place)?;
    named.set_item("subscription_id", error.subscription_id.as_deref())?;
    named.set_item("index", index.into())?;
    if let Some((line, column)) = error.position {
        named.set_item("line", line)?;
        named.set_item("column", column)?;
    }
    class.bind(py).call((&error.reason,), Some(&named))
}

/// A `SnapshotError`.
pub fn snapshot_error(py: Python<'_>, fault: &SnapshotFault) -> PyErr {
    let made = || {
        let named = PyDict::new(py);
        named.set_item("place", &*fault.place)?;
        named.set_item("path", &*fault.path)?;
        classes(py)?.snapshot.bind(py).call((&*fault.reason,), Some(&named))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Run *act*; a panic in it becomes an `InternalError`, a thrown fault of a file a `SnapshotError`, and an interrupt
/// the exception of its handler.
pub fn guard<T>(py: Python<'_>, act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // A panic cannot leave half-written state in use: scratch is dropped, and a writer publishes last.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(internal_error(py, &*panic)))
}

#[cold]
fn internal_error(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    if let Some(fault) = panic.downcast_ref::<SnapshotFault>() {
        return snapshot_error(py, fault);
    }
    if panic.is::<Interrupted>() {
        return interrupts::raised().unwrap_or_else(|| PyKeyboardInterrupt::new_err(()));
    }
    if panic.is::<Reentered>() {
        let result = "this thread is inside a write already, which called what writes now; write after it";
        return classes(py)
            .and_then(|classes| classes.reentry.bind(py).call1((result,)))
            .map_or_else(|error| error, PyErr::from_value);
    }
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let reason = format!("the native core failed: {}", text.unwrap_or("no details"));
    match classes(py).and_then(|classes| classes.internal.bind(py).call1((&reason,))) {
        Ok(error) => PyErr::from_value(error),
        Err(_) => PyRuntimeError::new_err(reason),
    }
}
