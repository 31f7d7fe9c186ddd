"""What matching costs on this machine, measured with a user's own subscriptions and events: `streamer bench`.

Each figure is of one thread. Whatever is compared is measured by turns, and the best pass of each counts: what else the machine
does makes a pass slower, and never quicker.
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

#: A pass has so many events at least: a clock is read once a pass.
_A_PASS: Final = 1000
_MOST_PASSES: Final = 10_000
#: Events on which a subscription is tried alone; so many subscriptions at most, chosen by their plans from so many.
_TRIED: Final = 200
_ALONE: Final = 1000
_PLANNED: Final = 100_000
#: How long one is tried, in seconds.
_ONE: Final = 0.002
_COSTLIEST: Final = (Effort.EVALUATED, Effort.VERIFIED, Effort.ANSWERED)
#: How many latencies are kept, at most: eight bytes each.
MOST_LATENCIES: Final = 10_000_000


@final
@dataclass(frozen=True, slots=True)
class Played:
    """What the events of a run took, in nanoseconds each.

    Attributes:
        latencies: from when an event was due.
        alone: from when its match began.
        seconds: that the run took.
    """

    latencies: Sequence[int]
    alone: Sequence[int]
    matches: int
    seconds: float


def play(match: Callable[[bytes], Sequence[str]], events: Sequence[bytes], rate: float, count: int) -> Played:
    """Match *count* events, again and again the same, each when it is due or as soon as the one before it is done.

    Args:
        match: finds the ids for an event.
        rate: how many are due a second.
    """
    latencies, alone = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    clock, different = time.perf_counter_ns, len(events)
    matches, begun = 0, clock()
    for number in range(count):
        due = begun + int(number * 1e9 / rate)
        while (now := clock()) < due:
            # Others may hold the GIL while nothing is due.
            time.sleep(0)
        matches += len(match(events[number % different]))
        done = clock()
        latencies[number], alone[number] = done - due, done - now
    return Played(latencies, alone, matches, (clock() - begun) / 1e9)


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return p50, p99, p99.9 and the slowest, in seconds."""
    ordered = sorted(nanoseconds)
    told = {name: ordered[math.ceil(share * len(ordered)) - 1] / 1e9 for name, share in PERCENTILES.items()}
    return told | {"slowest": ordered[-1] / 1e9}


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """Subscriptions that have the same parts.

    Attributes:
        kind: the parts, as `filters+cel`.
        matches: an event.
        seconds: that an event costs where these alone are held, beyond its reading.
    """

    kind: str
    subscriptions: int
    matches: float
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Alone:
    """A subscription by itself.

    Attributes:
        effort: the cost class of its plan.
        matches: an event, of those that were tried.
        seconds: that an event costs where this one alone is held, beyond its reading.
    """

    subscription_id: str
    effort: Effort
    matches: float
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Costs:
    """What an event costs, in seconds, with what is held.

    Attributes:
        events: different ones, which were matched again and again.
        matches: an event.
        events_per_second: that `match_ids` is through with, one after the other.
        latency: of `match_ids`, by the names of percentiles; the clock's own time is in it.
        reading: an event, with an engine that holds nothing.
        finding: what matches, beyond that.
        objects: for a `Match` with its id, of each that matches, beyond that.
        kinds: those that are held, by their parts, the costliest first.
        alone: single ones, the costliest first; some, where there are many.
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
        """Return it as plain JSON."""
        return asdict(self)


def measure(
    engine: Engine,
    empty: Callable[[], Engine],
    events: Sequence[bytes],
    seconds: float,
    *,
    tenant: str | None = None,
    collection: str | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Costs:
    """Measure an engine.

    Args:
        empty: makes one with the same options that holds nothing.
        events: that every such engine can read, one at least; those that it is not through with in time are left out.
        seconds: how long each part is measured: what all cost, the kinds, the single ones.
        tenant: as `match` takes it.
        collection: as `match` takes it.
        told: what is measured now, in words.
    """
    told("what an event costs")
    measured = _Measured(empty, engine, events, seconds, (tenant, collection))
    best, durations = measured.parts()
    told("what the subscriptions of each kind cost")
    kinds = measured.kinds()
    told("which subscriptions cost most by themselves")
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
        found, deadline = 0, time.perf_counter() + seconds
        for event in events:
            found += engine.match_count(event, *names)
            self.events.append(event)
            if time.perf_counter() > deadline:
                break
        self.matches = found / len(self.events)
        # Few events are matched several times in a pass, so that the clock is no part of it.
        self._many = self.events * math.ceil(_A_PASS / len(self.events)) if time.perf_counter() < deadline else self.events

    def parts(self) -> tuple[dict[str, float], array[int]]:
        """Return what each way of asking costs an event, and how long single ones took."""
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
        """Return what those of each kind cost, the costliest first."""
        counted = Counter(map(_kind, self._held()))
        found = []
        for kind, held in counted.items():
            engine = self._engine
            if len(counted) > 1:
                (engine := self._empty()).add_many(each for each in self._held() if _kind(each) == kind)
            found.append(Kind(kind, held, *self._beyond(engine, self._many, self._seconds / len(counted))))
        return tuple(sorted(found, key=lambda each: -each.seconds))

    def alone(self) -> tuple[Alone, ...]:
        """Return what single ones cost, the costliest first; those that each event evaluates are tried before others."""
        by_effort: defaultdict[Effort, list[str]] = defaultdict(list)
        for subscription_id in islice(self._engine, _PLANNED):
            by_effort[self._engine.plan(subscription_id).effort].append(subscription_id)
        chosen = [(each, effort) for effort in _COSTLIEST for each in by_effort[effort]]
        found = []
        deadline = time.perf_counter() + self._seconds
        for subscription_id, effort in chosen[:_ALONE]:
            held = self._engine.get(subscription_id)
            assert held is not None
            (engine := self._empty()).add(held)
            found.append(Alone(subscription_id, effort, *self._beyond(engine, self.events[:_TRIED], _ONE)))
            if time.perf_counter() > deadline:
                break
        return tuple(sorted(found, key=lambda each: -each.seconds))

    def _beyond(self, engine: Engine, events: Sequence[bytes], seconds: float) -> tuple[float, float]:
        """Return the matches of an event, and what it costs beyond its reading."""
        matches = sum(engine.match_count(event, *self._names) for event in events)
        spent = _by_turns(
            {"nothing": lambda: self._count(self._nothing, events), "engine": lambda: self._count(engine, events)}, seconds
        )
        return matches / len(events), max(spent["engine"] - spent["nothing"], 0.0) / len(events)

    def _held(self) -> Iterator[Subscription]:
        # Of a million subscriptions no list is made.
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
    """Return how long the best pass of each took; each has one more than the time allows."""
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
