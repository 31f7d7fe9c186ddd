//! Which sets does a value *not* belong to? All sets except the few that name it.
//!
//! ```text
//!   sets     0 {DE, FR}   1 {DE}   2 {GB}   3 {US, DE}
//!   names    DE ─► 0 1 3      FR ─► 0      GB ─► 2      US ─► 3
//!   "DE" ─► all sets without 0 1 3 ─► 2          "XX" ─► 0 1 2 3, one slice
//! ```
//!
//! Invariant: the positions under a name are sorted, so the answer is the gaps between them, each passed on as a slice.
//!
//! Cost: one lookup and one step for each set that names the value; never a step for a set that does not. 4 bytes a set and
//! 4 for each value in it.
//!
//! Rejected: a check of each set (10 times slower at 1,000 sets); a bit for each set and value (quadratic memory).

use crate::automaton::table::Table;
use crate::value::{Scalar, ScalarRef, Seed};

/// An immutable set of sets of scalars. See the head of this file.
#[derive(Debug)]
pub struct AnythingBut {
    seed: Seed,
    ids: Box<[u32]>, // by position of the set
    table: Table,
    names: Box<[(Scalar, Box<[u32]>)]>,
}

impl AnythingBut {
    /// Build from pairs of a set's members and the id to report for it.
    pub fn new<'a>(sets: impl IntoIterator<Item = (Vec<&'a Scalar>, u32)>, seed: Seed) -> AnythingBut {
        let (mut ids, mut members) = (Vec::new(), Vec::new());
        for (set, id) in sets {
            members.extend(set.into_iter().map(|member| (member, ids.len() as u32)));
            ids.push(id);
        }
        members.sort_unstable();
        members.dedup();
        let names: Box<[(Scalar, Box<[u32]>)]> = members
            .chunk_by(|left, right| left.0 == right.0)
            .map(|group| (group[0].0.clone(), group.iter().map(|(_, position)| *position).collect()))
            .collect();
        let entries: Vec<(u64, u32)> = names.iter().zip(0..).map(|((name, _), at)| (name.as_ref().hash(&seed), at)).collect();
        AnythingBut { table: Table::new(&entries), ids: ids.into(), names, seed }
    }

    /// Pass the ids of all sets that do not contain *value* to *hit*, each once.
    pub fn query(&self, value: ScalarRef<'_>, mut hit: impl FnMut(&[u32])) {
        let named = self.table.find(value.hash(&self.seed), |at| self.names[at as usize].0 == value);
        let mut start = 0;
        for &position in named.map_or(&[][..], |at| &self.names[at as usize].1) {
            if start < position as usize {
                hit(&self.ids[start..position as usize]);
            }
            start = position as usize + 1;
        }
        if start < self.ids.len() {
            hit(&self.ids[start..]);
        }
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        let names = self.names.iter().map(|(name, positions)| {
            let text = if let Scalar::String(text) = name { text.len() } else { 0 };
            size_of_val(&**positions) + text
        });
        size_of_val(&*self.ids) + self.table.bytes() + size_of_val(&*self.names) + names.sum::<usize>()
    }

    /// Pass all ids to *hit*: the answer for a value that no set can name, such as a number beyond float64.
    pub fn all(&self, mut hit: impl FnMut(&[u32])) {
        hit(&self.ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;
    use crate::value::Number;

    #[test]
    fn a_value_is_in_all_sets_but_those_that_name_it() {
        let mut dice = Dice::new(12);
        for round in 0..200 {
            let scalar = |dice: &mut Dice| match dice.below(3) {
                0 => Scalar::Number(Number::from_i64(dice.below(6) as i64)),
                1 => Scalar::Bool(dice.chance(50)),
                _ => Scalar::String(dice.text("ab", 2).into()),
            };
            let sets: Vec<Vec<Scalar>> =
                (0..[0, 1, 30][round % 3]).map(|_| (0..dice.below(5)).map(|_| scalar(&mut dice)).collect()).collect();
            let built = AnythingBut::new(sets.iter().zip(0..).map(|(set, id)| (set.iter().collect(), id)), Seed::new(13));
            for _ in 0..20 {
                let value = scalar(&mut dice);
                let mut found = Vec::new();
                built.query(value.as_ref(), |ids| found.extend_from_slice(ids));
                let expected: Vec<u32> = (0..sets.len() as u32).filter(|at| !sets[*at as usize].contains(&value)).collect();
                assert_eq!(found, expected);
            }
        }
    }
}
