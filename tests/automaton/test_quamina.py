"""`Quamina`: many patterns under a name, deletion, copies, flatteners, storage, threads."""

from __future__ import annotations

import json
import runpy
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.automaton import (
    Flattener,
    JsonFlattener,
    Leaf,
    LivePatterns,
    MemoryPatterns,
    Quamina,
    SqlitePatterns,
    reference_patterns,
)
from streamer.errors import ConfigError, EventCode, EventError, PatternError
from streamer.model import BeyondFloat64, Limits, Verdict
from streamer.reference.patterns import evaluate_pattern
from streamer.subscriptions import patterns
from streamer.subscriptions.patterns import parse_pattern

pytestmark = pytest.mark.usefixtures("backend")

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "messagepack_flattener.py"))


def test_names_of_matching_patterns_come_once_in_the_order_of_adding() -> None:
    q: Quamina[Any] = Quamina()
    q.add_pattern("both", '{"a": [1]}')
    q.add_pattern(7, b'{"a": [{"exists": true}]}')
    q.add_pattern("both", {"b": [{"prefix": "x"}]})
    q.add_pattern(("never",), '{"a": []}')
    assert len(q) == 4
    assert q.matches_for_event('{"a": 1, "b": "xy"}') == ["both", 7]
    assert q.matches_for_event({"a": 2}) == [7]
    assert q.matches_for_event(b'{"b": "xy"}') == ["both"]
    assert q.matches_for_event(b"{}") == []


def test_deletion_takes_all_patterns_of_a_name_and_none_of_its_siblings() -> None:
    q: Quamina[str] = Quamina(pattern_deletion=True)
    for x in ("x", "sibling"):
        q.add_pattern(x, '{"a": [1]}')
        q.add_pattern(x, '{"b": [{"exists": true}]}')
        q.add_pattern(x, '{"c": [3, 4]}')
    assert q.delete_patterns("x") == 3
    for event in ('{"a": 1}', '{"b": 2}', '{"c": 4}'):
        assert q.matches_for_event(event) == ["sibling"]
    assert q.delete_patterns("x") == 0
    q.add_pattern("x", '{"a": [1]}')
    assert q.matches_for_event('{"a": 1}') == ["sibling", "x"]
    assert q.matches_for_event('{"c": 3}') == ["sibling"]


def test_the_same_pattern_twice_is_one() -> None:
    q: Quamina[str] = Quamina()
    q.add_pattern("x", '{"a": [1]}')
    q.add_pattern("x", '{"a": [1]}')
    assert len(q) == 1
    assert q.delete_patterns("x") == 1
    assert q.matches_for_event('{"a": 1}') == []


def test_deletion_can_be_switched_off() -> None:
    q: Quamina[str] = Quamina(pattern_deletion=False)
    q.add_pattern("x", '{"a": [1]}')
    with pytest.raises(ConfigError, match="pattern_deletion"):
        q.delete_patterns("x")


def test_copies_share_their_patterns() -> None:
    q: Quamina[str] = Quamina()
    q.add_pattern("before", '{"a": [1]}')
    copied = q.copy()
    q.add_pattern("to the first", '{"a": [1]}')
    copied.add_pattern("to the copy", '{"a": [1]}')
    assert q.matches_for_event('{"a":1}') == copied.matches_for_event('{"a":1}') == ["before", "to the first", "to the copy"]
    copied.delete_patterns("before")
    assert q.matches_for_event('{"a":1}') == ["to the first", "to the copy"]


def test_a_bad_pattern_adds_nothing_and_says_where() -> None:
    storage = MemoryPatterns()
    q: Quamina[str] = Quamina(pattern_storage=storage)
    with pytest.raises(PatternError) as caught:
        q.add_pattern("x", '{"a": {"b": [{"prefix": 1}]}}')
    assert caught.value.place == "a.b[0].prefix"
    assert len(q) == 0
    assert list(storage) == []


def test_a_pattern_past_the_limits_is_refused_before_its_cost_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    q: Quamina[str] = Quamina()
    fields = {f"f{at}": [at] for at in range(100_000)}
    read = 0

    class Task(patterns._Task):
        def __init__(self, *given: Any) -> None:
            nonlocal read
            read += 1
            super().__init__(*given)

    monkeypatch.setattr(patterns, "_Task", Task)
    with pytest.raises(PatternError, match=r"20001 conditions, with these; at most 20000 are allowed"):
        q.add_pattern("x", fields)
    assert read < 20_010
    numbers = f'{{"a": [{"1," * 2_500_000}1]}}'
    for text in (numbers, numbers.encode()):
        with pytest.raises(PatternError, match=r"\d+ bytes of JSON text; at most 4194304 are allowed"):
            q.add_pattern("x", text)
    with pytest.raises(PatternError, match="more than the 4194304 bytes of JSON text that are allowed"):
        q.add_pattern("x", {"a": ["x" * 5_000_000]})
    with pytest.raises(PatternError, match=r"20001 conditions, with these"):
        q.add_pattern("x", json.dumps(dict(list(fields.items())[:20_001])))
    with pytest.raises(PatternError, match=r"100001 alternatives, with these"):
        q.add_pattern("x", {"a": list(range(100_001))})
    assert len(q) == 0


def test_a_name_must_be_hashable() -> None:
    q: Quamina[Any] = Quamina()
    with pytest.raises(TypeError, match="hashable"):
        q.add_pattern(["x"], '{"a": [1]}')
    with pytest.raises(TypeError, match="hashable"):
        q.delete_patterns({})


@pytest.mark.parametrize(
    ("event", "code"),
    [("[]", EventCode.NOT_AN_OBJECT), ('{"a":tru}', EventCode.MALFORMED_JSON), (b'{"a":"\xff"}', EventCode.BAD_UTF8)],
)
def test_a_bad_event_is_an_error(event: str | bytes, code: EventCode) -> None:
    with pytest.raises(EventError) as caught:
        Quamina().matches_for_event(event)
    assert caught.value.code is code


def test_the_dialect_is_quaminas_unless_another_is_asked_for() -> None:
    alternatives = '{"$or": [{"a": [1]}, {"b": [1]}]}'
    with pytest.raises(PatternError):
        Quamina().add_pattern("x", alternatives)
    q: Quamina[str] = Quamina(dialect="eventbridge")
    q.add_pattern("x", alternatives)
    assert q.matches_for_event('{"b": 1}') == ["x"]
    with pytest.raises(ConfigError):
        Quamina(dialect="other")  # type: ignore[arg-type]


def test_a_pattern_past_its_budget_does_not_match_and_the_others_do() -> None:
    groups = [f"g{n}" for n in range(15)]
    event = {"r": [{group: {"x": 1, "y": 1} for group in groups}]}
    for flattener in (None, JsonByLeaves()):
        q: Quamina[str] = Quamina(dialect="eventbridge", flattener=flattener)
        q.add_pattern("hard", {"r": {group: {"$or": [{"x": [1]}, {"y": [1]}]} for group in groups}})
        q.add_pattern("easy", '{"r": {"g0": {"x": [1]}}}')
        assert q.matches_for_event(event) == ["hard", "easy"]
        assert q.matches_for_event({"r": [*event["r"], *({group: {part: 1}} for group in groups for part in "xy")]}) == ["easy"]


def test_a_media_type_names_a_flattener_and_excludes_one() -> None:
    assert Quamina(media_type="application/json").matches_for_event("{}") == []
    with pytest.raises(ConfigError, match="application/cbor"):
        Quamina(media_type="application/cbor")
    with pytest.raises(ConfigError, match="either"):
        Quamina(media_type="application/json", flattener=JsonFlattener())


EVENTS: list[Any] = [
    {"a": 1},
    {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]},
    {"a": [[{"b": 1}], [{"b": 3}]], "d": None},
    {"a": [], "x": True, "b": {"c": "é"}},
]
PATTERNS = [
    '{"a": {"b": [1], "c": [4]}}',
    '{"a": {"b": [3], "c": [4]}}',
    '{"a": {"b": [1]}}',
    '{"a": [{"exists": false}]}',
    '{"d": [null]}',
    '{"b": {"c": [{"equals-ignore-case": "É"}]}}',
    '{"a": [1.0], "e": [{"exists": false}]}',
]


class JsonByLeaves:
    """JSON again, but through the protocol."""

    def flatten(self, event: Any) -> Iterator[tuple[tuple[str, ...], Any, tuple[tuple[int, int], ...]]]:
        for leaf in JsonFlattener().flatten(event):
            yield leaf.path, leaf.value, leaf.arrays


@pytest.mark.parametrize("event", EVENTS)
def test_all_flatteners_see_the_same_event(event: Any) -> None:
    assert isinstance(JsonByLeaves(), Flattener)
    matchers: list[Quamina[str]] = [
        Quamina(),
        Quamina(flattener=JsonByLeaves()),
        Quamina(flattener=EXAMPLE["MessagePackFlattener"]()),
    ]
    for q in matchers:
        for pattern in PATTERNS:
            q.add_pattern(pattern, pattern)
    inputs = [event, event, msgspec.msgpack.encode(event)]
    expected = [
        p for p in PATTERNS if evaluate_pattern(parse_pattern(p, dialect="strict", limits=Limits()), event) is Verdict.TRUE
    ]
    assert [q.matches_for_event(given_as) for q, given_as in zip(matchers, inputs, strict=True)] == [expected] * 3


def test_the_messagepack_example_prints_its_match(capsys: pytest.CaptureFixture[str]) -> None:
    EXAMPLE["main"]()
    assert capsys.readouterr().out == "['hot']\n"


@pytest.mark.parametrize(
    "event", [b"", b"\x93\x01", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({1: 2}), b"\x81\xa1a" + b"\x91" * 5000]
)
def test_the_messagepack_example_refuses_what_is_no_map(event: bytes) -> None:
    with pytest.raises(EventError):
        Quamina(flattener=EXAMPLE["MessagePackFlattener"]()).matches_for_event(event)


class Fixed:
    def __init__(self, *found: Any) -> None:
        self.found = found

    def flatten(self, event: Any) -> Any:
        return self.found


@pytest.mark.parametrize("value", [b"bytes", float("nan"), float("inf"), "\ud800", object(), {"b": 1}, 2**64, -(2**63) - 1])
def test_a_flattener_must_give_scalars(value: Any) -> None:
    with pytest.raises(EventError) as caught:
        Quamina(flattener=Fixed(Leaf(("a",), value))).matches_for_event(b"")
    assert (caught.value.code, caught.value.place) == (EventCode.BAD_VALUE, "/a")


def test_a_flattener_may_leave_out_or_list_the_positions_in_arrays() -> None:
    q: Quamina[str] = Quamina(
        flattener=Fixed((("a",), 2**64 - 1), (("b",), BeyondFloat64("1e400"), [[0, 1]]), (("b",), None, [[0, 2]]))
    )
    q.add_pattern("integer", '{"a": [18446744073709551615]}')
    q.add_pattern("number", '{"b": [1]}')
    q.add_pattern("anything", '{"b": [{"exists": true}]}')
    assert q.matches_for_event(b"") == ["integer", "anything"]


@pytest.mark.parametrize(
    "found",
    [
        [(("a",), 1, ()), (("a",), 2, ())],
        [(("a",), 1, ()), (("a",), 2, ((0, 0),))],
        [(("a",), 1, ((0, 0),)), (("a",), 2, ())],
        [(("a",), 1, ((0, 0),)), (("a",), 2, ((1, 0),))],
    ],
)
def test_a_flattener_must_put_repeated_names_in_one_array(found: Any) -> None:
    q: Quamina[str] = Quamina(flattener=Fixed(*found))
    q.add_pattern("x", '{"a": [1]}')
    with pytest.raises(EventError, match="two places"):
        q.matches_for_event(b"")


def test_sqlite_keeps_patterns_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "patterns.db"
    storage = SqlitePatterns(path)
    assert isinstance(storage, LivePatterns)
    first: Quamina[str | int] = Quamina(pattern_storage=storage)
    first.add_pattern("x", '{"a": [1]}')
    first.add_pattern("x", {"b": ["é"]})
    first.add_pattern(7, '{"a": [{"exists": true}]}')
    first.add_pattern("gone", '{"a": [1]}')
    first.delete_patterns("gone")
    storage.close()
    reopened = SqlitePatterns(path)
    again: Quamina[str | int] = Quamina(pattern_storage=reopened)
    assert len(again) == 3
    assert again.matches_for_event('{"a": 1}') == ["x", 7]
    assert again.matches_for_event('{"b": "é"}') == ["x"]
    reopened.close()


def test_a_pattern_that_cannot_be_stored_is_not_added(tmp_path: Path) -> None:
    storage = SqlitePatterns(tmp_path / "patterns.db")
    q: Quamina[Any] = Quamina(pattern_storage=storage)
    with pytest.raises(TypeError, match="encode="):
        q.add_pattern(("tuple",), '{"a": [1]}')
    storage.close()
    with pytest.raises(sqlite3.ProgrammingError):
        q.add_pattern("x", '{"a": [1]}')
    assert q.matches_for_event('{"a": 1}') == []


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(PATTERNS), st.booleans()), max_size=12))
def test_any_sequence_of_changes_leaves_what_a_plain_set_would_hold(changes: list[tuple[str, str, bool]]) -> None:
    q: Quamina[str] = Quamina()
    live: dict[str, set[str]] = {}
    for x, pattern, add in changes:
        if add:
            q.add_pattern(x, pattern)
            live.setdefault(x, set()).add(pattern)
        else:
            assert q.delete_patterns(x) == len(live.pop(x, ()))
    for event in EVENTS:
        expected = {
            x
            for x, patterns in live.items()
            if any(evaluate_pattern(parse_pattern(p, dialect="strict", limits=Limits()), event) is Verdict.TRUE for p in patterns)
        }
        assert set(q.matches_for_event(event)) == expected


CHANGES = {
    "add": lambda q: q.add_pattern("x", '{"b": [1]}'),
    "add what is there": lambda q: q.add_pattern("x", '{"a": [1]}'),
    "delete": lambda q: q.delete_patterns("x"),
}


@pytest.mark.parametrize("within", CHANGES)
@pytest.mark.parametrize("outer", CHANGES)
def test_a_change_by_a_signal_handler_at_any_line_of_another_leaves_what_is_held_and_what_matches_the_same(
    outer: str, within: str
) -> None:
    lines = came_in = 0

    def traced(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines, came_in
        if "/automaton/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                came_in += 1
                sys.settrace(None)
                CHANGES[within](q)
        return traced

    at = 0
    while came_in == at:
        at += 1
        lines = 0
        storage = MemoryPatterns()
        q: Quamina[str] = Quamina(pattern_storage=storage)
        for x in ("x", "other"):
            q.add_pattern(x, '{"a": [1]}')
        before = sys.gettrace()
        sys.settrace(traced)
        try:
            CHANGES[outer](q)
        finally:
            sys.settrace(before)
        held = list(storage)
        assert len(q) == len(held), at
        for field in ("a", "b"):
            wanted = {x for x, pattern in held if f'"{field}"' in pattern}
            assert set(q.matches_for_event({field: 1})) == wanted, at
    assert came_in > 10


def test_threads_match_while_others_add_and_delete() -> None:
    q: Quamina[str] = Quamina()
    q.add_pattern("always", '{"a": [1]}')
    stop = threading.Event()
    wrong: list[Any] = []

    def match(q: Quamina[str]) -> None:
        while not stop.is_set():
            found = q.matches_for_event('{"a": 1, "b": [1, 2, 3]}')
            if "always" not in found or len(set(found)) != len(found):
                wrong.append(found)

    threads = [threading.Thread(target=match, args=(q.copy(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(300):
        q.add_pattern(f"x{i % 7}", f'{{"b": [{i % 5}]}}')
        q.add_pattern(f"x{i % 7}", '{"b": [{"exists": true}]}')
        if i % 3 == 0:
            q.delete_patterns(f"x{i % 7}")
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_many_patterns_are_not_all_evaluated(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[Any] = []

    def evaluate(pattern: Any, raw: Any) -> Verdict:
        evaluated.append(pattern)
        return evaluate_pattern(pattern, raw)

    monkeypatch.setattr(reference_patterns, "evaluate_pattern", evaluate)
    q: Quamina[int] = Quamina()
    for i in range(2_000):
        q.add_pattern(i, f'{{"user": ["u{i}"], "status": ["paid"]}}')
    assert q.matches_for_event('{"user": "u777", "status": "paid"}') == [777]
    index: Any = q._live.current
    assert (index.matcher.looked_at() if backend == "native" else len(evaluated)) <= 100
