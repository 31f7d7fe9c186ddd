//! The records of a source as change events, for a service.

use crate::errors::{self, guard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::sync::{Mutex, PoisonError};
use streamer_core::error::EventError;
use streamer_core::flatten::{self, Read};
use streamer_core::fork;
use streamer_core::limits::Limits;

/// Reads the records of one source as events of the layout `streamer.cdc.LAYOUT`, in their order. Thread-safe.
///
/// Args:
///     format: one that a source has, other than `json`.
///     envelope: whether each event has the rest of its record as `envelope`.
///     most: the most events of a record; None for any number.
///     whole_rows: the collections whose deleted rows are whole.
///     table: the collection of rows of Debezium that do not name their table.
///     prefix: the prefix of the members that Debezium's transform adds to rows.
///     columns: the columns of tables of wal2json, as far as they are known in advance.
///     max_event_bytes: the most bytes of a record that an engine reads.
///
/// Raises:
///     ValueError: an unknown format.
#[pyclass(module = "streamer._native", frozen)]
pub struct RecordReader {
    reader: Mutex<flatten::RecordReader>,
    /// Of the records that an engine reads.
    limits: Limits,
}

impl RecordReader {
    /// The next message of a stream, as the record that an engine reads.
    pub fn record(&self, message: &[u8]) -> Result<String, EventError> {
        // Rows of Arrow are read without the GIL.
        let _inside = fork::inside();
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).record(message, &self.limits)
    }
}

/// Bytes, or the UTF-8 of a text.
fn bytes_of<'k>(key: Option<&'k Bound<'_, PyAny>>) -> Option<&'k [u8]> {
    let key = key?;
    match key.cast::<PyBytes>() {
        Ok(bytes) => Some(bytes.as_bytes()),
        Err(_) => key.cast::<PyString>().ok()?.to_str().ok().map(str::as_bytes),
    }
}

#[pymethods]
impl RecordReader {
    #[new]
    #[pyo3(signature = (
        format, *, envelope = false, most = None, whole_rows = Vec::new(), table = None, prefix = "__", columns = Vec::new(),
        max_event_bytes = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are options, given by name")]
    fn new(
        py: Python<'_>,
        format: &str,
        envelope: bool,
        most: Option<usize>,
        whole_rows: Vec<String>,
        table: Option<String>,
        prefix: &str,
        columns: Vec<(String, Vec<String>)>,
        max_event_bytes: Option<usize>,
    ) -> PyResult<RecordReader> {
        guard(py, || {
            let made = flatten::RecordReader::new(format, envelope, most.unwrap_or(usize::MAX));
            let mut reader = made.ok_or_else(|| PyValueError::new_err(format!("unknown format of records: {format:?}")))?;
            reader.know_whole_rows(whole_rows.into_iter().map(String::into_boxed_str).collect());
            reader.know_added(table.map(String::into_boxed_str), prefix.into());
            for (table, names) in columns {
                reader.know_columns(table, names);
            }
            let most_bytes = max_event_bytes.unwrap_or(Limits::default().max_event_bytes);
            let limits = Limits { max_event_bytes: most_bytes, ..Limits::default() };
            Ok(RecordReader { reader: Mutex::new(reader), limits })
        })
    }

    /// Return the events in a record, each with its key as text or None; for no change, one event of the type `ignore`.
    ///
    /// Args:
    ///     key: the record's own key. Formats that do not describe keys do not use it.
    ///     table: the collection of a row of Debezium that does not name its table, unless the reader has one.
    ///
    /// Returns:
    ///     None for a tombstone: a record that is empty or null.
    ///
    /// Raises:
    ///     EventError: the record is not one of the format.
    #[pyo3(signature = (record, key = None, table = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        record: &[u8],
        key: Option<&Bound<'py, PyAny>>,
        table: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        guard(py, || {
            // No Python code runs while it is locked, so the thread with the GIL never waits.
            let read = self.reader.lock().unwrap_or_else(PoisonError::into_inner).read(record, bytes_of(key), table);
            let events = match read {
                Ok(Read::Tombstone) => return Ok(None),
                Ok(Read::Nothing(what)) => vec![(flatten::no_change(&what), None)],
                Ok(Read::Events(events)) => events,
                Err(error) => return Err(PyErr::from_value(errors::event_error(py, &error, true)?)),
            };
            PyList::new(py, events.into_iter().map(|(event, key)| (PyBytes::new(py, event.as_bytes()), key))).map(Some)
        })
    }
}
