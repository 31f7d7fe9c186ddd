"""Read an engine into samples: the one place that maps its numbers to metrics."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from streamer import _backend
from streamer.bloom.manager import Reason
from streamer.bloom.state import FilterState
from streamer.cel_eval import CelReason
from streamer.locks import Lock
from streamer.metrics import names
from streamer.metrics.names import Metric
from streamer.telemetry import Distribution
from streamer.version import VERSION

if TYPE_CHECKING:
    from streamer.metrics.measured import Measured

#: The label of all collections after the first ones.
OTHER: Final = "other"

Name: TypeAlias = tuple[str, str]
"""Tenant and collection of a filter."""


@final
@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a metric, or one histogram.

    Attributes:
        labels: values of the metric's labels, in order, without `engine`; with `tenant` first if requested.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution


@final
class Labels:
    """Decides which filters share a series. A collection keeps its own series once it has one, so that counters never decrease.

    Args:
        collections: the most collections with their own series: the largest when they are first read. All others share `other`.
        tenants: whether the tenant is a label, too; then *collections* counts pairs of tenant and collection.

    Raises:
        TypeError: *collections* is not an integer, or *tenants* is not a bool.
        ValueError: *collections* is less than 1.
    """

    def __init__(self, collections: int, *, tenants: bool) -> None:
        if isinstance(collections, bool) or not isinstance(collections, int):
            raise TypeError(f"collections is an integer, not {type(collections).__name__}")
        if collections < 1:
            raise ValueError(f"collections: expected at least 1, not {collections}")
        if not isinstance(tenants, bool):
            raise TypeError(f"tenants is a bool, not {type(tenants).__name__}")
        self._most = collections
        self._tenants = tenants
        self._named: set[tuple[str, ...]] = set()
        #: The last reading of each filter, and the sums of all readings; both are replaced at once.
        self._counts: tuple[Mapping[tuple[Metric, Name, str], float], Mapping[tuple[Metric, tuple[str, ...]], float]] = {}, {}
        self._lock = Lock()

    @property
    def more(self) -> tuple[str, ...]:
        """The labels of filters in addition to those of their metric."""
        return ("tenant",) if self._tenants else ()

    def _of(self, name: Name) -> tuple[str, ...]:
        own = name if self._tenants else name[1:]
        return own if own in self._named else (OTHER,) * len(own)

    def read(
        self,
        states: Iterable[FilterState],
        saturated: Iterable[Name],
        rebuilds: Mapping[tuple[Name, Reason], int],
        failures: Mapping[Name, int],
    ) -> Iterator[Sample]:
        """Yield the samples of filters, grouped by series."""
        by_size = sorted(states, key=lambda state: state.keyed, reverse=True)
        with self._lock:
            for state in by_size:
                if len(self._named) < self._most:
                    self._named.add(state.name if self._tenants else state.name[1:])
            counted: list[tuple[Metric, Name, str, float]] = []
            for state in by_size:
                counted.append((names.BLOOM_HITS, state.name, "", state.asked - state.no))
                counted.append((names.BLOOM_MISSES, state.name, "", state.no))
                counted.append((names.BLOOM_PROBES, state.name, "", state.probes))
            # Also zeros for reasons that have not occurred, because a rate needs a value before the first.
            never = {(state.name, reason): 0 for state in by_size for reason in Reason}
            counted.extend((names.REBUILDS, name, reason, count) for (name, reason), count in (never | dict(rebuilds)).items())
            unfailing = {state.name: 0 for state in by_size}
            counted.extend((names.REBUILD_FAILURES, name, "", count) for name, count in (unfailing | dict(failures)).items())
            while True:
                counts = self._counts
                values, sums = self._count(counted, *counts)
                if self._counts is counts:
                    self._counts = values, sums
                    break
        yield from (Sample(metric, labels, value) for (metric, labels), value in sums.items())
        groups: dict[tuple[str, ...], list[FilterState]] = defaultdict(list)
        for state in by_size:
            groups[self._of(state.name)].append(state)
        troubled = set(saturated)
        for labels, group in groups.items():
            for metric, value in _gauges(group, troubled):
                yield Sample(metric, labels, value)

    def _count(
        self,
        counted: Iterable[tuple[Metric, Name, str, float]],
        before: Mapping[tuple[Metric, Name, str], float],
        summed: Mapping[tuple[Metric, tuple[str, ...]], float],
    ) -> tuple[dict[tuple[Metric, Name, str], float], dict[tuple[Metric, tuple[str, ...]], float]]:
        """Add the changes since the last reading. The counts of a removed filter stay, and a new one for it begins at 0."""
        totals: dict[tuple[Metric, Name, str], float] = {}
        sums = dict(summed)
        for metric, name, more, value in counted:
            key = metric, name, more
            last = before.get(key, 0.0)
            totals[key] = value
            labels = (*self._of(name), more) if more else self._of(name)
            sums[metric, labels] = sums.get((metric, labels), 0.0) + (value - last if value >= last else value)
        return totals, sums


def _gauges(group: list[FilterState], saturated: set[Name]) -> Iterator[tuple[Metric, float]]:
    sampled = sum(state.sampled for state in group)
    if sampled:
        yield names.BLOOM_RATE, sum(state.false_positives for state in group) / sampled
    bits = sum(state.bits for state in group)
    yield names.BLOOM_VERSION, max(state.version for state in group)
    yield names.BLOOM_KEYS, sum(state.keys for state in group)
    yield names.BLOOM_CAPACITY, sum(state.capacity for state in group)
    yield names.BLOOM_STALE, sum(state.stale for state in group)
    yield names.BLOOM_BYTES, bits / 8
    yield names.BLOOM_FILL, sum(state.fill * state.bits for state in group) / bits if bits else 0.0
    yield names.BLOOM_SATURATED, sum(1 for state in group if state.name in saturated)
    yield names.BLOOM_SUBSCRIPTIONS, sum(state.keyed for state in group)
    yield names.BLOOM_UNKEYED, sum(state.unkeyed for state in group)


def read(engine: Measured, labels: Labels) -> Iterator[Sample]:
    """Yield the samples of an engine. The counts of its events are from one moment and add up."""
    telemetry = engine._core.telemetry()
    one: list[tuple[Metric, float | Distribution]] = [
        (names.EVENTS, telemetry.events),
        (names.MATCHED, telemetry.matched),
        (names.UNMATCHED, telemetry.unmatched),
        (names.BARE, telemetry.bare),
        (names.EVENT_SECONDS, telemetry.total),
        (names.MATCHES, telemetry.matches),
        (names.EVENT_MATCHES, telemetry.matches_by_event),
        (names.UNCERTAIN, telemetry.uncertain),
        (names.CANDIDATES, telemetry.candidates),
        (names.EVENT_CANDIDATES, telemetry.candidates_by_event),
        (names.BLOOM_SECONDS, telemetry.bloom),
        (names.CEL_SECONDS, telemetry.cel),
        (names.CEL_HITS, engine._programs.hits),
        (names.CEL_MISSES, engine._programs.misses),
        (names.CEL_PROGRAMS, engine._programs.programs),
        (names.CEL_PORTABLE_PROGRAMS, engine._programs.portable),
        (names.CEL_PORTABLE_SECONDS, engine._programs.runs.read()),
        (names.SUBSCRIPTIONS, telemetry.subscriptions),
        (names.PARTITIONS, telemetry.partitions),
        (names.SEGMENTS, telemetry.segments),
        (names.MERGES, telemetry.merges),
        (names.SUBSCRIPTION_BYTES, telemetry.subscription_bytes),
        (names.INDEX_BYTES, telemetry.index_bytes),
        (names.RECORD_BYTES, telemetry.record_bytes),
        (names.TEXT_BYTES, telemetry.text_bytes),
    ]
    yield from (Sample(metric, (), value) for metric, value in one)
    yield from (Sample(names.IGNORED, (reason,), count) for reason, count in telemetry.ignored.items())
    yield from (Sample(names.REJECTED, (code,), count) for code, count in telemetry.rejected.items())
    errors = engine._cel_errors.counts
    # Also zeros for errors that have not occurred, because a rate needs a value before the first.
    yield from (Sample(names.CEL_ERRORS, (reason.value,), errors.get(reason, 0)) for reason in CelReason)
    bloom = engine.bloom
    yield from labels.read(bloom.filters(), bloom.saturated, bloom.rebuilds, bloom.failures)
    yield Sample(names.BUILD, (VERSION, _backend.BACKEND, platform.python_version()), 1)
    reload = engine.last_reload
    if reload is not None:
        yield Sample(names.RELOAD_GOOD, (), float(reload.good))
        yield Sample(names.RELOAD_AT, (), reload.good_at)
