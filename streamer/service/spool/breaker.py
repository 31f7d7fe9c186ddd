"""How an endpoint is treated, and whether it is asked at all.

A breaker opens when requests of `TRIP` different keys have failed in a row, or when the endpoint asks for time. Then one request
at a time finds out whether it is back. So an endpoint that is down costs a few messages an attempt, and not all of them all.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, final

from streamer.config.schema.service import Delivery

#: Requests of so many keys fail in a row before an endpoint is taken for down.
TRIP: Final = 5


@final
@dataclass(frozen=True, slots=True)
class Terms:
    """How messages are delivered to one sink.

    Attributes:
        concurrency: requests at once.
        batch, batch_bytes: messages and bytes of a request; one message may have more bytes.
        first, most: seconds until the second attempt, and between attempts at most.
        attempts: after which a message is given up.
        on_exhausted: whether its key then goes on, or waits until the dead letter is replayed or dropped.
        bytes: room in the spool.
        when_full: whether sources wait for room, or the oldest messages become dead letters.
        is_paused: whether nothing is begun.
    """

    concurrency: int = 8
    batch: int = 1
    batch_bytes: int = 1024 * 1024
    first: float = 1.0
    most: float = 600.0
    attempts: int = 12
    on_exhausted: Literal["dead_letter", "block"] = "dead_letter"
    bytes: int = 1024**3
    when_full: Literal["pause", "dead_letter"] = "pause"
    is_paused: bool = False

    @classmethod
    def of(cls, delivery: Delivery, **more: Any) -> Self:
        """Return the terms that a configuration has for all endpoints, and those that one has besides."""
        common: dict[str, Any] = {
            "first": delivery.retry.first.total_seconds(),
            "most": delivery.retry.most.total_seconds(),
            "attempts": delivery.retry.attempts,
            "on_exhausted": delivery.on_exhausted,
            "bytes": delivery.spool.bytes,
            "when_full": delivery.spool.when_full,
        }
        return cls(**common | more)

    def delay(self, attempts: int) -> float:
        """Return how long to wait after so many attempts: twice as long each time, and some random part less."""
        return min(self.first * 2.0 ** min(attempts - 1, 60), self.most) * random.uniform(0.5, 1.0)


@final
class Breaker:
    """Whether an endpoint is asked at all."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._failing: set[Hashable] = set()
        self._trips = 0
        self.state: Literal["closed", "half_open", "open"] = "closed"
        self.until = 0.0
        #: Until when the endpoint wants to hear nothing, whatever it answers to what was on its way.
        self._quiet_until = 0.0

    def lets(self, now: float, flying: int) -> bool:
        """Tell whether one more request may begin."""
        if self.state == "closed":
            return flying < self._terms.concurrency
        if self.state == "open" and now >= self.until:
            self.state = "half_open"
        return self.state == "half_open" and flying == 0

    def good(self, now: float) -> bool:
        """Note that the endpoint answers; tell whether it did not before."""
        if now < self._quiet_until:
            self.state, self.until = "open", self._quiet_until
            return False
        was, self.state, self._trips = self.state, "closed", 0
        self._failing.clear()
        return was != "closed"

    def bad(self, name: Hashable, now: float, after: float | None) -> bool:
        """Note that a request of a key has failed; tell whether that opens it."""
        if after is not None:
            self._quiet_until = max(self._quiet_until, now + min(after, self._terms.most))
        if self.state == "open":
            self.until = max(self.until, self._quiet_until)
            return False
        self._failing.add(name)
        if after is None and self.state == "closed" and len(self._failing) < TRIP:
            return False
        self._trips += 1
        wait = self._terms.delay(self._trips) if after is None else min(after, self._terms.most)
        was, self.state, self.until = self.state, "open", now + wait
        return was == "closed"
