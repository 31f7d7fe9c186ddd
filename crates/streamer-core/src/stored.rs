//! The format of an image: arrays that are used in place, and small values packed one after the other.
//!
//! ```text
//!   head     numbers; then the start of each array and its length in bytes, 8 bytes each
//!   arrays   each at a multiple of 8; one of them is the pack: numbers of 8 bytes, and texts with their lengths
//! ```
//!
//! Each type of the index has the code to write and to read it next to its definition, in the same order. The order of
//! all types, and the conditions between them, are in `engine/file/image.rs`.

use crate::map::{Array, Bytes, Text};
use bytemuck::{AnyBitPattern, NoUninit};
use std::ops::Range;

/// Arrays, and the pack.
#[derive(Default)]
pub(crate) struct ImageWriter {
    places: Vec<[usize; 2]>,
    bytes: Vec<u8>,
    pub pack: Packer,
}

impl ImageWriter {
    /// Write the next array.
    pub fn array<T: NoUninit>(&mut self, array: &[T]) {
        let start = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(bytemuck::cast_slice(array));
        self.places.push([start, self.bytes.len() - start]);
    }

    /// Write the packed values as the next array.
    pub fn write_pack(&mut self) {
        let pack = std::mem::take(&mut self.pack.0);
        self.array(&pack);
    }

    /// The image that begins with *numbers*.
    pub fn finish(self, numbers: &[u64]) -> Vec<u8> {
        let arrays = 8 * (numbers.len() + 2 * self.places.len());
        let places = self.places.iter().flat_map(|[start, length]| [(arrays + start) as u64, *length as u64]);
        let head: Vec<u64> = numbers.iter().copied().chain(places).collect();
        [bytemuck::cast_slice(&head), &self.bytes].concat()
    }
}

/// Small things one after the other.
#[derive(Default)]
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    pub fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    /// How many there are, and each.
    pub fn several<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut write: impl FnMut(&mut Packer, T)) {
        self.number(items.len());
        items.for_each(|item| write(self, item));
    }
}

/// Reads an image. A damaged value is read as None.
pub(crate) struct ImageReader<'f> {
    file: &'f Bytes,
    image: Range<usize>,
    numbers: Array<u64>,
    /// The places of the arrays that were not read yet.
    places: std::vec::IntoIter<[u64; 2]>,
    pub pack: Unpacker<'f>,
}

impl<'f> ImageReader<'f> {
    /// Read the head: *numbers* numbers, and the places of *arrays* arrays, of which one is the *pack*.
    pub fn new(file: &'f Bytes, image: Range<usize>, numbers: usize, arrays: usize, pack: usize) -> Option<ImageReader<'f>> {
        let (middle, end) = (image.start.checked_add(numbers * 8)?, image.start.checked_add((numbers + 2 * arrays) * 8)?);
        let places: Array<[u64; 2]> = Array::at(file, middle..end)?;
        let numbers = Array::at(file, image.start..middle)?;
        let places = places.to_vec();
        let packed = range(&image, *places.get(pack)?)?;
        let pack = Unpacker(file.get(packed)?);
        Some(ImageReader { file, image, numbers, places: places.into_iter(), pack })
    }

    /// A number of the head.
    pub fn number(&self, at: usize) -> u64 {
        self.numbers[at]
    }

    fn next(&mut self) -> Option<Range<usize>> {
        range(&self.image, self.places.next()?)
    }

    /// Read the next array.
    pub fn array<T: AnyBitPattern>(&mut self) -> Option<Array<T>> {
        Array::at(self.file, self.next()?)
    }

    /// Read the next array, which is a text.
    pub fn text(&mut self) -> Option<Text> {
        Text::at(self.file, self.next()?)
    }

    /// Step over the pack, which is read in parallel to the arrays.
    pub fn skip_pack(&mut self) -> Option<()> {
        self.next().map(|_| ())
    }
}

/// The place of an array in the file.
fn range(image: &Range<usize>, [start, length]: [u64; 2]) -> Option<Range<usize>> {
    let start = image.start.checked_add(usize::try_from(start).ok()?)?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    (end <= image.end).then_some(start..end)
}

/// Reads the values that a [`Packer`] packed. Each is None if it is damaged.
pub(crate) struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    pub fn number(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*first)).ok()
    }

    /// A number below *end*.
    pub fn below(&mut self, end: usize) -> Option<u32> {
        self.number().filter(|number| *number < end).and_then(|number| u32::try_from(number).ok())
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let text = std::str::from_utf8(self.0.get(..length)?).ok()?;
        self.0 = &self.0[length..];
        Some(text)
    }

    /// Several values of *read*. Each has at least one byte, so that a damaged count cannot reserve more than the file
    /// has.
    pub fn several<T>(&mut self, mut read: impl FnMut(&mut Unpacker<'a>) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut items = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Some(items)
    }

    /// Whether all values were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether *starts* has the start of each row of *length* words, and the end of the last one.
pub(crate) fn is_rows(starts: &[u32], length: usize) -> bool {
    starts.first() == Some(&0) && starts.is_sorted() && starts.last().is_some_and(|end| *end as usize == length)
}
