"""What a core counts, and what counts for the reference.

Each event that was begun is settled once: matched, unmatched or rejected. The number of events is the sum of the three, never a
count of its own, so it holds in every reading, also in the midst of matching. The native core counts in its own memory
(`crates/streamer-core/src/engine/telemetry.rs`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from streamer.errors import EventCode
from streamer.locks import Lock

#: Upper bounds of a latency's buckets in nanoseconds; what is longer goes into one more.
BOUNDS: Final = (
    *(250, 500),
    *(1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000),
    1_000_000_000,
)

Name: TypeAlias = tuple[str, str]
"""Tenant and collection, `"*"` for every one."""

#: So many partitions are counted each by itself, those that events saw first; so memory is bounded whatever comes.
MOST_PARTITIONS: Final = 4096

#: Why events are rejected: the codes of `EventError`, and `internal` for an error of the engine itself, an interrupt included.
REJECTIONS: Final = (*(code.value for code in EventCode), "internal")


@final
@dataclass(frozen=True, slots=True)
class Latency:
    """How long something took.

    Attributes:
        counts: how many fell into each bucket of `BOUNDS`, and last those above all.
        nanoseconds: the sum of all.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    nanoseconds: int = 0

    @property
    def count(self) -> int:
        """How many were timed."""
        return sum(self.counts)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What was counted since the engine was made, and what it holds now.

    Latencies are those of a sample: the native core times one event in 16 on average, drawn at random, the reference all.

    Attributes:
        matched: events that matched anything.
        unmatched: events that matched nothing.
        rejected: events that could not be read, by code, with `internal` for those at which the engine failed.
        matches: subscriptions that matched, however the engine was asked.
        uncertain: those of them that are not certain.
        candidates: what the exact phase looked at: conjunctions (native) or subscriptions (reference).
        merges: merges of segments.
        total: from an event's text to what it matches, results as Python objects apart.
        bloom: asking the filters, where there were any to ask.
        cel: CEL programs of an event together, where any ran.
        subscriptions: how many are held.
        partitions: how many (tenant, collection) they are in.
        segments: indexed parts of the partitions; the reference has one for each.
        subscription_bytes: memory of the subscriptions' conditions; 0 for the reference.
        index_bytes: memory of the index; 0 for the reference.
    """

    matched: int
    unmatched: int
    rejected: Mapping[str, int]
    matches: int
    uncertain: int
    candidates: int
    merges: int
    total: Latency
    bloom: Latency
    cel: Latency
    subscriptions: int
    partitions: int
    segments: int
    subscription_bytes: int
    index_bytes: int

    @property
    def events(self) -> int:
        """How many events came in and were settled."""
        return self.matched + self.unmatched + sum(self.rejected.values())


@final
@dataclass(slots=True)
class Durations:
    """Adds up durations; whoever has it holds a lock."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    nanoseconds: int = 0

    def add(self, nanoseconds: int) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, nanoseconds)] += 1
        self.nanoseconds += nanoseconds

    def read(self) -> Latency:
        """Return what was counted."""
        return Latency(tuple(self.counts), self.nanoseconds)


@final
class Recorder:
    """Counts for the reference. Safe for threads; its lock is held for a few additions, never while anything is judged."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._matched = self._unmatched = self._matches = self._uncertain = self._candidates = 0
        self._rejected = dict.fromkeys(REJECTIONS, 0)
        self._total, self._bloom, self._cel = Durations(), Durations(), Durations()
        self._partitions: dict[Name, list[int]] = {}
        self.is_on = True

    def settle(
        self,
        *,
        matches: int,
        uncertain: int,
        candidates: int,
        total: int,
        partitions: Iterable[tuple[Name, int, int]] = (),
        bloom: int | None = None,
        cel: int | None = None,
    ) -> None:
        """Count an event that was matched.

        Args:
            partitions: those that it saw, with their candidates and matches.
            total: nanoseconds; so are *bloom* and *cel*, None for a phase that had nothing to do.
        """
        if not self.is_on:
            return
        with self._lock:
            if matches:
                self._matched += 1
            else:
                self._unmatched += 1
            self._matches += matches
            self._uncertain += uncertain
            self._candidates += candidates
            for name, looked, found in partitions:
                counts = self._partitions.get(name)
                if counts is None:
                    if len(self._partitions) >= MOST_PARTITIONS:
                        continue
                    counts = self._partitions[name] = [0, 0, 0]
                counts[0] += 1
                counts[1] += looked
                counts[2] += found
            self._total.add(total)
            if bloom is not None:
                self._bloom.add(bloom)
            if cel is not None:
                self._cel.add(cel)

    def partitions(self) -> dict[Name, tuple[int, int, int]]:
        """Return how many events each partition saw, and what it judged and matched."""
        with self._lock:
            return {name: (events, candidates, matches) for name, (events, candidates, matches) in self._partitions.items()}

    def reject(self, code: str) -> None:
        """Count an event that was rejected."""
        if self.is_on:
            with self._lock:
                self._rejected[code] += 1

    def read(self, *, subscriptions: int, partitions: int) -> Telemetry:
        """Return the counts, all of one moment."""
        with self._lock:
            return Telemetry(
                matched=self._matched,
                unmatched=self._unmatched,
                rejected=dict(self._rejected),
                matches=self._matches,
                uncertain=self._uncertain,
                candidates=self._candidates,
                merges=0,
                total=self._total.read(),
                bloom=self._bloom.read(),
                cel=self._cel.read(),
                subscriptions=subscriptions,
                partitions=partitions,
                segments=partitions,
                subscription_bytes=0,
                index_bytes=0,
            )
