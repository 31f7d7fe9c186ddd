"""A store on PostgreSQL, which several processes share.

All is in a schema of its own. A connection is lent for a call: so a commit waits for no other one but where both change a row.
Where the server goes away a call waits for it for `PATIENCE` seconds, and is run again. Of a commit that was not answered the
server itself is asked whether it took place: each change knows its transaction's number.

A process that is stopped amid a change would keep its rows from all others. So the server ends a transaction in which nothing
happens for `_IDLE` seconds; it then never took place.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, final

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrDumper, TextLoader

from streamer.config.schema.service import StoreSection
from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service import faults
from streamer.service.sources.replication import connect, said
from streamer.service.store.database import Cursor, Execute, Reader, T

#: A server that went away is waited for so long, in seconds; then that is an error.
PATIENCE: Final = 60.0
#: Connections of a process at once, but for the one that hears.
_CONNECTIONS: Final = 8
#: How long to wait after the first failure in a row, and at most, in seconds; half of it is left to chance.
_FIRST, _MOST = 0.05, 1.0
#: After so long a server ends a transaction in which nothing happens, and gives up waiting for a row, in seconds.
_IDLE: Final = 5
_LOCK: Final = 30
#: Two transactions were in each other's way; the server is about to end, or begins; it ended what was idle; it has no room.
_AGAIN: Final = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "25P03", "25P04", "53300"})
_CHANNEL: Final = "streamer_{}"
#: How often one who hears looks whether all is to end, in seconds.
_HEAR: Final = 1.0
#: PostgreSQL takes no U+0000 in texts. So it is written as two characters, of which the first is none that a text has: twice.
_MARK: Final = "\U0010ffff"
_ESCAPES: Final = {"\0": f"{_MARK}0", _MARK: f"{_MARK}1"}
_LOGGER: Final = logging.getLogger("streamer.service")

#: What each version of the schema adds to the one before. A store of an earlier version is upgraded when it is opened.
#: Texts are compared byte by byte, as SQLite does. What comes and goes all the time is swept soon.
UPGRADES: Final[list[str]] = [
    """
    CREATE TABLE subscriptions (
        tenant TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, origin TEXT NOT NULL, body BYTEA NOT NULL,
        version BIGINT NOT NULL, created BIGINT NOT NULL, updated BIGINT NOT NULL, paused INTEGER NOT NULL,
        unindexed INTEGER NOT NULL, lease BIGINT, expires_at BIGINT,
        PRIMARY KEY (tenant, id)
    );
    CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE versions (last BIGINT NOT NULL);
    INSERT INTO versions VALUES (0);
    CREATE TABLE gateways (
        tenant TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, settings TEXT NOT NULL, secrets TEXT NOT NULL,
        version BIGINT NOT NULL, created BIGINT NOT NULL, updated BIGINT NOT NULL,
        PRIMARY KEY (tenant, id)
    );
    CREATE TABLE positions (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL,
        position TEXT NOT NULL, generation BIGINT NOT NULL DEFAULT 0,
        UNIQUE (source, partition)
    ) WITH (fillfactor = 50);
    CREATE TABLE dead_letters (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL,
        position TEXT NOT NULL, part BIGINT NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
        attempts BIGINT NOT NULL, at BIGINT NOT NULL, size BIGINT NOT NULL, record BYTEA NOT NULL, sink TEXT NOT NULL,
        message TEXT NOT NULL, matches BIGINT NOT NULL, key BIGINT, spooled BIGINT,
        UNIQUE (source, partition, position, part, sink, message)
    );
    CREATE TABLE lanes (
        number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, gone BIGINT, target TEXT, last BIGINT NOT NULL,
        mark TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '', generation BIGINT NOT NULL DEFAULT 0,
        until BIGINT NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE TABLE spool (
        number BIGINT PRIMARY KEY, key BIGINT, message TEXT NOT NULL, matches BIGINT NOT NULL, attempts BIGINT NOT NULL,
        due BIGINT NOT NULL, at BIGINT NOT NULL, source TEXT NOT NULL, partition TEXT NOT NULL, position TEXT NOT NULL,
        part BIGINT NOT NULL, body BYTEA NOT NULL
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
    CREATE INDEX spool_keys ON spool (key, number) WHERE key IS NOT NULL;
    """,
]


@final
class Postgres:
    """The database of a schema. See `Database`.

    Args:
        is_read_only: whether to look at what is there, and to make and upgrade nothing.

    Attributes:
        patience: how long a server that went away is waited for, in seconds.

    Raises:
        ServiceError: no server answers, it is no store, or of a later version.
    """

    is_shared = True

    def __init__(self, section: StoreSection, *, is_read_only: bool = False) -> None:
        assert section.dsn is not None
        self._section, self._dsn = section, section.dsn
        self.patience = PATIENCE
        self.where = "store.dsn"
        self._idle: list[psycopg.Connection[Any]] = []
        self._turns = threading.Semaphore(_CONNECTIONS)
        self._lock = Lock()
        self._closing = threading.Event()
        self._down_since: float | None = None
        self._is_failing = False
        with self._told():
            connection = self._connect()
        try:
            with self._told():
                info = connection.info
                self.where = f"PostgreSQL {info.host}:{info.port}, database {info.dbname}, schema {section.schema_name}"
                self._begin(connection, is_read_only=is_read_only)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _begin(self, connection: psycopg.Connection[Any], *, is_read_only: bool) -> None:
        name, execute = self._section.schema_name, connection.execute
        known = len(UPGRADES)
        found = execute("SELECT to_regclass(%s) IS NOT NULL", (f"{name}.streamer_schema",)).fetchall()
        if is_read_only:
            version = self._version(connection) if found == [(True,)] else 0
            if not version:
                raise ServiceError(f"{self.where}: no store")
            if version < known:
                reason = f"written by an earlier version of Streamer: schema {version}; it is upgraded when the service starts"
                raise ServiceError(f"{self.where}: {reason}")
            return
        with connection.transaction():
            # One process at a time makes or upgrades it.
            execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"streamer {name}",))
            execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"'.encode())
            execute("CREATE TABLE IF NOT EXISTS streamer_schema (version INTEGER NOT NULL)")
            version = self._version(connection)
            for upgrade in UPGRADES[version:]:
                execute(upgrade.encode())
            if version < known:
                execute("DELETE FROM streamer_schema")
                execute("INSERT INTO streamer_schema VALUES (%s)", (known,))

    def _version(self, connection: psycopg.Connection[Any]) -> int:
        """Return the version that is there; 0 for none. Raises ServiceError."""
        rows = connection.execute("SELECT version FROM streamer_schema").fetchall()
        version, known = rows[0][0] if rows else 0, len(UPGRADES)
        if version > known:
            reason = f"written by a later version of Streamer: schema {version}, and this one knows {known}"
            raise ServiceError(f"{self.where}: {reason}")
        return int(version)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """See `Database`."""
        return self._patiently(lambda connection: connection.execute(_translated(statement), values).fetchall())

    def write(self, work: Callable[[Execute], T]) -> T:
        """See `Database`."""
        unanswered: list[tuple[int, T]] = []

        def change(connection: psycopg.Connection[Any]) -> T:
            while unanswered:
                number, result = unanswered[-1]
                status = self._status(connection, number)
                if status == "committed":
                    return result
                if status != "in progress":
                    unanswered.clear()
                    break
                # The server does not know yet that nobody is there any more.
                if self._closing.wait(_FIRST):
                    raise ServiceError(f"{self.where}: the store was closed")
            cursor = connection.execute(b"BEGIN; SELECT txid_current()")
            cursor.nextset()
            ((number,),) = cursor.fetchall()
            try:
                result = work(_Execute(connection, self._channel))
                faults.point("store.committing")
            except BaseException:
                if not connection.broken:
                    connection.execute("ROLLBACK")
                raise
            unanswered.append((number, result))
            connection.execute("COMMIT")
            faults.point("store.answered")
            return result

        try:
            result = self._patiently(change)
        except BaseException as error:
            self._is_failing = isinstance(error, ServiceError) and isinstance(error.__cause__, psycopg.Error)
            raise
        self._is_failing = False
        return result

    def _status(self, connection: psycopg.Connection[Any], number: int) -> str | None:
        """Return what became of a transaction; None where it is so long ago that the server does not know."""
        ((status,),) = connection.execute("SELECT txid_status(%s::bigint)", (number,)).fetchall()
        return str(status) if status is not None else None

    def reader(self) -> Reader:
        """See `Database`. It has connections enough: what reads here waits for no change."""
        return _Reader(self)

    def is_writable(self) -> bool:
        """See `Database`."""
        if self._down_since is not None:
            return False
        if self._is_failing:
            try:
                self.write(lambda execute: execute("UPDATE versions SET last = last"))
            except ServiceError:
                return False
        return True

    def hear(self, heard: Callable[[str], None]) -> None:
        """See `Database`."""
        threading.Thread(target=self._hear, args=(heard,), name="streamer-store", daemon=True).start()

    def _hear(self, heard: Callable[[str], None]) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(f'LISTEN "{self._channel}"'.encode())
                    failures = 0
                    heard("")
                    while not self._closing.is_set():
                        for notice in connection.notifies(timeout=_HEAR):
                            heard(notice.payload)
            except (psycopg.Error, ServiceError) as error:
                failures += 1
                _LOGGER.debug("%s: nothing is heard of other processes: %s", self.where, self._said(error))
                self._closing.wait(_delay(failures))

    def close(self) -> None:
        """See `Database`."""
        self._closing.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # Connections

    @property
    def _channel(self) -> str:
        return _CHANNEL.format(self._section.schema_name)

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            made = connect(self._dsn, replication=False)
        except ServiceError as error:
            raise ServiceError(f"store.{error}") from None
        settings = {
            "search_path": f'"{self._section.schema_name}"',
            "idle_in_transaction_session_timeout": f"{_IDLE}s",
            "lock_timeout": f"{_LOCK}s",
        }
        for name, value in settings.items():
            made.execute("SELECT set_config(%s, %s, false)", (name, value))
        # A server may answer before a commit is on its disk: not here.
        made.execute("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'")
        made.adapters.register_dumper(str, _Text)
        made.adapters.register_loader("text", _TextLoader)
        made.adapters.register_loader("numeric", _Whole)
        return made

    @contextmanager
    def _lent(self) -> Iterator[psycopg.Connection[Any]]:
        with self._turns:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            connection = connection or self._connect()
            try:
                yield connection
            finally:
                with self._lock:
                    is_kept = not (connection.broken or connection.closed or self._closing.is_set())
                    if is_kept:
                        self._idle.append(connection)
                if not is_kept:
                    connection.close()

    def _patiently(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do something with a connection, again where the server goes away. Raises ServiceError."""
        began, failures = time.monotonic(), 0
        with self._told():
            while True:
                if self._closing.is_set():
                    raise ServiceError(f"{self.where}: the store was closed")
                try:
                    with self._lent() as connection:
                        result = work(connection)
                    if self._down_since is not None:
                        _LOGGER.info("%s: the store answers again, after %d s", self.where, time.monotonic() - self._down_since)
                        self._down_since = None
                    return result
                except psycopg.Error as error:
                    is_away = error.sqlstate is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
                    if not (is_away or error.sqlstate in _AGAIN) or time.monotonic() - began > self.patience:
                        raise
                    if is_away or (error.sqlstate or "").startswith("57P"):
                        self._note_down(error)
                    failures += 1
                    self._closing.wait(_delay(failures))

    def _note_down(self, error: psycopg.Error) -> None:
        with self._lock:
            # Others of that server are no better.
            idle, self._idle = self._idle, []
            is_new, self._down_since = self._down_since is None, self._down_since or time.monotonic()
        for connection in idle:
            connection.close()
        if is_new:
            _LOGGER.warning("%s: %s; tried again for %d s", self.where, self._said(error), self.patience)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise ServiceError(f"{self.where}: the store cannot be used: {self._said(error)}") from error

    def _said(self, error: Exception) -> str:
        return said(error, self._dsn) if isinstance(error, psycopg.Error) else str(error)


@final
class _Execute:
    """See `Execute`."""

    def __init__(self, connection: psycopg.Connection[Any], channel: str) -> None:
        self._connection, self._channel = connection, channel

    def __call__(self, statement: str, values: Sequence[object] = (), /) -> Cursor:
        return self._connection.execute(_translated(statement), values)

    def many(self, statement: str, rows: Iterable[Sequence[object]], /) -> None:
        if not (rows := list(rows)):
            return
        with self._connection.cursor() as cursor:
            cursor.executemany(_translated(statement), rows)
        # What ends a pipeline turns the server's clock for idle transactions off; another statement turns it on again.
        self._connection.execute(b"SELECT 1")

    def tell(self, what: str, /) -> None:
        self._connection.execute("SELECT pg_notify(%s, %s)", (self._channel, what))


@final
class _Reader:
    """See `Reader`."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def rows(self, statement: str, *values: object) -> list[Any]:
        return self._database.rows(statement, *values)

    def close(self) -> None:
        pass


class _Text(StrDumper):
    """Texts with what PostgreSQL does not take in them."""

    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or _MARK in obj:
            obj = obj.replace(_MARK, _ESCAPES[_MARK]).replace("\0", _ESCAPES["\0"])
        return super().dump(obj)


class _TextLoader(TextLoader):
    """Texts as they were written."""

    def load(self, data: Buffer) -> bytes | str:
        text = super().load(data)
        if isinstance(text, str) and _MARK in text:
            text = text.replace(_ESCAPES["\0"], "\0").replace(_ESCAPES[_MARK], _MARK)
        return text


class _Whole(Loader):
    """Sums, which are numbers without an end to the server."""

    def load(self, data: Buffer) -> int:
        return int(bytes(data))


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    """Return a statement as the driver wants it: the one place where the two differ."""
    return statement.replace("?", "%s").encode()


def _delay(failures: int) -> float:
    return min(_FIRST * 2.0 ** min(failures, 10), _MOST) * random.uniform(0.5, 1.0)
