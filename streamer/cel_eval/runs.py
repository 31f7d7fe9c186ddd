"""How often the portable evaluator ran for an engine, and for how long: it is some hundred times slower than the native one."""

from __future__ import annotations

from typing import final

from streamer.locks import Lock
from streamer.telemetry import BOUNDS, Buckets, Distribution


@final
class Runs:
    """Counts every evaluation. Safe for threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._durations = Buckets(BOUNDS)

    def add(self, nanoseconds: int) -> None:
        """Count one run."""
        with self._lock:
            self._durations.add(nanoseconds)

    def read(self) -> Distribution:
        """Return how long they took, functions in Python included."""
        with self._lock:
            return self._durations.read()
