//! Events in: one pass over the bytes, of the wanted paths only, checked in full or lazily.
//!
//! ```text
//!  event bytes ─ locate ─► tenant, collection ─► the view's PathTrie ─ flatten ─► Flat: values by path, parts
//! ```
//!
//! The contract (semantics.md section 1): under [`Validation::Full`] an event is accepted, rejected, and its error
//! placed, exactly as a full parse does. [`Validation::Lazy`] accepts every event that `Full` accepts, and finds the
//! same values.

mod carried;
mod entries;
mod envelope;
mod fields;
mod flat;
mod flattener;
mod formats;
mod locator;
mod old;
mod records;
mod scan;
mod timestamps;
mod trie;
mod typed;
mod unavailable;
mod unknown;

pub use entries::{Entries, Position};
pub use envelope::CallerParts;
pub use fields::{EventFields, FieldValue};
pub use flat::{EventId, Flat, Leaf, Leaves, Parts};
pub(crate) use flat::{LeafPlace, WantedMembers};
pub use flattener::{Flattener, Validation};
pub use formats::{Read, RecordReader, no_change};
pub(crate) use formats::{changes, limits_of_changes, of_change};
pub use locator::Locator;
pub use old::OldText;
pub(crate) use old::{find, substitute};
pub use timestamps::write_rfc3339;
pub use trie::{PathId, PathTrie, PathTrieBuilder};
pub(crate) use typed::{base64, elements};
pub(crate) use unknown::{Names, Rest, Unknown, is_prefix};
