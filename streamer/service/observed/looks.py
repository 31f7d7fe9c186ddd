"""What only the store knows, read in one thread, so that a silent store blocks no scrape.

A store may neither answer nor refuse, for example while its server is cut off without a closed connection. Then its connection
is busy, and whoever reads it waits. Here, only one thread does. A caller gets a value that was read after the call, if it comes
soon; else the last one, unless it is too old.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar, final

from streamer.errors import ServiceError
from streamer.locks import Lock

#: The interval between two reads without a caller, in seconds.
EVERY: Final = 5.0
#: The longest wait of a caller for a new value, in seconds.
PATIENCE: Final = 1.0
#: The seconds after which the last value is no longer returned.
STALE: Final = 20.0
_LOGGER: Final = logging.getLogger("streamer.service")
_T = TypeVar("_T")


@final
class _Look(Generic[_T]):
    """A value, with the number of reads that were requested and that are done."""

    def __init__(self, read: Callable[[], _T]) -> None:
        self.read = read
        self.wanted = self.done = 0
        self.answer: Callable[[], _T] | None = None
        self.at = 0.0


@final
class Looks:
    """The thread that reads, which begins with the first `of`. Any thread may call the functions that `of` returns."""

    def __init__(self) -> None:
        self._changed = threading.Condition(Lock())
        self._looks: list[_Look[object]] = []
        self._busy_since: float | None = None
        self._is_over = False
        self._thread: threading.Thread | None = None

    def of(self, read: Callable[[], _T]) -> Callable[[], _T]:
        """Return a function that returns the current value of *read*, or the last one if the store does not answer now.

        It raises ServiceError if *read* did, or if the last value is too old.
        """
        look = _Look(read)
        with self._changed:
            self._looks.append(look)  # type: ignore[arg-type]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="streamer-looks", daemon=True)
                self._thread.start()
        return lambda: self._value(look)

    def close(self) -> None:
        """End the thread; if the store does not answer, it ends later."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _value(self, look: _Look[_T]) -> _T:
        with self._changed:
            look.wanted += 1
            wanted, now = look.wanted, time.monotonic()
            # One scrape needs several values: it waits only once for a store that is silent.
            patience = PATIENCE if self._busy_since is None else max(self._busy_since + PATIENCE - now, 0.0)
            self._changed.notify_all()
            self._changed.wait_for(lambda: look.done >= wanted or self._is_over, patience)
            value, age = look.answer, time.monotonic() - look.at
        if value is None or age > STALE:
            raise ServiceError("the store does not answer")
        return value()

    def _run(self) -> None:
        due = time.monotonic() + EVERY
        while True:
            with self._changed:
                self._changed.wait_for(self._is_wanted, max(due - time.monotonic(), 0.0))
                if self._is_over:
                    return
                looks = [each for each in self._looks if each.wanted > each.done]
                if time.monotonic() >= due:
                    looks, due = list(self._looks), time.monotonic() + EVERY
            for look in looks:
                if not self._is_over:
                    self._read(look)

    def _is_wanted(self) -> bool:
        return self._is_over or any(each.wanted > each.done for each in self._looks)

    def _read(self, look: _Look[object]) -> None:
        with self._changed:
            wanted, self._busy_since = look.wanted, time.monotonic()
        value = _read(look.read)
        with self._changed:
            look.done, look.answer, look.at, self._busy_since = wanted, value, time.monotonic(), None
            self._changed.notify_all()


def _read(read: Callable[[], _T]) -> Callable[[], _T]:
    """Return a function that returns what *read* did, or raises its error."""
    try:
        value = read()
    except Exception as error:
        if not isinstance(error, ServiceError):
            # This thread must continue, because without it the service counts as not ready.
            _LOGGER.exception("the store could not be read")
        text = str(error)

        def fail() -> _T:
            raise ServiceError(text)

        return fail
    return lambda: value
