"""The table of tenants' own gateways: what each says, and the secrets that it signs with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final, final

from streamer.service.store.database import Execute, Moved
from streamer.service.store.rows import Lane
from streamer.service.store.store import Store


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGateway:
    """A gateway in the store. Times are in milliseconds since the epoch.

    Attributes:
        settings: JSON.
        secrets: as they were given; nothing shows them.
        version: another one after each change, of any gateway or subscription that ever was.
    """

    tenant: str
    id: str
    settings: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: int = 0
    created: int
    updated: int


_COLUMNS: Final = "tenant, id, settings, secrets, version, created, updated"
_PUT: Final = (
    f"INSERT INTO gateways ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, id) DO UPDATE SET"
    " settings = excluded.settings, secrets = excluded.secrets, version = excluded.version, created = excluded.created,"
    " updated = excluded.updated"
)


@final
class GatewayTable:
    """Gateways of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[StoredGateway]:
        """Return those of all tenants."""
        return [
            StoredGateway(
                tenant=tenant,
                id=id_,
                settings=settings,
                secrets=tuple(json.loads(secrets)),
                version=version,
                created=created,
                updated=updated,
            )
            for tenant, id_, settings, secrets, version, created, updated in self._store.database.rows(
                f"SELECT {_COLUMNS} FROM gateways ORDER BY tenant, id"
            )
        ]

    def mark(self) -> tuple[int, int]:
        """Return what is another after each change of any of them."""
        ((count, version),) = self._store.database.rows("SELECT count(*), coalesce(max(version), 0) FROM gateways")
        return count, version

    def write(self, row: StoredGateway, before: StoredGateway | None, most: int) -> StoredGateway:
        """Put one in the place of the one before; return it with its version.

        Args:
            most: so many a tenant may have.

        Raises:
            Moved: the one before is not there any more, or other processes wrote so many.
        """

        def write(execute: Execute) -> int:
            ((version,),) = execute("UPDATE versions SET last = last + 1 RETURNING last").fetchall()
            _check(execute, row, before)
            if before is None and self._store.database.is_shared:
                ((count,),) = execute("SELECT count(*) FROM gateways WHERE tenant = ?", (row.tenant,)).fetchall()
                if count >= most:
                    raise Moved
            execute(_PUT, (row.tenant, row.id, row.settings, json.dumps(row.secrets), version, row.created, row.updated))
            return int(version)

        return replace(row, version=self._store.database.change(write, tells=True))

    def delete(self, row: StoredGateway, sink: str) -> tuple[int, int, int]:
        """Take one out with all that its sink holds, in one commit; return the messages, their bytes and their matches.

        Raises:
            Moved: it is not there any more.
        """
        self._store.lane(sink)

        def delete(execute: Execute) -> tuple[int, int, int]:
            # Whoever else writes waits from here on.
            execute("UPDATE versions SET last = last + 1")
            _check(execute, row, row)
            execute("DELETE FROM gateways WHERE tenant = ? AND id = ?", (row.tenant, row.id))
            # The number of its lane may be given again at once, and what was sent of it must settle nothing there.
            self._store.unseat(execute)
            return self._store.forget(sink, execute)

        try:
            return self._store.database.change(delete, tells=True)
        except BaseException:
            # Where that failed the sink is there as before, and is known again.
            self._store.lane(sink)
            raise


def _check(execute: Execute, row: StoredGateway, before: StoredGateway | None) -> None:
    rows = execute("SELECT version FROM gateways WHERE tenant = ? AND id = ?", (row.tenant, row.id)).fetchall()
    if rows != ([] if before is None else [(before.version,)]):
        raise Moved


_PAGE: Final = "SELECT number, body FROM spool WHERE number > ? AND number <= ? ORDER BY number"


@final
class Pages:
    """Reads messages of lanes on a connection of its own, so that no commit waits for those who read."""

    def __init__(self, store: Store) -> None:
        self._reader = store.database.reader()

    def read(self, lane: Lane, after: int, last: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """Return messages after one and up to another; the last of them may pass the bound in bytes. Raises ServiceError."""
        return self._reader.some(_PAGE, (max(after, lane.first), last), most_bytes)

    def close(self) -> None:
        """Close what reads; the store stays open."""
        self._reader.close()
