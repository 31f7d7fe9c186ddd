"""The definition of a benchmark, and the code that runs one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, Protocol

import streamer
from streamer.events.layout import FormatName


@dataclass(frozen=True, slots=True)
class Case:
    """How much work, and how many matches it must give.

    Attributes:
        smoke: small enough to run with the tests.
        layout: the preset that says where events keep their parts.
    """

    name: str
    subscriptions: int
    events: int
    matches: int
    smoke: bool = False
    layout: FormatName = "change"


class Benchmark(Protocol):
    """A module of this folder."""

    CASES: tuple[Case, ...]
    subscriptions: Callable[[int], Iterable[dict[str, Any]]]
    events: Callable[[int], Iterable[bytes]]


def order(number: int, data: dict[str, Any]) -> bytes:
    """Return the insert of an order, as an event."""
    return json.dumps({"id": number, "collection": "orders", "type": "insert", "data": data}).encode()


class WrongMatches(Exception):
    """A run found another number of matches than the case says."""


def fastest(match: Callable[[bytes], object], events: Sequence[bytes], rounds: int) -> list[float]:
    """Return how many microseconds each event takes.

    Each is matched once in a round, and its fastest round counts: what the machine does besides only adds.
    """
    best = [float("inf")] * len(events)
    for _ in range(rounds):
        for at, event in enumerate(events):
            begun = time.perf_counter_ns()
            match(event)
            best[at] = min(best[at], (time.perf_counter_ns() - begun) / 1000)
    return best


HEADER = (
    f"{'benchmark':<10} {'subscriptions':>13} {'added in':>9} {'events':>8} {'matches':>9} "
    f"{'p50 µs':>9} {'p99 µs':>9} {'events/s':>9}"
)


def run(benchmark: Benchmark, case: Case) -> str:
    """Run a case, and return its line of the report.

    Raises:
        WrongMatches: another number of matches than the case says.
    """
    engine = streamer.Engine(layout=streamer.EventLayout.preset(case.layout))
    started = time.perf_counter()
    engine.add_many(benchmark.subscriptions(case.subscriptions))
    added = time.perf_counter() - started
    matches = 0
    nanoseconds = []
    for event in benchmark.events(case.events):
        begun = time.perf_counter_ns()
        ids = engine.match_ids(event)
        nanoseconds.append(time.perf_counter_ns() - begun)
        matches += len(ids)
    if matches != case.matches:
        raise WrongMatches(f"{case}: {matches} matches on the {streamer.BACKEND} backend")
    cuts = quantiles(nanoseconds, n=100)
    rate = case.events / (sum(nanoseconds) / 1e9)
    return (
        f"{case.name:<10} {case.subscriptions:>13,} {added:>8.2f}s {case.events:>8,} {matches:>9,} "
        f"{cuts[49] / 1e3:>9,.1f} {cuts[98] / 1e3:>9,.1f} {rate:>9,.0f}"
    )
