"""The requests in flight: which sinks get one next, within the limits of all together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from streamer.service.delivery.spool.attempting import Attempting, Job
from streamer.service.delivery.spool.delivery import Delivery
from streamer.service.delivery.spool.sinks import Sinks

#: The most requests in flight to all endpoints together, and the most of them to tenants' own gateways.
MOST_REQUESTS: Final = 256
MOST_OWN: Final = 192


@final
class Requests:
    """The requests in flight. Only the spool's thread uses it."""

    def __init__(self, sinks: Sinks, attempting: Attempting) -> None:
        self._sinks, self._attempting = sinks, attempting
        self._flying = self._own_flying = self._turns = 0
        self._ending: list[Delivery] = []

    def begin(self, now: float, is_stopping: Callable[[], bool]) -> None:
        """Begin the requests that are due."""
        # A key has one message in flight at a time, including requests that this process has forgotten.
        self._ending = [each for each in self._ending if each.requests]
        ending = {each.name for each in self._ending}
        jobs: list[Job] = []
        # If requests are scarce, another sink is the first to get some each time.
        each_of = list(self._sinks.deliveries.values())
        self._turns = (self._turns + 1) % max(len(each_of), 1)
        for each in each_of[self._turns :] + each_of[: self._turns]:
            if is_stopping():
                break
            if each.lines.is_idle or each.name in ending:
                continue
            each.load(now)
            while self._may_begin(each) and (job := each.take(now)) is not None:
                self._flying += 1
                self._own_flying += each.owner is not None
                jobs.append((each, each.endpoint, *job))
        if jobs:
            self._attempting.begin(jobs)

    def _may_begin(self, each: Delivery) -> bool:
        if each.owner is None:
            return self._flying < MOST_REQUESTS
        return self._own_flying < MOST_OWN and each.owner.requests < each.owner.most_requests and self._flying < MOST_REQUESTS

    def ended(self, each: Delivery) -> None:
        """Note that a request has ended."""
        self._flying -= 1
        self._own_flying -= each.owner is not None

    def forget(self, each: Delivery) -> None:
        """Ignore the results of a delivery. Its sink begins no request before those in flight have ended."""
        each.forget()
        self._ending.append(each)
