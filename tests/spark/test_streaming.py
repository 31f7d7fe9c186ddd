"""Streams: each event is matched once against one snapshot, whatever fails and whatever is replaced meanwhile."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine, SnapshotError

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from streamer.spark.schema import matches_of, rejected_of, tallies_of
from streamer.spark.streaming import BatchWriter, Settled, match_batches, match_stream, write_by_gateway
from streamer.spark.versions import find, publish

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]


def engine(*ids: str) -> Engine:
    made = Engine()
    made.add_many({"id": each, "gateway_id": f"gateway {each}", "collection": "orders"} for each in ids)
    return made


class Source:
    """A folder of JSON lines, of which each file is a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        self._files = 0
        self.events = 0

    def add(self, *lines: str, orders: int = 0) -> None:
        """Add a file, with lines as they are and so many orders with ids that count up."""
        made = [json.dumps({"id": f"e{self.events + index}", "collection": "orders"}) for index in range(orders)]
        self.events += orders
        self._files += 1
        beside = self.folder.parent / "new"
        beside.write_text("".join(f"{line}\n" for line in [*lines, *made]))
        # By age, Spark takes them in this order.
        os.utime(beside, (self._files, self._files))
        beside.rename(self.folder / f"{self._files:04}.jsonl")


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path, backend: str) -> Source:
    return Source(spark, tmp_path / "events")


@pytest.fixture(autouse=True)
def stopped(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def started(frame: DataFrame, checkpoint: Path) -> Any:
    return frame.writeStream.format("memory").queryName("matches").option("checkpointLocation", str(checkpoint)).start()


def pairs(frame: DataFrame) -> Counter[tuple[str, str]]:
    return Counter((row["event_id"], row["subscription_id"]) for row in frame.collect())


def test_a_snapshot_that_is_replaced_counts_from_a_micro_batch_on_and_a_bad_one_never(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    first = find(path).digest
    query = started(match_stream(source.frame, path, observation="streamer"), tmp_path / "checkpoint")
    refused = []

    def run() -> None:
        source.add("{", orders=3)
        query.processAllAvailable()
        refused.append(query.lastProgress.observedMetrics["streamer"]["refused"])

    run()
    engine("a", "b").save(path)
    second = find(path).digest
    run()
    path.write_bytes(b"\x89STRM: half of a file")
    run()
    engine("c").save(path)
    run()
    assert refused == [0, 0, 1, 0]
    assert not query.lastProgress.stateOperators
    rows = (
        spark.table("matches")
        .groupBy("snapshot")
        .agg(F.sort_array(F.collect_set("event_id")).alias("events"), F.count("*").alias("n"))
    )
    result = {row["snapshot"]: (row["events"], row["n"]) for row in rows.collect()}
    assert result == {
        first: (["e0", "e1", "e2"], 3),
        second: (["e3", "e4", "e5", "e6", "e7", "e8"], 12),
        find(path).digest: (["e10", "e11", "e9"], 3),
    }


def test_a_stream_that_goes_on_from_its_checkpoint_loses_nothing_and_repeats_nothing(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    folder = tmp_path / "subscriptions"
    publish(engine("a", "b"), folder)
    out, writer = tmp_path / "out", write_by_gateway(tmp_path / "out")
    matches = match_stream(source.frame, folder)

    def fails_after_writing(frame: DataFrame, batch_id: int) -> None:
        writer(frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("after it was written, before Spark knew")

    def fails_while_writing(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 2:
            # What a driver leaves that was killed while it wrote: files, and nothing that says that they are all.
            frame.limit(1).write.partitionBy("gateway_id").parquet(str(out / "batch_id=2"))
            (out / "batch_id=2" / "_SUCCESS").unlink()
            raise RuntimeError("while it was written")
        writer(frame, batch_id)

    for _ in range(4):
        source.add(orders=5)
    for write in (fails_after_writing, fails_while_writing, writer):
        query = matches.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = query.trigger(availableNow=True).start()
        if write is writer:
            assert running.awaitTermination(120)
        else:
            with pytest.raises(StreamingQueryException, match="written"):
                running.awaitTermination(120)
            # Who goes on may find other subscriptions; what was written whole stays as it was.
            publish(engine("a", "b", "c"), folder)
    written = spark.read.parquet(str(out))
    whole = {(f"e{number}", each): 1 for number in range(20) for each in ("a", "b")}
    assert pairs(written.where("batch_id <= 1")) == {key: n for key, n in whole.items() if int(key[0][1:]) < 10}
    assert pairs(written.where("subscription_id != 'c'")) == whole
    assert pairs(written.where("subscription_id = 'c'")) == {(f"e{number}", "c"): 1 for number in range(10, 20)}
    assert written.groupBy("batch_id").agg(F.count_distinct("snapshot").alias("n")).where("n != 1").count() == 0
    assert {each.name for each in (out / "batch_id=3").iterdir() if each.is_dir()} == {
        "gateway_id=gateway a",
        "gateway_id=gateway b",
        "gateway_id=gateway c",
    }


def test_a_folder_belongs_to_one_stream(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    source.add(orders=1)
    for checkpoint in ("one", "two"):
        writing = match_stream(source.frame, path).writeStream.foreachBatch(write_by_gateway(tmp_path / "out"))
        query = writing.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        if checkpoint == "one":
            assert query.awaitTermination(120)
        else:
            with pytest.raises(StreamingQueryException, match="give it a folder of its own"):
                query.awaitTermination(120)


def test_batches_ship_their_snapshots_and_settle_every_event(
    spark: SparkSession, source: Source, tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    settled: list[Settled] = []
    out, bad = tmp_path / "out", tmp_path / "bad"
    matcher = match_batches(
        path,
        write_by_gateway(out, file_format="json"),
        rejected=BatchWriter(str(bad), by=()),
        settled=settled.append,
        backend=backend,
    )
    query = source.frame.writeStream.foreachBatch(matcher).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    source.add("{", '{"collection": 7}', orders=4)
    query.processAllAvailable()
    engine("a", "b").save(path)
    source.add('{"collection": "users"}', orders=2)
    query.processAllAvailable()
    path.write_bytes(b"")
    with caplog.at_level(logging.WARNING, "streamer.spark"):
        for _ in range(2):
            source.add(orders=1)
            query.processAllAvailable()
    query.stop()
    assert [each.id for each in settled] == [0, 1, 2, 3]
    counted = [
        Counter({name: sum(row[name] for row in each.tallies) for name in ("events", "matched", "matches", "rejected")})
        for each in settled
    ]
    assert counted == [
        Counter(events=6, matched=4, matches=4, rejected=2),
        Counter(events=3, matched=2, matches=4, rejected=0),
        Counter(events=1, matched=1, matches=2, rejected=0),
        Counter(events=1, matched=1, matches=2, rejected=0),
    ]
    assert settled[0].codes == {"malformed_json": 1, "wrong_type": 1}
    assert len({each.version.digest for each in settled[1:]}) == 1
    assert matcher.refused == 1
    assert len([record for record in caplog.records if "passed over" in record.message]) == 1
    assert pairs(spark.read.json(str(out))) == {
        **{(f"e{number}", "a"): 1 for number in range(8)},
        **{(f"e{number}", "b"): 1 for number in range(4, 8)},
    }
    assert sorted(row["event"] for row in spark.read.parquet(str(bad)).collect()) == ["{", '{"collection": 7}']


def test_transitions_come_of_before_images(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    made = Engine()
    paid = {"collection": "orders", "filters": [{"field": "status", "op": "==", "value": "paid"}], "transitions": True}
    made.add({"id": "paid", "gateway_id": "g", **paid})
    path = tmp_path / "subscriptions.snapshot"
    made.save(path)
    states = [(None, "paid"), ("new", "paid"), ("paid", "paid"), ("paid", "sent"), ("new", "sent")]
    for number, (before, after) in enumerate(states):
        event = {"id": str(number), "collection": "orders", "type": "update" if before else "insert", "data": {"status": after}}
        source.add(json.dumps({**event, "before": {"status": before}} if before else event))
    query = started(match_stream(source.frame, path), tmp_path / "checkpoint")
    query.processAllAvailable()
    result = {row["event_id"]: row["transition"] for row in spark.table("matches").collect()}
    assert result == {"0": "enter", "1": "enter", "2": "stay", "3": "leave"}


def test_events_of_any_source_are_matched_once(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    path = tmp_path / "subscriptions.snapshot"
    made = Engine()
    made.add({"id": "even", "collection": "numbers", "filters": [{"field": "last", "op": "in", "value": [0, 2, 4, 6, 8]}]})
    made.save(path)
    rates = spark.readStream.format("rate").option("rowsPerSecond", 500).option("numPartitions", 2).load()
    data = F.struct((F.col("value") % 10).alias("last"))
    events = rates.select("value", F.to_json(F.struct(F.lit("numbers").alias("collection"), data.alias("data"))).alias("event"))
    stream = match_stream(events, path, event_col="event", keep=["value"], keep_event=True, want="all", observation="streamer")
    query = started(stream, tmp_path / "checkpoint")
    while not any(each.numInputRows for each in query.recentProgress):
        query.awaitTermination(0.2)
    query.stop()
    rows = sum(each.numInputRows for each in query.recentProgress)
    observed = [each.observedMetrics["streamer"] for each in query.recentProgress if "streamer" in each.observedMetrics]
    outcomes = spark.table("matches")
    values = sorted(row["value"] for row in matches_of(outcomes, keep_event=True).select("value", "event").collect())
    assert values == sorted(range(0, max(values) + 1, 2))
    (tally,) = tallies_of(outcomes).collect()
    assert (tally["events"], tally["matches"]) == (rows, len(values))
    assert sum(each["events"] for each in observed) == rows
    assert rejected_of(outcomes).count() == 0


def test_a_bad_event_ends_a_stream_that_asks_for_it(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    source.add('{"collection": ')
    query = started(match_stream(source.frame, path, on_error="fail"), tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="malformed_json"):
        query.processAllAvailable()


def test_wrong_arguments_are_reported_before_the_stream_begins(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.snapshot"
    with pytest.raises(FileNotFoundError):
        match_stream(source.frame, path)
    path.write_text("{}")
    with pytest.raises(SnapshotError):
        match_stream(source.frame, path)
    engine("a").save(path)
    with pytest.raises(ValueError, match="there is no column 'event'"):
        match_stream(source.frame, path, event_col="event")
    with pytest.raises(ValueError, match="snapshot"):
        match_stream(source.frame.withColumn("snapshot", F.lit(1)), path, keep=["snapshot"])
    for name, value in (("on_error", "ignore"), ("want", "rejected")):
        with pytest.raises(ValueError, match=name):
            match_stream(source.frame, path, **{name: value})  # type: ignore[arg-type]
