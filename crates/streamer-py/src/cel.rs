//! CEL alone: for tests against the reference, and for plans.

use crate::errors::guard;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use streamer_core::cel;
use streamer_core::engine::{CostClass, access_of};
use streamer_core::limits::Limits;
use streamer_core::subscriptions::normal_form::Conjunction;

/// Check an expression; returns line, column and what is wrong.
#[pyfunction]
pub fn cel_check(py: Python<'_>, source: &str, max_bytes: usize, max_depth: usize) -> PyResult<Option<(u32, u32, String)>> {
    guard(py, || {
        let limits = Limits { max_cel_bytes: max_bytes, max_cel_depth: max_depth, ..Limits::default() };
        Ok(cel::compile(source, &limits).err().map(|error| (error.line, error.column, error.reason)))
    })
}

/// Alternatives, whether they are all of it, and of each alternative the equality it is found by.
type LoweredInWords = (Vec<Vec<String>>, bool, Option<Vec<String>>);

/// Tell what clauses say of an expression: alternatives, each in words, and whether that is all of it; and by which equalities
/// they are found, where each has one.
#[pyfunction]
pub fn cel_lower(py: Python<'_>, source: &str, max_conjunctions: usize) -> PyResult<LoweredInWords> {
    guard(py, || {
        let limits = Limits { max_cel_bytes: usize::MAX, ..Limits::default() };
        let program = cel::compile(source, &limits).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let lowered = cel::lower(&program, max_conjunctions);
        let changed = lowered.changed.iter().map(|(one, other)| format!("{one} differs from {other}"));
        let compared = lowered.compared.iter().map(|(one, relation, other)| format!("{one} {relation} {other}"));
        let pairs: Vec<String> = changed.chain(compared).collect();
        let in_words = |clauses: &Vec<_>| clauses.iter().map(ToString::to_string).chain(pairs.iter().cloned()).collect();
        let access = lowered.alternatives.iter().map(|clauses| {
            let conjunction = Conjunction { clauses: clauses.clone() };
            match access_of(&conjunction) {
                (Some(at), CostClass::Keyed) => Some(conjunction.clauses[at].to_string()),
                _ => None,
            }
        });
        Ok((lowered.alternatives.iter().map(in_words).collect(), lowered.is_exact, access.collect()))
    })
}
