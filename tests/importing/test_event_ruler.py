"""Imported patterns, and those that `to_eventbridge` prints, match as AWS Event Ruler matches them.

The differences of semantics.md section 10 are left out: names of events have no dots, and `exists: false` is not below an array.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine
from streamer.importing import import_rules
from tests.property.test_to_eventbridge import random_event, random_subscription
from tests.tools.event_ruler import answers
from tests.tools.fetched import NotThere

pytestmark = pytest.mark.integration

TEXTS = ["x", "xy", "Xy", "", "10.0.0.5", "a*b", "a\\b", "é", "5"]
NUMBERS = [0, 5, 5.0, -1.5, 100, 1e3, 0.1]


def asked(patterns: list[Any], events: list[Any]) -> list[list[bool] | None]:
    try:
        return answers(patterns, events)
    except NotThere as error:
        pytest.skip(str(error))


def random_value(chosen: random.Random) -> Any:
    return chosen.choice([*TEXTS, *NUMBERS, True, False, None])


def random_matcher(chosen: random.Random) -> Any:
    text, number = chosen.choice(TEXTS), chosen.choice(NUMBERS)
    every: list[Any] = [
        *(random_value(chosen) for _ in range(4)),
        *({operator: text} for operator in ("prefix", "suffix", "equals-ignore-case")),
        {"prefix": {"equals-ignore-case": "XY"}},
        {"wildcard": chosen.choice(["*", "x*", "*y", "a\\**", "a\\\\*", "x"])},
        {"anything-but": chosen.choice([text, number, [text, "q"], [number, 7], {"prefix": "x"}, {"suffix": ["y", "b"]}])},
        {"numeric": chosen.choice([["=", number], ["<", number], [">", -2, "<=", 100]])},
        {"cidr": "10.0.0.0/24"},
        {"exists": True},
    ]
    return chosen.choice(every)


def random_values(chosen: random.Random, *, top: bool = False) -> list[Any]:
    values = [random_matcher(chosen) for _ in range(chosen.choice([1, 1, 2]))]
    return [*values, {"exists": False}] if top and chosen.random() < 0.2 else values


def random_pattern(chosen: random.Random) -> dict[str, Any]:
    pattern: dict[str, Any] = {name: random_values(chosen, top=True) for name in "ab" if chosen.random() < 0.4}
    if chosen.random() < 0.5:
        pattern["l"] = {name: random_values(chosen) for name in chosen.sample("mno", 2)}
    if chosen.random() < 0.3:
        pattern["$or"] = [{"c": random_values(chosen, top=True)}, {"c": random_values(chosen), "d": random_values(chosen)}]
    if chosen.random() < 0.1:
        pattern["l.m" if "l" not in pattern else "e.f"] = random_values(chosen)
    return pattern or {"a": random_values(chosen, top=True)}


def random_document(chosen: random.Random) -> dict[str, Any]:
    def value() -> Any:
        return [random_value(chosen) for _ in range(chosen.randrange(3))] if chosen.random() < 0.2 else random_value(chosen)

    document: dict[str, Any] = {name: value() for name in "abcd" if chosen.random() < 0.7}
    rows = [{name: value() for name in "mno" if chosen.random() < 0.7} for _ in range(chosen.randrange(1, 4))]
    document["l"] = rows if chosen.random() < 0.7 else rows[0]
    document["e"] = {"f": value()}
    return document


def test_imported_patterns_match_as_event_ruler(engine: Callable[..., Engine]) -> None:
    """400 patterns, each with 100 events."""
    chosen = random.Random(3)
    patterns = [random_pattern(chosen) for _ in range(400)]
    events = [random_document(chosen) for _ in range(100)]
    found = import_rules("eventbridge", json.dumps(patterns), on_error="skip").subscriptions
    rulers = asked(patterns, events)
    e = engine(format="document")
    e.add_many(found)
    ids = [{match.subscription_id for match in e.match(json.dumps(event))} for event in events]
    compared = 0
    for each in found:
        number = int(each.id.removeprefix("eventbridge-")) - 1
        expected = rulers[number]
        assert expected is not None, patterns[number]
        ours = [each.id in one for one in ids]
        assert ours == expected, (
            patterns[number],
            [event for event, *both in zip(events, ours, expected, strict=True) if both[0] != both[1]][:1],
        )
        compared += sum(ours)
    assert len(found) > 300
    assert compared > 1_000


def test_printed_patterns_match_as_event_ruler(engine: Callable[..., Engine]) -> None:
    """200 subscriptions, each with 100 events."""
    chosen = random.Random(4)
    subscriptions = [random_subscription(chosen, number) for number in range(200)]
    events = [random_event(chosen) for _ in range(100)]
    rulers = asked([each.to_eventbridge(scalars=True) for each in subscriptions], events)
    e = engine(format="eventbridge")
    e.add_many(subscriptions)
    ids = [{match.subscription_id for match in e.match(json.dumps(event))} for event in events]
    for each, expected in zip(subscriptions, rulers, strict=True):
        assert [each.id in one for one in ids] == expected, each
