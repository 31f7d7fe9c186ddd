"""Limits of load: requests a second of a tenant, and concurrent requests of a token and in all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

from streamer.config.schema.api import Api
from streamer.service.api.problems import Problem

#: The most tenants with a bucket; the least recently active ones are dropped, and get a full bucket again.
_MOST: Final = 10_000


@final
class Limits:
    """The current load. One event loop uses it.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, section: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._section, self._clock = section, clock
        self._buckets: dict[str | None, tuple[float, float]] = {}  # the tokens in it, and the time of that
        self._of_tokens: Counter[str] = Counter()
        self._count = 0

    def take(self, tenant: str | None) -> None:
        """Count a request of a tenant; administrators count as one. Raises Problem if there were too many."""
        rate, now = self._section.quotas.requests_a_second, self._clock()
        level, since = self._buckets.pop(tenant, (2.0 * rate, now))
        level = min(2.0 * rate, level + (now - since) * rate)
        if len(self._buckets) >= _MOST:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[tenant] = (max(level - 1, 0.0) if level >= 1 else level, now)
        if level < 1:
            reason = f"a tenant may send {rate:,} times a second"
            raise Problem("too-many", reason, headers={"Retry-After": str(max(1, round((1 - level) / rate)))})

    @contextmanager
    def of_token(self, token: str) -> Iterator[None]:
        """Count a request with a token while it is read and answered. Raises Problem if there are too many."""
        most = self._section.limits.requests_of_a_token
        if self._of_tokens[token] >= most:
            raise Problem("too-many", f"a token may have {most:,} requests at once", headers={"Retry-After": "1"})
        self._of_tokens[token] += 1
        try:
            yield
        finally:
            self._of_tokens[token] -= 1
            if not self._of_tokens[token]:
                del self._of_tokens[token]

    @contextmanager
    def of_all(self) -> Iterator[None]:
        """Count a request while it is answered. Raises Problem if there are too many."""
        if self._count >= self._section.limits.requests:
            raise Problem("busy", "too many requests are being answered", headers={"Retry-After": "1"})
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
