"""What one answer to a person may cost: `explain`, `near_misses` and all that they evaluate, together.

```
explain ─ bounded() ─► conditions ─► patterns, filters, CEL ─ spend(units) ─► more than are left: TooCostlyError, from there on
```

A match has no such bound, and spends without end. So the bound is kept for the thread and not handed through every condition.

Units are counted, not time, so that an answer is the same on every machine and every backend. One takes 2 µs at most.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from streamer.cel_eval.program import Outcome, Program, evaluate_cel
from streamer.cel_eval.values import CelReason
from streamer.model import TOO_COSTLY as TOO_COSTLY
from streamer.model import Event

#: Units of one answer: half a second at most.
UNITS: Final = 250_000


class TooCostlyError(Exception):
    """The answer has cost what it may."""


@final
class Effort(threading.local):
    """What is left of an answer's units; without end outside of one."""

    left = math.inf

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is evaluated."""
        return self.left < 0

    def spend(self, units: int) -> None:
        """Count work that is about to be done. Raises TooCostlyError, and from then on always."""
        self.left -= units
        if self.left < 0:
            raise TooCostlyError

    def evaluate_cel(self, program: Program, event: Event, budget: int) -> Outcome:
        """Evaluate a program within *budget* and within what is left. Raises TooCostlyError."""
        self.spend(1)
        most = min(budget, self.left)
        outcome = evaluate_cel(program, event, int(most))
        if outcome.reason is CelReason.BUDGET and most < budget:
            self.left = -1
            raise TooCostlyError
        # What it used of its own budget was done.
        self.left = max(self.left - outcome.cost, 0)
        return outcome

    @contextmanager
    def bounded(self, units: float | None = None) -> Iterator[None]:
        """Give one answer its units; an answer within an answer has those of the outer one."""
        before = self.left
        if before == math.inf:
            self.left = UNITS if units is None else units
        try:
            yield
        finally:
            if before == math.inf:
                self.left = before


EFFORT: Final = Effort()
