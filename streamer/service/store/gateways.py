"""The table of tenants' own gateways: what each says, and the secrets that it signs with."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field, replace
from typing import Final, final

from streamer.locks import Lock
from streamer.service.store.rows import Lane
from streamer.service.store.sqlite import Store, told


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
            for tenant, id_, settings, secrets, version, created, updated in self._store.rows(
                f"SELECT {_COLUMNS} FROM gateways ORDER BY tenant, id"
            )
        ]

    def write(self, row: StoredGateway) -> StoredGateway:
        """Put one in; return it with its version."""
        with self._store.transaction() as execute:
            ((version,),) = execute("UPDATE versions SET last = last + 1 RETURNING last").fetchall()
            execute(
                f"INSERT OR REPLACE INTO gateways ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (row.tenant, row.id, row.settings, json.dumps(row.secrets), version, row.created, row.updated),
            )
        return replace(row, version=version)

    def delete(self, row: StoredGateway, sink: str) -> tuple[int, int, int]:
        """Take one out with all that its sink holds, in one commit; return the messages, their bytes and their matches."""
        self._store.lane(sink)
        try:
            with self._store.transaction() as execute:
                execute("DELETE FROM gateways WHERE tenant = ? AND id = ?", (row.tenant, row.id))
                return self._store.forget(sink, execute)
        except BaseException:
            # Where that failed the sink is there as before, and is known again.
            self._store.lane(sink)
            raise


_PAGE: Final = "SELECT number, body FROM spool WHERE number > ? AND number <= ? ORDER BY number"


@final
class Pages:
    """Reads messages of lanes on a connection of its own, so that no commit waits for those who read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = store.reader()
        self._turn = Lock()

    def read(self, lane: Lane, after: int, last: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """Return messages after one and up to another; the last of them may pass the bound in bytes. Raises ServiceError."""
        found: list[tuple[int, bytes]] = []
        size = 0
        with self._turn, told(self._store.directory):
            try:
                rows = self._reader.execute(_PAGE, (max(after, lane.first), last))
                for number, body in rows:
                    found.append((number, body))
                    size += len(body)
                    if size >= most_bytes:
                        break
                rows.close()
            except sqlite3.ProgrammingError as error:
                raise OSError(f"the store was closed: {error}") from None
        return found

    def close(self) -> None:
        """Close what reads; the store stays open."""
        with self._turn:
            self._reader.close()
