"""The interface of a database: tables, and atomic changes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, final

from streamer.errors import ServiceError

T = TypeVar("T")


@final
class Fenced(ServiceError):
    """This process no longer owns the data to be committed: another process took it over. The commit was refused whole.

    Attributes:
        partitions: source, partition and generation of each; empty if it is the delivery of the spool.
    """

    def __init__(self, reason: str, partitions: frozenset[tuple[str, str, int]] = frozenset()) -> None:
        super().__init__(reason)
        self.partitions = partitions


@final
class Moved(Exception):
    """Another process changed a row after this change was decided. The change was refused whole."""


@final
@dataclass(frozen=True, slots=True)
class Execute:
    """Runs statements within a change; `?` stands for a value.

    Attributes:
        many: runs one statement for each row of values.
    """

    one: Callable[..., Any]
    many: Callable[[str, Iterable[Sequence[object]]], Any]

    def __call__(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Run a statement; return a cursor with `fetchall()` and `rowcount`."""
        return self.one(statement, values)


@final
@dataclass(frozen=True, slots=True)
class Inspected:
    """The contents of a store that was inspected.

    Attributes:
        positions: the confirmed positions of each source's partitions.
        used: the process that uses it now, for a store that only one process can use.
    """

    positions: Mapping[str, Mapping[str, str]]
    used: str | None = None


class Reader(Protocol):
    """A reader of committed data. Any thread may use it; calls take turns. Each method raises ServiceError."""

    def rows(self, statement: str, *values: object, patient: bool = False) -> list[Any]:
        """Return all rows of a query.

        Args:
            patient: whether to wait until an unavailable database is back.
        """

    def some(self, statement: str, values: Sequence[object], most_bytes: int, *, patient: bool = False) -> list[Any]:
        """Return the first rows of a query; the last one may exceed the limit of bytes. The last column of a row is its body."""

    def close(self) -> None:
        """Close it."""


class Database(Reader, Protocol):
    """A database that can be changed. A lost connection is opened again."""

    @property
    def name(self) -> str:
        """Its name in errors."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes change it meanwhile."""

    def change(self, body: Callable[[Execute], T], *, patient: bool = False, tells: bool = False) -> T:
        """Make an atomic change, which is on the disk when this returns; return the result of *body*. Raises ServiceError.

        Args:
            body: runs the statements. It is called again if the database was unavailable or another process interfered, and the
                change was not committed.
            patient: whether to wait until an unavailable database is back.
            tells: whether to notify other processes at once.
        """

    def reader(self) -> Reader:
        """Return another connection, which only reads, and does not wait for changes."""

    def is_writable(self) -> bool:
        """Return whether the last change succeeded; if it failed, whether one would now."""

    def gone(self) -> str | None:
        """Return the text of the error if a part of it was deleted or replaced since it was opened; None if it is intact."""

    def disk_used(self) -> float | None:
        """Return the used share of the disk that it is on; None if it is not on a disk of this machine."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Have a function called when another process may have changed data: soon after its notification, and each second."""
