"""Measure many conditions without a selective one, next to a column scan and a bitset in numpy: W11.

```console
python -m benchmarks.dense [--smoke | --record]
```

Each subscription has conditions on some of twenty fields: ranges, `not in`, or booleans. The conditions are selective only
together. The column scan compares the bounds of one field after the other with the value of the event. The bitset has, for each
field and each of 64 cells of its values, a bit for each subscription that can match; it compares the remaining subscriptions
exactly. Both get parsed values and return numbers; Streamer gets bytes. All three must find the same matches, and
they take turns, round by round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import report
from streamer import _backend

FIELDS, CELLS = 20, 64
SIZES = (100_000, 1_000_000)
EVENTS, ROUNDS = 200, 3
#: Values of a field with `not in` conditions, and the number of values that each subscription excludes.
NAMES, EXCLUDED = 8, 4
ABOUT = "µs an event, the median of 200 events, each in its fastest round. From Python, `match_count`, one thread."


@dataclass(frozen=True)
class Kind:
    """Conditions on *tested* of the fields: ranges of a *width*, or sets of the *values* that a field has."""

    name: str
    tested: int
    width: float = 0.0
    values: int = 0


KINDS = (
    Kind("3 of 20 ranges, width 0.1", 3, width=0.1),
    Kind("5 of 20 ranges, width 0.25", 5, width=0.25),
    Kind("10 of 20 ranges, width 0.5", 10, width=0.5),
    Kind("10 of 20 `not in`, 4 of 8 values", 10, values=NAMES),
    Kind("10 of 20 booleans", 10, values=2),
)


class Workload:
    """Subscriptions of a kind as columns: for each field the bounds of matching values, or a bit for each value."""

    def __init__(self, kind: Kind, count: int) -> None:
        """Draw them."""
        dice = np.random.default_rng(11)
        self.kind, self.count = kind, count
        chosen = dice.random((count, FIELDS)).argpartition(kind.tested, axis=1)[:, : kind.tested]
        self.tests = np.zeros((FIELDS, count), bool)
        self.tests[chosen.T, np.arange(count)] = True
        if kind.width:
            low = np.round(dice.random((FIELDS, count)) * (1 - kind.width), 6)
            self.low = np.where(self.tests, low, -np.inf)
            self.high = np.where(self.tests, np.round(low + kind.width, 6), np.inf)
        else:
            wanted = dice.random((FIELDS, count, kind.values)).argsort(axis=2) < kind.values // 2
            self.wanted = np.where(self.tests[:, :, None], wanted, True)
        self.cells = self._cells()

    def _cells(self) -> np.ndarray:
        """Return a bit for each subscription that can match, by field and cell."""
        count = CELLS if self.kind.width else self.kind.values
        cells = np.empty((FIELDS, count, -(-self.count // 64) * 8), np.uint8)
        cells[:] = 0
        for field in range(FIELDS):
            for cell in range(count):
                if self.kind.width:
                    may = (self.low[field] < (cell + 1) / CELLS) & (self.high[field] > cell / CELLS)
                else:
                    may = self.wanted[field, :, cell]
                packed = np.packbits(may, bitorder="little")
                cells[field, cell, : len(packed)] = packed
        return cells.view(np.uint64)

    def events(self, count: int) -> list[Any]:
        """Draw events: a value of each field."""
        dice = np.random.default_rng(12)
        if self.kind.width:
            return list(np.round(dice.random((count, FIELDS)), 6))
        return list(dice.integers(0, self.kind.values, (count, FIELDS)))

    def as_bytes(self, values: Any) -> bytes:
        """Return the JSON of an event."""
        data = {f"f{field}": self.value(value) for field, value in enumerate(values.tolist())}
        return json.dumps({"collection": "c", "type": "insert", "data": data}).encode()

    def value(self, value: float) -> Any:
        """Return the JSON value of a field."""
        match self.kind.values:
            case 0:
                return value
            case 2:
                return value == 1
            case _:
                return f"v{value}"

    def subscriptions(self) -> Iterator[bytes]:
        """Write each subscription."""
        for n in range(self.count):
            filters: list[dict[str, Any]] = []
            for field in np.flatnonzero(self.tests[:, n]).tolist():
                if self.kind.width:
                    low, high = float(self.low[field, n]), float(self.high[field, n])
                    filters.append({"field": f"f{field}", "op": ">=", "value": low})
                    filters.append({"field": f"f{field}", "op": "<", "value": high})
                    continue
                wanted = self.wanted[field, n]
                if self.kind.values == 2:
                    filters.append({"field": f"f{field}", "op": "==", "value": bool(wanted[1])})
                else:
                    excluded = [f"v{value}" for value in np.flatnonzero(~wanted).tolist()]
                    filters.append({"field": f"f{field}", "op": "not in", "value": excluded})
            yield json.dumps({"id": f"s{n}", "collection": "c", "filters": filters}).encode()

    def scan(self, values: Any) -> int:
        """Compare one column after the other."""
        left = np.ones(self.count, bool)
        for field, value in enumerate(values):
            if self.kind.width:
                left &= self.low[field] <= value
                left &= self.high[field] > value
            else:
                left &= self.wanted[field, :, value]
        return len(np.flatnonzero(left))

    def bitset(self, values: Any) -> int:
        """Rule out subscriptions by bits, and compare the remaining ones."""
        cells = (values * CELLS).astype(np.intp) if self.kind.width else values
        bits = self.cells[0, cells[0]].copy()
        for field in range(1, FIELDS):
            bits &= self.cells[field, cells[field]]
        words = np.flatnonzero(bits)
        within = np.unpackbits(bits[words].view(np.uint8), bitorder="little").reshape(-1, 64)
        at, bit = np.nonzero(within)
        found = words[at] * 64 + bit
        if not self.kind.width:
            return len(found)
        column = values[:, None]
        return int(((self.low[:, found] <= column) & (self.high[:, found] > column)).all(axis=0).sum())


def fastest(ways: Sequence[Callable[[int], int]], events: int, rounds: int) -> list[float]:
    """Return the median µs of each way, and check that they find the same."""
    best, found = np.full((len(ways), events), np.inf), np.zeros((len(ways), events), int)
    for _ in range(rounds):
        for at, way in enumerate(ways):
            for event in range(events):
                begun = time.perf_counter_ns()
                found[at, event] = way(event)
                best[at, event] = min(best[at, event], (time.perf_counter_ns() - begun) / 1000)
        if (found != found[0]).any():
            raise WrongMatches(f"events {np.flatnonzero((found != found[0]).any(axis=0))}")
    return [median(times) for times in best.tolist()]


def measure(kind: Kind, count: int, events: int, rounds: int) -> tuple[list[float], float, float, float]:
    """Return µs by Streamer, a scan and a bitset; matches and candidates of an event; bytes of the index a subscription."""
    workload = Workload(kind, count)
    engine = streamer.Engine()
    engine.add_many(workload.subscriptions())
    given = workload.events(events)
    texts = [workload.as_bytes(values) for values in given]
    before = engine.stats().candidates
    matches = sum(map(engine.match_count, texts)) / events
    stats = engine.stats()
    candidates, held = (stats.candidates - before) / events, stats.memory.get("index", 0) / count
    ways = (
        lambda event: engine.match_count(texts[event]),
        lambda event: workload.scan(given[event]),
        lambda event: workload.bitset(given[event]),
    )
    return fastest(ways, events, rounds), matches, candidates, held


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    with report("dense", __doc__, ABOUT, arguments) as (smoke, tell):
        sizes: tuple[int, ...] = SIZES
        events, rounds = EVENTS, ROUNDS
        if smoke or _backend.BACKEND == "reference":
            sizes, events, rounds = (3_000,) if _backend.BACKEND == "native" else (300,), 20, 2
        tell(
            f"{'conditions':<34} {'subscriptions':>13} {'matches':>8} {'candidates':>10} {'Streamer':>9} {'scan':>8} "
            f"{'bitset':>8} {'÷ better':>8} {'bytes':>6}"
        )
        for kind in KINDS:
            for count in sizes:
                (ours, scan, bitset), matches, candidates, held = measure(kind, count, events, rounds)
                tell(
                    f"{kind.name:<34} {count:>13,} {matches:>8,.1f} {candidates:>10,.0f} {ours:>9,.1f} {scan:>8,.0f} "
                    f"{bitset:>8,.0f} {ours / min(scan, bitset):>8.2f} {held:>6,.0f}"
                )


if __name__ == "__main__":
    main()
