"""A subscription printed as CEL, and added as nothing but that, matches the same events in the same way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, EventError, Subscription, SubscriptionError
from tests.generators import random_event, random_subscription, random_text
from tests.parts import in_seeds

SUBSCRIPTIONS, EVENTS = 60, 60
#: Arrays of random events stand in one another no deeper.
ARRAY_DEPTH = 4

#: What CEL says of a pattern, beside what random subscriptions hold of it.
LEAVES: list[Any] = [
    1,
    "a",
    None,
    True,
    {"prefix": "a"},
    {"suffix": "c"},
    {"numeric": [">", 0, "<=", 5]},
    {"numeric": ["=", 1]},
    {"wildcard": "a*"},
    {"wildcard": "*b*"},
    {"wildcard": "a*c"},
    {"wildcard": "*"},
    {"regexp": "[^a]+"},
    {"regexp": "ab?c?"},
]


def as_cel(subscription: dict[str, Any]) -> dict[str, Any]:
    kept = ("id", "tenant", "on_unknown", "transitions", "cel_evaluator")
    expression = Subscription(**subscription).to_cel(array_depth=ARRAY_DEPTH)
    return {**{name: subscription[name] for name in kept if name in subscription}, "cel": expression}


def patterned(rng: random.Random, name: str) -> dict[str, Any]:
    def document(names: list[str]) -> dict[str, Any]:
        chosen = rng.sample(names, rng.randint(1, 2))
        return {each: rng.choices(LEAVES, k=rng.randint(1, 3)) if rng.random() < 0.7 else inner(each) for each in chosen}

    def inner(name: str) -> dict[str, Any]:
        return {each: rng.choices(LEAVES, k=2) for each in rng.sample(["d", "e"], rng.randint(1, 2))}

    pattern: dict[str, Any] = {"data": document(["a", "b", "c", "l"])}
    if rng.random() < 0.3:
        pattern["$or"] = [{"data": document(["a", "b"])}, {"before": document(["a", "b"])}]
    return {"id": name, "types": rng.choice([["insert"], ["update"], ["insert", "update"]]), "pattern": pattern}


def outcomes(engine: Engine, event: Any) -> Any:
    try:
        return sorted((match.subscription_id, match.transition, match.certain) for match in engine.match(event))
    except EventError as error:
        return error.code


def is_said(given: dict[str, Any], plain: Engine, printed: Engine) -> bool:
    """Add a subscription as it is and as CEL, if CEL can say it."""
    try:
        said = as_cel(given)
    except SubscriptionError as error:
        if error.place != "topic" and not error.place.startswith("pattern"):
            raise
        return False
    plain.add(given)
    printed.add(said)
    return True


@pytest.mark.parametrize("has_patterns", [False, True])
@in_seeds(2, 24)
def test_as_cel_it_matches_what_it_matches(engine: Callable[..., Engine], seed: int, has_patterns: bool) -> None:
    rng = random.Random(seed)
    plain, printed, seen = engine(), engine(), Counter[str]()
    for at in range(SUBSCRIPTIONS):
        given = patterned(rng, f"p{at}") if has_patterns and at % 2 else random_subscription(rng, f"r{at}")
        if not has_patterns:
            given.pop("pattern", None)
        if is_said(given, plain, printed):
            seen.update(["said", *(part for part in ("types", "topic", "filters", "pattern") if part in given)])
    for _ in range(EVENTS):
        event = random_event(rng)
        if has_patterns:
            # An element that is not known may itself be an array of unknown depth.
            event.pop("unknown", None)
        text = random_text(rng, event)
        found = outcomes(plain, text)
        assert outcomes(printed, text) == found, text
        seen["matches"] += len(found) if isinstance(found, list) else 0
    parts = ("types", "topic", "pattern") if has_patterns else ("types", "topic", "filters")
    assert min(seen["said"], seen["matches"]) >= 20, seen
    assert all(seen[part] >= 3 for part in parts), seen


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"topic": "#"}, "topic"),
        ({"types": ["insert"], "pattern": {"data": {"a": [{"exists": False}]}}}, "pattern.data.a"),
        ({"types": ["insert"], "pattern": {"data": {"a": [{"anything-but": "x"}]}}}, "pattern.data.a"),
        ({"pattern": {"data": {"a": [1]}}}, "pattern.data.a"),
        ({"types": ["insert"], "pattern": {"id": [1]}}, "pattern.id"),
        ({"filters": [{"field": "", "op": "changed"}]}, "filters[0].field"),
    ],
)
def test_the_part_that_cannot_be_said_is_named(members: dict[str, Any], place: str) -> None:
    with pytest.raises(SubscriptionError) as raised:
        Subscription(id="s", **members).to_cel(array_depth=1)
    assert (raised.value.place, raised.value.subscription_id) == (place, "s")


def test_a_pattern_needs_to_know_how_deep_arrays_go() -> None:
    subscription = Subscription(id="s", types=["insert"], pattern={"data": {"a": [1, "x"]}})
    with pytest.raises(SubscriptionError, match="array_depth"):
        subscription.to_cel()
    assert subscription.to_cel(array_depth=0).endswith("has(data.a) && (data.a in [1, 'x'])))")


def test_the_whole_is_printed_in_the_order_of_its_parts() -> None:
    subscription = Subscription(
        id="s",
        tenant="acme",
        collection="orders",
        types=["insert", "update"],
        topic="orders.*.paid.#",
        filters=[{"field": "status", "op": "==", "value": "paid"}],
        cel="data.n > 1 || data.n < -1",
    )
    assert subscription.to_cel() == (
        "(type in ['insert', 'update']) && (collection == 'orders') && "
        r"(topic != '' && (topic + '.').matches('^orders\\.[^.]*\\.paid\\.(?:[^.]*\\.)*$')) && "
        "(data.status == 'paid') && (data.n > 1 || data.n < -1)"
    )
    assert Subscription(id="s").to_cel() == "true"


def test_an_explanation_has_the_expression_where_there_is_one(engine: Callable[..., Engine]) -> None:
    held = engine()
    held.add({"id": "said", "filters": [{"field": "a", "op": ">", "value": 1}]})
    held.add({"id": "not said", "topic": "#"})
    assert [held.explain(b"{}", each).cel for each in held] == ["data.a > 1", None]
