"""How much is asked: requests a second of a tenant, and requests at once of a token and in all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

from streamer.config.schema.api import Api
from streamer.service.api.problems import Problem

#: So many tenants are known at once; those that asked least lately are forgotten, and find their buckets full.
_MOST: Final = 10_000


@final
class Limits:
    """What is asked now. One event loop uses it.

    Args:
        clock: seconds, which only grow.
    """

    def __init__(self, section: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._section, self._clock = section, clock
        self._buckets: dict[str | None, tuple[float, float]] = {}  # what is in it, and when
        self._of_tokens: Counter[str] = Counter()
        self._count = 0

    def take(self, tenant: str | None) -> None:
        """Count a request of a tenant; administrators are one. Raises Problem: there were too many."""
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
        """Count a request with a token, while its body comes and it is answered. Raises Problem: there are too many."""
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
        """Count a request that is answered. Raises Problem: there are too many."""
        if self._count >= self._section.limits.requests:
            raise Problem("busy", "too many requests are being answered", headers={"Retry-After": "1"})
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
