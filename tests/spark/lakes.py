"""What test_lakes.py runs beside Delta and Iceberg, in a process of its own: a session has its jars from its beginning."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct
from typer.testing import CliRunner

import streamer
from streamer import Engine
from streamer.spark import changes_of, match_batches, match_events, publish, write_to_table
from streamer.spark.job.job import app
from streamer.spark.structs import text_of
from streamer.spark.tables import format_of, is_table, read_table
from streamer.terminal import OK, SOME_BAD, USAGE
from tests.spark.conftest import configure
from tests.tools.killed_drivers import kill_again_and_again
from tests.tools.lakes import settings

#: How often a driver is killed, while it reads so many files.
KILLS = 5
FILES = 20

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"id": f"s{n}", "gateway_id": f"g{n % 3}", "collection": "orders", "filters": [{"field": "n", "op": "==", "value": n}]}
    for n in range(20)
]
#: Of matches.
COLUMNS = (
    "event_id string, tenant string, collection string, type string, subscription_id string, gateway_id string, "
    "transition string, certain boolean"
)
KINDS = ("delta", "delta by path", "iceberg")


@pytest.fixture(autouse=True)
def backend() -> str:
    return streamer.BACKEND


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return settings([Path(jar) for jar in os.environ["STREAMER_LAKES"].split(os.pathsep)], tmp_path_factory.mktemp("lakes"))


@pytest.fixture(scope="module")
def spark(conf: dict[str, str]) -> Iterator[SparkSession]:
    builder = configure(SparkSession.builder.master("local[2]").appName("lakes"))
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for schema in ("shop", "lake.shop"):
        session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    yield session
    session.stop()


def named(kind: str, name: str, folder: Path) -> str:
    return {"delta": f"shop.{name}", "iceberg": f"lake.shop.{name}", "delta by path": f"delta.`{folder}/{name}`"}[kind]


def place(kind: str, table: str) -> str:
    """What the job calls a table."""
    return table.split("`")[1] if kind == "delta by path" else table


def engine(subscriptions: list[dict[str, Any]] = SUBSCRIPTIONS) -> Engine:
    made = Engine()
    made.add_many(subscriptions)
    return made


def job(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def pairs(frame: DataFrame) -> Counter[tuple[str, str]]:
    return Counter((row["event_id"], row["subscription_id"]) for row in frame.collect())


def events(first: int, count: int) -> list[str]:
    return [json.dumps({"id": f"e{n}", "collection": "orders", "data": {"n": n % 23}}) for n in range(first, first + count)]


def expected(texts: list[str]) -> Counter[tuple[str, str]]:
    matcher = engine()
    return Counter((json.loads(text)["id"], match.subscription_id) for text in texts for match in matcher.match(text))


def add(spark: SparkSession, kind: str, table: str, texts: list[str]) -> None:
    frame = spark.createDataFrame([(text,) for text in texts], "value string").repartition(2)
    if kind == "delta by path":
        frame.write.format("delta").mode("append").save(place(kind, table))
    else:
        if not is_table(spark, table):
            spark.sql(f"CREATE TABLE {table} (value string) USING {kind}")
        frame.write.format(kind).mode("append").saveAsTable(table)


def formats(kind: str) -> list[str]:
    return ["--events-format", "delta", "--out-format", "delta"] if kind == "delta by path" else []


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_reads_and_writes_tables(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    source, target = (named(kind, f"batch_{name}_{kind[-4:]}", tmp_path) for name in ("in", "out"))
    bad = ["{", '{"collection": "*"}']
    add(spark, kind, source, [*events(0, 200), *bad])
    if kind == "delta":
        assert pairs(match_events(source, engine()).matches) == expected(events(0, 200))
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, SUBSCRIPTIONS)))
    words = ["--events", place(kind, source), "-s", str(tmp_path / "s.jsonl"), "--out", place(kind, target), *formats(kind)]
    if kind == "delta":
        # As a platform has it: made before, and partitioned.
        spark.sql(f"CREATE TABLE {target} ({COLUMNS}) USING delta PARTITIONED BY (gateway_id)")
        words.append("--overwrite")
    done = job(*words)
    assert done.exit_code == SOME_BAD, done.output
    assert pairs(read_table(spark, target)) == expected(events(0, 200))
    rejected = target[:-1] + ".rejected`" if kind == "delta by path" else f"{target}_rejected"
    assert sorted(row["event"] for row in read_table(spark, rejected).collect()) == sorted(bad)
    again = job(*[word for word in words if word != "--overwrite"])
    assert again.exit_code == USAGE, again.output
    assert "exists already" in again.output
    assert job(*words, *([] if "--overwrite" in words else ["--overwrite"])).exit_code == SOME_BAD
    assert pairs(read_table(spark, target)) == expected(events(0, 200))
    assert read_table(spark, rejected).count() == len(bad)
    if kind == "delta":
        assert [each.name for each in spark.catalog.listColumns(target) if each.isPartition] == ["gateway_id"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_from_table_to_table(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    source, target = (named(kind, f"stream_{name}_{kind[-4:]}", tmp_path) for name in ("in", "out"))
    if kind == "iceberg":
        spark.sql(f"CREATE TABLE {target} ({COLUMNS}, snapshot string) USING iceberg PARTITIONED BY (gateway_id)")
    add(spark, kind, source, events(0, 100))
    publish(engine(), tmp_path / "versions")
    words = ["--events", place(kind, source), "-s", str(tmp_path / "versions"), "--out", place(kind, target), *formats(kind)]
    words += ["--stream", "--trigger", "available-now", "--checkpoint", str(tmp_path / "checkpoint")]
    if kind == "delta":
        spark.conf.set("spark.sql.sources.default", "delta")
    for first, more in ((100, ["{"]), (200, [])):
        done = job(*words)
        assert done.exit_code in (OK, SOME_BAD), done.output
        if kind != "delta by path":
            # A micro-batch is written by a session of its own.
            spark.catalog.refreshTable(target)
        assert pairs(read_table(spark, target)) == expected(events(0, first))
        add(spark, kind, source, [*events(first, 100), *more])
    assert format_of(spark, target) == kind.split()[0]
    spark.conf.unset("spark.sql.sources.default")


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_repeated_is_written_once(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    source, target = (named(kind, f"repeat_{name}_{kind[-4:]}", tmp_path) for name in ("in", "out"))
    add(spark, kind, source, events(0, 50))
    if kind == "delta":
        spark.conf.set("spark.sql.sources.default", "delta")
    publish(engine(), tmp_path / "versions")
    frame = read_table(spark, source)
    one, two = (match_batches(tmp_path / "versions", write_to_table(target, app_id=name)) for name in ("one", "two"))
    for batch in (0, 1, 1, 0):
        one(frame, batch)
    # What it wrote is known to a driver that begins anew, and even if others wrote meanwhile.
    two(frame, 0)
    match_batches(tmp_path / "versions", write_to_table(target, app_id="one"))(frame, 1)
    two(frame.limit(0), 1)
    two(frame, 1)
    spark.conf.unset("spark.sql.sources.default")
    once = expected(events(0, 50))
    assert pairs(read_table(spark, target)) == once + once + once
    with pytest.raises(streamer.ConfigError, match="app_id: the stream has no name"):
        match_batches(tmp_path / "versions", write_to_table(target))(frame, 2)


# Over Spark Connect

#: Takes its settings, a snapshot, and for each kind of table one to read and one to write.
OVER_CONNECT = """
import json, sys
from pyspark.sql import SparkSession

conf, snapshot, tables = (json.loads(word) for word in sys.argv[1:])
builder = SparkSession.builder.remote("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
from streamer import ConfigError
from streamer.spark import match_batches, match_events, write_to_table
from streamer.spark.tables import read_table

for schema in ("shop", "lake.shop"):
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
said = {}
for kind, (source, target, checkpoint) in tables.items():
    frame = spark.createDataFrame([(text,) for text in json.load(open("events.json"))], "value string").repartition(2)
    if kind == "delta by path":
        frame.write.format("delta").save(source.split("`")[1])
    else:
        frame.write.format(kind).saveAsTable(source)
    found = match_events(read_table(spark, source), snapshot).matches
    said[kind] = sorted([row.event_id, row.subscription_id] for row in found.collect())
    try:
        matcher = match_batches(snapshot, write_to_table(target, app_id="one"))
    except ConfigError as error:
        said[kind + " streamed"] = str(error)
        continue
    if kind == "delta":
        spark.conf.set("spark.sql.sources.default", "delta")
    for again in range(2):
        # A checkpoint that is lost has everything come again, under the same numbers.
        stream = read_table(spark, source, stream=True).writeStream.foreachBatch(matcher)
        stream.option("checkpointLocation", f"{checkpoint}-{again}").trigger(availableNow=True).start().awaitTermination()
    spark.conf.unset("spark.sql.sources.default")
    said[kind + " streamed"] = sorted([row.event_id, row.subscription_id] for row in read_table(spark, target).collect())
print("said " + json.dumps(said), flush=True)
spark.stop()
"""


def test_tables_are_read_and_written_once_over_connect(conf: dict[str, str], tmp_path: Path) -> None:
    """In a process of its own, which has a server of Spark Connect."""
    texts = events(0, 50)
    (tmp_path / "events.json").write_text(json.dumps(texts))
    engine().save(tmp_path / "s.snapshot")
    tables = {
        kind: [named(kind, f"connect_{kind[-4:]}_{name}", tmp_path) for name in ("in", "out")]
        + [f"{tmp_path}/{kind[-4:]}.checkpoint"]
        for kind in KINDS
    }
    jars = [conf["spark.jars"], *filter(None, [os.environ["STREAMER_CONNECT"].replace(os.pathsep, ",")])]
    settings = {**conf, "spark.jars": ",".join(jars), "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    settings["spark.sql.catalog.lake.warehouse"] = str(tmp_path / "lake")
    words = [json.dumps(settings), json.dumps(str(tmp_path / "s.snapshot")), json.dumps(tables)]
    command = [sys.executable, "-W", "ignore", "-c", OVER_CONNECT, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert answers, done.stderr[-5000:]
    results = json.loads(answers[0].removeprefix("said "))
    wanted = sorted(map(list, expected(texts).elements()))
    for kind in KINDS:
        assert results[kind] == wanted
        if pyspark.__version__.startswith("3."):
            assert "match_batches does not work over Spark Connect" in results[f"{kind} streamed"]
        else:
            assert results[f"{kind} streamed"] == wanted


# The change data feed

ABOUT_CHANGES = [
    {"id": "paid", "filters": [{"field": "status", "op": "changed_to", "value": "paid"}]},
    {"id": "left-new", "filters": [{"field": "status", "op": "changed_from", "value": "new"}]},
    {"id": "large", "filters": [{"field": "n", "op": ">", "value": 50}], "transitions": True},
    {"id": "gone", "types": ["delete"], "cel": "data.n > 10"},
    {"id": "dear", "cel": "data.price > 9.5 && data.at >= '2026-11-22T10:15:30.5' && data.tags.a == 1"},
]


def change(spark: SparkSession, rng: random.Random) -> None:
    """Commit one version of `shop.orders`."""
    low, status = rng.randrange(60), rng.choice(["new", "paid", "sent"])
    spark.sql(
        rng.choice(
            [
                f"UPDATE shop.orders SET status = '{status}', n = n + {rng.randrange(-9, 10)} WHERE id % 7 = {low % 7}",
                f"DELETE FROM shop.orders WHERE id BETWEEN {low} AND {low + 3}",
                f"MERGE INTO shop.orders AS t USING (SELECT id, cast(id as int) AS m FROM range({low}, {low + 9})) AS s "
                "ON t.id = s.id "
                f"WHEN MATCHED AND s.m % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET status = '{status}', n = s.m "
                "WHEN NOT MATCHED THEN INSERT (id, status, n) VALUES (s.id, 'new', s.m)",
            ]
        )
    )


def states(spark: SparkSession) -> list[dict[int, dict[str, Any]]]:
    """The rows of each version of the table, by their key, as JSON has them."""
    results = []
    for version in range(spark.sql("DESCRIBE HISTORY shop.orders").count()):
        rows = spark.read.option("versionAsOf", version).table("shop.orders")
        documents = [json.loads(row[0]) for row in rows.select(text_of(struct(*rows.columns), rows.schema, "row")).collect()]
        results.append({document["id"]: document for document in documents})
    return results


def test_a_change_data_feed_is_matched_as_its_changes_are(spark: SparkSession, tmp_path: Path) -> None:
    """What changed is told by the table's versions, one beside the next."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    spark.sql(
        "CREATE TABLE shop.orders (id bigint, status string, n int, price decimal(10, 2), at timestamp, tags map<string, int>) "
        "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(
        "INSERT INTO shop.orders SELECT id, 'new', cast(id as int), cast(id / 4 as decimal(10, 2)), "
        "timestamp'2026-11-22 10:15:30.5 UTC', map('a', cast(id % 2 as int)) FROM range(60)"
    )
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, ABOUT_CHANGES)))
    publish(engine(ABOUT_CHANGES), tmp_path / "versions")
    words = ["--events", "shop.orders", "--key", "id", "--option", "startingVersion=0", "--keep", "_commit_version"]
    stream = [*words, "-s", str(tmp_path / "versions"), "--out", f"{tmp_path}/stream", "--out-format", "delta", "--stream"]
    stream += ["--trigger", "available-now", "--option", "maxFilesPerTrigger=1", "--checkpoint", str(tmp_path / "checkpoint")]
    # Each subscription is met, whatever chance brings.
    spark.sql("UPDATE shop.orders SET status = 'paid', n = n + 60 WHERE id % 7 = 0")
    spark.sql("DELETE FROM shop.orders WHERE id BETWEEN 20 AND 23")
    for _ in range(2):
        for _ in range(5):
            change(spark, rng)
        done = job(*stream)
        assert done.exit_code == OK, (seed, done.output)
    matcher = engine(ABOUT_CHANGES)
    wanted: Counter[tuple[Any, ...]] = Counter()
    versions = states(spark)
    for version, (before, after) in enumerate(pairwise(versions), 1):
        for key in before.keys() | after.keys():
            old, new = before.get(key), after.get(key)
            kind = "delete" if new is None else "insert" if old is None else "update"
            if old != new:
                event = {"id": f"{version}:{key}", "collection": "orders", "type": kind, "data": new, "before": old}
                for match in matcher.match(json.dumps(event)):
                    wanted[event["id"], kind, match.subscription_id, match.transition, version] += 1
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 0).table("shop.orders")
    batch = match_events(changes_of(feed, "id", collection="orders"), matcher, keep=["_commit_version"])
    assert job(*words, "-s", str(tmp_path / "s.jsonl"), "--out", f"{tmp_path}/batch").exit_code == OK
    for way, results in {
        "batch": batch.matches,
        "job": spark.read.parquet(f"{tmp_path}/batch"),
        "stream": spark.read.format("delta").load(f"{tmp_path}/stream"),
    }.items():
        rows = [
            tuple(row) for row in results.select("event_id", "type", "subscription_id", "transition", "_commit_version").collect()
        ]
        # An update that changes nothing is in the feed, and nothing in the versions tells of it.
        same = {row for row in rows if row[1] == "update" and unchanged(versions, row)}
        assert Counter(row for row in rows if row not in same) == wanted, (way, seed)
        # What they are is no matter of chance.
        assert all(match[2] in ("large", "dear") for match in same), (way, seed, same)
    assert {match[2] for match in wanted} == {str(each["id"]) for each in ABOUT_CHANGES}, seed
    assert batch.rejected.count() == 0


def unchanged(versions: list[dict[int, dict[str, Any]]], row: tuple[Any, ...]) -> bool:
    version, key = row[4], int(row[0].partition(":")[2])
    return versions[version - 1].get(key) == versions[version].get(key)


@pytest.mark.parametrize("kind", ["delta by path", "iceberg"])
def test_a_stream_that_is_killed_again_and_again_writes_every_match_once(
    spark: SparkSession, conf: dict[str, str], kind: str, tmp_path: Path
) -> None:
    """Driver, JVM and workers at once, at any moment."""
    texts = events(0, FILES * 50)
    (tmp_path / "events").mkdir()
    for at in range(FILES):
        (tmp_path / "events" / f"{at:02}.jsonl").write_text("\n".join([*texts[at * 50 : at * 50 + 50], "{"]))
    publish(engine(), tmp_path / "versions")
    target = named(kind, "killed", tmp_path)
    lake = Path(conf["spark.sql.catalog.lake.warehouse"])
    history, ending = (
        (lake / "shop/killed/metadata", "*.metadata.json") if kind == "iceberg" else (tmp_path / "killed/_delta_log", "*.json")
    )
    command = [sys.executable, "-m", "streamer.spark.job", "--stream", "--trigger", "available-now", "--master", "local[2]"]
    command += ["--events", str(tmp_path / "events"), "--events-format", "jsonl", "--option", "maxFilesPerTrigger=1"]
    command += ["-s", str(tmp_path / "versions"), "--checkpoint", str(tmp_path / "checkpoint"), "--out", place(kind, target)]
    command += ["--out-format", "delta" if kind == "delta by path" else "table"]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]

    def commits() -> int:
        return len([*history.glob(ending)])

    log = tmp_path / "log"
    code, seed = kill_again_and_again(command, commits, log, kills=KILLS, steps=(1, 1, 2), within=0.7)
    assert code == SOME_BAD, log.read_text()[-3000:]
    spark.catalog.clearCache()
    assert pairs(read_table(spark, target)) == expected(texts), seed
    rejected = target[:-1] + ".rejected`" if kind == "delta by path" else f"{target}_rejected"
    assert read_table(spark, rejected).count() == FILES, seed
