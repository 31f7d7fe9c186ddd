"""The table of tenants' own gateways: their settings, and their signing secrets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, final

from streamer.service.store.database import Execute, Moved
from streamer.service.store.rows import Lane
from streamer.service.store.store import Store
from streamer.service.store.vault import Vault


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGateway:
    """A gateway in the store. Times are in milliseconds since the epoch.

    Attributes:
        settings: JSON.
        secrets: as they were written; they are never shown.
        version: unique to each change of any gateway or subscription.
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
    """The gateways of a store, whose secrets it encrypts."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store, self._vault = store, vault

    def all(self) -> list[StoredGateway]:
        """Return the gateways of all tenants."""
        return [
            StoredGateway(
                tenant=tenant,
                id=id_,
                settings=settings,
                secrets=self._vault.open(secrets),
                version=version,
                created=created,
                updated=updated,
            )
            for tenant, id_, settings, secrets, version, created, updated in self._store.database.rows(
                f"SELECT {_COLUMNS} FROM gateways ORDER BY tenant, id"
            )
        ]

    def renew(self) -> int:
        """Encrypt the secrets with the current key that are not; return their number. Raises ServiceError."""
        rows = self._store.database.rows("SELECT tenant, id, secrets FROM gateways")
        renewed = [(new, tenant, id_, old) for tenant, id_, old in rows if (new := self._vault.renewed(old)) is not None]
        if renewed:
            statement = "UPDATE gateways SET secrets = ? WHERE tenant = ? AND id = ? AND secrets = ?"
            self._store.database.change(lambda execute: execute.many(statement, renewed))
        return len(renewed)

    def mark(self) -> tuple[int, int]:
        """Return a value that differs after each change of any gateway."""
        ((count, version),) = self._store.database.rows("SELECT count(*), coalesce(max(version), 0) FROM gateways")
        return count, version

    def write(self, row: StoredGateway, before: StoredGateway | None, most: int) -> StoredGateway:
        """Write a gateway in place of the one before; return it with its version.

        Args:
            most: the most gateways of a tenant.

        Raises:
            Moved: the one before was changed or deleted, or other processes reached the limit.
        """

        sealed = self._vault.seal(row.secrets)

        def write(execute: Execute) -> int:
            ((version,),) = execute("UPDATE versions SET last = last + 1 RETURNING last").fetchall()
            _check(execute, row, before)
            if before is None and self._store.database.is_shared:
                ((count,),) = execute("SELECT count(*) FROM gateways WHERE tenant = ?", (row.tenant,)).fetchall()
                if count >= most:
                    raise Moved
            execute(_PUT, (row.tenant, row.id, row.settings, sealed, version, row.created, row.updated))
            return int(version)

        return replace(row, version=self._store.database.change(write, tells=True))

    def delete(self, row: StoredGateway, sink: str) -> tuple[int, int, int]:
        """Delete a gateway with its lane in one commit; return the lane's messages, bytes and matches.

        Raises:
            Moved: it was changed or deleted.
        """
        self._store.lane(sink)

        def delete(execute: Execute) -> tuple[int, int, int]:
            # Other writers wait from here on.
            execute("UPDATE versions SET last = last + 1")
            _check(execute, row, row)
            execute("DELETE FROM gateways WHERE tenant = ? AND id = ?", (row.tenant, row.id))
            # A new lane may get its number at once, and results of old requests must not settle messages there.
            self._store.unseat(execute)
            return self._store.forget(sink, execute)

        try:
            return self._store.database.change(delete, tells=True)
        except BaseException:
            # The change failed, so the lane still exists; read it again.
            self._store.lane(sink)
            raise


def _check(execute: Execute, row: StoredGateway, before: StoredGateway | None) -> None:
    rows = execute("SELECT version FROM gateways WHERE tenant = ? AND id = ?", (row.tenant, row.id)).fetchall()
    if rows != ([] if before is None else [(before.version,)]):
        raise Moved


_PAGE: Final = "SELECT number, body FROM spool WHERE number > ? AND number <= ? ORDER BY number"


@final
class Pages:
    """Reads messages of lanes on its own connection, so that commits do not wait for readers."""

    def __init__(self, store: Store) -> None:
        self._reader = store.database.reader()

    def read(self, lane: Lane, after: int, last: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """Return the messages after a number and up to another; the last may exceed the limit of bytes. Raises ServiceError."""
        return self._reader.some(_PAGE, (max(after, lane.first), last), most_bytes)

    def close(self) -> None:
        """Close the connection; the store stays open."""
        self._reader.close()
