//! Clauses on one value, in the shortest form, which suits an index best.
//!
//! ```text
//!   amount > 5 && amount < 9 && exists(amount)   ─►   amount in 5..9
//! ```
//!
//! A range with both bounds is an access predicate that finds only the subscriptions that match; one of two half ranges
//! would find half of all, to be verified by the other.
//!
//! Invariant: the clauses are true for the same values as before, and each is about the same path as before. Clauses
//! about *any* leaf are never joined: each may be true for another one.
//!
//! Cost: a hash of each path; for a path with several clauses a few visits of each clause.

use super::normal_form::{Atom, Clause, Mode, Path, Range};
use crate::cel::Times;
use crate::value::Kinds;
use rapidhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::mem::Discriminant;

/// Join clauses if possible, and drop duplicates; return false if no value can satisfy the clauses.
pub fn simplify(clauses: &mut Vec<Clause>) -> bool {
    let groups = at_one_place(clauses);
    if !groups.is_empty() {
        let mut keep = vec![true; clauses.len()];
        for mut same in groups {
            let mut unique: HashSet<&Clause, RandomState> = HashSet::default();
            same.retain(|at| {
                keep[*at] = unique.insert(&clauses[*at]);
                keep[*at]
            });
            if clauses[same[0]].mode == Mode::Scalar {
                join(clauses, &same, &mut keep);
            }
            for &at in &same {
                let is_implied = |other: &usize| *other != at && keep[*other] && implies(&clauses[*other], &clauses[at]);
                // Only a clause of kinds can be implied, and few clauses are.
                if keep[at] && matches!(clauses[at].atoms[..], [Atom::Kinds(_)]) && same.iter().any(is_implied) {
                    keep[at] = false;
                }
            }
        }
        let mut keep = keep.into_iter();
        clauses.retain(|_| keep.next().unwrap_or(true));
    }
    !clauses.iter().any(|clause| clause.atoms.iter().all(|atom| atom.kinds().is_empty()))
}

/// The clauses of each place that has several, by position.
fn at_one_place(clauses: &[Clause]) -> Vec<Vec<usize>> {
    if clauses.len() < 2 {
        return Vec::new();
    }
    let mut firsts: HashMap<(&Path, Mode), usize, RandomState> =
        HashMap::with_capacity_and_hasher(clauses.len(), RandomState::default());
    let mut groups: HashMap<usize, Vec<usize>, RandomState> = HashMap::default();
    for (at, clause) in clauses.iter().enumerate() {
        let first = *firsts.entry(place(clause)).or_insert(at);
        if first != at {
            groups.entry(first).or_insert_with(|| vec![first]).push(at);
        }
    }
    groups.into_values().collect()
}

fn place(clause: &Clause) -> (&Path, Mode) {
    (&clause.path, clause.mode)
}

/// The kind of range by which clauses are joined: atoms of one sort, for times also of one unit.
fn sort_of(clause: &Clause) -> Option<(Discriminant<Atom>, Option<Times>)> {
    match &clause.atoms[..] {
        [atom @ Atom::Times(of, _)] => Some((std::mem::discriminant(atom), Some(*of))),
        [atom @ (Atom::Kinds(_) | Atom::Numbers(_) | Atom::Strings(_) | Atom::Size(..))] => {
            Some((std::mem::discriminant(atom), None))
        }
        _ => None,
    }
}

/// Join the clauses *same*, all on one value: their kinds, and their ranges of one sort. Ranges without a common value
/// stay as they are. An unknown value may lie in any of them, so they are not false of it; and a range without values
/// would have no keys by which to look for it.
fn join(clauses: &mut [Clause], same: &[usize], keep: &mut [bool]) {
    let mut done: Vec<(Discriminant<Atom>, Option<Times>)> = Vec::new();
    for &first in same {
        let Some(sort) = sort_of(&clauses[first]).filter(|sort| !done.contains(sort)) else { continue };
        done.push(sort);
        let alike: Vec<usize> = same.iter().copied().filter(|at| sort_of(&clauses[*at]) == Some(sort)).collect();
        let mut whole = clauses[first].atoms[0].clone();
        if alike[1..].iter().all(|at| narrow(&mut whole, &clauses[*at].atoms[0])) {
            clauses[first].atoms[0] = whole;
            alike[1..].iter().for_each(|at| keep[*at] = false);
        }
    }
}

/// Narrow *atom* to the common values of both; return false if there are none.
fn narrow(atom: &mut Atom, other: &Atom) -> bool {
    match (atom, other) {
        (Atom::Kinds(kinds), Atom::Kinds(other)) => {
            *kinds = kinds.and(*other);
            true
        }
        (Atom::Numbers(range), Atom::Numbers(other)) | (Atom::Times(_, range), Atom::Times(_, other)) => meet(range, other),
        (Atom::Strings(range), Atom::Strings(other)) => meet(range, other),
        (Atom::Size(least, most), Atom::Size(other_least, other_most)) => {
            *least = u32::max(*least, *other_least);
            *most = u32::min(*most, *other_most);
            *least <= *most
        }
        _ => false,
    }
}

/// Narrow *range* to the values in both; return false if there are none.
pub(crate) fn meet<T: Ord + Clone>(range: &mut Range<T>, other: &Range<T>) -> bool {
    // If bounds are equal, the one that leaves the bound out is narrower.
    if let Some((low, closed)) = &other.low
        && range.low.as_ref().is_none_or(|(bound, is_closed)| (low, !closed) > (bound, !is_closed))
    {
        range.low = Some((low.clone(), *closed));
    }
    if let Some((high, closed)) = &other.high
        && range.high.as_ref().is_none_or(|(bound, is_closed)| (high, closed) < (bound, is_closed))
    {
        range.high = Some((high.clone(), *closed));
    }
    match (&range.low, &range.high) {
        (Some((low, from)), Some((high, to))) => low < high || (low == high && *from && *to),
        _ => true,
    }
}

/// Whether a clause of kinds follows from another on the same value.
fn implies(one: &Clause, kinds: &Clause) -> bool {
    let [Atom::Kinds(kinds)] = &kinds.atoms[..] else { return false };
    let kinds_of_one = one.atoms.iter().fold(Kinds::NONE, |kinds_of_one, atom| kinds_of_one.or(atom.kinds()));
    kinds_of_one.and(*kinds) == kinds_of_one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriptions::normal_form::{Path, Root};
    use crate::value::{Kind, Number};

    fn number(low: Option<(i64, bool)>, high: Option<(i64, bool)>) -> Atom {
        let bound = |end: Option<(i64, bool)>| end.map(|(end, closed)| (Number::from_i64(end), closed));
        Atom::Numbers(Range { low: bound(low), high: bound(high) })
    }

    fn clause(name: &str, mode: Mode, atom: Atom) -> Clause {
        Clause { path: Path::new(Root::Data, [name]), mode, atoms: vec![atom] }
    }

    fn simplified(mode: Mode, atoms: impl IntoIterator<Item = Atom>) -> (Vec<Atom>, bool) {
        let mut clauses: Vec<Clause> = atoms.into_iter().map(|atom| clause("a", mode, atom)).collect();
        clauses.insert(1, clause("b", mode, number(None, Some((1, true)))));
        let can_hold = simplify(&mut clauses);
        assert_eq!(clauses.iter().filter(|clause| clause.path == Path::new(Root::Data, ["b"])).count(), 1);
        let of_a = clauses.into_iter().filter(|clause| clause.path == Path::new(Root::Data, ["a"]));
        (of_a.flat_map(|clause| clause.atoms).collect(), can_hold)
    }

    #[test]
    fn conditions_on_one_value_are_its_narrowest_range() {
        let (above, below) = (number(Some((5, false)), None), number(None, Some((9, true))));
        let wider = number(Some((5, true)), Some((9, true)));
        let present = Atom::Kinds(Kinds::PRESENT);
        let all = [above.clone(), below.clone(), wider, present];
        assert_eq!(simplified(Mode::Scalar, all), (vec![number(Some((5, false)), Some((9, true)))], true));
        assert_eq!(simplified(Mode::AnyLeaf, [above.clone(), below.clone()]), (vec![above, below], true));
    }

    #[test]
    fn ranges_without_a_common_value_stay_two() {
        for inclusive in [false, true] {
            let (above, below) = (number(Some((9, false)), None), number(None, Some((9, inclusive))));
            assert_eq!(simplified(Mode::Scalar, [above.clone(), below.clone()]), (vec![above, below], true));
        }
        let one = simplified(Mode::Scalar, [number(Some((9, true)), None), number(None, Some((9, true)))]);
        assert_eq!(one, (vec![number(Some((9, true)), Some((9, true)))], true));
    }

    #[test]
    fn what_nothing_can_be_is_said_to_be_so() {
        let (null, missing) = (Atom::kind(Kind::Null), Atom::kind(Kind::Missing));
        assert!(!simplified(Mode::Scalar, [null, missing]).1);
    }
}
