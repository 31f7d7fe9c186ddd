//! Is an atom true for a value of an event?

use crate::automaton::cidr::{net_holds, parse_address};
use crate::automaton::folding::fold;
use crate::automaton::places::topic_matches;
use crate::automaton::ranges::NumberCut;
use crate::automaton::wildcards::wildcard_matches;
use crate::engine::verify::encoded::{AtomView, Atoms};
use crate::engine::verify::values::{LeafValue, Values};
use crate::json::{Element, Elements};
use crate::value::{Kind, Scalar, ScalarRef, Value};
use crate::watch::spend;
use std::borrow::Cow;

/// The bytes of a text that are looked at in a unit of work.
const A_UNIT: usize = 1 << 10;

/// Whether an atom is true for a present value.
#[inline]
pub(in crate::engine) fn atom_holds(atom: &AtomView<'_>, values: &mut Values<'_>, at: usize) -> bool {
    let observed = values.get(at);
    match (atom, observed.scalar) {
        (AtomView::Equal(operand), Some(scalar)) => *operand == scalar,
        (AtomView::Numbers(from, to), Some(ScalarRef::Number(number))) => {
            let point = NumberCut::before(number);
            from.is_none_or(|from| from <= point) && to.is_none_or(|to| point < to)
        }
        (AtomView::Times(of, from, to), _) => observed.leaf.time(*of).is_some_and(|number| {
            let point = NumberCut::before(number);
            from.is_none_or(|from| from <= point) && to.is_none_or(|to| point < to)
        }),
        (AtomView::Size(least, most), _) => values.size(at).is_some_and(|size| (*least..=*most).contains(&size)),
        (AtomView::Kinds(kinds), _) => kinds.has(observed.kind),
        (AtomView::Other(kinds, none_of), _) => {
            kinds.has(observed.kind) && none_of.into_iter().all(|atom| atom_fails(&atom.view, values, at))
        }
        (AtomView::EqualTree(tree), _) => {
            observed.kind == tree.kind()
                && !is_longer(values, at, tree)
                && values.tree(at).is_some_and(|value| value.equals(tree) == Some(true))
        }
        (AtomView::Element(element), _) => {
            if let (Some(mut long), Some(element)) = (distinct_list(values, at), operand(*element)) {
                return long.any(|one| element.equals(&one) == Some(true));
            }
            elements_of(values, at).is_some_and(|elements| elements.iter().any(|one| equals(one, *element) == Some(true)))
        }
        (atom, Some(ScalarRef::String(text))) => text_atom_holds(atom, text),
        _ => false,
    }
}

/// Whether an atom is certainly false: a list or object with a number beyond float64 in it may be undecidable.
#[inline]
pub(super) fn atom_fails(atom: &AtomView<'_>, values: &mut Values<'_>, at: usize) -> bool {
    match atom {
        AtomView::EqualTree(tree) => {
            values.get(at).kind != tree.kind()
                || is_longer(values, at, tree)
                || values.tree(at).is_some_and(|value| value.equals(tree) == Some(false))
        }
        AtomView::Element(element) => {
            if let (Some(mut long), Some(element)) = (distinct_list(values, at), operand(*element)) {
                return long.all(|one| element.equals(&one) == Some(false));
            }
            match elements_of(values, at) {
                Some(elements) => elements.iter().all(|one| equals(one, *element) == Some(false)),
                None => values.get(at).kind != Kind::List,
            }
        }
        atom => !atom_holds(atom, values, at),
    }
}

/// Count a text that is about to be looked at.
#[inline]
fn count(text: &str) {
    if text.len() >= A_UNIT {
        spend(text.len() / A_UNIT);
    }
}

/// What an element must equal.
enum Operand<'a> {
    Value(Cow<'a, Value>),
    Folded(&'a str),
}

impl Operand<'_> {
    fn equals(&self, element: &Element<'_>) -> Option<bool> {
        match self {
            Operand::Value(value) => element.equals(value),
            Operand::Folded(text) => element.equals_folded(text),
        }
    }
}

/// What an element must equal by an atom of an equality.
fn operand(mut element: Atoms<'_>) -> Option<Operand<'_>> {
    match element.next()?.view {
        AtomView::Equal(scalar) => Some(Operand::Value(Cow::Owned(Value::Scalar(scalar.to_scalar())))),
        AtomView::EqualTree(tree) => Some(Operand::Value(Cow::Borrowed(tree))),
        AtomView::EqualIgnoreCase(text) => Some(Operand::Folded(text)),
        _ => None,
    }
}

/// Whether an element equals the operand of an atom; see [`Value::equals`].
fn equals(one: &Value, mut element: Atoms<'_>) -> Option<bool> {
    match (element.next()?.view, one) {
        (_, Value::BeyondFloat(_)) => None,
        (AtomView::Equal(scalar), one) => Some(one.as_scalar() == Some(scalar)),
        (AtomView::EqualTree(tree), one) => one.equals(tree),
        (AtomView::EqualIgnoreCase(text), Value::Scalar(Scalar::String(one))) => Some(fold(one) == text),
        _ => Some(false),
    }
}

/// The elements of a list, which are about to be compared.
fn elements_of<'v>(values: &'v mut Values<'_>, at: usize) -> Option<&'v [Value]> {
    let Some(Value::List(elements)) = values.tree(at) else { return None };
    spend(elements.len() / 16);
    Some(elements)
}

/// The text of a list from which on there is no tree of it, which may be twenty times as long.
const LONG: usize = 1 << 16;

/// The elements of a list that is long, which are about to be compared.
pub(super) fn long_list<'f>(values: &Values<'f>, at: usize) -> Option<impl Iterator<Item = Element<'f>> + use<'f>> {
    Some(counted(long_elements(values, at)?))
}

/// Its elements, without most of those that repeat the one before.
fn distinct_list<'f>(values: &Values<'f>, at: usize) -> Option<impl Iterator<Item = Element<'f>> + use<'f>> {
    Some(counted(long_elements(values, at)?.without_repetitions()))
}

fn long_elements<'f>(values: &Values<'f>, at: usize) -> Option<Elements<'f>> {
    let LeafValue { kind, leaf, .. } = values.get(at);
    let text = leaf.raw();
    (kind == Kind::List && text.len() >= LONG).then(|| Elements::of(text))
}

fn counted<'f>(elements: Elements<'f>) -> impl Iterator<Item = Element<'f>> + use<'f> {
    elements.inspect(|element| spend(1 + element.len() / A_UNIT))
}

/// Whether a value is a long list of more elements than *tree*.
fn is_longer(values: &Values<'_>, at: usize, tree: &Value) -> bool {
    let Value::List(elements) = tree else { return false };
    long_list(values, at).is_some_and(|long| long.take(elements.len() + 1).count() > elements.len())
}

fn text_atom_holds(atom: &AtomView<'_>, text: &str) -> bool {
    count(text);
    match *atom {
        AtomView::Strings(from, to) => from.is_none_or(|from| from <= text) && to.is_none_or(|to| text < to),
        AtomView::Prefix(operand) => text.starts_with(operand),
        AtomView::Suffix(operand) => text.ends_with(operand),
        AtomView::Substring(operand) => memchr::memmem::find(text.as_bytes(), operand.as_bytes()).is_some(),
        AtomView::PrefixIgnoreCase(operand) => fold(text).starts_with(operand),
        AtomView::SuffixIgnoreCase(operand) => fold(text).ends_with(operand),
        AtomView::EqualIgnoreCase(operand) => fold(text) == operand,
        AtomView::SubstringIgnoreCase(operand) => memchr::memmem::find(fold(text).as_bytes(), operand.as_bytes()).is_some(),
        AtomView::Wildcard(pieces) => wildcard_matches(pieces, text),
        AtomView::Regexp(program) => program.search(text),
        AtomView::Cidr(net) => parse_address(text).is_some_and(|address| net_holds(net, address)),
        AtomView::Topic(dialect, words) => topic_matches(dialect, words.symbols(), text),
        _ => false,
    }
}
