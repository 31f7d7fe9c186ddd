"""The memory of a subscription as the system counts it (RSS), and the time to load many.

```console
python -m benchmarks.memory [--smoke | --record] [--count 250000] [KIND...]
```

Each kind is loaded from a file of JSON lines, in a process of its own. All bytes are by subscription:

- *resident* is the growth of the process; *peak* is its largest growth during loading;
- *stats* is the memory that `Engine.stats` reports, and *share* its share of *resident*;
- *after half* is the growth that remains two seconds after half of the subscriptions were removed one by one, divided by all
  loaded subscriptions;
- *p50* and *p99* are times of `match_ids` with all subscriptions loaded, over events that each match one subscription of their
  collection.

The last row has four times as many subscriptions, of all kinds. The constant memory of an engine matters less there.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

import streamer
from benchmarks.measure import WrongMatches, fastest
from benchmarks.records import Record, machine, parser_for

KINDS: Final = ("equality", "topic and !=", "pattern with a prefix", "lowered CEL", "all four")
COLLECTIONS: Final = 50
COUNT: Final = 250_000
#: Events that are timed, each the fastest of so many rounds.
EVENTS, ROUNDS = 2_000, 5
#: The least share of the resident memory that `Engine.stats` should report; a smaller one is marked `!`.
TOLD: Final = 0.1
ABOUT: Final = "Loaded by `add_jsonl` from a file, with ids, sources and gateways. Linux, RSS from /proc."


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


class Figures(NamedTuple):
    """Of one kind: bytes of JSON, loaded a second of CPU, bytes resident, at most while it loaded, told, and resident after half
    were removed, each by subscription; and microseconds of an event."""

    json: float
    loaded: float
    resident: float
    peak: float
    told: float
    half: float
    p50: float
    p99: float

    def cells(self) -> list[str]:
        """Return them for a table, and the share of what is resident that is told."""
        share = self.told / self.resident
        mark = "" if abs(share - 1) <= TOLD else " !"
        json_, loaded, resident_, peak, told, half = (f"{each:,.0f}" for each in self[:6])
        return [json_, loaded, resident_, peak, told, f"{share:.0%}{mark}", half, f"{self.p50:.1f}", f"{self.p99:.1f}"]


def measure(kind: str, count: int) -> Figures:
    """Load so many of a kind into this process, and match events.

    Raises:
        WrongMatches: an event does not match the one that wants it.
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
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    gc.collect()
    loaded, told = resident() - before, engine.stats().memory_bytes
    took = latencies(engine, kind, sorted({number * (count - 1) // (EVENTS - 1) for number in range(EVENTS)}))
    for number in range(count // 2):
        engine.remove(f"subscription-{number:07d}")
    gc.collect()
    time.sleep(2)
    return Figures(
        json=size,
        loaded=count / loading,
        resident=loaded / count,
        peak=max(loaded, peak) / count,
        told=told / count,
        half=(resident() - before) / count,
        p50=median(took),
        p99=quantiles(took, n=100)[98],
    )


def latencies(engine: streamer.Engine, kind: str, numbers: Sequence[int]) -> list[float]:
    """Return how many microseconds `match_ids` takes of the event that each of these subscriptions wants, spread over time."""
    events = [event(number) for number in numbers]
    for number, given in zip(numbers, events, strict=True):
        if f"subscription-{number:07d}" not in engine.match_ids(given):
            raise WrongMatches(f"{kind}: {number} does not match on the {streamer.BACKEND} backend")
    return fastest(engine.match_ids, events, ROUNDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print or record a table."""
    parser = parser_for(__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=KINDS, help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, default=COUNT, help="subscriptions of a kind")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    count, began = (200 if options.smoke else options.count), machine()
    rows = [(kind, kind, count) for kind in options.kinds]
    if tuple(options.kinds) == KINDS:
        rows.append((f"all four, {4 * count:,}", "all four", 4 * count))
    report = [
        f"| {count:,} of a kind, {COLLECTIONS} collections, bytes each | JSON | load/s | resident | peak | stats | share "
        "| after half | p50 µs | p99 µs |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    # In a new process none finds what another has left free.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        report += [f"| {name} | {' | '.join(pool.apply(measure, (kind, many)).cells())} |" for name, kind, many in rows]
    print(f"# {streamer.BACKEND}", *report, sep="\n", flush=True)
    if options.record:
        name = "memory" if options.count == COUNT else "memory-large"
        print(Record(name, began, ABOUT).write(report))


if __name__ == "__main__":
    main()
