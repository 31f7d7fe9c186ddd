//! The distinct clauses of a segment, one after the other.

use super::atoms::{AtomView, Atoms, Pool};
use super::encoder::CannotBuild;
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
    /// How many words they have, with those of their exclusions.
    pub length: u32,
}

/// Clauses by number, each as words: its path, how many atoms it has, and those. Path and count share a word if the
/// count is less than [`MANY`], as it nearly always is.
#[derive(Debug)]
pub(in crate::engine) struct EncodedClauses {
    pub pool: Pool,
    pub words: Array<u32>,
    /// The start of the words of each, and the end of those of the last one.
    pub starts: Array<u32>,
}

/// In the low byte of a clause's first word: the next word is the number of its atoms.
const MANY: u32 = u8::MAX as u32;

/// Begin the words of a clause.
pub(in crate::engine) fn begin_clause(path: u32, count: usize, words: &mut Vec<u32>) -> Result<(), CannotBuild> {
    let (path, count) = (path.checked_mul(1 << u8::BITS).ok_or(CannotBuild::Full)?, count as u32);
    words.clear();
    words.push(path | count.min(MANY));
    if count >= MANY {
        words.push(count);
    }
    Ok(())
}

/// The path of a clause, how many atoms it has, and their words.
#[inline]
fn read(words: &[u32]) -> Option<(u32, u32, &[u32])> {
    let (head, rest) = words.split_first()?;
    let (path, count) = (head >> u8::BITS, head & MANY);
    if count < MANY {
        return Some((path, count, rest));
    }
    let (count, rest) = rest.split_first()?;
    Some((path, *count, rest))
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
        let (path, count, words) = read(words).unwrap_or_default();
        ClauseView { number: clause, path, count, length: words.len() as u32, atoms: self.pool.atoms(words, count) }
    }

    /// Read the atom whose words are at *position*; see [`EncodedClauses::position`].
    #[inline]
    pub fn atom_at(&self, position: u32) -> Atoms<'_> {
        self.pool.atoms(&self.words[position as usize..], 1)
    }

    /// The position of *words*, a part of one of these clauses.
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

    /// Whether each clause can be read, and names one of *paths* paths.
    pub fn is_sound(&self, paths: usize) -> bool {
        self.starts.windows(2).all(|row| {
            read(&self.words[row[0] as usize..row[1] as usize]).is_some_and(|(path, count, atoms)| {
                (path as usize) < paths && self.pool.check(atoms, count, false) == Some(atoms.len())
            })
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

    /// Heap bytes used, without those of shared trees and programs.
    pub fn bytes(&self) -> usize {
        self.pool.bytes() + self.words.bytes() + self.starts.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_begins_with_its_path_and_count_whatever_they_are() {
        let mut words = Vec::new();
        for (path, count, taken) in [(0, 0, 1), (7, 254, 1), (7, 255, 2), (0xFF_FFFF, 70_000, 2)] {
            begin_clause(path, count, &mut words).unwrap();
            words.push(42);
            assert_eq!(read(&words), Some((path, count as u32, &[42][..])));
            assert_eq!(words.len(), taken + 1);
        }
        assert!(begin_clause(1 << 24, 1, &mut words).is_err());
        assert_eq!((read(&[]), read(&[255])), (None, None));
    }
}
