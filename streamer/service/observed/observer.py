"""The thread that samples a service at intervals, and its samples."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, final

from prometheus_client import Metric

from streamer.engine.engine import Engine
from streamer.metrics.history import History
from streamer.service.observed.series import EVERY, Series

#: The interval between samples for rates, in seconds.
TICK: Final = 5.0
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Observer:
    """The samples of a service. It begins with the first `start`, and ends with `close`.

    Args:
        read: returns the values that a scrape would read.
        look: samples the current counts; it is called each `TICK` seconds.

    Attributes:
        series: all metrics.
        filters: samples of the engine's filters.
    """

    def __init__(self, engine: Engine, read: Callable[[], Iterable[Metric]], look: Callable[[float], None]) -> None:
        self.series = Series(read)
        self.filters = History(engine, every=EVERY)
        self._look = look
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to sample, in a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streamer-observer", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(TICK)

    def tick(self, now: float) -> None:
        """Add the samples that are due now."""
        self._look(now)
        self.filters.tick()

    def _run(self) -> None:
        due = 0.0
        while True:
            now = time.monotonic()
            try:
                self.tick(now)
                if now >= due:
                    due = now + EVERY - TICK / 2
                    self.series.take()
            except Exception:
                # An error in sampling must not end a service.
                _LOGGER.exception("cannot record the state of the service")
            if self._over.wait(TICK):
                return
