"""Which process delivers, if several share a store.

The store records one process as the leader, for `LEASE` seconds at a time. A process that stops releases the lease. If a leader
dies or stalls, another process follows once the lease has expired, and the old leader can no longer record its attempts
(`Fenced`).
"""

from __future__ import annotations

import time
from math import inf
from typing import Final, final

from streamer.service.store.store import Store

#: A process leads for this many seconds unless it renews the lease. It stops attempting a margin earlier, because clocks drift.
LEASE: Final = 10.0
_MARGIN: Final = 2.0


@final
class Lead:
    """Whether this process delivers. Without a shared store it always does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._generation: int | None = None
        self._until = -inf

    @property
    def is_mine(self) -> bool:
        """Whether this process delivers now."""
        return not self._store.database.is_shared or (self._generation is not None and time.monotonic() < self._until)

    def renew(self) -> tuple[bool, bool]:
        """Renew or begin the lead; return whether the previous one is over, and whether a new one begins.

        Both are true if this process stalled, or another one changed data that only the store has.
        """
        now = time.monotonic()
        generation = self._store.lead(LEASE)
        if generation is not None:
            self._until = now + LEASE - _MARGIN
        before, self._generation = self._generation, generation
        has_changed = generation != before
        return has_changed and before is not None, has_changed and generation is not None

    def end(self) -> None:
        """Stop leading: another process does, or will."""
        self._generation = None
