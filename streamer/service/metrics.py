"""What the service counts.

Contract: at each scrape read = matched + unmatched + rejected, and matches = delivered + dead + dropped + pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.locks import Lock
from streamer.metrics.names import Metric
from streamer.service.waiting import Part

_SOURCE, _SINK = ("source",), ("sink",)
READ = Metric("streamer_service_events_read", "counter", _SOURCE, "Events that were read: matched + unmatched + rejected.")
MATCHED = Metric("streamer_service_events_matched", "counter", _SOURCE, "Events that matched at least one subscription.")
UNMATCHED = Metric("streamer_service_events_unmatched", "counter", _SOURCE, "Events that matched none, ignored ones among them.")
REJECTED = Metric("streamer_service_events_rejected", "counter", _SOURCE, "Events that could not be read; they are dead letters.")
MATCHES = Metric("streamer_service_matches", "counter", (), "Matches found: delivered + dead + dropped + pending.")
DELIVERED = Metric("streamer_service_matches_delivered", "counter", _SINK, "Matches that their sink holds.")
DEAD = Metric("streamer_service_matches_dead", "counter", _SINK, "Matches that their sink would not take; they are dead letters.")
DROPPED = Metric("streamer_service_matches_dropped", "counter", (), "Matches of gateways that no route leads from.")
PENDING = Metric("streamer_service_matches_pending", "gauge", (), "Matches that wait for their sinks.")
LETTERS = Metric("streamer_service_dead_letters", "gauge", (), "Dead letters in the store.")

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


@final
class Counts(Collector):
    """What a pipeline has counted so far. Thread-safe: it is scraped while it counts.

    Args:
        letters: counts the dead letters.
    """

    def __init__(self, letters: Callable[[], int] = lambda: 0) -> None:
        self._lock = Lock()
        self._letters = letters
        self._events: dict[str, tuple[int, int, int]] = {}  # read, matched, rejected
        self._matches = self._dropped = 0
        self._delivered: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()

    def read(self, part: Part) -> None:
        """Count the events of a part, and the matches that it holds."""
        with self._lock:
            read, matched, rejected = self._events.get(part.source, (0, 0, 0))
            self._events[part.source] = (read + part.events, matched + part.matched, rejected + len(part.dead))
            self._matches += part.unrouted + part.delivering.total()
            self._dropped += part.unrouted

    def delivered(self, matches: Mapping[str, int]) -> None:
        """Count matches that are held, by sink."""
        with self._lock:
            self._delivered.update(matches)

    def of_sources(self) -> dict[str, tuple[int, int, int]]:
        """Return how many events of each source were read, matched and rejected."""
        with self._lock:
            return dict(self._events)

    def of_sinks(self) -> dict[str, tuple[int, int]]:
        """Return how many matches each sink holds, and would not take."""
        with self._lock:
            return {sink: (self._delivered[sink], self._dead[sink]) for sink in {*self._delivered, *self._dead}}

    def totals(self) -> dict[str, int]:
        """Return what was counted of all sources and sinks, by what it counts."""
        return {
            metric.name.removeprefix("streamer_service_"): sum(int(value) for value in values.values())
            for metric, values in self._values()
        }

    def describe(self) -> Iterable[Family]:
        """Name the families, so that registering does not scrape."""
        return [_family(metric, {}) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield what is counted now."""
        for metric, values in self._values():
            yield _family(metric, values)

    def _values(self) -> list[tuple[Metric, Mapping[tuple[str, ...], int]]]:
        with self._lock:
            events = {(source,): counts for source, counts in self._events.items()}
            delivered, dead = dict(self._delivered), dict(self._dead)
            matches, dropped = self._matches, self._dropped
        return [
            (READ, {labels: read for labels, (read, _, _) in events.items()}),
            (MATCHED, {labels: matched for labels, (_, matched, _) in events.items()}),
            (UNMATCHED, {labels: read - matched - rejected for labels, (read, matched, rejected) in events.items()}),
            (REJECTED, {labels: rejected for labels, (_, _, rejected) in events.items()}),
            (MATCHES, {(): matches}),
            (DELIVERED, {(sink,): count for sink, count in delivered.items()}),
            (DEAD, {(sink,): count for sink, count in dead.items()}),
            (DROPPED, {(): dropped}),
            (PENDING, {(): matches - dropped - sum(delivered.values()) - sum(dead.values())}),
            (LETTERS, {(): self._letters()}),
        ]


def _family(metric: Metric, values: Mapping[tuple[str, ...], Any]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
