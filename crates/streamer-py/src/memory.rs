//! Memory that a large change has left free goes back to the system.
//!
//! The allocator gives free pages back when it next allocates. After a large change nothing else may come for hours, and what was
//! parsed for it would stay: as much again as is held.
//!
//! The one `unsafe` here is a call of the allocator that Rust's interface has no name for.

use crate::gil;
use pyo3::Python;

/// A change of so many subscriptions leaves megabytes free.
const MANY: usize = 10_000;

/// Give back what a change of so many subscriptions may have left free.
pub fn after(py: Python<'_>, subscriptions: usize) {
    if subscriptions >= MANY {
        gil::released(py, give_back);
    }
}

/// Give back what is free. Cost: a walk over the pages of the allocator, some milliseconds a gigabyte.
#[allow(unsafe_code, reason = "see the head of this file")]
pub fn give_back() {
    // SAFETY: it may be called by any thread at any time, takes no pointer, and moves nothing that is held.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
