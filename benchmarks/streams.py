"""The cost of streams of matches: a service that a thousand clients read, as server-sent events.

```console
python -m benchmarks.streams [--smoke | --record]
```

The whole service runs, with its API: it reads a file, matches, commits each match to a history, and sends it to the history's
clients. They are in a process of their own, on the same machine, and count the messages. In one work each client has a gateway
of its own, in another ten clients share a gateway, and in the last all share one. The clock runs from the moment when the
events are written until each client has all its messages. Then events are written at a third of the goal, when they are due,
even if the earlier ones have not arrived, so that a delay counts for every event that waits. Added time is the time from the
due time of an event until a client has its message.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import re
import resource
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from streamer import Config
from streamer.config.loader import Loaded
from streamer.service.run.serve import Service

#: Messages a second, at least.
GOAL = 5_000
#: Milliseconds that all but one message in a hundred take at most, at a third of that.
MOST_ADDED = 50
_FILES = 8192
_DUE = re.compile(rb"due ([0-9]+)")


@dataclass(frozen=True, slots=True)
class Work:
    """How many clients read how many gateways, and how many events match one of these each."""

    name: str
    clients: int
    gateways: int
    events: int

    @property
    def messages(self) -> int:
        """How many are sent."""
        return self.events * self.clients // self.gateways


WORK = (
    Work("a gateway each", clients=1000, gateways=1000, events=50_000),
    Work("ten to a gateway", clients=1000, gateways=100, events=10_000),
    Work("all at one gateway", clients=1000, gateways=1, events=200),
)
SMOKE = (Work("a gateway each", clients=6, gateways=6, events=60), Work("all at one gateway", clients=6, gateways=1, events=20))
HEADER = (
    "| streams | clients | messages | µs of CPU a message | messages/s | at least "
    "| timed | to a client, p50, ms | p99, ms | at most | met |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


def more_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def read_streams(port: int, clients: int, gateways: int, open_: Any, taken: Any, times: Any) -> None:
    """Open streams, count what comes by them, and note how late is what says when it was due; the process of the clients."""
    more_files()
    timed = itertools.count()

    class Client(asyncio.Protocol):
        def __init__(self, path: str) -> None:
            self._path, self._rest, self._has_begun = path, b"", False

        def connection_made(self, transport: Any) -> None:
            transport.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        def data_received(self, data: bytes) -> None:
            if not self._has_begun:
                if not data.startswith(b"HTTP/1.1 200"):
                    raise WrongMatches(data[:300].decode("ascii", "replace"))
                self._has_begun = True
                open_.value += 1
            whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
            now = time.monotonic_ns()
            for due in _DUE.findall(whole):
                times[next(timed)] = (now - int(due)) / 1e6
            # What is counted has been noted.
            taken.value += whole.count(b"\ndata: {")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in range(clients):
            path = f"/v1/gateways/g{number % gateways}/matches"
            await loop.create_connection(lambda path=path: Client(path), "127.0.0.1", port)  # type: ignore[misc]
        await asyncio.Event().wait()

    asyncio.run(run())


def measure(work: Work, seconds_timed: float) -> str:
    """Let clients read; return a row of the report.

    Args:
        seconds_timed: for how long messages come at a third of the goal.

    Raises:
        WrongMatches: another number of messages came.
    """
    spawn = multiprocessing.get_context("spawn")
    open_, taken = spawn.Value("i", 0), spawn.Value("q", 0)
    each = work.clients // work.gateways
    interval = 3 * each / GOAL
    singles = max(int(seconds_timed / interval), 1)
    times = spawn.Array("d", singles * each, lock=False)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "events.jsonl"
        source.touch()
        subscriptions = Path(folder) / "subscriptions.jsonl"
        subscriptions.write_text(
            "".join(
                json.dumps(
                    {
                        "id": f"s{number}",
                        "gateway_id": f"g{number}",
                        "collection": "orders",
                        "filters": [{"field": "customer", "op": "==", "value": number}],
                    }
                )
                + "\n"
                for number in range(work.gateways)
            )
        )
        many = 100_000
        limits = dict.fromkeys(("connections", "connections_of_a_peer", "requests", "requests_of_a_token", "streams"), many)
        config = {
            "subscriptions": [str(subscriptions)],
            "sources": {"orders": {"type": "file", "path": str(source), "poll": "5ms"}},
            "sinks": {"out": {"type": "file", "path": str(Path(folder) / "out.jsonl")}},
            "service": {"data_dir": str(Path(folder) / "data")},
            "api": {
                "port": 0,
                "limits": limits,
                "quotas": {"streams": many, "gateways": 10_000, "requests_a_second": many, "spool": "1GiB"},
            },
        }
        service = Service(lambda: Loaded(Config.from_dict(config)), dev=True)
        running = threading.Thread(target=service.run)
        running.start()
        reading = None
        try:
            until(lambda: service.api_port is not None)
            from streamer.service.tenants.gateways import Settings

            for number in range(work.gateways):
                service.gateways.put("default", f"g{number}", Settings(), None, lambda _: None)
            arguments = (service.api_port, work.clients, work.gateways, open_, taken, times)
            reading = spawn.Process(target=read_streams, args=arguments, daemon=True)
            reading.start()
            until(lambda: open_.value == work.clients)
            note = "x" * 150
            lines = b"".join(_event(number, number % work.gateways, note) for number in range(work.events))
            cpu, began = time.process_time(), time.perf_counter()
            with open(source, "ab") as file:
                file.write(lines)
            until(lambda: taken.value >= work.messages)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            began_timed = time.monotonic_ns()
            with open(source, "ab", buffering=0) as file:
                for number in range(singles):
                    due = began_timed + int(number * interval * 1e9)
                    time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
                    file.write(_event(work.events + number, number % work.gateways, f"{note}due {due}"))
            until(lambda: taken.value >= work.messages + singles * each)
            expected = work.messages + singles * each
            if taken.value != expected:
                raise WrongMatches(f"{work.name}: {taken.value} messages of {expected}")
        finally:
            service.stop()
            running.join()
            if reading is not None:
                reading.terminate()
                reading.join()
    late = sorted(times)
    middle, p99 = (late[int(len(late) * part)] for part in (0.5, 0.99))
    rate = work.messages / seconds
    met = "yes" if rate >= GOAL and p99 <= MOST_ADDED else "no"
    figures = f"{cpu / work.messages * 1e6:.1f} | {rate:,.0f} | {GOAL:,}"
    added = f"{len(late):,} | {middle:.1f} | {p99:.1f} | {MOST_ADDED} | {met}"
    return f"| {work.name} | {work.clients:,} | {work.messages:,} | {figures} | {added} |"


def _event(number: int, customer: int, note: str) -> bytes:
    event = {"id": number, "collection": "orders", "type": "insert", "data": {"customer": customer, "note": note}}
    return json.dumps(event).encode() + b"\n"


def until(is_so: Any) -> None:
    deadline = time.monotonic() + 300
    while not is_so():
        if time.monotonic() > deadline:
            raise WrongMatches("timeout: no progress within 300 s")
        time.sleep(0.005)


def main(arguments: list[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    options = parser.parse_args(arguments)
    more_files()
    rows = [HEADER]
    print(HEADER)
    for work in SMOKE if options.smoke else WORK:
        try:
            rows.append(measure(work, 0.1 if options.smoke else 20))
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
        print(rows[-1], flush=True)
    if options.record:
        print(Record("service-streams", machine(), "Server-sent events, clients on the same machine.").write(rows))


if __name__ == "__main__":
    main()
