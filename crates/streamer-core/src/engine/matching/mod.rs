//! Event bytes to matches: the part of an engine that only reads.
//!
//! ```text
//!   event ─► flattening ─► matches: the segments of its partitions ─► programs: CEL of the candidates ─► Matched
//!                             └─► unknown/: events that lack values
//! ```
//!
//! `group` and `batch_prefetch` save work for events that come together; `scratch` has the buffers of a thread.
//!
//! It imports `state/`, `index/` and `verify/`, and never `write/` or `file/`.

pub(super) mod batch_prefetch;
pub(super) mod flattening;
pub(super) mod group;
pub(super) mod matches;
pub(super) mod programs;
pub(super) mod scratch;
pub(super) mod unknown;
