"""`Quamina` and `TopicMatcher` on the native core say what they say on the reference, whatever is added and removed in between.

Each set is told by its number alone; `AUTOMATON_SETS=20000` runs so many.
"""

from __future__ import annotations

import gc
import json
import os
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from streamer import _backend
from streamer.automaton import JsonFlattener, Leaf, Quamina, TopicMatcher
from streamer.errors import EventError, SubscriptionError
from streamer.model import Dialect, Limits, TopicDialect
from tests.generators import random_event, random_pattern, random_text

SETS = int(os.environ.get("AUTOMATON_SETS", "120"))
CHUNKS = 2
#: Equal ones are one name.
NAMES: list[Any] = ["x", "y", "", 7, 7.0, 1, True, None, ("x", 7), frozenset({"x"})]
WORDS = ["", "a", "b", "*", "#", "+", ">", "$a", "a*", "é"]
#: What no parser of JSON takes, or not as an object.
BAD_EVENTS: list[Any] = [
    b"",
    b" null",
    None,
    "[]",
    b"{",
    b'{"a": 1,}',
    b'{"a": "\xff"}',
    "\ud800",
    5,
    {"a": float("nan")},
    {1: 2},
]


class ByLeaves:
    """JSON as any other format: its leaves through the protocol, in any order, arrays named by any objects."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def flatten(self, event: Any) -> Iterator[Any]:
        leaves = list(JsonFlattener().flatten(event))
        rng = random.Random(self._seed)
        rng.shuffle(leaves)
        for path, value, arrays in leaves:
            named = tuple((f"array {array}", (index,)) if array % 2 else (array, index) for array, index in arrays)
            yield rng.choice([Leaf, lambda *parts: parts])(path, value, named)


def on_both(make: Callable[[], Any]) -> list[Any]:
    """Make something on each backend, the native one first."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        for backend in ("native", "reference"):
            patch.setattr(_backend, "BACKEND", backend)
            made.append(make())
    return made


def outcome(act: Callable[[], Any]) -> Any:
    """Return what a call returns, or what its error says; each backend has its own words for what is wrong with an event."""
    try:
        return act()
    except EventError as error:
        return type(error), error.code, error.place, error.offset
    except (SubscriptionError, TypeError) as error:
        return type(error), str(error), getattr(error, "place", None)


def agree(pair: list[Any], act: Callable[[Any], Any]) -> Any:
    native, reference = (outcome(lambda one=one: act(one)) for one in pair)
    assert native == reference
    return native


def random_source(rng: random.Random) -> Any:
    """A pattern as text, bytes or a mapping; now and then one that no dialect takes."""
    pattern = random_pattern(rng)
    if rng.random() < 0.5:
        pattern["data"].pop("$or", None)
        pattern.pop("$or", None)
    if rng.random() < 0.05:
        return rng.choice([b"\xff", "\ud800", "[]", {}, {"a": 1}, {"a": [float("inf")]}, None, '{"a": [1], "a": [2]}'])
    text = json.dumps(pattern, ensure_ascii=rng.random() < 0.5)
    return rng.choice([text, text.encode(), pattern])


def change_and_match(number: int) -> tuple[int, int]:
    """Run one set; how many patterns were accepted, and how many names were found."""
    rng = random.Random(number)
    dialect: Dialect = rng.choice(["strict", "eventbridge"])
    by_leaves = ByLeaves(number) if rng.random() < 0.3 else None
    pair = on_both(lambda: Quamina(dialect=dialect, flattener=by_leaves, limits=Limits(max_alternatives=12, max_depth=6)))
    copies = [one.copy() for one in pair]
    accepted = found = 0
    for _ in range(40):
        act, name, at = rng.random(), rng.choice(NAMES), rng.choice([pair, copies])
        if act < 0.4:
            source = random_source(rng)
            accepted += agree(at, lambda one, name=name, source=source: one.add_pattern(name, source)) is None
        elif act < 0.45:
            agree(at, lambda one, name=name: one.delete_patterns(name))
        elif act < 0.5:
            event = rng.choice(BAD_EVENTS)
            agree(at, lambda one, event=event: one.matches_for_event(event))
        else:
            event = random_event(rng)
            event = rng.choice([event, random_text(rng, event), random_text(rng, event).decode()])
            matches = agree(at, lambda one, event=event: one.matches_for_event(event))
            assert isinstance(matches, tuple) or len(set(matches)) == len(matches)
            found += len(matches) * isinstance(matches, list)
        assert len(copies[0]) == len(pair[0]) == len(pair[1])
    return accepted, found


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_quamina_says_what_the_reference_says(chunk: int) -> None:
    tallies = [change_and_match(number) for number in range(chunk, SETS, CHUNKS)]
    accepted, found = (sum(each) for each in zip(*tallies, strict=True))
    assert accepted > 3 * len(tallies)
    assert found > 3 * len(tallies), "the generator makes patterns that events match"


def test_topics_say_what_the_reference_says() -> None:
    found = 0
    for number in range(SETS):
        rng = random.Random(number)
        dialect: TopicDialect = rng.choice(get_args(TopicDialect))
        pair = on_both(lambda dialect=dialect: TopicMatcher(topic_dialect=dialect))
        separator = "/" if dialect == "mqtt" else "."
        for _ in range(30):
            topic, name = separator.join(rng.choices(WORDS, k=rng.randrange(5))), rng.choice(NAMES)
            act = rng.random()
            if act < 0.5:
                agree(pair, lambda one, topic=topic, name=name: one.bind(topic, name))
            elif act < 0.6:
                agree(pair, lambda one, topic=topic, name=name: one.unbind(topic, name))
            else:
                key = rng.choice([topic, topic, topic + "\ud800"])
                native, reference = (one.match(key) for one in pair)
                assert len(native) == len(reference) == len(set(native))
                assert set(native) == set(reference)
                found += len(native)
    assert found > SETS


class Owner:
    """An object that is a name in matchers which it holds itself, as one with callbacks is."""

    def __init__(self) -> None:
        self.quamina: Quamina[Any] = Quamina()
        self.topics: TopicMatcher[Any] = TopicMatcher()
        self.quamina.add_pattern(self, '{"a": [1]}')
        self.topics.bind("a.#", self.heard)

    def heard(self) -> None:
        """A bound method is a name, too."""


@pytest.mark.usefixtures("backend")
def test_a_matcher_among_its_own_names_is_collected() -> None:
    gone = weakref.ref(Owner())
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("backend")
def test_a_name_that_was_deleted_is_held_no_longer() -> None:
    class Name:
        pass

    quamina: Quamina[Any] = Quamina()
    name = Name()
    gone = weakref.ref(name)
    quamina.add_pattern(name, '{"a": [1]}')
    quamina.add_pattern(name, '{"a": [2]}')
    assert quamina.matches_for_event('{"a": 1}') == [name]
    assert quamina.delete_patterns(name) == 2
    del name
    gc.collect()
    assert gone() is None
