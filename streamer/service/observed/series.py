"""All metrics of the last hours, from the values that a scrape would read: a ring of numbers for each series.

A counter is kept as its value, and reported as a rate. A histogram is kept as its count and the quantiles between two samples. So
a graph needs no Prometheus, and memory is bounded: `MOST` series of `POINTS` numbers of 8 bytes.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

from prometheus_client import Metric

from streamer.locks import Lock

#: The seconds between two samples, the samples that are kept (three hours), and the most series.
EVERY: Final = 10.0
POINTS: Final = 1080
MOST: Final = 400
QUANTILES: Final = (0.5, 0.99)
#: The prefix of all metrics of a service.
_OURS: Final = "streamer_"
_NOTHING: Final = math.nan

Kind: TypeAlias = Literal["rate", "value", "quantile"]


class Name(NamedTuple):
    """The name of one series.

    Attributes:
        quantile: for a histogram; None for other metrics.
    """

    metric: str
    labels: tuple[tuple[str, str], ...]
    kind: Kind
    quantile: float | None = None


@final
class Series:
    """The ring. One thread adds samples, any may read.

    Args:
        read: returns the values that a scrape would read.
    """

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read
        self._lock = Lock()
        self._times = array("d", [_NOTHING]) * POINTS
        self._rings: dict[Name, array[float]] = {}
        self._buckets: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = {}
        self._count = 0
        self.dropped = 0

    def take(self) -> None:
        """Add a sample of the current values."""
        values = dict(self._current())
        with self._lock:
            at = self._count % POINTS
            self._times[at] = time.time()
            omitted = 0
            for ring in self._rings.values():
                ring[at] = _NOTHING
            for name, value in values.items():
                ring_of = self._rings.get(name)
                if ring_of is None:
                    if len(self._rings) >= MOST:
                        omitted += 1
                        continue
                    ring_of = self._rings[name] = array("d", [_NOTHING]) * POINTS
                ring_of[at] = value
            self._count += 1
            self.dropped = omitted

    def _current(self) -> Iterator[tuple[Name, float]]:
        for family in self._read():
            if not family.name.startswith(_OURS):
                continue
            histograms: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
            for sample in family.samples:
                labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name not in ("le", "engine")))
                if sample.name.endswith("_bucket"):
                    histograms.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
                elif family.type == "histogram":
                    if sample.name.endswith("_count"):
                        yield Name(family.name, labels, "rate"), sample.value
                elif not sample.name.endswith("_created"):
                    yield Name(family.name, labels, "rate" if family.type == "counter" else "value"), sample.value
            for labels, buckets in histograms.items():
                before = self._buckets.get((family.name, labels))
                self._buckets[family.name, labels] = buckets
                if before is not None and len(before) == len(buckets):
                    new = [(bound, count - old) for (bound, count), (_, old) in zip(buckets, before, strict=True)]
                    for share in QUANTILES:
                        yield Name(family.name, labels, "quantile", share), quantile(new, share)

    def read(self, metrics: Sequence[str], seconds: float, most: int) -> dict[str, Any]:
        """Return the series of some metrics, oldest sample first, in at most *most* steps of equal length.

        Args:
            metrics: their names or prefixes; empty for all.
        """
        with self._lock:
            count, times = self._count, self._times[:]
            rings = [
                (name, ring[:])
                for name, ring in self._rings.items()
                if not metrics or any(name.metric.startswith(each) for each in metrics)
            ]
        since = time.time() - seconds
        recent = [at % POINTS for at in range(max(count - POINTS, 0), count) if times[at % POINTS] >= since]
        step = max(-(-(len(recent) - 1) // most), 1)
        # The newest sample is always included.
        points = recent[(len(recent) - 1) % step :: step] if recent else []
        series = []
        for name, ring in sorted(rings, key=lambda each: each[0][:3]):
            values = _rates(points, times, ring) if name.kind == "rate" else _values(points, recent, ring)
            if any(value is not None for value in values):
                series.append(_shown(name, values))
        return {
            "every_s": EVERY * step,
            "at": [round(times[at], 3) for at in points],
            "series": series,
            "series_left_out": self.dropped,
        }


def _shown(name: Name, values: Sequence[float | None]) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"metric": name.metric, "labels": dict(name.labels), "kind": name.kind}
    if name.quantile is not None:
        shown["quantile"] = name.quantile
    return shown | {"values": values}


def _rates(points: Sequence[int], times: Sequence[float], ring: Sequence[float]) -> list[float | None]:
    """Return the rate per second since the sample before; None if it is unavailable."""
    rates: list[float | None] = [None] * min(len(points), 1)
    for before, at in pairwise(points):
        grown, seconds = ring[at] - ring[before], times[at] - times[before]
        rates.append(round(grown / seconds, 4) if seconds > 0 and grown >= 0 else None)
    return rates


def _values(points: Sequence[int], recent: Sequence[int], ring: Sequence[float]) -> list[float | None]:
    """Return the largest value since the sample before, so that peaks stay visible; None without a value."""
    values: list[float | None] = []
    at = 0
    for place in points:
        largest = None
        while True:
            value = ring[recent[at]]
            if value == value and (largest is None or value > largest):
                largest = value
            at += 1
            if recent[at - 1] == place:
                break
        values.append(None if largest is None or math.isinf(largest) else float(f"{largest:.6g}"))
    return values


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float:
    """Return the quantile *share* of a histogram, as `histogram_quantile` does; NaN for an empty one.

    Args:
        buckets: upper bounds, ascending, with the cumulative counts.
    """
    total = buckets[-1][1] if buckets else 0
    if total <= 0:
        return _NOTHING
    low = below = 0.0
    for bound, count in buckets:
        if count >= share * total:
            if math.isinf(bound):
                return low
            return low + (bound - low) * ((share * total - below) / (count - below) if count > below else 1.0)
        low, below = bound, count
    return low
