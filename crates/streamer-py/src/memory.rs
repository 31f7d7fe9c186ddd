//! Memory that a large change has left free goes back to the system.
//!
//! The allocator returns free pages when it next allocates. After a large change the next allocation may be hours away,
//! and the memory of its parsing would stay: as much again as the engine needs. The thread that merges returns the
//! memory that many small changes free.
//!
//! Blocks are mimalloc's: with huge pages and less scatter than the C library's, an event among 1,000,000 subscriptions takes 25 % less.
//!
//! Rejected: the crate `mimalloc`. It requests each block with its alignment, for which mimalloc uses a larger one if
//! the size is not a power of two: 112 bytes for 96, 64 for 48.
//!
//! The `unsafe` here are calls of the allocator.

use crate::gil;
use libmimalloc_sys as mi;
use pyo3::Python;
use std::alloc::{GlobalAlloc, Layout};
use streamer_core::engine::MANY;
use streamer_core::heap;

/// Whether a change of this many subscriptions leaves megabytes free.
pub fn is_large(subscriptions: usize) -> bool {
    subscriptions >= MANY
}

/// Return the memory that reading this many subscriptions may have left free.
pub fn after(py: Python<'_>, subscriptions: usize) {
    if is_large(subscriptions) {
        gil::released(py, give_back);
    }
}

/// Return free memory to the system. Cost: a walk over the pages of the allocator, some milliseconds a gigabyte.
#[allow(unsafe_code, reason = "see the head of this file")]
pub fn give_back() {
    // SAFETY: any thread may call it at any time, it has no pointer argument, and it does not move live blocks.
    unsafe { mi::mi_collect(true) }
}

/// The unit in which mimalloc divides its memory. A block of more than `MOST_SHARED` bytes has slices to itself, and
/// one more.
const SLICE: usize = 64 << 10;
const MOST_SHARED: usize = 512 << 10;

/// Set how the core computes the size of blocks.
#[allow(unsafe_code, reason = "see the head of this file")]
pub fn begin() {
    _ = heap::TAKES.set(|bytes| match bytes {
        0 => 0,
        // SAFETY: it accepts any size, and uses only this argument.
        1..=MOST_SHARED => unsafe { mi::mi_good_size(bytes) },
        _ => bytes.next_multiple_of(SLICE) + SLICE,
    });
}

/// mimalloc through Rust's interface.
pub struct Allocator;

impl Allocator {
    /// Move the beginning of a block into one of its size, unless that is about as large: mimalloc keeps a block of
    /// which half is used, and a buffer that was filled by doubling would stay so as long as it lives.
    ///
    /// # Safety
    ///
    /// As of `realloc`, and *size* is less than the block has.
    #[allow(unsafe_code, reason = "see the head of this file")]
    unsafe fn shrink(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the block is one of mimalloc's; the new one is aligned as it was, and has the bytes that are copied.
        unsafe {
            let wanted = mi::mi_good_size(size);
            if mi::mi_usable_size(block.cast()) <= wanted + wanted / 16 {
                return block;
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                block.copy_to_nonoverlapping(moved, size);
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

/// Whether every block of the size has the alignment, as C promises of `malloc` for any object that fits.
const fn is_plain(size: usize, align: usize) -> bool {
    align <= align_of::<usize>() && align <= size
}

// SAFETY: mimalloc never unwinds. A block is at least as large as requested. If `is_plain`, it is aligned because any
// object that fits the block and whose alignment is at most a word's may lie in it; else because the alignment was
// requested. Each is freed by `mi_free`, which accepts blocks of every one of these calls, as does `mi_realloc`.
#[allow(unsafe_code, reason = "see the head of this file")]
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: they take any size and any power of two.
        unsafe { if is_plain(size, align) { mi::mi_malloc(size) } else { mi::mi_malloc_aligned(size, align) }.cast() }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as above.
        unsafe { if is_plain(size, align) { mi::mi_zalloc(size) } else { mi::mi_zalloc_aligned(size, align) }.cast() }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller has the block from here.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size < layout.size() {
            // SAFETY: the caller has the block from here, and it has more bytes than are wanted.
            return unsafe { self.shrink(block, layout, size) };
        }
        let (block, align) = (block.cast(), layout.align());
        // SAFETY: as above.
        unsafe {
            if is_plain(size, align) { mi::mi_realloc(block, size) } else { mi::mi_realloc_aligned(block, size, align) }.cast()
        }
    }
}
