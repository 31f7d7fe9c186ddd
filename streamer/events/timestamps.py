"""Read the times of events: integers of a unit, and text by RFC 3339, as nanoseconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The range of a CEL timestamp: the years 1 to 9999.
EARLIEST_NS = -62_135_596_800 * 10**9
LATEST_NS = 253_402_300_800 * 10**9 - 1
RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_rfc3339(text: str) -> int:
    """Return the nanoseconds from the epoch to a time in RFC 3339; digits beyond nanoseconds are cut off.

    Raises:
        ValueError: the text is not RFC 3339, is a leap second, or is outside the years 1 to 9999.
    """
    match = RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("expected RFC 3339, as 2026-01-31T12:00:00.5Z")
    *numbers, fraction, sign, hours, minutes = match.groups()
    if not 1 <= int(numbers[1]) <= 12:
        raise ValueError("a month is 01 to 12")
    try:
        # datetime refuses second 60, as CEL does: timestamps have no leap seconds.
        moment = datetime(*map(int, numbers), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        raise ValueError("this date or time does not exist") from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if sign is not None:
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError("a time offset is at most 23:59")
        seconds -= (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes) * 60)
    return in_range(seconds * 10**9 + int(((fraction or "") + "0" * 9)[:9]))


def in_range(ns: int) -> int:
    if not EARLIEST_NS <= ns <= LATEST_NS:
        raise ValueError("a timestamp is in the years 1 to 9999")
    return ns
