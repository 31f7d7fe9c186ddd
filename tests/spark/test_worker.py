"""What runs in a worker, run here: without Spark, on batches as Spark hands them over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamer import BackendError, Engine, _backend

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer[spark]')")

import pyarrow as pa

from streamer.spark import worker


class Recorder:
    """An engine that remembers where the text of the events lay that it was given."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._options = engine, engine._options
        self.given: list[tuple[int, int, int]] = []

    def match_arrow(self, events: Any) -> Any:
        self.given.append((events.buffers()[2].address, events.offset, len(events)))
        return self.engine.match_arrow(events)


def asked(want: worker.Want = "matches") -> worker.Pass:
    return worker.Pass("value", ("n",), True, want, False, _backend.BACKEND)


def rows(count: int) -> Any:
    texts = [f'{{"id": {n}, "collection": "c", "data": {{"n": {n % 7}}}}}'.encode() for n in range(count)]
    return pa.record_batch({"value": pa.array(texts, pa.binary()), "n": pa.array(range(count), pa.int64())})


def test_events_are_matched_where_they_lie(backend: str) -> None:
    """The engine is given the very buffer that Spark filled, in slices, each row once; a slice holds no copy."""
    engine = Engine()
    engine.add({"id": "s", "filters": [{"field": "n", "op": "==", "value": 3}]})
    recorder, batch = Recorder(engine), rows(3000)
    output = worker.Output(asked(), batch.schema)
    given: Any = recorder
    made = list(worker.match_rows(asked(), output, given, batch, worker.Chunks(), worker.Tallies()))
    address = batch.column("value").buffers()[2].address
    assert {each[0] for each in recorder.given} == {address}
    assert sum(length for _, _, length in recorder.given) == 3000
    kept = [n for each in made for n in each.column("n").to_pylist()]
    assert kept == [n for n in range(3000) if n % 7 == 3]
    assert made[0].schema.names == [*worker.MATCHES, "event", "n"]


def test_matches_are_made_a_few_at_once(backend: str) -> None:
    """However many each event has: what a worker holds does not grow with the batch."""
    engine = Engine()
    engine.add_many({"id": f"s{n}"} for n in range(200))
    recorder, batch = Recorder(engine), rows(600)
    output = worker.Output(asked(), batch.schema)
    given: Any = recorder
    chunks = worker.Chunks()
    chunks.learn(1024, 1024 * 200)
    sizes = [each.num_rows for each in worker.match_rows(asked(), output, given, batch, chunks, worker.Tallies())]
    assert sum(sizes) == 600 * 200
    assert max(sizes) <= worker.ROWS_AT_ONCE


@pytest.mark.parametrize(
    ("told", "of_engine", "largest"),
    [(None, None, 3000), (100, None, 100), (1, None, 1), (10**9, None, 3000), (None, 70, 70), (100, 70, 100), (70, 100, 70)],
)
def test_no_more_events_are_matched_at_once_than_a_pass_or_its_engine_is_told(
    backend: str, told: int | None, of_engine: int | None, largest: int
) -> None:
    """Also where they match nothing, so that more could be. What a pass is told goes before what its engine is."""
    recorder, batch = Recorder(Engine(batch_size=of_engine)), rows(3000)
    given: Any = recorder
    this = replace(asked(), batch_size=told)
    chunks = worker.Chunks()
    chunks.learn(1024, 0)
    assert not list(worker.match_rows(this, worker.Output(this, batch.schema), given, batch, chunks, worker.Tallies()))
    lengths = [length for _, _, length in recorder.given]
    assert (sum(lengths), max(lengths)) == (3000, largest)


def test_a_worker_without_the_native_core_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "available", lambda: ("reference",))
    with pytest.raises(BackendError, match=r"the worker on .* has no native core.*backend='reference'"):
        worker.choose_backend("native")
