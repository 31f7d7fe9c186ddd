"""Several events: aligned results, bad ones reported in their place."""

from __future__ import annotations

import asyncio
import gzip
import io
import pickle
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

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


def test_what_matches_of_a_batch_is_told_without_the_rest(ones: Engine) -> None:
    results = ones.match_batch(EVENTS)
    told = [(at, each.code if isinstance(each, EventError) else each.ids()) for at, each in results.matched()]
    assert told == [(0, ["one"]), (1, "malformed_json"), (3, ["one"]), (4, "bad_utf8"), (5, "not_an_object")]
    assert list(ones.match_batch([]).matched()) == []


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


@pytest.mark.later_on_the_reference
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


def told(results: Iterable[Matches | EventError]) -> list[list[str] | tuple[str, int | None]]:
    return [r.ids() if isinstance(r, Matches) else (r.code.value, r.index) for r in results]


#: What `EVENTS` come to, one by one.
OF_EVENTS = [["one"], ("malformed_json", 1), [], ["one"], ("bad_utf8", 4), ("not_an_object", 5)]


@pytest.mark.parametrize("batch_size", [1, 2, 5, 6, 7, None])
def test_a_stream_gives_a_result_for_each_event_in_order(ones: Engine, batch_size: int | None) -> None:
    assert told(ones.match_stream(iter(EVENTS), batch_size=batch_size)) == OF_EVENTS
    assert list(ones.match_stream([], batch_size=batch_size)) == []


def test_a_stream_reads_a_batch_ahead_and_no_more(ones: Engine) -> None:
    read: list[int] = []

    def events() -> Iterator[bytes]:
        for number in range(1_000_000):
            read.append(number)
            yield b'{"data": {"a": 1}}'

    results = ones.match_stream(events(), batch_size=10)
    assert read == []
    next(results)
    assert len(read) == 10
    for _ in range(10):
        next(results)
    assert len(read) == 20


def test_what_was_read_before_a_source_failed_has_its_results(ones: Engine) -> None:
    def events() -> Iterator[bytes]:
        yield b'{"data": {"a": 1}}'
        yield b"{"
        raise ConnectionError("gone")

    results = ones.match_stream(events())
    assert [next(results).__class__, next(results).__class__] == [Matches, EventError]
    with pytest.raises(ConnectionError, match="gone"):
        next(results)


def test_a_stream_takes_tenant_and_collection_and_refuses_one_event(ones: Engine) -> None:
    (matches,) = ones.match_stream([b'{"data": {"a": 1}}'], tenant="other")
    assert list(matches if isinstance(matches, Matches) else [None]) == []
    with pytest.raises(TypeError, match="not a single bytes"):
        ones.match_stream(b'{"data": {"a": 1}}')  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="batch_size"):
        ones.match_stream([], batch_size=0)


async def _given(
    events: list[Any], *, pause_before: int | None = None, resume: asyncio.Event | None = None
) -> AsyncIterator[Any]:
    for number, event in enumerate(events):
        if number == pause_before and resume is not None:
            await resume.wait()
        yield event


@pytest.mark.parametrize("batch_size", [1, 2, 6, None])
def test_an_asynchronous_stream_gives_the_same(ones: Engine, batch_size: int | None) -> None:
    async def run() -> list[Matches | EventError]:
        return [result async for result in ones.match_stream(_given(EVENTS), batch_size=batch_size)]

    assert told(asyncio.run(run())) == OF_EVENTS


def test_no_event_of_an_asynchronous_stream_waits_for_one_that_has_not_come(ones: Engine) -> None:
    async def run() -> int:
        resume = asyncio.Event()
        results = ones.match_stream(_given(EVENTS, pause_before=4, resume=resume))
        early = [await anext(results) for _ in range(4)]
        resume.set()
        late = [result async for result in results]
        assert told(early + late) == OF_EVENTS
        return len(early)

    assert asyncio.run(asyncio.wait_for(run(), 60)) == 4


def test_an_asynchronous_stream_ends_what_it_reads_when_it_ends(ones: Engine) -> None:
    ended: list[str] = []

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b'{"data": {"a": 1}}'
            await asyncio.Event().wait()
        finally:
            ended.append("events")

    async def run() -> None:
        results = ones.match_stream(events())
        async for result in results:
            assert isinstance(result, Matches)
            break
        await results.aclose()
        assert ended == ["events"]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_asynchronous_source_that_fails_is_told_after_the_results(ones: Engine) -> None:
    async def events() -> AsyncIterator[bytes]:
        yield b'{"data": {"a": 1}}'
        raise ConnectionError("gone")

    async def run() -> None:
        results = ones.match_stream(events())
        assert isinstance(await anext(results), Matches)
        with pytest.raises(ConnectionError, match="gone"):
            await anext(results)

    asyncio.run(run())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_may_come_in_pieces_that_are_cut_anywhere(ones: Engine, size: int) -> None:
    text = b'{"data": {"a": 1}}\n\n[]\r\n{"data": {"a": 2}}'
    for whole in (text, gzip.compress(text)):
        pieces = [b"", *(whole[at : at + size] for at in range(0, len(whole), size)), b""]
        results = list(ones.match_jsonl(iter(pieces)))
        assert [r.line for r in results] == [1, 3, 4]
        assert [r.error.code.value if r.error else r.matches.ids() for r in results] == [["one"], "not_an_object", []]
    with pytest.raises(TypeError, match="pieces of text as bytes, not str"):
        list(ones.match_jsonl(["{}"]))  # type: ignore[list-item]
