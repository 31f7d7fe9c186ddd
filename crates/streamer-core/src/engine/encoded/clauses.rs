//! The distinct clauses of a segment, one after the other.

use super::atoms::{AtomView, Atoms, Pool};
use crate::map::{Array, Packed};
use crate::stored::{ImageReader, ImageWriter, is_rows};
use crate::value::ScalarRef;

/// A clause, read.
#[derive(Clone, Copy, Debug)]
pub struct ClauseView<'a> {
    /// Its number.
    pub number: u32,
    /// Its path, by position in the path set.
    pub path: u32,
    /// Its alternatives.
    pub atoms: Atoms<'a>,
    /// How many.
    pub count: u32,
    /// How many words they take, with what they exclude.
    pub length: u32,
}

/// Clauses by number, each as words: its path, how many atoms it has, and those.
#[derive(Debug)]
pub(in crate::engine) struct EncodedClauses {
    pub pool: Pool,
    pub words: Array<u32>,
    /// Where the words of each begin, and where those of the last one end.
    pub starts: Array<u32>,
}

impl EncodedClauses {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Read a clause.
    #[inline]
    pub fn clause(&self, clause: u32) -> ClauseView<'_> {
        let words = &self.words[self.starts[clause as usize] as usize..self.starts[clause as usize + 1] as usize];
        let atoms = self.pool.atoms(&words[2..], words[1]);
        ClauseView { number: clause, path: words[0], count: words[1], length: words.len() as u32 - 2, atoms }
    }

    /// Read the atom whose words are at *position*; see [`EncodedClauses::position`].
    #[inline]
    pub fn atom_at(&self, position: u32) -> Atoms<'_> {
        self.pool.atoms(&self.words[position as usize..], 1)
    }

    /// Where *words*, a part of a clause of these, begin.
    pub fn position(&self, words: &[u32]) -> u32 {
        ((words.as_ptr() as usize - self.words.as_ptr() as usize) / size_of::<u32>()) as u32
    }

    /// Whether the atom at *position* is that a value equals *scalar*.
    pub fn is_equality(&self, position: u32, scalar: ScalarRef<'_>) -> bool {
        matches!(self.atom_at(position).next().map(|atom| atom.view), Some(AtomView::Equal(other)) if other == scalar)
    }

    /// Write all but the pool into an image.
    pub fn write(&self, out: &mut ImageWriter) {
        out.array(&self.words);
        out.array(&self.starts);
    }

    /// Read the words and starts that were written.
    pub fn read(from: &mut ImageReader<'_>) -> Option<(Array<u32>, Array<u32>)> {
        let (words, starts): (Array<u32>, Array<u32>) = (from.array()?, from.array()?);
        is_rows(&starts, words.len()).then_some((words, starts))
    }

    /// Whether each clause can be read, and names one of so many *paths*.
    pub fn is_sound(&self, paths: usize) -> bool {
        self.starts.windows(2).all(|row| match self.words[row[0] as usize..row[1] as usize] {
            [path, atoms, ref rest @ ..] => (path as usize) < paths && self.pool.check(rest, atoms, false) == Some(rest.len()),
            _ => false,
        })
    }

    /// Whether the words of an atom begin at *position*.
    pub fn is_atom(&self, position: u32) -> bool {
        self.words.get(position as usize..).is_some_and(|words| self.pool.check(words, 1, false).is_some())
    }

    /// Its arrays.
    pub fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        visit(self.pool.texts.array());
        for words in [&mut self.pool.ends, &mut self.words, &mut self.starts] {
            visit(words);
        }
    }

    /// Heap bytes held, those of shared trees and programs left out.
    pub fn bytes(&self) -> usize {
        self.pool.bytes() + self.words.bytes() + self.starts.bytes()
    }
}
