//! Requesting memory from the processor a little before it is read.
//!
//! An index of a million subscriptions exceeds every cache: an event waits for each line that it reads. If these lines
//! are known early, they are requested together, and the waits overlap.
//!
//! Cost: one or two instructions, and no wait if the line is cached; on processors other than x86-64 it does not do
//! anything.

/// Bytes of a line of the cache, of most processors.
pub const LINE: usize = 64;

/// Prefetch the line of an element, if there is such an element.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: an intrinsic requires that the processor has SSE, and every x86-64 has; it has no visible effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// Prefetch all lines of a value, but not those that it points at.
#[inline]
pub fn prefetch_all<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: as above; an invalid address is not an error either.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Prefetch the first line at an address, which need not be valid any more.
#[inline(always)]
pub fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: as above; an invalid address is not an error either.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
