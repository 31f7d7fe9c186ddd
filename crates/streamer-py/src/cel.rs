//! CEL by itself: for tests against the reference.

use crate::errors::guard;
use pyo3::prelude::*;
use streamer_core::cel;
use streamer_core::limits::Limits;

/// Check a CEL expression; return line, column and fault, or None. For tests: an engine checks by itself.
#[pyfunction]
pub fn cel_check(py: Python<'_>, source: &str, max_bytes: usize, max_depth: usize) -> PyResult<Option<(u32, u32, String)>> {
    guard(py, || {
        let limits = Limits { max_cel_bytes: max_bytes, max_cel_depth: max_depth, ..Limits::default() };
        Ok(cel::compile(source, &limits).err().map(|error| (error.line, error.column, error.reason)))
    })
}
