//! The size of a block of memory: an allocator rounds up.

use std::sync::OnceLock;

/// How many bytes the allocator uses for a block of a size, if the process has set it.
pub static TAKES: OnceLock<fn(usize) -> usize> = OnceLock::new();

/// How many bytes a block of *bytes* uses.
pub(crate) fn block(bytes: usize) -> usize {
    TAKES.get().map_or(bytes, |takes| takes(bytes))
}
