"""Count errors of evaluation by reason and by subscription, and log some of them.

An error is 'no match' (semantics.md 4.2), so a wrong expression would stay unnoticed without a message. But one message per event
would flood the log.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, final

from streamer.cel_eval.values import CelReason
from streamer.locks import Lock
from streamer.quiet import Quiet

LOGGER: Final = logging.getLogger("streamer.cel_eval")
#: The seconds between two messages about one subscription, and the interval of the limit for all subscriptions together.
INTERVAL: Final = 60.0
MESSAGES: Final = 10
#: The most subscriptions whose errors are counted separately. If there are more, the half with the fewest errors is dropped.
REMEMBERED: Final = 10_000
#: The default number of worst subscriptions.
WORST: Final = 10


@final
@dataclass(frozen=True, slots=True)
class FailingSubscription:
    """A subscription whose evaluations ended in errors, and so in no match.

    Attributes:
        errors: the number of errors.
        reason: the reason of its last error; see `CelErrors`.
    """

    subscription_id: str
    errors: int
    reason: str


@final
class CelErrors(Mapping[str, int]):
    """The number of evaluations that ended in an error, by reason, at the time of the call.

    Attributes:
        worst: at most ten subscriptions with the most errors, worst first. If more than a thousand subscriptions fail, some that
            fail rarely may be missing.
    """

    def __init__(self, counts: Mapping[CelReason, int], worst: tuple[FailingSubscription, ...]) -> None:
        self._counts = {reason.value: count for reason, count in counts.items()}
        self.worst: Final = worst

    def __getitem__(self, reason: str) -> int:
        return self._counts[reason]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return repr(self._counts)


class Counting(Protocol):
    """The counts of a native core."""

    def cel_errors(self) -> Iterable[tuple[str, int]]:
        """Return the number of errors by reason."""

    def failing(self, most: int, /) -> Iterable[FailingSubscription]:
        """Return the subscriptions with the most errors, the worst first."""


@dataclass(slots=True)
class _Heard:
    """The recorded errors of a subscription."""

    errors: int
    reason: CelReason


@final
class ErrorLog:
    """Counts errors of CEL programs, and logs at most one per minute and subscription, and few for all. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = Lock()
        self._counts: Counter[CelReason] = Counter()
        self._heard: dict[str, _Heard] = {}
        self._native: Callable[[], Counting | None] = lambda: None
        self._of_each, self._of_all = Quiet(INTERVAL, clock=clock), Quiet(INTERVAL, MESSAGES, clock)

    @property
    def counts(self) -> Mapping[CelReason, int]:
        """The number of errors by reason."""
        with self._lock:
            counts = Counter(self._counts)
        native = self._native()
        for reason, count in native.cel_errors() if native is not None else ():
            counts[CelReason(reason)] += count
        return {reason: count for reason, count in counts.items() if count}

    def worst(self, most: int) -> tuple[FailingSubscription, ...]:
        """Return the subscriptions with the most errors, the worst first."""
        with self._lock:
            failing = [FailingSubscription(name, heard.errors, heard.reason.value) for name, heard in self._heard.copy().items()]
        native = self._native()
        if native is not None:
            failing += native.failing(most)
        return tuple(sorted(failing, key=lambda each: (-each.errors, each.subscription_id))[:most])

    def also(self, native: Callable[[], Counting | None]) -> None:
        """Add the counts of a native core; *native* returns None after the core is gone."""
        self._native = native

    def record(self, subscription_id: str, reason: CelReason, detail: str | None) -> None:
        """Count an error, and log it unless this subscription was logged within the last minute."""
        is_due = self._of_each.due(subscription_id) is not None
        with self._lock:
            self._counts[reason] += 1
            heard = self._heard.setdefault(subscription_id, _Heard(0, reason))
            heard.errors, heard.reason = heard.errors + 1, reason
            errors = heard.errors
            if len(self._heard) > REMEMBERED:
                most = sorted(self._heard.copy().items(), key=lambda item: -item[1].errors)
                self._heard = dict(most[: REMEMBERED // 2])
        if is_due:
            self.log(subscription_id, reason, detail, errors)

    def forget(self, subscription_ids: Iterable[str]) -> None:
        """Drop the recorded errors of these subscriptions. The sums by reason stay."""
        with self._lock:
            if self._heard:
                for subscription_id in subscription_ids:
                    self._heard.pop(subscription_id, None)
                    self._of_each.forget(subscription_id)

    def log(self, subscription_id: str | None, reason: CelReason, detail: str | None, errors: int) -> None:
        """Log a counted error, unless the limit of messages per minute is reached.

        Args:
            subscription_id: None for a regexp or a topic, which is searched once for all subscriptions that have it.
            errors: the number of errors of this subscription so far.
        """
        if (count := self._of_all.due()) is None:
            return
        others = count - 1
        so_far = f" ({errors:,} errors so far)" if errors > 1 else ""
        also = f"; {others:,} messages about others were left out" if others else ""
        shared = "a topic" if reason is CelReason.TOPIC_BUDGET else "a regexp"
        whose = shared if subscription_id is None else f"subscription {subscription_id!r}"
        fields = {"subscription": subscription_id, "code": reason.value, "count": errors}
        LOGGER.warning("%s: CEL error %s: %s%s%s", whose, reason.value, detail or "no details", so_far, also, extra=fields)
