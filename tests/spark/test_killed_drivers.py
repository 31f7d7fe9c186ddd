"""A stream whose driver, JVM and workers are killed at once, at any moment, writes each match once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from streamer import Engine

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from streamer.spark.versions import publish
from streamer.terminal import SOME_BAD
from tests.spark.test_job import SUBSCRIPTIONS, events, expected, pairs
from tests.tools.killed_drivers import kill_again_and_again, written_by_gateway

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
    out, log = tmp_path / "out", tmp_path / "log"
    environment = {**os.environ, "STREAMER_BACKEND": backend}
    code, seed = kill_again_and_again(
        command, lambda: written_by_gateway(out), log, kills=KILLS, steps=(1, 1, 3), within=1.5, environment=environment
    )
    assert code == SOME_BAD, log.read_text()[-3000:]
    assert pairs(spark.read.json(str(out))) == expected(lines), seed
    assert spark.read.json(str(tmp_path / "out.rejected")).count() == FILES, seed
