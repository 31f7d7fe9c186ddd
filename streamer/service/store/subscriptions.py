"""The table of subscriptions: what each says, where it comes from, and until when it is held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

from streamer.locks import Lock
from streamer.service.store.rows import milliseconds
from streamer.service.store.sqlite import Store, told
from streamer.service.tenants import Written

#: Rows of one query: so many bodies are in memory at once.
PAGE: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A subscription in the store. Times are in milliseconds since the epoch.

    Attributes:
        origin: `files`, or `api`; only from there it is changed.
        text: as it was given.
        version: another one after each change, of any subscription that ever had this id.
        unindexed: whether it is a candidate for every event of its collection.
        lease: how long it is held each time that it is renewed, in milliseconds; None for ever.
        expires_at: from when on it is gone.
    """

    tenant: str
    id: str
    origin: str
    text: bytes
    version: int = 0
    created: int
    updated: int
    paused: bool = False
    unindexed: bool = False
    lease: int | None = None
    expires_at: int | None = None

    def is_over(self, now: int) -> bool:
        """Tell whether its lease is over."""
        return self.expires_at is not None and self.expires_at <= now


_COLUMNS: Final = "tenant, id, origin, body, version, created, updated, paused, unindexed, lease, expires_at"
_GET: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = ? AND id = ?"
_PAGE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?"
_PUT: Final = f"INSERT OR REPLACE INTO subscriptions ({_COLUMNS}) VALUES ({', '.join('?' * 11)})"
_DELETE: Final = "DELETE FROM subscriptions WHERE tenant = ? AND id = ?"
_DUE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"


@final
class Table:
    """Subscriptions of a store. Lists are read on a connection of their own, so that no commit waits for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = store.reader()
        self._turn = Lock()

    def close(self) -> None:
        """Close what reads; the store stays open."""
        with self._turn:
            self._reader.close()

    def get(self, tenant: str, subscription_id: str) -> Stored | None:
        """Return one, also where its lease is over."""
        rows = self._read(_GET, tenant, subscription_id)
        return _stored(rows[0]) if rows else None

    def page(self, tenant: str, after: str, most: int = PAGE) -> list[Stored]:
        """Return those of a tenant in the order of their ids, from the first after one."""
        return [_stored(row) for row in self._read(_PAGE, tenant, after, most)]

    def due(self, now: int, most: int) -> list[Stored]:
        """Return those whose lease is over, the oldest first."""
        return [_stored(row) for row in self._store.rows(_DUE, now, most)]

    def next_expiry(self) -> int | None:
        """Return when the next lease is over; None where there is none."""
        ((first,),) = self._store.rows("SELECT min(expires_at) FROM subscriptions WHERE expires_at IS NOT NULL")
        return None if first is None else int(first)

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return how many each tenant has, how many of them are unindexed, and how many paused."""
        rows = self._store.rows("SELECT tenant, count(*), sum(unindexed), sum(paused) FROM subscriptions GROUP BY tenant")
        return {tenant: (count, unindexed, paused) for tenant, count, unindexed, paused in rows}

    def active(self, *, but: str | None = None) -> list[tuple[str, bytes]]:
        """Return tenant and text of those that match: neither paused nor over, and not of the origin *but*."""
        statement = (
            "SELECT tenant, body FROM subscriptions WHERE NOT paused AND (expires_at IS NULL OR expires_at > ?)"
            " AND origin IS NOT ? ORDER BY tenant, id"
        )
        return self._store.rows(statement, milliseconds(), but)

    def others(self, origin: str) -> list[tuple[str, str]]:
        """Return tenant and id of those that come from elsewhere, and whose lease is not over."""
        statement = "SELECT tenant, id FROM subscriptions WHERE origin != ? AND (expires_at IS NULL OR expires_at > ?)"
        return self._store.rows(statement, origin, milliseconds())

    def write(self, rows: Sequence[Stored], gone: Iterable[tuple[str, str]] = ()) -> list[Stored]:
        """Put rows in, and take others out, in one commit; return the rows with their versions."""
        with self._store.transaction() as execute:
            ((last,),) = execute("UPDATE versions SET last = last + ? RETURNING last", (len(rows),)).fetchall()
            written = [replace(row, version=last - len(rows) + number) for number, row in enumerate(rows, 1)]
            for row in written:
                execute(_PUT, _values(row))
            for key in gone:
                execute(_DELETE, key)
        return written

    def restore(self, rows: Sequence[Stored], gone: Iterable[tuple[str, str]]) -> None:
        """Put rows back as they were, versions included, and take others out."""
        with self._store.transaction() as execute:
            for key in gone:
                execute(_DELETE, key)
            for row in rows:
                execute(_PUT, _values(row))

    def hold(self, origin: str, subscriptions: Iterable[Written]) -> int:
        """Make what came from somewhere exactly these; return how many were put in, replaced or taken out."""
        wanted = {(each.tenant, each.id): each.text for each in subscriptions}
        statement = "SELECT tenant, id, body, created FROM subscriptions WHERE origin = ?"
        held: Mapping[tuple[str, str], tuple[bytes, int]] = {
            (tenant, id_): (body, created) for tenant, id_, body, created in self._store.rows(statement, origin)
        }
        now = milliseconds()
        gone = held.keys() - wanted.keys()
        new = [
            Stored(tenant=key[0], id=key[1], origin=origin, text=text, created=held[key][1] if key in held else now, updated=now)
            for key, text in wanted.items()
            if key not in held or held[key][0] != text
        ]
        if gone or new:
            self.write(new, gone)
        return len(gone) + len(new)

    def _read(self, statement: str, *values: object) -> list[Any]:
        with self._turn, told(self._store.directory):
            try:
                return self._reader.execute(statement, values).fetchall()
            except sqlite3.ProgrammingError as error:
                raise OSError(f"the store was closed: {error}") from None


def _values(row: Stored) -> tuple[Any, ...]:
    return (
        *(row.tenant, row.id, row.origin, row.text, row.version, row.created, row.updated),
        *(int(row.paused), int(row.unindexed), row.lease, row.expires_at),
    )


def _stored(row: Sequence[Any]) -> Stored:
    tenant, id_, origin, text, version, created, updated, paused, unindexed, lease, expires_at = row
    return Stored(
        tenant=tenant,
        id=id_,
        origin=origin,
        text=text,
        version=version,
        created=created,
        updated=updated,
        paused=bool(paused),
        unindexed=bool(unindexed),
        lease=lease,
        expires_at=expires_at,
    )
