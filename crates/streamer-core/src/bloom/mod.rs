//! Can an event match anything of a partition at all? Two layouts of one filter over the same access keys.
//!
//! ```text
//!   keys of the subscriptions   data.status = "paid",  data.status = "open",  event.data.tags any leaf "vip"
//!   event                       {"data": {"status": "sent", "tags": ["new"]}}       carries none of them  ─►  NO
//!   event                       {"data": {"status": "paid"}}                        carries one           ─►  MAYBE
//! ```
//!
//! Contract (semantics.md section 9): *zero false negatives*. For every keyed subscription that an event matches,
//! certainly or not, the answer is MAYBE. A NO means that no keyed subscription matches, and allows no other
//! conclusion. So a key must come from a value that a match requires, and from the value, never from its spelling:
//!
//! ```
//! use streamer_core::bloom::blocked::Blocked;
//! use streamer_core::value::{Number, ScalarRef, Seed};
//!
//! let (filter, seed) = (Blocked::new(10, 0.001), Seed::new(1));
//! filter.add(seed.hash_bytes(b"1.0"));                 // wrong: a subscription to 1.0 by its spelling
//! assert!(!filter.has(seed.hash_bytes(b"1")));         // the event says 1, which is equal, and is lost
//!
//! let number = |literal: &[u8]| ScalarRef::Number(Number::parse(literal).unwrap());
//! filter.add(number(b"1.0").hash(&seed));              // right: by value
//! assert!(filter.has(number(b"10e-1").hash(&seed)));
//! ```
//!
//! *Blocked* guards the partitions of the engine, on the hashes that the index needs anyway. *Portable* is the layout
//! of a shipped filter.

pub mod answer;
pub mod blocked;
pub mod filter;
pub mod keys;
pub mod kinds;
pub mod portable;
pub mod shipped;
