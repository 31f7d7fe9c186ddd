"""Where a `Quamina` keeps its live patterns: those added and not deleted."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class LivePatterns(Protocol):
    """A set of pairs of a name and a pattern, the pattern as JSON text. `Quamina` calls it under its lock."""

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
    """Live patterns in memory; what a `Quamina` uses by default."""

    def __init__(self) -> None:
        self._patterns: dict[Hashable, dict[str, None]] = {}

    def add(self, x: Hashable, pattern: str) -> None:
        """Add a pair; one that is there stays as it is."""
        self._patterns.setdefault(x, {})[pattern] = None

    def delete(self, x: Hashable) -> int:
        """Remove all pairs of *x* and return how many there were."""
        return len(self._patterns.pop(x, ()))

    def __iter__(self) -> Iterator[tuple[Any, str]]:
        """Iterate over all pairs, those of one name together."""
        for x, patterns in self._patterns.items():
            for pattern in patterns:
                yield x, pattern


def encode_name(x: Hashable) -> str:
    """Return a string or an int as JSON text.

    Raises:
        TypeError: for a name of another type.
    """
    if isinstance(x, bool) or not isinstance(x, str | int):
        raise TypeError(f"a name stored in SQLite is a str or an int, not {type(x).__name__}; or give encode= and decode=")
    return json.dumps(x)


class SqlitePatterns:
    """Live patterns in a table of an SQLite database. Each change is on disk before the call returns.

    Any thread may use it. A `Quamina` reads it once, when made: processes that share a file do not see each other's changes.

    Args:
        path: the file; it is made if it is not there. `":memory:"` keeps it in memory.
        encode: name to text; two names that are equal must have the same text.
        decode: its inverse.
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
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS live_patterns"
            " (id INTEGER PRIMARY KEY, x TEXT NOT NULL, pattern TEXT NOT NULL, UNIQUE (x, pattern))"
        )

    def add(self, x: Any, pattern: str) -> None:
        """Add a pair; one that is there stays as it is."""
        with self._lock:
            self._connection.execute("INSERT OR IGNORE INTO live_patterns (x, pattern) VALUES (?, ?)", (self._encode(x), pattern))

    def delete(self, x: Any) -> int:
        """Remove all pairs of *x* and return how many there were."""
        with self._lock:
            return self._connection.execute("DELETE FROM live_patterns WHERE x = ?", (self._encode(x),)).rowcount

    def __iter__(self) -> Iterator[tuple[Any, str]]:
        """Iterate over all pairs in the order of adding."""
        with self._lock:
            rows = self._connection.execute("SELECT x, pattern FROM live_patterns ORDER BY id").fetchall()
        for x, pattern in rows:
            yield self._decode(x), pattern

    def close(self) -> None:
        """Close the file; a `Quamina` on it can match on, but no longer change."""
        self._connection.close()
