//! What a block of memory takes: an allocator rounds up.

use std::sync::OnceLock;

/// How many bytes the allocator takes for a block of so many, where the process has said.
pub static TAKES: OnceLock<fn(usize) -> usize> = OnceLock::new();

/// How many bytes a block of so many takes.
pub(crate) fn block(bytes: usize) -> usize {
    TAKES.get().map_or(bytes, |takes| takes(bytes))
}
