"""The embedded database: one file of SQLite in a directory that one process uses.

```
data_dir/ (0700)      lock          locked by the process that uses it; contains its number
                      store.db      WAL, synchronous=FULL: a commit is on the disk when it returns
```

A write-ahead log that was cut at any byte is read up to its last whole commit: the store is then in that state, and later records
are read from the sources again.

A file that is deleted or replaced stays open, and accepts commits that are lost. So each change checks before its commit that the
files are those that were opened.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, final

from streamer.config.schema.service import DATABASE, LOCK
from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.connectors.protocols import Busy, Lost, Passing, failed
from streamer.service.store.database import Execute, Inspected, T
from streamer.service.store.positions import POSITIONS
from streamer.service.store.schema import UPGRADES

#: "Strm": distinguishes our databases from others.
APPLICATION: Final = 0x5374726D
#: The files that are open while the store is. Without its write-ahead log the database lacks the last commits; without the lock
#: another process could use it, too.
_FILES: Final = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LOCK)
_LOGGER: Final = logging.getLogger("streamer.service")
#: The bytes that a failed store must accept to count as writable again: more than most changes need.
_TRIED: Final = 256 * 1024


@final
class Sqlite:
    """See `Database`.

    Args:
        directory: is created if it does not exist, accessible to its owner only.

    Raises:
        ServiceError: another process uses it, or it is not a store, of a later version, damaged, or not writable.
    """

    is_shared: Final = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = str(directory)
        self._turn = Lock()
        self._is_failing = False
        with reporting(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            was_used = (directory / LOCK).exists()
            self._lock = lock(directory)
        try:
            with reporting(directory):
                path = directory / DATABASE
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
                try:
                    if self._begin() and was_used:
                        _LOGGER.warning("%s: the previous store is gone or empty: a new one begins", path)
                except BaseException:
                    self._connection.close()
                    raise
        except BaseException:
            os.close(self._lock)
            raise
        self._execute = Execute(self._connection.execute, self._connection.executemany)
        self._files = {path: identity for path in map(directory.joinpath, _FILES) if (identity := _identity(path)) is not None}

    def _begin(self) -> bool:
        """Create or upgrade the tables; return whether the database was empty."""
        execute = self._connection.execute
        version = _checked(self._directory / DATABASE, execute)
        is_new = not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        upgrade(self._connection, version)
        return is_new

    def rows(self, statement: str, *values: object, patient: bool = False) -> list[Any]:
        """See `Reader`."""
        with self._turn, reporting(self._directory):
            return self._connection.execute(statement, values).fetchall()

    def some(self, statement: str, values: Sequence[object], most_bytes: int, *, patient: bool = False) -> list[Any]:
        """See `Reader`."""
        with self._turn, reporting(self._directory):
            return _some(self._connection, statement, values, most_bytes)

    def change(self, body: Callable[[Execute], T], *, patient: bool = False, tells: bool = False) -> T:
        """See `Database`. It is always available, and has no other process to notify."""
        with self._turn, reporting(self._directory):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                result = body(self._execute)
                if (gone := self.gone()) is not None:
                    raise Lost(gone)
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._is_failing = isinstance(error, sqlite3.Error | OSError)
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._is_failing = False
            return result

    def reader(self) -> Beside:
        """See `Database`."""
        return Beside(self._directory)

    def is_writable(self) -> bool:
        """See `Database`."""

        def write(execute: Execute) -> None:
            # A full disk still accepts a page or two in the existing write-ahead log.
            execute("CREATE TABLE IF NOT EXISTS tried (zeros)")
            execute("INSERT INTO tried VALUES (zeroblob(?))", (_TRIED,))

        if self._is_failing:
            try:
                self.change(write)
                self.change(lambda execute: execute("DROP TABLE tried"))
            except ServiceError:
                return False
        return True

    def gone(self) -> str | None:
        """See `Database`."""
        for path, identity in self._files.items():
            if (current := _identity(path)) != identity:
                what = "was deleted" if current is None else "was replaced by another file"
                return (
                    f"{path}: the file of the store {what} while this process uses it, so no more positions are confirmed. Put "
                    "that file back, or run `streamer store restore BACKUP`, then start the service; never copy a backup over "
                    f"{DATABASE}. Without a store the service begins a new one"
                )
        return None

    def disk_used(self) -> float | None:
        """See `Database`."""
        try:
            status = os.statvfs(self._directory)
        except OSError:
            return None
        used = status.f_blocks - status.f_bfree
        return used / total if (total := used + status.f_bavail) else None

    def follow(self, changed: Callable[[], None]) -> None:
        """See `Database`. Other processes cannot change it."""

    def close(self) -> None:
        """Close it, so that another process can use it."""
        with self._turn:
            self._connection.close()
            os.close(self._lock)


@final
class Beside:
    """See `Reader`: reads next to a process that writes. Raises ServiceError."""

    def __init__(self, directory: Path) -> None:
        self._directory, path = directory, directory / DATABASE
        if not path.exists():
            raise ServiceError(f"{directory}: no store")
        self._turn = Lock()
        with reporting(directory):
            name = f"{path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None, timeout=5)
            try:
                self._check(path)
            except BaseException:
                self._connection.close()
                raise

    def _check(self, path: Path) -> None:
        execute = self._connection.execute
        if execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise ServiceError(f"{path}: no store of Streamer")
        if (version := execute("PRAGMA user_version").fetchone()[0]) < len(UPGRADES):
            reason = f"written by an earlier version of Streamer: schema {version}; it is upgraded when the service starts"
            raise ServiceError(f"{path}: {reason}")

    def rows(self, statement: str, *values: object, patient: bool = False) -> list[Any]:
        """See `Reader`."""
        with self._turn, reporting(self._directory):
            return self._connection.execute(statement, values).fetchall()

    def some(self, statement: str, values: Sequence[object], most_bytes: int, *, patient: bool = False) -> list[Any]:
        """See `Reader`."""
        with self._turn, reporting(self._directory):
            return _some(self._connection, statement, values, most_bytes)

    def close(self) -> None:
        """See `Reader`."""
        with self._turn:
            self._connection.close()


def _some(connection: sqlite3.Connection, statement: str, values: Sequence[object], most_bytes: int) -> list[Any]:
    some: list[Any] = []
    size = 0
    rows = connection.execute(statement, values)
    for row in rows:
        some.append(row)
        size += len(row[-1])
        if size >= most_bytes:
            break
    rows.close()
    return some


@contextmanager
def reporting(directory: Path) -> Iterator[None]:
    """Raise one clear error for a failure of a store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        what = f"{directory}: the store cannot be used"
        if isinstance(error, OSError):
            raise failed(what, error) from error
        raise kind_of(error)(f"{what}: {error}") from error


def inspected(directory: Path) -> Inspected:
    """Check whether a store could be opened, and return its contents, without changing it. Raises as `Sqlite`, except Busy."""
    with reporting(directory):
        if not directory.exists():
            above = next(each for each in directory.absolute().parents if each.exists())
            if directory.is_symlink() or not above.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            _check_writable(above, os.W_OK | os.X_OK)
            return Inspected({})
        if not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        _check_writable(directory, os.R_OK | os.W_OK | os.X_OK)
        used = _used(directory)
        if not (path := directory / DATABASE).exists():
            return Inspected({}, used)
        _check_writable(path, os.R_OK | os.W_OK)
        # Without a write-ahead log no process has it open, and SQLite need not create the files for sharing it.
        how = "mode=ro" if path.with_name(f"{DATABASE}-wal").exists() else "mode=ro&immutable=1"
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=5)
        ) as connection:
            if not _checked(path, connection.execute):
                return Inspected({}, used)
            positions: dict[str, dict[str, str]] = {}
            for source, partition, position in connection.execute(POSITIONS):
                positions.setdefault(source, {})[partition] = position
            return Inspected(positions, used)


def _check_writable(path: Path, how: int) -> None:
    if not os.access(path, how):
        raise PermissionError(errno.EACCES, f"{path}: {os.strerror(errno.EACCES)}")
    if not os.statvfs(path).f_bavail:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _used(directory: Path) -> str | None:
    """Return which process uses a store; None if it is free."""
    try:
        file = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # A shared lock for a moment: only a process that starts at the same time could notice.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"process {_holder(file)} uses this store now"
    finally:
        os.close(file)
    return None


def _holder(file: int) -> str:
    return os.pread(file, 20, 0).decode("ascii", "replace").strip() or "(unknown)"


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Create the tables of all versions after one. Raises sqlite3.Error."""
    for number, statements in enumerate(UPGRADES[version:], version + 1):
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number};"
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {statements} {marks} COMMIT;")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _checked(path: Path, execute: Callable[[str], sqlite3.Cursor]) -> int:
    """Return the version of a store's schema, 0 for an empty file. Raises ServiceError, and sqlite3.Error for damage."""
    version = version_of(path, execute)
    if (damage := execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(f"damaged: {damage}")
    return version


def version_of(path: Path, execute: Callable[[str], sqlite3.Cursor]) -> int:
    """Return the version of a store's schema, 0 for an empty file. Raises ServiceError if this version cannot read it."""
    application, version = execute("PRAGMA application_id").fetchone()[0], execute("PRAGMA user_version").fetchone()[0]
    is_new = (application, version) == (0, 0) and not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not is_new and application != APPLICATION:
        raise ServiceError(f"{path}: no store of Streamer")
    if version > len(UPGRADES):
        reason = f"written by a later version of Streamer: schema {version}, but this one supports {len(UPGRADES)}"
        raise ServiceError(f"{path}: {reason}")
    return int(version)


def kind_of(error: sqlite3.Error) -> type[ServiceError]:
    """Return our class of error for one of SQLite, by the first byte of its code."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Raised by a check here: it found damage.
        return Lost if isinstance(error, sqlite3.DatabaseError) else ServiceError
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Lost
    may_pass = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM)
    return Passing if code & 0xFF in may_pass else ServiceError


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which differs from another one at its path; None if there is no file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def lock(directory: Path) -> int:
    """Return a file that is locked until it is closed, with this process's number in it. Raises ServiceError."""
    file = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(file)
        os.close(file)
        raise Busy(f"{directory}: process {holder} uses this store; one process uses it at a time") from None
    except BaseException:
        os.close(file)
        raise
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file
