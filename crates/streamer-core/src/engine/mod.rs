//! Event bytes to matches: the index, its segments and partitions, and the engine that owns them.
//!
//! ```text
//!   matching/   events to matches      ─┐
//!   write/      changes to versions    ─┼─► state/  versions, records ─► index/  segments ─► verify/  conditions, values
//!   file/       snapshots, images      ─┘
//! ```
//!
//! A folder imports only folders to its right (`tests/unit/test_rooms.py` checks this). The three on the left do not import
//! one another, but call one another's methods of [`EngineState`]: a match opens a section of a file, for example. The files
//! next to this one use all folders: `engine.rs` is the engine, `inspect.rs` and `dump.rs` report on it.

mod dump;
#[allow(clippy::module_inception, reason = "the engine of the engine room")]
mod engine;
pub mod file;
pub mod index;
mod inspect;
#[cfg(test)]
mod live_tests;
mod matching;
#[cfg(test)]
mod phase1_tests;
pub mod state;
#[cfg(test)]
mod tests;
pub mod verify;
mod write;

pub use engine::Engine;
pub use file::gathering::Gathered;
pub use file::image::KIND as IMAGES;
pub use index::access::{CostClass, access_of};
pub use index::build::Depth;
pub use index::output::{Matched, Stays};
pub use index::plan::{Plan, plan};
pub use index::selective::{Select, Selective, selective};
pub use inspect::PartitionSizes;
pub use matching::batch_prefetch::PREFETCHED;
pub use matching::group::Group;
pub use matching::scratch::Scratch;
pub use state::addition::{Addition, Host, Item};
pub use state::engine_state::EngineState;
pub use state::engine_version::{Pin, Version};
pub use state::event::{Event, Identity, Located};
pub use state::external_cel::{ExternalCel, Side};
pub use state::name::PartitionName;
pub use state::options::{Options, Phase1, ReleaseGil};
pub use state::record::{Record, RecordRef};
pub use state::snapshot_sections::{ReadSubscription, SnapshotFault};
pub use state::telemetry::{Counters, Telemetry};
pub use state::writer::Reentered;
pub use verify::failures::{CelError, FailingSubscription};
pub use verify::lint::{Finding, identity, is_suspect, lint};
pub use verify::store::flags;
pub use verify::transition::{Change, Outcome, Transition};
pub use write::changes::{Changes, Selection, WriteMode};
pub use write::draft::Draft;
pub use write::guards::FilterState;
pub use write::merging::MANY;
