"""What a source, a sink and an endpoint are: small protocols, and what passes between them.

Contract: a source is told of a position only after every message of it, and of all before it in its partition, is held by its
sink, and after the store has the position. So what was in between when a process dies is read again, with equal ids.

A *partition* of a source is a sequence of records in order: a file, a partition of Kafka, a replication slot. Its name never
stands for other records, nor a position in it for another record: ids of messages are made of both.
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
    """How far a source has come.

    Attributes:
        read, end: places in all of its partitions together; the difference was not read yet.
        unit: what is counted: `bytes` or `messages`.
    """

    read: int
    end: int
    unit: Literal["bytes", "messages"]


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
#: Where a source was confirmed that nothing is known of.
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

#: Where a record stands in its partition: a byte of a file, or what a source writes for it, which is no integer then.
Position: TypeAlias = int | str


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of one partition, in their order.

    Attributes:
        positions: of each record; equal for the same record whenever it is read.
        keys: of each record, where the source knows them; a decoder may read them, too. What is no text is shown in hex.
        confirm: what the source is to find in the store when all of the batch is delivered; None where it cannot go back there.
        generation: of the partition when it was read, of a source that may lose it and get it back; None for the one in force.
        is_last: whether nothing will come of this partition again, so that the store may forget it.
    """

    partition: str
    records: Sequence[Record]
    positions: Callable[[int], Position]
    confirm: str | None
    is_last: bool = False
    generation: int | None = None
    keys: Sequence[bytes | str | None] | None = None


class Passing(ServiceError):
    """What fails now may not fail later, without anybody changing the configuration: a disk that is full."""


class Away(Passing):
    """A server does not answer now. It may later: it is starting, or it cannot be reached."""


class Busy(Passing):
    """Another process uses what one process uses at a time. It may end."""


class Lost(ServiceError):
    """Data is gone that was not read: somebody must decide what becomes of that."""


class Wrong(ServiceError):
    """What only a person can mend, though it shows while the service runs. Any error at the start is, if it is none of these."""


#: Why the system refuses something that it may allow later.
_MAY_PASS: Final = frozenset(
    {errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}
)


def failed(what: object, error: OSError) -> ServiceError:
    """Return the error of a file that the system refuses something of."""
    kind = Passing if error.errno in _MAY_PASS else ServiceError
    return kind(f"{what}: {error.strerror or error}")


def code_of(error: Exception, *, is_start: bool) -> int:
    """Return the code with which a process ends: docs/command-line.md has the table.

    What could be opened at the start is configured well, so what fails later may pass: the next start tells.

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
    """A source has come to its end."""


#: Has a partition be this process's, and keeps one that a source found with a position before its first record, so that its name
#: survives a crash. Where the partition is known already it stays at its own position. Returns the generation as of which it is
#: read.
Begin: TypeAlias = Callable[[str, str], int | None]


@final
@dataclass(frozen=True, slots=True)
class Others:
    """Where sources were confirmed that are not configured: a source that was renamed is one of them.

    Attributes:
        name: of the source that is opened.
        positions: by their names and partitions.
    """

    name: str = ""
    positions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def hint(self, other: str) -> str:
        """Say how the source that is opened goes on where another one was confirmed."""
        return (
            f"If source {other!r} was this one under another name, stop the service: "
            f"`streamer positions move {other} {self.name} --dry-run` shows what has it go on there"
        )


#: All sources of the store are configured.
NO_OTHERS: Final = Others()


class Source(Protocol):
    """Where records come from. One thread uses it, but for `acknowledge`, `lost` and `progress`, which others may call."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may read other partitions of it; each begins those that are its own."""

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """Find out whether it could be opened, and change nothing.

        Args:
            confirmed: where its partitions were confirmed last, as far as that is known.

        Raises:
            Busy: another process reads it now.
            Lost: what comes after a place is gone, and nothing says what to do then.
            ServiceError: it could not be opened.
        """

    def open(self, confirmed: Mapping[str, str], begin: Begin, others: Others = NO_OTHERS) -> None:
        """Open it where its partitions were confirmed last, oldest first; after Away also once more.

        Args:
            confirmed: of a shared source it is read anew each time, since other processes confirm, too.
            others: sources that the store knows and the configuration does not.

        Raises:
            Away: its server does not answer now.
            ServiceError: it cannot be opened.
        """

    def read(self, wait: float) -> Batch | None:
        """Return the records that have come; None where none come within *wait* seconds.

        Raises:
            EndOfSource: there are no more.
            ServiceError: it cannot be read.
        """

    def acknowledge(self, partition: str, confirm: str) -> None:
        """Learn that all up to there is delivered, and in the store. Raises ServiceError."""

    def progress(self) -> Progress | None:
        """Tell how far it has come, without asking anybody else for long; None where that is not known."""

    def lost(self, partition: str) -> None:
        """Learn that another process has taken a partition over, so that nothing more of it can be put down.

        Raises:
            ServiceError: one process is to read this source.
        """

    def close(self) -> None:
        """Close it, whether it was opened or not; what was not acknowledged comes again."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt to deliver.

    Attributes:
        result: `delivered`; `later` if another attempt may do better; `never` if none will; `gone` if the endpoint wants no more.
        code: one of a few words or a status that say why; it is a metric's and a dead letter's.
        reason: what went wrong. It holds no secret, no row, and nothing that the endpoint has said.
        after: seconds that the endpoint asks to be left alone.
        said: how its answer begins: for who looks at attempts alone, never for a log, a metric or a letter.
    """

    result: Literal["delivered", "later", "never", "gone"]
    code: str = ""
    reason: str = ""
    after: float | None = None
    said: bytes = field(default=b"", compare=False, repr=False)


class SinkGone(Exception):
    """Nobody takes what this sink would write: a pipe whose reader went away."""


class Sink(Protocol):
    """Where messages go: JSON texts that each end in a line's end. One thread uses it."""

    def check(self) -> None:
        """Find out whether it could be opened, and change nothing. Raises ServiceError."""

    def open(self) -> None:
        """Open it; after Away also once more. Raises as `Source.open`."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Take messages, in order. Raises ServiceError and SinkGone."""

    def flush(self) -> Sequence[tuple[int, Outcome]]:
        """Return once all that was written is held: it outlives this process and a loss of power. Raises as `write`.

        Returns:
            What it will never take, by the message's number since the last time: the others are held.
        """

    def close(self) -> None:
        """Close it, whether it was opened or not."""


class Endpoint(Protocol):
    """Where messages go from the spool (`streamer.service.spool`). One event loop sends; any thread may close it."""

    def check(self) -> None:
        """Find out whether it can be used at all, and send nothing. Raises ServiceError."""

    async def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        """Try to deliver messages together; one call has all of them held, or none."""

    def close(self) -> None:
        """Close what is open."""
