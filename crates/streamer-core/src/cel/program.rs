//! A checked CEL expression.

use super::ast::{Ast, Variable};
use crate::regexps::Regexp;

/// A checked expression. Immutable: any number of threads may evaluate it.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The text as written.
    pub source: Box<str>,
    /// Its syntax tree, names resolved.
    pub ast: Ast,
    /// The parts of the event that it reads.
    pub variables: Variables,
    /// Each constant regexp of `matches`, as written and as it is compiled; sorted by the former, each once.
    pub regexps: Box<[(Box<str>, Regexp)]>,
    /// How many variables of macros are alive at once, at most.
    pub slots: u32,
}

/// A set of parts of the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variables(u8);

impl Variables {
    /// Whether it is in the set.
    pub const fn has(self, variable: Variable) -> bool {
        self.0 & (1 << variable as u8) != 0
    }

    /// Put one in.
    pub const fn insert(&mut self, variable: Variable) {
        self.0 |= 1 << variable as u8;
    }
}

impl Program {
    /// Whether it reads `before`, so that it is evaluated once, without transition (semantics.md section 7).
    pub const fn mentions_before(&self) -> bool {
        self.variables.has(Variable::Before)
    }
}
