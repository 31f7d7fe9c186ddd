"""Tables by name, in and out, and their change data feed: matches are those of the embedded engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import ConfigError, Engine

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark.sql import functions as F  # noqa: N812
from typer.testing import CliRunner

from streamer.spark import changes_of, match_batches, match_events, publish, write_to_table
from streamer.spark.job.job import app
from streamer.spark.job.places import Format, place
from streamer.spark.tables import of_path, parts_of, path_of
from streamer.terminal import OK, SOME_BAD, USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

SUBSCRIPTIONS: list[dict[str, Any]] = [
    *(
        {"id": f"s{n}", "gateway_id": f"g{n % 2}", "collection": "orders", "filters": [{"field": "n", "op": ">", "value": n}]}
        for n in range(0, 40, 7)
    ),
    {"id": "any"},
]
EVENTS = [json.dumps({"id": f"e{n}", "collection": "orders", "data": {"n": n}}) for n in range(40)]
BAD = ['{"collection": "orders"', "{"]

Pairs = Counter[tuple[str | None, str]]


def engine(*more: dict[str, Any]) -> Engine:
    made = Engine()
    made.add_many([*SUBSCRIPTIONS, *more])
    return made


EXPECTED = Counter((json.loads(event)["id"], match.subscription_id) for event in EVENTS for match in engine().match(event))


def pairs(frame: DataFrame) -> Pairs:
    return Counter((row["event_id"], row["subscription_id"]) for row in frame.collect())


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A schema with a table `events` of texts, bad ones among them."""
    # The guide's is of the same name, in the same session.
    spark.sql("DROP DATABASE IF EXISTS shop CASCADE")
    spark.sql(f"CREATE DATABASE shop LOCATION '{tmp_path}/shop'")
    rows = [(n, text) for n, text in enumerate([*EVENTS, *BAD])]
    spark.createDataFrame(rows, "number int, value string").repartition(2).write.saveAsTable("shop.events")
    yield "shop"
    spark.sql("DROP DATABASE shop CASCADE")


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text("\n".join(map(json.dumps, SUBSCRIPTIONS)))
    return str(path)


def job(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_events_may_be_a_table_by_name(schema: str, backend: str, strategy: Any) -> None:
    for name in ("shop.events", "spark_catalog.`shop`.EVENTS"):
        result = match_events(name, engine(), keep=["number"], strategy=strategy)
        assert pairs(result.matches) == EXPECTED
        assert sorted(row["event"] for row in result.rejected.collect()) == sorted(BAD)


def test_the_job_reads_tables_and_writes_them(spark: SparkSession, schema: str, lines: str, backend: str) -> None:
    words = ["--events", "shop.events", "-s", lines, "--out", "shop.matches", "--keep", "number"]
    done = job(*words, "--by-gateway")
    assert done.exit_code == SOME_BAD, done.output
    assert pairs(spark.table("shop.matches")) == EXPECTED
    assert "rejected events went to shop.matches_rejected" in done.output
    assert sorted(row["event"] for row in spark.table("shop.matches_rejected").collect()) == sorted(BAD)
    assert [each.name for each in spark.catalog.listColumns("shop.matches") if each.isPartition] == ["gateway_id"]
    again = job(*words)
    assert again.exit_code == USAGE
    assert "shop.matches exists already; --overwrite replaces it" in again.output
    spark.createDataFrame([(EVENTS[1], 7)], "value string, number int").write.mode("overwrite").saveAsTable("shop.events")
    assert job(*words, "--overwrite").exit_code == OK
    assert {event for event, _ in pairs(spark.table("shop.matches"))} == {"e1"}
    assert spark.table("shop.matches_rejected").count() == 0
    assert [each.name for each in spark.catalog.listColumns("shop.matches") if each.isPartition] == ["gateway_id"]
    other = job(*words, "--overwrite", "--keep-event")
    assert other.exit_code == USAGE
    assert "shop.matches has the columns" in other.output


def test_a_row_of_a_table_may_be_the_event_of_a_job(spark: SparkSession, schema: str, lines: str, backend: str) -> None:
    rows = "SELECT 'e' || n AS id, 'orders' AS collection, named_struct('n', n) AS data FROM VALUES (1), (9) AS t(n)"
    spark.sql(f"CREATE TABLE shop.rows USING parquet AS {rows}")
    done = job("--events", "shop.rows", "-s", lines, "--out", "shop.found", "--event-col", "*", "--keep-event")
    assert done.exit_code == OK, done.output
    expected = Counter({pair: count for pair, count in EXPECTED.items() if pair[0] in ("e1", "e9")})
    assert pairs(spark.table("shop.found")) == expected
    assert {json.loads(row["event"])["data"]["n"] for row in spark.table("shop.found").collect()} == {1, 9}


def test_a_stream_goes_from_table_to_table(spark: SparkSession, schema: str, lines: str, tmp_path: Path, backend: str) -> None:
    words = ["--events", "shop.events", "-s", lines, "--out", "shop.streamed", "--stream", "--trigger", "available-now"]
    words += ["--checkpoint", str(tmp_path / "checkpoint")]
    done = job(*words, "--by-gateway")
    assert done.exit_code == SOME_BAD, done.output
    assert pairs(spark.table("shop.streamed")) == EXPECTED
    assert spark.table("shop.streamed_rejected").count() == len(BAD)
    more = json.dumps({"id": "later", "collection": "orders", "data": {"n": 1}})
    spark.createDataFrame([(50, more)], "number int, value string").write.mode("append").saveAsTable("shop.events")
    # A table that is there keeps how it is partitioned.
    assert job(*words).exit_code == OK
    # A micro-batch is written by a session of its own; this one has the list of files that it read.
    spark.catalog.refreshTable("shop.streamed")
    assert pairs(spark.table("shop.streamed")) == EXPECTED + Counter({("later", "s0"): 1, ("later", "any"): 1})


def test_a_repeated_batch_is_reported_if_it_is_written_twice(
    spark: SparkSession, schema: str, tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Parquet cannot tell what it has; Delta and Iceberg can (test_lakes.py)."""
    publish(engine(), tmp_path / "versions")
    matcher = match_batches(tmp_path / "versions", write_to_table("shop.twice"))
    for _ in range(2):
        matcher(spark.table("shop.events"), 0)
    assert pairs(spark.table("shop.twice")) == EXPECTED + EXPECTED
    messages = [record.message for record in caplog.records if "is written again" in record.message]
    assert messages == ["shop.twice is a table of parquet: a micro-batch that is repeated is written again"]


def test_a_wrong_table_is_reported_in_a_sentence(schema: str, lines: str, tmp_path: Path) -> None:
    for words, message in (
        (["--events", "shop.nothing", "--out", "shop.out"], "The table or view `shop`.`nothing` cannot be found"),
        (["--events", "nowhere.events", "--out", "shop.out"], "The table or view `nowhere`.`events` cannot be found"),
        (["--events", "shop.events", "--out", "nowhere.out"], "The schema `spark_catalog`.`nowhere` cannot be found"),
        (["--events", "shop.events", "--out", "shop.events"], "--out shop.events and --events shop.events are the same place"),
        (["--events", "shop.events", "--out", "Spark_Catalog.SHOP.Events"], "are the same place"),
        (["--events", "shop.events", "--out", "shop.out", "--rejected", "shop.out"], "are the same place"),
        (["--events", "a b", "--events-format", "table", "--out", "shop.out"], "a b: expected the name of a table"),
        (["--events", "shop.events", "--out", "shop.out", "--collection", "c"], "--collection is for a change data feed"),
        (["--events", lines, "--out", "shop.out", "--key", "id"], "--key is for the change data feed of a table"),
        (["--events", "shop.events", "--out", "shop.out", "--key", "number"], "it has no column _change_type, _commit_version"),
        (["--events", "shop.events", "--out", "shop.out", "--event-col", "number"], "column 'number' is int; an event is JSON"),
    ):
        done = job(*words, "-s", lines)
        assert (done.exit_code, message in done.output) == (USAGE, True), done.output
        assert "Traceback" not in done.output
        assert len(done.output.strip().splitlines()) <= 4, done.output


def test_names_are_distinguished_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out.v2").mkdir()
    formats = {
        "shop.orders": Format.table,
        "a.b.`c d/e`": Format.table,
        "orders": None,
        "./shop.orders": None,
        "events.jsonl": Format.jsonl,
        "events.jsonl.gz": Format.jsonl,
        "events.csv": None,
        "shop.parquet": Format.parquet,
        "out.v2": None,
        "kafka://broker/shop.orders": Format.kafka,
    }
    assert {text: place(text).format for text in formats} == formats
    assert parts_of("a.b.`c d/``e`") == ["a", "b", "c d/`e"]
    assert [path_of(of_path(path)) for path in ("s3a://b/t", "t`", "/t")] == ["s3a://b/t", "./t`", "/t"]
    assert path_of("delta.events") is path_of("`delta`.`x`") is None
    for name in ("", "a..b", "a b", "a.", "a;drop", "`a"):
        with pytest.raises(ConfigError, match=r"catalog\.schema\.table"):
            write_to_table(name)


# The change data feed, as Delta has it (test_lakes.py reads a real one).

FEED = "id int, region string, status string, n int, _change_type string, _commit_version bigint, _commit_timestamp timestamp"
AT = "2026-11-22 10:15:30.123"
IN_MS = 1795342530123
ROWS: list[tuple[Any, ...]] = [
    (1, "eu", "new", 1, "insert", 1),
    (2, "eu", "new", 1, "insert", 1),
    # A key comes twice, which is no matter of pairs.
    (2, "eu", "new", 2, "insert", 1),
    (1, "eu", "new", 1, "update_preimage", 2),
    (1, "eu", "paid", 1, "update_postimage", 2),
    # That row changes again in a later version.
    (1, "eu", "paid", 1, "update_preimage", 3),
    (1, "eu", "sent", 30, "update_postimage", 3),
    (1, "eu", "sent", 30, "delete", 4),
    # Its key is changed, and then its tenant.
    (3, "eu", "new", 9, "update_preimage", 5),
    (4, "eu", "paid", 9, "update_postimage", 5),
    (4, "eu", "paid", 9, "update_preimage", 6),
    (4, "us", "paid", 9, "update_postimage", 6),
    # A key that is none is one key.
    (None, "eu", "new", 2, "update_preimage", 7),
    (None, "eu", "paid", 2, "update_postimage", 7),
]
AMBIGUOUS = [
    (5, "eu", "new", 1, "update_preimage", 8),
    (5, "eu", "new", 2, "update_preimage", 8),
    (5, "eu", "paid", 1, "update_postimage", 8),
    (5, "eu", "paid", 2, "update_postimage", 8),
]
ODD = [(6, "eu", "new", 1, "truncate", 9), (7, "eu", "new", 1, None, 9)]
ABOUT_CHANGES = [
    {"id": "paid", "tenant": "*", "filters": [{"field": "status", "op": "changed_to", "value": "paid"}]},
    {"id": "left-new", "tenant": "eu", "filters": [{"field": "status", "op": "changed_from", "value": "new"}]},
    {
        "id": "large",
        "tenant": "eu",
        "collection": "orders",
        "filters": [{"field": "n", "op": ">", "value": 5}],
        "transitions": True,
    },
    {"id": "gone", "tenant": "eu", "types": ["delete"]},
    {"id": "american", "tenant": "us"},
]


def image(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("id", "region", "status", "n"), row, strict=False))


def event(version: int, kind: str, data: Any, before: Any) -> dict[str, Any]:
    row = data or before
    key = "" if row[0] is None else row[0]
    parts = {"id": f"{version}:{key}", "tenant": row[1], "collection": "orders", "type": kind, "ts": IN_MS}
    return {**parts, "data": data and image(data), "before": before and image(before)}


def events_of_the_feed() -> list[dict[str, Any]]:
    """What a person makes of the rows."""
    whole = {"insert": lambda row: (row, None), "delete": lambda row: (None, row)}
    made = [event(row[5], row[4], *whole[row[4]](row)) for row in ROWS if row[4] in whole]
    for before, after in pairwise(ROWS):
        if (before[4], after[4]) == ("update_preimage", "update_postimage"):
            if before[:2] == after[:2]:
                made.append(event(before[5], "update", after, before))
            else:
                made += [event(before[5], "delete", None, before), event(after[5], "insert", after, None)]
    return made


def feed_of(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    frame = spark.createDataFrame(rows, FEED.rpartition(",")[0])
    return frame.withColumn("_commit_timestamp", F.expr(f"timestamp'{AT} UTC'")).repartition(3)


@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_a_change_data_feed_is_change_events_with_before(spark: SparkSession, backend: str, strategy: Any) -> None:
    of_changes = Engine()
    of_changes.add_many(ABOUT_CHANGES)
    expected = Counter(
        (each["id"], each["type"], match.subscription_id, match.transition)
        for each in events_of_the_feed()
        for match in of_changes.match(json.dumps(each))
    )
    assert {name for _, _, name, _ in expected} == {each["id"] for each in ABOUT_CHANGES}
    changes = changes_of(feed_of(spark, [*ROWS, *AMBIGUOUS, *ODD]), ["id"], collection="orders", tenant=F.col("region"))
    result = match_events(changes.persist(), of_changes, strategy=strategy, keep=["_commit_version"])
    rows = result.matches.collect()
    assert Counter((row["event_id"], row["type"], row["subscription_id"], row["transition"]) for row in rows) == expected
    assert all(row["event_id"].startswith(f"{row['_commit_version']}:") for row in rows)
    bad = {json.loads(row["event"])["id"]: row["detail"] for row in result.rejected.collect()}
    assert bad.keys() == {"8:5", "9:6", "9:7"}
    assert "2 rows before an update and 2 after it have one key" in bad["8:5"]
    assert "truncate" in bad["9:6"]
    changes.unpersist()


def test_the_job_reads_a_change_data_feed(spark: SparkSession, schema: str, tmp_path: Path, backend: str) -> None:
    """Of a table that has such columns: the option that asks Delta for them means nothing to Parquet."""
    feed_of(spark, [*ROWS, *AMBIGUOUS]).write.saveAsTable("shop.orders")
    (tmp_path / "s.jsonl").write_text("\n".join(json.dumps({**each, "tenant": "*"}) for each in ABOUT_CHANGES))
    of_changes = Engine()
    of_changes.add_jsonl(tmp_path / "s.jsonl")
    whole = [{**each, "tenant": "default"} for each in events_of_the_feed() if not each["id"].startswith("6:")]
    whole.append(event(6, "update", (4, "us", "paid", 9), (4, "eu", "paid", 9)) | {"tenant": "default"})
    expected = Counter((each["id"], match.subscription_id) for each in whole for match in of_changes.match(json.dumps(each)))
    words = ["--events", "shop.orders", "--key", "id", "-s", str(tmp_path / "s.jsonl"), "--keep", "_commit_version"]
    stream = ["--stream", "--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"]
    for out, more in (("shop.batch", []), ("shop.stream", stream)):
        done = job(*words, "--out", out, *more)
        assert done.exit_code == SOME_BAD, done.output
        assert pairs(spark.table(out)) == expected
        (bad,) = spark.table(f"{out}_rejected").collect()
        assert "have one key" in bad["detail"]
    done = job(*words, "--out", "shop.none", "--collection", "users")
    assert done.exit_code == SOME_BAD
    assert "large" not in {name for _, name in pairs(spark.table("shop.none"))}


def test_a_feed_that_is_none_is_refused(spark: SparkSession, schema: str) -> None:
    with pytest.raises(ValueError, match="it has no column _change_type, _commit_version, _commit_timestamp"):
        changes_of(spark.table("shop.events"), "number", collection="c")
    with pytest.raises(ValueError, match="there is no column 'nr'"):
        changes_of(feed_of(spark, ROWS), "nr", collection="c")
    with pytest.raises(ValueError, match="key: expected names of columns"):
        changes_of(feed_of(spark, ROWS), [], collection="c")
    with pytest.raises(ValueError, match="call changes_of on each micro-batch"):
        changes_of(spark.readStream.table("shop.events"), "number", collection="c")
