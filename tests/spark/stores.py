"""What test_stores.py runs beside a store: events, subscriptions, checkpoints and matches are all there, and nothing is here."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamer
from streamer import ConfigError
from streamer.spark import match_batches, match_events, match_stream, publish, write_by_gateway
from streamer.spark.storage import Storage
from streamer.terminal import OK, SOME_BAD
from tests.spark.conftest import configure
from tests.spark.lakes import SUBSCRIPTIONS, engine, events, expected, job, pairs
from tests.tools.killed_drivers import kill_again_and_again

#: How often a driver is killed, while it reads so many files.
KILLS = 3
FILES = 12


@pytest.fixture(autouse=True)
def backend() -> str:
    return streamer.BACKEND


@pytest.fixture(scope="module")
def conf() -> dict[str, str]:
    options: dict[str, str] = json.loads(os.environ["STREAMER_STORE"])[1]
    return options


@pytest.fixture(scope="module")
def spark(conf: dict[str, str]) -> Iterator[SparkSession]:
    builder = configure(SparkSession.builder.master("local[2]").appName("stores"))
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """A folder of the test in the store."""
    return f"{json.loads(os.environ['STREAMER_STORE'])[0]}/{request.node.name.partition('[')[0]}"


def put(spark: SparkSession, folder: str, name: str, path: Path) -> str:
    """Add a file to the store, and return where it is."""
    Storage(spark, folder).add(path, name)
    return f"{folder}/{name}"


def written(spark: SparkSession, texts: list[str], folder: str) -> DataFrame:
    """Add a file of events, and return all that are in the folder."""
    spark.createDataFrame([(text,) for text in texts], "value string").coalesce(1).write.mode("append").text(folder)
    return spark.read.text(folder)


@pytest.mark.parametrize("form", ["snapshot", "json lines", "dataframe"])
@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_a_batch_is_matched(spark: SparkSession, root: str, tmp_path: Path, form: str, strategy: Any) -> None:
    root = f"{root}/{strategy}/{form.replace(' ', '-')}"
    texts = events(0, 200)
    incoming = written(spark, texts, f"{root}/events")
    path = tmp_path / "subscriptions"
    if form == "snapshot":
        engine().save(path)
    else:
        path.write_text("\n".join(map(json.dumps, SUBSCRIPTIONS)))
    # The name of JSON lines tells what they are.
    place = put(spark, root, "subscriptions.snapshot" if form == "snapshot" else "subscriptions.jsonl", path)
    source: Any = spark.read.text(place) if form == "dataframe" else place
    match_events(incoming, source, strategy=strategy).matches.write.parquet(f"{root}/matches")
    assert pairs(spark.read.parquet(f"{root}/matches")) == expected(texts)


def test_micro_batches_follow_versions(spark: SparkSession, root: str) -> None:
    texts = events(0, 40)
    publish(engine(), f"{root}/versions")
    matcher = match_batches(f"{root}/versions", write_by_gateway(f"{root}/matches"))

    def run() -> None:
        stream = spark.readStream.text(f"{root}/events").writeStream.foreachBatch(matcher)
        stream.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start().awaitTermination()

    written(spark, texts, f"{root}/events")
    run()
    publish(engine(SUBSCRIPTIONS[:5]), f"{root}/versions")
    written(spark, texts, f"{root}/events")
    run()
    rows = spark.read.parquet(f"{root}/matches")
    few = {each["id"] for each in SUBSCRIPTIONS[:5]}
    assert pairs(rows.where("batch_id = 0")) == expected(texts)
    assert pairs(rows.where("batch_id = 1")) == Counter({p: n for p, n in expected(texts).items() if p[1] in few})
    # Nothing but versions is left of what was published.
    names = Storage(spark, f"{root}/versions").names()
    assert [name[:11] for name in sorted(names)] == ["0000000001-", "0000000002-"]


def test_a_stream_reads_and_writes_there_and_has_its_subscriptions_here(spark: SparkSession, root: str, tmp_path: Path) -> None:
    texts = events(0, 60)
    written(spark, texts[:30], f"{root}/events")
    incoming = spark.readStream.text(f"{root}/events")
    with pytest.raises(ConfigError, match=r"is not on this machine: .* use match_batches, which reads it through Spark"):
        match_stream(incoming, f"{root}/versions")
    publish(engine(), tmp_path / "versions")
    for more in ([], texts[30:]):
        if more:
            written(spark, more, f"{root}/events")
        stream = match_stream(incoming, tmp_path / "versions").writeStream.format("parquet")
        stream = stream.option("checkpointLocation", f"{root}/checkpoint").option("path", f"{root}/matches")
        stream.trigger(availableNow=True).start().awaitTermination()
    assert pairs(spark.read.parquet(f"{root}/matches")) == expected(texts)


@pytest.mark.parametrize("stream", [False, True])
def test_the_job_has_everything_there(spark: SparkSession, root: str, stream: bool) -> None:
    root = f"{root}/{'stream' if stream else 'batch'}"
    texts = events(0, 100)
    publish(engine(), f"{root}/versions")
    written(spark, [*texts[:50], "{"], f"{root}/events")
    words = ["--events", f"{root}/events", "--events-format", "jsonl", "-s", f"{root}/versions", "--out", f"{root}/matches"]
    words += ["--stream", "--trigger", "available-now", "--checkpoint", f"{root}/checkpoint"] if stream else ["--overwrite"]
    assert job(*words).exit_code == SOME_BAD
    assert pairs(spark.read.parquet(f"{root}/matches")) == expected(texts[:50])
    assert spark.read.parquet(f"{root}/matches.rejected").count() == 1
    written(spark, texts[50:], f"{root}/events")
    done = job(*words)
    assert done.exit_code == (OK if stream else SOME_BAD), done.output
    assert pairs(spark.read.parquet(f"{root}/matches")) == expected(texts)


def test_a_stream_that_is_killed_again_and_again_writes_every_match_once(
    spark: SparkSession, conf: dict[str, str], root: str, tmp_path: Path
) -> None:
    """Driver, JVM and workers at once, at any moment; a store of objects renames by copying, so a folder may be half there."""
    texts = events(0, FILES * 30)
    for at in range(FILES):
        written(spark, [*texts[at * 30 : at * 30 + 30], "{"], f"{root}/events")
    publish(engine(), f"{root}/versions")
    command = [sys.executable, "-m", "streamer.spark.job", "--stream", "--trigger", "available-now", "--master", "local[2]"]
    command += ["--events", f"{root}/events", "--events-format", "jsonl", "--option", "maxFilesPerTrigger=1"]
    command += ["-s", f"{root}/versions", "--checkpoint", f"{root}/checkpoint", "--out", f"{root}/matches", "--by-gateway"]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    out = Storage(spark, f"{root}/matches")

    def begun() -> int:
        try:
            return sum(name.startswith("batch_id=") for name in out.names())
        except FileNotFoundError:
            return 0

    log = tmp_path / "log"
    code, seed = kill_again_and_again(command, begun, log, kills=KILLS, steps=(1,), within=1.5, pause=0.2)
    assert code == SOME_BAD, log.read_text()[-3000:]
    assert pairs(spark.read.parquet(f"{root}/matches")) == expected(texts), seed
    assert spark.read.parquet(f"{root}/matches.rejected").count() == FILES, seed
