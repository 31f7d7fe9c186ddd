"""Filters of Supabase and PostgREST mean the same as subscriptions: 7,000 answers of PostgreSQL agree, on both backends.

The answers are recorded by postgres_cases.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, StreamerError
from streamer.importing import import_rules
from tests.importing.answers import answers, refusal
from tests.importing.postgres_cases import cases


def test_the_answers_of_postgresql_agree(engine: Callable[..., Engine]) -> None:
    rows, rules, expected = cases("supabase")
    # A text may contain a line feed, so each filter is a text in an object.
    named = [{"id": f"s{index}", "rule": f"and=({rule})"} for index, rule in enumerate(rules)]
    given = ["".join("1" if each else "0" for each in row) for row in answers(engine, "supabase", named, rows)]
    assert [rule for rule, row, each in zip(rules, given, expected, strict=True) if row != each] == []
    assert len(rules) * len(rows) >= 7_000
    assert 0.2 < "".join(given).count("1") / (len(rules) * len(rows)) < 0.8


@pytest.mark.parametrize(
    ("rule", "document", "expected"),
    [
        ("id=eq.5", {"id": 5}, True),
        ("id=eq.5", {"id": "5"}, True),
        ("id=eq.5", {"id": "5.0"}, False),
        ("paid=eq.t", {"paid": True}, True),
        ("a=neq.x", {"a": None}, False),
        ("a=neq.x", {"a": "y"}, True),
        ("a=not.eq.x", {}, False),
        ("a=in.(x,y)", {"a": "y"}, True),
        ('a=in.(x,"y,z")', {"a": "y,z"}, True),
        ("a=in.()", {"a": ""}, False),
        ("a=not.in.()", {"a": None}, True),
        ("a=in.(x,)", {"a": ""}, True),
        ("a=is.null", {}, True),
        ("a=not.is.null", {"a": 0}, True),
        ("a=is.not_null", {"a": None}, False),
        ("a=is.true", {"a": True}, True),
        ("a=not.is.true", {"a": None}, True),
        ("a=isdistinct.x", {"a": None}, True),
        ("a=like.J*n", {"a": "John"}, True),
        ("a=ilike.%OHN", {"a": "John"}, True),
        ("a=match.^J", {"a": "John"}, True),
        ("a=gte.1&a=lt.3", {"a": 3}, False),
        ("or=(a.lt.1,b.eq.x)", {"a": 5, "b": "x"}, True),
        ("not.or=(a.lt.1,b.eq.x)", {"a": None, "b": "y"}, False),
        ("or=(a.eq.1,not.and(b.eq.x,c.gt.1))", {"b": "x", "c": 0}, True),
        ('or=(a.eq."x,y",b.in.(1,2))', {"a": "x,y"}, True),
        ('or=(a.eq.z,b.in.(1,"2)"))', {"b": "2)"}, True),
        ("a=eq.x.y", {"a": "x.y"}, True),
        ("a=eq.", {"a": ""}, True),
        ("A b=eq.1", {"A b": 1}, True),
        ('"a.b"=eq.1', {"a.b": 1}, True),
        ("or=(a.eq.1, b.eq.2)", {"b": 2}, True),
        ("or=( not.and(a.eq.1, b.eq.2) , b.eq.2)", {"a": 3, "b": 4}, True),
        # Realtime reads a list as an array of PostgreSQL, and one filter with all its characters.
        ({"table": "t", "filter": "a=in.(red, blue, yellow)"}, {"a": "blue"}, True),
        ({"table": "t", "filter": 'a=in.(red, " blue")'}, {"a": "blue"}, False),
        ({"table": "t", "filter": "a=eq.Tom & Jerry"}, {"a": "Tom & Jerry"}, True),
        ({"table": "t", "filter": "limit=eq.1"}, {"limit": 1}, True),
    ],
)
def test_documented_cases_agree(engine: Callable[..., Engine], rule: Any, document: Any, expected: bool) -> None:
    (subscription,) = import_rules("supabase", rule if isinstance(rule, str) else json.dumps(rule)).subscriptions
    e = engine()
    e.add(subscription.to_dict())
    assert e.matches_any(json.dumps({"collection": subscription.collection, "data": document})) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("status=eq.paid", {"filters": [{"field": "status", "op": "==", "value": "paid"}]}),
        ("orders:status=eq.paid", {"collection": "public.orders"}),
        ("shop.orders:status=eq.paid", {"collection": "shop.orders"}),
        ("/rest/v1/orders?select=id&name=like.50%25*", {"collection": "public.orders",
         "filters": [{"field": "name", "op": "matches", "value": "(?s)^50.*.*$"}]}),
        ("https://x.supabase.co/rest/v1/orders", {"collection": "public.orders"}),
        ("orders?status=eq.a%20b", {"collection": "public.orders", "filters": [{"field": "status", "op": "==", "value": "a b"}]}),
        ("shop:orders:status=eq.a", {"collection": "shop.orders", "filters": [{"field": "status", "op": "==", "value": "a"}]}),
        ("realtime:public:orders:status=eq.a", {"collection": "public.orders"}),
        ({"event": "INSERT", "schema": "shop", "table": "orders", "filter": "id=eq.7x"},
         {"collection": "shop.orders", "types": ("insert",), "filters": [{"field": "id", "op": "==", "value": "7x"}]}),
        ({"event": "*", "table": "*"}, {}),
    ],
)  # fmt: skip
def test_a_filter_names_its_table(rule: Any, expected: dict[str, Any]) -> None:
    text = rule if isinstance(rule, str) else json.dumps(rule)
    (subscription,) = import_rules("supabase", text).subscriptions
    found = subscription.to_dict()
    assert found.get("collection") == expected.get("collection")
    assert found.get("types") == expected.get("types")
    assert found.get("filters") == expected.get("filters", found.get("filters"))


def test_lines_are_rules_and_comments() -> None:
    text = '# paid orders\nstatus=eq.paid\n\n{"id": "big", "gateway_id": "g", "rule": "amount=gt.100"}\n'
    assert [each.id for each in import_rules("supabase", text).subscriptions] == ["supabase-1", "big"]


@pytest.mark.parametrize(
    ("rule", "place", "reason"),
    [
        ("status", "line 1: status", "expected a filter"),
        ("a=5", "line 1: a", "expected an operator and a value"),
        ("a=cs.{1,2}", "line 1: a, cs", "this operator cannot be translated"),
        ("a=fts.word", "line 1: a, fts", "this operator cannot be translated"),
        ("a=eq(any).{1,2}", "line 1: a, eq(any)", "this operator cannot be translated"),
        ("data->>a=eq.5", "line 1: data->>a", "JSON and other tables"),
        ("actors.name=eq.x", "line 1: actors.name", "other tables"),
        ("/rest/v1/rpc/search?q=eq.x", "line 1: /rest/v1/rpc/search?q", "expected a column"),
        ("https://x.co/api/rest/v1/orders?a=eq.1", "line 1: //x.co/api/rest/v1/orders?a", "expected a column"),
        ('{"table": "t", "filter": "a=eq.1&b=eq.2"}', "line 1: filter", "one filter"),
        ('{"table": "t", "filter": "a=in.(1,,2)"}', "line 1: a, in", "expected values"),
        ('{"table": "t", "filter": "a=in.(x, null)"}', "line 1: a, in", "expected values"),
        ('{"table": "t", "filter": "status"}', "line 1: status", "expected an operator"),
        ("a=gt.x", "line 1: a, gt", "order of texts"),
        ("a=gt.2026-01-31", "line 1: a, gt", "timestamp("),
        ("a=eq.{1,2}", "line 1: a, eq", "lists, ranges and JSON"),
        ("a=in.1,2", "line 1: a, in", "expected a list"),
        ('a=in.("x"y)', "line 1: a, in", "in quotes"),
        ("a=is.5", "line 1: a, is", "expected null"),
        ("limit=5", "line 1: limit", "leave it out"),
        ("a=match.a(?=b)", "line 1: a, match, character 2", "lookarounds"),
        ("or=(a.eq.1", "line 1: or", "expected `,` or `)`"),
        ("or=(a.eq.1))", "line 1: or", "expected the end"),
        ("or=()", "line 1: or", "expected a condition"),
        ("or=(a.eq.1,b.zz.2)", "line 1: or, b, zz", "this operator cannot be translated"),
        ("or=" + "(and" * 50 + "(a.eq.1" + ")" * 50, "line 1: or", "at most 32 levels"),
        ("a=eq." + "9" * 40, "line 1: a, eq", "64 bits"),
        ('{"table": 5}', "line 1: table", "expected a text"),
        ('{"event": "TRUNCATE"}', "line 1: event", "expected one of"),
        ('{"tables": "a"}', "line 1: tables", "expected `event`"),
    ],
)
def test_a_filter_without_an_exact_translation_is_refused_with_its_place(rule: str, place: str, reason: str) -> None:
    message = refusal("supabase", rule)
    assert message.startswith(f"{place}: ")
    assert reason in message


@pytest.mark.parametrize(
    "text",
    [
        "a=" + "not." * 250_000 + "eq.5",
        "or=" + "(not.and" * 100_000,
        "or=(" + ",".join(f"a.eq.x{index}" for index in range(60_000)) + ")",
        'a=in.("' + "x" * 1_000_000,
        "a=in.(" + '"' * 999_999 + ")",
        "a=imatch." + "(" * 500_000,
        "&".join(f"a=neq.x{index}" for index in range(80_000)),
        "=eq.5",
        "&&&",
        json.dumps({"table": "t", "filter": "a=in.(x" + " " * 500_000 + "{)"}),
    ],
    ids=["not", "trees", "many", "quote", "quotes", "groups", "conditions", "name", "empty", "spaces"],
)
def test_a_hostile_filter_is_an_error(text: str) -> None:
    with pytest.raises(StreamerError):
        import_rules("supabase", text)
