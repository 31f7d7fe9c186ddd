//! The cost class of a subscription: how quickly the index will find it. It is computed from only its conditions, when
//! it is added.

use crate::subscriptions::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm};
use crate::subscriptions::topics::TopicWord;

/// How quickly a subscription is found; see [`access_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostClass {
    /// By an equality: one lookup.
    Keyed,
    /// By a range, a prefix, a literal, a whole list and the like: one query of an automaton.
    Indexed,
    /// By no value: it has only negations, `exists` and similar, and may be about any event. `streamer/core/estimate.py` estimates
    /// its cost.
    Unindexed,
}

impl CostClass {
    /// The cost class of a subscription: that of its worst conjunction.
    pub fn of(form: &NormalForm) -> CostClass {
        form.conjunctions.iter().map(|conjunction| access_of(conjunction).1).fold(CostClass::Keyed, CostClass::max)
    }
}

/// The cost class of a clause as access predicate: that of its worst atom.
fn class_of(clause: &Clause) -> CostClass {
    if clause.mode == Mode::Changed {
        // Many fields may have changed.
        return CostClass::Indexed;
    }
    let class = |atom: &Atom| match atom {
        Atom::Equal(_) => CostClass::Keyed,
        Atom::Numbers(range) if range.low.is_none() && range.high.is_none() => CostClass::Unindexed,
        Atom::Strings(range) if range.low.is_none() && range.high.is_none() => CostClass::Unindexed,
        Atom::Prefix(text) | Atom::Suffix(text) | Atom::Substring(text) if text.is_empty() => CostClass::Unindexed,
        Atom::Wildcard(pieces) if pieces.iter().all(|piece| piece.is_empty()) => CostClass::Unindexed,
        Atom::Topic(pattern) if !pattern.words.iter().any(|word| matches!(word, TopicWord::Word(_))) => CostClass::Unindexed,
        Atom::Element(value) if value.as_scalar().is_some() => CostClass::Keyed,
        // The elements of a list in a list are looked up only if they are scalars.
        Atom::Element(_) if clause.mode != Mode::Scalar => CostClass::Unindexed,
        Atom::Kinds(_) | Atom::Other { .. } => CostClass::Unindexed,
        _ => CostClass::Indexed,
    };
    clause.atoms.iter().map(class).max().unwrap_or(CostClass::Keyed)
}

/// The clause of a conjunction that is the best access predicate by its kind, and its cost class. Other subscriptions
/// may make another clause of the same class better.
pub fn access_of(conjunction: &Conjunction) -> (Option<usize>, CostClass) {
    let classes = conjunction.clauses.iter().enumerate().map(|(at, clause)| (class_of(clause), clause.atoms.len(), at));
    match classes.min() {
        Some((CostClass::Unindexed, ..)) | None => (None, CostClass::Unindexed),
        Some((class, _, at)) => (Some(at), class),
    }
}
