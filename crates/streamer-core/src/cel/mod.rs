//! CEL (semantics.md section 4, cost units: docs/cel-cost.md): a text becomes a checked program, a program and an event an
//! outcome.
//!
//! ```text
//!   text ─ parse ─► ast ─ check ─► Program ─ Executable::new ─► Executable, made once, shared by threads
//!
//!   event ─ flatten ─► Flat ─ Document::new ─► Document ─┐    (once for an event and side, by its first user)
//!                                   Executable::evaluate ┴─► Outcome: true, false, error(reason) or unknown; cost
//! ```
//!
//! How an engine evaluates:
//!
//! ```text
//!   let arena = Arena::default();                  // one for a thread; `reset` keeps its memory for the next event
//!   let document = Document::new(&flat, &arena, &limits)?;      // parses later
//!   let before = document.as_before();             // the old side: data := before, before := null
//!   let mut scratch = cel::Scratch::default();     // one for a thread, for any programs
//!   let outcome = executable.evaluate(&document, budget, &mut scratch)?;
//! ```
//!
//! `data` and `before` are each parsed once, when the first program that reads all of them is evaluated; all programs
//! of the event share the result. For the first few programs that select members by name, only these are read
//! (`members.rs`). The `Result` of `evaluate` is that of parsing: an error is an event that only lazy validation
//! accepted, the same for every program of the event. The flattening must be one of `Validation::Full`, since a lazy
//! one may not have read `ts`. An event that was flattened lazily is flattened once more for its CEL candidates; an
//! empty trie will do.
//!
//! An [`Evaluation`] has no text: errors of evaluation are common (a field that some documents lack) and are counted, but
//! logged at most once a minute. `Executable::evaluate_in_words` returns the same outcome with a description of the
//! error.

mod arithmetic;
pub mod ast;
mod cache;
mod check;
mod compare;
mod condition;
mod constants;
mod depth;
mod document;
pub mod error;
mod evaluate;
#[cfg(test)]
mod evaluation_tests;
mod executable;
mod extensions;
mod frames;
mod functions;
mod hints;
mod lexer;
mod literals;
mod lower;
mod macros;
mod matches;
mod members;
mod moments;
mod outcome;
mod parse;
pub mod program;
#[cfg(test)]
mod tests;
mod times;
mod types;
mod values;

pub use cache::{Cache, CacheCounts};
pub use check::{Remark, compile, remarks};
pub use condition::{Condition, is_flagged};
pub use constants::may_fail;
pub use document::{Arena, Document};
pub use error::Error;
pub use executable::{EvaluationScratch, Executable};
pub(crate) use lower::{EventSet, Work, joined};
pub use lower::{Lowered, lower};
pub use moments::Times;
pub use outcome::{Evaluation, Reason, Verdict};
use parse::parse;
pub use program::Program;
