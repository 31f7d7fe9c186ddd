"""Open a store: for the process that uses it, or next to that process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from streamer.config.schema.service import SharedStore
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service.store import sqlite
from streamer.service.store.database import Database, Inspected, Reader
from streamer.service.store.letters import letters_of
from streamer.service.store.rows import DeadLetter
from streamer.service.store.sqlite import Beside, Sqlite


def opened(place: Path | SharedStore) -> Database:
    """Open the database of a store. Raises ServiceError."""
    if isinstance(place, Path):
        return Sqlite(place)
    with driver():
        from streamer.service.store.postgres import Postgres
    return Postgres(place)


@contextmanager
def driver() -> Iterator[None]:
    """Report which package to install if the driver is missing. Raises ServiceError."""
    try:
        with needed("a store on PostgreSQL needs psycopg", "postgres"):
            yield
    except ImportError as error:
        raise ServiceError(str(error)) from error


def inspected(place: Path | SharedStore) -> Inspected:
    """Check whether a store could be opened, and return its contents, without changing it. Raises ServiceError."""
    if isinstance(place, Path):
        return sqlite.inspected(place)
    with driver():
        from streamer.service.store import postgres
    return postgres.inspected(place)


@contextmanager
def reading(place: Path | SharedStore) -> Iterator[Reader]:
    """Read a store while other processes use it. Raises ServiceError."""
    reader: Reader = Beside(place) if isinstance(place, Path) else opened(place)
    with closing(reader):
        yield reader


def look(
    place: Path | SharedStore, after: int = 0, most: int = 1000, number: int | None = None, *, records: bool = True
) -> list[DeadLetter]:
    """Read dead letters while other processes use the store. Raises ServiceError.

    Args:
        number: the only letter to read; None for all.
        records: whether to read their records, too.
    """
    if number is not None:
        after, most = number - 1, 1
    with reading(place) as reader:
        return [each for each in letters_of(reader, after, most, records=records) if number in (None, each.id)]
