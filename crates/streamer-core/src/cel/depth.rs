//! Refuses parsed trees that have ints out of range, or that are too deep to walk by recursion.

use super::ast::{Ast, Node, NodeId, Step};

/// Refuse ints out of range, and a tree too deep to walk by recursion; the first in order of the text.
pub(super) fn check_tree(ast: &Ast, beyond_int: &[NodeId], limit: usize) -> Result<(), (u32, String)> {
    let mut stack = vec![(Visit::Node(ast.root()), 0)];
    while let Some((visit, around)) = stack.pop() {
        let begin = stack.len();
        let (at, is_level) = match visit {
            Visit::Node(id) => (ast.at(id), ast[id].is_level()),
            Visit::Step(step) => (step.at(), !matches!(step, Step::Select { .. } | Step::OptionalSelect { .. })),
        };
        let level = around + usize::from(is_level);
        if level > limit {
            let what = "brackets, calls, unary operators and ternaries";
            return Err((at, format!("nested too deeply; at most {limit} levels of {what} are allowed")));
        }
        match visit {
            Visit::Node(id) if beyond_int.contains(&id) => {
                let range = "from -9223372036854775808 to 9223372036854775807";
                return Err((at, format!("beyond int, which is {range}; a uint is written with u")));
            }
            Visit::Node(id) => {
                ast[id].each_child(|child| stack.push((Visit::Node(child), level)));
                if let Node::Chain { steps, .. } = &ast[id] {
                    stack.extend(steps.iter().map(|step| (Visit::Step(step), level)));
                }
            }
            Visit::Step(step) => step.each_child(|child| stack.push((Visit::Node(child), level))),
        }
        stack[begin..].reverse();
    }
    Ok(())
}

/// The result of [`check_tree`].
#[derive(Clone, Copy)]
enum Visit<'t> {
    Node(NodeId),
    Step(&'t Step),
}
