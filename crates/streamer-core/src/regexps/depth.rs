//! Regular expressions that nest deeper than a thread's stack: read on a stack of their own size.
//!
//! ```text
//!   ((((a*b)*b)*b)*b)*      a frame for each level, in every pass over the tree: counting, compiling, finding literals
//! ```
//!
//! RE2 accepts expressions that nest thousands of levels deep, and so do we; 16 KiB of source bound them. An expression
//! that nests less than [`FLAT`] levels, as those that people write, stays on the current stack.
//!
//! Rejected: a limit of our own, since the reference would have to parse RE2's syntax to have the same.

/// This many levels need no stack of their own.
const FLAT: usize = 200;
/// The most stack of one level; only touched pages become memory.
const BYTES_PER_LEVEL: usize = if cfg!(debug_assertions) { 64 << 10 } else { 16 << 10 };

/// The deepest nesting for `regex-syntax`: deeper than any source.
pub(super) const MAX_LEVELS: u32 = 1 << 20;

/// How deep the brackets of an expression in the syntax of `regex-syntax` nest; ours has no others, literals are escaped.
fn levels(expression: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in expression.bytes() {
        match byte {
            b'(' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Do *work*, which recurses over the tree of *expression*.
///
/// # Errors
///
/// The errors of *work*; or there is no memory for so large a stack.
pub fn with_stack_for<T: Send>(expression: &str, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let levels = levels(expression);
    if levels <= FLAT {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size((levels + FLAT) * BYTES_PER_LEVEL);
        match thread.spawn_scoped(scope, work) {
            Ok(worker) => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(format!("it nests {levels} levels deep: {error}")),
        }
    })
}
