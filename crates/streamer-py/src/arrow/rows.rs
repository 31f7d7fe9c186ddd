//! Rows of texts in Arrow buffers, read in place.

use crate::gil;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ops::Range;

/// The most rows, and bytes, of a block.
pub(super) const BLOCK_ROWS: usize = 256;
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// A buffer of Arrow, kept alive.
pub(super) struct LentBuffer(PyUntypedBuffer);

impl LentBuffer {
    pub(super) fn of(buffer: &Bound<'_, PyAny>) -> PyResult<Option<LentBuffer>> {
        if buffer.is_none() {
            return Ok(None);
        }
        let buffer = PyUntypedBuffer::get(buffer)?;
        match buffer.is_c_contiguous() {
            true => Ok(Some(LentBuffer(buffer))),
            false => Err(PyValueError::new_err("a buffer of Arrow is contiguous")),
        }
    }

    #[allow(unsafe_code, reason = "see the head of this file")]
    pub(super) fn bytes(&self) -> &[u8] {
        let (start, length) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        if start.is_null() || length == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `length` bytes at `start` alive and in place until the buffer is released, which
        // is when `self` is dropped. The bytes are never written: by the Arrow columnar format buffers are immutable
        // once they are shared, and every library that uses an array relies on that.
        unsafe { std::slice::from_raw_parts(start, length) }
    }
}

/// An array of texts, or a slice of one.
pub struct Chunk {
    validity: Option<LentBuffer>,
    offsets: Option<LentBuffer>,
    data: Option<LentBuffer>,
    /// The row at which the slice begins.
    offset: usize,
    length: usize,
    is_large: bool,
}

impl Chunk {
    pub(super) fn bytes(buffer: &Option<LentBuffer>) -> &[u8] {
        buffer.as_ref().map_or(&[], LentBuffer::bytes)
    }

    /// The offset of row *at*, counted from the beginning of the array; None beyond the buffer or if it is negative.
    pub(super) fn offset(&self, at: usize) -> Option<usize> {
        let offsets = Chunk::bytes(&self.offsets);
        if self.is_large {
            let bytes = offsets.get(at.checked_mul(8)?..)?.first_chunk::<8>()?;
            usize::try_from(i64::from_ne_bytes(*bytes)).ok()
        } else {
            let bytes = offsets.get(at.checked_mul(4)?..)?.first_chunk::<4>()?;
            usize::try_from(i32::from_ne_bytes(*bytes)).ok()
        }
    }

    /// Row *at* of the slice; None if it is null.
    pub fn row(&self, at: usize) -> Option<&[u8]> {
        let at = self.offset.checked_add(at)?;
        if let Some(validity) = &self.validity
            && validity.bytes().get(at / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 0)
        {
            return None;
        }
        // A row without offsets cannot occur: `check` refuses such an array.
        Chunk::bytes(&self.data).get(self.offset(at)?..self.offset(at + 1)?)
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Check that all rows are there; an error has the fault in words.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.length == 0 {
            return Ok(());
        }
        let end = self.offset.checked_add(self.length).filter(|end| *end < isize::MAX as usize);
        let end = end.ok_or("more rows than there can be")?;
        if let Some(validity) = &self.validity
            && validity.bytes().len() < end.div_ceil(8)
        {
            return Err(format!("{} bytes of validity for {end} rows", validity.bytes().len()));
        }
        let (data, missing) =
            (Chunk::bytes(&self.data).len(), |at: usize| format!("row {} has an invalid offset", at - self.offset));
        let mut from = self.offset(self.offset).ok_or_else(|| missing(self.offset))?;
        for at in self.offset + 1..=end {
            let to = self.offset(at).ok_or_else(|| missing(at))?;
            let row = at - 1 - self.offset;
            if to < from {
                return Err(format!("row {row} ends at byte {to}, before it begins at {from}"));
            }
            if to > data {
                return Err(format!("row {row} ends at byte {to} of {data}"));
            }
            from = to;
        }
        Ok(())
    }
}

/// Some rows of one chunk.
pub(super) struct Block {
    chunk: usize,
    rows: Range<usize>,
    /// The number of the first of them, of all rows of all chunks.
    first: usize,
}

/// The rows of several chunks.
pub struct Rows {
    pub(super) chunks: Vec<Chunk>,
    pub(super) blocks: Vec<Block>,
}

impl Rows {
    /// Borrow chunks as `streamer.core.arrow` hands them over: validity, offsets, data, offset, length, whether offsets are wide.
    ///
    /// # Errors
    ///
    /// ValueError: an array whose buffers are not those of a valid one.
    pub fn of(py: Python<'_>, chunks: &Bound<'_, PyAny>) -> PyResult<Rows> {
        type ChunkParts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, usize, usize, bool);
        let borrowed = chunks.try_iter()?.map(|chunk| {
            let (validity, offsets, data, offset, length, is_large): ChunkParts<'_> = chunk?.extract()?;
            let (validity, offsets, data) = (LentBuffer::of(&validity)?, LentBuffer::of(&offsets)?, LentBuffer::of(&data)?);
            Ok(Chunk { validity, offsets, data, offset, length, is_large })
        });
        let mut rows = Rows { chunks: borrowed.collect::<PyResult<_>>()?, blocks: Vec::new() };
        gil::released(py, || rows.cut()).map_err(PyValueError::new_err)?;
        Ok(rows)
    }

    /// Check the chunks and cut them into blocks.
    pub(super) fn cut(&mut self) -> Result<(), String> {
        let mut first = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            chunk.check().map_err(|error| format!("chunk {number} is not a valid Arrow array: {error}"))?;
            let (mut from, mut bytes) = (0, 0);
            for at in 0..chunk.len() {
                bytes += chunk.row(at).map_or(0, <[u8]>::len);
                if at + 1 == chunk.len() || at + 1 - from >= BLOCK_ROWS || bytes >= BLOCK_BYTES {
                    self.blocks.push(Block { chunk: number, rows: from..at + 1, first: first + from });
                    (from, bytes) = (at + 1, 0);
                }
            }
            first += chunk.len();
        }
        Ok(())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Chunk::len).sum()
    }

    /// The rows of a block, each with its number.
    pub(super) fn block(&self, block: usize) -> impl Iterator<Item = (usize, Option<&[u8]>)> {
        let Block { chunk, rows, first } = &self.blocks[block];
        let chunk = &self.chunks[*chunk];
        rows.clone().map(move |at| (first + at - rows.start, chunk.row(at)))
    }
}
