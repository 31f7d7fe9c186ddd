//! The values that an expression with a result must have read: a condition that no clause expresses is still only
//! evaluated for events that have its strict operands, of kinds that it accepts. `data.b - data.c > 50` needs two
//! numbers.

use super::reads::{BOOL, EventRead, LIST, MAP, NUMBER, STRING, Scope, is, name_of, read, steps_from};
use super::sets::EventSet;
use crate::cel::ast::{BinaryOp, Function, Node, NodeId, Step, UnaryOp};
use crate::subscriptions::normal_form::Clause;
use crate::value::Kinds;

/// The events for which an expression has a value at all: its strict operands are present, and of kinds that it
/// accepts.
pub(super) fn value_of(ast: &Scope<'_>, id: NodeId) -> EventSet {
    let mut clauses = Vec::new();
    strict(ast, id, Kinds::READABLE, &mut clauses);
    EventSet::within(clauses)
}

fn strict(ast: &Scope<'_>, id: NodeId, kinds: Kinds, clauses: &mut Vec<Clause>) {
    let mut all = |ids: &[NodeId], kinds: Kinds| ids.iter().for_each(|id| strict(ast, *id, kinds, clauses));
    match &ast[id] {
        Node::Literal(_) | Node::Ident { .. } | Node::Logic { .. } => {}
        Node::Paren(inner) => all(&[*inner], kinds),
        Node::List(items) => all(items, Kinds::READABLE),
        Node::Map(entries) => entries.iter().for_each(|(key, value)| {
            strict(ast, *key, BOOL.or(NUMBER).or(STRING), clauses);
            strict(ast, *value, Kinds::READABLE, clauses);
        }),
        Node::Unary { op, operand, .. } => all(&[*operand], if *op == UnaryOp::Not { BOOL } else { NUMBER }),
        Node::Operation { first, rest } => {
            all(&[*first], operand_kinds(rest[0].op));
            for one in rest {
                all(&[one.operand], if one.op == BinaryOp::In { LIST.or(MAP) } else { operand_kinds(one.op) });
            }
        }
        Node::Ternary { branches, .. } => all(&[branches[0].condition], BOOL),
        Node::Call { function: Function::Dyn, args } => all(args, kinds),
        Node::Call { function, args } => all(args, argument_kinds(*function)),
        Node::Has { target, .. } => all(&[*target], MAP),
        Node::Chain { base, steps } => of_chain(ast, *base, steps, kinds, clauses),
    }
}

fn of_chain(ast: &Scope<'_>, base: NodeId, steps: &[Step], kinds: Kinds, clauses: &mut Vec<Clause>) {
    let named = steps.iter().take_while(|step| name_of(ast, step).is_some()).count();
    let kinds_of_named = match steps.get(named) {
        None => kinds,
        Some(Step::Macro(_) | Step::Index { .. } | Step::Select { .. }) => LIST.or(MAP),
        Some(Step::Method { function, .. }) => target_kinds(*function),
    };
    match read(ast, base).and_then(|base| steps_from(base, ast, &steps[..named])) {
        Some(EventRead::Path(path)) => clauses.push(is(path, kinds_of_named)),
        Some(_) => {}
        None => strict(ast, base, Kinds::READABLE, clauses),
    }
    for step in &steps[named..] {
        match step {
            Step::Select { .. } | Step::Macro(_) => {}
            Step::Index { key, .. } => strict(ast, *key, Kinds::READABLE, clauses),
            Step::Method { function, args, .. } => {
                let kinds = if *function == Function::Contains { Kinds::READABLE } else { STRING };
                args.iter().for_each(|arg| strict(ast, *arg, kinds, clauses));
            }
        }
    }
}

/// The kinds of value of an event that an operator accepts.
fn operand_kinds(op: BinaryOp) -> Kinds {
    match op {
        BinaryOp::Equal | BinaryOp::NotEqual | BinaryOp::In => Kinds::READABLE,
        BinaryOp::Less | BinaryOp::LessOrEqual | BinaryOp::Greater | BinaryOp::GreaterOrEqual => NUMBER.or(BOOL).or(STRING),
        BinaryOp::Add => NUMBER.or(STRING).or(LIST),
        BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => NUMBER,
    }
}

fn argument_kinds(function: Function) -> Kinds {
    match function {
        Function::Size => STRING.or(LIST).or(MAP),
        Function::Matches | Function::Bytes | Function::Duration => STRING,
        Function::Int | Function::Uint | Function::Double | Function::Timestamp => NUMBER.or(STRING),
        Function::String => STRING.or(NUMBER).or(BOOL),
        Function::Bool => BOOL.or(STRING),
        _ => Kinds::READABLE,
    }
}

fn target_kinds(function: Function) -> Kinds {
    match function {
        Function::Size => STRING.or(LIST).or(MAP),
        Function::Contains => STRING.or(LIST),
        Function::StartsWith | Function::EndsWith | Function::Matches => STRING,
        _ => Kinds::READABLE,
    }
}
