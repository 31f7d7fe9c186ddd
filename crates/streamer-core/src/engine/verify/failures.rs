//! Errors of CEL: how many there were, for which subscriptions, and which of them are reported.
//!
//! Errors are counted by reason and by subscription. At most one a [`MINUTE`] of each subscription is reported in
//! words, for the host to log: a wrong expression fails for every event.
//!
//! Cost: an error costs a look at the clock and an addition to the subscription's [`Heard`].
//!
//! Rejected: reporting each error to the host, since that would need the GIL for about every event of a wrong
//! expression; a map of the errors of each subscription, since all threads would lock it for each of them.

use crate::cel::Reason;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seconds between two reported errors of one subscription.
const MINUTE: u64 = 60;

/// An error of a subscription's program to report.
#[derive(Clone, Debug)]
pub struct CelError {
    /// The subscription's slot; none for a regexp and for a topic, which are looked for once for all subscriptions that have them.
    pub slot: Option<u32>,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub detail: String,
    /// How many errors of it there were, this one included.
    pub count: u64,
}

/// How many errors a subscription had, in the lower bits, and when one of them was last reported, in seconds of the
/// engine's life.
#[derive(Debug, Default)]
pub(in crate::engine) struct Heard(AtomicU64);

/// 68 billion errors; the seconds above them are 8 years.
const COUNT_BITS: u32 = 36;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Heard {
    /// Count *errors*; if one is due to be reported at *now*, return the number of errors. *now* is not 0.
    pub fn add(&self, errors: u64, now: u64) -> Option<u64> {
        let before = self.0.fetch_add(errors, Ordering::Relaxed);
        let last = before >> COUNT_BITS;
        if last != 0 && now < last + MINUTE {
            return None;
        }
        // If several threads find that a report is due, one of them reports.
        let tell = |heard: u64| (heard >> COUNT_BITS == last).then_some(now << COUNT_BITS | heard & COUNT);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, tell).ok().map(|_| (before + errors) & COUNT)
    }

    /// How many errors there were.
    pub fn errors(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & COUNT
    }
}

/// The subscriptions with errors, up to a limit: those whose counts are worth a report.
///
/// ```text
///   slot ── hash ──► a group of [`WAYS`] entries: slot and the reason that was reported last
/// ```
///
/// If a group is full, the subscription with the fewest errors is dropped. A subscription that keeps failing is
/// reported once a minute, and then comes back. Lock-free, since the process may be forked at any moment: if two are
/// reported at once, one may be missing until then.
#[derive(Debug)]
pub(in crate::engine) struct Failing([AtomicU64; GROUPS * WAYS]);

const GROUPS: usize = 128;
const WAYS: usize = 8;

impl Default for Failing {
    fn default() -> Failing {
        Failing([const { AtomicU64::new(0) }; GROUPS * WAYS])
    }
}

impl Failing {
    #[cold]
    pub fn tell(&self, slot: u32, reason: Reason, errors: impl Fn(u32) -> u64) {
        let group = (slot.wrapping_mul(0x9E37_79B9) >> (32 - GROUPS.ilog2())) as usize;
        let rank = |entry: Option<u32>| match entry {
            Some(entry) if entry == slot => (0, 0),
            None => (1, 0),
            Some(entry) => (2, errors(entry)),
        };
        let ways = &self.0[group * WAYS..][..WAYS];
        let place = ways.iter().min_by_key(|way| rank(Failing::entry(way).map(|(entry, _)| entry)));
        if let Some(place) = place {
            place.store(u64::from(slot) << 8 | (reason as u64 + 1), Ordering::Relaxed);
        }
    }

    fn entry(way: &AtomicU64) -> Option<(u32, Reason)> {
        let entry = way.load(Ordering::Relaxed);
        let reason = (entry & 0xFF).checked_sub(1)?;
        Some(((entry >> 8) as u32, *Reason::ALL.get(reason as usize)?))
    }

    /// The slots, and the reasons.
    pub fn read(&self) -> impl Iterator<Item = (u32, Reason)> {
        self.0.iter().filter_map(Failing::entry)
    }
}

/// A subscription whose evaluations ended in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingSubscription {
    /// Its id.
    pub id: String,
    /// How many.
    pub errors: u64,
    /// The reason of its last report.
    pub reason: Reason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_counted_and_one_a_minute_is_told_by_one_of_the_threads() {
        let heard = Heard::default();
        let told = AtomicU64::new(0);
        for minute in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for second in 0..1000 {
                            let now = 1 + MINUTE * minute + second % MINUTE;
                            told.fetch_add(u64::from(heard.add(1, now).is_some()), Ordering::Relaxed);
                        }
                    });
                }
            });
        }
        assert_eq!(heard.errors(), 12_000);
        assert_eq!(told.into_inner(), 3);
        let later = 10 * MINUTE;
        assert_eq!((heard.add(5, later), heard.add(1, later + MINUTE - 1)), (Some(12_005), None));
        assert_eq!(heard.add(1, later + MINUTE), Some(12_007));
    }

    #[test]
    fn what_fails_most_stays_however_many_others_fail() {
        let failing = Failing::default();
        let errors = |slot: u32| if slot % 1000 == 7 { 1_000_000 } else { 1 };
        for slot in 0..100_000 {
            failing.tell(slot, if slot % 1000 == 7 { Reason::Overflow } else { Reason::NotBool }, errors);
        }
        let held: Vec<_> = failing.read().collect();
        assert_eq!(held.len(), GROUPS * WAYS);
        let worst = held.iter().filter(|(slot, reason)| slot % 1000 == 7 && *reason == Reason::Overflow).count();
        assert_eq!(worst, 100);
        failing.tell(7, Reason::Budget, errors);
        assert_eq!(failing.read().filter(|(slot, _)| *slot == 7).collect::<Vec<_>>(), [(7, Reason::Budget)]);
    }
}
