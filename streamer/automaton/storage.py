"""Storages for the live patterns of a `Quamina`: patterns that were added and not deleted."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from streamer.locks import NO_FORK


@runtime_checkable
class LivePatterns(Protocol):
    """A set of pairs of a name and a pattern, which is JSON text. `Quamina` calls it under its lock."""

    def add(self, x: Any, pattern: str) -> None:
        """Add a pair; one that is there stays as it is."""
        ...

    def delete(self, x: Any) -> int:
        """Remove all pairs of *x* and return how many there were."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, str]]:
        """Iterate over all pairs in the order of adding."""
        ...


class MemoryPatterns:
    """Live patterns in memory; the default of `Quamina`."""

    def __init__(self) -> None:
        self._patterns: dict[Hashable, dict[str, None]] = {}

    def add(self, x: Hashable, pattern: str) -> None:
        """Add a pair; one that is there stays as it is."""
        self._patterns.setdefault(x, {})[pattern] = None

    def delete(self, x: Hashable) -> int:
        """Remove all pairs of *x* and return how many there were."""
        return len(self._patterns.pop(x, ()))

    def discard(self, x: Hashable, pattern: str) -> None:
        """Remove a pair, if it exists."""
        patterns = self._patterns.get(x, {})
        patterns.pop(pattern, None)
        if not patterns:
            self._patterns.pop(x, None)

    def __iter__(self) -> Iterator[tuple[Any, str]]:
        """Iterate over all pairs, those of one name together."""
        for x, patterns in self._patterns.copy().items():
            for pattern in patterns.copy():
                yield x, pattern


def encode_name(x: Hashable) -> str:
    """Return a name, a string or an int, as JSON text.

    Raises:
        TypeError: the name has another type.
    """
    if isinstance(x, bool) or not isinstance(x, str | int):
        raise TypeError(f"a name stored in SQLite is a str or an int, not {type(x).__name__}; or give encode= and decode=")
    return json.dumps(x)


class SqlitePatterns:
    """Live patterns in a table of an SQLite database. Each change is on disk before the call returns.

    Any thread may use it, and so may a forked child, which opens the file again; of a database in memory, a child gets a copy. A
    `Quamina` reads the table once, when it is made: processes that share a file do not see each other's changes.

    Args:
        path: the file; a missing file is created. `":memory:"` keeps the table in memory.
        encode: converts a name to text; equal names must have equal texts.
        decode: the inverse of *encode*.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        encode: Callable[[Any], str] = encode_name,
        decode: Callable[[str], Any] = json.loads,
    ) -> None:
        self._encode = encode
        self._decode = decode
        self._path = path
        self._process = os.getpid()
        with NO_FORK:
            self._connection = self._connect()
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS live_patterns"
                " (id INTEGER PRIMARY KEY, x TEXT NOT NULL, pattern TEXT NOT NULL, UNIQUE (x, pattern))"
            )

    def add(self, x: Any, pattern: str) -> None:
        """Add a pair; one that is there stays as it is."""
        self._execute("INSERT OR IGNORE INTO live_patterns (x, pattern) VALUES (?, ?)", self._encode(x), pattern)

    def delete(self, x: Any) -> int:
        """Remove all pairs of *x* and return how many there were."""
        return self._execute("DELETE FROM live_patterns WHERE x = ?", self._encode(x))[1]

    def __iter__(self) -> Iterator[tuple[Any, str]]:
        """Iterate over all pairs in the order of adding."""
        rows, _ = self._execute("SELECT x, pattern FROM live_patterns ORDER BY id")
        for x, pattern in rows:
            yield self._decode(x), pattern

    def close(self) -> None:
        """Close the file; a `Quamina` with this storage can still match, but no longer change."""
        with NO_FORK:
            self._open().close()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)

    def _open(self) -> sqlite3.Connection:
        if self._process != os.getpid() and not _is_in_memory(self._path):
            # A child must neither use nor close the connection of its parent: both processes own the file's locks through it.
            _of_parents.append(self._connection)
            self._connection, self._process = self._connect(), os.getpid()
        return self._connection

    def _execute(self, statement: str, *values: str) -> tuple[list[Any], int]:
        """Return the rows, and the number of changed rows. All calls of SQLite use one lock, because it has its own locks."""
        with NO_FORK:
            done = self._open().execute(statement, values)
            return done.fetchall(), done.rowcount


_of_parents: Final[list[sqlite3.Connection]] = []


def _is_in_memory(path: str | Path) -> bool:
    return str(path) in (":memory:", "")
