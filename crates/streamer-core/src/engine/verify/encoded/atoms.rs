//! Encoded atoms, read in place.

use crate::automaton::places::Symbol;
use crate::automaton::ranges::NumberCut;
use crate::cel::Times;
use crate::json;
use crate::map::{Array, Text};
use crate::regexps::{CompiledRegexp, Regexp};
use crate::stored::{ImageReader, ImageWriter};
use crate::subscriptions::normal_form::Cidr;
use crate::subscriptions::topics::{TopicDialect, TopicWord};
use crate::value::{Kinds, Number, ScalarRef, Value};
use std::sync::Arc;

pub(super) mod tag {
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
    pub const SUBSTRING_FOLDED: u32 = 25;
    /// Bits of a range's tag for the ends that it has.
    pub const FROM: u32 = 1 << 8;
    pub const TO: u32 = 1 << 9;
}

/// A tree that is nested deeper, in a subscription, has no image.
const DEEPEST_TREE: usize = 2048;

/// The data that the words of a segment refer to.
#[derive(Debug, Default)]
pub struct Pool {
    pub(super) texts: Text,
    pub(super) ends: Array<u32>, // the end of each text
    pub(super) programs: Box<[Arc<CompiledRegexp>]>,
    pub(super) trees: Box<[Arc<Value>]>,
}

/// An atom, read from words: the variant of [`Atom`] with the same name.
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
    SubstringIgnoreCase(&'a str),
    Wildcard(Texts<'a>),
    Regexp(&'a Arc<CompiledRegexp>),
    Cidr(Cidr),
    /// An element satisfies the one atom, an equality with or without case.
    Element(Atoms<'a>),
    Kinds(Kinds),
    Other(Kinds, Atoms<'a>),
    Topic(TopicDialect, Words<'a>),
}

/// A row of texts.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    pub(super) pool: &'a Pool,
    pub(super) words: &'a [u32],
}

/// A row of topic words; `u32::MAX` is one word, `u32::MAX - 1` any number of them.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(pub(super) Texts<'a>);

pub(super) const ONE: u32 = u32::MAX;
pub(super) const MANY: u32 = u32::MAX - 1;

/// A row of atoms.
#[derive(Clone, Copy, Debug)]
pub struct Atoms<'a> {
    pool: &'a Pool,
    words: &'a [u32],
    pub(super) left: u32,
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
    /// Whether none is literal.
    pub fn is_open(&self) -> bool {
        self.0.words.iter().all(|word| *word >= MANY)
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
    /// Their meaning.
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
        let (view, length) = self.pool.atom(self.words);
        let (encoded, rest) = self.words.split_at(length);
        self.words = rest;
        Some(EncodedAtom { encoded, view })
    }
}

impl<'a> Atoms<'a> {
    /// Whether the predicate accepts one of them. An iterator would move each atom twice; this reads it in place.
    #[inline]
    pub fn any_holds(self, mut holds: impl FnMut(&AtomView<'a>) -> bool) -> bool {
        let mut words = self.words;
        (0..self.left).any(|_| {
            let (view, length) = self.pool.atom(words);
            words = &words[length..];
            holds(&view)
        })
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

    /// Read one atom: its view and the number of its words.
    #[inline]
    fn atom<'a>(&'a self, words: &'a [u32]) -> (AtomView<'a>, usize) {
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
            tag::SUBSTRING_FOLDED => (SubstringIgnoreCase(self.text(words[1])), 2),
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
            tag::ELEMENT => {
                let (_, length) = self.atom(&words[1..]);
                (Element(self.atoms(&words[1..1 + length], 1)), 1 + length)
            }
            tag::KINDS => (Kinds(self::Kinds::from_bits((head >> 8) as u8)), 1),
            tag::OTHER => {
                let (count, length) = (words[1], words[2] as usize);
                (Other(self::Kinds::from_bits((head >> 8) as u8), self.atoms(&words[3..3 + length], count)), 3 + length)
            }
            _ => {
                let end = 2 + words[1] as usize;
                let dialect = TopicDialect::ALL[(head >> 8) as usize];
                (Topic(dialect, Words(Texts { pool: self, words: &words[2..end] })), end)
            }
        }
    }

    /// Write it into an image.
    pub(in crate::engine) fn write(&self, out: &mut ImageWriter) {
        out.array(self.texts.as_bytes());
        out.array(&self.ends);
        out.pack.several(self.programs.iter(), |pack, program| {
            pack.text(program.expression());
            pack.number(program.size());
        });
        out.pack.several(self.trees.iter(), |pack, tree| pack.text(&json::write(tree)));
    }

    /// Read a pool that was written.
    pub(in crate::engine) fn read(from: &mut ImageReader<'_>) -> Option<Pool> {
        let (texts, ends) = (from.text()?, from.array()?);
        let programs = from.pack.several(|program| {
            let (expression, size) = (program.text()?.into(), program.number()?);
            CompiledRegexp::compile(&Regexp { expression, size }).ok()
        })?;
        let options = json::ParseOptions { max_depth: DEEPEST_TREE, max_bytes: usize::MAX };
        let trees = from.pack.several(|tree| json::parse::<Value>(tree.text()?.as_bytes(), options).ok().map(Arc::new))?;
        let pool = Pool { texts, ends, programs: programs.into(), trees: trees.into() };
        pool.is_sound().then_some(pool)
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        self.texts.bytes() + self.ends.bytes() + (self.programs.len() + self.trees.len()) * 8
    }

    /// How many words a row of *count* atoms has at the beginning of *words*. It visits the names in each; None if they
    /// are not such a row of this pool. *none_of* is for the row in [`AtomView::Other`].
    pub(in crate::engine) fn check(&self, words: &[u32], count: u32, none_of: bool) -> Option<usize> {
        let is_text = |number: &u32| (*number as usize) < self.ends.len();
        let mut at = 0;
        for _ in 0..count {
            let words = words.get(at..)?;
            let head = *words.first()?;
            let ends = usize::from(head & tag::FROM != 0) + usize::from(head & tag::TO != 0);
            let (length, texts) = match head & 0xff {
                tag::NULL | tag::FALSE | tag::TRUE | tag::KINDS => (1, 0..0),
                tag::NUMBER | tag::SIZE => (3, 0..0),
                tag::TEXT | tag::PREFIX..=tag::EQUAL_FOLDED | tag::SUBSTRING_FOLDED => (2, 1..2),
                tag::TREE => (2, if (*words.get(1)? as usize) < self.trees.len() { 0..0 } else { return None }),
                tag::REGEXP => (2, if (*words.get(1)? as usize) < self.programs.len() { 0..0 } else { return None }),
                tag::NUMBERS | tag::TIMESTAMPS | tag::DURATIONS => (1 + 3 * ends, 0..0),
                tag::STRINGS => (1 + ends, 1..1 + ends),
                tag::CIDR4 if (head >> 8) as u8 <= 32 => (2, 0..0),
                tag::CIDR6 if (head >> 8) as u8 <= 128 => (5, 0..0),
                tag::WILDCARD if *words.get(1)? >= 2 => (2 + *words.get(1)? as usize, 2..2 + *words.get(1)? as usize),
                tag::TOPIC if ((head >> 8) as usize) < TopicDialect::ALL.len() => {
                    let row = words.get(2..)?.get(..*words.get(1)? as usize)?;
                    if !row.iter().all(|word| *word >= MANY || is_text(word)) {
                        return None;
                    }
                    (2 + row.len(), 0..0)
                }
                tag::ELEMENT if matches!(words.get(1)? & 0xff, tag::NULL..=tag::TREE | tag::EQUAL_FOLDED) => {
                    (1 + self.check(&words[1..], 1, true)?, 0..0)
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
    fn is_sound(&self) -> bool {
        let mut from = 0;
        self.ends.iter().all(|end| {
            let is_after = *end >= from && self.texts.is_char_boundary(*end as usize);
            from = *end;
            is_after
        })
    }
}

/// A text by its number.
#[inline]
pub(super) fn text_of<'a>(texts: &'a str, ends: &[u32], number: u32) -> &'a str {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &texts[start as usize..ends[number] as usize]
}
