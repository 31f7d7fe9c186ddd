"""What a source and a sink are: two small protocols, and what passes between them.

Contract: a source is told of a position only after every message of it, and of all before it in its partition, is held by its
sink, and after the store has the position. So what was in between when a process dies is read again, with equal ids.

A *partition* of a source is a sequence of records in order: a file, a partition of Kafka, a replication slot. Its name never
stands for other records, nor a position in it for another record: ids of messages are made of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

from streamer.errors import EventError


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """A record that the source could not take whole, in its place.

    Attributes:
        begin: what is left of it.
        size: how many bytes it had.
    """

    error: EventError
    begin: bytes
    size: int


Record: TypeAlias = bytes | Refused


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of one partition, in their order.

    Attributes:
        positions: of each record; equal for the same record whenever it is read.
        confirm: what the source is to find in the store when all of the batch is delivered; None where it cannot go back there.
        is_last: whether nothing will come of this partition again, so that the store may forget it.
    """

    partition: str
    records: Sequence[Record]
    positions: Callable[[int], int]
    confirm: str | None
    is_last: bool = False


class EndOfSource(Exception):
    """A source has come to its end."""


#: Keeps a partition that a source found, with a position before its first record, so that its name survives a crash.
Begin: TypeAlias = Callable[[str, str], None]


class Source(Protocol):
    """Where records come from. One thread uses it, but for `acknowledge`, which another may call."""

    def check(self) -> None:
        """Find out whether it could be opened, and change nothing. Raises ServiceError."""

    def open(self, confirmed: Mapping[str, str], begin: Begin) -> None:
        """Open it where its partitions were confirmed last, oldest first. Raises ServiceError."""

    def read(self, wait: float) -> Batch | None:
        """Return the records that have come; None where none come within *wait* seconds.

        Raises:
            EndOfSource: there are no more.
            ServiceError: it cannot be read.
        """

    def acknowledge(self, partition: str, confirm: str) -> None:
        """Learn that all up to there is delivered, and in the store. Raises ServiceError."""

    def close(self) -> None:
        """Close it; what was not acknowledged comes again."""


class SinkGone(Exception):
    """Nobody takes what this sink would write: a pipe whose reader went away."""


class Sink(Protocol):
    """Where messages go: JSON texts that each end in a line's end. One thread uses it."""

    def check(self) -> None:
        """Find out whether it could be opened, and change nothing. Raises ServiceError."""

    def open(self) -> None:
        """Open it. Raises ServiceError."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Take messages, in order. Raises ServiceError and SinkGone."""

    def flush(self) -> None:
        """Return once all that was written is held: it outlives this process and a loss of power. Raises as `write`."""

    def close(self) -> None:
        """Close it."""
