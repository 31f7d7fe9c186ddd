"""The time to open a snapshot, to match the first event of a collection, and to write to the opened snapshot.

```console
python -m benchmarks.snapshot [--smoke | --record | --subscriptions 1000000]
```

The file is in the cache of the system, as it is for the second of several processes. The time to open it is the median of some
openings. The first event of a collection opens its section, and is timed for each collection.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from streamer.core.snapshot import read_directory

COLLECTIONS: Final = 50
EVENTS: Final = 500
OPENINGS: Final = 7
ABOUT: Final = (
    "The file is in the cache of the system. *matches* is the number of matches of 500 events, of 50 collections in turn."
)
#: How many subscriptions, and how many matches the events must have.
CASES: Final = {2_000: 41, 100_000: 2_164, 1_000_000: 22_074}


def subscriptions(count: int) -> Iterator[bytes]:
    """Yield *count* subscriptions in 50 collections: customers, products with an amount, tags, topics, CEL."""
    random = Random(1)
    for index in range(count):
        country = random.choice(["DE", "FR", "GB", "US", "JP"])
        kinds: list[dict[str, Any]] = [
            {"filters": [{"field": "customer.id", "op": "==", "value": random.randrange(20_000)}]},
            {
                "filters": [
                    {"field": "product", "op": "in", "value": [random.randrange(500) for _ in range(3)]},
                    {"field": "amount", "op": ">", "value": random.randrange(900, 1_000)},
                ]
            },
            {"pattern": {"data": {"tags": [{"prefix": f"vip-{random.randrange(500)}"}], "state": [random.choice("abcd")]}}},
            {"topic": f"orders.{country}.{random.randrange(1_000)}.#"},
            {"cel": f"data.customer.country == '{country}' && data.amount > {random.randrange(900, 1_000)}.0"},
        ]
        members = {"id": f"s{index}", "gateway_id": f"g{index % 100}", "collection": f"c{index % COLLECTIONS}"}
        yield json.dumps(members | random.choice(kinds)).encode()


def events(count: int) -> list[bytes]:
    """Return *count* events, of each collection in turn."""
    random = Random(2)
    made = []
    for index in range(count):
        data = {
            "amount": random.uniform(1, 1_000),
            "product": random.randrange(500),
            "state": random.choice("abcd"),
            "tags": [f"vip-{random.randrange(500)}x"],
            "customer": {"id": random.randrange(20_000), "country": random.choice(["DE", "FR"])},
        }
        topic = f"orders.DE.{random.randrange(1_000)}.x"
        made.append(json.dumps({"collection": f"c{index % COLLECTIONS}", "topic": topic, "data": data}).encode())
    return made


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds that it took, and what it returned."""
    begun = time.perf_counter_ns()
    result = act()
    return (time.perf_counter_ns() - begun) / 1e6, result


def measure(count: int, matches: int, folder: Path) -> list[tuple[str, str]]:
    """Measure one size; return what was measured, in words.

    Raises:
        WrongMatches: the events had another number of matches, before or after.
    """
    given = events(EVENTS)
    engine = streamer.Engine()
    adding, _ = timed(lambda: engine.add_many(subscriptions(count)))
    saving, _ = timed(lambda: engine.save(folder / "s"))
    found = sum(map(engine.match_count, given))
    path = folder / "s"
    directory = read_directory(path)
    lines, images = sum(place.length for place in directory.lines), sum(place.length for place in directory.images)
    opening = median(timed(lambda: streamer.Engine.load(path))[0] for _ in range(OPENINGS))
    loaded = streamer.Engine.load(path)
    firsts = [timed(partial(loaded.match_count, event)) for event in given[:COLLECTIONS]]
    rest, more = timed(lambda: sum(map(loaded.match_count, given[COLLECTIONS:])))
    writing, _ = timed(lambda: loaded.add({"id": "first", "collection": "c0"}))
    again, _ = timed(lambda: loaded.add({"id": "second", "collection": "c0"}))
    if found != matches or sum(each for _, each in firsts) + more != matches or len(loaded) != count + 2:
        raise WrongMatches(f"{count} subscriptions: {found} matches before, {sum(each for _, each in firsts) + more} after")
    milliseconds = [taken for taken, _ in firsts]
    return [
        ("subscriptions, in 50 collections", f"{count:,}"),
        ("adding them, and saving them", f"{adding / 1e3:,.1f} s, {saving / 1e3:,.1f} s"),
        ("bytes a subscription: lines, image", f"{lines / count:.0f}, {images / count:.0f}"),
        ("opening the file", f"{opening:.1f} ms"),
        ("the first event of a collection, median and worst", f"{median(milliseconds):.1f} ms, {max(milliseconds):.1f} ms"),
        ("each event after that", f"{rest / (EVENTS - COLLECTIONS) * 1e3:.1f} µs"),
        ("the first write, and the second", f"{writing:.1f} ms, {again:.2f} ms"),
        ("matches", f"{matches:,}"),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print or record a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot", description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    parser.add_argument("--subscriptions", type=int, choices=CASES, help="only this size")
    given = parser.parse_args(arguments)
    began = machine()
    sizes = [min(CASES)] if given.smoke else [given.subscriptions] if given.subscriptions else sorted(CASES)
    report = []
    for count in sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(count, CASES[count], Path(folder))
        report += ["| what | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows), ""]
        print(f"# {streamer.BACKEND}, {os.cpu_count()} cores", *report[-len(rows) - 3 :], sep="\n")
    if given.record:
        print(Record("snapshot", began, ABOUT).write(report))


if __name__ == "__main__":
    main()
