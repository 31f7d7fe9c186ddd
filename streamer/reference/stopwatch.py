"""Measure the time that a thread spends in CEL programs.

The sum is thread-local, so that evaluation needs no extra argument.
"""

from __future__ import annotations

import threading
from typing import final


@final
class Stopwatch(threading.local):
    """Sums of all runs; to measure a part, take the difference of two readings.

    Attributes:
        runs: the number of programs that ran.
        nanoseconds: the time that they took.
    """

    runs = 0
    nanoseconds = 0

    def add(self, nanoseconds: int) -> None:
        """Count one run."""
        self.runs += 1
        self.nanoseconds += nanoseconds


CEL_TIME = Stopwatch()
