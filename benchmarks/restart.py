"""The cost of a start of `streamer serve` with many stored subscriptions, without and with a snapshot of the engine.

```console
python -m benchmarks.service --restart [--smoke | --record]
```

Each start is a process of its own. Its processor time and its peak memory are read when it logs that it has started, its steady
memory five seconds later. The subscriptions are of 1,000 tenants and of four kinds, equally many: filters, CEL, patterns, topics.
For the last row, one subscription in a hundred was replaced after the snapshot was written. Linux only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Stored, Table

HEADER = (
    "| start | subscriptions | listens after | ready after | CPU until ready | peak | steady | peak ÷ steady |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|"
)
#: `streamer serve`, which writes a snapshot of any number of subscriptions at once after *look* seconds.
SERVE = """
import sys
from streamer.cli.main import main
from streamer.service.tenants import snapshot
snapshot.FEWEST, snapshot.LOOK = 1, float(sys.argv.pop(1))
main()
"""
_AT_ONCE = 20_000


def texts(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tenant and the members of each subscription."""
    for number in range(count):
        condition = (
            {
                "filters": [
                    {"field": "customer", "op": "==", "value": number},
                    {"field": "amount", "op": ">", "value": number % 500},
                ]
            },
            {"cel": f"data.customer == {number} && data.amount > {number % 500}.0"},
            {"pattern": {"data": {"customer": [number], "status": [{"prefix": f"p{number % 50}"}]}}},
            {"topic": f"orders.{number}.*"},
        )[number % 4]
        yield f"t{number % 1000}", {"id": f"s{number}", "gateway_id": f"g{number % 10}", "collection": "orders", **condition}


def fill(directory: Path, count: int) -> None:
    """Store the subscriptions."""
    store = Store(directory)
    table = Table(store)
    rows: list[Stored] = []
    for number, (tenant, members) in enumerate(texts(count), 1):
        text = json.dumps(members).encode()
        rows.append(Stored(tenant=tenant, id=members["id"], origin="api", text=text, created=1, updated=1))
        if number == count or len(rows) == _AT_ONCE:
            table.write(rows, [None] * len(rows), who="api")
            rows = []
    table.close()
    store.database.close()


def change(directory: Path, count: int) -> None:
    """Replace the first subscriptions."""
    store = Store(directory)
    table = Table(store)
    befores: list[Stored] = []
    while len(befores) < count:
        befores += table.walk((befores[-1].tenant, befores[-1].id) if befores else ("", "")).rows
    del befores[count:]
    table.write([replace(row, text=row.text.replace(b'"orders"', b'"others"')) for row in befores], befores, who="api")
    table.close()
    store.database.close()


class Started:
    """A service that was started."""

    def __init__(self, place: Path, look: float) -> None:
        self._log = place / "log"
        began = time.monotonic()
        with open(self._log, "wb") as log:
            command = [sys.executable, "-c", SERVE, str(look), "serve", "--dev", "-c", "streamer.yaml"]
            self.process = subprocess.Popen(command, cwd=place, stderr=log, stdout=subprocess.DEVNULL)
        self.wait("api: ")
        self.listens = time.monotonic() - began
        self.wait("started: ")
        self.ready = time.monotonic() - began
        self.cpu = sum(map(int, self._read("stat").rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        self.peak = self._memory("VmHWM")
        time.sleep(5)
        self.steady = self._memory("VmRSS")

    def wait(self, line: str) -> str:
        """Return the log once it has a line. Raises RuntimeError if the service ends before."""
        while line not in (log := self._log.read_text()):
            if self.process.poll() is not None:
                raise RuntimeError(log)
            time.sleep(0.02)
        return log

    def row(self, name: str, count: int) -> str:
        """Return a row of the report."""
        times = f"{self.listens:.1f} s | {self.ready:.1f} s | {self.cpu:.1f} s"
        return f"| {name} | {count:,} | {times} | {self.peak:,} MB | {self.steady:,} MB | {self.peak / self.steady:.2f} |"

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    def _memory(self, name: str) -> int:
        (found,) = re.findall(rf"{name}:\s+(\d+) kB", self._read("status"))
        return int(found) // 1000


@contextmanager
def started(place: Path, look: float) -> Iterator[Started]:
    """Start a service, and end it."""
    service = Started(place, look)
    try:
        yield service
    finally:
        service.process.send_signal(signal.SIGTERM)
        service.process.wait()


def measure(count: int) -> Iterator[str]:
    """Yield the rows of the report."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        fill(place / "data", count)
        (place / "in.jsonl").touch()
        config = {
            "service": {"data_dir": "data"},
            "sources": {"in": {"type": "file", "path": "in.jsonl"}},
            "sinks": {"out": {"type": "file", "path": "out.jsonl"}},
            "api": {"port": 0},
        }
        (place / "streamer.yaml").write_text(json.dumps(config))
        with started(place, 5.5) as service:
            yield service.row("without a snapshot", count)
            service.wait(" subscriptions written in ")
        with started(place, 3600) as service:
            _expect(service, count, 0)
            yield service.row("with a snapshot", count)
        change(place / "data", count // 100)
        with started(place, 3600) as service:
            _expect(service, count, count // 100)
            yield service.row("1 % changed since", count)


def _expect(service: Started, count: int, changed: int) -> None:
    log = service.wait("started: ")
    (found,) = re.findall(r"snapshot: (\d+) subscriptions in .* s, (\d+) of them changed since", log) or [("0", "0")]
    if tuple(map(int, found)) != (count, changed):
        raise RuntimeError(f"expected {count} subscriptions from the snapshot, {changed} of them changed:\n{log}")
