"""Conditions on an element of a list, on sizes and on changes are answered by the index: an event looks at what it finds alone.

Work is counted as candidates: conjunctions that are verified or handed out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamer import Engine

COUNTS = {"native": 2_000, "reference": 150}
EVENT: dict[str, Any] = {
    "type": "update",
    "data": {
        "country": "DE",
        "name": "n7 and more",
        "tags": ["t7", "red", 7, 7.5, "a7z", ["t9"], {"k": 1}, {"k": [9.0], "l": {}}, None, "é\n7"],
        "point": [[7, 1.0], [1, 7]],
        "map": {"k7": 1, "a": {}, "a b": 2},
        "text": "t7",
        "lines": [{"sku": "s7", "qty": 2}, {"sku": "s8", "qty": 0}],
        "sized": list(range(107)),
        "f7": 1,
        "f8": {"a": [1, 1.0]},
        "f9": 1,
    },
    "before": {"f7": 2, "f8": {"a": [1.0, 1]}, "f10": 1},
}


def cel(source: str) -> dict[str, Any]:
    return {"cel": source}


def filters(*found: tuple[str, str, Any]) -> dict[str, Any]:
    return {"filters": [{"field": field, "op": op, **({} if value is None else {"value": value})} for field, op, value in found]}


#: Of each way to ask: the subscription of a number, and which numbers match.
WAYS: dict[str, tuple[Any, set[int]]] = {
    "contains": (lambda n: filters(("tags", "contains", f"t{n}")), {7}),
    "contains a number": (lambda n: filters(("tags", "contains", n)), {7}),
    "contains, of a text": (lambda n: filters(("text", "contains", f"t{n}")), {7}),
    "shared and contains": (lambda n: filters(("country", "==", "DE"), ("tags", "contains", f"t{n}")), {7}),
    "in": (lambda n: cel(f"'t{n}' in data.tags"), {7}),
    "in, an escaped text": (lambda n: cel(f"'é\\n{n}' in data.tags"), {7}),
    "in a map": (lambda n: cel(f"'k{n}' in data.map"), {7}),
    "has": (lambda n: cel(f"has(data.map.k{n})"), {7}),
    "method contains": (lambda n: cel(f"data.tags.contains('t{n}')"), {7}),
    "an equal element": (lambda n: cel(f"data.tags.exists(t, t == 't{n}')"), {7}),
    "one of two elements": (lambda n: cel(f"data.tags.exists(t, t in ['t{n}', 'u{n}'])"), {7}),
    "an element begins so": (lambda n: cel(f"data.tags.exists(t, t.startsWith('t{n}'))"), {7}),
    "an element ends so": (lambda n: cel(f"data.tags.exists(t, t.endsWith('a{n}z'))"), {7}),
    "an element holds it": (lambda n: cel(f"data.tags.exists(t, t.contains('a{n}z'))"), {7}),
    "an element matches": (lambda n: cel(f"data.tags.exists(t, t.matches('^a{n}z$'))"), {7}),
    "an element in a range": (lambda n: cel(f"data.tags.exists(t, t > {n}.25 && t < {n}.75)"), {7}),
    "an element so or so": (lambda n: cel(f"data.tags.exists(t, t == 'a{n}z' || t.startsWith('u{n}'))"), {7}),
    "an element so and so": (lambda n: cel(f"data.tags.exists(t, t.startsWith('a') && t.endsWith('a{n}z'))"), {7}),
    "one element alone": (lambda n: cel(f"data.tags.exists_one(t, t == 't{n}')"), {7}),
    "not all": (lambda n: cel(f"!data.tags.all(t, t != 't{n}')"), {7}),
    "an object of a list": (lambda n: cel(f"data.lines.exists(l, l.sku == 's{n}' && l.qty > 1)"), {7}),
    "an object so or so": (lambda n: cel(f"data.lines.exists(l, l.sku == 's{n}' || l.qty == {100 + n})"), {7, 8}),
    "a size": (lambda n: cel(f"size(data.sized) == {n}"), {107}),
    "a size in a range": (lambda n: cel(f"data.sized.size() >= {n} && data.sized.size() < {n + 1}"), {107}),
    "mixed": (lambda n: cel(f"data.name == 'n{n}' || 't{n}' in data.tags || size(data.sized) == {100 + n}"), {7}),
    "a whole list": (lambda n: filters(("point", "==", [[n, 1], [1, n]])), {7}),
    "one of two whole lists": (lambda n: cel(f"data.point in [[[{n}, 1]], [[{n}.0, 1], [1, {n}.0]]]"), {7}),
    "a whole object": (lambda n: filters(("f8", "==", {"a": [1, n - 6]})), {7}),
    "a whole list before": (lambda n: cel(f"before.f8 == {{'a': [1, {n - 6}]}}"), {7}),
    "changed to a whole list": (lambda n: filters(("point", "changed_to", [[7, 1], [1, n]])), {7}),
    "a list as element": (lambda n: cel(f"['t{n}'] in data.tags"), {9}),
    "an object as element": (lambda n: cel(f"data.tags.contains({{'l': {{}}, 'k': [{n}]}})"), {9}),
    "an element equals a list": (lambda n: cel(f"data.tags.exists(t, t == ['t{n}'] || t == 'u{n}')"), {9}),
    "shared and a whole list": (lambda n: filters(("country", "==", "DE"), ("point", "==", [[7, n], [1, 7]])), {1}),
    "changed": (lambda n: filters((f"f{n}", "changed", None)), {7, 9, 10}),
    "unequal to before": (lambda n: cel(f"data.f{n} != before.f{n} || data.name == 'n{n}'"), {7}),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_event_looks_at_what_it_finds(way: str, backend: str) -> None:
    make, expected = WAYS[way]
    engine = Engine()
    engine.add_many([{"id": str(n), **make(n)} for n in range(COUNTS[backend])])
    text = json.dumps(EVENT).encode()
    assert {int(name) for name in engine.match_ids(text)} == expected
    if backend == "native":
        assert engine._core.telemetry().candidates <= 10 + 3 * len(expected)
