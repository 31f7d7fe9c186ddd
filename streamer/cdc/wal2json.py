"""Decode messages of PostgreSQL's output plugin wal2json, format version 2: one for each change, with lists of columns.

An update leaves out, without a mark, large values that did not change (TOAST). So the decoder remembers the columns of each
table, from inserts, which always have all columns, or from the argument `columns`. A column that an update lacks is unknown. If
the columns of a table are not known, the whole document is unknown.
https://github.com/eulerto/wal2json
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

from streamer.cdc.messages import ChangeEvent, Keyed, change, columns_within, is_moved, needed, no_change, part
from streamer.cdc.messages import read as read_object
from streamer.errors import EventCode, EventError
from streamer.events.literal_json import Message, named, number, parsed

_NO_CHANGES: Final = {
    "B": "the begin of a transaction",
    "C": "the commit of a transaction",
    "T": "a truncate",
    "M": "a message",  # of pg_logical_emit_message
}
_NUMBERS: Final = frozenset(
    (
        "smallint",
        "integer",
        "bigint",
        "numeric",
        "decimal",
        "real",
        "double precision",
        "oid",
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
    )
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:[0-5]\d)?)?", re.ASCII).fullmatch
_WHAT: Final = "wal2json"


@final
class Decoder:
    """Decodes the messages of one replication slot, in their order. One thread at a time may use it.

    Args:
        columns: the names of the columns of tables, by `schema.table`, for tables whose columns you know beforehand.
    """

    def __init__(self, columns: Mapping[str, Iterable[str]] | None = None) -> None:
        self._columns = {table: frozenset(names) for table, names in (columns or {}).items()}

    def decode(self, message: Message) -> list[ChangeEvent]:
        """Return the change in a message, as `read` does, without its key."""
        return [event for event, _ in self.read(message)]

    def read(self, message: Message) -> list[Keyed]:
        """Return the change in a message, and its key. The collection is `schema.table`; JSON columns are parsed.

        The key has the values of `pk`, which requires wal2json's option `include-pk`; `ts` requires `include-timestamp`.
        An update of the key gives two events: a delete and an insert.

        Raises:
            EventError: the message does not have format version 2.
        """
        members = read_object(message, _WHAT)
        action = needed(members, "action", str, _WHAT)
        if action in _NO_CHANGES:
            return [(no_change(_NO_CHANGES[action]), None)]
        if action not in ("I", "U", "D"):
            raise EventError(
                EventCode.WRONG_TYPE, f"{_WHAT}: action is one of I, U, D, B, C, T, M, not {action[:40]!r}", place="/action"
            )
        table = f"{needed(members, 'schema', str, _WHAT)}.{needed(members, 'table', str, _WHAT)}"
        ts = _milliseconds(part(members, "timestamp", str, _WHAT))
        identity = _row(members, "identity")
        row = _row(members, "columns")
        key = _key(members.get("pk"), identity | row)
        if action == "D":
            # Without a replica identity, the row is unknown.
            return [(change("delete", table, before=identity or None, ts=ts), key)]
        if action == "I":
            self._columns[table] = frozenset(row)
            return [(change("insert", table, data=row, ts=ts), key)]
        pk = _names(members.get("pk"))
        # Without `pk`, an identity that is a part of the row is the key; the replica identity FULL has all columns.
        names = pk or (list(identity) if identity.keys() < row.keys() else [])
        if is_moved(names, identity, row):
            gone = change("delete", table, before=identity, ts=ts)
            made = self._update(table, row, {name: value for name, value in identity.items() if name not in names}, ts)
            made = {name: value for name, value in made.items() if name != "before"} | {"type": "insert"}
            return [(gone, [identity.get(name) for name in pk] or None), (made, [row.get(name) for name in pk] or None)]
        return [(self._update(table, row, identity, ts), key)]

    def _update(self, table: str, row: dict[str, Any], identity: dict[str, Any], ts: int | None) -> ChangeEvent:
        known = self._columns.get(table)
        old = identity or None
        if known is None and not (row and identity.keys() > row.keys()):
            # Only REPLICA IDENTITY FULL has all columns of the row and more.
            return change("update", table, data=identity | row, before=old, ts=ts) | {"partial": True}
        # A value that the old row has and the new row lacks did not change.
        row = identity | row
        columns = (known or frozenset()) | row.keys()
        if known is not None:
            self._columns[table] = columns
        return change("update", table, data=row, before=old, unknown=sorted(columns - row.keys()), ts=ts)


def decode(message: Message) -> list[ChangeEvent]:
    """Return the change in one message, as a `Decoder` does that has seen no other. Raises EventError."""
    return Decoder().decode(message)


def _row(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    row = {}
    columns = part(members, name, list, _WHAT) or []
    columns_within(columns, _WHAT, f"/{name}")
    for at, column in enumerate(columns):
        place = f"/{name}/{at}"
        if not isinstance(column, Mapping):
            raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: a column is an object, not {named(column)}", place=place)
        value = column.get("value")
        if isinstance(value, str):
            value = _typed(value, str(column.get("type")), f"{place}/value")
        row[needed(column, "name", str, _WHAT, place)] = value
    return row


def _typed(text: str, type_: str, place: str) -> Any:
    """Return the value of a text: parsed for a JSON column, a number for a numeric one (`numeric-data-types-as-string`)."""
    if type_ in ("json", "jsonb"):
        return parsed(text, _WHAT, place)
    # The type may be numeric(10,2). NaN and the like have no number in JSON and stay text.
    if type_.partition("(")[0].strip(" ") in _NUMBERS:
        try:
            return number(text)
        except ValueError:
            return text
    return text


def _key(columns: Any, row: Mapping[str, Any]) -> Sequence[Any] | None:
    # The identity may be the whole row, so it does not identify the key.
    return [row.get(name) for name in _names(columns)] if isinstance(columns, list) else None


def _names(columns: Any) -> list[str]:
    """Return the names of the columns of a key."""
    columns = columns if isinstance(columns, list) else []
    columns_within(columns, _WHAT, "/pk")
    return [column["name"] for column in columns if isinstance(column, Mapping) and isinstance(column.get("name"), str)]


def _milliseconds(text: str | None) -> int | None:
    """Return the time of a text such as `2026-11-22 10:15:30.123456+00`."""
    if text is None:
        return None
    try:
        if _TIMESTAMP(text) is None:
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise EventError(
            EventCode.BAD_TIMESTAMP,
            f"{_WHAT}: timestamp is a time as 2026-11-22 10:15:30+00, not {text[:40]!r}",
            place="/timestamp",
        ) from None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)
