"""Room in the spool: threads that add messages wait for it, and messages are evicted to make it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from streamer.service.delivery.spool.delivery import Delivery, Owner
from streamer.service.delivery.spool.lead import Lead
from streamer.service.delivery.spool.sinks import Sinks
from streamer.service.store.rows import milliseconds

#: A tenant over its limit is cut by this additional fraction of the limit, so that it is not cut for each message.
_PARTS: Final = 32


@final
@dataclass(slots=True)
class Request:
    """A thread that waits for room."""

    sizes: Mapping[str, int]
    granted: threading.Event = field(default_factory=threading.Event)


@final
class Room:
    """The room of the sinks, and of the tenants whose gateways share a limit.

    Args:
        evict: evicts a number of bytes of a sink.

    Attributes:
        request: the thread that waits, if any.
        is_unlimited: whether every sink has room, because the spool is stopping.
    """

    def __init__(self, sinks: Sinks, lead: Lead, evict: Callable[[Delivery, int], None]) -> None:
        self._sinks, self._lead, self._evict = sinks, lead, evict
        self._full: set[Owner] = set()
        self.request: Request | None = None
        self.is_unlimited = False

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether each sink, and each tenant, has room for this many bytes."""
        fits = all(self._fits(self._sinks.deliveries.get(name), size) for name, size in sizes.items())
        return fits and all(owner.bytes + size <= owner.most_bytes for owner, size in self._sinks.bytes_of_owners(sizes).items())

    def _fits(self, each: Delivery | None, size: int) -> bool:
        return self.is_unlimited or each is None or not each.bytes or each.bytes + size <= each.terms.bytes

    def check(self, owner: Owner | None) -> None:
        """Note a tenant that is over its limit; `make` cuts it. Any thread may call it."""
        if owner is not None and owner.bytes > owner.most_bytes:
            self._full.add(owner)

    def grant(self) -> None:
        """Let the thread that waits continue, if there is room."""
        if self.request is None:
            return
        for name, size in self.request.sizes.items():
            each = self._sinks.deliveries.get(name)
            if each is not None and not self._fits(each, size) and each.terms.when_full == "dead_letter":
                if not self._lead.is_mine:
                    # The leader makes room.
                    continue
                self._evict(each, each.bytes + size - each.terms.bytes)
            # A tenant's endpoint never blocks the sources: its messages in flight, which cannot be evicted, may exceed the limit.
            if each is not None and each.owner is None and not self._fits(each, size):
                return
        if self._lead.is_mine:
            for owner, size in self._sinks.bytes_of_owners(self.request.sizes).items():
                self._make(owner, size)
        self.end()

    def end(self) -> None:
        """Let the thread that waits continue."""
        request, self.request = self.request, None
        if request is not None:
            request.granted.set()

    def make(self) -> None:
        """Cut the tenants that are over their limits."""
        while self._full:
            self._make(self._full.pop())

    def _make(self, owner: Owner, size: int = 0) -> None:
        """Make room among a tenant's own messages: first from the histories of streams, then from waiting messages."""
        if owner.bytes + size <= owner.most_bytes:
            return
        goal = max(owner.most_bytes - size - owner.most_bytes // _PARTS, 0)
        histories = [each for each in self._sinks.histories.values() if each.owner is owner]
        for history in sorted(histories, key=lambda each: each.bytes, reverse=True):
            while owner.bytes > goal and history.cut(milliseconds(), owner.bytes - goal):
                pass
        waiting = [each for each in self._sinks.deliveries.values() if each.owner is owner]
        for each in sorted(waiting, key=lambda each: each.bytes, reverse=True):
            if owner.bytes > goal:
                self._evict(each, owner.bytes - goal)
