"""A condition of an imported rule is true for exactly the events that its subscription matches."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import streamer
from streamer.importing.conditions import (
    ALWAYS,
    NEVER,
    TESTS,
    TYPES,
    AllOf,
    AnyElement,
    AnyOf,
    Cel,
    Condition,
    Not,
    Path,
    contains_text,
    subscription_parts,
)
from streamer.importing.conditions import Test as On  # pytest would collect a `Test`
from tests.parts import in_parts

NAMES = ("a", "b", "c.d", "in")
SCALARS = (0, 1, 1.5, 2**53 + 1, "", "a", "ab", "AB", "a.b", "1", True, False, None)
MISSING = object()


def value(rng: Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth < 2 and kind < 0.2:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if depth < 2 and kind < 0.45:
        return {name: value(rng, depth + 1) for name in rng.sample(NAMES, rng.randint(0, 3))}
    return rng.choice(SCALARS)


def path(rng: Random, roots: tuple[str, ...]) -> Path:
    root = rng.choice(roots)
    least = 1 if root in ("data", "before", "envelope") else 0
    return Path(tuple(rng.choices(NAMES, k=rng.choice((least, 1, 1, 2)))), root)


def operand(rng: Random, op: str) -> Any:
    match op:
        case _ if op.endswith(" but for case"):
            return rng.choice(("", "A", "b", "aB"))
        case "in" | "not in":
            return [rng.choice(SCALARS) for _ in range(rng.randint(1, 3))]
        case "<" | "<=" | ">" | ">=":
            return rng.choice([each for each in SCALARS if each is not None])
        case "starts_with" | "ends_with" | "matches" | "contains":
            return rng.choice(("", "a", "b"))
        case "size":
            return rng.randint(0, 3)
        case "exists":
            return None
        case "type":
            return rng.sample(list(TYPES), rng.randint(1, 2))
        case _:
            return rng.choice(SCALARS)


def condition(rng: Random, roots: tuple[str, ...] = ("data", "data", "data", "before", "envelope"), depth: int = 0) -> Condition:
    kind = rng.random() if depth < 3 else 1.0
    if kind < 0.2:
        return Not(condition(rng, roots, depth + 1))
    if kind < 0.55:
        group = rng.choice((AllOf, AnyOf))
        return group(tuple(condition(rng, roots, depth + 1) for _ in range(rng.randint(1, 3))))
    if kind < 0.65:
        name = f"x{depth}"
        return AnyElement(path(rng, roots), name, condition(rng, (name, name, *roots), depth + 1))
    if kind < 0.7:
        return rng.choice((ALWAYS, NEVER, Cel("type == 'insert'")))
    if kind < 0.75:
        return contains_text(path(rng, roots), rng.choice(("a", ".", "")))
    op = rng.choice(list(TESTS))
    return On(path(rng, roots), op, operand(rng, op))


def folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def is_true(condition: Condition, roots: dict[str, Any]) -> bool:
    """Decide a condition as its docstrings say, without CEL."""
    match condition:
        case Not(inner):
            return not is_true(inner, roots)
        case AllOf(parts):
            return all(is_true(each, roots) for each in parts)
        case AnyOf(parts):
            return any(is_true(each, roots) for each in parts)
        case AnyElement(at, name, inner):
            elements = found(at, roots)
            return isinstance(elements, list) and any(is_true(inner, {**roots, name: each}) for each in elements)
        case Cel(_):
            return roots["type"] == "insert"
        case On(at, op, operand):
            seen = found(at, roots)
            if op.endswith(" but for case"):
                op, seen, operand = op.removesuffix(" but for case"), folded(seen), folded(operand)
            return seen is not MISSING and holds(seen, op, operand)


def found(path: Path, roots: dict[str, Any]) -> Any:
    seen = roots[path.root]
    for name in path.names:
        if not isinstance(seen, dict) or name not in seen:
            return MISSING
        seen = seen[name]
    return seen


def kind(seen: Any) -> str:
    if isinstance(seen, bool):
        return "boolean"
    if isinstance(seen, int | float):
        return "number"
    return {type(None): "null", str: "string", list: "list", dict: "object"}[type(seen)]


def equal(one: Any, other: Any) -> bool:
    return kind(one) == kind(other) and bool(one == other)


def holds(seen: Any, op: str, operand: Any) -> bool:
    match op:
        case "==":
            return equal(seen, operand)
        case "!=":
            return not equal(seen, operand)
        case "in":
            return any(equal(seen, each) for each in operand)
        case "not in":
            return not any(equal(seen, each) for each in operand)
        case "<" | "<=" | ">" | ">=":
            order = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[op]
            if kind(seen) != kind(operand):
                return False
            result = getattr(seen, order)(operand)
            return bool(getattr(float(seen), order)(float(operand)) if result is NotImplemented else result)
        case "starts_with":
            return isinstance(seen, str) and seen.startswith(operand)
        case "ends_with":
            return isinstance(seen, str) and seen.endswith(operand)
        case "matches":
            return isinstance(seen, str) and operand.replace("\\", "") in seen
        case "contains":
            return operand in seen if isinstance(seen, str) else holds(seen, "has_element", operand)
        case "has_element":
            return isinstance(seen, list) and any(equal(each, operand) for each in seen)
        case "size":
            return isinstance(seen, list) and len(seen) == operand
        case "exists":
            return True
        case _:
            assert op == "type"
            return kind(seen) in operand


def event(rng: Random) -> dict[str, Any]:
    return {
        "collection": "c",
        "type": rng.choice(("insert", "update")),
        "data": {name: value(rng) for name in rng.sample(NAMES, rng.randint(0, 4))},
        "before": rng.choice((None, {"a": value(rng)})),
        "a": value(rng),
        "b": value(rng),
    }


@in_parts(6, slow=1)
def test_a_subscription_matches_exactly_if_the_condition_is_true(engine: Callable[..., streamer.Engine], part: int) -> None:
    rng = Random(part)
    conditions = {f"c{number}": condition(rng) for number in range(150)}
    engines = engine()
    engines.add_many({"id": name, **subscription_parts(each)} for name, each in conditions.items())
    true = 0
    for _ in range(60):
        sent = event(rng)
        # `envelope` is the event without its documents.
        outside = {name: each for name, each in sent.items() if name not in ("data", "before")}
        roots = {"data": sent["data"], "before": sent["before"], "envelope": outside, "type": sent["type"]}
        expected = {name for name, each in conditions.items() if is_true(each, roots)}
        got = set(engines.match_ids(sent))
        assert got == expected, [(subscription_parts(conditions[name]), sent) for name in got ^ expected]
        true += len(expected)
    assert 1_000 < true < 8_000


A, B = On(Path(("a",)), "==", 1), On(Path(("b",)), "starts_with", "x")


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        (ALWAYS, {}),
        (
            AllOf((A, B, A)),
            {"filters": [{"field": "a", "op": "==", "value": 1}, {"field": "b", "op": "starts_with", "value": "x"}]},
        ),
        (AnyOf((A, B)), {"cel": "data.a == 1 || data.b.startsWith('x')"}),
        (Not(AnyOf((Not(A), Not(B)))), {"filters": subscription_parts(AllOf((A, B)))["filters"]}),
        (Not(On(Path(("a",)), "exists")), {"filters": [{"field": "a", "op": "exists", "value": False}]}),
        (Not(A), {"cel": "!(type(data) == map && has(data.a) && data.a == 1)"}),
        (On(Path(("a.b",)), "==", 1), {"filters": [{"field": "/a.b", "op": "==", "value": 1}]}),
        (contains_text(Path(("a",)), "1.5"), {"filters": [{"field": "a", "op": "matches", "value": r"1\.5"}]}),
    ],
)
def test_a_condition_becomes_the_plainest_form(condition: Condition, parts: dict[str, Any]) -> None:
    assert subscription_parts(condition) == parts
