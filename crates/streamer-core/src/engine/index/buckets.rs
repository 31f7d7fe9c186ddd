//! The index of a segment: recursive buckets. Quamina's field automaton made adaptive.
//!
//! ```text
//!   bucket 0 ──(status, "paid")──► bucket 1 ──(country, "DE")──► bucket 2: answers 4 8 15
//!      │                              └──(amount, ranges)───────► answer 16 if its other clauses are true
//!      ├──(user.id, "u7")──► candidate 23: verify the clauses that are not known yet
//!      └──(name, prefixes)─► ...
//! ```
//!
//! A bucket is a state, a transition is on a path and a value, and each state reads only the paths that its
//! conjunctions share. A conjunction is filed under one clause (each atom of it), the one that fewest others share; if
//! more than [`FEW`] meet, they are indexed again by their other clauses. So equalities become composite keys of any
//! length, and the rest is answered by a slice or verified one by one, at most [`FEW`] at a time.
//!
//! An event's value is looked up once, in a dictionary of all values that the segment's equalities name at that path,
//! and is a number from then on. The dictionary has its transition from the first bucket; the equalities of all other
//! buckets are in one hash table by bucket and number. Other atoms are in value automata of their bucket and path, also the
//! equalities with lists and objects.
//!
//! Invariant: an event that satisfies a conjunction reaches it, once if each path along the way has one value.
//! Subscriptions that may be reached more than once are returned in a list of their own (`several`). Every subscription
//! that is returned matches, except for removed subscriptions and whole-subscription checks.
//!
//! Cost: for an event, one lookup for each value at a path that a reached bucket reads, and a step an answer. 16 to 28
//! bytes a filed atom, 28 a bucket.
//!
//! Rejected, with the cost on 1,000,000 mixed subscriptions: one access predicate and then verifying each candidate (up
//! to 650 times slower at few matches), counting satisfied predicates (70 to 2,900 times), one automaton that reads all
//! paths in sorted order as Quamina does (its states multiply if subscriptions use different paths).

use crate::automaton::table::Table;
use crate::engine::verify::matchers::Matcher;
use crate::map::{Array, Packed};
use crate::prefetch::prefetch;
use crate::stored::{ImageReader, ImageWriter};
use crate::value::{Kind, ScalarRef, Seed, head_of};
use bytemuck::{Pod, Zeroable};

/// Up to this many conjunctions are verified one by one rather than indexed again.
pub const FEW: usize = 8;

/// The target of a transition, packed: a bucket, a candidate, or one subscription without further conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(in crate::engine) struct Next(pub u32);

pub(in crate::engine) const CANDIDATE: u32 = 1 << 31;
pub(in crate::engine) const ANSWER: u32 = 1 << 30;
/// How many buckets, candidates or subscriptions a segment can have.
pub(super) const MOST: usize = (1 << 30) - 1;

/// The target of a transition.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Target {
    /// A bucket, by number.
    Bucket(u32),
    /// A candidate to verify, by its place in the checks.
    Candidate(u32),
    /// A subscription.
    Answer(u32),
}

impl Next {
    /// An absent transition.
    pub(in crate::engine) const NOWHERE: Next = Next(u32::MAX);

    pub(super) fn bucket(at: usize) -> Next {
        Next(at as u32)
    }

    pub(super) fn candidate(at: usize) -> Next {
        Next(at as u32 | CANDIDATE)
    }

    pub(super) fn answer(subscription: u32) -> Next {
        Next(subscription | ANSWER)
    }

    /// Its target, for people.
    pub(in crate::engine) fn target(self) -> Target {
        if self.0 & CANDIDATE != 0 {
            Target::Candidate(self.0 & !CANDIDATE)
        } else if self.0 & ANSWER != 0 {
            Target::Answer(self.0 & !ANSWER)
        } else {
            Target::Bucket(self.0)
        }
    }
}

/// A value that equalities name, at a path. It has enough of the value here to distinguish it by one comparison, except
/// for texts of more than eight bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::engine) struct NamedValue {
    pub path: u32,
    /// The position of the words of an atom that names it.
    pub atom: u32,
    /// The transition from the first bucket.
    pub first: Next,
    pub brief: Brief,
}

/// A scalar's kind, the part of it that fits eight bytes, and the rest of a number or the length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(in crate::engine) struct Brief {
    kind: u32,
    head: [u32; 2],
}

impl Brief {
    const TEXT: u32 = 4;
    /// Stands for the length of a text that is this long or longer.
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
    pub(super) fn is_part(self) -> bool {
        self.kind & 7 == Brief::TEXT && self.kind >> 3 > 8
    }
}

/// An equality of a bucket that is not the first one.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::engine) struct Equality {
    pub bucket: u32,
    /// The number of a value at a path.
    pub value: u32,
    pub next: Next,
}

/// All equalities: an open hash table with its keys inside, so that a hit is one cache line.
#[derive(Debug)]
pub(in crate::engine) struct Equalities {
    pub(in crate::engine) slots: Array<Equality>,
    factor: u64,
}

pub(in crate::engine) const NO_BUCKET: u32 = u32::MAX;

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

    fn write(&self, out: &mut ImageWriter) {
        out.array(&self.slots);
    }

    /// Read a table in which every search ends.
    fn read(from: &mut ImageReader<'_>, seed: &Seed) -> Option<Equalities> {
        let slots: Array<Equality> = from.array()?;
        let ends =
            slots.is_empty() || (slots.len().is_power_of_two() && slots.iter().any(|equality| equality.bucket == NO_BUCKET));
        ends.then(|| Equalities { slots, factor: factor(seed) })
    }

    #[inline]
    pub(super) fn find(&self, bucket: u32, value: u32) -> Option<Next> {
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

/// The builder numbers buckets and values, so an author of events cannot choose colliding ones.
#[inline]
fn first(factor: u64, size: usize, bucket: u32, value: u32) -> usize {
    let mixed = (u64::from(bucket) << 32 | u64::from(value)).wrapping_mul(factor);
    ((mixed ^ mixed >> 32).wrapping_mul(factor) >> 32) as usize & (size - 1)
}

/// A state. Its lists lie one after the other.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(in crate::engine) struct Bucket {
    /// Subscriptions without further conditions: `lists[answers..several]`.
    pub answers: u32,
    /// Subscriptions that may be found more than once: `lists[several..lists_end]`.
    pub several: u32,
    pub lists_end: u32,
    /// Records in `checks` that are verified one by one.
    pub candidates: u32,
    pub candidates_end: u32,
    /// The paths that it reads, those that also match a missing value first.
    pub probes: u32,
    pub probes_end: u32,
}

/// A path that a bucket reads.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::engine) struct Probe {
    pub path: u32,
    /// Which matcher, or [`EQUALITIES`].
    pub matcher: u32,
}

pub(in crate::engine) const EQUALITIES: u32 = u32::MAX;

/// See the head of this file.
#[derive(Debug)]
pub struct Index {
    /// From a path and a value to the value's number.
    pub(in crate::engine) dictionary: Table,
    pub(in crate::engine) values: Array<NamedValue>,
    pub(in crate::engine) equalities: Equalities,
    pub(in crate::engine) buckets: Array<Bucket>,
    pub(in crate::engine) lists: Array<u32>,
    pub(in crate::engine) checks: Array<u32>,
    pub(in crate::engine) probes: Array<Probe>,
    pub(in crate::engine) matchers: Box<[Matcher]>,
    /// The first bucket of the conjunctions that are checked even after a NO of the filter; bucket 0 if all are.
    pub(in crate::engine) always: Option<u32>,
    /// How many conjunctions have no access predicate: every event that has the path is for them.
    pub(in crate::engine) unkeyed: u32,
}

impl Index {
    /// Prefetch the lines that every search reads first.
    pub(super) fn prefetch(&self) {
        prefetch(&self.buckets, 0);
        prefetch(&self.probes, 0);
        prefetch(&self.matchers, 0);
    }
}

impl Index {
    /// Whether a probe can match without a value.
    pub(super) fn answers_missing(&self, probe: Probe) -> bool {
        probe.matcher != EQUALITIES
            && match &self.matchers[probe.matcher as usize] {
                Matcher::Kinds(kinds) => kinds.iter().any(|(kinds, _)| kinds.has(Kind::Missing)),
                // They read other paths, too.
                Matcher::Slices(_) => true,
                _ => false,
            }
    }

    /// Write it into an image, without its matchers, which are rebuilt from their recipe.
    pub(in crate::engine) fn write(&self, out: &mut ImageWriter) {
        self.dictionary.write(out);
        out.array(&self.values);
        self.equalities.write(out);
        out.array(&self.buckets);
        out.array(&self.lists);
        out.array(&self.checks);
        out.array(&self.probes);
    }

    /// Read one, without its matchers. Whether its parts fit one another is not looked at.
    pub(in crate::engine) fn read(from: &mut ImageReader<'_>, seed: &Seed, always: Option<u32>, unkeyed: u32) -> Option<Index> {
        Some(Index {
            dictionary: Table::read(from)?,
            values: from.array()?,
            equalities: Equalities::read(from, seed)?,
            buckets: from.array()?,
            lists: from.array()?,
            checks: from.array()?,
            probes: from.array()?,
            matchers: Box::default(),
            always,
            unkeyed,
        })
    }

    /// Its arrays, and those of its matchers.
    pub(super) fn each_array(&mut self, visit: &mut dyn FnMut(&mut dyn Packed)) {
        visit(self.dictionary.array());
        visit(&mut self.values);
        visit(&mut self.equalities.slots);
        visit(&mut self.buckets);
        visit(&mut self.lists);
        visit(&mut self.checks);
        visit(&mut self.probes);
        self.matchers.iter_mut().for_each(|matcher| matcher.each_array(visit));
    }

    /// How many conjunctions have no access predicate.
    pub fn unkeyed(&self) -> u32 {
        self.unkeyed
    }

    /// Heap bytes used, those of automata over texts only in part.
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

/// The hash of a value at a path.
#[inline]
pub(super) fn value_hash(seed: &Seed, value: u64, path: u32) -> u64 {
    seed.hash_words(value, u64::from(path))
}
