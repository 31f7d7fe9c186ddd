"""What was matched and waits for its sinks: a queue with a bound in bytes.

Readers wait while it is full, so memory is bounded by the sinks' pace. All that waits is taken at once: while a disk is busy with
one sync, what comes meanwhile gathers, and shares the next one.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, final

from streamer.errors import EventError
from streamer.locks import Lock
from streamer.service.formats import Place
from streamer.service.messages import Told, id_of
from streamer.service.protocols import Batch, Position, Refused
from streamer.service.store.rows import MOST_KEPT, Confirmed, DeadLetter, Spooled, dead_letter

#: A part of a batch is closed when its messages and dead letters have so many bytes.
PART_BYTES: Final = 1024 * 1024
#: So much waits at most, and one part more for each source.
MOST_BYTES: Final = 32 * 1024 * 1024
#: A part takes so much besides its messages.
_OVERHEAD: Final = 1024
#: A message for the spool, what is told of an event, or a dead letter takes so much besides its bytes.
_OF_A_MESSAGE: Final = 256
#: So much of its record has a dead letter where others have all of it.
_BEGINNING: Final = 4096


@final
@dataclass(slots=True)
class Held:
    """Messages for one sink, and of each where its event stands and of how many matches it tells.

    Lists of bytes and numbers alone: the collector of garbage would go over objects again and again while they wait.
    """

    messages: list[bytes] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@final
@dataclass(slots=True)
class Part:
    """Messages of one source in their order, and what is confirmed once they are held.

    Attributes:
        confirmed: of the partition that all of it is of; without a position where more of its batch follows.
        held: messages for each sink that is written to.
        delivering: how many matches they tell of.
        spooled: messages that go to their sinks by way of the spool.
        dropped: dead letters that need not be kept once they are held.
        events: how many were read, good or bad.
        matched: how many of them match something.
        unrouted: matches that no route leads anywhere.
        kept: bytes of each record of the batch that its dead letters have.
    """

    source: str
    confirmed: Confirmed
    held: dict[str, Held] = field(default_factory=dict)
    delivering: Counter[str] = field(default_factory=Counter)
    spooled: list[Spooled] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    events: int = 0
    matched: int = 0
    unrouted: int = 0
    kept: Counter[int] = field(default_factory=Counter)
    size: int = _OVERHEAD

    @property
    def whose(self) -> tuple[str, str, int]:
        """Source and partition, and under which generation it was read."""
        return self.source, self.confirmed.partition, self.confirmed.generation

    @property
    def is_full(self) -> bool:
        """Whether what follows goes into another part."""
        return self.size >= PART_BYTES

    def following(self) -> Part:
        """Return the next part of the batch; while this is not its last, it confirms nothing."""
        return Part(self.source, self.confirmed, kept=self.kept)

    def add(self, told: Told) -> None:
        """Add messages for a sink; those that no route leads to one are counted."""
        if (sink := told.sink) is None:
            self.unrouted += told.matches
            return
        if (held := self.held.get(sink)) is None:
            held = self.held[sink] = Held()
        place, count = told.about.place, len(told.messages)
        held.messages += told.messages
        held.positions += [place.position] * count
        held.parts += [place.part] * count
        held.counts += told.counts
        self.delivering[sink] += told.matches
        self.size += sum(map(len, told.messages)) + _OF_A_MESSAGE

    def undelivered(self, sink: str) -> list[Spooled]:
        """Return the messages for a sink as letters take them, who know no keys."""
        held = self.held[sink]
        return [
            Spooled(sink, None, id_of(message), count, self.source, self.confirmed.partition, position, part, message)
            for message, count, position, part in zip(held.messages, held.counts, held.positions, held.parts, strict=True)
        ]

    def spool(self, messages: list[Spooled]) -> None:
        """Add messages for the spool."""
        self.spooled += messages
        for each in messages:
            self.size += len(each.body) + _OF_A_MESSAGE

    def refuse(self, source: str, batch: Batch, place: Place, error: EventError) -> None:
        """Add the record of an event that cannot be read."""
        record = batch.records[place.record]
        whole, size = (record.begin, record.size) if isinstance(record, Refused) else (record, len(record))
        if (kept := self.kept[place.record]) and kept + len(whole) > MOST_KEPT:
            # A record may have thousands of events: its letters have no more of it together than one may have.
            whole = whole[:_BEGINNING]
        error.index = None
        key = None if batch.keys is None else batch.keys[place.record]
        letter = dead_letter(source, batch.partition, place.position, place.part, error.code.value, str(error), whole, size, key)
        self.dead.append(letter)
        self.kept[place.record] += len(letter.record)
        self.size += letter.room + _OF_A_MESSAGE


@final
class Waiting:
    """The queue between those who read and the one who delivers."""

    def __init__(self) -> None:
        self._changed = threading.Condition(Lock())
        self._parts: list[Part] = []
        self._size = 0
        self._is_taken = self._is_over = False

    def put(self, part: Part) -> None:
        """Add a part, once there is room; it is forgotten where nobody will deliver it."""
        with self._changed:
            while self._size >= MOST_BYTES and not self._is_over:
                self._changed.wait()
            if not self._is_over:
                self._parts.append(part)
                self._size += part.size
                self._changed.notify_all()

    def take(self) -> list[Part]:
        """Wait for parts, and return all there are; none once it is over and all were taken.

        Who asks again has delivered what was returned before.
        """
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()
            while not self._parts and not self._is_over:
                self._changed.wait()
            parts, self._parts, self._size = self._parts, [], 0
            self._is_taken = bool(parts)
            self._changed.notify_all()
            return parts

    def drained(self, seconds: float) -> bool:
        """Wait until all that was put is delivered, for so long at most; tell whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._parts and not self._is_taken, seconds)

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._size

    def end(self, *, drop: bool = False) -> None:
        """Say that no more will come; with *drop* that nothing is delivered any more."""
        with self._changed:
            self._is_over = True
            if drop:
                self._parts, self._size, self._is_taken = [], 0, False
            self._changed.notify_all()
