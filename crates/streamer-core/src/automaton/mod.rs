//! Which patterns and topics match exactly? Automata over one value, each usable by itself.
//!
//! Each automaton gets its operands with a `u32` for each, is built once and never changes. It passes the `u32`s of the
//! operands that match to a closure, a slice at a time. A matcher of one value does not depend on paths, events or
//! subscriptions; [`crate::engine`] joins them into an index.

pub mod affixes;
pub mod anything_but;
pub mod cidr;
pub mod folding;
pub mod literals;
pub mod places;
pub mod ranges;
pub mod refused;
pub mod regexps;
pub mod table;
pub mod topics;
pub mod trees;
pub mod wildcards;

#[cfg(test)]
pub(crate) mod testing {
    /// A small generator of repeatable choices for property tests (SplitMix64).
    pub struct Dice(u64);

    impl Dice {
        pub fn new(seed: u64) -> Dice {
            Dice(seed)
        }

        pub fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }

        pub fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }

        pub fn chance(&mut self, percent: u64) -> bool {
            self.below(100) < percent
        }

        pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
            &from[self.below(from.len() as u64) as usize]
        }

        /// A text of up to *longest* letters of *alphabet*.
        pub fn text(&mut self, alphabet: &str, longest: u64) -> String {
            let letters: Vec<char> = alphabet.chars().collect();
            (0..self.below(longest + 1)).map(|_| *self.pick(&letters)).collect()
        }
    }
}
