"""Conditions of SQL match exactly the events whose rows a database selects."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg
import pytest

import streamer
from streamer.importing import import_rules
from tests.importing.sql_conditions import Conditions, row, stored
from tests.parts import in_parts
from tests.service.database import cluster  # noqa: F401  # a fixture
from tests.tools.postgres import Cluster, missing

SQLITE = """CREATE TABLE rows (id INTEGER PRIMARY KEY, i INTEGER, j INTEGER, r REAL, t TEXT, u TEXT, b INTEGER, c INTEGER, d TEXT)
STRICT"""
POSTGRES = """CREATE TABLE rows (id int PRIMARY KEY, i int, j int, big bigint, r float8, n numeric(10, 2), t text COLLATE "C",
u varchar(20) COLLATE "C", b boolean, c boolean, d jsonb, tags text[], numbers int[], day date, zoned timestamptz,
local timestamp)"""
COLUMNS = ("i", "j", "big", "r", "n", "t", "u", "b", "c", "d", "tags", "numbers", "day", "zoned", "local")


def matched(engine: Callable[..., streamer.Engine], conditions: list[str], rows: list[dict[str, Any]]) -> list[set[int]]:
    """Return the numbers of the rows that each condition matches."""
    rules = "\n".join(json.dumps({"id": str(number), "rule": each}) for number, each in enumerate(conditions))
    e = engine()
    e.add_many(import_rules("sql", rules).subscriptions)
    found: list[set[int]] = [set() for _ in conditions]
    for number, document in enumerate(rows):
        for id in e.match_ids({"type": "insert", "data": document}):
            found[int(id)].add(number)
    return found


def difference(conditions: list[str], rows: list[dict[str, Any]], wanted: list[set[int]], found: list[set[int]]) -> list[Any]:
    """Return the conditions that matched other rows, each with one of them."""
    wrong = [(condition, min(a ^ b)) for condition, a, b in zip(conditions, wanted, found, strict=True) if a != b]
    return [(condition, rows[number]) for condition, number in wrong]


@in_parts(4)
def test_random_conditions_match_the_rows_that_sqlite_selects(engine: Callable[..., streamer.Engine], part: int) -> None:
    rng = Random(part)
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute(SQLITE)
    rows = [row(rng) for _ in range(40)]
    columns = ("i", "j", "r", "t", "u", "b", "c", "d")
    for number, document in enumerate(rows):
        values = [number, *(stored(document, each) for each in columns)]
        database.execute(f"INSERT INTO rows VALUES (?{', ?' * len(columns)})", values)
    write = Conditions(rng, everything=False)
    conditions = [write.condition() for _ in range(200)]
    wanted = [{number for (number,) in database.execute(f"SELECT id FROM rows WHERE {each}")} for each in conditions]
    assert difference(conditions, rows, wanted, matched(engine, conditions, rows)) == []
    assert sum(0 < len(each) < len(rows) for each in wanted) > 100


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_random_conditions_match_the_rows_that_postgresql_selects(
    engine: Callable[..., streamer.Engine],
    cluster: Cluster,  # noqa: F811
) -> None:
    rng = Random(7)
    rows = [row(rng) for _ in range(60)]
    write = Conditions(rng, everything=True)
    conditions = [write.condition() for _ in range(600)]
    with table(cluster, rows) as connection:
        wanted = [selected(connection, each) for each in conditions]
        printed = [found[0] for found in connection.execute("SELECT to_jsonb(rows) FROM rows ORDER BY id")]
    # As a source writes the rows, and as PostgreSQL prints them in JSON: times have another form, and each column is there.
    for documents in (rows, printed):
        assert difference(conditions, documents, wanted, matched(engine, conditions, documents)) == []
    assert sum(0 < len(each) < len(rows) for each in wanted) > 300


@contextmanager
def table(cluster: Cluster, rows: list[dict[str, Any]]) -> Iterator[psycopg.Connection[Any]]:  # noqa: F811
    """Connect to a server in which `rows` is a table with these rows, as long as the connection is open."""
    with psycopg.connect(cluster.dsn()) as connection:
        connection.execute(POSTGRES.replace("CREATE", "CREATE TEMPORARY"))
        for number, document in enumerate(rows):
            values = [number, *(stored(document, each) for each in COLUMNS)]
            connection.execute(f"INSERT INTO rows VALUES (%s{', %s' * len(COLUMNS)})".encode(), values)
        yield connection


def selected(connection: psycopg.Connection[Any], condition: str) -> set[int]:
    """Return the ids of the rows for which a condition is true."""
    return {number for (number,) in connection.execute(f"SELECT id FROM rows WHERE {condition}".encode())}
