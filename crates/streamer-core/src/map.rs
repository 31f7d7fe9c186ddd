//! Arrays that lie in memory, their own or a file's: read through one pointer either way.
//!
//! ```text
//!   Array { start, len, file: None }      a boxed slice of its own
//!   Array { start, len, file: Some(..) }  a part of a mapped file, which stays mapped as long as the array lives; or of a block of
//!                                         memory that many arrays share
//! ```
//!
//! Contract: a mapped file is not changed while it is mapped. `Engine.save` never does: it writes another one and renames it,
//! which leaves the mapped one whole for as long as it is mapped. Cutting a mapped file off ends the process at its next look
//! beyond the end (SIGBUS), as with every library that maps. A private copy would prevent that, at the price of the file's size
//! in each process.
//!
//! Invariant: `start` and `len` are a slice that lives as long as the array, and it is only written through a `&mut` of
//! an array that owns it.
//!
//! Cost: a word more than a boxed slice; reading costs the same. Arrays that live together lie in one block ([`pack`]):
//! separate allocations, made between the buffers of their building, would leave a third as much memory unused.
//!
//! Rejected: an enum of a box and a slice (a branch for each look at an array, 2 to 5 % of matching), a copy of the file
//! (not shared between processes).
//!
//! All `unsafe` of mapping is in this file; Miri runs the tests below on memory of the process' own.

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::Mmap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
enum Storage {
    Mapped(Mmap),
    /// Words, so that arrays are aligned in it, and how many bytes of them there are.
    Owned(Box<[u64]>, usize),
}

/// The bytes of a file. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Bytes(Arc<Storage>);

impl Bytes {
    /// Map a file.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or not mapped.
    pub fn map(path: &Path) -> io::Result<Bytes> {
        let file = File::open(path)?;
        // SAFETY: the bytes are only read, and never changed: see the contract above.
        Ok(Bytes(Arc::new(Storage::Mapped(unsafe { Mmap::map(&file)? }))))
    }

    /// Bytes in memory of its own.
    pub fn own(bytes: &[u8]) -> Bytes {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Bytes(Arc::new(Storage::Owned(words.collect(), bytes.len())))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Storage::Mapped(map) => map,
            Storage::Owned(words, length) => &bytemuck::cast_slice(words)[..*length],
        }
    }
}

/// See the head of this file.
pub struct Array<T: 'static> {
    start: *const T,
    len: usize,
    /// The mapped bytes; empty for an array that owns a boxed slice.
    file: Option<Bytes>,
}

// SAFETY: it is a boxed slice, or a shared slice of bytes that any thread may read.
unsafe impl<T: Send + Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// To change it; None for one in a file, or in a block with others.
    pub fn own_mut(&mut self) -> Option<&mut [T]> {
        match self.file {
            // SAFETY: `start` came from a box that only this array owns, and this borrows the array mutably.
            None => Some(unsafe { std::slice::from_raw_parts_mut(self.start.cast_mut(), self.len) }),
            Some(_) => None,
        }
    }

    /// Heap bytes used; 0 in a file.
    pub fn bytes(&self) -> usize {
        let is_mapped = self.file.as_ref().is_some_and(|bytes| matches!(*bytes.0, Storage::Mapped(_)));
        if is_mapped { 0 } else { self.len * size_of::<T>() }
    }
}

/// An array that can be moved into a block with others.
pub trait Packed {
    /// How many words it takes there; none if it lies in a file or a block.
    fn words(&self) -> usize;
    /// Copy it behind the others.
    fn copy(&self, block: &mut Vec<u64>);
    /// Free its own memory after a copy of it was written at *at*, and move *at* to the next copy.
    fn settle(&mut self, block: &Bytes, at: &mut usize);
}

impl<T: NoUninit + AnyBitPattern> Packed for Array<T> {
    fn words(&self) -> usize {
        if self.file.is_some() { 0 } else { (self.len * size_of::<T>()).div_ceil(size_of::<u64>()) }
    }

    fn copy(&self, block: &mut Vec<u64>) {
        let from = block.len();
        block.resize(from + self.words(), 0);
        if self.file.is_none() {
            bytemuck::cast_slice_mut(&mut block[from..])[..self.len * size_of::<T>()].copy_from_slice(self.as_bytes());
        }
    }

    fn settle(&mut self, block: &Bytes, at: &mut usize) {
        let words = self.words();
        if words > 0
            && let Some(moved) = Array::at(block, *at..*at + self.len * size_of::<T>())
        {
            *self = moved;
            *at += words * size_of::<u64>();
        }
    }
}

/// Move the arrays that *each* visits, each time in the same order, into one block.
pub fn pack(mut each: impl FnMut(&mut dyn FnMut(&mut dyn Packed))) {
    let mut words = 0;
    each(&mut |array| words += array.words());
    let mut block = Vec::with_capacity(words);
    each(&mut |array| array.copy(&mut block));
    let block = Bytes(Arc::new(Storage::Owned(block.into(), words * size_of::<u64>())));
    let mut at = 0;
    each(&mut |array| array.settle(&block, &mut at));
}

impl<T: AnyBitPattern> Array<T> {
    /// The array that lies at a range of a file's bytes; None outside of it, not aligned, or no whole number of elements.
    pub fn at(file: &Bytes, range: Range<usize>) -> Option<Array<T>> {
        let slice: &[T] = bytemuck::try_cast_slice(file.get(range)?).ok()?;
        // The bytes do not move while `file` is alive.
        Some(Array { start: slice.as_ptr(), len: slice.len(), file: Some(file.clone()) })
    }
}

impl<T: NoUninit> Array<T> {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the invariant.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        if self.file.is_none() {
            // SAFETY: it was leaked from a box of that length in `from`.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start.cast_mut(), self.len)) });
        }
    }
}

impl<T> From<Box<[T]>> for Array<T> {
    fn from(own: Box<[T]>) -> Array<T> {
        let len = own.len();
        Array { start: Box::into_raw(own).cast::<T>(), len, file: None }
    }
}

impl<T> From<Vec<T>> for Array<T> {
    fn from(own: Vec<T>) -> Array<T> {
        own.into_boxed_slice().into()
    }
}

impl<T> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Array<T> {
        items.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T> Default for Array<T> {
    fn default() -> Array<T> {
        Vec::new().into()
    }
}

impl<T: fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A text that lies in memory, its own or a file's.
#[derive(Debug, Default)]
pub struct Text(Array<u8>);

impl Text {
    /// Its bytes, to be packed.
    pub fn array(&mut self) -> &mut dyn Packed {
        &mut self.0
    }

    /// The text at a range of a file's bytes; None if they are not one.
    pub fn at(file: &Bytes, range: Range<usize>) -> Option<Text> {
        let bytes = Array::at(file, range)?;
        simdutf8::basic::from_utf8(&bytes).ok()?;
        Some(Text(bytes))
    }

    /// Heap bytes used; 0 in a file.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl From<String> for Text {
    fn from(own: String) -> Text {
        Text(own.into_bytes().into())
    }
}

impl Deref for Text {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: it came from a `String`, or was checked when it was read from a file.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_its_own_is_read_written_and_dropped() {
        let mut array: Array<Box<u32>> = (0..5).map(Box::new).collect();
        *array.own_mut().unwrap()[2] = 7;
        assert_eq!(*array, [0, 1, 7, 3, 4].map(Box::new));
        assert_eq!(*Array::<u64>::default(), []);
        let moved = array;
        assert_eq!((moved.len(), moved.bytes()), (5, 40));
    }

    #[test]
    fn an_array_in_a_file_keeps_the_file() {
        let file = Bytes::own(&(0..10_u32).flat_map(u32::to_ne_bytes).collect::<Vec<u8>>());
        let mut array: Array<u32> = Array::at(&file, 8..24).unwrap();
        let text = Text::at(&Bytes::own("aé".as_bytes()), 0..3).unwrap();
        drop(file);
        assert_eq!(*array, [2, 3, 4, 5]);
        assert_eq!(array.as_bytes().len(), 16);
        assert_eq!(array.own_mut(), None);
        let other = std::thread::spawn(move || array.iter().sum::<u32>());
        assert_eq!((other.join().unwrap(), &*text), (14, "aé"));
    }

    #[test]
    fn arrays_are_packed_into_one_block() {
        let (mut bytes, mut none): (Array<u8>, Array<u64>) = ((0..5).collect(), Array::default());
        let (mut triples, mut text) = (Array::from(vec![[1_u32, 2, 3]]), Text::from("aé".to_owned()));
        for _ in 0..2 {
            pack(|visit| {
                visit(&mut bytes);
                visit(&mut none);
                visit(&mut triples);
                visit(text.array());
            });
            assert_eq!((&*bytes, &*none, &*triples, &*text), (&[0, 1, 2, 3, 4][..], &[][..], &[[1, 2, 3]][..], "aé"));
            assert_eq!((bytes.bytes(), triples.bytes(), text.bytes(), bytes.own_mut()), (5, 12, 3, None));
        }
    }

    #[test]
    fn what_is_not_there_is_none() {
        let file = Bytes::own(&[0xff; 20]);
        let range = |start, end| Range { start, end };
        for (start, end) in [(0, 24), (24, 24), (8, 4), (usize::MAX, 4), (1, 5), (0, 5)] {
            assert!(Array::<u32>::at(&file, range(start, end)).is_none(), "{start}..{end}");
        }
        assert!(Text::at(&file, 0..4).is_none());
    }
}
