"""The protocols of a source, a sink and an endpoint, and the values that pass between them.

Contract: a source gets a position to acknowledge only after its sinks have durably stored every message up to it in its
partition, and after the store has the position. So if a process dies in between, the records are read again, with equal ids.

A *partition* of a source is a sequence of records in order: a file, a partition of Kafka, a replication slot. Its name never
refers to other records, nor a position in it to another record, because ids of messages are made of both.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, final

from streamer.errors import BulkConfigError, EventError, ServiceError
from streamer.terminal import LOST, PASSING, USAGE


@final
class Progress(NamedTuple):
    """The progress of a source.

    Attributes:
        read, end: positions, summed over all of its partitions; the difference was not read yet, or for PostgreSQL not confirmed.
        unit: what a position counts, `bytes` or `messages`.
        log_bytes: bytes of a server's log that a replication slot keeps; None for a source without a slot.
    """

    read: int
    end: int
    unit: Literal["bytes", "messages"]
    log_bytes: int | None = None


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """A record that the source could not read whole, in its place.

    Attributes:
        begin: the part of the record that was read.
        size: bytes of the whole record.
    """

    error: EventError
    begin: bytes
    size: int


Record: TypeAlias = bytes | Refused
#: The confirmed positions of a source that has none.
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

#: The position of a record in its partition: a byte of a file, or text that a source writes for it, which is not an integer.
Position: TypeAlias = int | str


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of one partition, in their order.

    Attributes:
        positions: one for each record; equal for the same record whenever it is read.
        keys: one for each record, if the source has them; a decoder may read them, too. Bytes that are not text are shown in hex.
        confirm: the position to store when all of the batch is delivered; None if the source cannot return to it.
        generation: the partition's when it was read, for a source that may lose it and get it back; None for the current one.
        is_last: whether this is the partition's last batch, so that the store may forget it.
    """

    partition: str
    records: Sequence[Record]
    positions: Callable[[int], Position]
    confirm: str | None
    is_last: bool = False
    generation: int | None = None
    keys: Sequence[bytes | str | None] | None = None


class Passing(ServiceError):
    """A failure that may pass without a change of the configuration, for example a full disk."""


class Away(Passing):
    """A server does not answer now. It may later: it is starting, or it cannot be reached."""


class Busy(Passing):
    """Another process uses a thing that only one process may use at a time. That process may end."""


class Lost(ServiceError):
    """Data that was not read is gone: an operator must decide how to continue."""


class Wrong(ServiceError):
    """An error that only an operator can fix, though it occurs while the service runs.

    At the start, any error of no other class here is one.
    """


#: Reasons of the system to refuse a call that it may allow later.
_MAY_PASS: Final = frozenset(
    {errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}
)


def failed(what: object, error: OSError) -> ServiceError:
    """Return the error for a file that the system refuses access to."""
    kind = Passing if error.errno in _MAY_PASS else ServiceError
    return kind(f"{what}: {error.strerror or error}")


def code_of(error: Exception, *, is_start: bool) -> int:
    """Return the exit code of a process: docs/command-line.md has the table.

    A thing that could be opened at the start is configured well, so a later failure may pass: the next start will show.

    Args:
        is_start: whether the service had not started yet.
    """
    match error:
        case Lost():
            return LOST
        case Passing():
            return PASSING
        case Wrong() | BulkConfigError():
            return USAGE
    return USAGE if is_start and isinstance(error, ServiceError) else PASSING


class EndOfSource(Exception):
    """The source has no more records."""


#: Takes over a partition for this process. For a new partition, stores the position before its first record, so that its name
#: survives a crash. A known partition stays at its own position. Returns the generation under which it is read.
Begin: TypeAlias = Callable[[str, str], int | None]


@final
@dataclass(frozen=True, slots=True)
class Others:
    """The confirmed positions of sources that are not configured; a renamed source is one of them.

    Attributes:
        name: the source that is being opened.
        positions: by their names and partitions.
    """

    name: str = ""
    positions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def hint(self, other: str) -> str:
        """Return advice on how to continue the source that is being opened at the positions of another one."""
        return (
            f"If source {other!r} was this one under another name, stop the service: "
            f"`streamer positions move {other} {self.name} --dry-run` shows how to continue there"
        )


#: All sources of the store are configured.
NO_OTHERS: Final = Others()


class Source(Protocol):
    """An input of records. One thread uses it; other threads may use `acknowledge`, `lost`, `progress` and `down_since`."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may read other partitions of it; each process begins its own partitions."""

    @property
    def down_since(self) -> float | None:
        """Since when its server has not answered, by a monotonic clock; None while it answers, and before it is opened."""

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """Check whether it could be opened, without changing anything.

        Args:
            confirmed: the last confirmed position of each of its partitions, as far as it is available.

        Raises:
            Busy: another process reads it now.
            Lost: the data after a position is gone, and the configuration has no rule for that.
            ServiceError: it could not be opened.
        """

    def open(self, confirmed: Mapping[str, str], begin: Begin, others: Others = NO_OTHERS) -> None:
        """Open it at the last confirmed positions of its partitions, oldest first; after Away, it is called once more.

        Args:
            confirmed: the positions; a shared source reads them again each time, because other processes confirm, too.
            others: sources that are in the store but not in the configuration.

        Raises:
            Away: its server does not answer now.
            ServiceError: it cannot be opened.
        """

    def read(self, wait: float) -> Batch | None:
        """Return the next records; None if there are none within *wait* seconds.

        Raises:
            EndOfSource: there are no more.
            ServiceError: it cannot be read.
        """

    def acknowledge(self, partition: str, confirm: str) -> None:
        """Note that all records up to a position are delivered, and the position is in the store. Raises ServiceError."""

    def progress(self) -> Progress | None:
        """Return its progress, without a long query of a server; None if it is not available."""

    def lost(self, partition: str) -> None:
        """Note that another process took over a partition, so that this process can no longer confirm it.

        Raises:
            ServiceError: only one process may read this source.
        """

    def close(self) -> None:
        """Close it, whether it was opened or not. Records that were not acknowledged are read again later."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt to deliver.

    Attributes:
        result: `delivered`; `later` if another attempt may succeed; `never` if none will; `gone` if the endpoint wants no more.
        code: a short word or a status for the cause; metrics and dead letters have it.
        reason: a description of the error. It contains no secret, no row, and no part of the endpoint's answer.
        after: the delay that the endpoint requests, in seconds.
        said: the beginning of the endpoint's answer. Only the view of attempts shows it; no log, metric or letter contains it.
    """

    result: Literal["delivered", "later", "never", "gone"]
    code: str = ""
    reason: str = ""
    after: float | None = None
    said: bytes = field(default=b"", compare=False, repr=False)


class SinkGone(Exception):
    """The reader of this sink is gone, for example the other end of a pipe."""


class Sink(Protocol):
    """An output for messages: JSON texts that each end in a newline. One thread uses it."""

    def check(self) -> None:
        """Check whether it could be opened, without changing anything. Raises ServiceError."""

    def open(self) -> None:
        """Open it; after Away, it is called once more. Raises as `Source.open`."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Accept messages, in order. Raises ServiceError and SinkGone."""

    def flush(self) -> Sequence[tuple[int, Outcome]]:
        """Return once all written messages are durable: they outlive this process and a loss of power. Raises as `write`.

        Returns:
            The messages that it will never accept, by their number since the last flush; all others are durable.
        """

    def close(self) -> None:
        """Close it, whether it was opened or not."""


class Endpoint(Protocol):
    """The receiver of messages from the spool (`streamer.service.delivery.spool`). One event loop sends; any thread may close."""

    def check(self) -> None:
        """Check whether it can be used, without sending. Raises ServiceError."""

    async def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        """Try to deliver messages together; the endpoint accepts all of them, or none."""

    def close(self) -> None:
        """Close its connections."""
