//! The portable layout: the bits of a `pybloom_live.BloomFilter` whose hash is MurmurHash3 x64-128.
//!
//! ```text
//!   key bytes ─ murmur3 x64-128, seed 0 ─► h1, h2
//!   slice 0 [..1.....]  slice 1 [.....1..]  slice 2 [1.......]      bit (h1 + i * h2) mod size of slice i, little-endian
//! ```
//!
//! Invariant: it sets and reads the same bits as `streamer.bloom.portable.PortableBloomFilter`, so that either side may
//! fill a filter that the other one probes, in this process or in another.
//!
//! Cost: 20 to 40 ns a key of 40 bytes and one cache line a slice, about ten: it is the layout for other processes. For
//! a filter that every event queries see `blocked`.

/// The dimensions of a filter: *slices* of *bits_per_slice* bits, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    slices: usize,
    bits_per_slice: usize,
}

impl Slices {
    /// The slices of a filter; None if it has no bits, or more than `usize` can count.
    pub fn new(slices: usize, bits_per_slice: usize) -> Option<Slices> {
        let bits = slices.checked_mul(bits_per_slice)?;
        (bits > 0).then_some(Slices { slices, bits_per_slice })
    }

    /// The number of bytes for all the bits.
    pub fn bytes(self) -> usize {
        (self.slices * self.bits_per_slice).div_ceil(8)
    }

    /// The byte and the bit in it for each slice, of a key.
    pub fn bits_of(self, key: &[u8]) -> impl Iterator<Item = (usize, u8)> {
        self.bits_at(murmur3_x64_128(key))
    }

    /// The byte and the bit in it for each slice, of a key with this hash.
    pub fn bits_at(self, (low, high): (u64, u64)) -> impl Iterator<Item = (usize, u8)> {
        let size = self.bits_per_slice as u64;
        let (mut offset, step) = (low % size, high % size);
        (0..self.slices).map(move |slice| {
            let bit = slice * self.bits_per_slice + offset as usize;
            // Without overflow: both are below the size, which a sum could pass once.
            offset = if offset >= size - step { offset - (size - step) } else { offset + step };
            (bit / 8, 1 << (bit % 8))
        })
    }
}

/// Set the bits of a key with this hash; return whether one of them was unset. *bits* has at least [`Slices::bytes`]
/// bytes.
pub fn set(bits: &mut [u8], slices: Slices, hash: (u64, u64)) -> bool {
    let mut is_new = false;
    for (byte, bit) in slices.bits_at(hash) {
        is_new |= bits[byte] & bit == 0;
        bits[byte] |= bit;
    }
    is_new
}

/// MurmurHash3 x64-128 with seed 0, as Austin Appleby published it: the two halves of the hash.
pub fn murmur3_x64_128(bytes: &[u8]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix1 = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix2 = |word: u64| word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let word = |bytes: &[u8]| match bytes.try_into() {
        Ok(eight) => u64::from_le_bytes(eight),
        Err(_) => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        h1 = (h1 ^ mix1(word(&block[..8]))).rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix2(word(&block[8..]))).rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = blocks.remainder().split_at(blocks.remainder().len().min(8));
    h1 ^= mix1(word(low));
    h2 ^= mix2(word(high));
    let length = bytes.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

fn finish(mut word: u64) -> u64 {
    word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the package `mmh3` 5, `mmh3_x64_128_utupledigest`: all lengths of a tail, and blocks before it.
    #[test]
    fn the_hash_is_that_of_every_other_language() {
        let text = b"The quick brown fox jumps over the lazy dog";
        let expected = [
            (0, 0x0000_0000_0000_0000, 0x0000_0000_0000_0000),
            (1, 0x8c03_777e_9184_689a, 0x3ab5_d6b4_ba29_3e79),
            (2, 0xd7dd_0bea_ee68_e3b9, 0xa56f_b690_9902_6b97),
            (3, 0x304f_2652_dcd6_6d9a, 0xef38_5e5d_15ea_bf42),
            (4, 0xbd43_01be_aba0_7d9c, 0xdfae_3c4b_8026_dd1c),
            (5, 0x6f7a_ac75_2052_70fe, 0x76f5_ebd3_90da_c61f),
            (6, 0x796e_1100_f3f6_6746, 0xb2a0_7e0b_1665_ab1f),
            (7, 0xf0d3_843a_5abc_d5c9, 0x9394_b7f9_c86d_6073),
            (8, 0x644b_aae4_ad5b_71cd, 0x8eee_f997_e288_1cdf),
            (9, 0x37a0_6404_b2a8_f155, 0xadbc_c8ff_3d6e_ccc0),
            (10, 0x420e_44df_4574_84b8, 0x9cab_add4_7751_5fe9),
            (11, 0x87c3_2055_0739_a882, 0xfa91_e8a5_d66e_7b9f),
            (12, 0x61d6_a137_2f90_f9cb, 0xb663_53ea_7c00_2529),
            (13, 0x3c60_0c93_f99b_fd3b, 0xc3e1_3319_056f_26f4),
            (14, 0xdcd2_16a9_5d6e_6007, 0x84c1_eeb8_5c46_c838),
            (15, 0x4813_7cb8_64e3_9216, 0xfd7b_af64_397a_d64b),
            (16, 0x9d12_44f4_af9b_32c4, 0x3d15_3c8b_2c2a_3aa6),
            (17, 0x91f9_6376_e757_e9ae, 0x9b44_e58d_ae83_eb0c),
            (31, 0x9b28_b5dd_d9c4_c509, 0x0d3c_1cb8_0fe2_f964),
            (32, 0xdf6a_f91b_b29b_dacf, 0x91a3_41c5_8df1_f3a6),
            (43, 0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347),
        ];
        for (length, low, high) in expected {
            assert_eq!(murmur3_x64_128(&text[..length]), (low, high), "{length} bytes");
        }
    }

    #[test]
    fn every_slice_gets_one_bit_and_none_beyond_it() {
        let slices = Slices::new(10, 959).unwrap();
        for number in 0..1000_u32 {
            let bits: Vec<usize> =
                slices.bits_of(&number.to_le_bytes()).map(|(byte, bit)| byte * 8 + bit.trailing_zeros() as usize).collect();
            assert!(bits.iter().enumerate().all(|(slice, bit)| bit / 959 == slice), "{bits:?}");
        }
        assert_eq!(slices.bytes(), 1199);
        assert_eq!((Slices::new(0, 7), Slices::new(7, 0), Slices::new(usize::MAX, 2)), (None, None, None));
    }

    #[test]
    fn a_slice_of_one_bit_is_that_bit() {
        assert!(Slices::new(3, 1).unwrap().bits_of(b"any").eq([(0, 1), (0, 2), (0, 4)]));
    }
}
