"""Over Spark Connect, which has no SparkContext: in a process of its own, since one holds a classic session or this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import streamer
from tests.spark.conftest import missing
from tests.tools.fetched import NotThere
from tests.tools.lakes import connect_jars
from tests.tools.spark_versions import VERSIONS, environment

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
import streamer
from pathlib import Path
from streamer.spark import CogroupOptions, explain_events, match_batches, match_events, match_stream, register
engine = streamer.Engine()
engine.add({"id": "de", "collection": "orders", "filters": [{"field": "country", "op": "==", "value": "DE"}]})
engine.add({"id": "all"})
texts = ['{"id": 1, "collection": "orders", "data": {"country": "DE"}}', '{"id": 2, "collection": "users"}', "{"]
events = spark.createDataFrame([(text,) for text in texts], "value string")
said = {}
in_place = CogroupOptions(events_per_task=1)
ways = {"broadcast": ("broadcast", None), "cogroup": ("cogroup", None), "in place": ("cogroup", in_place)}
for way, (strategy, numbers) in ways.items():
    result = match_events(events, engine, strategy=strategy, cogroup_options=numbers)
    said[way] = sorted([row.event_id, row.subscription_id] for row in result.matches.collect())
    said[f"{way} rejected"] = [[row.event, row.code, row.position] for row in result.rejected.collect()]
why = explain_events(events, engine, "de").collect()
said["why"] = sorted([row.event_id or "", row.place or "", row.near_miss] for row in why)
register(spark, engine)
events.createOrReplaceTempView("events")
said["sql"] = sorted(sorted(row.ids or []) for row in spark.sql("SELECT streamer_match(value) AS ids FROM events").collect())
# What foreachBatch is given runs in a process of its own, which ships the same subscriptions to the same session.
here = Path.cwd()
engine.save(here / "subscriptions.snapshot")
(here / "incoming").mkdir()
(here / "incoming" / "1.jsonl").write_text("\\n".join(texts))
for path in ("subscriptions.snapshot", "again.snapshot"):
    engine.save(here / path)
    stream = spark.readStream.text(str(here / "incoming"))
    try:
        matcher = match_batches(str(here / path), lambda frame, _: frame.write.mode("append").parquet(str(here / "streamed")))
        writer = stream.writeStream.foreachBatch(matcher)
    except streamer.ConfigError as error:
        said["refused"] = str(error)
        writer = match_stream(stream, str(here / path)).writeStream.format("parquet")
        writer = writer.option("path", str(here / "streamed" / path))
    writer.option("checkpointLocation", str(here / f"{path}.checkpoint")).trigger(availableNow=True).start().awaitTermination()
    match_events(events, str(here / path)).matches.count()
rows = spark.read.option("recursiveFileLookup", "true").parquet(str(here / "streamed")).collect()
said["streamed"] = sorted([row.event_id, row.subscription_id] for row in rows)
said["session"] = type(spark).__module__
print("said " + json.dumps(said), flush=True)
# Its server ends with it.
spark.stop()
"""


def check(folder: Path, path: list[Path], *, refuses: bool = False, **more: str) -> None:
    """Run the program with a local server that belongs to no other session, and compare what it said.

    Args:
        refuses: `match_batches` says that it does not work there, and `match_stream` does instead.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "SPARK_HOME")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | more,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    replies = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert replies, done.stderr[-4000:]
    pairs = [["1", "all"], ["1", "de"], ["2", "all"]]
    rejected = [["{", "malformed_json", 1]]
    answers = json.loads(replies[0].removeprefix("said "))
    assert answers.pop("session").startswith("pyspark.sql.connect")
    assert ("match_batches does not work over Spark Connect" in answers.pop("refused", "")) == refuses
    assert answers == {
        "broadcast": pairs,
        "broadcast rejected": rejected,
        "cogroup": pairs,
        "cogroup rejected": rejected,
        "in place": pairs,
        "in place rejected": rejected,
        "sql": [[], ["all"], ["all", "de"]],
        "streamed": sorted(2 * pairs),
        "why": [["", "", False], ["1", "", False], ["2", "collection", False]],
    }


@pytest.mark.slow
@pytest.mark.later_on_the_reference
def test_spark_connect_gives_the_same(tmp_path: Path, backend: str) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status (pip install 'pyspark[connect]')")
    inherited = [Path(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    check(tmp_path, [ROOT, *inherited], STREAMER_BACKEND=backend)


@pytest.mark.integration
@pytest.mark.parametrize("version", VERSIONS)
def test_spark_connect_gives_the_same_on_each_version(tmp_path: Path, version: str) -> None:
    if (reason := missing()) is not None:
        pytest.fail(reason)
    try:
        jars = connect_jars(version)
    except NotThere as error:
        pytest.fail(str(error))
    submit = f"--jars {','.join(map(str, jars))} pyspark-shell" if jars else "pyspark-shell"
    more = {"STREAMER_BACKEND": streamer.BACKEND, "PYSPARK_SUBMIT_ARGS": submit}
    check(tmp_path, [environment(version), ROOT], refuses=version == "3.5", **more)
