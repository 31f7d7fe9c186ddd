"""Statistics of an engine at one moment, for people, and for programs that do not use Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, final

from streamer.bloom.state import FilterState
from streamer.cel_eval.cache import ProgramCache
from streamer.cel_eval.errors import CelErrors, FailingSubscription
from streamer.core.protocol import Core
from streamer.errors import Ignored
from streamer.sizes import PERCENTILES, format_percentiles, format_size
from streamer.telemetry import BOUNDS, PartitionCounts

#: Fewer samples are not significant for a rate.
SAMPLES: Final = 100

#: The heading of the table of collections.
HEADING: Final = tuple(
    "TENANT COLLECTION SUBS SEGMENTS MEMORY KEYS FILL ESTIMATED MEASURED STOPPED CANDIDATES MATCHES VERSION".split()
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStats:
    """The subscriptions of one tenant and collection, and their filter; `"*"` stands for every one.

    Attributes:
        subscriptions: number of subscriptions.
        segments: number of parts in which they are indexed.
        memory_bytes: memory of their conditions, index and filter; for the reference backend, of the filter only.
        candidates_per_event: mean number of candidates of the exact phase per event that reached it; the native backend samples
            one event in 16. None before the first event, and for collections after the first 4,096.
        matches_per_event: mean number of matches, from the same events.
        keys: keys in the filter; None without a filter, as are all attributes below.
        fill: share of the filter's bits that are set.
        estimated_rate: expected share of the events without a live key that pass, from the filter's size and its keys.
        measured_rate: measured share of these events, from a sample; None while the sample is too small.
        stopped: share of all queried events that phase 1 stopped; None before the first.
        version: version of the filter; each rebuild adds 1.
    """

    tenant: str
    collection: str
    subscriptions: int
    segments: int
    memory_bytes: int
    candidates_per_event: float | None = None
    matches_per_event: float | None = None
    keys: int | None = None
    fill: float | None = None
    estimated_rate: float | None = None
    measured_rate: float | None = None
    stopped: float | None = None
    version: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The result of `Engine.stats()`; `str()` prints it as a table.

    Attributes:
        memory_bytes: the sum of `memory`.
        memory: bytes by owner: `texts`, `records` (with ids, and the parts that texts share), `conditions`, `index`, `filters`,
            as the allocator rounds them up; for the reference of the filters only. It excludes pages of a mapped snapshot, free
            memory of the allocator, compiled CEL and Python's objects.
        events: all events: matched, unmatched, ignored and rejected.
        ignored: number of ignored events for each reason (`Ignored`) that occurred.
        bare: matched and unmatched events in which the layout finds no collection, type or document.
        candidates: number of candidates of the exact phase.
        timed: events that were timed: natively a sample of one in 16.
        percentiles: seconds that a share of those did not exceed, by name: `p50`, `p99`, `p99.9`; none before the first.
        collections: those with subscriptions, the largest first.
        cel_errors: evaluations that ended in an error, and so without a match, by reason.
        failing: the subscriptions with the most of them, the worst first.
        portable_programs: number of cached CEL programs that cel-python evaluates (docs/cel.md).
        portable_runs: their evaluations, and the time in seconds, functions in Python included.
        misfit: a warning and a better layout if the layout `finds_nothing` in the events; else None.
    """

    subscriptions: int
    segments: int
    memory_bytes: int
    events: int
    matched: int
    unmatched: int
    ignored: Mapping[str, int]
    bare: int
    rejected: int
    matches: int
    uncertain: int
    candidates: int
    rebuilds: int
    timed: int
    percentiles: Mapping[str, float]
    collections: tuple[CollectionStats, ...]
    cel_errors: dict[str, int] = field(default_factory=dict)
    failing: tuple[FailingSubscription, ...] = ()
    portable_programs: int = 0
    portable_runs: int = 0
    portable_seconds: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    misfit: str | None = None

    @property
    def matches_per_event(self) -> float:
        """The mean number of matches of the events that could be read; 0 before the first."""
        return self.matches / max(self.matched + self.unmatched, 1)

    @property
    def candidates_per_event(self) -> float:
        """The mean number of candidates of the events that could be read; 0 before the first."""
        return self.candidates / max(self.matched + self.unmatched, 1)

    @property
    def finds_nothing(self) -> bool:
        """Whether the layout found no collection, type or document in any event, so that another layout probably fits."""
        no_change = self.ignored.get(Ignored.NO_CHANGE, 0)
        return 0 < self.bare + no_change == self.matched + self.unmatched + no_change

    def to_dict(self) -> dict[str, Any]:
        """Return all statistics as plain JSON values."""
        means = {"matches_per_event": self.matches_per_event, "candidates_per_event": self.candidates_per_event}
        return {**asdict(self), **means, "collections": [asdict(each) for each in self.collections]}

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows of the table of collections, starting with the heading."""
        yield HEADING
        for each in self.collections:
            keys, version = ("-" if number is None else f"{number:,}" for number in (each.keys, each.version))
            yield (
                _printable(each.tenant),
                _printable(each.collection),
                f"{each.subscriptions:,}",
                str(each.segments),
                format_size(each.memory_bytes),
                keys,
                *map(_share, (each.fill, each.estimated_rate, each.measured_rate, each.stopped)),
                *map(_mean, (each.candidates_per_event, each.matches_per_event)),
                version,
            )

    def __str__(self) -> str:
        rows = list(self.rows())
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = "\n".join(
            "  ".join(
                cell.ljust(width) if at < 2 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )
        return (
            f"{_count(self.subscriptions, 'subscription')} in {_count(self.segments, 'segment')}, "
            f"{format_size(self.memory_bytes)}{self._memory}; {_count(self.rebuilds, 'rebuild')}\n"
            f"{_count(self.events, 'event')}: "
            f"{self.matched:,} matched, {self.unmatched:,} unmatched, {ignored_text(self.ignored)}, {self.rejected:,} rejected\n"
            f"{f'{self.misfit}{chr(10)}' if self.misfit else ''}"
            f"{_count(self.matches, 'match', 'matches')} ({self.matches_per_event:.3g} an event), {self.uncertain:,} uncertain; "
            f"{self.candidates_per_event:.3g} candidates an event\n{self._times}{self._failing}{self._portable}\n{table}"
        )

    @property
    def _memory(self) -> str:
        parts = ", ".join(f"{name} {format_size(size)}" for name, size in self.memory.items() if size)
        return f" ({parts})" if parts else ""

    @property
    def _times(self) -> str:
        if not self.percentiles:
            return ""
        was = "was" if self.timed == 1 else "were"
        return f"{format_percentiles(self.percentiles)} an event, of {_count(self.timed, 'event')} that {was} timed\n"

    @property
    def _failing(self) -> str:
        if not self.cel_errors:
            return ""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.cel_errors.items(), key=lambda item: -item[1]))
        worst = ", ".join(f"{_printable(each.subscription_id)} {each.errors:,} ({each.reason})" for each in self.failing)
        errors = _count(sum(self.cel_errors.values()), "CEL error")
        return f"{errors} ({reasons}){f'; most of them in {worst}' if worst else ''}\n"

    @property
    def _portable(self) -> str:
        if not self.portable_programs and not self.portable_runs:
            return ""
        mean = self.portable_seconds / max(self.portable_runs, 1)
        return (
            f"{_count(self.portable_programs, 'CEL program')} on cel-python, {_count(self.portable_runs, 'evaluation')} of them "
            f"({mean * 1e6:.3g} µs each)\n"
        )


def ignored_text(ignored: Mapping[str, int]) -> str:
    """Return the numbers of ignored events by reason, as text."""
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in ignored.items() if number)
    return f"{sum(ignored.values()):,} ignored{f' ({reasons})' if reasons else ''}"


def read_stats(core: Core, rebuilds: int, programs: ProgramCache, errors: CelErrors, hint: str | None) -> Stats:
    """Return the statistics of a core.

    Args:
        hint: the layout that fits the first event in which the engine's layout found no part.
    """
    telemetry = core.telemetry()
    runs = programs.runs.read()
    filters = {state.name: state for state in core.filters()}
    counts = {(each.tenant, each.collection): each for each in core.partition_counts()}
    collections = [
        _collection(
            CollectionStats(
                tenant=partition.tenant,
                collection=partition.collection,
                subscriptions=partition.subscriptions,
                segments=partition.segments,
                memory_bytes=partition.subscription_bytes + partition.index_bytes,
                candidates_per_event=counted.candidates / counted.events if counted else None,
                matches_per_event=counted.matches / counted.events if counted else None,
            ),
            filters.get((partition.tenant, partition.collection)),
        )
        for partition in core.partitions()
        for counted in [_counted(counts.get((partition.tenant, partition.collection)))]
    ]
    memory = {
        "texts": telemetry.text_bytes,
        "records": telemetry.record_bytes,
        "conditions": telemetry.subscription_bytes,
        "index": telemetry.index_bytes,
        "filters": sum(state.bits // 8 for state in filters.values()),
    }
    stats = Stats(
        subscriptions=telemetry.subscriptions,
        segments=telemetry.segments,
        memory_bytes=sum(memory.values()),
        memory=memory,
        events=telemetry.events,
        matched=telemetry.matched,
        unmatched=telemetry.unmatched,
        ignored={reason: number for reason, number in telemetry.ignored.items() if number},
        bare=telemetry.bare,
        rejected=sum(telemetry.rejected.values()),
        matches=telemetry.matches,
        uncertain=telemetry.uncertain,
        candidates=telemetry.candidates,
        rebuilds=rebuilds,
        timed=telemetry.total.count,
        percentiles={
            name: nanoseconds / 1e9
            for name, share in PERCENTILES.items()
            if (nanoseconds := telemetry.total.quantile(share, BOUNDS)) is not None
        },
        collections=tuple(sorted(collections, key=lambda each: (-each.subscriptions, each.tenant, each.collection))),
        cel_errors=dict(errors),
        failing=errors.worst,
        portable_programs=programs.portable,
        portable_runs=runs.count,
        portable_seconds=runs.total / 1e9,
    )
    if hint is None or not stats.finds_nothing:
        return stats
    return replace(stats, misfit=f"the events have no collection, type or document at the layout's places; {hint}")


def _counted(counts: PartitionCounts | None) -> PartitionCounts | None:
    """Return the counts, or None before the first event."""
    return counts if counts is not None and counts.events else None


def _collection(one: CollectionStats, state: FilterState | None) -> CollectionStats:
    if state is None:
        return one
    return replace(
        one,
        memory_bytes=one.memory_bytes + state.bits // 8,
        keys=state.keys,
        fill=state.fill,
        estimated_rate=state.estimated_rate,
        measured_rate=state.measured_rate if state.sampled >= SAMPLES else None,
        stopped=state.no / state.asked if state.asked else None,
        version=state.version,
    )


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"


def _mean(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.3g}"


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)
