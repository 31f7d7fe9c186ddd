//! Which of many literals occur in a text? An Aho-Corasick automaton that reports each literal once.
//!
//! ```text
//!   literals  he  she  hers        states are prefixes of literals:  ε h he her hers s sh she
//!   fail      the longest other prefix that the text also ends with:      she ──► he
//!   report    the nearest state down the fail chain that ends a literal:  she ──► he ──► none
//! ```
//!
//! Invariant: a state's `report` chain lists every literal that ends when the state is reached. A chain is not walked
//! again if its head was already reported for this text.
//!
//! Cost: for a text of n bytes O(n) steps and at most one report for each state that ends a literal, also for literals
//! like `a`, `aa`, `aaa`, ... on a text of `a`s. 12 bytes a state and 5 a transition; the first byte goes through a table.
//!
//! Rejected: the crate `aho-corasick`, whose states list all literals that end there: k nested literals make k²/2
//! entries to store and to report, which a hostile user can arrange. One DFA over whole wildcard patterns: it explodes.

use std::collections::VecDeque;

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct State {
    first: u32,  // its transitions, sorted by byte
    fail: u32,   // where to go on when no transition fits
    ends: u32,   // the literal that ends here, or NONE
    report: u32, // the nearest state down the fail chain, not itself, that ends a literal, or NONE
}

/// An immutable set of distinct literals, named by their position. See the head of this file.
#[derive(Debug)]
pub struct Literals {
    states: Box<[State]>, // one extra, so that transitions end at the start of the next state's
    bytes: Box<[u8]>,
    targets: Box<[u32]>,
    from_root: Box<[u32; 256]>,
}

/// The states that a text has reached; kept between queries to save allocations.
#[derive(Debug, Default)]
pub struct SeenLiterals {
    marks: Vec<u64>,
    touched: Vec<u32>,
}

impl SeenLiterals {
    fn insert(&mut self, state: u32) -> bool {
        let (word, bit) = (state as usize / 64, 1 << (state % 64));
        if self.marks.len() <= word {
            self.marks.resize(word + 1, 0);
        }
        let new = self.marks[word] & bit == 0;
        if new {
            self.marks[word] |= bit;
            self.touched.push(state);
        }
        new
    }

    fn clear(&mut self) {
        for state in self.touched.drain(..) {
            self.marks[state as usize / 64] = 0;
        }
    }
}

impl Literals {
    /// Build from distinct, non-empty literals, which are reported as their position.
    pub fn new(literals: &[&[u8]]) -> Literals {
        // Sorted, the literals are a trie in depth-first order; its states are numbered breadth first below, so that a
        // state's transitions and the states near the root lie together.
        let mut order: Vec<u32> = (0..literals.len() as u32).collect();
        order.sort_unstable_by_key(|literal| literals[*literal as usize]);
        let mut states = Vec::new();
        let (mut bytes, mut targets) = (Vec::new(), Vec::new());
        let mut queue = VecDeque::from([(0, order.len(), 0)]);
        let mut numbered = 1;
        while let Some((mut start, end, depth)) = queue.pop_front() {
            let mut ends = NONE;
            while start < end && literals[order[start] as usize].len() == depth {
                ends = order[start];
                start += 1;
            }
            states.push(State { first: bytes.len() as u32, fail: ROOT, ends, report: NONE });
            while start < end {
                let byte = literals[order[start] as usize][depth];
                let same = order[start..end].iter().take_while(|literal| literals[**literal as usize][depth] == byte).count();
                bytes.push(byte);
                targets.push(numbered);
                numbered += 1;
                queue.push_back((start, start + same, depth + 1));
                start += same;
            }
        }
        states.push(State { first: bytes.len() as u32, fail: ROOT, ends: NONE, report: NONE });
        let mut from_root = Box::new([ROOT; 256]);
        for at in 0..states[1].first as usize {
            from_root[usize::from(bytes[at])] = targets[at];
        }
        let mut built = Literals { states: states.into(), bytes: bytes.into(), targets: targets.into(), from_root };
        built.link();
        built
    }

    /// Set `fail` and `report`, parents first.
    fn link(&mut self) {
        for state in 0..self.states.len() - 1 {
            for at in self.states[state].first as usize..self.states[state + 1].first as usize {
                let target = self.targets[at] as usize;
                let fail = if state == 0 { ROOT } else { self.step(self.states[state].fail, self.bytes[at]) };
                let behind = &self.states[fail as usize];
                let report = if behind.ends != NONE { fail } else { behind.report };
                self.states[target].fail = fail;
                self.states[target].report = report;
            }
        }
    }

    #[inline]
    fn step(&self, mut state: u32, byte: u8) -> u32 {
        while state != ROOT {
            let (first, end) = (self.states[state as usize].first as usize, self.states[state as usize + 1].first as usize);
            let edge = if end - first <= 16 {
                self.bytes[first..end].iter().position(|other| *other == byte)
            } else {
                self.bytes[first..end].binary_search(&byte).ok()
            };
            if let Some(at) = edge {
                return self.targets[first + at];
            }
            state = self.states[state as usize].fail;
        }
        self.from_root[usize::from(byte)]
    }

    /// Hand the position of each literal that occurs in *text* to *hit*, each once.
    pub fn query(&self, text: &[u8], seen: &mut SeenLiterals, mut hit: impl FnMut(u32)) {
        if self.bytes.is_empty() {
            return;
        }
        let mut state = ROOT;
        for &byte in text {
            state = self.step(state, byte);
            let reached = &self.states[state as usize];
            let mut ending = if reached.ends != NONE { state } else { reached.report };
            while ending != NONE && seen.insert(ending) {
                hit(self.states[ending as usize].ends);
                ending = self.states[ending as usize].report;
            }
        }
        seen.clear();
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        self.states.len() * size_of::<State>() + self.bytes.len() * 5 + 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    #[test]
    fn each_literal_that_occurs_is_reported_once() {
        let mut dice = Dice::new(5);
        let mut seen = SeenLiterals::default();
        for round in 0..300 {
            let mut literals: Vec<String> = (0..[1, 3, 40, 300][round % 4]).map(|_| dice.text("abcé", 5)).collect();
            literals.retain(|literal| !literal.is_empty());
            literals.sort();
            literals.dedup();
            let bytes: Vec<&[u8]> = literals.iter().map(|literal| literal.as_bytes()).collect();
            let built = Literals::new(&bytes);
            for _ in 0..30 {
                let text = dice.text("abcé", 30);
                let mut found = Vec::new();
                built.query(text.as_bytes(), &mut seen, |literal| found.push(literal));
                found.sort_unstable();
                let expected: Vec<u32> =
                    (0..literals.len() as u32).filter(|at| text.contains(literals[*at as usize].as_str())).collect();
                assert_eq!(found, expected, "{literals:?} {text}");
            }
        }
    }

    #[test]
    fn nested_literals_stay_linear() {
        let literals: Vec<Vec<u8>> = (1..=2000).map(|length| vec![b'a'; length]).collect();
        let bytes: Vec<&[u8]> = literals.iter().map(|literal| &literal[..]).collect();
        let built = Literals::new(&bytes);
        assert!(built.bytes() < 100_000);
        let mut reports = 0;
        built.query(&vec![b'a'; 1_000_000], &mut SeenLiterals::default(), |_| reports += 1);
        assert_eq!(reports, 2000);
    }
}
