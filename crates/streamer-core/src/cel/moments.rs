//! Times as points of a line: a comparison of `timestamp(data.t)` or `duration(data.d)` with a constant is a range of
//! nanoseconds, and an index over ranges finds it.
//!
//! ```text
//!   timestamp(data.t) < timestamp('2024-03-01T00:00:00Z')      Times(Timestamps, < 1709251200000000000)
//!   "2024-02-29T23:59:59.5+00:00"  ─ read ─►  1709251199500000000 ─►  within
//!   "yesterday", 1.5, null         ─ read ─►  an error of CEL, which is in no range
//! ```
//!
//! A number of seconds is a timestamp only if it is spelled as an integer, so it is read from the event's text.
//!
//! Rejected: the text itself as the key. RFC 3339 sorts as its texts do only in one zone and with equally long fractions.

use super::times::{Timestamp, duration, format_duration, format_timestamp, parse_duration, parse_timestamp};
use crate::value::{Kind, Number};

/// Which of CEL's functions reads a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Times {
    /// `timestamp(x)`: a string, or seconds since the epoch.
    Timestamps,
    /// `duration(x)`: a string.
    Durations,
}

impl Times {
    /// The time of a string in an event, or of a number as it is spelled, in nanoseconds; `None` is CEL's error.
    pub fn read(self, kind: Kind, text: &str) -> Option<Number> {
        let ns = match (self, kind) {
            (Times::Timestamps, Kind::String) => parse_timestamp(text).ok()?.ns(),
            (Times::Timestamps, Kind::Number) => of_seconds(text.parse().ok()?)?,
            (Times::Durations, Kind::String) => parse_duration(text).ok()?.into(),
            _ => return None,
        };
        Some(Number::from_nanoseconds(ns))
    }

    /// A bound, as CEL writes it.
    pub fn in_words(self, bound: Number) -> String {
        match self {
            Times::Timestamps => Timestamp::of(bound.nanoseconds()).map_or_else(|_| bound.to_string(), format_timestamp),
            Times::Durations => duration(bound.nanoseconds()).map_or_else(|_| bound.to_string(), format_duration),
        }
    }

    /// The name of the function.
    pub fn as_str(self) -> &'static str {
        match self {
            Times::Timestamps => "timestamp",
            Times::Durations => "duration",
        }
    }
}

pub(super) fn of_seconds(seconds: i64) -> Option<i128> {
    Timestamp::of(i128::from(seconds) * 1_000_000_000).ok().map(Timestamp::ns)
}
