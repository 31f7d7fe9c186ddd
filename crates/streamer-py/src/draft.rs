//! Drafts of subscriptions: parsed here, then written at once.

use crate::errors::guard;
use crate::gil;
use crate::host::{self, HostData, flags};
use crate::shared::Shared;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use streamer_core::cel::{Cache, Executable, compile};
use streamer_core::engine::{self, Addition, Host, flags as core_flags};
use streamer_core::error::SubscriptionError;
use streamer_core::layout::{EventLayout, Pointer};
use streamer_core::limits::Limits;
use streamer_core::subscriptions::canonical as texts;
use streamer_core::subscriptions::groups::FilterNode;
use streamer_core::subscriptions::normal_form::{Mode, NormalForm, Path, Root};
use streamer_core::subscriptions::parse::{CelEvaluator, Defaults, OnUnknown};
use streamer_core::subscriptions::topics::TopicDialect;
use streamer_core::subscriptions::{Subscription, and_cel, and_groups, normal_form};

/// How subscriptions are read.
pub struct Reading {
    pub default_tenant: Option<Box<str>>,
    pub topic_dialect: TopicDialect,
    pub limits: Limits,
    pub layout: Arc<EventLayout>,
    pub programs: Cache,
    /// Whether the host evaluates the CEL of subscriptions that do not choose an evaluator.
    pub external_cel: bool,
}

impl Reading {
    /// Read a subscription.
    pub fn parse(&self, text: &[u8]) -> Result<Subscription, SubscriptionError> {
        let defaults = Defaults { tenant: self.default_tenant.as_deref(), topic_dialect: self.topic_dialect };
        Subscription::parse(text, defaults, &self.limits)
    }

    /// Whether the CEL of a subscription is the host's to evaluate.
    pub fn is_external(&self, subscription: &Subscription) -> bool {
        let evaluator = if self.external_cel { CelEvaluator::Portable } else { CelEvaluator::Native };
        subscription.cel.is_some() && subscription.cel_evaluator.unwrap_or(evaluator) == CelEvaluator::Portable
    }

    /// Compile the CEL of a subscription, if it is evaluated here.
    pub fn program(&self, subscription: &Subscription) -> Result<Option<Arc<Executable>>, SubscriptionError> {
        let Some(source) = subscription.cel.as_deref().filter(|_| !self.is_external(subscription)) else { return Ok(None) };
        self.programs.get(source, &self.limits).map(Some).map_err(|error| SubscriptionError {
            subscription_id: Some(subscription.id.to_string()),
            ..SubscriptionError::cel(error)
        })
    }

    /// Read, compile and lower a subscription.
    pub fn read(&self, text: &[u8], stored: &[u8], host: Option<Host>) -> Result<Addition, SubscriptionError> {
        let subscription = self.parse(text)?;
        let program = self.program(&subscription)?;
        let external_cel = self.is_external(&subscription);
        let mut form = normal_form(&subscription, &self.limits);
        let mut bits = 0;
        if subscription.on_unknown == OnUnknown::Skip {
            bits |= core_flags::SKIP;
        }
        if subscription.transitions {
            bits |= core_flags::TRANSITIONS;
        }
        // Check this before CEL and groups join the form: one that is never true does not leave a condition in it.
        let in_cel = program.as_ref().is_some_and(|program| program.program().mentions_before());
        let in_groups = subscription.groups.iter().any(FilterNode::mentions_before);
        if in_cel || in_groups || mentions_before(&form, self.layout.before.pointers()) {
            bits |= core_flags::BEFORE;
        }
        let has_cel = subscription.cel.is_some() || !subscription.groups.is_empty();
        let open_groups = !and_groups(&mut form, &subscription, &self.limits);
        // A program has ten times the size of its text. Drop it if the form contains all of it.
        let program = program.filter(|program| !and_cel(&mut form, program.program(), &self.limits));
        if program.is_some() || open_groups {
            bits |= core_flags::CEL;
        }
        // `external` adds the host's findings about it.
        if external_cel {
            bits |= core_flags::CEL;
        }
        // The labels of an object are not in its text.
        if subscription.has_labels || host.is_some() {
            bits |= flags::LABELS;
        }
        let addition = Addition {
            id: subscription.id,
            gateway_id: subscription.gateway_id,
            tenant: subscription.tenant,
            collection: subscription.collection,
            form,
            flags: bits,
            has_cel,
            open_groups,
            program,
            external_cel,
            text: stored.into(),
            same_as: None,
            conditions: (stored != text).then(|| text.into()),
            host,
        };
        Ok(addition)
    }
}

/// Whether any condition uses the document before: a filter, or a pattern at the layout's place of `before`.
fn mentions_before(form: &NormalForm, pointers: &[Pointer]) -> bool {
    let looks = |path: &Path| match path.root {
        Root::Before => true,
        Root::Raw => pointers.iter().any(|pointer| path.names.starts_with(pointer)),
        _ => false,
    };
    form.conjunctions
        .iter()
        .flat_map(|conjunction| &conjunction.clauses)
        .any(|clause| clause.mode == Mode::Changed || looks(&clause.path))
        || form.verify.as_ref().is_some_and(|verify| verify.paths.iter().any(|(path, _)| looks(path)))
}

/// A text to parse. If the object has more than JSON can express, also the name to store instead, and the object.
type SourceTexts<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, Option<Host>);

/// A position, the stored subscription with the same id, and its stored name.
type Respelled<'py> = (usize, Bound<'py, PyAny>, Bound<'py, PyBytes>);

/// Subscriptions to add to a core, numbered from 0. For one thread.
#[pyclass(frozen, module = "streamer._native")]
pub struct Draft {
    shared: Arc<Shared>,
    reading: Arc<Reading>,
    draft: Mutex<engine::Draft>,
}

impl Draft {
    pub fn new(shared: Arc<Shared>, reading: Arc<Reading>) -> Draft {
        Draft { shared, reading, draft: Mutex::default() }
    }

    fn locked<T>(&self, act: impl FnOnce(&mut engine::Draft) -> T) -> T {
        act(&mut self.draft.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Take the content out.
    pub fn take(&self) -> engine::Draft {
        self.locked(std::mem::take)
    }
}

#[pymethods]
impl Draft {
    fn __len__(&self) -> usize {
        self.locked(|draft| draft.len())
    }

    /// Parse JSON texts and compile their CEL, with the GIL released.
    ///
    /// A source that has more than JSON is a text to parse, a unique name to keep instead, and the object.
    ///
    /// Returns:
    ///     The positions of those whose CEL is the host's: it refuses them, or calls `external`.
    fn extend<'py>(&self, py: Python<'py>, sources: &Bound<'py, PyList>) -> PyResult<Vec<usize>> {
        guard(py, || {
            let mut texts: Vec<SourceTexts<'py>> = Vec::with_capacity(sources.len());
            for source in sources {
                texts.push(match source.cast_into::<PyBytes>() {
                    Ok(text) => (text, None, None),
                    Err(other) => {
                        let (text, name, object): (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Py<PyAny>) =
                            other.into_inner().cast_into::<PyTuple>()?.extract()?;
                        (text, Some(name), Some(HostData::host(Some(object))))
                    }
                });
            }
            let parts: Vec<(&[u8], &[u8], Option<Host>)> = texts
                .iter_mut()
                .map(|(text, name, host)| (text.as_bytes(), name.as_ref().unwrap_or(text).as_bytes(), host.take()))
                .collect();
            let reading = &*self.reading;
            // Parse without the lock: a thread that waits for it may have the GIL.
            let mut draft = self.take();
            let end = draft.len();
            let draft = gil::released(py, || {
                for (text, stored, host) in parts {
                    draft.push(reading.read(text, stored, host).map_err(Box::new));
                }
                draft
            });
            let is_external = |at: &usize| draft.get(*at).is_some_and(|addition| addition.external_cel);
            let external = (end..draft.len()).filter(is_external).collect();
            self.locked(|own| *own = draft);
            Ok(external)
        })
    }

    /// Add the host's findings about a source whose CEL it evaluates.
    ///
    /// Args:
    ///     narrowing: an expression that is true for every event for which the source's is: the index uses it.
    #[pyo3(signature = (position, mentions_before, narrowing=None))]
    fn external(&self, py: Python<'_>, position: usize, mentions_before: bool, narrowing: Option<&str>) -> PyResult<()> {
        guard(py, || {
            let limits = &self.reading.limits;
            // An expression that cannot be compiled here, because of too many brackets, does not narrow the search.
            let narrowing = narrowing.and_then(|source| compile(source, limits).ok());
            self.locked(|draft| {
                draft.explain(position, mentions_before, |form| {
                    if let Some(program) = &narrowing {
                        // Exact or not: the host evaluates the whole of it.
                        and_cel(form, program, limits);
                    }
                });
            });
            Ok(())
        })
    }

    /// Put an error of the host in the place of a source.
    #[pyo3(signature = (position, subscription_id))]
    fn refuse(&self, position: usize, subscription_id: Option<String>) {
        let error = SubscriptionError { subscription_id, ..SubscriptionError::new("", "refused by the host") };
        self.locked(|draft| draft.refuse(position, error));
    }

    /// Return, for each id that is stored with another text, its position, the subscription and its stored name.
    fn held_otherwise<'py>(&self, py: Python<'py>) -> PyResult<Vec<Respelled<'py>>> {
        guard(py, || {
            self.locked(|draft| {
                let mut equal = Vec::new();
                for at in 0..draft.len() {
                    if let Some(addition) = draft.get(at)
                        && let Some((_, record)) = self.shared.engine.get(&addition.id)
                        && *record.text() != *addition.text
                    {
                        equal.push((at, host::source_of(py, &record), PyBytes::new(py, &record.text())));
                    }
                }
                Ok(equal)
            })
        })
    }

    /// Return the id of a source that was read.
    fn id(&self, position: usize) -> Option<String> {
        self.locked(|draft| draft.get(position).map(|addition| addition.id.to_string()))
    }

    /// Return a source that was read.
    fn source<'py>(&self, py: Python<'py>, position: usize) -> Option<Bound<'py, PyAny>> {
        self.locked(|draft| draft.get(position).map(|addition| host::source(py, &addition.text, addition.host.as_ref())))
    }

    /// Mark a source as equal to the subscription stored as *name*: while that exists, `apply` keeps it.
    fn keep(&self, position: usize, name: &[u8]) {
        self.locked(|draft| draft.say_same(position, name));
    }
}

/// Tenant, collection and text of a subscription as a snapshot has it.
type Written<'py> = (Option<String>, Option<String>, Bound<'py, PyBytes>);

/// Return tenant, collection and text of an accepted subscription, as a snapshot has it; None for one that Python writes.
#[pyfunction]
pub fn canonical<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Option<Written<'py>>> {
    guard(py, || {
        let made = std::str::from_utf8(text).ok().and_then(texts::canonical);
        Ok(made.map(|made| (made.tenant, made.collection, PyBytes::new(py, made.text.as_bytes()))))
    })
}
