"""Lists of thousands of elements match as the reference matches them: of these the core keeps less than of short ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, _backend
from tests.parts import in_parts

#: From 256 elements on scalars are read in runs, and from 4,096 values at a path on only their places are kept.
LENGTHS = (250, 300, 1_000, 4_090, 4_500)

Make = Callable[[random.Random], Any]

ELEMENTS: dict[str, Make] = {
    "number": lambda rng: rng.choice([rng.randrange(10_000), rng.random(), -1, 1e300, 7.0]),
    "digits": lambda rng: rng.choice(
        [
            rng.randrange(10**18, 2 * 10**19),
            -rng.randrange(2**52, 2**64),
            round(rng.random() * 100, rng.randrange(18)),
            rng.randrange(60),
        ]
    ),
    "text": lambda rng: f"v{rng.randrange(10_000)}",
    "escaped": lambda rng: f'"v\n{rng.randrange(50)}',
    "few": lambda rng: rng.choice([1, 2, "a", "b", True, None]),
    "object": lambda rng: {"x": rng.randrange(100), "y": rng.randrange(100)},
    "list": lambda rng: [rng.randrange(100) for _ in range(rng.randrange(4))],
    "long list": lambda rng: [rng.randrange(1_000)] * rng.choice([1, 300]),
}


def condition(rng: random.Random) -> dict[str, Any]:
    """Return a condition on the lists `a` and `b`, or on members of their objects."""
    number, text = rng.randrange(10_000), f"v{rng.randrange(10_000)}"
    value = rng.choice([number, text, 1, "a", '"v\n7', None, True, 7.0])
    matchers = [
        [value],
        [{"prefix": text[:3]}],
        [{"anything-but": [rng.choice([text, number])]}],
        [{"numeric": [">", number]}],
        [{"exists": True}],
        [{"suffix": "\n7"}],
    ]
    one, other = rng.choice(matchers), rng.choice(matchers)
    x, y = [rng.randrange(100)], [{"numeric": ["<", rng.randrange(100)]}]
    return rng.choice(
        [
            {"pattern": {"data": {"a": one}}},
            {"pattern": {"data": {"a": one, "b": other}}},
            {"pattern": {"data": {"a": {"x": x, "y": y}}}},
            {"pattern": {"data": {"a": one, "n": [1]}}},
            {"filters": [{"field": "a", "op": "contains", "value": value}]},
            {"cel": f"data.a.contains({json.dumps(rng.choice([{'x': rng.randrange(100), 'y': 1}, [rng.randrange(100)], []]))})"},
            {"cel": f"data.a.exists(e, e == {json.dumps(value)})"},
            {"cel": f"data.a.exists(e, e != {json.dumps(value)})"},
            {"cel": f"{json.dumps(value)} in data.a"},
            {"cel": f"data.a.exists(e, e.startsWith('{text[:4]}') && e.endsWith('7'))"},
            {"cel": f"data.a.exists(e, e > {number}) && data.n == 1"},
            {"cel": f"size(data.a) > {rng.choice(LENGTHS)}"},
        ]
    )


def elements(rng: random.Random) -> list[Any]:
    """Return a list of one kind of elements, of two that take turns, or of one among another."""
    one, other = rng.choice([*ELEMENTS.values()]), rng.choice([*ELEMENTS.values()])
    share = rng.choice([0.0, 0.0, 0.5, 0.01])
    length = rng.choice(LENGTHS)
    if ELEMENTS["long list"] in (one, other):
        length = 300
    return [(other if rng.random() < share else one)(rng) for _ in range(length)]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Engine]:
    native = Engine()
    monkeypatch.setattr(_backend, "BACKEND", "reference")
    reference = Engine()
    monkeypatch.setattr(_backend, "BACKEND", "native")
    return native, reference


@in_parts(16, slow=0)
def test_long_lists_match_as_in_the_reference(pair: tuple[Engine, Engine], part: int) -> None:
    rng = random.Random(part)
    conditions = [{"id": str(number), "transitions": rng.random() < 0.5, **condition(rng)} for number in range(20)]
    for engine in pair:
        engine.add_many(conditions)
    matched = 0
    for _ in range(3):
        event: dict[str, Any] = {
            "type": "insert",
            "data": {"a": elements(rng), "b": elements(rng)[:600], "n": rng.choice([1, 2])},
        }
        if rng.random() < 0.3:
            event |= {"type": "update", "before": {"a": elements(rng), "b": [], "n": 1}}
        separators = rng.choice([(",", ":"), (" , ", " : ")])
        text = json.dumps(event, separators=separators, ensure_ascii=rng.random() < 0.5)
        native, reference = ([(m.subscription_id, m.transition, m.certain) for m in each.match(text).sorted()] for each in pair)
        assert native == reference
        matched += len(native)
    assert matched > 2


def test_a_list_within_elements_that_repeat_is_read_as_in_the_reference(pair: tuple[Engine, Engine]) -> None:
    inner = [list(range(300)), list(range(1, 301))]
    event = json.dumps({"data": {"a": [inner[number % 2] for number in range(280)] + [[300, 0]]}})
    for engine in pair:
        engine.add_many({"id": str(number), "pattern": {"data": {"a": [number]}}} for number in range(0, 320, 80))
    native, reference = (each.match(event).sorted().ids() for each in pair)
    assert native == reference == [str(number) for number in range(0, 301, 80)]
