"""The progress of loading subscriptions at the start, for the log and for `/readyz`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar, final

#: The interval between log lines, in seconds.
_TELL: Final = 5.0
_T = TypeVar("_T")
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Loading:
    """Counts subscriptions as they are loaded. One thread counts, and any thread may read.

    Attributes:
        loaded: how many the engine has read.
        total: how many there are, as far as they are known: it grows while files are read.
    """

    def __init__(self) -> None:
        self.loaded = self.total = 0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the begin."""
        return time.monotonic() - self._began

    def members(self) -> dict[str, Any]:
        """Return the progress as JSON members."""
        return {"subscriptions": {"loaded": self.loaded, "total": self.total}, "seconds": round(self.seconds, 1)}

    def counted(self, several: Collection[_T]) -> Iterator[_T]:
        """Yield subscriptions, or their rows, and count them. They are the last ones that are known so far."""
        self.total = self.loaded + len(several)
        for each in several:
            yield each
            self.loaded += 1

    def run(self, work: Callable[[], _T]) -> _T:
        """Load in a thread of its own, and log the progress. Signals interrupt this wait, and never a step of the engine.

        Raises:
            Exception: what *work* raises.
        """
        ended: Future[_T] = Future()

        def load() -> None:
            try:
                ended.set_result(work())
            except BaseException as error:
                ended.set_exception(error)

        threading.Thread(target=load, name="streamer-load", daemon=True).start()
        while not wait([ended], _TELL).done:
            fields = {"loaded": self.loaded, "total": self.total, "seconds": round(self.seconds, 1)}
            _LOGGER.info("loading: %s of %s subscriptions after %.0f s", *_written(self), self.seconds, extra=fields)
        return ended.result()


def _written(loading: Loading) -> tuple[str, str]:
    return f"{loading.loaded:,}", f"{loading.total:,}"
