"""Rates of the last minute, and how long ago what a source reads next came to its end."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final, final

from streamer.service.protocols import Progress

#: A rate is that of so many seconds.
MINUTE: Final = 60.0
#: So many moments are kept of each source: an hour, with one in five seconds.
MOST_ENDS: Final = 720


@final
class Rates:
    """Counts that only grow, as they were up to a minute ago. One thread adds, any may ask."""

    def __init__(self) -> None:
        self._taken: tuple[tuple[float, Mapping[Hashable, float]], ...] = ()

    def add(self, now: float, counts: Mapping[Hashable, float]) -> None:
        """Keep what is counted now, in seconds of a clock that only grows."""
        kept = [each for each in self._taken if each[0] >= now - MINUTE]
        self._taken = (*kept, (now, counts))

    def of(self, now: float, counts: Mapping[Hashable, float]) -> dict[Hashable, float | None]:
        """Return how many there were in a second, of each; None as long as nobody knows."""
        if not self._taken or now - self._taken[0][0] < 1:
            return dict.fromkeys(counts)
        then, before = self._taken[0]
        return {name: round(max(count - before.get(name, 0), 0) / (now - then), 3) for name, count in counts.items()}


@final
class Lags:
    """Where the ends of sources were up to an hour ago, so that one can tell when what is read now was the newest.

    One thread adds, any may ask.
    """

    def __init__(self) -> None:
        self._ends: dict[str, deque[tuple[float, int]]] = {}

    def add(self, now: float, source: str, progress: Progress | None) -> None:
        """Keep where a source ends now; what is kept of one that begins anew is forgotten."""
        ends = self._ends.setdefault(source, deque(maxlen=MOST_ENDS))
        if progress is None or (ends and progress.end < ends[-1][1]):
            ends.clear()
        if progress is not None:
            ends.append((now, progress.end))

    def of(self, now: float, source: str, progress: Progress) -> float:
        """Return for how many seconds there has been more than was read; at least, where that is longer than is known."""
        ends = list(self._ends.get(source, ()))
        if progress.read >= progress.end or not ends:
            return 0.0
        later = bisect_right(ends, progress.read, key=lambda each: each[1])
        return round(now - ends[max(later - 1, 0)][0], 3)
