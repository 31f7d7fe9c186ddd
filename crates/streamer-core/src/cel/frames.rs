//! The open parts that the parser of CEL keeps: operators that wait, brackets, and the tokens that may come next.

use super::ast::{BinaryOp, Branch, LogicOp, UnaryOp};
use super::lexer::{Lexeme, Token};

/// An operator that waits for its right operand, or for one that binds weaker.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub op: Op,
    pub at: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Op {
    Logic(LogicOp),
    Binary(BinaryOp),
    /// The operator, its number of repetitions, and the offset of the last one.
    Unary(UnaryOp, u32, u32),
    /// The beginning of brackets: binds to neither side.
    Fence,
}

impl Op {
    pub fn binds(self) -> u8 {
        match self {
            Op::Fence => 0,
            Op::Logic(LogicOp::Or) => 1,
            Op::Logic(LogicOp::And) => 2,
            Op::Binary(BinaryOp::Add | BinaryOp::Subtract) => 4,
            Op::Binary(BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder) => 5,
            Op::Binary(_) => 3,
            Op::Unary(..) => 6,
        }
    }
}

/// The open construct around the operand that is being read; `count` is how many operands are done inside, `optional` the
/// offset of a `?` before the item, entry or key that is being read.
pub(super) enum Frame {
    Top,
    Paren {
        at: u32,
    },
    List {
        at: u32,
        count: usize,
        optional: Option<u32>,
    },
    /// Before a `:` if *count* is even, after it if *count* is odd.
    Map {
        at: u32,
        count: usize,
        optional: Option<u32>,
    },
    Index {
        at: u32,
        optional: Option<u32>,
    },
    /// The arguments of a call. The target of a method is the operand below them.
    Args {
        name: Lexeme,
        method: bool,
        count: usize,
    },
    /// Between `?` and `:`; the condition is the operand below.
    Then {
        at: u32,
    },
    /// After `:`.
    Else {
        branches: Vec<Branch>,
    },
}

/// The tokens that may stand in place of an expected value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ending {
    Nothing,
    /// This closing bracket.
    Only(Token),
    /// This closing bracket, or a comma and it.
    CommaOr(Token),
}

pub(super) const fn spelled(closer: Token) -> &'static str {
    match closer {
        Token::CloseParen => "`)`",
        Token::CloseBracket => "`]`",
        _ => "`}`",
    }
}
