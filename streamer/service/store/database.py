"""What a database is to the store: a small seam, and a driver on either side of it.

```
store.py, subscriptions.py, gateways.py      statements in SQL that both understand, with `?` where values go
database.py                                  what they ask of a database
sqlite.py   a file that one process uses     postgres.py   a server that several processes share
```

A change is a function that is given what runs statements: where a server goes away amid it, it is run again as a whole, since
nothing of it is there. So it has no effect but on the database, or one that is the same when it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from streamer.config.schema.service import StoreSection

#: Where a store is: a directory of ours, or a server.
Place: TypeAlias = Path | StoreSection
T = TypeVar("T")


class Cursor(Protocol):
    """What came of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchall(self) -> list[Any]:
        """Return the rows that it found."""


class Execute(Protocol):
    """Runs statements, within a change."""

    def __call__(self, statement: str, values: Sequence[object] = (), /) -> Cursor:
        """Run one."""

    def many(self, statement: str, rows: Iterable[Sequence[object]], /) -> None:
        """Run one for each of some rows of values."""

    def tell(self, what: str, /) -> None:
        """Have a word told to all processes that share the database, once the change is there."""


class Reader(Protocol):
    """Reads, and waits for no change."""

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Return all that a query finds. Raises ServiceError."""

    def close(self) -> None:
        """Close it; the database stays open."""


class Database(Reader, Protocol):
    """A database that is open. Any thread may use it; all raise ServiceError.

    Attributes:
        where: what errors call it; no secret is in it.
        is_shared: whether other processes use it, too.
    """

    where: str
    is_shared: bool

    def write(self, work: Callable[[Execute], T]) -> T:
        """Make a change that is on the disk when it is over, or not there at all; return what *work* returns."""

    def reader(self) -> Reader:
        """Return what reads beside changes."""

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now."""

    def hear(self, heard: Callable[[str], None]) -> None:
        """Have a function called with each word that any process tells; with an empty one where some may have been missed."""


def open_database(place: Place) -> Database:
    """Open a database, made or upgraded where it has to be. Raises ServiceError."""
    if isinstance(place, Path):
        from streamer.service.store.sqlite import Sqlite

        return Sqlite(place)
    from streamer.service.store.postgres import Postgres

    return Postgres(place)


def open_beside(place: Place) -> Reader:
    """Open one to read it, beside the processes that use it. Raises ServiceError."""
    if isinstance(place, Path):
        from streamer.service.store.sqlite import beside

        return beside(place)
    from streamer.service.store.postgres import Postgres

    return Postgres(place, is_read_only=True)
