"""Several events: aligned results, bad ones reported in their place."""

from __future__ import annotations

import io
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamer import Engine, EventError, Matches

MakeEngine = Callable[..., Engine]

EVENTS = [b'{"data": {"a": 1}}', b"{", {"data": {"a": 2}}, '{"data": {"a": 1.0}}', b"\xff", b"[]"]


@pytest.fixture
def ones(engine: MakeEngine) -> Engine:
    e = engine()
    e.add({"id": "one", "filters": [{"field": "a", "op": "==", "value": 1}]})
    return e


def test_a_batch_is_aligned_with_its_events(ones: Engine) -> None:
    results = ones.match_batch(iter(EVENTS))
    assert [r.ids() if isinstance(r, Matches) else r.code for r in results] == [
        ["one"],
        "malformed_json",
        [],
        ["one"],
        "bad_utf8",
        "not_an_object",
    ]
    assert [r.index for r in results if isinstance(r, EventError)] == [1, 4, 5]
    assert [r.event for r in results if isinstance(r, Matches)] == [EVENTS[0], EVENTS[2], EVENTS[3]]
    assert list(ones.match_batch([])) == []


def test_a_batch_is_a_sequence_that_makes_its_members_when_they_are_asked_for(ones: Engine) -> None:
    results = ones.match_batch(EVENTS)
    assert len(results) == len(EVENTS)
    assert repr(results) == f"<BatchMatches: {len(EVENTS)} events>"
    for position in (0, -1, 1):
        one, other = results[position], list(results)[position]
        assert list(one) == list(other) if isinstance(one, Matches) and isinstance(other, Matches) else one is other
    assert [type(each) for each in results[1:3]] == [EventError, Matches]
    for position in (len(EVENTS), -len(EVENTS) - 1):
        with pytest.raises(IndexError):
            results[position]
    copied = pickle.loads(pickle.dumps(results))
    assert [len(each) for each in copied if isinstance(each, list)] == [1, 0, 1]
    ones.remove("one")
    assert [each.ids() for each in results if isinstance(each, Matches)] == [["one"], [], ["one"]]


def test_a_batch_takes_tenant_and_collection(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "tenant": "t", "collection": "c"})
    assert [len(r) for r in e.match_batch([b"{}"], "t", "c") if isinstance(r, Matches)] == [1]


def test_errors_of_a_batch_travel_between_processes(ones: Engine) -> None:
    error = ones.match_batch([b"{}", b"{"])[1]
    assert isinstance(error, EventError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_each_line_of_a_stream_says_its_number(ones: Engine, tmp_path: Path) -> None:
    text = b'{"data": {"a": 1}}\n\n{"data": \n{"data": {"a": 2}}\r\n{"data": {"a": 1}}'
    path = tmp_path / "events.jsonl"
    path.write_bytes(text)
    for source in (path, str(path), text, io.BytesIO(text)):
        results = list(ones.match_jsonl(source))
        assert [r.line for r in results] == [1, 3, 4, 5]
        assert [r.error is None for r in results] == [True, False, True, True]
        assert [r.matches.ids() for r in results if r.error is None] == [["one"], [], ["one"]]
        assert results[1].error is not None
        assert results[1].error.index == 2
        with pytest.raises(EventError):
            _ = results[1].matches
    assert results[0].matches.event == b'{"data": {"a": 1}}'


def test_a_line_longer_than_an_event_may_be_is_reported_in_its_place(engine: MakeEngine) -> None:
    from streamer import Limits

    e = engine(limits=Limits(max_event_bytes=50))
    results = list(e.match_jsonl(b"{}\n" + b" " * 100 + b"{}\n{}\n"))
    assert [(r.line, r.error.code if r.error else None) for r in results] == [(1, None), (2, "too_long"), (3, None)]


class Endless(io.RawIOBase):
    """Lines as they come, each read once."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.lines = lines
        self.given = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self.given += 1
        return next(self.lines, b"")


def test_a_stream_gives_a_result_as_soon_as_its_line_has_come(ones: Engine) -> None:
    source = Endless(b'{"data": {"a": %d}}\n' % n for n in range(10))
    for at, result in enumerate(ones.match_jsonl(source), start=1):  # type: ignore[arg-type]
        assert result.line == at
        assert source.given <= at + 1


def test_a_stream_takes_constant_memory(ones: Engine) -> None:
    def peak(count: int) -> int:
        line = b'{"data": {"a": 1, "pad": "%s"}}\n' % (b"x" * 1000)
        source = Endless(line for _ in range(count))
        tracemalloc.start()
        assert sum(len(r.matches) for r in ones.match_jsonl(source)) == count  # type: ignore[arg-type]
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    assert peak(2000) < peak(20) + 500_000  # of 2,000,000 bytes read


def test_each_line_sees_the_engine_as_it_is_then(ones: Engine) -> None:
    results = ones.match_jsonl(Endless(b'{"data": {"a": 1}}\n' for _ in range(3)))  # type: ignore[arg-type]
    assert next(results).matches.ids() == ["one"]
    ones.remove("one")
    assert next(results).matches.ids() == []
    ones.add({"id": "two"})
    assert next(results).matches.ids() == ["two"]
