//! Finds the names of an event that choose its view, or its id, without reading the rest.

use super::entries::Entries;
use super::envelope::{CallerParts, id_of};
use super::flat::EventId;
use super::flattener::Flattener;
use super::scan::Scan;
use super::trie::{COLLECTION, OPTIONAL, PartPlace, PathTrie, ROOT, TENANT};
use crate::layout::{EventLayout, Part};
use crate::limits::Limits;
use crate::value::{Kind, Scalar, Seed};
use std::sync::Arc;

/// Finds an event's tenant and collection, to choose the view that it is flattened for.
#[derive(Debug)]
pub struct Locator(PathTrie);

impl Locator {
    /// A locator for events of *layout*.
    pub fn new(layout: &EventLayout) -> Locator {
        let (tenant, collection) = (layout.tenant.clone(), layout.collection.clone());
        Locator(PathTrie::builder(Arc::new(EventLayout { tenant, collection, ..layout.without_parts() })).build())
    }

    /// Whether an event has to be read for the parts that are not given.
    #[inline]
    pub fn reads(&self, caller: &CallerParts<'_>) -> bool {
        self.0.needed > 0 && (caller.tenant.is_none() || caller.collection.is_none())
    }

    /// A locator of the id of an event, for [`Flattener::locate_id`].
    pub fn of_id(layout: &EventLayout) -> Locator {
        let only = EventLayout { id: layout.id.clone(), ..layout.without_parts() };
        let mut trie = PathTrie::builder(Arc::new(only)).build();
        // A lazy pass may skip optional nodes; this pass exists only to read them.
        trie.nodes.iter_mut().for_each(|node| node.flags &= !OPTIONAL);
        trie.needed = trie.nodes[ROOT as usize].children;
        Locator(trie)
    }
}

impl Flattener {
    /// Find an event's tenant and collection, without checking anything and stopping as soon as both are found.
    ///
    /// The result is a guess that is right for a good event without duplicates, and without escapes in those names: the
    /// caller that flattens the event afterwards compares it with the parts of that pass, and flattens again for
    /// another view if they differ. An event that cannot be read has the default tenant here, and its error when it is
    /// flattened.
    pub fn locate<'a>(
        &mut self,
        locator: &'a Locator,
        event: &'a [u8],
        caller: &CallerParts<'a>,
        limits: &Limits,
    ) -> (Option<&'a str>, Option<&'a str>) {
        let trie = &locator.0;
        let unread = (caller.tenant.or(caller.default_tenant), caller.collection);
        if (caller.tenant.is_some() && caller.collection.is_some()) || event.len() >= u32::MAX as usize {
            return unread;
        }
        let Flattener { entries, scratch, .. } = self;
        if trie.needed == 0 {
            // Only constants, and the event itself, which is not a name.
            entries.begin(trie.nodes.len());
        } else {
            let max_depth = limits.max_depth;
            let mut scan = Scan::<false>::new(event, trie, &mut *entries, scratch, max_depth);
            if !matches!(scan.event(), Ok(scanned) if scanned.not_an_object.is_none()) {
                return unread;
            }
        }
        let entries: &Entries = entries;
        let find = |part: usize| -> Option<&'a str> {
            let place_of_collection =
                trie.places[part].iter().find_map(|place| entries.value(place.node).filter(|e| e.kind != Kind::Null));
            match place_of_collection {
                // A part that is made of several texts is not stored yet.
                _ if part == COLLECTION && matches!(trie.layout.collection, Part::Made(..)) => None,
                Some(entry) if entry.kind != Kind::String => None,
                // Its plain text is not the event's.
                Some(entry) if entry.plain != 0 => None,
                Some(entry) => std::str::from_utf8(event.get(entry.start as usize + 1..entry.end as usize - 1)?).ok(),
                None => match trie.layout.parts()[part].1.constant() {
                    Some(Scalar::String(text)) => Some(text),
                    _ => None,
                },
            }
        };
        (caller.tenant.or_else(|| find(TENANT)).or(caller.default_tenant), caller.collection.or_else(|| find(COLLECTION)))
    }

    /// A number for the parts of the collection's template, in the event that was just located: the text itself is only
    /// made when the event is read.
    pub(crate) fn located_made(&self, locator: &Locator, event: &[u8], seed: &Seed) -> u64 {
        let raw = |place: &PartPlace| {
            self.entries.value(place.node).and_then(|entry| event.get(entry.start as usize..entry.end as usize))
        };
        let texts = locator.0.places[COLLECTION].iter().filter_map(raw);
        texts.fold(0, |sum: u64, text| sum.rotate_left(5) ^ seed.hash_bytes(text))
    }

    /// Find the id of a valid event, without other checks: a lazy pass may have stopped before it.
    pub fn locate_id<'a>(&'a mut self, locator: &'a Locator, event: &'a [u8], limits: &Limits) -> Option<EventId<'a>> {
        let trie = &locator.0;
        let Flattener { entries, scratch, .. } = self;
        let mut read = 0;
        if trie.needed > 0 {
            let mut scan = Scan::<false>::new(event, trie, &mut *entries, scratch, limits.max_depth);
            read = scan.event().ok()?.end;
        } else {
            entries.begin(trie.nodes.len());
        }
        let entries: &'a Entries = entries;
        let text = std::str::from_utf8(event.get(..read)?).ok()?;
        id_of(trie, entries, text, std::str::from_utf8(&entries.plain).ok()?)
    }
}
