//! What one event matched: slots, packed, and made into Python objects only where they are asked for.

use crate::core::Shared;
use crate::errors::guard;
use crate::host::{self, Outcome};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyType};
use std::sync::Arc;
use streamer_core::engine::{Pin, Record};
use streamer_core::layout::EventType;

/// What of an event decides the transition of its matches.
#[derive(Clone)]
pub struct Change {
    pub event_type: Option<EventType>,
    /// Of an update that carries the document before: the event, to judge that on.
    pub old_side: Option<Arc<OldSide>>,
}

/// The document before an update; read when the first match asks for its transition.
pub struct OldSide {
    pub text: Py<PyBytes>,
    pub tenant: Option<Box<str>>,
    pub collection: Option<Box<str>>,
    event: PyOnceLock<Py<PyAny>>,
}

impl OldSide {
    pub fn new(text: Py<PyBytes>, tenant: Option<&str>, collection: Option<&str>) -> OldSide {
        OldSide { text, tenant: tenant.map(Box::from), collection: collection.map(Box::from), event: PyOnceLock::new() }
    }
}

/// The subscriptions that one event matched; see `streamer.engine.core.Hits`.
#[pyclass(frozen, module = "streamer._native")]
pub struct Hits {
    pub shared: Arc<Shared>,
    /// Keeps the slots from being given to others.
    pub pin: Pin,
    pub slots: Box<[u32]>,
    /// What the host said of the last of them; it was not asked about the others.
    pub outcomes: Box<[Option<Outcome>]>,
    pub change: Change,
}

impl Hits {
    fn record(&self, position: usize) -> PyResult<Arc<Record>> {
        let slot = self.slots.get(position).ok_or_else(|| PyIndexError::new_err("no such position"))?;
        self.shared.record(*slot)
    }

    fn outcome(&self, position: usize) -> Option<Outcome> {
        self.outcomes.get(position).copied().flatten()
    }

    fn taken(&self, positions: &[usize]) -> PyResult<Hits> {
        let slot = |at: &usize| self.slots.get(*at).copied().ok_or_else(|| PyIndexError::new_err("no such position"));
        let outcomes = match &*self.outcomes {
            [] => Box::default(),
            _ => positions.iter().map(|at| self.outcome(*at)).collect(),
        };
        Ok(Hits {
            shared: self.shared.clone(),
            pin: self.pin.clone(),
            slots: positions.iter().map(slot).collect::<PyResult<_>>()?,
            outcomes,
            change: self.change.clone(),
        })
    }

    /// How the match at *position* came about, where the host was not asked before.
    fn transition<'py>(&self, py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyAny>> {
        let known = |word: &str| Ok(PyString::intern(py, word).into_any());
        if record.flags & host::flags::MENTIONS_BEFORE != 0 {
            return Ok(py.None().into_bound(py));
        }
        match (self.change.event_type, &self.change.old_side) {
            (Some(EventType::Insert), _) => known("enter"),
            (Some(EventType::Delete), _) => known("leave"),
            (Some(EventType::Update), Some(old)) => {
                let host = self.shared.host.bind(py);
                let event = old.event.get_or_try_init(py, || {
                    let arguments = (old.text.bind(py), old.tenant.as_deref(), old.collection.as_deref());
                    host.call_method1("old_side", arguments).map(Bound::unbind)
                })?;
                host.call_method1("transition", (host::source_of(py, record), event.bind(py)))
            }
            _ => Ok(py.None().into_bound(py)),
        }
    }
}

fn match_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "streamer.model", "Match")
}

#[pymethods]
impl Hits {
    fn __len__(&self) -> usize {
        self.slots.len()
    }

    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        guard(py, || self.shared.ids(py, &self.slots))
    }

    fn gateway_ids<'py>(&self, py: Python<'py>) -> PyResult<Vec<Option<Bound<'py, PyString>>>> {
        guard(py, || {
            let mut last: Option<(Arc<str>, Bound<'py, PyString>)> = None;
            let mut gateway_of = |slot: &u32| -> PyResult<Option<Bound<'py, PyString>>> {
                let record = self.shared.record(*slot)?;
                let Some(gateway) = &record.gateway_id else { return Ok(None) };
                match &last {
                    Some((known, made)) if Arc::ptr_eq(known, gateway) => Ok(Some(made.clone())),
                    _ => {
                        let made = PyString::new(py, gateway);
                        last = Some((gateway.clone(), made.clone()));
                        Ok(Some(made))
                    }
                }
            };
            self.slots.iter().map(&mut gateway_of).collect()
        })
    }

    fn find(&self, py: Python<'_>, subscription_id: &str) -> PyResult<isize> {
        guard(py, || {
            for (at, slot) in self.slots.iter().enumerate() {
                if *self.shared.record(*slot)?.id == *subscription_id {
                    return Ok(at as isize);
                }
            }
            Ok(-1)
        })
    }

    #[pyo3(name = "match")]
    fn match_<'py>(&self, py: Python<'py>, position: usize, event: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || {
            let record = self.record(position)?;
            let (transition, certain) = match self.outcome(position) {
                Some(outcome) => (outcome.transition().into_pyobject(py)?, outcome.is_certain()),
                None => (self.transition(py, &record)?, true),
            };
            let labels = match record.flags & host::flags::LABELS {
                0 => py.None().into_bound(py),
                _ => self.shared.host.bind(py).call_method1("labels", (host::source_of(py, &record),))?,
            };
            match_class(py)?.call1((host::id_of(py, &record), record.gateway_id.as_deref(), event, transition, certain, labels))
        })
    }

    fn take(&self, py: Python<'_>, positions: Vec<usize>) -> PyResult<Hits> {
        guard(py, || self.taken(&positions))
    }

    fn in_order(&self, py: Python<'_>) -> PyResult<Hits> {
        guard(py, || {
            let records = self.slots.iter().map(|slot| self.shared.record(*slot)).collect::<PyResult<Vec<_>>>()?;
            let mut positions: Vec<usize> = (0..records.len()).collect();
            positions.sort_unstable_by_key(|at| records[*at].order);
            self.taken(&positions)
        })
    }
}
