//! Macros over the elements of a list, as clauses.
//!
//! `data.tags.exists(t, t == 'vip')` asks for an element, and a clause can ask that: of a list the element, of a map the key.
//! `data.lines.exists(l, l.sku == 'x' && l.qty > 2)` asks one element for two things. Clauses about any leaf at `data.lines.sku`
//! and at `data.lines.qty` ask the same of some elements each, which is more; so the program is evaluated where both hold.

use super::operators::{bounds, mirrored, opposite, text_atom};
use super::reads::{EventRead, LIST, MAP, MAX_STEPS, below, clause, constant, flatten, is, name_of, read, text_of, unwrap};
use super::sets::EventSet;
use crate::cel::ast::{Ast, BinaryOp, Constant, Function, Macro, MacroKind, Meaning, Node, NodeId, Step};
use crate::cel::program::Program;
use crate::subscriptions::normal_form::{Atom, Clause, Mode, Path};
use crate::value::{Kinds, Value};
use std::sync::Arc;

/// The events of which a macro over a list or map is true, or more.
pub(super) fn exists(program: &Program, step: &Macro, path: Path) -> EventSet {
    let ast = &program.ast;
    let over = || EventSet::within(vec![is(path.clone(), LIST.or(MAP))]);
    let (MacroKind::Exists | MacroKind::ExistsOne, [_], Some(body)) = (step.kind, &step.names[..], step.condition) else {
        return over();
    };
    let is_variable =
        |id: NodeId| matches!(ast[unwrap(ast, id)], Node::Ident { meaning: Meaning::Local(slot), .. } if slot == step.slot);
    if let Some(values) = equal_to(ast, body, is_variable) {
        let mut set = EventSet::none();
        for value in &values {
            if let Some(name) = value.as_str() {
                set.any_of.push(vec![is(below(&path, name), Kinds::PRESENT)]);
            }
        }
        if !values.is_empty() {
            let atoms = values.into_iter().map(|value| Atom::Element(Arc::new(value))).collect();
            set.any_of.push(vec![clause(path.clone(), atoms)]);
        }
        return EventSet { is_exact: step.kind == MacroKind::Exists, ..set };
    }
    // Some element has them all; so each is found somewhere.
    let mut clauses = Vec::new();
    let mut operands = Vec::new();
    flatten(ast, body, &mut operands);
    for operand in operands {
        if let Some((names, atoms)) = of_element(program, operand, is_variable) {
            let names = path.names.iter().map(|name| &**name).chain(names);
            clauses.push(Clause { path: Path::new(path.root, names), mode: Mode::AnyLeaf, atoms });
        }
    }
    if clauses.is_empty() { over() } else { EventSet::within(clauses) }
}

/// The member names of a path through lists, such as `data.lines[0].sku`, whose steps by number are left out.
fn through_lists(ast: &Ast, base: NodeId, steps: &[Step]) -> Option<Path> {
    let is_by_name = |step: &&Step| match step {
        Step::Index { key, .. } => {
            !matches!(ast[*key], Node::Literal(Constant::Int(_) | Constant::Uint(_) | Constant::Double(_)))
        }
        _ => true,
    };
    let names = steps.iter().filter(is_by_name).map(|step| name_of(ast, step)).collect::<Option<Vec<_>>>()?;
    let path = match read(ast, base)? {
        EventRead::Document(root) => Path::new(root, names),
        EventRead::Path(path) => Path::new(path.root, path.names.iter().map(|name| &**name).chain(names)),
        EventRead::Text(_) => return None,
    };
    (1..=MAX_STEPS).contains(&path.names.len()).then_some(path)
}

/// `data.a[0] == 1` and the like: some leaf at `data.a`, through lists, is so. Which one is for the program to say.
pub(super) fn indexed(ast: &Ast, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<EventSet> {
    let path = |id: NodeId| match &ast[unwrap(ast, id)] {
        Node::Chain { base, steps } if steps.iter().any(|step| name_of(ast, step).is_none()) => through_lists(ast, *base, steps),
        _ => None,
    };
    let (path, value, op) = match (path(left), path(right)) {
        (Some(path), None) => (path, constant(ast, right)?, op),
        (None, Some(path)) => (path, constant(ast, left)?, mirrored(op)),
        _ => return None,
    };
    value.as_scalar()?;
    let atoms = match (op, wanted) {
        (BinaryOp::Equal, true) => vec![Atom::equal(&value)],
        (BinaryOp::Equal, false) => return None, // a list is not equal, too
        (op, wanted) => {
            let (low, high) = bounds(if wanted { op } else { opposite(op)? })?;
            Atom::ordered(&value, low, high)
        }
    };
    Some(within_leaves(path, atoms))
}

/// `data.a[0].startsWith('x')` and the like: some leaf at `data.a`, through lists, is so. Which one is for the program to say.
pub(super) fn indexed_test(program: &Program, id: NodeId, last: &Step) -> Option<EventSet> {
    let ast = &program.ast;
    let (Node::Chain { base, steps }, Step::Method { function, args, .. }) = (&ast[id], last) else { return None };
    if *function == Function::Contains {
        return None; // a list may contain it too, in a list of its own
    }
    let path = through_lists(ast, *base, &steps[..steps.len() - 1])?;
    let (atom, _) = text_atom(program, *function, text_of(ast, *args.first()?)?)?;
    Some(within_leaves(path, vec![atom]))
}

fn within_leaves(path: Path, atoms: Vec<Atom>) -> EventSet {
    if atoms.is_empty() { EventSet::none() } else { EventSet::within(vec![Clause { path, mode: Mode::AnyLeaf, atoms }]) }
}

/// The values of which a macro's variable must be one: `x == 1`, `x in [1, 2]`.
fn equal_to(ast: &Ast, body: NodeId, is_variable: impl Fn(NodeId) -> bool) -> Option<Vec<Value>> {
    let Node::Operation { first, rest } = &ast[unwrap(ast, body)] else { return None };
    let [one] = &rest[..] else { return None };
    match one.op {
        BinaryOp::Equal if is_variable(*first) => Some(vec![constant(ast, one.operand)?]),
        BinaryOp::Equal if is_variable(one.operand) => Some(vec![constant(ast, *first)?]),
        BinaryOp::In if is_variable(*first) => match &ast[unwrap(ast, one.operand)] {
            Node::List(items) => items.iter().map(|item| constant(ast, *item)).collect(),
            _ => None,
        },
        _ => None,
    }
}

/// What a condition asks of a member of a macro's variable: its names and atoms.
fn of_element(program: &Program, id: NodeId, is_variable: impl Fn(NodeId) -> bool) -> Option<(Vec<&str>, Vec<Atom>)> {
    let ast = &program.ast;
    let member = |id: NodeId| {
        let Node::Chain { base, steps } = &ast[unwrap(ast, id)] else { return None };
        let names = steps.iter().map(|step| name_of(ast, step)).collect::<Option<Vec<_>>>()?;
        (is_variable(*base) && (1..=MAX_STEPS).contains(&names.len())).then_some(names)
    };
    match &ast[unwrap(ast, id)] {
        Node::Operation { first, rest } => {
            let [one] = &rest[..] else { return None };
            if let (BinaryOp::In, Node::List(items)) = (one.op, &ast[unwrap(ast, one.operand)]) {
                let scalar = |item: &NodeId| {
                    constant(ast, *item).filter(|value| value.as_scalar().is_some()).map(|value| Atom::equal(&value))
                };
                return Some((member(*first)?, items.iter().map(scalar).collect::<Option<_>>()?));
            }
            let (names, value, op) = match (member(*first), member(one.operand)) {
                (Some(names), None) => (names, constant(ast, one.operand)?, one.op),
                (None, Some(names)) => (names, constant(ast, *first)?, mirrored(one.op)),
                _ => return None,
            };
            value.as_scalar()?;
            let atoms = match op {
                BinaryOp::Equal => vec![Atom::equal(&value)],
                op => bounds(op).map(|(low, high)| Atom::ordered(&value, low, high))?,
            };
            Some((names, atoms))
        }
        Node::Chain { base, steps } if is_variable(*base) => {
            let (Step::Method { function, args, .. }, steps) = steps.split_last()? else { return None };
            let names = steps.iter().map(|step| name_of(ast, step)).collect::<Option<Vec<_>>>()?;
            if names.is_empty() || names.len() > MAX_STEPS || *function == Function::Contains {
                return None; // a list may contain it too, in a list of its own
            }
            Some((names, vec![text_atom(program, *function, text_of(ast, *args.first()?)?)?.0]))
        }
        _ => None,
    }
}
