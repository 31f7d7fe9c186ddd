//! What one thread reuses from event to event.

use crate::engine::failures::CelError;
use crate::engine::output::Output;
use crate::engine::paths::Views;
use crate::engine::programs::CelScratch;
use crate::engine::segment::SegmentScratch;
use crate::engine::state::EngineState;
use crate::engine::telemetry::Tally;
use crate::engine::values::ValuesScratch;
use crate::flatten::Flattener;

/// What one thread reuses from event to event.
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

/// An event of so many bytes leaves no memory behind: most of its size again may be in what is reused.
const LONG: usize = 1 << 18;
/// After one of so many bytes what is free goes back to the system at once: the allocator keeps it until something else is allocated.
const HUGE: usize = 1 << 22;

impl Scratch {
    /// Give memory back after an event of so many bytes. What was found stays.
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

    /// Errors of CEL of the last event that are to be told, also where [`Engine::stays`] was asked.
    pub fn errors(&self) -> &[CelError] {
        &self.output.errors
    }
}

/// What one thread reuses for old sides.
#[derive(Debug, Default)]
pub(super) struct OldScratch {
    pub flattener: Flattener,
    pub values: ValuesScratch,
    /// Slots that match.
    pub found: Vec<u32>,
    /// Slots, with their flags, of what matches but for its CEL part.
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
