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
UNITS: Final = 95_000

#: The text of an event that is read in a unit.
_BYTES_A_UNIT: Final = 64


class TooCostlyError(Exception):
    """The answer has used all its units."""


@final
class Effort(threading.local):
    """The remaining units of the current answer in this thread; infinite outside of an answer."""

    remaining = math.inf

    @property
    def to_read(self) -> float:
        """The units that it may take to read a subscription; the others are for its conditions."""
        return self.remaining - UNITS // 5

    @property
    def is_spent(self) -> bool:
        """Whether the units are used up, so that evaluation stops."""
        return self.remaining < 0

    def spend(self, units: float) -> None:
        """Count work before it is done. Raises TooCostlyError if the units do not suffice, and on every later call."""
        self.remaining -= units
        if self.remaining < 0:
            raise TooCostlyError

    def spend_on_event(self, event: object) -> None:
        """Count what it takes to read the text of an event: half of all units at most, because the event is read anyway."""
        if isinstance(event, str | bytes | bytearray):
            self.remaining -= min(len(event) // _BYTES_A_UNIT, UNITS // 2)

    @contextmanager
    def bounded(self, units: float | None = None) -> Iterator[None]:
        """Set the units of one answer in a `with` block; a nested answer shares the units of the outer one."""
        before = self.remaining
        if before == math.inf:
            self.remaining = UNITS if units is None else units
        try:
            yield
        finally:
            if before == math.inf:
                self.remaining = before


EFFORT: Final = Effort()
