//! CEL programs that the host evaluates: those of the portable evaluator, on the candidates that the index leaves over.
//!
//! ```text
//!   candidate ─► GIL taken ─► host.read(event), once for an event ─► host.verdict(compiled, event, old) ─► Verdict
//! ```
//!
//! What the host raises (an interrupt, never an error of CEL) waits in the thread until its event is done, and is raised then.
//! Nothing that matches can hand an error of Python on. What a handler of a signal raises waits there while the event is given
//! up.

use crate::gil;
use crate::host::{self, Kept};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use streamer_core::cel::Verdict;
use streamer_core::engine::{Event, ExternalCel, Record, Side};

thread_local! {
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static TEAM: RefCell<Option<Team>> = const { RefCell::new(None) };
}

/// The threads of a call, of which this is one.
#[derive(Clone)]
struct Team {
    stop: Arc<AtomicBool>,
    /// Whether this is the caller's, which alone hears of signals.
    is_caller: bool,
}

/// While it lives, this thread works in a team; dropped, in the one before.
pub struct InTeam(Option<Team>);

impl InTeam {
    pub fn new(stop: &Arc<AtomicBool>, is_caller: bool) -> InTeam {
        InTeam(TEAM.replace(Some(Team { stop: stop.clone(), is_caller })))
    }
}

impl Drop for InTeam {
    fn drop(&mut self) {
        TEAM.set(self.0.take());
    }
}

/// Whether a match goes on that takes long. Handlers of signals run in here, and may match and write.
pub fn goes_on() -> bool {
    if has_raised() {
        return false;
    }
    match TEAM.with_borrow(Clone::clone) {
        Some(team) if team.stop.load(Ordering::Relaxed) => false,
        Some(team) if !team.is_caller => true,
        _ => gil::look_for_signals().map_err(|error| RAISED.set(Some(error))).is_ok(),
    }
}

/// Whether the host raised anything in this thread that was not asked for yet.
pub fn has_raised() -> bool {
    RAISED.with_borrow(Option::is_some)
}

/// What the host raised in this thread since this was asked last.
pub fn raised() -> Option<PyErr> {
    RAISED.with(RefCell::take)
}

/// Asks the host.
pub struct HostCel {
    pub host: Py<PyAny>,
}

impl ExternalCel for HostCel {
    fn verdict(&self, record: &Record, event: &Event<'_>, side: Side, kept: &mut Option<Box<dyn Any>>) -> Option<Verdict> {
        if has_raised() {
            return None;
        }
        let asked = gil::held(|py| self.ask(py, record, event, side, kept));
        asked.map_err(|error| RAISED.set(Some(error))).ok()
    }
}

impl HostCel {
    fn ask(
        &self,
        py: Python<'_>,
        record: &Record,
        event: &Event<'_>,
        side: Side,
        kept: &mut Option<Box<dyn Any>>,
    ) -> PyResult<Verdict> {
        let host = self.host.bind(py);
        let read = match kept.as_ref().and_then(|kept| kept.downcast_ref::<Py<PyAny>>()) {
            Some(read) => read.bind(py).clone(),
            None => {
                let read = host.call_method1("read", (PyBytes::new(py, event.text), event.tenant, event.collection))?;
                *kept = Some(Box::new(read.clone().unbind()));
                read
            }
        };
        let compile = || Ok::<_, PyErr>(host.call_method1("compile", (host::source_of(py, record),))?.unbind());
        let compiled = match record.host.get_or_init(|| Kept::host(None)).downcast_ref::<Kept>() {
            Some(kept) => gil::once(&kept.compiled, compile)?.bind(py).clone(),
            None => compile()?.into_bound(py),
        };
        let verdict = host.call_method1("verdict", (compiled, read, side == Side::Old))?.cast_into::<PyString>()?;
        Ok(match verdict.to_str()? {
            "true" => Verdict::True,
            "false" => Verdict::False,
            "unknown" => Verdict::Unknown,
            _ => Verdict::Error,
        })
    }
}
