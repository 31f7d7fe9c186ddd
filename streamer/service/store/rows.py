"""What the store holds, a row at a time: dead letters, messages of the spool, lanes, positions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, final

from streamer.service.protocols import Position

#: So many bytes of a record that could not be delivered are kept; what is longer can be shown, and not replayed.
MOST_KEPT: Final = 1024 * 1024
#: Messages of a lane have numbers of this many bits, and so many lanes there can be.
BITS: Final = 44
LANES: Final = 2 ** (63 - BITS)
#: What the name of the sink of a tenant's own gateway begins with, which is `gateway:TENANT/ID`, percent-encoded.
OWN: Final = "gateway:"
#: When a message is due that waits for its dead letter to be replayed or dropped.
NEVER: Final = 2**62


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that could not be delivered.

    Attributes:
        id: its number in the store; 0 as long as it has none.
        part: index of its event, where the record had several; -1 for the whole.
        stage: where it failed: `decode` for a record, `deliver` for a message.
        code: one of a few words that say why.
        reason: what was wrong; it may quote the record.
        attempts: how often it was tried.
        at: when it failed last, in milliseconds since the epoch.
        size: how many bytes it had; *record* has fewer where that was too much to keep.
        sink: of a message, for which sink it is; empty for a record.
        message: its id.
        matches: of how many matches it tells.
        key: by which it stands in order.
        spooled: where in the spool it waits for this letter to be replayed or dropped; None where nothing does.
        record_key: of a record, its own key, by which it is read again; None where it has none.
        kept: how many bytes of the record the store has, where *record* was not read.
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
        """How many bytes of the record were kept."""
        return len(self.record) if self.kept is None else self.kept

    @property
    def room(self) -> int:
        """How much room it takes, of `delivery.dead_letter_bytes`."""
        return len(self.record) + len(self.reason) + len(self.record_key or b"")

    @property
    def is_whole(self) -> bool:
        """Whether all of the record is there, so that it can be tried again."""
        return self.bytes_kept == self.size


@final
class Spooled(NamedTuple):
    """A message for the spool.

    Attributes:
        key: by which it stands in order; None where it does not.
        message: its id.
        matches: of how many matches it tells.
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
        number: where it stands; later ones of its sink have larger numbers.
        due: when it is to be tried again, in milliseconds since the epoch; 0 as long as it was not tried.
        at: when it came.
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
    """What the spool holds for one sink.

    Attributes:
        number: of the lane; its messages stand after `first`.
        gone: when its endpoint said that it wants no more, in milliseconds since the epoch; None where it did not.
        target: a hash of the endpoint that said so.
        last: the number of the message that came last.
        mark: what tells it from another lane that had its name or number.
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
    """What came of messages of the spool, to be put down in one commit.

    Attributes:
        delivered: numbers of those that are held.
        tried: attempts, when it is due, and the number, of each that failed.
        dead: messages that are given up, and their letters.
        gone: lanes whose endpoint wants no more.
        dead_bytes: room that the letters take.
    """

    delivered: list[int] = field(default_factory=list)
    tried: list[tuple[int, int, int]] = field(default_factory=list)
    dead: list[tuple[int, DeadLetter]] = field(default_factory=list)
    gone: list[tuple[str, str]] = field(default_factory=list)
    dead_bytes: int = 0

    def bury(self, number: int, letter: DeadLetter) -> None:
        """Add the letter of a message that is given up."""
        self.dead.append((number, letter))
        self.dead_bytes += letter.room

    def __len__(self) -> int:
        return len(self.delivered) + len(self.tried) + len(self.dead) + len(self.gone)


@final
@dataclass(frozen=True, slots=True)
class Confirmed:
    """What is to be put down of a partition.

    Attributes:
        position: up to where it is held; None where no more of it is than before.
        generation: of the partition when it was read, see `Store.generation`.
        is_over: whether the partition is to be forgotten.
    """

    source: str
    partition: str
    position: str | None
    generation: int = 0
    is_over: bool = False


def milliseconds() -> int:
    """Return the time now, since the epoch."""
    return time.time_ns() // 10**6


def time_of(ms: int) -> str:
    """Return a time since the epoch as text."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def position_of(value: int | str) -> Position:
    """Return a position of a column: one kind of database has them all as texts."""
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
    """Make one of a record that failed now."""
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
