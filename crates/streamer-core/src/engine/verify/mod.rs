//! Is a condition true for an event? The conditions of a segment's subscriptions, the values of an event, and the ways to
//! compare both.
//!
//! ```text
//!   encoded/ ─► store          the conditions: atoms, clauses of them, conjunctions of these
//!   paths ─► values            the event: its values at the paths that the conditions read
//!   atoms ─► clauses ─► whole_subscriptions       is one of them true?
//!   matchers, wide_clauses, slices                which of many are true? They are looked up together
//! ```
//!
//! The index takes the short forms of the clauses of a candidate from `check_records`. `scopes` and `element_choice` choose
//! the elements of arrays for a pattern. `transition` and `failures` have the results other than true and false: which
//! transition, which error. `lint` finds conditions that are true for no event, or for all.
//!
//! It imports no other folder of the engine.

pub(super) mod atoms;
pub(super) mod cells;
pub(super) mod check_records;
pub(super) mod clauses;
pub(super) mod element_choice;
pub mod encoded;
pub(super) mod failures;
pub(super) mod lint;
pub(super) mod matchers;
pub mod paths;
pub(super) mod scopes;
pub(super) mod slices;
pub mod store;
pub(super) mod transition;
pub mod values;
pub(super) mod verification_table;
pub(super) mod whole_subscriptions;
pub(super) mod wide_clauses;
