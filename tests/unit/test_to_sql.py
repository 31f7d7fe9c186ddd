"""A subscription prints as a condition of PostgreSQL, or is refused with its place.

tests/importing/test_sql.py compares the rows that such conditions select with those that match.
"""

from __future__ import annotations

from typing import Any

import pytest

from streamer import CelError, Subscription, SubscriptionError


@pytest.mark.parametrize(
    ("parts", "sql"),
    [
        ({}, "TRUE"),
        ({"collection": "orders", "tenant": "acme", "transitions": True}, "TRUE"),
        ({"filters": [{"field": "a", "op": "==", "value": "it's"}]}, "\"a\" IS NOT DISTINCT FROM 'it''s'::text"),
        ({"filters": [{"field": '/a"b', "op": ">", "value": 1.5}]}, '"a""b" > 1.5'),
        ({"filters": [{"field": "a", "op": "!=", "value": None}]}, '"a" IS NOT NULL'),
        ({"filters": [{"field": "a", "op": "exists", "value": True}]}, "TRUE"),
        ({"filters": [{"field": "a", "op": "in", "value": []}]}, "FALSE"),
        ({"filters": [{"field": "a", "op": "not in", "value": [1, None]}]}, 'NOT (("a" IS NULL OR "a" IN (1)))'),
        ({"filters": [{"field": "a", "op": "matches", "value": "^a.[.]"}]}, "\"a\" ~ '^a[^\\n][.]'::text"),
        ({"filters": [{"field": "a", "op": "ends_with", "value": "é"}]}, "right(\"a\", 1) = 'é'::text"),
        ({"filters": [{"field": "a.b", "op": "==", "value": [1, {"c": "é"}]}]}, '("a" -> \'b\') = \'[1, {"c": "é"}]\'::jsonb'),
        (
            {"filters": [{"field": "a", "op": "<", "value": 1}], "cel": "data.b || !data.c"},
            '"a" < 1 AND (("b") OR (NOT ("c")))',
        ),
        ({"cel": "5 >= data.a && has(data.b) && true"}, '"a" <= 5'),
        ({"cel": "data.a == -9223372036854775808"}, '"a" IS NOT DISTINCT FROM -9223372036854775808'),
    ],
)
def test_a_subscription_prints_as_sql(parts: dict[str, Any], sql: str) -> None:
    assert Subscription(id="s", **parts).to_sql() == sql


@pytest.mark.parametrize(
    ("parts", "place", "reason"),
    [
        ({"types": ["insert"]}, "types", "no type"),
        ({"topic": "a.b"}, "topic", "no topic"),
        ({"pattern": {"data": {"a": [1]}}}, "pattern", "write filters"),
        ({"filters": [{"field": "a", "op": "changed"}]}, "filters[0]", "supported"),
        ({"filters": [{"field": "b", "op": "==", "value": 1}, {"field": "a", "op": "==", "value": [1]}]}, "filters[1]", "number"),
        ({"filters": [{"field": "a", "op": "in", "value": [1, "x"]}]}, "filters[0]", "one type"),
        ({"filters": [{"field": "a", "op": "matches", "value": r"\d"}]}, "filters[0]", "regular expression"),
        ({"filters": [{"field": "a", "op": "==", "value": "\0"}]}, "filters[0]", "NUL"),
        ({"filters": [{"field": "a" * 64, "op": "==", "value": 1}]}, "filters[0]", "63 bytes"),
        ({"filters": [{"field": "a", "op": "contains", "value": 5}]}, "filters[0]", "with a text"),
        ({"cel": "type == 'insert'"}, "cel", "field of data"),
        ({"cel": "before.a == 1"}, "cel", "field of data"),
        ({"cel": "data.a + 1 == 2"}, "cel", "field of data"),
        ({"cel": "data.a < data.b"}, "cel", "two fields"),
        ({"cel": "data.a.b == data.c"}, "cel", "two fields"),
        ({"cel": "data.l.exists(x, x == 1)"}, "cel", "field of data"),
        ({"cel": "data.l[0] == 1"}, "cel", "field of data"),
        ({"cel": "has(data.l[0].a)"}, "cel", "field of data"),
        ({"cel": "has(data.?a.b)"}, "cel", "field of data"),
        ({"cel": "type(data.?a) == map"}, "cel", "field of data"),
        ({"cel": "data.a.lowerAscii() == 'a'"}, "cel", "field of data"),
        ({"cel": "cel.bind(a, data.a, a == 1)"}, "cel", "supported"),
        ({"cel": "data.a ? true : false"}, "cel", "supported"),
        ({"cel": "timestamp(data.a) < timestamp('2026-01-31T00:00:00Z')"}, "cel", "field of data"),
        ({"cel": "type(data.a) == int"}, "cel", "int, uint, double"),
        ({"cel": "data == {}"}, "cel", "field of data"),
        ({"cel": "data.a =="}, "cel", "ends too early"),
    ],
)
def test_what_sql_cannot_express_is_refused_with_its_place(parts: dict[str, Any], place: str, reason: str) -> None:
    with pytest.raises(SubscriptionError, match=reason) as caught:
        Subscription(id="s", **parts).to_sql()
    assert (caught.value.place, caught.value.subscription_id) == (place, "s")


def test_the_place_in_an_expression_is_its_line_and_column() -> None:
    with pytest.raises(CelError) as caught:
        Subscription(id="s", cel="data.a == 1 &&\n  size(data.b) > 1").to_sql()
    assert (caught.value.line, caught.value.column) == (2, 3)
