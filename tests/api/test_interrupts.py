"""A match that takes long is interrupted by a signal, and what it has done so far is nobody's."""

from __future__ import annotations

import itertools
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from streamer import Engine
from streamer.automaton import Quamina

MakeEngine = Callable[..., Engine]


class StopNow(Exception):
    """Raised by the handler."""


@contextmanager
def alarm(act: Callable[[], object], seconds: float) -> Iterator[None]:
    """Let a handler of a signal *act* in some *seconds*, and again each time they have passed."""

    def handler(number: int, frame: FrameType | None) -> None:
        # An exception in Hypothesis' callback for the garbage collector would be lost. The next alarm comes soon.
        if frame is None or frame.f_code.co_name != "gc_callback":
            act()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stop() -> None:
    raise StopNow


def regexps(engine: Engine) -> bytes:
    """Twenty thousand searches, each of nearly a million units."""
    patterns = (f"[ab]*a[ab]{{{300 + n}}}[cd][ab]*" for n in range(390))
    engine.add_many({"id": f"r{n}", "pattern": {"data": {"a": [{"regexp": one}]}}} for n, one in enumerate(patterns))
    # Without a period, which an automaton would learn.
    dice = random.Random(4)
    return json.dumps({"data": {"a": ["".join(dice.choices("ab", k=10_000)) for _ in range(50)]}}).encode()


def programs(engine: Engine) -> bytes:
    """A thousand programs, each of nearly a million units."""
    engine.add_many({"id": f"c{n}", "cel": f"data.l.all(x, data.l.all(y, x + y != {-n - 1}))"} for n in range(1000))
    return json.dumps({"data": {"l": list(range(330))}}).encode()


def choices(engine: Engine) -> bytes:
    """Five hundred patterns, each of which tries nearly a million shapes."""
    groups = [f"g{n}" for n in range(13)]
    engine.add_many(
        {"id": f"p{n}", "pattern": {"r": {group: {"$or": [{"x": [1]}, {"y": [1]}]} for group in groups}}} for n in range(500)
    )
    everything = {group: {"x": 1, "y": 1} for group in groups}
    rows = [everything, *({group: {part: 1}} for group in groups for part in "xy")]
    return json.dumps({"r": rows}).encode()


def elements(engine: Engine) -> bytes:
    """Twenty thousand comparisons with each of hundreds of thousands of elements."""
    engine.add({"id": "e", "filters": [{"field": "a", "op": "contains", "value": n} for n in range(20_000)]})
    return json.dumps({"data": {"a": [*range(10**6, 10**6 + 400_000), *range(20_000)]}}).encode()


#: Events that take long, and the methods that match them. The quick tests call `match` alone, except for expressions.
LONG = [
    pytest.param(make, ask, id=f"{make.__name__}-{ask}", marks=[pytest.mark.slow] * (make is not programs and ask != "match"))
    for make in (regexps, programs, choices, elements)
    for ask in ("match", "match_ids", "match_batch", "threads")
]


@pytest.mark.later_on_the_reference
@pytest.mark.parametrize(("make", "ask"), LONG)
def test_a_long_match_is_interrupted_and_the_engine_goes_on(
    engine: MakeEngine, make: Callable[[Engine], bytes], ask: str
) -> None:
    e = engine()
    event = make(e)
    asked: dict[str, Callable[[], object]] = {
        "match": lambda: e.match(event),
        "match_ids": lambda: e.match_ids(event),
        "match_batch": lambda: e.match_batch([event]),
        "threads": lambda: e.match_batch([event] * 64, threads=2),
    }
    with pytest.raises(StopNow), alarm(stop, 0.3):
        asked[ask]()
    stats = e.stats()
    assert stats.matched + stats.unmatched == 0, "the handler ran when the event was done"
    assert stats.rejected >= 1
    e.add({"id": "another"})
    assert e.match_ids(b"{}") == ["another"]


@pytest.mark.later_on_the_reference
def test_a_handler_that_returns_lets_the_match_go_on_and_may_match_and_write(engine: MakeEngine) -> None:
    e = engine()
    e.add_many({"id": f"c{n}", "cel": f"data.l.all(x, data.l.all(y, x + y != {-n - 1}))"} for n in range(3))
    event = json.dumps({"data": {"l": list(range(330))}}).encode()
    seen: list[list[str]] = []
    first = itertools.chain([True], itertools.repeat(False))

    def act() -> None:
        # The next signal may come while this one is seen to.
        if next(first):
            e.add({"id": "added", "collection": "orders"})
            seen.append(e.match_ids({"collection": "orders", "data": {"l": []}}))

    with alarm(act, 0.05):
        while not seen:
            assert len(e.match_ids(event)) == 3
    assert "added" in seen[0]
    assert len(seen[0]) == 4


@pytest.mark.usefixtures("backend")
def test_a_long_match_of_quamina_ends_with_what_a_handler_raises() -> None:
    quamina: Quamina[int] = Quamina(dialect="eventbridge")
    for n in range(390):
        quamina.add_pattern(n, {"a": [{"regexp": f"[ab]*a[ab]{{{300 + n}}}[cd][ab]*"}]})
    dice = random.Random(4)
    long = json.dumps({"a": ["".join(dice.choices("ab", k=10_000)) for _ in range(50)]}).encode()
    with alarm(stop, 0.2), pytest.raises(StopNow):
        quamina.matches_for_event(long)
    assert quamina.matches_for_event(b'{"a": "b"}') == []
