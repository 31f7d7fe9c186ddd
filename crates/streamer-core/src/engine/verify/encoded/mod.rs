//! Encoded clauses: a condition in a segment, from which candidates are verified and merges are built. In 32-bit words:
//!
//! ```text
//!   status in ["paid", "draft"]      [path 3, 2 atoms] [EQUAL_TEXT] [text 17] [EQUAL_TEXT] [text 4]
//!   amount > 5                       [path 1, 1 atom ] [NUMBERS | from] [cut: 3 words]
//!   texts                            ... "draft" ... "paid" ...      one string, each text once
//! ```
//!
//! Invariant: equal clauses are equal words, since texts, programs and trees are interned first; so a clause is interned by
//! its words, and equal clauses of a segment are stored once.
//!
//! Cost: 12 bytes for an equality, 16 to 28 for a range, and the texts. Reading is a match on a tag, without
//! allocation.
//!
//! Rejected: `Vec<Clause>` as the parser makes it: 150 to 400 bytes a clause in six allocations.

mod atoms;
mod clauses;
mod encoder;

pub use atoms::{AtomView, Atoms, EncodedAtom, Pool, Texts, Words};
pub use clauses::ClauseView;
pub(in crate::engine) use clauses::{EncodedClauses, begin_clause};
pub use encoder::{CannotBuild, ClauseEncoder, FastHash, Rows};
