//! Forks: a child process has a copy of its parent's memory, but only the thread that forked.
//!
//! ```text
//!   forking thread   before ─── waits until no thread is inside ─── fork ─── after, in either process
//!   other threads    inside(): a lock is locked, a cell is made        └ a thread that enters waits ┘
//! ```
//!
//! Invariant: while the process forks no other thread is inside, so in the child every lock is free and every cell is
//! whole. Every lock and every cell of this crate that may be made while others match is reached inside.
//!
//! Only threads that have [released](detached) the host's lock (Python's GIL) count: a thread needs it to fork, so all
//! others cannot be at work meanwhile, and must not wait for the fork.
//!
//! Cost: two additions to one counter. Rejected: to lock every lock before a fork (in which order?); a gate with a lock
//! of its own, which may be locked in the child; locks that the child replaces (the data under them may be half
//! changed).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Threads that are inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread is about to fork.
static IS_FORKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_DETACHED: Cell<bool> = const { Cell::new(false) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Forks that this thread is about to make: a handler of a signal may fork in the midst of one.
    static FORKS: Cell<usize> = const { Cell::new(0) };
}

fn wait_while(is_so: impl Fn() -> bool) {
    let mut pause = Duration::from_micros(10);
    while is_so() {
        thread::sleep(pause);
        pause = Duration::from_millis(1).min(2 * pause);
    }
}

/// Sets the thread's state, and restores the previous one at the end.
struct Set(bool);

impl Set {
    fn new(is_detached: bool) -> Set {
        Set(IS_DETACHED.replace(is_detached))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        IS_DETACHED.set(self.0);
    }
}

/// Run *act*, during which another thread of the host may fork.
pub fn detached<T>(act: impl FnOnce() -> T) -> T {
    let _set = Set::new(true);
    act()
}

/// Run *act* within [`detached`], with the host locked again: other threads cannot fork meanwhile.
pub fn attached<T>(act: impl FnOnce() -> T) -> T {
    let _set = Set::new(false);
    act()
}

/// Whether another thread may fork now.
pub fn is_detached() -> bool {
    IS_DETACHED.get()
}

/// Keeps forks waiting until it is dropped.
#[must_use]
pub struct Inside {
    is_counted: bool,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.is_counted {
            DEPTH.set(DEPTH.get() - 1);
            if DEPTH.get() == 0 {
                INSIDE.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

/// Keep forks waiting; wait for one that is under way.
pub fn inside() -> Inside {
    let is_counted = is_detached();
    if is_counted {
        if DEPTH.get() == 0 {
            enter();
        }
        DEPTH.set(DEPTH.get() + 1);
    }
    Inside { is_counted, _thread: PhantomData }
}

fn enter() {
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        // A thread that is about to fork would wait for itself.
        if !IS_FORKING.load(Ordering::SeqCst) || FORKS.get() > 0 {
            return;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        wait_while(|| IS_FORKING.load(Ordering::SeqCst));
    }
}

/// The value of *cell*, which is made inside if the cell is empty.
pub fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    match cell.get() {
        Some(made) => made,
        None => {
            let _inside = inside();
            cell.get_or_init(make)
        }
    }
}

/// Wait until no other thread is inside, and keep all out until [`after`] or [`after_in_child`]. Call it with the GIL
/// released, since the threads inside may wait for it.
pub fn before() {
    FORKS.set(FORKS.get() + 1);
    if FORKS.get() == 1 {
        wait_while(|| IS_FORKING.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_err());
        let own = usize::from(DEPTH.get() > 0);
        wait_while(|| INSIDE.load(Ordering::SeqCst) > own);
    }
}

/// Let the others in again, after a fork in the parent.
pub fn after() {
    FORKS.set(FORKS.get().saturating_sub(1));
    if FORKS.get() == 0 {
        IS_FORKING.store(false, Ordering::SeqCst);
    }
}

/// Reset the state after a fork in the child: the threads that waited to enter do not exist here.
pub fn after_in_child() {
    INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    after();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// This is one test, since all threads of a process share the state.
    #[test]
    fn nobody_else_is_inside_while_a_thread_is_about_to_fork() {
        let (entered, has_entered) = channel();
        let (leave, may_leave) = channel::<()>();
        let inside_of_another = AtomicBool::new(false);
        thread::scope(|scope| {
            let inside_of_another = &inside_of_another;
            scope.spawn(move || {
                detached(|| {
                    let _outer = inside();
                    let _inner = inside();
                    inside_of_another.store(true, Ordering::SeqCst);
                    entered.send(()).unwrap();
                    may_leave.recv().unwrap();
                    inside_of_another.store(false, Ordering::SeqCst);
                });
            });
            has_entered.recv().unwrap();
            let late = scope.spawn(move || {
                before();
                assert!(!inside_of_another.load(Ordering::SeqCst));
                // A thread that is about to fork continues, even if it comes to a lock itself.
                detached(|| drop((inside(), once(&OnceLock::new(), || 1))));
                before();
                after();
                assert!(IS_FORKING.load(Ordering::SeqCst));
                after_in_child();
            });
            leave.send(()).unwrap();
            late.join().unwrap();
        });
        // A thread that has the host locked is never counted.
        let _held = inside();
        assert!(!is_detached() && DEPTH.get() == 0);
        detached(|| attached(|| assert!(!is_detached())));
    }
}
