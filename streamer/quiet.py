"""What keeps a log from flooding: of messages that come again and again some are logged, with how many there were."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, final

from streamer.locks import Lock

#: Keys that are known at once; past it the half that was heard of least lately is forgotten.
KEYS: Final = 10_000
_NEVER: Final = (float("-inf"), 0, 0)


@final
class Quiet:
    """Decides which messages are logged. Safe for threads.

    Args:
        every: seconds in which a key has *most* messages, from its first one on.
    """

    def __init__(self, every: float, most: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._most, self._clock = every, most, clock
        self._lock = Lock()
        #: By key: when its interval began, the messages logged since, and the messages left out since the last one.
        self._periods: dict[Hashable, tuple[float, int, int]] = {}

    def due(self, key: Hashable = None, count: int = 1) -> int | None:
        """Return how many there were since the last message of a key, these *count* included; None if none is to be logged."""
        now = self._clock()
        with self._lock:
            began, logged, omitted = self._periods.pop(key, _NEVER)
            if now - began >= self._every:
                began, logged = now, 0
            is_due, so_far = logged < self._most, omitted + count
            self._periods[key] = (began, logged + is_due, 0 if is_due else so_far)
            if len(self._periods) > KEYS:
                self._periods = dict(list(self._periods.copy().items())[-KEYS // 2 :])
        return so_far if is_due else None

    def rest(self, *, is_over: bool = False) -> list[tuple[Hashable, int]]:
        """Return the keys of which some were left out and may be logged now, with how many; with *is_over*, of every key."""
        now = self._clock()
        with self._lock:
            entries = [
                (key, omitted)
                for key, (began, _, omitted) in self._periods.copy().items()
                if omitted and (is_over or now - began >= self._every)
            ]
            self._periods.update((key, (now, 1, 0)) for key, _ in entries)
        return entries

    def forget(self, key: Hashable) -> None:
        """Begin again with a key."""
        with self._lock:
            self._periods.pop(key, None)
