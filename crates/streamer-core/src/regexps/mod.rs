//! Regular expressions: how they are written, how large they are, and how one is run.
//!
//! ```text
//!   filter `matches`, CEL    RE2's syntax          re2.rs  ───────┐
//!   patterns                 I-Regexp (RFC 9485)   i_regexp.rs  ──┴─► Regexp ─ program.rs ─► CompiledRegexp: does it match?
//!                                                  size.rs, instructions.rs: its cost
//! ```
//!
//! Each syntax is read here, so that RE2 and RFC 9485 define the accepted expressions and their meaning; `regex-syntax`
//! and `regex-automata` run the result. The value matcher over many of them is [`crate::automaton::regexps`].

mod classes;
mod depth;
pub mod i_regexp;
pub(crate) mod instructions;
pub mod program;
pub mod re2;
pub(crate) mod size;

pub use program::CompiledRegexp;

/// A regular expression in the syntax of `regex-syntax`, to be compiled by its user.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Regexp {
    /// The expression. One that must match the whole string begins with `\A` and ends with `\z`.
    pub expression: Box<str>,
    /// About how many states a text may keep alive at once, computed from the original text (docs/cel-cost.md).
    pub size: usize,
}

/// A literal character, also in a class.
fn literal(letter: char) -> String {
    if letter.is_ascii_alphanumeric() { letter.to_string() } else { format!("\\x{{{:X}}}", letter as u32) }
}

/// Why a regexp is refused that is larger than a limit lets it be.
pub(crate) fn too_large(size: usize, most: usize) -> String {
    format!("a regular expression of size {size}; at most {most} is allowed (limits.max_regexp_size)")
}
