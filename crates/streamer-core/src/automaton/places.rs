//! At which places does a routing key have its words, and does a topic pattern match them there?
//!
//! ```text
//!   key a.b.a.c       a 0101   b 0010   c 1000       bit j: the word is at place j
//!   pattern a.#.b.*.#.c     runs  a | b.* | c       a at place 0, c at the last; between them the first place of b.*
//! ```
//!
//! A pattern is cut at each `#` into *runs*. The first must be at the beginning of the key, the last at its end. Each
//! other run is at the first possible place after the one before, since a later place would leave fewer words to the
//! runs that follow.
//!
//! Cost: a word of a run is searched at 64 places at once. So the cost is at most a step for each word of the pattern,
//! times each 64 words of the key. The pattern is charged this cost (semantics.md 6.9). `#.a.#.a…` takes a step a word.
//!
//! Rejected: the states of the pattern as bits (Shift-And), which costs as many steps and also needs masks for each
//! pattern.

use crate::automaton::refused::RefusedSearches;
use crate::subscriptions::topics::{MAX_WORDS, TopicDialect, TopicPattern, TopicWord, words};
use rapidhash::fast::RandomState;
use std::cell::Cell;
use std::collections::HashMap;

/// Units that the patterns of one event may cost together.
const BUDGET: u64 = 100_000_000;

/// In a row of words: `*`, `#`, and in a key a word that no pattern has.
pub(super) const ONE: u32 = u32::MAX;
pub(super) const MANY: u32 = u32::MAX - 1;
pub(super) const UNKNOWN: u32 = u32::MAX - 2;

thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
    static REFUSED: RefusedSearches = const { RefusedSearches::none() };
}

/// Start a new event. Return how many patterns were refused for the last event, and a text about the last of them.
#[inline]
pub fn take_refused() -> Option<(u32, String)> {
    SPENT.set(0);
    REFUSED.with(RefusedSearches::take)
}

/// Look at patterns without counting those that are refused: they were counted, or are when they are looked at again.
pub fn uncounted<T>(look: impl FnOnce() -> T) -> T {
    let counted = REFUSED.with(RefusedSearches::take);
    let outcome = look();
    _ = REFUSED.with(RefusedSearches::take);
    if let Some((patterns, detail)) = counted {
        REFUSED.with(|refused| refused.add(patterns, detail));
    }
    outcome
}

/// Repeat a search of this event: it has a budget of its own, and so refuses the same patterns.
pub fn again<T>(search: impl FnOnce() -> T) -> T {
    let spent = SPENT.replace(0);
    let outcome = uncounted(search);
    SPENT.set(spent);
    outcome
}

/// The cost of a pattern with `#`.
fn units(pattern: usize, key: usize) -> u64 {
    pattern as u64 * key.div_ceil(64) as u64
}

/// Whether a pattern with `#` may be looked at; then it is charged.
pub(super) fn may_look(pattern: usize, key: usize) -> bool {
    let spent = SPENT.get() + units(pattern, key);
    let may = spent <= BUDGET;
    if may {
        SPENT.set(spent);
    }
    may
}

/// Count *patterns* that the budget does not allow. *pattern* is the number of words of one of them, *key* the number
/// of words of the key.
#[cold]
pub(super) fn refuse(patterns: u32, pattern: usize, key: usize) {
    let units = units(pattern, key);
    let detail = format!("a topic pattern of {pattern} words is not looked at for a key of {key}: {units} units are too many");
    REFUSED.with(|refused| refused.add(patterns, detail));
}

/// Count *patterns* with `#` that are not looked at for a key that is too long.
#[cold]
pub(super) fn refuse_key(patterns: u32) {
    let detail = format!("a key of more than {MAX_WORDS} words is matched by no topic pattern with '#' or '>'");
    REFUSED.with(|refused| refused.add(patterns, detail));
}

/// A word of a topic pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol<'a> {
    /// One word.
    One,
    /// Zero or more words.
    Many,
    /// Itself.
    Word(&'a str),
}

impl<'a> From<&'a TopicWord> for Symbol<'a> {
    fn from(word: &'a TopicWord) -> Symbol<'a> {
        match word {
            TopicWord::One => Symbol::One,
            TopicWord::Many => Symbol::Many,
            TopicWord::Word(word) => Symbol::Word(word),
        }
    }
}

impl TopicPattern {
    /// See [`topic_matches`].
    pub fn matches(&self, key: &str) -> bool {
        topic_matches(self.dialect, self.words.iter().map(Symbol::from), key)
    }
}

/// Whether a pattern matches *key*, within the budget of the event.
pub fn topic_matches<'a>(dialect: TopicDialect, pattern: impl Iterator<Item = Symbol<'a>> + Clone, key: &str) -> bool {
    let is_wild = |symbol| matches!(symbol, Symbol::One | Symbol::Many);
    if !dialect.is_topic(key) || dialect.is_hidden(key) && pattern.clone().next().is_some_and(is_wild) {
        return false;
    }
    let length = pattern.clone().count();
    let mut rest = words(key, dialect.separator());
    if !pattern.clone().any(|symbol| symbol == Symbol::Many) {
        let mut pattern = pattern;
        let holds = |symbol, word| symbol == Symbol::One || symbol == Symbol::Word(word);
        return pattern.all(|symbol| rest.next().is_some_and(|word| holds(symbol, word))) && rest.next().is_none();
    }
    let mut numbers: HashMap<&str, u32, RandomState> = HashMap::default();
    let mut row = Vec::with_capacity(length);
    for symbol in pattern {
        let new = numbers.len() as u32;
        row.push(match symbol {
            Symbol::One => ONE,
            Symbol::Many => MANY,
            Symbol::Word(word) => *numbers.entry(word).or_insert(new),
        });
    }
    let key: Vec<u32> = rest.take(MAX_WORDS + 1).map(|word| numbers.get(word).copied().unwrap_or(UNKNOWN)).collect();
    if key.len() > MAX_WORDS {
        refuse_key(1);
        return false;
    }
    if !may_look(length, key.len()) {
        refuse(1, length, key.len());
        return false;
    }
    let mut places = Places::default();
    places.read(&key, numbers.len());
    places.matches(&row)
}

/// See the head of this file. Kept between keys to save allocations.
#[derive(Debug, Default)]
pub struct Places {
    words: usize,
    /// The number of 64-bit blocks of each word. The last one is zero, and is read with the one before it.
    blocks: usize,
    /// The start of the bits of each word. A word that the key does not have starts at 0, and has no bit set.
    begins: Vec<u32>,
    bits: Vec<u64>,
    /// The words that have bits.
    known: Vec<u32>,
}

impl Places {
    /// Read a key, as numbers of words below *end* or [`UNKNOWN`].
    pub(super) fn read(&mut self, key: &[u32], end: usize) {
        for number in self.known.drain(..) {
            self.begins[number as usize] = 0;
        }
        if self.begins.len() < end {
            self.begins.resize(end, 0);
        }
        (self.words, self.blocks) = (key.len(), key.len() / 64 + 2);
        self.bits.clear();
        self.bits.resize(self.blocks, 0);
        for (place, number) in key.iter().enumerate().filter(|(_, number)| **number != UNKNOWN) {
            let begin = &mut self.begins[*number as usize];
            if *begin == 0 {
                *begin = self.bits.len() as u32;
                self.bits.resize(self.bits.len() + self.blocks, 0);
                self.known.push(*number);
            }
            self.bits[*begin as usize + place / 64] |= 1 << (place % 64);
        }
    }

    /// Whether a pattern, as a row of numbers, [`ONE`] and [`MANY`], matches the key.
    pub(super) fn matches(&self, row: &[u32]) -> bool {
        let mut runs = row.split(|word| *word == MANY);
        let first = runs.next().unwrap_or_default();
        let Some(last) = runs.next_back() else { return row.len() == self.words && self.stand_at(row, 0) };
        let Some(end) = self.words.checked_sub(last.len()).filter(|end| first.len() <= *end) else { return false };
        if !self.stand_at(first, 0) || !self.stand_at(last, end) {
            return false;
        }
        let mut from = first.len();
        for run in runs {
            match self.find(run, from, end) {
                Some(at) => from = at + run.len(),
                None => return false,
            }
        }
        true
    }

    fn stand_at(&self, run: &[u32], at: usize) -> bool {
        run.iter().zip(at..).all(|(number, place)| *number == ONE || self.bits_from(*number, place) & 1 != 0)
    }

    /// The first place in *from* to *end* at which a run begins.
    fn find(&self, run: &[u32], from: usize, end: usize) -> Option<usize> {
        let last = end.checked_sub(run.len()).filter(|last| from <= *last)?;
        for block in from / 64..=last / 64 {
            let mut starts = if block == from / 64 { !0 << (from % 64) } else { !0_u64 };
            for (number, place) in run.iter().zip(block * 64..).filter(|(number, _)| **number != ONE) {
                starts &= self.bits_from(*number, place);
                if starts == 0 {
                    break;
                }
            }
            if starts != 0 {
                let at = block * 64 + starts.trailing_zeros() as usize;
                return (at <= last).then_some(at);
            }
        }
        None
    }

    /// The bits of a word at the 64 places from *place* on, which is a place of the key.
    #[inline]
    fn bits_from(&self, number: u32, place: usize) -> u64 {
        let begin = self.begins[number as usize] as usize + place / 64;
        let (low, high) = (self.bits[begin], self.bits[begin + 1]);
        low >> (place % 64) | high << 1 << (63 - place % 64)
    }
}
