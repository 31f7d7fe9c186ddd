//! The portable Bloom layout: filled in any writable buffer of Python, probed in bytes.
//!
//! Filling copies the bits out and back, and probing takes bytes, which nobody can change: a reference into a buffer that
//! other code may write is not sound, and both are as quick.

use crate::errors::guard;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use streamer_core::bloom::portable::Slices;

/// The slices, if *length* bytes have room for them.
fn slices(length: usize, slices: usize, bits_per_slice: usize) -> PyResult<Slices> {
    let found = Slices::new(slices, bits_per_slice).filter(|found| found.bytes() <= length);
    found.ok_or_else(|| PyValueError::new_err("there are fewer bits than slices * bits_per_slice, or none"))
}

#[pyfunction]
pub fn bloom_fill(
    py: Python<'_>,
    bits: PyBuffer<u8>,
    num_slices: usize,
    bits_per_slice: usize,
    keys: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    guard(py, || {
        let slices = slices(bits.len_bytes(), num_slices, bits_per_slice)?;
        // All keys first: between the copies no code of Python runs that might set bits too.
        let keys = keys.try_iter()?.map(|key| Ok(key?.cast_into::<PyBytes>()?)).collect::<PyResult<Vec<_>>>()?;
        let mut bytes = bits.to_vec(py)?;
        let mut added = 0;
        for key in keys {
            let mut is_new = false;
            for (byte, bit) in slices.bits_of(key.as_bytes()) {
                is_new |= bytes[byte] & bit == 0;
                bytes[byte] |= bit;
            }
            added += usize::from(is_new);
        }
        bits.copy_from_slice(py, &bytes)?;
        Ok(added)
    })
}

fn has(slices: Slices, bits: &[u8], key: &[u8]) -> bool {
    slices.bits_of(key).all(|(byte, bit)| bits[byte] & bit != 0)
}

#[pyfunction]
pub fn bloom_probe(py: Python<'_>, bits: &[u8], num_slices: usize, bits_per_slice: usize, key: &[u8]) -> PyResult<bool> {
    guard(py, || Ok(has(slices(bits.len(), num_slices, bits_per_slice)?, bits, key)))
}

#[pyfunction]
pub fn bloom_probe_any(
    py: Python<'_>,
    bits: &[u8],
    num_slices: usize,
    bits_per_slice: usize,
    keys: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    guard(py, || {
        let slices = slices(bits.len(), num_slices, bits_per_slice)?;
        for key in keys.try_iter()? {
            if has(slices, bits, key?.cast::<PyBytes>()?.as_bytes()) {
                return Ok(true);
            }
        }
        Ok(false)
    })
}
