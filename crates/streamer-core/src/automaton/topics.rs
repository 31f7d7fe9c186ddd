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
//! Invariant: a state is in the set once, however many ways lead to it. If too many states are alive (`#.a.#.a…` keeps
//! all of its own), the walk stops, and each pattern is compared with the key by itself (`places.rs`).
//!
//! Cost: words of the key × states alive, at most a step for each pattern; 20 bytes a node, 12 to 24 a transition by a word, 4 a
//! pattern. A word of the key is hashed once, and is a number then.
//!
//! Rejected: walking the trie recursively as broker sources do: with n times `#` in a pattern it takes exponential time.

use crate::automaton::places::{MANY, ONE, Places, Symbol, UNKNOWN, may_look, refuse, refuse_key};
use crate::automaton::table::Table;
use crate::map::{Array, Packed};
use crate::subscriptions::topics::{MAX_WORDS, TopicDialect, words};
use crate::value::Seed;
use crate::watch::spend;
use bytemuck::{Pod, Zeroable};
use std::collections::HashMap;

const NONE: u32 = u32::MAX;

/// The least and the most steps of a walk, for any number of patterns.
const FEWEST_STEPS: usize = 1 << 10;
const MOST_STEPS: usize = 1 << 20;

/// The last one is none: the ids of the others end there.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct TopicNode {
    one: u32,  // the node after `*`
    many: u32, // the node under `#`; its own under `#`
    ids: u32,  // what ends here, up to those of the next node
    from: u32, // the node before; of the first one itself
    word: u32, // that leads here
}

/// An immutable set of topic patterns of one dialect. See the head of this file.
#[derive(Debug)]
pub struct Topics {
    dialect: TopicDialect,
    seed: Seed,
    texts: Array<u8>,
    ends: Array<u32>, // the end of the text of each word
    numbers: Table,   // from a text to its word
    nodes: Array<TopicNode>,
    edges: Table, // from a node and a word to the next node
    ids: Array<u32>,
    patterns: usize, // how many
    many: [u32; 2],  // those with `#`, and those of them that begin with a word
}

/// Buffers that are kept between queries to save allocations.
#[derive(Debug, Default)]
pub struct TopicScratch {
    key: Vec<u32>,
    alive: Alive,
    places: Places,
}

/// The states alive.
#[derive(Debug, Default)]
struct Alive {
    now: Vec<u32>,
    next: Vec<u32>,
    marks: Vec<u64>,
    round: u64,
}

impl Topics {
    /// Build from pairs of a pattern and the id to report for it.
    pub fn new<'a, P: IntoIterator<Item = Symbol<'a>>>(
        dialect: TopicDialect,
        patterns: impl IntoIterator<Item = (P, u32)>,
        seed: Seed,
    ) -> Topics {
        let node = |from, word, many| TopicNode { one: NONE, many, ids: 0, from, word };
        let mut nodes = vec![node(0, UNKNOWN, NONE)];
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut edges: HashMap<(u32, u32), u32> = HashMap::new();
        let mut ends = Vec::new();
        for (pattern, id) in patterns {
            let mut at = 0_u32;
            for symbol in pattern {
                let new = nodes.len() as u32;
                let (word, next) = match symbol {
                    Symbol::Word(text) => {
                        let number = numbers.len() as u32;
                        let number = *numbers.entry(text).or_insert(number);
                        (number, *edges.entry((at, number)).or_insert(new))
                    }
                    Symbol::One => (ONE, *nonempty(&mut nodes[at as usize].one, new)),
                    // `#.#` is `#`
                    Symbol::Many if nodes[at as usize].many == at => continue,
                    Symbol::Many => (MANY, *nonempty(&mut nodes[at as usize].many, new)),
                };
                if next == new {
                    nodes.push(node(at, word, if word == MANY { new } else { NONE }));
                }
                at = next;
            }
            ends.push((at, id));
        }
        ends.sort_unstable();
        nodes.push(node(0, UNKNOWN, NONE));
        let mut position = 0;
        for (at, node) in nodes.iter_mut().enumerate() {
            position += ends[position..].iter().take_while(|(other, _)| (*other as usize) < at).count();
            node.ids = position as u32;
        }
        let edges: Vec<(u64, u32)> = edges.into_iter().map(|((from, word), to)| (edge_hash(&seed, from, word), to)).collect();
        let mut names: Vec<(&str, u32)> = numbers.into_iter().collect();
        names.sort_unstable_by_key(|(_, number)| *number);
        let hashes_of_names: Vec<(u64, u32)> =
            names.iter().map(|(text, number)| (seed.hash_bytes(text.as_bytes()), *number)).collect();
        let mut end = 0;
        let mut built = Topics {
            dialect,
            texts: names.iter().flat_map(|(text, _)| text.bytes()).collect(),
            ends: names
                .iter()
                .map(|(text, _)| {
                    end += text.len() as u32;
                    end
                })
                .collect(),
            numbers: Table::new(&hashes_of_names),
            nodes: nodes.into(),
            edges: Table::new(&edges),
            ids: ends.into_iter().map(|(_, id)| id).collect(),
            patterns: 0,
            many: [0; 2],
            seed,
        };
        let (mut patterns, mut many) = (0, [0; 2]);
        built.each_pattern(|_, row| {
            patterns += 1;
            if row.contains(&MANY) {
                many[0] += 1;
                many[1] += u32::from(!begins_wild(row));
            }
        });
        (built.patterns, built.many) = (patterns, many);
        built
    }

    /// Call *visit* with the last node and the words of each pattern.
    fn each_pattern(&self, mut visit: impl FnMut(u32, &[u32])) {
        let mut row = Vec::new();
        for end in (0..self.nodes.len() - 1).filter(|at| self.nodes[*at].ids < self.nodes[at + 1].ids) {
            row.clear();
            let mut at = end;
            while at != 0 {
                row.push(self.nodes[at].word);
                at = self.nodes[at].from as usize;
            }
            row.reverse();
            visit(end as u32, &row);
        }
    }

    /// The text of a word.
    #[inline]
    fn text(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.texts[start as usize..self.ends[number] as usize]
    }

    /// Its arrays.
    pub(crate) fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        visit(&mut self.texts);
        visit(&mut self.ends);
        visit(&mut self.ids);
        visit(self.numbers.array());
        visit(&mut self.nodes);
        visit(self.edges.array());
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        let words = self.texts.bytes() + self.ends.bytes() + self.numbers.bytes();
        words + self.nodes.bytes() + self.edges.bytes() + self.ids.bytes()
    }

    /// Hand the ids of all patterns that match *key* to *hit*, each once, as far as the budget of the event allows.
    pub fn query(&self, key: &str, scratch: &mut TopicScratch, mut hit: impl FnMut(&[u32])) {
        if !self.dialect.is_topic(key) {
            return;
        }
        let is_hidden = self.dialect.is_hidden(key);
        let TopicScratch { key: numbers, alive, places } = scratch;
        numbers.clear();
        for word in words(key, self.dialect.separator()) {
            if numbers.len() == MAX_WORDS {
                // A pattern without `#` has at most as many words as a key may have.
                let many = self.many[usize::from(is_hidden)];
                return if many > 0 {
                    refuse_key(many)
                };
            }
            let is_it = |number: u32| self.text(number as usize) == word.as_bytes();
            numbers.push(self.numbers.find(self.seed.hash_bytes(word.as_bytes()), is_it).unwrap_or(UNKNOWN));
        }
        if self.walk(numbers, is_hidden, alive, self.patterns.clamp(FEWEST_STEPS, MOST_STEPS)) {
            alive.now.iter().for_each(|at| self.hand_out(*at, &mut hit));
        } else {
            places.read(numbers, self.ends.len());
            self.compare(numbers.len(), is_hidden, places, hit);
        }
    }

    fn hand_out(&self, node: u32, hit: &mut impl FnMut(&[u32])) {
        let (ids, end) = (self.nodes[node as usize].ids, self.nodes[node as usize + 1].ids);
        if ids < end {
            hit(&self.ids[ids as usize..end as usize]);
        }
    }

    /// Find the states that are alive after *key*; return false if that takes more than *steps* steps. If the key is
    /// hidden, a wildcard does not match its first word.
    fn walk(&self, key: &[u32], is_hidden: bool, alive: &mut Alive, mut steps: usize) -> bool {
        alive.now.clear();
        alive.enter(self, 0, true);
        if is_hidden {
            alive.now.truncate(1);
        }
        for (at, word) in key.iter().enumerate() {
            let is_plain = is_hidden && at == 0;
            let Some(rest) = steps.checked_sub(alive.now.len()) else { return false };
            steps = rest;
            spend(alive.now.len());
            alive.round += 1;
            alive.next.clear();
            for at in 0..alive.now.len() {
                let from = alive.now[at];
                let node = &self.nodes[from as usize];
                if node.many == from {
                    alive.enter(self, from, false);
                }
                if node.one != NONE && !is_plain {
                    alive.enter(self, node.one, false);
                }
                if *word != UNKNOWN {
                    let is_it = |to: u32| {
                        let TopicNode { from: other, word: expected, .. } = self.nodes[to as usize];
                        (other, expected) == (from, *word)
                    };
                    if let Some(to) = self.edges.find(edge_hash(&self.seed, from, *word), is_it) {
                        alive.enter(self, to, false);
                    }
                }
            }
            std::mem::swap(&mut alive.now, &mut alive.next);
            if alive.now.is_empty() {
                break;
            }
        }
        true
    }

    /// Compare each pattern with a key of *key* words, until the budget is spent.
    fn compare(&self, key: usize, is_hidden: bool, places: &Places, mut hit: impl FnMut(&[u32])) {
        let (mut refused, mut longest) = (0, 0);
        self.each_pattern(|end, row| {
            spend(row.len() / 8 + 1);
            if is_hidden && begins_wild(row) {
                return;
            }
            if row.contains(&MANY) && !may_look(row.len(), key) {
                refused += 1;
                longest = longest.max(row.len());
            } else if places.matches(row) {
                self.hand_out(end, &mut hit);
            }
        });
        if refused > 0 {
            refuse(refused, longest, key);
        }
    }
}

fn begins_wild(row: &[u32]) -> bool {
    row.first().is_some_and(|word| *word >= MANY)
}

fn edge_hash(seed: &Seed, from: u32, word: u32) -> u64 {
    seed.hash_word(u64::from(from) << 32 | u64::from(word))
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

/// Fill *slot* with *new* if it is empty.
fn nonempty(slot: &mut u32, new: u32) -> &u32 {
    if *slot == NONE {
        *slot = new;
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::places::{take_refused, topic_matches};
    use crate::automaton::testing::Dice;
    use crate::subscriptions::topics::{TopicPattern, TopicWord};

    fn pattern(text: &str) -> Vec<TopicWord> {
        words(text, '.')
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

    fn build(patterns: &[Vec<TopicWord>]) -> Topics {
        Topics::new(
            TopicDialect::Amqp,
            patterns.iter().zip(0..).map(|(pattern, id)| (pattern.iter().map(Symbol::from), id)),
            Seed::new(15),
        )
    }

    /// The result of a query, sorted.
    fn found(topics: &Topics, key: &str, scratch: &mut TopicScratch) -> Vec<u32> {
        let mut found = Vec::new();
        topics.query(key, scratch, |ids| found.extend_from_slice(ids));
        found.sort_unstable();
        found
    }

    /// The patterns that match the latest key if each is compared with the key by itself.
    fn compared(topics: &Topics, scratch: &mut TopicScratch) -> Vec<u32> {
        let mut found = Vec::new();
        scratch.places.read(&scratch.key, topics.ends.len());
        topics.compare(scratch.key.len(), false, &scratch.places, |ids| found.extend_from_slice(ids));
        found.sort_unstable();
        found
    }

    #[test]
    fn topics_answer_as_their_definition_does_walked_and_compared() {
        let mut dice = Dice::new(14);
        let mut scratch = TopicScratch::default();
        for round in 0..400 {
            let random =
                |dice: &mut Dice, kinds: &[&str]| (0..dice.below(6)).map(|_| *dice.pick(kinds)).collect::<Vec<_>>().join(".");
            let patterns: Vec<Vec<TopicWord>> =
                (0..[1, 5, 50][round % 3]).map(|_| pattern(&random(&mut dice, &["a", "b", "", "*", "#", "#", "a*"]))).collect();
            let built = build(&patterns);
            for _ in 0..30 {
                let key = random(&mut dice, &["a", "b", "", "c", "a*"]);
                let split: Vec<&str> = words(&key, '.').collect();
                let expected: Vec<u32> = (0..patterns.len() as u32).filter(|at| naive(&patterns[*at as usize], &split)).collect();
                assert_eq!(found(&built, &key, &mut scratch), expected, "{patterns:?} {key:?}");
                assert_eq!(compared(&built, &mut scratch), expected, "{patterns:?} {key:?}");
                for pattern in &patterns {
                    let matches = topic_matches(TopicDialect::Amqp, pattern.iter().map(Symbol::from), &key);
                    assert_eq!(matches, naive(pattern, &split), "{pattern:?} {key:?}");
                }
            }
        }
    }

    #[test]
    fn long_keys_and_patterns_are_compared_as_they_are_walked() {
        let mut dice = Dice::new(41);
        let mut scratch = TopicScratch::default();
        let mut matched = 0;
        for _ in 0..200 {
            let length = 60 + dice.below(140);
            let key: Vec<&str> = (0..length).map(|_| *dice.pick(&["a", "a", "a", "b"])).collect();
            // Pieces of the key, now and then of another, with `#` between them.
            let mut patterns = Vec::new();
            for _ in 0..20 {
                let mut words = Vec::new();
                let mut at = dice.below(3) * dice.below(40);
                while at < length {
                    words.push("#");
                    let end = (at + dice.below(90)).min(length);
                    words.extend(key[at as usize..end as usize].iter().map(|word| if dice.chance(10) { "*" } else { *word }));
                    if dice.chance(5) {
                        words.push("b");
                    }
                    at = end + dice.below(70);
                }
                patterns.push(pattern(&words.join(".")));
            }
            let built = build(&patterns);
            let key = key.join(".");
            found(&built, &key, &mut scratch);
            let mut walked = Vec::new();
            assert!(built.walk(&scratch.key, false, &mut scratch.alive, usize::MAX));
            scratch.alive.now.iter().for_each(|at| built.hand_out(*at, &mut |ids: &[u32]| walked.extend_from_slice(ids)));
            walked.sort_unstable();
            assert_eq!(compared(&built, &mut scratch), walked, "{patterns:?} {key:?}");
            matched += walked.len();
        }
        assert!(matched > 200, "{matched}");
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
            assert_eq!(topic_matches(TopicDialect::Amqp, pattern(text).iter().map(Symbol::from), key), expected, "{text} {key}");
        }
    }

    #[test]
    fn many_patterns_of_many_hashes_are_walked_a_few_steps_and_compared() {
        let patterns: Vec<_> = (0..200).map(|at| pattern(&format!("{at}.#.{}.#.b", vec!["a"; 300].join(".#.")))).collect();
        let patterns: Vec<_> = patterns.into_iter().chain([pattern(&vec!["#.a"; 500].join("."))]).collect();
        let built = build(&patterns);
        let mut scratch = TopicScratch::default();
        let key = vec!["a"; MAX_WORDS].join(".");
        assert_eq!(found(&built, &key, &mut scratch), [200]);
        assert!(!built.walk(&scratch.key, false, &mut scratch.alive, FEWEST_STEPS));
        assert_eq!(take_refused(), None);
    }

    #[test]
    fn patterns_past_the_budget_of_an_event_are_refused_and_counted() {
        // 16 units for each word, so that 6,103 of the longest fit.
        let start = vec!["#.a"; 511].join(".");
        let patterns: Vec<_> = (0..6200).map(|at| pattern(&format!("{start}.#.{at}"))).collect();
        let built = build(&patterns);
        let mut scratch = TopicScratch::default();
        let start = vec!["a"; MAX_WORDS - 1].join(".");
        for (last, expected) in [("0", vec![0]), ("6102", vec![6102]), ("6103", vec![])] {
            let key = format!("{start}.{last}");
            assert_eq!(found(&built, &key, &mut scratch), expected);
            let (refused, detail) = take_refused().unwrap();
            let told = "a topic pattern of 1024 words is not looked at for a key of 1024: 16384 units are too many";
            assert_eq!((refused, &*detail), (97, told));
        }
        // The next event has a budget of its own.
        assert!(topic_matches(TopicDialect::Amqp, pattern("#.a").iter().map(Symbol::from), &start));
    }

    #[test]
    fn a_key_that_is_too_long_is_for_no_pattern_with_a_hash() {
        let built = build(&[pattern("#"), pattern("a.*"), pattern("#.a"), pattern("#.#")]);
        let mut scratch = TopicScratch::default();
        let key = vec!["a"; MAX_WORDS].join(".");
        assert_eq!(found(&built, &key, &mut scratch), [0, 2, 3]);
        assert_eq!(take_refused(), None);
        let key = format!("{key}.a");
        assert!(found(&built, &key, &mut scratch).is_empty());
        // `#.#` is `#`.
        assert_eq!(take_refused().unwrap().0, 2);
        assert!(!topic_matches(TopicDialect::Amqp, pattern("#.a").iter().map(Symbol::from), &key));
        assert!(!topic_matches(TopicDialect::Amqp, pattern("a.*").iter().map(Symbol::from), &key));
        assert_eq!(take_refused().unwrap().0, 1);
    }

    #[test]
    fn wildcards_of_mqtt_do_not_begin_with_a_dollar_walked_or_compared() {
        let texts = ["#", "+", "+/#", "+/a", "$SYS/#", "$SYS/+", "$+", "a/#"];
        let patterns: Vec<TopicPattern> =
            texts.iter().filter_map(|text| TopicPattern::parse(text, TopicDialect::Mqtt).ok()).collect();
        let rows = patterns.iter().map(|pattern| pattern.words.iter().map(Symbol::from));
        let built = Topics::new(TopicDialect::Mqtt, rows.zip(0..), Seed::new(15));
        let mut scratch = TopicScratch::default();
        for (key, expected) in [
            ("$SYS/a", &["$SYS/#", "$SYS/+"][..]),
            ("$SYS", &["$SYS/#"]),
            ("a/$SYS", &["#", "+/#", "a/#"]),
            ("a", &["#", "+", "+/#", "a/#"]),
            ("/a", &["#", "+/#", "+/a"]),
            ("$", &[]),
            ("a/+", &[]),
            ("", &[]),
        ] {
            let names = |ids: &[u32]| ids.iter().map(|id| patterns[*id as usize].to_string()).collect::<Vec<_>>();
            let expected: Vec<String> = expected.iter().map(|text| format!("{text} (mqtt)")).collect();
            assert_eq!(names(&found(&built, key, &mut scratch)), expected, "{key}");
            if TopicDialect::Mqtt.is_topic(key) {
                let mut ids = Vec::new();
                scratch.places.read(&scratch.key, built.ends.len());
                let is_hidden = TopicDialect::Mqtt.is_hidden(key);
                built.compare(scratch.key.len(), is_hidden, &scratch.places, |found| ids.extend_from_slice(found));
                ids.sort_unstable();
                assert_eq!(names(&ids), expected, "{key}");
            }
            for pattern in &patterns {
                assert_eq!(pattern.matches(key), expected.contains(&pattern.to_string()), "{pattern} {key}");
            }
        }
    }
}
