"""Values of the columns of golden records, and how Debezium writes them in each of its modes."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from tests.tools.golden_source import UNREADABLE, Configuration


class Decimal(str):
    """A number by its digits, for a literal that must be exact."""


def texts(*values: str) -> tuple[tuple[str, Any], ...]:
    """Return texts as pairs of SQL and Python."""
    return tuple(("'" + value.replace("'", "''") + "'", value) for value in values)


def write_decimal(value: str, of: Configuration) -> Any:
    """Write a decimal with a scale: base64 without a schema."""
    if of.decimal == "precise" and not of.schemas:
        return UNREADABLE
    return value if of.decimal == "string" else Decimal(value)


def write_numeric(value: str, of: Configuration) -> Any:
    """Write a numeric of any scale."""
    return value if of.decimal == "string" else Decimal(value)


_PER_SECOND: Final = {"connect": 10**3, "nanoseconds": 10**9}


def _fraction(micros: int) -> str:
    return f".{micros:06}".rstrip("0") if micros else ""


def _is_text(of: Configuration) -> bool:
    return of.time == "isostring" or of.schemas


def write_date(value: date, of: Configuration) -> Any:
    """Write a date."""
    if of.time == "isostring":
        return f"{value.isoformat()}Z"
    return value.isoformat() if of.schemas else (value - date(1970, 1, 1)).days


def write_time(value: time, of: Configuration) -> Any:
    """Write a time of day."""
    if _is_text(of):
        return f"{value:%H:%M:%S}{_fraction(value.microsecond)}{'Z' if of.time == 'isostring' else ''}"
    units = _PER_SECOND.get(of.time, 10**6)
    return (value.hour * 3600 + value.minute * 60 + value.second) * units + value.microsecond * units // 10**6


def write_timestamp(value: datetime, of: Configuration) -> Any:
    """Write a time without a zone."""
    if _is_text(of):
        return f"{value:%Y-%m-%dT%H:%M:%S}{_fraction(value.microsecond)}Z"
    units = _PER_SECOND.get(of.time, 10**6)
    since = value - datetime(1970, 1, 1)  # noqa: DTZ001
    return (since.days * 86_400 + since.seconds) * units + since.microseconds * units // 10**6


def write_zoned(value: datetime, _: Configuration) -> str:
    """Write a time with a zone."""
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def write_bytes(value: bytes, of: Configuration) -> str:
    """Write bytes as text."""
    if of.binary == "hex":
        return value.hex()
    encode = base64.urlsafe_b64encode if of.binary == "base64-url-safe" else base64.b64encode
    return encode(value).decode()


_DAY: Final = datetime(2026, 1, 31, 10, 15, 30)  # noqa: DTZ001
DATES: Final = (date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 31), date(2026, 2, 1), date(1, 1, 1), date(9999, 12, 31))
TIMES: Final = (time(0), time(0, 0, 1), time(10, 15, 30), time(10, 15, 30, 500_000), time(23, 59, 59, 999_000))
STAMPS: Final = (
    *(_DAY + timedelta(milliseconds=each) for each in (0, 250, 500, 1000, -1)),
    *(datetime(year, 1, 1) for year in (1970, 1969, 2200)),  # noqa: DTZ001
)
ZONED: Final = tuple(each.replace(tzinfo=UTC) for each in STAMPS)
WORDS: Final = (
    "",
    "a",
    "ab",
    "Ab",
    "b",
    "héllo",
    "h",
    "zz\U0001f600",
    "\uffff",
    "it's",
    '"q"\\n',
    " a",
    "0",
    "1970-01-01",
    "{}",
)
RAW: Final = (b"", b"\0", b"\0\xff\xab", b"ab")
UUIDS: Final = ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000")
DOCUMENTS: Final = ("{}", '{"a": 1}', '{"a": 1.50, "b": [1, null]}', '{"a": "1"}', '{"a": null}', "[1, 2]", '"a"', "7")
COMPARED, EQUAL = "== != < <= > >= in not_in", "== != in not_in"
