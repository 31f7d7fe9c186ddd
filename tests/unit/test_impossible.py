"""What is said to match no event matches none, and the contradictions that people write are found, whichever core runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from streamer import Engine
from streamer.errors import SubscriptionError
from tests.parts import in_parts

NEVER = [
    "data.n > 100 && data.n < 50",
    "data.a == 1 && data.a == 2",
    "type == 'INSERT'",
    "timestamp('2026-01-01')  == timestamp('2026-01-01')",
    "data.t > timestamp('2026-01-01')",
    "data.items[-1] == 1",
    "size(data.x) < 0",
    "data.a in []",
    "data.x < 3 && data.x >= 3",
    "data.a.startsWith('a') && data.a.startsWith('b')",
    "data.a == 'a' && data.a.startsWith('b')",
    "data.a == 'a' && data.a > 3",
    "type == 'update' && type == 'delete'",
    "collection == 'users'",
    "tenant == 'x'",
    "size(data.a) > 5 && data.a.size() < 2",
    "data.a == 1 && !(data.a == 1)",
    "has(data.a) && !has(data.a)",
    "data.a == 1 && data.a.b == 2",
    "(data.a == 1 || data.a == 2) && data.a == 3",
    "data.a - 1 > 5 && data.a == 'x'",
    "data.a == 1 ? data.a == 2 : data.a == 1 && false",
    "data.f && !data.f",
    "type in ['INSERT','UPDATE']",
    "type(data.a) == string && data.a > 3",
    "data.a in [1,2] && data.a in [3]",
    "1/0 == data.a",
    "data.a == int('x')",
    "size(data.a) == 0 && size(data.a) > 3",
    "size(data.a) > 5 && data.a == 'abc'",
    "!(type == 'insert' || type == 'update' || type == 'delete') && type != ''",
    "data.a[-1].b == 1 && data.c == 1",
    "type.startsWith('I')",
    "data.a == null && data.a > 1",
    "before.a == 1 && before.a == 2",
    "data['a'] == 1 && data.a == 2",
    "[1][5] == data.a",
    "data.a.contains('x') && data.a > 2",
    "data.a.matches('x') && data.a == true",
    "'a' in data.a && data.a > 1",
    "null in data.a.x && data.a.endsWith('ab')",
    "data.a.exists(x, x == 1) && size(data.a) == 2 && data.a == 'ab'",
    "[1] in data.a && data.a == null",
    "data.b == 1 && (data.a > 3 && data.a < 2 || data.n == 1 && data.n == 2)",
]

#: They may match, however odd they are.
MAY = [
    "data.n > 100 || data.n < 50",
    "data.a == 1 && data.b == 2",
    "type == 'insert'",
    "type != 'INSERT'",
    "type == ''",
    "data.items[0] == 1",
    "data.a == 1 || data.t > timestamp('x')",
    "data.tags.exists(t, t == 'a') && data.tags.exists(t, t == 'b')",
    "size(data.x) <= 0",
    "data.a.startsWith('a') && data.a.startsWith('ab')",
    "!(data.a in [])",
    "data.a == 1 && data.a == 1.0",
    "data.a == 1u && data.a == 1",
    "topic == ''",
    "collection == 'orders'",
    "data.a.contains('x') && data.a.contains('y')",
    "data.a.contains(1) && data.a.contains(2)",
    "!(type == 'insert' || type == 'update' || type == 'delete')",
    "'k' in data.a && data.a.k == 1",
    "data.a >= 3 && data.a <= 3",
    "data.a + 1 > 2 && data.a.startsWith('x')",
    "data.a == 1 || data.a == 2",
    "!(type == 'INSERT')",
    # What an object or a list holds is another value than the object or the list.
    "data.a.x == 1 && (data.a > 1 || 'ab' in data.a)",
    "data.a.x == 1 && (data.a > 1 || data.a.exists(x, x == 'ab'))",
    "(data.a.exists(x, x == 'a') || data.a.exists(x, x == 'b')) && size(data.a) > 5",
    "('a' in data.a || 'b' in data.a) && data.a.x == 1",
    "(data.a == 'abc' || 'a' in data.a) && size(data.a) == 1",
]


def never(engine: Engine) -> dict[str, str]:
    return {found.subscription_id: found.reason for found in engine.lint() if found.code == "never_matches"}


def test_an_expression_that_is_true_for_no_event_is_found(engine: Callable[..., Engine]) -> None:
    e = engine()
    e.add_many({"id": source, "collection": "orders", "cel": source} for source in [*NEVER, *MAY])
    assert set(never(e)) == set(NEVER)


def test_the_reason_names_the_path_and_what_is_contradictory(engine: Callable[..., Engine]) -> None:
    e = engine()
    reasons = {
        "data.n > 100 && data.n < 50": "data.n: its ranges have no value in common",
        "data.a == 1 && data.a == 2": "data.a: its conditions exclude one another",
        "type == 'INSERT'": "type: its conditions exclude one another",
        "size(data.a) > 5 && size(data.a) < 2": "data.a: its sizes have no value in common",
        "data.a.startsWith('a') && data.a.startsWith('b')": "data.a: its prefixes exclude one another",
        "data.a == 'x' && data.a > 1": "data.a: its conditions require different types",
        "data.t > timestamp('2026-01-01')": "cel: it is true for no event",
        "timestamp('2026-01-01') > timestamp('2025-01-01')": "cel: it is an error for every event",
    }
    e.add_many({"id": source, "cel": source} for source in reasons)
    group = [{"any": [{"field": "b", "op": "==", "value": 1}, {"field": "c", "op": "in", "value": []}]}]
    e.add({"id": "cel", "filters": group, "cel": "data.x in []"})
    e.add({"id": "filters", "filters": [{"not": {"not": group[0]["any"][1]}}], "cel": "data.x in [1]"})
    reasons |= {name: f"{name}: it is true for no event" for name in ("cel", "filters")}
    assert never(e) == reasons


def test_what_the_parts_of_a_subscription_say_together_is_found(engine: Callable[..., Engine]) -> None:
    e = engine()
    contradictory: list[dict[str, Any]] = [
        {"types": ["insert"], "cel": "type == 'update'"},
        {"types": ["insert", "delete"], "cel": "type in ['update']"},
        {"collection": "orders", "cel": "collection == 'users'"},
        {"tenant": "acme", "cel": "tenant != 'acme'"},
        {"topic": "a.b", "cel": "topic == 'a.c'"},
        {"filters": [{"field": "n", "op": ">", "value": 5}], "cel": "data.n < 5"},
        {"filters": [{"field": "n", "op": "exists", "value": False}], "cel": "data.n < 5"},
        {"pattern": {"data": {"n": [1]}}, "cel": "data.s == 'a' && data.s == 'b'"},
        # One element of an array is chosen for both (semantics.md 5.6).
        {"pattern": {"data": {"n": [1], "$or": [{"n": [2]}, {"n": [3]}]}}},
    ]
    good: list[dict[str, Any]] = [
        {"types": ["insert"], "cel": "type == 'insert'"},
        {"collection": "*", "cel": "collection == 'users'"},
        {"tenant": "*", "cel": "tenant == 'users'"},
        {"topic": "a.*", "cel": "topic == 'a.c'"},
    ]
    e.add_many({"id": f"bad {at}", **each} for at, each in enumerate(contradictory))
    e.add_many({"id": f"good {at}", **each} for at, each in enumerate(good))
    assert set(never(e)) == {f"bad {at}" for at in range(len(contradictory))}


def test_a_contradiction_is_found_with_the_portable_evaluator_too(engine: Callable[..., Engine]) -> None:
    e = engine()
    sources = ["data.n > 100 && data.n < 50", "type == 'INSERT'", "data.n > 100 && data.n < 500"]
    e.add_many({"id": source, "cel": source, "cel_evaluator": "portable"} for source in sources)
    assert set(never(e)) == set(sources[:2])


PATHS = ["data.a", "data.a", "data.b", "data.a.x", "before.a", "type", "data.f"]
VALUES = ["1", "2", "-1", "1.5", "'a'", "'ab'", "'insert'", "true", "null", "''", "[1]"]


def condition(rng: random.Random, depth: int = 0) -> str:
    if depth < 3 and rng.random() < 0.55:
        parts = [condition(rng, depth + 1) for _ in range(rng.randint(2, 3))]
        return f"({rng.choice([' && ', ' && ', ' || ']).join(parts)})"
    path, value = rng.choice(PATHS), rng.choice(VALUES)
    return rng.choice(
        [
            f"{path} {rng.choice(['==', '!=', '=='])} {value}",
            f"{value} == {path}",
            f"{path} {rng.choice(['<', '<=', '>', '>='])} {rng.choice(VALUES[:6])}",
            f"{path} in [{value}, {rng.choice(VALUES)}]",
            f"!({path} in [{value}])",
            f"{path}.{rng.choice(['startsWith', 'endsWith', 'contains', 'matches'])}({rng.choice(VALUES[4:6])})",
            f"!{path}.startsWith('a')",
            f"size({path}) {rng.choice(['==', '<', '>', '>=', '!='])} {rng.choice(['0', '1', '2', '-1'])}",
            f"type({path}) == {rng.choice(['string', 'int', 'list', 'map', 'null_type'])}",
            f"has(data.{rng.choice('abf')})",
            f"!has(data.{rng.choice('abf')})",
            "data.f",
            "!data.f",
            f"{path} - 1 {rng.choice(['<', '>'])} 0",
            f"{path} == data.b",
            f"(data.f ? {path} == {value} : {path} != {value})",
            f"data.a.exists(x, x == {value})",
            f"{value} in {path}",
            f"data.a[{rng.choice(['0', '-1'])}] == {value}",
            f"timestamp({path}) > timestamp('{rng.choice(['2026-01-01', '2026-01-01T00:00:00Z'])}')",
            f"1 / {rng.choice(['0', '1'])} == {path}",
        ]
    )


DOCUMENTS: list[Any] = [1, 2, -1, 1.5, 0, "a", "ab", "", "insert", True, False, None, [], [1], ["a"], {}, {"x": 1}, {"x": "a"}, 3]
DOCUMENTS += [["a", "ab"], [1, 2], {"a": 1, "ab": 2, "x": 1}, {"insert": 0, "": 0, "x": "ab"}]


def event(rng: random.Random) -> dict[str, Any]:
    def document() -> dict[str, Any]:
        return {name: rng.choice(DOCUMENTS) for name in ("a", "b", "f") if rng.random() < 0.8}

    made: dict[str, Any] = {"data": document()}
    if rng.random() < 0.5:
        made["before"] = document()
    if rng.random() < 0.8:
        made["type"] = rng.choice(["insert", "update", "delete"])
    return made


@in_parts(8, slow=0)
def test_what_never_matches_matches_no_event(engine: Callable[..., Engine], backend: str, part: int) -> None:
    rng = random.Random(part)
    e = engine()
    for number in range(400):
        try:
            e.add({"id": str(number), "cel": " && ".join(condition(rng) for _ in range(rng.randint(1, 3)))})
        except SubscriptionError:
            continue
    found = set(never(e))
    assert 20 < len(found) < len(e) - 20
    for _ in range(30 if backend == "reference" else 150):
        matched = set(e.match_ids(json.dumps(event(rng))))
        assert not matched & found, [e.get(name) for name in matched & found]


#: Elements of `all` that no value satisfies together, with the reason.
APART: list[tuple[list[Any], str]] = [
    ([{"prefix": "a"}, {"prefix": "b"}], "its prefixes exclude one another"),
    ([{"wildcard": "a*"}, {"prefix": "b"}], "its prefixes exclude one another"),
    ([{"prefix": {"equals-ignore-case": "AB"}}, {"prefix": "ac"}], "its prefixes exclude one another"),
    ([{"suffix": "a"}, {"suffix": "b"}], "its suffixes exclude one another"),
    ([{"equals-ignore-case": "ab"}, {"equals-ignore-case": "abb"}], "its suffixes exclude one another"),
    ([{"equals-ignore-case": "a"}, {"equals-ignore-case": "aa"}], "its conditions exclude one another"),
    ([{"equals-ignore-case": "ab"}, "AC"], "its conditions exclude one another"),
    ([{"numeric": [">", 5]}, {"numeric": ["<", 3]}], "its ranges have no value in common"),
    ([{"prefix": "a"}, {"numeric": ["<", 3]}], "its conditions require different types"),
    (["a", "b"], "its conditions exclude one another"),
    (["a", {"anything-but": ["a"]}], "its conditions exclude one another"),
    ([1e400, {"exists": True}], "its condition is false for every value"),
]
#: Elements that a value satisfies, or that are not proven to exclude one another.
TOGETHER: list[list[Any]] = [
    [{"prefix": "a"}, {"suffix": "b"}],
    [{"prefix": "a"}, {"prefix": {"equals-ignore-case": "AB"}}],
    [{"equals-ignore-case": "ab"}, "AB"],
    [{"wildcard": "*a"}, {"prefix": "b"}],
    [{"numeric": [">", 3]}, {"numeric": ["<", 5]}],
    ["c", {"anything-but": ["a"]}],
    [{"exists": True}, "a"],
]


def test_conditions_of_a_pattern_on_one_value_that_exclude_one_another_are_found(engine: Callable[..., Engine]) -> None:
    e = engine()
    for number, elements in enumerate([*(elements for elements, _ in APART), *TOGETHER]):
        text = json.dumps(elements).replace("Infinity", "1e400")
        e.add(f'{{"id": "{number}", "pattern": {{"data": {{"x": [{{"all": {text}}}]}}}}}}')
    # Another element of the array may match.
    e.add({"id": "or", "pattern": {"data": {"x": ["z", {"all": APART[0][0]}]}}})
    # Of an array each field has its element.
    e.add({"id": "fields", "pattern": {"data": {"x": [{"prefix": "a"}], "y": [{"prefix": "b"}]}}})
    assert never(e) == {str(number): f"event.data.x: {reason}" for number, (_, reason) in enumerate(APART)}


def test_filters_that_exclude_one_another_by_case_or_end_are_found(engine: Callable[..., Engine]) -> None:
    def filters(*conditions: tuple[str, str, bool]) -> list[dict[str, Any]]:
        return [{"field": "x", "op": op, "value": value, "ignore_case": flag} for op, value, flag in conditions]

    e = engine()
    e.add({"id": "ends", "filters": filters(("ends_with", "a", False), ("ends_with", "b", False))})
    e.add({"id": "case", "filters": filters(("==", "ab", True), ("==", "AC", False))})
    e.add({"id": "starts", "filters": filters(("starts_with", "ab", True), ("starts_with", "AC", False))})
    e.add({"id": "same", "filters": filters(("starts_with", "ab", True), ("==", "ABC", False), ("ends_with", "C", True))})
    assert set(never(e)) == {"ends", "case", "starts"}


def element(rng: random.Random) -> Any:
    text = "".join(rng.choice("abA") for _ in range(rng.randint(1, 2)))
    return rng.choice(
        [
            text,
            rng.randint(0, 3),
            {rng.choice(["prefix", "suffix"]): rng.choice([text, {"equals-ignore-case": text}])},
            {"equals-ignore-case": text},
            {"wildcard": rng.choice(["*{}", "{}*", "a*{}"]).format(text)},
            {"anything-but": [text]},
            {"numeric": [rng.choice(["<", ">=", "="]), rng.randint(0, 3)]},
            {"exists": True},
        ]
    )


def test_a_pattern_that_never_matches_matches_no_value(engine: Callable[..., Engine]) -> None:
    rng = random.Random(1)
    e = engine()
    for number in range(600):
        choice = [{"all": [element(rng) for _ in range(rng.randint(2, 3))]} for _ in range(rng.choice([1, 1, 2]))]
        e.add({"id": str(number), "pattern": {"data": {"x": choice}}})
    found = set(never(e))
    assert 50 < len(found) < 550
    texts = ["", *(a + b + c for a in ("", "a", "b", "A") for b in ("a", "b", "A") for c in ("", "a", "b", "A"))]
    for value in (*texts, 0, 1, 2, 3, True, None, ["a", "b", 1], [["Ab"], {"y": "aa"}]):
        assert not found & set(e.match_ids({"data": {"x": value}}))
