//! Sets of events, as clauses.

use crate::subscriptions::normal_form::{Clause, Unknowns};

/// A set of events: an OR of ANDs of clauses. If it is not exact, the clauses cover more than the set.
#[derive(Clone, Debug)]
pub(super) struct EventSet {
    pub any_of: Vec<Vec<Clause>>,
    pub is_exact: bool,
    /// What the clauses tell of an event with unknown values.
    pub unknowns: Unknowns,
}

impl EventSet {
    /// Exactly these, each clause about one value that the condition reads.
    pub fn of(any_of: Vec<Vec<Clause>>) -> EventSet {
        EventSet { any_of, is_exact: true, unknowns: Unknowns::InClauses }
    }

    /// Every event.
    pub fn all() -> EventSet {
        EventSet::of(vec![Vec::new()])
    }

    /// The empty set. Its condition may be unknown nevertheless, by a value that it reads.
    pub fn none() -> EventSet {
        EventSet { unknowns: Unknowns::Hidden, ..EventSet::of(Vec::new()) }
    }

    /// Exactly the events that satisfy a clause.
    pub fn clause(clause: Clause) -> EventSet {
        EventSet::of(vec![vec![clause]])
    }

    /// Some events that satisfy all of *clauses*.
    pub fn within(clauses: Vec<Clause>) -> EventSet {
        EventSet { is_exact: false, unknowns: Unknowns::Anywhere, ..EventSet::of(vec![clauses]) }
    }

    fn is_all(&self) -> bool {
        self.any_of.iter().any(Vec::is_empty)
    }

    pub fn and(mut self, mut other: EventSet, limit: usize) -> EventSet {
        if self.any_of.is_empty() || other.any_of.is_empty() {
            return EventSet::none();
        }
        let unknowns = self.unknowns.max(other.unknowns);
        if self.any_of.len() * other.any_of.len() > limit {
            // Either is more than both.
            let fewer = if other.any_of.len() < self.any_of.len() { other } else { self };
            return EventSet { is_exact: false, unknowns: unknowns.max(Unknowns::Anywhere), ..fewer };
        }
        let is_exact = self.is_exact && other.is_exact;
        if self.any_of.len() == 1 && other.any_of.len() > 1 {
            std::mem::swap(&mut self, &mut other);
        }
        if let [one] = &other.any_of[..] {
            self.any_of.iter_mut().for_each(|alternative| alternative.extend(one.iter().cloned()));
            return EventSet { is_exact, unknowns, ..self };
        }
        let both = |one: &Vec<Clause>| {
            let one = one.clone();
            other.any_of.iter().map(move |other| [&one[..], &other[..]].concat())
        };
        EventSet { any_of: self.any_of.iter().flat_map(both).collect(), is_exact, unknowns }
    }

    pub fn or(mut self, other: EventSet, limit: usize) -> EventSet {
        if (self.is_exact && self.is_all()) || (other.is_exact && other.is_all()) {
            return EventSet::all();
        }
        let is_exact = self.is_exact && other.is_exact;
        let unknowns = self.unknowns.max(other.unknowns);
        for alternative in other.any_of {
            // Two conditions on one value are one clause.
            if let [clause] = &alternative[..]
                && let Some(same) = self
                    .any_of
                    .iter_mut()
                    .find(|known| matches!(&known[..], [known] if known.path == clause.path && known.mode == clause.mode))
            {
                same[0].atoms.extend(alternative.into_iter().flat_map(|clause| clause.atoms));
            } else {
                self.any_of.push(alternative);
            }
        }
        if self.any_of.len() > limit || self.is_all() {
            let is_exact = is_exact && self.any_of.len() <= limit;
            return EventSet { any_of: vec![Vec::new()], is_exact, unknowns: unknowns.max(Unknowns::Anywhere) };
        }
        EventSet { is_exact, unknowns, ..self }
    }
}
