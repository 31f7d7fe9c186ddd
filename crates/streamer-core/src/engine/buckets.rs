//! The index of a segment: recursive buckets. Quamina's field automaton made adaptive.
//!
//! ```text
//!   bucket 0 ──(status, "paid")──► bucket 1 ──(country, "DE")──► bucket 2: answers 4 8 15
//!      │                              └──(amount, ranges)───────► answer 16 if its other clauses hold
//!      ├──(user.id, "u7")──► candidate 23: verify the clauses that are not known yet
//!      └──(name, prefixes)─► ...
//! ```
//!
//! A bucket is a state, a transition is on a path and a value, and each state asks only the paths that its conjunctions
//! share. A conjunction is filed under one clause (each atom of it), the one that fewest others share; where more than
//! [`FEW`] meet, they are indexed again by what is left of them. So equalities become composite keys of any length, and
//! what remains is answered by a slice or verified one by one, at most [`FEW`] at a time.
//!
//! An event's value is looked up once, in a dictionary of all values that the segment's equalities name at that path, and is
//! a number from then on. The dictionary says where it leads from the first bucket; the equalities of all others are in one
//! hash table from bucket and number. Other atoms are in value automata of their bucket and path.
//!
//! Invariant: an event that makes a conjunction hold reaches it, once if each path on the way has one value. What may be
//! reached more than once is handed out apart (`several`). Nothing is handed out that does not hold, removed subscriptions
//! and whole-subscription checks apart.
//!
//! Cost: for an event, one lookup for each value at a path that a reached bucket asks, and a step an answer. 16 to 28 bytes
//! a filed atom, 28 a bucket.
//!
//! Rejected, with what it cost on 1,000,000 mixed subscriptions: one access predicate and then verifying each candidate
//! (up to 650 times slower at few matches), counting satisfied predicates (70 to 2,900 times), one automaton that asks all
//! paths in sorted order as Quamina does (its states multiply where subscriptions ask different paths).

use crate::automaton::literals;
use crate::automaton::ranges::NumberCut;
use crate::automaton::table::Table;
use crate::automaton::topics;
use crate::bloom::filter::Answer;
use crate::engine::checks::{Check, CheckRecord, UNNAMED, Wanted, is_other, next_check};
use crate::engine::encoded::{AtomView, FastHash};
use crate::engine::matchers::Matcher;
use crate::engine::store::{Store, flags};
use crate::engine::values::{SeenValue, Values};
use crate::engine::verify;
use crate::flatten::PathId;
use crate::map::Array;
use crate::prefetch::prefetch;
use crate::value::{Kind, Kinds, ScalarRef, Seed, head_of};
use crate::watch::spend;
use bytemuck::{Pod, Zeroable};
use std::collections::{HashMap, HashSet};

/// So many conjunctions are verified one by one rather than indexed again.
pub const FEW: usize = 8;

/// Where a transition leads, packed: a bucket, a candidate, or one subscription that needs no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Next(pub u32);

pub(super) const CANDIDATE: u32 = 1 << 31;
pub(super) const ANSWER: u32 = 1 << 30;
/// How many buckets, candidates or subscriptions a segment can have.
pub(super) const MOST: usize = (1 << 30) - 1;

/// Where a transition leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A bucket, by number.
    Bucket(u32),
    /// What is left to verify, by its place in the checks.
    Candidate(u32),
    /// A subscription.
    Answer(u32),
}

impl Next {
    /// No transition.
    pub(super) const NOWHERE: Next = Next(u32::MAX);

    pub(super) fn bucket(at: usize) -> Next {
        Next(at as u32)
    }

    pub(super) fn candidate(at: usize) -> Next {
        Next(at as u32 | CANDIDATE)
    }

    pub(super) fn answer(subscription: u32) -> Next {
        Next(subscription | ANSWER)
    }

    /// Where it leads, for people.
    pub(super) fn target(self) -> Target {
        if self.0 & CANDIDATE != 0 {
            Target::Candidate(self.0 & !CANDIDATE)
        } else if self.0 & ANSWER != 0 {
            Target::Answer(self.0 & !ANSWER)
        } else {
            Target::Bucket(self.0)
        }
    }
}

/// A value that equalities name, at a path. So much of it stands here that one look tells it from others, texts of more than
/// eight bytes apart.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct NamedValue {
    pub path: u32,
    /// Where the words of an atom that names it are.
    pub atom: u32,
    /// Where it leads from the first bucket.
    pub first: Next,
    pub brief: Brief,
}

/// A scalar's kind, what of it fits eight bytes, and the rest of a number or the length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Brief {
    kind: u32,
    head: [u32; 2],
}

impl Brief {
    const TEXT: u32 = 4;
    /// Of a text as long as this or longer, it stands for the length.
    const LONG: u32 = u32::MAX >> 3;

    #[inline]
    pub(super) fn of(scalar: ScalarRef<'_>) -> Brief {
        let (kind, head) = match scalar {
            ScalarRef::Null => (0, 0),
            ScalarRef::Bool(value) => (1 + u32::from(value), 0),
            ScalarRef::Number(number) => {
                let (floor, rest) = number.order_key();
                (3 | u32::from(rest) << 3, floor)
            }
            ScalarRef::String(text) => {
                let length = text.len().min(Brief::LONG as usize) as u32;
                (Brief::TEXT | length << 3, u64::from_le_bytes(head_of(text.as_bytes())))
            }
        };
        Brief { kind, head: [head as u32, (head >> 32) as u32] }
    }

    /// Whether there is more of the scalar than this.
    #[inline]
    fn is_part(self) -> bool {
        self.kind & 7 == Brief::TEXT && self.kind >> 3 > 8
    }
}

/// An equality of a bucket that is not the first one.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Equality {
    pub bucket: u32,
    /// The number of a value at a path.
    pub value: u32,
    pub next: Next,
}

/// All equalities: an open hash table that holds its keys, so that a hit is one cache line.
#[derive(Debug)]
pub(super) struct Equalities {
    pub(super) slots: Array<Equality>,
    factor: u64,
}

pub(super) const NO_BUCKET: u32 = u32::MAX;

impl Equalities {
    pub(super) fn new(equalities: &[Equality], seed: &Seed) -> Equalities {
        let size = if equalities.is_empty() { 0 } else { (equalities.len() + equalities.len() / 2 + 1).next_power_of_two() };
        let none = Equality { bucket: NO_BUCKET, value: 0, next: Next(0) };
        let (mut slots, factor) = (vec![none; size], factor(seed));
        for equality in equalities {
            let mut at = first(factor, size, equality.bucket, equality.value);
            while slots[at].bucket != NO_BUCKET {
                at = (at + 1) & (size - 1);
            }
            slots[at] = *equality;
        }
        Equalities { slots: slots.into(), factor }
    }

    /// A table that was built before; None where a search in it would not end.
    pub(super) fn from_slots(slots: Array<Equality>, seed: &Seed) -> Option<Equalities> {
        let ends =
            slots.is_empty() || (slots.len().is_power_of_two() && slots.iter().any(|equality| equality.bucket == NO_BUCKET));
        ends.then(|| Equalities { slots, factor: factor(seed) })
    }

    #[inline]
    fn find(&self, bucket: u32, value: u32) -> Option<Next> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = first(self.factor, self.slots.len(), bucket, value);
        loop {
            let equality = self.slots[at];
            if equality.bucket == bucket && equality.value == value {
                return Some(equality.next);
            }
            if equality.bucket == NO_BUCKET {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

fn factor(seed: &Seed) -> u64 {
    seed.hash_word(1) | 1
}

/// Buckets and values are numbered by the builder, so nobody who writes events chooses what collides.
#[inline]
fn first(factor: u64, size: usize, bucket: u32, value: u32) -> usize {
    let mixed = (u64::from(bucket) << 32 | u64::from(value)).wrapping_mul(factor);
    ((mixed ^ mixed >> 32).wrapping_mul(factor) >> 32) as usize & (size - 1)
}

/// A state. Its lists lie one after the other.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Bucket {
    /// Subscriptions that need no more: `lists[answers..several]`.
    pub answers: u32,
    /// Those that may be found more than once: `lists[several..lists_end]`.
    pub several: u32,
    pub lists_end: u32,
    /// What is verified one by one: records in `checks`.
    pub candidates: u32,
    pub candidates_end: u32,
    /// The paths that it asks, those that answer for a missing value first.
    pub probes: u32,
    pub probes_end: u32,
}

/// A path that a bucket asks.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Probe {
    pub path: u32,
    /// Which matcher, or [`EQUALITIES`].
    pub matcher: u32,
}

pub(super) const EQUALITIES: u32 = u32::MAX;

/// See the head of this file.
#[derive(Debug)]
pub struct Index {
    /// From a path and a value to the value's number.
    pub(super) dictionary: Table,
    pub(super) values: Array<NamedValue>,
    pub(super) equalities: Equalities,
    pub(super) buckets: Array<Bucket>,
    pub(super) lists: Array<u32>,
    pub(super) checks: Array<u32>,
    pub(super) probes: Array<Probe>,
    pub(super) matchers: Box<[Matcher]>,
    /// The first bucket of those conjunctions that are looked for whatever the filter says; bucket 0 where there are no others.
    pub(super) always: Option<u32>,
    /// How many conjunctions have no access predicate: every event that has the path is for them.
    pub(super) unkeyed: u32,
}

impl Index {
    /// Ask for the lines that every search reads first.
    pub(super) fn prefetch(&self) {
        prefetch(&self.buckets, 0);
        prefetch(&self.probes, 0);
        prefetch(&self.matchers, 0);
    }
}

/// What a segment found for one event.
#[derive(Debug, Default)]
pub struct Found {
    /// Subscriptions found once.
    pub once: Vec<u32>,
    /// Subscriptions that may stand several times, here and in no other list.
    pub several: Vec<u32>,
    /// How many conjunctions were verified or handed out.
    pub candidates: u64,
}

/// Scratch of the value automata.
#[derive(Debug, Default)]
pub struct MatcherScratch {
    literals: literals::SeenLiterals,
    topics: topics::TopicScratch,
    hits: Vec<u32>,
    /// Of each path: when its values were numbered, and which numbers they have.
    numbered: Vec<(u64, u32, u32)>,
    numbers: Vec<u32>,
    stamp: u64,
    /// Whether a path that was asked has more than [`MANY_VALUES`] values. From then on nothing is followed or checked twice.
    is_many: bool,
    followed: HashSet<u32, FastHash>,
    /// What checks said, by their words.
    checked: HashMap<Box<[u32]>, bool, FastHash>,
}

/// One event in one segment.
pub(super) struct Visit<'s, 'v, 'f> {
    pub store: &'s Store,
    pub index: &'s Index,
    pub map: &'s [PathId],
    /// For each path id: the segment's paths that it stands for, as a scalar and as leaves; only where there are many.
    pub positions: &'s [[u32; 2]],
    pub values: &'v mut Values<'f>,
    pub seed: &'s Seed,
    pub found: &'v mut Found,
    pub scratch: &'v mut MatcherScratch,
}

/// The hash of a value at a path.
#[inline]
pub(super) fn value_hash(seed: &Seed, value: u64, path: u32) -> u64 {
    seed.hash_words(value, u64::from(path))
}

/// Of so many values at a path the memory is asked for before it is needed.
const PREFETCHED_VALUES: usize = 4;

/// A bucket that asks more than this looks at the paths that the event has, not at those that it asks.
pub(crate) const MANY_PATHS: usize = 24;

/// What an event has at a path is few up to here: to look again costs less than to remember.
const MANY_VALUES: usize = 256;

impl Visit<'_, '_, '_> {
    /// Hand out all that the event makes hold; after a NO of the partition's filter, only what it does not speak of.
    pub fn run(&mut self, answer: Answer) {
        self.scratch.stamp += 1;
        self.scratch.numbers.clear();
        self.scratch.is_many = false;
        self.scratch.followed.clear();
        self.scratch.checked.clear();
        if self.scratch.numbered.len() < self.map.len() {
            self.scratch.numbered.resize(self.map.len(), (0, 0, 0));
        }
        if answer == Answer::Maybe {
            self.bucket(0, false);
        }
        if let Some(always) = self.index.always
            && (always != 0 || answer == Answer::No)
        {
            self.bucket(always, false);
        }
    }

    /// Recursion is as deep as the builder nests buckets: see `build::DEEPEST`.
    fn bucket(&mut self, number: u32, again: bool) {
        let bucket = self.index.buckets[number as usize];
        // A record of a candidate has some eight words.
        spend((bucket.candidates_end - bucket.candidates) as usize / 8 + 1);
        let (answers, several) =
            (bucket.answers as usize..bucket.several as usize, bucket.several as usize..bucket.lists_end as usize);
        if !answers.is_empty() {
            let list = if again { &mut self.found.several } else { &mut self.found.once };
            self.found.candidates += answers.len() as u64;
            list.extend_from_slice(&self.index.lists[answers]);
        }
        if !several.is_empty() {
            self.found.candidates += several.len() as u64;
            self.found.several.extend_from_slice(&self.index.lists[several]);
        }
        let mut at = bucket.candidates;
        while at < bucket.candidates_end {
            at = self.candidate(at, again);
        }
        let probes = bucket.probes as usize..bucket.probes_end as usize;
        if probes.len() <= MANY_PATHS || self.positions.is_empty() {
            if number == 0 {
                self.prefetch(probes.clone());
            }
            for at in probes {
                self.probe(number, self.index.probes[at], again);
            }
        } else {
            self.probe_present(number, probes, again);
        }
    }

    /// Ask for the memory that the first bucket's probes come upon first, and then for what its equalities lead to.
    fn prefetch(&mut self, probes: std::ops::Range<usize>) {
        let index = self.index;
        for probe in &index.probes[probes.clone()] {
            let matcher = index.matchers.get(probe.matcher as usize);
            for at in self.values.at(self.map[probe.path as usize], self.store.mode(probe.path)).take(PREFETCHED_VALUES) {
                let SeenValue { scalar, hash, .. } = self.values.get(at);
                match (matcher, scalar) {
                    (Some(matcher), Some(scalar)) => matcher.prefetch(scalar),
                    (None, Some(_)) => index.dictionary.prefetch(value_hash(self.seed, hash, probe.path)),
                    _ => {}
                }
            }
        }
        for probe in index.probes[probes].iter().filter(|probe| probe.matcher == EQUALITIES) {
            let values = self.values.at(self.map[probe.path as usize], self.store.mode(probe.path));
            for at in self.numbers(probe.path, values).take(PREFETCHED_VALUES) {
                if let Some(value) = index.values.get(self.scratch.numbers[at] as usize) {
                    self.prefetch_next(value.first);
                }
            }
        }
    }

    #[inline]
    fn prefetch_next(&self, next: Next) {
        if next.0 & CANDIDATE != 0 {
            prefetch(&self.index.checks, (next.0 & !CANDIDATE) as usize);
        } else if next.0 & ANSWER == 0 {
            prefetch(&self.index.buckets, next.0 as usize);
        }
    }

    /// Ask only the paths that the event has, and those that answer for a missing value.
    fn probe_present(&mut self, number: u32, probes: std::ops::Range<usize>, again: bool) {
        let index = self.index;
        let probes = &index.probes[probes];
        let for_missing = probes.partition_point(|probe| index.answers_missing(*probe));
        for probe in &probes[..for_missing] {
            self.probe(number, *probe, again);
        }
        let paths = &probes[for_missing..];
        self.values.find_present();
        for at in 0..self.values.present().len() {
            let path = self.values.present()[at];
            for position in self.positions[path.0 as usize] {
                let start = paths.partition_point(|probe| probe.path < position);
                for probe in paths[start..].iter().take_while(|probe| probe.path == position) {
                    self.probe(number, *probe, again);
                }
            }
        }
    }

    fn probe(&mut self, bucket: u32, probe: Probe, again: bool) {
        let values = self.values.at(self.map[probe.path as usize], self.store.mode(probe.path));
        let again = again || values.len() > 1;
        self.scratch.is_many |= values.len() > MANY_VALUES;
        if probe.matcher == EQUALITIES {
            for at in self.numbers(probe.path, values) {
                let number = self.scratch.numbers[at];
                let next = match bucket {
                    _ if number == UNNAMED => None,
                    0 => Some(self.index.values[number as usize].first).filter(|next| *next != Next::NOWHERE),
                    _ => self.index.equalities.find(bucket, number),
                };
                if let Some(next) = next {
                    self.follow(next, again);
                }
            }
            return;
        }
        let matcher = &self.index.matchers[probe.matcher as usize];
        if let Matcher::Kinds(kinds) = matcher {
            return self.kinds(kinds, values, again);
        }
        for at in values {
            let seen = self.values.get(at);
            let mut hits = std::mem::take(&mut self.scratch.hits);
            let start = hits.len();
            self.matcher(matcher, &seen, again, &mut hits);
            // Following a hit may ask other matchers, which append to the same list and take back what they appended.
            self.scratch.hits = hits;
            let end = self.scratch.hits.len();
            for hit in &self.scratch.hits[start..end] {
                self.prefetch_next(Next(*hit));
            }
            for hit in start..end {
                self.follow(Next(self.scratch.hits[hit]), again);
            }
            self.scratch.hits.truncate(start);
        }
    }

    /// The numbers of the values at a path, by position in the scratch.
    fn numbers(&mut self, path: u32, values: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let MatcherScratch { numbered, numbers, stamp, .. } = &mut *self.scratch;
        let known = numbered[path as usize];
        if known.0 == *stamp {
            return known.1 as usize..known.2 as usize;
        }
        let start = numbers.len();
        for at in values {
            let seen = self.values.get(at);
            let Some(scalar) = seen.scalar else {
                numbers.push(UNNAMED);
                continue;
            };
            let wanted = Brief::of(scalar);
            let found = self.index.dictionary.find(value_hash(self.seed, seen.hash, path), |value| {
                let NamedValue { path: other, atom, brief, .. } = self.index.values[value as usize];
                other == path && brief == wanted && (!brief.is_part() || is_named(self.store, atom, scalar))
            });
            numbers.push(found.unwrap_or(UNNAMED));
        }
        numbered[path as usize] = (*stamp, start as u32, numbers.len() as u32);
        start..numbers.len()
    }

    fn kinds(&mut self, kinds: &[(Kinds, u32)], values: std::ops::Range<usize>, again: bool) {
        let mut all = Kinds::NONE;
        for at in values.clone() {
            all = all.or(Kinds::of(self.values.get(at).kind));
        }
        if values.is_empty() {
            all = Kinds::MISSING;
        }
        for (wanted, next) in kinds {
            if !wanted.and(all).is_empty() {
                self.follow(Next(*next), again);
            }
        }
    }

    /// Ask one matcher about one value: answers are handed out, all else is appended to *hits*.
    fn matcher(&mut self, matcher: &Matcher, seen: &SeenValue<'_>, again: bool, hits: &mut Vec<u32>) {
        let Found { once, several, candidates } = &mut *self.found;
        let answer = if again { several } else { once };
        let before = answer.len();
        let mut hit = |ids: &[u32]| hits.extend_from_slice(ids);
        match (matcher, seen.scalar) {
            (Matcher::Numbers { answers, others }, Some(ScalarRef::Number(number))) => {
                answers.query_number(number, answer);
                others.query_number(number, hits);
            }
            (Matcher::Times { of, answers, others }, _) => {
                if let Some(number) = seen.leaf.time(*of) {
                    answers.query_number(number, answer);
                    others.query_number(number, hits);
                }
            }
            (Matcher::AnythingBut(sets), scalar) => {
                for (_, set) in sets.iter().filter(|(kinds, _)| kinds.has(seen.kind)) {
                    match scalar {
                        Some(scalar) => set.query(scalar, &mut hit),
                        None => set.all(&mut hit),
                    }
                }
            }
            (matcher, Some(ScalarRef::String(text))) => match matcher {
                Matcher::Strings { answers, others } => {
                    answers.query_text(text, answer);
                    others.query_text(text, hits);
                }
                Matcher::Prefixes(prefixes) => prefixes.query(text, hit),
                Matcher::Suffixes(suffixes) => suffixes.query(text, hit),
                Matcher::IgnoreCase(operands) => operands.query(text, hit),
                Matcher::Wildcards(wildcards) => wildcards.query(text, &mut self.scratch.literals, hit),
                Matcher::Regexps(regexps) => regexps.query(text, &mut self.scratch.literals, hit),
                Matcher::Nets(nets) => nets.query(text, hit),
                Matcher::Topics(topics) => topics.query(text, &mut self.scratch.topics, hit),
                _ => {}
            },
            _ => {}
        }
        *candidates += (answer.len() - before) as u64;
    }

    #[inline]
    fn follow(&mut self, next: Next, again: bool) {
        // Each of thousands of values may lead to the same place, which looks at thousands of values of another path.
        if again && self.scratch.is_many && !self.scratch.followed.insert(next.0) {
            return;
        }
        if next.0 & CANDIDATE != 0 {
            self.candidate(next.0 & !CANDIDATE, again);
        } else if next.0 & ANSWER != 0 {
            self.found.candidates += 1;
            let list = if again { &mut self.found.several } else { &mut self.found.once };
            list.push(next.0 & !ANSWER);
        } else {
            self.bucket(next.0, again);
        }
    }

    /// Verify the candidate at *at*, and say where the next record is.
    #[inline]
    fn candidate(&mut self, at: u32, again: bool) -> u32 {
        let (record, next) = CheckRecord::read(&self.index.checks, at);
        self.found.candidates += 1;
        let mut checks = record.checks;
        loop {
            let words = checks;
            let Some(check) = next_check(&mut checks) else { break };
            let holds = if self.scratch.is_many {
                self.check_once(check, &words[..words.len() - checks.len()])
            } else {
                self.check(check)
            };
            if !holds {
                return next;
            }
        }
        let again = again || record.is_apart();
        match record.wanted() {
            Wanted::One(subscription) => if again { &mut self.found.several } else { &mut self.found.once }.push(subscription),
            Wanted::All(conjunction) => hand_out(self.store, conjunction, again, self.found),
        }
        next
    }

    /// Verify *check*, and remember what came of its *words*.
    #[cold]
    fn check_once(&mut self, check: Check<'_>, words: &[u32]) -> bool {
        if let Some(known) = self.scratch.checked.get(words) {
            return *known;
        }
        let holds = self.check(check);
        self.scratch.checked.insert(words.into(), holds);
        holds
    }

    #[inline]
    fn check(&mut self, check: Check<'_>) -> bool {
        let path = match check {
            Check::Values(path, _) | Check::Other(path, ..) | Check::Kinds(path, _) | Check::Numbers(path, ..) => path,
            Check::Clause(clause) => return verify::clause_holds(self.store, clause, self.map, self.values),
        };
        let values = self.values.at(self.map[path as usize], self.store.mode(path));
        self.scratch.is_many |= values.len() > MANY_VALUES;
        match check {
            Check::Values(_, wanted) => {
                let numbers = self.numbers(path, values);
                self.scratch.numbers[numbers].iter().any(|number| wanted.contains(number))
            }
            Check::Other(_, kinds, none_of) => {
                let numbers = self.numbers(path, values.clone());
                values
                    .zip(numbers)
                    .any(|(at, number)| is_other(self.values.get(at).kind, self.scratch.numbers[number], kinds, none_of))
            }
            Check::Kinds(_, kinds) if values.is_empty() => Kinds::from_bits(kinds).has(Kind::Missing),
            Check::Kinds(_, kinds) => values.into_iter().any(|at| Kinds::from_bits(kinds).has(self.values.get(at).kind)),
            Check::Numbers(_, from, to) => values.into_iter().any(|at| match self.values.get(at).scalar {
                Some(ScalarRef::Number(number)) => {
                    let point = NumberCut::before(number);
                    from.is_none_or(|from| from <= point) && to.is_none_or(|to| point < to)
                }
                _ => false,
            }),
            Check::Clause(_) => false,
        }
    }
}

/// Whether an atom of *store* is that a value equals *scalar*.
pub(super) fn is_named(store: &Store, atom: u32, scalar: ScalarRef<'_>) -> bool {
    matches!(store.atom_at(atom).next().map(|atom| atom.view), Some(AtomView::Equal(other)) if other == scalar)
}

/// Hand out the subscriptions of a conjunction that holds.
#[inline]
pub(super) fn hand_out(store: &Store, conjunction: u32, again: bool, found: &mut Found) {
    let targets = store.targets(conjunction);
    if again {
        found.several.extend_from_slice(targets);
    } else if store.any_flags & flags::SEVERAL == 0 {
        found.once.extend_from_slice(targets);
    } else {
        for &target in targets {
            let several = store.flags[target as usize] & flags::SEVERAL != 0;
            if several { &mut found.several } else { &mut found.once }.push(target);
        }
    }
}

impl Index {
    /// Whether a probe can find something where there is no value.
    fn answers_missing(&self, probe: Probe) -> bool {
        probe.matcher != EQUALITIES
            && matches!(&self.matchers[probe.matcher as usize], Matcher::Kinds(kinds) if kinds.iter().any(|(kinds, _)| kinds.has(Kind::Missing)))
    }

    /// How many conjunctions have no access predicate.
    pub fn unkeyed(&self) -> u32 {
        self.unkeyed
    }

    /// Heap bytes held, those of automata over texts only in part.
    pub fn bytes(&self) -> usize {
        let matchers: usize = self.matchers.iter().map(Matcher::bytes).sum();
        self.dictionary.bytes()
            + self.values.bytes()
            + self.equalities.slots.bytes()
            + self.buckets.bytes()
            + self.lists.bytes()
            + self.checks.bytes()
            + self.probes.bytes()
            + matchers
    }
}
