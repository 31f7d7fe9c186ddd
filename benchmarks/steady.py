"""The time and memory of the service at a steady rate, a third of its goals: time for each match, and memory over minutes.

```console
python -m benchmarks.steady [--smoke | --record] [--seconds 120]
```

A process appends events to a file when they are due, even if the earlier ones were not delivered, so that a delay counts for
every event that waits. The whole service runs, follows that file, and writes the matches to another file, or posts them in
batches. The reader of the matches is a process of its own. A match's time is from the due time of its event until it is read.
The writer, the reader and the service share the machine.

Memory is that of the service's process (RSS). It is flat if its median in the last quarter of the time is at most a tenth above
that in the second; the first quarter fills caches and queues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from benchmarks.service import receive
from benchmarks.streams import MOST_ADDED, until
from streamer import Config
from streamer.config.loader import Loaded
from streamer.service.run.serve import Service

#: How much larger the memory may be in the last quarter than in the second.
FLAT = 1.1
#: Seconds between two looks of who writes and of who reads.
_TICK = 0.002
_DUE = re.compile(rb"due ([0-9]+)")


@dataclass(frozen=True, slots=True)
class Work:
    """So many events a second, of which one in *wanted* matches.

    Attributes:
        batch: messages of a request; 0 for a file.
        subscriptions: each wants one customer.
    """

    name: str
    rate: int
    wanted: int
    batch: int = 0
    subscriptions: int = 10_000


WORK = (
    Work("file, 0.2 matches an event", rate=20_000, wanted=5),
    Work("webhooks, 100 matches a request", rate=20_000 // 3, wanted=1, batch=100),
)
SMOKE = tuple(replace(work, rate=200, subscriptions=50) for work in WORK)
HEADER = (
    "| steady | events/s | matches | p50, ms | p99, ms | at most "
    "| RSS in the second quarter, MiB | in the last | at most | met |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


def write_events(path: Path, work: Work, count: int) -> None:
    """Write events when they are due; the process of who writes."""
    written, began = 0, time.monotonic_ns()
    with open(path, "ab", buffering=0) as file:
        while written < count:
            due = min(int((time.monotonic_ns() - began) / 1e9 * work.rate) + 1, count)
            file.write(b"".join(_event(number, work, began) for number in range(written, due)))
            written = due
            time.sleep(_TICK)


def _event(number: int, work: Work, began: int) -> bytes:
    customer = number % work.subscriptions if number % work.wanted == 0 else -1
    note = f"due {began + number * 10**9 // work.rate} {'x' * 150}"
    event = {"id": number, "collection": "orders", "type": "insert", "data": {"customer": customer, "note": note}}
    return json.dumps(event).encode() + b"\n"


def read_matches(port: Any, taken: Any, times: Any, out: Path | None) -> None:
    """Note how late each match is; the process of who reads."""
    noted = itertools.count()

    def note(text: bytes) -> None:
        now, found = time.monotonic_ns(), _DUE.findall(text)
        for due in found:
            times[next(noted)] = (now - int(due)) / 1e6
        # What is counted has been noted.
        taken.value += len(found)

    if out is None:
        receive(port, note)
        return
    out.touch()
    port.value, rest = 1, b""
    with open(out, "rb", buffering=0) as file:
        while True:
            if not (text := file.read(2**20)):
                time.sleep(_TICK)
                continue
            whole, _, rest = (rest + text).rpartition(b"\n")
            note(whole)


def _memory() -> float:
    """Return the memory that this process holds, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(work: Work, seconds: float) -> str:
    """Run for so long; return a row of the report.

    Raises:
        WrongMatches: another number of matches came.
    """
    spawn = multiprocessing.get_context("spawn")
    events = int(work.rate * seconds)
    expected = len(range(0, events, work.wanted))
    # Room for what must not come.
    times = spawn.Array("d", 2 * expected + 1, lock=False)
    port, taken = spawn.Value("i", 0), spawn.Value("q", 0)
    memory = []
    with tempfile.TemporaryDirectory() as folder:
        source, subscriptions, out = (Path(folder) / name for name in ("events.jsonl", "subscriptions.jsonl", "out.jsonl"))
        source.touch()
        rows = (
            {
                "id": f"s{n}",
                "gateway_id": "g",
                "collection": "orders",
                "filters": [{"field": "customer", "op": "==", "value": n}],
            }
            for n in range(work.subscriptions)
        )
        subscriptions.write_text("".join(json.dumps(row) + "\n" for row in rows))
        reading = spawn.Process(target=read_matches, args=(port, taken, times, None if work.batch else out), daemon=True)
        reading.start()
        until(lambda: port.value)
        sink = {"type": "file", "path": str(out)}
        if work.batch:
            there = {"url": f"http://127.0.0.1:{port.value}/", "ports": [port.value], "networks": ["127.0.0.0/8"]}
            sink = {"type": "webhook", "allow_http": True, "batch": work.batch, **there}  # type: ignore[dict-item]
        config = {
            "subscriptions": [str(subscriptions)],
            "sources": {"orders": {"type": "file", "path": str(source), "poll": "5ms"}},
            "sinks": {"out": sink},
            "service": {"data_dir": str(Path(folder) / "data")},
        }
        service = Service(lambda: Loaded(Config.from_dict(config)))
        running = threading.Thread(target=service.run)
        running.start()
        writing = spawn.Process(target=write_events, args=(source, work, events), daemon=True)
        try:
            # The first match comes when the service has started, and is not timed.
            source.write_bytes(_event(0, work, time.monotonic_ns()))
            until(lambda: taken.value or not running.is_alive())
            writing.start()
            while writing.is_alive() and running.is_alive():
                memory.append(_memory())
                time.sleep(min(0.5, seconds / 20))
            until(lambda: taken.value > expected or not running.is_alive())
        finally:
            service.stop()
            running.join()
            for process in (writing, reading):
                process.terminate()
                process.join()
    if taken.value != 1 + expected:
        raise WrongMatches(f"{work.name}: {taken.value} matches of {1 + expected}")
    late = sorted(times[1 : 1 + expected])
    middle, p99 = (late[int(expected * part)] for part in (0.5, 0.99))
    quarter = len(memory) // 4
    before, after = median(memory[quarter : 2 * quarter]), median(memory[3 * quarter :])
    met = "yes" if p99 <= MOST_ADDED and after <= FLAT * before else "no"
    added = f"{middle:.1f} | {p99:.1f} | {MOST_ADDED}"
    return f"| {work.name} | {work.rate:,} | {expected:,} | {added} | {before:.1f} | {after:.1f} | {FLAT * before:.1f} | {met} |"


def main(arguments: list[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    parser.add_argument("--seconds", type=float, default=120, help="how long each work runs (120)")
    options = parser.parse_args(arguments)
    rows = [HEADER]
    print(HEADER)
    for work in SMOKE if options.smoke else WORK:
        try:
            rows.append(measure(work, 0.5 if options.smoke else options.seconds))
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
        print(rows[-1], flush=True)
    if options.record:
        print(Record("service-steady", machine(), f"{options.seconds:g} s of each, on one machine.").write(rows))


if __name__ == "__main__":
    main()
