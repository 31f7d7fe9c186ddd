//! From the bytes of an event to a flat event: which partitions it sees, and one flattening for the paths of all of
//! them.

use crate::bloom::filter::BloomFilter;
use crate::engine::index::output::Output;
use crate::engine::index::segment::{Segment, SegmentScratch};
use crate::engine::matching::group::{Group, VisiblePartitions};
use crate::engine::matching::programs::CelScratch;
use crate::engine::matching::scratch::{OldScratch, Scratch};
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::event::{Event, Located};
use crate::engine::state::name::join;
use crate::engine::state::telemetry::Tally;
use crate::engine::verify::paths::{PathSet, View};
use crate::engine::verify::values::ValuesScratch;
use crate::error::Unread;
use crate::flatten::Flat;
use crate::layout::Part;
use std::sync::Arc;

/// One event, flattened for the partitions that it sees.
#[derive(Clone, Copy)]
pub(super) struct One<'e> {
    pub version: &'e Arc<Version>,
    pub event: Event<'e>,
    pub visible: &'e VisiblePartitions<'e>,
    pub view: &'e View,
    pub flat: &'e Flat<'e>,
}

impl<'e> One<'e> {
    pub fn segments(&self) -> impl Iterator<Item = &'e Arc<Segment>> + Clone + use<'e> {
        segments(self.visible)
    }
}

/// The rest of a scratch while an event is flat.
pub(super) struct Work<'s> {
    pub values: &'s mut ValuesScratch,
    pub segment: &'s mut SegmentScratch,
    pub output: &'s mut Output,
    pub old: &'s mut OldScratch,
    pub cel: &'s mut CelScratch,
    pub tally: &'s Tally,
}

fn segments<'r>(visible: &'r VisiblePartitions<'r>) -> impl Iterator<Item = &'r Arc<Segment>> + Clone {
    visible.iter().flatten().flat_map(|partition| &partition.segments)
}

pub(super) fn filters<'r>(visible: &'r VisiblePartitions<'r>) -> impl Iterator<Item = &'r BloomFilter> + Clone {
    visible.iter().flatten().filter_map(|partition| partition.filter.as_deref())
}

/// The path sets of an event's partitions.
pub(super) fn sets<'r>(visible: &'r VisiblePartitions<'r>) -> impl Iterator<Item = &'r PathSet> + Clone {
    segments(visible).map(|segment| &*segment.store.paths).chain(filters(visible).map(|filter| &*filter.places))
}

/// Whether the path sets of an event's partitions have these numbers: as [`sets`] would show, in half the time.
pub(super) fn asks_for(visible: &VisiblePartitions<'_>, numbers: &[u64]) -> bool {
    let mut numbers = numbers.iter();
    for partition in visible.iter().flatten() {
        for segment in &partition.segments {
            if numbers.next() != Some(&segment.store.paths.number) {
                return false;
            }
        }
    }
    for partition in visible.iter().flatten() {
        if let Some(filter) = &partition.filter
            && numbers.next() != Some(&filter.places.number)
        {
            return false;
        }
    }
    numbers.next().is_none()
}

impl EngineState {
    /// The partitions that an event of *tenant* and *collection* sees: its own, and those for all collections or tenants.
    pub(super) fn visible_to<'r>(&self, version: &'r Version, tenant: &str, collection: Option<&str>) -> VisiblePartitions<'r> {
        let tenant_hash = self.seed.hash_bytes(tenant.as_bytes());
        let find =
            |hash, tenant, collection| version.partitions.get(hash, tenant, collection).map(|partition| self.opened(partition));
        let mut visible = [None; 4];
        if let Some(name) = collection {
            let hash = self.seed.hash_bytes(name.as_bytes());
            visible[0] = find(join(&self.seed, tenant_hash, hash), tenant, name);
            if version.any_tenant > 0 {
                visible[1] = find(join(&self.seed, self.all, hash), "*", name);
            }
        }
        if version.any_collection > 0 {
            visible[2] = find(join(&self.seed, tenant_hash, self.all), tenant, "*");
            if version.any_tenant > 0 {
                visible[3] = find(join(&self.seed, self.all, self.all), "*", "*");
            }
        }
        visible
    }

    /// Find the partition of an event, as far as it can be found without reading all of it; for [`Group::expect`].
    pub fn locate<'e>(&'e self, event: Event<'e>, scratch: &mut Scratch) -> Located<'e> {
        let flattener = &mut scratch.flattener;
        let caller = event.caller_parts(self.options.default_tenant.as_deref());
        let (tenant, collection) = flattener.locate(&self.locator, event.text, &caller, &self.options.limits);
        let hash = |name: Option<&str>| self.seed.hash_bytes(name.unwrap_or_default().as_bytes());
        let of_collection = match (collection, &self.options.layout.collection) {
            (None, Part::Made(..)) => flattener.located_made(&self.locator, event.text, &self.seed),
            _ => hash(collection),
        };
        Located { key: join(&self.seed, hash(tenant), of_collection), tenant, collection }
    }

    /// Flatten an event for the partitions that it sees, and *use* it.
    ///
    /// The paths to flatten depend on the event's partitions, and its partitions depend on names that must be read. So
    /// the paths are guessed, the cheapest guess first, and the parts that were read decide whether the guess was
    /// right:
    ///
    /// ```text
    ///   guess                       the view of                          right if                      who guesses
    ///   1 same partitions           the group's last event               its names are the same        an event of a group
    ///   2 same paths                this thread's last event             its partitions use the same   an event by itself
    ///   3 same partitions           the names of a first look, or of     its names are those           every other event
    ///                               `expect`
    ///   4 none                      the names that were read for 3       always                        if 3 was wrong
    /// ```
    ///
    /// Invariant: the flattening that is used was made for the partitions of the names that were read. An error after
    /// guess 1 or 2 is dropped: the event is flattened again, and 3 or 4 reports it.
    ///
    /// Cost: 1 saves a look for the names and four lookups of partitions, 2 the look for the names, a tenth of a small event; a
    /// wrong one costs a flattening, so that after a few wrong ones there is no guessing for a while
    /// ([`Luck`](crate::engine::verify::paths::Luck)).
    pub(super) fn with_flat<T>(
        &self,
        group: &mut Group<'_>,
        event: Event<'_>,
        scratch: &mut Scratch,
        use_: impl FnOnce(&One<'_>, &mut Work<'_>) -> T,
    ) -> Result<T, Unread> {
        let Scratch { flattener, views, values, segment, output, old, cel, tally } = scratch;
        let mut rest = Work { values, segment, output, old, cel, tally };
        let options = &self.options;
        let caller = event.caller_parts(options.default_tenant.as_deref());
        let version = group.version;
        let expected = group.expected();
        if let Some(view) = group.guess()
            && let Ok(flat) = flattener.flatten(&view.trie, event.text, options.validation, &caller, &options.limits)
            && group.is_right(flat.parts())
        {
            return Ok(use_(&One { version, event, visible: &group.visible, view: &view, flat: &flat }, &mut rest));
        }
        if expected.is_none()
            && group.is_alone()
            && self.locator.reads(&caller)
            && let Some(view) = views.guess()
        {
            if let Ok(flat) = flattener.flatten(&view.trie, event.text, options.validation, &caller, &options.limits) {
                let visible = self.visible_to(version, flat.parts().tenant, flat.parts().collection);
                let is_right = asks_for(&visible, views.key());
                if views.is_right(is_right) {
                    let used = use_(&One { version, event, visible: &visible, view: &view, flat: &flat }, &mut rest);
                    views.give_back(view);
                    return Ok(used);
                }
            }
            views.give_back(view);
        }
        let (located, name) = match expected {
            Some(Located { tenant, collection, .. }) => (tenant, collection),
            None => flattener.locate(&self.locator, event.text, &caller, &options.limits),
        };
        let mut visible = self.visible_to(version, located.unwrap_or_default(), name);
        let mut is_settled = false;
        loop {
            let is_last = asks_for(&visible, views.key());
            let view = views.get(is_last, sets(&visible), &options.layout, options.soft_delete.as_ref());
            let flat = flattener.flatten(&view.trie, event.text, options.validation, &caller, &options.limits)?;
            if !is_settled {
                // The located names are a guess: an event with duplicates, for example, may belong elsewhere.
                is_settled = true;
                let parts = flat.parts();
                if parts.tenant != located.unwrap_or_default() || parts.collection != name {
                    visible = self.visible_to(version, parts.tenant, parts.collection);
                    continue;
                }
            }
            group.keep(flat.parts(), visible, view);
            return Ok(use_(&One { version, event, visible: &visible, view, flat: &flat }, &mut rest));
        }
    }
}
