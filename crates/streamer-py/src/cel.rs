//! CEL alone: for tests against the reference, and for plans.

use crate::errors::guard;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use streamer_core::cel;
use streamer_core::limits::Limits;

/// Check an expression; returns line, column and what is wrong.
#[pyfunction]
pub fn cel_check(py: Python<'_>, source: &str, max_bytes: usize, max_depth: usize) -> PyResult<Option<(u32, u32, String)>> {
    guard(py, || {
        let limits = Limits { max_cel_bytes: max_bytes, max_cel_depth: max_depth, ..Limits::default() };
        Ok(cel::compile(source, &limits).err().map(|error| (error.line, error.column, error.reason)))
    })
}

/// Tell what clauses say of an expression: alternatives, each in words, and whether that is all of it.
#[pyfunction]
pub fn cel_lower(py: Python<'_>, source: &str, max_conjunctions: usize) -> PyResult<(Vec<Vec<String>>, bool)> {
    guard(py, || {
        let limits = Limits { max_cel_bytes: usize::MAX, ..Limits::default() };
        let program = cel::compile(source, &limits).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let lowered = cel::lower(&program, max_conjunctions);
        let changed: Vec<String> = lowered.changed.iter().map(|(one, other)| format!("{one} differs from {other}")).collect();
        let in_words = |clauses: &Vec<_>| clauses.iter().map(ToString::to_string).chain(changed.iter().cloned()).collect();
        Ok((lowered.alternatives.iter().map(in_words).collect(), lowered.is_exact))
    })
}
