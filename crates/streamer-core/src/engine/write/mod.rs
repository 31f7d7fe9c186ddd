//! Subscriptions to the next version: the part of an engine that writes.
//!
//! ```text
//!   draft ─► commit ─► segments, merging, guards: the filters ─► the next version
//! ```
//!
//! It imports `state/`, `index/` and `verify/`, and never `matching/` or `file/`.

pub(super) mod changes;
pub(super) mod commit;
pub(super) mod draft;
pub(super) mod guards;
pub(super) mod merging;
