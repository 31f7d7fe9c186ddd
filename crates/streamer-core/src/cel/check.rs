//! Check a tree: names, functions, overloads, and that the result can be bool (semantics.md section 4).
//!
//! `data` and `before` are maps of `dyn`, so most types of an expression appear only when it runs; an error that is
//! certain before that is refused. A comparison of two literals of different types is allowed: it means the same as
//! between fields.
//!
//! Recursive: the parser limits how deep a tree is. The results are written into the tree at the end.

use super::ast::{Ast, BinaryOp, Constant, Function, LogicOp, Macro, MacroKind, Meaning, Node, NodeId, Step, TypeName, UnaryOp};
use super::ast::{Operation, Variable};
use super::error::{Error, shown};
use super::extensions;
use super::hints::{NO_NOW, hint};
use super::parse;
use super::program::{Program, Variables};
use super::types::{self, BOOL, DYN, INT, Name, OPTIONAL, Overload, Params, Type, comparable, join, join_elements};
use crate::limits::Limits;
use crate::regexps::{Regexp, instructions};
use crate::subscriptions::wording::likeness;
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, Error>;

/// Parse and check an expression.
///
/// # Errors
///
/// A syntax error, an undeclared name, an unknown function, types that an operator or function does not take, a result that
/// cannot be bool, a constant regexp that RE2 refuses, or an expression past the limits; with its place.
pub fn compile(source: &str, limits: &Limits) -> Result<Program> {
    checked(&[], source, limits).map(|(program, _)| program)
}

/// Parse and check an expression in which *names* are the variables in the first slots, of any type.
pub(super) fn compile_over(names: &[&str], source: &str, limits: &Limits) -> Result<Program> {
    checked(names, source, limits).map(|(program, _)| program)
}

/// The remarks of a linter about an expression; an expression that is refused has none.
pub fn remarks(source: &str, limits: &Limits) -> Vec<Remark> {
    checked(&[], source, limits).map(|(_, remarks)| remarks).unwrap_or_default()
}

/// Something of an expression that may surprise its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The finding: a `FindingCode` of the Python package.
    pub code: &'static str,
    /// The remark and its place.
    pub what: Error,
}

fn checked(names: &[&str], source: &str, limits: &Limits) -> Result<(Program, Vec<Remark>)> {
    let mut ast = parse(source, limits)?;
    let mut checker = Checker {
        source,
        ast: &ast,
        scope: names.iter().map(|name| (*name, DYN)).collect(),
        slots: names.len() as u32,
        variables: Variables::default(),
        regexps: BTreeMap::new(),
        instructions: 0,
        meanings: Vec::new(),
        first_slots: Vec::new(),
        bind_slots: Vec::new(),
        type_chains: Vec::new(),
        remarks: Vec::new(),
    };
    let result = checker.type_of(ast.root())?;
    if !matches!(result.name, Name::Bool | Name::Dyn) {
        return checker.error(ast.at(ast.root()), format!("the result must be a bool; this is {}", a(&result)));
    }
    let Checker { slots, variables, regexps, meanings, first_slots, bind_slots, type_chains, remarks, .. } = checker;
    for (id, value) in meanings {
        if let Node::Ident { meaning, .. } = ast.get_mut(id) {
            *meaning = value;
        }
    }
    for (chain, step, slot) in first_slots {
        if let Node::Chain { steps, .. } = ast.get_mut(chain)
            && let Step::Macro(step) = &mut steps[step]
        {
            step.slot = slot;
        }
    }
    for (bind, value) in bind_slots {
        if let Node::Bind { slot, .. } = ast.get_mut(bind) {
            *slot = value;
        }
    }
    for chain in type_chains {
        if let Node::Chain { steps, .. } = ast.get_mut(chain) {
            steps.drain(..2);
        }
    }
    Ok((Program { source: source.into(), ast, variables, regexps: regexps.into_iter().collect(), slots }, remarks))
}

struct Checker<'t> {
    source: &'t str,
    ast: &'t Ast,
    /// The names of the caller, and the variables of the enclosing macros.
    scope: Vec<(&'t str, Type)>,
    slots: u32,
    variables: Variables,
    regexps: BTreeMap<Box<str>, Regexp>,
    instructions: usize,
    meanings: Vec<(NodeId, Meaning)>,
    /// The slot of each macro: its chain, which step.
    first_slots: Vec<(NodeId, usize, u32)>,
    /// The slot of each `cel.bind`.
    bind_slots: Vec<(NodeId, u32)>,
    /// Chains that begin with the name of a type, of which two steps are a part.
    type_chains: Vec<NodeId>,
    remarks: Vec<Remark>,
}

fn a(kind: &Type) -> String {
    let shown = kind.to_string();
    format!("{} {shown}", if shown.starts_with(['i', 'u', 'o']) { "an" } else { "a" })
}

fn listed(kinds: &[Type]) -> String {
    kinds.iter().map(Type::to_string).collect::<Vec<_>>().join(" and ")
}

const FUNCTIONS: [&str; 12] =
    ["size", "matches", "int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration", "type", "dyn"];
const METHODS: [&str; 15] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
];
const MACROS: [&str; 11] = [
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "filter",
    "map",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
];

/// The nearest of *known* to a misspelled name, if one is near.
fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let near = known.map(|candidate| (likeness(candidate, name), candidate)).filter(|(likeness, _)| *likeness >= 0.6);
    near.max_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal)).map(|(_, name)| name)
}

impl<'t> Checker<'t> {
    fn error<T>(&self, at: u32, reason: impl Into<String>) -> Result<T> {
        Err(Error::at(self.source, at, reason))
    }

    /// The name that is written at an offset.
    fn name_at(&self, at: u32) -> &'t str {
        let rest = &self.source[at as usize..];
        let end = rest.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
        &rest[..end]
    }

    fn types_of(&mut self, nodes: &[NodeId]) -> Result<Vec<Type>> {
        nodes.iter().map(|node| self.type_of(*node)).collect()
    }

    fn type_of(&mut self, id: NodeId) -> Result<Type> {
        let ast = self.ast;
        match &ast[id] {
            Node::Literal(constant) => Ok(Type::of(match constant {
                Constant::Null => Name::Null,
                Constant::Bool(_) => Name::Bool,
                Constant::Int(_) => Name::Int,
                Constant::Uint(_) => Name::Uint,
                Constant::Double(_) => Name::Double,
                Constant::String(_) => Name::String,
                Constant::Bytes(_) => Name::Bytes,
            })),
            Node::Ident { name, rooted, .. } => self.name(id, name, *rooted),
            Node::Paren(inner) => self.type_of(*inner),
            Node::OptionalItem(inner) => match self.type_of(*inner)? {
                OPTIONAL | DYN => Ok(DYN),
                kind => self.error(ast.at(id), format!("`?` takes an optional, not {}", a(&kind))),
            },
            Node::Bind { name, value, result, .. } => {
                let kind = self.type_of(*value)?;
                self.bind_slots.push((id, self.scope.len() as u32));
                self.scope.push((name, kind));
                self.slots = self.slots.max(self.scope.len() as u32);
                let result = self.type_of(*result);
                self.scope.pop();
                result
            }
            Node::List(items) => Ok(Type::list(join_elements(self.types_of(items)?))),
            Node::Map(entries) => self.map_literal(entries),
            Node::Unary { op, operand, .. } => {
                let name = if *op == UnaryOp::Not { "!" } else { "-" };
                self.resolve(name, types::of_unary(*op), &[*operand], ast.at(id), None)
            }
            Node::Operation { first, rest } => self.operation(*first, rest),
            Node::Logic { op, operands } => {
                let what = if *op == LogicOp::And { "an operand of &&" } else { "an operand of ||" };
                for operand in operands {
                    let kind = self.type_of(*operand)?;
                    self.expect_bool(&kind, *operand, || what.into())?;
                }
                Ok(BOOL)
            }
            Node::Ternary { branches, otherwise } => {
                let mut results = Vec::with_capacity(branches.len());
                for branch in branches {
                    let condition = self.type_of(branch.condition)?;
                    self.expect_bool(&condition, branch.condition, || "the condition before ?".into())?;
                    results.push((branch.at, self.type_of(branch.then)?));
                }
                let mut joined = self.type_of(*otherwise)?;
                for (at, kind) in results.into_iter().rev() {
                    let Some(both) = join(&kind, &joined) else {
                        return self.error(at, format!("the two sides of : have different types, {}", listed(&[kind, joined])));
                    };
                    joined = both;
                }
                Ok(joined)
            }
            Node::Call { function, args } => self.call(*function, args, ast.at(id)),
            Node::Has { target, name } => {
                let kind = self.type_of(*target)?;
                self.field(kind, name, ast.at(id))?;
                Ok(BOOL)
            }
            Node::Chain { base, steps } => self.chain(id, *base, steps),
        }
    }

    fn expect_bool(&self, kind: &Type, id: NodeId, what: impl FnOnce() -> String) -> Result<()> {
        if *kind == BOOL || *kind == DYN {
            return Ok(());
        }
        self.error(self.ast.at(id), format!("{} must be a bool; this is {}", what(), a(kind)))
    }

    // --- names

    fn name(&mut self, id: NodeId, name: &str, rooted: bool) -> Result<Type> {
        if !rooted && let Some(slot) = self.scope.iter().rposition(|(variable, _)| *variable == name) {
            self.meanings.push((id, Meaning::Local(slot as u32)));
            return Ok(self.scope[slot].1.clone());
        }
        if let Some(variable) = Variable::ALL.into_iter().find(|variable| variable.name() == name) {
            self.meanings.push((id, Meaning::Variable(variable)));
            self.variables.insert(variable);
            return Ok(Type::of_variable(variable));
        }
        if let Some(kind) = TypeName::ALL.into_iter().find(|kind| kind.name() == name) {
            self.meanings.push((id, Meaning::Type(kind)));
            return Ok(Type::of(Name::Type));
        }
        let mut known: Vec<&str> = Variable::ALL.into_iter().map(Variable::name).collect();
        known.extend(self.scope.iter().map(|(name, _)| *name));
        let near = match nearest(name, known.into_iter()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("a field of the document is written `data.{}`", shown(name)),
        };
        let at = self.ast.at(id);
        self.error(at, format!("undeclared name `{}`; {}", shown(name), hint(self.source, at).unwrap_or(near)))
    }

    /// Whether a chain begins with the name of a type, such as `google.protobuf.Timestamp`.
    fn type_name(&self, base: NodeId, steps: &[Step]) -> Option<TypeName> {
        let Node::Ident { name, .. } = &self.ast[base] else { return None };
        let [Step::Select { name: one, .. }, Step::Select { name: other, .. }, ..] = steps else { return None };
        if self.scope.iter().any(|(variable, _)| **variable == **name) {
            return None;
        }
        TypeName::ALL.into_iter().find(|kind| kind.name().split('.').eq([&**name, &**one, &**other]))
    }

    // --- operators

    fn resolve(&mut self, name: &str, overloads: &[Overload], args: &[NodeId], at: u32, target: Option<Type>) -> Result<Type> {
        let own = usize::from(target.is_some());
        let mut kinds = Vec::with_capacity(args.len() + own);
        kinds.extend(target);
        for arg in args {
            kinds.push(self.type_of(*arg)?);
        }
        if let Some(result) = types::resolve(overloads, &kinds) {
            return Ok(result);
        }
        let mut counts: Vec<usize> = overloads.iter().map(|(params, _)| params.len()).collect();
        counts.sort_unstable();
        counts.dedup();
        if counts.contains(&kinds.len()) {
            return self.error(at, format!("{name} does not take {}", listed(&kinds)));
        }
        let wanted = counts.iter().map(|count| (count - own).to_string()).collect::<Vec<_>>().join(" or ");
        let plural = if wanted == "1" { "" } else { "s" };
        self.error(at, format!("{name} takes {wanted} argument{plural}, not {}", args.len()))
    }

    fn map_literal(&mut self, entries: &[(NodeId, NodeId)]) -> Result<Type> {
        let (mut keys, mut values) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        for (key, value) in entries {
            let kind = self.type_of(*key)?;
            if kind.nullable || !matches!(kind.name, Name::Bool | Name::Int | Name::Uint | Name::String | Name::Dyn) {
                let reason = format!("a key of a map is a bool, an int, a uint or a string; this is {}", a(&kind));
                return self.error(self.ast.at(*key), reason);
            }
            keys.push(kind);
            values.push(self.type_of(*value)?);
        }
        Ok(Type::map(join_elements(keys), join_elements(values)))
    }

    fn operation(&mut self, first: NodeId, rest: &[Operation]) -> Result<Type> {
        let mut left = self.type_of(first)?;
        // A computed value is not a literal.
        let mut left_node = Some(first);
        for Operation { at, op, operand } in rest {
            let right = self.type_of(*operand)?;
            left = match op {
                BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => {
                    let is_int = |node: NodeId| is_int_literal(self.ast, node);
                    if (left == DYN && is_int(*operand)) || (right == DYN && left_node.is_some_and(is_int)) {
                        let what = format!("`{}` with an int literal fails if the event spells a double", op.symbol());
                        self.remark("spelled_arithmetic", *at, what);
                    }
                    self.arithmetic(*op, *at, left, right)?
                }
                _ => {
                    let literals = left_node.is_some_and(|node| is_literal(self.ast, node)) && is_literal(self.ast, *operand);
                    self.compare(*op, *at, left, right, literals)?;
                    BOOL
                }
            };
            left_node = None;
        }
        Ok(left)
    }

    fn arithmetic(&self, op: BinaryOp, at: u32, left: Type, right: Type) -> Result<Type> {
        let kinds = [left, right];
        let result = match &kinds {
            [Type { name: Name::List, .. }, Type { name: Name::List, .. }] => join(&kinds[0], &kinds[1]),
            _ => types::resolve(types::of_binary(op), &kinds),
        };
        match result {
            Some(result) => Ok(result),
            None => self.error(at, format!("{} does not take {}", op.symbol(), listed(&kinds))),
        }
    }

    fn compare(&mut self, op: BinaryOp, at: u32, left: Type, mut right: Type, mut literals: bool) -> Result<()> {
        let fits = match op {
            BinaryOp::In => {
                if !matches!(right.name, Name::List | Name::Map | Name::Dyn) {
                    return self.error(at, format!("in looks into a list or a map, not into {}", a(&right)));
                }
                right = right.member();
                comparable(&left, &right)
            }
            BinaryOp::Equal | BinaryOp::NotEqual => comparable(&left, &right),
            _ => {
                let (one, other) = (left.name, right.name);
                // A type without any order is not an error of comparing different types.
                literals = literals && one != other;
                let ordered = |name: Name| name == Name::Dyn || name.is_ordered();
                let alike = one == other || one == Name::Dyn || other == Name::Dyn || (one.is_numeric() && other.is_numeric());
                ordered(one) && ordered(other) && alike
            }
        };
        if !fits && !literals {
            return self.error(at, format!("{} does not compare {}", op.symbol(), listed(&[left, right])));
        }
        if literals && left != right && left != DYN && right != DYN {
            let what = format!("`{}` compares literals of different types, {}", op.symbol(), listed(&[left, right]));
            self.remark("literal_comparison", at, what);
        }
        Ok(())
    }

    fn remark(&mut self, code: &'static str, at: u32, what: String) {
        self.remarks.push(Remark { code, what: Error::at(self.source, at, what) });
    }

    // --- functions

    fn call(&mut self, function: Function, args: &[NodeId], at: u32) -> Result<Type> {
        let name = match function {
            Function::Extension(extension) => extension.row().name,
            _ => self.name_at(at),
        };
        if let Function::Extension(extension) = function
            && extension.row().takes_many
            && args.len() != 1
        {
            return self.many_numbers(name, args, at);
        }
        let Some(overloads) = types::of_function(function) else { return self.error(at, self.unknown_function(name, at)) };
        let result = self.resolve(&format!("{name}()"), overloads, args, at, None)?;
        if function == Function::Matches {
            self.constant_regexp(args[1])?;
        }
        Ok(result)
    }

    /// The arguments of a function that takes any number of numbers.
    fn many_numbers(&mut self, name: &str, args: &[NodeId], at: u32) -> Result<Type> {
        let kinds = self.types_of(args)?;
        if kinds.is_empty() {
            return self.error(at, format!("{name}() takes at least 1 argument, not 0"));
        }
        if !kinds.iter().all(|kind| *kind == DYN || kind.is_numeric()) {
            return self.error(at, format!("{name}() does not take {}", listed(&kinds)));
        }
        Ok(DYN)
    }

    fn constant_regexp(&mut self, mut id: NodeId) -> Result<()> {
        while let Node::Paren(inner) = self.ast[id] {
            id = inner;
        }
        let Node::Literal(Constant::String(text)) = &self.ast[id] else { return Ok(()) };
        if self.regexps.contains_key(text) {
            return Ok(());
        }
        let at = self.ast.at(id);
        let (regexp, instructions) = match instructions::translate(text) {
            Ok(translated) => translated,
            Err(reason) => return self.error(at, format!("expected a regular expression of RE2: {reason}")),
        };
        self.regexps.insert(text.clone(), regexp);
        self.instructions += instructions;
        if self.instructions > instructions::MAX_INSTRUCTIONS {
            return self.error(at, "the regular expressions of this expression are too large together");
        }
        Ok(())
    }

    // --- chains

    fn chain(&mut self, id: NodeId, base: NodeId, steps: &'t [Step]) -> Result<Type> {
        let (mut kind, skipped) = match self.type_name(base, steps) {
            Some(kind) => {
                self.meanings.push((base, Meaning::Type(kind)));
                self.type_chains.push(id);
                (Type::of(Name::Type), 2)
            }
            None => (self.type_of(base)?, 0),
        };
        for (position, step) in steps.iter().enumerate().skip(skipped) {
            kind = match step {
                Step::Select { at, name } => self.field(kind, name, *at)?,
                Step::Index { at, key } => self.index(kind, *key, *at)?,
                Step::OptionalSelect { at, name } => {
                    self.field(kind, name, *at)?;
                    OPTIONAL
                }
                Step::OptionalIndex { at, key } => {
                    self.index(kind, *key, *at)?;
                    OPTIONAL
                }
                Step::Method { at, function, args } => self.method(kind, *function, args, *at)?,
                Step::Macro(step) => {
                    self.first_slots.push((id, position, self.scope.len() as u32));
                    self.macro_step(kind, step)?
                }
            };
        }
        Ok(kind)
    }

    fn field(&self, kind: Type, name: &str, at: u32) -> Result<Type> {
        match kind.name {
            Name::Optional => Ok(kind),
            Name::Dyn | Name::Map => Ok(kind.value()),
            _ => self.error(at, format!("{} has no fields, so no `{}`", a(&kind), shown(name))),
        }
    }

    fn index(&mut self, kind: Type, key: NodeId, at: u32) -> Result<Type> {
        let key = self.type_of(key)?;
        if kind == OPTIONAL {
            return Ok(OPTIONAL);
        }
        let fits = match &kind.params {
            Params::List(_) => key == INT || key == DYN,
            Params::Map(entry) => comparable(&key, &entry.0),
            Params::None => kind.name == Name::Dyn,
        };
        if !fits {
            return self.error(at, format!("[] does not take {}", listed(&[kind, key])));
        }
        Ok(kind.value())
    }

    fn method(&mut self, kind: Type, function: Function, args: &[NodeId], at: u32) -> Result<Type> {
        let name = self.name_at(at);
        let Some(overloads) = types::of_method(function) else {
            if MACROS.contains(&name) {
                let reason = format!("{name}() takes a variable and an expression, as in data.list.{name}(x, ...)");
                return self.error(at, reason);
            }
            let near = nearest(name, METHODS.into_iter().chain(extensions::names(false)).chain(MACROS));
            return self.error(at, format!("unknown function `{}`{}", shown(name), self.did_you_mean(near, at)));
        };
        let result = self.resolve(&format!("{name}()"), overloads, args, at, Some(kind))?;
        if function == Function::Matches {
            self.constant_regexp(args[0])?;
        }
        Ok(result)
    }

    fn did_you_mean(&self, near: Option<&str>, at: u32) -> String {
        let meant = hint(self.source, at).or_else(|| near.map(|near| format!("did you mean `{near}`?")));
        meant.map(|meant| format!("; {meant}")).unwrap_or_default()
    }

    fn unknown_function(&self, name: &str, at: u32) -> String {
        if name == "now" {
            return format!("there is no now(): {NO_NOW}");
        }
        if name == "has" {
            return "has() takes one argument, a field, as in has(data.a)".into();
        }
        if METHODS.contains(&name) || extensions::names(false).any(|known| known == name) || MACROS.contains(&name) {
            return format!("`{name}` is called on a value, as in data.a.{name}(...)");
        }
        let known = FUNCTIONS.into_iter().chain(extensions::names(true));
        format!("unknown function `{}`{}", shown(name), self.did_you_mean(nearest(name, known), at))
    }

    fn macro_step(&mut self, kind: Type, step: &'t Macro) -> Result<Type> {
        let two = step.names.len() == 2;
        let is_optional = matches!(step.kind, MacroKind::OptMap | MacroKind::OptFlatMap);
        let (first, second) = match kind.params {
            Params::None if is_optional && matches!(kind.name, Name::Dyn | Name::Optional) => (DYN, None),
            _ if is_optional => {
                let name = self.name_at(step.at);
                return self.error(step.at, format!("{name}() is called on an optional, not on {}", a(&kind)));
            }
            Params::None | Params::Map(_) if step.kind == MacroKind::SortBy && kind.name != Name::Dyn => {
                return self.error(step.at, format!("sortBy() goes over a list, not over {}", a(&kind)));
            }
            Params::List(element) if two => (INT, Some(*element)),
            Params::List(element) => (*element, None),
            Params::Map(entry) if two => (entry.0, Some(entry.1)),
            Params::Map(entry) => (entry.0, None),
            Params::None if kind.name == Name::Dyn => (DYN, two.then_some(DYN)),
            Params::None => {
                let name = self.name_at(step.at);
                return self.error(step.at, format!("{name}() goes over a list or a map, not over {}", a(&kind)));
            }
        };
        let outside = self.scope.len();
        let kinds = [Some(first.clone()), second];
        self.scope.extend(step.names.iter().zip(kinds).filter_map(|((_, name), kind)| Some((&**name, kind?))));
        self.slots = self.slots.max(self.scope.len() as u32);
        if let Some(condition) = step.condition {
            let kind = self.type_of(condition)?;
            let name = self.name_at(step.at);
            self.expect_bool(&kind, condition, || format!("the condition of {name}()"))?;
        }
        let result = step.result.map(|result| self.type_of(result)).transpose()?.unwrap_or(BOOL);
        self.scope.truncate(outside);
        Ok(match step.kind {
            MacroKind::OptFlatMap if result != OPTIONAL && result != DYN => {
                let reason = format!("the result of optFlatMap() must be an optional; this is {}", a(&result));
                return self.error(step.at, reason);
            }
            MacroKind::OptMap | MacroKind::OptFlatMap => OPTIONAL,
            MacroKind::Filter | MacroKind::SortBy => Type::list(first),
            MacroKind::Map | MacroKind::TransformList => Type::list(result),
            MacroKind::TransformMap => Type::map(first, result),
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => BOOL,
        })
    }
}

fn is_literal(ast: &Ast, id: NodeId) -> bool {
    match &ast[id] {
        Node::Literal(_) => true,
        node @ (Node::Paren(_) | Node::Unary { .. } | Node::List(_) | Node::Map(_)) => {
            let mut all = true;
            node.each_child(|child| all = all && is_literal(ast, child));
            all
        }
        _ => false,
    }
}

fn is_int_literal(ast: &Ast, mut id: NodeId) -> bool {
    while let Node::Paren(inner) = ast[id] {
        id = inner;
    }
    matches!(ast[id], Node::Literal(Constant::Int(_)))
}
