"""Some of the latest events, and their matches: for authors of subscriptions who want to see the effect of a draft.

```
a thread that matched ─► wanted(100)? ─ no ──► on                 one call a batch, a few operations
                             └─ some ─► read, put into the ring of their tenant and collection
```

Reading the kept events costs a thread less than a hundredth of its time, because few are kept: `RATE` a second, or `BURST` at
once after a quiet time; a long event counts for several. At low rates every event is kept; at high rates, a random part. Kept
events are read again only on request.
"""

from __future__ import annotations

import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias, final

from streamer.core.matches import Matches
from streamer.core.options import Options
from streamer.errors import EventError
from streamer.events.reading import IgnoredEvent
from streamer.locks import Lock
from streamer.service.connectors.protocols import Position
from streamer.service.store.ids import outside
from streamer.service.store.rows import milliseconds
from streamer.subscriptions.subscription import EVERY

#: The events that are kept in a second, and at once after a quiet time.
RATE: Final = 50.0
BURST: Final = 1000.0
#: An event counts for one more with each of these bytes; an event longer than `LONGEST` is not kept.
BYTES_OF_ONE: Final = 8 * 1024
LONGEST: Final = 256 * 1024
#: The most events of one collection of a tenant, the most such collections, and the most bytes of all of them.
MOST: Final = 1000
MOST_RINGS: Final = 200
MOST_BYTES: Final = 32 * 1024 * 1024
#: The latest events for watchers, in the order in which they came.
LATEST: Final = 500
#: The matches of an event that are examined, and the most that are kept.
LOOKED_AT: Final = 100
MOST_HITS: Final = 10
#: The overhead of an event in bytes.
_OVERHEAD: Final = 1024
_LOGGER: Final = logging.getLogger("streamer.service")

Name: TypeAlias = tuple[str | None, str | None]
#: The matches of an event; None if it has none.
MatchResult: TypeAlias = Matches | EventError | None


class Hit(NamedTuple):
    """A kept match of an event."""

    tenant: str
    id: str
    gateway: str | None
    transition: str | None
    certain: bool


class Matched(NamedTuple):
    """The kept matches of an event.

    Attributes:
        own: the first matches of the tenant's subscriptions.
        every: the first matches of subscriptions to every tenant's events.
        own_count, every_count: the numbers of both among the first `LOOKED_AT`.
        more: whether there are more matches than these.
    """

    own: tuple[Hit, ...] = ()
    every: tuple[Hit, ...] = ()
    own_count: int = 0
    every_count: int = 0
    more: bool = False


@final
@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """A kept event.

    Attributes:
        number: increases with each event.
        at: the time, in milliseconds since the epoch.
        part: its index in the record.
        tenant: its tenant; None for an event that is not a change, which belongs to no tenant.
        ignored: why it is not a change; None if it is one.
    """

    number: int
    at: int
    source: str
    partition: str
    position: Position
    part: int
    text: bytes
    tenant: str | None
    collection: str | None
    type: str | None
    ignored: str | None
    matched: Matched


@final
class Events:
    """The rings. Any thread may add and read.

    Attributes:
        came: the number of events to choose from.
        recorded: the number of events that were kept.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = Lock()
        self._tokens, self._filled = BURST, time.monotonic()
        self._rings: OrderedDict[Name, deque[ObservedEvent]] = OrderedDict()
        self._bytes: dict[Name, int] = {}
        self._latest: deque[ObservedEvent] = deque(maxlen=LATEST)
        self.came = self.recorded = 0

    def wanted(self, count: int) -> Sequence[int]:
        """Return which of *count* events to keep; usually none.

        Concurrent threads may get a few too many, which is cheaper than a lock.
        """
        self.came += count
        now = time.monotonic()
        tokens = min(self._tokens + (now - self._filled) * RATE, BURST)
        self._filled = now
        if tokens < 1:
            self._tokens = tokens
            return ()
        take = min(int(tokens), count)
        self._tokens = tokens - take
        return range(count) if take == count else sorted(random.sample(range(count), take))

    def add(self, source: str, partition: str, place: tuple[Position, int], text: bytes, result: MatchResult) -> None:
        """Keep an event; *result* is None without a match. An unreadable event is not kept, because it becomes a dead letter.

        Args:
            place: its position, and its index in the record.
        """
        if isinstance(result, EventError) or len(text) > LONGEST:
            return
        self._tokens -= len(text) // BYTES_OF_ONE
        try:
            self._add(source, partition, place, text, Matched() if result is None else _matched(result))
        except Exception:
            # An error in this view must not end a pipeline.
            _LOGGER.exception("cannot keep an event for the console")

    def _add(self, source: str, partition: str, place: tuple[Position, int], text: bytes, matched: Matched) -> None:
        tenant = collection = kind = ignored = None
        try:
            event = self._options.read(text, None, None)
            tenant, collection, kind = event.tenant, event.collection, event.type
        except IgnoredEvent as none:
            ignored = none.reason.value
        except EventError:
            return
        with self._lock:
            self.recorded += 1
            about = (self.recorded, milliseconds(), source, partition, *place, text)
            observed = ObservedEvent(*about, tenant, collection, kind, ignored, matched)
            self._latest.append(observed)
            self._put((tenant, collection), observed)

    def _put(self, name: Name, event: ObservedEvent) -> None:
        ring = self._rings.get(name)
        if ring is None:
            ring = self._rings[name] = deque()
            self._bytes[name] = 0
            if len(self._rings) > MOST_RINGS:
                gone, _ = self._rings.popitem(last=False)
                del self._bytes[gone]
        self._rings.move_to_end(name)
        ring.append(event)
        self._bytes[name] += len(event.text) + _OVERHEAD
        if len(ring) > MOST:
            self._pop(name)
        while sum(self._bytes.values()) > MOST_BYTES:
            # The collection with the most bytes loses an event.
            self._pop(max(self._bytes, key=self._bytes.__getitem__))

    def _pop(self, name: Name) -> None:
        self._bytes[name] -= len(self._rings[name].popleft().text) + _OVERHEAD

    def last(self, tenant: str | None, collection: str | None, most: int, before: int | None = None) -> list[ObservedEvent]:
        """Return some of the latest events, the newest first.

        Args:
            tenant: None for all tenants, and events without a tenant.
            collection: None for all.
            before: only events with a smaller number.
        """
        with self._lock:
            rings = [
                list(ring)
                for (whose, named), ring in self._rings.items()
                if tenant in (None, whose) and collection in (None, named)
            ]
        candidates = [
            event for ring in rings for event in islice(reversed(ring), MOST) if before is None or event.number < before
        ]
        return sorted(candidates, key=lambda event: -event.number)[:most]

    def after(self, number: int) -> list[ObservedEvent]:
        """Return the latest kept events with larger numbers, the oldest first."""
        with self._lock:
            newer = list(takewhile(lambda event: event.number > number, reversed(self._latest)))
        return newer[::-1]

    def find(self, number: int) -> ObservedEvent | None:
        """Return a kept event by its number."""
        with self._lock:
            return next((event for ring in self._rings.values() for event in ring if event.number == number), None)


def _matched(matches: Matches) -> Matched:
    own: list[Hit] = []
    every: list[Hit] = []
    some = matches[:LOOKED_AT]
    whose = [outside(inner) for inner in some.ids()]
    for at, (tenant, subscription_id) in enumerate(whose):
        of = every if tenant == EVERY else own
        if len(of) < MOST_HITS:
            match = some[at]
            of.append(Hit(tenant, subscription_id, match.gateway_id, match.transition, match.certain))
    count = sum(tenant == EVERY for tenant, _ in whose)
    return Matched(tuple(own), tuple(every), len(whose) - count, count, len(matches) > LOOKED_AT)
