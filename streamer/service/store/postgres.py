"""The shared database: tables in a schema of PostgreSQL, which several processes use at once.

A broken connection is opened again, and reads are repeated. Each change leaves its number in a row of its process. If a commit is
not answered, the row shows whether the change took place, and it is repeated only if it did not. The number of the transaction
would not show that: after a crash, a server may give it to another transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, final
from uuid import uuid4

import psycopg
from psycopg import errors
from psycopg.pq import PipelineStatus

from streamer.config.schema.service import SharedStore
from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.connectors.postgres.replication import connect, is_away, said
from streamer.service.connectors.protocols import Away, Lost
from streamer.service.store.database import Execute, Inspected, T
from streamer.service.store.positions import POSITIONS
from streamer.service.store.schema import POSTGRES

#: The key of the advisory lock for upgrades, so that only one process upgrades: "Strm".
_UPGRADING: Final = 0x5374726D
#: The channel that listeners for changes use.
_CHANNEL: Final = "streamer_store"
#: The interval between checks for changes without a notification, in seconds.
LOOK: Final = 1.0
#: The wait between two attempts to connect, in seconds: the first, and the longest.
_FIRST, _MOST = 0.1, 2.0
#: The number of attempts of a change that conflicts with another one.
_TRIES: Final = 5
#: The server rolls back a transaction that is idle for this many seconds, because its process stalled.
IDLE: Final = 5
#: The longest wait for a commit without an answer, in seconds, for a caller that does not wait for the server.
_UNDECIDED: Final = 2.0 * IDLE
#: The last change of each process. Its pages have free room, so that a row is updated in place.
_COMMITS: Final = """
    CREATE TABLE IF NOT EXISTS commits (owner TEXT PRIMARY KEY, number BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL)
    WITH (fillfactor = 50)
"""
#: Marks the end of a change that has written; a change that only read leaves no mark.
_MARK: Final = """
    INSERT INTO commits SELECT %s::text, %s::bigint, now() WHERE txid_current_if_assigned() IS NOT NULL
    ON CONFLICT (owner) DO UPDATE SET number = excluded.number, at = excluded.at RETURNING to_regclass('positions')::oid::bigint
"""
#: The number of a table, which is never reused: it distinguishes our tables from those of the same name from a backup.
_TABLE: Final = "SELECT to_regclass('positions')::oid::bigint"
#: The number of the last change. Writing the row waits for a commit that is still in progress; a `SELECT` of a new row would not.
_ASK: Final = """
    INSERT INTO commits VALUES (%s, 0, now()) ON CONFLICT (owner) DO UPDATE SET at = excluded.at RETURNING number
"""
#: Deletes rows of processes that ended without closing the store. Commits are never checked after that time.
_OLD: Final = "DELETE FROM commits WHERE at < now() - interval '30 days'"
#: The number of rows that a query fetches at once.
_AT_ONCE: Final = 64
_LOGGER: Final = logging.getLogger("streamer.service")
_Connection: TypeAlias = psycopg.Connection[Any]
_A = TypeVar("_A")


class _UndecidedError(Exception):
    """The server is still executing a commit without an answer, which may succeed yet."""


@final
@dataclass(slots=True)
class _Sent(Generic[T]):
    """A change whose commit was sent.

    Attributes:
        number: identifies the change.
        outcome: the result of the change.
        took_place: whether the server has confirmed it, after a check.
    """

    number: int
    outcome: T
    took_place: bool = False


@final
class Postgres:
    """See `Database`.

    Args:
        section: its place in the configuration.

    Raises:
        ServiceError: it cannot be reached, may not be used, or is of a later version.
    """

    is_shared: Final = True

    def __init__(self, section: SharedStore) -> None:
        assert section.dsn is not None
        self._section, self._dsn = section, section.dsn
        self.name = f"store (schema {section.namespace})"
        #: The name of this process in `commits`, and the number of the last change that it began.
        self._owner, self._number = uuid4().hex, 0
        #: A change whose commit is not answered. The next change begins after its result is clear, because it writes its own
        #: number.
        self._unanswered: _Sent[Any] | None = None
        self._turn = Lock()
        self._over = threading.Event()
        self._down_since: float | None = None
        #: The number of a table of the store when it was opened.
        self._table = 0
        self._following: threading.Thread | None = None
        self._connection: _Connection | None = None
        try:
            try:
                self._begin()
            except (errors.ConnectionTimeout, errors.IdleInTransactionSessionTimeout):
                # A process that stalled during this step exceeds the limit although the server is well.
                self._begin()
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                failure = self._failure(error)
                raise (Away(str(failure)) if is_away(error, self._dsn, replication=False) else failure) from error
            raise

    def _connected(self) -> _Connection:
        connection = connect(self._dsn, replication=False)
        # A commit is on the disk when it is answered.
        connection.execute("SET synchronous_commit = on")
        connection.execute(f'SET search_path = "{self._section.namespace}"')
        connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE}s'")
        return connection

    def _begin(self) -> None:
        """Connect, and create missing tables. Raises psycopg.Error, ServiceError."""
        connection = self._connection = self._connected()
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_UPGRADING,))
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._section.namespace}"')
            connection.execute("CREATE TABLE IF NOT EXISTS streamer (version BIGINT NOT NULL)")
            connection.execute(_COMMITS)
            connection.execute(_OLD)
            version = _version(connection, self.name)
            for upgrade in POSTGRES[version:]:
                connection.execute(upgrade.encode())
            if version < len(POSTGRES):
                connection.execute("DELETE FROM streamer")
                connection.execute("INSERT INTO streamer VALUES (%s)", (len(POSTGRES),))
            ((self._table,),) = connection.execute(_TABLE).fetchall()

    # Reading and changing

    def rows(self, statement: str, *values: object, patient: bool = False) -> list[Any]:
        """See `Reader`."""
        work = partial(_rows, statement=statement, values=values)
        return self._run(work, is_read=True, patient=patient)

    def some(self, statement: str, values: Sequence[object], most_bytes: int, *, patient: bool = False) -> list[Any]:
        """See `Reader`."""
        work = partial(_some, statement=statement, values=values, most_bytes=most_bytes)
        return self._run(work, is_read=True, patient=patient)

    def change(self, body: Callable[[Execute], T], *, patient: bool = False, tells: bool = False) -> T:
        """See `Database`."""

        sent: list[_Sent[T]] = []

        def changed(connection: _Connection) -> T:
            self._ask(connection)
            if sent:
                if sent[0].took_place:
                    return sent[0].outcome
                sent.clear()
            with connection.cursor() as cursor:

                def one(statement: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
                    return cursor.execute(_translated(statement), values)

                def many(statement: str, rows: Iterable[Sequence[object]]) -> None:
                    if batch := list(rows):
                        cursor.executemany(_translated(statement), batch)
                        # The end of a pipeline stops the server's timeout for idle transactions.
                        cursor.execute("SELECT 1")

                with connection.transaction():
                    result = body(Execute(one, many))
                    self._number += 1
                    notify = f", pg_notify('{_CHANNEL}', '')" if tells else ""
                    marked = cursor.execute(f"{_MARK}{notify}".encode(), (self._owner, self._number)).fetchall()
                    if marked and marked[0][0] != self._table:
                        raise Lost(self._gone(marked[0][0]))
                    sent.append(_Sent(self._number, result))
                    # A change that has written no rows can be repeated.
                    self._unanswered = sent[0] if marked else None
                self._unanswered = None
                return result

        return self._run(changed, sent=sent, patient=patient)

    def _ask(self, connection: _Connection) -> None:
        """Find out whether the change without an answer took place. Raises _UndecidedError."""
        sent = self._unanswered
        if sent is None:
            return
        try:
            # A rollback does not wait for a standby.
            with connection.transaction(force_rollback=True):
                connection.execute(f"SET LOCAL lock_timeout = '{int(1000 * _FIRST)}ms'")
                ((number,),) = connection.execute(_ASK, (self._owner,)).fetchall()
        except errors.LockNotAvailable:
            raise _UndecidedError from None
        sent.took_place, self._unanswered = bool(number == sent.number), None

    def _run(
        self, work: Callable[[_Connection], _A], *, is_read: bool = False, sent: Sequence[object] = (), patient: bool = False
    ) -> _A:
        """Run a function on the connection, which is opened again if it is lost.

        Args:
            is_read: whether to run it once more if an idle connection was lost.
            sent: if not empty, it is run again for a while, because it then finds out the result of a commit.
            patient: whether to retry until the server is back.
        """
        wait, tries, began = _FIRST, 0, time.monotonic()
        while True:
            try:
                with self._turn:
                    if self._over.is_set():
                        raise ServiceError(f"{self.name}: the store was closed")
                    is_old = self._connection is not None
                    if self._connection is None:
                        self._connection = self._connected()
                    try:
                        result = work(self._connection)
                    except errors.ReadOnlySqlTransaction:
                        # A standby that is not promoted yet, or a former primary; another address may be the primary now.
                        self._connection.close()
                        raise
                    finally:
                        if not _is_usable(self._connection):
                            self._connection.close()
                            self._connection = None
                self._is_back()
                return result
            except (errors.DeadlockDetected, errors.SerializationFailure, errors.IdleInTransactionSessionTimeout) as error:
                tries += 1
                if tries == _TRIES:
                    raise self._failure(error) from error
            except (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction) as error:
                is_lost = self._connection is None
                if is_lost and is_read and is_old:
                    is_read = False
                    continue
                if not is_lost or not (patient or (sent and time.monotonic() < began + _UNDECIDED)):
                    raise self._failure(error, "; whether the last change was made is not known" if sent else "") from error
                self._is_away(error)
                self._over.wait(wait)
                wait = min(wait * 2, _MOST)
            except psycopg.Error as error:
                raise self._failure(error) from error
            except _UndecidedError:
                if not patient and time.monotonic() > began + _UNDECIDED:
                    raise ServiceError(f"{self.name}: the server does not report whether the last change was made") from None
                self._over.wait(_FIRST)

    def _is_away(self, error: psycopg.Error) -> None:
        if self._down_since is None:
            self._down_since = time.monotonic()
            _LOGGER.warning("%s; retrying until it answers", self._failure(error))

    def _is_back(self) -> None:
        if self._down_since is not None:
            _LOGGER.info("%s: answers again, after %d s", self.name, time.monotonic() - self._down_since)
            self._down_since = None

    def _failure(self, error: psycopg.Error, more: str = "") -> ServiceError:
        return ServiceError(f"{self.name}: the store cannot be used: {said(error, self._dsn)}{more}")

    def reader(self) -> Postgres:
        """See `Database`."""
        return Postgres(self._section)

    def is_writable(self) -> bool:
        """See `Database`."""
        try:
            return not self._down_since and self.rows("SELECT pg_is_in_recovery()") == [(False,)]
        except ServiceError:
            return False

    def gone(self) -> str | None:
        """See `Database`. Returns None while the server is away."""
        try:
            ((table,),) = [(self._table,)] if self._down_since else self.rows(_TABLE)
        except ServiceError:
            return None
        return None if table == self._table else self._gone(table)

    def disk_used(self) -> None:
        """See `Database`: the disk is the server's."""

    def _gone(self, table: int | None) -> str:
        what = "were dropped" if table is None else "were replaced by others"
        return (
            f"{self.name}: the tables of the store {what} while this process uses them, so no more positions are confirmed. "
            "Restore them, and start the service again; without them it begins a new store"
        )

    # Following

    def follow(self, changed: Callable[[], None]) -> None:
        """See `Database`."""
        self._following = threading.Thread(target=self._follow, args=(changed,), name="streamer-store", daemon=True)
        self._following.start()

    def _follow(self, changed: Callable[[], None]) -> None:
        connection: _Connection | None = None
        while not self._over.is_set():
            try:
                if connection is None:
                    connection = self._connected()
                    connection.execute(f"LISTEN {_CHANNEL}")
                # Notifications that arrive together count as one.
                for _ in connection.notifies(timeout=LOOK, stop_after=1):
                    pass
            except (psycopg.Error, ServiceError) as error:
                _LOGGER.debug("%s: cannot listen for changes: %s", self.name, error)
                if connection is not None:
                    connection.close()
                connection = None
                self._over.wait(LOOK)
            if not self._over.is_set():
                changed()
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """See `Reader`."""
        self._over.set()
        with self._turn:
            if self._connection is not None:
                if self._number:
                    with suppress(psycopg.Error):
                        self._connection.execute("DELETE FROM commits WHERE owner = %s", (self._owner,))
                if self._following is not None:
                    # Wakes the follower at once.
                    with suppress(psycopg.Error):
                        self._connection.execute(f"NOTIFY {_CHANNEL}")
                self._connection.close()
        if self._following is not None and self._following is not threading.current_thread():
            self._following.join()


def inspected(section: SharedStore) -> Inspected:
    """Check whether a store could be opened, and return its contents, without changing it. Raises ServiceError."""
    assert section.dsn is not None
    name, schema = f"store (schema {section.namespace})", section.namespace
    try:
        with closing(connect(section.dsn, replication=False)) as connection:
            connection.execute("SET default_transaction_read_only = on")
            query = "SELECT pg_is_in_recovery(), to_regnamespace(%s), has_database_privilege(current_database(), 'CREATE')"
            ((is_standby, version, may_create),) = connection.execute(query, (f'"{schema}"',)).fetchall()
            if is_standby:
                raise ServiceError(f"{name}: the server is a standby, which takes no changes")
            if version is None:
                if not may_create:
                    raise ServiceError(f"{name}: it does not exist, and this user may not create it: GRANT CREATE ON DATABASE")
                return Inspected({})
            connection.execute(f'SET search_path = "{schema}"')
            query = "SELECT to_regclass('positions') IS NOT NULL, has_schema_privilege(%s, 'CREATE, USAGE')"
            ((is_made, may_make),) = connection.execute(query, (schema,)).fetchall()
            if not may_make:
                raise ServiceError(f"{name}: this user may not use it: GRANT USAGE, CREATE ON SCHEMA")
            if not is_made:
                return Inspected({})
            _version(connection, name)
            positions: dict[str, dict[str, str]] = {}
            for source, partition, position in connection.execute(POSITIONS):
                positions.setdefault(source, {})[partition] = position
            return Inspected(positions)
    except psycopg.Error as error:
        reason = f"{name}: the store cannot be used: {said(error, section.dsn)}"
        raise (Away if is_away(error, section.dsn, replication=False) else ServiceError)(reason) from error


def _version(connection: _Connection, name: str) -> int:
    """Return the version of a store's schema, 0 if there is none. Raises ServiceError if it is a later one."""
    rows = connection.execute("SELECT version FROM streamer").fetchall()
    version = rows[0][0] if rows else 0
    if version > len(POSTGRES):
        reason = f"written by a later version of Streamer: schema {version}, but this one supports {len(POSTGRES)}"
        raise ServiceError(f"{name}: {reason}")
    return int(version)


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _is_usable(connection: _Connection) -> bool:
    """Return whether a connection accepts statements. One that broke during a pipeline stays in it, and reports to be open."""
    return not (connection.closed or connection.info.pipeline_status != PipelineStatus.OFF)


def _rows(connection: _Connection, statement: str, values: Sequence[object]) -> list[Any]:
    return connection.execute(_translated(statement), values).fetchall()


def _some(connection: _Connection, statement: str, values: Sequence[object], most_bytes: int) -> list[Any]:
    some: list[Any] = []
    size = 0
    # A cursor of the server, so that unwanted rows are not sent. It ends with the transaction: psycopg's own cursor cannot be
    # closed on a connection that has just died.
    with connection.transaction():
        connection.execute(b"DECLARE found NO SCROLL CURSOR FOR " + _translated(statement), values)
        while rows := connection.execute(b"FETCH %d FROM found" % _AT_ONCE).fetchall():
            for row in rows:
                some.append(row)
                size += len(row[-1])
                if size >= most_bytes:
                    return some
    return some
