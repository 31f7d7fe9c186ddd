"""The counts of a job, and its metrics for Prometheus: served while it runs, or written as a text file for the node exporter.

Contract: every event is counted once, so events = matched + unmatched + ignored + rejected, and each collection's add up to the
whole. The label `collection` is bounded as an engine's is: the first and largest have series of their own and keep them, others
are `other`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.files import replacing
from streamer.locks import Lock
from streamer.metrics.collector import COLLECTIONS
from streamer.metrics.names import Metric

_BY = ("collection",)
EVENTS = Metric("streamer_spark_events", "counter", _BY, "Events with an outcome: matched + unmatched + ignored + rejected.")
MATCHED = Metric("streamer_spark_events_matched", "counter", _BY, "Events that matched at least one subscription.")
MATCHES = Metric("streamer_spark_matches", "counter", _BY, "Matches found.")
PRUNED = Metric("streamer_spark_events_pruned", "counter", _BY, "Events that a Bloom filter stopped; they are unmatched.")
IGNORED = Metric(
    "streamer_spark_events_ignored", "counter", (), "Valid events that cannot match, for example heartbeats and tombstones."
)
REJECTED = Metric(
    "streamer_spark_events_rejected", "counter", ("code",), "Events that could not be read, by the code of the error."
)
SKEW = Metric("streamer_spark_skew_ratio", "gauge", (), "Events of the largest collection over the mean of all.")
BATCHES = Metric("streamer_spark_batches", "counter", (), "Micro-batches that were written.")
BATCH_SECONDS = Metric("streamer_spark_last_batch_duration_seconds", "gauge", (), "Duration of the last micro-batch.")
REFUSED = Metric("streamer_spark_snapshots_refused", "counter", (), "Snapshots that were skipped because they were invalid.")
VERSION = Metric("streamer_spark_snapshot_info", "gauge", ("digest",), "1, labelled with the snapshot in use.")
SUBSCRIPTIONS = Metric("streamer_spark_subscriptions", "gauge", (), "Subscriptions of the snapshot in use.")
SECONDS = Metric("streamer_spark_duration_seconds", "gauge", (), "Run time of the job.")
SUCCESS = Metric(
    "streamer_spark_last_success_timestamp_seconds", "gauge", (), "When the job, or its last micro-batch, last succeeded."
)

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily

FIELDS: Final = ("events", "matched", "matches", "rejected", "ignored", "pruned")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The counts of one tenant and collection."""

    tenant: str | None
    collection: str | None
    events: int
    matched: int = 0
    matches: int = 0
    rejected: int = 0
    ignored: int = 0
    pruned: int = 0

    @property
    def is_unread(self) -> bool:
        """Whether this group is the unreadable events, which have no tenant and collection."""
        return self.tenant is None and self.collection is None and self.rejected + self.ignored > 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of a stream: when it began, in seconds since the job did, and how long it took."""

    id: int
    began: float
    seconds: float
    events: int
    matches: int = 0
    version: str | None = None


@final
class Counts(Collector):
    """The counts of a job so far. It is thread-safe, because it is scraped while it counts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts: dict[tuple[str | None, str | None], list[int]] = {}
        self._series: list[str] = []
        self.codes: Counter[str] = Counter()
        self.batches: list[Batch] = []
        self.batch_count = 0
        self.refused = 0
        self.observed: dict[str, int] = {}
        self.version: str | None = None
        self.subscriptions: int | None = None
        self.matching = 0.0
        self.began = time.monotonic()
        self.ended: float | None = None
        self.succeeded: float | None = None

    def add(self, rows: Iterable[Mapping[str, Any]], codes: Mapping[str, int] | None = None) -> None:
        """Add the tallies of one pass, and its rejected events by code."""
        with self._lock:
            for row in sorted(rows, key=lambda row: -row["events"]):
                counts = self._parts.setdefault((row["tenant"], row["collection"]), [0] * len(FIELDS))
                for index, name in enumerate(FIELDS):
                    counts[index] += row[name] or 0
                series = row["collection"]
                if series is not None and series not in self._series and len(self._series) < COLLECTIONS:
                    self._series.append(series)
            self.codes.update(codes or {})

    def add_batch(self, batch: Batch) -> None:
        """Add one micro-batch of a stream; the last thousand are kept."""
        with self._lock:
            self.batch_count += 1
            self.batches = [*self.batches[-999:], batch]
            self.matching += batch.seconds
            self.succeeded = time.time()

    def end(self) -> None:
        """Record that the job ended with success."""
        self.ended, self.succeeded = time.monotonic(), time.time()

    @property
    def seconds(self) -> float:
        """For how many seconds the job has run."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    @property
    def rate(self) -> float:
        """Events a second while they were matched."""
        return self.total("events") / self.matching if self.matching else 0.0

    @property
    def skew(self) -> float:
        """The largest collection's events as a multiple of the mean; 1 if all are equal, 0 without collections."""
        events = [part.events for part in self.parts() if not part.is_unread]
        return max(events) * len(events) / sum(events) if sum(events) else 0.0

    def total(self, name: str) -> int:
        """Add up one of `events`, `matched`, `matches`, `rejected`, `ignored`, `pruned`."""
        index = FIELDS.index(name)
        with self._lock:
            return sum(counts[index] for counts in self._parts.values())

    def parts(self) -> list[Part]:
        """Return the counts of each tenant and collection."""
        with self._lock:
            return [
                Part(tenant=tenant, collection=collection, **dict(zip(FIELDS, counts, strict=True)))
                for (tenant, collection), counts in self._parts.items()
            ]

    # Prometheus

    def describe(self) -> Iterable[Family]:
        """Name the families, so that registering does not scrape."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield the present counts."""
        parts = self.parts()
        for metric, name in ((EVENTS, "events"), (MATCHED, "matched"), (MATCHES, "matches"), (PRUNED, "pruned")):
            series: Counter[str] = Counter()
            for part in parts:
                series[self._label(part)] += getattr(part, name)
            yield _family(metric, {(label,): count for label, count in series.items()})
        yield _family(IGNORED, {(): sum(part.ignored for part in parts)})
        yield _family(REJECTED, {(code,): count for code, count in self.codes.items()})
        yield _family(SKEW, {(): skew} if (skew := self.skew) else {})
        yield _family(BATCHES, {(): self.batch_count})
        yield _family(BATCH_SECONDS, {(): self.batches[-1].seconds} if self.batches else {})
        yield _family(REFUSED, {(): self.refused})
        yield _family(VERSION, {(self.version,): 1} if self.version else {})
        yield _family(SUBSCRIPTIONS, {(): self.subscriptions} if self.subscriptions is not None else {})
        yield _family(SECONDS, {(): self.seconds})
        yield _family(SUCCESS, {(): self.succeeded} if self.succeeded is not None else {})

    def _label(self, part: Part) -> str:
        if part.collection is None:
            return ""
        return part.collection if part.collection in self._series else "other"

    def registry(self) -> CollectorRegistry:
        """Return a registry with only these metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the metrics as text, replacing an existing file. Raises OSError."""
        with replacing(path) as file:
            file.write(generate_latest(self.registry()))

    def serve(self, port: int, addr: str = "127.0.0.1") -> tuple[int, Any]:
        """Serve the metrics; return the port, and a server to shut down. Raises OSError."""
        server, _ = start_http_server(port, addr, self.registry())
        return int(server.server_port), server


def _family(metric: Metric, values: Mapping[tuple[Any, ...], float] | None = None) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in (values or {}).items():
        family.add_metric([str(label) for label in labels], value)
    return family
