"""Rows of the store: dead letters, messages of the spool, lanes, positions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, final

from streamer.service.connectors.protocols import Position

#: The bytes that are kept of an undeliverable record. A longer one can be shown but not replayed.
MOST_KEPT: Final = 1024 * 1024
#: A lane numbers its messages with this many bits, which leaves room for this many lanes.
BITS: Final = 44
LANES: Final = 2 ** (63 - BITS)
#: The prefix of the sinks of tenants' own gateways, which are named `gateway:TENANT/ID`, percent-encoded.
OWN: Final = "gateway:"
#: The due time of a message that waits until its dead letter is replayed or dropped.
NEVER: Final = 2**62


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record or a message that could not be delivered.

    Attributes:
        id: its number in the store; 0 before it has one.
        part: index of its event, if the record had several; -1 for the whole record.
        stage: the step that failed, `decode` for a record, `deliver` for a message.
        code: a short word for the cause.
        reason: the description of the error; it may quote the record.
        attempts: the number of attempts.
        at: the time of the last failure, in milliseconds since the epoch.
        size: its bytes; *record* has fewer if it was too large to keep.
        sink: the sink of a message; empty for a record.
        message: the id of the message.
        matches: the number of matches in the message.
        key: the key that orders it.
        spooled: the number of the message in the spool that waits until this letter is replayed or dropped; None if none waits.
        record_key: the key of a record at its source, by which it is read again; None if it has none.
        kept: bytes of the record in the store, if *record* was not read.
    """

    id: int = 0
    source: str
    partition: str
    position: Position
    part: int = -1
    stage: Literal["decode", "deliver"] = "decode"
    code: str
    reason: str
    attempts: int = 1
    at: int
    size: int
    record: bytes
    sink: str = ""
    message: str = ""
    matches: int = 0
    key: int | None = None
    spooled: int | None = None
    record_key: bytes | None = None
    kept: int | None = None

    @property
    def bytes_kept(self) -> int:
        """The number of bytes of the record in the store."""
        return len(self.record) if self.kept is None else self.kept

    @property
    def room(self) -> int:
        """The bytes that it uses of `delivery.dead_letter_bytes`."""
        return len(self.record) + len(self.reason) + len(self.record_key or b"")

    @property
    def is_whole(self) -> bool:
        """Whether all of the record is stored, so that it can be retried."""
        return self.bytes_kept == self.size


@final
class Spooled(NamedTuple):
    """A message for the spool.

    Attributes:
        key: the key that orders it; None without order.
        message: its id.
        matches: the number of matches in it.
    """

    sink: str
    key: int | None
    message: str
    matches: int
    source: str
    partition: str
    position: Position
    part: int
    body: bytes


@final
class Waiting(NamedTuple):
    """A message of the spool.

    Attributes:
        number: its place; later messages of its sink have larger numbers.
        due: the time of its next attempt, in milliseconds since the epoch; 0 before the first attempt.
        at: the time of its arrival.
    """

    number: int
    key: int | None
    message: str
    matches: int
    attempts: int
    due: int
    at: int
    source: str
    partition: str
    position: Position
    part: int
    body: bytes


@final
@dataclass(slots=True)
class Lane:
    """The part of the spool that belongs to one sink.

    Attributes:
        number: identifies the lane; its messages have numbers above `first`.
        gone: when its endpoint was disabled, in milliseconds since the epoch; None if it is not.
        target: a hash of the endpoint that was disabled.
        last: the number of its newest message.
        mark: distinguishes it from other lanes that had its name or number.
    """

    name: str
    number: int
    gone: int | None
    target: str | None
    last: int = 0
    mark: str = ""

    @property
    def first(self) -> int:
        """The number before its first message."""
        return self.number << BITS


@final
@dataclass(slots=True)
class Changes:
    """Results for messages of the spool, to be stored in one commit.

    Attributes:
        delivered: numbers of delivered messages.
        tried: attempts, due time and number of each message that failed.
        dead: numbers of messages that failed for good, and their letters.
        gone: lanes whose endpoint wants no more.
        dead_bytes: the room for the letters.
    """

    delivered: list[int] = field(default_factory=list)
    tried: list[tuple[int, int, int]] = field(default_factory=list)
    dead: list[tuple[int, DeadLetter]] = field(default_factory=list)
    gone: list[tuple[str, str]] = field(default_factory=list)
    dead_bytes: int = 0

    def bury(self, number: int, letter: DeadLetter) -> None:
        """Add the dead letter of a message."""
        self.dead.append((number, letter))
        self.dead_bytes += letter.room

    def __len__(self) -> int:
        return len(self.delivered) + len(self.tried) + len(self.dead) + len(self.gone)


@final
@dataclass(frozen=True, slots=True)
class Confirmed:
    """The new state of a partition.

    Attributes:
        position: the position up to which all is durable; None if it has not changed.
        generation: the partition's generation when it was read, see `Store.generation`.
        is_over: whether to delete the partition.
    """

    source: str
    partition: str
    position: str | None
    generation: int = 0
    is_over: bool = False


def milliseconds() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 10**6


def time_of(ms: int) -> str:
    """Return a time in milliseconds since the epoch as text."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def position_of(value: int | str) -> Position:
    """Return the position of a column: one kind of database stores all positions as texts."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def dead_letter(
    source: str,
    partition: str,
    position: Position,
    part: int,
    code: str,
    reason: str,
    record: bytes,
    size: int | None = None,
    key: bytes | str | None = None,
) -> DeadLetter:
    """Return the dead letter of a record that failed now."""
    return DeadLetter(
        source=source,
        partition=partition,
        position=position,
        part=part,
        code=code,
        reason=reason[:2000],
        at=milliseconds(),
        size=len(record) if size is None else size,
        record=record[:MOST_KEPT],
        record_key=key.encode() if isinstance(key, str) else key,
    )
