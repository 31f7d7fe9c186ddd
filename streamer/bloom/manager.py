"""Decide when a filter is rebuilt, and how large: the policy, without a thread and without its own clock.

```
                    ┌─ capacity   more keys than it was sized for
core.filters() ─────┼─ stale      half of its keys belong to removed subscriptions
                    ├─ rate       significantly too many events without a live key pass
                    └─ interval   it is old
                            │
                            ▼
core.rebuild_filter(…)  built next to the current filter and swapped in; after a failure, the current one stays
```

A write that finds a filter full makes a larger one itself, and the core reports how often (`FilterState.grown`). The next tick
counts these rebuilds as *capacity*: the count is how often filters were too small, whichever code enlarged them.

Both compared rates are rates of *events*: the share of the events without a live key that pass. An event with a live key that
still matches no subscription is not the filter's fault, and a rebuild would not help.

Invariant: rebuilding terminates. A filter is rebuilt for its rate only if the new one differs from the current one: it is sized
for other keys, for more probes, or for a lower rate than the last one that failed. After `GROWTHS` such steps, the filter is
*saturated*: it is reported, and stays as it is until another reason causes a rebuild.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, final

from streamer.bloom.options import MOST_KEYS, BloomOptions
from streamer.bloom.sizing import key_fp_rate, wilson_lower
from streamer.bloom.state import FilterState
from streamer.locks import Lock

logger = logging.getLogger("streamer.bloom")

#: Fewer samples are not significant.
SAMPLES: Final = 1000
#: The least share and number of stale keys that cause a rebuild.
STALE_SHARE: Final = 0.5
STALE_LEAST: Final = 64
#: The capacity of a rebuilt filter, as a multiple of its keys.
ROOM: Final = 1.5
#: The most times that the rate of a key is halved if the filter misses its target rate.
GROWTHS: Final = 4
#: The delay of the next try after a failure, in seconds; it doubles with each failure, up to an hour.
BACKOFF: Final = 10.0
LONGEST_BACKOFF: Final = 3600.0
#: The interval at which pending samples are compared with the live keys, in seconds; that costs a pass over the keys.
MEASURE_INTERVAL: Final = 60.0

Name: TypeAlias = tuple[str, str]
"""Tenant and collection, `"*"` for every one."""


class Reason(StrEnum):
    """The reason for rebuilding a filter."""

    CAPACITY = "capacity"
    STALE = "stale"
    RATE = "rate"
    INTERVAL = "interval"
    REQUESTED = "asked"


class Guarded(Protocol):
    """The methods of a core that the manager calls; see `streamer.core.protocol.Core`."""

    def filters(self) -> Sequence[FilterState]: ...

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None: ...

    def measure_filter(self, tenant: str, collection: str) -> None: ...


@final
@dataclass(slots=True)
class _Watch:
    """The state of one filter between ticks.

    Attributes:
        version: the filter's version that the other attributes describe.
        built_at: the time when that version was first read.
        rate_at: the time of the last rebuild for its rate.
        key_rate: the rate that it was sized for; None if the core built it.
        growths: the number of times that the rate of a key was halved.
        saturated: whether it passes too many events and will not be enlarged further.
        failures: the number of consecutive failed rebuilds.
        retry_at: the time of the earliest next try.
        measured_at, measured_queries: the time when its samples were last compared, and the number of queries then.
        asked, probes: the counters when that version was first read, so that older events do not affect the current rate.
    """

    version: int
    built_at: float
    rate_at: float = -math.inf
    key_rate: float | None = None
    growths: int = 0
    saturated: bool = False
    failures: int = 0
    retry_at: float = -math.inf
    measured_at: float = -math.inf
    measured_queries: int = 0
    asked: int = 0
    probes: int = 0


@final
class Manager:
    """Rebuilds the filters of one core if that improves them.

    Thread-safe: ticks run one at a time. They never block matches or writes.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, core: Guarded, options: BloomOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._core: Final = core
        self._options = options
        self._clock: Final = clock
        self._watches: dict[Name, _Watch] = {}
        self._rebuilds: Counter[tuple[Name, Reason]] = Counter()
        self._failures: Counter[Name] = Counter()
        #: The state of each filter at the last reading: its growths up to then are counted.
        self._latest: dict[Name, FilterState] = {}
        # A separate lock for the counts, because a rebuild keeps the other lock for a long time.
        self._counting = Lock()
        self._lock = Lock()

    def filters(self) -> Sequence[FilterState]:
        """Return the state of each filter, and count those that writes have enlarged since the last reading."""
        with self._counting:
            while True:
                latest = self._latest
                states = self._core.filters()
                now = {state.name: state for state in states}
                if self._latest is latest:
                    self._latest = now
                    break
            for state in states:
                before = latest.get(state.name)
                # If the number of growths decreased, the filter was removed and made again meanwhile.
                if before is not None and before.grown > state.grown:
                    before = None
                if count := state.grown - (before.grown if before is not None else 0):
                    self._rebuilds[state.name, Reason.CAPACITY] += count
                    _log(before, state, Reason.CAPACITY, f", by {count} writes" if count > 1 else ", by a write")
            return states

    @property
    def rebuilds(self) -> Mapping[tuple[Name, Reason], int]:
        """The number of rebuilds of each filter, by reason."""
        return dict(self._rebuilds)

    @property
    def failures(self) -> Mapping[Name, int]:
        """The number of failed rebuilds of each filter."""
        return dict(self._failures)

    @property
    def saturated(self) -> frozenset[Name]:
        """The filters that pass too many events at every size that was tried."""
        return frozenset(name for name, watch in list(self._watches.items()) if watch.saturated)

    def reconfigure(self, options: BloomOptions) -> None:
        """Use other options from now on; existing filters stay until the new options give a reason for a rebuild."""
        with self._lock:
            self._options = options
            for watch in list(self._watches.values()):
                # Earlier growth was for another rate.
                watch.growths, watch.saturated = 0, False

    def tick(self) -> int:
        """Check every filter once, rebuild those that need it, and return the number of rebuilds, without those by writes."""
        with self._lock:
            now = self._clock()
            states = self.filters()
            # A partition that was removed and is added again gets a new filter.
            names = {state.name for state in states}
            self._watches = {name: watch for name, watch in self._watches.copy().items() if name in names}
            if self._measure(states, now):
                states = self._core.filters()
            rebuilt: dict[Name, tuple[FilterState, Reason]] = {}
            for state in states:
                watch = self._watch(state, now)
                if now < watch.retry_at:
                    continue
                reason = self._reason(state, watch, now)
                if reason is not None and self._rebuild(state, watch, reason, now):
                    rebuilt[state.name] = state, reason
            self._report(rebuilt)
            return len(rebuilt)

    def rebuild(self, tenant: str, collection: str) -> bool:
        """Rebuild one filter now, and return whether it exists."""
        with self._lock:
            now = self._clock()
            for state in self.filters():
                if state.name == (tenant, collection):
                    rebuilt = self._rebuild(state, self._watch(state, now), Reason.REQUESTED, now, is_requested=True)
                    self._report({state.name: (state, Reason.REQUESTED)} if rebuilt else {})
                    return True
            return False

    def _watch(self, state: FilterState, now: float) -> _Watch:
        watch = self._watches.get(state.name)
        if watch is None or watch.version != state.version:
            # A writer built it, or it was removed and made again.
            watch = self._watches[state.name] = _Watch(state.version, now, asked=state.asked, probes=state.probes)
        return watch

    def _reason(self, state: FilterState, watch: _Watch, now: float) -> Reason | None:
        options = self._options
        if state.keys > state.capacity:
            return Reason.CAPACITY
        # Removed keys count as stale even if other subscriptions share them. Without the pause, replacing one subscription
        # repeatedly would cause repeated rebuilds.
        is_rested = now - watch.built_at >= options.rebuild_cooldown.total_seconds()
        if is_rested and state.stale >= max(STALE_LEAST, STALE_SHARE * state.keys):
            return Reason.STALE
        if self._passes_too_much(state) and not watch.saturated:
            if now - watch.rate_at < options.rebuild_cooldown.total_seconds():
                return None
            if not self._would_be_better(state, watch):
                if watch.growths == GROWTHS:
                    watch.saturated = True
                    logger.warning(
                        "the filter of tenant %r, collection %r is saturated: version %d passes %.2g of the unwanted events",
                        *state.name,
                        state.version,
                        state.measured_rate,
                    )
                    return None
                watch.growths += 1
            return Reason.RATE
        if options.rebuild_interval is not None and now - watch.built_at >= options.rebuild_interval.total_seconds():
            return Reason.INTERVAL
        return None

    def _measure(self, states: Sequence[FilterState], now: float) -> bool:
        """Compare the samples of the filters that are due with the live keys, and return whether there were any."""
        any_due = False
        for state in states:
            watch = self._watch(state, now)
            if state.asked - watch.measured_queries >= SAMPLES and now - watch.measured_at >= MEASURE_INTERVAL:
                watch.measured_at, watch.measured_queries = now, state.asked
                self._core.measure_filter(*state.name)
                any_due = True
        return any_due

    def _passes_too_much(self, state: FilterState) -> bool:
        return state.sampled >= SAMPLES and wilson_lower(state.false_positives, state.sampled) > self._options.threshold

    def _would_be_better(self, state: FilterState, watch: _Watch) -> bool:
        """Return whether a filter for the current keys and probes would differ from the existing one."""
        if watch.key_rate is None or self._key_rate(state, watch) < 0.9 * watch.key_rate:
            return True
        return state.stale >= 0.1 * state.keys

    def _key_rate(self, state: FilterState, watch: _Watch) -> float:
        queries = state.asked - watch.asked
        probes = (state.probes - watch.probes) / queries if queries >= SAMPLES else state.probes_per_event
        return float(key_fp_rate(self._options.fp_rate, probes) / 2**watch.growths)

    def _rebuild(self, state: FilterState, watch: _Watch, reason: Reason, now: float, *, is_requested: bool = False) -> bool:
        live = max(state.keys - state.stale, state.keys // 2)
        capacity = min(max(self._options.initial_capacity, math.ceil(ROOM * live)), MOST_KEYS)
        key_rate = self._key_rate(state, watch)
        try:
            self._core.rebuild_filter(*state.name, capacity, key_rate)
        except Exception as error:
            self._failures[state.name] += 1
            watch.failures += 1
            watch.retry_at = now + min(BACKOFF * 2.0 ** (watch.failures - 1), LONGEST_BACKOFF)
            logger.warning(
                "rebuilding the filter of tenant %r, collection %r for its %s failed; version %d stays",
                *state.name,
                reason,
                state.version,
                exc_info=error,
            )
            if is_requested:
                raise
            return False
        watch.version = state.version + 1
        watch.built_at, watch.key_rate = now, key_rate
        watch.asked, watch.probes = state.asked, state.probes
        watch.saturated, watch.failures = False, 0
        if reason is Reason.RATE:
            watch.rate_at = now
        return True

    def _report(self, rebuilt: Mapping[Name, tuple[FilterState, Reason]]) -> None:
        if not rebuilt:
            return
        for state in self._core.filters():
            before, reason = rebuilt.get(state.name, (state, None))
            watch = self._watches.get(state.name)
            # If another thread has removed the partition's last subscription, there was no filter to rebuild.
            if reason is not None and watch is not None and state.version == watch.version:
                with self._counting:
                    self._rebuilds[state.name, reason] += 1
                _log(before, state, reason)


def _log(before: FilterState | None, state: FilterState, reason: Reason, by: str = "") -> None:
    logger.info(
        "rebuilt the filter of tenant %r, collection %r: version %d, %d subscriptions (%d outside it), %d keys, room for %d; "
        "false positives %s before, %s now; reason: %s%s",
        *state.name,
        state.version,
        state.keyed,
        state.unkeyed,
        state.keys,
        state.capacity,
        _rate(before),
        _rate(state),
        reason,
        by,
    )


def _rate(state: FilterState | None) -> str:
    if state is None:
        return "unknown"
    if state.measured_rate is not None and state.sampled >= SAMPLES:
        return f"{state.measured_rate:.2%} measured"
    return f"{state.estimated_rate:.2%} estimated"
