//! Asking the processor for memory that is read a little later.
//!
//! An index of a million subscriptions is in no cache: an event waits for each line that it comes to. Where it is known early
//! which lines those are, they are asked for together, and the waiting is done once.
//!
//! Cost: one or two instructions, and nothing where the line is there; on processors other than x86-64 nothing is done.

/// Bytes of a line of the cache, of most processors.
pub const LINE: usize = 64;

/// Ask for the line of an element, if there is such an element.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: an intrinsic asks that the processor has SSE, and every x86-64 has; it changes nothing that can be seen.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// Ask for all lines of a value, but not for what it points at.
#[inline]
pub fn prefetch_all<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: as above; an address that is none is no error either.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Ask for the first line of what lies at an address, which need not be one any more.
#[inline(always)]
pub fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: as above; an address that is none is no error either.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
