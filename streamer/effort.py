"""Bound the cost of one call of `explain` or `near_misses`, with everything that it reads and evaluates.

```
explain ─ bounded() ─► the subscription's parser ─ spend(units) ─► more than are left: TooCostlyError, from there on
                   └─► its conditions, one by one ─┘
```

A match has no such bound. So the bound is a thread-local value instead of an argument of every condition.

Units are counted instead of time, so that the answer is the same on every machine and every backend. A unit takes 4 µs at most.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from streamer.model import TOO_COSTLY as TOO_COSTLY

#: The units of one answer: half a second at most.
UNITS: Final = 125_000


class TooCostlyError(Exception):
    """The answer has used all its units."""


@final
class Effort(threading.local):
    """The remaining units of the current answer in this thread; infinite outside of an answer."""

    left = math.inf

    @property
    def is_spent(self) -> bool:
        """Whether the units are used up, so that evaluation stops."""
        return self.left < 0

    def spend(self, units: int) -> None:
        """Count work before it is done. Raises TooCostlyError if the units do not suffice, and on every later call."""
        self.left -= units
        if self.left < 0:
            raise TooCostlyError

    @contextmanager
    def bounded(self, units: float | None = None) -> Iterator[None]:
        """Set the units of one answer in a `with` block; a nested answer shares the units of the outer one."""
        before = self.left
        if before == math.inf:
            self.left = UNITS if units is None else units
        try:
            yield
        finally:
            if before == math.inf:
                self.left = before


EFFORT: Final = Effort()
