"""Boolean expressions of Hasura mean the same as subscriptions: 5,000 answers of PostgreSQL agree, on both backends.

The answers are recorded by postgres_cases.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, StreamerError
from streamer.importing import import_rules
from tests.importing.answers import answers, matched, refusal, translation
from tests.importing.postgres_cases import cases


def test_the_answers_of_postgresql_agree(engine: Callable[..., Engine]) -> None:
    rows, rules, expected = cases("hasura")
    given = ["".join("1" if each else "0" for each in row) for row in answers(engine, "hasura", rules, rows)]
    assert [rule for rule, row, each in zip(rules, given, expected, strict=True) if row != each] == []
    assert len(rules) * len(rows) >= 5_000
    assert 0.2 < "".join(given).count("1") / (len(rules) * len(rows)) < 0.8


@pytest.mark.parametrize(
    ("rule", "document", "expected"),
    [
        ({}, {}, True),
        ({"a": {"_neq": "x"}}, {"a": None}, False),
        ({"a": {"_neq": "x"}}, {}, False),
        ({"_not": {"a": {"_eq": "x"}}}, {"a": None}, False),
        ({"_not": {"_and": [{"a": {"_eq": "x"}}, {"b": {"_eq": 1}}]}}, {"a": None, "b": 2}, True),
        ({"_not": {"_or": [{"a": {"_eq": "x"}}, {"b": {"_eq": 1}}]}}, {"a": None, "b": 2}, False),
        ({"a": {"_in": []}}, {"a": 1}, False),
        ({"a": {"_nin": []}}, {"a": None}, True),
        ({"_or": []}, {}, False),
        ({"_and": []}, {}, True),
        ({"a": 5}, {"a": 5}, True),
        ({"$and": [{"a": {"$eq": 5}}]}, {"a": 5}, True),
        ({"a": {"_is_null": True}}, {}, True),
        ({"a": {"_is_null": False}}, {"a": 0}, True),
        ({"a": {"_gt": 1, "_lt": 3}}, {"a": 2}, True),
        ({"a": {"_like": "50\\%%"}}, {"a": "50% off"}, True),
        ({"a": {"_nlike": "x%"}}, {"a": None}, False),
        ({"_id": {"_eq": 7}}, {"_id": 7}, True),
    ],
)
def test_documented_cases_agree(engine: Callable[..., Engine], rule: Any, document: Any, expected: bool) -> None:
    assert matched(engine, "hasura", rule, document) == expected


def test_an_expression_becomes_filters() -> None:
    found = translation("hasura", {"status": {"_eq": "paid"}, "amount": {"_gt": 100}, "name": {"_like": "A%"}})
    assert found == {
        "filters": [
            {"field": "status", "op": "==", "value": "paid"},
            {"field": "amount", "op": ">", "value": 100},
            {"field": "name", "op": "starts_with", "value": "A"},
        ]
    }


@pytest.mark.parametrize(
    ("rule", "place", "reason"),
    [
        ({"_or": [{"a": {"_eq": 1}}, {"b": {"_eq": None}}]}, "_or[1].b._eq", "write `_is_null`"),
        ({"a": {"_in": [1, None]}}, "a._in[1]", "write `_is_null`"),
        ({"user": {"name": {"_eq": "x"}}}, "user.name", "relationships"),
        ({"_exists": {"_table": "t"}}, "_exists", "another table"),
        ({"a": {"_eq": "X-Hasura-User-Id"}}, "a._eq", "session variable"),
        ({"a": {"_ceq": "b"}}, "a._ceq", "write this condition in CEL"),
        ({"a": {"_contains": {"b": 1}}}, "a._contains", "write this condition in CEL"),
        ({"a": {"_eq": {"b": 1}}}, "a._eq", "expected a text, a number or a boolean"),
        ({"a": {"_gt": "x"}}, "a._gt", "order of texts"),
        ({"a": {"_gt": "2026-01-31"}}, "a._gt", "several spellings"),
        ({"a": {"_eq": "2026-01-31"}}, "a._eq", "several spellings"),
        ({"a": {"_eq": "{1,2}"}}, "a._eq", "lists, ranges and JSON"),
        ({"a": {"_regex": r"\d"}}, "a._regex, character 1", "depends on the database"),
        ({"a": {"_regex": "a(?=b)"}}, "a._regex, character 2", "lookarounds"),
        ({"a": {"_like": "a\\"}}, "a._like", "after the last"),
        ({"$where": 1}, "$where", "expected a column"),
        ({"a": 2**64}, "a", "64 bits"),
        ("[[]]", "[0]", "expected an object"),
        ('{"a": {"_eq": NaN}}', "a._eq", "finite number"),
    ],
)
def test_an_expression_without_an_exact_translation_is_refused_with_its_place(rule: Any, place: str, reason: str) -> None:
    message = refusal("hasura", rule)
    assert message.startswith(f"{place}: ")
    assert reason in message


@pytest.mark.parametrize(
    "text",
    [
        '{"_not": ' * 10_000 + "{}" + "}" * 10_000,
        '{"_and": [' * 200 + "{}" + "]}" * 200,
        json.dumps({"_or": [{"a": {"_eq": index}} for index in range(30_000)]}),
        '{"a": {"_regex": "' + "(" * 500_000 + '"}}',
        r'{"a": {"_eq": "\ud800"}}',
    ],
    ids=["not", "and", "many", "groups", "surrogate"],
)
def test_a_hostile_expression_is_an_error(text: str) -> None:
    with pytest.raises(StreamerError):
        import_rules("hasura", text)
