//! An engine and files: the part that reads and writes bytes that outlive the process.
//!
//! ```text
//!   snapshot ─► mapped: its sections, opened when they are needed ─► image: a compiled section, read in place
//!   engine ─► gathering ─► the keys of a filter to ship
//! ```
//!
//! `state/snapshot_sections.rs` has the sections of a file, because a partition may consist of one.
//!
//! It imports `state/`, `index/` and `verify/`, and never `matching/` or `write/`.

pub(super) mod gathering;
pub(super) mod image;
pub mod mapped;
