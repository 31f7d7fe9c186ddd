//! Encoded clauses: what a segment keeps of a condition, to verify candidates and to be built anew by a merge. In 32-bit words:
//!
//! ```text
//!   status in ["paid", "draft"]      [path 3] [2 atoms] [EQUAL_TEXT] [text 17] [EQUAL_TEXT] [text 4]
//!   amount > 5                       [path 1] [1 atom ] [NUMBERS | from] [cut: 3 words]
//!   texts                            ... "draft" ... "paid" ...      one string, each text once
//! ```
//!
//! Invariant: equal clauses are equal words, since texts, programs and trees are interned first; so a clause is interned by
//! its words, and equal clauses of a segment are stored once.
//!
//! Cost: 16 bytes for an equality, 20 to 32 for a range, and the texts. Reading is a match on a tag; nothing is allocated.
//!
//! Rejected: `Vec<Clause>` as the parser makes it: 150 to 400 bytes a clause in six allocations.

use crate::automaton::places::Symbol;
use crate::automaton::ranges::{NumberCut, text_after, text_before};
use crate::cel::Times;
use crate::map::{Array, Text};
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::{Atom, Cidr, Range, TopicWord};
use crate::value::{Kinds, Number, ScalarRef, Value};
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

mod tag {
    pub const NULL: u32 = 0;
    pub const FALSE: u32 = 1;
    pub const TRUE: u32 = 2;
    pub const NUMBER: u32 = 3;
    pub const TEXT: u32 = 4;
    pub const TREE: u32 = 5;
    pub const NUMBERS: u32 = 6;
    pub const STRINGS: u32 = 7;
    pub const PREFIX: u32 = 8;
    pub const SUFFIX: u32 = 9;
    pub const SUBSTRING: u32 = 10;
    pub const PREFIX_FOLDED: u32 = 11;
    pub const SUFFIX_FOLDED: u32 = 12;
    pub const EQUAL_FOLDED: u32 = 13;
    pub const WILDCARD: u32 = 14;
    pub const REGEXP: u32 = 15;
    pub const CIDR4: u32 = 16;
    pub const CIDR6: u32 = 17;
    pub const ELEMENT: u32 = 18;
    pub const KINDS: u32 = 19;
    pub const OTHER: u32 = 20;
    pub const TOPIC: u32 = 21;
    pub const TIMESTAMPS: u32 = 22;
    pub const DURATIONS: u32 = 23;
    pub const SIZE: u32 = 24;
    /// Bits of a range's tag that say which ends it has.
    pub const FROM: u32 = 1 << 8;
    pub const TO: u32 = 1 << 9;
}

/// What the words of a segment refer to.
#[derive(Debug, Default)]
pub struct Pool {
    pub(super) texts: Text,
    pub(super) ends: Array<u32>, // where each text ends
    pub(super) programs: Box<[Arc<CompiledRegexp>]>,
    pub(super) trees: Box<[Arc<Value>]>,
}

/// An atom, read from words: what the variant of [`Atom`] of the same name says.
#[allow(missing_docs, reason = "see Atom")]
#[derive(Clone, Copy, Debug)]
pub enum AtomView<'a> {
    Equal(ScalarRef<'a>),
    EqualTree(&'a Arc<Value>),
    Numbers(Option<NumberCut>, Option<NumberCut>),
    Strings(Option<&'a str>, Option<&'a str>),
    Times(Times, Option<NumberCut>, Option<NumberCut>),
    Size(u32, u32),
    Prefix(&'a str),
    Suffix(&'a str),
    Substring(&'a str),
    PrefixIgnoreCase(&'a str),
    SuffixIgnoreCase(&'a str),
    EqualIgnoreCase(&'a str),
    Wildcard(Texts<'a>),
    Regexp(&'a Arc<CompiledRegexp>),
    Cidr(Cidr),
    Element(&'a Arc<Value>),
    Kinds(Kinds),
    Other(Kinds, Atoms<'a>),
    Topic(Words<'a>),
}

/// A row of texts.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    pool: &'a Pool,
    words: &'a [u32],
}

/// A row of topic words; `u32::MAX` is `*`, `u32::MAX - 1` is `#`.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(Texts<'a>);

const ONE: u32 = u32::MAX;
const MANY: u32 = u32::MAX - 1;

/// A row of atoms.
#[derive(Clone, Copy, Debug)]
pub struct Atoms<'a> {
    pool: &'a Pool,
    words: &'a [u32],
    left: u32,
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(self.pool.text(*first))
    }
}

impl<'a> DoubleEndedIterator for Texts<'a> {
    fn next_back(&mut self) -> Option<&'a str> {
        let (last, rest) = self.words.split_last()?;
        self.words = rest;
        Some(self.pool.text(*last))
    }
}

impl Texts<'_> {
    /// The texts, owned.
    pub fn to_vec(self) -> Vec<Box<str>> {
        self.map(Box::from).collect()
    }
}

impl<'a> Words<'a> {
    /// Whether there are words, and none is literal.
    pub fn is_open(&self) -> bool {
        !self.0.words.is_empty() && self.0.words.iter().all(|word| *word >= MANY)
    }

    /// Whether none is `*` or `#`.
    pub fn is_literal(&self) -> bool {
        self.0.words.iter().all(|word| *word < MANY)
    }

    /// The words.
    pub fn symbols(self) -> impl Iterator<Item = Symbol<'a>> + Clone {
        let Texts { pool, words } = self.0;
        words.iter().map(move |word| match *word {
            ONE => Symbol::One,
            MANY => Symbol::Many,
            text => Symbol::Word(pool.text(text)),
        })
    }

    /// The words, owned.
    pub fn to_vec(self) -> Vec<TopicWord> {
        self.0
            .words
            .iter()
            .map(|word| match *word {
                ONE => TopicWord::One,
                MANY => TopicWord::Many,
                text => TopicWord::Word(self.0.pool.text(text).into()),
            })
            .collect()
    }
}

/// An atom with its encoding, which is equal for equal atoms of one pool.
#[derive(Clone, Copy, Debug)]
pub struct EncodedAtom<'a> {
    /// How it is encoded.
    pub encoded: &'a [u32],
    /// What they say.
    pub view: AtomView<'a>,
}

impl<'a> Iterator for Atoms<'a> {
    type Item = EncodedAtom<'a>;

    #[inline]
    fn next(&mut self) -> Option<EncodedAtom<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let (view, length) = self.pool.read(self.words);
        let (encoded, rest) = self.words.split_at(length);
        self.words = rest;
        Some(EncodedAtom { encoded, view })
    }
}

impl Pool {
    /// A text by its number.
    #[inline]
    pub fn text(&self, number: u32) -> &str {
        text_of(&self.texts, &self.ends, number)
    }

    /// Read a row of *count* atoms.
    #[inline]
    pub fn atoms<'a>(&'a self, words: &'a [u32], count: u32) -> Atoms<'a> {
        Atoms { pool: self, words, left: count }
    }

    /// Read one atom: what it says and how many words it takes.
    #[inline]
    fn read<'a>(&'a self, words: &'a [u32]) -> (AtomView<'a>, usize) {
        use AtomView::*;
        let head = words[0];
        match head & 0xff {
            tag::NULL => (Equal(ScalarRef::Null), 1),
            tag::FALSE => (Equal(ScalarRef::Bool(false)), 1),
            tag::TRUE => (Equal(ScalarRef::Bool(true)), 1),
            tag::NUMBER => {
                let key = (u64::from(words[1]) | u64::from(words[2]) << 32, (head >> 16) as u16);
                (Equal(ScalarRef::Number(Number::from_order_key(key))), 3)
            }
            tag::TEXT => (Equal(ScalarRef::String(self.text(words[1]))), 2),
            tag::TREE => (EqualTree(&self.trees[words[1] as usize]), 2),
            tag @ (tag::NUMBERS | tag::TIMESTAMPS | tag::DURATIONS) => {
                let mut at = 1;
                let mut end = |bit: u32| {
                    (head & bit != 0).then(|| {
                        at += 3;
                        NumberCut::from_words([words[at - 3], words[at - 2], words[at - 1]])
                    })
                };
                let (from, to) = (end(tag::FROM), end(tag::TO));
                let view = match tag {
                    tag::NUMBERS => Numbers(from, to),
                    tag::TIMESTAMPS => Times(self::Times::Timestamps, from, to),
                    _ => Times(self::Times::Durations, from, to),
                };
                (view, at)
            }
            tag::STRINGS => {
                let mut at = 1;
                let mut end = |bit: u32| {
                    (head & bit != 0).then(|| {
                        at += 1;
                        self.text(words[at - 1])
                    })
                };
                let (from, to) = (end(tag::FROM), end(tag::TO));
                (Strings(from, to), at)
            }
            tag::SIZE => (Size(words[1], words[2]), 3),
            tag::PREFIX => (Prefix(self.text(words[1])), 2),
            tag::SUFFIX => (Suffix(self.text(words[1])), 2),
            tag::SUBSTRING => (Substring(self.text(words[1])), 2),
            tag::PREFIX_FOLDED => (PrefixIgnoreCase(self.text(words[1])), 2),
            tag::SUFFIX_FOLDED => (SuffixIgnoreCase(self.text(words[1])), 2),
            tag::EQUAL_FOLDED => (EqualIgnoreCase(self.text(words[1])), 2),
            tag::WILDCARD => {
                let end = 2 + words[1] as usize;
                (Wildcard(Texts { pool: self, words: &words[2..end] }), end)
            }
            tag::REGEXP => (Regexp(&self.programs[words[1] as usize]), 2),
            tag::CIDR4 => (Cidr(self::Cidr::V4(words[1], (head >> 8) as u8)), 2),
            tag::CIDR6 => {
                let bits = words[1..5].iter().rev().fold(0, |bits, word| bits << 32 | u128::from(*word));
                (Cidr(self::Cidr::V6(bits, (head >> 8) as u8)), 5)
            }
            tag::ELEMENT => (Element(&self.trees[words[1] as usize]), 2),
            tag::KINDS => (Kinds(self::Kinds::from_bits((head >> 8) as u8)), 1),
            tag::OTHER => {
                let (count, length) = (words[1], words[2] as usize);
                (Other(self::Kinds::from_bits((head >> 8) as u8), self.atoms(&words[3..3 + length], count)), 3 + length)
            }
            _ => {
                let end = 2 + words[1] as usize;
                (Topic(Words(Texts { pool: self, words: &words[2..end] })), end)
            }
        }
    }

    /// Heap bytes held.
    pub fn bytes(&self) -> usize {
        self.texts.bytes() + self.ends.bytes() + (self.programs.len() + self.trees.len()) * 8
    }

    /// How many words a row of *count* atoms takes at the beginning of *words*, and for each visits what it names; None where
    /// they are no such row of this pool. *none_of* is for what stands in [`AtomView::Other`].
    pub(super) fn check(&self, words: &[u32], count: u32, none_of: bool) -> Option<usize> {
        let is_text = |number: &u32| (*number as usize) < self.ends.len();
        let mut at = 0;
        for _ in 0..count {
            let words = words.get(at..)?;
            let head = *words.first()?;
            let ends = usize::from(head & tag::FROM != 0) + usize::from(head & tag::TO != 0);
            let (length, texts) = match head & 0xff {
                tag::NULL | tag::FALSE | tag::TRUE | tag::KINDS => (1, 0..0),
                tag::NUMBER | tag::SIZE => (3, 0..0),
                tag::TEXT | tag::PREFIX..=tag::EQUAL_FOLDED => (2, 1..2),
                tag::TREE | tag::ELEMENT => (2, if (*words.get(1)? as usize) < self.trees.len() { 0..0 } else { return None }),
                tag::REGEXP => (2, if (*words.get(1)? as usize) < self.programs.len() { 0..0 } else { return None }),
                tag::NUMBERS | tag::TIMESTAMPS | tag::DURATIONS => (1 + 3 * ends, 0..0),
                tag::STRINGS => (1 + ends, 1..1 + ends),
                tag::CIDR4 if (head >> 8) as u8 <= 32 => (2, 0..0),
                tag::CIDR6 if (head >> 8) as u8 <= 128 => (5, 0..0),
                tag::WILDCARD if *words.get(1)? >= 2 => (2 + *words.get(1)? as usize, 2..2 + *words.get(1)? as usize),
                tag::TOPIC => {
                    let row = words.get(2..)?.get(..*words.get(1)? as usize)?;
                    if !row.iter().all(|word| *word >= MANY || is_text(word)) {
                        return None;
                    }
                    (2 + row.len(), 0..0)
                }
                tag::OTHER if !none_of => {
                    let row = words.get(3..)?.get(..*words.get(2)? as usize)?;
                    if self.check(row, *words.get(1)?, true)? != row.len() {
                        return None;
                    }
                    (3 + row.len(), 0..0)
                }
                _ => return None,
            };
            if length > words.len() || !words.get(texts)?.iter().all(is_text) {
                return None;
            }
            at += length;
        }
        Some(at)
    }

    /// Whether each text lies within all texts, between characters.
    pub(super) fn is_sound(&self) -> bool {
        let mut from = 0;
        self.ends.iter().all(|end| {
            let is_after = *end >= from && self.texts.is_char_boundary(*end as usize);
            from = *end;
            is_after
        })
    }
}

/// Why a condition cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotBuild {
    /// A regular expression that is too large, with the reason.
    Regexp(String),
    /// More than 2^32 bytes of text, or words of conditions.
    Full,
}

/// Fills a [`Pool`].
#[derive(Debug, Default)]
pub struct ClauseEncoder {
    all_texts: String,
    ends: Vec<u32>,
    all_programs: Vec<Arc<CompiledRegexp>>,
    all_trees: Vec<Arc<Value>>,
    texts: HashTable<u32>,
    hasher: FastHash,
    programs: HashMap<usize, u32>,
    trees: HashMap<Arc<Value>, u32>,
}

/// Hashes what the engine interns while it builds: seeded by the standard library, and quick on words and texts.
pub type FastHash = rapidhash::fast::RandomState;

/// A text by its number.
#[inline]
fn text_of<'a>(texts: &'a str, ends: &[u32], number: u32) -> &'a str {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &texts[start as usize..ends[number] as usize]
}

impl ClauseEncoder {
    /// What was filled.
    pub fn into_pool(self) -> Pool {
        Pool {
            texts: self.all_texts.into(),
            ends: self.ends.into(),
            programs: self.all_programs.into(),
            trees: self.all_trees.into(),
        }
    }

    fn text(&mut self, text: &str) -> Result<u32, CannotBuild> {
        let ClauseEncoder { all_texts: all, ends, texts, hasher, .. } = self;
        let hash = hasher.hash_one(text);
        if let Some(number) = texts.find(hash, |number| text_of(all, ends, *number) == text) {
            return Ok(*number);
        }
        let number = ends.len() as u32;
        let end = u32::try_from(all.len() + text.len()).map_err(|_| CannotBuild::Full)?;
        if number >= MANY {
            return Err(CannotBuild::Full);
        }
        all.push_str(text);
        ends.push(end);
        texts.insert_unique(hash, number, |number| hasher.hash_one(text_of(all, ends, *number)));
        Ok(number)
    }

    fn program(&mut self, program: Arc<CompiledRegexp>) -> u32 {
        // The pool keeps the program alive, so its address is not given to another one.
        let programs = &mut self.all_programs;
        *self.programs.entry(Arc::as_ptr(&program) as usize).or_insert_with(|| {
            programs.push(program);
            programs.len() as u32 - 1
        })
    }

    fn tree(&mut self, tree: &Arc<Value>) -> u32 {
        let trees = &mut self.all_trees;
        *self.trees.entry(tree.clone()).or_insert_with(|| {
            trees.push(tree.clone());
            trees.len() as u32 - 1
        })
    }

    fn scalar(&mut self, scalar: ScalarRef<'_>, out: &mut Vec<u32>) -> Result<(), CannotBuild> {
        match scalar {
            ScalarRef::Null => out.push(tag::NULL),
            ScalarRef::Bool(value) => out.push(if value { tag::TRUE } else { tag::FALSE }),
            ScalarRef::Number(number) => {
                let (floor, rest) = number.order_key();
                out.extend([tag::NUMBER | u32::from(rest) << 16, floor as u32, (floor >> 32) as u32]);
            }
            ScalarRef::String(text) => {
                let text = self.text(text)?;
                out.extend([tag::TEXT, text]);
            }
        }
        Ok(())
    }

    fn numbers(&mut self, tag: u32, from: Option<NumberCut>, to: Option<NumberCut>, out: &mut Vec<u32>) {
        out.push(tag | if from.is_some() { tag::FROM } else { 0 } | if to.is_some() { tag::TO } else { 0 });
        out.extend(from.iter().chain(&to).flat_map(|cut| cut.to_words()));
    }

    fn strings(&mut self, from: Option<&str>, to: Option<&str>, out: &mut Vec<u32>) -> Result<(), CannotBuild> {
        out.push(tag::STRINGS | if from.is_some() { tag::FROM } else { 0 } | if to.is_some() { tag::TO } else { 0 });
        for end in from.into_iter().chain(to) {
            let end = self.text(end)?;
            out.push(end);
        }
        Ok(())
    }

    fn named(&mut self, tag: u32, text: &str, out: &mut Vec<u32>) -> Result<(), CannotBuild> {
        let text = self.text(text)?;
        out.extend([tag, text]);
        Ok(())
    }

    fn cidr(&mut self, net: Cidr, out: &mut Vec<u32>) {
        match net {
            Cidr::V4(bits, length) => out.extend([tag::CIDR4 | u32::from(length) << 8, bits]),
            Cidr::V6(bits, length) => {
                out.push(tag::CIDR6 | u32::from(length) << 8);
                out.extend((0..4).map(|word| (bits >> (32 * word)) as u32));
            }
        }
    }

    /// Write an atom as the parser makes it. Nesting is two deep at most: nothing but plain atoms stands in `none_of`.
    pub fn atom(&mut self, atom: &Atom, out: &mut Vec<u32>) -> Result<(), CannotBuild> {
        match atom {
            Atom::Equal(scalar) => self.scalar(scalar.as_ref(), out)?,
            Atom::EqualTree(tree) => out.extend([tag::TREE, self.tree(tree)]),
            Atom::Numbers(range) => {
                let (from, to) = cuts(range, |number| NumberCut::before(*number), |number| NumberCut::after(*number));
                self.numbers(tag::NUMBERS, from, to, out);
            }
            Atom::Times(of, range) => {
                let (from, to) = cuts(range, |number| NumberCut::before(*number), |number| NumberCut::after(*number));
                self.numbers(tag_of(*of), from, to, out);
            }
            Atom::Size(least, most) => out.extend([tag::SIZE, *least, *most]),
            Atom::Strings(range) => {
                let (from, to) = cuts(range, |text| text_before(text), |text| text_after(text));
                self.strings(from.as_deref(), to.as_deref(), out)?;
            }
            Atom::Prefix(text) => self.named(tag::PREFIX, text, out)?,
            Atom::Suffix(text) => self.named(tag::SUFFIX, text, out)?,
            Atom::Substring(text) => self.named(tag::SUBSTRING, text, out)?,
            Atom::PrefixIgnoreCase(text) => self.named(tag::PREFIX_FOLDED, text, out)?,
            Atom::SuffixIgnoreCase(text) => self.named(tag::SUFFIX_FOLDED, text, out)?,
            Atom::EqualIgnoreCase(text) => self.named(tag::EQUAL_FOLDED, text, out)?,
            Atom::Wildcard(pieces) => {
                out.extend([tag::WILDCARD, pieces.len() as u32]);
                for piece in pieces {
                    let piece = self.text(piece)?;
                    out.push(piece);
                }
            }
            Atom::Regexp(regexp) => {
                let program = CompiledRegexp::compile(regexp).map_err(CannotBuild::Regexp)?;
                out.extend([tag::REGEXP, self.program(program)]);
            }
            Atom::Cidr(net) => self.cidr(*net, out),
            Atom::Element(tree) => out.extend([tag::ELEMENT, self.tree(tree)]),
            Atom::Kinds(kinds) => out.push(tag::KINDS | u32::from(kinds.bits()) << 8),
            Atom::Other { kinds, none_of } => {
                let start = out.len();
                out.extend([tag::OTHER | u32::from(kinds.bits()) << 8, none_of.len() as u32, 0]);
                for atom in none_of {
                    self.atom(atom, out)?;
                }
                out[start + 2] = (out.len() - start - 3) as u32;
            }
            Atom::Topic(words) => {
                out.extend([tag::TOPIC, words.len() as u32]);
                for word in words {
                    let word = match word {
                        TopicWord::One => ONE,
                        TopicWord::Many => MANY,
                        TopicWord::Word(word) => self.text(word)?,
                    };
                    out.push(word);
                }
            }
        }
        Ok(())
    }

    /// Write an atom that another pool holds.
    pub fn copy(&mut self, atom: AtomView<'_>, out: &mut Vec<u32>) -> Result<(), CannotBuild> {
        match atom {
            AtomView::Equal(scalar) => self.scalar(scalar, out)?,
            AtomView::EqualTree(tree) => out.extend([tag::TREE, self.tree(tree)]),
            AtomView::Numbers(from, to) => self.numbers(tag::NUMBERS, from, to, out),
            AtomView::Times(of, from, to) => self.numbers(tag_of(of), from, to, out),
            AtomView::Size(least, most) => out.extend([tag::SIZE, least, most]),
            AtomView::Strings(from, to) => self.strings(from, to, out)?,
            AtomView::Prefix(text) => self.named(tag::PREFIX, text, out)?,
            AtomView::Suffix(text) => self.named(tag::SUFFIX, text, out)?,
            AtomView::Substring(text) => self.named(tag::SUBSTRING, text, out)?,
            AtomView::PrefixIgnoreCase(text) => self.named(tag::PREFIX_FOLDED, text, out)?,
            AtomView::SuffixIgnoreCase(text) => self.named(tag::SUFFIX_FOLDED, text, out)?,
            AtomView::EqualIgnoreCase(text) => self.named(tag::EQUAL_FOLDED, text, out)?,
            AtomView::Wildcard(pieces) => {
                out.extend([tag::WILDCARD, pieces.words.len() as u32]);
                for piece in pieces {
                    let piece = self.text(piece)?;
                    out.push(piece);
                }
            }
            AtomView::Regexp(program) => out.extend([tag::REGEXP, self.program(program.clone())]),
            AtomView::Cidr(net) => self.cidr(net, out),
            AtomView::Element(tree) => out.extend([tag::ELEMENT, self.tree(tree)]),
            AtomView::Kinds(kinds) => out.push(tag::KINDS | u32::from(kinds.bits()) << 8),
            AtomView::Other(kinds, none_of) => {
                let start = out.len();
                out.extend([tag::OTHER | u32::from(kinds.bits()) << 8, none_of.left, 0]);
                for atom in none_of {
                    self.copy(atom.view, out)?;
                }
                out[start + 2] = (out.len() - start - 3) as u32;
            }
            AtomView::Topic(words) => {
                out.extend([tag::TOPIC, words.0.words.len() as u32]);
                for &word in words.0.words {
                    let word = if word >= MANY { word } else { self.text(words.0.pool.text(word))? };
                    out.push(word);
                }
            }
        }
        Ok(())
    }
}

fn tag_of(times: Times) -> u32 {
    match times {
        Times::Timestamps => tag::TIMESTAMPS,
        Times::Durations => tag::DURATIONS,
    }
}

/// The cuts of a range.
fn cuts<T, K>(range: &Range<T>, before: impl Fn(&T) -> K, after: impl Fn(&T) -> K) -> (Option<K>, Option<K>) {
    let from = range.low.as_ref().map(|(bound, inclusive)| if *inclusive { before(bound) } else { after(bound) });
    let to = range.high.as_ref().map(|(bound, inclusive)| if *inclusive { after(bound) } else { before(bound) });
    (from, to)
}

/// Rows of words, each stored once: what clauses and conjunctions are interned in.
#[derive(Debug)]
pub struct Rows {
    /// Where each row begins, and where the last one ends.
    pub at: Vec<u32>,
    /// The words of all rows.
    pub words: Vec<u32>,
    known: HashTable<u32>,
    hasher: FastHash,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { at: vec![0], words: Vec::new(), known: HashTable::new(), hasher: FastHash::default() }
    }
}

impl Rows {
    /// The number of an equal row, new or known.
    pub fn intern(&mut self, row: &[u32]) -> Result<u32, CannotBuild> {
        let Rows { at, words, known, hasher } = self;
        let row_of = |number: u32| &words[at[number as usize] as usize..at[number as usize + 1] as usize];
        let hash = hasher.hash_one(row);
        if let Some(number) = known.find(hash, |number| row_of(*number) == row) {
            return Ok(*number);
        }
        let end = u32::try_from(words.len() + row.len()).map_err(|_| CannotBuild::Full)?;
        let number = at.len() as u32 - 1;
        known.insert_unique(hash, number, |number| hasher.hash_one(row_of(*number)));
        words.extend_from_slice(row);
        at.push(end);
        Ok(number)
    }
}
