"""An event that lacks values is decided for few subscriptions, and for these as in the reference."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import pytest

from streamer import Engine, _backend

FIELDS = ("a", "b", "c", "d")
VALUES: tuple[Any, ...] = (0, 1, 2, "x", "y", "", None, True, 1.5, [1, 2], ["x"], {"k": 1})


def a_filter(rng: Random) -> dict[str, Any]:
    match rng.randrange(5):
        case 0:
            return {"field": rng.choice(FIELDS), "op": "changed"}
        case 1:
            return {"field": rng.choice(FIELDS), "op": rng.choice(["in", "not in"]), "value": rng.sample(VALUES[:5], 2)}
        case 2:
            return {"field": rng.choice(FIELDS), "op": rng.choice(["<", ">=", "starts_with"]), "value": "x"}
        case 3:
            return {"field": rng.choice(FIELDS), "op": "exists", "value": rng.random() < 0.5}
        case _:
            return {"field": rng.choice(FIELDS), "op": rng.choice(["==", "!=", "changed_to"]), "value": rng.choice(VALUES[:7])}


def an_entry(rng: Random, depth: int = 0) -> dict[str, Any]:
    if depth == 3 or rng.random() < 0.7:
        return a_filter(rng)
    if rng.random() < 0.4:
        return {"not": an_entry(rng, depth + 1)}
    return {rng.choice(["any", "all"]): [an_entry(rng, depth + 1) for _ in range(rng.randint(1, 3))]}


def a_subscription(rng: Random, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {"id": f"s{number}", "filters": [an_entry(rng) for _ in range(rng.randint(1, 3))]}
    if rng.random() < 0.2:
        one, other = rng.choice(FIELDS), rng.choice(FIELDS)
        made["cel"] = rng.choice(
            [f"data.{one} == 1 ? before.{other} == 1 : data.{other} == 2", f"data.{one} - 1 > before.{other}"]
        )
    if rng.random() < 0.2:
        made["pattern"] = {rng.choice(["data", "before"]): {rng.choice(FIELDS): [{"prefix": "x"}, 1]}}
    if rng.random() < 0.2:
        made["on_unknown"] = "skip"
    return made | {"transitions": rng.random() < 0.5}


def an_event(rng: Random) -> bytes:
    def document() -> dict[str, Any]:
        return {name: rng.choice(VALUES) for name in FIELDS if rng.random() < 0.85}

    event: dict[str, Any] = {"type": rng.choice(["update", "update", "update", "insert", "delete"]), "data": document()}
    if rng.random() < 0.8:
        event["before"] = rng.choice([document(), None])
    places = ["/before", "/before/a", "/before/b", "/data/a", "/data/b", "/data/c", "/data"]
    return json.dumps(event | {"unknown": rng.sample(places, rng.randint(0, 2))}).encode()


@pytest.mark.parametrize("options", [{}, {"validation": "lazy"}, {"soft_delete": "d"}], ids=str)
def test_many_subscriptions_match_partial_events_as_in_the_reference(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, uncertain = Random(str(options)), 0
    subscriptions = [a_subscription(rng, number) for number in range(120)]
    engines = []
    for backend in ("native", "reference"):
        monkeypatch.setattr(_backend, "BACKEND", backend)
        engines.append(Engine(**options))
        engines[-1].add_many(subscriptions)
    for _ in range(60):
        event = an_event(rng)
        native, reference = (
            {(match.subscription_id, match.transition, match.certain) for match in engine.match(event)} for engine in engines
        )
        assert native == reference, event
        uncertain += sum(not certain for *_, certain in native)
    assert uncertain > 100


MANY = 10_000
WAYS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "changed": ([{"field": "status", "op": "changed_to", "value": "shipped"}], {"before": None, "unknown": ["/before"]}),
    "old side": ([{"field": "status", "op": "==", "value": "paid"}], {"before": {"id": 3}, "unknown": ["/before/status"]}),
    "group": (
        [{"any": [{"field": "status", "op": "==", "value": "paid"}, {"not": {"field": "b", "op": "changed"}}]}],
        {"before": {"id": 3}, "unknown": ["/before/b"]},
    ),
    "new side": ([{"field": "status", "op": "==", "value": "paid"}], {"before": {"id": 3}, "unknown": ["/data/status"]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_partial_event_evaluates_the_subscriptions_that_may_match(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation takes a microsecond or more: one of each subscription would take several times the limit."""
    filters, more = WAYS[way]
    monkeypatch.setattr(_backend, "BACKEND", "native")
    engine = Engine()
    engine.add_many(
        {"id": f"s{n}", "transitions": True, "filters": [{"field": "id", "op": "==", "value": n}, *filters]} for n in range(MANY)
    )
    event = json.dumps({"type": "update", "data": {"id": 7, "status": "shipped", "b": 1}, **more}).encode()
    matched = {match.subscription_id for match in engine.match(event)}
    assert matched <= {"s3", "s7"}
    began = time.thread_time()
    for _ in range(100):
        engine.match(event)
    assert time.thread_time() - began < 1
