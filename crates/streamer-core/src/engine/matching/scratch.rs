//! Buffers that one thread reuses between events.

use crate::engine::index::output::Output;
use crate::engine::index::segment::SegmentScratch;
use crate::engine::matching::programs::CelScratch;
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::telemetry::Tally;
use crate::engine::verify::failures::CelError;
use crate::engine::verify::paths::Views;
use crate::engine::verify::values::ValuesScratch;
use crate::flatten::Flattener;

/// Buffers that one thread reuses between events.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) flattener: Flattener,
    pub(super) views: Views,
    pub(super) values: ValuesScratch,
    pub(super) segment: SegmentScratch,
    pub(super) output: Output,
    pub(super) old: OldScratch,
    pub(super) tally: Tally,
    pub(super) cel: CelScratch,
}

/// After an event of at least this many bytes the scratch is freed: its buffers may have most of that size again.
const LONG: usize = 1 << 18;
/// After an event of at least this many bytes, free memory goes back to the system at once: the allocator would keep it
/// until the next allocation.
const HUGE: usize = 1 << 22;

impl Scratch {
    /// Free memory after an event of *bytes* bytes. The result stays.
    #[inline]
    pub(super) fn release(&mut self, bytes: usize, give_back: Option<fn()>) {
        if bytes >= LONG {
            self.forget();
            if let Some(give_back) = give_back.filter(|_| bytes >= HUGE) {
                give_back();
            }
        }
    }

    #[cold]
    fn forget(&mut self) {
        let Scratch { flattener, values, segment, old, cel, .. } = self;
        (*flattener, *values, *segment, *cel) = Default::default();
        (old.flattener, old.values) = Default::default();
    }

    /// Errors of CEL to report for the last event, also after a call of [`Engine::stays`].
    pub fn errors(&self) -> &[CelError] {
        &self.output.errors
    }
}

/// Buffers that one thread reuses for old sides.
#[derive(Debug, Default)]
pub(super) struct OldScratch {
    pub flattener: Flattener,
    pub values: ValuesScratch,
    /// Slots that match.
    pub slots: Vec<u32>,
    /// Slots, with their flags, that match if their CEL part is true.
    pub candidates: Vec<(u32, u8)>,
    /// Slots of subscriptions with `transitions` that want the new side.
    pub stays: Vec<u32>,
}

impl EngineState {
    /// A scratch for this engine, which takes no lock when it is first used.
    pub fn scratch(&self) -> Scratch {
        Scratch { tally: self.telemetry.tally(), ..Scratch::default() }
    }
}
