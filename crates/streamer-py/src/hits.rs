//! The matches of one event: slots, packed, and turned into Python objects only when a caller reads them.

use crate::errors::guard;
use crate::gil;
use crate::interrupts;
use crate::match_objects::{self, LastGateway, MatchIterator};
use crate::messages::{self, Common, Encoder};
use crate::shared::{EventMatches, Shared};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::sync::{Arc, OnceLock};
use streamer_core::engine::{Change, Event, Identity, Outcome, Pin, Record, RecordRef, Transition, Version};
use streamer_core::error::Ignored;
use streamer_core::flatten::Validation;

/// An update with the document before it, and the subscriptions that match that, found when the first transition is
/// read.
pub struct OldSide {
    pub version: Arc<Version>,
    pub text: Py<PyBytes>,
    pub tenant: Option<Box<str>>,
    pub collection: Option<Box<str>>,
    /// Sorted slots; None if the old side cannot be read.
    stays: OnceLock<Option<Vec<u32>>>,
}

impl OldSide {
    /// The slots that match the old side of an update, sorted; None if it cannot be read.
    ///
    /// # Errors
    ///
    /// An exception of the host: an interrupt.
    fn find_stays(&self, py: Python<'_>, shared: &Shared) -> PyResult<Option<Vec<u32>>> {
        let mut scratch = shared.scratch();
        let text = self.text.bind(py).as_bytes();
        let event = Event::new(text, self.tenant.as_deref(), self.collection.as_deref());
        let stays = shared.engine.stays(&self.version, event, &mut scratch);
        let result = interrupts::raised().map_or_else(|| shared.tell(py, scratch.errors()), Err);
        shared.keep(scratch);
        result.map(|()| stays)
    }

    pub fn new(version: Arc<Version>, text: Py<PyBytes>, tenant: Option<&str>, collection: Option<&str>) -> OldSide {
        let (tenant, collection) = (tenant.map(Box::from), collection.map(Box::from));
        OldSide { version, text, tenant, collection, stays: OnceLock::new() }
    }
}

/// The matches of one event; see `streamer.core.protocol.Hits`.
#[pyclass(frozen, module = "streamer._native")]
pub struct Hits {
    pub shared: Arc<Shared>,
    /// Keeps the slots from being reused.
    pub pin: Pin,
    pub slots: Box<[u32]>,
    /// The outcomes of the last slots; the others match as the event changes the document.
    pub outcomes: Box<[Option<Outcome>]>,
    pub change: Change,
    /// Why the event was ignored.
    pub ignored: Option<Ignored>,
    /// Set if the change requires a comparison.
    pub old_side: Option<Arc<OldSide>>,
}

/// The hits of events without matches, which are most: made once, since making one costs a tenth of a short event.
#[derive(Default)]
pub struct Nothing(OnceLock<Py<Hits>>);

impl Nothing {
    pub fn hits<'py>(&self, py: Python<'py>, shared: &Arc<Shared>) -> PyResult<Bound<'py, Hits>> {
        let hits = gil::once(&self.0, || Py::new(py, Hits::new(shared, EventMatches::default(), None)))?;
        Ok(hits.bind(py).clone())
    }
}

impl Hits {
    /// Hits of *result*, with the old side if `result.needs_text()`.
    pub fn new(shared: &Arc<Shared>, result: EventMatches, old_side: Option<OldSide>) -> Hits {
        let EventMatches { slots, outcomes, change, ignored, pin } = result;
        Hits { shared: shared.clone(), pin, slots, outcomes, change, ignored, old_side: old_side.map(Arc::new) }
    }

    pub fn record(&self, position: usize) -> PyResult<RecordRef> {
        let slot = self.slots.get(position).ok_or_else(|| PyIndexError::new_err("position out of range"))?;
        self.shared.record(*slot)
    }

    fn outcome(&self, position: usize) -> Option<Outcome> {
        self.outcomes.get(position).copied().flatten()
    }

    fn subset(&self, positions: &[usize]) -> PyResult<Hits> {
        let slot = |at: &usize| self.slots.get(*at).copied().ok_or_else(|| PyIndexError::new_err("position out of range"));
        let outcomes = match &*self.outcomes {
            [] => Box::default(),
            _ => positions.iter().map(|at| self.outcome(*at)).collect(),
        };
        Ok(Hits {
            shared: self.shared.clone(),
            pin: self.pin.clone(),
            slots: positions.iter().map(slot).collect::<PyResult<_>>()?,
            outcomes,
            change: self.change,
            ignored: self.ignored,
            old_side: self.old_side.clone(),
        })
    }

    /// How a match came about, and whether that is certain.
    pub fn outcome_of(&self, py: Python<'_>, position: usize, record: &Record) -> PyResult<Outcome> {
        match self.outcome(position) {
            Some(outcome) => Ok(outcome),
            None => Ok(Outcome { transition: self.transition(py, self.slots[position], record)?, certain: true }),
        }
    }

    /// How the match of a slot came about that matches as the event changes the document.
    fn transition(&self, py: Python<'_>, slot: u32, record: &Record) -> PyResult<Option<Transition>> {
        let old = match (self.change.transition(record.flags), &self.old_side) {
            (Some(transition), _) => return Ok(transition),
            (None, Some(old)) => old,
            (None, None) => return Ok(None),
        };
        let stays = match old.stays.get() {
            Some(stays) => stays,
            None => {
                let stays = old.find_stays(py, &self.shared)?;
                old.stays.get_or_init(|| stays)
            }
        };
        let transition = |stays: &Vec<u32>| {
            if stays.binary_search(&slot).is_ok() { Transition::Stay } else { Transition::Enter }
        };
        Ok(stays.as_ref().map(transition))
    }
}

#[pymethods]
impl Hits {
    fn __len__(&self) -> usize {
        self.slots.len()
    }

    /// Why the event was ignored, an `Ignored`; None for one that was matched.
    #[getter]
    fn ignored(&self) -> Option<&'static str> {
        self.ignored.map(Ignored::as_str)
    }

    /// Return the subscription ids, aligned with the positions.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        guard(py, || self.shared.ids(py, &self.slots))
    }

    /// Return who gets each match, aligned with the positions.
    fn gateway_ids<'py>(&self, py: Python<'py>) -> PyResult<Vec<Option<Bound<'py, PyString>>>> {
        guard(py, || {
            let mut gateways = LastGateway::default();
            let mut gateway_of = |slot: &u32| -> PyResult<Option<Bound<'py, PyString>>> {
                let record = self.shared.record(*slot)?;
                Ok(record.gateway_id().map(|gateway| gateways.named(py, gateway)))
            };
            self.slots.iter().map(&mut gateway_of).collect()
        })
    }

    /// Return the position of a subscription, or -1.
    fn find(&self, py: Python<'_>, subscription_id: &str) -> PyResult<isize> {
        guard(py, || {
            for (at, slot) in self.slots.iter().enumerate() {
                if self.shared.record(*slot)?.id() == subscription_id {
                    return Ok(at as isize);
                }
            }
            Ok(-1)
        })
    }

    /// Make the `Match` at a position.
    #[pyo3(name = "match")]
    fn match_<'py>(&self, py: Python<'py>, position: usize, event: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || match_objects::make(py, self, position, &event, &mut LastGateway::default()))
    }

    /// Make the `Match` at each position when the iterator reaches it.
    fn matches(slf: Bound<'_, Self>, event: Py<PyAny>) -> MatchIterator {
        MatchIterator::new(slf.unbind(), event)
    }

    /// Return some of the hits, in the order of *positions*.
    fn take(&self, py: Python<'_>, positions: Vec<usize>) -> PyResult<Hits> {
        guard(py, || self.subset(&positions))
    }

    /// Return the same hits in the order in which their subscriptions were added.
    fn in_order(&self, py: Python<'_>) -> PyResult<Hits> {
        guard(py, || {
            let records = self.slots.iter().map(|slot| self.shared.record(*slot)).collect::<PyResult<Vec<_>>>()?;
            let mut positions: Vec<usize> = (0..records.len()).collect();
            positions.sort_unstable_by_key(|at| records[*at].order);
            self.subset(&positions)
        })
    }

    /// The writer of messages for these hits; see `streamer.core.protocol.Encoder`.
    #[getter]
    fn encoder(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Return the event's part of messages, or None if Python has to write it.
    fn attributes<'py>(&self, py: Python<'py>, event: &[u8], key: Option<&str>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        guard(py, || {
            let engine = &self.shared.engine;
            if engine.options().validation == Validation::Lazy {
                return Ok(None);
            }
            let records = self.slots.iter().filter_map(|slot| engine.record(*slot));
            let tenant_of = |record: &Record| record.id().split_once('\0').map_or(record.id(), |(tenant, _)| tenant).to_owned();
            let tenant = records.map(|record| tenant_of(&record)).find(|tenant| tenant != "*");
            let mut scratch = self.shared.scratch();
            let mut made = None;
            let write = |identity: Identity<'_>| made = messages::attributes(&identity, key, tenant.as_deref());
            // An event that matched can be read.
            _ = engine.identify(Event::new(event, None, None), &mut scratch, write);
            self.shared.keep(scratch);
            Ok(made.map(|text| PyBytes::new(py, text.as_bytes())))
        })
    }

    /// Return a message for each match, in their order.
    fn messages<'py>(
        &self,
        py: Python<'py>,
        place: &[u8],
        source: &str,
        attributes: &[u8],
        tail: &[u8],
    ) -> PyResult<Bound<'py, PyList>> {
        guard(py, || {
            let attributes = str::from_utf8(attributes).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let common = Common { place, source, attributes, tail };
            let mut encoder = Encoder::default();
            let made = PyList::empty(py);
            for position in 0..self.slots.len() {
                let record = self.record(position)?;
                let Outcome { transition, certain } = self.outcome_of(py, position, &record)?;
                made.append(encoder.message(py, &self.shared, &common, &record, transition, certain)?)?;
            }
            Ok(made)
        })
    }
}
