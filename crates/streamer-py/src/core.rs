//! An engine: events and selections in, packed hits and changes out.

use crate::arrow::Ask;
use crate::batch::Batch;
use crate::bloom::GatheredKeys;
use crate::draft::{Draft, Reading};
use crate::errors::{self, guard};
use crate::external_cel::HostCel;
use crate::gil;
use crate::hits::{Hits, Nothing, OldSide};
use crate::hook::{Hook, call};
use crate::host::{self, Request};
use crate::interrupts;
use crate::match_objects;
use crate::memory;
use crate::named;
use crate::reader::RecordReader;
use crate::shared::{EventMatches, Shared};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PyString};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use streamer_core::cel::{Cache, Error, Verdict, compile, remarks};
use streamer_core::engine::file::mapped;
use streamer_core::engine::state::telemetry;
use streamer_core::engine::{
    CostClass, Engine, Matched, Options, PartitionName, Phase1, ReadSubscription, Select, Selection, SnapshotFault, WriteMode,
    identity, is_suspect, lint, plan, selective,
};
use streamer_core::error::{EventCode, Ignored};
use streamer_core::flatten::Validation;
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::map::Bytes;
use streamer_core::subscriptions::normal_form::NormalForm;
use streamer_core::subscriptions::normal_form::{Path, Root};
use streamer_core::subscriptions::topics::TopicDialect;
use streamer_core::subscriptions::{and_cel, and_groups, normal_form};

/// The subscriptions of one engine and the index over them.
///
/// Thread-safe: readers are lock-free, writers queue. A panic inside becomes an `InternalError`, and the core stays
/// usable.
///
/// Args:
///     layout: the JSON text of `EventLayout.to_dict()`.
///     lazy: check only the parts of an event that are walked.
///     cache_size: how many compiled CEL programs to keep for reuse.
///     soft_delete: the names down to the field of `data` that flags a document as deleted.
///     bloom: `fp_rate` and `initial_capacity` of `BloomOptions`; None leaves phase 1 out.
///     portable: the host evaluates the CEL of subscriptions that do not choose an evaluator.
///     seed: the seed of all hashes, from a snapshot; None for a random one.
///     stream: reads events that are messages, each of which needs those before it.
///
/// Raises:
///     ValueError: a layout that cannot be.
#[pyclass(frozen, subclass, weakref, module = "streamer._native")]
pub struct Core {
    pub shared: Arc<Shared>,
    pub reading: Arc<Reading>,
    pub hook: Arc<Hook>,
    nothing: Nothing,
}

impl Core {
    /// Drop the compiled programs that are unused after a change of this many subscriptions.
    fn forget_programs(&self, subscriptions: usize) {
        if memory::is_large(subscriptions) {
            self.reading.programs.forget_unused();
        }
    }
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (host, layout, *, default_tenant, topic_dialect, lazy, soft_delete, max_depth, max_event_bytes,
                        max_subscription_bytes, max_conditions, max_alternatives, max_pattern_states,
                        max_regexp_size, max_conjunctions, max_cel_bytes, max_cel_depth, cel_budget, cache_size,
                        allow_unindexed, bloom, portable, seed=None, stream=None))]
    #[allow(clippy::too_many_arguments, reason = "they are options, given by name")]
    fn new(
        py: Python<'_>,
        host: Py<PyAny>,
        layout: &[u8],
        default_tenant: Option<&str>,
        topic_dialect: &str,
        lazy: bool,
        soft_delete: Option<Vec<String>>,
        max_depth: usize,
        max_event_bytes: usize,
        max_subscription_bytes: usize,
        max_conditions: usize,
        max_alternatives: usize,
        max_pattern_states: usize,
        max_regexp_size: usize,
        max_conjunctions: usize,
        max_cel_bytes: usize,
        max_cel_depth: usize,
        cel_budget: u64,
        cache_size: usize,
        allow_unindexed: bool,
        bloom: Option<(f64, usize)>,
        portable: bool,
        seed: Option<u64>,
        stream: Option<Py<RecordReader>>,
    ) -> PyResult<Core> {
        guard(py, || {
            let layout = Arc::new(EventLayout::from_json(layout).map_err(PyValueError::new_err)?);
            let limits = Limits {
                max_depth,
                max_event_bytes,
                max_subscription_bytes,
                max_conditions,
                max_alternatives,
                max_pattern_states,
                max_regexp_size,
                max_conjunctions,
                max_cel_bytes,
                max_cel_depth,
                cel_budget,
            };
            let topic_dialect = topic_dialect_of(topic_dialect)?;
            let hook: Arc<Mutex<Option<Py<PyAny>>>> = Arc::default();
            let hooked = hook.clone();
            let options = Options {
                layout: layout.clone(),
                default_tenant: default_tenant.map(Box::from),
                topic_dialect,
                validation: if lazy { Validation::Lazy } else { Validation::Full },
                limits: limits.clone(),
                allow_unindexed,
                bloom: bloom.map(|(fp_rate, initial_capacity)| Phase1 { fp_rate, initial_capacity }),
                soft_delete: soft_delete.as_ref().map(|names| Path::new(Root::Data, names)),
                external_cel: Some(Arc::new(HostCel { host: host.clone_ref(py) })),
                seed,
                ask: Some(interrupts::goes_on),
                release_gil: Some(Arc::new(|act| gil::with(|py| gil::released(py, act)))),
                give_back: Some(memory::give_back),
                before_publish: Some(Arc::new(move || call(&hooked))),
                ..Options::default()
            };
            let shared = Shared::new(Engine::new(options), host, stream);
            let programs = Cache::new(cache_size);
            let default_tenant = default_tenant.map(Box::from);
            let reading = Reading { default_tenant, topic_dialect, limits, layout, programs, external_cel: portable };
            Ok(Core { shared: Arc::new(shared), reading: Arc::new(reading), hook, nothing: Nothing::default() })
        })
    }

    /// Load the content of a snapshot, or only the sections with these names, into an empty core.
    ///
    /// Args:
    ///     checksum: the checksum of header and directory, as the caller has read them.
    ///
    /// Raises:
    ///     SnapshotError: its directory is damaged, or not the one with this checksum.
    ///     OSError: it cannot be read.
    #[pyo3(signature = (path, checksum, collections))]
    fn open(
        &self,
        py: Python<'_>,
        path: PathBuf,
        checksum: &[u8],
        collections: Option<HashSet<(String, String)>>,
    ) -> PyResult<()> {
        guard(py, || {
            let reading = self.reading.clone();
            let read = Arc::new(move |text: &[u8]| reading.read(text, text, None));
            let is_wanted = |tenant: &str, collection: &str| {
                collections.as_ref().is_none_or(|wanted| wanted.contains(&(tenant.to_owned(), collection.to_owned())))
            };
            let name = path.to_string_lossy();
            let open =
                || -> std::io::Result<_> { Ok(self.shared.engine.open(&name, Bytes::map(&path)?, checksum, read, is_wanted)) };
            gil::released(py, open)?.map_err(|fault: SnapshotFault| errors::snapshot_error(py, &fault))
        })
    }

    /// Compile the lines of a section for a snapshot whose images have *seed*; None if that is not worth it.
    #[pyo3(signature = (lines, seed))]
    fn image<'py>(&self, py: Python<'py>, lines: &[u8], seed: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        guard(py, || {
            let reading = self.reading.clone();
            let read: ReadSubscription = Arc::new(move |text: &[u8]| reading.read(text, text, None));
            let image = gil::released(py, || mapped::image(lines, &read, seed));
            match image {
                Ok(image) => Ok(image.map(|image| PyBytes::new(py, &image))),
                Err(error) => Err(PyErr::from_value(errors::subscription_error(py, &error, None)?)),
            }
        })
    }

    /// Read all of a snapshot now, so that no later event or write can find damage.
    fn open_sections(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || {
            gil::released(py, || self.shared.engine.open_sections());
            Ok(())
        })
    }

    fn __len__(&self) -> usize {
        self.shared.engine.len()
    }

    fn __contains__(&self, py: Python<'_>, subscription_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        guard(py, || match subscription_id.cast::<PyString>() {
            Ok(id) => Ok(id.to_str().is_ok_and(|id| self.shared.engine.get(id).is_some())),
            Err(_) => Ok(false),
        })
    }

    /// Return a subscription as it is kept, or None.
    fn source<'py>(&self, py: Python<'py>, subscription_id: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        guard(py, || {
            let entry = subscription_id.to_str().ok().and_then(|id| self.shared.engine.get(id));
            Ok(entry.map(|(_, record)| host::source_of(py, &record)))
        })
    }

    /// Return how a subscription is found and decided, or None for an unknown id.
    ///
    /// Args:
    ///     narrowing: the part of an expression that cel-python evaluates by which the index may narrow it.
    #[pyo3(signature = (subscription_id, narrowing=None))]
    fn plan_in_words<'py>(
        &self,
        py: Python<'py>,
        subscription_id: &Bound<'_, PyString>,
        narrowing: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        guard(py, || {
            let entry = subscription_id.to_str().ok().and_then(|id| self.shared.engine.get(id));
            let Some((_, record)) = entry else { return Ok(None) };
            // An accepted subscription parses again.
            let Ok(mut addition) = self.reading.read(&record.conditions(), &record.text(), None) else { return Ok(None) };
            if let Some(program) = narrowing.and_then(|source| compile(source, &self.reading.limits).ok()) {
                and_cel(&mut addition.form, &program, &self.reading.limits);
            }
            let plan = plan(&addition.form);
            let is_exact = addition.program.is_none() && !addition.external_cel && !addition.open_groups;
            let cel = addition.program.as_ref().map(|program| &*program.program().source);
            let result = PyDict::new(py);
            result.set_item("tenant", &*addition.tenant)?;
            result.set_item("collection", addition.collection.as_deref().unwrap_or("*"))?;
            result.set_item("alternatives", plan.alternatives)?;
            result.set_item("pattern", plan.pattern)?;
            result.set_item("access", plan.access)?;
            result.set_item("keys", plan.keys.iter().map(|key| PyBytes::new(py, key)).collect::<Vec<_>>())?;
            result.set_item("cel", cel)?;
            result.set_item("is_portable", addition.external_cel)?;
            result.set_item("open_groups", addition.open_groups)?;
            let cost = match plan.cost {
                CostClass::Keyed => "keyed",
                CostClass::Indexed => "indexed",
                CostClass::Unindexed => "unkeyed",
            };
            result.set_item("cost", cost)?;
            result.set_item("found_by", accesses(&addition.form, is_exact))?;
            Ok(Some(result))
        })
    }

    /// Return the findings about a subscription, or None for an unknown id.
    ///
    /// Args:
    ///     narrowing: see `plan_in_words`.
    ///     constant: the verdict of an expression that the host evaluates, if it is the same for every event.
    #[pyo3(signature = (subscription_id, narrowing=None, constant=None))]
    fn lint_in_words<'py>(
        &self,
        py: Python<'py>,
        subscription_id: &Bound<'_, PyString>,
        narrowing: Option<&str>,
        constant: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        guard(py, || {
            let (reading, limits) = (&self.reading, &self.reading.limits);
            let entry = subscription_id.to_str().ok().and_then(|id| self.shared.engine.get(id));
            let Some((_, record)) = entry else { return Ok(None) };
            // An accepted subscription parses again.
            let Ok(subscription) = reading.parse(&record.conditions()) else { return Ok(None) };
            let Ok(program) = reading.program(&subscription) else { return Ok(None) };
            let form = normal_form(&subscription, limits);
            let mut whole = form.clone();
            let narrowing = narrowing.and_then(|source| compile(source, limits).ok());
            let mut is_exact = and_groups(&mut whole, &subscription, limits);
            let expression = program.as_ref().map(|program| &**program.program()).or(narrowing.as_ref());
            if let Some(program) = expression {
                is_exact &= and_cel(&mut whole, program, limits);
            }
            let has_more = expression.is_some() || !subscription.groups.is_empty();
            let suspect = has_more && is_suspect(&subscription, &whole, expression);
            let constant = match (&program, constant) {
                (Some(program), _) => program.constant(self.shared.engine.cel_budget()),
                (None, word) => Verdict::ALL.into_iter().find(|verdict| Some(verdict.as_str()) == word),
            };
            let remarks = program.iter().flat_map(|program| remarks(&program.program().source, limits)).map(|remark| {
                let Error { line, column, reason } = remark.what;
                (remark.code, format!("cel: {reason} (line {line}, column {column})"))
            });
            let is_portable = reading.is_external(&subscription);
            let finding = lint(&subscription, &form, constant);
            let findings: Vec<_> = finding.map(|finding| (finding.code, finding.reason)).into_iter().chain(remarks).collect();
            let result = PyDict::new(py);
            result.set_item("findings", findings)?;
            result.set_item("is_suspect", suspect)?;
            result.set_item("identity", identity(&subscription, &form))?;
            result.set_item("is_portable", is_portable)?;
            let (collection, tenant) = (subscription.collection.as_deref().unwrap_or("*"), &*subscription.tenant);
            result.set_item("partition", (tenant, collection))?;
            result.set_item("found_by", accesses(&whole, is_exact && !is_portable))?;
            Ok(Some(result))
        })
    }

    /// Return ids and subscriptions that satisfy every criterion, in order of adding.
    #[pyo3(signature = (ids, gateway_id, tenant, collection))]
    fn sources<'py>(
        &self,
        py: Python<'py>,
        ids: Option<Vec<String>>,
        gateway_id: Option<&str>,
        tenant: Option<&str>,
        collection: Option<&str>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        guard(py, || {
            let ids: Option<Vec<&str>> = ids.as_ref().map(|ids| ids.iter().map(String::as_str).collect());
            let selection = Selection { ids: ids.as_deref(), gateway_id, tenant, collection };
            let entries = self.shared.engine.select(&selection);
            Ok(entries.into_iter().map(|(_, record)| (record.id().to_owned(), host::source_of(py, &record))).collect())
        })
    }

    /// Remove the subscriptions that satisfy every criterion, and return the ids in order of adding.
    #[pyo3(signature = (ids, gateway_id, tenant, collection))]
    fn discard(
        &self,
        py: Python<'_>,
        ids: Option<Vec<String>>,
        gateway_id: Option<&str>,
        tenant: Option<&str>,
        collection: Option<&str>,
    ) -> PyResult<Vec<String>> {
        guard(py, || {
            let ids: Option<Vec<&str>> = ids.as_ref().map(|ids| ids.iter().map(String::as_str).collect());
            let selection = Selection { ids: ids.as_deref(), gateway_id, tenant, collection };
            let changes = gil::released(py, || self.shared.engine.remove(&selection));
            let ids: Vec<String> = changes.removed.iter().map(|record| record.id().to_owned()).collect();
            drop(changes);
            self.forget_programs(ids.len());
            Ok(ids)
        })
    }

    /// Begin to take subscriptions in.
    fn draft(&self) -> Draft {
        Draft::new(self.shared.clone(), self.reading.clone())
    }

    /// Write and empty a draft. With errors and not *skip*, change only the draft and return the errors.
    #[pyo3(signature = (draft, mode, skip, among=None))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        draft: &Bound<'py, Draft>,
        mode: &str,
        skip: bool,
        among: Option<HashSet<String>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        guard(py, || {
            let mode = match mode {
                "add" => WriteMode::Add,
                "replace" => WriteMode::Replace,
                "apply" => WriteMode::Apply,
                _ => return Err(PyValueError::new_err("mode: expected add, replace or apply")),
            };
            let draft = draft.get().take();
            let (changes, ids) = gil::released(py, || {
                let ids: Vec<Box<str>> =
                    (0..draft.len()).map(|at| draft.get(at).map_or_else(Box::default, |addition| addition.id.clone())).collect();
                (self.shared.engine.write_among(draft, mode, skip, among.as_ref()), ids)
            });
            let (changes, errors) = match changes {
                Ok(mut changes) => {
                    let errors = std::mem::take(&mut changes.errors);
                    (changes, errors)
                }
                Err(errors) => (streamer_core::engine::Changes::default(), errors),
            };
            let named = |positions: &mut dyn Iterator<Item = usize>| -> PyResult<Bound<'py, PyList>> {
                PyList::new(py, positions.filter_map(|at| ids.get(at)).map(|id| PyString::new(py, id)).collect::<Vec<_>>())
            };
            let errors = errors.iter().map(|(at, error)| Ok((*at, errors::subscription_error(py, error, *at)?)));
            let result = PyDict::new(py);
            result.set_item("added", named(&mut changes.added.iter().map(|(at, _)| *at))?)?;
            result.set_item("replaced", named(&mut changes.replaced.iter().map(|(at, _)| *at))?)?;
            result.set_item("unchanged", named(&mut changes.unchanged.iter().copied())?)?;
            result.set_item("removed", PyList::new(py, changes.removed.iter().map(|record| PyString::new(py, record.id())))?)?;
            result.set_item("errors", errors.collect::<PyResult<Vec<_>>>()?)?;
            let many = ids.len() + changes.removed.len();
            drop((changes, ids));
            self.forget_programs(many);
            memory::after(py, many);
            Ok(result)
        })
    }

    /// Return only the ids, in no promised order. Raises EventError.
    #[pyo3(signature = (event, tenant=None, collection=None))]
    fn match_ids<'py>(
        &self,
        py: Python<'py>,
        event: &Bound<'py, PyAny>,
        tenant: Option<&Bound<'_, PyAny>>,
        collection: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        guard(py, || {
            let (tenant, collection) = self.shared.names(tenant, collection)?;
            let mut open = self.shared.open();
            let text = open.unless(py, self.shared.text(event))?;
            let request = Request { text: &text, tenant, collection };
            self.shared.find_event(py, &self.shared.engine.version(), &request, &mut open, |matched| {
                let ids = self.shared.ids(py, matched.certain)?;
                for (slot, _) in matched.others {
                    ids.append(host::id_of(py, &*self.shared.record(*slot)?))?;
                }
                Ok(ids)
            })
        })
    }

    /// Return only how many match. Raises EventError.
    #[pyo3(signature = (event, tenant=None, collection=None))]
    fn match_count(
        &self,
        py: Python<'_>,
        event: &Bound<'_, PyAny>,
        tenant: Option<&Bound<'_, PyAny>>,
        collection: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        guard(py, || {
            let (tenant, collection) = self.shared.names(tenant, collection)?;
            let mut open = self.shared.open();
            let text = open.unless(py, self.shared.text(event))?;
            let request = Request { text: &text, tenant, collection };
            let count = |matched: &Matched<'_>| Ok(matched.certain.len() + matched.others.len());
            self.shared.find_event(py, &self.shared.engine.version(), &request, &mut open, count)
        })
    }

    /// Return whether any subscription matches. Raises EventError.
    #[pyo3(signature = (event, tenant=None, collection=None))]
    fn matches_any(
        &self,
        py: Python<'_>,
        event: &Bound<'_, PyAny>,
        tenant: Option<&Bound<'_, PyAny>>,
        collection: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        guard(py, || {
            let (tenant, collection) = self.shared.names(tenant, collection)?;
            let mut open = self.shared.open();
            let text = open.unless(py, self.shared.text(event))?;
            let request = Request { text: &text, tenant, collection };
            let any = |matched: &Matched<'_>| Ok(!matched.certain.is_empty() || !matched.others.is_empty());
            self.shared.find_event(py, &self.shared.engine.version(), &request, &mut open, any)
        })
    }

    /// Match one event. Raises EventError.
    #[pyo3(name = "match", signature = (event, tenant=None, collection=None))]
    fn match_<'py>(
        &self,
        py: Python<'py>,
        event: &Bound<'py, PyAny>,
        tenant: Option<&Bound<'_, PyAny>>,
        collection: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || {
            let (tenant, collection) = self.shared.names(tenant, collection)?;
            let mut open = self.shared.open();
            let text = open.unless(py, self.shared.text(event))?;
            let request = Request { text: &text, tenant, collection };
            let version = self.shared.engine.version();
            let result =
                self.shared.find_event(py, &version, &request, &mut open, |matched| Ok(EventMatches::of(&version, matched)))?;
            let old_side = || OldSide::new(version.clone(), text.to_bytes(py).unbind(), tenant, collection);
            let old_side = result.needs_text().then(old_side);
            let hits = match result.is_nothing() {
                true => self.nothing.hits(py, &self.shared)?,
                false => Bound::new(py, Hits::new(&self.shared, result, old_side))?,
            };
            match_objects::matches(&hits, event)
        })
    }

    /// Match several events on one state, with the GIL released; a bad event has its error in its place.
    ///
    /// Args:
    ///     threads: how many are used, this one included.
    #[pyo3(signature = (events, tenant=None, collection=None, threads=1))]
    fn match_batch<'py>(
        &self,
        py: Python<'py>,
        events: Bound<'py, PyList>,
        tenant: Option<&str>,
        collection: Option<&str>,
        threads: usize,
    ) -> PyResult<Batch> {
        self.shared.batch(py, events, tenant, collection, threads)
    }

    /// Match the rows of Arrow arrays, with the GIL released, reading the buffers in place.
    ///
    /// Args:
    ///     threads: how many are used, this one included; with *max_matches* it is this one.
    ///     text_limit: a column of more bytes has offsets of 64 bits.
    ///     max_matches: the event that reaches this number of matches is the last one.
    ///
    /// Returns:
    ///     The batches of `ArrowMatches`.
    ///
    /// Raises:
    ///     ValueError: an array whose buffers are not those of a valid one.
    #[pyo3(signature = (chunks, tenant, collection, threads, text_limit, max_matches=None))]
    #[allow(clippy::too_many_arguments, reason = "one call for a whole array, and how it is matched")]
    fn match_columns<'py>(
        &self,
        py: Python<'py>,
        chunks: &Bound<'py, PyAny>,
        tenant: Option<&str>,
        collection: Option<&str>,
        threads: usize,
        text_limit: usize,
        max_matches: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.shared.columns(py, chunks, &Ask { tenant, collection, threads, text_limit, max_matches, is_matching: true })
    }

    /// Do the same without matching and without counting the events; the first batch is empty. Raises ValueError.
    #[pyo3(signature = (chunks, tenant, collection, threads, text_limit))]
    fn locate_columns<'py>(
        &self,
        py: Python<'py>,
        chunks: &Bound<'py, PyAny>,
        tenant: Option<&str>,
        collection: Option<&str>,
        threads: usize,
        text_limit: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.shared.columns(py, chunks, &Ask { tenant, collection, threads, text_limit, max_matches: None, is_matching: false })
    }

    /// Return the state of each filter there is.
    fn filters<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        guard(py, || {
            let states = gil::released(py, || self.shared.engine.filters());
            states.iter().map(|state| named::filter_state(py, state)).collect()
        })
    }

    /// Build a new filter next to the present one and replace it; without a filter, do not change anything.
    fn rebuild_filter(&self, py: Python<'_>, tenant: &str, collection: &str, capacity: usize, key_fp_rate: f64) -> PyResult<()> {
        let name = PartitionName { tenant: tenant.into(), collection: collection.into() };
        guard(py, || {
            gil::released(py, || self.shared.engine.rebuild_filter(&name, capacity, key_fp_rate));
            Ok(())
        })
    }

    /// Compare the samples of a filter with the live keys.
    fn measure_filter(&self, py: Python<'_>, tenant: &str, collection: &str) -> PyResult<()> {
        let name = PartitionName { tenant: tenant.into(), collection: collection.into() };
        guard(py, || {
            gil::released(py, || self.shared.engine.measure_filter(&name));
            Ok(())
        })
    }

    /// Gather the keys of these partitions, each a tenant and a collection; a missing partition has none.
    fn gathered(&self, py: Python<'_>, partitions: Vec<(String, String)>) -> PyResult<GatheredKeys> {
        let name =
            |(tenant, collection): (String, String)| PartitionName { tenant: tenant.into(), collection: collection.into() };
        let names: Vec<PartitionName> = partitions.into_iter().map(name).collect();
        guard(py, || Ok(GatheredKeys::new(gil::released(py, || self.shared.engine.gather(&names)))))
    }

    /// Return the live keys of a partition, and how many of its subscriptions have none.
    fn keys_of<'py>(&self, py: Python<'py>, tenant: &str, collection: &str) -> PyResult<(Vec<Bound<'py, PyBytes>>, usize)> {
        let name = PartitionName { tenant: tenant.into(), collection: collection.into() };
        guard(py, || {
            let (keys, (_, unkeyed)) = gil::released(py, || self.shared.engine.filter_keys(&name));
            Ok((keys.iter().map(|key| PyBytes::new(py, key)).collect(), unkeyed))
        })
    }

    /// Return the counts since the core was made, and its present sizes.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guard(py, || {
            let engine = &self.shared.engine;
            let (counters, (partitions, segments), (stores, indexes)) = (engine.counters(), engine.shape(), engine.bytes());
            let result = PyDict::new(py);
            result.set_item("events", counters.events)?;
            result.set_item("matched", counters.matched)?;
            result.set_item("unmatched", counters.unmatched)?;
            let reasons = Ignored::ALL.map(Ignored::as_str).into_iter();
            result.set_item("ignored", reasons.zip(counters.ignored).into_py_dict(py)?)?;
            result.set_item("bare", counters.bare)?;
            let words = EventCode::ALL.map(EventCode::as_str).into_iter().chain([telemetry::INTERNAL]);
            result.set_item("rejected", words.zip(counters.rejected).into_py_dict(py)?)?;
            result.set_item("uncertain", counters.uncertain)?;
            result.set_item("listed", counters.listed)?;
            result.set_item("evaluated", counters.evaluated)?;
            result.set_item("merges", counters.merges)?;
            let telemetry::Counters { matches, candidates, total, bloom, cel, .. } = counters;
            let named = [("matches", matches), ("candidates", candidates), ("total", total), ("bloom", bloom), ("cel", cel)];
            for (name, distribution) in named {
                result.set_item(name, (distribution.counts.to_vec(), distribution.sum))?;
            }
            result.set_item("partitions", partitions)?;
            result.set_item("segments", segments)?;
            let memory = engine.bytes_of_records();
            result.set_item("record_bytes", memory.records)?;
            result.set_item("text_bytes", memory.texts)?;
            result.set_item("store_bytes", stores)?;
            result.set_item("index_bytes", indexes)?;
            Ok(result)
        })
    }

    /// Print partitions, segments, buckets and matchers of at most *max_subscriptions* subscriptions.
    fn dump(&self, py: Python<'_>, max_subscriptions: usize) -> PyResult<String> {
        guard(py, || Ok(gil::released(py, || self.shared.engine.dump(max_subscriptions))))
    }

    /// Return the sizes of each partition.
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        guard(py, || self.shared.engine.partitions().iter().map(|partition| named::partition_size(py, partition)).collect())
    }

    /// Return the counts of each partition, from a sample of the events.
    fn partition_counts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        guard(py, || {
            let shares = self.shared.engine.shares();
            shares.into_iter().map(|(name, counts)| named::partition_counts(py, &name, counts)).collect()
        })
    }

    /// Set the options of phase 1 for new filters, or switch it off; existing filters keep their size.
    fn set_bloom(&self, py: Python<'_>, bloom: Option<(f64, usize)>) -> PyResult<()> {
        let phase1 = bloom.map(|(fp_rate, initial_capacity)| Phase1 { fp_rate, initial_capacity });
        guard(py, || {
            gil::released(py, || self.shared.engine.set_bloom(phase1));
            Ok(())
        })
    }

    /// Count an event that was rejected before the core read it; for a word other than an `EventCode`, as `internal`.
    fn reject(&self, code: &str) {
        self.shared.engine.telemetry().reject(EventCode::from_word(code));
    }

    /// Set the budget of a CEL program, and how many compiled programs to keep.
    fn set_cel(&self, budget: u64, cache_size: usize) {
        self.shared.engine.set_cel_budget(budget);
        self.reading.programs.resize(cache_size);
    }

    /// Return how many errors of CEL there were, by reason.
    fn cel_errors(&self) -> Vec<(&'static str, u64)> {
        self.shared.engine.cel_errors().map(|(reason, count)| (reason.as_str(), count)).collect()
    }

    /// Return the subscriptions with the most errors of CEL, the worst first.
    fn failing<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.shared.engine.failing(most).iter().map(|each| named::failing(py, each)).collect()
    }

    /// Return the counts of the cache of CEL programs, and its size.
    fn programs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        named::program_counts(py, &self.reading.programs)
    }
}

/// The topic dialect of a name that Python has checked. Raises ValueError.
pub fn topic_dialect_of(name: &str) -> PyResult<TopicDialect> {
    TopicDialect::of(name).ok_or_else(|| PyValueError::new_err("unknown topic dialect"))
}

/// A value, or values, that match at a place.
#[derive(IntoPyObject)]
enum Sought {
    Value(String),
    Between(f64, f64),
}

/// The rest of an alternative, and its places, each with the values that match there; None for any value.
type Access = (&'static str, Vec<(String, Vec<Option<Sought>>)>);

fn accesses(form: &NormalForm, is_exact: bool) -> Vec<Access> {
    let sought = |select| match select {
        Select::Any => None,
        Select::Value(text) => Some(Sought::Value(text)),
        Select::Between(low, high) => Some(Sought::Between(low, high)),
    };
    let conditions = |conditions: Vec<(String, Vec<Select>)>| {
        conditions.into_iter().map(|(place, any_of)| (place, any_of.into_iter().map(sought).collect())).collect()
    };
    selective(form, is_exact)
        .into_iter()
        .map(|alternative| (alternative.rest.as_str(), conditions(alternative.conditions)))
        .collect()
}
