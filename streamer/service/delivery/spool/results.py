"""The results of attempts, until one commit stores several of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, final

from streamer.service.connectors.protocols import Endpoint, Outcome
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.spool.delivery import Delivery
from streamer.service.delivery.spool.lines import Line
from streamer.service.delivery.spool.sinks import Sinks
from streamer.service.store.database import Fenced
from streamer.service.store.rows import Changes, Waiting

#: Results of attempts are committed after this many seconds, or once there are this many messages.
GATHER: Final = 0.02
MOST_GATHERED: Final = 1_000


@final
class Results:
    """The results that the store does not have yet. Only the spool's thread uses it.

    Args:
        store: stores results.
        fenced: is called if the store has another leader, and thus refused the results.
    """

    def __init__(self, sinks: Sinks, counts: Counts, store: Callable[[Changes], None], fenced: Callable[[], None]) -> None:
        self._sinks, self._counts, self._store, self._fenced = sinks, counts, store, fenced
        self._changes = Changes()
        self._touched: set[Delivery] = set()
        self._since: float | None = None

    def add(
        self, each: Delivery, endpoint: Endpoint, rows: Sequence[Waiting], lines: Sequence[Line], outcome: Outcome, now: float
    ) -> None:
        """Add the result of a request."""
        each.done(endpoint, rows, lines, outcome, self._changes, now)
        self._touched.add(each)
        if self._since is None and len(self._changes):
            self._since = now

    def evict(self, each: Delivery, size: int) -> None:
        """Evict messages of a sink, and store that."""
        self.settle()
        self._touched.add(each)
        each.evict(size, self._changes)
        self.settle()

    @property
    def due_in(self) -> float | None:
        """The seconds until the results are stored; None if there are none."""
        return None if self._since is None else max(self._since + GATHER - time.monotonic(), 0.0)

    def settle_if_due(self, now: float) -> None:
        """Store the results if it is time."""
        if self._since is not None and (now - self._since >= GATHER or len(self._changes) >= MOST_GATHERED):
            self.settle()

    def settle(self) -> None:
        """Store the results in one commit."""
        self._since = None
        if not len(self._changes):
            return
        changes, self._changes = self._changes, Changes()
        try:
            self._store(changes)
        except Fenced:
            self._fenced()
            return
        touched, self._touched = self._touched, set()
        for each in touched:
            with self._sinks.lock:
                delivered, dead = each.settled()
            self._counts.delivered({each.label: delivered}, {each.label: dead})

    def forget(self) -> None:
        """Drop the results: the store has another leader."""
        self._changes, self._since = Changes(), None
        self._touched.clear()
