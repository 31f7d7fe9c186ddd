//! Matching: the partitions that an event sees, one flattening for all of them, their segments one after the other.

use crate::bloom::answer::Answer;
use crate::bloom::filter::BloomFilter;
use crate::cel::Verdict;
use crate::engine::event::{Event, Identity, Located};
use crate::engine::external_cel::Side;
use crate::engine::group::{Group, SeenPartitions};
use crate::engine::name::join;
use crate::engine::options::Options;
use crate::engine::output::{Matched, Output, Stays};
use crate::engine::partitions::Partition;
use crate::engine::paths::{PathMap, PathSet, View};
use crate::engine::programs::{CelScratch, Programs, forget_refused};
use crate::engine::scratch::{OldScratch, Scratch};
use crate::engine::segment::{Segment, SegmentQuery, SegmentScratch};
use crate::engine::shares::Shares;
use crate::engine::state::EngineState;
use crate::engine::store::flags;
use crate::engine::telemetry::Tally;
use crate::engine::transition::{Change, Outcome, Transition};
use crate::engine::unknown::PartialEvent;
use crate::engine::values::{Values, ValuesScratch};
use crate::engine::version::Version;
use crate::error::{EventError, Ignored, Unread};
use crate::flatten::{EventFields, Flat, Flattener, Parts, Validation};
use crate::layout::{EventType, Part};
use crate::prefetch::{LINE, prefetch};
use crate::regexps::program;
use crate::value::{Number, ScalarRef};
use crate::watch;
use std::sync::Arc;

/// Lines of an event that are asked for before it is read.
const FIRST_LINES: usize = 4;

impl EngineState {
    /// The partitions that an event of *tenant* and *collection* sees: its own, and those for all collections or tenants.
    fn seen_by<'r>(&self, version: &'r Version, tenant: &str, collection: Option<&str>) -> SeenPartitions<'r> {
        let tenant_hash = self.seed.hash_bytes(tenant.as_bytes());
        let find = |hash, tenant, collection| version.partitions.get(hash, tenant, collection).map(|found| self.opened(found));
        let mut seen = [None; 4];
        if let Some(name) = collection {
            let hash = self.seed.hash_bytes(name.as_bytes());
            seen[0] = find(join(&self.seed, tenant_hash, hash), tenant, name);
            if version.any_tenant > 0 {
                seen[1] = find(join(&self.seed, self.all, hash), "*", name);
            }
        }
        if version.any_collection > 0 {
            seen[2] = find(join(&self.seed, tenant_hash, self.all), tenant, "*");
            if version.any_tenant > 0 {
                seen[3] = find(join(&self.seed, self.all, self.all), "*", "*");
            }
        }
        seen
    }

    /// Where an event belongs, as far as can be told without reading all of it; for [`Group::expect`].
    pub fn locate<'e>(&'e self, event: Event<'e>, scratch: &mut Scratch) -> Located<'e> {
        let flattener = &mut scratch.flattener;
        let given = event.given(self.options.default_tenant.as_deref());
        let (tenant, collection) = flattener.locate(&self.locator, event.text, &given, &self.options.limits);
        let hash = |name: Option<&str>| self.seed.hash_bytes(name.unwrap_or_default().as_bytes());
        let of_collection = match (collection, &self.options.layout.collection) {
            (None, Part::Made(..)) => flattener.located_made(&self.locator, event.text, &self.seed),
            _ => hash(collection),
        };
        Located { key: join(&self.seed, hash(tenant), of_collection), tenant, collection }
    }

    /// Find what an event matches now. Who asks for the records of its slots while others write holds a version, and matches on it.
    ///
    /// # Errors
    ///
    /// The event cannot be read.
    pub fn match_event<'s, 'e>(&self, event: impl Into<Event<'e>>, scratch: &'s mut Scratch) -> Result<Matched<'s>, EventError> {
        self.match_event_on(&self.version.load(), event.into(), scratch)
    }

    /// Find what an event matches in the state that *version* is.
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

    /// Find what one of several events matches, with less effort where it is of the same tenant and collection as the last.
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

    /// Find what one of several events matches, with all that can be said of it: what it is called, which is *told* if it can be
    /// read and is not ignored, and which matches of an update stay.
    ///
    /// # Errors
    ///
    /// The event cannot be read; nothing was told.
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
        let Matched { found, .. } = matched;
        Ok((matched, Stays(is_read.then_some(found))))
    }

    /// What an event is called.
    fn identity<'e>(&'e self, flat: &Flat<'e>, flattener: &'e mut Flattener) -> Identity<'e> {
        let Parts { tenant, collection, event_type, .. } = *flat.parts();
        let id = match (flat.id(), self.options.validation) {
            (None, Validation::Lazy) => flattener.locate_id(&self.id_locator, flat.event(), &self.options.limits),
            (id, _) => id,
        };
        Identity { id, tenant, collection, event_type }
    }

    /// *Tell* what an event is called, without matching or counting it; or return why it is ignored.
    ///
    /// # Errors
    ///
    /// The event cannot be read; nothing was told. Lazily, matching may read on and find more.
    pub fn identify(
        &self,
        event: Event<'_>,
        scratch: &mut Scratch,
        tell: impl FnOnce(Identity<'_>),
    ) -> Result<Option<Ignored>, EventError> {
        let Scratch { flattener, old, .. } = scratch;
        let Options { default_tenant, limits, validation, .. } = &self.options;
        let given = event.given(default_tenant.as_deref());
        match flattener.flatten(&self.no_paths, event.text, *validation, &given, limits) {
            Ok(flat) => tell(self.identity(&flat, &mut old.flattener)),
            Err(Unread::Ignored(reason)) => return Ok(Some(reason)),
            Err(Unread::Bad(error)) => return Err(error),
        }
        Ok(None)
    }

    /// Match an event, and when it is evaluated do *more* while it is flat; nothing more with one that is ignored.
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
        let change = self.with_flat(group, event, scratch, |one, rest| {
            let change = self.evaluate(one, rest)?;
            Ok((change, more(one, rest, change)))
        });
        self.settle(change.and_then(|change| change.map_err(Unread::Bad)), scratch)
    }

    /// Find what an event matches in the state that *version* is, as an event of *tenant* without a collection. It is given as its
    /// fields, by who has read them from another format than JSON. Patterns see the fields and topics its topic; filters and CEL see
    /// an event without a document.
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
        let seen = self.seen_by(version, tenant, None);
        let is_last = asks_for(&seen, views.key());
        let view = views.get(is_last, sets(&seen), &self.options.layout, self.options.soft_delete.as_ref());
        let flat = flattener.flatten_fields(&view.trie, fields, tenant)?;
        let event = Event::new(flat.event(), Some(tenant), None);
        let one = One { version, event, seen: &seen, view, flat: &flat };
        self.evaluate(&one, &mut Work { values, segment, output, old, cel, tally })
    }

    /// Count an event that was evaluated, or why it was not, and hand out what was found.
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
                // They are no part of the thread's next event.
                forget_refused();
                return Err(error);
            }
        };
        let looked = output.candidates + output.listed;
        let uncertain = output.told.iter().filter(|(_, outcome)| !outcome.certain).count();
        match output.is_cut_off {
            false => tally.settle(output.certain.len() + output.told.len(), uncertain, looked, output.listed),
            true => tally.fail(),
        }
        let matched = Matched {
            certain: &output.certain,
            told: &output.told,
            errors: &output.errors,
            change,
            work: looked,
            ignored: None,
            found: &old.found,
        };
        Ok((matched, more))
    }

    /// Flatten an event for the partitions that it sees, and *use* it.
    ///
    /// To flatten an event it must be known what its partitions ask of it, and to know its partitions it must be read. So it is guessed,
    /// the cheapest guess first, and what was read says whether the guess was right:
    ///
    /// ```text
    ///   guess                       the view of                          right if                      who guesses
    ///   1 same partitions           the group's last event               its names are the same        an event of a group
    ///   2 same paths                this thread's last event             its partitions ask the same   an event by itself
    ///   3 same place                where a first look, or `expect`,     its names are those           every other event
    ///                               found its names
    ///   4 none                      the names that were read for 3       always                        where 3 was wrong
    /// ```
    ///
    /// Invariant: what is used was flattened for the partitions of the names that were read. An error that shows after guess 1 or 2
    /// is not told: the event is flattened again, and told by 3 or 4.
    ///
    /// Cost: 1 saves a look for the names and four lookups of partitions, 2 the look for the names, a tenth of a small event; a
    /// wrong one costs a flattening, so that after a few wrong ones there is no guessing for a while ([`Luck`](super::paths::Luck)).
    fn with_flat<T>(
        &self,
        group: &mut Group<'_>,
        event: Event<'_>,
        scratch: &mut Scratch,
        use_: impl FnOnce(&One<'_>, &mut Work<'_>) -> T,
    ) -> Result<T, Unread> {
        let Scratch { flattener, views, values, segment, output, old, cel, tally } = scratch;
        let mut rest = Work { values, segment, output, old, cel, tally };
        let options = &self.options;
        let given = event.given(options.default_tenant.as_deref());
        let version = group.version;
        let expected = group.expected();
        if let Some(view) = group.guess()
            && let Ok(flat) = flattener.flatten(&view.trie, event.text, options.validation, &given, &options.limits)
            && group.is_right(flat.parts())
        {
            return Ok(use_(&One { version, event, seen: &group.seen, view: &view, flat: &flat }, &mut rest));
        }
        if expected.is_none()
            && group.is_alone()
            && self.locator.reads(&given)
            && let Some(view) = views.guess()
        {
            if let Ok(flat) = flattener.flatten(&view.trie, event.text, options.validation, &given, &options.limits) {
                let seen = self.seen_by(version, flat.parts().tenant, flat.parts().collection);
                let is_right = asks_for(&seen, views.key());
                if views.is_right(is_right) {
                    let used = use_(&One { version, event, seen: &seen, view: &view, flat: &flat }, &mut rest);
                    views.give_back(view);
                    return Ok(used);
                }
            }
            views.give_back(view);
        }
        let (located, name) = match expected {
            Some(Located { tenant, collection, .. }) => (tenant, collection),
            None => flattener.locate(&self.locator, event.text, &given, &options.limits),
        };
        let mut seen = self.seen_by(version, located.unwrap_or_default(), name);
        let mut is_settled = false;
        loop {
            let is_last = asks_for(&seen, views.key());
            let view = views.get(is_last, sets(&seen), &options.layout, options.soft_delete.as_ref());
            let flat = flattener.flatten(&view.trie, event.text, options.validation, &given, &options.limits)?;
            if !is_settled {
                // What was located is a guess: an event with duplicates, say, may belong elsewhere.
                is_settled = true;
                let parts = flat.parts();
                if parts.tenant != located.unwrap_or_default() || parts.collection != name {
                    seen = self.seen_by(version, parts.tenant, parts.collection);
                    continue;
                }
            }
            group.keep(flat.parts(), seen, view);
            return Ok(use_(&One { version, event, seen: &seen, view, flat: &flat }, &mut rest));
        }
    }

    /// Evaluate what an event's partitions hold (see the table in `transition.rs`), and say what the transition of ordinary matches is.
    fn evaluate(&self, one: &One<'_>, rest: &mut Work<'_>) -> Result<Change, EventError> {
        if one.flat.parts().is_bare {
            rest.tally.bare();
        }
        let mut shares = rest.tally.is_timed().then(Shares::default);
        let change = self.evaluate_all(one, rest, shares.as_mut())?;
        if let Some(mut shares) = shares {
            let output = &*rest.output;
            // What was found apart from the searches: the old side, and events with unknown values.
            let apart =
                output.certain[output.counted.min(output.certain.len())..].iter().chain(output.told.iter().map(|(slot, _)| slot));
            for slot in apart {
                let record = self.records.get(*slot);
                let Some(record) = record.as_ref() else { continue };
                let is_its = |partition: &Option<&Arc<Partition>>| partition.is_some_and(|held| held.name == record.partition);
                if let Some(at) = one.seen.iter().position(is_its) {
                    shares.matched(at);
                }
            }
            shares.settle(one.seen.iter().map(|partition| partition.and_then(|partition| partition.share.as_deref())));
        }
        Ok(change)
    }

    fn evaluate_all(&self, one: &One<'_>, rest: &mut Work<'_>, mut shares: Option<&mut Shares>) -> Result<Change, EventError> {
        let One { version, event, view, flat, .. } = *one;
        let parts = flat.parts();
        let Work { values, segment, output, old, cel, tally } = rest;
        let mut errors = std::mem::take(&mut output.errors);
        let mut programs = Programs::new(self, event, flat, cel, &mut errors, tally.is_timed());
        // What a delete was before is its document, and a flag hides one by what is unknown of the other.
        let is_known_after = parts.is_known_after && parts.event_type != Some(EventType::Delete) && view.flag.is_none();
        if parts.has_unknown && !is_known_after {
            self.evaluate_unknown(one, values, output, &mut programs)?;
            programs.end(output, tally);
            output.errors = errors;
            return Ok(Change::Untold);
        }
        let is_flagged = is_flagged(view, flat);
        if !is_flagged {
            let mut values_read = Values::begin(flat, &self.seed, values);
            let since = tally.now().filter(|_| filters(one.seen).next().is_some());
            let answers = answers(one.seen, view, |filter, map| filter.ask(map, &mut values_read));
            tally.bloom(since);
            each_segment(one, answers, |at, answer, place, map| {
                let asked = SegmentQuery { version: version.number, answer, map, seed: &self.seed };
                at.find(&asked, &mut values_read, segment, output);
                if let Some(shares) = &mut shares {
                    shares.searched(place, output);
                }
            });
            values_read.end(values);
            if is_known_after {
                self.take_unknown(flags::BEFORE | told(flat), output);
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
            self.evaluate_before(one, output, &mut programs)?;
            programs.end(output, tally);
            output.errors = errors;
            return Ok(Change::Untold);
        }
        let change = match parts.event_type {
            Some(EventType::Insert) => Change::Enter,
            Some(EventType::Delete) => {
                // What the flag hides was gone before; only an older document may have been there still.
                if is_flagged && flat.has_old_side() {
                    self.find_old(0, one, segment, output, old, &mut programs)?;
                    output.certain.extend_from_slice(&old.found);
                }
                Change::Leave
            }
            Some(EventType::Update) if flat.has_old_side() => {
                if one.segments().any(|segment| segment.store.any_flags & flags::TRANSITIONS != 0) {
                    self.find_old(flags::TRANSITIONS, one, segment, output, old, &mut programs)?;
                    let leave = Outcome { transition: Some(Transition::Leave), certain: true };
                    output.told.extend(old.found.iter().map(|slot| (*slot, leave)));
                }
                Change::Compare
            }
            _ => Change::Untold,
        };
        programs.end(output, tally);
        output.errors = errors;
        Ok(change)
    }

    /// Leave out what has any of the flags *open*: it is evaluated by itself.
    fn take_unknown(&self, open: u8, output: &mut Output) {
        let is_closed = |slot: &u32| self.records.get(*slot).as_ref().is_some_and(|record| record.flags & open == 0);
        output.certain.retain(is_closed);
        output.candidates_for_cel.retain(is_closed);
    }

    /// Evaluate what may want an event of which all is known but what was before: what asks for that, and, where it tells of
    /// the old side, what may have matched it. What the index found of the rest matches, and only its transition is open.
    fn evaluate_before(&self, one: &One<'_>, output: &mut Output, programs: &mut Programs<'_>) -> Result<(), EventError> {
        let open = flags::BEFORE | told(one.flat);
        for segment in one.segments().filter(|segment| segment.store.any_flags & open != 0) {
            segment.find_flagged(open, one.version.number, output);
        }
        if one.flat.has_old_side() {
            output.unknown.append(&mut output.certain);
            output.counted = 0;
        }
        if output.unknown.is_empty() {
            return Ok(());
        }
        // Lazily nobody has looked at all of it yet.
        programs.check()?;
        let partial = PartialEvent::new(one.flat, &self.options.limits, None, programs)?;
        self.evaluate_each(&partial, output, programs)
    }

    /// Evaluate what an event with unknown values may match, each subscription by itself.
    fn evaluate_unknown(
        &self,
        one: &One<'_>,
        values: &mut ValuesScratch,
        output: &mut Output,
        programs: &mut Programs<'_>,
    ) -> Result<(), EventError> {
        let options = &self.options;
        // Lazily nobody has looked at all of it yet.
        programs.check()?;
        let partial = PartialEvent::new(one.flat, &options.limits, options.soft_delete.as_ref(), programs)?;
        let mut read = Values::begin(one.flat, &self.seed, values);
        for (segment, map) in one.segments().zip(&one.view.maps) {
            let candidates = partial.candidates(&segment.store, &map.ids, &mut read);
            let has_program =
                |slot| self.records.get(slot).as_ref().is_some_and(|record| record.program.is_some() || record.external_cel);
            segment.find_unknown(candidates, one.version.number, output, has_program);
        }
        read.end(values);
        // Those that are open are searched again; what a topic's budget refused is not open.
        _ = program::take_refused();
        self.evaluate_each(&partial, output, programs)
    }

    /// Evaluate what is open.
    fn evaluate_each(&self, partial: &PartialEvent, output: &mut Output, programs: &mut Programs<'_>) -> Result<(), EventError> {
        for slot in output.unknown.drain(..) {
            watch::spend(4);
            let record = self.records.get(slot);
            let Some(record) = record.as_ref() else { continue };
            let Some(subscription) = programs.subscription(slot, record) else { continue };
            if let Some(outcome) = partial.outcome(slot, record, &subscription, programs)? {
                output.told.push((slot, outcome));
            }
        }
        Ok(())
    }

    /// Find what the old side matches, of subscriptions that have all of the flags *need* and are not in `output.certain`; see
    /// [`OldScratch::found`]. False where it cannot be read, as lazy validation may have passed over.
    fn find_old(
        &self,
        need: u8,
        one: &One<'_>,
        segment: &mut SegmentScratch,
        output: &mut Output,
        old: &mut OldScratch,
        programs: &mut Programs<'_>,
    ) -> Result<bool, EventError> {
        let OldScratch { flattener, values: scratch, found, candidates, stays } = old;
        found.clear();
        candidates.clear();
        let validation = self.options.validation;
        let Some(text) = one.flat.old_text() else { return Ok(false) };
        let Ok(old) = flattener.flatten_old(&one.view.trie, &text, one.flat.parts(), validation) else { return Ok(false) };
        if !is_flagged(one.view, &old) {
            let mut values = Values::begin(&old, &self.seed, scratch);
            // Each side has answers of its own; only those for the event as it is are counted.
            let answers = answers(one.seen, one.view, |filter, map| filter.check(map, &mut values));
            each_segment(one, answers, |at, answer, _, map| {
                let asked = SegmentQuery { version: one.version.number, answer, map, seed: &self.seed };
                at.find_old(need, &asked, &mut values, segment, output, candidates);
            });
            values.end(scratch);
        }
        // There are few of them beside what matches now.
        candidates.sort_unstable();
        let is_candidate = |slot: &&u32| candidates.binary_search_by_key(*slot, |(slot, _)| *slot).is_ok();
        stays.clear();
        stays.extend(output.certain.iter().filter(is_candidate));
        stays.sort_unstable();
        for (slot, flags) in candidates.iter().filter(|(slot, _)| stays.binary_search(slot).is_err()) {
            if *flags & flags::CEL == 0 || programs.verdict(*slot, Side::Old)? == Verdict::True {
                found.push(*slot);
            }
        }
        Ok(true)
    }

    /// Find what the old side of an update matches: sorted, in `rest.old.found`. False where it cannot be read.
    fn find_stays(&self, one: &One<'_>, rest: &mut Work<'_>) -> bool {
        let Work { segment, output, old, cel, .. } = rest;
        // What was found and counted for the event stays as it is.
        let (certain, counts) = (std::mem::take(&mut output.certain), (output.candidates, output.listed));
        // Its errors are told with those of the other side.
        let mut errors = std::mem::take(&mut output.errors);
        let mut programs = Programs::new(self, one.event, one.flat, cel, &mut errors, false);
        let is_read = self.find_old(0, one, segment, output, old, &mut programs);
        programs.count(output);
        output.is_cut_off |= programs.is_cut_off();
        output.certain = certain;
        output.errors = errors;
        (output.candidates, output.listed) = counts;
        old.found.sort_unstable();
        matches!(is_read, Ok(true))
    }

    /// Which subscriptions match the document before an update, in the state that *version* is: slots, sorted. None where the
    /// event does not tell, or cannot be read.
    pub fn stays(&self, version: &Arc<Version>, event: Event<'_>, scratch: &mut Scratch) -> Option<Vec<u32>> {
        scratch.output.clear();
        watch::begin(self.options.ask);
        let found = self.with_flat(&mut Group::alone(version), event, scratch, |one, rest| {
            self.find_stays(one, rest).then(|| rest.old.found.clone())
        });
        found.ok().flatten()
    }
}

/// One event, flattened for the partitions that it sees.
#[derive(Clone, Copy)]
struct One<'e> {
    version: &'e Arc<Version>,
    event: Event<'e>,
    seen: &'e SeenPartitions<'e>,
    view: &'e View,
    flat: &'e Flat<'e>,
}

impl<'e> One<'e> {
    fn segments(&self) -> impl Iterator<Item = &'e Arc<Segment>> + Clone + use<'e> {
        segments(self.seen)
    }
}

/// What is left of a scratch while an event is flat.
struct Work<'s> {
    values: &'s mut ValuesScratch,
    segment: &'s mut SegmentScratch,
    output: &'s mut Output,
    old: &'s mut OldScratch,
    cel: &'s mut CelScratch,
    tally: &'s Tally,
}

fn segments<'r>(seen: &'r SeenPartitions<'r>) -> impl Iterator<Item = &'r Arc<Segment>> + Clone {
    seen.iter().flatten().flat_map(|partition| &partition.segments)
}

fn filters<'r>(seen: &'r SeenPartitions<'r>) -> impl Iterator<Item = &'r BloomFilter> + Clone {
    seen.iter().flatten().filter_map(|partition| partition.filter.as_deref())
}

/// What an event's partitions ask for.
fn sets<'r>(seen: &'r SeenPartitions<'r>) -> impl Iterator<Item = &'r PathSet> + Clone {
    segments(seen).map(|segment| &*segment.store.paths).chain(filters(seen).map(|filter| &*filter.places))
}

/// Whether the sets that an event's partitions ask for have these numbers: what [`sets`] could tell, in half the time.
fn asks_for(seen: &SeenPartitions<'_>, numbers: &[u64]) -> bool {
    let mut numbers = numbers.iter();
    for partition in seen.iter().flatten() {
        for segment in &partition.segments {
            if numbers.next() != Some(&segment.store.paths.number) {
                return false;
            }
        }
    }
    for partition in seen.iter().flatten() {
        if let Some(filter) = &partition.filter
            && numbers.next() != Some(&filter.places.number)
        {
            return false;
        }
    }
    numbers.next().is_none()
}

/// What *ask* says for the filter of each partition, whose places are the last maps of the view; MAYBE where there is none.
fn answers(seen: &SeenPartitions<'_>, view: &View, mut ask: impl FnMut(&BloomFilter, &PathMap) -> Answer) -> [Answer; 4] {
    let mut maps = view.maps[view.maps.len() - filters(seen).count()..].iter();
    seen.map(|partition| {
        let filter = partition.and_then(|partition| partition.filter.as_deref());
        filter.map_or(Answer::Maybe, |filter| maps.next().map_or(Answer::Maybe, |map| ask(filter, map)))
    })
}

/// Hand each segment that an event sees to *visit*, with the answer for its partition, that one's place, and the segment's map.
#[inline(always)]
fn each_segment(one: &One<'_>, answers: [Answer; 4], mut visit: impl FnMut(&Segment, Answer, usize, &PathMap)) {
    let mut maps = one.view.maps.iter();
    for (place, (partition, answer)) in one.seen.iter().zip(answers).enumerate() {
        let Some(partition) = partition else { continue };
        for (at, map) in partition.segments.iter().zip(&mut maps) {
            visit(at, answer, place, map);
        }
    }
}

/// The flag of what wants to hear of documents that it wants no longer, if an update tells of its old side.
fn told(flat: &Flat<'_>) -> u8 {
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
