"""Every event is counted once, whatever became of it, on every way into the engine."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, EventError, Limits
from streamer.errors import EventCode
from streamer.telemetry import BOUNDS, REJECTIONS, Distribution, Telemetry

MakeEngine = Callable[..., Engine]

GOOD = b'{"collection": "c", "data": {"a": 1}}'
OTHER = b'{"collection": "c", "data": {"a": 2}}'
UNSURE = b'{"collection": "c", "data": {"a": 1}, "unknown": ["/data/b"]}'
BAD = {
    EventCode.NOT_AN_OBJECT: b"[]",
    EventCode.MALFORMED_JSON: b'{"data": {"a": 1',
    EventCode.BAD_UTF8: b'{"data": "\xff"}',
    EventCode.LONE_SURROGATE: b'{"data": {"a": "\\ud800"}}',
    EventCode.TOO_DEEP: b'{"data": {"a": ' + b"[" * 600 + b"]" * 600 + b"}}",
    EventCode.WRONG_TYPE: b'{"data": 1}',
    EventCode.DUPLICATE_MEMBER: b'{"data": {}, "data": {}}',
    EventCode.RESERVED_NAME: b'{"tenant": "*"}',
    EventCode.BAD_POINTER: b'{"unknown": ["a"]}',
}


def read(engine: Engine) -> Telemetry:
    return engine._core.telemetry()


def outcomes(engine: Engine) -> tuple[int, int, int, int]:
    found = read(engine)
    assert found.events == found.matched + found.unmatched + sum(found.rejected.values())
    return found.matched, found.unmatched, sum(found.rejected.values()), found.matches


@pytest.fixture
def two(engine: MakeEngine) -> Engine:
    """An engine that holds a filter, a CEL program, and one that is judged on unknown values."""
    e = engine()
    e.add_many(
        [
            {"id": "filter", "collection": "c", "filters": [{"field": "a", "op": "==", "value": 1}]},
            {"id": "cel", "collection": "c", "cel": "data.a * 2 == 2"},
            {"id": "unsure", "collection": "c", "filters": [{"field": "b", "op": "==", "value": 1}]},
        ]
    )
    return e


@pytest.mark.parametrize("way", ["match", "match_ids", "match_count", "match_batch", "match_jsonl"])
def test_each_way_counts_events_and_matches(two: Engine, way: str) -> None:
    events = [GOOD, OTHER, b"{", UNSURE]
    if way == "match_batch":
        two.match_batch(events)
    elif way == "match_jsonl":
        list(two.match_jsonl(io.BytesIO(b"\n".join(events))))
    else:
        for event in events:
            try:
                getattr(two, way)(event)
            except EventError:
                pass
    assert outcomes(two) == (2, 1, 1, 5)
    assert read(two).uncertain == 1
    assert read(two).rejected[EventCode.MALFORMED_JSON] == 1


def test_asking_whether_anything_matches_counts_an_event(two: Engine) -> None:
    assert two.matches_any(GOOD)
    assert not two.matches_any(OTHER)
    matched, unmatched, rejected, matches = outcomes(two)
    assert (matched, unmatched, rejected, matches) == (1, 1, 0, 2)


@pytest.mark.parametrize("code", BAD)
def test_each_reason_to_reject_an_event_has_its_count(two: Engine, code: EventCode) -> None:
    with pytest.raises(EventError) as raised:
        two.match(BAD[code])
    assert raised.value.code == code
    two.match_batch([BAD[code], GOOD])
    assert {word: count for word, count in read(two).rejected.items() if count} == {code.value: 2}
    assert outcomes(two) == (1, 0, 2, 2)


def test_events_that_never_reach_the_index_are_counted(engine: MakeEngine) -> None:
    e = engine(limits=Limits(max_event_bytes=100))
    with pytest.raises(EventError):
        e.match({"data": {"a": float("nan")}})
    with pytest.raises(EventError):
        e.match(3)  # type: ignore[arg-type]
    (line,) = e.match_jsonl(io.BytesIO(b'{"data": "' + b"x" * 200 + b'"}'))
    assert line.error is not None
    counted = {word: count for word, count in read(e).rejected.items() if count}
    assert counted == {"bad_value": 1, "not_an_object": 1, "too_long": 1}
    assert set(read(e).rejected) == set(REJECTIONS)


def test_an_error_that_is_none_of_the_events_counts_as_internal(engine: MakeEngine) -> None:
    def default(value: Any) -> Any:
        raise KeyboardInterrupt

    e = engine(default=default)
    e.add({"id": "a"})
    with pytest.raises(KeyboardInterrupt):
        e.match({"data": {"a": object()}})
    with pytest.raises(KeyboardInterrupt):
        e.match_batch([b"{}", {"data": {"a": object()}}, b"{}"])
    assert read(e).rejected["internal"] == 2
    matched, unmatched, rejected, _ = outcomes(e)
    # What of a batch came after the error was never begun, or was matched before anybody knew of it.
    assert (rejected, unmatched) == (2, 0)
    assert matched <= 2


def match_all(engine: Engine, way: str, events: list[bytes]) -> None:
    """Match *events* by the way of this name."""
    if way == "match_jsonl":
        list(engine.match_jsonl(b"\n".join(events)))
    elif way == "match_batch":
        engine.match_batch(events)
    else:
        for event in events:
            getattr(engine, way)(event)


@pytest.mark.parametrize("way", ["match", "match_ids", "match_count", "match_batch", "match_jsonl"])
@pytest.mark.parametrize("event", [b'{"data": {"a": 1}}', b'{"data": {"a": 1}, "unknown": ["/data/b"]}'])
def test_an_event_whose_evaluation_is_interrupted_counts_as_internal(engine: MakeEngine, way: str, event: bytes) -> None:
    asked = 0

    def third_time(value: Any) -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise KeyboardInterrupt
        return True

    e = engine(cel_functions={"third_time": third_time}, cel_evaluator="portable")
    e.add({"id": "a", "cel": "third_time(data.a)"})
    with pytest.raises(KeyboardInterrupt):
        match_all(e, way, [event] * 5)
    assert outcomes(e)[:3] == (2, 0, 1)
    assert read(e).rejected["internal"] == 1


@pytest.mark.later_on_the_reference
def test_two_threads_lose_no_count(two: Engine) -> None:
    def run() -> None:
        for _ in range(300):
            two.match_ids(GOOD)
            two.match_batch([GOOD, OTHER, b"{"])
            two.match_count(OTHER)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        outcomes(two)
    for thread in threads:
        thread.join()
    assert outcomes(two) == (2400, 2400, 1200, 4800)


def test_latencies_are_taken_of_each_phase_that_had_something_to_do(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "filter", "filters": [{"field": "a", "op": "==", "value": 1}]})
    e.match(GOOD)
    assert (read(e).total.count, read(e).cel.count) == (1, 0)
    assert read(e).total.total > 0
    e.add({"id": "cel", "cel": "data.a * 2 == 2"})
    for _ in range(400):
        e.match(GOOD)
    found = read(e)
    assert 1 <= found.cel.count <= found.total.count <= 401
    assert found.cel.total < found.total.total
    assert len(found.total.counts) == len(BOUNDS) + 1


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({0: 10}, 0.5, 125),
        ({0: 10, 2: 10}, 0.5, 250),
        ({0: 10, 2: 10}, 0.75, 750),
        ({0: 10, 2: 10}, 1, 1_000),
        ({len(BOUNDS): 1}, 0.5, BOUNDS[-1]),
        ({}, 0.5, None),
    ],
)
def test_a_quantile_is_told_as_prometheus_tells_it(counts: dict[int, int], share: float, expected: float | None) -> None:
    counted = Distribution(tuple(counts.get(at, 0) for at in range(len(BOUNDS) + 1)), 0)
    assert counted.quantile(share, BOUNDS) == expected


def test_what_is_held_is_told(two: Engine) -> None:
    two.match_ids(GOOD)
    found = read(two)
    assert (found.subscriptions, found.partitions) == (3, 1)
    assert found.segments >= 1
    assert found.candidates >= 2


def test_explain_is_no_event(two: Engine) -> None:
    two.explain(GOOD, "filter")
    assert read(two).events == 0
