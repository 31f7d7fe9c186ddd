//! Which prefixes, or suffixes, does a string have? Hashed by length.
//!
//! ```text
//!   prefixes  "ab" "abcd" "x"      lengths 1 2 4           text a b c d e
//!   state after 1 byte  h(h0, "a")        ── looked up: no
//!   state after 2 bytes h(state, "b")     ── looked up: "ab"
//!   state after 4 bytes h(state, "cd")    ── looked up: "abcd"
//! ```
//!
//! The text is hashed once, in pieces that end at the length of some operand, and the state is looked up after each
//! piece. Suffixes work the same way from the other end; the pieces are read forward.
//!
//! Invariant: the state for a length depends on the bytes and on the lengths of this structure, which never change.
//!
//! Cost: one pass over the text up to the longest operand, and one lookup for each distinct length, however many operands
//! there are. A hit is compared byte by byte. About 21 bytes an operand and its text.
//!
//! Rejected: a trie (a cache miss a byte); hashing each prefix from the start (quadratic if there are operands of every
//! length, which a hostile user can arrange).

use crate::automaton::table::Table;
use crate::map::{Array, Packed};
use crate::value::{Seed, head_of};
use bytemuck::{Pod, Zeroable};

/// Which of many prefixes does a string have?
pub type Prefixes = Affixes<false>;
/// Which of many suffixes does a string have?
pub type Suffixes = Affixes<true>;

/// An immutable set of prefixes or suffixes. See the head of this file.
#[derive(Debug)]
pub struct Affixes<const AT_END: bool> {
    seed: Seed,
    lengths: Array<u32>,
    table: Table,
    texts: Array<u8>,
    groups: Array<AffixGroup>,
    ids: Array<u32>,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct AffixGroup {
    /// The first eight bytes, so that short operands are compared without a look at the texts.
    head: [u8; 8],
    text: u32,
    length: u32,
    ids: u32,
    ids_end: u32,
}

impl<const AT_END: bool> Affixes<AT_END> {
    /// Build from pairs of an operand and the id to report for it. The empty operand matches every string.
    pub fn new<'a>(operands: impl IntoIterator<Item = (&'a str, u32)>, seed: Seed) -> Self {
        let mut operands: Vec<(&[u8], u32)> = operands.into_iter().map(|(text, id)| (text.as_bytes(), id)).collect();
        operands.sort_unstable();
        let mut lengths: Vec<u32> = operands.iter().map(|(text, _)| text.len() as u32).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut built = Affixes {
            lengths: lengths.into(),
            table: Table::default(),
            texts: Array::default(),
            groups: Array::default(),
            ids: operands.iter().map(|(_, id)| *id).collect(),
            seed,
        };
        let (mut texts, mut groups, mut entries) = (Vec::new(), Vec::<AffixGroup>::new(), Vec::new());
        let mut last: Option<&[u8]> = None;
        for (at, (text, _)) in operands.iter().enumerate() {
            if last != Some(*text) {
                last = Some(*text);
                let mut hash = 0;
                built.walk(text, |_, state| hash = state);
                entries.push((hash, groups.len() as u32));
                groups.push(AffixGroup {
                    head: head_of(text),
                    text: texts.len() as u32,
                    length: text.len() as u32,
                    ids: at as u32,
                    ids_end: at as u32,
                });
                texts.extend_from_slice(text);
            }
            if let Some(group) = groups.last_mut() {
                group.ids_end = at as u32 + 1;
            }
        }
        built.table = Table::new(&entries);
        built.texts = texts.into();
        built.groups = groups.into();
        built
    }

    fn walk(&self, text: &[u8], mut at: impl FnMut(usize, u64)) {
        let (mut state, mut done) = (self.seed.seed(), 0);
        for &length in &*self.lengths {
            let length = length as usize;
            if length > text.len() {
                break;
            }
            if length > done {
                let piece = if AT_END { &text[text.len() - length..text.len() - done] } else { &text[done..length] };
                state = self.seed.hash_words(state, self.seed.hash_bytes(piece));
                done = length;
            }
            at(length, state);
        }
    }

    /// Hand the ids of all operands that *text* begins (or ends) with to *hit*, a slice for each operand.
    pub fn query(&self, text: &str, mut hit: impl FnMut(&[u32])) {
        let text = text.as_bytes();
        self.walk(text, |length, state| {
            let affix = if AT_END { &text[text.len() - length..] } else { &text[..length] };
            let group_hit = self.table.find(state, |group| {
                let group = &self.groups[group as usize];
                group.length as usize == length
                    && group.head == head_of(affix)
                    && (length <= 8 || &self.texts[group.text as usize..][..length] == affix)
            });
            if let Some(group) = group_hit {
                let group = &self.groups[group as usize];
                hit(&self.ids[group.ids as usize..group.ids_end as usize]);
            }
        });
    }

    /// Its arrays.
    pub(crate) fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        visit(&mut self.lengths);
        visit(self.table.array());
        visit(&mut self.texts);
        visit(&mut self.groups);
        visit(&mut self.ids);
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        self.texts.bytes() + self.groups.bytes() + self.ids.bytes() + self.lengths.bytes() + self.table.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    #[test]
    fn affixes_answer_as_starts_with_and_ends_with_do() {
        let mut dice = Dice::new(2);
        for round in 0..200 {
            let operands: Vec<String> = (0..[0, 1, 10, 200][round % 4]).map(|_| dice.text("abé", 6)).collect();
            let pairs = || operands.iter().zip(0..).map(|(text, id)| (text.as_str(), id));
            let (prefixes, suffixes) = (Prefixes::new(pairs(), Seed::new(3)), Suffixes::new(pairs(), Seed::new(4)));
            for _ in 0..40 {
                let text = dice.text("abé", 9);
                let (mut starts, mut ends) = (Vec::new(), Vec::new());
                prefixes.query(&text, |ids| starts.extend_from_slice(ids));
                suffixes.query(&text, |ids| ends.extend_from_slice(ids));
                starts.sort_unstable();
                ends.sort_unstable();
                let expected = |fits: &dyn Fn(&str) -> bool| -> Vec<u32> {
                    pairs().filter(|(operand, _)| fits(operand)).map(|(_, id)| id).collect()
                };
                assert_eq!(starts, expected(&|operand| text.starts_with(operand)));
                assert_eq!(ends, expected(&|operand| text.ends_with(operand)));
            }
        }
    }
}
