//! The native core of Streamer: which subscriptions does an event match, exactly.
//!
//! ```text
//!  subscription bytes ─► subscriptions/ ─► normal form ─► engine/ (the index) over automaton/
//!  event bytes ─► flatten/ (one pass, wanted paths only) ─► values ─► engine/ ─► ids
//!                                        naive/ is the slow oracle
//! ```
//!
//! `docs/semantics.md` defines which subscriptions match; the words of the modules are those of the Python package.

#![warn(missing_docs)]

pub mod automaton;
pub mod bloom;
pub mod cel;
pub mod engine;
pub mod error;
pub mod flatten;
pub mod fork;
pub mod heap;
pub mod json;
pub mod layout;
pub mod limits;
pub mod map;
pub mod naive;
pub mod prefetch;
pub mod regexps;
mod stored;
pub mod subscriptions;
pub mod value;
pub mod watch;
