//! The search of a segment's index for one event: from bucket to bucket, as `buckets.rs` has them.
//!
//! Invariant: a subscription that is found matches, except for removed subscriptions and whole-subscription checks. If
//! there are enough values to cost time, a target that may be reached more than once is followed or checked only once.

use crate::automaton::literals;
use crate::automaton::ranges::NumberCut;
use crate::automaton::topics;
use crate::bloom::answer::Answer;
use crate::engine::index::buckets::{ANSWER, Brief, CANDIDATE, EQUALITIES, Index, NamedValue, Next, Probe, value_hash};
use crate::engine::verify::atoms::atom_holds;
use crate::engine::verify::check_records::{Check, CheckRecord, UNNAMED, Wanted, is_other, next_check};
use crate::engine::verify::clauses;
use crate::engine::verify::encoded::{AtomView, FastHash};
use crate::engine::verify::matchers::Matcher;
use crate::engine::verify::paths::{MANY_PATHS, Positions};
use crate::engine::verify::slices::Slices;
use crate::engine::verify::store::{Store, flags};
use crate::engine::verify::values::{LeafValue, Values};
use crate::flatten::PathId;
use crate::prefetch::prefetch;
use crate::subscriptions::normal_form::Mode;
use crate::value::{Kind, Kinds, Number, ScalarRef, Seed};
use crate::watch::spend;
use std::collections::{HashMap, HashSet};

/// The results of a segment for one event.
#[derive(Debug, Default)]
pub struct SearchResults {
    /// Subscriptions found once.
    pub once: Vec<u32>,
    /// Subscriptions that may be listed several times, here and in no other list.
    pub several: Vec<u32>,
    /// How many conjunctions were verified or returned.
    pub candidates: u64,
}

/// Scratch of the value automata.
#[derive(Debug, Default)]
pub struct MatcherScratch {
    literals: literals::SeenLiterals,
    topics: topics::TopicScratch,
    hits: Vec<u32>,
    /// The bits of an event's values for the fields of slices.
    lines: Vec<u64>,
    /// For each path: when its values were numbered, and their numbers, each with the kind of its value.
    numbered: Vec<(u64, u32, u32)>,
    numbers: Vec<(u32, Kind)>,
    stamp: u64,
    /// Whether a path has more than [`MANY_VALUES`] values. From then on each target is followed and checked only once.
    is_many: bool,
    followed: HashSet<u32, FastHash>,
    /// The results of checks, by their words.
    checked: HashMap<Box<[u32]>, bool, FastHash>,
}

/// One event in one segment.
pub(super) struct Search<'s, 'v, 'f> {
    pub store: &'s Store,
    pub index: &'s Index,
    pub map: &'s [PathId],
    /// For each path id: the segment's paths that it stands for; only if there are many.
    pub positions: &'s [Positions],
    pub values: &'v mut Values<'f>,
    pub seed: &'s Seed,
    pub results: &'v mut SearchResults,
    pub scratch: &'v mut MatcherScratch,
}

/// Up to this many values at a path are prefetched.
const PREFETCHED_VALUES: usize = 4;

/// Places among [`Positions`]: a path that is checked for a change, and the path of its value before.
const CHANGED: usize = Mode::Changed as usize;
const GONE: usize = Mode::ALL.len();

/// Up to this many values at a path, repeating a check costs less than remembering it.
const MANY_VALUES: usize = 256;

impl Search<'_, '_, '_> {
    /// Find everything that the event satisfies; after a NO of the partition's filter, only the subscriptions that the
    /// filter does not cover.
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
            let list = if again { &mut self.results.several } else { &mut self.results.once };
            self.results.candidates += answers.len() as u64;
            list.extend_from_slice(&self.index.lists[answers]);
        }
        if !several.is_empty() {
            self.results.candidates += several.len() as u64;
            self.results.several.extend_from_slice(&self.index.lists[several]);
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

    /// Prefetch the dictionary entries of the values at the first bucket's paths. It is the largest table of the index,
    /// so each lookup waits for memory: if they are requested together, the waits overlap.
    fn prefetch(&mut self, probes: std::ops::Range<usize>) {
        let index = self.index;
        for Probe { path, .. } in index.probes[probes].iter().filter(|probe| probe.matcher == EQUALITIES) {
            for at in self.values.at(self.map[*path as usize], self.store.mode(*path)).take(PREFETCHED_VALUES) {
                index.dictionary.prefetch(value_hash(self.seed, self.values.get(at).hash, *path));
            }
        }
    }

    /// Probe only the paths that the event has, and those that also match a missing value.
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
            for (mode, position) in self.positions[path.0 as usize].into_iter().enumerate() {
                let is_wanted = position != u32::MAX
                    && match mode {
                        CHANGED => self.is_present(position),
                        GONE => !self.is_present(position),
                        _ => true,
                    };
                if !is_wanted {
                    continue;
                }
                let start = paths.partition_point(|probe| probe.path < position);
                for probe in paths[start..].iter().take_while(|probe| probe.path == position) {
                    self.probe(number, *probe, again);
                }
            }
        }
    }

    /// Whether a path has a value now. A change is checked once: at the present value, or if there is none at the value
    /// before.
    fn is_present(&mut self, path: u32) -> bool {
        !self.values.at(self.map[path as usize], Mode::Scalar).is_empty()
    }

    fn probe(&mut self, bucket: u32, probe: Probe, again: bool) {
        if probe.matcher == EQUALITIES {
            let numbers = self.numbers(probe.path);
            let again = again || numbers.len() > 1;
            for at in numbers {
                let (number, _) = self.scratch.numbers[at];
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
        let values = self.values_at(probe.path);
        let again = again || values.len() > 1;
        let matcher = &self.index.matchers[probe.matcher as usize];
        match matcher {
            Matcher::Kinds(kinds) => return self.kinds(kinds, values, again),
            Matcher::Slices(slices) => return self.slices(slices, again),
            _ => {}
        }
        for at in values {
            let value = self.values.get(at);
            let mut hits = std::mem::take(&mut self.scratch.hits);
            let start = hits.len();
            self.matcher(matcher, at, &value, again, &mut hits);
            // Following a hit may run other matchers, which append to the same list and then remove what they appended.
            self.scratch.hits = hits;
            let end = self.scratch.hits.len();
            for hit in start..end {
                self.follow(Next(self.scratch.hits[hit]), again);
            }
            self.scratch.hits.truncate(start);
        }
    }

    #[inline]
    fn values_at(&mut self, path: u32) -> std::ops::Range<usize> {
        let values = self.values.at(self.map[path as usize], self.store.mode(path));
        self.scratch.is_many |= values.len() > MANY_VALUES;
        values
    }

    /// The numbers of the values at a path, by position in the scratch, with one value of each kind that has no number.
    #[inline]
    fn numbers(&mut self, path: u32) -> std::ops::Range<usize> {
        let (stamp, start, end) = self.scratch.numbered[path as usize];
        if stamp == self.scratch.stamp { start as usize..end as usize } else { self.number(path) }
    }

    fn number(&mut self, path: u32) -> std::ops::Range<usize> {
        let values = self.values_at(path);
        let MatcherScratch { numbered, numbers, stamp, .. } = &mut *self.scratch;
        let start = numbers.len();
        let mut unnamed = Kinds::NONE;
        for at in values {
            let find = |hash| {
                self.index.dictionary.find(value_hash(self.seed, hash, path), |value| {
                    let NamedValue { path: other, atom, brief, .. } = self.index.values[value as usize];
                    let is_it =
                        |scalar| brief == Brief::of(scalar) && (!brief.is_part() || self.store.encoded.is_equality(atom, scalar));
                    other == path && self.values.get(at).scalar.is_some_and(is_it)
                })
            };
            let known = self.values.scalar_hash(at).and_then(find);
            let kind = self.values.kind(at);
            if known.is_some() || !unnamed.has(kind) {
                unnamed = if known.is_some() { unnamed } else { unnamed.or(Kinds::of(kind)) };
                numbers.push((known.unwrap_or(UNNAMED), kind));
            }
        }
        numbered[path as usize] = (*stamp, start as u32, numbers.len() as u32);
        start..numbers.len()
    }

    fn kinds(&mut self, kinds: &[(Kinds, Box<[u32]>)], values: std::ops::Range<usize>, again: bool) {
        let mut all = Kinds::NONE;
        for at in values.clone() {
            all = all.or(Kinds::of(self.values.get(at).kind));
        }
        if values.is_empty() {
            all = Kinds::MISSING;
        }
        for (wanted, next) in kinds {
            if !wanted.and(all).is_empty() {
                next.iter().for_each(|next| self.follow(Next(*next), again));
            }
        }
    }

    /// Follow the target of each row that the event does not rule out.
    fn slices(&mut self, slices: &Slices, again: bool) {
        let mut lines = std::mem::take(&mut self.scratch.lines);
        lines.clear();
        for (field, path) in slices.paths().enumerate() {
            let at = self.values_at(path);
            lines.push(slices.lines_of(field, self.values, at));
        }
        spend(slices.blocks() * lines.len() / 64);
        let mut hits = std::mem::take(&mut self.scratch.hits);
        let (start, checks) = (hits.len(), &self.index.checks);
        slices.find(&lines, |next| {
            // The checks of neighbours lie next to one another, but few of them remain.
            prefetch(checks, (next & !CANDIDATE) as usize);
            hits.push(next);
        });
        (self.scratch.lines, self.scratch.hits) = (lines, hits);
        let end = self.scratch.hits.len();
        for hit in start..end {
            self.follow(Next(self.scratch.hits[hit]), again);
        }
        self.scratch.hits.truncate(start);
    }

    /// Match one value: answers go to the result, other targets are appended to *hits*.
    fn matcher(&mut self, matcher: &Matcher, at: usize, value: &LeafValue<'_>, again: bool, hits: &mut Vec<u32>) {
        let SearchResults { once, several, candidates } = &mut *self.results;
        let answer = if again { several } else { once };
        let before = answer.len();
        let mut hit = |ids: &[u32]| hits.extend_from_slice(ids);
        match (matcher, value.scalar) {
            (Matcher::Numbers { answers, others }, Some(ScalarRef::Number(number))) => {
                answers.query_number(number, answer);
                others.query_number(number, hits);
            }
            (Matcher::Times { of, answers, others }, _) => {
                if let Some(number) = value.leaf.time(*of) {
                    answers.query_number(number, answer);
                    others.query_number(number, hits);
                }
            }
            (Matcher::Sizes { answers, others }, _) => {
                if let Some(size) = self.values.size(at) {
                    answers.query_number(Number::from_u64(size.into()), answer);
                    others.query_number(Number::from_u64(size.into()), hits);
                }
            }
            (Matcher::Trees(trees), None) if trees.has(value.kind) => {
                if let Some(hash) = self.values.tree_hash(at) {
                    let equals = |tree: &_| atom_holds(&AtomView::EqualTree(tree), self.values, at);
                    hits.extend(trees.find(hash, equals));
                }
            }
            (Matcher::AnythingBut(sets), scalar) => {
                for (_, set) in sets.iter().filter(|(kinds, _)| kinds.has(value.kind)) {
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
                Matcher::IgnoreCase(operands) => operands.query(text, &mut self.scratch.literals, hit),
                Matcher::Wildcards(wildcards) => wildcards.query(text, &mut self.scratch.literals, hit),
                Matcher::Regexps(regexps) => regexps.query(text, &mut self.scratch.literals, hit),
                Matcher::Nets(nets) => nets.query(text, hit),
                Matcher::Topics(dialects) => {
                    dialects.iter().for_each(|topics| topics.query(text, &mut self.scratch.topics, &mut hit));
                }
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
            self.results.candidates += 1;
            let list = if again { &mut self.results.several } else { &mut self.results.once };
            list.push(next.0 & !ANSWER);
        } else {
            self.bucket(next.0, again);
        }
    }

    /// Verify the candidate at *at*, and return the position of the next record.
    #[inline]
    fn candidate(&mut self, at: u32, again: bool) -> u32 {
        let (record, next) = CheckRecord::read(&self.index.checks, at);
        self.results.candidates += 1;
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
            Wanted::One(subscription) => {
                if again { &mut self.results.several } else { &mut self.results.once }.push(subscription)
            }
            Wanted::All(conjunction) => hand_out(self.store, conjunction, again, self.results),
        }
        next
    }

    /// Verify *check*, and remember the result by its *words*.
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
        match check {
            // Most checks: a value that was already numbered for another condition.
            Check::Values(path, wanted) => {
                let numbers = self.numbers(path);
                self.scratch.numbers[numbers].iter().any(|(number, _)| wanted.contains(number))
            }
            Check::Other(path, kinds, none_of) => {
                let numbers = self.numbers(path);
                self.scratch.numbers[numbers].iter().any(|(number, kind)| is_other(*kind, *number, kinds, none_of))
            }
            Check::Kinds(path, kinds) => {
                let (values, kinds) = (self.values_at(path), Kinds::from_bits(kinds));
                if values.is_empty() {
                    kinds.has(Kind::Missing)
                } else {
                    values.into_iter().any(|at| kinds.has(self.values.get(at).kind))
                }
            }
            Check::Numbers(path, from, to) => self.values_at(path).any(|at| match self.values.get(at).scalar {
                Some(ScalarRef::Number(number)) => {
                    let point = NumberCut::before(number);
                    from.is_none_or(|from| from <= point) && to.is_none_or(|to| point < to)
                }
                _ => false,
            }),
            Check::Clause(clause) => clauses::clause_holds(self.store, clause, self.map, self.values),
            Check::All(conjunction) => {
                let clauses = self.store.clauses(conjunction);
                spend(clauses.len());
                clauses.iter().all(|clause| clauses::clause_holds(self.store, *clause, self.map, self.values))
            }
        }
    }
}

/// Add the subscriptions of a conjunction that is true to the result.
#[inline]
pub(super) fn hand_out(store: &Store, conjunction: u32, again: bool, results: &mut SearchResults) {
    let targets = store.targets(conjunction);
    if again {
        results.several.extend_from_slice(targets);
    } else if store.any_flags & flags::SEVERAL == 0 {
        results.once.extend_from_slice(targets);
    } else {
        for &target in targets {
            let several = store.flags[target as usize] & flags::SEVERAL != 0;
            if several { &mut results.several } else { &mut results.once }.push(target);
        }
    }
}
