"""How long this thread has spent in CEL programs.

Kept for the thread and not handed down through the evaluation, where nothing else depends on it.
"""

from __future__ import annotations

import threading
from typing import final


@final
class Stopwatch(threading.local):
    """Adds up; whoever measures takes the difference.

    Attributes:
        runs: how many programs ran.
        nanoseconds: what they took.
    """

    runs = 0
    nanoseconds = 0

    def add(self, nanoseconds: int) -> None:
        """Count one run."""
        self.runs += 1
        self.nanoseconds += nanoseconds


CEL_TIME = Stopwatch()
