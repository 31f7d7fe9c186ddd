"""What runs in a worker, run here: without Spark, on batches as Spark hands them over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamer import BackendError, Engine, _backend

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")

import pyarrow as pa

from streamer.spark import worker
from streamer.spark.cogroup_worker import build_snapshot
from streamer.spark.snapshot_cache import Opened

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference


class Recorder:
    """An engine that remembers where the text of the events lay that it was given."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._options = engine, engine._options
        self.calls: list[tuple[int, int, int]] = []

    def match_arrow(self, events: Any, max_matches: int) -> Any:
        result = self.engine.match_arrow(events, max_matches=max_matches)
        self.calls.append((events.buffers()[2].address, events.offset, result.events.num_rows))
        return result


def request(want: worker.Want = "matches") -> worker.Pass:
    return worker.Pass("value", ("n",), True, want, False, _backend.BACKEND)


def rows(count: int) -> Any:
    texts = [f'{{"id": {n}, "collection": "c", "data": {{"n": {n % 7}}}}}'.encode() for n in range(count)]
    return pa.record_batch({"value": pa.array(texts, pa.binary()), "n": pa.array(range(count), pa.int64())})


def test_events_are_matched_where_they_lie(backend: str) -> None:
    """The engine is given the very buffer that Spark filled, in slices, each row once; a slice holds no copy."""
    engine = Engine()
    engine.add({"id": "s", "filters": [{"field": "n", "op": "==", "value": 3}]})
    recorder, batch = Recorder(engine), rows(3000)
    output = worker.Output(request(), batch.schema)
    recording: Any = recorder
    made = list(worker.match_rows(request(), output, recording, batch, worker.Tallies()))
    address = batch.column("value").buffers()[2].address
    assert {each[0] for each in recorder.calls} == {address}
    assert sum(length for _, _, length in recorder.calls) == 3000
    numbers = [n for each in made for n in each.column("n").to_pylist()]
    assert numbers == [n for n in range(3000) if n % 7 == 3]
    assert made[0].schema.names == [*worker.MATCHES, "event", "n"]


@pytest.mark.parametrize("cold", [0, 2000])
@pytest.mark.parametrize("want", ["matches", "all"])
def test_matches_are_made_a_few_at_once(backend: str, monkeypatch: pytest.MonkeyPatch, cold: int, want: worker.Want) -> None:
    """However many each event has, of a batch that begins with them or comes to them late: memory does not grow with it."""
    monkeypatch.setattr(worker, "ROWS_AT_ONCE", 1000)
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": "hot"} for n in range(150))
    texts = [b'{"id": %d, "collection": "%s"}' % (n, b"cold" if n < cold else b"hot") for n in range(cold + 100)]
    batch = pa.record_batch({"value": pa.array(texts, pa.binary()), "n": pa.array(range(len(texts)), pa.int64())})
    output, tallies = worker.Output(request(want), batch.schema), worker.Tallies()
    made = list(worker.match_rows(request(want), output, engine, batch, tallies))
    sizes = [each.num_rows for each in made]
    # An event's matches are not parted, so that the last one may go beyond.
    assert (sum(sizes), max(sizes), len(sizes)) == (100 * 150, 7 * 150, 15)
    pairs = [(each["n"], each["subscription_id"]) for each in pa.Table.from_batches(made).to_pylist()]
    assert sorted(pairs) == sorted((cold + n, f"s{m}") for n in range(100) for m in range(150))
    if want == "all":
        counted = {row[1]: row[2:5] for row in tallies.take()}
        assert counted == {"hot": [100, 100, 15_000], **({"cold": [cold, 0, 0]} if cold else {})}


def test_what_matches_carry_goes_out_in_pieces(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of a kilobyte that a thousand want is a megabyte; a piece has one row at least, whatever that carries."""
    monkeypatch.setattr(worker, "BYTES_AT_ONCE", 10_000)
    engine = Engine()
    engine.add_many({"id": f"s{n}", "filters": [{"field": "want", "op": "==", "value": True}]} for n in range(30))
    bodies = [("x" * 1000, True), ("y" * 20_000, True), ("z" * 50_000, False), ("", True), (None, True)]
    texts = [f'{{"collection": "c", "data": {{"want": {str(want).lower()}, "body": "{body}"}}}}' for body, want in bodies]
    batch = pa.record_batch({"value": pa.array(texts), "body": [body for body, _ in bodies]})
    this = replace(request(), keep=("body",))
    made = list(worker.match_rows(this, worker.Output(this, batch.schema), engine, batch, worker.Tallies()))
    sizes = [[len(event) for event in each.column("event").to_pylist()] for each in made]
    assert sum(map(len, sizes)) == 4 * 30
    assert all(len(size) == 1 or sum(size) < 10_000 for size in sizes)
    assert sum(each.column("body").to_pylist().count("y" * 20_000) for each in made) == 30
    assert len(made) < 60


def test_columns_of_structs_go_out_in_pieces_too(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's headers are an array of structs, which hold what the sender likes."""
    monkeypatch.setattr(worker, "BYTES_AT_ONCE", 10_000)
    engine = Engine()
    engine.add_many({"id": f"s{n}"} for n in range(30))
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    headers = [
        None,
        [],
        [{"key": "k", "value": None}, {"key": None, "value": b"x" * 1000}],
        [None, {"key": "y" * 20_000, "value": b""}],
    ]
    rows = pa.record_batch({"value": pa.array(["{}"] * 4), "headers": pa.array(headers, kind)})
    this = replace(request(), keep=("headers",), keep_event=False)
    # Of a batch that is cut, rows do not begin where its buffers do.
    for batch, expected in ((rows, headers), (rows.slice(1), headers[1:])):
        made = list(worker.match_rows(this, worker.Output(this, batch.schema), engine, batch, worker.Tallies()))
        got = [row for each in made for row in each.column("headers").to_pylist()]
        assert sorted(map(str, got)) == sorted(str(each) for each in expected for _ in range(30))
        sizes = [[len(str(each)) for each in batch.column("headers").to_pylist()] for batch in made]
        assert all(len(size) == 1 or sum(size) < 20_000 for size in sizes)
        assert len(made) > 30
    assert worker.bytes_of(rows.column("headers")).to_pylist() == [0, 0, 1001, 20_000]
    maps = pa.array([[("a", "bc")], None, [("d", None), ("e", "f")]], pa.map_(pa.string(), pa.string()))
    assert worker.bytes_of(maps).to_pylist() == [3, 0, 3]
    assert worker.bytes_of(maps[2:]).to_pylist() == [3]


def test_the_function_of_sql_has_a_few_matches_at_once(backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its lists come in the order of the events, of some of them at a time."""
    sql = pytest.importorskip("streamer.spark.sql", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")
    monkeypatch.setattr(worker, "ROWS_AT_ONCE", 1000)
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": "hot"} for n in range(150))
    engine.save(tmp_path / "snapshot")
    texts = [b'{"collection": "hot"}', b'{"collection": "cold"}', b"{"] * 20
    made = list(sql.ids_of(Opened(str(tmp_path / "snapshot")), pa.array(texts)))
    assert max(len(each.flatten()) for each in made) == 7 * 150
    lists = [ids for each in made for ids in each.to_pylist()]
    assert [None if ids is None else len(ids) for ids in lists] == [150, 0, None] * 20


#: What a process takes beyond its start when it matches *hot* events of *matches* each, after *cold* of none, and keeps nothing.
PEAK = """
import os, sys
import pyarrow as pa
from streamer import Engine, _backend
from streamer.spark import worker
from streamer.spark.snapshot_cache import Opened

cold, hot, matches = map(int, sys.argv[1:])
engine = Engine()
engine.add_many({"id": f"subscription-{n:06}", "gateway_id": "gateway", "collection": "hot"} for n in range(matches))
asked = worker.Pass("value", (), False, "all", False, _backend.BACKEND)
output = tallies = None

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) // 1024

def batch(count, collection):
    texts = [f'{{"id": {n}, "collection": "{collection}", "type": "insert", "data": {{}}}}' for n in range(count)]
    return pa.record_batch({"value": pa.array(texts)})

def run(batch):
    output, tallies = worker.Output(asked, batch.schema), worker.Tallies()
    return sum(each.num_rows for each in worker.match_rows(asked, output, engine, batch, tallies))

run(batch(10, "cold"))
batches = [batch(min(10_000, cold - at), "cold") for at in range(0, cold, 10_000)] + [batch(hot, "hot")]
before = peak()
print(sum(map(run, batches)), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif("native" not in _backend.available(), reason="the reference would take minutes")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read of Linux's /proc")
@pytest.mark.parametrize(("cold", "hot", "matches"), [(0, 1024, 20_000), (20_000, 10_000, 1000)])
def test_the_memory_of_a_worker_is_bounded(cold: int, hot: int, matches: int) -> None:
    """At most 200 MB above its start, where all matches at once would be 2.3 GB and 1.0 GB. It is less than 100."""
    command = [sys.executable, "-c", PEAK, *map(str, (cold, hot, matches))]
    environment = {**os.environ, "STREAMER_BACKEND": "native"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    counted, grown = map(int, ran.stdout.split())
    assert counted == hot * matches
    assert grown <= 200


@pytest.mark.parametrize(
    ("configured", "of_engine", "largest"),
    [(None, None, 3000), (100, None, 100), (1, None, 1), (10**9, None, 3000), (None, 70, 70), (100, 70, 100), (70, 100, 70)],
)
def test_no_more_events_are_matched_at_once_than_the_batch_size_of_a_pass_or_its_engine(
    backend: str, configured: int | None, of_engine: int | None, largest: int
) -> None:
    """Also where they match nothing, so that more could be. What a pass is told goes before what its engine is."""
    recorder, batch = Recorder(Engine(batch_size=of_engine)), rows(3000)
    engine: Any = recorder
    this = replace(request(), batch_size=configured)
    assert not list(worker.match_rows(this, worker.Output(this, batch.schema), engine, batch, worker.Tallies()))
    lengths = [length for _, _, length in recorder.calls]
    assert (sum(lengths), max(lengths)) == (3000, largest)


def test_a_worker_without_the_native_core_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "available", lambda: ("reference",))
    with pytest.raises(BackendError, match=r"the worker on .* has no native core.*backend='reference'"):
        worker.choose_backend("native")


def test_a_snapshot_of_hot_parts_comes_in_pieces(backend: str, tmp_path: Path) -> None:
    texts = [json.dumps({"id": f"s{n}", "filters": [{"field": "n", "op": "==", "value": n}]}) for n in range(100)]
    run = build_snapshot({}, _backend.BACKEND, piece_bytes=1000)
    made = list(run(iter([pa.record_batch({"text": texts[:60]}), pa.record_batch({"text": texts[60:]})])))
    pieces = [piece for batch in made for piece in batch.column("snapshot").to_pylist()]
    assert len(pieces) > 5
    assert {len(piece) for piece in pieces[:-1]} == {1000}
    path = tmp_path / "snapshot"
    path.write_bytes(b"".join(pieces))
    assert Engine.load(path).match_ids({"collection": "c", "data": {"n": 77}}) == ["s77"]
