"""The table of tenants' own gateways: what each says, and the secrets that it signs with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final, final

from streamer.service.store.database import Execute
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
    f"INSERT INTO gateways ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[2:])
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
            for tenant, id_, settings, secrets, version, created, updated in self._store.rows(
                f"SELECT {_COLUMNS} FROM gateways ORDER BY tenant, id"
            )
        ]

    def write(self, row: StoredGateway) -> StoredGateway:
        """Put one in; return it with its version."""

        def write(execute: Execute) -> int:
            ((version,),) = execute("UPDATE versions SET last = last + 1 RETURNING last").fetchall()
            execute(_PUT, (row.tenant, row.id, row.settings, json.dumps(row.secrets), version, row.created, row.updated))
            return int(version)

        return replace(row, version=self._store.write(write))

    def delete(self, row: StoredGateway, sink: str) -> tuple[int, int, int]:
        """Take one out with all that its sink holds, in one commit; return the messages, their bytes and their matches."""

        def delete(execute: Execute) -> tuple[int, int, int]:
            execute("DELETE FROM gateways WHERE tenant = ? AND id = ?", (row.tenant, row.id))
            return self._store.forget(sink, execute)

        return self._store.write(delete)


_SIZES: Final = "SELECT number, length(body) FROM spool WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
_PAGE: Final = "SELECT number, body FROM spool WHERE number > ? AND number <= ? ORDER BY number"
#: Messages of a page.
_MOST: Final = 10_000


@final
class Pages:
    """Reads messages of lanes on a connection of its own, so that no commit waits for those who read."""

    def __init__(self, store: Store) -> None:
        self._reader = store.reader()

    def read(self, lane: Lane, after: int, last: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """Return messages after one and up to another; the last of them may pass the bound in bytes. Raises ServiceError."""
        first = max(after, lane.first)
        end = size = 0
        for number, length in self._reader.rows(_SIZES, first, last, _MOST):
            end, size = number, size + length
            if size >= most_bytes:
                break
        return self._reader.rows(_PAGE, first, end) if end else []

    def close(self) -> None:
        """Close what reads; the store stays open."""
        self._reader.close()
