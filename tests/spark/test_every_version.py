"""Each way of asking gives what the embedded engine does, on every version of PySpark that Streamer takes.

`make spark-versions` runs this module beside each of them (tests/tools/spark_versions.py); the other tests have the newest alone.
So there is little of everything here, and nothing that one version alone can do.
"""

from __future__ import annotations

import json
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.flights import generated, records
from streamer import Engine

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

import pyspark
from typer.testing import CliRunner

from streamer.spark import (
    CogroupOptions,
    compat,
    explain_events,
    match_batches,
    match_events,
    match_stream,
    matches_of,
    publish,
    register,
    rejected_of,
    tallies_of,
    write_by_gateway,
)
from streamer.spark.job.job import app
from streamer.terminal import SOME_BAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

COUNTRIES = ("DE", "FR", "US")
SUBSCRIPTIONS: list[dict[str, Any]] = [
    *(
        {"id": f"s{n}", "gateway_id": f"g{n % 2}", "collection": "orders", "filters": [{"field": "n", "op": ">", "value": n}]}
        for n in range(0, 40, 7)
    ),
    {"id": "german", "tenant": "*", "cel": "data.country == 'DE'"},
    {"id": "called", "collection": "users", "cel": "is_vip(data.n)", "cel_evaluator": "portable"},
]
EVENTS = [
    json.dumps({"id": f"e{n}", "collection": ("orders", "users")[n % 2], "data": {"n": n, "country": COUNTRIES[n % 3]}})
    for n in range(40)
]
WAYS: dict[str, dict[str, Any]] = {
    "broadcast": {"strategy": "broadcast"},
    "shuffled": {"strategy": "cogroup"},
    "in place": {"strategy": "cogroup", "cogroup_options": CogroupOptions(events_per_task=1)},
    "grouped": {"strategy": "cogroup", "grouped": True},
}
BAD = ['{"collection": "orders"', "{"]


def engine() -> Engine:
    made = Engine(cel_functions={"is_vip": lambda n: n % 5 == 0})
    made.add_many(SUBSCRIPTIONS)
    return made


EXPECTED = Counter((json.loads(event)["id"], match.subscription_id) for event in EVENTS for match in engine().match(event))


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    rows = [(n, text) for n, text in enumerate([*EVENTS, *BAD])]
    return spark.createDataFrame([*rows, (None, None)], "`kafka.offset` int, value string").repartition(2)


@pytest.fixture
def incoming(spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number, lines in enumerate((EVENTS[:20], [*EVENTS[20:], *BAD])):
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    yield spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    for query in spark.streams.active:
        query.stop()


def pairs(frame: DataFrame) -> Counter[tuple[str, str]]:
    return Counter((row["event_id"], row["subscription_id"]) for row in frame.collect())


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_one_pass_over_a_batch_gives_matches_rejected_events_and_counts(
    events: DataFrame, backend: str, how: dict[str, Any]
) -> None:
    """Functions travel, and a column whose name has a dot."""
    result = match_events(events, engine(), keep=["kafka.offset"], keep_event=True, **how)
    rows = result.matches.collect()
    assert Counter((row["event_id"], row["subscription_id"]) for row in rows) == EXPECTED
    assert all(row["event"] == EVENTS[row["kafka.offset"]] for row in rows)
    outcomes = result.outcomes.persist()
    try:
        assert pairs(matches_of(outcomes)) == EXPECTED
        assert sorted(row["event"] for row in rejected_of(outcomes).collect()) == sorted(BAD)
        counts = Counter[str]()
        for row in tallies_of(outcomes).collect():
            counts.update({name: row[name] for name in ("events", "matches", "rejected", "ignored")})
    finally:
        outcomes.unpersist()
    assert counts == {"events": len(EVENTS) + 3, "matches": EXPECTED.total(), "rejected": len(BAD), "ignored": 1}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_real_flights_match_as_in_the_embedded_engine(spark: SparkSession, backend: str, how: dict[str, Any]) -> None:
    large = Engine()
    large.add_many(generated.subscriptions(4000))
    # Planes, airports and airlines, which come first, hardly anybody wants.
    flights = list(records.events(every=2000))[-345:]
    expected = Counter((json.loads(event)["id"], match.subscription_id) for event in flights for match in large.match(event))
    frame_of_flights = spark.createDataFrame([(bytearray(event),) for event in flights], "value binary").repartition(3)
    assert pairs(match_events(frame_of_flights, large, **how).matches) == expected
    assert len(expected) > 100, "too few matches to tell"


@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_subscriptions_may_be_a_dataframe(spark: SparkSession, events: DataFrame, strategy: Any) -> None:
    texts = spark.createDataFrame([(json.dumps(each),) for each in SUBSCRIPTIONS], "text string")
    functions = {"is_vip": lambda n: n % 5 == 0}
    assert pairs(match_events(events, texts, strategy=strategy, cel_functions=functions).matches) == EXPECTED


def test_each_event_is_explained(spark: SparkSession, events: DataFrame, backend: str) -> None:
    made = engine()
    texts = spark.createDataFrame([(json.dumps(each),) for each in SUBSCRIPTIONS], "text string")
    for source, more in ((made, {}), (texts, {"cel_functions": {"is_vip": lambda n: n % 5 == 0}})):
        rows = explain_events(events, source, ["s7", "called"], keep=["kafka.offset"], **more).collect()
        assert len(rows) == 2 * (len(EVENTS) + len(BAD) + 1)
        matched = Counter((row["event_id"], row["subscription_id"]) for row in rows if row["matched"])
        assert matched == Counter({pair: 1 for pair in EXPECTED if pair[1] in ("s7", "called")})
        assert sum(row["verdict"] is None for row in rows) == 2 * len(BAD)
        missed = [row for row in rows if row["subscription_id"] == "s7" and row["near_miss"]]
        assert [row["outcome"] for row in missed] == [f"false, saw {row['kafka.offset']}" for row in missed] != []


def test_sql_has_the_ids(spark: SparkSession, events: DataFrame, backend: str) -> None:
    register(spark, engine(), "wanted_by")
    events.createOrReplaceTempView("events_of_every_version")
    rows = spark.sql("SELECT `kafka.offset` AS n, wanted_by(value) AS ids FROM events_of_every_version").collect()
    ids = {row["n"]: row["ids"] for row in rows}
    # It is ignored, and matches nobody.
    assert ids.pop(None) == []
    assert [ids.pop(len(EVENTS) + at) for at in range(len(BAD))] == [None] * len(BAD)
    assert Counter((f"e{n}", each) for n, result in ids.items() for each in result) == EXPECTED


def test_a_stream_follows_its_subscriptions(spark: SparkSession, incoming: DataFrame, tmp_path: Path, backend: str) -> None:
    functions = {"is_vip": lambda n: n % 5 == 0}
    publish(engine(), tmp_path / "versions")
    stream = match_stream(incoming, tmp_path / "versions", observation="counted", cel_functions=functions)
    writer = stream.writeStream.foreachBatch(write_by_gateway(tmp_path / "out"))
    writer.option("checkpointLocation", str(tmp_path / "one")).trigger(availableNow=True).start().awaitTermination()
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == EXPECTED


def test_micro_batches_ship_what_they_need(spark: SparkSession, incoming: DataFrame, tmp_path: Path, backend: str) -> None:
    path, settled = tmp_path / "subscriptions.snapshot", []
    engine().save(path)
    matcher = match_batches(
        path,
        write_by_gateway(tmp_path / "out"),
        rejected=lambda frame, _: settled.append(frame.count()),
        settled=lambda batch: settled.append(sum(row["events"] for row in batch.tallies)),
        cel_functions={"is_vip": lambda n: n % 5 == 0},
    )
    writer = incoming.writeStream.foreachBatch(matcher).option("checkpointLocation", str(tmp_path / "two"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == EXPECTED
    # Either file may come first.
    assert Counter(settled) == Counter([0, 20, len(BAD), 20 + len(BAD)])


@pytest.mark.parametrize("stream", [False, True])
def test_the_job_writes_its_matches(spark: SparkSession, tmp_path: Path, stream: bool) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.jsonl").write_text("\n".join([*EVENTS, *BAD]))
    lines = [each for each in SUBSCRIPTIONS if each["id"] != "called"]
    (tmp_path / "subscriptions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ["--events", str(tmp_path / "events"), "-s", str(tmp_path / "subscriptions.jsonl"), "--out", str(tmp_path / "out")]
    if stream:
        words += ["--stream", "--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"]
    done = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "report.json")])
    assert done.exit_code == SOME_BAD, done.output
    expected = Counter({pair: count for pair, count in EXPECTED.items() if pair[1] != "called"})
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == expected
    assert f"{expected.total():,} matches, {len(BAD)} rejected events" in done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["matches"], report["rejected"]) == (expected.total(), len(BAD))
    if not stream:
        read = [stage for stage in report["stages"] if stage["records"]]
        assert read
        assert all(sum(task["records"] for task in stage["readers"]) == stage["records"] for stage in read)


def test_an_older_version_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(ImportError, match=r"streamer.spark needs PySpark 3\.5 or later, and this is 3\.4\.4"):
        runpy.run_path(compat.__file__)
