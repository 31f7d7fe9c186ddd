"""The table of subscriptions: their texts, origins and leases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, final

from streamer.service.store import changes
from streamer.service.store.changes import Change, Entry
from streamer.service.store.database import Execute, Moved, Reader
from streamer.service.store.ids import Written
from streamer.service.store.rows import milliseconds
from streamer.service.store.store import Store

Key: TypeAlias = tuple[str, str]
"""A tenant, and an id of one of its subscriptions."""

#: The most rows of one query, and the bytes of texts after which it stops: this bounds the memory of one page.
PAGE: Final = 500
PAGE_BYTES: Final = 4 << 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A subscription in the store. Times are in milliseconds since the epoch.

    Attributes:
        origin: `files` or `api`; only its origin may change it.
        text: the original text.
        version: a number that is new after each change, and differs from those of earlier subscriptions with this id.
        unindexed: whether the index can look up none of its conditions, so that it is a candidate for all of its collection.
        lease: the time from each renewal to its expiry, in milliseconds; None for ever.
        expires_at: the time of its expiry.
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
        """Return whether the lease is over."""
        return self.expires_at is not None and self.expires_at <= now


class Amount(NamedTuple):
    """The usage or the quota of a tenant: subscriptions, unindexed ones among them, and bytes of texts."""

    subscriptions: float = 0
    unindexed: float = 0
    texts: float = 0

    def with_one(self, text: bytes, *, unindexed: bool) -> Amount:
        """Return the amount with one subscription more."""
        return Amount(self.subscriptions + 1, self.unindexed + unindexed, self.texts + len(text))

    def without(self, row: Stored) -> Amount:
        """Return the amount without one subscription."""
        return Amount(self.subscriptions - 1, self.unindexed - row.unindexed, self.texts - len(row.text))


class Page(NamedTuple):
    """Some rows of a list, and whether they are the last ones."""

    rows: list[Stored]
    is_last: bool


@final
@dataclass(frozen=True, slots=True)
class Room:
    """The quota of a tenant, and its usage after a change, as far as this process has counted.

    Attributes:
        counted: the last version up to which this process has counted the writes of other processes.
        largest: the most bytes of one text.
    """

    tenant: str
    most: Amount
    stored: Amount
    counted: int
    largest: int


_COLUMNS: Final = "tenant, id, origin, version, created, updated, paused, unindexed, lease, expires_at, body"
_AMOUNT: Final = "count(*), coalesce(sum(unindexed), 0), coalesce(sum(length(body)), 0)"
_GET: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = ? AND id = ?"
_PAGE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?"
_WALK: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE (tenant, id) > (?, ?) ORDER BY tenant, id LIMIT ?"
_PUT: Final = (
    f"INSERT INTO subscriptions ({_COLUMNS}) VALUES ({', '.join('?' * 11)}) ON CONFLICT (tenant, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[2:])
)
_SINCE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE version > ? AND version <= ? ORDER BY version LIMIT ?"
_DELETE: Final = "DELETE FROM subscriptions WHERE tenant = ? AND id = ?"
_EXPIRING: Final = (
    "SELECT count(*) FROM (SELECT lease, expires_at FROM subscriptions WHERE expires_at IS NOT NULL ORDER BY expires_at"
    " LIMIT 10000) AS first WHERE (expires_at - ?) * 10 < lease"
)
_DUE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"


@final
class Table:
    """The subscriptions of a store. Lists use a separate connection, so that commits do not wait for them."""

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._reader = store.database.reader()

    def close(self) -> None:
        """Close the connection for reading; the store stays open."""
        self._reader.close()

    def get(self, tenant: str, subscription_id: str) -> Stored | None:
        """Return a subscription, even if its lease is over; None if there is none."""
        rows = self._reader.rows(_GET, tenant, subscription_id)
        return _stored(rows[0]) if rows else None

    def find(self, tenant: str, ids: Sequence[str]) -> dict[str, Stored]:
        """Return those subscriptions that exist, by id, even if their lease is over."""
        rows: dict[str, Stored] = {}
        for at in range(0, len(ids), PAGE):
            part = ids[at : at + PAGE]
            statement = f"SELECT {_COLUMNS} FROM subscriptions WHERE tenant = ? AND id IN ({', '.join('?' * len(part))})"
            rows |= {row.id: row for row in map(_stored, self._reader.rows(statement, tenant, *part))}
        return rows

    def page(self, tenant: str, after: str) -> Page:
        """Return the subscriptions of a tenant after an id, in the order of ids."""
        return _page(self._reader, _PAGE, tenant, after)

    def walk(self, after: Key) -> Page:
        """Return the subscriptions of all tenants after a key, in the order of tenants and ids."""
        return _page(self._reader, _WALK, *after)

    def due(self, now: int) -> Page:
        """Return the subscriptions whose lease is over, the oldest expiry first."""
        return _page(self._database, _DUE, now)

    def next_expiry(self) -> int | None:
        """Return the time of the next expiry; None if there is none."""
        ((first,),) = self._database.rows("SELECT min(expires_at) FROM subscriptions WHERE expires_at IS NOT NULL")
        return None if first is None else int(first)

    def expiring(self) -> int:
        """Return how many subscriptions have less than a tenth of their lease left, among the 10,000 that expire first."""
        ((count,),) = self._reader.rows(_EXPIRING, milliseconds())
        return int(count)

    def counts(self, tenants: Collection[str] | None = None) -> dict[str, tuple[Amount, int]]:
        """Return the usage of each tenant, or of some tenants, and the number of its paused subscriptions."""
        some = "" if tenants is None else f" WHERE tenant IN ({', '.join('?' * len(tenants))})"
        rows = self._database.rows(
            f"SELECT tenant, {_AMOUNT}, sum(paused) FROM subscriptions{some} GROUP BY tenant", *(tenants or ())
        )
        return {tenant: (Amount(*map(int, amount)), int(paused)) for tenant, *amount, paused in rows}

    def active(self, *, but: str | None = None) -> list[tuple[str, str, bytes]]:
        """Return tenant, id and text of the active subscriptions except those of the origin *but*: not paused, not expired."""
        statement = (
            "SELECT tenant, id, body FROM subscriptions WHERE paused = 0 AND (expires_at IS NULL OR expires_at > ?)"
            " AND origin != ? ORDER BY tenant, id"
        )
        return self._database.rows(statement, milliseconds(), but or "")

    def others(self, origin: str) -> list[tuple[str, str]]:
        """Return tenant and id of the subscriptions of other origins whose lease is not over."""
        statement = "SELECT tenant, id FROM subscriptions WHERE origin != ? AND (expires_at IS NULL OR expires_at > ?)"
        return self._database.rows(statement, origin, milliseconds())

    def write(
        self,
        rows: Sequence[Stored],
        befores: Sequence[Stored | None],
        gone: Sequence[Stored] = (),
        *,
        who: str,
        room: Room | None = None,
    ) -> tuple[list[Stored], range]:
        """Insert or replace rows, and delete others, in one commit.

        Args:
            befores: the row that each row replaces; None for a new one.
            gone: the rows to delete.
            who: the author in the log of changes.
            room: the quota of the rows' tenant; None to skip the check.

        Returns:
            The rows with their versions, and all versions that were used.

        Raises:
            Moved: a row has another version, or the writes of another process used up the quota.
        """

        def write(execute: Execute) -> tuple[list[Stored], range]:
            # Other writers wait from here on.
            count = len(rows) + len(gone)
            ((last,),) = execute("UPDATE versions SET last = last + ? RETURNING last", (count,)).fetchall()
            versions = range(last - count + 1, last + 1)
            if self._database.is_shared:
                _check(execute, known)
            written = [replace(row, version=version) for version, row in zip(versions, rows, strict=False)]
            execute.many(_PUT, map(_values, written))
            execute.many(_DELETE, [(row.tenant, row.id) for row in gone])
            entries = [_change(row.version, row, before, now, who) for row, before in zip(written, befores, strict=True)]
            entries += [_deletion(version, row, now, who) for version, row in zip(versions[len(rows) :], gone, strict=True)]
            changes.record(execute, filter(None, entries))
            if room is not None and self._database.is_shared:
                _check_room(execute, room, last - count)
            return written, versions

        known = {(row.tenant, row.id): 0 if before is None else before.version for row, before in zip(rows, befores, strict=True)}
        known |= {(row.tenant, row.id): row.version for row in gone}
        now = milliseconds()
        return self._database.change(write, tells=True)

    def restore(self, rows: Sequence[Stored], gone: Iterable[Key], versions: Iterable[int]) -> None:
        """Undo a change: restore rows, delete others, and remove some versions from the log of changes.

        Rows get their old versions. In a shared store they get new ones, by which other processes find them.
        """

        def restore(execute: Execute) -> None:
            back = list(rows)
            execute.many(_DELETE, removed)
            execute.many("DELETE FROM changes WHERE version = ?", never)
            if self._database.is_shared:
                count = len(removed) + len(rows)
                ((last,),) = execute("UPDATE versions SET last = last + ? RETURNING last", (count,)).fetchall()
                first = last - count + 1
                changes.record(execute, [Change(version, *key, now, "", "delete") for version, key in enumerate(removed, first)])
                back = [replace(row, version=version) for version, row in enumerate(rows, first + len(removed))]
            execute.many(_PUT, map(_values, back))

        removed, never, now = list(gone), [(version,) for version in versions], milliseconds()
        self._database.change(restore, tells=True)

    def history(self, tenant: str, subscription_id: str, before: int, most: int) -> list[Entry]:
        """Return the changes of a subscription before a version, the latest first."""
        return changes.history(self._reader, tenant, subscription_id, before, most)

    def trim(self, before: int) -> None:
        """Delete the logged changes before a time, in milliseconds since the epoch."""
        while self._database.change(lambda execute: changes.trim(execute, before)):
            pass

    def limit(self, tenant: str, most_bytes: int, before: int) -> bool:
        """Delete the oldest logged changes of a tenant before a time; return whether *most_bytes* are enough for the rest."""
        while True:
            count, size = self._database.change(lambda execute: changes.limit(execute, tenant, most_bytes, before))
            if not count or size <= most_bytes:
                return size <= most_bytes

    # Changes of other processes

    def last(self) -> tuple[int, int]:
        """Return the last version, and the last version whose change may be missing from the log."""
        # A writer locks this row until its commit, so all changes up to this version are visible.
        ((last, forgotten),) = self._database.rows("SELECT last, forgotten FROM versions")
        return last, forgotten

    def since(self, after: int, last: int) -> tuple[dict[Key, tuple[int, Stored | None]], int]:
        """Return the subscriptions that changed after a version and up to another, and the version up to which they are complete.

        Returns:
            For each the version of its last change, and the row; None if it was deleted.
        """
        put, is_all = _page(self._database, _SINCE, after, last)
        gone = changes.deleted(self._database, after, last, PAGE)
        # If a list is cut off, changes of the other list after its last version are left for the next call.
        ends = [] if is_all else [put[-1].version]
        ends += [gone[-1][0]] if len(gone) == PAGE else []
        bound = min([*ends, last])
        entries: list[tuple[int, Key, Stored | None]] = [(row.version, (row.tenant, row.id), row) for row in put]
        entries += [(version, (tenant, id_), None) for version, tenant, id_ in gone]
        entries.sort(key=lambda each: each[0])
        return {key: (version, row) for version, key, row in entries if version <= bound}, bound

    def hold(self, origin: str, subscriptions: Iterable[Written]) -> int:
        """Replace the subscriptions of an origin with these; return how many were inserted, replaced or deleted.

        Raises:
            Moved: another process changed one of them at the same time.
        """
        wanted = {(each.tenant, each.id): each.text for each in subscriptions}
        now = milliseconds()
        statement = f"SELECT {_COLUMNS} FROM subscriptions WHERE origin = ? OR expires_at <= ?"
        existing = {(row.tenant, row.id): row for row in map(_stored, self._database.rows(statement, origin, now))}
        gone = [row for key, row in existing.items() if row.origin == origin and key not in wanted]
        befores, new = [], []
        for key, text in wanted.items():
            before = existing.get(key)
            if before is not None and before.origin == origin:
                if before.text == text:
                    continue
                created = before.created
            else:
                created = now
            befores.append(before)
            new.append(Stored(tenant=key[0], id=key[1], origin=origin, text=text, created=created, updated=now))
        if gone or new:
            self.write(new, befores, gone, who=origin)
        return len(gone) + len(new)


def _change(version: int, row: Stored, before: Stored | None, now: int, who: str) -> Change | None:
    """Return the log entry for a row that was written; None if only its lease was renewed."""
    if before is None or before.text != row.text:
        return Change(version, row.tenant, row.id, now, who, "put", None if before is None else _logged_text(before))
    if before.paused != row.paused:
        return Change(version, row.tenant, row.id, now, who, "pause" if row.paused else "resume")
    return None


def _deletion(version: int, row: Stored, now: int, who: str) -> Change:
    return Change(version, row.tenant, row.id, now, who, "delete", _logged_text(row))


def _logged_text(row: Stored) -> bytes:
    return row.text if len(row.text) <= changes.MOST_TEXT else b""


def _values(row: Stored) -> tuple[Any, ...]:
    return (
        *(row.tenant, row.id, row.origin, row.version, row.created, row.updated),
        *(int(row.paused), int(row.unindexed), row.lease, row.expires_at, row.text),
    )


def _page(reader: Reader, statement: str, *values: object) -> Page:
    rows = [_stored(row) for row in reader.some(statement, (*values, PAGE), PAGE_BYTES)]
    return Page(rows, len(rows) < PAGE and sum(len(row.text) for row in rows) < PAGE_BYTES)


def _stored(row: Sequence[Any]) -> Stored:
    tenant, id_, origin, version, created, updated, paused, unindexed, lease, expires_at, text = row
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


def _check_room(execute: Execute, room: Room, last: int) -> None:
    """Raise Moved if a tenant exceeds its quota, counting the writes of other processes up to the version *last*."""
    # Each version adds one subscription at most, so a tenant that is far from its quota need not be counted.
    others = last - room.counted
    if any(others * one > most - amount for one, most, amount in zip((1, 1, room.largest), room.most, room.stored, strict=True)):
        (amounts,) = execute(f"SELECT {_AMOUNT} FROM subscriptions WHERE tenant = ?", (room.tenant,)).fetchall()
        if any(int(amount) > most for amount, most in zip(amounts, room.most, strict=True)):
            raise Moved


def _check(execute: Execute, known: Mapping[Key, int]) -> None:
    """Raise Moved if a row has another version than the known one."""
    keys = list(known)
    for first in range(0, len(keys), PAGE):
        some = keys[first : first + PAGE]
        statement = f"SELECT tenant, id, version FROM subscriptions WHERE (tenant, id) IN ({', '.join(['(?, ?)'] * len(some))})"
        versions = {(tenant, id_): version for tenant, id_, version in execute(statement, [part for key in some for part in key])}
        if any(versions.get(key, 0) != known[key] for key in some):
            raise Moved
