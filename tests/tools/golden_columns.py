"""The columns of golden records: their values in SQL, and the same values as Debezium writes them in each of its modes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

#: A value that a record has only in a shape that no condition reads.
UNREADABLE: Final = object()
_UNWRAPPED: Final = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.add.fields": "op,schema,table,source.ts_ms",
}


class Configuration(NamedTuple):
    """A configuration of Debezium: the modes of values, and *deletes* if rows are unwrapped."""

    name: str
    schemas: bool
    decimal: str = "precise"
    time: str = "adaptive"
    binary: str = "bytes"
    hstore: str = "json"
    interval: str = "numeric"
    deletes: str | None = None

    def options(self) -> dict[str, str]:
        """Return the properties of the engine that differ between configurations."""
        found = {
            "converter.schemas.enable": str(self.schemas).lower(),
            "decimal.handling.mode": self.decimal,
            "time.precision.mode": self.time,
            "binary.handling.mode": self.binary,
            "hstore.handling.mode": self.hstore,
            "interval.handling.mode": self.interval,
        }
        if self.deletes is not None:
            found |= _UNWRAPPED | {"transforms.unwrap.delete.tombstone.handling.mode": self.deletes}
        elif self.schemas and self.time == "adaptive":
            found |= {"provide.transaction.metadata": "true", "heartbeat.interval.ms": "200"}
        return found


_MODES: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    ("precise", "adaptive", "bytes", "json", "numeric"),
    ("double", "connect", "base64", "map", "string"),
    ("string", "isostring", "hex", "json", "numeric"),
    ("precise", "nanoseconds", "base64-url-safe", "map", "numeric"),
    ("string", "microseconds", "bytes", "json", "string"),
    ("double", "adaptive_time_microseconds", "hex", "map", "numeric"),
)
DELETES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
CONFIGURATIONS: Final[Mapping[str, Configuration]] = {
    each.name: each
    for each in (
        *(Configuration(f"{m[0]}_{m[1]}_{'on' if on else 'off'}", on, *m) for m in _MODES for on in (True, False)),
        *(Configuration(f"unwrapped_{mode.replace('-', '_')}", False, deletes=mode) for mode in DELETES),
        Configuration("unwrapped_on", True, deletes="rewrite"),
    )
}

Write = Callable[[Any, Configuration], Any]


class Column(NamedTuple):
    """A column: its SQL type, its operators, values as pairs of SQL and Python, and how a value is written."""

    type: str
    operators: str
    values: tuple[tuple[str, Any], ...]
    write: Write = lambda value, _: value
    #: The operators on text that a value has in every mode.
    more: str = ""


class Decimal(str):
    """A number by its digits, for a literal that must be exact."""


def _text(*values: str) -> tuple[tuple[str, Any], ...]:
    return tuple(("'" + value.replace("'", "''") + "'", value) for value in values)


def _numbers(kind: str, *values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f"'{value}'::{kind}", value) for value in values)


def _cast(kind: str, values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((f"'{text}'::{kind}", value) for text, value in values.items())


def _money(value: str, of: Configuration) -> Any:
    """Write a `numeric(12,2)`: base64 without a schema."""
    if of.decimal == "precise" and not of.schemas:
        return UNREADABLE
    return value if of.decimal == "string" else Decimal(value)


def _numeric(value: str, of: Configuration) -> Any:
    """Write a numeric of any scale."""
    return value if of.decimal == "string" else Decimal(value)


_PER_SECOND: Final = {"connect": 10**3, "nanoseconds": 10**9}


def _fraction(micros: int) -> str:
    return f".{micros:06}".rstrip("0") if micros else ""


def _is_text(of: Configuration) -> bool:
    return of.time == "isostring" or of.schemas


def _date(value: date, of: Configuration) -> Any:
    if of.time == "isostring":
        return f"{value.isoformat()}Z"
    return value.isoformat() if of.schemas else (value - date(1970, 1, 1)).days


def _time(value: time, of: Configuration) -> Any:
    if _is_text(of):
        return f"{value:%H:%M:%S}{_fraction(value.microsecond)}{'Z' if of.time == 'isostring' else ''}"
    units = _PER_SECOND.get(of.time, 10**6)
    return (value.hour * 3600 + value.minute * 60 + value.second) * units + value.microsecond * units // 10**6


def _timestamp(value: datetime, of: Configuration) -> Any:
    if _is_text(of):
        return f"{value:%Y-%m-%dT%H:%M:%S}{_fraction(value.microsecond)}Z"
    units = _PER_SECOND.get(of.time, 10**6)
    since = value - datetime(1970, 1, 1)  # noqa: DTZ001
    return (since.days * 86_400 + since.seconds) * units + since.microseconds * units // 10**6


def _zoned(value: datetime, _: Configuration) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _interval(value: timedelta, of: Configuration) -> Any:
    hours, rest = divmod(value.seconds, 3600)
    text = f"P0Y0M{value.days}DT{hours}H{rest // 60}M{rest % 60}S"
    return text if of.interval == "string" else (value.days * 86_400 + value.seconds) * 10**6


def _bytes(value: bytes, of: Configuration) -> str:
    if of.binary == "hex":
        return value.hex()
    encode = base64.urlsafe_b64encode if of.binary == "base64-url-safe" else base64.b64encode
    return encode(value).decode()


def _json(value: str, of: Configuration) -> Any:
    return json.loads(value) if of.schemas else value


def _hstore(value: Mapping[str, str | None], of: Configuration) -> Any:
    """Write an hstore: a text without a schema, whose members no filter reads."""
    return dict(value) if of.hstore == "map" or of.schemas else UNREADABLE


_DAY: Final = datetime(2026, 1, 31, 10, 15, 30)  # noqa: DTZ001
_DATES: Final = (date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 31), date(2026, 2, 1), date(1, 1, 1), date(9999, 12, 31))
_TIMES: Final = (time(0), time(0, 0, 1), time(10, 15, 30), time(10, 15, 30, 500_000), time(23, 59, 59, 999_000))
_STAMPS: Final = (
    *(_DAY + timedelta(milliseconds=each) for each in (0, 250, 500, 1000, -1)),
    *(datetime(year, 1, 1) for year in (1970, 1969, 2200)),  # noqa: DTZ001
)
_ZONED: Final = tuple(each.replace(tzinfo=UTC) for each in _STAMPS)
_MOMENTS: Final = tuple((f"'{each.isoformat()}'::timestamptz", each) for each in _ZONED)
_INTERVALS: Final = {"0": timedelta(), "1 day 02:00": timedelta(days=1, hours=2), "00:00:01": timedelta(seconds=1)}
_WORDS: Final = (
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
_RAW: Final = (b"", b"\0", b"\0\xff\xab", b"ab")
_MAPS: Final = {"": {}, "a=>1,b=>NULL": {"a": "1", "b": None}, "a=>x": {"a": "x"}}
_UUIDS: Final = ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000")
_DOCUMENTS: Final = ("{}", '{"a": 1}', '{"a": 1.50, "b": [1, null]}', '{"a": "1"}', '{"a": null}', "[1, 2]", '"a"', "7")
_COMPARED, _EQUAL = "== != < <= > >= in not_in", "== != in not_in"

COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column("int NOT NULL PRIMARY KEY", _COMPARED, _numbers("int", 1, 2, 3, 5, 8, 13)),
    "i2": Column("int2", _COMPARED, _numbers("int2", 0, 1, -1, 7, 32767, -32768)),
    "i4": Column("int4", _COMPARED, _numbers("int4", 0, 1, -1, 7, 2**31 - 1, -(2**31))),
    "i8": Column("int8", _COMPARED, _numbers("int8", 0, 1, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1)),
    "n2": Column("numeric(12,2)", _COMPARED, _numbers("numeric", "0.00", "250.10", "250.11", "-0.01", "9999999999.99"), _money),
    "n": Column(
        "numeric",
        _COMPARED,
        _numbers("numeric", "0", "1.5", "1.500", "-1.25", "1000000", "1e30", "0.000001", "123456789.125"),
        _numeric,
    ),
    "f4": Column("real", _COMPARED, _numbers("real", 0.0, 1.1, -2.5, 1e10, 0.001, 3.25)),
    "f8": Column("double precision", _COMPARED, _numbers("float8", 0.0, 0.1, -2.5, 1e300, 1e-7, 3.25, 123456789.125)),
    "b": Column("bool", _EQUAL, _cast("bool", {"true": True, "false": False})),
    "t": Column("text", _COMPARED, _text(*_WORDS), more="starts_with ends_with contains"),
    "v": Column("varchar(20)", _COMPARED, _text(*_WORDS), more="starts_with ends_with contains"),
    "c": Column("char(6)", _EQUAL, tuple((sql, text.ljust(6)) for sql, text in _text("a", "ab", "b c", "é", "abcdef"))),
    "d": Column("date", _COMPARED, tuple((f"'{each.isoformat()}'::date", each) for each in _DATES), _date),
    "tm": Column("time", _COMPARED, tuple((f"'{each.isoformat()}'::time", each) for each in _TIMES), _time),
    "ts": Column("timestamp", _COMPARED, tuple((f"'{each.isoformat()}'::timestamp", each) for each in _STAMPS), _timestamp),
    "tz": Column("timestamptz", _COMPARED, _MOMENTS, _zoned),
    "iv": Column("interval", _EQUAL, _cast("interval", _INTERVALS), _interval),
    "u": Column("uuid", _EQUAL, _cast("uuid", {each: each for each in _UUIDS})),
    "j": Column("json", "member", _cast("json", {each: each for each in _DOCUMENTS}), _json),
    "jb": Column("jsonb", "member", _cast("jsonb", {each: each for each in _DOCUMENTS}), _json),
    "y": Column("bytea", _EQUAL, tuple((f"'\\x{each.hex()}'::bytea", each) for each in _RAW), _bytes),
    "ta": Column("text[]", "member", _cast("text[]", {"{}": [], '{a,NULL,"b c"}': ["a", None, "b c"], "{b}": ["b"]})),
    "ia": Column("int[]", "member", _cast("int[]", {"{}": [], "{1,2}": [1, 2], "{2,NULL}": [2, None]})),
    "h": Column("hstore", "member", _cast("hstore", _MAPS), _hstore),
    "e": Column("mood", _EQUAL, _cast("mood", {"sad": "sad", "glad": "glad", "calm": "calm"})),
    "ip": Column("inet", _EQUAL, _cast("inet", {"10.0.0.1": "10.0.0.1", "10.0.0.0/8": "10.0.0.0/8", "::1": "::1"})),
    "big": Column("text", "", tuple((f"repeat('{each}', 2500)", each * 2500) for each in "xyz"), more="starts_with"),
    "z": Column("int NOT NULL DEFAULT 0", _COMPARED, _numbers("int", 0, 1, 5)),
    "q": Column("text NOT NULL", _EQUAL, _text("", "paid", "new")),
    "made": Column("timestamptz NOT NULL DEFAULT now()", "== < >=", _MOMENTS, _zoned),
}
#: Values that only rows have, in no condition: numbers that have no order in JSON, and numerics with many digits.
ONLY_IN_ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "f4": ("'NaN'", "'Infinity'", "'-Infinity'"),
    "f8": ("'NaN'", "'Infinity'", "'-Infinity'"),
    "n": ("123456789012345678901234567890.123456789", "-0.000000000000000000001"),
    "tz": ("'infinity'", "'-infinity'"),
    "tm": ("'10:15:30.123'",),
}
