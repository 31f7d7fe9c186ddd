//! The checks of candidates, as words in the order in which candidates come up.
//!
//! ```text
//!   status in [paid, draft] and amount < 5, found by another clause, for subscription 17:
//!   [17] [11 words] [VALUES | path 3] [2] [number 4] [number 9]   [BELOW | path 1] [cut: 3 words]
//! ```
//!
//! Values are compared as the numbers that the index's dictionary assigned to them, once an event; so a check reads
//! only this record, and the records of neighbours lie next to one another.
//!
//! Invariant: a record has every check of its conjunction that was not made before it is reached.
//!
//! Cost: 8 bytes a candidate and 8 to 32 a clause, and the values that it excludes. A check is a few instructions; a
//! clause that has no short form is read from the store.
//!
//! Rejected: reading the clauses in the store, in which they have the order of adding: about eight cache misses a
//! candidate, and 4 times slower at 1,000,000 subscriptions.

use crate::automaton::ranges::NumberCut;
use crate::engine::verify::encoded::{AtomView, ClauseView};
use crate::value::{Kind, Kinds, ScalarRef};

/// The result of one look at a record.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct CheckRecord<'c> {
    head: u32,
    /// The checks, one after the other.
    pub checks: &'c [u32],
}

/// Bits of a record's head.
const APART: u32 = 1 << 31;
const CONJUNCTION: u32 = 1 << 30;
const NUMBER: u32 = CONJUNCTION - 1;

/// The subscriptions of a candidate that passes.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Wanted {
    /// This subscription.
    One(u32),
    /// All subscriptions of this conjunction.
    All(u32),
}

mod tag {
    pub const VALUES: u32 = 0;
    pub const OTHER: u32 = 1;
    pub const KINDS: u32 = 2;
    pub const ABOVE: u32 = 3;
    pub const BELOW: u32 = 4;
    pub const BETWEEN: u32 = 5;
    pub const CLAUSE: u32 = 6;
    pub const ALL: u32 = 7;
}

/// A number that no value has: for values that no equality names.
pub(in crate::engine) const UNNAMED: u32 = u32::MAX;

/// A check, read.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Check<'c> {
    /// A value at the path is one of these.
    Values(u32, &'c [u32]),
    /// A value at the path is of one of these kinds (as bits) and none of these.
    Other(u32, u8, &'c [u32]),
    /// A value at the path, or its absence, is of one of these kinds.
    Kinds(u32, u8),
    /// A number at the path lies between these.
    Numbers(u32, Option<NumberCut>, Option<NumberCut>),
    /// This clause of the store is true.
    Clause(u32),
    /// All clauses of this conjunction of the store are true.
    All(u32),
}

impl<'c> CheckRecord<'c> {
    /// The record at *at*, and the position of the next one.
    #[inline]
    pub fn read(words: &'c [u32], at: u32) -> (CheckRecord<'c>, u32) {
        let end = at + words[at as usize + 1];
        (CheckRecord { head: words[at as usize], checks: &words[at as usize + 2..end as usize] }, end)
    }

    /// Whether it may come up more than once.
    #[inline]
    pub fn is_apart(self) -> bool {
        self.head & APART != 0
    }

    /// The subscriptions that want it.
    #[inline]
    pub fn wanted(self) -> Wanted {
        if self.head & CONJUNCTION != 0 { Wanted::All(self.head & NUMBER) } else { Wanted::One(self.head & NUMBER) }
    }
}

/// Read the first of *checks*; the others are left in it.
#[inline]
pub(in crate::engine) fn next_check<'c>(checks: &mut &'c [u32]) -> Option<Check<'c>> {
    let (&head, rest) = checks.split_first()?;
    let path = head >> 8;
    let cut = |at: usize| NumberCut::from_words([rest[at], rest[at + 1], rest[at + 2]]);
    let (check, length) = match head & 0xff {
        tag::VALUES => (Check::Values(path, &rest[1..1 + rest[0] as usize]), 1 + rest[0] as usize),
        tag::OTHER => (Check::Other(path, rest[0] as u8, &rest[2..2 + rest[1] as usize]), 2 + rest[1] as usize),
        tag::KINDS => (Check::Kinds(path, rest[0] as u8), 1),
        tag::ABOVE => (Check::Numbers(path, Some(cut(0)), None), 3),
        tag::BELOW => (Check::Numbers(path, None, Some(cut(0))), 3),
        tag::BETWEEN => (Check::Numbers(path, Some(cut(0)), Some(cut(3))), 6),
        tag::ALL => (Check::All(rest[0]), 1),
        _ => (Check::Clause(rest[0]), 1),
    };
    *checks = &rest[length..];
    Some(check)
}

/// How many subscriptions, conjunctions, clauses and paths there are.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct StoreCounts {
    pub subscriptions: usize,
    pub conjunctions: usize,
    pub clauses: usize,
    pub paths: usize,
}

/// The start of each record of *words*, a bit each, and one for their end; None if they are not records for a store
/// with these counts.
pub(in crate::engine) fn sound_records(words: &[u32], counts: StoreCounts) -> Option<Vec<u64>> {
    let mut starts = vec![0_u64; words.len() / 64 + 1];
    let mut at = 0;
    while at < words.len() {
        starts[at / 64] |= 1 << (at % 64);
        let length = *words.get(at + 1)? as usize;
        let record = words.get(at..at.checked_add(length)?)?;
        let head = *record.first()?;
        let end = if head & CONJUNCTION != 0 { counts.conjunctions } else { counts.subscriptions };
        if (head & NUMBER) as usize >= end {
            return None;
        }
        let mut checks = record.get(2..)?;
        while let Some((head, rest)) = checks.split_first() {
            let length = match head & 0xff {
                tag::VALUES => 1 + *rest.first()? as usize,
                tag::OTHER => 2 + *rest.get(1)? as usize,
                tag::KINDS => 1,
                tag::ABOVE | tag::BELOW => 3,
                tag::BETWEEN => 6,
                tag::CLAUSE if (*rest.first()? as usize) < counts.clauses => 1,
                tag::ALL if (*rest.first()? as usize) < counts.conjunctions => 1,
                _ => return None,
            };
            if head & 0xff < tag::CLAUSE && (head >> 8) as usize >= counts.paths {
                return None;
            }
            checks = rest.get(length..)?;
        }
        at += length;
    }
    starts[at / 64] |= 1 << (at % 64);
    Some(starts)
}

/// Begin a record; [`end`] closes it.
pub(in crate::engine) fn begin(words: &mut Vec<u32>, wanted: Wanted, apart: bool) -> usize {
    let head = match wanted {
        Wanted::One(subscription) => subscription,
        Wanted::All(conjunction) => conjunction | CONJUNCTION,
    };
    words.extend([head | if apart { APART } else { 0 }, 0]);
    words.len() - 2
}

/// Close the record that begins at *start*.
pub(in crate::engine) fn end(words: &mut [u32], start: usize) {
    words[start + 1] = (words.len() - start) as u32;
}

/// Require all clauses of a conjunction, in place of the checks of the record that begins at *start*.
pub(in crate::engine) fn write_all(words: &mut Vec<u32>, start: usize, conjunction: u32) {
    words.truncate(start + 2);
    words.extend([tag::ALL, conjunction]);
}

/// Write the check of *clause*, number *number* of its store; *name* maps a value at its path to its number. A clause
/// of more than *most* values is read from the store.
pub(in crate::engine) fn write<'s>(
    words: &mut Vec<u32>,
    number: u32,
    clause: ClauseView<'s>,
    most: usize,
    mut name: impl FnMut(&'s [u32], ScalarRef<'s>) -> u32,
) {
    let mut atoms = clause.atoms;
    let is_equal = |view: &AtomView<'_>| matches!(view, AtomView::Equal(_));
    if clause.path < 1 << 24 && clause.count <= 64 {
        if clause.atoms.into_iter().all(|atom| is_equal(&atom.view)) {
            words.extend([tag::VALUES | clause.path << 8, clause.count]);
            words.extend(atoms.filter_map(|atom| {
                if let AtomView::Equal(scalar) = atom.view { Some(name(atom.encoded, scalar)) } else { None }
            }));
            return;
        }
        if let (1, Some(atom)) = (clause.count, atoms.next()) {
            let head = |tag: u32| tag | clause.path << 8;
            match atom.view {
                AtomView::Kinds(kinds) => return words.extend([head(tag::KINDS), u32::from(kinds.bits())]),
                AtomView::Numbers(from, to) if from.is_some() || to.is_some() => {
                    words.push(head(if to.is_none() {
                        tag::ABOVE
                    } else if from.is_none() {
                        tag::BELOW
                    } else {
                        tag::BETWEEN
                    }));
                    return words.extend(from.iter().chain(&to).flat_map(|cut| cut.to_words()));
                }
                AtomView::Other(kinds, none_of)
                    if atom.encoded.len() / 2 <= most && none_of.into_iter().all(|atom| is_equal(&atom.view)) =>
                {
                    words.extend([head(tag::OTHER), u32::from(kinds.bits()), 0]);
                    let start = words.len();
                    for atom in none_of {
                        if let AtomView::Equal(scalar) = atom.view {
                            words.push(name(atom.encoded, scalar));
                        }
                    }
                    words[start - 1] = (words.len() - start) as u32;
                    return;
                }
                _ => {}
            }
        }
    }
    words.extend([tag::CLAUSE, number]);
}

/// Whether a value of this kind and number passes [`Check::Other`].
#[inline]
pub(in crate::engine) fn is_other(kind: Kind, number: u32, kinds: u8, none_of: &[u32]) -> bool {
    Kinds::from_bits(kinds).has(kind) && !none_of.contains(&number)
}
