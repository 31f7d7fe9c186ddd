//! What does an engine store? Its versions with all their partitions, the records of its subscriptions, and its counts.
//!
//! ```text
//!   engine_state ─┬─ engine_version ─► partitions ─► segments, or snapshot_sections that are not opened yet
//!                 ├─ registry ─► record ─► texts       the subscription of each slot
//!                 ├─ writer                            the data of the one that writes
//!                 └─ telemetry, shares                 counts
//! ```
//!
//! It also has the types that a host passes in: `options`, `addition`, `event`, `external_cel`.
//!
//! It imports only `index/` and `verify/`.

pub(super) mod addition;
pub(super) mod engine_state;
pub(super) mod engine_version;
pub(super) mod event;
pub(super) mod external_cel;
pub(super) mod name;
pub(super) mod options;
pub mod partitions;
pub(super) mod record;
pub mod registry;
pub mod shares;
pub(super) mod snapshot_sections;
pub mod telemetry;
pub(super) mod texts;
pub(super) mod writer;
