//! The portable Bloom layout: filled in any writable buffer of Python, probed in bytes.
//!
//! Filling copies the bits out and back, and probing uses bytes, which are immutable: a reference into a buffer that
//! other code may write is not sound, and both are as quick. Rows of events are copied for the same reason, under the
//! GIL; they are matched with the filter without it.

use crate::errors::guard;
use crate::gil;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use streamer_core::bloom::answer::Answer;
use streamer_core::bloom::keys::{mode_name, root_name};
use streamer_core::bloom::kinds::KeyKind;
use streamer_core::bloom::portable::{Slices, murmur3_x64_128, set};
use streamer_core::bloom::shipped::{EventReading, Shipped, ShippedAnswer, ShippedPlace, ShippedScratch};
use streamer_core::engine::Gathered;
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::subscriptions::normal_form::{Mode, Path, Root};

/// The slices, if *length* bytes have room for them.
fn slices(length: usize, slices: usize, bits_per_slice: usize) -> PyResult<Slices> {
    let layout = Slices::new(slices, bits_per_slice).filter(|layout| layout.bytes() <= length);
    layout.ok_or_else(|| PyValueError::new_err("there are fewer bits than slices * bits_per_slice, or none"))
}

/// Set the bits of *keys* in the portable layout, as `PortableBloomFilter.add` does for each.
///
/// Args:
///     bits: a contiguous, writable buffer, such as `PortableBloomFilter.bitarray`.
///
/// Returns:
///     How many keys set a bit that was not set before.
///
/// Raises:
///     ValueError: the buffer is too small for the slices.
///     BufferError: it cannot be written, or is not contiguous.
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
        // Read all keys first: no Python code, which might set bits too, runs between the copies.
        let keys = keys.try_iter()?.map(|key| Ok(key?.cast_into::<PyBytes>()?)).collect::<PyResult<Vec<_>>>()?;
        let mut bytes = bits.to_vec(py)?;
        let mut added = 0;
        for key in keys {
            added += usize::from(set(&mut bytes, slices, murmur3_x64_128(key.as_bytes())));
        }
        bits.copy_from_slice(py, &bytes)?;
        Ok(added)
    })
}

fn has(slices: Slices, bits: &[u8], key: &[u8]) -> bool {
    slices.bits_of(key).all(|(byte, bit)| bits[byte] & bit != 0)
}

/// Return whether all bits of *key* are set in the portable layout. Raises ValueError for a buffer that is too small.
#[pyfunction]
pub fn bloom_probe(py: Python<'_>, bits: &[u8], num_slices: usize, bits_per_slice: usize, key: &[u8]) -> PyResult<bool> {
    guard(py, || Ok(has(slices(bits.len(), num_slices, bits_per_slice)?, bits, key)))
}

/// Return whether all bits of any of *keys* are set: phase 1 for an event that carries them. Raises ValueError.
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

/// The keys of a filter to ship, from the subscriptions that existed when they were gathered.
///
/// Attributes:
///     unkeyed: how many of these have no key.
///     transitions: whether any of them wants to know when a document no longer matches.
///     unknown_passes: whether an event with unknown values has to pass.
///     places: root, mode, names and kind of each place at which an event is checked for keys.
#[pyclass(frozen, module = "streamer._native")]
pub struct GatheredKeys {
    gathered: Gathered,
    places: Vec<PlaceTold>,
}

impl GatheredKeys {
    pub fn new(gathered: Gathered) -> GatheredKeys {
        let row = |(path, mode, kind): &ShippedPlace| {
            let names = path.names.iter().map(|name| name.to_string()).collect();
            (root_name(path.root).into(), mode_name(*mode).into(), names, kind.name())
        };
        GatheredKeys { places: gathered.places.iter().map(row).collect(), gathered }
    }
}

#[pymethods]
impl GatheredKeys {
    fn __len__(&self) -> usize {
        self.gathered.len()
    }

    #[getter]
    fn unkeyed(&self) -> usize {
        self.gathered.unkeyed
    }

    #[getter]
    fn transitions(&self) -> bool {
        self.gathered.transitions
    }

    #[getter]
    fn unknown_passes(&self) -> bool {
        self.gathered.holes_pass
    }

    #[getter]
    fn places(&self) -> Vec<PlaceTold> {
        self.places.clone()
    }

    /// Set the bits of all keys, as `bloom_fill` does of some.
    fn fill(&self, py: Python<'_>, bits: PyBuffer<u8>, num_slices: usize, bits_per_slice: usize) -> PyResult<usize> {
        guard(py, || {
            let slices = slices(bits.len_bytes(), num_slices, bits_per_slice)?;
            let mut bytes = bits.to_vec(py)?;
            let added = gil::released(py, || self.gathered.fill(&mut bytes, slices));
            bits.copy_from_slice(py, &bytes)?;
            Ok(added)
        })
    }
}

/// A filter that was exported, for rows of events; `streamer.bloom.ShippedFilter.probe_arrow`. Thread-safe.
///
/// Args:
///     layout: JSON of `EventLayout.to_dict`.
///     places: root, mode, names and kind of each.
///
/// Raises:
///     ValueError: an unknown place, or fewer bits than slices.
#[pyclass(frozen, module = "streamer._native")]
pub struct ShippedFilter {
    shipped: Shipped,
}

/// A place as the header of a filter has it: root, mode, names and kind.
type PlaceTold = (String, String, Vec<String>, String);

fn place((root, mode, names, kind): &PlaceTold) -> PyResult<ShippedPlace> {
    let root = match root.as_str() {
        "data" => Root::Data,
        "before" => Root::Before,
        "event" => Root::Raw,
        "envelope" => Root::Envelope,
        "type" => Root::Type,
        "topic" => Root::Topic,
        _ => return Err(PyValueError::new_err(format!("unknown root {root:?}"))),
    };
    let mode = match mode.as_str() {
        "value" => Mode::Scalar,
        "leaf" => Mode::AnyLeaf,
        "member" => Mode::Member,
        _ => return Err(PyValueError::new_err(format!("unknown mode {mode:?}"))),
    };
    let kind = KeyKind::parse(kind).ok_or_else(|| PyValueError::new_err(format!("unknown kind {kind:?}")))?;
    Ok((Path::new(root, names), mode, kind))
}

#[pymethods]
impl ShippedFilter {
    #[new]
    #[pyo3(signature = (layout, places, bits, num_slices, bits_per_slice, *, default_tenant, tenant, collection, transitions,
                        max_depth, max_event_bytes))]
    #[allow(clippy::too_many_arguments, reason = "they are members of the header, given by name")]
    fn new(
        py: Python<'_>,
        layout: &[u8],
        places: Vec<PlaceTold>,
        bits: &[u8],
        num_slices: usize,
        bits_per_slice: usize,
        default_tenant: Option<&str>,
        tenant: &str,
        collection: Option<&str>,
        transitions: bool,
        max_depth: usize,
        max_event_bytes: usize,
    ) -> PyResult<ShippedFilter> {
        guard(py, || {
            let reading = EventReading {
                layout: Arc::new(EventLayout::from_json(layout).map_err(PyValueError::new_err)?),
                default_tenant: default_tenant.map(Box::from),
                limits: Limits { max_depth, max_event_bytes, ..Limits::default() },
                tenant: tenant.into(),
                collection: collection.map(Box::from),
                transitions,
            };
            let slices = slices(bits.len(), num_slices, bits_per_slice)?;
            let places = places.iter().map(place).collect::<PyResult<_>>()?;
            let shipped =
                Shipped::new(reading, places, slices, bits).ok_or_else(|| PyValueError::new_err("there are fewer bits"))?;
            Ok(ShippedFilter { shipped })
        })
    }

    /// Return which rows may match.
    ///
    /// Args:
    ///     offsets: the offsets of the rows and of the end of the last, of 8 bytes if *wide*, else of 4.
    ///     data: the bytes from the first row's on.
    ///     valid: Arrow's bits of the rows that are not null, the first of them at bit *first*.
    ///
    /// Returns:
    ///     Arrow's bits of the rows that may match, bad and null ones among them; and the rows, bits not set, of events with
    ///     unknown values, which are left to the caller.
    ///
    /// Raises:
    ///     ValueError: offsets that do not fit the data.
    #[pyo3(signature = (offsets, wide, data, valid, first, tenant, collection))]
    #[allow(clippy::too_many_arguments, reason = "an array of Arrow has as many parts")]
    fn ask_rows<'py>(
        &self,
        py: Python<'py>,
        offsets: PyBuffer<u8>,
        wide: bool,
        data: PyBuffer<u8>,
        valid: Option<PyBuffer<u8>>,
        first: usize,
        tenant: Option<&str>,
        collection: Option<&str>,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<usize>)> {
        guard(py, || {
            let offsets = read_offsets(&offsets.to_vec(py)?, wide)?;
            let data = data.to_vec(py)?;
            let valid = valid.map(|valid| valid.to_vec(py)).transpose()?;
            let rows = offsets.len().saturating_sub(1);
            let start = offsets.first().copied().unwrap_or_default();
            let fits = |end: usize| end.checked_sub(start).is_some_and(|length| length <= data.len());
            let is_sound = offsets.windows(2).all(|pair| pair[0] <= pair[1]) && offsets.last().is_none_or(|end| fits(*end));
            if !is_sound || valid.as_ref().is_some_and(|valid| valid.len() * 8 < first + rows) {
                return Err(PyValueError::new_err("an array whose parts do not fit one another"));
            }
            let is_null = |row: usize| {
                let bit = first + row;
                valid.as_ref().is_some_and(|valid| valid[bit / 8] >> (bit % 8) & 1 == 0)
            };
            let (mut passes, mut open) = (vec![0_u8; rows.div_ceil(8)], Vec::new());
            gil::released(py, || {
                let mut scratch = ShippedScratch::default();
                for row in 0..rows {
                    let event = &data[offsets[row] - start..offsets[row + 1] - start];
                    let answer = if is_null(row) { None } else { self.shipped.ask(event, tenant, collection, &mut scratch).ok() };
                    match answer {
                        Some(ShippedAnswer::Answer(Answer::No)) => {}
                        Some(ShippedAnswer::Unknown) => open.push(row),
                        Some(ShippedAnswer::Answer(Answer::Maybe)) | None => passes[row / 8] |= 1 << (row % 8),
                    }
                }
            });
            Ok((PyBytes::new(py, &passes), open))
        })
    }
}

/// Offsets of Arrow, as little-endian words of 4 or 8 bytes.
fn read_offsets(bytes: &[u8], wide: bool) -> PyResult<Vec<usize>> {
    let read = |word: &[u8]| word.iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)) as usize;
    let size = if wide { 8 } else { 4 };
    if !bytes.len().is_multiple_of(size) {
        return Err(PyValueError::new_err("offsets of another size"));
    }
    Ok(bytes.chunks_exact(size).map(read).collect())
}
