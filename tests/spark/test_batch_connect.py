"""Over Spark Connect, which has no SparkContext: in a process of its own, since one holds a classic session or this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import missing

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
import streamer
from pathlib import Path
from streamer.spark import explain_events, match_batches, match_events, register
engine = streamer.Engine()
engine.add({"id": "de", "collection": "orders", "filters": [{"field": "country", "op": "==", "value": "DE"}]})
engine.add({"id": "all"})
texts = ['{"id": 1, "collection": "orders", "data": {"country": "DE"}}', '{"id": 2, "collection": "users"}', "{"]
events = spark.createDataFrame([(text,) for text in texts], "value string")
said = {}
for strategy in ("broadcast", "cogroup"):
    result = match_events(events, engine, strategy=strategy)
    said[strategy] = sorted([row.event_id, row.subscription_id] for row in result.matches.collect())
    said[f"{strategy} rejected"] = [[row.event, row.code, row.position] for row in result.rejected.collect()]
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
    matcher = match_batches(str(here / path), lambda frame, _: frame.write.mode("append").parquet(str(here / "streamed")))
    writer = spark.readStream.text(str(here / "incoming")).writeStream.foreachBatch(matcher)
    writer.option("checkpointLocation", str(here / f"{path}.checkpoint")).trigger(availableNow=True).start().awaitTermination()
    match_events(events, str(here / path)).matches.count()
rows = spark.read.parquet(str(here / "streamed")).collect()
said["streamed"] = sorted([row.event_id, row.subscription_id] for row in rows)
said["session"] = type(spark).__module__
print("said " + json.dumps(said), flush=True)
# Its server ends with it.
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.later_on_the_reference
def test_spark_connect_gives_the_same(tmp_path: Path, backend: str) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status (pip install 'pyspark[connect]')")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "STREAMER_BACKEND": backend, "PYTHONPATH": path}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore"}
    # A local server that belongs to no other session.
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert said, done.stderr[-4000:]
    pairs = [["1", "all"], ["1", "de"], ["2", "all"]]
    rejected = [["{", "malformed_json", 1]]
    answers = json.loads(said[0].removeprefix("said "))
    assert answers.pop("session").startswith("pyspark.sql.connect")
    assert answers == {
        "broadcast": pairs,
        "broadcast rejected": rejected,
        "cogroup": pairs,
        "cogroup rejected": rejected,
        "sql": [[], ["all"], ["all", "de"]],
        "streamed": sorted(2 * pairs),
        "why": [["", "", False], ["1", "", False], ["2", "collection", False]],
    }
