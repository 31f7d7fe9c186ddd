//! The parts of an event that an expression reads, and its constants.

use crate::cel::ast::{Ast, Constant, Function, LogicOp, Meaning, Node, NodeId, Step, Variable};
use crate::cel::program::Program;
use crate::json::Build;
use crate::subscriptions::normal_form::{Atom, Clause, Mode, Path, Root};
use crate::value::{Kind, Kinds, Number, Scalar, Value};
use std::ops::Deref;

/// Longer paths are read by the program.
pub(super) const MAX_STEPS: usize = 512;

pub(super) const STRING: Kinds = Kinds::of(Kind::String);
pub(super) const LIST: Kinds = Kinds::of(Kind::List);
pub(super) const MAP: Kinds = Kinds::of(Kind::Map);
pub(super) const NUMBER: Kinds = Kinds::of(Kind::Number);
pub(super) const BOOL: Kinds = Kinds::of(Kind::Bool);

/// The meaning of the names in an expression.
#[derive(Clone, Copy)]
pub(super) struct Scope<'p> {
    pub program: &'p Program,
    /// The variable of the macro whose condition is looked at: it is read as the document of [`VARIABLE`].
    pub variable: Option<u32>,
}

/// The root of the paths of a macro's variable: programs do not read it otherwise.
pub(super) const VARIABLE: Root = Root::Raw;

impl Deref for Scope<'_> {
    type Target = Ast;

    fn deref(&self) -> &Ast {
        &self.program.ast
    }
}

/// Something of an event that an expression reads.
pub(super) enum EventRead {
    /// A member of `data` or `before`, by one name at least, or a macro's variable or a member of it.
    Path(Path),
    /// `data` or `before` itself.
    Document(Root),
    /// A part that is a string.
    Text(Root),
}

pub(super) fn unwrap(ast: &Ast, mut id: NodeId) -> NodeId {
    loop {
        id = match &ast[id] {
            Node::Paren(inner) => *inner,
            Node::Call { function: Function::Dyn, args } if args.len() == 1 => args[0],
            _ => return id,
        }
    }
}

pub(super) fn read(ast: &Scope<'_>, id: NodeId) -> Option<EventRead> {
    match &ast[unwrap(ast, id)] {
        Node::Ident { meaning: Meaning::Local(slot), .. } if ast.variable == Some(*slot) => {
            Some(EventRead::Path(Path::part(VARIABLE)))
        }
        Node::Ident { meaning: Meaning::Variable(variable), .. } => Some(match variable {
            Variable::Data => EventRead::Document(Root::Data),
            Variable::Before => EventRead::Document(Root::Before),
            Variable::Envelope => EventRead::Document(Root::Envelope),
            Variable::Type => EventRead::Text(Root::Type),
            Variable::Topic => EventRead::Text(Root::Topic),
            Variable::Collection => EventRead::Text(Root::Collection),
            Variable::Tenant => EventRead::Text(Root::Tenant),
            Variable::Ts => return None,
        }),
        Node::Chain { base, steps } => steps_from(read(ast, *base)?, ast, steps),
        _ => None,
    }
}

pub(super) fn name_of<'t>(ast: &'t Ast, step: &'t Step) -> Option<&'t str> {
    match step {
        Step::Select { name, .. } => Some(name),
        Step::Index { key, .. } => match &ast[*key] {
            Node::Literal(Constant::String(name)) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn steps_from(base: EventRead, ast: &Ast, steps: &[Step]) -> Option<EventRead> {
    let mut names: Vec<&str> = Vec::with_capacity(steps.len());
    let (root, before) = match &base {
        _ if steps.is_empty() => return Some(base),
        EventRead::Document(root) => (*root, None),
        EventRead::Path(path) => (path.root, Some(path)),
        EventRead::Text(_) => return None,
    };
    if let Some(path) = before {
        names.extend(path.names.iter().map(|name| &**name));
    }
    for step in steps {
        names.push(name_of(ast, step)?);
    }
    (names.len() <= MAX_STEPS).then(|| EventRead::Path(Path::new(root, names)))
}

pub(super) fn path_of(ast: &Scope<'_>, id: NodeId) -> Option<Path> {
    match read(ast, id) {
        Some(EventRead::Path(path)) => Some(path),
        _ => None,
    }
}

pub(super) fn below(path: &Path, name: &str) -> Path {
    Path::new(path.root, path.names.iter().map(|name| &**name).chain([name]))
}

/// A constant that can be a value of an event.
pub(super) fn constant(ast: &Ast, id: NodeId) -> Option<Value> {
    let id = unwrap(ast, id);
    Some(match &ast[id] {
        Node::Literal(literal) => Value::Scalar(match literal {
            Constant::Null => Scalar::Null,
            Constant::Bool(value) => Scalar::Bool(*value),
            Constant::Int(value) => Scalar::Number(Number::from_i64(*value)),
            Constant::Uint(value) => Scalar::Number(Number::from_u64(*value)),
            Constant::Double(value) => Scalar::Number(Number::from_f64(*value)?),
            Constant::String(value) => Scalar::String(value.clone()),
            Constant::Bytes(_) => return None,
        }),
        Node::List(items) => Value::List(items.iter().map(|item| constant(ast, *item)).collect::<Option<_>>()?),
        Node::Map(entries) => {
            let mut members: Vec<(Box<str>, Value)> = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                members.push((text_of(ast, *key)?, constant(ast, *value)?));
            }
            let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            if names.windows(2).any(|pair| pair[0] == pair[1]) {
                return None; // an error, whatever it is compared with
            }
            Build::object(members)
        }
        _ => return None,
    })
}

pub(super) fn text_of(ast: &Ast, id: NodeId) -> Option<Box<str>> {
    match &ast[unwrap(ast, id)] {
        Node::Literal(Constant::String(text)) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn clause(path: Path, atoms: Vec<Atom>) -> Clause {
    Clause { path, mode: Mode::Scalar, atoms }
}

pub(super) fn is(path: Path, kinds: Kinds) -> Clause {
    clause(path, vec![Atom::Kinds(kinds)])
}

/// The operands of the outermost `&&`.
pub(super) fn flatten(ast: &Ast, id: NodeId, operands: &mut Vec<NodeId>) {
    match &ast[id] {
        Node::Paren(inner) => flatten(ast, *inner, operands),
        Node::Logic { op: LogicOp::And, operands: inner } => inner.iter().for_each(|inner| flatten(ast, *inner, operands)),
        _ => operands.push(id),
    }
}
