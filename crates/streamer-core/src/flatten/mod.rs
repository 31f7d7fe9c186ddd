//! Events in: one pass over the bytes, of the wanted paths only, checked in full or lazily.
//!
//! ```text
//!  event bytes ─ locate ─► tenant, collection ─► the view's PathTrie ─ flatten ─► Flat: values by path, parts
//! ```
//!
//! The contract (semantics.md section 1): under [`Validation::Full`] an event is accepted, rejected, and its error placed,
//! exactly as a full parse does. [`Validation::Lazy`] accepts all that `Full` accepts, and finds the same values.

mod envelope;
mod holes;
mod old;
mod order;
mod scan;
pub mod slots;
mod trie;

use crate::error::EventError;
use crate::json;
use crate::limits::Limits;
use scan::{Scan, Scanned, Scratch};

pub use envelope::Locator;
pub(crate) use holes::{Unknown, is_prefix};
pub use old::OldText;
pub(crate) use old::{find, substitute};
pub use slots::{EventId, Flat, Leaf, Leaves, Parts, PathId, Position, Slots};
pub use trie::{PathTrie, PathTrieBuilder};

/// How much of an event is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// The whole event.
    #[default]
    Full,
    /// Only what is walked; reading may stop once everything wanted was found.
    Lazy,
}

/// What the caller says about an event besides its text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// Its tenant; wins over the event's.
    pub tenant: Option<&'a str>,
    /// Its collection, likewise.
    pub collection: Option<&'a str>,
    /// The tenant of an event that has none; without it such an event is an error.
    pub default_tenant: Option<&'a str>,
}

/// Reads events. It is scratch only: one for each thread, for events and tries of any kind, and after warm-up it
/// allocates nothing.
#[derive(Debug, Default)]
pub struct Flattener {
    slots: Slots,
    scratch: Scratch,
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
        given: &Given<'a>,
        limits: &Limits,
    ) -> Result<Flat<'a>, EventError> {
        json::check_length(event.len(), limits.max_event_bytes)?;
        match validation {
            Validation::Full => self.read::<true>(trie, event, given, limits),
            Validation::Lazy => self.read::<false>(trie, event, given, limits),
        }
    }

    fn read<'a, const CHECKED: bool>(
        &'a mut self,
        trie: &'a PathTrie,
        event: &'a [u8],
        given: &Given<'a>,
        limits: &Limits,
    ) -> Result<Flat<'a>, EventError> {
        let Flattener { slots, scratch } = self;
        let mut scan =
            Scan::<CHECKED> { text: event, trie, slots: &mut *slots, scratch, max_depth: limits.max_depth, missing: trie.needed };
        let scanned = scan.event();
        let read = match &scanned {
            // Lazily, what lies beyond is not looked at.
            Ok(scanned) if !CHECKED => scanned.end,
            _ => event.len(),
        };
        let (text, scanned) = json::utf8_first(&event[..read], scanned)?;
        let Scanned { not_an_object, duplicate, .. } = scanned;
        if let Some(at) = not_an_object {
            return Err(envelope::not_an_object(event[at], at));
        }
        if let Some((node, at)) = duplicate {
            return Err(envelope::duplicate_member(trie, node, at));
        }
        let resolved = envelope::resolve(trie, slots, text, given, CHECKED, limits.max_depth)?;
        if let Some((start, node)) = resolved.fallback {
            let mut scan =
                Scan::<CHECKED> { text: event, trie, slots: &mut *slots, scratch, max_depth: limits.max_depth, missing: 0 };
            scan.fallback(start, node)?;
        }
        // Of well-formed pieces only well-formed text was made.
        let slots: &'a Slots = slots;
        let plain = simdutf8::basic::from_utf8(&slots.plain).unwrap_or_default();
        let parts = resolved.parts(trie, text, plain, given);
        Ok(Flat { trie, slots, text, plain, parts, data: resolved.data, before: resolved.before })
    }
}
