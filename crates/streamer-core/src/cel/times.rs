//! Timestamps and durations: their texts and the parts of a date, in whole nanoseconds.
//!
//! Texts are read and written as Google's C++ runtime does (fractions in 0, 3, 6 or 9 digits). A duration is in int64
//! nanoseconds, as in cel-go. Time zones are those of the IANA database that is built in, by their exact names, so that a
//! program means the same on every machine.
//!
//! The calendar is computed here (a local time may reach the years 0 and 10000); only the offset of a zone at a moment
//! comes from `jiff`.

use super::outcome::Reason;
use crate::fork;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::LazyLock;

/// A moment of the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp {
    /// Since the epoch, rounded down.
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

const SECOND: i128 = 1_000_000_000;
const DAY: i64 = 86_400;
/// 0001-01-01 and 10000-01-01.
const EARLIEST: i64 = -62_135_596_800;
const END: i64 = 253_402_300_800;

/// Why there is no such value, in a word and in words.
pub(super) type Refused = (Reason, &'static str);

const NO_TIMESTAMP: Refused = (Reason::BadValue, "expected an RFC 3339 timestamp");
const NO_DURATION: Refused = (Reason::BadValue, "expected a duration such as 1h30m or -1.5s");
const NO_ZONE: Refused = (Reason::BadValue, "expected a time zone: a name of the IANA database or an offset such as -02:30");
const OUTSIDE: Refused = (Reason::Overflow, "a timestamp outside the years 1 to 9999");
const TOO_LONG: Refused = (Reason::Overflow, "a duration beyond int64 nanoseconds");

impl Timestamp {
    /// The timestamp at nanoseconds since the epoch.
    pub(super) fn of(ns: i128) -> Result<Timestamp, Refused> {
        let seconds = ns.div_euclid(SECOND);
        if !(i128::from(EARLIEST)..i128::from(END)).contains(&seconds) {
            return Err(OUTSIDE);
        }
        Ok(Timestamp { seconds: seconds as i64, nanos: ns.rem_euclid(SECOND) as u32 })
    }

    /// Nanoseconds since the epoch.
    pub(super) fn ns(self) -> i128 {
        i128::from(self.seconds) * SECOND + i128::from(self.nanos)
    }
}

/// A duration of this many nanoseconds.
pub(super) fn duration(ns: i128) -> Result<i64, Refused> {
    i64::try_from(ns).map_err(|_| TOO_LONG)
}

// --- text ---------------------------------------------------------------------------------------------------------------

/// Read a number of exactly *count* digits.
fn digits(text: &[u8], from: usize, count: usize) -> Option<i64> {
    let digits = text.get(from..from + count)?;
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

/// Read an RFC 3339 date and time; digits past the ninth of a fraction are cut off, leap seconds are refused.
pub(super) fn parse_timestamp(text: &str) -> Result<Timestamp, Refused> {
    let fields = rfc3339(text.as_bytes()).ok_or(NO_TIMESTAMP)?;
    let CivilTime { year, month, day, hour, minute, second, nanos, offset: (ahead, zone_hour, zone_minute) } = fields;
    if hour > 23 || minute > 59 || second > 59 || zone_hour > 23 || zone_minute > 59 {
        return Err(NO_TIMESTAMP);
    }
    if year == 0 {
        return Err(OUTSIDE);
    }
    if !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
        return Err(NO_TIMESTAMP);
    }
    let offset = (zone_hour * 3600 + zone_minute * 60) * if ahead { 1 } else { -1 };
    let seconds = days_until(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    Timestamp::of(i128::from(seconds) * SECOND + i128::from(nanos))
}

struct CivilTime {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: i64,
    /// Whether it is east of UTC, hours and minutes.
    offset: (bool, i64, i64),
}

/// The numbers of a text that has the shape of RFC 3339.
fn rfc3339(text: &[u8]) -> Option<CivilTime> {
    let is = |at: usize, allowed: &[u8]| text.get(at).is_some_and(|byte| allowed.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let mut at = 19;
    let mut nanos = 0;
    if is(at, b".") {
        let length = text[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits_read = length.min(9);
        nanos = digits(text, at + 1, digits_read).filter(|_| length > 0)? * 10_i64.pow(9 - digits_read as u32);
        at += 1 + length;
    }
    let (offset, end) = if is(at, b"Zz") {
        ((true, 0, 0), at + 1)
    } else if is(at, b"+-") && is(at + 3, b":") {
        ((text[at] == b'+', digits(text, at + 1, 2)?, digits(text, at + 4, 2)?), at + 6)
    } else {
        return None;
    };
    (end == text.len()).then_some(())?;
    Some(CivilTime {
        year: digits(text, 0, 4)?,
        month: digits(text, 5, 2)?,
        day: digits(text, 8, 2)?,
        hour: digits(text, 11, 2)?,
        minute: digits(text, 14, 2)?,
        second: digits(text, 17, 2)?,
        nanos,
        offset,
    })
}

/// Write RFC 3339 in UTC.
pub(super) fn format_timestamp(value: Timestamp) -> String {
    let (days, seconds) = (value.seconds.div_euclid(DAY), value.seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{}Z", fraction(value.nanos))
}

/// Read numbers with units `h`, `m`, `s`, `ms`, `us`, `ns`, as `1h30m` or `-1.5s`; less than a nanosecond is cut off.
pub(super) fn parse_duration(text: &str) -> Result<i64, Refused> {
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text).as_bytes();
    if rest == b"0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(NO_DURATION);
    }
    let mut total: i128 = 0;
    let mut is_huge = false;
    while !rest.is_empty() {
        let count = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, after) = rest.split_at(count(rest));
        let (part, after) = match after.strip_prefix(b".") {
            Some(after) => after.split_at(count(after)),
            None => after.split_at(0),
        };
        if whole.is_empty() && part.is_empty() {
            return Err(NO_DURATION);
        }
        let (unit, after): (i128, &[u8]) = match after {
            [b'n', b's', after @ ..] => (1, after),
            [b'u', b's', after @ ..] => (1000, after),
            [b'm', b's', after @ ..] => (1_000_000, after),
            [b'h', after @ ..] => (3600 * SECOND, after),
            [b'm', after @ ..] => (60 * SECOND, after),
            [b's', after @ ..] => (SECOND, after),
            _ => return Err(NO_DURATION),
        };
        rest = after;
        let number = |digits: &[u8]| digits.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        let zeros = whole.iter().take_while(|digit| **digit == b'0').count();
        let (whole, part) = (&whole[zeros..], &part[..part.len().min(18)]);
        // 19 digits of hours are far beyond int64, and far within i128.
        is_huge |= whole.len() > 19;
        if !is_huge {
            let sum = number(whole) * unit + number(part) * unit / 10_i128.pow(part.len() as u32);
            total = total.saturating_add(sum);
        }
    }
    if is_huge { Err(TOO_LONG) } else { duration(if is_negative { -total } else { total }) }
}

/// Write seconds, as `1.500s`.
pub(super) fn format_duration(ns: i64) -> String {
    let size = ns.unsigned_abs();
    format!("{}{}{}s", if ns < 0 { "-" } else { "" }, size / 1_000_000_000, fraction((size % 1_000_000_000) as u32))
}

fn fraction(nanos: u32) -> String {
    match nanos {
        0 => String::new(),
        nanos if nanos.is_multiple_of(1_000_000) => format!(".{:03}", nanos / 1_000_000),
        nanos if nanos.is_multiple_of(1000) => format!(".{:06}", nanos / 1000),
        nanos => format!(".{nanos:09}"),
    }
}

// --- the calendar -------------------------------------------------------------------------------------------------------

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the epoch to a date. Years are counted from March, so that the leap day is the last.
fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// The date of a day since the epoch.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (year * 365 + year / 4 - year / 100);
    let month = (of_year * 5 + 2) / 153;
    let day = of_year - (month * 153 + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (era * 400 + year, month, day)
}

/// A part of a date or a duration that a getter returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimePart {
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// The result of a getter in a time zone: an IANA name or an offset as `-02:30`; `""` is UTC.
pub(super) fn timestamp_part(value: Timestamp, part: TimePart, zone: &str) -> Result<i64, Refused> {
    let local = value.seconds + offset(value, zone)?;
    let (days, seconds) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    Ok(match part {
        TimePart::Hours => seconds / 3600,
        TimePart::Minutes => seconds / 60 % 60,
        TimePart::Seconds => seconds % 60,
        TimePart::Milliseconds => i64::from(value.nanos / 1_000_000),
        TimePart::DayOfWeek => (days + 4).rem_euclid(7),
        _ => {
            let (year, month, day) = date(days);
            match part {
                TimePart::FullYear => year,
                TimePart::Month => month - 1,
                TimePart::Date => day,
                TimePart::DayOfMonth => day - 1,
                _ => days - days_until(year, 1, 1),
            }
        }
    })
}

/// The whole duration in hours, minutes or seconds, toward zero; for milliseconds only those past the last second. None
/// for parts that a duration does not have.
pub(super) fn duration_part(ns: i64, part: TimePart) -> Option<i64> {
    match part {
        TimePart::Hours => Some(ns / 3_600_000_000_000),
        TimePart::Minutes => Some(ns / 60_000_000_000),
        TimePart::Seconds => Some(ns / 1_000_000_000),
        TimePart::Milliseconds => Some(ns / 1_000_000 % 1000),
        _ => None,
    }
}

/// Seconds east of UTC at that moment.
fn offset(value: Timestamp, zone: &str) -> Result<i64, Refused> {
    if zone.is_empty() || zone == "UTC" {
        return Ok(0);
    }
    if let Some((sign, hours, minutes)) = numeric_offset(zone) {
        if hours > 23 || minutes > 59 {
            return Err(NO_ZONE);
        }
        return Ok(sign * (hours * 3600 + minutes * 60));
    }
    let zone = named_zone(zone).ok_or(NO_ZONE)?;
    // Rules of zones do not change in the first and the last days of all time, which jiff does not have.
    let moment = value.seconds.clamp(EARLIEST + 2 * DAY, END - 2 * DAY - 1);
    let moment = jiff::Timestamp::from_second(moment).map_err(|_| NO_ZONE)?;
    Ok(zone.to_offset(moment).seconds().into())
}

/// `[+-]` one or two digits `:` two digits.
fn numeric_offset(zone: &str) -> Option<(i64, i64, i64)> {
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.strip_prefix(['-', '+']).unwrap_or(zone).split_once(':')?;
    ((1..=2).contains(&hours.len()) && minutes.len() == 2).then_some(())?;
    Some((sign, digits(hours.as_bytes(), 0, hours.len())?, digits(minutes.as_bytes(), 0, 2)?))
}

fn named_zone(name: &str) -> Option<TimeZone> {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    // A database finds a name in any case; the contract is the name as it is written there.
    let _inside = fork::inside();
    ZONES.get(name).ok().filter(|zone| zone.iana_name() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_and_written() {
        for (text, written) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
            ("2000-02-29t23:59:59.9999999999z", "2000-02-29T23:59:59.999999999Z"),
            ("1969-12-31T23:00:00.5-01:00", "1970-01-01T00:00:00.500Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.000001Z", "9999-12-31T23:59:59.000001Z"),
            ("2024-02-29T12:00:00+05:30", "2024-02-29T06:30:00Z"),
        ] {
            assert_eq!(parse_timestamp(text).map(format_timestamp), Ok(written.to_owned()), "{text}");
        }
        for text in ["", "1970-01-01", "1970-02-29T00:00:00Z", "1970-01-01T24:00:00Z", "1970-01-01T00:00:60Z"] {
            assert_eq!(parse_timestamp(text), Err(NO_TIMESTAMP), "{text}");
        }
        for text in ["1970-01-01T00:00:00.Z", "1970-01-01T00:00:00+24:00", "1970-01-01T00:00:00Zé", "é970-01-01T00:00:00Z"] {
            assert_eq!(parse_timestamp(text), Err(NO_TIMESTAMP), "{text}");
        }
        for text in ["0000-13-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"] {
            assert_eq!(parse_timestamp(text), Err(OUTSIDE), "{text}");
        }
    }

    #[test]
    fn durations_are_read_and_written() {
        for (text, ns) in [
            ("0", 0),
            ("-0", 0),
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            (".5ms", 500_000),
            ("1.ns", 1),
            ("0.0000000019s", 1),
            ("1s1s", 2_000_000_000),
            ("00000000000000000000000001ns", 1),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
        for text in ["", "-", "1", "0s0", ".s", "1 s", "1d", "--1s", "1h-1s", "é"] {
            assert_eq!(parse_duration(text), Err(NO_DURATION), "{text}");
        }
        for text in ["9223372036854775808ns", "2562048h", "100000000000000000000ns", &"9999999999999999999h".repeat(50)] {
            assert_eq!(parse_duration(text), Err(TOO_LONG), "{text}");
        }
        assert_eq!(parse_duration("100000000000000000000ns1"), Err(NO_DURATION));
        assert_eq!(format_duration(-1_500_000_000), "-1.500s");
        assert_eq!(format_duration(i64::MIN), "-9223372036.854775808s");
    }

    #[test]
    fn dates_and_days_are_inverse() {
        for days in (-720_000..3_000_000).step_by(97) {
            let (year, month, day) = date(days);
            assert_eq!(days_until(year, month, day), days);
            assert!((1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day), "{days}");
        }
    }

    #[test]
    fn a_zone_is_an_exact_name_or_an_offset() {
        let at = |text: &str, zone: &str| timestamp_part(parse_timestamp(text).unwrap(), TimePart::Hours, zone);
        assert_eq!(at("2024-07-01T00:00:00Z", "Europe/Berlin"), Ok(2));
        assert_eq!(at("2024-01-01T00:00:00Z", "Europe/Berlin"), Ok(1));
        assert_eq!(at("2500-07-01T00:00:00Z", "Europe/Berlin"), Ok(2));
        assert_eq!(at("2024-01-01T00:00:00Z", "-2:30"), Ok(21));
        assert_eq!(at("2024-01-01T00:00:00Z", "05:45"), Ok(5));
        assert_eq!(at("0001-01-01T00:00:00Z", "America/New_York"), Ok(19));
        assert_eq!(at("9999-12-31T23:59:59Z", "Asia/Tokyo"), Ok(8));
        for zone in ["europe/berlin", "Europe/Nowhere", "+24:00", "+1:60", "+1:0", "1:000", "+", "Etc/Unknown", "é"] {
            assert_eq!(at("2024-01-01T00:00:00Z", zone), Err(NO_ZONE), "{zone}");
        }
        let year = |text: &str, zone| timestamp_part(parse_timestamp(text).unwrap(), TimePart::FullYear, zone);
        assert_eq!(year("0001-01-01T00:00:00Z", "-01:00"), Ok(0));
        assert_eq!(year("9999-12-31T23:59:59Z", "+01:00"), Ok(10_000));
    }

    #[test]
    fn parts_of_durations_go_toward_zero() {
        assert_eq!(duration_part(-5_399_999_999_999, TimePart::Hours), Some(-1));
        assert_eq!(duration_part(-1_500_000_000, TimePart::Milliseconds), Some(-500));
        assert_eq!(duration_part(1, TimePart::Date), None);
    }
}
