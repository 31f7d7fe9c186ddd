//! May a thread that works long on one event continue?
//!
//! ```text
//!   programs, searches, candidates ─ units ─► every 16,384 the clock is read ─► every 20 ms the host is called ─► no: Interrupted
//! ```
//!
//! An event as a whole has no budget (semantics.md section 11), only each program, search and pattern has one, so an
//! event with many of them may take minutes. Two calls of `spend` are at most the work of one of them apart.
//!
//! Cost: a subtraction in the memory of the thread for each program, search or list of candidates; free for a short
//! event.
//!
//! Rejected: an error that each loop of an index returns. An interrupted match unwinds, as a fault of a file does, and
//! drops the thread's scratch.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

/// The question to the host: continue? The host may take long to answer, and match other events meanwhile.
pub type Ask = fn() -> bool;

/// The host answered no: a match unwinds with this.
#[derive(Debug)]
pub struct Interrupted;

/// Units between two looks at the clock; one takes about 100 ns.
const SLICE: usize = 1 << 14;
/// The time between two questions.
const SPAN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Watch {
    ask: Option<Ask>,
    /// The time of the last question, or of the first reading of the clock.
    last: Option<Instant>,
}

thread_local! {
    /// Units until the clock is read; separate, since each `spend` writes it.
    static REMAINING: Cell<usize> = const { Cell::new(SLICE) };
    static WATCH: Cell<Watch> = const { Cell::new(Watch { ask: None, last: None }) };
}

/// Begin with an event.
#[inline]
pub(crate) fn begin(ask: Option<Ask>) {
    REMAINING.set(SLICE);
    WATCH.set(Watch { ask, last: None });
}

/// Count work that is about to be done, or was done.
///
/// # Panics
///
/// With [`Interrupted`], a panic that is not reported, if the host answered no.
#[inline]
pub(crate) fn spend(units: usize) {
    match REMAINING.get().checked_sub(units) {
        Some(remaining) => REMAINING.set(remaining),
        None => look(),
    }
}

#[cold]
fn look() {
    let now = Instant::now();
    let watch = WATCH.get();
    let last = watch.last.unwrap_or(now);
    REMAINING.set(SLICE);
    WATCH.set(Watch { last: Some(last), ..watch });
    if let Some(ask) = watch.ask.filter(|_| now - last >= SPAN) {
        let goes_on = ask();
        REMAINING.set(SLICE);
        WATCH.set(Watch { last: Some(Instant::now()), ..watch });
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
        // Another event, in a host without a question.
        begin(None);
        (0..100).for_each(|_| spend(SLICE));
    }
}
