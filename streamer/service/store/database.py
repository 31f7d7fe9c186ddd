"""What a store stands on: tables, and changes of them that are whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, final

from streamer.errors import ServiceError

T = TypeVar("T")


@final
class Fenced(ServiceError):
    """What is to be put down is no longer this process's: another one has taken it over. Nothing was changed.

    Attributes:
        partitions: source, partition and generation of each; none where it is the delivery of the spool.
    """

    def __init__(self, reason: str, partitions: frozenset[tuple[str, str, int]] = frozenset()) -> None:
        super().__init__(reason)
        self.partitions = partitions


@final
class Moved(Exception):
    """What is to be changed is not as it was when that was decided: another process changed it. Nothing was changed."""


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
        """Run a statement; return what has `fetchall()` and `rowcount`."""
        return self.one(statement, values)


@final
@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in a store that was only looked at.

    Attributes:
        positions: where the partitions of each source were confirmed.
        used: who uses it now, of a store that one process uses at a time.
    """

    positions: Mapping[str, Mapping[str, str]]
    used: str | None = None


class Reader(Protocol):
    """Reads what is committed. Any thread may use it; calls take turns. All of them raise ServiceError."""

    def rows(self, statement: str, *values: object, patient: bool = False) -> list[Any]:
        """Return all that a query finds.

        Args:
            patient: whether to wait for a database that is away until it is back.
        """

    def some(self, statement: str, values: Sequence[object], most_bytes: int, *, patient: bool = False) -> list[Any]:
        """Return what a query finds first; the last row of these may pass the bound in bytes. A row ends in its body."""

    def close(self) -> None:
        """Close it."""


class Database(Reader, Protocol):
    """Reads and changes. A connection that was lost is made again."""

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes change it meanwhile."""

    def change(self, body: Callable[[Execute], T], *, patient: bool = False, tells: bool = False) -> T:
        """Make a change that is on the disk when it is over, or not there at all; return what *body* does. Raises ServiceError.

        Args:
            body: runs the statements; it is called again where the database was away, or another process was in its way, and
                nothing of it was committed.
            patient: whether to wait for a database that is away until it is back.
            tells: whether other processes are told at once.
        """

    def reader(self) -> Reader:
        """Return another connection, which only reads, and waits for no change."""

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now."""

    def gone(self) -> str | None:
        """Return what of it was deleted or replaced since it was opened, as an error says it; None where all is there."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Have a function called when another process may have changed something: soon after it told, and each second."""
