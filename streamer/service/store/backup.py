"""Back up an embedded store to one file, and restore it.

```
data_dir/store.db + store.db-wal  ──── copy of one moment, checked ────►  FILE (0600), complete or not there

FILE  ──── copy, checked, upgraded, renewed ────►  data_dir/store.db
                                                    the store before it stays: data_dir/store.db.before-TIME
```

A backup is the database itself, without a write-ahead log next to it. It is made while a process uses the store: its reader sees
the state of one moment, and does not block commits. Meanwhile the write-ahead log grows, because no checkpoint passes a reader.

A restored store has a past that others have seen more of: clients have ETags and places in streams from after the backup. So a
restored store never uses a version, a place, or the number of a dead letter again that the lost one may have used, see `_renew`.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

from streamer.config.schema.service import DATABASE, LOCK, SharedStore
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.connectors.protocols import Busy, Lost, failed
from streamer.service.store.rows import milliseconds
from streamer.service.store.sqlite import APPLICATION, kind_of, lock, reporting, upgrade, version_of

#: Pages of one step. Ctrl-C is noticed between two steps.
_PAGES: Final = 1_000
_EXPECTED: Final = "expected a file that `streamer store backup` of this version, or of an earlier one, wrote"
#: More writes than a store accepts between a backup and its loss.
_SKIPPED: Final = 1_000_000_000
#: The time in PostgreSQL, in milliseconds.
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
#: As `_renew`, for PostgreSQL.
_RENEWED: Final = (
    f"UPDATE versions SET last = greatest(last + {_SKIPPED}, {_NOW} * 1000)",
    "UPDATE lanes SET mark = substr(md5(random()::text), 1, 8)",
    f"UPDATE subscriptions SET expires_at = greatest(expires_at, {_NOW} + lease) WHERE expires_at IS NOT NULL",
    f"SELECT setval(name, greatest({_NOW}, nextval(name))) FROM pg_get_serial_sequence($$dead_letters$$, $$id$$) AS name",
)
#: What is counted of a store, and its table. A store of an earlier schema may lack some of them.
_COUNTED: Final = {
    "subscriptions": "subscriptions",
    "gateways": "gateways",
    "positions": "positions",
    "messages": "spool",
    "dead_letters": "dead_letters",
}


@final
@dataclass(frozen=True, slots=True)
class Copied:
    """The contents of a backup.

    Attributes:
        bytes: the size of the file.
        schema: the version of its tables.
        messages: the messages of the spool, and those of tenants' streams.
    """

    bytes: int
    schema: int
    subscriptions: int
    gateways: int
    positions: int
    messages: int
    dead_letters: int


def backup(directory: Path, file: Path) -> Copied:
    """Write a backup of a store to a new file, also while a process uses the store.

    Raises:
        ServiceError: there is no store, it is damaged (Lost), or the file exists, cannot be written, or is damaged itself.
    """
    database = directory / DATABASE
    if not database.exists():
        raise ServiceError(f"{directory}: no store")
    if file.name == LOCK or file.name.startswith(f"{DATABASE}-"):
        raise ServiceError(f"{file}: a file of a store may have this name; choose another one")
    _check_new(file)
    with _written(file, directory), _draft(file) as draft:
        with reporting(directory):
            source = _opened(database, "mode=ro")
        with closing(source):
            _copy(source, draft)
            with _blamed(source, file), closing(_opened(draft, "mode=ro&immutable=1")) as copy:
                copied = _checked(draft, copy)
        _sync(draft)
        _put(draft, file)
    return copied


def restore(file: Path, directory: Path) -> tuple[Copied, Path | None]:
    """Put a backup in the place of a store, which no process may use meanwhile.

    Returns:
        The contents, and the new name of the store before it; None if there was none.

    Raises:
        ServiceError: a process uses the store (Busy), the file is not a backup that this version reads, or the directory cannot
            be written. The store stays as it is.
    """
    with closing(_opened_backup(file)) as source, reporting(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _as_owner(directory):
            locked = lock(directory)
            try:
                with _draft(directory / DATABASE) as draft:
                    with _refused(file):
                        _copy(source, draft)
                        copied = _made_current(draft)
                    _sync(draft)
                    return copied, _swap(draft, directory)
            finally:
                os.close(locked)


def dump_command(section: SharedStore, file: Path) -> str:
    """Return the command that backs up a shared store, without the password.

    Raises:
        ServiceError: its `dsn` cannot be read, or its schema is `public`, which may have other tables.
    """
    server = _server(section)
    return f"pg_dump --format=custom --schema={section.namespace} --dbname={server} --file={shlex.quote(str(file))}"


def load_command(section: SharedStore, file: Path) -> str:
    """Return the command that restores a shared store, without the password. Raises as `dump_command`.

    A process that starts meanwhile finds the store before, or the restored one, and never one that is not renewed yet. The store
    before stays in a schema of another name. A namespace may be a word of SQL, so each one is quoted.
    """
    server, backup, draft = _server(section), shlex.quote(str(file)), shlex.quote(f"{file}.XXXXXXXX")
    load = "psql --no-psqlrc --quiet --output=/dev/null --set=ON_ERROR_STOP=1 --single-transaction"
    move = f'ALTER SCHEMA "{section.namespace}" RENAME TO "{_backup_schema(section.namespace)}"'
    move = f"DO $$ BEGIN {move}; EXCEPTION WHEN invalid_schema_name THEN NULL; END $$"
    renew = f'SET search_path = "{section.namespace}"; {"; ".join(_RENEWED)}'
    return (
        f"""(sql=$(mktemp {draft}) && trap 'rm "$sql"' EXIT && pg_restore --file="$sql" {backup} && """
        f"""{load} --dbname={server} --command={shlex.quote(move)} --file="$sql" --command={shlex.quote(renew)})"""
    )


def _backup_schema(namespace: str) -> str:
    """Return a new name for the schema of the old tables, which PostgreSQL does not cut."""
    return f"{namespace[:40]}_before_{time.strftime('%Y%m%dt%H%M%S', time.gmtime())}"


def _server(section: SharedStore) -> str:
    from streamer.service.store.opened import driver

    assert section.dsn is not None
    if section.namespace == "public":
        raise ServiceError(
            "store.namespace: the schema public may have tables of others; back up and restore the whole database, or keep the "
            "store in a schema of its own"
        )
    with driver():
        from psycopg.conninfo import make_conninfo

        from streamer.service.connectors.postgres.replication import parameters
    hidden = ("password", "sslpassword", "oauth_client_secret")
    shown = {name: value for name, value in parameters(section.dsn).items() if name not in hidden}
    return shlex.quote(make_conninfo("", **shown))


# Copies


def _opened(path: Path, how: str) -> sqlite3.Connection:
    """Open a store at its state of this moment. Raises ServiceError if this version cannot read it, sqlite3.Error."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=5)
    try:
        # The first read begins the transaction, in which the state stays the same.
        connection.execute("BEGIN")
        if not version_of(path, connection.execute):
            raise ServiceError(f"{path}: no store of Streamer, but an empty file")
    except BaseException:
        connection.close()
        raise
    return connection


def _copy(source: sqlite3.Connection, draft: Path) -> None:
    with closing(sqlite3.connect(draft, isolation_level=None)) as target:
        # The file is synced once, when it is complete.
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target, pages=_PAGES, progress=lambda *_: faults.point("store.copied"))
        # The copy of a store wants a write-ahead log next to it, and a backup is one file.
        target.execute("PRAGMA journal_mode = DELETE")


def _checked(path: Path, connection: sqlite3.Connection) -> Copied:
    """Check every page of a copy, and return its contents. Raises sqlite3.DatabaseError if it is damaged."""
    execute = connection.execute
    if (damage := _damage(execute)) is not None:
        raise sqlite3.DatabaseError(f"damaged: {damage}")
    tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    counts = {
        name: int(execute(f"SELECT count(*) FROM {table}").fetchone()[0]) if table in tables else 0
        for name, table in _COUNTED.items()
    }
    return Copied(path.stat().st_size, version_of(path, execute), **counts)


def _damage(execute: Callable[[str], sqlite3.Cursor]) -> str | None:
    """Check every page of a database; return what is wrong. Raises sqlite3.DatabaseError, too, for damage."""
    report = str(execute("PRAGMA integrity_check(1)").fetchone()[0])
    return None if report == "ok" else report


def _made_current(draft: Path) -> Copied:
    """Check a copy, bring its tables to the schema of this version, and renew it. Raises sqlite3.Error."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        _checked(draft, connection)
        upgrade(connection, version_of(draft, connection.execute))
        _renew(connection.execute)
        copied = _checked(draft, connection)
        # As a store has it. Otherwise the first start would change it, and a reader would block that start.
        connection.execute("PRAGMA journal_mode = WAL")
        return copied


def _renew(execute: Callable[[str], object]) -> None:
    """Distinguish a restored store from the lost one, of which clients may have seen more.

    For example, a client that has the ETag "7" from after the backup would overwrite another client's later version 7. And a
    client that continues a stream after message 40 would miss messages if the restored store gave that number to another one.

    A backup may be restored more than once. So versions continue at the time, in microseconds: more than any store has used, and
    still exact in JSON, whose numbers have 53 bits.

    Numbers of dead letters continue at the time in milliseconds, so that a note about a lost letter never means another one. And
    leases begin again, because the lost store may have renewed them.
    """
    now = milliseconds()
    execute(f"UPDATE versions SET last = max(last + {_SKIPPED}, {now * 1000})")
    execute("UPDATE lanes SET mark = lower(hex(randomblob(4)))")
    letters = "name = 'dead_letters'"
    execute(
        f"INSERT INTO sqlite_sequence SELECT 'dead_letters', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE {letters})"
    )
    execute(f"UPDATE sqlite_sequence SET seq = max(seq, {now}) WHERE {letters}")
    leased = "expires_at IS NOT NULL AND lease IS NOT NULL"
    execute(f"UPDATE subscriptions SET expires_at = max(expires_at, {now} + lease) WHERE {leased}")


# Files


def _opened_backup(file: Path) -> sqlite3.Connection:
    """Open a backup. Raises ServiceError if the file is none."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise ServiceError(f"{file}: not a file; {_EXPECTED}")
        with open(file, "rb"):
            pass
    except OSError as error:
        raise failed(file, error) from error
    for end, has in (("-wal", "its last commits are in"), ("-journal", "what an unfinished commit replaced is in")):
        log = file.with_name(file.name + end)
        if log.exists() and log.stat().st_size:
            raise ServiceError(f"{file}: a store that is in use, or was copied in use: {has} {log}; {_EXPECTED}")
    with _refused(file):
        return _opened(file, "mode=ro&immutable=1")


@contextmanager
def _refused(file: Path) -> Iterator[None]:
    """Report what is wrong with a backup, also damage, as an error of the file, and not of a store that lost data."""
    try:
        yield
    except ServiceError as error:
        raise ServiceError(f"{error}; {_EXPECTED}") from error
    except sqlite3.DatabaseError as error:
        if kind_of(error) is not Lost:
            raise
        raise ServiceError(f"{file}: damaged, or not a backup: {error}; {_EXPECTED}") from error


@contextmanager
def _blamed(source: sqlite3.Connection, file: Path) -> Iterator[None]:
    """Report damage of a copy as an error of the copy if the store has none."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if kind_of(error) is Lost and _damage(source.execute) is None:
            raise ServiceError(f"{file}: the copy is damaged, and the store is not; try another disk") from error
        raise


@contextmanager
def _written(file: Path, directory: Path) -> Iterator[None]:
    """Raise one clear error for a backup that cannot be made: damage is that of the store, anything else that of the file."""
    try:
        yield
    except sqlite3.Error as error:
        kind = kind_of(error)
        what = f"{directory}: the store cannot be backed up" if kind is Lost else f"{file}: the backup cannot be written"
        raise kind(f"{what}: {error}") from error
    except OSError as error:
        raise failed(f"{file}: the backup cannot be written", error) from error


def _check_new(file: Path) -> None:
    if os.path.lexists(file):
        raise _there(file)


def _there(file: Path) -> ServiceError:
    return ServiceError(f"{file}: the file exists already; choose a new name")


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yield a new file that only its owner can read, next to *target*. It is removed at the end, with SQLite's files of it."""
    with TemporaryDirectory(prefix=".streamer-", dir=target.parent) as folder:
        draft = Path(folder) / target.name
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield draft


@contextmanager
def _as_owner(directory: Path) -> Iterator[None]:
    """Work as the owner of a directory if root restores the store of another user, who could not read root's files.

    And that user could have made links in the directory to files that only root may change.
    """
    owner, group, groups = os.stat(directory), os.getegid(), os.getgroups()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    try:
        os.setgroups([])
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _swap(draft: Path, directory: Path) -> Path | None:
    """Put a new database in the place of the old one, which gets another name. Raises OSError, ServiceError.

    At each moment, `store.db` is one of the two, and the old one is complete under one of its names.
    """
    path = directory / DATABASE
    _empty_log(path)
    before = _backup_name(directory)
    # A log or a journal that stays belongs to a damaged store. The new database must not get it.
    ends = [end for end in ("", "-wal", "-shm", "-journal") if path.with_name(DATABASE + end).exists()]
    for end in ends:
        os.link(path.with_name(DATABASE + end), before.with_name(before.name + end))
    for end in filter(None, ends):
        path.with_name(DATABASE + end).unlink()
    _replace(draft, path)
    return before if "" in ends else None


def _empty_log(path: Path) -> None:
    """Move the last commits of a store from its log to its file, and end a half one, also for a store of a later schema.

    A file that is no store, or cannot be opened, stays as it is. Raises Busy.
    """
    if not _is_ours(path):
        return
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as old:
        try:
            (is_busy, _, _) = old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            if kind_of(error) is not Lost:
                raise
            return
    if is_busy:
        raise Busy(f"{path}: another process reads this store; try again when it has ended")


def _is_ours(path: Path) -> bool:
    """Return whether a file is a database of Streamer, of any version, and readable."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as opened:
            return bool(opened.execute("PRAGMA application_id").fetchone()[0] == APPLICATION)
    except sqlite3.Error as error:
        # A half commit is in the way of a reader, but not of the bytes of the file.
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_READONLY_ROLLBACK:
            return False
    with open(path, "rb") as file:
        return file.read(72)[68:] == APPLICATION.to_bytes(4)


def _backup_name(directory: Path) -> Path:
    """Return a new name for the old database."""
    name = f"{DATABASE}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (directory / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(each for each in names if not os.path.lexists(each))


def _put(draft: Path, target: Path) -> None:
    """Give a draft its name, which no file may have: not even one that another process made since the last check."""
    try:
        os.link(draft, target)
    except FileExistsError:
        raise _there(target) from None
    except OSError:
        # A file system without links, as on a memory stick.
        _check_new(target)
        os.replace(draft, target)
    _sync_name(target)


def _replace(draft: Path, target: Path) -> None:
    os.replace(draft, target)
    _sync_name(target)


def _sync_name(path: Path) -> None:
    """Let the name of a file, too, survive a power loss; not all systems allow that."""
    with suppress(OSError):
        _sync(path.parent)


def _sync(path: Path) -> None:
    """Sync a file or a directory to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
