//! Which wildcard patterns match a string? The longest literal of each first, then a greedy check.
//!
//! ```text
//!   *ABC*DEFG*      pieces  "" ABC DEFG ""     literal DEFG ─► Aho-Corasick over all literals
//!   text  xxABCyyDEFGz ── DEFG occurs ─► check: ABC at its first place, DEFG at its first place after that, done
//! ```
//!
//! The leftmost place for each piece is always the best one, so the check never goes back.
//!
//! Invariant: a pattern can only match a text that contains its longest piece.
//!
//! Cost: one pass over the text, then for each pattern whose literal occurs one search of its pieces; a pattern without any
//! literal (only `*`) matches every string. Memory linear in the patterns.
//!
//! Rejected: one DFA of all patterns (10,000 patterns of 5 stars have more states than memory, and a lazy one takes
//! milliseconds for each text it has not seen); an NFA with all states live (linear in the patterns for every byte).

use crate::automaton::literals::{Literals, SeenLiterals};
use crate::watch::spend;
use std::collections::HashMap;

/// Whether *text* is made of *pieces* in order with anything between: the first at its start, the last at its end.
pub fn wildcard_matches<'p>(mut pieces: impl DoubleEndedIterator<Item = &'p str>, text: &str) -> bool {
    let Some(first) = pieces.next() else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return first == text;
    };
    let Some(mut rest) = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    pieces.all(|piece| match memchr::memmem::find(rest.as_bytes(), piece.as_bytes()) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}

/// The pieces of a pattern, the common end of all its texts, and the id to report for a match.
#[derive(Clone, Debug)]
struct PatternPieces {
    end: u32,
    mask: u32,
    id: u32,
    pieces: Box<[Box<str>]>,
}

/// The last four bytes of a text, the last one highest; zeros if it has fewer.
fn end_of(text: &str) -> u32 {
    text.as_bytes()[text.len().saturating_sub(4)..].iter().fold(0, |end, byte| end >> 8 | u32::from(*byte) << 24)
}

impl PatternPieces {
    fn new(pieces: &[Box<str>], id: u32) -> PatternPieces {
        let last = pieces.last().map_or("", |last| last);
        let mask = u32::MAX.checked_shl(32 - 8 * last.len().min(4) as u32).unwrap_or(0);
        PatternPieces { end: end_of(last), mask, id, pieces: pieces.into() }
    }
}

/// An immutable set of wildcard patterns. See the head of this file.
#[derive(Debug)]
pub struct Wildcards {
    literals: Literals,
    of_literal: Box<[u32]>, // the patterns of literal n are at of_literal[n]..of_literal[n + 1]
    patterns: Box<[PatternPieces]>,
    without: Box<[u32]>, // ids of patterns that match every string
}

impl Wildcards {
    /// Build from pairs of a pattern's pieces and the id to report for it.
    pub fn new<'a>(patterns: impl IntoIterator<Item = (&'a [Box<str>], u32)>) -> Wildcards {
        let mut by_literal: HashMap<&str, Vec<PatternPieces>> = HashMap::new();
        let mut without = Vec::new();
        for (pieces, id) in patterns {
            match pieces.iter().max_by_key(|piece| piece.len()) {
                Some(longest) if !longest.is_empty() => {
                    by_literal.entry(longest).or_default().push(PatternPieces::new(pieces, id))
                }
                _ => without.push(id),
            }
        }
        let mut groups: Vec<_> = by_literal.into_iter().collect();
        groups.sort_unstable_by_key(|(literal, _)| *literal);
        let literals: Vec<&[u8]> = groups.iter().map(|(literal, _)| literal.as_bytes()).collect();
        let mut of_literal = vec![0];
        let mut sorted = Vec::new();
        for (_, group) in &groups {
            sorted.extend(group.iter().cloned());
            of_literal.push(sorted.len() as u32);
        }
        Wildcards {
            literals: Literals::new(&literals),
            of_literal: of_literal.into(),
            patterns: sorted.into(),
            without: without.into(),
        }
    }

    /// Hand the ids of all patterns that match *text* to *hit*, each once.
    pub fn query(&self, text: &str, seen: &mut SeenLiterals, mut hit: impl FnMut(&[u32])) {
        if !self.without.is_empty() {
            hit(&self.without);
        }
        let end_of_text = end_of(text);
        self.literals.query(text.as_bytes(), seen, |literal| {
            let (start, end) = (self.of_literal[literal as usize], self.of_literal[literal as usize + 1]);
            let patterns = &self.patterns[start as usize..end as usize];
            spend(patterns.len() / 16);
            // The last bytes rule out most patterns without reading their pieces, each of which lies elsewhere in
            // memory.
            for pattern in patterns.iter().filter(|pattern| end_of_text & pattern.mask == pattern.end) {
                spend(text.len() / 64 + 1);
                if wildcard_matches(pattern.pieces.iter().map(|piece| &**piece), text) {
                    hit(&[pattern.id]);
                }
            }
        });
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        let pieces: usize = self.patterns.iter().flat_map(|pattern| &pattern.pieces).map(|piece| piece.len() + 16).sum();
        self.literals.bytes() + self.of_literal.len() * 4 + size_of_val(&*self.patterns) + pieces + self.without.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    /// The textbook definition, exponential and obvious.
    fn naive(pieces: &[Box<str>], text: &str) -> bool {
        match pieces {
            [] => text.is_empty(),
            [only] => **only == *text,
            [first, rest @ ..] => text.strip_prefix(&**first).is_some_and(|after| {
                (0..=after.len()).filter(|at| after.is_char_boundary(*at)).any(|at| naive(rest, &after[at..]))
            }),
        }
    }

    #[test]
    fn wildcards_answer_as_their_definition_does() {
        let mut dice = Dice::new(6);
        let mut seen = SeenLiterals::default();
        for round in 0..300 {
            let patterns: Vec<Vec<Box<str>>> = (0..[1, 4, 60][round % 3])
                .map(|_| (0..2 + dice.below(4)).map(|_| dice.text("abé", 3).into()).collect())
                .collect();
            let built = Wildcards::new(patterns.iter().zip(0..).map(|(pieces, id)| (&pieces[..], id)));
            for _ in 0..30 {
                let text = dice.text("abé", 10);
                let mut found = Vec::new();
                built.query(&text, &mut seen, |ids| found.extend_from_slice(ids));
                found.sort_unstable();
                let expected: Vec<u32> = (0..patterns.len() as u32).filter(|at| naive(&patterns[*at as usize], &text)).collect();
                assert_eq!(found, expected, "{patterns:?} {text}");
            }
        }
    }
}
