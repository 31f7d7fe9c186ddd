//! Which operands equal, begin, end or occur in a string if case does not count? The string is folded once, then looked up.
//!
//! ```text
//!   "STRASSE ſ"  ──fold──►  "strasse s"  ─┬─► equal: looked up whole
//!                                         ├─► prefixes
//!                                         ├─► suffixes
//!                                         └─► substrings
//! ```
//!
//! Folding is Unicode's simple case folding (CaseFolding.txt, statuses C and S): a character to a character, so a prefix of
//! the folded text is the folding of a prefix. `ß` stays `ß`, U+212A KELVIN SIGN is `k`, `ς` is `σ`, `ẞ` is `ß`.
//!
//! Invariant: operands are folded with the same function.
//!
//! Cost: one pass to fold (none for ASCII without capitals), then as [`crate::automaton::affixes`] and
//! [`crate::automaton::wildcards`].
//!
//! Rejected: a transition for each case of each letter, as automata with byte transitions need: two for ASCII, up to four
//! for others, and states multiply.

use crate::automaton::affixes::{Prefixes, Suffixes};
use crate::automaton::literals::SeenLiterals;
use crate::automaton::table::Table;
use crate::automaton::wildcards::Wildcards;
use crate::value::Seed;
use icu_casemap::CaseMapper;
use std::borrow::Cow;

/// The simple case folding of *text*.
pub fn fold(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(text.to_ascii_lowercase())
        } else {
            Cow::Borrowed(text)
        };
    }
    const MAPPER: icu_casemap::CaseMapperBorrowed<'static> = CaseMapper::new();
    Cow::Owned(text.chars().map(|letter| MAPPER.simple_fold(letter)).collect())
}

/// A folded text, and the ids of all operands that are it.
type FoldedGroup = (Box<str>, Box<[u32]>);

/// An immutable set of operands compared without case, all of them folded. See the head of this file.
#[derive(Debug)]
pub struct IgnoreCase {
    seed: Seed,
    equal: Table,
    texts: Box<[FoldedGroup]>,
    prefixes: Prefixes,
    suffixes: Suffixes,
    substrings: Option<Wildcards>,
}

impl IgnoreCase {
    /// Build from folded operands, each with the id to report for it.
    pub fn new<'a>(
        equal: impl IntoIterator<Item = (&'a str, u32)>,
        prefixes: impl IntoIterator<Item = (&'a str, u32)>,
        suffixes: impl IntoIterator<Item = (&'a str, u32)>,
        substrings: impl IntoIterator<Item = (&'a str, u32)>,
        seed: Seed,
    ) -> IgnoreCase {
        let mut equal: Vec<(&str, u32)> = equal.into_iter().collect();
        equal.sort_unstable();
        let texts: Box<[FoldedGroup]> = equal
            .chunk_by(|left, right| left.0 == right.0)
            .map(|group| (group[0].0.into(), group.iter().map(|(_, id)| *id).collect()))
            .collect();
        let hashes: Vec<(u64, u32)> =
            texts.iter().zip(0..).map(|((text, _), at)| (seed.hash_bytes(text.as_bytes()), at)).collect();
        let anywhere = |text: &str| [Box::default(), text.into(), Box::default()];
        let substrings: Vec<([Box<str>; 3], u32)> = substrings.into_iter().map(|(text, id)| (anywhere(text), id)).collect();
        let wildcards = || Wildcards::new(substrings.iter().map(|(pieces, id)| (&pieces[..], *id)));
        IgnoreCase {
            substrings: (!substrings.is_empty()).then(wildcards),
            equal: Table::new(&hashes),
            texts,
            prefixes: Prefixes::new(prefixes, seed.clone()),
            suffixes: Suffixes::new(suffixes, seed.clone()),
            seed,
        }
    }

    /// Hand the ids of all operands that fit *text* to *hit*, each once.
    pub fn query(&self, text: &str, seen: &mut SeenLiterals, mut hit: impl FnMut(&[u32])) {
        let folded = fold(text);
        if let Some(at) = self.equal.find(self.seed.hash_bytes(folded.as_bytes()), |at| *self.texts[at as usize].0 == *folded) {
            hit(&self.texts[at as usize].1);
        }
        self.prefixes.query(&folded, &mut hit);
        self.suffixes.query(&folded, &mut hit);
        if let Some(substrings) = &self.substrings {
            substrings.query(&folded, seen, hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    #[test]
    fn folding_is_simple_and_not_full() {
        for (text, folded) in [
            ("STREET", "street"),
            ("street", "street"),
            ("\u{212a}elvin", "kelvin"),
            ("ΣΑΣ", "σασ"),
            ("ς", "σ"),
            ("ẞ", "ß"),
            ("ß", "ß"),
            ("ſ", "s"),
            ("İ", "İ"),
            ("\u{1f88}", "\u{1f80}"),
            ("\u{10400}", "\u{10428}"),
            ("ﬁ", "ﬁ"),
        ] {
            assert_eq!(fold(text), folded);
        }
    }

    #[test]
    fn operands_fit_if_they_fit_when_folded() {
        let mut dice = Dice::new(8);
        for _ in 0..200 {
            let operands: Vec<String> = (0..20).map(|_| fold(&dice.text("aAsſkK\u{212a}", 3)).into_owned()).collect();
            let pairs =
                |kind: u32| operands.iter().zip(0..).filter(move |(_, id)| id % 4 == kind).map(|(text, id)| (text.as_str(), id));
            let built = IgnoreCase::new(pairs(0), pairs(1), pairs(2), pairs(3), Seed::new(9));
            for _ in 0..20 {
                let text = dice.text("aAsſkK\u{212a}", 6);
                let folded = fold(&text);
                let mut found = Vec::new();
                built.query(&text, &mut SeenLiterals::default(), |ids| found.extend_from_slice(ids));
                found.sort_unstable();
                let expected: Vec<u32> = operands
                    .iter()
                    .zip(0..)
                    .filter(|(operand, id)| match id % 4 {
                        0 => **operand == *folded,
                        1 => folded.starts_with(operand.as_str()),
                        2 => folded.ends_with(operand.as_str()),
                        _ => folded.contains(operand.as_str()),
                    })
                    .map(|(_, id)| id)
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }
}
