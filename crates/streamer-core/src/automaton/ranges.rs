//! Which ranges hold a value? Numbers and strings, one-sided and two-sided, in one structure.
//!
//! ```text
//!   cuts, sorted        c0     c1     c2     c3     c4          value v: rank r = how many cuts are <= v
//!   ───────────────────┼──────┼───▲──┼──────┼──────┼───
//!   x >= c1                   ├───┼──────────────────►         from = 1  matches while from <  r
//!   x <  c3            ◄──────────┼─────────┤                  to   = 3  matches while to   >= r
//!   c1 <= x < c2              ├───┼──┤                         both
//! ```
//!
//! A bound becomes a *cut*: a place between two values. `> 5` starts at the cut just after 5, `<= 5` ends there. So every
//! range is half-open, and after one binary search all else is arithmetic on ranks (u32), whatever the values are.
//!
//! One-sided ranges are sorted by their cut: the answer is a prefix or a suffix of the ids, handed out as one slice.
//! Two-sided ranges are sorted by `from` in width classes of a factor 16 (width counted in cuts, so it follows the data):
//! in a class whose widest range has width w, only those with `from` in `r-w..r` can match, and most of those do.
//!
//! Invariant: `starts[r]` ids of `lower` have `from < r`; `ends[r]` ids of `upper` have `to < r`.
//!
//! Cost: a query is log2(cuts) comparisons, then 1 step a hit for one-sided and up to 16 steps a hit for two-sided ranges,
//! plus a binary search for each of at most 8 classes. 8 to 16 bytes a range and one cut for each distinct bound.
//!
//! Rejected: an implicit interval tree with the greatest end of each subtree (13 times slower where 1 % of the ranges are
//! wide), a single class (12 times slower there), and a scan (10 to 70 times slower at 10,000 ranges).

use crate::value::Number;
use std::borrow::Borrow;

/// A place just before or just after a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberCut(u64, u32);

impl NumberCut {
    /// The cut below *number*: where a range that includes it starts, and one that excludes it ends.
    pub fn before(number: Number) -> NumberCut {
        let (floor, rest) = number.order_key();
        NumberCut(floor, u32::from(rest) * 2)
    }

    /// The cut above *number*: where a range that excludes it starts, and one that includes it ends.
    pub fn after(number: Number) -> NumberCut {
        let (floor, rest) = number.order_key();
        NumberCut(floor, u32::from(rest) * 2 + 1)
    }

    /// The cut as three words.
    pub fn to_words(self) -> [u32; 3] {
        [self.0 as u32, (self.0 >> 32) as u32, self.1]
    }

    /// The cut that [`NumberCut::to_words`] wrote.
    pub fn from_words(words: [u32; 3]) -> NumberCut {
        NumberCut(u64::from(words[0]) | u64::from(words[1]) << 32, words[2])
    }
}

/// The cut below a string: the string itself.
pub fn text_before(text: &str) -> Box<str> {
    text.into()
}

/// The cut above a string: the least string that is greater.
pub fn text_after(text: &str) -> Box<str> {
    let mut next = String::with_capacity(text.len() + 1);
    next.push_str(text);
    next.push('\0');
    next.into_boxed_str()
}

/// A range `from <= x < to`; an end left out is open.
#[derive(Clone, Debug)]
pub struct Range<K> {
    /// The cut that it starts at.
    pub from: Option<K>,
    /// The cut that it ends at.
    pub to: Option<K>,
    /// What a match is reported as.
    pub id: u32,
}

const CLASS_FACTOR_BITS: u32 = 4;

#[derive(Debug)]
struct WidthClass {
    widest: u32,
    from: Box<[u32]>,
    to: Box<[u32]>,
    ids: Box<[u32]>,
}

/// An immutable set of ranges over keys of type *K*. See the head of this file.
#[derive(Debug)]
pub struct Ranges<K> {
    cuts: Box<[K]>,
    lower: Box<[u32]>,
    starts: Box<[u32]>,
    upper: Box<[u32]>,
    ends: Box<[u32]>,
    all: Box<[u32]>,
    classes: Box<[WidthClass]>,
}

impl<K: Ord> Ranges<K> {
    /// Build from *ranges*. Empty ones (`from >= to`) are dropped; one open on both sides holds every value.
    pub fn new(ranges: impl IntoIterator<Item = Range<K>>) -> Ranges<K>
    where
        K: Clone,
    {
        let ranges: Vec<Range<K>> = ranges.into_iter().collect();
        let mut cuts: Vec<K> = ranges.iter().flat_map(|range| range.from.iter().chain(&range.to)).cloned().collect();
        cuts.sort_unstable();
        cuts.dedup();
        let rank = |cut: &K| cuts.partition_point(|other| other < cut) as u32;
        let (mut lower, mut upper, mut all, mut both) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for range in &ranges {
            match (&range.from, &range.to) {
                (Some(from), None) => lower.push((rank(from), range.id)),
                (None, Some(to)) => upper.push((rank(to), range.id)),
                (None, None) => all.push(range.id),
                (Some(from), Some(to)) if from < to => both.push((rank(from), rank(to), range.id)),
                _ => {}
            }
        }
        lower.sort_unstable();
        upper.sort_unstable();
        let starts = offsets(&lower, cuts.len());
        let ends = offsets(&upper, cuts.len());
        Ranges {
            lower: lower.into_iter().map(|(_, id)| id).collect(),
            starts,
            upper: upper.into_iter().map(|(_, id)| id).collect(),
            ends,
            all: all.into(),
            classes: classes(both),
            cuts: cuts.into(),
        }
    }

    /// Hand the ids of all ranges that hold *value* to *hit*, a slice at a time, each id once.
    #[inline]
    pub fn query<Q>(&self, value: &Q, mut hit: impl FnMut(&[u32]))
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let rank = self.cuts.partition_point(|cut| cut.borrow() <= value) as u32;
        if !self.all.is_empty() {
            hit(&self.all);
        }
        if !self.lower.is_empty() {
            let slice = &self.lower[..self.starts[rank as usize] as usize];
            if !slice.is_empty() {
                hit(slice);
            }
        }
        if !self.upper.is_empty() {
            let slice = &self.upper[self.ends[rank as usize] as usize..];
            if !slice.is_empty() {
                hit(slice);
            }
        }
        for class in &*self.classes {
            let end = class.from.partition_point(|from| *from < rank);
            let least = rank.saturating_sub(class.widest);
            let start = class.from[..end].partition_point(|from| *from < least);
            for at in start..end {
                if class.to[at] >= rank {
                    hit(&class.ids[at..=at]);
                }
            }
        }
    }

    /// Heap bytes held, cuts' own heap left out.
    pub fn bytes(&self) -> usize {
        let classes: usize = self.classes.iter().map(|class| class.ids.len() * 12 + size_of::<WidthClass>()).sum();
        let words = self.lower.len() + self.starts.len() + self.upper.len() + self.ends.len() + self.all.len();
        self.cuts.len() * size_of::<K>() + words * 4 + classes
    }
}

/// For each rank, how many entries of *sorted* lie below it; empty where there is no entry.
fn offsets(sorted: &[(u32, u32)], cuts: usize) -> Box<[u32]> {
    if sorted.is_empty() {
        return Box::default();
    }
    let mut at = 0;
    (0..=cuts as u32)
        .map(|rank| {
            while at < sorted.len() && sorted[at].0 < rank {
                at += 1;
            }
            at as u32
        })
        .collect()
}

fn classes(both: Vec<(u32, u32, u32)>) -> Box<[WidthClass]> {
    let mut by_class: Vec<Vec<(u32, u32, u32)>> = Vec::new();
    for entry in both {
        let class = ((entry.1 - entry.0).ilog2() / CLASS_FACTOR_BITS) as usize;
        if by_class.len() <= class {
            by_class.resize(class + 1, Vec::new());
        }
        by_class[class].push(entry);
    }
    by_class
        .into_iter()
        .filter(|entries| !entries.is_empty())
        .map(|mut entries| {
            entries.sort_unstable();
            WidthClass {
                widest: entries.iter().map(|(from, to, _)| to - from).max().unwrap_or(0),
                from: entries.iter().map(|entry| entry.0).collect(),
                to: entries.iter().map(|entry| entry.1).collect(),
                ids: entries.iter().map(|entry| entry.2).collect(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    #[test]
    fn ranges_of_numbers_answer_as_a_scan_does() {
        let mut dice = Dice::new(1);
        for round in 0..300 {
            let count = [0, 1, 5, 60, 400][round % 5];
            let span = [6, 40, 3000][round % 3];
            let ranges: Vec<Range<NumberCut>> = (0..count)
                .map(|id| {
                    let end = |dice: &mut Dice| {
                        dice.chance(70).then(|| {
                            let number = Number::from_i64(dice.below(span) as i64);
                            if dice.chance(50) { NumberCut::before(number) } else { NumberCut::after(number) }
                        })
                    };
                    Range { from: end(&mut dice), to: end(&mut dice), id }
                })
                .collect();
            let built = Ranges::new(ranges.clone());
            for _ in 0..50 {
                let value = dice.below(span + 2) as f64 - if dice.chance(30) { 0.5 } else { 0.0 };
                let point = NumberCut::before(Number::from_f64(value).unwrap());
                let mut found = Vec::new();
                built.query(&point, |ids| found.extend_from_slice(ids));
                found.sort_unstable();
                let expected: Vec<u32> = ranges
                    .iter()
                    .filter(|r| r.from.is_none_or(|from| from <= point) && r.to.is_none_or(|to| point < to))
                    .map(|range| range.id)
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn ranges_of_strings_include_and_exclude_their_bounds() {
        let ranges = Ranges::new([
            Range { from: Some(text_before("b")), to: None, id: 0 },
            Range { from: Some(text_after("b")), to: None, id: 1 },
            Range { from: None, to: Some(text_before("b")), id: 2 },
            Range { from: None, to: Some(text_after("b")), id: 3 },
            Range { from: Some(text_before("b")), to: Some(text_after("b")), id: 4 },
        ]);
        for (text, expected) in
            [("", vec![2, 3]), ("a", vec![2, 3]), ("b", vec![0, 3, 4]), ("b\0", vec![0, 1]), ("ba", vec![0, 1]), ("é", vec![0, 1])]
        {
            let mut found = Vec::new();
            ranges.query(text, |ids| found.extend_from_slice(ids));
            found.sort_unstable();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn integers_past_two_to_the_53_are_told_apart() {
        let bound = Number::from_i64(9_007_199_254_740_993);
        let ranges = Ranges::new([Range { from: Some(NumberCut::before(bound)), to: None, id: 7 }]);
        let hits = |number: i64| {
            let mut found = Vec::new();
            ranges.query(&NumberCut::before(Number::from_i64(number)), |ids| found.extend_from_slice(ids));
            found
        };
        assert!(hits(9_007_199_254_740_992).is_empty());
        assert_eq!(hits(9_007_199_254_740_993), [7]);
    }
}
