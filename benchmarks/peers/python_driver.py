"""Streamer's Python API on a workload's files: `python -m benchmarks.peers.python_driver WORKLOAD EVENTS PATTERNS`.

Prints the line that the Rust drivers print; the clock counts core time around `Engine.match_ids`, which returns a list of
id strings.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.memory import resident
from benchmarks.peers.check import checksum
from streamer import Engine, EventLayout


def main(workload: str, events_path: str, patterns_path: str) -> None:
    """Add the patterns, match the events, print one line of JSON."""
    warm, measure, cut = (
        float(os.environ.get(name, default)) for name, default in (("WARM_S", 2), ("MEASURE_S", 3), ("CUT_S", 60))
    )
    limit = int(os.environ.get("EVENT_LIMIT", sys.maxsize))
    events = [line.encode() for line in Path(events_path).read_text().splitlines()[:limit]]
    texts = Path(patterns_path).read_text().splitlines()
    before = resident()
    started = time.perf_counter()
    engine = Engine(layout=EventLayout.preset("document"))
    lines = map(json.loads, texts)
    engine.add_many({**line, "id": str(line["id"])} for line in lines)
    match_ids: Callable[[bytes], list[str]] = engine.match_ids
    match_ids(events[0])
    build = time.perf_counter() - started
    gc.collect()
    held = resident() - before
    found: list[list[int]] = []
    clock = time.thread_time
    begun = clock()
    for at, event in enumerate(events):
        found.append([int(name) for name in match_ids(event)])
        if at % 16 == 15 and clock() - begun > cut:
            break
    best, passes, read = clock() - begun, 1, len(found)
    if best < cut:
        while clock() - begun < warm:
            for event in events:
                match_ids(event)
        passes, begun = 0, clock()
        while passes == 0 or clock() - begun < measure:
            started = clock()
            for event in events:
                match_ids(event)
            best, passes = min(best, clock() - started), passes + 1
    print(
        json.dumps(
            {
                "peer": "streamer-py",
                "workload": workload,
                "best_ns": best / read * 1e9,
                "events": read,
                "passes": passes,
                "matches": sum(map(len, found)),
                "check": checksum(found),
                "build_s": build,
                "held_kb": held // 1024,
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
