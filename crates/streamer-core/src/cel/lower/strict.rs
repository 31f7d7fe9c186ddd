//! The values that an expression with a result must have read: a condition that no clause expresses is still only
//! evaluated for events that have its strict operands, of kinds that it accepts. `data.b - data.c > 50` needs two
//! numbers.

use super::reads::{BOOL, EventRead, LIST, MAP, NUMBER, STRING, Scope, is, name_of, read, steps_from};
use super::sets::EventSet;
use crate::cel::ast::{BinaryOp, Function, Meaning, Node, NodeId, Step, UnaryOp};
use crate::cel::extensions::Extension;
use crate::cel::types::Name;
use crate::subscriptions::normal_form::{Clause, Path, Unknowns};
use crate::value::Kinds;

/// The events for which an expression has a value at all: its strict operands are present, and of kinds that it
/// accepts.
pub(super) fn value_of(ast: &Scope<'_>, id: NodeId) -> EventSet {
    let mut read = StrictReads { clauses: Vec::new(), unknowns: Unknowns::InClauses };
    strict(ast, id, Kinds::READABLE, &mut read);
    EventSet { unknowns: read.unknowns, ..EventSet::within(read.clauses) }
}

/// The clauses of an expression's strict operands, and whether it reads anything else.
struct StrictReads {
    clauses: Vec<Clause>,
    unknowns: Unknowns,
}

impl StrictReads {
    fn add(&mut self, path: Path, kinds: Kinds) {
        self.clauses.push(is(path, kinds));
    }

    fn more(&mut self) {
        self.unknowns = Unknowns::Anywhere;
    }
}

fn strict(ast: &Scope<'_>, id: NodeId, kinds: Kinds, reads: &mut StrictReads) {
    let mut all = |ids: &[NodeId], kinds: Kinds| ids.iter().for_each(|id| strict(ast, *id, kinds, reads));
    match &ast[id] {
        Node::Literal(_) | Node::Ident { meaning: Meaning::Type(_), .. } => {}
        Node::Ident { .. } | Node::Logic { .. } | Node::Bind { .. } => reads.more(),
        Node::OptionalItem(inner) => all(&[*inner], Kinds::READABLE),
        Node::Paren(inner) => all(&[*inner], kinds),
        Node::List(items) => all(items, Kinds::READABLE),
        Node::Map(entries) => entries.iter().for_each(|(key, value)| {
            strict(ast, *key, BOOL.or(NUMBER).or(STRING), reads);
            strict(ast, *value, Kinds::READABLE, reads);
        }),
        Node::Unary { op, operand, .. } => all(&[*operand], if *op == UnaryOp::Not { BOOL } else { NUMBER }),
        Node::Operation { first, rest } => {
            all(&[*first], operand_kinds(rest[0].op));
            for one in rest {
                all(&[one.operand], if one.op == BinaryOp::In { LIST.or(MAP) } else { operand_kinds(one.op) });
            }
        }
        Node::Ternary { branches, .. } => {
            all(&[branches[0].condition], BOOL);
            reads.more();
        }
        Node::Call { function: Function::Dyn, args } => all(args, kinds),
        Node::Call { function: Function::Extension(extension), args } => {
            args.iter().enumerate().for_each(|(at, arg)| strict(ast, *arg, extension_kinds(*extension, at), reads));
        }
        Node::Call { function, args } => all(args, argument_kinds(*function)),
        Node::Has { target, .. } => all(&[*target], MAP),
        Node::Chain { base, steps } => of_chain(ast, *base, steps, kinds, reads),
    }
}

fn of_chain(ast: &Scope<'_>, base: NodeId, steps: &[Step], kinds: Kinds, reads: &mut StrictReads) {
    let named = steps.iter().take_while(|step| name_of(ast, step).is_some()).count();
    let kinds_of_named = match steps.get(named) {
        None => kinds,
        Some(Step::Macro(_) | Step::Index { .. } | Step::Select { .. }) => LIST.or(MAP),
        Some(Step::OptionalIndex { .. } | Step::OptionalSelect { .. }) => LIST.or(MAP),
        Some(Step::Method { function, .. }) => target_kinds(*function),
    };
    match read(ast, base).and_then(|base| steps_from(base, ast, &steps[..named])) {
        Some(EventRead::Path(path)) => reads.add(path, kinds_of_named),
        Some(_) => reads.more(),
        None => strict(ast, base, Kinds::READABLE, reads),
    }
    for step in &steps[named..] {
        match step {
            Step::Select { .. } | Step::OptionalSelect { .. } => {}
            Step::Macro(_) => reads.more(),
            Step::Method { function: Function::Extension(extension), .. } if extension.row().is_lazy() => reads.more(),
            Step::Index { key, .. } | Step::OptionalIndex { key, .. } => strict(ast, *key, Kinds::READABLE, reads),
            Step::Method { function, args, .. } => {
                args.iter().enumerate().for_each(|(at, arg)| {
                    let kinds = match function {
                        Function::Extension(extension) => extension_kinds(*extension, at + 1),
                        Function::Contains => Kinds::READABLE,
                        _ => STRING,
                    };
                    strict(ast, *arg, kinds, reads);
                });
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
        Function::Extension(extension) => extension_kinds(extension, 0),
        _ => Kinds::READABLE,
    }
}

/// The kinds of value that a parameter of an extension accepts.
fn extension_kinds(extension: Extension, at: usize) -> Kinds {
    let row = extension.row();
    if row.takes_many {
        return NUMBER.or(LIST);
    }
    let params = row.overloads.iter().filter_map(|(params, _)| params.get(at));
    params
        .fold(None, |kinds: Option<Kinds>, param| Some(kinds.map_or(kinds_of(*param), |kinds| kinds.or(kinds_of(*param)))))
        .unwrap_or(Kinds::READABLE)
}

fn kinds_of(param: Name) -> Kinds {
    match param {
        Name::String => STRING,
        Name::List => LIST,
        Name::Map => MAP,
        Name::Bool => BOOL,
        Name::Int | Name::Uint | Name::Double | Name::Number => NUMBER,
        _ => Kinds::READABLE,
    }
}
