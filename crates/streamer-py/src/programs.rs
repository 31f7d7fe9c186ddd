//! CEL programs evaluated without an engine: for tests against the reference and for benchmarks.

use crate::errors::{self, guard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use streamer_core::cel::{self, Arena, Document, EvaluationScratch, Executable, Verdict};
use streamer_core::error::{EventError, SubscriptionError, SubscriptionErrorKind, Unread};
use streamer_core::flatten::{CallerParts, Flattener, PathTrie, Validation};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;

/// Verdict, reason of an error, the same in words, cost units.
type ProgramResult = (&'static str, Option<&'static str>, Option<String>, u64);

/// CEL expressions evaluated without an engine. For tests and benchmarks. Immutable, so any number of threads may use it.
///
/// Args:
///     sources: the expressions.
///     layout: the JSON text of `EventLayout.to_dict()`.
///
/// Raises:
///     CelError: one of them is not acceptable; with its *index*.
///     ValueError: a layout that cannot be.
#[pyclass(frozen, module = "streamer._native")]
pub struct CelPrograms {
    executables: Vec<Executable>,
    trie: PathTrie,
    default_tenant: Option<String>,
    limits: Limits,
}

impl CelPrograms {
    /// Read an event, and show it, or its old side, to *act*.
    fn with<T>(
        &self,
        py: Python<'_>,
        event: &[u8],
        old_side: bool,
        act: impl FnOnce(&Document<'_>) -> Result<T, EventError>,
    ) -> PyResult<T> {
        let mut flattener = Flattener::new();
        let arena = Arena::default();
        let caller = CallerParts { default_tenant: self.default_tenant.as_deref(), ..CallerParts::default() };
        let read = flattener.flatten(&self.trie, event, Validation::Full, &caller, &self.limits);
        let made = read.map_err(Unread::into_error).and_then(|flat| Document::new(&flat, &arena, &self.limits));
        let done = made.and_then(|document| act(&if old_side { document.as_before() } else { document }));
        done.map_err(|error| errors::event_error(py, &error, true).map_or_else(|other| other, PyErr::from_value))
    }
}

#[pymethods]
impl CelPrograms {
    #[new]
    #[pyo3(signature = (sources, layout, *, default_tenant, max_depth, max_event_bytes, max_cel_bytes, max_cel_depth))]
    #[allow(clippy::too_many_arguments, reason = "they are options, given by name")]
    fn new(
        py: Python<'_>,
        sources: Vec<String>,
        layout: &[u8],
        default_tenant: Option<String>,
        max_depth: usize,
        max_event_bytes: usize,
        max_cel_bytes: usize,
        max_cel_depth: usize,
    ) -> PyResult<CelPrograms> {
        guard(py, || {
            let layout = EventLayout::from_json(layout).map_err(PyValueError::new_err)?;
            let limits = Limits { max_depth, max_event_bytes, max_cel_bytes, max_cel_depth, ..Limits::default() };
            let compile = |source: &String| {
                let program = cel::compile(source, &limits).map_err(|error| error.to_string())?;
                Executable::new(Arc::new(program))
            };
            let mut executables = Vec::with_capacity(sources.len());
            for (index, source) in sources.iter().enumerate() {
                let made = compile(source).map_err(|reason| {
                    let error = SubscriptionError {
                        kind: SubscriptionErrorKind::Cel,
                        place: "cel".into(),
                        reason,
                        subscription_id: None,
                        position: None,
                    };
                    errors::subscription_error(py, &error, index).map_or_else(|other| other, PyErr::from_value)
                });
                executables.push(made?);
            }
            Ok(CelPrograms { executables, trie: PathTrie::builder(Arc::new(layout)).build(), default_tenant, limits })
        })
    }

    /// Evaluate each for an event, or for its old side (`data` := `before`, `before` := null).
    ///
    /// Returns:
    ///     For each the verdict, the reason of an error, the same in words, and the cost units used.
    ///
    /// Raises:
    ///     EventError: the event cannot be read.
    #[pyo3(signature = (event, budget, old_side=false))]
    fn evaluate(&self, py: Python<'_>, event: &[u8], budget: u64, old_side: bool) -> PyResult<Vec<ProgramResult>> {
        guard(py, || {
            self.with(py, event, old_side, |document| {
                let mut scratch = EvaluationScratch::default();
                let mut tell = |executable: &Executable| {
                    let (outcome, words) = executable.evaluate_in_words(document, budget, &mut scratch)?;
                    let words = outcome.reason.map(|_| words);
                    Ok((outcome.verdict.as_str(), outcome.reason.map(cel::Reason::as_str), words, outcome.cost))
                };
                self.executables.iter().map(&mut tell).collect()
            })
        })
    }

    /// Count the programs that are true for an event. Raises EventError.
    fn count(&self, py: Python<'_>, event: &[u8], budget: u64) -> PyResult<usize> {
        guard(py, || {
            self.with(py, event, false, |document| {
                let mut scratch = EvaluationScratch::default();
                let mut count = 0;
                for executable in &self.executables {
                    count += usize::from(executable.evaluate(document, budget, &mut scratch)?.verdict == Verdict::True);
                }
                Ok(count)
            })
        })
    }
}
