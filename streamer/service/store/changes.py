"""The log of changes of subscriptions: who wrote what, when, and what that replaced.

```
version  what                                    replaced
17       put                                     –
18       pause                                   –
21       put                                     {"id": "big", …}      what 17 wrote
25       delete                                  {"id": "big", …}      what 21 wrote
```

An entry has the text that it replaced, not the one that it wrote: that one is with the next entry, or with the subscription. So
who writes a million new subscriptions has each text in the store once.

Invariant: of the entries up to `versions.forgotten` some are gone; of those since, a subscription's last one is always there. So
other processes find here what was deleted since they looked.

Of each subscription so many entries are kept, of each tenant so many bytes, and each for so long. They go some at a time, the
oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias, final

from streamer.service.store.database import Execute, Reader

#: Entries of a subscription, and bytes of a text that one keeps.
MOST_ENTRIES: Final = 20
MOST_TEXT: Final = 64 * 1024
#: Entries that go in one commit.
_AT_ONCE: Final = 5000

What: TypeAlias = Literal["put", "delete", "pause", "resume"]


@final
class Change(NamedTuple):
    """One entry, as it is written. *replaced* is None where nothing was replaced, and empty where that is too long."""

    version: int
    tenant: str
    id: str
    at: int
    who: str
    what: What
    replaced: bytes | None = None


@final
class Entry(NamedTuple):
    """One entry, as it is read.

    Attributes:
        text: what a `put` wrote; None for any other, and where it was too long to be kept.
    """

    version: int
    at: int
    who: str
    what: What
    text: bytes | None


def record(execute: Execute, changes: Iterable[Change]) -> None:
    """Add entries, within the change that they tell of."""
    changes = list(changes)
    execute.many(_RECORD, changes)
    # Of what is new there is nothing to take out.
    repeated = {(each.tenant, each.id) for each in changes if each.replaced is not None or each.what != "put"}
    execute.many(_LIMIT, [(*key, *key, MOST_ENTRIES) for key in repeated])


def history(reader: Reader, tenant: str, subscription_id: str, before: int, most: int) -> list[Entry]:
    """Return entries of a subscription, the last first, from the first before a version."""
    return [
        Entry(version, at, who, what, (text or None) if what == "put" else None)
        for version, at, who, what, text in reader.rows(_HISTORY, tenant, subscription_id, before, most)
    ]


def deleted(reader: Reader, after: int, last: int, most: int) -> list[tuple[int, str, str]]:
    """Return version, tenant and id of what was deleted with the versions after one and up to another, the first of them."""
    return reader.rows(_DELETED, after, last, most)


def trim(execute: Execute, before: int) -> bool:
    """Take out some entries that are older than a time, in milliseconds since the epoch; tell whether there may be more."""
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
    """Take out some entries of a tenant that has more than so many bytes; return how many went, and how many bytes are left.

    Args:
        before: those that are younger stay, in milliseconds since the epoch: other processes may not have seen them so far.
    """
    ((size,),) = execute(f"SELECT coalesce(sum({_SIZE}), 0) FROM changes WHERE tenant = ?", (tenant,)).fetchall()
    last, count, left = 0, 0, int(size)
    if left > most_bytes:
        for version, at, size in execute(_OLDEST, (tenant, _AT_ONCE)).fetchall():
            if at >= before or left <= most_bytes:
                break
            last, count, left = version, count + 1, left - size
    if count:
        execute(_FORGET, (last, last))
        execute("DELETE FROM changes WHERE tenant = ? AND version <= ?", (tenant, last))
    return count, left


_FORGET: Final = "UPDATE versions SET forgotten = ? WHERE forgotten < ?"
#: Of an entry, with what a row takes besides.
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
