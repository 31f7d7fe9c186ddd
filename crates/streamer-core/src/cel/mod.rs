//! CEL (semantics.md section 4): a text becomes a checked program.

pub mod ast;
pub mod program;

pub use program::Program;
