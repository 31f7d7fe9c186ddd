"""Decode Debezium's change events in JSON, with or without the `schema` and `payload` of Kafka Connect, and plain rows.

```
{"before": …, "after": …, "source": …, "op": "u"}      `read`
{"id": 7, "status": "paid", "__op": "u", "__table": …}    `read_unwrapped`: ExtractNewRecordState, with add.fields=op,table
```

The preset `debezium` reads the first shape natively. This decoder adds the key, which is in the message's own key; a change of
the key, which is a delete and an insert; and the values that a `before` of PostgreSQL lacks.

Contract: a value that the record does not contain is unknown, never null. Examples: A large value that did not
change (TOAST) is a placeholder, also in a row with a new key. A row deleted by PostgreSQL has only its key, unless the table has
`REPLICA IDENTITY FULL`: Debezium writes null for its other columns, or the default if null is not allowed, and does not mark
them. So a row whose other columns are all null, empty or a default counts as only its key, and matches on it may be uncertain.
Some other connectors write null for a value that they do not have (`events.carried.may_be_unset`).
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from streamer.cdc.messages import ChangeEvent, ChangeType, Keyed, change, is_moved, needed, no_change, part, without_document
from streamer.cdc.messages import read as read_object
from streamer.errors import EventCode, EventError
from streamer.events import connect, extended_json, timestamps
from streamer.events.carried import CELLS, KEYS, WHOLE, filled_in, may_be_unset
from streamer.events.layout import ADDED, IGNORE, EventLayout, encode_pointer
from streamer.events.literal_json import OBJECT, Message, Number, is_nothing, named, parsed, written
from streamer.events.records import Placeholders, scaled

_WHAT: Final = "debezium"
_UNWRAPPED: Final = "debezium_unwrapped"
_PRESET: Final = EventLayout.preset("debezium")
_TYPES: Final[Mapping[str, str]] = dict(_PRESET.type_map or ())
_PLACEHOLDERS: Final = Placeholders(_PRESET)
#: The member that marks a deleted row, under every prefix.
_DELETED: Final = "__deleted"
_NO_CHANGES: Final = {"t": "a truncate", "m": "a message"}
TOMBSTONE: Final = "a tombstone: the record before it reported the delete"


class _Record(NamedTuple):
    """The content of a record in either shape.

    Attributes:
        key: the members of the message's key, in their order.
        may_be_unset: those of the rows `after` and `before` in which a null may be a value that the record lacks.
    """

    kind: ChangeType
    collection: str
    ts: int | None
    data: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    key: Mapping[str, Any] | None
    may_be_unset: Collection[str] = ()


def decode(message: Message | None, key: Message | None = None) -> list[ChangeEvent]:
    """Return the change of a record, as `read` does, without keys."""
    return [event for event, _ in read(message, key)]


def read(message: Message | None, key: Message | None = None, *, whole_rows: Collection[str] = ()) -> list[Keyed]:
    """Return the change of a record, and its key. The collection is `schema.table`, else `database.table`.

    An update of the key gives two events: a delete and an insert. Truncates (`t`), messages (`m`), tombstones, heartbeats,
    transactions and changes of the schema give events that the engine ignores.

    Args:
        message: a record's value; None or empty for a tombstone.
        key: its key, as Kafka Connect writes it. Without one, the member `id` of the row is the key, else `_id`.
        whole_rows: the collections whose deleted rows are whole (`REPLICA IDENTITY FULL`), or `*` for all.

    Raises:
        EventError: the message is not a change event of Debezium.
    """
    body, schema = _body(message, _WHAT)
    if body is None:
        return _ignored(TOMBSTONE)
    if "op" not in body:
        if what := _no_change(body):
            return _ignored(what)
        reason = "op is missing; a bare row, as ExtractNewRecordState writes it, has the format debezium_unwrapped"
        raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: {reason}", place="/op")
    op = needed(body, "op", str, _WHAT)
    kind = _kind(op, "/op", _WHAT)
    if kind is None:
        return _ignored(_NO_CHANGES[op])
    source = needed(body, "source", Mapping, _WHAT)
    connector = part(source, "connector", str, _WHAT, "/source")
    data, before = _row(body, "after", connector), _row(body, "before", connector)
    names, collection = _key(key), _collection(source, "", _WHAT)
    if collection is None:
        reason = "table is missing: expected the name of a table or a collection"
        raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: {reason}", place="/source/table")
    is_whole = _is_whole(collection, whole_rows)
    columns, side = connect.columns_of(schema), "before"
    if kind == "delete" and before is None:
        # Cassandra has the key of a deleted row in `after`.
        side, before, data = "after", data, None
    # A document in a text has no schema.
    if not isinstance(body.get("after"), str):
        data = _typed(data, connect.struct_of(columns.get("after")))
    if not isinstance(body.get(side), str):
        before = _typed(before, connect.struct_of(columns.get(side) or columns.get("after")))
    if kind == "delete" and before is not None and connector not in WHOLE and not is_whole:
        before = _carried(before, names, columns.get(side), connector)
    unset = [side for side in ("after", "before") if not is_whole and may_be_unset(source, side, kind)]
    return _changes(_Record(kind, collection, _ts(source, body), data, before, names, unset))


def decode_unwrapped(message: Message | None, key: Message | None = None) -> list[ChangeEvent]:
    """Return the change of a row, as `read_unwrapped` does, without keys."""
    return [event for event, _ in read_unwrapped(message, key)]


def read_unwrapped(
    message: Message | None,
    key: Message | None = None,
    *,
    whole_rows: Collection[str] = (),
    table: str | None = None,
    prefix: str = ADDED,
) -> list[Keyed]:
    """Return the change of a plain row, as the transform ExtractNewRecordState leaves it, and its key; see `read`.

    Configure the transform with `add.fields=op,table`, and `schema` or `db` if several tables have the same name, and
    `source.ts_ms` for the time; for deletes, also with `delete.tombstone.handling.mode=rewrite`. Members that begin with
    *prefix* do not count as columns. The row before an update is unknown. In a deleted row, values that may be missing are
    unknown. Without `op` the type is unknown, unless the row is deleted.

    Args:
        whole_rows: see `read`.
        table: the collection of a row that does not name its table; empty for none. Without one, such a row is refused.
            `collection_of` finds it in the name of a topic.
        prefix: `add.fields.prefix` of the transform.

    Raises:
        EventError: the message is not such a row.
    """
    body, schema = _body(message, _UNWRAPPED)
    if body is None:
        return _ignored(TOMBSTONE)
    op_at = f"{prefix}op"
    if not any(name in body for name in (op_at, _DELETED)):
        if what := _no_change(body):
            return _ignored(what)
        if "op" in body and "source" in body:
            # The transform leaves a message of the log as it is.
            if (what := _NO_CHANGES.get(str(body["op"]))) is not None:
                return _ignored(what)
            raise EventError(EventCode.WRONG_TYPE, f"{_UNWRAPPED}: a whole record, which is of the format debezium", place="/op")
    is_deleted = body.get(_DELETED) in (True, "true")
    op = "d" if is_deleted else part(body, op_at, str, _UNWRAPPED)
    kind = None if op is None else _kind(op, encode_pointer((op_at,)), _UNWRAPPED)
    if kind is None and op is not None:
        return _ignored(_NO_CHANGES[op])
    row = {name: value for name, value in body.items() if not is_added(name, prefix)}
    names, collection = _key(key), _collection(body, prefix, _UNWRAPPED)
    if collection is None:
        collection = table
    if collection is None:
        name = f"{prefix}{'op' if op is None else 'table'}"
        reason = f"{name} is missing: the transform needs add.fields=op,table"
        raise EventError(EventCode.WRONG_TYPE, f"{_UNWRAPPED}: {reason}", place=encode_pointer((name,)))
    ts = _in_range(_first(body, (f"{prefix}source_ts_ms", f"{prefix}ts_ms"), _UNWRAPPED))
    row = _typed(row, schema)
    if kind == "delete" and not _is_whole(collection, whole_rows):
        row = dict(_carried(row, names, schema))
    if kind is None:
        # It is an insert or an update.
        made = _changes(_Record("insert", collection, ts, row, None, names))
        return [(_untyped(event) if collection else _unnamed(_untyped(event)), own) for event, own in made]
    data, before = (None, row) if kind == "delete" else (row, None)
    made = _changes(_Record(kind, collection, ts, data, before, names))
    return made if collection else [(_unnamed(event), own) for event, own in made]


def is_added(name: str, prefix: str = ADDED) -> bool:
    """Return whether the transform added a member to a row."""
    return name.startswith(prefix) or name == _DELETED


def collection_of(topic: str) -> str | None:
    """Return the collection of the rows of a topic, such as `public.orders` of `shop.public.orders`; None for other topics.

    A topic of Debezium has a prefix, which may have dots, too; the schema or database; and the table.
    """
    prefix, *names = topic.rsplit(".", 2)
    return ".".join(names) if len(names) == 2 and all((prefix, *names)) else None


def with_headers(record: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a row with the fields that the transform wrote as headers of its message (`add.headers`), for `read_unwrapped`.

    A field that the row has itself counts. A record that is not a row stays as it is.

    Args:
        headers: those whose names begin with `__`, as text.
    """
    try:
        members = read_object(record, _UNWRAPPED)
        added = {name: _of_header(name, text) for name, text in headers.items()}
        if not is_enveloped(members):
            return written({**added, **members}).encode()
        if not isinstance(members["payload"], Mapping):
            return record
        return written({**members, "payload": {**added, **members["payload"]}}).encode()
    except (EventError, RecursionError):
        return record


def _of_header(name: str, text: str) -> Any:
    """Return the value of a header: text as it is, or JSON, depending on Connect's `header.converter`."""
    if text[:1] in ("{", '"'):
        value = parsed(text, _UNWRAPPED)
        return value["payload"] if isinstance(value, Mapping) and is_enveloped(value) else value
    return int(text) if name.endswith(("_ms", "_us", "_ns")) and _DIGITS(text) else text


_DIGITS: Final = re.compile(r"-?[0-9]{1,19}").fullmatch


def _untyped(event: ChangeEvent) -> ChangeEvent:
    """Return an event whose type is unknown."""
    typed = {name: value for name, value in event.items() if name != "type"}
    return typed | {"unknown": [*event.get("unknown", ()), "/type", "/before"]}


def _unnamed(event: ChangeEvent) -> ChangeEvent:
    """Return an event without a collection. A layout with a table for such rows has it at `unnamed`."""
    return {name: value for name, value in event.items() if name != "collection"} | {"unnamed": ""}


def _body(message: Message | None, what: str) -> tuple[Mapping[str, Any] | None, Any]:
    """Return the content of a message, or None for a tombstone, and its schema, if it has one."""
    if message is None or is_nothing(message):
        return None, None
    members = read_object(message, what)
    if is_enveloped(members):
        return part(members, "payload", Mapping, what), members["schema"]
    return members, None


def is_enveloped(members: Mapping[str, Any]) -> bool:
    """Return whether an object is the envelope of Kafka Connect, and not a row with columns of these names."""
    if len(members) != 2 or members.keys() != {"schema", "payload"}:
        return False
    schema = members["schema"]
    return schema is None or (isinstance(schema, Mapping) and ("type" in schema or not schema))


def payload_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a record, inside or outside of the envelope of Kafka Connect."""
    payload = record["payload"] if is_enveloped(record) else None
    return payload if isinstance(payload, Mapping) else record


def _ignored(what: str) -> list[Keyed]:
    return [(no_change(what), None)]


def _no_change(body: Mapping[str, Any]) -> str | None:
    """Return a name for a record that rightly has no operation, or None if its operation is missing."""
    if body and body.keys() <= {"ts_ms", "ts_us", "ts_ns"}:
        return "a heartbeat"
    if body.get("status") in ("BEGIN", "END") and "id" in body and body.keys() <= _OF_TRANSACTION:
        return "the begin or the end of a transaction"
    is_of_schema = ("tableChanges" in body or "ddl" in body) and ("source" in body or "databaseName" in body)
    return "a change of the schema" if is_of_schema else None


#: The members of a record about a transaction.
_OF_TRANSACTION: Final = frozenset(("status", "id", "ts_ms", "ts_us", "ts_ns", "event_count", "data_collections"))


def _kind(op: str, place: str, what: str) -> ChangeType | None:
    """Return the type of change of an operation, or None if it changes no row. Raises EventError if it is unknown."""
    kind = _TYPES.get(op)
    if kind is None:
        raise EventError(EventCode.WRONG_TYPE, f"{what}: op is one of {', '.join(_TYPES)}, not {op[:40]!r}", place=place)
    return None if kind == IGNORE else kind  # type: ignore[return-value]


def _collection(source: Mapping[str, Any], before: str, what: str) -> str | None:
    """Return the collection of a record, or None if it does not name its table."""
    at = "" if before else "/source"
    space, name = (_name(source, before, names, what, at) for names in _NAMES)
    if not name:
        return None
    return f"{space}.{name}" if space else str(name)


#: The members with the name of a schema or database, and of a table. ScyllaDB and Cassandra have keyspaces.
_NAMES: Final = (("schema", "db", "keyspace", "keyspace_name"), ("table", "collection", "table_name"))


def _name(source: Mapping[str, Any], before: str, names: Sequence[str], what: str, at: str) -> str | None:
    for each in names:
        if name := part(source, f"{before}{each}", str, what, at):
            return str(name)
    return None


def _ts(source: Mapping[str, Any], body: Mapping[str, Any]) -> int | None:
    ts = part(source, "ts_ms", int, _WHAT, "/source")
    return _in_range(_first(body, ("ts_ms",), _WHAT) if ts is None else ts)


def _in_range(ts: int | None) -> int | None:
    """Return a time, or None outside of the years 1 to 9999: Cassandra's connector may write microseconds."""
    return ts if ts is not None and timestamps.EARLIEST_NS <= ts * 1_000_000 <= timestamps.LATEST_NS else None


def _first(body: Mapping[str, Any], names: Sequence[str], what: str) -> int | None:
    return next((ts for name in names if (ts := part(body, name, int, what)) is not None), None)


def _row(body: Mapping[str, Any], name: str, connector: Any) -> Mapping[str, Any] | None:
    """Return a row or, for MongoDB, a document, which Debezium writes as Extended JSON in a string."""
    row = body.get(name)
    if isinstance(row, str):
        row = parsed(row, _WHAT, f"/{name}")
        if connector == "mongodb" and isinstance(row, Mapping):
            row = extended_json.plain(row)
    if row is not None and not isinstance(row, OBJECT):
        raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: {name} is an object, not {named(row)}", place=f"/{name}")
    return row


def _key(key: Message | None) -> Mapping[str, Any] | None:
    """Return the members of a message's key; None if it is not an object, because any other key names no columns."""
    try:
        members = None if key is None else parsed(key, _WHAT)
    except EventError:
        return None
    if isinstance(members, OBJECT) and is_enveloped(members):
        members = members["payload"]
    return members if isinstance(members, OBJECT) and members else None


def _is_whole(collection: str, whole_rows: Collection[str]) -> bool:
    return collection in whole_rows or "*" in whole_rows


def _typed(row: Any, schema: Any) -> Any:
    """Return a row with its values as its schema types them, and decimals that have their scale as numbers."""
    if row is None:
        return None
    made = connect.row(row, schema, _PLACEHOLDERS.says)
    return {name: scaled(value, row[name], _PLACEHOLDERS.says) for name, value in made.items()}


def _carried(row: Mapping[str, Any], key: Collection[str] | None, schema: Any, connector: str | None = None) -> Mapping[str, Any]:
    """Return the reliable part of an old row: all of it, or only its key and the values that are not filled in."""
    if connector == "sqlserver":
        # It logs all values except large ones, which are null.
        return {name: value for name, value in row.items() if value is not None}
    names = KEYS if key is None else key
    blank = {*filled_in(row, schema)}
    # If PostgreSQL sends only the key, all other columns are blank. So with one that is not, the row is whole.
    if any(name not in names and name not in blank for name in row):
        if key is not None and connector not in CELLS and blank.isdisjoint(key):
            return row
        # The identity is an index, or `message.key.columns` has a column that it lacks: so the key may be blank, too.
        names = ()
    return {name: value for name, value in row.items() if name in names or name not in blank}


def _changes(record: _Record) -> list[Keyed]:
    kind, collection, ts, key = record.kind, record.collection, record.ts, record.key
    data, missing, unset = _known(record.data, "after" in record.may_be_unset)
    before, *missing_before = _known(record.before, "before" in record.may_be_unset)
    if data is not None and before is not None and missing:
        # The new row marks these values as unchanged, so take them from the old row.
        data |= {name: before[name] for name in missing if name in before}
        missing = [name for name in missing if name not in before]
    missing += unset
    if kind == "delete":
        return [(change(kind, collection, before=before, ts=ts), _values(key, before))]
    if data is None:
        return [(without_document(kind, collection, before=before, ts=ts), _values(key, None))]
    if kind == "update" and before is not None and key is not None and is_moved(key, before, data):
        gone = change("delete", collection, before=before, ts=ts)
        made = change("insert", collection, data=data, unknown=missing, ts=ts)
        return [(gone, [before.get(name) for name in key]), (made, [data.get(name) for name in key])]
    if kind == "insert":
        return [(change(kind, collection, data=data, unknown=missing, ts=ts), _values(key, data))]
    event = change(kind, collection, data=data, before=before, unknown=missing, ts=ts)
    if before is not None and (untold := {*missing, *chain(*missing_before)} - before.keys()):
        event["unknown"] = [*event.get("unknown", ()), *(encode_pointer(("before", name)) for name in sorted(untold))]
    return [(event, _values(key, data))]


def _known(row: Mapping[str, Any] | None, may_be_unset: bool) -> tuple[dict[str, Any] | None, list[str], list[str]]:
    """Return the columns of a row that it carries, and the names of those with a placeholder, and of those that may be unset."""
    if row is None:
        return None, [], []
    known: dict[str, Any] = {}
    missing, unset = [], []
    for name, value in row.items():
        kind = type(value)
        if value is None and may_be_unset:
            unset.append(name)
        elif kind in _NO_PLACEHOLDERS or (kind is str and len(value) < _PLACEHOLDERS.shortest):
            known[name] = value
        elif _is_unavailable(value):
            missing.append(name)
        else:
            known[name] = value
    return known, missing, unset


_NO_PLACEHOLDERS: Final = (int, bool, type(None), float, Number)


def _is_unavailable(value: Any) -> bool:
    """Return whether a value is a placeholder or contains one."""
    if isinstance(value, str):
        return _PLACEHOLDERS.says(value)
    rest = [value]
    while rest:
        each = rest.pop()
        if _PLACEHOLDERS.says(each):
            return True
        if isinstance(each, list | Mapping):
            rest += each.values() if isinstance(each, Mapping) else each
    return False


def _values(key: Mapping[str, Any] | None, row: Mapping[str, Any] | None) -> Sequence[Any] | None:
    """Return the values of a record's key: those of the message's key, else the row's `id` or `_id`."""
    if key is not None:
        return list(key.values())
    value = next((row[name] for name in ("id", "_id") if row.get(name) is not None), None) if row is not None else None
    return None if value is None else [value]
