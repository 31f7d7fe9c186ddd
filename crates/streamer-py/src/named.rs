//! Types of Python that are made here, so that both cores return the same ones. Each is made by the names of its
//! members: for values that a caller reads now and then, or once for a whole array, never for a match.

use crate::arrow::columns::Buffers;
use crate::gil;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::OnceLock;
use streamer_core::cel::Cache;
use streamer_core::engine::{FailingSubscription, FilterState, PartitionName, PartitionSizes};

struct NamedClasses {
    partition: Py<PyAny>,
    counts: Py<PyAny>,
    filter: Py<PyAny>,
    failing: Py<PyAny>,
    programs: Py<PyAny>,
    columns: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&'static NamedClasses> {
    static CLASSES: OnceLock<NamedClasses> = OnceLock::new();
    gil::once(&CLASSES, || {
        let class = |module: &str, name: &str| PyResult::Ok(py.import(module)?.getattr(name)?.unbind());
        Ok(NamedClasses {
            partition: class("streamer.telemetry", "PartitionSize")?,
            counts: class("streamer.telemetry", "PartitionCounts")?,
            filter: class("streamer.bloom.state", "FilterState")?,
            failing: class("streamer.cel_eval.errors", "FailingSubscription")?,
            programs: class("streamer.cel_eval.cache", "ProgramCounts")?,
            columns: class("streamer.core.arrow", "Columns")?,
        })
    })
}

fn made<'py>(py: Python<'py>, class: &Py<PyAny>, members: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    class.bind(py).call((), Some(members))
}

fn named<'py>(py: Python<'py>, name: &PartitionName) -> PyResult<Bound<'py, PyDict>> {
    let members = PyDict::new(py);
    members.set_item("tenant", &*name.tenant)?;
    members.set_item("collection", &*name.collection)?;
    Ok(members)
}

pub fn partition_size<'py>(py: Python<'py>, sizes: &PartitionSizes) -> PyResult<Bound<'py, PyAny>> {
    let members = named(py, &sizes.name)?;
    members.set_item("subscriptions", sizes.subscriptions)?;
    members.set_item("segments", sizes.segments)?;
    members.set_item("subscription_bytes", sizes.store_bytes)?;
    members.set_item("index_bytes", sizes.index_bytes)?;
    made(py, &classes(py)?.partition, &members)
}

pub fn partition_counts<'py>(py: Python<'py>, name: &PartitionName, counts: [u64; 3]) -> PyResult<Bound<'py, PyAny>> {
    let [events, candidates, matches] = counts;
    let members = named(py, name)?;
    members.set_item("events", events)?;
    members.set_item("candidates", candidates)?;
    members.set_item("matches", matches)?;
    made(py, &classes(py)?.counts, &members)
}

pub fn filter_state<'py>(py: Python<'py>, filter: &FilterState) -> PyResult<Bound<'py, PyAny>> {
    let FilterState { name, keyed: (keyed, unkeyed), state } = filter;
    let members = named(py, name)?;
    members.set_item("layout", "blocked")?;
    members.set_item("version", state.version)?;
    members.set_item("keys", state.keys)?;
    members.set_item("capacity", state.capacity)?;
    members.set_item("stale", state.stale)?;
    members.set_item("keyed", keyed)?;
    members.set_item("unkeyed", unkeyed)?;
    members.set_item("bits", state.bits.bits)?;
    members.set_item("fill", state.bits.fill)?;
    members.set_item("asked", state.asked)?;
    members.set_item("no", state.no)?;
    members.set_item("probes", state.probes)?;
    members.set_item("sampled", state.sampled)?;
    members.set_item("false_positives", state.false_positives)?;
    members.set_item("grown", state.grown)?;
    made(py, &classes(py)?.filter, &members)
}

pub fn failing<'py>(py: Python<'py>, subscription: &FailingSubscription) -> PyResult<Bound<'py, PyAny>> {
    let members = PyDict::new(py);
    members.set_item("subscription_id", &*subscription.id)?;
    members.set_item("errors", subscription.errors)?;
    members.set_item("reason", subscription.reason.as_str())?;
    made(py, &classes(py)?.failing, &members)
}

pub fn program_counts<'py>(py: Python<'py>, cache: &Cache) -> PyResult<Bound<'py, PyAny>> {
    let counts = cache.counts();
    let members = PyDict::new(py);
    members.set_item("hits", counts.hits)?;
    members.set_item("misses", counts.misses)?;
    members.set_item("held", cache.len())?;
    made(py, &classes(py)?.programs, &members)
}

pub fn columns<'py>(
    py: Python<'py>,
    [matches, events, rejected, ignored]: [Buffers<'py>; 4],
    addresses: Option<(usize, usize)>,
) -> PyResult<Bound<'py, PyAny>> {
    let members = PyDict::new(py);
    members.set_item("matches", matches)?;
    members.set_item("events", events)?;
    members.set_item("rejected", rejected)?;
    members.set_item("ignored", ignored)?;
    members.set_item("addresses", addresses)?;
    made(py, &classes(py)?.columns, &members)
}
