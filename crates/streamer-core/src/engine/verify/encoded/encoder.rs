//! Atoms and clauses, encoded: each text, program, tree and row of words once.

use super::atoms::{AtomView, MANY, ONE, Pool, tag, text_of};
use crate::automaton::ranges::{NumberCut, text_after, text_before};
use crate::cel::Times;
use crate::regexps::CompiledRegexp;
use crate::subscriptions::normal_form::{Atom, Cidr, Range};
use crate::subscriptions::topics::{TopicDialect, TopicWord};
use crate::value::{ScalarRef, Value};
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

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

/// Hashes the interned data of the engine while it builds: seeded by the standard library, and quick on words and
/// texts.
pub type FastHash = rapidhash::fast::RandomState;

impl ClauseEncoder {
    /// The pool that was filled.
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
        // The pool keeps the program alive, so its address is not reused.
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

    /// Write an atom of the parser. Nesting is two deep at most: `none_of` has only plain atoms.
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
            Atom::SubstringIgnoreCase(text) => self.named(tag::SUBSTRING_FOLDED, text, out)?,
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
            Atom::Element(value) => {
                out.push(tag::ELEMENT);
                match &**value {
                    Value::Scalar(scalar) => self.scalar(scalar.as_ref(), out)?,
                    _ => out.extend([tag::TREE, self.tree(value)]),
                }
            }
            Atom::ElementIgnoreCase(text) => {
                out.push(tag::ELEMENT);
                self.named(tag::EQUAL_FOLDED, text, out)?;
            }
            Atom::Kinds(kinds) => out.push(tag::KINDS | u32::from(kinds.bits()) << 8),
            Atom::Other { kinds, none_of } => {
                let start = out.len();
                out.extend([tag::OTHER | u32::from(kinds.bits()) << 8, none_of.len() as u32, 0]);
                for atom in none_of {
                    self.atom(atom, out)?;
                }
                out[start + 2] = (out.len() - start - 3) as u32;
            }
            Atom::Topic(pattern) => {
                out.extend([tag_of_topic(pattern.dialect), pattern.words.len() as u32]);
                for word in &pattern.words {
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

    /// Write an atom of another pool.
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
            AtomView::SubstringIgnoreCase(text) => self.named(tag::SUBSTRING_FOLDED, text, out)?,
            AtomView::Wildcard(pieces) => {
                out.extend([tag::WILDCARD, pieces.words.len() as u32]);
                for piece in pieces {
                    let piece = self.text(piece)?;
                    out.push(piece);
                }
            }
            AtomView::Regexp(program) => out.extend([tag::REGEXP, self.program(program.clone())]),
            AtomView::Cidr(net) => self.cidr(net, out),
            AtomView::Element(equal) => {
                out.push(tag::ELEMENT);
                for atom in equal {
                    self.copy(atom.view, out)?;
                }
            }
            AtomView::Kinds(kinds) => out.push(tag::KINDS | u32::from(kinds.bits()) << 8),
            AtomView::Other(kinds, none_of) => {
                let start = out.len();
                out.extend([tag::OTHER | u32::from(kinds.bits()) << 8, none_of.left, 0]);
                for atom in none_of {
                    self.copy(atom.view, out)?;
                }
                out[start + 2] = (out.len() - start - 3) as u32;
            }
            AtomView::Topic(dialect, words) => {
                out.extend([tag_of_topic(dialect), words.0.words.len() as u32]);
                for &word in words.0.words {
                    let word = if word >= MANY { word } else { self.text(words.0.pool.text(word))? };
                    out.push(word);
                }
            }
        }
        Ok(())
    }
}

fn tag_of_topic(dialect: TopicDialect) -> u32 {
    tag::TOPIC | (dialect as u32) << 8
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

/// Rows of words, each stored once: the table of interned clauses and conjunctions.
#[derive(Debug)]
pub struct Rows {
    /// The start of each row, and the end of the last one.
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
