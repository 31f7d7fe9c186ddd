"""How an endpoint is treated: the terms of its delivery, and the breaker that stops requests to it.

A breaker opens when requests of `TRIP` different keys have failed in a row, or when the endpoint requests a delay. Then one
request at a time probes whether it is back. So an endpoint that is down costs an attempt for a few messages, and not for all.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, final

from streamer.config.schema.service import Delivery

#: Requests of this many keys must fail in a row before an endpoint is considered down.
TRIP: Final = 5


@final
@dataclass(frozen=True, slots=True)
class Terms:
    """How messages are delivered to one sink.

    Attributes:
        concurrency: requests at once.
        batch, batch_bytes: messages and bytes of a request; one message may have more bytes.
        first, most: seconds until the second attempt, and the longest wait between attempts.
        attempts: the number of attempts before a message becomes a dead letter.
        on_exhausted: whether its key then continues, or waits until the dead letter is replayed or dropped.
        bytes: room in the spool.
        when_full: whether sources wait for room, or the oldest messages become dead letters.
        is_paused: whether requests are paused.
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
        """Return the terms that a configuration has for all endpoints, with the additional ones of one endpoint."""
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
        """Return the wait in seconds after this number of attempts: it doubles each time, and a random part is subtracted."""
        return min(self.first * 2.0 ** min(attempts - 1, 60), self.most) * random.uniform(0.5, 1.0)


@final
class Breaker:
    """Decides whether an endpoint gets requests."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._failing: set[Hashable] = set()
        self._trips = 0
        self.state: Literal["closed", "half_open", "open"] = "closed"
        self.until = 0.0
        #: Until then the endpoint wants no requests, whatever it answers to those in flight.
        self._quiet_until = 0.0

    def lets(self, now: float, flying: int) -> bool:
        """Return whether one more request may begin."""
        if self.state == "closed":
            return flying < self._terms.concurrency
        if self.state == "open" and now >= self.until:
            self.state = "half_open"
        return self.state == "half_open" and flying == 0

    def good(self, now: float) -> bool:
        """Record that the endpoint answers; return whether it did not before."""
        if now < self._quiet_until:
            self.state, self.until = "open", self._quiet_until
            return False
        was, self.state, self._trips = self.state, "closed", 0
        self._failing.clear()
        return was != "closed"

    def bad(self, name: Hashable, now: float, after: float | None) -> bool:
        """Record that a request of a key has failed; return whether that opens the breaker."""
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
