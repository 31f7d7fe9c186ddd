//! Which ranges contain a value? Numbers and strings, one-sided and two-sided, in one structure.
//!
//! ```text
//!   cuts, sorted        c0     c1     c2     c3     c4          value v: rank r = how many cuts are <= v
//!   ───────────────────┼──────┼───▲──┼──────┼──────┼───
//!   x >= c1                   ├───┼──────────────────►         from = 1  matches while from <  r
//!   x <  c3            ◄──────────┼─────────┤                  to   = 3  matches while to   >= r
//!   c1 <= x < c2              ├───┼──┤                         both
//! ```
//!
//! A bound becomes a *cut*: a place between two values. `> 5` starts at the cut just after 5, `<= 5` ends there. So
//! every range is half-open, and after one binary search the rest is arithmetic on ranks (u32), for any type of value.
//!
//! One-sided ranges are sorted by their cut: the answer is a prefix or a suffix of the ids, passed on as one slice.
//! Two-sided ranges are sorted by `from` in width classes of a factor 16. Width is counted in cuts, so it follows the
//! data. If the widest range of a class has width w, only ranges with `from` in `r-w..r` can match, and most of those
//! do. A table with one entry for each eighth of w has their start.
//!
//! The search for the rank compares the first 64 bits of the cuts, in blocks of 16: each level above has every 16th of them.
//!
//! Invariant: `starts[r]` ids of `lower` have `from < r`; `ends[r]` ids of `upper` have `to < r`.
//!
//! Cost: a query is one block for each 16-fold of cuts, then 1 step a hit for one-sided and up to 16 steps a hit for two-sided
//! ranges, and two cache lines for each of at most 8 classes. 4 to 16 bytes a range, and 12 for each distinct bound.
//!
//! Rejected: binary searches for the rank and in each class (a cache miss a step: 3 times slower at 20,000 ranges); an
//! implicit interval tree with the greatest end of each subtree (13 times slower if 1 % of the ranges are wide), a
//! single class (12 times slower there), and a scan (10 to 70 times slower at 10,000 ranges).

use crate::map::{Array, Packed};
use crate::value::{Number, head_of};
use std::borrow::Borrow;

/// A place just before or just after a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberCut(u64, u32);

impl NumberCut {
    /// The cut below *number*: a range that includes it starts here, and one that excludes it ends here.
    pub fn before(number: Number) -> NumberCut {
        let (floor, rest) = number.order_key();
        NumberCut(floor, u32::from(rest) * 2)
    }

    /// The cut above *number*: a range that excludes it starts here, and one that includes it ends here.
    pub fn after(number: Number) -> NumberCut {
        let (floor, rest) = number.order_key();
        NumberCut(floor, u32::from(rest) * 2 + 1)
    }

    /// The number that it is a cut below or above.
    pub fn number(self) -> Number {
        Number::from_order_key((self.0, (self.1 / 2) as u16))
    }

    /// The cut as three words.
    pub fn to_words(self) -> [u32; 3] {
        [self.0 as u32, (self.0 >> 32) as u32, self.1]
    }

    /// Whether it is the cut above its number.
    pub fn is_above(self) -> bool {
        self.1 % 2 == 1
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
pub struct CutRange<K> {
    /// The cut that it starts at.
    pub from: Option<K>,
    /// The cut that it ends at.
    pub to: Option<K>,
    /// The id to report for a match.
    pub id: u32,
}

/// A key that ranges are cut at, in two parts that sort like it.
pub trait Cut: Ord + Clone {
    /// Orders cuts with the same head.
    type Rest: Ord;

    /// The first 64 bits of it, and the rest.
    fn split(self) -> (u64, Self::Rest);
}

impl Cut for NumberCut {
    type Rest = u32;

    fn split(self) -> (u64, u32) {
        (self.0, self.1)
    }
}

impl Cut for Box<str> {
    type Rest = Box<str>;

    fn split(self) -> (u64, Box<str>) {
        (head_as_number(&self), self)
    }
}

/// The first eight bytes of a text, as a number that sorts like them.
fn head_as_number(text: &str) -> u64 {
    u64::from_be_bytes(head_of(text.as_bytes()))
}

const CLASS_FACTOR_BITS: u32 = 4;
/// As many as there can be among 2^32 cuts.
const CLASSES: usize = 32 / CLASS_FACTOR_BITS as usize;
const BLOCK_BITS: u32 = 4;
const BLOCK: usize = 1 << BLOCK_BITS;

/// Ranges of about the same width. Its entries are `from`, `to` and id, sorted.
#[derive(Clone, Copy, Debug)]
struct WidthClass {
    widest: u32,
    shift: u32,
    /// The start of its table in `firsts`. The table has, for each `from >> shift`, the position of the first entry
    /// with this or a greater value.
    table: u32,
    /// The last position of the table, which has the end of the entries.
    last: u32,
}

/// An immutable set of ranges over keys of type *K*. See the head of this file.
///
/// It has few arrays, each read from front to back: if the cache contains no part of it, a query waits for about one
/// line of each.
#[derive(Debug)]
pub struct Ranges<K: Cut> {
    /// The heads of all cuts at the end, before them every 16th of those, and so on: the topmost level comes first.
    heads: Array<u64>,
    levels: u32,
    rests: Box<[K::Rest]>,
    lower: Array<u32>,
    starts: Array<u32>,
    upper: Array<u32>,
    ends: Array<u32>,
    all: Array<u32>,
    classes: Box<[WidthClass]>,
    firsts: Array<u32>,
    entries: Array<[u32; 3]>,
}

impl Ranges<NumberCut> {
    /// Append the ids of all ranges that contain *number* to *hits*, each id once.
    #[inline]
    pub fn query_number(&self, number: Number, hits: &mut Vec<u32>) {
        let (head, rest) = NumberCut::before(number).split();
        self.query(head, &rest, hits);
    }
}

impl Ranges<Box<str>> {
    /// Append the ids of all ranges that contain *text* to *hits*, each id once.
    #[inline]
    pub fn query_text(&self, text: &str, hits: &mut Vec<u32>) {
        self.query(head_as_number(text), text, hits);
    }
}

impl<K: Cut> Ranges<K> {
    /// Build from *ranges*. Empty ones (`from >= to`) are dropped; one open on both sides contains every value.
    pub fn new(ranges: impl IntoIterator<Item = CutRange<K>>) -> Ranges<K> {
        let ranges: Vec<CutRange<K>> = ranges.into_iter().collect();
        let (cuts, Ranked { mut lower, mut upper, all, both }) = rank_all(ranges.iter());
        lower.sort_unstable();
        upper.sort_unstable();
        let starts = offsets(&lower, cuts.len());
        let ends = offsets(&upper, cuts.len());
        let (heads, rests): (Vec<u64>, Vec<K::Rest>) = cuts.into_iter().map(K::split).unzip();
        let mut levels = vec![heads];
        while let Some(below) = levels.last().filter(|below| below.len() > BLOCK) {
            let above = below.iter().copied().step_by(BLOCK).collect();
            levels.push(above);
        }
        let (classes, firsts, entries) = classes(both);
        Ranges {
            levels: levels.len() as u32,
            heads: levels.into_iter().rev().flatten().collect(),
            rests: rests.into(),
            lower: lower.into_iter().map(|(_, id)| id).collect(),
            starts,
            upper: upper.into_iter().map(|(_, id)| id).collect(),
            ends,
            all: all.into(),
            classes: classes.into(),
            firsts: firsts.into(),
            entries: entries.into(),
        }
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.rests.is_empty()
    }

    /// Return how many heads of the level above *level* lie below *head*, and the start of *level*.
    #[inline]
    fn descend(&self, head: u64, level: u32) -> (usize, usize) {
        // At least `at` heads of the level lie below *head*: those before the last block whose first head is below it.
        let (mut at, mut start) = (0, 0);
        for level in (level..self.levels).rev() {
            // Each level has every 16th of the one below it.
            let length = ((self.rests.len() - 1) >> (BLOCK_BITS * level)) + 1;
            let heads = &self.heads[start..start + length];
            let block = usize::saturating_sub(at, 1) * BLOCK;
            let end = length.min(block + BLOCK);
            at = block + heads[block..end].iter().map(|other| usize::from(*other < head)).sum::<usize>();
            start += length;
        }
        (at, start)
    }

    /// How many cuts are at most the one of *head* and *rest*.
    #[inline]
    fn rank<Q>(&self, head: u64, rest: &Q) -> u32
    where
        K::Rest: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (at, start) = self.descend(head, 0);
        let heads = &self.heads[start - self.rests.len()..];
        let same = if heads.get(at) == Some(&head) { heads[at..].partition_point(|other| *other == head) } else { 0 };
        (at + self.rests[at..at + same].partition_point(|other| other.borrow() <= rest)) as u32
    }

    #[inline]
    fn query<Q>(&self, head: u64, rest: &Q, hits: &mut Vec<u32>)
    where
        K::Rest: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        hits.extend_from_slice(&self.all);
        if self.rests.is_empty() {
            return;
        }
        let rank = self.rank(head, rest);
        if !self.lower.is_empty() {
            hits.extend_from_slice(&self.lower[..self.starts[rank as usize] as usize]);
        }
        if !self.upper.is_empty() {
            hits.extend_from_slice(&self.upper[self.ends[rank as usize] as usize..]);
        }
        if rank == 0 {
            return;
        }
        // First look up the span of each class, then scan all spans, so that the cache misses of the tables overlap.
        let mut spans = [(0, 0); CLASSES];
        for (class, span) in self.classes.iter().zip(&mut spans) {
            let table = &self.firsts[class.table as usize..][..class.last as usize + 1];
            let place = |rank: u32| (rank >> class.shift).min(class.last) as usize;
            *span = (
                table[place(rank.saturating_sub(class.widest))],
                table[(((rank - 1) >> class.shift) + 1).min(class.last) as usize],
            );
        }
        let spans = &spans[..self.classes.len()];
        // About every other entry is a hit, which a processor cannot predict: so all are written, and the next hit
        // overwrites an entry that is not one.
        let mut length = hits.len();
        hits.resize(length + spans.iter().map(|(start, end)| (end - start) as usize).sum::<usize>(), 0);
        for (start, end) in spans {
            for [from, to, id] in &self.entries[*start as usize..*end as usize] {
                hits[length] = *id;
                length += usize::from(*from < rank) & usize::from(*to >= rank);
            }
        }
        hits.truncate(length);
    }

    /// Its arrays, without the rests of cuts, which may be texts.
    pub(crate) fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        visit(&mut self.heads);
        for words in [&mut self.lower, &mut self.starts, &mut self.upper, &mut self.ends, &mut self.all, &mut self.firsts] {
            visit(words);
        }
        visit(&mut self.entries);
    }

    /// Heap bytes used, without the texts of cuts.
    pub fn bytes(&self) -> usize {
        let slices = [&self.lower, &self.starts, &self.upper, &self.ends, &self.all, &self.firsts];
        slices.iter().map(|words| words.bytes()).sum::<usize>()
            + self.heads.bytes()
            + size_of_val(&*self.rests)
            + size_of_val(&*self.classes)
            + self.entries.bytes()
    }
}

/// Ranges by kind, without empty ones. Their ends are ranks among all cuts.
#[derive(Default)]
struct Ranked {
    lower: Vec<(u32, u32)>,
    upper: Vec<(u32, u32)>,
    all: Vec<u32>,
    both: Vec<[u32; 3]>,
}

/// The distinct cuts of *ranges*, sorted, and the ranges by kind.
fn rank_all<'r, K: Cut + 'r>(ranges: impl Iterator<Item = &'r CutRange<K>> + Clone) -> (Vec<K>, Ranked) {
    let mut cuts: Vec<K> = ranges.clone().flat_map(|range| range.from.iter().chain(&range.to)).cloned().collect();
    cuts.sort_unstable();
    cuts.dedup();
    let rank = |cut: &K| cuts.partition_point(|other| other < cut) as u32;
    let mut ranked = Ranked::default();
    for range in ranges {
        match (&range.from, &range.to) {
            (Some(from), None) => ranked.lower.push((rank(from), range.id)),
            (None, Some(to)) => ranked.upper.push((rank(to), range.id)),
            (None, None) => ranked.all.push(range.id),
            (Some(from), Some(to)) if from < to => ranked.both.push([rank(from), rank(to), range.id]),
            _ => {}
        }
    }
    (cuts, ranked)
}

/// The ids of *ranges* in the order in which a query visits them, so that data about them can be laid out in the same
/// order.
pub fn query_order<'r, K: Cut + 'r>(ranges: impl Iterator<Item = &'r CutRange<K>> + Clone) -> Vec<u32> {
    let (_, Ranked { mut lower, mut upper, mut all, mut both }) = rank_all(ranges);
    lower.sort_unstable();
    upper.sort_unstable();
    both.sort_unstable_by_key(|entry| (width_class(entry), *entry));
    all.extend(lower.into_iter().chain(upper).map(|(_, id)| id));
    all.extend(both.into_iter().map(|[_, _, id]| id));
    all
}

/// Which class of widths a two-sided range belongs to.
fn width_class([from, to, _]: &[u32; 3]) -> usize {
    ((to - from).ilog2() / CLASS_FACTOR_BITS) as usize
}

/// For each rank, how many entries of *sorted* lie below it. Empty if *sorted* is.
fn offsets(sorted: &[(u32, u32)], cuts: usize) -> Array<u32> {
    if sorted.is_empty() {
        return Array::default();
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

/// The classes, their tables and their entries.
fn classes(mut both: Vec<[u32; 3]>) -> (Vec<WidthClass>, Vec<u32>, Vec<[u32; 3]>) {
    both.sort_unstable_by_key(|entry| (width_class(entry), *entry));
    let (mut classes, mut firsts, mut start) = (Vec::new(), Vec::new(), 0);
    for entries in both.chunk_by(|left, right| width_class(left) == width_class(right)) {
        let widest = entries.iter().map(|[from, to, _]| to - from).max().unwrap_or(0);
        let shift = widest.ilog2().saturating_sub(3);
        let end = entries.last().map_or(0, |[from, ..]| from >> shift);
        classes.push(WidthClass { widest, shift, table: firsts.len() as u32, last: end + 1 });
        firsts.extend((0..=end + 1).map(|at| start + entries.partition_point(|[from, ..]| from >> shift < at) as u32));
        start += entries.len() as u32;
    }
    (classes, firsts, both)
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
            let ranges: Vec<CutRange<NumberCut>> = (0..count)
                .map(|id| {
                    let end = |dice: &mut Dice| {
                        dice.chance(70).then(|| {
                            let number = Number::from_i64(dice.below(span) as i64);
                            if dice.chance(50) { NumberCut::before(number) } else { NumberCut::after(number) }
                        })
                    };
                    CutRange { from: end(&mut dice), to: end(&mut dice), id }
                })
                .collect();
            let built = Ranges::new(ranges.clone());
            for _ in 0..50 {
                let value = dice.below(span + 2) as f64 - if dice.chance(30) { 0.5 } else { 0.0 };
                let point = NumberCut::before(Number::from_f64(value).unwrap());
                let mut found = Vec::new();
                built.query_number(Number::from_f64(value).unwrap(), &mut found);
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
            CutRange { from: Some(text_before("b")), to: None, id: 0 },
            CutRange { from: Some(text_after("b")), to: None, id: 1 },
            CutRange { from: None, to: Some(text_before("b")), id: 2 },
            CutRange { from: None, to: Some(text_after("b")), id: 3 },
            CutRange { from: Some(text_before("b")), to: Some(text_after("b")), id: 4 },
        ]);
        for (text, expected) in [
            ("", vec![2, 3]),
            ("a", vec![2, 3]),
            ("b", vec![0, 3, 4]),
            ("b\0", vec![0, 1]),
            ("ba", vec![0, 1]),
            ("é", vec![0, 1]),
        ] {
            let mut found = Vec::new();
            ranges.query_text(text, &mut found);
            found.sort_unstable();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn integers_past_two_to_the_53_are_told_apart() {
        let bound = Number::from_i64(9_007_199_254_740_993);
        let ranges = Ranges::new([CutRange { from: Some(NumberCut::before(bound)), to: None, id: 7 }]);
        let hits = |number: i64| {
            let mut found = Vec::new();
            ranges.query_number(Number::from_i64(number), &mut found);
            found
        };
        assert!(hits(9_007_199_254_740_992).is_empty());
        assert_eq!(hits(9_007_199_254_740_993), [7]);
    }
}
