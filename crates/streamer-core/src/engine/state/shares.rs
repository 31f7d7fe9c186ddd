//! The share of each partition in the work: measured on a sample, so that the other events do not pay for it.
//!
//! ```text
//!   event of the sample ─► its up to four partitions ─► candidates and matches of each ─► Share of the partition
//! ```
//!
//! Invariant: an event counts for each partition that it saw, a match for the partition of its subscription.
//!
//! Cost: 64 bytes a partition, for at most [`MOST`] of them; a branch a segment for an event that is not of the sample.
//!
//! Rejected: to count all events, which are two additions to memory that all threads write.

use crate::engine::index::output::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most partitions that are counted separately: the first ones.
pub const MOST: usize = 4096;

/// The counts of one partition.
#[derive(Debug)]
#[repr(align(64))]
pub struct Share {
    events: AtomicU64,
    candidates: AtomicU64,
    matches: AtomicU64,
    /// As many of these are there as shares.
    _one: Arc<()>,
}

impl Share {
    /// A new share, if there are not too many of *all*.
    pub(in crate::engine) fn within(all: &Arc<()>) -> Option<Arc<Share>> {
        (Arc::strong_count(all) <= MOST).then(|| {
            let zero = AtomicU64::default;
            Arc::new(Share { events: zero(), candidates: zero(), matches: zero(), _one: all.clone() })
        })
    }

    /// Events of the sample that saw the partition, and the candidates and matches of these there.
    pub fn counts(&self) -> [u64; 3] {
        [&self.events, &self.candidates, &self.matches].map(|counter| counter.load(Ordering::Relaxed))
    }
}

/// The counts of one event in each of its partitions.
#[derive(Debug, Default)]
pub(in crate::engine) struct Shares {
    candidates: [u64; 4],
    matches: [u64; 4],
    /// The end of the candidates for CEL of each.
    cel: [usize; 4],
    before: (u64, usize),
}

impl Shares {
    /// A segment of partition *at* was searched.
    pub fn searched(&mut self, at: usize, output: &Output) {
        let after = (output.candidates + output.listed, output.certain.len());
        self.candidates[at] += after.0 - self.before.0;
        self.matches[at] += (after.1 - self.before.1) as u64;
        self.cel[at] = output.candidates_for_cel.len();
        self.before = after;
    }

    /// The candidate for CEL at this position matches.
    pub fn evaluated(&mut self, position: usize) {
        if let Some(at) = self.cel.iter().position(|end| position < *end) {
            self.matches[at] += 1;
        }
    }

    /// Count one more match of partition *at*.
    pub fn matched(&mut self, at: usize) {
        self.matches[at] += 1;
    }

    /// Add them to the totals.
    pub fn settle<'s>(&self, shares: impl Iterator<Item = Option<&'s Share>>) {
        for (at, share) in shares.enumerate() {
            if let Some(share) = share {
                share.events.fetch_add(1, Ordering::Relaxed);
                share.candidates.fetch_add(self.candidates[at], Ordering::Relaxed);
                share.matches.fetch_add(self.matches[at], Ordering::Relaxed);
            }
        }
    }
}
