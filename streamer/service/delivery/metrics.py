"""The counts of the service.

Contract: at each scrape read = matched + unmatched + rejected, and matches = delivered + dead + dropped + pending. Matches that a
process finds in the spool when it starts count as found by it: they are pending, and it delivers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.metrics import service as names
from streamer.metrics.names import Metric
from streamer.service.delivery.queue import Part
from streamer.service.store.rows import DeadLetter

_T = TypeVar("_T")
Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily
#: The values of metrics by their labels.
Values: TypeAlias = Sequence[tuple[Metric, Mapping[tuple[str, ...], float]]]
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
        configured: returns the names of the sources and of the sinks, which have counts from the beginning.
    """

    def __init__(self, letters: Callable[[], int] = lambda: 0) -> None:
        self._lock = Lock()
        self._letters = letters
        self.gauges: Callable[[], Sequence[Gauges]] = tuple
        self.configured: Callable[[], tuple[Iterable[str], Iterable[str]]] = lambda: ((), ())
        self._events: dict[str, tuple[int, int, int]] = {}  # read, matched, rejected
        self._matches = self._dropped = self._unrouted = 0
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
            self._unrouted += part.unrouted
            if part.dead:
                self.refused[part.source] = part.dead[-1]

    def recover(self, matches: int) -> None:
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
        return [_family(metric, {}) for metric in names.METRICS if metric not in (*names.OF_CONDITION, *names.OF_API)]

    def collect(self) -> Iterator[Family]:
        """Yield the current counts."""
        for metric, values in self._values():
            yield _family(metric, values)

    def _values(self) -> Values:
        gauges: Sequence[Gauges] = _readable(self.gauges, ())
        letters = _readable(self._letters, None)
        # Prometheus finds no increase of a counter that begins with 1.
        sources, sinks = self.configured()
        with self._lock:
            events = {(source,): (0, 0, 0) for source in sources} | {(source,): each for source, each in self._events.items()}
            delivered, dead = dict.fromkeys(sinks, 0) | self._delivered, dict.fromkeys(sinks, 0) | self._dead
            matches, dropped, unrouted = self._matches, self._dropped, self._unrouted
        return [
            (names.READ, {labels: read for labels, (read, _, _) in events.items()}),
            (names.MATCHED, {labels: matched for labels, (_, matched, _) in events.items()}),
            (names.UNMATCHED, {labels: read - matched - rejected for labels, (read, matched, rejected) in events.items()}),
            (names.REJECTED, {labels: rejected for labels, (_, _, rejected) in events.items()}),
            (names.MATCHES, {(): matches}),
            (names.DELIVERED, {(sink,): count for sink, count in delivered.items()}),
            (names.DEAD, {(sink,): count for sink, count in dead.items()}),
            (names.DROPPED, {(): dropped}),
            (names.UNROUTED, {(): unrouted}),
            (names.PENDING, {(): matches - dropped - sum(delivered.values()) - sum(dead.values())}),
            (names.LETTERS, {} if letters is None else {(): letters}),
            (names.SPOOLED, {(each.sink,): each.messages for each in gauges}),
            (names.SPOOLED_BYTES, {(each.sink,): each.bytes for each in gauges}),
            (names.OLDEST, {(each.sink,): each.oldest for each in gauges}),
            (names.BLOCKED, {(each.sink,): each.blocked for each in gauges}),
            (names.STUCK, {(each.sink,): each.stuck for each in gauges}),
            (names.ATTEMPTS, {(each.sink, result): count for each in gauges for result, count in each.attempts.items()}),
            (names.BREAKER, {(each.sink,): _STATES[each.state] for each in gauges if each.state is not None}),
        ]


@final
class Condition(Collector):
    """The condition of a service: whether it works, how far its sources are behind, how much room is left.

    Args:
        read: returns the current values.
    """

    def __init__(self, read: Callable[[], Values]) -> None:
        self._read = read

    def describe(self) -> Iterable[Family]:
        """Name the families, so that registering does not scrape."""
        return [_family(metric, {}) for metric in names.OF_CONDITION]

    def collect(self) -> Iterator[Family]:
        """Yield the current values."""
        for metric, values in self._read():
            yield _family(metric, values)


def _readable(read: Callable[[], _T], otherwise: _T) -> _T:
    """Return what the store has, or *otherwise* while it cannot be read: a scrape must report that the service is not ready."""
    try:
        return read()
    except ServiceError:
        return otherwise


def _family(metric: Metric, values: Mapping[tuple[str, ...], Any]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
