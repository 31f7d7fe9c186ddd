"""What `default` is asked: of each value that JSON does not have, once, in the order of the event, on each backend alike."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamer import Engine, EventError, Limits
from streamer.events.reading import json_value

MakeEngine = Callable[..., Engine]

LIMITS = Limits(max_depth=8, max_event_bytes=400)


class Colour(enum.Enum):
    RED = 1


class Word(str):
    """A text of another type."""


#: What `default` makes of an object is drawn beforehand, so that it is the same however often an event is read.
class Made:
    """A value that `default` makes another of, or refuses."""

    def __init__(self, number: int, value: Any) -> None:
        self.number = number
        self.value = value


_NUMBERS = count()
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([Word("w"), "\ud800", Decimal("1.5"), b"x", Colour.RED, datetime(2026, 1, 31, tzinfo=UTC), 10**400])
)


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text(max_size=3) | st.sampled_from([Word("n"), 1, "\udfff"])
    return (
        st.lists(parts, max_size=4)
        | st.tuples(parts, parts)
        | st.dictionaries(names, parts, max_size=4)
        | st.dictionaries(st.text(max_size=3), parts, max_size=2).map(OrderedDict)
        | st.dictionaries(st.text(max_size=3), parts, max_size=2).map(MappingProxyType)
        | st.builds(lambda value: Made(next(_NUMBERS), value), parts)
    )


def _asking(asked: list[Any]) -> Callable[[Any], Any]:
    def default(value: Any) -> Any:
        asked.append(value)
        if isinstance(value, Made):
            return value.value
        if isinstance(value, datetime | Decimal):
            return str(value)
        raise TypeError(f"no {type(value).__name__}")

    return default


def _outcome(read: Callable[[], object]) -> tuple[Any, ...]:
    try:
        read()
    except EventError as error:
        return error.code, error.reason, error.place
    return ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.dictionaries(st.text(max_size=3), st.recursive(_SCALARS, _containers, max_leaves=12), max_size=5))
def test_default_is_asked_as_the_contract_asks_it(data: dict[str, Any], backend: str) -> None:
    event = {"type": "insert", "data": data}
    expected: list[Any] = []
    outcome = _outcome(lambda: json_value(event, default=_asking(expected), limits=LIMITS))
    asked: list[Any] = []
    engine = Engine(default=_asking(asked), limits=LIMITS)
    assert _outcome(lambda: engine.match(event)) == outcome
    assert list(map(id, asked)) == list(map(id, expected))


@pytest.mark.parametrize("length", [LIMITS.max_depth - 1, LIMITS.max_depth, LIMITS.max_depth + 1])
def test_default_is_asked_of_what_it_made_until_the_limit(length: int, backend: str) -> None:
    value: Any = 1
    for number in range(length):
        value = Made(number, value)
    outcomes, asked = [], []
    for read in (
        lambda event, default: json_value(event, default=default, limits=LIMITS),
        lambda event, default: Engine(default=default, limits=LIMITS).match(event),
    ):
        values: list[Any] = []
        outcomes.append(_outcome(partial(read, {"data": {"a": value}}, _asking(values))))
        asked.append([value.number for value in values])
    assert outcomes[0] == outcomes[1]
    assert asked == [list(reversed(range(length)))[: LIMITS.max_depth]] * 2


def test_what_default_reads_once_is_read_once(engine: MakeEngine) -> None:
    e = engine(default=list)
    e.add({"id": "s", "filters": [{"field": "tags", "op": "contains", "value": 2}]})
    assert e.match_ids({"data": {"tags": iter((1, 2, 3))}}) == ["s"]
    with pytest.raises(EventError) as raised:
        e.match({"data": {"tags": iter((1, 2, float("nan")))}})
    assert raised.value.place == "/data/tags/2"


def test_default_may_change_the_event_that_it_is_asked_about(engine: MakeEngine) -> None:
    data: dict[str, Any] = {"a": Decimal(1), "b": Decimal(2)}

    def default(value: Any) -> Any:
        data[f"c{len(data)}"] = 1
        return str(value)

    e = engine(default=default)
    e.add({"id": "s", "filters": [{"field": "b", "op": "==", "value": "2"}]})
    assert e.match_ids({"data": data}) == ["s"]


def test_an_interrupt_in_default_comes_through(engine: MakeEngine) -> None:
    def default(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine(default=default).match({"data": {"a": object()}})
