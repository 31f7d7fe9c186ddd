//! Which subscriptions of a segment were removed, and from which version of the engine on.
//!
//! ```text
//!   bits       0 0 1 0 0 1 0 ...       125 kB for 1,000,000: nearly every query ends in these, which a cache can store
//!   versions   . . 812 . . 840 .       looked at only while a removal is newer than the reader
//!   newest     840
//! ```
//!
//! Invariant: a reader that sees a bit sees its version, and a `newest` that is at least as new. So for a reader of a
//! version from `newest` on every bit is a removal that counts; an older one compares.
//!
//! Cost: a bit and 8 bytes a subscription. Of 1,000,000, a quarter of them removed, an event with 1,750 matches takes 1 us more
//! than before (`python -m benchmarks.core removed`).
//!
//! Rejected: only versions, a load that waits for memory for each match (11 us more there); bits with a branch for
//! each, which is mispredicted for every fourth (6 us).

use std::sync::atomic::{AtomicU64, Ordering};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Tombstones {
    newest: AtomicU64,
    bits: Box<[AtomicU64]>,
    versions: Box<[AtomicU64]>,
}

impl Tombstones {
    /// For this many subscriptions, all alive.
    pub fn new(subscriptions: usize) -> Tombstones {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Tombstones { newest: AtomicU64::new(0), bits: zeros(subscriptions.div_ceil(64)), versions: zeros(subscriptions) }
    }

    /// Whether a subscription is gone for a reader of *version*.
    #[inline]
    pub fn is_gone(&self, at: u32, version: u64) -> bool {
        self.bit(at) && (self.is_newest(version) || (1..=version).contains(&self.removed_at(at)))
    }

    /// Append the *slots* of those of *candidates* that are there for a reader of *version*.
    pub fn extend_with_live(&self, candidates: &[u32], version: u64, slots: &[u32], out: &mut Vec<u32>) {
        let start = out.len();
        // Without a branch: whether one is gone cannot be foreseen.
        out.resize(start + candidates.len(), 0);
        let mut end = start;
        for at in candidates {
            out[end] = slots[*at as usize];
            end += usize::from(!self.bit(*at));
        }
        out.truncate(end);
        if !self.is_newest(version) {
            out.truncate(start);
            out.extend(candidates.iter().filter(|at| !self.is_gone(**at, version)).map(|at| slots[*at as usize]));
        }
    }

    #[inline]
    fn bit(&self, at: u32) -> bool {
        self.bits[at as usize / 64].load(Ordering::Acquire) >> (at % 64) & 1 != 0
    }

    /// Whether every bit that a reader of *version* has seen before this call counts.
    #[inline]
    fn is_newest(&self, version: u64) -> bool {
        self.newest.load(Ordering::Relaxed) <= version
    }

    /// From which version on a subscription is gone; 0 for one that is there.
    pub fn removed_at(&self, at: u32) -> u64 {
        self.versions[at as usize].load(Ordering::Relaxed)
    }

    /// Mark a subscription as removed from *version* on; return false if it was marked already.
    pub fn set(&self, at: u32, version: u64) -> bool {
        let was = self.versions[at as usize].swap(version, Ordering::Relaxed);
        self.newest.fetch_max(version, Ordering::Relaxed);
        self.bits[at as usize / 64].fetch_or(1 << (at % 64), Ordering::Release);
        was == 0
    }

    /// Remove the mark of a version that is not published; return false if there was none.
    pub fn clear(&self, at: u32) -> bool {
        self.bits[at as usize / 64].fetch_and(!(1 << (at % 64)), Ordering::Relaxed);
        self.versions[at as usize].swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_heeds_what_was_removed_up_to_its_version() {
        let tombstones = Tombstones::new(130);
        assert!(tombstones.set(64, 5) && tombstones.set(129, 7) && !tombstones.set(129, 7));
        let all: Vec<u32> = (0..130).collect();
        let gone = |version| {
            let mut live = vec![1000];
            tombstones.extend_with_live(&all, version, &all, &mut live);
            let (gone, there): (Vec<u32>, Vec<u32>) = all.iter().partition(|at| tombstones.is_gone(**at, version));
            assert_eq!(live, [vec![1000], there].concat());
            gone
        };
        assert_eq!([4, 5, 6, 7, 8].map(gone), [vec![], vec![64], vec![64], vec![64, 129], vec![64, 129]]);
        assert!(tombstones.clear(129) && !tombstones.clear(129));
        assert_eq!([6, 7].map(gone), [vec![64], vec![64]]);
        assert_eq!((tombstones.removed_at(64), tombstones.removed_at(129)), (5, 0));
    }
}
