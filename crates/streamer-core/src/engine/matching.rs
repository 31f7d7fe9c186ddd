//! Matching: the partitions that an event sees, one flattening for all of them, their segments one after the other.

use crate::bloom::filter::{Answer, Filter};
use crate::engine::engine::{Inner, Matched, OldScratch, Pin, Root, Scratch};
use crate::engine::judge::{Change, Outcome, Transition};
use crate::engine::partitions::{Partition, join};
use crate::engine::paths::{PathMap, View};
use crate::engine::segment::{Asked, Output, Segment, SegmentScratch};
use crate::engine::store::flags;
use crate::engine::values::{Values, ValuesScratch};
use crate::error::EventError;
use crate::flatten::{Flat, Given};
use crate::layout::EventType;
use crate::value::{Number, ScalarRef};
use std::sync::Arc;

impl Inner {
    /// The partitions that an event of *tenant* and *collection* sees: its own, and those for all collections or tenants.
    fn seen_by<'r>(&self, root: &'r Root, tenant: &str, collection: Option<&str>) -> Seen<'r> {
        let all = self.seed.hash_bytes(b"*");
        let tenant_hash = self.seed.hash_bytes(tenant.as_bytes());
        let find = |hash, tenant, collection| root.partitions.get(hash, tenant, collection);
        let mut seen = [None; 4];
        if let Some(name) = collection {
            let hash = self.seed.hash_bytes(name.as_bytes());
            seen[0] = find(join(&self.seed, tenant_hash, hash), tenant, name);
            if root.any_tenant > 0 {
                seen[1] = find(join(&self.seed, all, hash), "*", name);
            }
        }
        if root.any_collection > 0 {
            seen[2] = find(join(&self.seed, tenant_hash, all), tenant, "*");
            if root.any_tenant > 0 {
                seen[3] = find(join(&self.seed, all, all), "*", "*");
            }
        }
        seen
    }

    pub(super) fn match_event<'s>(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        scratch.output.clear();
        scratch.tally.begin(&self.telemetry);
        let change = self.with_flat(root, event, tenant, collection, scratch, |seen, view, flat, scratch| {
            self.judge(root, event, seen, view, flat, scratch)
        });
        let Scratch { output, tally, .. } = scratch;
        let change = change.inspect_err(|error| tally.reject(error.code))?;
        tally.looked(output.candidates, output.listed);
        let is_open = !output.pending.is_empty();
        if !is_open {
            let uncertain = output.told.iter().filter(|(_, outcome)| !outcome.certain).count();
            tally.settle(output.certain.len() + output.told.len(), uncertain);
        }
        Ok(Matched {
            certain: &output.certain,
            told: &output.told,
            pending: &output.pending,
            change,
            work: output.candidates + output.listed,
            spent: if is_open { tally.spent() } else { None },
            pin: Pin(root.generation.clone()),
        })
    }

    /// Flatten an event for the partitions that it sees.
    fn with_flat<T>(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
        use_: impl FnOnce(&Seen<'_>, &View, &Flat<'_>, &mut Rest<'_>) -> T,
    ) -> Result<T, EventError> {
        let Scratch { flattener, views, values, segment, output, old, .. } = scratch;
        let options = &self.options;
        let given = Given { tenant, collection, default_tenant: options.default_tenant.as_deref() };
        let (located, name) = flattener.locate(&self.locator, event, &given, &options.limits);
        let mut seen = self.seen_by(root, located.unwrap_or_default(), name);
        let mut is_settled = false;
        loop {
            let sets = segments(&seen).map(|segment| &*segment.store.paths).chain(filters(&seen).map(|filter| &*filter.places));
            let view = views.get(sets, &options.layout, options.soft_delete.as_ref());
            let flat = flattener.flatten(&view.trie, event, options.validation, &given, &options.limits)?;
            if !is_settled {
                // What was located is a guess: an event with duplicates, say, may belong elsewhere.
                is_settled = true;
                let settled = self.seen_by(root, flat.parts().tenant, flat.parts().collection);
                let is_same = |(one, other): (&Option<&Arc<Partition>>, &Option<&Arc<Partition>>)| match (one, other) {
                    (None, None) => true,
                    (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                    _ => false,
                };
                if !seen.iter().zip(&settled).all(is_same) {
                    seen = settled;
                    continue;
                }
            }
            return Ok(use_(&seen, &view, &flat, &mut Rest { values, segment, output, old }));
        }
    }

    /// Judge what an event's partitions hold (see the table in `judge.rs`), and say what the transition of ordinary matches is.
    fn judge(&self, root: &Root, event: &[u8], seen: &Seen<'_>, view: &View, flat: &Flat<'_>, rest: &mut Rest<'_>) -> Change {
        let parts = flat.parts();
        if parts.has_unknown {
            segments(seen).for_each(|segment| segment.everything(root.version, None, rest.output));
            return Change::Untold;
        }
        let is_flagged = is_flagged(view, flat);
        if is_flagged {
            segments(seen).for_each(|segment| segment.everything(root.version, Some(flags::WHOLE), rest.output));
        } else {
            let mut values = Values::begin(flat, &self.seed, rest.values);
            let answers = answers(seen, view, |filter, map| filter.ask(map, &mut values));
            for ((segment, answer), map) in guarded(seen, answers).zip(&view.maps) {
                let asked = Asked { version: root.version, answer, map, seed: &self.seed };
                segment.find(&asked, &mut values, rest.segment, rest.output);
            }
            values.end(rest.values);
        }
        match parts.event_type {
            Some(EventType::Insert) => Change::Enter,
            Some(EventType::Delete) => {
                // What the flag hides was gone before; only an older document may have been there still.
                if is_flagged && flat.has_old_side() {
                    self.find_old(root, event, 0, seen, view, flat, rest);
                    rest.output.certain.extend(rest.old.found.iter().map(|(slot, _)| slot));
                }
                Change::Leave
            }
            Some(EventType::Update) if flat.has_old_side() => {
                if segments(seen).any(|segment| segment.store.any_flags & flags::TRANSITIONS != 0) {
                    self.find_old(root, event, flags::TRANSITIONS, seen, view, flat, rest);
                    let leave = Outcome { transition: Some(Transition::Leave), certain: true };
                    let OldScratch { found, stays, .. } = rest.old;
                    if !found.is_empty() {
                        stays.clear();
                        stays.extend_from_slice(&rest.output.certain);
                        stays.sort_unstable();
                        let left = found.iter().filter(|(slot, _)| stays.binary_search(slot).is_err());
                        rest.output.told.extend(left.map(|(slot, _)| (*slot, leave)));
                    }
                }
                Change::Compare
            }
            _ => Change::Untold,
        }
    }

    /// Find what the old side matches, of subscriptions that have all of the flags *need*; see [`OldScratch::found`]. False
    /// where it cannot be read, as lazy validation may have passed over.
    #[allow(clippy::too_many_arguments, reason = "they are what is known of one event")]
    fn find_old(
        &self,
        root: &Root,
        event: &[u8],
        need: u8,
        seen: &Seen<'_>,
        view: &View,
        flat: &Flat<'_>,
        rest: &mut Rest<'_>,
    ) -> bool {
        let OldScratch { flattener, values: scratch, found, .. } = &mut *rest.old;
        found.clear();
        let Some(text) = flat.old_text(event) else { return false };
        let Ok(old) = flattener.flatten_old(&view.trie, &text, flat.parts(), self.options.validation) else { return false };
        if !is_flagged(view, &old) {
            let mut values = Values::begin(&old, &self.seed, scratch);
            // Each side has answers of its own; only those for the event as it is are counted.
            let answers = answers(seen, view, |filter, map| filter.check(map, &mut values));
            for ((segment, answer), map) in guarded(seen, answers).zip(&view.maps) {
                let asked = Asked { version: root.version, answer, map, seed: &self.seed };
                segment.find_old(need, &asked, &mut values, rest.segment, rest.output, found);
            }
            values.end(scratch);
        }
        true
    }

    pub(super) fn stays(
        &self,
        root: &Arc<Root>,
        event: &[u8],
        tenant: Option<&str>,
        collection: Option<&str>,
        scratch: &mut Scratch,
    ) -> Option<Vec<u32>> {
        let is_read = self.with_flat(root, event, tenant, collection, scratch, |seen, view, flat, rest| {
            self.find_old(root, event, 0, seen, view, flat, rest)
        });
        if !is_read.unwrap_or(false) {
            return None;
        }
        let mut slots: Vec<u32> = scratch.old.found.iter().map(|(slot, _)| *slot).collect();
        slots.sort_unstable();
        Some(slots)
    }
}

/// The partitions that an event sees.
type Seen<'r> = [Option<&'r Arc<Partition>>; 4];

/// What is left of a scratch while an event is flat.
struct Rest<'s> {
    values: &'s mut ValuesScratch,
    segment: &'s mut SegmentScratch,
    output: &'s mut Output,
    old: &'s mut OldScratch,
}

fn segments<'r>(seen: &'r Seen<'r>) -> impl Iterator<Item = &'r Arc<Segment>> + Clone {
    seen.iter().flatten().flat_map(|partition| &partition.segments)
}

fn filters<'r>(seen: &'r Seen<'r>) -> impl Iterator<Item = &'r Filter> + Clone {
    seen.iter().flatten().filter_map(|partition| partition.filter.as_deref())
}

/// What *ask* says for the filter of each partition, whose places are the last maps of the view; MAYBE where there is none.
fn answers(seen: &Seen<'_>, view: &View, mut ask: impl FnMut(&Filter, &PathMap) -> Answer) -> [Answer; 4] {
    let mut maps = view.maps[view.maps.len() - filters(seen).count()..].iter();
    seen.map(|partition| {
        let filter = partition.and_then(|partition| partition.filter.as_deref());
        filter.map_or(Answer::Maybe, |filter| maps.next().map_or(Answer::Maybe, |map| ask(filter, map)))
    })
}

/// The segments that an event sees, in the order of [`segments`], each with the answer for its partition.
fn guarded<'r>(seen: &'r Seen<'r>, answers: [Answer; 4]) -> impl Iterator<Item = (&'r Arc<Segment>, Answer)> {
    let partitions = seen.iter().zip(answers).filter_map(|(partition, answer)| Some((partition.as_ref()?, answer)));
    partitions.flat_map(|(partition, answer)| partition.segments.iter().map(move |segment| (segment, answer)))
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
