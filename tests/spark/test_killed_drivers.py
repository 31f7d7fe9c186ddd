"""A stream whose driver, JVM and workers are killed at once, at any moment, writes each match once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamer import Engine

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from streamer.spark.versions import publish
from tests.spark.test_job import SUBSCRIPTIONS, events, expected, pairs

pytestmark = pytest.mark.integration

KILLS = 10
FILES = 40


def test_a_stream_that_is_killed_again_and_again_writes_every_match_once(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    lines = events(FILES * 100)
    (tmp_path / "events").mkdir()
    for at in range(FILES):
        (tmp_path / "events" / f"{at:02}.jsonl").write_bytes(b"\n".join([*lines[at * 100 : at * 100 + 100], b"{"]))
    engine = Engine()
    engine.add_many(SUBSCRIPTIONS)
    publish(engine, tmp_path / "subscriptions")
    places = {"--events": "events", "-s": "subscriptions", "--out": "out", "--checkpoint": "checkpoint"}
    command = [sys.executable, "-m", "streamer.spark.job", "--stream", "--trigger", "available-now", "--by-gateway"]
    command += [word for name, place in places.items() for word in (name, str(tmp_path / place))]
    command += ["--events-format", "jsonl", "--option", "maxFilesPerTrigger=1", "--out-format", "jsonl", "--master", "local[2]"]
    seed = random.randrange(2**32)
    rng, out, killed, log = random.Random(seed), tmp_path / "out", [], tmp_path / "log"
    environment = {**os.environ, "STREAMER_BACKEND": backend}
    while True:
        before = batches(out)
        with open(log, "ab") as told:
            running = subprocess.Popen(command, stdout=told, stderr=told, start_new_session=True, env=environment)
        deadline = time.monotonic() + 180
        # Whatever has come of it: a folder half written, one that the stream has not noted, nothing yet of the one after.
        more = rng.choice((1, 1, 3))
        while len(killed) < KILLS and len(batches(out) - before) < more and running.poll() is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.001)
        if len(killed) == KILLS or running.poll() is not None:
            running.wait(600)
            break
        time.sleep(rng.uniform(0, 1.5))
        killed.append(len(before))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert running.returncode == 1, log.read_text()[-3000:]
    assert len(killed) == KILLS, killed
    # It got on between them.
    assert killed[-1] > killed[0] == 0, (seed, killed)
    assert pairs(spark.read.json(str(out))) == expected(lines), seed
    assert spark.read.json(str(tmp_path / "out.rejected")).count() == FILES, seed


def batches(out: Path) -> set[str]:
    """The micro-batches of which something is there, and whether all is."""
    found = out.glob("batch_id=*")
    return {each.name + ("" if (each / "_SUCCESS").exists() else " begun") for each in found}
