//! Event bytes to matches: the index, its segments and partitions, and the engine that holds them.

mod access;
mod ahead;
pub mod buckets;
pub mod build;
mod checks;
mod consistency;
mod dump;
#[allow(clippy::module_inception, reason = "the engine of the engine room")]
pub mod engine;
mod fields;
mod gathering;
mod group;
mod guards;
mod holes;
mod image;
mod judge;
#[cfg(test)]
mod live_tests;
pub mod mapped;
mod matching;
mod merging;
pub mod partitions;
pub mod paths;
#[cfg(test)]
mod phase1_tests;
mod plan;
mod programs;
pub mod registry;
pub mod segment;
pub mod shares;
pub mod store;
pub mod telemetry;
#[cfg(test)]
mod tests;
mod tombstones;
pub mod values;
mod verify;
mod wide;
pub mod words;
mod write;

pub use access::{CostClass, access_of};
pub use ahead::AHEAD;
pub use build::Depth;
pub use engine::{
    Addition, Changes, Engine, Held, Identity, LetGo, Matched, Mode, Options, Pin, Root, Scratch, Selection, Stays,
};
pub use gathering::Gathered;
pub use group::{Group, Located};
pub use guards::{FilterState, Phase1};
pub use image::KIND as IMAGES;
pub use judge::{Change, Outcome, Transition};
pub use mapped::Fault;
pub use plan::{Plan, plan};
pub use programs::{CelError, FailingSubscription, Judge, Judged, Side};
pub use registry::{Host, Record};
pub use store::flags;
pub use telemetry::{Counters, Telemetry};
pub use write::Reentered;
