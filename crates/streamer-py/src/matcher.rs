//! Patterns and topics under names, without subscriptions around them: the base of `Quamina` and `TopicMatcher`.
//!
//! ```text
//!   add ("vip", pattern) ─► subscription "17" of an engine for events without parts, with the NamePlace {number 17, index 4}
//!   match (event)        ─► slots ─► places ─► names[4], if number 17 still is there ─► in order of numbers, each name once
//! ```
//!
//! Names are any objects of Python. They are stored here and not with the subscriptions, so that they are released as
//! soon as they are removed, and so that the garbage collector sees them: an object may be a name in a matcher that it
//! references.
//!
//! Invariant: a subscription that can match has its name here, or was removed meanwhile. An index is reused, a number
//! never, so a match that began before a removal finds its own name or none.
//!
//! Patterns that are added one by one lie in many small segments. When enough events came since the last change to make
//! a merge worth it, the engine's thread merges them.
//!
//! Cost: in addition to `Core.match_ids`, a match looks up its name and its place in the order.

use crate::core::topic_dialect_of;
use crate::errors::{self, guard};
use crate::gil;
use crate::host::Request;
use crate::interrupts;
use crate::shared::Shared;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streamer_core::engine::{Addition, Engine, Matched, Options, Record, Selection, WriteMode};
use streamer_core::error::{SubscriptionError, SubscriptionErrorKind};
use streamer_core::flatten::{EventFields, FieldValue, Position};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::subscriptions::dialect::Dialect;
use streamer_core::subscriptions::normal_form::NormalForm;
use streamer_core::subscriptions::parse::OnUnknown;
use streamer_core::subscriptions::patterns;
use streamer_core::subscriptions::topics::{TopicDialect, TopicPattern};
use streamer_core::subscriptions::{Subscription, normal_form};

/// Whose all subscriptions and events are.
const TENANT: &str = "default";
/// Events read from other formats that are kept for reuse: one for each thread that matches at the same time.
const MOST_POOLED_FIELDS: usize = 32;
/// Arrays and elements that the flattener names by a small number keep it; others get one of their own from here on.
const INTERNED: u64 = 1 << 63;

/// The data in a subscription that leads to its name.
#[derive(Clone, Copy)]
struct NamePlace {
    number: u64,
    index: usize,
}

/// The names of all patterns and topics.
#[derive(Default)]
struct Names {
    entries: Vec<Option<(u64, Py<PyAny>)>>,
    free: Vec<usize>,
    next: u64,
    /// How many entries each name has, by its address, and how many names have several.
    uses: HashMap<usize, usize>,
    several: usize,
}

impl Names {
    fn add(&mut self, name: &Bound<'_, PyAny>) -> NamePlace {
        let uses = self.uses.entry(name.as_ptr().addr()).or_default();
        *uses += 1;
        self.several += usize::from(*uses == 2);
        let number = self.next;
        self.next += 1;
        let entry = Some((number, name.clone().unbind()));
        match self.free.pop() {
            Some(index) => {
                self.entries[index] = entry;
                NamePlace { number, index }
            }
            None => {
                self.entries.push(entry);
                NamePlace { number, index: self.entries.len() - 1 }
            }
        }
    }

    /// Remove a name. Dropping it may run Python, so the caller drops it after it has released all locks.
    fn remove(&mut self, place: &NamePlace) -> Option<Py<PyAny>> {
        let (_, name) = self.entries.get_mut(place.index)?.take_if(|(number, _)| *number == place.number)?;
        self.free.push(place.index);
        let address = name.as_ptr().addr();
        if let Some(uses) = self.uses.get_mut(&address) {
            *uses -= 1;
            self.several -= usize::from(*uses == 1);
            if *uses == 0 {
                self.uses.remove(&address);
            }
        }
        Some(name)
    }

    fn get(&self, place: &NamePlace) -> Option<&Py<PyAny>> {
        self.entries.get(place.index)?.as_ref().filter(|(number, _)| *number == place.number).map(|(_, name)| name)
    }
}

fn place_of(record: &Record) -> Option<&NamePlace> {
    record.host()?.downcast_ref()
}

/// Patterns or topics under names, without subscriptions around them; `streamer.automaton` is made of it.
///
/// Thread-safe as `Core` is. A name is any object; the same object under several texts is one name, and equal objects are two.
///
/// Args:
///     dialect: of its patterns.
///     topic_dialect: of its topic patterns.
///     max_depth: with the other limits, of its patterns; see `streamer.Limits`.
///     event_depth: `max_depth` of events.
///     event_bytes: `max_event_bytes` of events.
#[pyclass(frozen, module = "streamer._native")]
pub struct Matcher {
    shared: Shared,
    limits: Limits,
    dialect: Dialect,
    topic_dialect: TopicDialect,
    /// Both are only used under the GIL, so they are free when the process forks.
    names: Mutex<Names>,
    #[allow(clippy::vec_box, reason = "each event moves one out and back: a pointer, not the fields")]
    fields: Mutex<Vec<Box<EventFields>>>,
    /// After this many more events without a change, it is worth it to merge all segments.
    due: AtomicU64,
}

impl Matcher {
    /// Note a change: a merge costs about as much as some hundred events for each thousand patterns.
    fn changed(&self) {
        self.due.store(self.shared.engine.len() as u64 / 4 + 64, Ordering::Relaxed);
    }

    /// Note an event.
    fn matched(&self) {
        // Past 0 it wraps to the largest number, and never reaches 0 again.
        if self.due.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.engine.settle();
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The form of a pattern or a topic, and errors as Python has them: without a subscription.
    fn read(&self, text: &str, is_topic: bool) -> Result<NormalForm, SubscriptionError> {
        let (pattern, topic) = if is_topic {
            (None, Some(TopicPattern::parse(text, self.topic_dialect).map_err(|reason| SubscriptionError::new("topic", reason))?))
        } else {
            (Some(patterns::parse_text(text.as_bytes(), self.dialect, &self.limits, "")?), None)
        };
        let subscription = Subscription {
            id: Box::default(),
            gateway_id: None,
            tenant: TENANT.into(),
            collection: None,
            types: None,
            filters: Vec::new(),
            groups: Vec::new(),
            pattern,
            topic,
            cel: None,
            on_unknown: OnUnknown::Deliver,
            transitions: false,
            has_labels: false,
            cel_evaluator: None,
        };
        Ok(normal_form(&subscription, &self.limits))
    }

    /// Remove the names of these places, and drop them without a lock.
    fn forget<'p>(&self, places: impl Iterator<Item = &'p NamePlace>) {
        let mut names = self.names();
        let gone: Vec<_> = places.filter_map(|place| names.remove(place)).collect();
        drop(names);
        drop(gone);
    }

    /// The names of the matches, in the order of adding, each once.
    fn named<'py>(&self, py: Python<'py>, matched: &Matched<'_>) -> PyResult<Bound<'py, PyList>> {
        let slots = matched.certain.iter().chain(matched.others.iter().map(|(slot, _)| slot));
        let records = slots.map(|slot| self.shared.record(*slot)).collect::<PyResult<Vec<_>>>()?;
        let names = self.names();
        let named_entries = records.iter().filter_map(|record| {
            let place = place_of(record)?;
            Some((place.number, names.get(place)?.bind(py).clone()))
        });
        let mut named_entries: Vec<(u64, Bound<'py, PyAny>)> = named_entries.collect();
        let is_several = names.several > 0 && named_entries.len() > 1;
        // The rest may run Python.
        drop(names);
        if is_several {
            named_entries.sort_unstable_by_key(|(number, name)| (name.as_ptr().addr(), *number));
            named_entries.dedup_by_key(|(_, name)| name.as_ptr().addr());
        }
        named_entries.sort_unstable_by_key(|(number, _)| *number);
        PyList::new(py, named_entries.into_iter().map(|(_, name)| name))
    }

    /// Match the fields that *fill* gives.
    fn match_filled<'py>(
        &self,
        py: Python<'py>,
        fill: impl FnOnce(&mut EventFields) -> PyResult<()>,
    ) -> PyResult<Bound<'py, PyList>> {
        guard(py, || {
            self.matched();
            let mut open = self.shared.open();
            let pool = self.fields.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut fields = pool.unwrap_or_default();
            fields.clear();
            open.unless(py, fill(&mut fields))?;
            let engine = &self.shared.engine;
            let version = engine.version();
            let named = |matched: &Matched<'_>| self.named(py, matched);
            let read = &*fields;
            let result = self.shared.find(
                py,
                false,
                false,
                &mut open,
                |scratch| engine.match_fields_on(&version, read, TENANT, scratch),
                named,
            );
            let mut pool = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
            if pool.len() < MOST_POOLED_FIELDS {
                pool.push(fields);
            }
            result
        })
    }
}

#[pymethods]
impl Matcher {
    #[new]
    #[pyo3(signature = (host, *, dialect, topic_dialect, max_depth, max_event_bytes, max_conditions, max_alternatives, max_pattern_states,
                        max_regexp_size, max_conjunctions, event_depth, event_bytes))]
    #[allow(clippy::too_many_arguments, reason = "they are options, given by name")]
    fn new(
        py: Python<'_>,
        host: Py<PyAny>,
        dialect: &str,
        topic_dialect: &str,
        max_depth: usize,
        max_event_bytes: usize,
        max_conditions: usize,
        max_alternatives: usize,
        max_pattern_states: usize,
        max_regexp_size: usize,
        max_conjunctions: usize,
        event_depth: usize,
        event_bytes: usize,
    ) -> PyResult<Matcher> {
        guard(py, || {
            let limits = Limits {
                max_depth,
                max_event_bytes,
                max_conditions,
                max_alternatives,
                max_pattern_states,
                max_regexp_size,
                max_conjunctions,
                ..Limits::default()
            };
            let options = Options {
                layout: Arc::new(EventLayout::default().without_parts()),
                default_tenant: Some(TENANT.into()),
                limits: Limits { max_depth: event_depth, max_event_bytes: event_bytes, ..limits.clone() },
                // Patterns are looked for one by one: a filter before them would have the same keys.
                bloom: None,
                ask: Some(interrupts::goes_on),
                ..Options::default()
            };
            let dialect = if dialect == "strict" { Dialect::Strict } else { Dialect::EventBridge };
            let topic_dialect = topic_dialect_of(topic_dialect)?;
            let shared = Shared::new(Engine::new(options), host, None);
            Ok(Matcher {
                shared,
                limits,
                dialect,
                topic_dialect,
                names: Mutex::default(),
                fields: Mutex::default(),
                due: AtomicU64::new(0),
            })
        })
    }

    fn __len__(&self) -> usize {
        self.shared.engine.len()
    }

    /// Add names, each with the text of a pattern, or with *topics* of a topic pattern. One bad item refuses all.
    ///
    /// Returns:
    ///     A number for each, by which it is removed. Numbers are unique, and later ones are larger.
    ///
    /// Raises:
    ///     PatternError: with the path in the pattern.
    ///     SubscriptionError: a text that is not a topic pattern.
    #[pyo3(signature = (items, *, topics=false))]
    fn add(&self, py: Python<'_>, items: Vec<(Bound<'_, PyAny>, Bound<'_, PyString>)>, topics: bool) -> PyResult<Vec<u64>> {
        guard(py, || {
            let texts = items.iter().map(|(_, text)| text.to_str()).collect::<PyResult<Vec<_>>>()?;
            let read = || texts.iter().map(|text| self.read(text, topics)).collect::<Result<Vec<_>, _>>();
            let refuse = |error: &SubscriptionError| {
                errors::subscription_error(py, error, None).map_or_else(|other| other, PyErr::from_value)
            };
            let forms = gil::released(py, read).map_err(|error| refuse(&error))?;
            let mut names = self.names();
            let places: Vec<NamePlace> = items.iter().map(|(name, _)| names.add(name)).collect();
            drop(names);
            let additions = forms.into_iter().zip(&places).map(|(form, place)| {
                let addition = Addition::new(place.number.to_string(), form, b"");
                Ok(Addition { tenant: TENANT.into(), host: Some(Box::new(*place)), ..addition })
            });
            let draft = additions.collect();
            if let Err(errors) = gil::released(py, || self.shared.engine.write(draft, WriteMode::Add, false)) {
                self.forget(places.iter());
                let (_, error) = errors.into_iter().next().expect("a refused write has errors");
                let kind = if topics { SubscriptionErrorKind::Subscription } else { SubscriptionErrorKind::Pattern };
                return Err(refuse(&SubscriptionError { kind, subscription_id: None, ..error }));
            }
            self.changed();
            Ok(places.iter().map(|place| place.number).collect())
        })
    }

    /// Remove the items with these numbers, and return how many there were.
    fn remove(&self, py: Python<'_>, numbers: Vec<u64>) -> PyResult<usize> {
        guard(py, || {
            let ids: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let selection = Selection { ids: Some(&ids), ..Selection::default() };
            let changes = gil::released(py, || self.shared.engine.remove(&selection));
            self.changed();
            self.forget(changes.removed.iter().filter_map(|record| place_of(record)));
            Ok(changes.removed.len())
        })
    }

    /// Return the names of the patterns that match a JSON event, each once, in order of adding. Raises EventError.
    fn match_event<'py>(&self, py: Python<'py>, event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        guard(py, || {
            self.matched();
            let mut open = self.shared.open();
            let text = open.unless(py, self.shared.text(event))?;
            let request = Request { text: &text, tenant: None, collection: None };
            let result = self.shared.find_event(py, &self.shared.engine.version(), &request, &mut open, |matched| {
                if matched.ignored.is_some() { Ok(None) } else { self.named(py, matched).map(Some) }
            });
            let refuse = || self.shared.host.bind(py).call_method1("refuse", (event,));
            match result {
                Ok(Some(names)) => Ok(names),
                // An event that an engine ignores is not an event here; the host raises the reason.
                Ok(None) => Ok(refuse()?.cast_into()?),
                // For an event that is not a text, the host finds the place.
                Err(error) if !text.is_text() && errors::code_of(py, &error).is_some() => Err(refuse().err().unwrap_or(error)),
                Err(error) => Err(error),
            }
        })
    }

    /// Return the names of the patterns that match an event of leaves, each with path, value and array positions.
    ///
    /// Raises:
    ///     EventError: a value that is not a scalar, or leaves of two places for one value, if a pattern uses them.
    fn match_fields<'py>(&self, py: Python<'py>, fields: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.match_filled(py, |filled| {
            let mut reader = Reader { host: self.shared.host.bind(py), interned: None };
            fields.try_iter()?.try_for_each(|field| reader.read(&field?, filled))
        })
    }

    /// Return the names of the topic patterns that match a routing key, each once, in order of adding.
    ///
    /// Raises:
    ///     UnicodeEncodeError: the key contains half a surrogate pair.
    fn match_topic<'py>(&self, py: Python<'py>, key: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyList>> {
        let key = key.to_str()?;
        self.match_filled(py, |fields| {
            fields.set_topic(key);
            Ok(())
        })
    }

    /// Return how many conjunctions of patterns were looked at for all events so far.
    fn looked_at(&self) -> u64 {
        self.shared.engine.counters().candidates.sum
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.shared.host)?;
        // Code that locks the names never makes Python objects, so the collector does not run meanwhile.
        let Ok(names) = self.names.try_lock() else { return Ok(()) };
        names.entries.iter().flatten().try_for_each(|(_, name)| visit.call(name))
    }

    fn __clear__(&self) {
        let gone = std::mem::take(&mut *self.names());
        drop(gone);
    }
}

/// Reads the fields of one event: triples of path, value and array position.
struct Reader<'a, 'py> {
    host: &'a Bound<'py, PyAny>,
    /// Numbers for arrays and elements that are named otherwise.
    interned: Option<Bound<'py, PyDict>>,
}

impl<'py> Reader<'_, 'py> {
    fn read(&mut self, field: &Bound<'py, PyAny>, fields: &mut EventFields) -> PyResult<()> {
        if self.take(field, fields)? {
            return Ok(());
        }
        // Python reports the fault, or spells the field out.
        let checked = self.host.call_method1("check", (field,))?;
        if self.take(&checked, fields)? {
            return Ok(());
        }
        Err(PyTypeError::new_err("a flattener gives triples of a path, a value and array positions, all of them tuples"))
    }

    /// Add a field; return false if it is not plain.
    fn take(&mut self, field: &Bound<'py, PyAny>, fields: &mut EventFields) -> PyResult<bool> {
        let Ok(field) = field.cast::<PyTuple>() else { return Ok(false) };
        if field.len() != 3 {
            return Ok(false);
        }
        let (path, value, arrays) = (field.get_item(0)?, field.get_item(1)?, field.get_item(2)?);
        let (Ok(path), Ok(arrays)) = (path.cast::<PyTuple>(), arrays.cast::<PyTuple>()) else { return Ok(false) };
        let text;
        let value = if value.is_none() {
            FieldValue::Null
        } else if let Ok(string) = value.cast::<PyString>() {
            match string.to_str() {
                Ok(string) => FieldValue::String(string),
                Err(_) => return Ok(false),
            }
        } else if let Ok(value) = value.cast::<PyBool>() {
            FieldValue::Bool(value.is_true())
        } else if let Ok(value) = value.cast::<PyInt>() {
            match value.extract::<i64>().map(i128::from).or_else(|_| value.extract::<u64>().map(i128::from)) {
                Ok(value) => FieldValue::Integer(value),
                Err(_) => return Ok(false),
            }
        } else if let Ok(value) = value.cast::<PyFloat>() {
            match value.value() {
                value if value.is_finite() => FieldValue::Float(value),
                _ => return Ok(false),
            }
        } else if self.host.call_method1("is_beyond_float", (&value,))?.is_truthy()? {
            text = value.getattr("text")?.cast_into::<PyString>()?;
            FieldValue::BeyondFloat(text.to_str()?)
        } else {
            return Ok(false);
        };
        let mut position = Position::NONE;
        for around in arrays {
            let Ok(around) = around.cast_into::<PyTuple>() else { return Ok(false) };
            if around.len() != 2 {
                return Ok(false);
            }
            let (array, index) = (self.number(&around.get_item(0)?)?, self.number(&around.get_item(1)?)?);
            position = fields.element(position, array, index);
        }
        let names: Vec<Bound<'py, PyAny>> = path.iter().collect();
        let texts: Option<Vec<&str>> = names.iter().map(|name| name.cast::<PyString>().ok()?.to_str().ok()).collect();
        // Patterns have only texts as names.
        let Some(texts) = texts else { return Ok(true) };
        fields
            .push(texts, value, position)
            .map_err(|error| errors::event_error(field.py(), &error, false).map_or_else(|other| other, PyErr::from_value))?;
        Ok(true)
    }

    /// The number for the name of an array or an element.
    fn number(&mut self, named: &Bound<'py, PyAny>) -> PyResult<u64> {
        if let Ok(number) = named.extract::<u64>()
            && number < INTERNED
        {
            return Ok(number);
        }
        let interned = self.interned.get_or_insert_with(|| PyDict::new(named.py()));
        if let Some(number) = interned.get_item(named)? {
            return number.extract();
        }
        let number = INTERNED + interned.len() as u64;
        interned.set_item(named, number)?;
        Ok(number)
    }
}
