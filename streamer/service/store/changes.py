"""The log of changes of subscriptions: author, time, kind of change, and the replaced text.

```
version  what                                    replaced
17       put                                     –
18       pause                                   –
21       put                                     {"id": "big", …}      the text of 17
25       delete                                  {"id": "big", …}      the text of 21
```

An entry has the text that it replaced, not the one that it wrote: that one is with the next entry, or with the subscription. So
the store has each text once, even after a million new subscriptions.

Invariant: some entries up to `versions.forgotten` are deleted; of the later ones, a subscription's last entry always exists. So
other processes find all deletions since their last look here.

The log is limited in entries for each subscription, in bytes for each tenant, and in age. The oldest entries are deleted first,
some at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias, final

from streamer.service.store.database import Execute, Reader

#: The most entries of a subscription, and the most bytes of a text that an entry keeps.
MOST_ENTRIES: Final = 20
MOST_TEXT: Final = 64 * 1024
#: The number of entries that one commit deletes.
_AT_ONCE: Final = 5000

What: TypeAlias = Literal["put", "delete", "pause", "resume"]


@final
class Change(NamedTuple):
    """One entry to write. *replaced* is None if no text was replaced, and empty if the text is too long."""

    version: int
    tenant: str
    id: str
    at: int
    who: str
    what: What
    replaced: bytes | None = None


@final
class Entry(NamedTuple):
    """One entry that was read.

    Attributes:
        text: the text that a `put` wrote; None for any other, and if it was too long to keep.
    """

    version: int
    at: int
    who: str
    what: What
    text: bytes | None


def record(execute: Execute, changes: Iterable[Change]) -> None:
    """Add entries within the change that they record."""
    changes = list(changes)
    execute.many(_RECORD, changes)
    # A new subscription has no old entries to delete.
    repeated = {(each.tenant, each.id) for each in changes if each.replaced is not None or each.what != "put"}
    execute.many(_LIMIT, [(*key, *key, MOST_ENTRIES) for key in repeated])


def history(reader: Reader, tenant: str, subscription_id: str, before: int, most: int) -> list[Entry]:
    """Return entries of a subscription, the latest first, from the first before a version."""
    return [
        Entry(version, at, who, what, (text or None) if what == "put" else None)
        for version, at, who, what, text in reader.rows(_HISTORY, tenant, subscription_id, before, most)
    ]


def deleted(reader: Reader, after: int, last: int, most: int) -> list[tuple[int, str, str]]:
    """Return version, tenant and id of the first deletions with versions after *after* and up to *last*."""
    return reader.rows(_DELETED, after, last, most)


def trim(execute: Execute, before: int) -> bool:
    """Delete some entries that are older than a time, in milliseconds since the epoch; return whether there may be more."""
    last = count = 0
    for version, at in execute("SELECT version, at FROM changes ORDER BY version LIMIT ?", (_AT_ONCE,)).fetchall():
        if at >= before:
            break
        last, count = version, count + 1
    if count:
        execute(_FORGET, (last, last))
        execute("DELETE FROM changes WHERE version <= ?", (last,))
    return count == _AT_ONCE


def limit(execute: Execute, tenant: str, most_bytes: int, before: int) -> tuple[int, int]:
    """Delete some entries of a tenant above a limit of bytes; return the number deleted, and the bytes that are left.

    Args:
        before: younger entries stay, because other processes may not have read them yet; in milliseconds since the epoch.
    """
    ((size,),) = execute(f"SELECT coalesce(sum({_SIZE}), 0) FROM changes WHERE tenant = ?", (tenant,)).fetchall()
    last, count, rest = 0, 0, int(size)
    if rest > most_bytes:
        for version, at, size in execute(_OLDEST, (tenant, _AT_ONCE)).fetchall():
            if at >= before or rest <= most_bytes:
                break
            last, count, rest = version, count + 1, rest - size
    if count:
        execute(_FORGET, (last, last))
        execute("DELETE FROM changes WHERE tenant = ? AND version <= ?", (tenant, last))
    return count, rest


_FORGET: Final = "UPDATE versions SET forgotten = ? WHERE forgotten < ?"
#: The bytes of an entry, with the overhead of a row.
_SIZE: Final = "length(tenant) + length(id) + length(who) + coalesce(length(replaced), 0) + 100"
_OLDEST: Final = f"SELECT version, at, {_SIZE} FROM changes WHERE tenant = ? ORDER BY version LIMIT ?"
_DELETED: Final = (
    "SELECT version, tenant, id FROM changes WHERE version > ? AND version <= ? AND what = 'delete' ORDER BY version LIMIT ?"
)
_RECORD: Final = f"INSERT INTO changes ({', '.join(Change._fields)}) VALUES ({', '.join('?' * len(Change._fields))})"
_LIMIT: Final = (
    "DELETE FROM changes WHERE tenant = ? AND id = ? AND version <="
    " (SELECT version FROM changes WHERE tenant = ? AND id = ? ORDER BY version DESC LIMIT 1 OFFSET ?)"
)
_HISTORY: Final = (
    "SELECT version, at, who, what, CASE what WHEN 'put' THEN coalesce("
    "(SELECT later.replaced FROM changes AS later WHERE later.tenant = entry.tenant AND later.id = entry.id"
    " AND later.version > entry.version AND later.replaced IS NOT NULL ORDER BY later.version LIMIT 1),"
    "(SELECT body FROM subscriptions WHERE subscriptions.tenant = entry.tenant AND subscriptions.id = entry.id)) END"
    " FROM changes AS entry WHERE tenant = ? AND id = ? AND version < ? ORDER BY version DESC LIMIT ?"
)
