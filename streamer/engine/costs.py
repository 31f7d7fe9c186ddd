"""Measure the cost of matching on this machine with a user's own subscriptions and events: `streamer bench`.

All figures are for one thread. Alternatives are measured in turns, and the best pass of each counts, because other load on the
machine can make a pass slower, but never faster.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, final

from streamer.core.estimate import Effort
from streamer.engine.engine import Engine
from streamer.sizes import PERCENTILES
from streamer.subscriptions.subscription import Subscription

#: The fewest events of a pass, because the clock is read once per pass.
_A_PASS: Final = 1000
_MOST_PASSES: Final = 10_000
#: The most events for measuring a single subscription; the most subscriptions that are measured; and the most whose plans are
#: read to choose them.
_TRIED: Final = 200
_ALONE: Final = 1000
_PLANNED: Final = 100_000
#: The time to measure a single subscription, in seconds.
_ONE: Final = 0.002
_COSTLIEST: Final = (Effort.EVALUATED, Effort.VERIFIED, Effort.ANSWERED)
#: The most latencies that are stored, at eight bytes each.
MOST_LATENCIES: Final = 10_000_000


@final
@dataclass(frozen=True, slots=True)
class Played:
    """The durations of the events of a run, in nanoseconds.

    Attributes:
        latencies: from the time when an event was due to the end of its match.
        alone: from the start of the match to its end.
        seconds: the duration of the run.
    """

    latencies: Sequence[int]
    alone: Sequence[int]
    matches: int
    seconds: float


def play(match: Callable[[bytes], Sequence[str]], events: Sequence[bytes], rate: float, count: int) -> Played:
    """Match *count* events, repeating *events*, each when it is due or as soon as the event before it is finished.

    Args:
        match: returns the ids of the subscriptions that match an event.
        rate: the number of events that are due per second.
    """
    latencies, alone = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    clock, different = time.perf_counter_ns, len(events)
    matches, begun = 0, clock()
    for number in range(count):
        due = begun + int(number * 1e9 / rate)
        while (now := clock()) < due:
            # Release the GIL for other threads until the event is due.
            time.sleep(0)
        matches += len(match(events[number % different]))
        done = clock()
        latencies[number], alone[number] = done - due, done - now
    return Played(latencies, alone, matches, (clock() - begun) / 1e9)


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return the percentiles p50, p99 and p99.9, and the maximum as `slowest`, in seconds."""
    ordered = sorted(nanoseconds)
    seconds = {name: ordered[math.ceil(share * len(ordered)) - 1] / 1e9 for name, share in PERCENTILES.items()}
    return seconds | {"slowest": ordered[-1] / 1e9}


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """Subscriptions that have the same parts.

    Attributes:
        kind: the parts, such as `filters+cel`.
        matches: the number of matches per event.
        seconds: the cost per event with only these subscriptions, without parsing.
    """

    kind: str
    subscriptions: int
    matches: float
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Alone:
    """The cost of a single subscription.

    Attributes:
        effort: the cost class of its plan.
        matches: the number of matches per event of the measurement.
        seconds: the cost per event with only this subscription, without parsing.
    """

    subscription_id: str
    effort: Effort
    matches: float
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of an event with the subscriptions of an engine, in seconds.

    Attributes:
        events: the number of different events, which were matched repeatedly.
        matches: the number of matches per event.
        events_per_second: the throughput of `match_ids` in one thread.
        latency: the duration of `match_ids`, by percentile; it includes the time to read the clock.
        reading: the cost to parse an event, measured with an empty engine.
        finding: the additional cost to find and count the matches.
        objects: the additional cost to create a `Match` for each match and read its id.
        kinds: the cost of the subscriptions by their parts, most expensive first.
        alone: the cost of single subscriptions, most expensive first; a selection if there are many.
    """

    events: int
    matches: float
    events_per_second: float
    latency: Mapping[str, float]
    reading: float
    finding: float
    objects: float
    kinds: tuple[Kind, ...]
    alone: tuple[Alone, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as plain JSON values."""
        return asdict(self)


def measure(
    engine: Engine,
    empty: Callable[[], Engine],
    events: Sequence[bytes],
    seconds: float,
    *,
    tenant: str | None = None,
    collection: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Costs:
    """Return the costs of an engine.

    Args:
        empty: makes an empty engine with the same options.
        events: at least one event, all valid for the engine. Events that it cannot match in time are left out.
        seconds: the time for each part of the measurement: all subscriptions, the kinds, the single subscriptions.
        tenant: see `Engine.match`.
        collection: see `Engine.match`.
        progress: called with the name of each part before it is measured.
    """
    progress("what an event costs")
    measured = _Measured(empty, engine, events, seconds, (tenant, collection))
    best, durations = measured.parts()
    progress("what the subscriptions of each kind cost")
    kinds = measured.kinds()
    progress("which subscriptions cost most by themselves")
    return Costs(
        events=len(measured.events),
        matches=measured.matches,
        events_per_second=1 / best["ids"],
        latency=percentiles(durations),
        reading=best["reading"],
        finding=max(best["count"] - best["reading"], 0.0),
        objects=max(best["objects"] - best["count"], 0.0),
        kinds=kinds,
        alone=measured.alone(),
    )


@final
class _Measured:
    def __init__(
        self,
        empty: Callable[[], Engine],
        engine: Engine,
        events: Sequence[bytes],
        seconds: float,
        names: tuple[str | None, str | None],
    ) -> None:
        self._empty, self._engine, self._seconds, self._names = empty, engine, seconds, names
        self._nothing = empty()
        self.events: list[bytes] = []
        matches, deadline = 0, time.perf_counter() + seconds
        for event in events:
            matches += engine.match_count(event, *names)
            self.events.append(event)
            if time.perf_counter() > deadline:
                break
        self.matches = matches / len(self.events)
        # A pass repeats a small set of events, so that reading the clock takes a negligible part of it.
        self._many = self.events * math.ceil(_A_PASS / len(self.events)) if time.perf_counter() < deadline else self.events

    def parts(self) -> tuple[dict[str, float], array[int]]:
        """Return the cost per event of each match method, and the durations of single calls."""
        durations = array("q")
        passes = {
            "reading": lambda: self._count(self._nothing, self._many),
            "count": lambda: self._count(self._engine, self._many),
            "ids": self._ids,
            "objects": self._objects,
            "clock": lambda: self._clocked(durations),
        }
        best = _by_turns(passes, self._seconds)
        return {name: spent / len(self._many) for name, spent in best.items()}, durations

    def kinds(self) -> tuple[Kind, ...]:
        """Return the cost of the subscriptions of each kind, most expensive first."""
        counted = Counter(map(_kind, self._subscriptions()))
        rows = []
        for kind, count in counted.items():
            engine = self._engine
            if len(counted) > 1:
                (engine := self._empty()).add_many(each for each in self._subscriptions() if _kind(each) == kind)
            rows.append(Kind(kind, count, *self._beyond(engine, self._many, self._seconds / len(counted))))
        return tuple(sorted(rows, key=lambda each: -each.seconds))

    def alone(self) -> tuple[Alone, ...]:
        """Return the cost of single subscriptions, most expensive first. Those that every event evaluates are measured first."""
        by_effort: defaultdict[Effort, list[str]] = defaultdict(list)
        for subscription_id in islice(self._engine, _PLANNED):
            by_effort[self._engine.plan(subscription_id).effort].append(subscription_id)
        selection = [(each, effort) for effort in _COSTLIEST for each in by_effort[effort]]
        costs = []
        deadline = time.perf_counter() + self._seconds
        for subscription_id, effort in selection[:_ALONE]:
            subscription = self._engine.get(subscription_id)
            assert subscription is not None
            (engine := self._empty()).add(subscription)
            costs.append(Alone(subscription_id, effort, *self._beyond(engine, self.events[:_TRIED], _ONE)))
            if time.perf_counter() > deadline:
                break
        return tuple(sorted(costs, key=lambda each: -each.seconds))

    def _beyond(self, engine: Engine, events: Sequence[bytes], seconds: float) -> tuple[float, float]:
        """Return the matches per event, and the cost per event without parsing."""
        matches = sum(engine.match_count(event, *self._names) for event in events)
        spent = _by_turns(
            {"nothing": lambda: self._count(self._nothing, events), "engine": lambda: self._count(engine, events)}, seconds
        )
        return matches / len(events), max(spent["engine"] - spent["nothing"], 0.0) / len(events)

    def _subscriptions(self) -> Iterator[Subscription]:
        # A generator, because there may be a million subscriptions.
        return (each for each in map(self._engine.get, self._engine) if each is not None)

    def _count(self, engine: Engine, events: Sequence[bytes]) -> None:
        for event in events:
            engine.match_count(event, *self._names)

    def _ids(self) -> None:
        for event in self._many:
            self._engine.match_ids(event, *self._names)

    def _objects(self) -> None:
        for event in self._many:
            for each in self._engine.match(event, *self._names):
                _ = each.subscription_id

    def _clocked(self, durations: array[int]) -> None:
        clock = time.perf_counter_ns
        for event in islice(self._many, MOST_LATENCIES - len(durations)):
            began = clock()
            self._engine.match_ids(event, *self._names)
            durations.append(clock() - began)


def _by_turns(passes: Mapping[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Return the duration of the best of several passes of each. The last round may end after *seconds*."""
    best = dict.fromkeys(passes, math.inf)
    deadline = time.perf_counter() + seconds
    for _ in range(_MOST_PASSES):
        for name, run in passes.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
        if time.perf_counter() > deadline:
            break
    return best


def _kind(subscription: Subscription) -> str:
    parts = ("filters", "pattern", "topic", "cel")
    return "+".join(name for name in parts if getattr(subscription, name)) or "no condition"
