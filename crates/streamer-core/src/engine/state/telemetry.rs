//! Counters and latencies: exact, and cheap enough to be always on.
//!
//! ```text
//!   thread 1  Scratch ── Tally ──► shard 1 ┐
//!   thread 2  Scratch ── Tally ──► shard 2 ├──► Counters: their sums, on request
//!   other callers (rare)       ──► common  ┘
//! ```
//!
//! A shard belongs to one [`Tally`], and so to one thread at a time: counting is a load and a store to a cache line
//! that no other thread writes. Counts outside of a scratch go to the common shard with atomic additions.
//!
//! Invariant: each event that was begun is settled once, as matched, unmatched, ignored or rejected. The number of
//! events is the sum of the four, never a count of its own, so it is right in every reading, even during a match.
//!
//! How many matches an event has is counted in buckets, of which the first are the events without any: matched and unmatched
//! are read off them.
//!
//! Cost: about 3 ns an event, and two clock readings (50 ns) for one event in [`EVERY`] on average. The events are
//! drawn at random, so that the sample cannot follow a rhythm of the stream. Latencies are those of the sample; counts
//! are of all events.
//!
//! Rejected: one set of atomics for all threads (two threads on one line: 40-80 ns an event); timing every event (8 %
//! of an event without matches).

use crate::error::{EventCode, Ignored};
use crate::fork;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// On average, one event in this number is timed.
pub const EVERY: u32 = 16;

/// How many bounds a [`Distribution`] has.
const LEN: usize = 20;

/// Upper bounds of the buckets of a latency, in nanoseconds; one more bucket has the longer ones.
pub const BOUNDS: [u64; LEN] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
];

/// Upper bounds of the buckets of counts; one more bucket has the larger ones.
pub const SIZES: [u64; LEN] =
    [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

/// How many reasons there are to reject an event: each [`EventCode`], and last an error of the engine itself.
pub const CODES: usize = EventCode::ALL.len() + 1;

/// The word for the last of them.
pub const INTERNAL: &str = "internal";

/// How long something took, or how many there were of something, in buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// How many fell into each bucket of [`BOUNDS`] or [`SIZES`], and last those above all.
    pub counts: [u64; LEN + 1],
    /// The sum of all.
    pub sum: u64,
}

/// The counts since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that were settled: the sum of matched, unmatched, ignored and rejected.
    pub events: u64,
    /// Events that matched anything.
    pub matched: u64,
    /// Events without matches.
    pub unmatched: u64,
    /// Events that cannot match any subscription, by [`Ignored`].
    pub ignored: [u64; Ignored::ALL.len()],
    /// Matched and unmatched events in which the layout finds no collection, type or document.
    pub bare: u64,
    /// Events that could not be read, by [`EventCode`], and last those at which the engine failed.
    pub rejected: [u64; CODES],
    /// Subscriptions that matched, by event.
    pub matches: Distribution,
    /// The matches that are not certain.
    pub uncertain: u64,
    /// Conjunctions that were checked, by event: candidates of indexes, and those of plain lists.
    pub candidates: Distribution,
    /// Conjunctions of plain lists among them.
    pub listed: u64,
    /// Subscriptions that were found by an index and then evaluated; most events have none.
    pub evaluated: u64,
    /// Merges of segments.
    pub merges: u64,
    /// From the event's text to its matches, on a sample.
    pub total: Distribution,
    /// How long the queries of filters took, if there were any.
    pub bloom: Distribution,
    /// How long CEL programs took, if any ran.
    pub cel: Distribution,
}

impl Counters {
    /// Conjunctions that indexes brought up.
    pub fn indexed(&self) -> u64 {
        self.candidates.sum - self.listed
    }
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; LEN + 1],
    sum: AtomicU64,
}

/// On a cache line of its own, and not on the line that the processor fetches with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    matches: Histogram,
    uncertain: AtomicU64,
    candidates: Histogram,
    listed: AtomicU64,
    evaluated: AtomicU64,
    merges: AtomicU64,
    bare: AtomicU64,
    ignored: [AtomicU64; Ignored::ALL.len()],
    rejected: [AtomicU64; CODES],
    total: Histogram,
    bloom: Histogram,
    cel: Histogram,
}

/// How a number is added: by the only writer, or next to others.
type Add = fn(&AtomicU64, u64);

fn alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn beside_others(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Histogram {
    fn time(&self, took: Duration, add: Add) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add(&self.counts[BOUNDS.partition_point(|bound| *bound < nanoseconds)], 1);
        add(&self.sum, nanoseconds);
    }

    #[inline]
    fn count(&self, many: u64, add: Add) {
        // Most events have none of it or few; the first bounds are their own places.
        let at = if many <= 2 { many as usize } else { SIZES.partition_point(|bound| *bound < many) };
        add(&self.counts[at], 1);
        if many > 0 {
            add(&self.sum, many);
        }
    }

    fn add_to(&self, sum: &mut Distribution) {
        for (sum, count) in sum.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        sum.sum += self.sum.load(Ordering::Relaxed);
    }
}

impl Shard {
    fn add_to(&self, sum: &mut Counters) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.matches.add_to(&mut sum.matches);
        self.candidates.add_to(&mut sum.candidates);
        sum.uncertain += read(&self.uncertain);
        sum.listed += read(&self.listed);
        sum.evaluated += read(&self.evaluated);
        sum.merges += read(&self.merges);
        sum.bare += read(&self.bare);
        sum.ignored.iter_mut().zip(&self.ignored).for_each(|(sum, count)| *sum += read(count));
        sum.rejected.iter_mut().zip(&self.rejected).for_each(|(sum, count)| *sum += read(count));
        self.total.add_to(&mut sum.total);
        self.bloom.add_to(&mut sum.bloom);
        self.cel.add_to(&mut sum.cel);
    }
}

/// The counters of one engine.
#[derive(Debug)]
pub struct Telemetry {
    id: u64,
    is_off: AtomicBool,
    common: Shard,
    shards: Mutex<Vec<Arc<Shard>>>,
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Telemetry { id, is_off: AtomicBool::new(false), common: Shard::default(), shards: Mutex::default() }
    }
}

impl Telemetry {
    /// The sums of everything.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.common.add_to(&mut sum);
        let _inside = fork::inside();
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|shard| shard.add_to(&mut sum));
        let [unmatched, matched @ ..] = &sum.matches.counts;
        (sum.unmatched, sum.matched) = (*unmatched, matched.iter().sum());
        sum.events = sum.matched + sum.unmatched + sum.ignored.iter().sum::<u64>() + sum.rejected.iter().sum::<u64>();
        sum
    }

    /// Switch counting on or off, to measure its cost.
    pub fn record(&self, on: bool) {
        self.is_off.store(!on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    /// A tally of this engine, with a shard that no other tally has. Takes a lock.
    pub fn tally(&self) -> Tally {
        let _inside = fork::inside();
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        // A shard whose tally was dropped is reused, so there are as many as were ever in use at once.
        let free = shards.iter().find(|shard| Arc::strong_count(shard) == 1).cloned();
        let shard = free.unwrap_or_else(|| {
            shards.push(Arc::default());
            shards[shards.len() - 1].clone()
        });
        Tally { engine: self.id, random: 0x9E37_79B9 ^ (shards.len() as u32) << 7, shard, ..Tally::default() }
    }

    /// Count an event that was rejected before the engine saw it, or that the engine failed at (None).
    pub fn reject(&self, code: Option<EventCode>) {
        if self.is_on() {
            beside_others(&self.common.rejected[code.map_or(CODES - 1, |code| code as usize)], 1);
        }
    }

    /// Count an event that has no value, and so is not read.
    pub fn ignore(&self, reason: Ignored) {
        if self.is_on() {
            beside_others(&self.common.ignored[reason as usize], 1);
        }
    }

    /// Count a merge.
    pub fn merged(&self) {
        beside_others(&self.common.merges, 1);
    }
}

/// The counts of one thread. It is of no engine until it is first used with one.
#[derive(Debug, Default)]
pub struct Tally {
    engine: u64,
    shard: Arc<Shard>,
    is_on: bool,
    /// Events until the next of the sample.
    wait: u32,
    random: u32,
    began: Option<Instant>,
}

impl Tally {
    /// Begin an event of *telemetry*'s engine. Takes a lock if this is not a tally of it.
    #[inline]
    pub fn begin(&mut self, telemetry: &Telemetry) {
        if self.engine != telemetry.id {
            *self = telemetry.tally();
        }
        self.is_on = telemetry.is_on();
        self.began = None;
        if !self.is_on {
            return;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        // Xorshift; 0 to 2 * EVERY - 2 are EVERY - 1 in the mean.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.wait = self.random % (2 * EVERY - 1);
        self.began = Some(Instant::now());
    }

    /// Settle the event as matched or not, with the conjunctions that it looked at, *listed* being those of plain lists, and the
    /// number of subscriptions that it evaluated.
    #[inline]
    pub fn settle(&mut self, matches: usize, uncertain: usize, candidates: u64, [listed, evaluated]: [u64; 2]) {
        if !self.is_on {
            return;
        }
        let shard = &*self.shard;
        shard.candidates.count(candidates, alone);
        shard.matches.count(matches as u64, alone);
        if uncertain > 0 {
            alone(&shard.uncertain, uncertain as u64);
        }
        if listed > 0 {
            alone(&shard.listed, listed);
        }
        if evaluated > 0 {
            alone(&shard.evaluated, evaluated);
        }
        if let Some(took) = self.spent() {
            shard.total.time(took, alone);
        }
    }

    /// The layout finds only missing parts in the event, which is also settled.
    #[cold]
    pub fn bare(&self) {
        if self.is_on {
            alone(&self.shard.bare, 1);
        }
    }

    /// Settle the event as ignored.
    pub fn ignore(&mut self, reason: Ignored) {
        if self.is_on {
            alone(&self.shard.ignored[reason as usize], 1);
        }
    }

    /// Settle the event as rejected.
    pub fn reject(&mut self, code: EventCode) {
        if self.is_on {
            alone(&self.shard.rejected[code as usize], 1);
        }
    }

    /// Settle the event as one that the engine failed at.
    #[cold]
    pub fn fail(&mut self) {
        if self.is_on {
            alone(&self.shard.rejected[CODES - 1], 1);
        }
    }

    /// The time since the event began; None for one outside of the sample.
    #[inline]
    pub fn spent(&self) -> Option<Duration> {
        self.began.map(|began| began.elapsed())
    }

    /// The time, for an event of the sample: the start for [`Tally::bloom`].
    #[inline]
    pub fn now(&self) -> Option<Instant> {
        self.began.map(|_| Instant::now())
    }

    /// The filters were queried, from *since* on.
    pub fn bloom(&self, since: Option<Instant>) {
        if let Some(since) = since {
            self.shard.bloom.time(since.elapsed(), alone);
        }
    }

    /// Whether the event is of the sample.
    pub fn is_timed(&self) -> bool {
        self.began.is_some()
    }

    /// CEL programs ran for this time.
    pub fn cel(&self, took: Duration) {
        self.shard.cel.time(took, alone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_counted_once_whatever_became_of_it_and_whichever_thread_counts() {
        let telemetry = Telemetry::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut tally = Tally::default();
                    for n in 0..4000 {
                        tally.begin(&telemetry);
                        match n % 4 {
                            0 => tally.settle(0, 0, 0, [0, 0]),
                            1 => tally.settle(2, 1, 7, [3, 2]),
                            2 if n % 3 == 0 => telemetry.ignore(Ignored::Null),
                            2 => tally.ignore(Ignored::Type),
                            _ if n % 8 == 3 => tally.reject(EventCode::TooDeep),
                            _ => telemetry.reject(None),
                        }
                    }
                });
            }
        });
        let counters = telemetry.counters();
        assert_eq!((counters.events, counters.matched, counters.unmatched), (16_000, 4000, 4000));
        assert_eq!((counters.matches.sum, counters.uncertain), (8000, 4000));
        assert_eq!((counters.candidates.sum, counters.listed, counters.evaluated), (28_000, 12_000, 8000));
        let in_buckets = |distribution: Distribution| distribution.counts.iter().sum::<u64>();
        assert_eq!((in_buckets(counters.matches), in_buckets(counters.candidates)), (8000, 8000));
        assert_eq!(counters.ignored[Ignored::Null as usize] + counters.ignored[Ignored::Type as usize], 4000);
        assert_eq!(counters.ignored.iter().sum::<u64>(), 4000);
        assert_eq!(counters.rejected[EventCode::TooDeep as usize] + counters.rejected[CODES - 1], 4000);
        assert_eq!(counters.rejected.iter().sum::<u64>(), 4000);
    }

    #[test]
    fn the_first_event_of_a_thread_is_timed_and_then_one_in_sixteen() {
        let telemetry = Telemetry::default();
        let mut tally = telemetry.tally();
        tally.begin(&telemetry);
        assert!(tally.now().is_some());
        let timed = (0..160_000).filter(|_| {
            tally.begin(&telemetry);
            tally.now().is_some()
        });
        let timed = timed.count() as u32;
        assert!((9_500..10_500).contains(&timed), "{timed}");
    }

    #[test]
    fn a_dropped_tally_leaves_its_counts_and_its_shard_to_the_next() {
        let telemetry = Telemetry::default();
        for _ in 0..100 {
            let mut tally = telemetry.tally();
            tally.begin(&telemetry);
            tally.settle(1, 0, 1, [0, 0]);
        }
        assert_eq!(telemetry.counters().matched, 100);
        assert_eq!(telemetry.shards.lock().unwrap().len(), 1);
    }

    #[test]
    fn nothing_is_counted_while_recording_is_off() {
        let telemetry = Telemetry::default();
        telemetry.record(false);
        let mut tally = telemetry.tally();
        tally.begin(&telemetry);
        tally.settle(1, 0, 1, [1, 0]);
        telemetry.reject(None);
        assert_eq!(telemetry.counters(), Counters::default());
    }

    #[test]
    fn each_code_is_counted_in_its_own_place() {
        for (at, code) in EventCode::ALL.into_iter().enumerate() {
            assert_eq!((code as usize, EventCode::from_word(code.as_str())), (at, Some(code)));
        }
    }

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for nanoseconds in [0, 250, 251, 1_000_000_000, 1_000_000_001] {
            histogram.time(Duration::from_nanos(nanoseconds), alone);
        }
        let mut latency = Distribution::default();
        histogram.add_to(&mut latency);
        assert_eq!((latency.counts[0], latency.counts[1], latency.counts[19], latency.counts[20]), (2, 1, 1, 1));
        assert_eq!(latency.sum, 2_000_000_502);
    }

    #[test]
    fn a_number_falls_into_the_first_bucket_that_holds_it() {
        for (at, bound) in SIZES.into_iter().enumerate() {
            let histogram = Histogram::default();
            histogram.count(bound, alone);
            histogram.count(bound + 1, alone);
            let mut read = Distribution::default();
            histogram.add_to(&mut read);
            assert_eq!((read.counts[at], read.counts[at + 1], read.sum), (1, 1, 2 * bound + 1), "{bound}");
        }
    }
}
