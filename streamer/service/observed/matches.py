"""How often each subscription matched, minute by minute: for who asks whether it matches, and since when.

```
a thread that matched ─► begin? ─► the ids of what a batch of events matched ─► add: into the counts of this minute
```

A minute counts the subscriptions that matched in it, and has nothing of the others: a million that are silent cost nothing.
`most` bounds the counts of all minutes together. Past it the oldest minutes are forgotten, whole, so what is told of a minute is
told of every subscription; where one minute alone has more, it counts none. Counts of each subscription for ever, or of those
that matched last, would tell of one what they leave out of another.

To look up a million counters costs more than to match, so `RATE` matches a second are counted at most, and `BURST` at once after
a quiet time. Where more come, the matches of one batch in 2, 4, 8 … are counted, and each stands for so many: the count is an
estimate, which is told with it.
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

#: Seconds of a step, and steps that are kept: three hours, as of the metrics.
MINUTE: Final = 60
MINUTES: Final = 180
#: Counts of all minutes that are kept, unless the configuration says otherwise.
MOST: Final = 500_000
#: Matches that are counted in a second, at once after a quiet time, and of one event.
RATE: Final = 2_500
BURST: Final = 10_000
MANY: Final = 1000
#: How often one looks how many they are, in seconds.
_LOOK: Final = 0.25


@final
@dataclass(slots=True)
class _Minute:
    """What is counted of a minute.

    Attributes:
        number: of minutes since the epoch.
        counts: of those that stand for one match, for two, and so on: how many of each subscription there are.
        is_full: whether there were too many, so that nothing is known of it.
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
    """How often a subscription matched.

    Attributes:
        since: from when on it is counted, in seconds since the epoch; None where it is not.
        at: when each minute began, in seconds since the epoch; the last one is not over.
        counts: of each minute; None where it is not known.
        one_of: 1 where each match was counted; else in some minute one stands for so many.
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
        #: By how many matches each of them stands for.
        self.ids: dict[int, list[str]] = {one_of: []}

    def add(self, found: Matches) -> None:
        """Count the matches of one event."""
        count = len(found)
        if count <= MANY:
            self.ids[self.one_of] += found.ids()
            return
        some = -(-count // MANY)
        self.ids.setdefault(self.one_of * some, []).extend(found[random.randrange(some) :: some].ids())


@final
class MatchCounts:
    """The counts of a process. Any thread adds, any may ask.

    Attributes:
        most: how many there may be; 0 counts nothing.
    """

    def __init__(self, most: int = MOST) -> None:
        self._lock = Lock()
        self._minutes: deque[_Minute] = deque()
        self._size = 0
        self._one_of, self._looked, self._taken, self._room = 1, time.monotonic(), 0, float(BURST)
        self._rests_until = 0.0
        self.most = most
        self._since = time.time()

    def limit(self, most: int) -> None:
        """Have another bound from now on."""
        with self._lock:
            if not self.most:
                self._since = time.time()
            self.most = most
            if not most:
                self._minutes.clear()
                self._size = 0

    def begin(self) -> Tally | None:
        """Return what counts the matches of a batch of events; None where that is not to be counted.

        Threads that ask at once may count a few too many: that is cheaper than a lock.
        """
        now = time.monotonic()
        if now - self._looked >= _LOOK or (self._one_of == 1 and self._taken > self._room):
            self._look(now)
        one_of = self._one_of
        # Each batch has the same chance, whatever is in it.
        if (one_of > 1 and random.random() * one_of >= 1) or not self.most or time.time() < self._rests_until:
            return None
        return Tally(one_of)

    def _look(self, now: float) -> None:
        """Find out how many matches there are, and so how many of them are to be counted."""
        taken, passed = self._taken, max(now - self._looked, 0.001)
        self._room = max(min(self._room - taken + passed * RATE, BURST), 0.0)
        if self._room > (0 if self._one_of == 1 else BURST / 2):
            self._one_of = 1
        else:
            # The next power of two.
            wanted = taken * self._one_of / passed / RATE
            self._one_of = 1 << max(math.ceil(wanted) - 1, 0).bit_length()
        self._looked, self._taken = now, 0

    def add(self, tally: Tally) -> None:
        """Count what was found."""
        with self._lock:
            minute = self._now()
            for one_of, ids in tally.ids.items():
                if not ids or minute.is_full:
                    continue
                self._taken += len(ids)
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
        """Return the minute that it is; a clock that was put back stays in the last one."""
        number = int(time.time() // MINUTE)
        if not self._minutes or self._minutes[-1].number < number:
            self._minutes.append(_Minute(number))
        while self._minutes[0].number <= number - MINUTES:
            self._size -= self._minutes[0].size
            self._forget()
        return self._minutes[-1]

    def _forget(self) -> None:
        """Forget the oldest minute."""
        self._since = max(self._since, (self._minutes.popleft().number + 1) * MINUTE)

    def told(self, subscription_id: str, created: float = 0.0) -> Counted:
        """Return how often one matched.

        Args:
            subscription_id: as the engine has it.
            created: from when on it is the one that is meant, in seconds since the epoch.
        """
        with self._lock:
            last = self._now().number
            since = max(self._since, created, (last - MINUTES + 1) * MINUTE)
            found = {minute.number: minute for minute in self._minutes}
            numbers = range(last - MINUTES + 1, last + 1)
            counts: list[int | None] = []
            one_of = 1
            for number in numbers:
                minute = found.get(number)
                if (number + 1) * MINUTE <= since or not self.most or (minute is not None and minute.is_full):
                    counts.append(None)
                    continue
                counts.append(0 if minute is None else sum(each[subscription_id] * of for of, each in minute.counts.items()))
                # That it has none may be since those that were counted are others.
                one_of = max(one_of, *(minute.counts if minute is not None else (1,)), 1)
        at = [number * MINUTE for number in numbers]
        first = next((moment for moment, known in zip(at, counts, strict=True) if known is not None), None)
        return Counted(None if first is None else max(since, first), at, counts, one_of)
