//! Clauses on one value, said as shortly as an index likes them.
//!
//! ```text
//!   amount > 5 && amount < 9 && exists(amount)   ─►   amount in 5..9
//! ```
//!
//! A range from both sides is an access predicate that brings up what it holds for; of two halves one would bring up half of
//! all, to be verified by the other.
//!
//! Invariant: the clauses hold for the same values as before, and none of them is about another path than before. What is said
//! of *any* leaf is never put together: each clause may hold for another one.
//!
//! Cost: a sort of the clauses; those of one path are compared with each other.

use super::normal_form::{Atom, Clause, Mode, Range};
use crate::value::Kinds;

/// Make one clause of those that can be one, and drop what is said twice; false where no value can do.
pub fn tidy(clauses: &mut Vec<Clause>) -> bool {
    if clauses.len() > 1 {
        let mut order: Vec<usize> = (0..clauses.len()).collect();
        order.sort_by(|one, other| place(&clauses[*one]).cmp(&place(&clauses[*other])));
        let mut kept: Vec<Option<Clause>> = clauses.drain(..).map(Some).collect();
        let mut same: Vec<usize> = Vec::new();
        for at in order {
            let Some(one) = kept[at].take() else { continue };
            if same.last().and_then(|last| kept[*last].as_ref()).is_none_or(|last| place(last) != place(&one)) {
                same.clear();
            }
            if same.iter().any(|at| kept[*at].as_mut().is_some_and(|kept| absorbs(kept, &one))) {
                continue;
            }
            same.retain(|at| {
                let is_implied = kept[*at].as_ref().is_some_and(|kept| implies(&one, kept));
                if is_implied {
                    kept[*at] = None;
                }
                !is_implied
            });
            kept[at] = Some(one);
            same.push(at);
        }
        clauses.extend(kept.into_iter().flatten());
    }
    !clauses.iter().any(|clause| clause.atoms.iter().all(|atom| atom.kinds().is_empty()))
}

fn place(clause: &Clause) -> (&super::normal_form::Path, Mode) {
    (&clause.path, clause.mode)
}

/// Whether *one* says nothing that *kept* does not say, or could be put into it.
fn absorbs(kept: &mut Clause, one: &Clause) -> bool {
    if kept == one || implies(kept, one) {
        return true;
    }
    if kept.mode == Mode::AnyLeaf {
        // Each may be said of another element.
        return false;
    }
    match (&mut kept.atoms[..], &one.atoms[..]) {
        ([Atom::Kinds(kinds)], [Atom::Kinds(other)]) => {
            *kinds = kinds.and(*other);
            true
        }
        ([Atom::Numbers(range)], [Atom::Numbers(other)]) => narrow(range, other),
        ([Atom::Strings(range)], [Atom::Strings(other)]) => narrow(range, other),
        ([Atom::Times(of, range)], [Atom::Times(others, other)]) if of == others => narrow(range, other),
        _ => false,
    }
}

/// Let *range* be what both hold; false where that is nothing. Then they stay two: nobody knows of an unknown value that it
/// lies in neither, and a range without values has no keys by which it would be looked for.
fn narrow<T: Ord + Clone>(range: &mut Range<T>, other: &Range<T>) -> bool {
    let (mut low, mut high) = (range.low.as_ref(), range.high.as_ref());
    // Of equal bounds the one that leaves the bound out is the narrower.
    if let Some((bound, closed)) = &other.low
        && low.is_none_or(|(held, is_closed)| (bound, !closed) > (held, !is_closed))
    {
        low = other.low.as_ref();
    }
    if let Some((bound, closed)) = &other.high
        && high.is_none_or(|(held, is_closed)| (bound, closed) < (held, is_closed))
    {
        high = other.high.as_ref();
    }
    if let (Some((low, from)), Some((high, to))) = (low, high)
        && (low > high || low == high && !(*from && *to))
    {
        return false;
    }
    *range = Range { low: low.cloned(), high: high.cloned() };
    true
}

/// Whether a clause that asks for kinds follows from another on the same value.
fn implies(one: &Clause, kinds: &Clause) -> bool {
    let [Atom::Kinds(kinds)] = &kinds.atoms[..] else { return false };
    let held = one.atoms.iter().fold(Kinds::NONE, |held, atom| held.or(atom.kinds()));
    held.and(*kinds) == held
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

    fn tidied(mode: Mode, atoms: impl IntoIterator<Item = Atom>) -> (Vec<Atom>, bool) {
        let mut clauses: Vec<Clause> = atoms.into_iter().map(|atom| clause("a", mode, atom)).collect();
        clauses.insert(1, clause("b", mode, number(None, Some((1, true)))));
        let can_hold = tidy(&mut clauses);
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
        assert_eq!(tidied(Mode::Scalar, all), (vec![number(Some((5, false)), Some((9, true)))], true));
        assert_eq!(tidied(Mode::AnyLeaf, [above.clone(), below.clone()]), (vec![above, below], true));
    }

    #[test]
    fn ranges_without_a_common_value_stay_two() {
        for inclusive in [false, true] {
            let (above, below) = (number(Some((9, false)), None), number(None, Some((9, inclusive))));
            assert_eq!(tidied(Mode::Scalar, [above.clone(), below.clone()]), (vec![above, below], true));
        }
        let one = tidied(Mode::Scalar, [number(Some((9, true)), None), number(None, Some((9, true)))]);
        assert_eq!(one, (vec![number(Some((9, true)), Some((9, true)))], true));
    }

    #[test]
    fn what_nothing_can_be_is_said_to_be_so() {
        let (null, missing) = (Atom::kind(Kind::Null), Atom::kind(Kind::Missing));
        assert!(!tidied(Mode::Scalar, [null, missing]).1);
    }
}
