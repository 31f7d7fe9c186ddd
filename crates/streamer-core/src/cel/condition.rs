//! A condition on the value at one path: CEL over names for it. This is the meaning of a filter's operator
//! (semantics.md section 3).
//!
//! ```text
//!   a name          now        then         has_now   has_then    exists                          operand
//!   at a.b it is    data.a.b   before.a.b   P(data)   P(before)   has(data.a) && has(data.a.b)    the filter's value
//!
//!   at a path of the envelope, `envelope` stands in place of `data`
//!
//!   P(x): type(x) == map && has(x.a) && type(x.a) == map && has(x.a.b)
//! ```
//!
//! Cost: compiled once for all paths and operands. An evaluation walks the path once for each name that is written.
//!
//! Rejected: a program for each filter. It would be compiled for each candidate of each event, and CEL has no name for
//! a step of a path: P repeats each name for every step below it, so that a path of 512 steps makes 130,000 of them.

use super::Error;
use super::ast::{Ast, TypeName, Variable};
use super::check::compile_over;
use super::document::Document;
use super::evaluate::{Result, Run};
use super::executable::{EvaluationScratch, evaluation};
use super::matches::RunRegexps;
use super::outcome::{Evaluation, Verdict};
use super::program::Program;
use super::values::{Key, Map, Value};
use crate::automaton::folding::fold;
use crate::error::EventError;
use crate::limits::Limits;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::{Path, Root};
use crate::value::{self, Number, Scalar};
use std::cmp::Ordering;

/// The names in a condition.
#[derive(Clone, Copy, Debug)]
enum Name {
    Now,
    Then,
    HasNow,
    HasThen,
    Exists,
    Operand,
}

const NAMES: [(Name, &str); 6] = [
    (Name::Now, "now"),
    (Name::Then, "then"),
    (Name::HasNow, "has_now"),
    (Name::HasThen, "has_then"),
    (Name::Exists, "exists"),
    (Name::Operand, "operand"),
];

/// See the head of this file.
#[derive(Debug)]
pub struct Condition {
    program: Program,
    /// The names that it uses, slot by slot.
    named: Box<[Name]>,
}

impl Condition {
    /// Parse and check a condition.
    ///
    /// # Errors
    ///
    /// *source* is not an expression over the names.
    pub fn compile(source: &str) -> std::result::Result<Condition, Error> {
        let words = source.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
        let (named, names): (Vec<Name>, Vec<&str>) =
            NAMES.into_iter().filter(|(_, name)| words.clone().any(|word| word == *name)).unzip();
        let program = compile_over(&names, source, &Limits::default())?;
        Ok(Condition { program, named: named.into() })
    }

    /// Evaluate it at a path of an event, at any cost. Its `matches` is a search for *regexp*. If *is_folded*, the
    /// operand is folded, and the value is before it is compared.
    ///
    /// # Errors
    ///
    /// What it reads is not JSON; only possible if the event was not checked in full.
    pub fn evaluate(
        &self,
        path: &Path,
        operand: &value::Value,
        is_folded: bool,
        regexp: Option<&CompiledRegexp>,
        document: &Document<'_>,
        scratch: &mut EvaluationScratch,
    ) -> std::result::Result<Evaluation, EventError> {
        let mut run = Run::over(&self.program.ast, self.program.slots, scratch, RunRegexps::of_filter(regexp));
        let now = if path.root == Root::Envelope { Variable::Envelope } else { Variable::Data };
        let documents = [document.read(now)?, document.read(Variable::Before)?];
        let value = self.names(&mut run, documents, &path.names, operand).and_then(|()| {
            if is_folded {
                self.fold_now(&mut run);
            }
            run.evaluate(self.program.ast.root())
        });
        Ok(evaluation(value, run.cost))
    }

    /// Fold the value at the path. One with unknown values stays as it is: its result is unknown.
    fn fold_now(&self, run: &mut Run<'_>) {
        for (slot, name) in self.named.iter().enumerate() {
            if matches!(name, Name::Now) {
                run.locals[slot] = run.folded(run.locals[slot]);
            }
        }
    }

    /// Put the values of its names into their slots.
    fn names<'r>(
        &self,
        run: &mut Run<'r>,
        [now, then]: [Value<'r>; 2],
        path: &'r [Box<str>],
        operand: &'r value::Value,
    ) -> Result<()> {
        for (slot, name) in self.named.iter().enumerate() {
            run.locals[slot] = match name {
                Name::Now => run.at(now, path)?,
                Name::Then => run.at(then, path)?,
                Name::HasNow => run.has_all(now, path, false)?,
                Name::HasThen => run.has_all(then, path, false)?,
                Name::Exists => run.has_all(now, path, true)?,
                Name::Operand => run.constant(operand),
            };
        }
        Ok(())
    }
}

/// Whether `data` has a flag at a path: anything but missing, null, false, 0 or "".
///
/// # Errors
///
/// `data` is not JSON; only possible if the event was not checked in full.
pub fn is_flagged(
    path: &[Box<str>],
    document: &Document<'_>,
    scratch: &mut EvaluationScratch,
) -> std::result::Result<Verdict, EventError> {
    let data = document.read(Variable::Data)?;
    let nothing = Ast::default();
    let mut run = Run::over(&nothing, 0, scratch, RunRegexps::new(&[]));
    let (Ok(present), Ok(value)) = (run.has_all(data, path, false), run.at(data, path)) else { return Ok(Verdict::Error) }; // cannot happen: the run has no limit
    let value = if let Value::Partial(partial) = value { partial.value } else { value };
    Ok(match present {
        Value::Bool(true) => Verdict::of(match value {
            Value::Null => false,
            Value::Bool(truth) => truth,
            Value::String(text) => !text.is_empty(),
            value => value.compare_numbers(Value::Int(0)) != Some(Some(Ordering::Equal)),
        }),
        Value::Unknown => Verdict::Unknown,
        _ => Verdict::False,
    })
}

impl<'r> Run<'r> {
    fn over(ast: &'r Ast, slots: u32, scratch: &'r mut EvaluationScratch, regexps: RunRegexps<'r>) -> Run<'r> {
        let arena = scratch.emptied();
        let locals = arena.alloc_slice_fill_copy(slots as usize, Value::Null);
        Run { ast, arena, variables: [Value::Null; Variable::ALL.len()], locals, regexps, budget: u64::MAX, cost: 0 }
    }

    /// The value at a path.
    fn at(&mut self, document: Value<'r>, path: &'r [Box<str>]) -> Result<Value<'r>> {
        self.charge(path.len())?;
        Ok(path.iter().fold(document, |value, name| self.select(value, name)))
    }

    /// P of the head of this file. If *strictly*, it is the meaning of `exists`: a step below a value that is not a map
    /// is an error. The first step that is not true is the result.
    fn has_all(&mut self, document: Value<'r>, path: &'r [Box<str>], strictly: bool) -> Result<Value<'r>> {
        let mut value = document;
        for name in path {
            self.charge(1)?;
            let is_known = !matches!(value, Value::Unknown | Value::Failure(_));
            let is_no_map = is_known && value.type_of() != TypeName::Map;
            let has = if is_no_map && !strictly { Value::Bool(false) } else { self.has_member(value, name)? };
            if !matches!(has, Value::Bool(true)) {
                return Ok(has);
            }
            value = self.select(value, name);
        }
        Ok(Value::Bool(true))
    }

    /// A value, its case folded if it is a text, and that of the texts in it if it is a list.
    fn folded(&self, value: Value<'r>) -> Value<'r> {
        let text = |text: &str| Value::String(self.arena.alloc_str(&fold(text)));
        match value {
            Value::String(whole) => text(whole),
            Value::List(elements) => Value::List(self.arena.alloc_slice_fill_iter(
                elements.iter().map(|element| if let Value::String(one) = element { text(one) } else { *element }),
            )),
            other => other,
        }
    }

    /// The value of a literal. Recursive: an operand is of bounded depth.
    fn constant(&self, literal: &'r value::Value) -> Value<'r> {
        match literal {
            value::Value::Scalar(Scalar::Null) | value::Value::BeyondFloat(_) => Value::Null, // no operand is beyond float64
            value::Value::Scalar(Scalar::Bool(truth)) => Value::Bool(*truth),
            value::Value::Scalar(Scalar::Number(number)) => of_number(*number),
            value::Value::Scalar(Scalar::String(text)) => Value::String(text),
            value::Value::List(elements) => {
                Value::List(self.arena.alloc_slice_fill_iter(elements.iter().map(|element| self.constant(element))))
            }
            value::Value::Map(members) => {
                let entries = members.iter().map(|(name, member)| (Key::String(name), self.constant(member)));
                Value::Map(self.arena.alloc(Map::new(self.arena, self.arena.alloc_slice_fill_iter(entries))))
            }
        }
    }
}

fn of_number<'r>(number: Number) -> Value<'r> {
    let integer = number.as_integer();
    let int = integer.and_then(|integer| i64::try_from(integer).ok()).map(Value::Int);
    let uint = || integer.and_then(|integer| u64::try_from(integer).ok()).map(Value::Uint);
    int.or_else(uint).unwrap_or_else(|| Value::Double(number.floor()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::Arena;
    use crate::flatten::{CallerParts, Flattener, PathTrie, Validation};
    use crate::json::{self, ParseOptions};
    use crate::layout::EventLayout;
    use std::sync::Arc;

    fn with_document<T>(event: &str, ask: impl FnOnce(&Document<'_>, &mut EvaluationScratch) -> T) -> T {
        let trie = PathTrie::builder(Arc::new(EventLayout::default())).build();
        let (limits, mut flattener, arena) = (Limits::default(), Flattener::new(), Arena::default());
        let given = CallerParts { default_tenant: Some("default"), ..CallerParts::default() };
        let flat = flattener.flatten(&trie, event.as_bytes(), Validation::Full, &given, &limits).unwrap();
        ask(&Document::new(&flat, &arena, &limits).unwrap(), &mut EvaluationScratch::default())
    }

    fn steps(path: &str) -> Vec<Box<str>> {
        path.split('.').map(Box::from).collect()
    }

    #[test]
    fn a_name_stands_for_what_the_text_of_a_filter_says() {
        use Verdict::{Error, False, True, Unknown};
        let event = r#"{"data": {"a": {"b": 1, "c": 1e999, "l": [1, 2], "half": {"x": 1}}, "s": "text"}, "before": {"a": {"b": 2}},
            "unknown": ["/data/a/gone", "/data/a/half/y"]}"#;
        for (condition, path, operand, expected) in [
            ("now == operand", "a.b", "1.0", True),
            ("now == operand", "a.missing", "1", Error),
            ("now == operand", "a.gone", "1", Unknown),
            ("now == operand", "a.gone.below", "1", Unknown),
            ("now == operand", "a.l", "[1, 2.0]", True),
            ("now == operand", "a.half", r#"{"x": 1}"#, Unknown),
            ("then == operand", "a.b", "2", True),
            ("then == operand", "s", "2", Error),
            ("now in operand", "a.b", r#"["x", 1, null]"#, True),
            ("now.contains(operand)", "a.l", "2", True),
            ("now.contains(operand)", "s", r#""ex""#, True),
            ("now > operand", "a.b", "18446744073709551615", False),
            ("now > operand", "a.c", "1", Error),
            ("exists", "a.c", "true", True),
            ("exists", "a.c.below", "true", Error),
            ("exists", "a.missing.below", "true", False),
            ("exists", "s.below", "true", Error),
            ("exists", "a.half", "true", True),
            ("exists", "a.gone", "true", Unknown),
            ("has_now", "s.below", "null", False),
            ("has_now", "a.l.below", "null", False),
            ("has_now", "a.c.below", "null", Error),
            ("has_now", "a.half.y", "null", Unknown),
            ("has_now", "a.half.z", "null", False),
            ("has_then", "a.b", "null", True),
            ("has_then", "a.missing", "null", False),
        ] {
            let operand: value::Value = json::parse(operand.as_bytes(), ParseOptions::default()).unwrap();
            let compiled = Condition::compile(condition).unwrap();
            let found = with_document(event, |document, scratch| {
                compiled.evaluate(&Path::new(Root::Data, steps(path)), &operand, false, None, document, scratch).unwrap().verdict
            });
            assert_eq!(found, expected, "{condition} at {path}");
        }
    }

    #[test]
    fn a_flag_is_anything_but_what_is_empty() {
        let event = r#"{"data": {"yes": true, "no": false, "null": null, "zero": -0.0, "one": 1, "empty": "", "text": "0", "list": [],
            "beyond": 1e999, "half": {}}, "unknown": ["/data/gone", "/data/half/x"]}"#;
        for (flag, expected) in [
            ("yes one text list beyond half", Verdict::True),
            ("no null zero empty missing one.below beyond.below half.y", Verdict::False),
            ("gone gone.below half.x", Verdict::Unknown),
        ] {
            for flag in flag.split(' ') {
                let found = with_document(event, |document, scratch| is_flagged(&steps(flag), document, scratch).unwrap());
                assert_eq!(found, expected, "{flag}");
            }
        }
    }
}
