"""What the core writes of plain Python values itself, beside what Python writes of any."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamer
from streamer import _native
from streamer.errors import EventError
from streamer.subscriptions.text import plain_json

MOST = 1 << 20
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(st.characters())
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


class Colour(enum.StrEnum):
    RED = "red"


@given(VALUES)
def test_the_text_is_that_of_python(value: Any) -> None:
    assert _native.plain_json(value, MOST) == plain_json(value, MOST)


@pytest.mark.parametrize("text", ['"', "\\", "/", "\x00\x1f\x7f\x80", "\b\f\n\r\t\v", "é€🎈", "\u2028", 'a"b\\"c', ""])
def test_texts_are_escaped_as_python_does(text: str) -> None:
    assert _native.plain_json({text: text}, MOST) == plain_json({text: text}, MOST)


@pytest.mark.parametrize(
    "number", [0.1, -0.0, 1e16, 1e15, 1e-5, 5e-324, 1.7976931348623157e308, 37.807807921694092, -(2**63), 2**64 - 1]
)
def test_numbers_are_as_python_writes_them(number: float) -> None:
    assert _native.plain_json([number], MOST) == plain_json([number], MOST)


@pytest.mark.parametrize(
    "value",
    [
        (1,),
        Colour.RED,
        OrderedDict(a=1),
        {1: 2},
        {Colour.RED: 1},
        b"x",
        2**64,
        -(2**63) - 1,
        float("nan"),
        "\ud800",
        {"\udfff": 1},
        object(),
    ],
)
def test_what_is_not_plain_is_left_to_python(value: Any) -> None:
    assert _native.plain_json({"a": [value]}, MOST) is None


def test_what_is_nested_deep_or_in_itself_is_left_to_python() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    circle: dict[str, Any] = {}
    circle["a"] = circle
    assert _native.plain_json(deep, MOST) is None
    assert _native.plain_json(circle, MOST) is None


def test_a_text_has_at_most_so_many_bytes() -> None:
    assert _native.plain_json(["é"], 6) == '["é"]'.encode()
    assert _native.plain_json(["é"], 5) is None


def test_a_list_that_holds_another_twice_and_so_on_is_too_long_at_once() -> None:
    shared: list[Any] = [1]
    for _ in range(60):
        shared = [shared, shared]
    engine = streamer.Engine(limits=streamer.Limits(max_event_bytes=10_000))
    with pytest.raises(EventError, match="more than 10000 bytes as JSON") as raised:
        engine.match({"data": {"a": shared}})
    assert (raised.value.code, raised.value.offset) == ("too_long", None)


EVENTS = st.dictionaries(st.sampled_from(["data", "before", "collection", "type", "x"]), VALUES)


@given(EVENTS)
def test_an_event_of_plain_values_is_read_as_its_reader_in_python_reads_it(event: dict[str, Any]) -> None:
    engine = streamer.Engine()
    engine.add({"id": "all"})
    engine.add({"id": "x", "pattern": {"x": [{"exists": True}]}})
    engine.add({"id": "data", "cel": "data != null && data == data"})
    # A dict of another class is read by Python.
    assert found(engine, event) == found(engine, OrderedDict(event))


def found(engine: streamer.Engine, event: dict[str, Any]) -> object:
    try:
        return [(match.subscription_id, match.certain) for match in engine.match(event)]
    except EventError as error:
        return str(error)
