"""The embedded store: one SQLite database in a directory that one process uses.

```
data_dir/ (0700)      lock          held by the process that uses it, whose number it has
                      store.db      WAL, synchronous=FULL: a commit is on the disk when it returns
```

A commit holds the positions of some batches together with their dead letters, so neither is there without the other. A
write-ahead log that was cut at any byte is read up to its last whole commit: the store then is as it was before, and what came
after is read from the sources again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service import faults

#: "Strm": what tells our databases from others'.
APPLICATION: Final = 0x5374726D
#: So many bytes of a record that could not be delivered are kept; what is longer can be shown, and not replayed.
MOST_KEPT: Final = 1024 * 1024
_DATABASE: Final = "store.db"

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
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that could not be delivered.

    Attributes:
        id: its number in the store; 0 as long as it has none.
        part: index of its event, where the record had several; -1 for the whole.
        stage: where it failed: `decode`.
        code: one of a few words that say why.
        reason: what was wrong; it may quote the record.
        attempts: how often it was tried.
        at: when it failed last, in milliseconds since the epoch.
        size: how many bytes it had; *record* has fewer where that was too much to keep.
    """

    id: int = 0
    source: str
    partition: str
    position: int
    part: int = -1
    stage: Literal["decode"] = "decode"
    code: str
    reason: str
    attempts: int = 1
    at: int
    size: int
    record: bytes

    @property
    def is_whole(self) -> bool:
        """Whether all of the record is there, so that it can be tried again."""
        return len(self.record) == self.size


@final
@dataclass(frozen=True, slots=True)
class Confirmed:
    """What is to be put down of one batch; a *position* that is None forgets the partition."""

    source: str
    partition: str
    position: str | None


@final
class Store:
    """The store of one process. Any thread may use it; calls take turns.

    Args:
        directory: made if it is not there, for its owner alone.
        dead_letter_bytes: room for dead letters.

    Raises:
        ServiceError: another process uses it, it is no store, of a later version, damaged, or cannot be written.
    """

    def __init__(self, directory: Path, *, dead_letter_bytes: int = 1024**3) -> None:
        self.directory = directory
        self._most = dead_letter_bytes
        self._turn = Lock()
        self._is_failing = False
        with self._told():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(directory)
        try:
            with self._told():
                path = directory / _DATABASE
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
                try:
                    self._begin()
                except BaseException:
                    self._database.close()
                    raise
        except BaseException:
            os.close(self._lock)
            raise

    def _begin(self) -> None:
        execute = self._database.execute
        application, version = execute("PRAGMA application_id").fetchone()[0], execute("PRAGMA user_version").fetchone()[0]
        is_new = (application, version) == (0, 0) and not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_new and application != APPLICATION:
            raise ServiceError(f"{self.directory / _DATABASE}: no store of Streamer")
        if version > len(UPGRADES):
            reason = f"written by a later version of Streamer: schema {version}, and this one knows {len(UPGRADES)}"
            raise ServiceError(f"{self.directory / _DATABASE}: {reason}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        if (damage := execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"damaged: {damage}")
        for number, upgrade in enumerate(UPGRADES[version:], version + 1):
            marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number};"
            try:
                self._database.executescript(f"BEGIN IMMEDIATE; {upgrade} {marks} COMMIT;")
            except BaseException:
                if self._database.in_transaction:
                    execute("ROLLBACK")
                raise
        self._dead = execute(_ROOM).fetchone()[0]

    # Positions, and what could not be delivered

    def positions(self, source: str) -> dict[str, str]:
        """Return where each partition of a source was confirmed last, in the order in which they were begun."""
        rows = self.rows("SELECT partition, position FROM positions WHERE source = ? ORDER BY number", source)
        return dict(rows)

    def begin(self, source: str, partition: str, position: str) -> None:
        """Keep a partition before anything of it is read."""
        with self.transaction() as execute:
            execute("INSERT INTO positions (source, partition, position) VALUES (?, ?, ?)", (source, partition, position))
        faults.point("source.begin")

    def commit(self, confirmed: Iterable[Confirmed], dead: Sequence[DeadLetter] = (), dropped: Sequence[int] = ()) -> None:
        """Put positions down together with dead letters; a dead letter that is there already has failed once more.

        Args:
            dropped: numbers of dead letters that were delivered now.
        """
        size = sum(len(each.record) + len(each.reason) for each in dead)
        if self._dead + size > self._most and self._measured() + size > self._most:
            raise ServiceError(
                f"{self.directory}: the dead letters would take more than the {self._most:,} bytes of "
                "delivery.dead_letter_bytes; streamer dead-letters shows, replays and drops them"
            )
        with self.transaction() as execute:
            for letter in dead:
                execute(
                    "INSERT INTO dead_letters"
                    " (source, partition, position, part, stage, code, reason, attempts, at, size, record)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET attempts = attempts + 1,"
                    " at = excluded.at, code = excluded.code, reason = excluded.reason",
                    (
                        *(letter.source, letter.partition, letter.position, letter.part, letter.stage, letter.code),
                        *(letter.reason, letter.attempts, letter.at, letter.size, letter.record),
                    ),
                )
            if dead:
                faults.point("store.dead")
            for number in dropped:
                execute("DELETE FROM dead_letters WHERE id = ?", (number,))
            for source, partition, position in ((each.source, each.partition, each.position) for each in confirmed):
                if position is None:
                    execute("DELETE FROM positions WHERE source = ? AND partition = ?", (source, partition))
                else:
                    execute(
                        "INSERT INTO positions (source, partition, position) VALUES (?, ?, ?)"
                        " ON CONFLICT DO UPDATE SET position = excluded.position",
                        (source, partition, position),
                    )
        self._dead = self._measured() if dropped else self._dead + size
        faults.point("store.committed")

    def _measured(self) -> int:
        """Return how much room the dead letters take; what is added up meanwhile may be more, since some fail again."""
        return int(self.rows(_ROOM)[0][0])

    def dead_letters(self) -> int:
        """Count the dead letters."""
        return int(self.rows("SELECT count(*) FROM dead_letters")[0][0])

    def drop(self, numbers: Iterable[int] | None) -> int:
        """Drop dead letters by their numbers, or all of them; return how many there were."""
        with self.transaction() as execute:
            if numbers is None:
                count = execute("DELETE FROM dead_letters").rowcount
            else:
                count = sum(execute("DELETE FROM dead_letters WHERE id = ?", (number,)).rowcount for number in numbers)
        self._dead = self._measured()
        return int(count)

    def letters(self, after: int = 0, most: int = 1000) -> list[DeadLetter]:
        """Return dead letters in the order of their numbers, from the first after one."""
        return _letters(self.rows(_LETTERS, after, most))

    # What others build on

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now."""
        if self._is_failing:
            try:
                with self.transaction() as execute:
                    execute("UPDATE versions SET last = last")
            except ServiceError:
                return False
        return True

    def close(self) -> None:
        """Close it, and let another process have it."""
        with self._turn:
            self._database.close()
            os.close(self._lock)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Return all that a query finds. Raises ServiceError."""
        with self._turn, self._told():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Make a change that is on the disk when it is over, or not there at all. Raises ServiceError."""
        with self._turn, self._told():
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database.execute
                self._database.execute("COMMIT")
            except BaseException as error:
                self._is_failing = isinstance(error, sqlite3.Error | OSError)
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self._is_failing = False

    def reader(self) -> sqlite3.Connection:
        """Open another connection, which only reads, and waits for no change. Any thread may use it, one at a time."""
        with self._told():
            path = (self.directory / _DATABASE).absolute()
            return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False, isolation_level=None, timeout=5)

    @contextmanager
    def _told(self) -> Iterator[None]:
        with told(self.directory):
            yield


@contextmanager
def told(directory: Path) -> Iterator[None]:
    """Make one clear error of what went wrong with a store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ServiceError(f"{directory}: the store cannot be used: {reason}") from error


def look(directory: Path, after: int = 0, most: int = 1000, number: int | None = None) -> list[DeadLetter]:
    """Read dead letters beside the process that uses the store. Raises ServiceError.

    Args:
        number: only this one.
    """
    path = (directory / _DATABASE).absolute()
    if not path.exists():
        raise ServiceError(f"{directory}: no store")
    with told(directory):
        database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)
        try:
            if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise ServiceError(f"{path}: no store of Streamer")
            if number is not None:
                after, most = number - 1, 1
            found = _letters(database.execute(_LETTERS, (after, most)).fetchall())
            return [each for each in found if number in (None, each.id)]
        finally:
            database.close()


_ROOM: Final = "SELECT coalesce(sum(length(record) + length(reason)), 0) FROM dead_letters"
_LETTERS: Final = (
    "SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record FROM dead_letters"
    " WHERE id > ? ORDER BY id LIMIT ?"
)
_MEMBERS: Final = tuple(_LETTERS.removeprefix("SELECT ").partition(" FROM")[0].split(", "))


def _letters(rows: Iterable[Sequence[Any]]) -> list[DeadLetter]:
    return [DeadLetter(**dict(zip(_MEMBERS, row, strict=True))) for row in rows]


def dead_letter(
    source: str, partition: str, position: int, part: int, code: str, reason: str, record: bytes, size: int | None = None
) -> DeadLetter:
    """Make one of a record that failed now."""
    return DeadLetter(
        source=source,
        partition=partition,
        position=position,
        part=part,
        code=code,
        reason=reason[:2000],
        at=time.time_ns() // 10**6,
        size=len(record) if size is None else size,
        record=record[:MOST_KEPT],
    )


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
