//! The value of a checked expression for one event (semantics.md sections 4 and 8), counted in cost units (docs/cel-cost.md).
//!
//! Errors and unknowns are values: a strict operator evaluates every operand, then an unknown beats an error, and the
//! first error beats the others; `&&`, `||`, `all` and `exists` absorb both. Only the end of the budget is an `Err`,
//! since it ends the whole run.
//!
//! An event may have unknown values: the source did not carry them. A map or list with an unknown value somewhere below
//! is a [`Partial`]. A select or an index continues into it; `has`, `in` and `type()` use its known parts. For
//! everything else it is unknown as a whole.
//!
//! Invariant: work is charged before it is done, so a run exceeds its budget by at most one operation, and the budget
//! bounds the memory of a run.
//!
//! Recursion is bounded by the depth of the tree, which the parser limits to 64 levels of brackets, each with at most a
//! chain of every operator. Values, which may be deeper, are compared with a stack.

use super::ast::{
    Ast, Branch, Constant, Function, LogicOp, MacroKind, Meaning, Node, NodeId, Operation, Step, TypeName, UnaryOp,
};
use super::ast::{BinaryOp, Variable};
use super::extensions::{NONE, is_optional};
use super::matches::RunRegexps;
use super::outcome::Reason;
use super::values::{Below, Detail, Failure, Key, Map, Partial, Value, first_repeated};
use bumpalo::Bump;

/// The program used up its cost units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent;

pub(super) type Result<T> = std::result::Result<T, Spent>;

/// As many as most functions take; more are kept in the arena.
const MAX_ARGS: usize = 4;

/// One evaluation of one program.
pub(super) struct Run<'r> {
    pub(super) ast: &'r Ast,
    pub(super) arena: &'r Bump,
    /// The parts of the event that the program reads.
    pub(super) variables: [Value<'r>; Variable::ALL.len()],
    /// The variables of macros.
    pub(super) locals: &'r mut [Value<'r>],
    pub(super) regexps: RunRegexps<'r>,
    pub(super) budget: u64,
    pub(super) cost: u64,
}

/// The result of a strict operator that its operands determine.
#[derive(Default)]
struct Strict<'r> {
    stopped: Option<Value<'r>>,
}

impl<'r> Strict<'r> {
    /// Take the next operand.
    fn note(&mut self, value: Value<'r>) {
        match value {
            Value::Unknown | Value::Partial(_) => self.stopped = Some(Value::Unknown),
            Value::Failure(_) if self.stopped.is_none() => self.stopped = Some(value),
            _ => {}
        }
    }
}

/// The result of a strict operator that one operand determines: the operand itself if it is an error or unknown.
#[inline]
pub(super) fn stopped(value: Value<'_>) -> Option<Value<'_>> {
    match value {
        Value::Unknown | Value::Partial(_) => Some(Value::Unknown),
        Value::Failure(_) => Some(value),
        _ => None,
    }
}

/// The value that stops an operation on two operands: unknown beats an error, the first error the second.
#[inline]
fn stopped_by<'r>(one: Value<'r>, other: Value<'r>) -> Option<Value<'r>> {
    match (stopped(one), stopped(other)) {
        (Some(Value::Failure(_)), Some(Value::Unknown)) => Some(Value::Unknown),
        (one, other) => one.or(other),
    }
}

impl<'r> Run<'r> {
    // --- cost and errors

    /// Count work that is about to be done.
    #[inline]
    pub(super) fn charge(&mut self, units: usize) -> Result<()> {
        self.cost = self.cost.saturating_add(units as u64);
        if self.cost > self.budget { Err(Spent) } else { Ok(()) }
    }

    /// Count string work: a unit for each 16 bytes begun.
    #[inline]
    pub(super) fn charge_text(&mut self, bytes: usize) -> Result<()> {
        self.charge(bytes.div_ceil(16))
    }

    /// Count the string work of looking up a key.
    #[inline]
    pub(super) fn charge_key(&mut self, key: Key<'_>) -> Result<()> {
        if let Key::String(text) = key { self.charge_text(text.len()) } else { Ok(()) }
    }

    /// Make an error.
    #[cold]
    pub(super) fn fail(&self, reason: Reason, detail: Detail<'r>) -> Value<'r> {
        Value::Failure(self.arena.alloc(Failure { reason, detail }))
    }

    /// Make the error of an operator or function that does not take such arguments.
    #[cold]
    pub(super) fn no_overload(&self, name: &'static str, args: &[Value<'r>]) -> Value<'r> {
        let mut types = [TypeName::Null; MAX_ARGS];
        let count = args.len().min(MAX_ARGS);
        types.iter_mut().zip(args).for_each(|(kind, arg)| *kind = arg.type_of());
        self.fail(Reason::NoSuchOverload, Detail::Overload(name, types, count))
    }

    /// Keep a text that was made.
    pub(super) fn text(&self, text: &str) -> Value<'r> {
        Value::String(self.arena.alloc_str(text))
    }

    // --- nodes

    /// The value of a node, an error or an unknown.
    pub(super) fn evaluate(&mut self, id: NodeId) -> Result<Value<'r>> {
        let ast = self.ast;
        match &ast[id] {
            Node::Literal(constant) => {
                self.charge(1)?;
                Ok(literal(constant))
            }
            Node::Ident { meaning, .. } => {
                self.charge(1)?;
                Ok(self.meaning(*meaning))
            }
            Node::Paren(inner) => self.evaluate(*inner),
            Node::OptionalItem(inner) => {
                let value = self.evaluate(*inner)?;
                let is_optional = matches!(value, Value::Optional(_));
                Ok(stopped(value).unwrap_or_else(|| if is_optional { value } else { self.no_overload("?", &[value]) }))
            }
            Node::Bind { slot, value, result, .. } => {
                self.charge(1)?;
                // An error or an unknown is the value of the name: it decides nothing if the result absorbs it.
                self.locals[*slot as usize] = self.evaluate(*value)?;
                self.evaluate(*result)
            }
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Unary { op, count, operand } => self.unary(*op, *count, *operand),
            Node::Operation { first, rest } => self.operation(*first, rest),
            Node::Logic { op, operands } => self.logic(*op, operands),
            Node::Ternary { branches, otherwise } => self.ternary(branches, *otherwise),
            Node::Call { function, args } => self.function(*function, args),
            Node::Has { target, name } => self.has(*target, name),
            Node::Chain { base, steps } => self.chain(*base, steps),
        }
    }

    fn meaning(&self, meaning: Meaning) -> Value<'r> {
        match meaning {
            Meaning::Variable(variable) => self.variables[variable as usize],
            Meaning::Local(slot) => self.locals[slot as usize],
            Meaning::Type(name) => Value::Type(name),
            Meaning::Unresolved => self.fail(Reason::NoSuchField, Detail::Words("a name without meaning")), // the checker refuses it
        }
    }

    fn list(&mut self, items: &'r [NodeId]) -> Result<Value<'r>> {
        self.charge(1)?;
        let made = self.arena.alloc_slice_fill_copy(items.len(), Value::Null);
        let mut strict = Strict::default();
        for (place, item) in made.iter_mut().zip(items) {
            *place = self.evaluate(*item)?;
            strict.note(*place);
        }
        if let Some(stopped) = strict.stopped {
            return Ok(stopped);
        }
        let written = made.iter().zip(items).filter_map(|(value, item)| self.written(*item, *value));
        let are_all = !items.iter().any(|item| matches!(self.ast[*item], Node::OptionalItem(_)));
        Ok(Value::List(if are_all { made } else { self.arena.alloc_slice_copy(&written.collect::<Vec<_>>()) }))
    }

    fn map(&mut self, entries: &'r [(NodeId, NodeId)]) -> Result<Value<'r>> {
        self.charge(1)?;
        let mut made = Vec::with_capacity(entries.len());
        let mut strict = Strict::default();
        for (key, value) in entries {
            let pair = (self.evaluate(*key)?, self.evaluate(*value)?);
            strict.note(pair.0);
            strict.note(pair.1);
            made.push(pair);
        }
        if let Some(stopped) = strict.stopped {
            return Ok(stopped);
        }
        let made: Vec<(Value<'r>, Value<'r>)> = made
            .into_iter()
            .zip(entries)
            .filter_map(|((key, value), entry)| Some((key, self.written(entry.1, value)?)))
            .collect();
        let keys: Vec<Key<'r>> = made.iter().map_while(|(key, _)| Key::of(*key)).collect();
        let repeated = first_repeated(&keys);
        for (at, key) in keys.iter().enumerate() {
            self.charge_key(*key)?;
            if repeated == Some(at) {
                return Ok(self.fail(Reason::BadKey, Detail::Twice(key.value())));
            }
        }
        if keys.len() < made.len() {
            return Ok(self.fail(Reason::BadKey, Detail::Words("a key of a map is a bool, an int, a uint or a string")));
        }
        let entries = self.arena.alloc_slice_fill_iter(keys.into_iter().zip(made.into_iter().map(|(_, value)| value)));
        Ok(Value::Map(self.arena.alloc(Map::new(self.arena, entries))))
    }

    /// The value of an item of a list or a map; none if it is an optional without a value.
    fn written(&self, item: NodeId, value: Value<'r>) -> Option<Value<'r>> {
        match (&self.ast[item], value) {
            (Node::OptionalItem(_), Value::Optional(value)) => value.copied(),
            _ => Some(value),
        }
    }

    fn unary(&mut self, op: UnaryOp, count: u32, operand: NodeId) -> Result<Value<'r>> {
        self.charge(count as usize)?;
        let mut value = self.evaluate(operand)?;
        for _ in 0..count {
            if let Some(stopped) = stopped(value) {
                return Ok(stopped);
            }
            value = match op {
                UnaryOp::Not => match value {
                    Value::Bool(truth) => Value::Bool(!truth),
                    _ => self.no_overload("!", &[value]),
                },
                UnaryOp::Negate => self.negate(value),
            };
        }
        Ok(value)
    }

    fn logic(&mut self, op: LogicOp, operands: &'r [NodeId]) -> Result<Value<'r>> {
        self.charge(operands.len() - 1)?;
        let absorbing = op == LogicOp::Or;
        let mut undecided = Value::Bool(!absorbing);
        for operand in operands {
            match self.evaluate(*operand)? {
                Value::Bool(truth) if truth == absorbing => return Ok(Value::Bool(absorbing)),
                Value::Bool(_) => {}
                Value::Unknown | Value::Partial(_) => undecided = Value::Unknown,
                value if matches!(undecided, Value::Bool(_)) => {
                    let name = if absorbing { "||" } else { "&&" };
                    undecided = if let Value::Failure(_) = value { value } else { self.no_overload(name, &[value]) };
                }
                _ => {}
            }
        }
        Ok(undecided)
    }

    fn ternary(&mut self, branches: &'r [Branch], otherwise: NodeId) -> Result<Value<'r>> {
        for branch in branches {
            self.charge(1)?;
            match self.evaluate(branch.condition)? {
                Value::Bool(true) => return self.evaluate(branch.then),
                Value::Bool(false) => {}
                value => return Ok(stopped(value).unwrap_or_else(|| self.no_overload("?:", &[value]))),
            }
        }
        self.evaluate(otherwise)
    }

    fn operation(&mut self, first: NodeId, rest: &'r [Operation]) -> Result<Value<'r>> {
        self.charge(rest.len())?;
        let mut left = self.evaluate(first)?;
        for Operation { op, operand, .. } in rest {
            let right = self.evaluate(*operand)?;
            left = self.binary(*op, left, right)?;
        }
        Ok(left)
    }

    fn binary(&mut self, op: BinaryOp, left: Value<'r>, right: Value<'r>) -> Result<Value<'r>> {
        if let (BinaryOp::In, Value::Partial(partial)) = (op, right) {
            return stopped(left).map_or_else(|| self.in_partial(left, partial), Ok);
        }
        if let Some(stopped) = stopped_by(left, right) {
            return Ok(stopped);
        }
        match op {
            BinaryOp::Equal => self.equal(left, right),
            BinaryOp::NotEqual => Ok(match self.equal(left, right)? {
                Value::Bool(truth) => Value::Bool(!truth),
                failure => failure,
            }),
            BinaryOp::In => self.is_in(left, right),
            BinaryOp::Less | BinaryOp::LessOrEqual | BinaryOp::Greater | BinaryOp::GreaterOrEqual => self.order(op, left, right),
            BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => {
                self.arithmetic(op, left, right)
            }
        }
    }

    fn function(&mut self, function: Function, args: &'r [NodeId]) -> Result<Value<'r>> {
        self.charge(1)?;
        if let (Function::Type | Function::Dyn, [arg]) = (function, args) {
            let value = self.evaluate(*arg)?;
            return match (value, function) {
                (Value::Partial(partial), Function::Type) => Ok(Value::Type(partial.value.type_of())),
                (Value::Partial(_), _) => Ok(value),
                _ => stopped(value).map_or_else(|| self.call(function, &[value]), Ok),
            };
        }
        self.apply(function, None, args)
    }

    /// Call a function or method with the values of *receiver* and *args*.
    fn apply(&mut self, function: Function, receiver: Option<Value<'r>>, args: &'r [NodeId]) -> Result<Value<'r>> {
        let mut few = [Value::Null; MAX_ARGS];
        let count = args.len() + usize::from(receiver.is_some());
        let values: &mut [Value<'r>] = match few.get_mut(..count) {
            Some(few) => few,
            None => self.arena.alloc_slice_fill_copy(count, Value::Null),
        };
        let mut strict = Strict::default();
        let mut places = values.iter_mut();
        if let Some(receiver) = receiver {
            strict.note(receiver);
            places.next().into_iter().for_each(|place| *place = receiver);
        }
        for (arg, place) in args.iter().zip(places) {
            *place = self.evaluate(*arg)?;
            strict.note(*place);
        }
        match strict.stopped {
            Some(stopped) => Ok(stopped),
            None => self.call(function, values),
        }
    }

    fn has(&mut self, target: NodeId, name: &'r str) -> Result<Value<'r>> {
        self.charge(1)?;
        let target = self.evaluate(target)?;
        match self.content(target) {
            Some(target) => self.has_member(target, name),
            None => Ok(Value::Bool(false)),
        }
    }

    pub(super) fn has_member(&mut self, target: Value<'r>, name: &'r str) -> Result<Value<'r>> {
        let no_map = |run: &Run<'r>, value: Value<'r>| {
            run.fail(Reason::NoSuchOverload, Detail::Member("has(.", name, ")", value.type_of()))
        };
        Ok(match target {
            Value::Map(map) => Value::Bool(map.field(name).is_some()),
            Value::Partial(partial) => match partial.value {
                Value::Map(_) => self.in_partial(Value::String(name), partial)?,
                value => no_map(self, value),
            },
            value => stopped(value).unwrap_or_else(|| no_map(self, value)),
        })
    }

    // --- chains

    fn chain(&mut self, base: NodeId, steps: &'r [Step]) -> Result<Value<'r>> {
        self.charge(steps.len())?;
        let mut value = self.evaluate(base)?;
        for step in steps {
            value = match step {
                Step::Select { name, .. } if !is_optional(value) => self.select(value, name),
                Step::Select { name, .. } | Step::OptionalSelect { name, .. } => match self.content(value) {
                    Some(inner) => self.result_or_none(self.select(inner, name), &[inner]),
                    None => NONE,
                },
                Step::Index { key, .. } if !is_optional(value) => {
                    let key = self.evaluate(*key)?;
                    self.index(value, key)?
                }
                Step::Index { key, .. } | Step::OptionalIndex { key, .. } => {
                    let key = self.evaluate(*key)?;
                    self.find(value, key)?
                }
                Step::Method { function, args, .. } => match self.early(*function, value) {
                    Some(value) => value,
                    None => self.apply(*function, Some(value), args)?,
                },
                Step::Macro(step) if matches!(step.kind, MacroKind::OptMap | MacroKind::OptFlatMap) => {
                    self.optional_macro(step, value)?
                }
                Step::Macro(step) => match stopped(value) {
                    Some(stopped) => stopped,
                    None => self.run_macro(step, value)?,
                },
            };
        }
        Ok(value)
    }

    #[inline]
    pub(super) fn select(&self, value: Value<'r>, name: &'r str) -> Value<'r> {
        match value {
            Value::Map(map) => map.field(name).unwrap_or_else(|| self.no_field(Value::String(name))),
            Value::Unknown | Value::Failure(_) => value,
            Value::Partial(partial) => match partial.value {
                Value::Map(map) => self.below(map.field(name), partial, name, Value::String(name)),
                value => self.no_member(value, name),
            },
            _ => self.no_member(value, name),
        }
    }

    #[cold]
    fn no_member(&self, value: Value<'r>, name: &'r str) -> Value<'r> {
        self.fail(Reason::NoSuchOverload, Detail::Member(".", name, "", value.type_of()))
    }

    #[cold]
    fn no_field(&self, key: Value<'r>) -> Value<'r> {
        self.fail(Reason::NoSuchField, Detail::Field(key))
    }

    /// Continue to the value at *token* of a container with unknown values.
    fn below(&self, member: Option<Value<'r>>, partial: &Partial<'r>, token: &str, key: Value<'r>) -> Value<'r> {
        match (partial.unknown.below(token), member) {
            (Below::Known, member) => member.unwrap_or_else(|| self.no_field(key)),
            // Above an unknown value a missing member is unknown: the source may not have carried it.
            (Below::Unknown, _) | (Below::Partial(_), None) => Value::Unknown,
            (Below::Partial(_), Some(failure @ Value::Failure(_))) => failure,
            (Below::Partial(unknown), Some(value)) => Value::Partial(self.arena.alloc(Partial { value, unknown })),
        }
    }

    pub(super) fn index(&mut self, value: Value<'r>, key: Value<'r>) -> Result<Value<'r>> {
        let (container, partial) = match value {
            Value::Partial(partial) => (partial.value, Some(partial)),
            value => (value, None),
        };
        if let Some(stopped) = stopped_by(container, key) {
            return Ok(stopped);
        }
        Ok(match (container, key) {
            (Value::Map(map), Value::String(name)) => {
                self.charge_text(name.len())?;
                match partial {
                    Some(partial) => self.below(map.field(name), partial, name, key),
                    None => map.field(name).unwrap_or_else(|| self.no_field(key)),
                }
            }
            (Value::Map(map), _) if matches!(key, Value::Double(_)) || Key::of(key).is_some() => {
                lookup(key).and_then(|key| map.get(key)).unwrap_or_else(|| self.no_field(key))
            }
            (Value::List(elements), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
                let index = match key {
                    Value::Int(index) => i128::from(index),
                    Value::Uint(index) => i128::from(index),
                    Value::Double(index) if index.fract() == 0.0 => index as i128,
                    _ => return Ok(self.no_overload("[]", &[container, key])),
                };
                match usize::try_from(index).ok().filter(|index| *index < elements.len()) {
                    None => self.fail(Reason::IndexOutOfRange, Detail::Index(key_as_index(index), elements.len())),
                    Some(index) => match partial {
                        Some(partial) => self.below(Some(elements[index]), partial, &index.to_string(), key),
                        None => elements[index],
                    },
                }
            }
            _ => self.no_overload("[]", &[container, key]),
        })
    }
}

/// An index for an error; an index that does not fit is far beyond any list.
fn key_as_index(index: i128) -> i64 {
    index.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The key that a value finds in a map: a double finds the integer of the same value.
pub(super) fn lookup(value: Value<'_>) -> Option<Key<'_>> {
    match value {
        Value::Double(double) => {
            let whole = double as i128; // stops at the ends of i128, and 0 for NaN
            let number = i64::try_from(whole).map(Key::Int).or_else(|_| u64::try_from(whole).map(Key::Uint)).ok()?;
            (whole as f64 == double).then_some(number)
        }
        value => Key::of(value),
    }
}

fn literal(constant: &Constant) -> Value<'_> {
    match constant {
        Constant::Null => Value::Null,
        Constant::Bool(truth) => Value::Bool(*truth),
        Constant::Int(number) => Value::Int(*number),
        Constant::Uint(number) => Value::Uint(*number),
        Constant::Double(number) => Value::Double(*number),
        Constant::String(text) => Value::String(text),
        Constant::Bytes(bytes) => Value::Bytes(bytes),
    }
}
