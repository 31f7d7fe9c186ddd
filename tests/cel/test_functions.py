"""Functions in Python, called by expressions: what they get, what they may return, and that none of them can do harm."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from functools import partial
from typing import Any

import pytest

from streamer import CelError, ConfigError, Engine

MakeEngine = Callable[..., Engine]


def event(data: Any, **members: Any) -> bytes:
    return json.dumps({"type": "insert", "data": data, **members}).encode()


def calling(engine: MakeEngine, cel: str, **functions: Callable[..., Any]) -> Engine:
    """An engine with one subscription, `s`."""
    e = engine(cel_functions=functions)
    e.add({"id": "s", "cel": cel, "cel_evaluator": "portable"})
    return e


# --- what is registered


def test_a_function_is_called_by_its_name_or_on_its_first_argument(engine: MakeEngine) -> None:
    e = calling(engine, "within(data.n, 1, 5) && data.n.within(1, 5)", within=lambda n, low, high: low <= n <= high)
    assert e.match_ids(event({"n": 3})) == ["s"]
    assert e.match_ids(event({"n": 6})) == []
    assert list(e.cel_functions) == ["within"]
    assert e.cel_functions["within"](1, 0, 2)


def test_an_expression_on_the_native_evaluator_cannot_call_it_and_is_told_who_can(engine: MakeEngine) -> None:
    e = engine(cel_functions={"is_vip": bool})
    with pytest.raises(CelError) as caught:
        e.add({"id": "s", "cel": "data.a == 1 &&\n is_vip(data.b)"})
    assert (caught.value.place, caught.value.line, caught.value.column, caught.value.subscription_id) == ("cel", 2, 2, "s")
    assert "`is_vip` is a function in Python, which only the portable evaluator calls" in str(caught.value)
    assert "cel_evaluator" in str(caught.value)
    assert len(e) == 0


@pytest.mark.parametrize(
    ("cel", "reason"),
    [
        ("is_vpi(data)", "unknown function `is_vpi`; did you mean `is_vip`?"),
        ("data.is_vpi()", "unknown function `is_vpi`; did you mean `is_vip`?"),
        ("zzz(data)", "unknown function `zzz`; one in Python is given to the engine"),
        ("is_vip()", "is_vip() takes 1 argument, not 0"),
        ("data.is_vip(1)", "is_vip() takes 1 argument, not 2"),
        ("several()", "several() takes at least 1 argument, not 0"),
        ("some(1, 2, 3, 4)", "some() takes 1 to 3 arguments, not 4"),
        ("is_vip(nobody)", "undeclared name `nobody`"),
        ("is_vip(data.a) + 'a' == 1 + 'a'", "+ does not take"),
    ],
)
def test_a_wrong_call_is_an_error_when_the_subscription_is_added(engine: MakeEngine, cel: str, reason: str) -> None:
    e = engine(cel_functions={"is_vip": lambda user: True, "several": lambda a, *more: True, "some": lambda a, b=1, c=2: True})
    with pytest.raises(CelError) as caught:
        e.add({"id": "s", "cel": cel, "cel_evaluator": "portable"})
    assert reason in str(caught.value)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "name",
    ["size", "contains", "has", "all", "map", "type", "int", "data", "ts", "true", "in", "while", "", "a b", "a.b", "1a", "é", 7],
)
def test_a_name_that_is_taken_or_none_is_refused(engine: MakeEngine, name: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        engine(cel_functions={name: bool})
    assert caught.value.place == f"cel_functions[{name!r}]"


async def _later() -> bool:
    return True


@pytest.mark.parametrize("function", [None, 7, "is_vip", _later, lambda *, named: True])
def test_what_cannot_be_called_by_an_expression_is_refused(engine: MakeEngine, function: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        engine(cel_functions={"f": function})
    assert caught.value.place == "cel_functions['f']"


@pytest.mark.parametrize("functions", [7, [bool], "f"])
def test_functions_are_a_mapping(engine: MakeEngine, functions: Any) -> None:
    with pytest.raises(ConfigError, match="expected a mapping"):
        engine(cel_functions=functions)


def test_anything_that_can_be_called_will_do(engine: MakeEngine) -> None:
    class Even:
        def __call__(self, number: int) -> bool:
            return number % 2 == 0

    e = engine(cel_functions={"even": Even(), "more": partial(int.__lt__, 1), "small": [1, 2].__contains__, "biggest": max})
    e.add(
        {
            "id": "s",
            "cel": "even(data.n) && more(data.n) && small(data.n) && biggest(data.n, 1) == 2",
            "cel_evaluator": "portable",
        }
    )
    assert e.match_ids(event({"n": 2})) == ["s"]


# --- what goes in and out


def test_arguments_are_plain_python_of_every_kind(engine: MakeEngine) -> None:
    got = []
    e = calling(
        engine,
        "note(data) && note(ts) && note(ts - ts) && note(duration('1.5s')) && note(b'\\xff') && note(7u) && note(1.5)"
        " && note(int) && note({2: 'a', true: [null]}) && note(data.l.map(x, x + 1)) && note(tenant) && note(null)",
        note=lambda value: got.append(value) or True,
    )
    data = {"i": 1, "f": 1.0, "b": True, "n": None, "s": "é", "l": [1, 2], "o": {"p": {}}, "u": 2**64 - 1}
    assert e.match_ids(event(data, ts=1709208000123)) == ["s"]
    moment = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)
    wanted = [
        data,
        moment,
        timedelta(0),
        timedelta(seconds=1.5),
        b"\xff",
        7,
        1.5,
        "int",
        {2: "a", True: [None]},
        [2, 3],
        "default",
        None,
    ]
    assert got == wanted
    kinds = [type(value) for value in got]
    assert kinds == [dict, datetime, timedelta, timedelta, bytes, int, float, str, dict, list, str, type(None)]
    assert [type(value) for value in got[0].values()] == [int, float, bool, type(None), str, list, dict, int]


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "cel"),
    [
        (True, "f()"),
        (7, "f() == 7 && type(f()) == int"),
        (2**63, "f() == 9223372036854775808u && type(f()) == uint"),
        (1.5, "f() == 1.5 && f() + 1.0 == 2.5"),
        ("é", "f() == 'é' && f().size() == 1"),
        (b"\xff", "f() == b'\\xff'"),
        (bytearray(b"a"), "f() == b'a'"),
        (None, "f() == null"),
        ([1, (2, 3)], "f() == [1, [2, 3]]"),
        ({"a": {"b": [1]}, 2: 2, True: 3}, "f().a.b[0] == 1"),
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1))), "f() == timestamp('2023-12-31T23:00:00Z')"),
        (timedelta(minutes=90), "f() == duration('1h30m') && f().getHours() == 1"),
        (Level.LOW, "f() == 1 && f() + 1 == 2"),
        (Text("a"), "f() == 'a' && f() + 'b' == 'ab'"),
    ],
)
def test_every_kind_of_result_is_a_value_of_cel(engine: MakeEngine, value: Any, cel: str) -> None:
    e = calling(engine, cel, f=lambda: value)
    assert e.match_ids(event({})) == ["s"], dict(e.cel_errors)


def test_a_map_that_python_cannot_hold_is_an_error(engine: MakeEngine) -> None:
    e = calling(engine, "f({1: 'a', true: 'b'})", f=lambda value: True)
    assert e.match_ids(event({})) == []
    assert dict(e.cel_errors) == {"bad_key": 1}


def test_values_of_cel_python_may_be_returned_too(engine: MakeEngine) -> None:
    from celpy import celtypes

    values = {
        "b": lambda: celtypes.BoolType(True),
        "i": lambda: celtypes.IntType(7),
        "s": lambda: celtypes.StringType("a"),
        "l": lambda: celtypes.ListType([celtypes.DoubleType(1.5)]),
        "m": lambda: celtypes.MapType({celtypes.StringType("k"): celtypes.BoolType(False)}),
        "t": lambda: celtypes.TimestampType("2024-01-01T00:00:00Z"),
        "d": lambda: celtypes.DurationType("1s"),
    }
    e = engine(cel_functions=values)
    cel = "b() && i() == 7 && s() == 'a' && l() == [1.5] && !m().k && t() + d() == timestamp('2024-01-01T00:00:01Z')"
    e.add({"id": "s", "cel": cel, "cel_evaluator": "portable"})
    assert e.match_ids(event({})) == ["s"], dict(e.cel_errors)


def _own_list() -> list[Any]:
    own: list[Any] = []
    own += [own, own]
    return own


def _own_dict() -> dict[str, Any]:
    own: dict[str, Any] = {}
    own["a"] = {"b": own}
    return own


def _doubled() -> list[Any]:
    value: list[Any] = [1]
    for _ in range(100):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        1j,
        2**64,
        -(2**63) - 1,
        "\ud800",
        {"\ud800": 1},
        {1.5: 1},
        {None: 1},
        {(): 1},
        datetime(2024, 1, 1),  # noqa: DTZ001  it is refused for this
        timedelta(days=200_000),
        (each for each in [1]),
        int,
        Engine,
        [[object()]],
        _own_list(),
        _own_dict(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_is_no_value_of_cel_is_an_error(engine: MakeEngine, value: Any) -> None:
    e = calling(engine, "f() == f()", f=lambda: value)
    e.add({"id": "other", "cel": "f() == 1 || data.n == 1", "cel_evaluator": "portable"})
    assert e.match_ids(event({"n": 1})) == ["other"]
    assert list(e.cel_errors) == ["function"]


def test_a_result_that_grows_when_it_is_copied_is_stopped_by_the_budget(engine: MakeEngine) -> None:
    e = calling(engine, "f() == 1 || data.n == 1", f=_doubled)
    assert e.match_ids(event({"n": 1})) == []
    assert dict(e.cel_errors) == {"budget": 1}


def test_a_result_that_is_not_bool_is_no_match(engine: MakeEngine) -> None:
    e = calling(engine, "f()", f=lambda: 1)
    assert e.match_ids(event({})) == []
    assert dict(e.cel_errors) == {"not_bool": 1}


# --- hostile functions


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def _raises(error: BaseException) -> Callable[..., Any]:
    def raises(*_args: Any) -> Any:
        raise error

    return raises


def _recurses() -> bool:
    return _recurses()


@pytest.mark.parametrize(
    "function",
    [
        _raises(ValueError("x" * 100_000)),
        _raises(TypeError()),
        _raises(KeyError("a")),
        _raises(StopIteration()),
        _raises(Unprintable()),
        _raises(MemoryError()),
        _raises(AssertionError()),
        _recurses,
    ],
    ids=[
        "ValueError",
        "TypeError",
        "KeyError",
        "StopIteration",
        "Unprintable",
        "MemoryError",
        "AssertionError",
        "RecursionError",
    ],
)
def test_what_a_function_raises_is_an_error_of_cel(
    engine: MakeEngine, function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    e = calling(engine, "f()", f=function)
    e.add({"id": "absorbed", "cel": "f() || data.n == 1", "cel_evaluator": "portable"})
    e.add({"id": "native", "cel": "data.n == 1"})
    with caplog.at_level(logging.INFO, logger="streamer.cel_eval"):
        for _ in range(5):
            assert sorted(e.match_ids(event({"n": 1}))) == ["absorbed", "native"]
    assert dict(e.cel_errors) == {"function": 5}
    (record,) = caplog.records
    assert record.getMessage().startswith("subscription 's': CEL error function: f() raised ")
    assert len(record.getMessage()) < 400


def arrow(e: Engine, one: bytes) -> list[Callable[[], Any]]:
    try:
        import pyarrow
    except ImportError:
        return []
    events = pyarrow.array([one] * 3000)
    return [partial(e.match_arrow, events), partial(e.match_arrow, events, threads=3)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_match_and_the_engine_goes_on(engine: MakeEngine, kind: type[BaseException]) -> None:
    stops = [True]

    def stop() -> bool:
        if stops:
            raise kind
        return True

    e = calling(engine, "stop()", stop=stop)
    e.add({"id": "told", "cel": "stop() && data.n > 1", "cel_evaluator": "portable", "transitions": True})
    update = event({"n": 1}, type="update", before={"n": 2})
    for act in (
        lambda: e.match(update),
        lambda: e.match_ids(update),
        lambda: e.match_count(update),
        lambda: e.match_batch([update] * 100),
        lambda: e.match_batch([update] * 100, threads=3),
        lambda: list(e.match_jsonl(update)),
        *arrow(e, update),
    ):
        with pytest.raises(kind):
            act()
    stops.clear()
    assert sorted(e.match_ids(update)) == ["s", "told"]
    matches = e.match(update)
    stops.append(True)
    # The native engine asks for the old side of an ordinary match when its transition is asked for.
    with suppress(kind):
        list(matches)
    stops.clear()
    assert len(list(matches)) == 2
    assert {match.transition for match in e.match(update)} == {"stay", "leave"}
    stats = e.stats()
    assert stats.events == stats.matched + stats.unmatched + stats.rejected


def test_what_a_function_does_to_its_arguments_nobody_else_sees(engine: MakeEngine) -> None:
    kept = []

    def spoil(data: dict[str, Any]) -> bool:
        kept.append(data)
        data["n"] = 99
        data["l"].append(data)
        data["o"].clear()
        data.clear()
        return True

    cel = "spoil(data) && data.n == 1 && data.l == [1] && data.o.p == 2"
    e = engine(cel_functions={"spoil": spoil})
    for number in range(3):
        e.add({"id": f"s{number}", "cel": cel, "cel_evaluator": "portable"})
    e.add({"id": "native", "cel": "data.n == 1 && data.l.exists(x, x == 1)"})
    given = {"data": {"n": 1, "l": [1], "o": {"p": 2}}}
    for one in (given, json.dumps(given)):
        assert sorted(e.match_ids(one)) == ["native", "s0", "s1", "s2"]
    assert given == {"data": {"n": 1, "l": [1], "o": {"p": 2}}}
    assert len(kept) == 6


def test_a_result_that_changes_afterwards_changes_nothing(engine: MakeEngine) -> None:
    held: list[int] = [1]

    def grow() -> list[int]:
        held.append(len(held))
        return held

    e = calling(engine, "[grow(), grow()] == [[1, 1], [1, 1, 2]]", grow=grow)
    assert e.match_ids(event({})) == ["s"]


def test_a_function_may_use_the_engine_that_calls_it(engine: MakeEngine) -> None:
    engines: list[Engine] = []
    numbers = itertools.count()

    def ask(n: int) -> bool:
        e = engines[0]
        e.add({"id": f"added {next(numbers)}", "collection": "elsewhere"})
        return n > 5 or bool(e.matches_any(event({"n": n + 1})))

    e = calling(engine, "ask(data.n)", ask=ask)
    engines.append(e)
    assert e.match_ids(event({"n": 1})) == ["s"]
    assert len(e) == 7
    assert [found.ids() for found in e.match_batch([event({"n": 5})] * 40, threads=2)] == [["s"]] * 40


def test_what_is_copied_for_a_function_is_paid_for(engine: MakeEngine) -> None:
    e = calling(engine, "data.l.all(x, f(data))", f=lambda data: True)
    assert e.match_ids(event({"l": list(range(2000)), "s": "x" * 10_000})) == []
    assert dict(e.cel_errors) == {"budget": 1}


def test_a_function_is_not_asked_for_what_the_source_did_not_carry(engine: MakeEngine) -> None:
    asked = []
    e = calling(engine, "f(data.text) || data.n == 7", f=lambda text: asked.append(text) or True)
    (match,) = e.match(event({"n": 1}, unknown=["/data/text"]))
    assert not match.certain
    (match,) = e.match(event({"n": 7}, unknown=["/data/text"]))
    assert match.certain
    (match,) = e.match(event({"text": "a"}, unknown=["/data/other"]))
    assert (match.certain, asked) == (True, ["a"])


def test_lint_takes_no_call_for_a_constant(engine: MakeEngine) -> None:
    e = calling(engine, "f()", f=lambda: False)
    assert "never_matches" not in {finding.code.value for finding in e.lint()}


def test_a_number_that_no_float64_holds_is_an_error_before_a_function_sees_it(engine: MakeEngine) -> None:
    e = calling(engine, "f(data)", f=lambda data: True)
    assert e.match_ids(b'{"data": {"n": [1e400]}}') == []
    assert dict(e.cel_errors) == {"beyond_float64": 1}
