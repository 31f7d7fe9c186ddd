"""Sources and sinks whose server does not answer when the service starts: it may be starting, too.

Each is opened by a thread of its own, so that nobody waits for long while a server says nothing. The thread that uses it tries
again until its server answers. Until then a source reads nothing; where a sink is away, nothing is delivered, so nothing is
confirmed, and what the sources have read waits in its bounded queue.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Final, final

from streamer.locks import Lock
from streamer.service.protocols import Away

#: How long to wait after the first failure in a row, and at most, in seconds; half of it is left to chance.
FIRST, MOST = 0.25, 30.0
#: How long all parts together are waited for at the start, in seconds: servers that are there mostly answer by then.
PATIENCE: Final = 1.0
#: How often one looks whether a part is wanted still, in seconds.
_LOOK: Final = 0.1
_LOGGER: Final = logging.getLogger("streamer.service")


def delay(failures: int) -> float:
    """Return how long to wait after so many failures in a row before this one, in seconds."""
    longest: float = min(MOST, FIRST * 2 ** min(failures, 10))
    return longest * random.uniform(0.5, 1)


@final
class _Opening:
    """A part that is being opened, or is to be tried again."""

    def __init__(self, part: object, opening: Callable[[], None]) -> None:
        self.part, self._opening = part, opening
        self._attempt: Future[None] | None = None

    def is_over(self, seconds: float) -> bool:
        """Tell whether the part is open, after so long at most; an attempt begins where none is under way.

        Raises:
            Exception: what *opening* raises; the attempt is over then.
        """
        if self._attempt is None:
            self._attempt = Future()
            threading.Thread(target=self._open, args=(self._attempt,), name="streamer-opening", daemon=True).start()
        if not wait([self._attempt], seconds).done:
            return False
        attempt, self._attempt = self._attempt, None
        attempt.result()
        return True

    def _open(self, attempt: Future[None]) -> None:
        try:
            self._opening()
        except BaseException as error:
            attempt.set_exception(error)
        else:
            attempt.set_result(None)


@final
class Absent:
    """The parts that are away, by names such as `sources.orders`. Any thread may look; who uses a part waits for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts: dict[str, _Opening] = {}
        self._patience = PATIENCE

    def open(self, name: str, part: object, opening: Callable[[], None]) -> None:
        """Open a part, or note that it is away. Raises ServiceError where it is known soon that waiting would not help."""
        found, began = _Opening(part, opening), time.monotonic()
        try:
            if found.is_over(max(self._patience, 0.0)):
                return
            _LOGGER.warning("%s: its server has not answered so far; it is waited for", name)
        except Away as away:
            _LOGGER.warning("%s; it is waited for", away)
        finally:
            self._patience -= time.monotonic() - began
        self._parts[name] = found

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has(self, name: str, part: object) -> bool:
        """Tell whether a part is away."""
        found = self._parts.get(name)
        return found is not None and found.part is part

    def retain(self, parts: Mapping[str, object]) -> None:
        """Forget parts that are not among some, by their names: a reload has taken them out."""
        with self._lock:
            self._parts = {name: found for name, found in self._parts.items() if parts.get(name) is found.part}

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
                if not self._parts[name].is_over(_LOOK):
                    continue
            except Away as away:
                failures += 1
                pause = delay(failures)
                due = time.monotonic() + pause
                _LOGGER.warning("%s; tried again in %.1f s", away, pause)
                continue
            with self._lock:
                del self._parts[name]
            _LOGGER.info("%s: it is there now", name)
        return True
