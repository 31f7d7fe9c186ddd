//! The searches that a thread has refused because they would exceed a budget.

use std::cell::{Cell, RefCell};

/// How often, and the last time in words.
///
/// Kept for the thread: returning it from every condition that may be refused would change all of them for only this.
#[derive(Debug, Default)]
pub struct RefusedSearches {
    count: Cell<u32>,
    last: RefCell<String>,
}

impl RefusedSearches {
    /// A count of zero.
    pub const fn none() -> RefusedSearches {
        RefusedSearches { count: Cell::new(0), last: RefCell::new(String::new()) }
    }

    /// Count *more* refusals; *detail* describes the last.
    #[cold]
    pub fn add(&self, more: u32, detail: String) {
        self.count.set(self.count.get().saturating_add(more));
        self.last.replace(detail);
    }

    /// How many there were since this was called last, and the last in words.
    #[inline]
    pub fn take(&self) -> Option<(u32, String)> {
        match self.count.take() {
            0 => None,
            count => Some((count, self.last.take())),
        }
    }
}
