"""Several processes on one store: each fills the spool, and the one that leads delivers from the contents of the store only."""

from __future__ import annotations

import logging
import time
from math import inf
from typing import Final, TypeAlias, final

from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.spool.delivery import Delivery
from streamer.service.delivery.spool.history import History
from streamer.service.delivery.spool.lead import Lead
from streamer.service.delivery.spool.requests import Requests
from streamer.service.delivery.spool.results import Results
from streamer.service.delivery.spool.room import Room
from streamer.service.delivery.spool.sinks import Sinks
from streamer.service.store.rows import Spooled
from streamer.service.store.store import Store

#: The name of a shared spool in metrics. A process counts its messages as delivered once they are in it.
SHARED: Final = "spool"
#: The interval between counts of messages that other processes added, in seconds.
_COUNT: Final = 5.0
_LOGGER: Final = logging.getLogger("streamer.service")

#: A new message of a history, and its number.
Arrived: TypeAlias = tuple[History, int, Spooled]
#: Stands for messages that are in the store; a reader reads them there.
_ANYTHING: Final = Spooled("", None, "", 0, "", "", 0, 0, b"")


@final
class Sharing:
    """Follows what other processes do in the store. Only the spool's thread uses it."""

    def __init__(
        self, store: Store, counts: Counts, sinks: Sinks, lead: Lead, room: Room, results: Results, requests: Requests
    ) -> None:
        self._store, self._counts, self._sinks, self._lead = store, counts, sinks, lead
        self._room, self._results, self._requests = room, results, requests
        self._counted: dict[str, float] = {}

    def look(self, *, is_stopping: bool) -> list[Arrived]:
        """Renew or begin this process's lead, and read messages that other processes have put into the store.

        Returns:
            A placeholder for each history with new messages.
        """
        if not is_stopping:
            is_over, is_new = self._lead.renew()
            if is_over:
                self.step_back()
            if is_new:
                _LOGGER.info("this process now delivers the messages in the spool")
                self._begin_again()
                for fresh in self._sinks.deliveries.values():
                    self.begin(fresh)
        arrived: list[Arrived] = []
        for name, mark, last in self._store.lasts():
            each = self._sinks.get(name)
            # A different mark belongs to another process's lane of this name; this process will forget the name.
            if each is not None and each.lane.mark == mark and last > each.lane.last:
                after, each.lane.last = each.lane.last, last
                if isinstance(each, Delivery):
                    self._add_after(each, after)
                else:
                    each.last = last
                    arrived.append((each, 0, _ANYTHING))
                self._recount(each)
        for name in self._room.request.sizes if self._room.request is not None else ():
            if (delivery := self._sinks.deliveries.get(name)) is not None:
                self._recount(delivery)
        return arrived

    def begin(self, delivery: Delivery) -> None:
        """Count the messages that a sink has in the store when this process begins to deliver them."""
        self._counts.recover(delivery.matches)
        if delivery.messages and delivery.owner is None:
            _LOGGER.info("sinks.%s: %d messages are in the spool", delivery.name, delivery.messages)

    def step_back(self) -> None:
        """Stop deliveries, because another process delivers, or will."""
        _LOGGER.info("this process no longer delivers the messages in the spool")
        # The next leader counts these messages as found again.
        self._counts.delivered({SHARED: sum(each.matches for each in self._sinks.deliveries.values())})
        self._begin_again()

    def _begin_again(self) -> None:
        """Read each sink's numbers from the store again; the results of requests in flight are ignored."""
        self._results.forget()
        deliveries = {}
        for name, before in self._sinks.deliveries.items():
            self._requests.forget(before)
            lane = self._store.lane(name, reread=True)
            deliveries[name] = Delivery(name, before.endpoint, before.terms, before.target, lane, self._store, before.owner)
        self._sinks.deliveries = deliveries

    def _add_after(self, each: Delivery, after: int) -> None:
        """Count the messages of a lane after a number."""
        if self._lead.is_mine:
            messages, size, matches = self._store.backlog(each.lane, after)
            self._counts.recover(matches)
            self._sinks.add(each, messages, size, matches)
            if each.bytes > each.terms.bytes and each.terms.when_full == "dead_letter":
                self._results.evict(each, each.bytes - each.terms.bytes)
            self._room.check(each.owner)

    def _recount(self, each: Delivery | History) -> None:
        """Count the messages of a sink that another process delivers to or trims, at most once in `_COUNT` seconds."""
        now = time.monotonic()
        is_others = isinstance(each, History) or not self._lead.is_mine
        if is_others and now - self._counted.get(each.name, -inf) >= _COUNT:
            self._counted[each.name] = now
            messages, size, matches = self._store.backlog(each.lane)
            each.change(messages - each.messages, size - each.bytes, matches - each.matches)
            if isinstance(each, History):
                each.find()
            self._room.check(each.owner)
