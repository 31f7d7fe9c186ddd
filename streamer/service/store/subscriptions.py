"""The table of subscriptions: what each says, where it comes from, and until when it is held."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, final

from streamer.service.store import changes
from streamer.service.store.changes import Change, Entry
from streamer.service.store.database import Execute, Moved, Reader
from streamer.service.store.rows import milliseconds
from streamer.service.store.store import Store
from streamer.service.tenants import Written

Key: TypeAlias = tuple[str, str]
"""A tenant, and an id that it knows."""

#: Rows of one query, and bytes of their texts, but for what its last row has beyond: so much is in memory at once.
PAGE: Final = 500
PAGE_BYTES: Final = 4 << 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A subscription in the store. Times are in milliseconds since the epoch.

    Attributes:
        origin: `files`, or `api`; only from there it is changed.
        text: as it was given.
        version: another one after each change, of any subscription that ever had this id.
        unindexed: whether no condition of it can be looked up, so that it may be about any event of its collection.
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
        """Return whether its lease is over."""
        return self.expires_at is not None and self.expires_at <= now


class Amount(NamedTuple):
    """How much a tenant has, or may have: subscriptions, those of which no condition can be looked up, and bytes of texts."""

    subscriptions: float = 0
    unindexed: float = 0
    texts: float = 0

    def with_one(self, text: bytes, *, unindexed: bool) -> Amount:
        """Return what it is with one more."""
        return Amount(self.subscriptions + 1, self.unindexed + unindexed, self.texts + len(text))

    def without(self, row: Stored) -> Amount:
        """Return what it is without one of them."""
        return Amount(self.subscriptions - 1, self.unindexed - row.unindexed, self.texts - len(row.text))


class Page(NamedTuple):
    """Some rows of a list, and whether nothing follows them."""

    rows: list[Stored]
    is_last: bool


@final
@dataclass(frozen=True, slots=True)
class Room:
    """How much a tenant may have, and is to have by a change, as far as this process knows.

    Attributes:
        counted: up to which version this process knows what others wrote.
        largest: bytes of a text, at most.
    """

    tenant: str
    most: Amount
    held: Amount
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
_DUE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"


@final
class Table:
    """Subscriptions of a store. Lists are read on a connection of their own, so that no commit waits for them."""

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._reader = store.database.reader()

    def close(self) -> None:
        """Close what reads; the store stays open."""
        self._reader.close()

    def get(self, tenant: str, subscription_id: str) -> Stored | None:
        """Return one, also if its lease is over."""
        rows = self._reader.rows(_GET, tenant, subscription_id)
        return _stored(rows[0]) if rows else None

    def page(self, tenant: str, after: str) -> Page:
        """Return those of a tenant in the order of their ids, from the first after one."""
        return _page(self._reader, _PAGE, tenant, after)

    def walk(self, after: Key) -> Page:
        """Return those of all tenants in the order of tenants and ids, from the first after one."""
        return _page(self._reader, _WALK, *after)

    def due(self, now: int) -> Page:
        """Return those whose lease is over, the oldest first."""
        return _page(self._database, _DUE, now)

    def next_expiry(self) -> int | None:
        """Return when the next lease is over; None if there is none."""
        ((first,),) = self._database.rows("SELECT min(expires_at) FROM subscriptions WHERE expires_at IS NOT NULL")
        return None if first is None else int(first)

    def counts(self, tenants: Collection[str] | None = None) -> dict[str, tuple[Amount, int]]:
        """Return how much each tenant has, or each of some, and how many of these are paused."""
        some = "" if tenants is None else f" WHERE tenant IN ({', '.join('?' * len(tenants))})"
        rows = self._database.rows(
            f"SELECT tenant, {_AMOUNT}, sum(paused) FROM subscriptions{some} GROUP BY tenant", *(tenants or ())
        )
        return {tenant: (Amount(*map(int, amount)), int(paused)) for tenant, *amount, paused in rows}

    def active(self, *, but: str | None = None) -> list[tuple[str, bytes]]:
        """Return tenant and text of those that match: neither paused nor over, and not of the origin *but*."""
        statement = (
            "SELECT tenant, body FROM subscriptions WHERE paused = 0 AND (expires_at IS NULL OR expires_at > ?)"
            " AND origin != ? ORDER BY tenant, id"
        )
        return self._database.rows(statement, milliseconds(), but or "")

    def others(self, origin: str) -> list[tuple[str, str]]:
        """Return tenant and id of those that come from elsewhere, and whose lease is not over."""
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
        """Put rows in the place of those before, and take others out, in one commit.

        Args:
            who: as the log of changes has it.
            room: of the tenant whose rows these are.

        Returns:
            The rows with their versions, and all versions that it took.

        Raises:
            Moved: one has another version, or another process has taken the room.
        """

        def write(execute: Execute) -> tuple[list[Stored], range]:
            # Whoever else writes waits from here on.
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
        """Put rows back as they were, and take others out; nothing was changed with some versions.

        Rows have their versions again, but for a shared store: other processes find there what is new to them.
        """

        def restore(execute: Execute) -> None:
            back = list(rows)
            execute.many(_DELETE, taken_out)
            execute.many("DELETE FROM changes WHERE version = ?", never)
            if self._database.is_shared:
                count = len(taken_out) + len(rows)
                ((last,),) = execute("UPDATE versions SET last = last + ? RETURNING last", (count,)).fetchall()
                first = last - count + 1
                changes.record(
                    execute, [Change(version, *key, now, "", "delete") for version, key in enumerate(taken_out, first)]
                )
                back = [replace(row, version=version) for version, row in enumerate(rows, first + len(taken_out))]
            execute.many(_PUT, map(_values, back))

        taken_out, never, now = list(gone), [(version,) for version in versions], milliseconds()
        self._database.change(restore, tells=True)

    def history(self, tenant: str, subscription_id: str, before: int, most: int) -> list[Entry]:
        """Return what was written of one, the last first, from the first before a version."""
        return changes.history(self._reader, tenant, subscription_id, before, most)

    def trim(self, before: int) -> None:
        """Forget what was written before a time, in milliseconds since the epoch."""
        while self._database.change(lambda execute: changes.trim(execute, before)):
            pass

    def limit(self, tenant: str, most_bytes: int, before: int) -> bool:
        """Forget the oldest that was written for a tenant, but for what is younger; tell whether it has no more bytes then."""
        while True:
            count, left = self._database.change(lambda execute: changes.limit(execute, tenant, most_bytes, before))
            if not count or left <= most_bytes:
                return left <= most_bytes

    # What other processes change

    def last(self) -> tuple[int, int]:
        """Return the last version that was given, and the last of what was taken out that is not known any more."""
        # Who gives versions holds this row until the commit, so all that have one up to here are there.
        ((last, forgotten),) = self._database.rows("SELECT last, forgotten FROM versions")
        return last, forgotten

    def since(self, after: int, last: int) -> tuple[dict[Key, tuple[int, Stored | None]], int]:
        """Return what was put in or taken out with the versions after one and up to another, and how far that is all.

        Returns:
            For each the version of its last change, and the row; None if it was taken out.
        """
        put, is_all = _page(self._database, _SINCE, after, last)
        gone = changes.deleted(self._database, after, last, PAGE)
        # Where there is more of one kind nothing is told of what lies behind its last.
        ends = [] if is_all else [put[-1].version]
        ends += [gone[-1][0]] if len(gone) == PAGE else []
        bound = min([*ends, last])
        found: list[tuple[int, Key, Stored | None]] = [(row.version, (row.tenant, row.id), row) for row in put]
        found += [(version, (tenant, id_), None) for version, tenant, id_ in gone]
        found.sort(key=lambda each: each[0])
        return {key: (version, row) for version, key, row in found if version <= bound}, bound

    def hold(self, origin: str, subscriptions: Iterable[Written]) -> int:
        """Make what came from somewhere exactly these; return how many were put in, replaced or taken out.

        Raises:
            Moved: another process wrote one of them, or has another one for it, in this moment.
        """
        wanted = {(each.tenant, each.id): each.text for each in subscriptions}
        now = milliseconds()
        statement = f"SELECT {_COLUMNS} FROM subscriptions WHERE origin = ? OR expires_at <= ?"
        held = {(row.tenant, row.id): row for row in map(_stored, self._database.rows(statement, origin, now))}
        gone = [row for key, row in held.items() if row.origin == origin and key not in wanted]
        befores, new = [], []
        for key, text in wanted.items():
            before = held.get(key)
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
    """Return what the log has of a row that was put in; None if a lease was renewed."""
    if before is None or before.text != row.text:
        return Change(version, row.tenant, row.id, now, who, "put", None if before is None else _kept(before))
    if before.paused != row.paused:
        return Change(version, row.tenant, row.id, now, who, "pause" if row.paused else "resume")
    return None


def _deletion(version: int, row: Stored, now: int, who: str) -> Change:
    return Change(version, row.tenant, row.id, now, who, "delete", _kept(row))


def _kept(row: Stored) -> bytes:
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
    """Raise Moved where a tenant has too much, since other processes wrote for it, too, up to the version *last*."""
    # Each version is one subscription more at most. So nobody counts who is far from a bound.
    others = last - room.counted
    if any(others * one > most - held for one, most, held in zip((1, 1, room.largest), room.most, room.held, strict=True)):
        (found,) = execute(f"SELECT {_AMOUNT} FROM subscriptions WHERE tenant = ?", (room.tenant,)).fetchall()
        if any(int(held) > most for held, most in zip(found, room.most, strict=True)):
            raise Moved


def _check(execute: Execute, known: Mapping[Key, int]) -> None:
    """Raise Moved where one has another version than is known."""
    keys = list(known)
    for first in range(0, len(keys), PAGE):
        some = keys[first : first + PAGE]
        statement = f"SELECT tenant, id, version FROM subscriptions WHERE (tenant, id) IN ({', '.join(['(?, ?)'] * len(some))})"
        found = {(tenant, id_): version for tenant, id_, version in execute(statement, [part for key in some for part in key])}
        if any(found.get(key, 0) != known[key] for key in some):
            raise Moved
