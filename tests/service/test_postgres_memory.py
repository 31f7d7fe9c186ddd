"""A large row leaves no memory behind, and the connection that is made for that loses no change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamer.service.connectors.postgres import replication
from tests.service.api import until
from tests.service.conftest import so_far
from tests.service.database import Database, configuration
from tests.tools.postgres import has_wal2json, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


def resident(process: int) -> int:
    """Return how many MB of memory a process has."""
    return int(Path(f"/proc/{process}/status").read_text().partition("VmRSS:")[2].split()[0]) // 1024


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("plugin", ["pgoutput", "wal2json"])
def test_a_connection_that_is_given_up_for_its_memory_loses_and_repeats_no_change(
    database: Database, monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    if plugin == "wal2json":
        if not has_wal2json():
            pytest.skip("no wal2json is installed here")
        database.cluster.trust(plugin)
    connections = []
    start = replication.Replication.start

    def counted(self: replication.Replication, *arguments: object) -> None:
        connections.append(self)
        start(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(replication.Replication, "start", counted)
    monkeypatch.setattr(replication, "_LARGE", 100_000)
    monkeypatch.setattr(replication, "_SETTLED", 0.0)
    source = database.open(plugin=plugin)
    # Rows before and after the large ones, in their transactions and in others.
    for first in range(0, 30, 10):
        database.sql(
            f"INSERT INTO orders VALUES ({first}, 1)",
            "INSERT INTO orders SELECT n, n, repeat('x', CASE n % 10 WHEN 3 THEN 400000 END)"
            f" FROM generate_series({first + 1}, {first + 5}) n",
            f"INSERT INTO orders SELECT n, n FROM generate_series({first + 6}, {first + 9}) n",
        )
    found: list[int] = []
    positions: list[object] = []
    deadline = time.monotonic() + 60
    while len(found) < 30:
        assert time.monotonic() < deadline, found
        if (batch := source.read(0.1)) is not None:
            found += [json.loads(record)["data"]["id"] for record in batch.records]  # type: ignore[arg-type]
            positions += [batch.positions(at) for at in range(len(batch.records))]
            database.confirm(source, batch)
    source.close()
    assert found == list(range(30))
    assert len(set(positions)) == 30
    assert 1 < len(connections) <= 10


@pytest.mark.slow
@pytest.mark.parametrize("most", ["16MiB", "300MiB"], ids=["refused", "delivered"])
def test_a_row_of_100_mb_leaves_no_memory_behind(database: Database, tmp_path: Path, most: str) -> None:
    limits = {"matching": {"limits": {"max_event_bytes": most}}}
    (tmp_path / "c.json").write_text(json.dumps(configuration(database, tmp_path) | limits))
    command = [sys.executable, "-m", "streamer", "serve", "--config", str(tmp_path / "c.json")]
    out = tmp_path / "out.jsonl"
    with open(tmp_path / "log", "wb") as log:
        running = subprocess.Popen(command, stderr=log, cwd=tmp_path, env=os.environ | {"PG": database.dsn})
    try:
        until(lambda: "started" in (tmp_path / "log").read_text(), 60)
        database.sql("INSERT INTO orders VALUES (1, 250)")
        until(lambda: len(so_far(out)) == 1, 60)
        before = resident(running.pid)
        database.sql("INSERT INTO orders VALUES (2, 250, repeat('x', 100000000))")
        until(lambda: "too_long" in (tmp_path / "log").read_text() or out.stat().st_size > 100_000_000, 120)
        # libpq's buffer alone has 95 MB of it, and what was delivered as much. No other row comes that would push it out.
        until(lambda: resident(running.pid) < before + 50, 60)
    finally:
        running.terminate()
        running.wait(60)
