//! Blocks of work for several threads, with the GIL released.
//!
//! ```text
//!   blocks  0 1 2 3 4 5 6 7 ...     each thread processes the next free one, until the last, or one thread stops
//!   caller  0   2   3     6         and looks at pending signals in between
//!   thread    1       4 5   7
//!   result  0 1 2 3 4 5 6 7 ...     in order
//! ```
//!
//! Invariant: a signal that raises, an interrupt out of a function of Python, or a panic in any thread, stops all of
//! them at their next [`Pulse::beat`], or within an event that takes long, and the call ends with it. Every thread ends
//! before the call.
//!
//! Cost: some 20 µs for each thread in addition to the caller. Rejected: a share of the work for each thread from the
//! beginning (one that meets the costly events lets the others wait); a pool (its threads would be missing after a
//! fork).

use crate::gil;
use crate::interrupts::{self, InTeam};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use streamer_core::engine::Scratch;
use streamer_core::fork;
use streamer_core::watch::Interrupted;

/// The time that the caller works before it checks for signals again.
const SPAN: Duration = Duration::from_millis(20);
/// The clock is read at least after this many beats, since the next event may take a thousand times as long as the
/// last.
const MOST_BEATS: u32 = 8;

/// The most threads of a call.
pub const MOST_THREADS: usize = 256;

/// Signals whether a thread continues.
pub struct Pulse<'s> {
    stop: &'s AtomicBool,
    signals: Option<Signals>,
}

/// The signals that the caller's thread watches.
struct Signals {
    raised: Option<PyErr>,
    looked: Instant,
    /// When the clock was read last, and how many beats until it is read next.
    read: Instant,
    beats: u32,
    wait: u32,
}

impl Signals {
    fn new() -> Signals {
        let now = Instant::now();
        Signals { raised: None, looked: now, read: now, beats: 1, wait: 1 }
    }

    /// Whether no handler has raised.
    fn look(&mut self) -> bool {
        if self.raised.is_none() {
            self.raised = gil::look_for_signals().err();
        }
        self.looked = Instant::now();
        self.raised.is_none()
    }

    #[cold]
    fn beat(&mut self) -> bool {
        let now = Instant::now();
        // As many beats as fit into a quarter of a span, as the last ones went, but not many more than the last time.
        let each = (now - self.read).as_nanos().max(1) / u128::from(self.beats);
        let fitting = (SPAN.as_nanos() / 4 / each.max(1)).clamp(1, u128::from(MOST_BEATS)) as u32;
        self.beats = fitting.min(2 * self.beats);
        self.read = now;
        self.wait = self.beats;
        now - self.looked < SPAN || self.look()
    }
}

impl Pulse<'_> {
    /// Whether to continue; called before each event.
    #[inline]
    pub fn beat(&mut self) -> bool {
        if interrupts::has_raised() {
            self.stop.store(true, Ordering::Relaxed);
        }
        if let Some(signals) = &mut self.signals {
            signals.wait -= 1;
            if signals.wait == 0 && !signals.beat() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Stops all threads if its own thread panics.
struct Alarm<'s>(&'s AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Counts a thread as at work until it ends.
struct AtWork<'s> {
    working: &'s AtomicUsize,
    caller: &'s Thread,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.working.fetch_sub(1, Ordering::Release);
        self.caller.unpark();
    }
}

/// Do *work* for each of the blocks 0 to *blocks* - 1, in as many threads as there are scratches; the results in their order.
///
/// # Errors
///
/// An exception of a signal handler, or of a function of Python that evaluates CEL. A panic continues here.
pub fn parallel<T: Send>(
    py: Python<'_>,
    blocks: usize,
    scratches: &mut [Box<Scratch>],
    work: impl Fn(usize, &mut Scratch, &mut Pulse<'_>) -> T + Sync,
) -> PyResult<Vec<T>> {
    let Some((own, others)) = scratches.split_first_mut() else { return Ok(Vec::new()) };
    let (next, stop, working) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)), AtomicUsize::new(others.len()));
    let caller = thread::current();
    let run = |scratch: &mut Scratch, pulse: &mut Pulse<'_>| {
        let _alarm = Alarm(&stop);
        let mut done = Vec::new();
        let _in_team = InTeam::new(&stop, pulse.signals.is_some());
        while !pulse.stop.load(Ordering::Relaxed) {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| work(block, scratch, pulse))) {
                Ok(result) => done.push((block, result)),
                // The scratch is not used again: all stop.
                Err(panic) if panic.is::<Interrupted>() => stop.store(true, Ordering::Relaxed),
                Err(panic) => resume_unwind(panic),
            }
        }
        (done, interrupts::raised())
    };
    let (mut done, raised) = gil::released(py, || {
        thread::scope(|scope| {
            let start = |scratch| {
                let at_work = AtWork { working: &working, caller: &caller };
                let (run, stop) = (&run, &stop);
                let act = move || {
                    let _at_work = at_work;
                    fork::detached(|| run(scratch, &mut Pulse { stop, signals: None }))
                };
                // If the system cannot start another thread, the existing ones do the work.
                thread::Builder::new().spawn_scoped(scope, act).ok()
            };
            let others: Vec<_> = others.iter_mut().map(|scratch| &mut **scratch).filter_map(start).collect();
            let _lent = gil::Lent::to(others.len());
            let mut pulse = Pulse { stop: &stop, signals: Some(Signals::new()) };
            let (mut done, mut raised) = run(own, &mut pulse);
            if raised.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            while working.load(Ordering::Acquire) > 0 {
                thread::park_timeout(SPAN);
                let is_good = pulse.signals.as_mut().is_none_or(|signals| signals.looked.elapsed() < SPAN || signals.look());
                if !is_good {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            for other in others {
                let (more, its) = other.join().unwrap_or_else(|panic| resume_unwind(panic));
                done.extend(more);
                raised = raised.or(its);
            }
            (done, raised.or(pulse.signals.and_then(|signals| signals.raised)))
        })
    });
    match raised {
        Some(error) => Err(error),
        None => {
            done.sort_unstable_by_key(|(block, _)| *block);
            Ok(done.into_iter().map(|(_, result)| result).collect())
        }
    }
}
