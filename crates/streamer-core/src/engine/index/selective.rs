//! The conditions by which an index finds a subscription, and the rest to evaluate: the Python package estimates the cost from them.
//!
//! ```text
//!  country == "DE" && amount - data.rebate > 50     data.country: "DE"    data.rebate: any    ...    then its program
//! ```

use crate::engine::index::plan::most_conditions;
use crate::subscriptions::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm, Range};
use crate::subscriptions::topics::TopicWord;
use crate::value::{Kind, Scalar, Value};

/// The conditions by which an index finds one alternative of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Selective {
    /// Places of an event, each with the values that match there; all places must match.
    pub conditions: Vec<(String, Vec<Select>)>,
    /// The rest.
    pub rest: Rest,
}

/// A value, or values, that match at a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Select {
    /// Anything that most values are: `!=`, `exists`.
    Any,
    /// This, in words.
    Value(String),
    /// A range between two bounds.
    Between(f64, f64),
}

/// The work that remains when an index has found an alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rest {
    /// It matches without further checks.
    Nothing,
    /// Fields of a pattern may be in one list, and then one choice of elements must do for all.
    Choice,
    /// It is evaluated.
    Evaluation,
}

impl Rest {
    /// The word of each.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rest::Nothing => "nothing",
            Rest::Choice => "choice",
            Rest::Evaluation => "evaluation",
        }
    }
}

/// Return the conditions of each alternative that can match, or the first ones of very many. *is_exact*: whether clauses
/// express all of its CEL.
pub fn selective(form: &NormalForm, is_exact: bool) -> Vec<Selective> {
    let possible =
        form.conjunctions.iter().filter(|conjunction| conjunction.clauses.iter().all(|clause| !clause.atoms.is_empty()));
    possible.map(|conjunction| one(conjunction, form, is_exact)).collect()
}

fn one(conjunction: &Conjunction, form: &NormalForm, is_exact: bool) -> Selective {
    let clauses = &conjunction.clauses;
    let verify = form.verify.as_deref();
    let is_changed = || clauses.iter().any(|clause| clause.mode == Mode::Changed);
    let is_evaluated = !is_exact
        || clauses.iter().any(|clause| clause.atoms.iter().any(|atom| is_part(clause.mode, atom)))
        || verify
            .is_some_and(|verify| verify.is_cut || !verify.compared.is_empty() || (!verify.changed.is_empty() && !is_changed()));
    let rest = match verify {
        _ if is_evaluated => Rest::Evaluation,
        Some(verify) if verify.pattern.is_some() => Rest::Choice,
        _ => Rest::Nothing,
    };
    // A clause that matches a missing value narrows no event down.
    let missing = |clause: &&Clause| clause.atoms.iter().any(|atom| atom.kinds().has(Kind::Missing));
    let conditions = clauses.iter().filter(|clause| !missing(clause)).map(|clause| {
        (format!("{} {:?}", clause.path, clause.mode), clause.atoms.iter().map(|atom| select(clause.mode, atom)).collect())
    });
    Selective { conditions: conditions.take(most_conditions(form)).collect(), rest }
}

/// Whether an index decides only a part of an atom.
fn is_part(mode: Mode, atom: &Atom) -> bool {
    match atom {
        Atom::Element(_) => is_any_element(mode, atom),
        Atom::Other { none_of, .. } => {
            // All subscriptions that exclude an empty one exclude the same value, which is compared once.
            let is_empty = |value: &Value| match value {
                Value::List(items) => items.is_empty(),
                Value::Map(members) => members.is_empty(),
                _ => false,
            };
            let is_whole = |atom: &Atom| match atom {
                Atom::EqualTree(value) => is_empty(value),
                atom => matches!(atom, Atom::Equal(_)),
            };
            !none_of.iter().all(is_whole)
        }
        _ => false,
    }
}

/// Whether an atom is about an element that the index does not look up: a list or an object in a list in a list.
fn is_any_element(mode: Mode, atom: &Atom) -> bool {
    matches!(atom, Atom::Element(value) if value.as_scalar().is_none() && mode != Mode::Scalar)
}

fn select(mode: Mode, atom: &Atom) -> Select {
    let is_any = match atom {
        Atom::Kinds(_) | Atom::Other { .. } => true,
        Atom::Prefix(text) | Atom::Suffix(text) | Atom::Substring(text) => text.is_empty(),
        Atom::Wildcard(pieces) => pieces.iter().all(|piece| piece.is_empty()),
        Atom::Topic(pattern) => !pattern.words.iter().any(|word| matches!(word, TopicWord::Word(_))),
        atom => is_any_element(mode, atom),
    };
    match atom {
        _ if is_any => Select::Any,
        Atom::Numbers(range) | Atom::Times(_, range) => between(range, |number| number.floor()),
        Atom::Strings(range) => between(range, |text| position(text)),
        Atom::Size(least, most) => {
            Select::Between((*least).into(), if *most == u32::MAX { f64::INFINITY } else { (*most).into() })
        }
        Atom::Equal(Scalar::Number(number)) => Select::Between(number.floor(), number.floor()),
        atom => Select::Value(atom.to_string()),
    }
}

fn between<T>(range: &Range<T>, number: impl Fn(&T) -> f64) -> Select {
    match (&range.low, &range.high) {
        (None, None) => Select::Any,
        (low, high) => Select::Between(
            low.as_ref().map_or(f64::NEG_INFINITY, |(bound, _)| number(bound)),
            high.as_ref().map_or(f64::INFINITY, |(bound, _)| number(bound)),
        ),
    }
}

/// The position of a text among all texts, from 0 to 1, by its first bytes.
fn position(text: &str) -> f64 {
    text.bytes().take(6).rev().fold(0.0, |rest, byte| (rest + f64::from(byte)) / 256.0)
}
