"""Sources and sinks whose server does not answer when the service starts: it may be starting, too.

Each is opened by the thread that uses it, as soon as its server answers. Until then a source reads nothing; where a sink is away,
nothing is delivered, so nothing is confirmed, and what the sources have read waits in its bounded queue.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Final, final

from streamer.locks import Lock
from streamer.service.protocols import Away

#: How long to wait after the first failure in a row, and at most, in seconds; half of it is left to chance.
FIRST, MOST = 0.25, 30.0
#: How often one looks whether a part is wanted still, in seconds.
_LOOK: Final = 0.1
_LOGGER: Final = logging.getLogger("streamer.service")


def delay(failures: int) -> float:
    """Return how long to wait after so many failures in a row before this one, in seconds."""
    longest: float = min(MOST, FIRST * 2 ** min(failures, 10))
    return longest * random.uniform(0.5, 1)


@final
class Absent:
    """The parts that are away, by names such as `sources.orders`. Any thread may look; who uses a part waits for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts: dict[str, tuple[object, Callable[[], None]]] = {}

    def open(self, name: str, part: object, opening: Callable[[], None]) -> None:
        """Open a part, or note that it is away. Raises ServiceError where waiting would not help."""
        try:
            opening()
        except Away as away:
            _LOGGER.warning("%s; it is waited for", away)
            self._parts[name] = (part, opening)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has(self, name: str, part: object) -> bool:
        """Tell whether a part is away."""
        found = self._parts.get(name)
        return found is not None and found[0] is part

    def retain(self, parts: Mapping[str, object]) -> None:
        """Forget parts that are not among some, by their names: a reload has taken them out."""
        with self._lock:
            self._parts = {name: found for name, found in self._parts.items() if parts.get(name) is found[0]}

    def wait(self, name: str, part: object, is_wanted: Callable[[], bool]) -> bool:
        """Return once a part is open, at once where it is not away; False where nobody wants it any more.

        Raises:
            ServiceError: its server answers, and waiting would not help.
        """
        failures, due = 0, time.monotonic() + delay(0)
        while self.has(name, part):
            if not is_wanted():
                return False
            if (left := due - time.monotonic()) > 0:
                time.sleep(min(left, _LOOK))
                continue
            try:
                self._parts[name][1]()
            except Away as away:
                failures += 1
                wait = delay(failures)
                due = time.monotonic() + wait
                _LOGGER.warning("%s; tried again in %.1f s", away, wait)
                continue
            with self._lock:
                del self._parts[name]
            _LOGGER.info("%s: it is there now", name)
        return True
