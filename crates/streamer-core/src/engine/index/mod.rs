//! Which subscriptions of a segment does an event match? The index, how it is built, and how it is searched.
//!
//! ```text
//!   store ─► build ─► buckets ─┐
//!                              ├─ segment ─► search ─► output
//!   removals ─► tombstones ────┘
//! ```
//!
//! `access`, `selective` and `plan` describe how the index finds one subscription, without an engine.
//!
//! It imports only `verify/`.

pub(super) mod access;
pub mod buckets;
pub mod build;
pub(super) mod output;
pub(super) mod plan;
pub(super) mod search;
pub mod segment;
pub(super) mod selective;
pub(super) mod shapes;
pub(super) mod tombstones;
