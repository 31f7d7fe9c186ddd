"""Subscriptions in a file system that is not this machine's, by Spark's own layer.

That here is Hadoop's viewfs, which gives places of other file systems names of its own: `viewfs://streamer/data` is a folder of
the test, and no path that Python can open.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from streamer import ConfigError, Engine, SnapshotError

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from streamer.spark import match_batches, match_events, publish, register, write_by_gateway
from streamer.spark.job.job import app
from streamer.spark.job.places import Address
from streamer.spark.storage import Storage, mirrored
from streamer.spark.versions import find
from streamer.terminal import OK, USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

EVENT = '{"id": "e", "collection": "orders"}'


@pytest.fixture
def data(spark: SparkSession, tmp_path: Path) -> str:
    """The place under which the test's folder `data` is."""
    (tmp_path / "data").mkdir()
    context: Any = spark.sparkContext
    # Each test has a table of mounts of its own, since Hadoop keeps a file system that it has made.
    name = f"{tmp_path.name.replace('_', '-')}-{tmp_path.parent.name}"
    context._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./data", (tmp_path / "data").as_uri())
    return f"viewfs://{name}/data"


def holding(*ids: str) -> Engine:
    engine = Engine()
    engine.add_many([{"id": id_, "gateway_id": "g", "collection": "orders"} for id_ in ids])
    return engine


def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(EVENT,)], "value string")


def ids(frame: DataFrame) -> list[str]:
    return sorted(row["subscription_id"] for row in frame.collect())


def test_snapshots_and_json_lines_are_read_there(spark: SparkSession, tmp_path: Path, data: str, backend: str) -> None:
    holding("a", "b").save(tmp_path / "data" / "s.snapshot")
    lines = [json.dumps({"id": id_, "collection": "orders"}) for id_ in ("c", "d")]
    (tmp_path / "data" / "s.jsonl").write_text("\n".join([*lines, ""]))
    assert ids(match_events(events(spark), f"{data}/s.snapshot", strategy="broadcast").matches) == ["a", "b"]
    assert ids(match_events(events(spark), f"{data}/s.snapshot", strategy="cogroup").matches) == ["a", "b"]
    assert ids(match_events(events(spark), f"{data}/s.jsonl").matches) == ["c", "d"]
    assert ids(match_events(events(spark), f"{data}/s.jsonl", broadcast_bytes=1).matches) == ["c", "d"]
    register(spark, f"{data}/s.snapshot", "wanted_far")
    events(spark).createOrReplaceTempView("events_far")
    assert sorted(spark.sql("select wanted_far(value) as ids from events_far").first()["ids"]) == ["a", "b"]  # type: ignore[index]
    with pytest.raises(FileNotFoundError, match=r"none\.snapshot"):
        match_events(events(spark), f"{data}/none.snapshot")
    whole = (tmp_path / "data" / "s.snapshot").read_bytes()
    (tmp_path / "data" / "bad.snapshot").write_bytes(whole[:-20])
    with pytest.raises(SnapshotError) as caught:
        match_events(events(spark), f"{data}/bad.snapshot")
    assert caught.value.path == f"{data}/bad.snapshot"
    with pytest.raises(ConfigError, match=r'nosuch://a/b: Spark cannot read there: No FileSystem for scheme "nosuch"'):
        match_events(events(spark), "nosuch://a/b")


def test_versions_are_published_there_and_the_newest_good_one_is_current(
    spark: SparkSession, tmp_path: Path, data: str, backend: str
) -> None:
    there, folder = f"{data}/versions", tmp_path / "data" / "versions"
    first = publish(holding("a"), there)
    assert [path.name for path in folder.glob("[!.]*")] == [f"0000000001-{first.digest[:12]}.snapshot"]
    assert publish(holding("a"), there) == first
    second = publish(holding("a", "b"), f"{there}/")
    assert sorted(path.name for path in folder.glob("[!.]*"))[1] == Path(second.path).name

    def current() -> Any:
        # Another spelling of the place is the same place.
        return find(mirrored(Storage(spark, f"{data}/./versions/")))

    assert (current().digest, current().refused) == (second.digest, 0)
    bad = folder / "0000000003-bad.snapshot"
    bad.write_bytes(Path(folder, Path(second.path).name).read_bytes()[:-9])
    assert (current().digest, current().refused) == (second.digest, 1)
    third = publish(holding("c"), there)
    assert Path(third.path).name.startswith("0000000004-")
    assert (current().digest, current().refused) == (third.digest, 0)


def test_a_stream_follows_what_is_there(spark: SparkSession, tmp_path: Path, data: str, backend: str) -> None:
    """A directory of versions, and a file that is replaced, of which the last good one goes on; the checkpoint is there, too."""
    (tmp_path / "data" / "in").mkdir()
    (tmp_path / "data" / "in" / "1.jsonl").write_text(EVENT)
    publish(holding("a"), f"{data}/versions")
    matcher = match_batches(f"{data}/versions", write_by_gateway(f"{data}/out"))
    frame = spark.readStream.text(f"{data}/in")

    def run() -> None:
        writer = frame.writeStream.foreachBatch(matcher).option("checkpointLocation", f"{data}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    publish(holding("b"), f"{data}/versions")
    (tmp_path / "data" / "in" / "2.jsonl").write_text(EVENT)
    run()
    rows = spark.read.parquet(f"{data}/out").collect()
    assert sorted((row["batch_id"], row["subscription_id"]) for row in rows) == [(0, "a"), (1, "b")]

    path = tmp_path / "data" / "replaced"
    batches: list[list[str]] = []
    follow = match_batches(f"{data}/replaced", lambda each, _: batches.append(ids(each)))
    holding("a").save(path)
    follow(events(spark), 0)
    holding("b").save(path)
    follow(events(spark), 1)
    path.write_bytes(b"\x89STRM: half of a file")
    follow(events(spark), 2)
    path.unlink()
    follow(events(spark), 3)
    assert batches == [["a"], ["b"], ["b"], ["b"]]
    assert follow.refused > 0


@pytest.mark.parametrize("stream", [False, True])
def test_the_job_takes_such_places(spark: SparkSession, tmp_path: Path, data: str, stream: bool) -> None:
    (tmp_path / "data" / "in").mkdir()
    (tmp_path / "data" / "in" / "1.jsonl").write_text(EVENT)
    publish(holding("a"), f"{data}/versions")
    (tmp_path / "data" / "s.jsonl").write_text('{"id": "b", "collection": "orders"}\n')
    more = ["--stream", "--trigger", "available-now"] if stream else []
    for number, (place, want) in enumerate({"versions": ["a"], "s.jsonl": ["b"]}.items()):
        out = f"{data}/out-{number}"
        words = ["--events", f"{data}/in", "--events-format", "jsonl", "-s", f"{data}/{place}", "--out", out, *more]
        words += ["--checkpoint", f"{data}/checkpoint-{number}"] if stream else []
        done = CliRunner().invoke(app, words)
        assert done.exit_code == OK, done.output
        assert ids(spark.read.parquet(out)) == want
    done = CliRunner().invoke(
        app, ["--events", f"{data}/in", "-s", f"{data}/none", "--out", f"{data}/o", "--events-format", "jsonl"]
    )
    assert done.exit_code == USAGE
    assert f"--subscriptions {data}/none: no such file or directory" in done.output


def test_a_place_without_a_scheme_is_where_spark_takes_it_to_be(spark: SparkSession, tmp_path: Path, data: str) -> None:
    """Without this the events would be replaced by their matches."""
    (tmp_path / "data" / "in").mkdir()
    (tmp_path / "data" / "in" / "1.jsonl").write_text(EVENT)
    (tmp_path / "s.jsonl").write_text('{"id": "b"}\n')
    context: Any = spark.sparkContext
    settings = context._jsc.hadoopConfiguration()
    settings.set("fs.defaultFS", data.removesuffix("data"))
    try:
        words = ["--events", "/data/in", "--events-format", "jsonl", "-s", str(tmp_path / "s.jsonl"), "--overwrite"]
        done = CliRunner().invoke(app, [*words, "--out", f"{data}/in"])
    finally:
        settings.set("fs.defaultFS", "file:///")
    assert done.exit_code == USAGE
    assert f"--out {data}/in and --events /data/in are the same place" in done.output


def test_two_spellings_of_one_place_are_one() -> None:
    for one, other in (
        ("hdfs://NameNode:8020/a//b/", "hdfs://namenode/a/./b"),
        ("hdfs:///a/b", "hdfs://namenode/a/b"),
        ("s3://bucket/a", "s3a://bucket/b/../a"),
        ("abfs://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a/"),
        ("dbfs:/a/b", "/dbfs/a/b"),
        ("dbfs:/a/b", "file:/dbfs/a/b"),
        ("file:///tmp/a", "/tmp/../tmp/a"),
    ):
        assert Address.of(one).overlap(Address.of(other)) == "is", one
    assert Address.of("hdfs://namenode:9000/a").overlap(Address.of("hdfs://namenode/a")) is None
    assert Counter([Address.of("/dbfsx/a"), Address.of("/dbfs/a"), Address.of("dbfs:/a")]) == {
        Address.of("/dbfsx/a"): 1,
        Address.of("dbfs:/a"): 2,
    }
