//! Reading only those members of a document that a program selects.
//!
//! ```text
//!   data.dep_delay - data.arr_delay > 50      selects `dep_delay` and `arr_delay`, and sees only these of `data`
//!   data == before, data.map(k, k)            see all of it
//! ```
//!
//! Invariant: if [`only_selects`] is true for a program, it has the same result and cost for a document without all
//! members that [`selected`] does not name.
//!
//! Rejected: names kept with each program. To find them again is to look at a few nodes, and a program is evaluated for candidates only.

use super::ast::{Ast, Meaning, Node, Step, Variable};

/// Whether a program reads a variable only by selecting members by name.
pub(super) fn only_selects(ast: &Ast, variable: Variable) -> bool {
    let mentions = ast.nodes().iter().filter(|node| is_variable(node, variable)).count();
    selected(ast, variable).count() == mentions
}

/// The members of a variable that a program selects by name, or tests with `has`, as often as it does.
pub(super) fn selected(ast: &Ast, variable: Variable) -> impl Iterator<Item = &str> {
    ast.nodes().iter().filter_map(move |node| match node {
        Node::Chain { base, steps } if is_variable(&ast[*base], variable) => match steps.first() {
            Some(Step::Select { name, .. }) => Some(&**name),
            _ => None,
        },
        Node::Has { target, name } if is_variable(&ast[*target], variable) => Some(&**name),
        _ => None,
    })
}

fn is_variable(node: &Node, variable: Variable) -> bool {
    matches!(node, Node::Ident { meaning: Meaning::Variable(meant), .. } if *meant == variable)
}
