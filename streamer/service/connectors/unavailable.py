"""Sources and sinks whose server does not answer when the service starts, for example because it is starting, too.

A thread of its own opens each of them, so that the start does not wait for a silent server. The thread that uses it retries until
its server answers. Until then a source reads no records. While a sink is away, messages are neither delivered nor confirmed, and
records of the sources wait in its bounded queue.
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
from streamer.service.connectors.protocols import Away

#: The wait after the first failure in a row, and the longest wait, in seconds; half of it is random.
FIRST, MOST = 0.25, 30.0
#: How long the start waits for all parts together, in seconds: most available servers answer by then.
PATIENCE: Final = 1.0
#: The interval between checks whether a part is still needed, in seconds.
_LOOK: Final = 0.1
_LOGGER: Final = logging.getLogger("streamer.service")


def delay(failures: int) -> float:
    """Return the wait in seconds after a number of consecutive failures before this one."""
    longest: float = min(MOST, FIRST * 2 ** min(failures, 10))
    return longest * random.uniform(0.5, 1)


@final
class _Opening:
    """A part that is being opened, or is to be retried."""

    def __init__(self, part: object, opening: Callable[[], None]) -> None:
        self.part, self._opening = part, opening
        self._attempt: Future[None] | None = None

    def is_over(self, seconds: float) -> bool:
        """Return whether the part is open, after at most *seconds*; begins an attempt if none is in progress.

        Raises:
            Exception: the one that *opening* raises; the attempt has ended then.
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
    """The parts that are away, by names such as `sources.orders`. Any thread may check; the user of a part waits for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts: dict[str, _Opening] = {}
        self._patience = PATIENCE

    def open(self, name: str, part: object, opening: Callable[[], None]) -> None:
        """Open a part, or note that it is away. Raises ServiceError if an early error shows that waiting would not help."""
        opening_part, began = _Opening(part, opening), time.monotonic()
        try:
            if opening_part.is_over(max(self._patience, 0.0)):
                return
            _LOGGER.warning("%s: its server has not answered yet; waiting for it", name)
        except Away as away:
            _LOGGER.warning("%s; waiting for it", away)
        finally:
            self._patience -= time.monotonic() - began
        self._parts[name] = opening_part

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has(self, name: str, part: object) -> bool:
        """Return whether a part is away."""
        absent = self._parts.get(name)
        return absent is not None and absent.part is part

    def retain(self, parts: Mapping[str, object]) -> None:
        """Forget parts that are not among these, by name: a reload has removed them."""
        with self._lock:
            self._parts = {name: absent for name, absent in self._parts.items() if parts.get(name) is absent.part}

    def wait(self, name: str, part: object, is_wanted: Callable[[], bool]) -> bool:
        """Return True once a part is open, at once if it is not away; return False if the part is not needed any more.

        Raises:
            ServiceError: its server answers, and waiting would not help.
        """
        failures, due = 0, time.monotonic() + delay(0)
        while self.has(name, part):
            if not is_wanted():
                return False
            if (remaining := due - time.monotonic()) > 0:
                time.sleep(min(remaining, _LOOK))
                continue
            try:
                if not self._parts[name].is_over(_LOOK):
                    continue
            except Away as away:
                failures += 1
                pause = delay(failures)
                due = time.monotonic() + pause
                _LOGGER.warning("%s; retrying in %.1f s", away, pause)
                continue
            with self._lock:
                del self._parts[name]
            _LOGGER.info("%s: available now", name)
        return True
