"""The filter that guards a partition of the reference: what it stops, and what it must not."""

from __future__ import annotations

from typing import Any

import pytest

from streamer.bloom.answer import Answer
from streamer.bloom.guard import CollectionFilter, carried_keys
from streamer.events.layout import EventLayout
from streamer.events.reading import read_event
from streamer.model import Event, Limits
from streamer.subscriptions.atoms import Mode, Path, Root
from streamer.subscriptions.keys import Key


def _event(**members: object) -> Event:
    return read_event(members, layout=EventLayout(), default_tenant="default", limits=Limits())


def _ask(guard: CollectionFilter, sides: list[Event]) -> Answer:
    return guard.ask(carried_keys(sides, guard.places))


def _key(value: Any, *names: str) -> Key:
    return Key.equal(Path(Root.DATA, names), Mode.VALUE, value)


@pytest.mark.parametrize("spelled", [1, 1.0])
def test_a_key_is_a_value_not_a_spelling(spelled: object) -> None:
    guard = CollectionFilter.build([_key(spelled, "a")])
    assert _ask(guard, [_event(data={"a": 1})]) is Answer.MAYBE
    assert _ask(guard, [_event(data={"a": 1.0})]) is Answer.MAYBE
    for other in (True, "1", None, 2, [1], {"a": 1}):
        assert _ask(guard, [_event(data={"a": other})]) is Answer.NO
    assert _ask(guard, [_event(data={"b": 1})]) is Answer.NO


@pytest.mark.parametrize(
    ("pointer", "answer"),
    [
        ("/data/a/b", Answer.MAYBE),
        ("/data/a", Answer.MAYBE),
        ("/data", Answer.MAYBE),
        ("", Answer.MAYBE),
        ("/data/a/b/c", Answer.MAYBE),
        ("/data/a/bc", Answer.NO),
        ("/data/x", Answer.NO),
        ("/before/a/b", Answer.NO),
    ],
)
def test_a_hole_that_touches_a_keyed_path_makes_it_maybe(pointer: str, answer: Answer) -> None:
    guard = CollectionFilter.build([_key("x", "a", "b")])
    assert _ask(guard, [_event(data={"a": {"b": "y"}}, unknown=[pointer])]) is answer


def test_either_side_of_an_event_may_carry_the_key() -> None:
    guard = CollectionFilter.build([_key("x", "a")])
    assert _ask(guard, [_event(data={"a": "y"}), _event(data={"a": "x"})]) is Answer.MAYBE
    assert _ask(guard, [_event(data={"a": "y"}), _event(data={"a": "z"})]) is Answer.NO


def test_a_filter_past_its_capacity_still_has_every_key() -> None:
    guard = CollectionFilter.build([_key("x", "a")], 10)
    for n in range(100):
        guard = guard.including({_key(n, "b", str(n))})
    assert not guard.has_room_for(0)
    for n in range(100):
        assert _ask(guard, [_event(data={"b": {str(n): n}})]) is Answer.MAYBE
    assert _ask(guard, [_event(data={"a": "x"})]) is Answer.MAYBE


def test_a_rebuilt_filter_counts_on_and_samples_anew() -> None:
    guard = CollectionFilter.build([_key("x", "a")])
    assert _ask(guard, [_event(data={"a": "y"})]) is Answer.NO
    rebuilt = CollectionFilter.build([_key("x", "a")], 10, 0.01, guard)
    rebuilt.tally.begin_anew()
    assert (guard.version, rebuilt.version) == (1, 2)
    assert (rebuilt.tally.asked, rebuilt.tally.no, rebuilt.tally.probes, rebuilt.tally.sampled) == (1, 1, 1, 0)


def test_a_subscription_that_can_match_nothing_has_keys_of_nothing() -> None:
    guard = CollectionFilter.build([])
    assert _ask(guard, [_event(data={"a": 1})]) is Answer.NO
