"""PostgreSQL as a source of golden records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import psycopg

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
    ZONED,
    texts,
    write_bytes,
    write_date,
    write_decimal,
    write_numeric,
    write_time,
    write_timestamp,
    write_zoned,
)
from tests.tools.golden_conditions import ELEMENTS, MEMBERS
from tests.tools.golden_source import UNREADABLE, Column, Configuration, Source
from tests.tools.postgres import Cluster


def _numbers(kind: str, *values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f"'{value}'::{kind}", value) for value in values)


def _cast(kind: str, values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((f"'{text}'::{kind}", value) for text, value in values.items())


def _interval(value: timedelta, of: Configuration) -> Any:
    hours, rest = divmod(value.seconds, 3600)
    text = f"P0Y0M{value.days}DT{hours}H{rest // 60}M{rest % 60}S"
    return text if of.interval == "string" else (value.days * 86_400 + value.seconds) * 10**6


def _json(value: str, of: Configuration) -> Any:
    return json.loads(value) if of.schemas else value


def _hstore(value: Mapping[str, str | None], of: Configuration) -> Any:
    """Write an hstore: a text without a schema, whose members no filter reads."""
    return dict(value) if of.hstore == "map" or of.schemas else UNREADABLE


_MOMENTS: Final = tuple((f"'{each.isoformat()}'::timestamptz", each) for each in ZONED)
_INTERVALS: Final = {"0": timedelta(), "1 day 02:00": timedelta(days=1, hours=2), "00:00:01": timedelta(seconds=1)}
_MAPS: Final = {"": {}, "a=>1,b=>NULL": {"a": "1", "b": None}, "a=>x": {"a": "x"}}
_TEXT: Final = f"{COMPARED} starts_with ends_with contains"
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
        *(
            Configuration(f"{m[0]}_{m[1]}_{'on' if on else 'off'}", on, *m, more=on and m is _MODES[0])
            for m in _MODES
            for on in (True, False)
        ),
        *(Configuration(f"unwrapped_{mode.replace('-', '_')}", False, deletes=mode) for mode in DELETES),
        Configuration("unwrapped_on", True, deletes="rewrite"),
    )
}

COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column("int NOT NULL PRIMARY KEY", COMPARED, _numbers("int", 1, 2, 3, 5, 8, 13)),
    "i2": Column("int2", COMPARED, _numbers("int2", 0, 1, -1, 7, 32767, -32768)),
    "i4": Column("int4", COMPARED, _numbers("int4", 0, 1, -1, 7, 2**31 - 1, -(2**31))),
    "i8": Column("int8", COMPARED, _numbers("int8", 0, 1, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1)),
    "n2": Column(
        "numeric(12,2)",
        COMPARED,
        _numbers("numeric", "0.00", "250.10", "250.11", "-0.01", "9999999999.99"),
        write_decimal,
        "decimal",
    ),
    "n": Column(
        "numeric",
        COMPARED,
        _numbers("numeric", "0", "1.5", "1.500", "-1.25", "1000000", "1e30", "0.000001", "123456789.125"),
        write_numeric,
        "numeric",
    ),
    "f4": Column("real", COMPARED, _numbers("real", 0.0, 1.1, -2.5, 1e10, 0.001, 3.25), kind="float"),
    "f8": Column(
        "double precision", COMPARED, _numbers("float8", 0.0, 0.1, -2.5, 1e300, 1e-7, 3.25, 123456789.125), kind="float"
    ),
    "b": Column("bool", EQUAL, _cast("bool", {"true": True, "false": False})),
    "t": Column("text", _TEXT, texts(*WORDS), kind="text"),
    "v": Column("varchar(20)", _TEXT, texts(*WORDS), kind="text"),
    "c": Column("char(6)", EQUAL, tuple((sql, text.ljust(6)) for sql, text in texts("a", "ab", "b c", "é", "abcdef"))),
    "d": Column("date", COMPARED, tuple((f"'{each.isoformat()}'::date", each) for each in DATES), write_date),
    "tm": Column("time", COMPARED, tuple((f"'{each.isoformat()}'::time", each) for each in TIMES), write_time, "time"),
    "ts": Column(
        "timestamp", COMPARED, tuple((f"'{each.isoformat()}'::timestamp", each) for each in STAMPS), write_timestamp, "timestamp"
    ),
    "tz": Column("timestamptz", COMPARED, _MOMENTS, write_zoned),
    "iv": Column("interval", EQUAL, _cast("interval", _INTERVALS), _interval),
    "u": Column("uuid", EQUAL, _cast("uuid", {each: each for each in UUIDS})),
    "j": Column("json", "member text", _cast("json", {each: each for each in DOCUMENTS}), _json),
    "jb": Column("jsonb", "member text", _cast("jsonb", {each: each for each in DOCUMENTS}), _json),
    "y": Column("bytea", EQUAL, tuple((f"'\\x{each.hex()}'::bytea", each) for each in RAW), write_bytes),
    "ta": Column("text[]", "element", _cast("text[]", {"{}": [], '{a,NULL,"b c"}': ["a", None, "b c"], "{b}": ["b"]})),
    "ia": Column("int[]", "element", _cast("int[]", {"{}": [], "{1,2}": [1, 2], "{2,NULL}": [2, None]})),
    "h": Column("hstore", "member", _cast("hstore", _MAPS), _hstore),
    "e": Column("mood", EQUAL, _cast("mood", {"sad": "sad", "glad": "glad", "calm": "calm"})),
    "ip": Column("inet", EQUAL, _cast("inet", {"10.0.0.1": "10.0.0.1", "10.0.0.0/8": "10.0.0.0/8", "::1": "::1"})),
    "big": Column("text", "starts_with", tuple((f"repeat('{each}', 2500)", each * 2500) for each in "xyz")),
    "z": Column("int NOT NULL DEFAULT 0", COMPARED, _numbers("int", 0, 1, 5)),
    "q": Column("text NOT NULL", EQUAL, texts("", "paid", "new")),
    "made": Column("timestamptz NOT NULL DEFAULT now()", "== < >=", _MOMENTS, write_zoned, blank="'1970-01-01 00:00Z'"),
}
#: Values that only rows have, in no condition: numbers that have no order in JSON, and numerics with many digits.
ONLY_IN_ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "f4": ("'NaN'", "'Infinity'", "'-Infinity'"),
    "f8": ("'NaN'", "'Infinity'", "'-Infinity'"),
    "n": ("123456789012345678901234567890.123456789", "-0.000000000000000000001"),
    "tz": ("'infinity'", "'-infinity'"),
    "tm": ("'10:15:30.123'",),
}
_TABLES: Final = ("by_key", "whole")
_DEFINED: Final = ", ".join(f"{name} {column.type}" for name, column in COLUMNS.items())
_KEEP: Final = """
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE number bigint := nextval('changes');
BEGIN
  IF TG_OP <> 'INSERT' THEN INSERT INTO history SELECT number, 'o', TG_TABLE_NAME, TG_OP, OLD.*; END IF;
  IF TG_OP <> 'DELETE' THEN INSERT INTO history SELECT number, 'n', TG_TABLE_NAME, TG_OP, NEW.*; END IF;
  RETURN NULL;
END $$
"""
_SETUP: Final = (
    "CREATE EXTENSION hstore",
    "CREATE TYPE mood AS ENUM ('sad', 'glad', 'calm')",
    "CREATE SEQUENCE changes",
    f"CREATE UNLOGGED TABLE history (number bigint, side text, of text, op text, {_DEFINED.replace(' PRIMARY KEY', '')})",
    "CREATE UNIQUE INDEX ON history (number, side)",
    _KEEP,
    *(
        statement.format(table=table)
        for table in _TABLES
        for statement in (
            f"CREATE TABLE {{table}} ({_DEFINED})",
            "ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL",
            "CREATE TRIGGER keep AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()",
        )
    ),
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE finish (id int PRIMARY KEY)",
    f"CREATE PUBLICATION golden FOR TABLE {', '.join(_TABLES)}, finish",
)
#: By the index of the key a statement changes rows in one order in each run. Such plans look too expensive not to compile.
_PLANS: Final = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}


class _Server:
    """A cluster, and a connection to it."""

    def __init__(self) -> None:
        many = str(len(CONFIGURATIONS) + 10)
        self._cluster = Cluster({"max_replication_slots": many, "max_wal_senders": many, "max_connections": "200"} | _PLANS)
        self._cluster.sql(*_SETUP)
        self.port = self._cluster.port
        self._connection = psycopg.connect(self._cluster.dsn(), autocommit=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]
        except psycopg.Error as error:
            raise AssertionError(f"{query}: {error}") from error

    def transaction(self, statements: Sequence[str]) -> None:
        with self._connection.transaction() as transaction:
            for statement in statements:
                if statement == "ROLLBACK":
                    raise psycopg.Rollback(transaction)
                self._connection.execute(statement)  # type: ignore[call-overload]

    def readers(self) -> int:
        ((count,),) = self.rows("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        return int(count)

    def close(self) -> None:
        self._connection.close()
        self._cluster.close()


class Postgres(Source):
    """Two tables, one with the default replica identity and one with the full one."""

    name = "postgres"
    version = "3.6.1.Final"
    columns = COLUMNS
    configurations = CONFIGURATIONS
    tables = _TABLES
    only_in_rows = ONLY_IN_ROWS
    changing = ("i2", "i4", "i8", "b", "t", "v", "c", "u", "e", "z", "q")
    last = (
        ["SELECT pg_logical_emit_message(true, 'golden', 'hello')"],
        ["UPDATE {table} SET t = 'lost' WHERE id >= 0", "ROLLBACK"],
        [*(f"UPDATE {{table}} SET {each} WHERE id >= 0" for each in ("i4 = 7", "big = t", "id = id + 100"))],
        ["TRUNCATE {table}"],
    )

    def options(self, of: Configuration) -> dict[str, str]:
        found = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "slot.name": of.name,
            "slot.drop.on.stop": "true",
            "publication.name": "golden",
            "table.include.list": ",".join(f"public.{table}" for table in (*_TABLES, "finish")),
            "database.dbname": "postgres",
            "hstore.handling.mode": of.hstore,
            "interval.handling.mode": of.interval,
        }
        return found | ({} if of.deletes is None else {"transforms.unwrap.add.fields": "op,schema,table,source.ts_ms"})

    def start(self) -> _Server:
        return _Server()

    def extra(self, number: int) -> str:
        return f"SELECT pg_logical_emit_message(true, 'golden', 'message {number}')"

    def text(self, name: str, operator: str, quoted: str) -> str:
        if operator == "contains":
            return f"position({quoted} in {name}) > 0"
        return f"starts_with({name}, {quoted})" if operator == "starts_with" else f"right({name}, length({quoted})) = {quoted}"

    def ordered(self, name: str, operator: str, literal: str) -> str:
        if COLUMNS[name].kind == "float":
            return f"CASE WHEN {name} NOT IN ('NaN', 'Infinity', '-Infinity') THEN {name} {operator} {literal} END"
        return f'{name} COLLATE "C" {operator} {literal}' if COLUMNS[name].kind == "text" else f"{name} {operator} {literal}"

    def special(self, name: str, operator: str, index: int) -> str:
        if operator == "element":
            return f"CASE WHEN {name} IS NOT NULL THEN array_position({name}, {ELEMENTS[name][index][0]}) IS NOT NULL END"
        if operator == "text":
            return f"{name}::text IS NOT DISTINCT FROM ({COLUMNS[name].values[index][0]})::text"
        if name == "h":
            member = MEMBERS[index].strip('"')
            return f"CASE WHEN exist(h, 'a') THEN (h -> 'a') IS NOT DISTINCT FROM '{member}' END"
        return f"({name}::jsonb -> 'a') = '{MEMBERS[index]}'::jsonb"
