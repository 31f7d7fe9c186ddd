"""The embedded store: one SQLite database in a directory that one process uses.

```
data_dir/ (0700)      lock          held by the process that uses it, whose number it has
                      store.db      WAL, synchronous=FULL: a commit is on the disk when it returns
```

A write-ahead log that was cut at any byte is read up to its last whole commit: the store then is as it was before, and what came
after is read from the sources again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.store.database import Cursor, Execute, Reader, T

#: "Strm": what tells our databases from others'.
APPLICATION: Final = 0x5374726D
_DATABASE: Final = "store.db"
#: Bytes that a store which failed must take to be writable again: more than most changes need.
_TRIED: Final = 256 * 1024

#: What each version of the schema adds to the one before. A store of an earlier version is upgraded when it is opened.
UPGRADES: Final[list[str]] = [
    """
    CREATE TABLE subscriptions (
        tenant TEXT NOT NULL, id TEXT NOT NULL, origin TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    CREATE TABLE positions (
        number INTEGER PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL, position TEXT NOT NULL,
        UNIQUE (source, partition)
    );
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
        at INTEGER NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
        UNIQUE (source, partition, position, part)
    );
    """,
    # What the API keeps of a subscription. A version is given once, so that no tag of one that was deleted comes again.
    """
    ALTER TABLE subscriptions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN lease INTEGER;
    ALTER TABLE subscriptions ADD COLUMN expires_at INTEGER;
    CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE versions (last INTEGER NOT NULL);
    INSERT INTO versions VALUES (0);
    """,
    # `spool.number` is the number of its lane, and in its lowest 44 bits the order in it; so a lane is a range of one tree.
    # `spooled` of a dead letter is the message that waits for it, where its key does.
    """
    CREATE TABLE letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
        at INTEGER NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
        sink TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '', matches INTEGER NOT NULL DEFAULT 0,
        key INTEGER, spooled INTEGER,
        UNIQUE (source, partition, position, part, sink, message)
    );
    INSERT INTO letters (id, source, partition, position, part, stage, code, reason, attempts, at, size, record)
        SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record FROM dead_letters;
    DROP TABLE dead_letters;
    ALTER TABLE letters RENAME TO dead_letters;
    CREATE TABLE lanes (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, gone INTEGER, target TEXT
    );
    CREATE TABLE spool (
        number INTEGER PRIMARY KEY, key INTEGER, message TEXT NOT NULL, matches INTEGER NOT NULL, attempts INTEGER NOT NULL,
        due INTEGER NOT NULL, at INTEGER NOT NULL, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX spool_keys ON spool (key, number) WHERE key IS NOT NULL;
    """,
    # Of a lane, `last` is the number of a message that was trimmed, and `mark` tells it from others of its name or number.
    """
    CREATE TABLE gateways (
        tenant TEXT NOT NULL, id TEXT NOT NULL, settings TEXT NOT NULL, secrets TEXT NOT NULL, version INTEGER NOT NULL,
        created INTEGER NOT NULL, updated INTEGER NOT NULL,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    ALTER TABLE lanes ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE lanes ADD COLUMN mark TEXT NOT NULL DEFAULT '';
    UPDATE lanes SET mark = lower(hex(randomblob(4)));
    """,
    # Of a lane, `last` is the number that was given last from here on. Where only one process is, a generation tells nothing.
    """
    ALTER TABLE positions ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE lanes ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    ALTER TABLE lanes ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE lanes ADD COLUMN until INTEGER NOT NULL DEFAULT 0;
    UPDATE lanes SET last = max(last, number << 44, coalesce(
        (SELECT max(spool.number) FROM spool
            WHERE spool.number > lanes.number << 44 AND spool.number < (lanes.number + 1) << 44), 0
    ));
    """,
]


@final
class Sqlite:
    """The database of one process. Calls take turns. See `Database`.

    Args:
        directory: made if it is not there, for its owner alone.

    Raises:
        ServiceError: another process uses it, it is no store, of a later version, damaged, or cannot be written.
    """

    is_shared = False

    def __init__(self, directory: Path) -> None:
        self.where, self._directory = str(directory), directory
        self._turn = Lock()
        self._is_failing = False
        with _told(self.where):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(directory)
        try:
            with _told(self.where):
                path = directory / _DATABASE
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
                try:
                    self._begin()
                except BaseException:
                    self.connection.close()
                    raise
        except BaseException:
            os.close(self._lock)
            raise

    def _begin(self) -> None:
        execute = self.connection.execute
        application, version = execute("PRAGMA application_id").fetchone()[0], execute("PRAGMA user_version").fetchone()[0]
        is_new = (application, version) == (0, 0) and not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_new and application != APPLICATION:
            raise ServiceError(f"{self._directory / _DATABASE}: no store of Streamer")
        if version > len(UPGRADES):
            reason = f"written by a later version of Streamer: schema {version}, and this one knows {len(UPGRADES)}"
            raise ServiceError(f"{self._directory / _DATABASE}: {reason}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        if (damage := execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"damaged: {damage}")
        for number, upgrade in enumerate(UPGRADES[version:], version + 1):
            marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number};"
            try:
                self.connection.executescript(f"BEGIN IMMEDIATE; {upgrade} {marks} COMMIT;")
            except BaseException:
                if self.connection.in_transaction:
                    execute("ROLLBACK")
                raise

    def rows(self, statement: str, *values: object) -> list[Any]:
        """See `Database`."""
        with self._turn, _told(self.where):
            return self.connection.execute(statement, values).fetchall()

    def write(self, work: Callable[[Execute], T]) -> T:
        """See `Database`."""
        with self._turn, _told(self.where):
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                result = work(_Execute(self.connection))
                self.connection.execute("COMMIT")
            except BaseException as error:
                self._is_failing = isinstance(error, sqlite3.Error | OSError)
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            self._is_failing = False
        return result

    def reader(self) -> Reader:
        """See `Database`."""
        with _told(self.where):
            return _Reader(self._directory)

    def is_writable(self) -> bool:
        """See `Database`."""

        def fill(execute: Execute) -> None:
            # A full disk still takes a page or two, in what the write-ahead log has already.
            execute("CREATE TABLE IF NOT EXISTS tried (zeros)")
            execute("INSERT INTO tried VALUES (zeroblob(?))", (_TRIED,))

        def empty(execute: Execute) -> None:
            execute("DROP TABLE tried")

        if self._is_failing:
            try:
                self.write(fill)
                self.write(empty)
            except ServiceError:
                return False
        return True

    def hear(self, heard: Callable[[str], None]) -> None:
        """See `Database`: nobody else is there who could tell anything."""

    def close(self) -> None:
        """Close it, and let another process have it."""
        with self._turn:
            self.connection.close()
            os.close(self._lock)


@final
class _Execute:
    """See `Execute`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __call__(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        return self._connection.execute(statement, values)

    def many(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        self._connection.executemany(statement, rows)

    def tell(self, what: str, /) -> None:
        pass


@final
class _Reader:
    """A connection of its own, which only reads. Any thread may use it."""

    def __init__(self, directory: Path) -> None:
        self._where, self._turn = str(directory), Lock()
        name = f"{(directory / _DATABASE).absolute().as_uri()}?mode=ro"
        self.connection = sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None, timeout=5)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """See `Reader`."""
        with self._turn, _told(self._where):
            try:
                return self.connection.execute(statement, values).fetchall()
            except sqlite3.ProgrammingError as error:
                raise OSError(f"the store was closed: {error}") from None

    def close(self) -> None:
        """See `Reader`."""
        with self._turn:
            self.connection.close()


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Make one clear error of what went wrong with a store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ServiceError(f"{where}: the store cannot be used: {reason}") from error


def beside(directory: Path) -> Reader:
    """Open a store to read it beside the process that uses it. Raises ServiceError."""
    path = directory / _DATABASE
    if not path.exists():
        raise ServiceError(f"{directory}: no store")
    with _told(str(directory)):
        reader = _Reader(directory)
    try:
        if reader.rows("PRAGMA application_id") != [(APPLICATION,)]:
            raise ServiceError(f"{path}: no store of Streamer")
        ((version,),) = reader.rows("PRAGMA user_version")
        if version < len(UPGRADES):
            reason = f"written by an earlier version of Streamer: schema {version}; it is upgraded when the service starts"
            raise ServiceError(f"{path}: {reason}")
    except BaseException:
        reader.close()
        raise
    return reader


def _lock(directory: Path) -> int:
    """Return a file that is locked until it is closed, with this process's number in it. Raises ServiceError."""
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise ServiceError(
            f"{directory}: process {holder or '(unknown)'} uses this store; one process uses it at a time"
        ) from None
    except BaseException:
        os.close(file)
        raise
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file
