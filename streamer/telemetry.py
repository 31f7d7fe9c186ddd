"""The counters of a core, and their implementation for the reference.

Each event whose matching has begun is counted once: as matched, unmatched, ignored or rejected. The number of events is the sum
of the four, never a separate counter, so it is always consistent, also while events are matched. The native core counts in its
own memory (`crates/streamer-core/src/engine/state/telemetry.rs`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, final

from streamer.errors import EventCode, Ignored
from streamer.locks import Lock

#: Upper bounds of a latency's buckets in nanoseconds; longer ones count in one more bucket.
BOUNDS: Final = (
    *(250, 500),
    *(1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000),
    1_000_000_000,
)

#: Upper bounds of the buckets of a number of things; larger numbers count in one more bucket.
SIZES: Final = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    1_000_000,
)

Name: TypeAlias = tuple[str, str]
"""Tenant and collection, `"*"` for every one."""

#: At most this many partitions are counted separately, those that events saw first; this bounds the memory.
MOST_PARTITIONS: Final = 4096

#: The reasons for rejections: the codes of `EventError`, and `internal` for an error of the engine itself, such as an interrupt.
REJECTIONS: Final = (*(code.value for code in EventCode), "internal")

#: The reasons for ignoring an event, which is not an error.
IGNORED: Final = tuple(reason.value for reason in Ignored)


@final
@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram of durations in nanoseconds, or of sizes.

    Attributes:
        counts: the number of values in each bucket of `BOUNDS` or `SIZES`, and last the number above all bounds.
        total: the sum of all values.
    """

    counts: tuple[int, ...]
    total: int

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float, bounds: tuple[int, ...]) -> float | None:
        """Return the value that a share (0 to 1) of all values do not exceed, or None without values.

        Values within a bucket of *bounds* count as evenly spread, as in Prometheus; for values above all bounds the result is the
        last bound.
        """
        wanted, below = share * self.count, 0
        for count, low, high in zip(self.counts, (0, *bounds), (*bounds, bounds[-1]), strict=True):
            if count and below + count >= wanted:
                return low + (high - low) * (wanted - below) / count
            below += count
        return None


@final
class PartitionSize(NamedTuple):
    """The size of a core's partition: one tenant (or `*`) and collection (or `*`)."""

    tenant: str
    collection: str
    subscriptions: int
    segments: int
    subscription_bytes: int
    index_bytes: int


@final
class PartitionCounts(NamedTuple):
    """The number of events that were matched against a partition, and their candidates and matches there."""

    tenant: str
    collection: str
    events: int
    candidates: int
    matches: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The counters since the engine was made, and its current size.

    Latencies are those of a sample: the native core times one event in 16 on average, drawn at random; the reference times all.

    Attributes:
        ignored: events that cannot match any subscription, by reason (`Ignored`).
        rejected: events that could not be read, by code, with `internal` for failures of the engine.
        bare: matched and unmatched events in which the layout finds no collection, type or document.
        matches_by_event: number of subscriptions that an event matched, whichever method was called.
        uncertain: matches that are not certain.
        candidates_by_event: number of candidates of the exact phase for an event: conjunctions (native) or subscriptions
            (reference).
        merges: merges of segments.
        total: time from an event's text to its matches, without making Python objects of the results.
        bloom: time of the filters, if there were any.
        cel: time of all CEL programs of an event, if any ran.
        subscriptions: number of subscriptions.
        partitions: number of their (tenant, collection) pairs.
        segments: indexed parts of the partitions; the reference has one for each.
        subscription_bytes: memory of the subscriptions' conditions; 0 for the reference.
        index_bytes: memory of the index; 0 for the reference.
        record_bytes: memory of the records of subscriptions, of the table of ids, and of the parts that texts share; 0 for the
            reference.
        text_bytes: memory of the other parts of the subscriptions' texts; 0 for the reference.
    """

    ignored: Mapping[str, int]
    rejected: Mapping[str, int]
    bare: int
    matches_by_event: Distribution
    uncertain: int
    candidates_by_event: Distribution
    merges: int
    total: Distribution
    bloom: Distribution
    cel: Distribution
    subscriptions: int
    partitions: int
    segments: int
    subscription_bytes: int
    index_bytes: int
    record_bytes: int
    text_bytes: int

    @property
    def unmatched(self) -> int:
        """Events without a match."""
        return self.matches_by_event.counts[0]

    @property
    def matched(self) -> int:
        """Events with at least one match."""
        return sum(self.matches_by_event.counts[1:])

    @property
    def matches(self) -> int:
        """Subscriptions that matched, summed over events."""
        return self.matches_by_event.total

    @property
    def candidates(self) -> int:
        """Candidates that the exact phase examined, summed over events."""
        return self.candidates_by_event.total

    @property
    def events(self) -> int:
        """All events: matched, unmatched, ignored and rejected."""
        return self.matched + self.unmatched + sum(self.ignored.values()) + sum(self.rejected.values())


@final
class Buckets:
    """Counts durations or sizes in buckets. Not thread-safe: the owner must lock."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def add(self, value: int) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Distribution:
        """Return the counts."""
        return Distribution(tuple(self._counts), self._total)


@final
class Recorder:
    """The counters of the reference. Thread-safe: its lock protects a few additions, never an evaluation."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._uncertain = self._bare = 0
        self._matches, self._candidates = Buckets(SIZES), Buckets(SIZES)
        self._ignored = dict.fromkeys(IGNORED, 0)
        self._rejected = dict.fromkeys(REJECTIONS, 0)
        self._total, self._bloom, self._cel = Buckets(BOUNDS), Buckets(BOUNDS), Buckets(BOUNDS)
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
        is_bare: bool = False,
    ) -> None:
        """Count an event that was matched.

        Args:
            partitions: the partitions that were searched, with their candidates and matches.
            total: nanoseconds, as are *bloom* and *cel*, which are None for a phase that did not run.
        """
        if not self.is_on:
            return
        with self._lock:
            self._matches.add(matches)
            self._bare += is_bare
            self._uncertain += uncertain
            self._candidates.add(candidates)
            for name, looked, hits in partitions:
                if name not in self._partitions and len(self._partitions) >= MOST_PARTITIONS:
                    continue
                counts = self._partitions.setdefault(name, [0, 0, 0])
                counts[0] += 1
                counts[1] += looked
                counts[2] += hits
            self._total.add(total)
            if bloom is not None:
                self._bloom.add(bloom)
            if cel is not None:
                self._cel.add(cel)

    def partitions(self) -> dict[Name, tuple[int, int, int]]:
        """Return the number of events, candidates and matches of each partition."""
        with self._lock:
            partitions = self._partitions.copy()
            return {name: (events, candidates, matches) for name, (events, candidates, matches) in partitions.items()}

    def ignore(self, reason: str) -> None:
        """Count an event that was ignored."""
        if self.is_on:
            with self._lock:
                self._ignored[reason] += 1

    def reject(self, code: str) -> None:
        """Count an event that was rejected."""
        if self.is_on:
            with self._lock:
                self._rejected[code] += 1

    def read(self, *, subscriptions: int, partitions: int) -> Telemetry:
        """Return all counts, from one moment."""
        with self._lock:
            return Telemetry(
                ignored=dict(self._ignored),
                bare=self._bare,
                rejected=dict(self._rejected),
                matches_by_event=self._matches.read(),
                uncertain=self._uncertain,
                candidates_by_event=self._candidates.read(),
                merges=0,
                total=self._total.read(),
                bloom=self._bloom.read(),
                cel=self._cel.read(),
                subscriptions=subscriptions,
                partitions=partitions,
                segments=partitions,
                subscription_bytes=0,
                index_bytes=0,
                record_bytes=0,
                text_bytes=0,
            )
