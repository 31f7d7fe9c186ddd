//! Event bytes to matches: the index, its segments and partitions, and the engine that holds them.

pub mod buckets;
pub mod build;
mod checks;
mod consistency;
#[cfg(test)]
mod live_tests;
#[allow(clippy::module_inception, reason = "the engine of the engine room")]
pub mod engine;
mod merging;
pub mod partitions;
pub mod paths;
pub mod registry;
pub mod segment;
pub mod store;
#[cfg(test)]
mod tests;
pub mod values;
mod verify;
pub mod words;

pub use build::{CostClass, Depth};
pub use engine::{Addition, Changes, Counters, Engine, Matched, Mode, Options, Pin, Root, Scratch, Selection};
pub use registry::{Host, Record};
pub use store::flags;
