//! Can a part of an expression that does not read the event be an error? Then it is one for every event.

use super::ast::{Ast, Constant, Function, Meaning, Node, NodeId, Step};
use super::program::Program;
use super::times::{parse_duration, parse_timestamp};

/// Whether an expression calculates with only constants, or indexes a list below its first element.
///
/// The Python package computes their values if that can lead to a finding. Cost: a visit of each node.
pub fn may_fail(program: &Program) -> bool {
    let mut is_fallible = false;
    visit(&program.ast, program.ast.root(), &mut is_fallible);
    is_fallible
}

/// Whether a node is constant; sets *is_fallible* if it, or a node in it, may fail. Recursive: the parser limits the depth of
/// the tree.
fn visit(ast: &Ast, id: NodeId, is_fallible: &mut bool) -> bool {
    let node = &ast[id];
    let mut is_constant = !matches!(node, Node::Ident { meaning: Meaning::Variable(_) | Meaning::Local(_), .. });
    node.each_child(|child| is_constant &= visit(ast, child, is_fallible));
    if let Node::Chain { steps, .. } = node {
        for step in steps {
            step.each_child(|child| is_constant &= visit(ast, child, is_fallible));
            is_constant &= !matches!(step, Step::Macro(_));
        }
    }
    *is_fallible |= (is_constant && is_calculated(ast, node)) || has_negative_index(ast, node);
    is_constant
}

/// Whether a constant is more than a literal; a time that can be read is one, too.
fn is_calculated(ast: &Ast, node: &Node) -> bool {
    match node {
        Node::Call { function, args } => {
            let Some(Node::Literal(Constant::String(text))) = args.first().map(|arg| &ast[*arg]) else { return true };
            match function {
                Function::Timestamp => parse_timestamp(text).is_err(),
                Function::Duration => parse_duration(text).is_err(),
                _ => true,
            }
        }
        Node::Unary { .. } | Node::Operation { .. } | Node::Ternary { .. } | Node::Has { .. } | Node::Chain { .. } => true,
        Node::Bind { .. } | Node::OptionalItem(_) => true,
        Node::Literal(_) | Node::Ident { .. } | Node::Paren(_) | Node::List(_) | Node::Map(_) | Node::Logic { .. } => false,
    }
}

fn has_negative_index(ast: &Ast, node: &Node) -> bool {
    let Node::Chain { steps, .. } = node else { return false };
    steps.iter().any(|step| match step {
        Step::Index { key, .. } => matches!(ast[*key], Node::Literal(Constant::Int(index)) if index < 0),
        _ => false,
    })
}
