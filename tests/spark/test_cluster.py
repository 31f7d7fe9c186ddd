"""A cluster of two executors on hosts of their own, as far as one machine has them: files travel, and slow tasks run twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs in a process of its own, since a process has one context. The first task to come to its third batch stays there until
#: another attempt at the same task has ended, or half a minute.
PROGRAM = """
import json, sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from streamer import Engine
from streamer.spark import CogroupOptions, broadcast, cogroup, match_events

master, folder, root = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.sql.adaptive.enabled": "false",
    "spark.executorEnv.PYTHONPATH": root, "spark.executor.memory": "512m", "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.locality.wait": "0s",
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.25", "spark.speculation.minTaskRuntime": "100ms",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def slow(make, marks):
    def made(*args, **kwargs):
        run = make(*args, **kwargs)

        def slowed(batches):
            task, waits = TaskContext.get().partitionId(), False
            for n, batch in enumerate(batches):
                if n == 2 and not waits:
                    try:
                        (Path(marks) / "slow").mkdir()
                        (Path(marks) / f"slow-{task}").touch()
                        waits = True
                    except FileExistsError:
                        pass
                if waits:
                    for _ in range(300):
                        if (Path(marks) / f"done-{task}").exists():
                            break
                        time.sleep(0.1)
                yield batch
            if not waits and (Path(marks) / f"slow-{task}").exists():
                (Path(marks) / f"done-{task}").touch()

        return lambda batches: run(slowed(batches))

    return made


engine = Engine()
for n in range(450):
    part = {} if n % 10 == 0 else {"collection": f"c{n % 9}"}
    engine.add({"id": f"s{n}", "filters": [{"field": "n", "op": "in", "value": [n, n + 1]}], **part})
texts = [json.dumps({"id": n, "collection": f"c{n % 9}", "data": {"n": n // 2}}) for n in range(600)]
expected = sorted((str(json.loads(text)["id"]), match.subscription_id) for text in texts for match in engine.match(text))
events = spark.createDataFrame([(text,) for text in texts], "value string").repartition(4)
options = CogroupOptions(subscriptions_per_task=20, events_per_task=50, subscriptions_in_place=100)
for strategy, module, name in (
    ("broadcast", broadcast, "by_snapshot"), ("cogroup", cogroup, "route"), ("cogroup", cogroup, "by_groups")
):
    marks = Path(folder) / name
    marks.mkdir()
    make = getattr(module, name)
    setattr(module, name, slow(make, str(marks)))
    with match_events(events, engine, strategy=strategy, cogroup_options=options) as result:
        matches = result.matches
        setattr(module, name, make)
        found = sorted((row.event_id, row.subscription_id) for row in matches.collect())
    assert found == expected, f"{name}: {len(found)} matches, not {len(expected)}"
    # The slow attempt is killed when the other has ended, or ends by itself: the other is what wrote this.
    assert list(marks.glob("done-*")), f"{name}: no task ran twice"
    print(name, "ran twice", flush=True)
# When each executor had a task of it there is a copy of its file on each host, beside that which executors of a host share, and
# nothing of the files before.
result = match_events(events.repartition(8), engine, strategy="broadcast")
for _ in range(20):
    result.matches.count()
    copies = [path for host in ("127.0.0.2", "127.0.0.3") for path in Path(folder, host).rglob("streamer-*")]
    shared = [path for path in Path(folder, "local").rglob("*_cache")]
    if len(copies) == len(shared) == 2:
        break
print("copies", *sorted({path.name.partition(".")[2] for path in copies}), len(copies), len(shared), flush=True)
spark.stop()
"""


@pytest.mark.integration
def test_a_task_that_runs_twice_at_once_doubles_no_match(cluster: str, tmp_path: Path, backend: str) -> None:
    """Speculation: a copy of a slow task runs on the other host; what is matched is as in the embedded engine."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "STREAMER_BACKEND": backend, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root}
    command = [sys.executable, str(program), cluster, str(tmp_path), root]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    reports = [line for line in done.stdout.splitlines() if line.startswith("copies") or line.endswith("ran twice")]
    assert reports[:3] == ["by_snapshot ran twice", "route ran twice", "by_groups ran twice"]
    # Files of the results before were taken back from both hosts.
    assert reports[3:] == ["copies snapshot 2 2"]
