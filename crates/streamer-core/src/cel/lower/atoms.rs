//! What one comparison or test asks of one value, as clauses.
//!
//! A path of `data` or `before` is missing, or one JSON value. An error makes an expression neither true nor false, so every
//! clause here says what kinds of value it is about. Of the event's own parts, `type`, `topic`, `collection` and `tenant` are
//! strings, empty where the event has none.
//!
//! What no clause says, [`strict`](super::strict) still bounds.

use super::Set;
use super::times::{self, Moment};
use super::{elements, strict};
use crate::cel::ast::{Ast, BinaryOp, Constant, Function, Meaning, Node, NodeId, Step, TypeName, UnaryOp, Variable};
use crate::cel::program::Program;
use crate::json::Build;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::{Atom, Clause, Mode, Path, Range, Relation, Root};
use crate::value::{Kind, Kinds, Number, Scalar, Value};
use std::sync::Arc;

/// Longer paths are read by the program.
pub(super) const MAX_STEPS: usize = 512;
/// Regexps of a greater size are run by the program, whose budget their work counts against.
const MAX_REGEXP_SIZE: usize = 256;

pub(super) const STRING: Kinds = Kinds::of(Kind::String);
pub(super) const LIST: Kinds = Kinds::of(Kind::List);
pub(super) const MAP: Kinds = Kinds::of(Kind::Map);
pub(super) const NUMBER: Kinds = Kinds::of(Kind::Number);
pub(super) const BOOL: Kinds = Kinds::of(Kind::Bool);

pub(super) fn clause(path: Path, atoms: Vec<Atom>) -> Clause {
    Clause { path, mode: Mode::Scalar, atoms }
}

pub(super) fn is(path: Path, kinds: Kinds) -> Clause {
    clause(path, vec![Atom::Kinds(kinds)])
}

/// What *atoms* hold for, or, of values of *kinds*, what they do not.
fn one_of(path: Path, atoms: Vec<Atom>, kinds: Kinds, wanted: bool) -> Set {
    match (wanted, atoms.is_empty()) {
        (true, true) => Set::none(),
        (true, false) => Set::clause(clause(path, atoms)),
        (false, true) => Set::clause(is(path, kinds)),
        (false, false) => Set::clause(clause(path, vec![Atom::Other { kinds, none_of: atoms.into() }])),
    }
}

// --- what is read

/// Something of an event that an expression reads.
pub(super) enum Read {
    /// A member of `data` or `before`, by one name at least.
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

pub(super) fn read(ast: &Ast, id: NodeId) -> Option<Read> {
    match &ast[unwrap(ast, id)] {
        Node::Ident { meaning: Meaning::Variable(variable), .. } => Some(match variable {
            Variable::Data => Read::Document(Root::Data),
            Variable::Before => Read::Document(Root::Before),
            Variable::Type => Read::Text(Root::Type),
            Variable::Topic => Read::Text(Root::Topic),
            Variable::Collection => Read::Text(Root::Collection),
            Variable::Tenant => Read::Text(Root::Tenant),
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

pub(super) fn steps_from(base: Read, ast: &Ast, steps: &[Step]) -> Option<Read> {
    let mut names: Vec<&str> = Vec::with_capacity(steps.len());
    let (root, before) = match &base {
        _ if steps.is_empty() => return Some(base),
        Read::Document(root) => (*root, None),
        Read::Path(path) => (path.root, Some(path)),
        Read::Text(_) => return None,
    };
    if let Some(path) = before {
        names.extend(path.names.iter().map(|name| &**name));
    }
    for step in steps {
        names.push(name_of(ast, step)?);
    }
    (names.len() <= MAX_STEPS).then(|| Read::Path(Path::new(root, names)))
}

fn path_of(ast: &Ast, id: NodeId) -> Option<Path> {
    match read(ast, id) {
        Some(Read::Path(path)) => Some(path),
        _ => None,
    }
}

pub(super) fn below(path: &Path, name: &str) -> Path {
    Path::new(path.root, path.names.iter().map(|name| &**name).chain([name]))
}

/// A constant that an event can hold.
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

// --- comparisons

/// The events of which a comparison is *wanted*; `None` where clauses cannot say so.
pub(super) fn comparison(program: &Program, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<Set> {
    let ast = &program.ast;
    if op == BinaryOp::In {
        return membership(ast, left, right, wanted);
    }
    if let Some(set) = special(ast, op, left, right, wanted).or_else(|| elements::indexed(ast, op, left, right, wanted)) {
        return Some(set);
    }
    let (read, value, op) = match (read(ast, left), read(ast, right)) {
        (Some(read), None) => (read, constant(ast, right)?, op),
        (None, Some(read)) => (read, constant(ast, left)?, mirrored(op)),
        _ => return None,
    };
    if op == BinaryOp::Equal {
        return equality(read, vec![value], wanted);
    }
    let (low, high) = bounds(if wanted { op } else { opposite(op)? })?;
    let atoms = Atom::ordered(&value, low, high);
    match read {
        Read::Path(path) => Some(one_of(path, atoms, Kinds::NONE, true)),
        Read::Text(root) => {
            let bound = value.as_str()?;
            let empty = crate::value::within("", low.map(|closed| (bound, closed)), high.map(|closed| (bound, closed)));
            Some(or_missing(root, atoms, empty))
        }
        Read::Document(_) => None,
    }
}

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

/// Equal to one of *values*, or to none.
fn equality(read: Read, values: Vec<Value>, wanted: bool) -> Option<Set> {
    match read {
        Read::Path(path) => {
            Some(one_of(path, values.into_iter().map(|value| Atom::equal(&value)).collect(), Kinds::READABLE, wanted))
        }
        Read::Text(root) => {
            let empty = values.iter().any(|value| value.as_str() == Some(""));
            Some(of_text(root, values.into_iter().map(|value| Atom::equal(&value)).collect(), empty, wanted))
        }
        Read::Document(_) => None,
    }
}

/// A test of a part that is a string, where *empty* says what it comes to for an empty one.
fn of_text(root: Root, atoms: Vec<Atom>, empty: bool, wanted: bool) -> Set {
    if wanted {
        return or_missing(root, atoms, empty);
    }
    let others = if atoms.is_empty() { Atom::Kinds(STRING) } else { Atom::Other { kinds: STRING, none_of: atoms.into() } };
    or_missing(root, vec![others], !empty)
}

/// What *atoms* hold for; a part that is missing too, if *empty*.
fn or_missing(root: Root, mut atoms: Vec<Atom>, empty: bool) -> Set {
    if empty {
        atoms.push(Atom::Kinds(Kinds::MISSING));
    }
    if atoms.is_empty() { Set::none() } else { Set::clause(clause(Path::part(root), atoms)) }
}

fn membership(ast: &Ast, left: NodeId, right: NodeId, wanted: bool) -> Option<Set> {
    if let Node::List(items) = &ast[unwrap(ast, right)] {
        let values = items.iter().map(|item| constant(ast, *item)).collect::<Option<Vec<_>>>()?;
        return equality(read(ast, left)?, values, wanted);
    }
    let value = constant(ast, left)?;
    let name = value.as_str().map(Box::<str>::from);
    match (read(ast, right)?, name) {
        (Read::Document(root), Some(name)) => Some(has(Path::new(root, [name]), Path::part(root), wanted)),
        (Read::Path(path), name) if wanted => Some(element_or_key(path, vec![value], name.as_deref())),
        (Read::Path(path), Some(name)) => {
            let mut set = has(below(&path, &name), path.clone(), false);
            set.any_of.push(vec![clause(path, vec![without(value)])]);
            Some(set)
        }
        // No key of an object is a number or a bool; a map is not asked for anything else.
        (Read::Path(path), None) if matches!(value.kind(), Kind::Bool | Kind::Number) => {
            Some(Set::clause(clause(path, vec![without(value), Atom::Kinds(MAP)])))
        }
        (Read::Path(path), None) => Some(Set::clause(clause(path, vec![without(value)]))),
        _ => None,
    }
}

/// A list of which no element is, and none may be, equal to *value*.
fn without(value: Value) -> Atom {
    Atom::Other { kinds: LIST, none_of: [Atom::Element(Arc::new(value))].into() }
}

/// A list with an element equal to one of *values*, or a map with the key *name*.
fn element_or_key(path: Path, values: Vec<Value>, name: Option<&str>) -> Set {
    let mut set = Set::none();
    if let Some(name) = name {
        set.any_of.push(vec![is(below(&path, name), Kinds::PRESENT)]);
    }
    set.any_of.push(vec![clause(path, values.into_iter().map(|value| Atom::Element(Arc::new(value))).collect())]);
    set
}

/// A map with, or without, the member at *path*.
fn has(path: Path, map: Path, wanted: bool) -> Set {
    if wanted {
        return Set::clause(is(path, Kinds::PRESENT));
    }
    Set { any_of: vec![vec![is(map, MAP), is(path, Kinds::MISSING)]], is_exact: true }
}

/// `size(data.a)` beside a number, `type(data.a)` beside a type, `timestamp(data.a)` and `duration(data.a)` beside a time.
fn special(ast: &Ast, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<Set> {
    if let Some(set) = time(ast, op, left, right, wanted) {
        return Some(set);
    }
    let (one, other) = (unwrap(ast, left), unwrap(ast, right));
    match (&ast[one], &ast[other]) {
        (Node::Call { function: Function::Type, args }, Node::Ident { meaning: Meaning::Type(name), .. })
        | (Node::Ident { meaning: Meaning::Type(name), .. }, Node::Call { function: Function::Type, args })
            if op == BinaryOp::Equal =>
        {
            let kinds = match name {
                TypeName::Bool => BOOL,
                TypeName::String => STRING,
                TypeName::List => LIST,
                TypeName::Map => MAP,
                TypeName::Null => Kinds::of(Kind::Null),
                _ => return None,
            };
            let kinds = if wanted { kinds } else { Kinds::from_bits(Kinds::READABLE.bits() & !kinds.bits()) };
            Some(Set::clause(is(path_of(ast, *args.first()?)?, kinds)))
        }
        (Node::Literal(Constant::Int(bound)), _) => size(ast, mirrored(op), other, *bound, wanted),
        (_, Node::Literal(Constant::Int(bound))) => size(ast, op, one, *bound, wanted),
        _ => None,
    }
}

fn size(ast: &Ast, op: BinaryOp, id: NodeId, bound: i64, wanted: bool) -> Option<Set> {
    let path = match &ast[id] {
        Node::Call { function: Function::Size, args } => path_of(ast, *args.first()?)?,
        Node::Chain { base, steps } => {
            let (Step::Method { function: Function::Size, .. }, steps) = steps.split_last()? else { return None };
            let Read::Path(path) = steps_from(read(ast, *base)?, ast, steps)? else { return None };
            path
        }
        _ => return None,
    };
    let is_empty = match (op, bound) {
        (BinaryOp::Equal | BinaryOp::LessOrEqual, 0) | (BinaryOp::Less, 1) => wanted,
        (BinaryOp::Greater, 0) | (BinaryOp::GreaterOrEqual, 1) => !wanted,
        _ => return sizes(path, if wanted { Some(op) } else { opposite(op) }, bound),
    };
    let empty = [Value::Scalar(Scalar::String("".into())), Value::List(Vec::new()), Value::Map(Vec::new())];
    Some(one_of(path, empty.into_iter().map(|value| Atom::equal(&value)).collect(), STRING.or(LIST).or(MAP), is_empty))
}

/// What has a size that compares so with *bound*; without an operator, one that is another.
fn sizes(path: Path, op: Option<BinaryOp>, bound: i64) -> Option<Set> {
    let within: Vec<(i64, i64)> = match op {
        None => vec![(0, bound.saturating_sub(1)), (bound.saturating_add(1), i64::MAX)],
        Some(BinaryOp::Equal) => vec![(bound, bound)],
        Some(BinaryOp::Less) => vec![(0, bound.saturating_sub(1))],
        Some(BinaryOp::LessOrEqual) => vec![(0, bound)],
        Some(BinaryOp::Greater) => vec![(bound.saturating_add(1), i64::MAX)],
        Some(BinaryOp::GreaterOrEqual) => vec![(bound, i64::MAX)],
        _ => return None,
    };
    // No event is so long that its sizes do not fit.
    let fit = |size: i64| u32::try_from(size.max(0)).unwrap_or(u32::MAX);
    let is_some = |(least, most): &(i64, i64)| *least <= *most && *most >= 0 && *least < i64::from(u32::MAX);
    let atoms: Vec<Atom> = within.into_iter().filter(is_some).map(|(least, most)| Atom::Size(fit(least), fit(most))).collect();
    Some(one_of(path, atoms, Kinds::NONE, true))
}

fn time(ast: &Ast, op: BinaryOp, left: NodeId, right: NodeId, wanted: bool) -> Option<Set> {
    let read = |id: NodeId| match &ast[unwrap(ast, id)] {
        Node::Call { function, args } => match (times::function(*function), &args[..]) {
            (Some(of), [argument]) => Some((of, path_of(ast, *argument)?)),
            _ => None,
        },
        _ => None,
    };
    let ((of, path), constant, op) = match (read(left), read(right)) {
        (Some(read), None) => (read, times::constant(ast, right)?, op),
        (None, Some(read)) => (read, times::constant(ast, left)?, mirrored(op)),
        _ => return None,
    };
    let at = match constant {
        Moment::Error => return Some(Set::none()),
        Moment::At(other, _) if other != of => return None,
        Moment::At(_, ns) => Number::from_nanoseconds(ns),
    };
    let within = |low: Option<bool>, high: Option<bool>| {
        Atom::Times(of, Range { low: low.map(|closed| (at, closed)), high: high.map(|closed| (at, closed)) })
    };
    let atoms = match (op, wanted) {
        (BinaryOp::Equal, true) => vec![within(Some(true), Some(true))],
        (BinaryOp::Equal, false) => vec![within(None, Some(false)), within(Some(false), None)],
        (op, wanted) => {
            let (low, high) = bounds(if wanted { op } else { opposite(op)? })?;
            vec![within(low, high)]
        }
    };
    Some(one_of(path, atoms, Kinds::NONE, true))
}

/// Two values of an event that must compare so.
pub(super) struct Pair {
    pub one: Path,
    /// None: they differ.
    pub relation: Option<Relation>,
    pub other: Path,
    /// What else it takes: both can be read, and be compared.
    pub clauses: Vec<Clause>,
}

/// `data.a != before.a`, `data.a < data.b` and the like, or their negation, which are verified on candidates.
pub(super) fn pair(ast: &Ast, id: NodeId, wanted: bool) -> Option<Pair> {
    let (first, one) = match &ast[unwrap(ast, id)] {
        Node::Unary { op: UnaryOp::Not, count, operand } => return pair(ast, *operand, wanted ^ (count % 2 == 1)),
        Node::Operation { first, rest } => match &rest[..] {
            [one] => (*first, one),
            _ => return None,
        },
        _ => return None,
    };
    let (left, right) = (path_of(ast, first)?, path_of(ast, one.operand)?);
    let (is_swapped, relation) = match (one.op, wanted) {
        (BinaryOp::Equal, true) | (BinaryOp::NotEqual, false) => (false, Some(Relation::Equal)),
        (BinaryOp::NotEqual, true) | (BinaryOp::Equal, false) => (false, None),
        (BinaryOp::Less, true) | (BinaryOp::GreaterOrEqual, false) => (false, Some(Relation::Less)),
        (BinaryOp::LessOrEqual, true) | (BinaryOp::Greater, false) => (false, Some(Relation::LessOrEqual)),
        (BinaryOp::Greater, true) | (BinaryOp::LessOrEqual, false) => (true, Some(Relation::Less)),
        (BinaryOp::GreaterOrEqual, true) | (BinaryOp::Less, false) => (true, Some(Relation::LessOrEqual)),
        _ => return None,
    };
    let kinds = match relation {
        None | Some(Relation::Equal) => Kinds::READABLE,
        Some(Relation::Less | Relation::LessOrEqual) => NUMBER.or(STRING).or(BOOL),
    };
    let clauses = vec![is(left.clone(), kinds), is(right.clone(), kinds)];
    let (one, other) = if is_swapped { (right, left) } else { (left, right) };
    Some(Pair { one, relation, other, clauses })
}

// --- tests

/// The events of which an expression that is no operation is *wanted*.
pub(super) fn condition(program: &Program, id: NodeId, wanted: bool) -> Set {
    let ast = &program.ast;
    let found = match &ast[id] {
        Node::Literal(Constant::Bool(value)) => Some(if *value == wanted { Set::all() } else { Set::none() }),
        Node::Literal(_) => Some(Set::none()),
        Node::Has { target, name } => match read(ast, *target) {
            Some(Read::Document(root)) => Some(has(Path::new(root, [name]), Path::part(root), wanted)),
            Some(Read::Path(path)) => Some(has(below(&path, name), path, wanted)),
            _ => None,
        },
        Node::Call { function: Function::Matches, args } => args
            .first()
            .and_then(|target| read(ast, *target))
            .and_then(|target| text_test(program, target, Function::Matches, &args[1..], wanted)),
        Node::Chain { base, steps } => chain(program, id, *base, steps, wanted),
        _ => None,
    };
    found.unwrap_or_else(|| strict::value_of(ast, id))
}

fn chain(program: &Program, id: NodeId, base: NodeId, steps: &[Step], wanted: bool) -> Option<Set> {
    let ast = &program.ast;
    let base = read(ast, base)?;
    let (last, steps) = steps.split_last()?;
    if name_of(ast, last).is_some() {
        let target = steps_from(base, ast, steps)?;
        let Read::Path(path) = steps_from(target, ast, std::slice::from_ref(last))? else { return None };
        return Some(Set::clause(clause(path, vec![Atom::Equal(Scalar::Bool(wanted))])));
    }
    let Some(target) = steps_from(base, ast, steps) else {
        return if wanted { elements::indexed_test(program, id, last) } else { None };
    };
    match (last, target) {
        (Step::Method { function: Function::Contains, args, .. }, Read::Path(path)) => {
            let value = constant(ast, *args.first()?)?;
            let substring = value.as_str().map(|text| Atom::Substring(text.into()));
            if wanted {
                return Some(one_of(path, [Atom::Element(Arc::new(value))].into_iter().chain(substring).collect(), LIST, true));
            }
            let no_substring = substring.map(|atom| Atom::Other { kinds: STRING, none_of: [atom].into() });
            Some(Set::clause(clause(path, no_substring.into_iter().chain([without(value)]).collect())))
        }
        (Step::Method { function, args, .. }, target) => text_test(program, target, *function, args, wanted),
        (Step::Macro(step), Read::Path(path)) if wanted => Some(elements::exists(program, step, path)),
        _ => None,
    }
}

/// A test of a string with a constant.
fn text_test(program: &Program, target: Read, function: Function, args: &[NodeId], wanted: bool) -> Option<Set> {
    let text = text_of(&program.ast, *args.first()?)?;
    let (atom, empty) = text_atom(program, function, text)?;
    match target {
        Read::Path(path) => Some(one_of(path, vec![atom], STRING, wanted)),
        Read::Text(root) => Some(of_text(root, vec![atom], empty, wanted)),
        Read::Document(_) => None,
    }
}

/// The atom of a test with a constant, and what it says of an empty string.
pub(super) fn text_atom(program: &Program, function: Function, text: Box<str>) -> Option<(Atom, bool)> {
    let empty = text.is_empty();
    Some(match function {
        Function::StartsWith => (Atom::Prefix(text), empty),
        Function::EndsWith => (Atom::Suffix(text), empty),
        Function::Contains => (Atom::Substring(text), empty),
        Function::Matches => {
            let at = program.regexps.binary_search_by(|(source, _)| source.cmp(&text)).ok()?;
            let regexp = &program.regexps[at].1;
            // One that is too large for an automaton, or may take long for a text, is not for the index, which has no budget.
            if regexp.size > MAX_REGEXP_SIZE {
                return None;
            }
            let compiled = CompiledRegexp::compile(regexp).ok().filter(|compiled| compiled.is_small())?;
            (Atom::Regexp(regexp.clone()), compiled.is_match(""))
        }
        _ => return None,
    })
}
