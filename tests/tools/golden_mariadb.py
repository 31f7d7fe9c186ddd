"""MariaDB as a source of golden records."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar, Final

from tests.tools.golden_columns import (
    COMPARED,
    DATES,
    DOCUMENTS,
    EQUAL,
    RAW,
    STAMPS,
    TIMES,
    UUIDS,
    WORDS,
    Decimal,
    texts,
    write_bytes,
    write_date,
    write_decimal,
    write_time,
    write_timestamp,
)
from tests.tools.golden_source import UNREADABLE, Column, Configuration, Source
from tests.tools.mariadb import Server

_ZONE: Final = timezone(timedelta(hours=5, minutes=30))
_TEXT: Final = f"{COMPARED} starts_with ends_with contains"
_MODES: Final = (
    ("precise", "adaptive_time_microseconds", "bytes", "long"),
    ("double", "connect", "base64", "precise"),
    ("string", "isostring", "hex", "precise"),
    ("precise", "nanoseconds", "base64-url-safe", "precise"),
    ("double", "microseconds", "bytes", "long"),
)
CONFIGURATIONS: Final[Mapping[str, Configuration]] = {
    each.name: each
    for each in (
        *(
            Configuration(f"{m[0]}_{m[1]}_{'on' if on else 'off'}", on, *m[:3], bigint=m[3], more=on and m is _MODES[0])
            for m in _MODES
            for on in (True, False)
        ),
        *(Configuration(f"unwrapped_{'on' if on else 'off'}", on, time=_MODES[0][1], deletes="rewrite") for on in (True, False)),
    )
}


def _numbers(*values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((str(value), value) for value in values)


def _in_time(kind: str, values: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((f"{kind}'{each.isoformat().replace('T', ' ')}'", each) for each in values)


def _bits(*values: int, size: int) -> tuple[tuple[str, Any], ...]:
    # In the order of Debezium, with the lowest byte first.
    return tuple((str(value), base64.b64encode(value.to_bytes(size, "little")).decode()) for value in values)


def _unsigned(value: int, of: Configuration) -> Any:
    """Write a `bigint unsigned`: as one with a sign, which large numbers do not fit, or in base64 without a schema."""
    return Decimal(value) if of.bigint == "precise" and of.schemas else UNREADABLE


def _seconds(value: datetime, of: Configuration) -> Any:
    """Write a time without a fraction: in milliseconds by default."""
    return write_timestamp(value, of._replace(time="connect") if of.time.startswith("adaptive") else of)


def _zoned(value: datetime, _: Configuration) -> str:
    return f"{value.isoformat()}Z"


_SECONDS: Final = tuple(each for each in STAMPS if not each.microsecond)
#: Times that a `timestamp` can hold, each with its time in the zone of the server.
_MOMENTS: Final = tuple(
    (f"TIMESTAMP'{each.replace(tzinfo=UTC).astimezone(_ZONE).replace(tzinfo=None).isoformat(' ')}'", each)
    for each in (*STAMPS[:5], datetime(1970, 1, 2), datetime(2037, 1, 1))  # noqa: DTZ001
)
COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column("int NOT NULL", COMPARED, _numbers(1, 2, 3, 5, 8, 13)),
    "i1": Column("tinyint", COMPARED, _numbers(0, 1, -1, 127, -128)),
    "i1u": Column("tinyint unsigned", COMPARED, _numbers(0, 1, 255)),
    "bo": Column("boolean", EQUAL, _numbers(0, 1)),
    "i2": Column("smallint", COMPARED, _numbers(0, 7, 32767, -32768)),
    "i2u": Column("smallint unsigned", COMPARED, _numbers(0, 7, 65535)),
    "i3u": Column("mediumint unsigned", COMPARED, _numbers(0, 7, 2**24 - 1)),
    "i4": Column("int", COMPARED, _numbers(0, 1, -1, 7, 2**31 - 1, -(2**31))),
    "i4u": Column("int unsigned", COMPARED, _numbers(0, 7, 2**32 - 1)),
    "z4": Column("int(6) zerofill", COMPARED, _numbers(0, 7, 42)),
    "i8": Column("bigint", COMPARED, _numbers(0, 1, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1)),
    "i8u": Column("bigint unsigned", COMPARED, _numbers(0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1), _unsigned),
    "n": Column(
        "decimal(12,2)", COMPARED, _numbers("0.00", "250.10", "250.11", "-0.01", "9999999999.99"), write_decimal, "decimal"
    ),
    "n0": Column("decimal(30,0) unsigned", COMPARED, _numbers("0", "7", "1000000"), write_decimal, "decimal"),
    "f4": Column("float", COMPARED, tuple((f"CAST({each} AS FLOAT)", each) for each in (0.0, 1.1, -2.5, 1e10, 0.001, 3.25))),
    "f8": Column("double", COMPARED, _numbers(0.0, 0.1, -2.5, 1e300, 1e-7, 3.25, 123456789.125)),
    "b1": Column("bit(1)", EQUAL, (("0", False), ("1", True))),
    "b8": Column("bit(8)", EQUAL, _bits(0, 1, 200, size=1)),
    "b20": Column("bit(20)", EQUAL, _bits(0, 7, 70000, size=3)),
    "t": Column("text", _TEXT, texts(*WORDS)),
    "v": Column("varchar(20)", _TEXT, texts(*WORDS)),
    "c": Column("char(6)", EQUAL, texts("a", "ab", "b c", "é", "abcdef")),
    "d": Column("date", COMPARED, _in_time("DATE", [each for each in DATES if each.year > 99]), write_date),
    "tm": Column("time", COMPARED, _in_time("TIME", TIMES[:3]), write_time, "time"),
    "tm6": Column("time(6)", COMPARED, _in_time("TIME", TIMES), write_time, "time"),
    "dt": Column("datetime", COMPARED, _in_time("TIMESTAMP", _SECONDS), _seconds, "timestamp"),
    "dt6": Column("datetime(6)", COMPARED, _in_time("TIMESTAMP", STAMPS), write_timestamp, "timestamp"),
    "ts": Column("timestamp NULL", COMPARED, tuple(each for each in _MOMENTS if not each[1].microsecond), _zoned, "timestamp"),
    # A snapshot writes as few digits of the second as there are, and the log six.
    "ts6": Column("timestamp(6) NULL", "== < <= > >=", _MOMENTS, _zoned, "moment"),
    "yr": Column("year", COMPARED, _numbers(1901, 1970, 2026, 2155)),
    "u": Column("uuid", EQUAL, texts(*UUIDS)),
    "j": Column("json", EQUAL, texts(*DOCUMENTS)),
    "bi": Column("binary(4)", EQUAL, tuple((f"x'{each.hex():<08}'", each.ljust(4, b"\0")) for each in RAW), write_bytes),
    "vb": Column("varbinary(10)", EQUAL, tuple((f"x'{each.hex()}'", each) for each in RAW), write_bytes),
    "y": Column("blob", EQUAL, tuple((f"x'{each.hex()}'", each) for each in RAW), write_bytes),
    "e": Column("enum('sad','glad','calm')", EQUAL, texts("sad", "glad", "calm")),
    "s": Column("set('a','b','c')", EQUAL, texts("", "a", "a,c", "a,b,c")),
    "g": Column("geometry", "", (("ST_GeomFromText('LINESTRING(0 0, 1 2)', 4326)", None), ("POINT(1, 2)", None))),
    "p": Column("point", "", (("POINT(0, 0)", None),)),
    "stored": Column("bigint AS (i4 + 1) STORED", COMPARED, _numbers(1, 2, 0, 8)),
    "virtual": Column("bigint AS (i4 - 1) VIRTUAL", COMPARED, _numbers(-1, 0, 6)),
    "hidden": Column("int INVISIBLE DEFAULT 3", COMPARED, _numbers(3, 4)),
    "z": Column("int NOT NULL DEFAULT 0", COMPARED, _numbers(0, 1, 5)),
    "q": Column("varchar(20) NOT NULL DEFAULT 'new'", EQUAL, texts("", "paid", "new")),
    "made": Column(
        "timestamp NOT NULL DEFAULT current_timestamp()",
        "== < >=",
        tuple(each for each in _MOMENTS if not each[1].microsecond),
        _zoned,
        "timestamp",
    ),
}
_TABLES: Final = ("by_key", "keyless")
_DEFINED: Final = ", ".join(f"`{name}` {column.type}" for name, column in COLUMNS.items())
_ATTRIBUTES: Final = re.compile(r" (AS|INVISIBLE|DEFAULT|NOT NULL|NULL)\b.*")
_PLAIN: Final = ", ".join(f"`{name}` {_ATTRIBUTES.sub('', column.type)} NULL" for name, column in COLUMNS.items())


def _kept(table: str, operation: str) -> str:
    """Return the trigger that writes the history of an operation: like the log, not of rows that an update leaves as they are."""
    rows = ", ".join(
        f"(@number, '{side.lower()[0]}', '{table}', '{operation}', {', '.join(f'{side}.`{name}`' for name in COLUMNS)})"
        for side, without in (("OLD", "INSERT"), ("NEW", "DELETE"))
        if operation != without
    )
    keep = f"SET @number = @number + 1; INSERT INTO history VALUES {rows};"
    if operation == "UPDATE":
        keep = f"IF NOT ({' AND '.join(f'OLD.`{name}` <=> NEW.`{name}`' for name in COLUMNS)}) THEN {keep} END IF;"
    return f"CREATE TRIGGER {table}_{operation} AFTER {operation} ON {table} FOR EACH ROW BEGIN {keep} END"


_SETUP: Final = (
    f"CREATE TABLE history (number bigint, side char(1), of varchar(10), op varchar(10), {_PLAIN}, UNIQUE (number, side))",
    f"CREATE TABLE by_key ({_DEFINED}, PRIMARY KEY (id))",
    f"CREATE TABLE keyless ({_DEFINED})",
    "CREATE TABLE finish (id int PRIMARY KEY)",
    *(_kept(table, operation) for table in _TABLES for operation in ("INSERT", "UPDATE", "DELETE")),
)
#: Texts are compared by their bytes, and a backslash is one.
_SETTINGS: Final = {
    "collation-server": "utf8mb4_nopad_bin",
    "sql-mode": "STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES",
    "default-time-zone": "+05:30",
}


class _Golden(Server):
    """A server with the tables."""

    def __init__(self) -> None:
        super().__init__(_SETTINGS)
        self.run(*_SETUP)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(int(value) if value and value.lstrip("-").isdigit() else value for value in row) for row in self.run(query)]

    def transaction(self, statements: Sequence[str]) -> None:
        begin = ("SET @number = (SELECT coalesce(max(number), 0) FROM history)", "BEGIN")
        self.run(*begin, *statements, *(() if statements[-1] == "ROLLBACK" else ("COMMIT",)))

    def readers(self) -> int:
        ((count,),) = self.rows("SELECT count(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
        return int(count)


class MariaDB(Source):
    """Two tables, one with a primary key and one without any."""

    name = "mariadb"
    version = "3.5.0.Final"
    columns = COLUMNS
    configurations = CONFIGURATIONS
    tables = _TABLES
    keyless = ("keyless",)
    only_in_rows: ClassVar[Mapping[str, tuple[str, ...]]] = {"n0": ("123456789012345678901234567890",)}
    changing = ("i2", "i4", "i8", "b1", "b8", "t", "v", "c", "u", "e", "s", "j", "yr", "virtual", "z", "q")
    commits = ("ALTER", "TRUNCATE")
    last = (
        ["UPDATE {table} SET t = 'lost' WHERE id >= 0", "ROLLBACK"],
        ["ALTER TABLE {table} ADD more int DEFAULT 5"],
        [*(f"UPDATE {{table}} SET {each} WHERE id >= 0" for each in ("i4 = 7", "more = 6, t = ''", "id = id + 100"))],
        ["TRUNCATE {table}"],
    )

    def options(self, of: Configuration) -> dict[str, str]:
        found = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.server.id": str(1000 + list(CONFIGURATIONS).index(of.name)),
            "table.include.list": ",".join(f"shop.{table}" for table in (*_TABLES, "finish")),
            "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
            "snapshot.locking.mode": "none",
            "include.schema.changes": str(of.more).lower(),
            "bigint.unsigned.handling.mode": of.bigint,
            # By default a null of a column that may be null is its default.
            "converter.replace.null.with.default": "false",
        }
        if of.deletes is not None:
            found |= {
                "transforms.unwrap.add.fields": "op,db,table,source.ts_ms",
                "transforms.unwrap.replace.null.with.default": "false",
            }
        return found

    def start(self) -> _Golden:
        return _Golden()

    def extra(self, number: int) -> str:
        return f"ALTER TABLE {{table}} COMMENT 'comment {number}'"

    def may_lack(self, of: Configuration) -> bool:
        # The log has whole rows, but a row alone does not name its connector.
        return of.deletes is not None

    def same(self, one: str, other: str) -> str:
        return f"{one} <=> {other}"

    def differs(self, one: str, other: str) -> str:
        return f"NOT ({one} <=> {other})"

    def text(self, name: str, operator: str, quoted: str) -> str:
        if operator == "contains":
            return f"locate({quoted}, {name}) > 0"
        return f"{'left' if operator == 'starts_with' else 'right'}({name}, char_length({quoted})) = {quoted}"
