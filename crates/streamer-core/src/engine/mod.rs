//! Event bytes to matches: the index, its segments and partitions, and the engine that holds them.

pub mod buckets;
pub mod build;
mod consistency;
pub mod paths;
pub mod store;
pub mod values;
mod verify;
pub mod words;
