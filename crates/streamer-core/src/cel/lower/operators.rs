//! The atoms of an operator or a function on a value and a constant.

use super::reads::Scope;
use crate::cel::ast::{BinaryOp, Function};
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::Atom;

/// Regexps of a greater size are run by the program, whose budget their work counts against.
const MAX_REGEXP_SIZE: usize = 256;

pub(super) fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Less => BinaryOp::Greater,
        BinaryOp::LessOrEqual => BinaryOp::GreaterOrEqual,
        BinaryOp::Greater => BinaryOp::Less,
        BinaryOp::GreaterOrEqual => BinaryOp::LessOrEqual,
        op => op,
    }
}

pub(super) fn opposite(op: BinaryOp) -> Option<BinaryOp> {
    Some(match op {
        BinaryOp::Less => BinaryOp::GreaterOrEqual,
        BinaryOp::LessOrEqual => BinaryOp::Greater,
        BinaryOp::Greater => BinaryOp::LessOrEqual,
        BinaryOp::GreaterOrEqual => BinaryOp::Less,
        _ => return None,
    })
}

/// Which bounds an ordering sets, each with whether it is inclusive.
pub(super) fn bounds(op: BinaryOp) -> Option<(Option<bool>, Option<bool>)> {
    Some(match op {
        BinaryOp::Less => (None, Some(false)),
        BinaryOp::LessOrEqual => (None, Some(true)),
        BinaryOp::Greater => (Some(false), None),
        BinaryOp::GreaterOrEqual => (Some(true), None),
        _ => return None,
    })
}

/// The atom of a test with a constant, and its result for an empty string.
pub(super) fn text_atom(scope: &Scope<'_>, function: Function, text: Box<str>) -> Option<(Atom, bool)> {
    let empty = text.is_empty();
    Some(match function {
        Function::StartsWith => (Atom::Prefix(text), empty),
        Function::EndsWith => (Atom::Suffix(text), empty),
        Function::Contains => (Atom::Substring(text), empty),
        Function::Matches => {
            let at = scope.program.regexps.binary_search_by(|(source, _)| source.cmp(&text)).ok()?;
            let regexp = &scope.program.regexps[at].1;
            // A regexp that is too large for an automaton, or may be slow on a text, is left out of the index, which
            // has no budget.
            if regexp.size > MAX_REGEXP_SIZE {
                return None;
            }
            let compiled = CompiledRegexp::compile(regexp).ok().filter(|compiled| compiled.is_small())?;
            (Atom::Regexp(regexp.clone()), compiled.is_match(""))
        }
        _ => return None,
    })
}
