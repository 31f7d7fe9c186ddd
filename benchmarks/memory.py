"""What a subscription costs in memory as the system sees it (RSS), and how quickly many are loaded.

```console
python -m benchmarks.memory [--smoke | --record] [--count 250000]
```

Each kind is loaded from a file of JSON lines, in a process of its own. *resident* is what the process has more than before, by
subscription; *told* is what `Engine.stats` says, and *share* that of what is resident. *after half* is what is resident when half
of them were removed one by one and the engine was left alone for two seconds, by subscription that was loaded.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine

KINDS: Final = ("equality", "topic and !=", "pattern with a prefix", "lowered CEL", "all four")
COLLECTIONS: Final = 50
COUNT: Final = 250_000
#: What is told should be so near to what is resident; what is not is marked `!`.
TOLD: Final = 0.1
ABOUT: Final = "Loaded by `add_jsonl` from a file; ids, sources and gateways are held. Linux, RSS from /proc."


def subscription(kind: str, number: int) -> dict[str, Any]:
    """Return one of a kind, of about 150 bytes as JSON."""
    conditions: dict[str, dict[str, Any]] = {
        "equality": {"filters": [{"field": "status", "op": "==", "value": f"v{number}"}]},
        "topic and !=": {"topic": f"orders.{number}.#", "filters": [{"field": "n", "op": "!=", "value": number}]},
        "pattern with a prefix": {"pattern": {"data": {"name": [{"prefix": f"p{number}-"}]}}},
        "lowered CEL": {"cel": f"data.total > {number} && data.state == 'x{number}'"},
    }
    if kind == "all four":
        kind = KINDS[number % 4]
    head = {"id": f"subscription-{number:07d}", "collection": f"c{number % COLLECTIONS}", "gateway_id": f"gw-{number % 1000}"}
    return head | conditions[kind]


def event(number: int) -> bytes:
    """Return an event that every kind of this number wants."""
    data = {"status": f"v{number}", "n": -1, "name": f"p{number}-name", "total": number + 1, "state": f"x{number}"}
    return json.dumps({"collection": f"c{number % COLLECTIONS}", "topic": f"orders.{number}.web", "data": data}).encode()


def resident() -> int:
    """Return how many bytes of this process are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(kind: str, count: int) -> tuple[float, float, float, float, float]:
    """Load so many of a kind into this process.

    Returns:
        Bytes of JSON, loaded a second of CPU, and bytes resident, told and resident after half were removed; by subscription.

    Raises:
        WrongMatches: one of them does not match what it wants.
    """
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        for number in range(count):
            file.write(json.dumps(subscription(kind, number)).encode() + b"\n")
        file.flush()
        size = file.tell() / count
        engine = streamer.Engine()
        gc.collect()
        before, begun = resident(), time.process_time()
        engine.add_jsonl(file.name)
        loading = time.process_time() - begun
    gc.collect()
    loaded, told = resident() - before, engine.stats().memory_bytes
    for number in (0, count // 2, count - 1):
        if f"subscription-{number:07d}" not in engine.match_ids(event(number)):
            raise WrongMatches(f"{kind}: {number} does not match on the {streamer.BACKEND} backend")
    for number in range(count // 2):
        engine.remove(f"subscription-{number:07d}")
    gc.collect()
    time.sleep(2)
    return size, count / loading, loaded / count, told / count, (resident() - before) / count


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print or record a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a little data, to see that it runs: the figures mean nothing")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    parser.add_argument("--count", type=int, default=COUNT, help="subscriptions of a kind")
    options = parser.parse_args(arguments)
    count, began = (200 if options.smoke else options.count), machine()
    report = [
        f"| {count:,} of a kind, {COLLECTIONS} collections, bytes each | JSON | load/s | resident | told | share | after half |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    # In a new process none finds what another has left free.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind in KINDS:
            size, speed, loaded, told, half = pool.apply(measure, (kind, count))
            mark = "" if abs(told / loaded - 1) <= TOLD else " !"
            cells = (
                f"{size:,.0f}",
                f"{speed:,.0f}",
                f"{loaded:,.0f}",
                f"{told:,.0f}",
                f"{told / loaded:.0%}{mark}",
                f"{half:,.0f}",
            )
            report.append(f"| {kind} | {' | '.join(cells)} |")
    print(f"# {streamer.BACKEND}", *report, sep="\n", flush=True)
    if options.record:
        print(Record("memory", began, ABOUT).write(report))


if __name__ == "__main__":
    main()
