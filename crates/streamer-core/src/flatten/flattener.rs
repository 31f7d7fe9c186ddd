//! Reads events: the passes over one, in their order.

use super::entries::Entries;
use super::envelope::{self, CallerParts, Resolved};
use super::fields::{EventFields, FieldPlaces};
use super::flat::Flat;
use super::records::{self, Origin};
use super::scan::{Scan, ScanScratch, Scanned};
use super::trie::PathTrie;
use super::typed::Columns;
use crate::error::{EventError, Unread};
use crate::json;
use crate::layout::BeforeHolds;
use crate::limits::Limits;

/// How much of an event is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// The whole event.
    #[default]
    Full,
    /// Only the parts that are walked; reading may stop once every wanted path was found.
    Lazy,
}

/// Reads events. It is scratch only: one for each thread, for events and tries of any kind, and after warm-up it stops
/// allocating.
#[derive(Debug, Default)]
pub struct Flattener {
    pub(super) entries: Entries,
    pub(super) scratch: ScanScratch,
    /// The event with encoded parts decoded, and that with `before` completed.
    decoded: Vec<u8>,
    columns: Columns,
    completed: Vec<u8>,
    /// The text of a template of the layout.
    made: String,
    /// For an event that is given as its fields.
    places: FieldPlaces,
}

impl Flattener {
    /// A flattener without any memory yet.
    pub fn new() -> Flattener {
        Flattener::default()
    }

    /// Read an event.
    ///
    /// # Errors
    ///
    /// See `testdata/README.md` for the codes, their offsets and which comes first.
    pub fn flatten<'a>(
        &'a mut self,
        trie: &'a PathTrie,
        event: &'a [u8],
        validation: Validation,
        caller: &CallerParts<'a>,
        limits: &Limits,
    ) -> Result<Flat<'a>, Unread> {
        json::check_length(event.len(), limits.max_event_bytes)?;
        let read = match validation {
            Validation::Full => self.read::<true>(trie, event, caller, limits),
            Validation::Lazy => self.read::<false>(trie, event, caller, limits),
        };
        // Most events are not empty, and skip this check.
        read.map_err(|unread| envelope::nothing(event).map_or(unread, Unread::Ignored))
    }

    /// Read an event that is given as its fields; *trie* is of a layout without parts.
    ///
    /// # Errors
    ///
    /// The fields at a path that is wanted cannot be those of one event.
    pub fn flatten_fields<'a>(
        &'a mut self,
        trie: &'a PathTrie,
        fields: &'a EventFields,
        tenant: &'a str,
    ) -> Result<Flat<'a>, EventError> {
        fields.flatten(trie, &mut self.entries, &mut self.places, tenant)
    }

    fn read<'a, const CHECKED: bool>(
        &'a mut self,
        trie: &'a PathTrie,
        event: &'a [u8],
        caller: &CallerParts<'a>,
        limits: &Limits,
    ) -> Result<Flat<'a>, Unread> {
        let Flattener { entries, scratch, decoded, columns, completed, made, .. } = self;
        let mut origin = Origin::default();
        let mut max_depth = limits.max_depth;
        let (mut event, mut text) = (event, pass::<CHECKED>(trie, entries, scratch, event, max_depth)?);
        if trie.ignores_any
            && let Some(reason) = envelope::ignored(trie, entries, text)
        {
            return Err(Unread::Ignored(reason));
        }
        if trie.layout.encoded
            && let Some(made) = records::decode(trie, entries, event, max_depth, columns, &mut origin)?
        {
            *decoded = made;
            // How deep it is has been looked at.
            (event, max_depth) = (decoded, usize::MAX);
            text = pass::<CHECKED>(trie, entries, scratch, event, max_depth).map_err(|error| origin.place(error))?;
        }
        if trie.layout.before_holds == BeforeHolds::Changed {
            let before_end = records::end_of_before(trie, entries);
            if let Some(made) = records::complete(trie, entries, event, &mut origin).map_err(|error| origin.place(error))? {
                *completed = made;
                (event, max_depth) = (completed, usize::MAX);
                // A duplicate member in it was one in `data` before, of which the last counts, or it was reported.
                text = pass_over::<CHECKED>(trie, entries, scratch, event, max_depth).map_err(|error| origin.place(error))?.0;
            }
            entries.before_end = before_end as u32;
        }
        let read = envelope::resolve(trie, entries, text, caller, CHECKED, limits.max_depth, made).and_then(|resolved| {
            if trie.layout.tells_of_unknown() {
                find_unknown(trie, entries, event, text, caller, made, &resolved)?;
            }
            if let Some((start, node)) = resolved.fallback {
                let mut scan = Scan::<CHECKED>::new(event, trie, &mut *entries, scratch, max_depth);
                scan.fallback(start, node)?;
            }
            Ok(resolved)
        });
        let resolved = read.map_err(|error| origin.place(error))?;
        // Well-formed pieces make well-formed text.
        let entries: &'a Entries = entries;
        let plain = simdutf8::basic::from_utf8(&entries.plain).unwrap_or_default();
        let mut parts = resolved.parts(trie, text, plain, made, caller);
        parts.is_known_after = !parts.has_unknown && entries.only_before;
        let is_noted = entries.untold || entries.is_partial_delete || entries.not_carried.any();
        parts.has_unknown |= is_noted || !entries.unknown.is_empty();
        let record = entries.record(trie);
        Ok(Flat { trie, entries, event, text, plain, parts, data: resolved.data, before: resolved.before, record })
    }
}

/// Find the unknown values by the rules of the layout, which few layouts have.
#[inline(never)]
fn find_unknown(
    trie: &PathTrie,
    entries: &mut Entries,
    event: &[u8],
    text: &str,
    caller: &CallerParts<'_>,
    made: &str,
    resolved: &Resolved,
) -> Result<(), EventError> {
    let collection = (!trie.layout.whole_rows.is_empty()).then(|| {
        let plain = simdutf8::basic::from_utf8(&entries.plain).unwrap_or_default();
        resolved.parts(trie, text, plain, made, caller).collection.map(str::to_owned)
    });
    records::find_unknown(trie, entries, event, resolved, collection.flatten().as_deref())
}

/// Read a text once, and refuse it if it is not an event; return the text that was read.
fn pass<'t, const CHECKED: bool>(
    trie: &PathTrie,
    entries: &mut Entries,
    scratch: &mut ScanScratch,
    text: &'t [u8],
    max_depth: usize,
) -> Result<&'t str, EventError> {
    let (read, Scanned { not_an_object, duplicate, .. }) = pass_over::<CHECKED>(trie, entries, scratch, text, max_depth)?;
    if let Some(at) = not_an_object {
        return Err(envelope::not_an_object(text[at], at));
    }
    if let Some((node, at)) = duplicate {
        return Err(envelope::duplicate_member(trie, node, at));
    }
    Ok(read)
}

/// Read a text once; return the text that was read, and the findings of the pass.
fn pass_over<'t, const CHECKED: bool>(
    trie: &PathTrie,
    entries: &mut Entries,
    scratch: &mut ScanScratch,
    text: &'t [u8],
    max_depth: usize,
) -> Result<(&'t str, Scanned), EventError> {
    let scanned = Scan::<CHECKED>::new(text, trie, entries, scratch, max_depth).event();
    let read = match &scanned {
        // A lazy pass does not read the rest.
        Ok(scanned) if !CHECKED => scanned.end,
        _ => text.len(),
    };
    Ok(json::utf8_first(&text[..read], scanned)?)
}
