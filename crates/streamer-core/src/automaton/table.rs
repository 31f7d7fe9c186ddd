//! A hash table that is built once and only read after: from a hash to the candidates that have it.
//!
//! ```text
//!   hash ─┬─ low bits  ──► first slot, then the next ones until an empty one
//!         └─ high half ──► tag, compared before anything else is looked at
//!   slots  [tag value] [  empty  ] [tag value] [tag value] ...
//! ```
//!
//! The table does not store keys. The caller compares the key of each candidate, so a collision costs time and never
//! gives a wrong answer.
//!
//! Invariant: at least a third of the slots is empty, so a probe ends.
//!
//! Cost: 8 bytes a slot, 12 to 24 an entry; a miss is one cache line in nearly all cases.
//!
//! Rejected: a table with groups of control bytes (`hashbrown`), which must keep the whole hash or the key to be filled,
//! and takes two cache lines for a hit in a table that is not in cache.

use crate::map::{Array, Packed};
use crate::prefetch::prefetch;
use crate::stored::{ImageReader, ImageWriter};
use bytemuck::{Pod, Zeroable};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Table {
    slots: Array<Slot>,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Slot {
    tag: u32,
    value: u32,
}

/// A slot without entry; so the value `u32::MAX` cannot be stored.
const EMPTY: u32 = u32::MAX;

impl Table {
    /// Build from hashes and values, each below `u32::MAX`. Hashes may repeat.
    pub fn new(entries: &[(u64, u32)]) -> Table {
        if entries.is_empty() {
            return Table::default();
        }
        let size = (entries.len() + entries.len() / 2 + 1).next_power_of_two();
        let mut slots = vec![Slot { tag: 0, value: EMPTY }; size];
        for &(hash, value) in entries {
            let mut at = hash as usize & (size - 1);
            while slots[at].value != EMPTY {
                at = (at + 1) & (size - 1);
            }
            slots[at] = Slot { tag: (hash >> 32) as u32, value };
        }
        Table { slots: slots.into() }
    }

    /// Write it into an image.
    pub(crate) fn write(&self, out: &mut ImageWriter) {
        out.array(&self.slots);
    }

    /// Read one in which every search ends.
    pub(crate) fn read(from: &mut ImageReader<'_>) -> Option<Table> {
        let slots: Array<Slot> = from.array()?;
        let is_empty = |slot: &Slot| slot.value == EMPTY;
        let ends = slots.is_empty() || (slots.len().is_power_of_two() && slots.iter().any(is_empty));
        ends.then_some(Table { slots })
    }

    /// Whether all values are below *end*.
    pub(crate) fn is_below(&self, end: usize) -> bool {
        self.slots.iter().all(|slot| slot.value == EMPTY || (slot.value as usize) < end)
    }

    /// The first value under *hash* that *is_it* accepts.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let (mask, tag) = (self.slots.len() - 1, (hash >> 32) as u32);
        let mut at = hash as usize & mask;
        loop {
            let Slot { tag: other, value } = self.slots[at];
            if value == EMPTY {
                return None;
            }
            if other == tag && is_it(value) {
                return Some(value);
            }
            at = (at + 1) & mask;
        }
    }

    /// Prefetch the line at which a search for *hash* begins.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, hash as usize & self.slots.len().wrapping_sub(1));
    }

    /// Its array.
    pub(crate) fn array(&mut self) -> &mut dyn Packed {
        &mut self.slots
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_nothing_else_even_where_hashes_collide() {
        let entries: Vec<(u64, u32)> = (0..5000_u32).map(|n| (u64::from(n % 700) << 30, n)).collect();
        let table = Table::new(&entries);
        for &(hash, value) in &entries {
            assert_eq!(table.find(hash, |found| found == value), Some(value));
        }
        assert_eq!(table.find(701 << 30, |_| true), None);
        assert_eq!(Table::new(&[]).find(0, |_| true), None);
    }
}
