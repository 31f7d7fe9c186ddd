"""Find values that a record of a wire format lacks without a placeholder (semantics.md section 1, "Formats").

Contract: a value that the record may lack is unknown, never null and never missing. A blank value counts as known only if the
record itself shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from streamer.events import connect
from streamer.model import REST, BeyondFloat64, Pointer

#: Connectors of Debezium that write whole rows, so that a null in one is a null.
WHOLE: Final = frozenset(("db2", "mariadb", "mongodb", "mysql", "oracle"))
#: Those that write null for a column that a change did not set, and an object for one that it did.
CELLS: Final = frozenset(("cassandra", "scylla", "yugabytedb"))
#: Debezium's replacements for a missing value, in a column that may not be null; also zero, false and the empty text.
BLANKS: Final = frozenset(
    (
        *("0", "AA==", "{}", "[]", "P0D", "PT0S", "1970-01-01", "1970-01-01Z"),
        *("00:00:00", "00:00:00Z", "00:00:00.000000Z"),
        *("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z", "00000000-0000-0000-0000-000000000000"),
    )
)
#: Members that name a key at any depth: the record itself does not show which columns are its key.
KEYS: Final = ("id", "_id")

#: The formats whose changes say by the member `partial` that they may lack columns.
PARTIAL: Final = ("canal", "dynamodb", "mongodb", "wal2json", "cdc")


class Record(NamedTuple):
    """A record read with its layout.

    Attributes:
        is_whole: whether its layout declares that its rows are whole.
    """

    raw: Mapping[str, Any]
    type: str | None
    data_at: Pointer | None
    data: Mapping[str, Any] | None
    before_at: Pointer | None
    before: Mapping[str, Any] | None
    is_whole: bool = False


def not_carried(format_: str | None, record: Record) -> Iterator[Pointer]:
    """Yield pointers from the event's root to the values that a record may lack; a pointer may end in `REST`."""
    rule = _RULES.get((format_, record.type))
    if rule is not None and not (record.is_whole and format_ in ("debezium", "maxwell", "canal", "wal2json", "cdc")):
        yield from rule(record)


def is_blank(value: Any) -> bool:
    """Return whether a value may be Debezium's replacement for a missing value."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, BeyondFloat64) or (value and not (isinstance(value, str) and value in BLANKS)):
            return False
    return True


def _debezium_delete(record: Record) -> Iterator[Pointer]:
    """Yield columns that PostgreSQL sends only with REPLICA IDENTITY FULL. Debezium fills the missing columns."""
    # Cassandra has the key of a deleted row in `after`.
    side, at, row = "before", record.before_at, record.before
    if row is None:
        side, at, row = "after", record.data_at, record.data
    if row is None or at is None:
        return
    connector = _source(record, at).get("connector")
    if isinstance(connector, str) and connector in WHOLE:
        return
    if side == "after":
        yield (*at, REST)
    if connector == "sqlserver":
        yield from _nulls(at, row)
        return
    blank = filled_in(row, connect.columns_of(record.raw.get("schema")).get(side))
    # With an index as replica identity, its columns are there, and those of the primary key are not.
    is_other = any(name not in KEYS and name not in blank for name in row)
    yield from ((*at, name) for name in blank if is_other or name not in KEYS)


def filled_in(row: Mapping[str, Any], schema: Any) -> dict[str, None]:
    """Return the columns of a deleted row that Debezium may have filled in, in their order.

    Args:
        row: the row, with its values as the schema types them.
        schema: the schema of the row; None without one.
    """
    columns, defaults = connect.columns_of(schema), connect.defaults_of(schema)

    def is_default(name: str, value: Any) -> bool:
        # The default is as the source writes it.
        default = defaults[name]
        typed = connect.typed(default, columns[name])
        return any(equals(value, each) for each in (default, typed, connect.plain(typed)))

    return {name: None for name, value in row.items() if is_blank(value) or (name in defaults and is_default(name, value))}


def _debezium_write(record: Record) -> Iterator[Pointer]:
    """Yield the columns that are null although they may have a value."""
    for side, at, row in (("after", record.data_at, record.data), ("before", record.before_at, record.before)):
        if at is not None and row is not None and may_be_unset(_source(record, at), side, record.type):
            yield from _nulls(at, row)


def may_be_unset(source: Mapping[str, Any], side: str, kind: str | None) -> bool:
    """Return whether a null in a row may be a value that the connector does not have."""
    match source.get("connector"):
        case "sqlserver":
            # SQL Server logs no large value from before an update.
            return kind == "update" and side == "before"
        case "spanner":
            # A change stream has the columns that were changed, unless it captures whole rows.
            captured = source.get("value_capture_type")
            has_all = side == "after" and isinstance(captured, str) and captured.startswith("NEW_ROW")
            return kind == "update" and not has_all
        case connector:
            return isinstance(connector, str) and connector in CELLS


def _nulls(at: Pointer, row: Mapping[str, Any]) -> Iterator[Pointer]:
    return ((*at, name) for name, value in row.items() if value is None)


def _source(record: Record, document_at: Pointer) -> Mapping[str, Any]:
    """Return the `source` of a record of Debezium, next to its documents; empty without one."""
    root: Any = record.raw
    if len(document_at) == 2:
        root = root.get(document_at[0])
    source = root.get("source") if isinstance(root, Mapping) else None
    return source if isinstance(source, Mapping) else {}


def _dms_delete(record: Record) -> Iterator[Pointer]:
    """Yield the members of a deleted row that AWS DMS may lack: it writes the key, and null or no value for the rest."""
    if record.before is None or record.before_at is None:
        if record.is_whole:
            return
        if record.data is not None and record.data_at is not None:
            yield from _nulls(record.data_at, record.data)
            yield (*record.data_at, REST)
        return
    written = {name for name, value in (record.data or {}).items() if value is not None}
    if record.data_at is not None:
        yield record.data_at
    # An image with more than the key has the whole row.
    if not record.is_whole and not any(value is not None and name not in written for name, value in record.before.items()):
        yield from _nulls(record.before_at, record.before)


def _maxwell(record: Record) -> Iterator[Pointer]:
    """Yield the columns that a row may lack: its image may be MINIMAL or NOBLOB, which a record does not show."""
    if record.data is not None and record.data_at is not None:
        yield (*record.data_at, REST)


def _partial(record: Record) -> Iterator[Pointer]:
    """Yield the columns that a change may lack: one record does not show which columns its table has."""
    if record.raw.get("partial") is True:
        for at, document in ((record.data_at, record.data), (record.before_at, record.before)):
            if at is not None and document is not None:
                yield (*at, REST)


def _supabase(record: Record) -> Iterator[Pointer]:
    """Yield the columns that Realtime lists but leaves out: they are too large, or the client may not read them."""
    listed = record.raw.get("columns")
    columns = [column.get("name") for column in listed if isinstance(column, Mapping)] if isinstance(listed, list) else []
    names = [name for name in columns if isinstance(name, str)]
    errors = record.raw.get("errors")
    failed = isinstance(errors, list) and bool(errors)
    for at, row in ((record.data_at, record.data), (record.before_at, record.before)):
        if at is None or row is None:
            continue
        if failed and not names and not row:
            yield at
        yield from ((*at, name) for name in names if name not in row)


def equals(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: numbers by value, and true is not 1."""
    return type(one) is type(other) and one == other if isinstance(one, bool) or isinstance(other, bool) else one == other


_RULES: Final[Mapping[tuple[str | None, str | None], Callable[[Record], Iterator[Pointer]]]] = {
    ("debezium", "insert"): _debezium_write,
    ("debezium", "update"): _debezium_write,
    ("debezium", "delete"): _debezium_delete,
    ("dms", "delete"): _dms_delete,
    ("maxwell", "update"): _maxwell,
    ("maxwell", "delete"): _maxwell,
    **{(name, kind): _partial for name in PARTIAL for kind in ("insert", "update")},
    ("supabase", "insert"): _supabase,
    ("supabase", "update"): _supabase,
    ("supabase", "delete"): _supabase,
}
