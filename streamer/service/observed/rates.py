"""Rates over the last minute, and how far sources lag in seconds."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final, final

from streamer.core.options import Options
from streamer.errors import EventError
from streamer.events.reading import IgnoredEvent
from streamer.service.connectors.protocols import Progress

#: The seconds that a rate covers.
MINUTE: Final = 60.0
#: The number of samples of each source: an hour, with one in five seconds.
MOST_ENDS: Final = 720
#: The seconds between two events of a source whose time is read.
_EVERY: Final = 1.0


@final
class Rates:
    """Samples of growing counts over the last minute. One thread adds, any may read."""

    def __init__(self) -> None:
        self._samples: tuple[tuple[float, Mapping[Hashable, float]], ...] = ()

    def add(self, now: float, counts: Mapping[Hashable, float]) -> None:
        """Keep the current counts; *now* is in seconds of a monotonic clock."""
        recent = [each for each in self._samples if each[0] >= now - MINUTE]
        self._samples = (*recent, (now, counts))

    def of(self, now: float, counts: Mapping[Hashable, float]) -> dict[Hashable, float | None]:
        """Return the rate of each count per second; None before there are enough samples."""
        if not self._samples or now - self._samples[0][0] < 1:
            return dict.fromkeys(counts)
        then, before = self._samples[0]
        return {name: round(max(count - before.get(name, 0), 0) / (now - then), 3) for name, count in counts.items()}


@final
class Lags:
    """The ends of sources up to an hour ago, which show when the record that is read now was the newest.

    One thread adds, any may read.
    """

    def __init__(self) -> None:
        self._ends: dict[str, deque[tuple[float, int]]] = {}
        self._of: dict[str, object] = {}

    def add(self, now: float, source: str, progress: Progress | None, of: object = None) -> None:
        """Keep the current end of a source; if the source begins again, its earlier samples are dropped.

        Args:
            of: the object that reads the source; after a reload, another one may read something else under this name.
        """
        ends = self._ends.setdefault(source, deque(maxlen=MOST_ENDS))
        if progress is None or (ends and progress.end < ends[-1][1]) or self._of.get(source) is not of:
            ends.clear()
        self._of[source] = of
        if progress is not None:
            ends.append((now, progress.end))

    def of(self, now: float, source: str, progress: Progress) -> float:
        """Return for how many seconds there have been unread records; a lower bound, if it is longer than the samples."""
        ends = list(self._ends.get(source, ()))
        if progress.read >= progress.end or not ends:
            return 0.0
        later = bisect_right(ends, progress.read, key=lambda each: each[1])
        return round(now - ends[max(later - 1, 0)][0], 3)


@final
class Delays:
    """How old an event was when it was read, by its own time, for each source. The source's thread adds, any may read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._latest: dict[str, tuple[float, float | None]] = {}

    def add(self, source: str, event: bytes) -> None:
        """Read the time of an event, unless another one of the source was read in the last second."""
        now = time.monotonic()
        if (last := self._latest.get(source)) is not None and now - last[0] < _EVERY:
            return
        try:
            at = self._options.read(event, None, None).ts_ns
        except (EventError, IgnoredEvent):
            return
        self._latest[source] = now, None if at is None else max(time.time() - at / 10**9, 0.0)

    def of(self, source: str) -> float | None:
        """Return how old the latest event was, in seconds; None if it has no time."""
        _, delay = self._latest.get(source, (0.0, None))
        return None if delay is None else round(delay, 3)
