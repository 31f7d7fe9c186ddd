//! Matching: the segments of the partitions that an event sees, one after the other, and the effects of the event's
//! type.

use crate::automaton::places;
use crate::bloom::answer::Answer;
use crate::bloom::filter::BloomFilter;
use crate::cel::Verdict;
use crate::engine::index::output::{Matched, Output, Stays};
use crate::engine::index::segment::{Segment, SegmentQuery, SegmentScratch};
use crate::engine::matching::flattening::{One, Work, asks_for, filters, sets};
use crate::engine::matching::group::{Group, VisiblePartitions};
use crate::engine::matching::programs::{Programs, forget_refused};
use crate::engine::matching::scratch::{OldScratch, Scratch};
use crate::engine::matching::unknown::{CandidateSearch, PartialEvent};
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::event::{Event, Identity};
use crate::engine::state::external_cel::Side;
use crate::engine::state::options::Options;
use crate::engine::state::partitions::Partition;
use crate::engine::state::shares::Shares;
use crate::engine::verify::paths::{PathMap, View};
use crate::engine::verify::store::flags;
use crate::engine::verify::transition::{Change, Outcome, Transition};
use crate::engine::verify::values::{Values, ValuesScratch};
use crate::error::{EventError, Ignored, Unread};
use crate::flatten::{self, EventFields, Flat, Flattener, Parts, Validation};
use crate::layout::EventType;
use crate::prefetch::{LINE, prefetch};
use crate::regexps::program;
use crate::subscriptions::normal_form::Unknowns;
use crate::value::{Number, ScalarRef};
use crate::watch;
use std::collections::HashMap;
use std::sync::Arc;

/// Lines of an event that are prefetched before it is read.
const FIRST_LINES: usize = 4;

impl EngineState {
    /// Find the current matches of an event. A caller that needs the records of its slots while others write keeps a
    /// version, and matches on it.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_event<'s, 'e>(&self, event: impl Into<Event<'e>>, scratch: &'s mut Scratch) -> Result<Matched<'s>, EventError> {
        self.match_event_on(&self.version.load(), event.into(), scratch)
    }

    /// Find the matches of an event in the state of *version*.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_event_on<'s>(
        &self,
        version: &Arc<Version>,
        event: Event<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        self.match_in(&mut Group::alone(version), event, scratch)
    }

    /// Find the matches of one of several events, with less effort if it is of the same tenant and collection as the
    /// last.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_in<'s>(
        &self,
        group: &mut Group<'_>,
        event: Event<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        self.match_and(group, event, scratch, |_, _, _| ()).map(|(matched, ())| matched)
    }

    /// Find the matches of one of several events, with everything else that a caller may need: the names of the event,
    /// which the callback receives if the event can be read and is not ignored, and which matches of an update stay.
    ///
    /// # Errors
    ///
    /// The event cannot be read; the callback was not called.
    pub fn match_in_full<'s>(
        &self,
        group: &mut Group<'_>,
        event: Event<'_>,
        scratch: &'s mut Scratch,
        tell: impl FnOnce(Identity<'_>),
    ) -> Result<(Matched<'s>, Stays<'s>), EventError> {
        let (matched, is_read) = self.match_and(group, event, scratch, |one, rest, change| {
            tell(self.identity(one.flat, &mut rest.old.flattener));
            change == Change::Compare && !rest.output.certain.is_empty() && self.find_stays(one, rest)
        })?;
        let Matched { old_slots, .. } = matched;
        Ok((matched, Stays(is_read.then_some(old_slots))))
    }

    /// The names of an event.
    fn identity<'e>(&'e self, flat: &Flat<'e>, flattener: &'e mut Flattener) -> Identity<'e> {
        let Parts { tenant, collection, event_type, ts_ns, .. } = *flat.parts();
        let id = match (flat.id(), self.options.validation) {
            (None, Validation::Lazy) => flattener.locate_id(&self.id_locator, flat.event(), &self.options.limits),
            (id, _) => id,
        };
        Identity { id, tenant, collection, event_type, ts_ns }
    }

    /// Pass the names of an event to the callback, without matching or counting it; or return the reason to ignore it.
    ///
    /// # Errors
    ///
    /// The event cannot be read; the callback was not called. A lazy match may read further and find more errors.
    pub fn identify(
        &self,
        event: Event<'_>,
        scratch: &mut Scratch,
        tell: impl FnOnce(Identity<'_>),
    ) -> Result<Option<Ignored>, EventError> {
        let changes = match self.changes(event.text) {
            Ok(changes) => changes,
            Err(Unread::Ignored(reason)) => return Ok(Some(reason)),
            Err(Unread::Bad(error)) => return Err(error),
        };
        let text = changes.as_deref().map_or(event.text, |changes| changes[0].as_bytes());
        let Scratch { flattener, old, .. } = scratch;
        let Options { default_tenant, limits, validation, .. } = &self.options;
        let caller = event.caller_parts(default_tenant.as_deref());
        match flattener.flatten(&self.no_paths, text, *validation, &caller, limits) {
            Ok(flat) => tell(self.identity(&flat, &mut old.flattener)),
            Err(Unread::Ignored(reason)) => return Ok(Some(reason)),
            Err(unread) if changes.is_some() => return Err(flatten::of_change(unread, 0).into_error()),
            Err(Unread::Bad(error)) => return Err(error),
        }
        Ok(None)
    }

    /// Match an event, and do *more* while it is flat; an event that is ignored is skipped.
    fn match_and<'s, T: Default>(
        &self,
        group: &mut Group<'_>,
        event: Event<'_>,
        scratch: &'s mut Scratch,
        more: impl FnOnce(&One<'_>, &mut Work<'_>, Change) -> T,
    ) -> Result<(Matched<'s>, T), EventError> {
        // They come while its partitions are looked up.
        (0..FIRST_LINES).for_each(|line| prefetch(event.text, line * LINE));
        scratch.output.clear();
        scratch.tally.begin(&self.telemetry);
        watch::begin(self.options.ask);
        let changes = match self.changes(event.text) {
            Ok(changes) => changes,
            Err(unread) => return self.settle(Err(unread), scratch),
        };
        let evaluated = match changes.as_deref() {
            Some(changes) if changes.len() != 1 => {
                self.match_changes(group, event, changes, scratch, more).map(|()| Default::default())
            }
            // The only call, so that it is inlined.
            one => {
                let text = one.map_or(event.text, |changes| changes[0].as_bytes());
                let evaluated = self.match_one(group, Event { text, ..event }, scratch, more);
                evaluated.map_err(|unread| if one.is_some() { flatten::of_change(unread, 0) } else { unread })
            }
        };
        scratch.release(event.text.len(), self.options.give_back);
        self.settle(evaluated, scratch)
    }

    /// The change events of a record; None if the record is an event by itself.
    fn changes(&self, record: &[u8]) -> Result<Option<Vec<String>>, Unread> {
        match self.options.layout.format {
            Some(format) if format.has_changes() => flatten::changes(&self.options.layout, record, &self.record_limits).map(Some),
            _ => Ok(None),
        }
    }

    fn match_one<T>(
        &self,
        group: &mut Group<'_>,
        event: Event<'_>,
        scratch: &mut Scratch,
        more: impl FnOnce(&One<'_>, &mut Work<'_>, Change) -> T,
    ) -> Result<(Change, T), Unread> {
        let change = self.with_flat(group, event, scratch, |one, rest| {
            let change = self.evaluate(one, rest)?;
            Ok((change, more(one, rest, change)))
        });
        change.and_then(|change| change.map_err(Unread::Bad))
    }

    /// Match each of several changes of a record, do *more* for the first, and leave the union of their matches in the
    /// scratch: a subscription matches once, with a transition if all of its changes have the same, and certainly if one
    /// of them is certain.
    fn match_changes<T>(
        &self,
        group: &mut Group<'_>,
        record: Event<'_>,
        changes: &[String],
        scratch: &mut Scratch,
        more: impl FnOnce(&One<'_>, &mut Work<'_>, Change) -> T,
    ) -> Result<(), Unread> {
        let mut more = Some(more);
        let mut all = Output::default();
        let mut outcomes: HashMap<u32, Outcome> = HashMap::new();
        for (number, text) in changes.iter().enumerate() {
            scratch.output.clear();
            let event = Event { text: text.as_bytes(), ..record };
            let matched = self.match_one(group, event, scratch, |one, rest, change| {
                if let Some(more) = more.take() {
                    more(one, rest, change);
                }
                change == Change::Compare && !rest.output.certain.is_empty() && self.find_stays(one, rest)
            });
            let (change, is_read) = matched.map_err(|unread| flatten::of_change(unread, number))?;
            let Scratch { output, old, .. } = &mut *scratch;
            let stays = Stays(is_read.then_some(&*old.slots));
            let certain = output.certain.iter().map(|slot| {
                let flags = self.records.get(*slot).as_ref().map_or(0, |record| record.flags);
                (*slot, Outcome { transition: stays.transition(change, *slot, flags), certain: true })
            });
            for (slot, outcome) in certain.chain(output.others.iter().copied()) {
                outcomes.entry(slot).and_modify(|known| *known = known.or(outcome)).or_insert(outcome);
            }
            all.add_counts(output);
        }
        all.others = outcomes.into_iter().collect();
        all.others.sort_unstable_by_key(|(slot, _)| *slot);
        scratch.output = all;
        Ok(())
    }

    /// Find the matches of an event in the state of *version*, as an event of *tenant* without a collection. The event
    /// is given as its fields, which the caller has read from another format than JSON. Patterns see the fields and
    /// topics its topic; filters and CEL see an event without a document.
    ///
    /// # Errors
    ///
    /// The fields cannot be those of one event.
    pub fn match_fields_on<'s>(
        &self,
        version: &Arc<Version>,
        fields: &EventFields,
        tenant: &str,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        scratch.output.clear();
        scratch.tally.begin(&self.telemetry);
        watch::begin(self.options.ask);
        let change = self.evaluate_fields(version, fields, tenant, scratch).map_err(Unread::Bad);
        scratch.release(fields.bytes(), self.options.give_back);
        self.settle(change.map(|change| (change, ())), scratch).map(|(matched, ())| matched)
    }

    fn evaluate_fields(
        &self,
        version: &Arc<Version>,
        fields: &EventFields,
        tenant: &str,
        scratch: &mut Scratch,
    ) -> Result<Change, EventError> {
        let Scratch { flattener, views, values, segment, output, old, cel, tally } = scratch;
        let visible = self.visible_to(version, tenant, None);
        let is_last = asks_for(&visible, views.key());
        let view = views.get(is_last, sets(&visible), &self.options.layout, self.options.soft_delete.as_ref());
        let flat = flattener.flatten_fields(&view.trie, fields, tenant)?;
        let event = Event::new(flat.event(), Some(tenant), None);
        let one = One { version, event, visible: &visible, view, flat: &flat };
        self.evaluate(&one, &mut Work { values, segment, output, old, cel, tally })
    }

    /// Count an event that was evaluated, or the reason why it was not, and return the matches.
    fn settle<'s, T: Default>(
        &self,
        evaluated: Result<(Change, T), Unread>,
        scratch: &'s mut Scratch,
    ) -> Result<(Matched<'s>, T), EventError> {
        let Scratch { output, tally, old, .. } = scratch;
        let (change, more) = match evaluated {
            Ok(evaluated) => evaluated,
            Err(Unread::Ignored(reason)) => {
                tally.ignore(reason);
                return Ok((Matched::ignored(reason), T::default()));
            }
            Err(Unread::Bad(error)) => {
                tally.reject(error.code);
                // They must not count for the thread's next event.
                forget_refused();
                return Err(error);
            }
        };
        let looked = output.candidates + output.listed;
        let uncertain = output.others.iter().filter(|(_, outcome)| !outcome.certain).count();
        match output.is_cut_off {
            false => {
                tally.settle(output.certain.len() + output.others.len(), uncertain, looked, [output.listed, output.evaluated]);
            }
            true => tally.fail(),
        }
        let matched = Matched {
            certain: &output.certain,
            others: &output.others,
            errors: &output.errors,
            change,
            work: looked,
            ignored: None,
            old_slots: &old.slots,
        };
        Ok((matched, more))
    }

    /// Evaluate an event's partitions (see the table in `transition.rs`), and return the transition of ordinary
    /// matches.
    fn evaluate(&self, one: &One<'_>, rest: &mut Work<'_>) -> Result<Change, EventError> {
        if one.flat.parts().is_bare {
            rest.tally.bare();
            self.first_bare.get_or_init(|| one.event.text.into());
        }
        let mut shares = rest.tally.is_timed().then(Shares::default);
        let change = self.evaluate_all(one, rest, shares.as_mut())?;
        if let Some(mut shares) = shares {
            let output = &*rest.output;
            // Matches outside of the searches: those of the old side, and of events with unknown values.
            let apart = output.certain[output.counted.min(output.certain.len())..]
                .iter()
                .chain(output.others.iter().map(|(slot, _)| slot));
            for slot in apart {
                let record = self.records.get(*slot);
                let Some(record) = record.as_ref() else { continue };
                let is_its =
                    |partition: &Option<&Arc<Partition>>| partition.is_some_and(|other| other.name == *record.partition());
                if let Some(at) = one.visible.iter().position(is_its) {
                    shares.matched(at);
                }
            }
            shares.settle(one.visible.iter().map(|partition| partition.and_then(|partition| partition.share.as_deref())));
        }
        Ok(change)
    }

    fn evaluate_all(&self, one: &One<'_>, rest: &mut Work<'_>, mut shares: Option<&mut Shares>) -> Result<Change, EventError> {
        let One { version, event, view, flat, .. } = *one;
        let parts = flat.parts();
        let Work { values, segment, output, old, cel, tally } = rest;
        let mut errors = std::mem::take(&mut output.errors);
        let mut programs = Programs::new(self, event, flat, cel, &mut errors, tally.is_timed());
        // The old side of a delete is its document, and a flag on one side depends on unknown values of the other.
        let is_known_after = parts.is_known_after && parts.event_type != Some(EventType::Delete) && view.flag.is_none();
        if parts.has_unknown && !is_known_after {
            self.evaluate_unknown(None, one, (values, segment), output, old, &mut programs)?;
            programs.end(output, tally);
            output.errors = errors;
            return Ok(Change::Untold);
        }
        let is_flagged = is_flagged(view, flat);
        if !is_flagged {
            let mut values_read = Values::begin(flat, &self.seed, values);
            let since = tally.now().filter(|_| filters(one.visible).next().is_some());
            let answers = answers(one.visible, view, |filter, map| filter.ask(map, &mut values_read));
            tally.bloom(since);
            each_segment(one, answers, |at, answer, place, map| {
                let query = SegmentQuery { version: version.number, answer, map, seed: &self.seed };
                at.find(&query, &mut values_read, segment, output);
                if let Some(shares) = &mut shares {
                    shares.searched(place, output);
                }
            });
            values_read.end(values);
            if is_known_after {
                self.take_unknown(flags::BEFORE | transition_flag(flat), output);
            }
            for (position, slot) in output.candidates_for_cel.iter().enumerate() {
                if programs.verdict(*slot, Side::New)? == Verdict::True {
                    output.certain.push(*slot);
                    if let Some(shares) = &mut shares {
                        shares.evaluated(position);
                    }
                }
            }
            output.counted = output.certain.len();
        }
        if is_known_after {
            if let Some(open) = open_before(one, output) {
                self.evaluate_unknown(Some(open), one, (values, segment), output, old, &mut programs)?;
            }
            programs.end(output, tally);
            output.errors = errors;
            return Ok(Change::Untold);
        }
        let change = match parts.event_type {
            Some(EventType::Insert) => Change::Enter,
            Some(EventType::Delete) => {
                // A flagged document counted as deleted before; only an older document may have matched until now.
                if is_flagged && flat.has_old_side() {
                    self.find_old(0, one, segment, output, old, &mut programs)?;
                    output.certain.extend_from_slice(&old.slots);
                }
                Change::Leave
            }
            Some(EventType::Update) if flat.has_old_side() => {
                if one.segments().any(|segment| segment.store.any_flags & flags::TRANSITIONS != 0) {
                    self.find_old(flags::TRANSITIONS, one, segment, output, old, &mut programs)?;
                    let leave = Outcome { transition: Some(Transition::Leave), certain: true };
                    output.others.extend(old.slots.iter().map(|slot| (*slot, leave)));
                }
                Change::Compare
            }
            _ => Change::Untold,
        };
        programs.end(output, tally);
        output.errors = errors;
        Ok(change)
    }

    /// Remove subscriptions with any of the flags *open*: they are evaluated separately.
    fn take_unknown(&self, open: u8, output: &mut Output) {
        let is_closed = |slot: &u32| self.records.get(*slot).as_ref().is_some_and(|record| record.flags & open == 0);
        output.certain.retain(is_closed);
        output.candidates_for_cel.retain(is_closed);
    }

    /// Evaluate the subscriptions that are *open* and may match an event with unknown values, each by itself.
    fn evaluate_unknown(
        &self,
        open: Option<u8>,
        one: &One<'_>,
        (values, scratch): (&mut ValuesScratch, &mut SegmentScratch),
        output: &mut Output,
        old: &mut OldScratch,
        programs: &mut Programs<'_>,
    ) -> Result<(), EventError> {
        let options = &self.options;
        // A lazy pass has not checked all of it yet.
        programs.check()?;
        let partial = PartialEvent::new(one.flat, &options.limits, options.soft_delete.as_ref(), programs)?;
        let OldScratch { flattener, values: old_scratch, .. } = old;
        let old_text = if partial.asks_old() { one.flat.old_text() } else { None };
        let old_flat = match &old_text {
            Some(text) => flattener.flatten_old(&one.view.trie, text, one.flat.parts(), options.validation).ok(),
            None => None,
        };
        let mut old_read = old_flat.as_ref().map(|flat| Values::begin(flat, &self.seed, old_scratch));
        let mut read = Values::begin(one.flat, &self.seed, values);
        let unknowns = |slot| self.records.get(slot).as_ref().map_or(Unknowns::InClauses, |record| record.unknowns);
        let mut search_all = || {
            for (segment, map) in one.segments().zip(&one.view.maps) {
                if open.is_some_and(|open| segment.store.any_flags & open == 0) {
                    continue;
                }
                let query = SegmentQuery { version: one.version.number, answer: Answer::Maybe, map, seed: &self.seed };
                let shapes = segment.shapes(&self.seed, unknowns);
                let mut search = CandidateSearch { segment, shapes, query, open, scratch, output };
                partial.find(&mut search, &mut read, old_read.as_mut());
            }
        };
        // The subscriptions that a topic's budget refused are not open.
        if open.is_some() {
            places::again(search_all);
        } else {
            search_all();
        }
        read.end(values);
        if let Some(read) = old_read {
            read.end(old_scratch);
        }
        // Open subscriptions are evaluated with their regexps again.
        _ = program::take_refused();
        self.evaluate_each(&partial, output, programs)
    }

    /// Evaluate the open subscriptions.
    fn evaluate_each(&self, partial: &PartialEvent, output: &mut Output, programs: &mut Programs<'_>) -> Result<(), EventError> {
        for slot in output.unknown.drain(..) {
            watch::spend(4);
            let record = self.records.get(slot);
            let Some(record) = record.as_ref() else { continue };
            let Some(subscription) = programs.subscription(slot, record) else { continue };
            if let Some(outcome) = partial.outcome(slot, record, &subscription, programs)? {
                output.others.push((slot, outcome));
            }
        }
        Ok(())
    }

    /// Find the matches of the old side, among subscriptions that have all of the flags *need* and are not in
    /// `output.certain`; see [`OldScratch::slots`]. Return false if it cannot be read, which lazy validation may have
    /// missed.
    fn find_old(
        &self,
        need: u8,
        one: &One<'_>,
        segment: &mut SegmentScratch,
        output: &mut Output,
        old: &mut OldScratch,
        programs: &mut Programs<'_>,
    ) -> Result<bool, EventError> {
        let OldScratch { flattener, values: scratch, slots, candidates, stays } = old;
        slots.clear();
        candidates.clear();
        let validation = self.options.validation;
        let Some(text) = one.flat.old_text() else { return Ok(false) };
        let Ok(old) = flattener.flatten_old(&one.view.trie, &text, one.flat.parts(), validation) else { return Ok(false) };
        if !is_flagged(one.view, &old) {
            let mut values = Values::begin(&old, &self.seed, scratch);
            // Each side has answers of its own; only those for the event as it is are counted.
            let answers = answers(one.visible, one.view, |filter, map| filter.check(map, &mut values));
            each_segment(one, answers, |at, answer, _, map| {
                let query = SegmentQuery { version: one.version.number, answer, map, seed: &self.seed };
                at.find_old(need, &query, &mut values, segment, output, candidates);
            });
            values.end(scratch);
        }
        // They are few compared with the present matches.
        candidates.sort_unstable();
        let is_candidate = |slot: &&u32| candidates.binary_search_by_key(*slot, |(slot, _)| *slot).is_ok();
        stays.clear();
        stays.extend(output.certain.iter().filter(is_candidate));
        stays.sort_unstable();
        for (slot, flags) in candidates.iter().filter(|(slot, _)| stays.binary_search(slot).is_err()) {
            if *flags & flags::CEL == 0 || programs.verdict(*slot, Side::Old)? == Verdict::True {
                slots.push(*slot);
            }
        }
        Ok(true)
    }

    /// Find the matches of the old side of an update: sorted, in `rest.old.found`. Return false if it cannot be read.
    fn find_stays(&self, one: &One<'_>, rest: &mut Work<'_>) -> bool {
        let Work { segment, output, old, cel, .. } = rest;
        // The event's own matches and counts stay as they are.
        let (certain, counts) = (std::mem::take(&mut output.certain), (output.candidates, output.listed));
        // Its errors are reported with those of the other side.
        let mut errors = std::mem::take(&mut output.errors);
        let mut programs = Programs::new(self, one.event, one.flat, cel, &mut errors, false);
        let is_read = self.find_old(0, one, segment, output, old, &mut programs);
        programs.count(output);
        output.is_cut_off |= programs.is_cut_off();
        output.certain = certain;
        output.errors = errors;
        (output.candidates, output.listed) = counts;
        old.slots.sort_unstable();
        matches!(is_read, Ok(true))
    }

    /// The subscriptions that match the document before an update, in the state of *version*: slots, sorted. There are
    /// none if the event does not have that document, or cannot be read.
    pub fn stays(&self, version: &Arc<Version>, event: Event<'_>, scratch: &mut Scratch) -> Option<Vec<u32>> {
        scratch.output.clear();
        watch::begin(self.options.ask);
        let changes = self.changes(event.text).ok()?;
        // The matches of several changes have their transitions.
        let text = match changes.as_deref() {
            None => event.text,
            Some([change]) => change.as_bytes(),
            Some(_) => return None,
        };
        let result = self.with_flat(&mut Group::alone(version), Event { text, ..event }, scratch, |one, rest| {
            self.find_stays(one, rest).then(|| rest.old.slots.clone())
        });
        scratch.release(event.text.len(), self.options.give_back);
        result.ok().flatten()
    }
}

/// The filter's answer for each partition. The places of filters are the last maps of the view; a partition without a
/// filter gets MAYBE.
fn answers(visible: &VisiblePartitions<'_>, view: &View, mut ask: impl FnMut(&BloomFilter, &PathMap) -> Answer) -> [Answer; 4] {
    let mut maps = view.maps[view.maps.len() - filters(visible).count()..].iter();
    visible.map(|partition| {
        let filter = partition.and_then(|partition| partition.filter.as_deref());
        filter.map_or(Answer::Maybe, |filter| maps.next().map_or(Answer::Maybe, |map| ask(filter, map)))
    })
}

/// Hand each segment that an event sees to *visit*, with the answer for its partition, that one's place, and the segment's map.
#[inline(always)]
fn each_segment(one: &One<'_>, answers: [Answer; 4], mut visit: impl FnMut(&Segment, Answer, usize, &PathMap)) {
    let mut maps = one.view.maps.iter();
    for (place, (partition, answer)) in one.visible.iter().zip(answers).enumerate() {
        let Some(partition) = partition else { continue };
        for (at, map) in partition.segments.iter().zip(&mut maps) {
            visit(at, answer, place, map);
        }
    }
}

/// The flags of the subscriptions that are open for an event whose only unknown values are in `before`: they read it or, if
/// the event has the old side, may have matched that. The index's other matches stay, and only their transition is open.
/// None: there is nothing to evaluate.
fn open_before(one: &One<'_>, output: &mut Output) -> Option<u8> {
    let open = flags::BEFORE | transition_flag(one.flat);
    if one.flat.has_old_side() {
        output.unknown.append(&mut output.certain);
        output.counted = 0;
    }
    let is_open = !output.unknown.is_empty() || one.segments().any(|segment| segment.store.any_flags & open != 0);
    is_open.then_some(open)
}

/// The flag of subscriptions that want to know when a document no longer matches, if an update has its old side.
fn transition_flag(flat: &Flat<'_>) -> u8 {
    if flat.has_old_side() && flat.parts().event_type == Some(EventType::Update) { flags::TRANSITIONS } else { 0 }
}

/// Whether the document carries the soft-delete flag, with anything but missing, null, false, 0 or `""`.
fn is_flagged(view: &View, flat: &Flat<'_>) -> bool {
    let Some(leaf) = view.flag.and_then(|path| flat.value(path)) else { return false };
    match leaf.scalar() {
        Some(ScalarRef::Null) => false,
        Some(ScalarRef::Bool(value)) => value,
        Some(ScalarRef::Number(number)) => number != Number::from_i64(0),
        Some(ScalarRef::String(text)) => !text.is_empty(),
        None => true,
    }
}
