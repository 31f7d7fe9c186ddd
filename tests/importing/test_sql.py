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
from tests.importing.sql_conditions import Conditions, Expressions, row, stored
from tests.parts import in_parts
from tests.service.database import cluster  # noqa: F401  # a fixture
from tests.tools.postgres import Cluster, missing

SQLITE = """CREATE TABLE rows (id INTEGER PRIMARY KEY, i INTEGER, j INTEGER, r REAL, t TEXT, u TEXT, b INTEGER, c INTEGER,
d TEXT) STRICT"""
POSTGRES = """CREATE TABLE rows (id int PRIMARY KEY, i bigint, j bigint, big bigint, r float8, n numeric(10, 2),
t text COLLATE "C", u varchar(20) COLLATE "C", b boolean, c boolean, d jsonb, tags text[], numbers int[], day date,
zoned timestamptz, local timestamp)"""
COLUMNS = ("i", "j", "big", "r", "n", "t", "u", "b", "c", "d", "tags", "numbers", "day", "zoned", "local")


def matched(engine: Callable[..., streamer.Engine], conditions: list[str], rows: list[dict[str, Any]]) -> list[set[int]]:
    """Return the numbers of the rows that each condition matches."""
    rules = "\n".join(json.dumps({"id": str(number), "rule": each}) for number, each in enumerate(conditions))
    e = engine()
    e.add_many(import_rules("sql", rules).subscriptions)
    found: list[set[int]] = [set() for _ in conditions]
    for number, document in enumerate(rows):
        for name in e.match_ids({"type": "insert", "data": document}):
            found[int(name)].add(number)
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
    conditions = [write.any() for _ in range(200)]
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
    conditions = [write.any() for _ in range(600)]
    with table(cluster, rows) as connection:
        wanted = [selected(connection, each) for each in conditions]
        printed = [found[0] for found in connection.execute("SELECT to_jsonb(rows) FROM rows ORDER BY id")]
    # As a source writes the rows, and as PostgreSQL prints them in JSON: times have another form, and each column is there.
    for documents in (rows, printed):
        assert difference(conditions, documents, wanted, matched(engine, conditions, documents)) == []
    assert sum(0 < len(each) < len(rows) for each in wanted) > 300


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_to_sql_selects_the_rows_that_match(engine: Callable[..., streamer.Engine], cluster: Cluster) -> None:  # noqa: F811
    rng = Random(11)
    rows = [row(rng) for _ in range(60)]
    write, conditions = Expressions(rng), Conditions(rng, everything=True)
    subscriptions = [streamer.Subscription(id=str(number), cel=write.any()) for number in range(500)]
    # A date is a text in an event, and comparing a column of dates with a text is an error of PostgreSQL.
    texts = [each for each in (conditions.any() for _ in range(400)) if "DATE '" not in each]
    rules = "\n".join(json.dumps({"id": f"rule {number}", "rule": each}) for number, each in enumerate(texts))
    clauses = {}
    for each in [*subscriptions, *import_rules("sql", rules).subscriptions]:
        try:
            clauses[each.id] = each.to_sql()
        except streamer.SubscriptionError:
            assert each.id.startswith("rule "), "all expressions of these tests can be written in SQL"
    assert len(clauses) > 700
    with table(cluster, rows) as connection:
        wanted = {name: selected(connection, clause) for name, clause in clauses.items()}
        documents = [found[0] for found in connection.execute("SELECT to_jsonb(rows) FROM rows ORDER BY id")]
    e = engine()
    e.add_many(each for each in [*subscriptions, *import_rules("sql", rules).subscriptions] if each.id in clauses)
    found: dict[str, set[int]] = {name: set() for name in clauses}
    for number, document in enumerate(documents):
        for name in e.match_ids({"type": "insert", "data": document}):
            found[name].add(number)
    wrong = [
        (clauses[name], e.get(name).cel, documents[min(wanted[name] ^ found[name])])
        for name in clauses
        if wanted[name] != found[name]
    ]
    assert wrong == []
    assert sum(0 < len(each) < len(rows) for each in wanted.values()) > 350


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
