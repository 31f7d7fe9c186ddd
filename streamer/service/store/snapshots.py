"""What the store has for snapshots of an engine: their marks, and the versions of its subscriptions (`tenants/snapshot.py`)."""

from __future__ import annotations

from typing import Any, Final, final

from streamer.service.store.database import Execute
from streamer.service.store.rows import milliseconds
from streamer.service.store.store import Store

#: The most marks: one for each process that shares the store, and a backup may have older ones.
_MARKS: Final = 1000
#: The most rows of one query.
PAGE: Final = 2000
#: The subscriptions that an engine has: not paused, not expired, not of the origin that its files replace.
_ACTIVE: Final = "paused = 0 AND (expires_at IS NULL OR expires_at > ?) AND origin != ?"
_MARK: Final = "INSERT INTO snapshots SELECT ?, last FROM versions"
_FORGET: Final = "DELETE FROM snapshots WHERE mark NOT IN (SELECT mark FROM snapshots ORDER BY version DESC LIMIT ?)"
_TEXTS: Final = (
    f"SELECT tenant, id, version, body FROM subscriptions WHERE (tenant, id) > (?, ?) AND {_ACTIVE} AND version <= ?"
    " ORDER BY tenant, id LIMIT ?"
)
_CHANGED: Final = f"SELECT tenant, id, version, body FROM subscriptions WHERE version > ? AND version <= ? AND {_ACTIVE}"


@final
class Marks:
    """The marks of a store, and the subscriptions that an engine has, except those of the origin *but*."""

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._reader = store.database.reader()

    def close(self) -> None:
        """Close the connection for reading; the store stays open."""
        self._reader.close()

    def put(self, mark: str) -> int:
        """Store a mark; return the last version at that moment."""

        def put(execute: Execute) -> int:
            execute(_MARK, (mark,))
            execute(_FORGET, (_MARKS,))
            ((version,),) = execute("SELECT version FROM snapshots WHERE mark = ?", (mark,)).fetchall()
            return int(version)

        return self._database.change(put)

    def version(self, mark: str) -> int | None:
        """Return the last version when a mark was stored; None if this store does not have it."""
        rows = self._database.rows("SELECT version FROM snapshots WHERE mark = ?", mark)
        return int(rows[0][0]) if rows else None

    def texts(self, after: tuple[str, str], upto: int, but: str) -> list[tuple[str, str, int, bytes]]:
        """Return tenant, id, version and text of some subscriptions, by tenant and id, with versions up to one."""
        return self._reader.rows(_TEXTS, *after, milliseconds(), but, upto, PAGE)

    def versions(self, upto: int, but: str, *, tenants: bool) -> list[tuple[Any, ...]]:
        """Return the version of each, up to one, and with *tenants* its tenant."""
        columns = "version, tenant" if tenants else "version"
        statement = f"SELECT {columns} FROM subscriptions WHERE {_ACTIVE} AND version <= ?"
        return self._database.rows(statement, milliseconds(), but, upto)

    def changed(self, after: int, upto: int, but: str) -> list[tuple[str, str, int, bytes]]:
        """Return tenant, id, version and text of those with versions after one, and up to another."""
        return self._database.rows(_CHANGED, after, upto, milliseconds(), but)
