"""The counts of the service.

Contract: at each scrape read = matched + unmatched + rejected, and matches = delivered + dead + dropped + pending. Matches that a
process finds in the spool when it starts count as found by it: they are pending, and it delivers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.locks import Lock
from streamer.metrics.names import Metric
from streamer.service.queue import Part
from streamer.service.store.rows import DeadLetter

_SOURCE, _SINK, _RESULT = ("source",), ("sink",), ("sink", "result")
READ = Metric("streamer_service_events_read", "counter", _SOURCE, "Events that were read: matched + unmatched + rejected.")
MATCHED = Metric("streamer_service_events_matched", "counter", _SOURCE, "Events that matched at least one subscription.")
UNMATCHED = Metric(
    "streamer_service_events_unmatched", "counter", _SOURCE, "Events that matched no subscription, including ignored ones."
)
REJECTED = Metric("streamer_service_events_rejected", "counter", _SOURCE, "Events that could not be read; they are dead letters.")
MATCHES = Metric(
    *("streamer_service_matches", "counter", ()),
    "Matches found, and those in the spool at the start: delivered + dead + dropped + pending.",
)
DELIVERED = Metric("streamer_service_matches_delivered", "counter", _SINK, "Matches that their sink has confirmed.")
DEAD = Metric("streamer_service_matches_dead", "counter", _SINK, "Matches that their sink refused; they are dead letters.")
DROPPED = Metric(
    *("streamer_service_matches_dropped", "counter", ()), "Matches of gateways without a route, and messages that were deleted."
)
PENDING = Metric("streamer_service_matches_pending", "gauge", (), "Matches that wait for their sinks.")
LETTERS = Metric("streamer_service_dead_letters", "gauge", (), "Dead letters in the store.")
SPOOLED = Metric("streamer_service_spool_messages", "gauge", _SINK, "Messages in the spool.")
SPOOLED_BYTES = Metric("streamer_service_spool_bytes", "gauge", _SINK, "Bytes of the messages in the spool.")
OLDEST = Metric("streamer_service_spool_oldest_seconds", "gauge", _SINK, "Age of the oldest message in the spool.")
BLOCKED = Metric("streamer_service_spool_blocked_keys", "gauge", _SINK, "Keys that wait for another attempt.")
STUCK = Metric(
    *("streamer_service_spool_stuck_messages", "gauge", _SINK),
    "Messages beyond their last attempt, retried because the store has no room for their dead letters.",
)
ATTEMPTS = Metric(
    *("streamer_service_attempts", "counter", _RESULT), "Requests, by result: `delivered`, `retried`, `refused`, `gone`."
)
BREAKER = Metric(
    *("streamer_service_breaker", "gauge", _SINK),
    "State of an endpoint: 0 closed; 1 probing, 2 open (it is failing); 3 disabled after HTTP 410.",
)

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily
_STATES: Final = {"closed": 0, "half_open": 1, "open": 2, "disabled": 3}


@final
class Gauges(NamedTuple):
    """The current numbers of a sink that uses the spool; *attempts* are counted by their result.

    *state* is None for all of tenants' own gateways together.
    """

    sink: str
    messages: int
    bytes: int
    oldest: float
    blocked: int
    stuck: int
    state: str | None
    attempts: Mapping[str, int]


@final
class Counts(Collector):
    """The counts of a pipeline. Thread-safe: it is scraped while it counts.

    Args:
        letters: counts the dead letters.

    Attributes:
        refused: the latest record that could not be read, by source.
        gauges: returns the current numbers of the sinks that use the spool.
    """

    def __init__(self, letters: Callable[[], int] = lambda: 0) -> None:
        self._lock = Lock()
        self._letters = letters
        self.gauges: Callable[[], Sequence[Gauges]] = tuple
        self._events: dict[str, tuple[int, int, int]] = {}  # read, matched, rejected
        self._matches = self._dropped = 0
        self._delivered: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        #: The latest rejected record, by its source.
        self.refused: dict[str, DeadLetter] = {}

    def read(self, part: Part) -> None:
        """Count the events of a part, and its matches."""
        with self._lock:
            read, matched, rejected = self._events.get(part.source, (0, 0, 0))
            self._events[part.source] = (read + part.events, matched + part.matched, rejected + len(part.dead))
            self._matches += part.unrouted + part.delivering.total() + sum(each.matches for each in part.spooled)
            self._dropped += part.unrouted
            if part.dead:
                self.refused[part.source] = part.dead[-1]

    def found(self, matches: int) -> None:
        """Count matches that were in the spool at the start."""
        with self._lock:
            self._matches += matches

    def delivered(self, matches: Mapping[str, int], dead: Mapping[str, int] | None = None) -> None:
        """Count matches that were delivered, and those of dead letters, by sink."""
        with self._lock:
            self._delivered.update(matches)
            self._dead.update(dead or {})

    def drop(self, matches: int) -> None:
        """Count matches whose gateway was deleted."""
        with self._lock:
            self._dropped += matches

    def of_sources(self) -> dict[str, tuple[int, int, int]]:
        """Return how many events of each source were read, matched and rejected."""
        with self._lock:
            return dict(self._events)

    def of_sinks(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of matches that each sink has accepted and refused."""
        with self._lock:
            return {sink: (self._delivered[sink], self._dead[sink]) for sink in {*self._delivered, *self._dead}}

    def totals(self) -> dict[str, int]:
        """Return the sums over all sources and sinks, by the metric's name."""
        return {
            metric.name.removeprefix("streamer_service_"): sum(int(value) for value in values.values())
            for metric, values in self._values()
        }

    def describe(self) -> Iterable[Family]:
        """Name the families, so that registering does not scrape."""
        return [_family(metric, {}) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield the current counts."""
        for metric, values in self._values():
            yield _family(metric, values)

    def _values(self) -> list[tuple[Metric, Mapping[tuple[str, ...], float]]]:
        seen = self.gauges()
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
            (SPOOLED, {(each.sink,): each.messages for each in seen}),
            (SPOOLED_BYTES, {(each.sink,): each.bytes for each in seen}),
            (OLDEST, {(each.sink,): each.oldest for each in seen}),
            (BLOCKED, {(each.sink,): each.blocked for each in seen}),
            (STUCK, {(each.sink,): each.stuck for each in seen}),
            (ATTEMPTS, {(each.sink, result): count for each in seen for result, count in each.attempts.items()}),
            (BREAKER, {(each.sink,): _STATES[each.state] for each in seen if each.state is not None}),
        ]


def _family(metric: Metric, values: Mapping[tuple[str, ...], Any]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
