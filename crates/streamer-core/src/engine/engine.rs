//! The engine: one immutable version that readers pin, one writer at a time, a thread that merges.
//!
//! ```text
//!   version 811 ──► partitions ──► segments          a reader loads the version once and reads on in peace
//!   version 812 ──► (copied path) ─► new segment     a writer builds a new one and swaps one pointer
//! ```
//!
//! An engine is a handle on its [`EngineState`], which does everything but writing, and on the thread that merges after
//! a write.
//!
//! Concurrency contract: any number of threads match, each with a [`Scratch`](crate::engine::Scratch) of its own; they
//! are lock-free and never wait, even for a writer. Writers queue. A match that begins after a write has returned sees
//! the write. A write is one version: every match sees it completely or not at all.
//!
//! Cost of a write: a segment for each partition that it touches (a merge of up to 8 like ones every 8th time), and the
//! copied path of the partition map. Large merges are the merging thread's.
//!
//! Rejected: locks around segments (a reader would wait for a build); a version for each partition (a replace across two could
//! be seen half done).

use crate::engine::state::engine_state::EngineState;
use crate::engine::state::options::Options;
use crate::engine::state::record::RecordRef;
use crate::engine::write::changes::{Changes, Selection, WriteMode};
use crate::engine::write::commit::New;
use crate::engine::write::draft::Draft;
use crate::engine::write::merging::Signal;
use crate::error::SubscriptionError;
use crate::fork;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

/// See the head of this file.
pub struct Engine {
    state: Arc<EngineState>,
    signal: Arc<Signal>,
}

impl Deref for Engine {
    type Target = EngineState;

    #[inline]
    fn deref(&self) -> &EngineState {
        &self.state
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.signal.stop();
    }
}

impl Engine {
    /// An engine without subscriptions.
    pub fn new(options: Options) -> Engine {
        Engine { state: Arc::new(EngineState::new(options)), signal: Arc::default() }
    }

    /// Add, replace or apply. Earlier errors (a subscription could not be read) are in *draft*.
    ///
    /// # Errors
    ///
    /// All errors, by position, unless *skip*; then the engine is unchanged.
    pub fn write(&self, draft: Draft, mode: WriteMode, skip: bool) -> Result<Changes, Vec<(usize, SubscriptionError)>> {
        self.write_among(draft, mode, skip, None)
    }

    /// [`write`](Self::write) that replaces and removes only the ids in *among*; another id that exists is an error.
    ///
    /// # Errors
    ///
    /// See [`write`](Self::write).
    pub fn write_among(
        &self,
        draft: Draft,
        mode: WriteMode,
        skip: bool,
        among: Option<&HashSet<String>>,
    ) -> Result<Changes, Vec<(usize, SubscriptionError)>> {
        let _inside = fork::inside();
        let changes = self.state.write_draft(draft, mode, skip, among);
        self.signal.ask(&self.state, changes.as_ref().map_or(0, |changes| changes.added.len() + changes.freed.len()));
        changes
    }

    /// Remove the subscriptions of *selection*.
    pub fn remove(&self, selection: &Selection<'_>) -> Changes {
        let _inside = fork::inside();
        self.state.have_ids();
        let mut writer = self.lock_writer();
        let gone: Vec<(u32, RecordRef)> = self.select(selection);
        let mut changes = Changes::default();
        if !gone.is_empty() {
            let slots = gone.iter().map(|(slot, _)| *slot).collect();
            // A removal builds only merges of existing segments, and segments that do not fit together stay apart.
            if self.commit(&mut writer, slots, New::default()).is_ok() {
                changes.freed = gone.iter().map(|(slot, _)| *slot).collect();
                changes.removed = gone.into_iter().map(|(_, record)| record).collect();
            }
        }
        drop(writer);
        self.signal.ask(&self.state, changes.freed.len());
        changes
    }

    /// Have the thread merge all segments of each partition into one: worth it after many single writes, if no more
    /// follow.
    pub fn settle(&self) {
        self.signal.settle(&self.state);
    }
}
