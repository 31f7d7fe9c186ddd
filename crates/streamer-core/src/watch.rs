//! May a thread go on that works on one event for long?
//!
//! ```text
//!   programs, searches, candidates ─ units ─► each 16,384 the clock is read ─► each 20 ms the host is asked ─► no: Interrupted
//! ```
//!
//! There is no budget for an event as a whole (semantics.md section 11), only for each program, search and pattern, so an event that
//! meets many of them may take minutes. Between two calls of `spend` lies the work of one of them at most.
//!
//! Cost: a subtraction in the memory of the thread for each program, search or list of candidates; nothing for an event that is short.
//!
//! Rejected: an error that each loop of an index hands up. What stops here unwinds, as a fault of a file does, and takes the thread's
//! scratch with it.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

/// What the host is asked: whether to go on. It may do so at length, and match other events.
pub type Ask = fn() -> bool;

/// The host said no: what a match unwinds with.
#[derive(Debug)]
pub struct Interrupted;

/// Units between two looks at the clock; one takes about 100 ns.
const SLICE: usize = 1 << 14;
/// So long nobody asks.
const SPAN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Watch {
    ask: Option<Ask>,
    /// When the host was asked last, or the clock read first.
    asked: Option<Instant>,
}

thread_local! {
    /// Units until the clock is read; apart, since each `spend` writes it.
    static LEFT: Cell<usize> = const { Cell::new(SLICE) };
    static WATCH: Cell<Watch> = const { Cell::new(Watch { ask: None, asked: None }) };
}

/// Begin with an event.
#[inline]
pub(crate) fn begin(ask: Option<Ask>) {
    LEFT.set(SLICE);
    WATCH.set(Watch { ask, asked: None });
}

/// Count work that is about to be done, or was done.
///
/// # Panics
///
/// With [`Interrupted`], which is no panic that is told of, where the host was asked and said no.
#[inline]
pub(crate) fn spend(units: usize) {
    match LEFT.get().checked_sub(units) {
        Some(left) => LEFT.set(left),
        None => look(),
    }
}

#[cold]
fn look() {
    let now = Instant::now();
    let watch = WATCH.get();
    let asked = watch.asked.unwrap_or(now);
    LEFT.set(SLICE);
    WATCH.set(Watch { asked: Some(asked), ..watch });
    if let Some(ask) = watch.ask.filter(|_| now - asked >= SPAN) {
        let goes_on = ask();
        LEFT.set(SLICE);
        WATCH.set(Watch { asked: Some(Instant::now()), ..watch });
        if !goes_on {
            resume_unwind(Box::new(Interrupted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn whoever_works_for_long_is_asked_and_unwinds_when_told_to() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        begin(Some(|| ASKED.fetch_add(1, Ordering::Relaxed) < 2));
        let stopped = catch_unwind(|| (0..u32::MAX).for_each(|_| spend(SLICE)));
        assert!(stopped.unwrap_err().is::<Interrupted>());
        assert_eq!(ASKED.load(Ordering::Relaxed), 3);
        // Another event, in a host that asks nothing.
        begin(None);
        (0..100).for_each(|_| spend(SLICE));
    }
}
