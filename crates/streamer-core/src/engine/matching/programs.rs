//! The CEL parts of an event's candidates, and their errors.
//!
//! The event's documents are parsed when the first program reads them, and shared by all.
//!
//! The host evaluates external CEL: it is called for the verdict at the point at which a native program is evaluated,
//! so that sides, unknown values and transitions are the same for both.
//!
//! Cost: free for an event without candidates that have CEL.

use crate::automaton::places;
use crate::cel::{self, Arena, Document, Executable, Reason, Verdict, compile};
use crate::engine::index::output::Output;
use crate::engine::matching::unknown::{Parsed, ParsedSubscriptions};
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::event::Event;
use crate::engine::state::external_cel::Side;
use crate::engine::state::record::Record;
use crate::engine::state::telemetry::Tally;
use crate::engine::verify::failures::CelError;
use crate::error::{EventError, Unread};
use crate::flatten::{Flat, Flattener, Validation};
use crate::regexps::program;
use crate::subscriptions::Subscription;
use crate::subscriptions::groups::FilterNode;
use crate::subscriptions::normal_form::Path;
use crate::subscriptions::operators::Filter;
use crate::watch::spend;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Forget this thread's refusals and the spent budget of its event: they must not count for the next one.
pub(super) fn forget_refused() {
    _ = program::take_refused();
    _ = places::take_refused();
}

/// Buffers that one thread reuses for CEL.
#[derive(Debug, Default)]
pub struct CelScratch {
    arena: Arena,
    flattener: Flattener,
    scratch: cel::EvaluationScratch,
    parsed: ParsedSubscriptions,
}

/// The programs of one event. See the head of this file.
pub(super) struct Programs<'e> {
    engine: &'e EngineState,
    event: Event<'e>,
    flat: &'e Flat<'e>,
    arena: &'e Arena,
    flattener: Option<&'e mut Flattener>,
    scratch: &'e mut cel::EvaluationScratch,
    parsed: &'e mut ParsedSubscriptions,
    errors: &'e mut Vec<CelError>,
    documents: Option<[Document<'e>; 2]>,
    /// The host's data for the event.
    event_object: Option<Box<dyn Any>>,
    /// Whether the host was interrupted.
    is_cut_off: bool,
    /// Whether it is measured how long programs run, and how long they ran.
    is_timed: bool,
    took: Option<Duration>,
}

impl<'e> Programs<'e> {
    pub fn new(
        engine: &'e EngineState,
        event: Event<'e>,
        flat: &'e Flat<'e>,
        scratch: &'e mut CelScratch,
        errors: &'e mut Vec<CelError>,
        is_timed: bool,
    ) -> Programs<'e> {
        let CelScratch { arena, flattener, scratch, parsed } = scratch;
        arena.reset();
        let (flattener, documents, event_object, is_cut_off, took) = (Some(flattener), None, None, false, None);
        Programs {
            engine,
            event,
            flat,
            arena,
            flattener,
            scratch,
            parsed,
            errors,
            documents,
            event_object,
            is_cut_off,
            is_timed,
            took,
        }
    }

    /// Whether any of them was interrupted.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Count and report the remaining errors.
    pub fn count(&mut self, output: &mut Output) {
        for slot in output.spent.drain(..) {
            self.spent(slot);
        }
        if let Some((refused, last)) = program::take_refused() {
            self.refused(Reason::RegexpBudget, refused, last);
        }
        if let Some((refused, last)) = places::take_refused() {
            self.refused(Reason::TopicBudget, refused, last);
        }
    }

    /// Count the failures, as `count` does, after the event was evaluated, and how long programs ran.
    pub fn end(mut self, output: &mut Output, tally: &Tally) {
        self.count(output);
        output.is_cut_off = self.is_cut_off;
        if let Some(took) = self.took {
            tally.cel(took);
        }
    }

    /// A side of the event as programs see it, and the memory to evaluate one.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    fn document(&mut self, side: Side) -> Result<(&Document<'e>, &mut cel::EvaluationScratch), EventError> {
        let documents = match &mut self.documents {
            Some(documents) => documents,
            none => {
                let (engine, limits) = (self.engine, &self.engine.options.limits);
                let document = match self.flattener.take() {
                    Some(flattener) if engine.options.validation == Validation::Lazy => {
                        let caller = self.event.caller_parts(engine.options.default_tenant.as_deref());
                        let flat = flattener.flatten(&engine.no_paths, self.event.text, Validation::Full, &caller, limits);
                        let flat = flat.map_err(Unread::into_error)?;
                        Document::new(&flat, self.arena, limits)?
                    }
                    _ => Document::new(self.flat, self.arena, limits)?,
                };
                none.insert([document, document.as_before()])
            }
        };
        Ok((&documents[usize::from(side == Side::Old)], self.scratch))
    }

    /// Check the event in full, if that was not done.
    ///
    /// # Errors
    ///
    /// An error in a part that lazy validation skipped.
    pub fn check(&mut self) -> Result<(), EventError> {
        match self.engine.options.validation {
            Validation::Full => Ok(()),
            Validation::Lazy => self.document(Side::New).map(|_| ()),
        }
    }

    /// The pattern of the subscription in *slot* takes more than its budget: an error.
    pub fn spent(&mut self, slot: u32) -> Verdict {
        if let Some(record) = self.engine.records.get(slot).as_ref() {
            let reason = Reason::PatternBudget;
            if let Some(count) = self.failed(slot, record, reason) {
                let detail = "the choice of array elements for its pattern takes more than its budget".to_owned();
                self.errors.push(CelError { slot: Some(slot), reason, detail, count });
            }
        }
        Verdict::Error
    }

    /// Count *refused* searches of regexps, or patterns of topics; *detail* describes the last.
    #[cold]
    fn refused(&mut self, reason: Reason, refused: u32, detail: String) {
        self.engine.cel_errors[reason as usize].fetch_add(u64::from(refused), Ordering::Relaxed);
        if let Some(count) = self.engine.heard[reason as usize].add(u64::from(refused), self.now()) {
            self.errors.push(CelError { slot: None, reason, detail, count });
        }
    }

    /// Count an error of a subscription; return the number of its errors if it is due to be reported.
    fn failed(&self, slot: u32, record: &Record, reason: Reason) -> Option<u64> {
        self.engine.cel_errors[reason as usize].fetch_add(1, Ordering::Relaxed);
        let count = record.heard().add(1, self.now())?;
        self.engine
            .failing
            .tell(slot, reason, |slot| self.engine.records.made(slot).as_ref().map_or(0, |record| record.errors()));
        Some(count)
    }

    /// Seconds of the engine's life, from 1 on.
    fn now(&self) -> u64 {
        self.engine.started.elapsed().as_secs() + 1
    }

    /// The conditions of the subscription in *slot*, parsed.
    pub fn subscription(&mut self, slot: u32, record: &Record) -> Option<Arc<Parsed>> {
        let options = &self.engine.options;
        self.parsed.get(slot, record, |text| {
            spend(64);
            // It could be read with these limits when it was added.
            let limits = options.limits.of_any_size();
            let subscription = Subscription::parse(text, options.defaults(), &limits).ok()?;
            let is_compiled = record.program().is_some() || record.external_cel();
            let program = match subscription.cel.as_deref().filter(|_| !is_compiled) {
                Some(source) => {
                    spend(64);
                    Some(Executable::new(Arc::new(compile(source, &limits).ok()?)).ok()?)
                }
                None => None,
            };
            Some(Parsed { subscription, program })
        })
    }

    /// Evaluate a filter; its errors are not counted.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    pub fn filter(&mut self, filter: &Filter, side: Side) -> Result<Verdict, EventError> {
        let (document, scratch) = self.document(side)?;
        let outcome = filter.evaluate(document, scratch)?;
        spend(outcome.cost as usize + 1);
        Ok(outcome.verdict)
    }

    /// Evaluate a filter or a group of filters; errors are not counted.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    pub fn node(&mut self, node: &FilterNode, side: Side) -> Result<Verdict, EventError> {
        match node {
            FilterNode::Filter(filter) => self.filter(filter, side),
            FilterNode::Not(node) => Ok(self.node(node, side)?.not()),
            FilterNode::All(nodes) => self.all(nodes, side),
            FilterNode::Any(nodes) => {
                let mut verdict = Verdict::False;
                for node in nodes {
                    if verdict == Verdict::True {
                        break;
                    }
                    verdict = verdict.or(self.node(node, side)?);
                }
                Ok(verdict)
            }
        }
    }

    /// Evaluate filters and groups until one is false.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    pub fn all(&mut self, nodes: &[FilterNode], side: Side) -> Result<Verdict, EventError> {
        let mut verdict = Verdict::True;
        for node in nodes {
            if verdict == Verdict::False {
                break;
            }
            verdict = verdict.and(self.node(node, side)?);
        }
        Ok(verdict)
    }

    /// Whether a document carries the soft-delete flag, at the path *flag*.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    pub fn is_flagged(&mut self, flag: Option<&Path>, side: Side) -> Result<Verdict, EventError> {
        let Some(flag) = flag else { return Ok(Verdict::False) };
        let (document, scratch) = self.document(side)?;
        cel::is_flagged(&flag.names, document, scratch)
    }

    /// Evaluate the parts of the subscription in *slot* that its clauses do not express: groups of filters and CEL. True if
    /// it has none.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    pub fn verdict(&mut self, slot: u32, side: Side) -> Result<Verdict, EventError> {
        let record = self.engine.records.get(slot);
        let Some(record) = record.as_ref() else { return Ok(Verdict::True) };
        if !record.open_groups() {
            return self.cel(slot, record, side);
        }
        let groups = match self.subscription(slot, record) {
            Some(parsed) => self.all(&parsed.subscription.groups, side)?,
            None => Verdict::Error,
        };
        if groups == Verdict::False { Ok(groups) } else { Ok(groups.and(self.cel(slot, record, side)?)) }
    }

    /// Evaluate the CEL part of the subscription in *slot*; true if it has none.
    fn cel(&mut self, slot: u32, record: &Record, side: Side) -> Result<Verdict, EventError> {
        match record.program() {
            Some(program) => self.timed(slot, record, program, side),
            None if record.external_cel() => self.external(slot, side),
            None => Ok(Verdict::True),
        }
    }

    /// Evaluate the CEL part of the subscription in *slot*, even if the engine does not keep its program.
    ///
    /// # Errors
    ///
    /// The event is bad in a part that lazy validation skipped.
    pub fn verdict_of(&mut self, slot: u32, record: &Record, parsed: &Parsed, side: Side) -> Result<Verdict, EventError> {
        match &parsed.program {
            Some(program) => self.timed(slot, record, program, side),
            None => self.cel(slot, record, side),
        }
    }

    fn timed(&mut self, slot: u32, record: &Record, program: &Executable, side: Side) -> Result<Verdict, EventError> {
        let since = self.is_timed.then(Instant::now);
        let verdict = self.evaluate(slot, record, program, side);
        if let Some(since) = since {
            self.took = Some(self.took.unwrap_or_default() + since.elapsed());
        }
        verdict
    }

    /// Call the host.
    #[cold]
    fn external(&mut self, slot: u32, side: Side) -> Result<Verdict, EventError> {
        // It reads the event in full.
        self.check()?;
        let record = self.engine.records.get(slot);
        let (Some(record), Some(host)) = (record.as_ref(), &self.engine.options.external_cel) else { return Ok(Verdict::Error) };
        let since = self.is_timed.then(Instant::now);
        let verdict = host.verdict(record, &self.event, side, &mut self.event_object);
        if let Some(since) = since {
            self.took = Some(self.took.unwrap_or_default() + since.elapsed());
        }
        self.is_cut_off |= verdict.is_none();
        Ok(verdict.unwrap_or(Verdict::Error))
    }

    fn evaluate(&mut self, slot: u32, record: &Record, program: &Executable, side: Side) -> Result<Verdict, EventError> {
        let budget = self.engine.cel_budget();
        let (document, scratch) = self.document(side)?;
        let outcome = program.evaluate(document, budget, scratch)?;
        spend(outcome.cost as usize + 1);
        if let Some(reason) = outcome.reason
            && let Some(count) = self.failed(slot, record, reason)
        {
            let (document, scratch) = self.document(side)?;
            let (_, detail) = program.evaluate_in_words(document, budget, scratch)?;
            self.errors.push(CelError { slot: Some(slot), reason, detail, count });
        }
        Ok(outcome.verdict)
    }
}
