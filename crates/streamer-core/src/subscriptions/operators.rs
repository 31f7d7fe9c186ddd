//! The operators of filters: the operand of each, its meaning in CEL, and its clauses, exactly.
//!
//! | filter on `a.b` | clauses |
//! |---|---|
//! | `==`, `in` | `data.a.b` equals |
//! | `!=`, `not in` | `data.a.b` is readable and none of them |
//! | `<` and so on | `data.a.b` in a range of its own type |
//! | `exists` false | `data.a.b` is missing |
//! | `changed_to` | `data.a.b` equals; `before.a.b` is missing or readable and not equal |
//! | `changed` | `data.a.b` differs from before |
//!
//! A member of a number beyond float64 is an error, so it is neither missing nor differs from anything ([`Mode::Scalar`]).
//!
//! With the root `envelope` each path of `data` is one of the envelope; the operators on `before` do not have it.
//!
//! A row of [`OPERATORS`] is the whole definition of an operator. The index answers by its clauses. For an event with
//! unknown values its CEL is evaluated, over the names of [`Condition`]. The [oracle](crate::naive) has the meaning
//! once more, written by hand.

use super::normal_form::{Atom, Clause, Mode, Path, Root};
use crate::automaton::folding::fold;
use crate::cel::{Condition, Document, Evaluation, EvaluationScratch};
use crate::error::EventError;
use crate::fork;
use crate::json::Tree;
use crate::regexps::{CompiledRegexp, Regexp};
use crate::value::{Kinds, Scalar, Value};
use std::sync::{Arc, OnceLock};
use std::{iter, slice};

/// The condition of a filter on its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is documented by semantics.md section 3")]
pub enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    In,
    NotIn,
    Contains,
    Exists,
    StartsWith,
    EndsWith,
    Matches,
    Changed,
    ChangedTo,
    ChangedFrom,
}

impl Operator {
    /// Whether it may ignore the case of texts.
    #[must_use]
    pub fn may_ignore_case(self) -> bool {
        use Operator::{Contains, EndsWith, Equal, In, Matches, NotEqual, NotIn, StartsWith};
        matches!(self, Equal | NotEqual | In | NotIn | Contains | StartsWith | EndsWith | Matches)
    }

    /// Whether it compares the document with the one before.
    #[must_use]
    pub fn mentions_before(self) -> bool {
        matches!(self, Operator::Changed | Operator::ChangedTo | Operator::ChangedFrom)
    }

    /// Its definition.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // The rows have the order of the enum; a test checks that.
        &OPERATORS[self as usize]
    }

    /// Its CEL, compiled for all filters.
    #[must_use]
    pub fn condition(self) -> &'static Condition {
        static CONDITIONS: OnceLock<[Condition; OPERATORS.len()]> = OnceLock::new();
        let compile = |row: &Row| Condition::compile(row.cel).expect("a test compiles each");
        &fork::once(&CONDITIONS, || OPERATORS.each_ref().map(compile))[self as usize]
    }
}

/// A filter that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Its field: at least one member name, from `data` or from the envelope down.
    pub path: Path,
    /// Its operator.
    pub op: Operator,
    /// What it compares with; null for `changed`. Its texts are folded if case is ignored.
    pub value: Value,
    /// The expression of `matches`.
    pub regexp: Option<Regexp>,
    /// Whether it compares the foldings of texts.
    pub ignore_case: bool,
}

impl Filter {
    /// Evaluate the CEL that it means, also if values are unknown.
    ///
    /// # Errors
    ///
    /// The errors of [`Condition::evaluate`](crate::cel::Condition::evaluate).
    pub fn evaluate(
        &self,
        document: &Document<'_>,
        scratch: &mut EvaluationScratch,
    ) -> std::result::Result<Evaluation, EventError> {
        // A filter that was accepted compiles.
        let regexp = self.regexp.as_ref().and_then(|regexp| CompiledRegexp::compile(regexp).ok());
        // The expression of `matches` ignores case by itself.
        let is_folded = self.ignore_case && regexp.is_none();
        self.op.condition().evaluate(&self.path, &self.value, is_folded, regexp.as_deref(), document, scratch)
    }
}

/// The operand of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The operator has no value.
    Nothing,
    /// Any JSON value.
    Anything,
    /// `true` or `false`.
    Boolean,
    /// A string.
    Text,
    /// The string of an operator on other values, too, that ignores case.
    Folded,
    /// A string that is an expression of RE2.
    Regexp,
    /// A scalar that has an order.
    Ordered,
    /// Any scalar.
    Scalar,
    /// A list of scalars, each an alternative of the subscription.
    Scalars,
}

impl Operand {
    /// A description for errors.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Operand::Nothing => "no value",
            Operand::Anything => "a value",
            Operand::Boolean => "true or false",
            Operand::Text | Operand::Regexp => "a string",
            Operand::Folded => "a string with 'ignore_case'",
            Operand::Ordered => "a string, a number or a boolean",
            Operand::Scalar => "a string, a number, a boolean or null",
            Operand::Scalars => "a list of strings, numbers, booleans or nulls",
        }
    }

    /// Whether it allows this value, without its elements if it is a list.
    pub(super) fn allows(self, tree: &Tree) -> bool {
        match self {
            Operand::Nothing => matches!(tree, Tree::Scalar(Scalar::Null)),
            Operand::Anything => true,
            Operand::Boolean => matches!(tree, Tree::Scalar(Scalar::Bool(_))),
            Operand::Text | Operand::Folded | Operand::Regexp => matches!(tree, Tree::Scalar(Scalar::String(_))),
            Operand::Ordered => matches!(tree, Tree::Scalar(scalar) if *scalar != Scalar::Null),
            Operand::Scalar => matches!(tree, Tree::Scalar(_)),
            Operand::Scalars => matches!(tree, Tree::List(_)),
        }
    }
}

/// The definition of an operator.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub op: Operator,
    /// As it is written.
    pub name: &'static str,
    /// Its operand.
    pub operand: Operand,
    /// Its meaning (see [`Condition`]).
    pub cel: &'static str,
    /// Its clauses, all of which must be true.
    pub clauses: Clauses,
}

type Clauses = fn(&Filter) -> Vec<Clause>;

const fn row(op: Operator, name: &'static str, operand: Operand, cel: &'static str, clauses: Clauses) -> Row {
    Row { op, name, operand, cel, clauses }
}

/// In the order in which errors list them, which is that of the enum.
pub const OPERATORS: [Row; 16] = [
    row(Operator::Equal, "==", Operand::Anything, "now == operand", |filter| one(filter, equal(filter, &filter.value))),
    row(Operator::NotEqual, "!=", Operand::Anything, "now != operand", |filter| {
        one(filter, none_of(filter, slice::from_ref(&filter.value)))
    }),
    row(Operator::Greater, ">", Operand::Ordered, "now > operand", |filter| {
        any(filter, Atom::ordered(&filter.value, Some(false), None))
    }),
    row(Operator::GreaterOrEqual, ">=", Operand::Ordered, "now >= operand", |filter| {
        any(filter, Atom::ordered(&filter.value, Some(true), None))
    }),
    row(Operator::Less, "<", Operand::Ordered, "now < operand", |filter| {
        any(filter, Atom::ordered(&filter.value, None, Some(false)))
    }),
    row(Operator::LessOrEqual, "<=", Operand::Ordered, "now <= operand", |filter| {
        any(filter, Atom::ordered(&filter.value, None, Some(true)))
    }),
    row(Operator::In, "in", Operand::Scalars, "now in operand", |filter| {
        any(filter, items(filter).iter().map(|item| equal(filter, item)).collect())
    }),
    row(Operator::NotIn, "not in", Operand::Scalars, "!(now in operand)", |filter| one(filter, none_of(filter, items(filter)))),
    row(Operator::Contains, "contains", Operand::Scalar, "now.contains(operand)", contains),
    row(Operator::Exists, "exists", Operand::Boolean, "operand ? exists : !has_now", exists),
    row(Operator::StartsWith, "starts_with", Operand::Text, "now.startsWith(operand)", |filter| {
        one(filter, folded_or(filter, Atom::PrefixIgnoreCase, Atom::Prefix))
    }),
    row(Operator::EndsWith, "ends_with", Operand::Text, "now.endsWith(operand)", |filter| {
        one(filter, folded_or(filter, Atom::SuffixIgnoreCase, Atom::Suffix))
    }),
    row(Operator::Matches, "matches", Operand::Regexp, "now.matches(operand)", |filter| {
        any(filter, filter.regexp.iter().cloned().map(Atom::Regexp).collect())
    }),
    row(Operator::Changed, "changed", Operand::Nothing, "has_now && has_then ? then != now : has_now || has_then", |filter| {
        vec![Clause::changed(filter.path.clone())]
    }),
    row(
        Operator::ChangedTo,
        "changed_to",
        Operand::Anything,
        "has_now && now == operand && !(has_then && then == operand)",
        |filter| became(filter, Root::Data, Root::Before),
    ),
    row(
        Operator::ChangedFrom,
        "changed_from",
        Operand::Anything,
        "has_then && then == operand && !(has_now && now == operand)",
        |filter| became(filter, Root::Before, Root::Data),
    ),
];

// The parts of the rows.

/// A value, its case folded if it is a text, and that of the texts in it if it is a list.
pub(crate) fn folded(value: &Value) -> Value {
    let one = |value: &Value| match value.as_str() {
        Some(text) => Value::Scalar(Scalar::String(fold(text).into())),
        None => value.clone(),
    };
    if let Value::List(items) = value { Value::List(items.iter().map(one).collect()) } else { one(value) }
}

/// The atom of a text, folded or not. The folding of an empty text is in every text, as it is.
fn folded_or(filter: &Filter, folded: fn(Box<str>) -> Atom, exact: fn(Box<str>) -> Atom) -> Atom {
    let text = filter.value.as_str().unwrap_or_default();
    if filter.ignore_case && !text.is_empty() { folded(text.into()) } else { exact(text.into()) }
}

fn equal(filter: &Filter, value: &Value) -> Atom {
    match value.as_str() {
        Some(text) if filter.ignore_case => Atom::EqualIgnoreCase(text.into()),
        _ => Atom::equal(value),
    }
}

fn items(filter: &Filter) -> &[Value] {
    if let Value::List(items) = &filter.value { items } else { &[] }
}

fn at(filter: &Filter, root: Root, atoms: Vec<Atom>) -> Clause {
    Clause { path: Path { root, names: filter.path.names.clone() }, mode: Mode::Scalar, atoms }
}

/// The value at the path satisfies one of *atoms*.
fn any(filter: &Filter, atoms: Vec<Atom>) -> Vec<Clause> {
    vec![at(filter, filter.path.root, atoms)]
}

/// The value at the path satisfies *atom*.
fn one(filter: &Filter, atom: Atom) -> Vec<Clause> {
    any(filter, vec![atom])
}

fn none_of(filter: &Filter, values: &[Value]) -> Atom {
    Atom::Other { kinds: Kinds::READABLE, none_of: values.iter().map(|value| equal(filter, value)).collect() }
}

fn contains(filter: &Filter) -> Vec<Clause> {
    let element = match filter.value.as_str() {
        Some(text) if filter.ignore_case => Atom::ElementIgnoreCase(text.into()),
        _ => Atom::Element(Arc::new(filter.value.clone())),
    };
    let part = filter.value.as_str().map(|_| folded_or(filter, Atom::SubstringIgnoreCase, Atom::Substring));
    any(filter, iter::once(element).chain(part).collect())
}

fn exists(filter: &Filter) -> Vec<Clause> {
    let is_wanted = filter.value == Value::Scalar(Scalar::Bool(true));
    one(filter, Atom::Kinds(if is_wanted { Kinds::PRESENT } else { Kinds::MISSING }))
}

/// One side has the value, and the other does not.
pub(super) fn became(filter: &Filter, side: Root, other: Root) -> Vec<Clause> {
    let is_not = vec![Atom::Kinds(Kinds::MISSING), none_of(filter, slice::from_ref(&filter.value))];
    vec![at(filter, side, vec![Atom::equal(&filter.value)]), at(filter, other, is_not)]
}

#[cfg(test)]
mod tests {
    use super::OPERATORS;

    #[test]
    fn each_operator_has_the_row_of_its_number() {
        for (at, row) in OPERATORS.iter().enumerate() {
            assert_eq!((row.op as usize, row.op), (at, OPERATORS[row.op as usize].op), "{}", row.name);
            _ = row.op.condition(); // or panic: its CEL does not compile
        }
    }
}
