"""Conditions of SQL match exactly the events whose rows a database selects."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
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
#: How many conditions are random: what is compared with PostgreSQL is the import, most of which is no backend's.
COUNTS = {"native": 500, "reference": 150}
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


@in_parts(4, slow=1)
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


@pytest.mark.parametrize(
    ("condition", "op", "value"),
    [
        ("t ILIKE 'ab%'", "starts_with", "ab"),
        ("t ILIKE '%AB'", "ends_with", "AB"),
        ("lower(t) = 'ab'", "==", "ab"),
        ("upper(t) = 'AB'", "==", "AB"),
        ("t ILIKE '%ab%'", "matches", "(?i)ab"),
        ("t ILIKE 'a_b'", "matches", "(?is)^a.b$"),
        # `ignore_case` also finds the sign of Kelvin and the long s.
        ("lower(t) = 'ok'", "matches", "(?s)^[oO][kK]$"),
        ("t ILIKE 'S%'", "matches", "(?s)^[sS].*$"),
    ],
)
def test_a_comparison_of_any_case_ignores_case_where_that_is_exact(condition: str, op: str, value: str) -> None:
    (only,) = import_rules("sql", condition).subscriptions
    but = {} if op == "matches" else {"ignore_case": True}
    assert only.to_dict()["filters"] == [{"field": "t", "op": op, "value": value, **but}]


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_random_conditions_match_the_rows_that_postgresql_selects(
    engine: Callable[..., streamer.Engine],
    cluster: Cluster,  # noqa: F811
    backend: str,
) -> None:
    count = COUNTS[backend]
    rng = Random(7)
    rows = [row(rng) for _ in range(60)]
    write = Conditions(rng, everything=True)
    conditions = [write.any() for _ in range(count)]
    with table(cluster, rows) as connection:
        wanted = [selected(connection, each) for each in conditions]
        printed = [found[0] for found in connection.execute("SELECT to_jsonb(rows) FROM rows ORDER BY id")]
    # As a source writes the rows, and as PostgreSQL prints them in JSON: times have another form, and each column is there.
    for documents in (rows, printed):
        assert difference(conditions, documents, wanted, matched(engine, conditions, documents)) == []
    assert sum(0 < len(each) < len(rows) for each in wanted) > 0.4 * count


OPERANDS = (
    "a", "b", "1", "-1", "NULL", "p", "q", "TRUE", "a = 1", "b <> 2", "p IS TRUE", "a IS NULL", "a IN (1, 2)", "b NOT IN (1)",
    "a BETWEEN 1 AND 2", "COALESCE(p, FALSE)", "(a = b)", "a < 2",
)  # fmt: skip
INFIX = ("AND", "OR", "=", "<>", "<", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "IN (1, NULL) AND", "BETWEEN 1 AND 2 OR")
POSTFIX = (
    "IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN", "IN (1, NULL)", "NOT IN (2)", "ISNULL",
    "NOTNULL", "= ANY(ARRAY[1, 2])", "<> ALL(ARRAY[2, NULL])", "NOT BETWEEN 1 AND 1", "= 1", "= TRUE",
)  # fmt: skip


def operators(rng: Random) -> str:
    """Return operands and operators in any order, without brackets."""
    words: list[str] = []
    for _ in range(rng.randint(1, 3)):
        words += ["NOT"] * (rng.random() < 0.25) + [rng.choice(OPERANDS)]
        words += [rng.choice(POSTFIX) for _ in range(rng.choice((0, 0, 1, 2)))] + [rng.choice(INFIX)]
    return " ".join(words[:-1])


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_operators_bind_as_in_postgresql(
    engine: Callable[..., streamer.Engine],
    cluster: Cluster,  # noqa: F811
    backend: str,
) -> None:
    """Of conditions that are random words, those that both accept select the same rows."""
    count = COUNTS[backend]
    rng = Random(5)
    rows = [dict(zip("abpq", each, strict=True)) for each in product((None, 1, 2), (None, 1, 2), *[(None, True, False)] * 2)]
    conditions, wanted = [], []
    with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE rows (id int, a int, b int, p boolean, q boolean)")
        for number, each in enumerate(rows):
            connection.execute("INSERT INTO rows VALUES (%s, %s, %s, %s, %s)", [number, *each.values()])
        while len(conditions) < count:
            condition = operators(rng)
            with suppress(streamer.SubscriptionError, psycopg.Error):
                import_rules("sql", condition)
                wanted.append(selected(connection, condition))
                conditions.append(condition)
    assert difference(conditions, rows, wanted, matched(engine, conditions, rows)) == []
    assert sum(0 < len(each) < len(rows) for each in wanted) > 0.4 * count


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_to_sql_selects_the_rows_that_match(
    engine: Callable[..., streamer.Engine],
    cluster: Cluster,  # noqa: F811
    backend: str,
) -> None:
    count = COUNTS[backend]
    rng = Random(11)
    rows = [row(rng) for _ in range(60)]
    write, conditions = Expressions(rng), Conditions(rng, everything=True)
    subscriptions = [streamer.Subscription(id=str(number), cel=write.any()) for number in range(count)]
    # A date is a text in an event, and comparing a column of dates with a text is an error of PostgreSQL.
    texts = [each for each in (conditions.any() for _ in range(count)) if "DATE '" not in each]
    rules = "\n".join(json.dumps({"id": f"rule {number}", "rule": each}) for number, each in enumerate(texts))
    clauses = {}
    for each in [*subscriptions, *import_rules("sql", rules).subscriptions]:
        try:
            clauses[each.id] = each.to_sql()
        except streamer.SubscriptionError:
            assert each.id.startswith("rule "), "all expressions of these tests can be written in SQL"
    assert len(clauses) > 1.4 * count
    # The order of texts is that of code points, whatever collation a column has.
    with table(cluster, rows, "und-x-icu") as connection:
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
    assert sum(0 < len(each) < len(rows) for each in wanted.values()) > 0.7 * count


@contextmanager
def table(cluster: Cluster, rows: list[dict[str, Any]], collation: str = "C") -> Iterator[psycopg.Connection[Any]]:  # noqa: F811
    """Connect to a server in which `rows` is a table with these rows, as long as the connection is open."""
    with psycopg.connect(cluster.dsn()) as connection:
        create = POSTGRES.replace("CREATE", "CREATE TEMPORARY").replace('"C"', f'"{collation}"')
        connection.execute(create.encode())
        for number, document in enumerate(rows):
            values = [number, *(stored(document, each) for each in COLUMNS)]
            connection.execute(f"INSERT INTO rows VALUES (%s{', %s' * len(COLUMNS)})".encode(), values)
        yield connection


def selected(connection: psycopg.Connection[Any], condition: str) -> set[int]:
    """Return the ids of the rows for which a condition is true."""
    return {number for (number,) in connection.execute(f"SELECT id FROM rows WHERE {condition}".encode())}


#: What cannot be expressed exactly: the condition, the place, and words of the reason.
REFUSED = [
    ("a = $1", "column 6", "parameter"),
    ("a = :name", "column 1", "parameter"),
    ("a = ?", "column 1", "parameter"),
    ("a = 1 b", "column 7", "not SQL"),
    ("a = 'x", "column 5", "does not end"),
    ("a AND", "column 3", "not SQL"),
    ("b = 1 AND a IN (SELECT 1)", "column 24", "subquery"),
    ("EXISTS (SELECT 1)", "column 16", "subquery"),
    ("count(a) > 1", "column 1", "aggregate"),
    ("a = 1 AND length(b) > 1", "column 11", "function"),
    ("a + 1 = 2", "column 1", "arithmetic"),
    ("CASE WHEN a THEN b END", "column 11", "CASE"),
    ("a::int = 5", "column 1", "cast"),
    ("a::text = '5'::text", "column 1", "another type"),
    ("a::text LIKE '5%'", "column 1", "another type"),
    ("a = 5.5::int", "column 5", "exactly"),
    ("a = 3000000000::int", "column 5", "too large"),
    ("a = 9007199254740993::double precision", "column 5", "too large"),
    ("a = 5::real", "column 5", "type"),
    ("a = ANY('{1,2}')", "column 1", "depends"),
    ("a = ANY('{x,null}')", "column 9", "NULL"),
    ("a = ANY('{{x}}')", "column 9", "array"),
    ("a = ANY(1)", "column 1", "only = ANY"),
    ("a > now() - interval '1 day'", "column 5", "moves"),
    ("a = `x`", "column 6", "back-ticks"),
    ("a = '{1}'::int[]", "column 5", "cast"),
    ("a = 'x'::varchar(2)", "column 5", "cast"),
    ("a = INTERVAL '1 day'", "column 1", "not supported"),
    ("a SIMILAR TO 'x'", "column 1", "LIKE"),
    ("a ~* 'x'", "column 1", "LIKE"),
    (r"a ~ '\d'", "column 1", "RE2"),
    ("a ~ '(a|b)'", "column 1", "RE2"),
    ("a ~ '[[:alpha:]]'", "column 1", "RE2"),
    ("a ILIKE 'é%'", "column 1", "ASCII"),
    ("lower(a) = 'É'", "column 1", "never"),
    ("lower(a) = 'é'", "column 1", "ASCII"),
    ("upper(a) LIKE 'x%'", "column 1", "never"),
    ("lower(a) < 'x'", "column 1", "exactly"),
    ("a LIKE 'x!' ESCAPE '!'", "column 1", "escape"),
    ("a LIKE 'x' ESCAPE 'ab'", "column 1", "one character"),
    ("a LIKE b", "column 8", "quotes"),
    ("a < b", "column 1", "exactly"),
    ("a = b = c", "column 1", "not supported"),
    ("(a, b) = (1, 2)", "column 2", "not supported"),
    ("(a).b = 1", "column 2", "part of a value"),
    ("a[1] = 1", "column 1", "part of a value"),
    ("a.b = 1 AND c.d = 1", "column 1", "another table"),
    ("x.a.b = 1", "column 1", "another table"),
    ("user = 'x'", "column 1", "quote it"),
    ("ctid IS NULL", "column 1", "quote it"),
    ("current_date = a", "column 16", "moves"),
    ("a = '5'", "column 1", "depends"),
    ("a > '2026-01-31'", "column 1", "depends"),
    ("a IN ('x', 'true')", "column 1", "depends"),
    ("a = '0x1F'", "column 1", "depends"),
    ("a <> 'NaN'", "column 1", "depends"),
    ("a > 'epoch'", "column 1", "depends"),
    ("a < '-infinity'", "column 1", "depends"),
    ("a = 'today'", "column 1", "depends"),
    ("a = 'Jan 31 2026'", "column 1", "depends"),
    ("a = 'Sat Jan 31 12:00:00 2026 UTC'", "column 1", "depends"),
    ("a = '01/31/2026'", "column 1", "depends"),
    ("a = '31-Jan-2026'", "column 1", "depends"),
    ("a = '20260131T120000'", "column 1", "depends"),
    ("a = '12:30 pm'", "column 1", "depends"),
    ("a = '{a,b}'", "column 1", "depends"),
    ("a = '[1, 2]'", "column 1", "depends"),
    ("a = '[1,5)'", "column 1", "depends"),
    ("a = '{}'", "column 1", "depends"),
    ("a = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "column 1", "UUID"),
    ("a = 'a0eebc999c0b4ef8bb6d6bb9bd380a11'", "column 1", "UUID"),
    ("a = E'x'", "column 5", "escapes"),
    (r"a = U&'\0041'", "column 5", "escapes"),
    ("a = 'x' 'y'", "column 5", "several parts"),
    ("a = 0x1F", "column 5", "not supported"),
    ("a = 1e400", "column 5", "64 bits"),
    ("a = 18446744073709551616", "column 5", "64 bits"),
    ("a = 0.1234567890123456", "column 5", "15 digits"),
    ("a = 1 OR a = 'x'", "column 10", "one type"),
    ("a = 1 OR a", "column 10", "one type"),
    ("1 = 'x'", "column 1", "number with a text"),
    ("a BETWEEN SYMMETRIC 1 AND 2", "column 1", "SYMMETRIC"),
    ("a <> ANY(ARRAY[1])", "column 1", "ANY"),
    ("a < ANY(ARRAY[1])", "column 15", "not supported"),
    ("NULL = ANY(a)", "column 12", "expected elements"),
    ("a @> ARRAY[NULL]", "column 1", "NULL"),
    ("a @> b", "column 1", "ARRAY"),
    ("(" * 24 + "a" + ")" * 24 + " = c[1]", "column 53", "part of a value"),
    ("(" * 25 + "a = 1" + ")" * 25, "column 25", "24 deep"),
    ("a BETWEEN 1 2", "column 3", "AND"),
    ("a BETWEEN 1 2 AND b", "column 3", "AND"),
    ("a IN (1, , 2)", "column 8", "wrong at ','"),
    ("a IN (, 1)", "column 6", "wrong at '('"),
    ("COALESCE(a,) = 1", "column 11", "wrong at ','"),
    ("p NOT IS TRUE", "column 3", "wrong at 'NOT'"),
    ("a = ANY ARRAY['x']", "column 1", "brackets"),
    ("a == 1", "column 3", "wrong at '=='"),
    ("a <=> 1", "column 3", "wrong at '<=>'"),
    ("a REGEXP 'x'", "column 3", "wrong at 'REGEXP'"),
    ("desc = 'x'", "column 1", "quote it"),
    ("orders.a = 1 AND orders IS NULL", "column 18", "orders.orders"),
    ("a IS JSON", "column 1", "not supported"),
    ("a->0 = 'x'", "column 1", "name of a member"),
    ("a->'b' = 'x'", "column 1", "->>"),
    ("a->>'b' = 5", "column 1", "text"),
    ("a->>'b' = '5'", "column 1", "other JSON"),
    ("a->>'b' < 'x'", "column 1", "order"),
    ("a->>'b' LIKE 'x%'", "column 1", "CEL"),
    ("a > DATE '2026-02-30'", "column 10", "date such as"),
    ("a > TIMESTAMPTZ '2026-01-31T12:00:00'", "column 17", "time such as"),
    ("a > TIMESTAMP '2026-01-31T12:00:00Z'", "column 15", "without a time zone"),
    ("a COLLATE \"de\" < 'x'", "column 1", "not supported"),
    ("a ORDER BY b", "column 3", "not SQL"),
    (f"a{'b' * 63} = 1", "column 1", "63 bytes"),
    (";", "", "expected a condition"),
]


@pytest.mark.parametrize(("condition", "place", "reason"), REFUSED)
def test_what_has_no_exact_translation_is_refused_with_its_place(condition: str, place: str, reason: str) -> None:
    (error,) = import_rules("sql", condition, on_error="skip").refused
    assert error.place == ": ".join(filter(None, ("line 1", place)))
    assert reason in error.reason


STATEMENTS = """\
-- the orders that billing wants
-- name: large :many
SELECT * FROM Shop."Orders" o
WHERE o.Status = 'paid' AND "Amount" > 100;
/* id: all */ SELECT id, o.note AS n, 1 FROM orders AS o;
SELECT * FROM orders WHERE
  true AND f(a);
SELECT * FROM orders JOIN items USING (id);
SELECT count(*) FROM orders;
SELECT * FROM orders LIMIT 5;
SELECT * FROM orders UNION SELECT * FROM items;
SELECT * FROM (SELECT 1) orders;
SELECT * FROM orders WHERE items.a = 1;
SELECT * FROM orders AS o (b) WHERE b = 1;
SELECT 1;
DELETE FROM orders;
SELECT * EXCEPT (a) FROM orders;
SELECT a, FROM orders;
"""


def test_statements_have_ids_collections_and_places() -> None:
    imported = import_rules("sql", STATEMENTS, on_error="skip")
    large, every = (each.to_dict() for each in imported.subscriptions)
    status = {"field": "status", "op": "==", "value": "paid"}
    assert large == {
        "id": "large",
        "collection": "shop.Orders",
        "filters": [status, {"field": "Amount", "op": ">", "value": 100}],
    }
    assert every == {"id": "all", "collection": "orders"}
    places = [error.place.partition(": ") for error in imported.refused]
    assert [statement for statement, _, _ in places] == [f"statement {number}" for number in range(3, 15)]
    lines = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)
    assert [place.partition(",")[0] for _, _, place in places] == [f"line {line}" for line in lines]


def test_a_file_has_a_condition_a_line_with_ids_in_comments() -> None:
    text = (
        "-- comment\n-- id: paid\nstatus = 'paid';\n\nWHERE amount > 1\n"
        + '{"id": "new", "rule": "status = \'new\'", "gateway_id": "g"}\n'
    )
    found = import_rules("sql", text).subscriptions
    assert [(each.id, each.gateway_id, len(each.filters)) for each in found] == [
        ("paid", None, 1),
        ("sql-2", None, 1),
        ("new", "g", 1),
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 10_000 + "a" + ")" * 10_000,
        "NOT " * 10_000 + "a",
        "a" + " IS TRUE" * 5_000,
        "a" + " IS UNKNOWN" * 20,
        "1 = " + "- " * 10_000 + "1",
        "a = 1" + " AND a = 1" * 100_000,
        "SELECT * FROM t WHERE a IN (" + ", 1" * 40_000 + ")",
        "a" + "[1]" * 5_000 + " = 1",
        "a" + "[1]" * 400 + " = 1",
        f"a = '({',' * 250_000}' b",
        f"a = '({',' * 250_000}'::text = b",
        f"-- name: a{' ' * 250_000}b\na = 1 b",
        f"-- name: a{' ' * 250_000}:\nSELECT 1",
        f"a = ANY('{{{'a ' * 120_000}{{')",
        f"a = '{' ' * 250_000}' = b",
        "/* note */\n" * 26 + "a = 1 b",
        f"COALESCE({', '.join(f'a{each}' for each in range(100))}, 0) IN ({', '.join(map(str, range(1_000)))})",
        f"COALESCE(a, b, c, d, e, f, 0) IN ({', '.join(map(str, range(14_000)))})",
        "interval " * 5_000,
        "CASE " * 5_000,
        "a ->" * 2_000,
        "/*" * 1_000,
        "\0\\'\"`$$",
    ],
)
def test_hostile_conditions_end_in_an_error(condition: str) -> None:
    begin = time.process_time()
    with pytest.raises(streamer.SubscriptionError):
        import_rules("sql", condition)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("text", ["a = 1 AND\nb = 2", "a = 1\n-- and\n  or b = 2", "(\na = 1\n)", "WHERE\na = 1", "NOT\na"])
def test_no_line_of_a_condition_of_several_lines_is_a_rule(text: str) -> None:
    imported = import_rules("sql", f"{text}\nc = 3", on_error="skip")
    assert [each.to_dict()["filters"][0]["field"] for each in imported.subscriptions] == ["c"]
    assert "several lines" in imported.refused[0].reason


@pytest.mark.parametrize("name", ["filters", "cel", "pattern"])
def test_a_condition_next_to_a_rule_is_an_error(name: str) -> None:
    source = json.dumps({"id": "x", "rule": "a = 1", name: "b == 1"})
    (error,) = import_rules("sql", source, on_error="skip").refused
    assert (error.place, "next to the rule" in error.reason) == (f"line 1: {name}", True)


@pytest.mark.parametrize("rule", ['"\ud800" = 1', "a = '\ud800'", "\ud800"])
def test_half_of_a_surrogate_pair_is_an_error(rule: str) -> None:
    for source in (rule, json.dumps({"id": "x", "rule": rule})):
        with pytest.raises(streamer.SubscriptionError, match="surrogate"):
            import_rules("sql", source)


WORDS = """a b 1 'x' = <> < ( ) [ ] , ; . :: -> ->> AND OR NOT IN IS NULL LIKE ANY ARRAY [ SELECT FROM WHERE CASE WHEN END CAST
AS BETWEEN ESCAPE DATE ~ @> && || + - * $1 :p ? -- /* */ " ' E'x' COALESCE( lower( DISTINCT TRUE { } @ # % ^ ! 1e5 .5""".split()


def test_random_texts_are_conditions_or_errors() -> None:
    rng = Random(3)
    for _ in range(500):
        with suppress(streamer.SubscriptionError):
            import_rules("sql", " ".join(rng.choices(WORDS, k=rng.randint(1, 10))), on_error="skip")


@pytest.mark.parametrize(
    "text",
    ["yes", "no", "on", "off", "y", "March", "may 2b", "v1.2", "555-1234", "A-12-5", "J45.1", "(none)", "16:9", "on 5 days",
     "Sun", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "Martin 1", "4 colours", "marble-5"],
)  # fmt: skip
def test_ordinary_texts_are_texts(text: str) -> None:
    (subscription,) = import_rules("sql", f"a = '{text}'").subscriptions
    assert subscription.to_dict()["filters"] == [{"field": "a", "op": "==", "value": text}]


TIMES = (
    ("2026-01-31T11:59:59Z", -1), ("2026-01-31 12:00:00", 0), ("2026-01-31 12:00:00.000", 0), ("2026-01-31T12:00:00.0", 0),
    ("2026-01-31T13:00:00.00+01:00", 0), ("2026-01-31 12:00:00.0001", 1), ("2026-01-31T12:00:00.10", 1), ("2026-01-31", -1),
    ("2026-01-30 23:59:59.999", -1), ("2026-02-01", 1),
)  # fmt: skip


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("constant", "times"),
    [
        ("TIMESTAMP '2026-01-31 12:00:00'", TIMES),
        ("TIMESTAMP '2026-01-31 12:00:00.50'", [("2026-01-31 12:00:00.5", 0), ("2026-01-31T12:00:00.5000", 0),
                                               ("2026-01-31 12:00:00.50001", 1), ("2026-01-31 12:00:00.49", -1)]),
        ("TIMESTAMP '2026-01-31'", [("2026-01-31", 0), ("2026-01-31 00:00:00.00", 0), ("2026-01-30", -1)]),
        ("DATE '2026-01-31'", [("2026-01-30", -1), ("2026-01-31", 0), ("2026-02-01", 1), ("2026-01-31 00:00:00", 0),
                               ("2026-01-31T00:00:00.000", 0), ("2026-01-31 00:00:01", 1), ("2026-01-30T23:59:59Z", -1),
                               ("2026-01-31T00:00:00Z", 0), ("2026-01-30 23:59:59.9", -1)]),
        ("TIMESTAMPTZ '2026-01-31 12:00:00+00'", [("2026-01-31T12:00:00.000Z", 0), ("2026-01-31T13:00:01+01:00", 1)]),
    ],
)  # fmt: skip
def test_times_are_compared_as_times_whatever_their_form(
    engine: Callable[..., streamer.Engine], constant: str, times: list[tuple[str, int]], op: str
) -> None:
    wanted = {"=": [0], "<>": [-1, 1], "<": [-1], "<=": [-1, 0], ">": [1], ">=": [0, 1]}[op]
    found = matched(engine, [f"at {op} {constant}", f"NOT at {op} {constant}"], [{"at": time} for time, _ in times])
    yes = {number for number, (_, order) in enumerate(times) if order in wanted}
    assert found == [yes, set(range(len(times))) - yes]


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("status <> 'paid'", {"filters": [{"field": "status", "op": "not in", "value": ["paid", None]}]}),
        ("NOT status = 'paid'", {"filters": [{"field": "status", "op": "not in", "value": ["paid", None]}]}),
        ("a NOT IN (1, NULL)", {"cel": "false"}),
        ("100 < a", {"filters": [{"field": "a", "op": ">", "value": 100}]}),
        ("a.B = 1".replace("a.B", '"a.B"'), {"filters": [{"field": "/a.B", "op": "==", "value": 1}]}),
        ("a LIKE 'x%'", {"filters": [{"field": "a", "op": "starts_with", "value": "x"}]}),
        ("a LIKE '%x.%'", {"filters": [{"field": "a", "op": "matches", "value": r"x\.", }]}),
        (r"a LIKE '10\%'", {"filters": [{"field": "a", "op": "==", "value": "10%"}]}),
        ("a = 1e1", {"filters": [{"field": "a", "op": "==", "value": 10}]}),
        ("a->'b'->>'c.d' = 'x'", {"filters": [{"field": "/a/b/c.d", "op": "==", "value": "x"}]}),
        ("a = '5'::text", {"filters": [{"field": "a", "op": "==", "value": "5"}]}),
        ("(a)::text = ANY ((ARRAY['x'::character varying, 'y'::character varying])::text[])",
         {"filters": [{"field": "a", "op": "in", "value": ["x", "y"]}]}),
        ("a = ANY('{x, \"y z\"}')", {"filters": [{"field": "a", "op": "in", "value": ["x", "y z"]}]}),
        ("a <> ALL('{1,2}'::int[])", {"filters": [{"field": "a", "op": "not in", "value": [1, 2, None]}]}),
        ("a = SOME(ARRAY['x'])", {"filters": [{"field": "a", "op": "==", "value": "x"}]}),
        ("a::text LIKE '%x'", {"filters": [{"field": "a", "op": "ends_with", "value": "x"}]}),
        ("a > (0)::numeric", {"filters": [{"field": "a", "op": ">", "value": 0}]}),
        ("a = -(5::bigint)", {"filters": [{"field": "a", "op": "==", "value": -5}]}),
        ("a = '-1'::integer", {"filters": [{"field": "a", "op": "==", "value": -1}]}),
        ("o.order = 1", {"filters": [{"field": "order", "op": "==", "value": 1}]}),
        ('"desc" = 1', {"filters": [{"field": "desc", "op": "==", "value": 1}]}),
        ('"topics"."visible" = TRUE', {"filters": [{"field": "visible", "op": "==", "value": True}]}),
        ("SELECT * FROM s.t WHERE s.t.a = 1 AND t.b = 2", {"collection": "s.t", "filters": [
            {"field": "a", "op": "==", "value": 1}, {"field": "b", "op": "==", "value": 2}]}),
        ("a = $$it's$$", {"filters": [{"field": "a", "op": "==", "value": "it's"}]}),
    ],
)  # fmt: skip
def test_a_condition_becomes_filters_if_they_express_it(condition: str, parts: dict[str, Any]) -> None:
    (subscription,) = import_rules("sql", condition).subscriptions
    assert subscription.to_dict() == {"id": "sql-1", **parts}
