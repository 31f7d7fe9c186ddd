//! Which topic patterns does a routing key match? A trie of words, walked with a set of states.
//!
//! ```text
//!   a.*.c   a.#   #.c                root ─a─► 1 ─*─► 2 ─c─► (a.*.c)
//!                                       │       └─#─► 3 ⟲    (a.#)
//!                                       └─#─► 4 ⟲ ─c─► 5     (#.c)
//!   "a.b.c"   {root 4} ─a─► {1 3 4} ─b─► {2 3 4} ─c─► {a.*.c, 3, 4, 5} ─► a.*.c  a.#  #.c
//! ```
//!
//! A node under `#` keeps itself alive for any word, and is alive as soon as its parent is, since `#` may be no word.
//!
//! Invariant: a state is in the set once, however many ways lead to it; so `#.#.#.#.a` costs what its nodes cost.
//!
//! Cost: words of the key × states alive; 25 bytes a node and 20 a transition. A word is hashed once.
//!
//! Rejected: walking the trie recursively as broker sources do: with n times `#` in a pattern it takes exponential time.

use crate::automaton::table::Table;
use crate::subscriptions::normal_form::TopicWord;
use crate::value::Seed;
use std::collections::HashMap;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    one: u32,  // the node after `*`
    many: u32, // the node under `#`
    loops: bool,
    ids: u32, // its patterns end here: ids[ids..ids_end]
    ids_end: u32,
}

/// An immutable set of topic patterns. See the head of this file.
#[derive(Debug)]
pub struct Topics {
    seed: Seed,
    nodes: Box<[Node]>,
    table: Table,
    edges: Box<[(u32, u32, Box<str>)]>, // from, to, word
    ids: Box<[u32]>,
}

/// The states alive; kept between queries to save allocations.
#[derive(Debug, Default)]
pub struct Alive {
    now: Vec<u32>,
    next: Vec<u32>,
    marks: Vec<u64>,
    round: u64,
}

/// The words of a routing key; the empty key has none.
pub fn words(key: &str) -> impl Iterator<Item = &str> {
    let all = key.split('.');
    all.take(if key.is_empty() { 0 } else { usize::MAX })
}

/// Whether *pattern* matches *key*, in time linear in their product.
pub fn topic_matches(pattern: &[TopicWord], key: &str) -> bool {
    // alive[i]: the first i words of the pattern match the words so far.
    let mut alive = vec![false; pattern.len() + 1];
    alive[0] = true;
    let skip_many = |alive: &mut [bool]| {
        for (at, word) in pattern.iter().enumerate() {
            if *word == TopicWord::Many && alive[at] {
                alive[at + 1] = true;
            }
        }
    };
    skip_many(&mut alive);
    for word in words(key) {
        for at in (0..pattern.len()).rev() {
            alive[at + 1] = match &pattern[at] {
                TopicWord::Word(expected) => alive[at] && **expected == *word,
                TopicWord::One => alive[at],
                TopicWord::Many => alive[at] || alive[at + 1],
            };
        }
        alive[0] = false;
        skip_many(&mut alive);
    }
    alive[pattern.len()]
}

impl Topics {
    /// Build from pairs of a pattern and what a match is reported as.
    pub fn new<'a>(patterns: impl IntoIterator<Item = (&'a [TopicWord], u32)>, seed: Seed) -> Topics {
        let node = |loops| Node { one: NONE, many: NONE, loops, ids: 0, ids_end: 0 };
        let mut nodes = vec![node(false)];
        let mut children: HashMap<(u32, &str), u32> = HashMap::new();
        let mut ends = Vec::new();
        for (pattern, id) in patterns {
            let mut at = 0_u32;
            for word in pattern {
                let new = nodes.len() as u32;
                let next = match word {
                    TopicWord::Word(word) => *children.entry((at, word)).or_insert(new),
                    TopicWord::One => *nonempty(&mut nodes[at as usize].one, new),
                    // `#.#` is `#`
                    TopicWord::Many if nodes[at as usize].loops => at,
                    TopicWord::Many => *nonempty(&mut nodes[at as usize].many, new),
                };
                if next == new {
                    nodes.push(node(*word == TopicWord::Many));
                }
                at = next;
            }
            ends.push((at, id));
        }
        ends.sort_unstable();
        for (position, (at, _)) in ends.iter().enumerate() {
            let node = &mut nodes[*at as usize];
            if node.ids_end == 0 {
                node.ids = position as u32;
            }
            node.ids_end = position as u32 + 1;
        }
        let edges: Box<[(u32, u32, Box<str>)]> = children.into_iter().map(|((from, word), to)| (from, to, word.into())).collect();
        let entries: Vec<(u64, u32)> = edges
            .iter()
            .zip(0..)
            .map(|((from, _, word), at)| (seed.hash_words(seed.hash_bytes(word.as_bytes()), u64::from(*from)), at))
            .collect();
        Topics {
            table: Table::new(&entries),
            nodes: nodes.into(),
            edges,
            ids: ends.into_iter().map(|(_, id)| id).collect(),
            seed,
        }
    }

    /// Hand the ids of all patterns that match *key* to *hit*, each once.
    pub fn query(&self, key: &str, alive: &mut Alive, mut hit: impl FnMut(&[u32])) {
        alive.now.clear();
        alive.enter(self, 0, true);
        for word in words(key) {
            alive.round += 1;
            alive.next.clear();
            let hash = self.seed.hash_bytes(word.as_bytes());
            for at in 0..alive.now.len() {
                let from = alive.now[at];
                let node = &self.nodes[from as usize];
                if node.loops {
                    alive.enter(self, from, false);
                }
                if node.one != NONE {
                    alive.enter(self, node.one, false);
                }
                let edge = self.table.find(self.seed.hash_words(hash, u64::from(from)), |edge| {
                    let (other, _, expected) = &self.edges[edge as usize];
                    *other == from && **expected == *word
                });
                if let Some(edge) = edge {
                    alive.enter(self, self.edges[edge as usize].1, false);
                }
            }
            std::mem::swap(&mut alive.now, &mut alive.next);
            if alive.now.is_empty() {
                return;
            }
        }
        for at in &alive.now {
            let node = &self.nodes[*at as usize];
            if node.ids < node.ids_end {
                hit(&self.ids[node.ids as usize..node.ids_end as usize]);
            }
        }
    }
}

impl Alive {
    /// Put *node* into the next set (or the first one), with the node under its `#`, each once.
    fn enter(&mut self, topics: &Topics, node: u32, first: bool) {
        if first {
            self.round += 1;
        }
        if self.marks.len() < topics.nodes.len() {
            self.marks.resize(topics.nodes.len(), 0);
        }
        let mut node = node;
        while node != NONE && self.marks[node as usize] != self.round {
            self.marks[node as usize] = self.round;
            let set = if first { &mut self.now } else { &mut self.next };
            set.push(node);
            node = topics.nodes[node as usize].many;
        }
    }
}

/// Fill *slot* with *new* if it holds nothing.
fn nonempty(slot: &mut u32, new: u32) -> &u32 {
    if *slot == NONE {
        *slot = new;
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    fn pattern(text: &str) -> Vec<TopicWord> {
        words(text)
            .map(|word| match word {
                "*" => TopicWord::One,
                "#" => TopicWord::Many,
                word => TopicWord::Word(word.into()),
            })
            .collect()
    }

    /// The definition: obvious, and exponential.
    fn naive(pattern: &[TopicWord], key: &[&str]) -> bool {
        match pattern {
            [] => key.is_empty(),
            [TopicWord::Word(word), rest @ ..] => key.first().is_some_and(|first| **first == **word) && naive(rest, &key[1..]),
            [TopicWord::One, rest @ ..] => !key.is_empty() && naive(rest, &key[1..]),
            [TopicWord::Many, rest @ ..] => (0..=key.len()).any(|at| naive(rest, &key[at..])),
        }
    }

    #[test]
    fn topics_answer_as_their_definition_does() {
        let mut dice = Dice::new(14);
        let mut alive = Alive::default();
        for round in 0..400 {
            let random =
                |dice: &mut Dice, kinds: &[&str]| (0..dice.below(6)).map(|_| *dice.pick(kinds)).collect::<Vec<_>>().join(".");
            let patterns: Vec<Vec<TopicWord>> =
                (0..[1, 5, 50][round % 3]).map(|_| pattern(&random(&mut dice, &["a", "b", "", "*", "#", "#", "a*"]))).collect();
            let built = Topics::new(patterns.iter().zip(0..).map(|(pattern, id)| (&pattern[..], id)), Seed::new(15));
            for _ in 0..30 {
                let key = random(&mut dice, &["a", "b", "", "c", "a*"]);
                let split: Vec<&str> = words(&key).collect();
                let mut found = Vec::new();
                built.query(&key, &mut alive, |ids| found.extend_from_slice(ids));
                found.sort_unstable();
                let expected: Vec<u32> = (0..patterns.len() as u32).filter(|at| naive(&patterns[*at as usize], &split)).collect();
                assert_eq!(found, expected, "{patterns:?} {key:?}");
                for pattern in &patterns {
                    assert_eq!(topic_matches(pattern, &key), naive(pattern, &split), "{pattern:?} {key:?}");
                }
            }
        }
    }

    #[test]
    fn words_may_be_empty_and_the_empty_key_has_none() {
        for (text, key, expected) in [
            ("a.*", "a.", true),
            ("a.*", "a", false),
            ("#", "", true),
            ("*", "", false),
            ("a.#", "a", true),
            ("a.#.b", "a.b", true),
            ("a*", "ab", false),
            ("a*", "a*", true),
            ("*.*", ".", true),
        ] {
            assert_eq!(topic_matches(&pattern(text), key), expected, "{text} {key}");
        }
    }

    #[test]
    fn many_hashes_stay_polynomial() {
        let hashes = vec!["#.a"; 200].join(".") + ".b";
        let built = Topics::new([(&pattern(&hashes)[..], 1)], Seed::new(16));
        let key = vec!["a"; 3000].join(".");
        built.query(&key, &mut Alive::default(), |_| panic!("no b in the key"));
        assert!(!topic_matches(&pattern(&hashes), &key));
    }
}
