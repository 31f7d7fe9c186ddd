"""Errors of evaluation: counted by reason, and logged now and then.

An error is 'no match' (semantics.md section 4), so a wrong expression is silent unless somebody says so; said for every event it
would drown the log.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

from streamer.locks import Lock
from streamer.reference.cel import CelReason

LOGGER: Final = logging.getLogger("streamer.cel_eval")
#: Seconds between two messages about one subscription.
INTERVAL: Final = 60.0
#: Subscriptions whose last message is remembered; past it the longest silent is forgotten, and may be heard again sooner.
REMEMBERED: Final = 10_000


@final
class ErrorLog:
    """Counts the errors of CEL programs by reason; logs at most one a minute for each subscription. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._counts: Counter[CelReason] = Counter()
        self._heard: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._also: list[Callable[[], Iterable[tuple[str, int]]]] = []

    @property
    def counts(self) -> Mapping[CelReason, int]:
        """How many errors there were, by reason."""
        with self._lock:
            counts = Counter(self._counts)
        for others in self._also:
            for reason, count in others():
                counts[CelReason(reason)] += count
        return {reason: count for reason, count in counts.items() if count}

    def also(self, counts: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """Add what a native core counts, by reason, to `counts`."""
        self._also.append(counts)

    def record(self, subscription_id: str, reason: CelReason, detail: str | None) -> None:
        """Count an error, and log it unless this subscription was logged within the last minute."""
        now = self._clock()
        with self._lock:
            self._counts[reason] += 1
            last, silenced = self._heard.get(subscription_id, (float("-inf"), 0))
            if now - last < INTERVAL:
                self._heard[subscription_id] = (last, silenced + 1)
                return
            self._heard[subscription_id] = (now, 0)
            self._heard.move_to_end(subscription_id)
            while len(self._heard) > REMEMBERED:
                self._heard.popitem(last=False)
        self.log(subscription_id, reason, detail, silenced)

    def log(self, subscription_id: str | None, reason: CelReason, detail: str | None, silenced: int) -> None:
        """Log an error that was counted, and is due.

        Args:
            subscription_id: None for a regexp, which is searched once for all subscriptions that have it.
            silenced: how many of this subscription were not logged since the last one.
        """
        more = f" ({silenced} more since the last message)" if silenced else ""
        # Not a warning: documents of one collection differ, and a field that some lack is no defect.
        whose = "a regexp" if subscription_id is None else f"subscription {subscription_id!r}"
        LOGGER.info("%s: CEL error %s: %s%s", whose, reason.value, detail or "no details", more)
