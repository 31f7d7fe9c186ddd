"""Phase 1 of the reference: the portable filter that guards the keyed subscriptions of one (tenant, collection).

```
CollectionFilter ── places   the places of an event whose keys are looked up
                 ├─ bits     shared with the filter of the state before, until a rebuild
                 └─ tally    counts of queries and answers, shared like the bits
```

Invariant: bits are only ever set (portable.py), and places only ever added, until a rebuild, which starts with new bits.

Concurrency: writers run one at a time; a query only locks the tally, for a few additions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from streamer.bloom.answer import Answer
from streamer.bloom.portable import PortableBloomFilter
from streamer.bloom.sizing import LEAST_KEY_RATE, portable_capacity
from streamer.locks import Lock
from streamer.model import Event
from streamer.subscriptions.keys import Key, Place, event_keys

#: Room for later keys: a filter has a quarter more room than keys.
HEADROOM: Final = 1.25


@final
class Tally:
    """The counts of queries and answers of one partition's filters; a rebuilt filter gets the tally of the old one.

    `asked`, `no`, `probes` and `grown` are never reset; `sampled` and `false_positives` count since the last rebuild.
    """

    __slots__ = ("_lock", "asked", "false_positives", "grown", "no", "probes", "sampled")

    def __init__(self) -> None:
        self._lock = Lock()
        self.asked = self.no = self.probes = self.grown = self.sampled = self.false_positives = 0

    def begin_anew(self) -> None:
        """Reset the samples: they describe the replaced filter."""
        with self._lock:
            self.sampled = self.false_positives = 0

    def count_growth(self) -> None:
        """Count a filter that a write built to replace one that was too small."""
        with self._lock:
            self.grown += 1

    def count(self, answer: Answer, carried: frozenset[Key] | None) -> None:
        """Count a query for an event and its answer; *carried* are the keys of the event."""
        with self._lock:
            self.asked += 1
            self.probes += len(carried or ())
            if answer is Answer.NO:
                self.no += 1
                self.sampled += 1

    def count_false_positive(self) -> None:
        """Count an event that passed without any live key."""
        with self._lock:
            self.sampled += 1
            self.false_positives += 1


@final
@dataclass(frozen=True, slots=True)
class CollectionFilter:
    """A filter of keys, and the places of an event whose keys are looked up.

    Attributes:
        places: always a superset of the places of the guarded keys.
        version: 1, plus 1 for each rebuild.
        capacity: the number of keys that it was sized for; with more keys, its error rate increases.
    """

    places: frozenset[Place]
    version: int
    capacity: int
    bits: PortableBloomFilter
    tally: Tally

    @classmethod
    def build(
        cls, keys: Iterable[Key], capacity: int = 1, key_fp_rate: float = 0.001, before: CollectionFilter | None = None
    ) -> CollectionFilter:
        """Return a new filter with these keys.

        Args:
            capacity: the least number of keys that it has room for.
            key_fp_rate: the share of foreign keys that may pass when it is full.
            before: the filter that it replaces.
        """
        distinct = frozenset(keys)
        capacity = max(capacity, math.ceil(HEADROOM * len(distinct)), 1)
        rate = max(key_fp_rate, LEAST_KEY_RATE)
        bits = PortableBloomFilter(portable_capacity(capacity, rate), rate)
        version, tally = (1, Tally()) if before is None else (before.version + 1, before.tally)
        return cls(frozenset(), version, capacity, bits, tally).including(distinct)

    def including(self, keys: Collection[Key]) -> CollectionFilter:
        """Return a filter that also guards *keys*."""
        self.bits.fill(key.to_bytes() for key in keys)
        places = {key.place for key in keys}
        if places <= self.places:
            return self
        return CollectionFilter(self.places | places, self.version, self.capacity, self.bits, self.tally)

    def has_room_for(self, count: int) -> bool:
        """Return whether this many more keys fit into its capacity."""
        return len(self.bits) + count <= self.capacity

    def ask(self, carried: frozenset[Key] | None) -> Answer:
        """Return whether any guarded subscription can match an event with these keys, as `carried_keys` returns them."""
        answer = Answer.NO
        if carried is None or any(key.to_bytes() in self.bits for key in carried):
            answer = Answer.MAYBE
        self.tally.count(answer, carried)
        return answer

    def __repr__(self) -> str:
        return f"<CollectionFilter: {len(self.bits)} keys at {len(self.places)} places>"


def carried_keys(sides: Sequence[Event], places: frozenset[Place]) -> frozenset[Key] | None:
    """Return the keys of an event at some places, or None if it may have any keys.

    Args:
        sides: the event and, if it has one, its old side, which decides whether a document stopped matching.
    """
    carried: set[Key] = set()
    for side in sides:
        keys = event_keys(side, places)
        if keys is None:
            return None
        carried |= keys
    return frozenset(carried)
