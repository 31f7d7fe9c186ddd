//! Sixteen bytes at a time: which of them are quotes, brackets, control characters; or sixty-four.
//!
//! On x86-64 it uses SSE2, which is part of that architecture; elsewhere words. Loops over many bytes check once
//! whether the processor has AVX2, and are compiled a second time for those that have it (and count bits in one
//! instruction). Miri has the features that it is configured with:
//! `RUSTFLAGS=-Ctarget-feature=+avx2,+popcnt,+bmi1,+bmi2,+lzcnt,+pclmulqdq` lets it check those.

/// Sixteen bytes. Masks have bit i for byte i.
#[derive(Clone, Copy)]
pub(crate) struct Block16(arch::Bytes);

impl Block16 {
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8; 16]) -> Block16 {
        Block16(arch::load(u128::from_le_bytes(*bytes)))
    }

    /// The bytes equal to *byte*.
    #[inline(always)]
    pub(crate) fn equal(self, byte: u8) -> u32 {
        arch::equal(self.0, byte)
    }

    /// The bytes that end a run of plain string text: a quote, a backslash, a control character.
    #[inline(always)]
    pub(crate) fn special(self) -> u32 {
        arch::special(self.0)
    }

    /// The bytes that are decimal digits.
    #[inline(always)]
    pub(crate) fn digits(self) -> u32 {
        arch::digits(self.0)
    }
}

/// Sixty-four bytes. Masks have bit i for byte i.
pub(crate) trait Block64: Copy {
    fn new(bytes: &[u8; 64]) -> Self;
    /// The bytes equal to *byte*.
    fn equal(self, byte: u8) -> u64;
    /// The bytes that are decimal digits.
    fn digits(self) -> u64;
    /// The bytes that end a run of plain string text; see [`Block16::special`].
    fn special(self) -> u64;

    /// Bit i: whether an odd number of *bits* is set up to and with i.
    #[inline(always)]
    fn parity(mut bits: u64) -> u64 {
        for shift in [1, 2, 4, 8, 16, 32] {
            bits ^= bits << shift;
        }
        bits
    }
}

/// A loop over such blocks. Its method is to be `inline(always)`, so that it is compiled for each kind of block.
pub(crate) trait Loop {
    type Output;
    fn run<B: Block64>(self) -> Self::Output;
}

/// Run a loop over the blocks that are fastest here.
#[inline(always)]
pub(crate) fn run<L: Loop>(work: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if avx2::is_there() {
        // SAFETY: the processor has the required features.
        return unsafe { avx2::run(work) };
    }
    work.run::<Four>()
}

/// Four small ones.
#[derive(Clone, Copy)]
struct Four([Block16; 4]);

impl Four {
    #[inline(always)]
    fn join(self, mask: impl Fn(Block16) -> u32) -> u64 {
        let [a, b, c, d] = self.0;
        u64::from(mask(a)) | u64::from(mask(b)) << 16 | u64::from(mask(c)) << 32 | u64::from(mask(d)) << 48
    }
}

impl Block64 for Four {
    #[inline(always)]
    fn new(bytes: &[u8; 64]) -> Four {
        let part = |at: usize| Block16::new(bytes[at..at + 16].try_into().expect("16 bytes"));
        Four([part(0), part(16), part(32), part(48)])
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        self.join(|block| block.equal(byte))
    }

    #[inline(always)]
    fn digits(self) -> u64 {
        self.join(Block16::digits)
    }

    #[inline(always)]
    fn special(self) -> u64 {
        self.join(Block16::special)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Block64, Loop};
    use std::arch::x86_64::{
        __m256i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_min_epu8,
        _mm256_movemask_epi8, _mm256_or_si256, _mm256_set_epi64x, _mm256_set1_epi8, _mm256_sub_epi8,
    };

    /// Whether the processor has the features that [`run`] requires.
    #[inline(always)]
    pub(super) fn is_there() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("pclmulqdq")
    }

    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt,pclmulqdq")]
    pub(super) fn run<L: Loop>(work: L) -> L::Output {
        work.run::<Two>()
    }

    /// The low and the high half. Only [`run`] names this type.
    ///
    /// A function on a half must be `inline(always)`, not a closure that a library's function calls: that function
    /// would be compiled without AVX2, and then each instruction is a call.
    #[derive(Clone, Copy)]
    pub(super) struct Two(__m256i, __m256i);

    // Why the `unsafe` blocks below are sound: an intrinsic requires that the processor has AVX2, and a `Two` is only
    // used in `run`, which requires it; none of these reads or writes memory, as bytes come in by value.

    #[inline(always)]
    fn load(bytes: &[u8; 64], at: usize) -> __m256i {
        let word = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        // SAFETY: as above.
        unsafe { _mm256_set_epi64x(word(at + 24), word(at + 16), word(at + 8), word(at)) }
    }

    #[inline(always)]
    fn equal(half: __m256i, byte: u8) -> u64 {
        // SAFETY: as above.
        let mask = unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(half, _mm256_set1_epi8(byte as i8))) };
        u64::from(mask as u32)
    }

    #[inline(always)]
    fn digits(half: __m256i) -> u64 {
        // SAFETY: as above.
        let mask = unsafe {
            let value = _mm256_sub_epi8(half, _mm256_set1_epi8(b'0' as i8));
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(value, _mm256_set1_epi8(9)), value))
        };
        u64::from(mask as u32)
    }

    #[inline(always)]
    fn special(half: __m256i) -> u64 {
        // SAFETY: as above.
        let mask = unsafe {
            let quote = _mm256_cmpeq_epi8(half, _mm256_set1_epi8(b'"' as i8));
            let backslash = _mm256_cmpeq_epi8(half, _mm256_set1_epi8(b'\\' as i8));
            let control = _mm256_cmpeq_epi8(_mm256_min_epu8(half, _mm256_set1_epi8(0x1f)), half);
            _mm256_movemask_epi8(_mm256_or_si256(_mm256_or_si256(quote, backslash), control))
        };
        u64::from(mask as u32)
    }

    impl Block64 for Two {
        #[inline(always)]
        fn new(bytes: &[u8; 64]) -> Two {
            Two(load(bytes, 0), load(bytes, 32))
        }

        #[inline(always)]
        fn equal(self, byte: u8) -> u64 {
            equal(self.0, byte) | equal(self.1, byte) << 32
        }

        #[inline(always)]
        fn digits(self) -> u64 {
            digits(self.0) | digits(self.1) << 32
        }

        #[inline(always)]
        fn special(self) -> u64 {
            special(self.0) | special(self.1) << 32
        }

        /// A product without carries, by ones: each bit is the sum of all up to it, in one instruction.
        #[inline(always)]
        fn parity(bits: u64) -> u64 {
            // SAFETY: as above; `run` requires that instruction, too.
            unsafe { _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128(bits as i64), _mm_set1_epi8(-1), 0)) as u64 }
        }
    }
}

#[cfg(target_arch = "x86_64")]
use sse2 as arch;

#[cfg(not(target_arch = "x86_64"))]
use words as arch;

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8, _mm_sub_epi8,
    };

    pub(super) type Bytes = __m128i;

    // Why the `unsafe` blocks below are sound: an intrinsic requires that the processor has SSE2, and every x86-64 has;
    // none of these reads or writes memory, as bytes come in by value.

    #[inline(always)]
    pub(super) fn load(bytes: u128) -> Bytes {
        // SAFETY: as above.
        unsafe { _mm_set_epi64x((bytes >> 64) as i64, bytes as i64) }
    }

    #[inline(always)]
    pub(super) fn equal(bytes: Bytes, byte: u8) -> u32 {
        // SAFETY: as above.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32 }
    }

    #[inline(always)]
    pub(super) fn special(bytes: Bytes) -> u32 {
        // SAFETY: as above.
        unsafe {
            let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
            let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
            let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
            _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control)) as u32
        }
    }

    #[inline(always)]
    pub(super) fn digits(bytes: Bytes) -> u32 {
        // SAFETY: as above.
        unsafe {
            let value = _mm_sub_epi8(bytes, _mm_set1_epi8(b'0' as i8));
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value)) as u32
        }
    }
}

/// Compiled for tests everywhere, so that every machine checks it.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    pub(super) type Bytes = u128;

    const LOW: u128 = u128::from_ne_bytes([0x7f; 16]);
    const ONES: u128 = u128::from_ne_bytes([1; 16]);

    #[inline(always)]
    pub(super) fn load(bytes: u128) -> Bytes {
        bytes
    }

    /// Bit 7 of each byte that is zero; exact, no carry crosses bytes.
    #[inline(always)]
    fn zeros(bytes: u128) -> u128 {
        !(((bytes & LOW) + LOW) | bytes | LOW)
    }

    /// Bit 7 of each byte, gathered.
    #[inline(always)]
    fn gather(bits: u128) -> u32 {
        let half = |word: u64| ((word >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32;
        half(bits as u64) | half((bits >> 64) as u64) << 8
    }

    #[inline(always)]
    pub(super) fn equal(bytes: Bytes, byte: u8) -> u32 {
        gather(zeros(bytes ^ (ONES * u128::from(byte))))
    }

    #[inline(always)]
    pub(super) fn special(bytes: Bytes) -> u32 {
        let quote = zeros(bytes ^ (ONES * u128::from(b'"')));
        let backslash = zeros(bytes ^ (ONES * u128::from(b'\\')));
        let control = zeros(bytes & (ONES * 0xe0));
        gather(quote | backslash | control)
    }

    #[inline(always)]
    pub(super) fn digits(bytes: Bytes) -> u32 {
        // Select those bytes of 0x30 to 0x3f that stay in this range when 6 is added.
        let tens = zeros((bytes & (ONES * 0xf0)) ^ (ONES * 0x30));
        let above = zeros(((bytes & (ONES * 0x0f)) + ONES * 6) & (ONES * 0xf0));
        gather(tens & above)
    }
}

#[cfg(test)]
mod tests {
    use super::{Block16, Block64, Four, Loop, run, words};

    /// All bytes at all places, among plain bytes and next to the bytes that a search looks for.
    fn blocks() -> impl Iterator<Item = [u8; 16]> {
        let around: [[u8; 16]; 4] = [*b"0123456789abcdef", [0x20; 16], [0xff; 16], [0x22 ^ 0x80; 16]];
        let step = if cfg!(miri) { 31 } else { 1 }; // Miri is a thousand times slower; 31, 62, 124 are among these
        let made = around.into_iter().flat_map(move |around| (0..=255).step_by(step).map(move |byte| (around, byte)));
        made.flat_map(|(around, byte)| {
            (0..16).map(move |at| {
                let mut bytes = around;
                bytes[at] = byte;
                bytes
            })
        })
    }

    fn which(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
        (0..bytes.len()).filter(|at| is(bytes[*at])).fold(0, |mask, at| mask | 1 << at)
    }

    #[test]
    fn masks_say_which_bytes() {
        for bytes in blocks() {
            let (block, portable) = (Block16::new(&bytes), words::load(u128::from_le_bytes(bytes)));
            let special = which(&bytes, |byte| byte < 0x20 || byte == b'"' || byte == b'\\') as u32;
            assert_eq!((block.special(), words::special(portable)), (special, special), "{bytes:?}");
            let digits = which(&bytes, |byte| byte.is_ascii_digit()) as u32;
            assert_eq!((block.digits(), words::digits(portable)), (digits, digits), "{bytes:?}");
            for byte in [bytes[0], bytes[7], bytes[15], 0, b'{', 0x80] {
                let equal = which(&bytes, |other| other == byte) as u32;
                assert_eq!((block.equal(byte), words::equal(portable, byte)), (equal, equal), "{byte} in {bytes:?}");
            }
        }
    }

    struct Masks([u8; 64], u8);

    impl Loop for Masks {
        type Output = [u64; 4];

        #[inline(always)]
        fn run<B: Block64>(self) -> [u64; 4] {
            let block = B::new(&self.0);
            [block.equal(self.1), block.digits(), block.special(), B::parity(block.equal(self.1))]
        }
    }

    #[test]
    fn a_large_block_is_small_ones_in_order() {
        let bytes: [u8; 64] = std::array::from_fn(|at| (at * at % 61) as u8);
        for byte in 0..=255 {
            let special = which(&bytes, |byte| byte < 0x20 || byte == b'"' || byte == b'\\');
            let equal = which(&bytes, |other| other == byte);
            let parity = (0..64).fold(0, |mask, at| mask | u64::from((equal << (63 - at)).count_ones() % 2) << at);
            let masks = [equal, which(&bytes, |byte| byte.is_ascii_digit()), special, parity];
            assert_eq!((Masks(bytes, byte).run::<Four>(), run(Masks(bytes, byte))), (masks, masks), "{byte}");
        }
        for bytes in blocks() {
            let bytes: [u8; 64] = std::array::from_fn(|at| bytes[(at + at / 16) % 16]);
            assert_eq!(run(Masks(bytes, bytes[5])), Masks(bytes, bytes[5]).run::<Four>(), "{bytes:?}");
        }
    }
}
