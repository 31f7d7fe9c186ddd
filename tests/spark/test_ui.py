"""What Spark's own page of a query says of matching. With STREAMER_PICTURES=1 it is the picture of docs/spark.md, too.

In a process of its own, since the session of the other tests has no page.
"""

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
import json, os, sys, time, urllib.request
from pyspark.sql import SparkSession
settings = {
    "spark.ui.port": "0", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}
builder = SparkSession.builder.master("local[2]").appName("orders")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
import streamer
from streamer.spark import match_events
engine = streamer.Engine()
engine.add_many({"id": f"s{n}", "collection": "orders", "filters": [{"field": "n", "op": "==", "value": n}]} for n in range(50))
json_of = "to_json(named_struct('collection', 'orders', 'data', named_struct('n', id % 100)))"
events = spark.range(20_000).selectExpr(json_of + " AS value")
with match_events(events, engine).persist() as result:
    result.matches.write.format("noop").mode("overwrite").save()
page = f"http://127.0.0.1:{spark.sparkContext.uiWebUrl.rpartition(':')[2]}"
without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
asked = f"{page}/api/v1/applications/{spark.sparkContext.applicationId}/sql?details=true"
deadline = time.monotonic() + 60
while True:
    (query,) = json.load(without_proxy.open(asked))
    if query["status"] == "COMPLETED" or time.monotonic() > deadline:
        break
    time.sleep(0.2)
rows = {}
for node in query["nodes"]:
    for metric in node["metrics"]:
        if metric["name"] == "number of output rows":
            rows[node["nodeName"]] = metric["value"]
print("said " + json.dumps([rows, query["planDescription"]]), flush=True)
if picture := os.environ.get("PICTURE"):
    from io import BytesIO
    from PIL import Image
    from playwright.sync_api import sync_playwright
    from tests.tools import look_at_site
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=look_at_site.chromium(), args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1000, "height": 900})
        window.goto(f"{page}/SQL/execution/?id={query['id']}", wait_until="networkidle")
        window.wait_for_timeout(3000)
        taken = window.screenshot(full_page=True)
    with Image.open(BytesIO(taken)) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(picture, optimize=True)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.later_on_the_reference
def test_the_page_of_a_query_says_how_many_events_and_matches_there_are(tmp_path: Path, backend: str) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "STREAMER_BACKEND": backend, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONWARNINGS"] = "ignore"
    if os.environ.get("STREAMER_PICTURES"):
        environment["PICTURE"] = str(ROOT / "docs" / "assets" / "spark-query.png")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    replies = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert replies, done.stderr[-4000:]
    rows, plan = json.loads(replies[0].removeprefix("said "))
    # The counts of the collection are one row for each of the two tasks.
    rows.pop("OverwriteByExpression noop-table", None)
    assert rows == {"Range": "20,000", "MapInArrow": "10,002", "InMemoryTableScan": "10,002", "Filter": "10,000"}
    assert "match_by_snapshot(_streamer_event" in plan
