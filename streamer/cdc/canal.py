"""Canal's flat messages of MySQL (`flatMessage=true`).

A message has several rows, whose values are all text. `sqlType` marks numbers, by the constants of java.sql.Types, and
`mysqlType` marks JSON and years. `old` has only the changed columns: the row before the change is the row with these values
put in. With binlog_row_image=MINIMAL, a row has only its key and the changed columns, and `old` is empty. Such an update is
`partial`: every column that it lacks is unknown.
https://github.com/alibaba/canal/wiki
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamer.cdc.messages import (
    ChangeEvent,
    ChangeType,
    Keyed,
    change,
    columns_within,
    is_moved,
    needed,
    no_change,
    part,
    within,
)
from streamer.cdc.messages import read as read_object
from streamer.errors import EventCode, EventError
from streamer.events.layout import encode_pointer
from streamer.events.literal_json import Message, named, number, parsed

#: BIT, TINYINT, BIGINT, NUMERIC, DECIMAL, INTEGER, SMALLINT, FLOAT, REAL, DOUBLE.
NUMBERS: Final = frozenset({-7, -6, -5, 2, 3, 4, 5, 6, 7, 8})
_TYPES: Final[dict[str, ChangeType]] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_WHAT: Final = "canal"
#: An event with this member may lack columns of its table.
_PARTIAL: Final[ChangeEvent] = {"partial": True}


def decode(message: Message) -> list[ChangeEvent]:
    """Return the change of each row, as `read` does, without keys."""
    return [event for event, _ in read(message)]


def read(message: Message, *, most: int | None = None) -> list[Keyed]:
    """Return the change of each row, in order, with the values of its `pkNames`. The collection is `database.table`.

    An update of the key gives two events: a delete and an insert.

    Args:
        most: the most rows that a message may have; None for any number.

    Raises:
        EventError: the message is not a flat message, or has more rows.
    """
    members = read_object(message, _WHAT)
    word = needed(members, "type", str, _WHAT)
    kind = _TYPES.get(word)
    if members.get("isDdl") is True:
        return [(no_change("a change of the schema"), None)]
    if kind is None:
        return [(no_change(f"the operation {word[:40]!r}, which changes no row"), None)]
    collection = f"{needed(members, 'database', str, _WHAT)}.{needed(members, 'table', str, _WHAT)}"
    types = part(members, "sqlType", Mapping, _WHAT) or {}
    columns = part(members, "mysqlType", Mapping, _WHAT) or {}
    columns_within(types, _WHAT, "/sqlType")
    columns_within(columns, _WHAT, "/mysqlType")
    if members.get("data") is None and isinstance(members.get("sql"), str):
        # binlog_format=STATEMENT or MIXED.
        return [(no_change("a statement, whose rows are not carried"), None)]
    rows = needed(members, "data", list, _WHAT)
    within(rows, most, _WHAT, "/data")
    olds = part(members, "old", list, _WHAT) or []
    if len(olds) != len(rows):
        # Some versions leave out empty ones, so that the others are not in their places.
        olds = [None] * len(rows)
    ts = part(members, "es", int, _WHAT)
    listed = members.get("pkNames")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else None
    events: list[Keyed] = []
    for at, source in enumerate(rows):
        row = _row(source, types, columns, f"/data/{at}")
        # With binlog_row_image=MINIMAL, a row has only its key and the changed columns; with NOBLOB it lacks large values
        # that were not changed. The types name only the columns that some row of the message has.
        lacking = [name for name in dict.fromkeys((*types, *columns)) if name not in row]
        if kind == "delete":
            event = change(kind, collection, before=row, ts=ts)
        elif kind == "insert":
            event = change(kind, collection, data=row, unknown=lacking, ts=ts)
        else:
            old = None if olds[at] is None else _row(olds[at], types, columns, f"/old/{at}")
            before = None
            if old is not None:
                # MySQL logs no update without a change: with MINIMAL, the old values of the changed columns are missing.
                before = (row if old else {name: row[name] for name in names or () if name in row}) | old
            if old is not None and is_moved(names or (), old, row):
                gone = change("delete", collection, before=before, ts=ts)
                made = change("insert", collection, data=row, unknown=lacking, ts=ts) | _PARTIAL
                events += [(gone, _key(names, source | olds[at])), (made, _key(names, source))]
                continue
            # Without `old`, the row before the change is unknown.
            event = change(kind, collection, data=row, before=before, unknown=lacking, ts=ts) | _PARTIAL
            if old is not None and (untold := [name for name in lacking if name not in old]):
                event["unknown"] += [encode_pointer(("before", name)) for name in untold]
        events.append((event, _key(names, source)))
    return events


def _key(names: Sequence[str] | None, row: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the values of a key as texts, which identify the row independent of the types of its columns."""
    return None if names is None else [row.get(name) for name in names]


def _row(row: Any, types: Mapping[str, Any], columns: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: a row is an object, not {named(row)}", place=place)
    columns_within(row, _WHAT, place)
    return {name: _value(value, types.get(name), columns.get(name), place, name) for name, value in row.items()}


def _value(value: Any, sql_type: Any, column: Any, place: str, name: str) -> Any:
    if column == "json" and isinstance(value, str):
        return parsed(value, _WHAT, place + encode_pointer((name,)))
    # The sqlType of a year is that of text.
    is_year = isinstance(column, str) and column.startswith("year")
    if not isinstance(value, str) or not isinstance(sql_type, int) or not (sql_type in NUMBERS or is_year):
        return value
    try:
        return number(value)
    except ValueError as error:
        reason = f"{_WHAT}: {error}; its sqlType is {sql_type}"
        raise EventError(EventCode.BAD_VALUE, reason, place=place + encode_pointer((name,))) from None
