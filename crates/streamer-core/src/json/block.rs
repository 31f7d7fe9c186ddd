//! Sixteen bytes at a time: which of them are quotes, brackets, control characters.
//!
//! On x86-64 with SSE2, which is part of that architecture, so that nothing is detected at run time; elsewhere with words.

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
}

/// Sixty-four bytes, likewise.
#[derive(Clone, Copy)]
pub(crate) struct Block64([Block16; 4]);

impl Block64 {
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8; 64]) -> Block64 {
        let part = |at: usize| Block16::new(bytes[at..at + 16].try_into().expect("16 bytes"));
        Block64([part(0), part(16), part(32), part(48)])
    }

    #[inline(always)]
    pub(crate) fn equal(self, byte: u8) -> u64 {
        let [a, b, c, d] = self.0.map(|block| u64::from(block.equal(byte)));
        a | b << 16 | c << 32 | d << 48
    }
}

#[cfg(target_arch = "x86_64")]
use sse2 as arch;

#[cfg(not(target_arch = "x86_64"))]
use words as arch;

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };

    pub(super) type Bytes = __m128i;

    // Why the `unsafe` blocks below are sound: an intrinsic asks that the processor has SSE2, and every x86-64 has; none of
    // these reads or writes memory, as bytes come in by value.

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
}

#[cfg(test)]
mod tests {
    use super::{Block16, Block64, words};

    /// All bytes at all places, among plain bytes and among those next to what is looked for.
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
            for byte in [bytes[0], bytes[7], bytes[15], 0, b'{', 0x80] {
                let equal = which(&bytes, |other| other == byte) as u32;
                assert_eq!((block.equal(byte), words::equal(portable, byte)), (equal, equal), "{byte} in {bytes:?}");
            }
        }
    }

    #[test]
    fn a_large_block_is_four_small_ones_in_order() {
        let bytes: [u8; 64] = std::array::from_fn(|at| (at * at % 61) as u8);
        for byte in 0..=255 {
            assert_eq!(Block64::new(&bytes).equal(byte), which(&bytes, |other| other == byte), "{byte}");
        }
    }
}
