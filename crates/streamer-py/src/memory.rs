//! Memory that a large change has left free goes back to the system.
//!
//! The allocator gives free pages back when it next allocates. After a large change nothing else may come for hours, and what was
//! parsed for it would stay: as much again as is held. What many small changes leave free, the thread that merges gives back.
//!
//! Blocks are mimalloc's: with huge pages and less scatter than the C library's, an event among 1,000,000 subscriptions takes 25 % less.
//!
//! Rejected: the crate `mimalloc`. It asks for each block with its alignment, for which mimalloc takes a larger one where the size is no
//! power of two: 112 bytes for 96, 64 for 48.
//!
//! The `unsafe` here are calls of the allocator.

use crate::gil;
use libmimalloc_sys as mi;
use pyo3::Python;
use std::alloc::{GlobalAlloc, Layout};
use streamer_core::engine::MANY;
use streamer_core::heap;

/// Whether a change of so many subscriptions leaves megabytes free.
pub fn is_large(subscriptions: usize) -> bool {
    subscriptions >= MANY
}

/// Give back what reading so many subscriptions may have left free.
pub fn after(py: Python<'_>, subscriptions: usize) {
    if is_large(subscriptions) {
        gil::released(py, give_back);
    }
}

/// Give back what is free. Cost: a walk over the pages of the allocator, some milliseconds a gigabyte.
#[allow(unsafe_code, reason = "see the head of this file")]
pub fn give_back() {
    // SAFETY: it may be called by any thread at any time, takes no pointer, and moves nothing that is held.
    unsafe { mi::mi_collect(true) }
}

/// What mimalloc divides its memory into. A block of more than `MOST_SHARED` bytes has slices to itself, and one more.
const SLICE: usize = 64 << 10;
const MOST_SHARED: usize = 512 << 10;

/// Say to the core what blocks take.
#[allow(unsafe_code, reason = "see the head of this file")]
pub fn begin() {
    _ = heap::TAKES.set(|bytes| match bytes {
        0 => 0,
        // SAFETY: it takes any size, and looks at nothing else.
        1..=MOST_SHARED => unsafe { mi::mi_good_size(bytes) },
        _ => bytes.next_multiple_of(SLICE) + SLICE,
    });
}

/// mimalloc as Rust asks for it.
pub struct Allocator;

impl Allocator {
    /// Move what a block begins with into one of its size, unless that is about as large: mimalloc keeps a block of which half is used, and
    /// what was filled by doubling would stay so as long as it is held.
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

/// Whether any block of the size is aligned as asked, as C promises of `malloc` for what may lie in it.
const fn is_plain(size: usize, align: usize) -> bool {
    align <= align_of::<usize>() && align <= size
}

// SAFETY: mimalloc never unwinds. A block is at least as large as asked; it is aligned where `is_plain` holds, since any object that a
// block can hold and whose alignment is at most a word's may lie in it, and elsewhere because it was asked so. Each is given back
// by `mi_free`, which takes blocks of every one of these calls, as does `mi_realloc`.
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
