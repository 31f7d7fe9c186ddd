"""Messages that wait for their sinks: a queue with a bound in bytes.

Readers wait while it is full, so the sinks' pace bounds memory. The writer takes all waiting parts at once: while a disk is busy
with one sync, the next messages gather, and share the next sync.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, final

from streamer.errors import EventError
from streamer.locks import Lock
from streamer.service.connectors.cloudevents import id_of
from streamer.service.connectors.formats import Place
from streamer.service.connectors.protocols import Batch, Position, Refused
from streamer.service.delivery.messages import Prepared
from streamer.service.store.rows import MOST_KEPT, Confirmed, DeadLetter, Spooled, dead_letter

#: The bytes of messages and dead letters at which a part of a batch is closed.
PART_BYTES: Final = 1024 * 1024
#: The most bytes that wait, in addition to one part for each source.
MOST_BYTES: Final = 32 * 1024 * 1024
#: The overhead of a part in bytes.
_OVERHEAD: Final = 1024
#: The overhead of a message for the spool, of the messages of an event, and of a dead letter, in bytes.
_OF_A_MESSAGE: Final = 256
#: The bytes of its record that a dead letter keeps if others have all of it.
_BEGINNING: Final = 4096


@final
@dataclass(slots=True)
class SinkMessages:
    """Messages for one sink, with the place of each event and the number of matches in each message.

    It consists of lists of bytes and numbers only, because the garbage collector would traverse objects repeatedly while they
    wait.
    """

    messages: list[bytes] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@final
@dataclass(slots=True)
class Part:
    """Messages of one source in their order, and the position to confirm once they are durable.

    Attributes:
        confirmed: the partition's new state; without a position if more of its batch follows.
        direct: messages for each sink that is written to directly.
        delivering: the number of matches in them.
        spooled: messages for sinks that use the spool.
        dropped: dead letters to delete once the messages are durable.
        events: the number of events that were read, valid or not.
        matched: the number of them with a match.
        unrouted: matches without a route.
        stored: bytes of each record of the batch that its dead letters keep.
    """

    source: str
    confirmed: Confirmed
    direct: dict[str, SinkMessages] = field(default_factory=dict)
    delivering: Counter[str] = field(default_factory=Counter)
    spooled: list[Spooled] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    events: int = 0
    matched: int = 0
    unrouted: int = 0
    stored: Counter[int] = field(default_factory=Counter)
    size: int = _OVERHEAD

    @property
    def whose(self) -> tuple[str, str, int]:
        """Source and partition, and the generation under which it was read."""
        return self.source, self.confirmed.partition, self.confirmed.generation

    @property
    def is_full(self) -> bool:
        """Whether the next messages go into another part."""
        return self.size >= PART_BYTES

    def following(self) -> Part:
        """Return the next part of the batch. A part confirms a position only if it is the last one of its batch."""
        return Part(self.source, self.confirmed, stored=self.stored)

    def add(self, message: Prepared) -> None:
        """Add messages for a sink; those without a route are only counted."""
        if (sink := message.sink) is None:
            self.unrouted += message.matches
            return
        if (queue := self.direct.get(sink)) is None:
            queue = self.direct[sink] = SinkMessages()
        place, count = message.about.place, len(message.messages)
        queue.messages += message.messages
        queue.positions += [place.position] * count
        queue.parts += [place.part] * count
        queue.counts += message.counts
        self.delivering[sink] += message.matches
        self.size += sum(map(len, message.messages)) + _OF_A_MESSAGE

    def undelivered(self, sink: str) -> list[Spooled]:
        """Return the messages for a sink in the form of dead letters, which have no keys."""
        queue = self.direct[sink]
        return [
            Spooled(sink, None, id_of(message), count, self.source, self.confirmed.partition, position, part, message)
            for message, count, position, part in zip(queue.messages, queue.counts, queue.positions, queue.parts, strict=True)
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
        if (amount := self.stored[place.record]) and amount + len(whole) > MOST_KEPT:
            # A record may have thousands of events: all of its letters together keep at most as many bytes as one may.
            whole = whole[:_BEGINNING]
        error.index = None
        key = None if batch.keys is None else batch.keys[place.record]
        letter = dead_letter(source, batch.partition, place.position, place.part, error.code.value, str(error), whole, size, key)
        self.dead.append(letter)
        self.stored[place.record] += len(letter.record)
        self.size += letter.room + _OF_A_MESSAGE


@final
class Waiting:
    """The queue between the threads that read and the one that delivers."""

    def __init__(self) -> None:
        self._changed = threading.Condition(Lock())
        self._parts: list[Part] = []
        self._size = 0
        self._is_in_delivery = self._is_over = False

    def put(self, part: Part) -> None:
        """Add a part, once there is room; it is dropped if the queue has ended."""
        with self._changed:
            while self._size >= MOST_BYTES and not self._is_over:
                self._changed.wait()
            if not self._is_over:
                self._parts.append(part)
                self._size += part.size
                self._changed.notify_all()

    def take(self) -> list[Part]:
        """Wait for parts, and return all of them; empty once the queue has ended and is empty.

        The next call means that the parts of the previous one were delivered.
        """
        with self._changed:
            self._is_in_delivery = False
            self._changed.notify_all()
            while not self._parts and not self._is_over:
                self._changed.wait()
            parts, self._parts, self._size = self._parts, [], 0
            self._is_in_delivery = bool(parts)
            self._changed.notify_all()
            return parts

    def drained(self, seconds: float) -> bool:
        """Wait until all parts are delivered, for at most *seconds*; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._parts and not self._is_in_delivery, seconds)

    @property
    def size(self) -> int:
        """The bytes that wait."""
        return self._size

    def end(self, *, drop: bool = False) -> None:
        """Accept no more parts; with *drop*, also drop the waiting ones."""
        with self._changed:
            self._is_over = True
            if drop:
                self._parts, self._size, self._is_in_delivery = [], 0, False
            self._changed.notify_all()
