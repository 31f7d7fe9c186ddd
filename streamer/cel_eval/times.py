"""Timestamps and durations: their texts and the parts of a date, in whole nanoseconds.

Texts are read and written as in Google's C++ runtime (fractions with 0, 3, 6 or 9 digits). A duration is in int64 nanoseconds, as
in cel-go and as the conformance suite requires. Python's datetime is not used for arithmetic: it has only microseconds, and lacks
the year 0, which a local time may reach.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

from streamer.cel_eval.values import CelReason, Duration, Failure, Timestamp
from streamer.model import INT64_MAX, INT64_MIN

SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
_EPOCH: Final = date(1970, 1, 1).toordinal()
#: 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999999Z
EARLIEST: Final = (1 - _EPOCH) * DAY
LATEST: Final = (date.max.toordinal() + 1 - _EPOCH) * DAY - 1


def timestamp(ns: int) -> Timestamp | Failure:
    """Return a timestamp, or a `Failure` if it overflows."""
    if EARLIEST <= ns <= LATEST:
        return Timestamp(ns)
    return Failure(CelReason.OVERFLOW, "a timestamp outside the years 1 to 9999")


def duration(ns: int) -> Duration | Failure:
    """Return a duration, or a `Failure` if it overflows."""
    if INT64_MIN <= ns <= INT64_MAX:
        return Duration(ns)
    return Failure(CelReason.OVERFLOW, "a duration beyond int64 nanoseconds")


# --- text -------------------------------------------------------------------------------------------------------------

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_timestamp(text: str) -> Timestamp | Failure:
    """Return the timestamp in an RFC 3339 text; digits after the ninth of a fraction are cut off, leap seconds are refused."""
    match = _RFC3339.fullmatch(text)
    bad = Failure(CelReason.BAD_VALUE, f"{_shown(text)} is not an RFC 3339 timestamp")
    if match is None:
        return bad
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, _, sign, zone_hour, zone_minute = match.groups()[6:]
    offset = 0 if sign is None else int(zone_hour) * 3600 + int(zone_minute) * 60
    if hour > 23 or minute > 59 or second > 59 or (sign is not None and (int(zone_hour) > 23 or int(zone_minute) > 59)):
        return bad
    if year == 0:
        return Failure(CelReason.OVERFLOW, "a timestamp outside the years 1 to 9999")
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return bad
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - (-offset if sign == "-" else offset)
    return timestamp(seconds * SECOND + int((fraction or "")[:9].ljust(9, "0")))


def format_timestamp(value: Timestamp) -> str:
    """Return a timestamp as RFC 3339 text in UTC."""
    days, rest = divmod(value.ns, DAY)
    seconds, nanos = divmod(rest, SECOND)
    day = date.fromordinal(days + _EPOCH)
    return f"{day.isoformat()}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(nanos)}Z"


_UNITS: Final = {"h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 1_000_000, "us": 1000, "ns": 1}
# Possessive quantifiers, so that matching a long text needs no memory for backtracking.
_DURATION: Final = re.compile(r"([+-]?)(?:0|((?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?>ns|us|ms|h|m|s))++))")
_DURATION_PART: Final = re.compile(r"([0-9]*)\.?([0-9]*)(ns|us|ms|h|m|s)")


def parse_duration(text: str) -> Duration | Failure:
    """Return the duration in a text with units `h`, `m`, `s`, `ms`, `us`, `ns`, such as `-1.5s`; it is cut to nanoseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return Failure(CelReason.BAD_VALUE, f"{_shown(text)} is not a duration")
    total = 0
    for whole, fraction, unit in map(re.Match.groups, _DURATION_PART.finditer(match[2] or "")):
        # Longer numbers are out of range anyway, and Python refuses to read very long ones.
        if len(whole.lstrip("0")) > 19:
            return duration(INT64_MAX + 1)
        digits = fraction[:18]
        total += int(whole or "0") * _UNITS[unit] + int(digits or "0") * _UNITS[unit] // 10 ** len(digits)
    return duration(-total if match[1] == "-" else total)


def format_duration(value: Duration) -> str:
    """Return a duration as text in seconds, such as `1.500s`."""
    seconds, nanos = divmod(abs(value.ns), SECOND)
    return f"{'-' if value.ns < 0 else ''}{seconds}{_fraction(nanos)}s"


def _fraction(nanos: int) -> str:
    if nanos == 0:
        return ""
    digits = f"{nanos:09}"
    return "." + (digits[:3] if digits.endswith("000000") else digits[:6] if digits.endswith("000") else digits)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


# --- parts ------------------------------------------------------------------------------------------------------------


def timestamp_part(value: Timestamp, name: str, zone: str) -> int | Failure:
    """Return the result of `getFullYear`, `getMonth`... in a time zone: an IANA name, an offset such as `-02:30`, or `""`."""
    offset = _offset(value, zone)
    if isinstance(offset, Failure):
        return offset
    days, rest = divmod(value.ns + offset * SECOND, DAY)
    match name:
        case "getHours":
            return rest // (3600 * SECOND)
        case "getMinutes":
            return rest // (60 * SECOND) % 60
        case "getSeconds":
            return rest // SECOND % 60
        case "getMilliseconds":
            return rest // 1_000_000 % 1000
        case "getDayOfWeek":
            return (days + 4) % 7
    # A local time may be outside of datetime's years, but the calendar repeats after 400 years.
    shift = 400 if days + _EPOCH < 1 else -400 if days + _EPOCH > date.max.toordinal() else 0
    day = date.fromordinal(days + _EPOCH + shift // 400 * 146_097)
    match name:
        case "getFullYear":
            return day.year - shift
        case "getMonth":
            return day.month - 1
        case "getDate":
            return day.day
        case "getDayOfMonth":
            return day.day - 1
        case _:
            return day.timetuple().tm_yday - 1


def duration_part(value: Duration, name: str) -> int:
    """Return the duration in hours, minutes or seconds, rounded toward zero, or only the milliseconds after the last second."""
    size = abs(value.ns)
    match name:
        case "getHours":
            size //= 3600 * SECOND
        case "getMinutes":
            size //= 60 * SECOND
        case "getSeconds":
            size //= SECOND
        case _:
            size = size // 1_000_000 % 1000
    return -size if value.ns < 0 else size


_OFFSET: Final = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})")


def _offset(value: Timestamp, zone: str) -> int | Failure:
    """Return the offset of a time zone from UTC at a moment, in seconds to the east."""
    if zone in ("", "UTC"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is not None and int(match[2]) <= 23 and int(match[3]) <= 59:
        seconds = int(match[2]) * 3600 + int(match[3]) * 60
        return -seconds if match[1] == "-" else seconds
    if match is not None or zone not in _zones():
        return Failure(CelReason.BAD_VALUE, f"{_shown(zone)} is not a time zone")
    # Clamp to datetime's range: time zones do not change in the first and last days of it.
    moment = min(max(value.ns, EARLIEST + 2 * DAY), LATEST - 2 * DAY) // SECOND
    offset = _zone(zone).utcoffset(datetime.fromtimestamp(moment, UTC).astimezone(_zone(zone)))
    return 0 if offset is None else int(offset.total_seconds())


# The zones of the package tzdata, because the system's names and history differ between machines.
_TZDATA: Final = files("tzdata")


@cache
def _zones() -> frozenset[str]:
    return frozenset(_TZDATA.joinpath("zones").read_text("utf-8").split())


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    with _TZDATA.joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)
