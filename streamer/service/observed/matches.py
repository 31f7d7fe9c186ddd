"""The number of matches of each subscription, minute by minute: it shows whether a subscription matches, and since when.

```
a thread that matched ─► begin? ─► the ids that a batch of events matched ─► add: into the counts of this minute
```

A minute has counts only for the subscriptions that matched in it, so silent subscriptions cost no memory. `most` bounds the
counts of all minutes together. Above it the oldest minutes are dropped as a whole, so the counts of a minute are complete for all
subscriptions; if a single minute has more, it is not counted. The rejected alternatives, counts of each subscription for ever, or
only of those that matched last, would be incomplete for some.

Looking up a million counters costs more than matching, so at most `RATE` matches a second are counted, and `BURST` at once after
a quiet time. Above that rate the matches of one batch in 2, 4, 8 … are counted, and each stands for that number: the count is an
estimate, and reported as one.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from streamer.core.matches import Matches
from streamer.locks import Lock

#: The seconds of a step, and the number of steps that are kept: three hours, as with the metrics.
MINUTE: Final = 60
MINUTES: Final = 180
#: The most counts of all minutes together, unless the configuration sets another limit.
MOST: Final = 500_000
#: The matches that are counted in a second, at once after a quiet time, and of one event.
RATE: Final = 2_500
BURST: Final = 10_000
MANY: Final = 1000
#: The interval between updates of the sampling rate, in seconds.
_LOOK: Final = 0.25


@final
@dataclass(slots=True)
class _Minute:
    """The counts of a minute.

    Attributes:
        number: minutes since the epoch.
        counts: the counts of each subscription, by the number of matches that a count stands for: 1, 2, 4, …
        is_full: whether there were too many, so that the minute has no counts.
    """

    number: int
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    is_full: bool = False

    @property
    def size(self) -> int:
        return sum(map(len, self.counts.values()))


@final
@dataclass(frozen=True, slots=True)
class Counted:
    """The matches of a subscription.

    Attributes:
        since: the start of counting, in seconds since the epoch; None if it is not counted.
        at: the start of each minute, in seconds since the epoch; the last one is not over.
        counts: the count of each minute; None if unavailable.
        one_of: 1 if each match was counted; otherwise the largest number of matches that a counted one stands for.
    """

    since: float | None
    at: Sequence[int]
    counts: Sequence[int | None]
    one_of: int


@final
class Tally:
    """The matches of a batch of events, to be counted at once."""

    __slots__ = ("ids", "one_of")

    def __init__(self, one_of: int) -> None:
        self.one_of = one_of
        #: By the number of matches that each stands for.
        self.ids: dict[int, list[str]] = {one_of: []}

    def add(self, matches: Matches) -> None:
        """Count the matches of one event."""
        count = len(matches)
        if count <= MANY:
            self.ids[self.one_of] += matches.ids()
            return
        some = -(-count // MANY)
        self.ids.setdefault(self.one_of * some, []).extend(matches[random.randrange(some) :: some].ids())


@final
class MatchCounts:
    """The counts of a process. Any thread may add and read.

    Attributes:
        most: the limit of counts; 0 disables counting.
    """

    def __init__(self, most: int = MOST) -> None:
        self._lock = Lock()
        self._minutes: deque[_Minute] = deque()
        self._size = 0
        self._one_of, self._looked, self._count, self._room = 1, time.monotonic(), 0, float(BURST)
        self._rests_until = 0.0
        self.most = most
        self._since = time.time()

    def limit(self, most: int) -> None:
        """Set another limit from now on."""
        with self._lock:
            if not self.most:
                self._since = time.time()
            self.most = most
            if not most:
                self._minutes.clear()
                self._size = 0

    def begin(self) -> Tally | None:
        """Return a tally for the matches of a batch of events; None if this batch is not counted.

        Concurrent threads may count a few too many, which is cheaper than a lock.
        """
        now = time.monotonic()
        if now - self._looked >= _LOOK or (self._one_of == 1 and self._count > self._room):
            self._look(now)
        one_of = self._one_of
        # Each batch has the same chance, whatever its contents.
        if (one_of > 1 and random.random() * one_of >= 1) or not self.most or time.time() < self._rests_until:
            return None
        return Tally(one_of)

    def _look(self, now: float) -> None:
        """Measure the rate of matches, and set which fraction of them to count."""
        matched, passed = self._count, max(now - self._looked, 0.001)
        self._room = max(min(self._room - matched + passed * RATE, BURST), 0.0)
        if self._room > (0 if self._one_of == 1 else BURST / 2):
            self._one_of = 1
        else:
            # The next power of two.
            wanted = matched * self._one_of / passed / RATE
            self._one_of = 1 << max(math.ceil(wanted) - 1, 0).bit_length()
        self._looked, self._count = now, 0

    def add(self, tally: Tally) -> None:
        """Count the matches of a tally."""
        with self._lock:
            minute = self._now()
            for one_of, ids in tally.ids.items():
                if not ids or minute.is_full:
                    continue
                self._count += len(ids)
                counts = minute.counts.setdefault(one_of, Counter())
                before = len(counts)
                counts.update(ids)
                self._size += len(counts) - before
            while self._size > self.most:
                oldest = self._minutes[0]
                self._size -= oldest.size
                if oldest is minute:
                    minute.counts.clear()
                    minute.is_full = True
                    self._rests_until = (minute.number + 1) * MINUTE
                else:
                    self._forget()

    def _now(self) -> _Minute:
        """Return the current minute; if the clock was set back, the latest one."""
        number = int(time.time() // MINUTE)
        if not self._minutes or self._minutes[-1].number < number:
            self._minutes.append(_Minute(number))
        while self._minutes[0].number <= number - MINUTES:
            self._size -= self._minutes[0].size
            self._forget()
        return self._minutes[-1]

    def _forget(self) -> None:
        """Drop the oldest minute."""
        self._since = max(self._since, (self._minutes.popleft().number + 1) * MINUTE)

    def counted(self, subscription_id: str, created: float = 0.0) -> Counted:
        """Return the counts of a subscription.

        Args:
            subscription_id: its name in the engine.
            created: the time of its creation, in seconds since the epoch; earlier counts belong to another one of this name.
        """
        with self._lock:
            last = self._now().number
            since = max(self._since, created, (last - MINUTES + 1) * MINUTE)
            minutes = {minute.number: minute for minute in self._minutes}
            numbers = range(last - MINUTES + 1, last + 1)
            counts: list[int | None] = []
            one_of = 1
            for number in numbers:
                minute = minutes.get(number)
                if (number + 1) * MINUTE <= since or not self.most or (minute is not None and minute.is_full):
                    counts.append(None)
                    continue
                counts.append(0 if minute is None else sum(each[subscription_id] * of for of, each in minute.counts.items()))
                # A zero may be an effect of sampling, so the sampling rate is reported with it.
                one_of = max(one_of, *(minute.counts if minute is not None else (1,)), 1)
        at = [number * MINUTE for number in numbers]
        first = next((moment for moment, known in zip(at, counts, strict=True) if known is not None), None)
        return Counted(None if first is None else max(since, first), at, counts, one_of)
