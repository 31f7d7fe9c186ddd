"""The options of a format: properties of its tables that a record does not show.

```python
{"debezium": {"tables": {"shop.orders": {"identity": "full"}}}}     # ALTER TABLE shop.orders REPLICA IDENTITY FULL
{"debezium_unwrapped": {"table": "shop.orders"}}                    # of rows to which the transform adds no table
{"debezium_unwrapped": {"prefix": "_dbz_"}}                         # add.fields.prefix of the transform
```
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, final

from streamer.errors import ConfigError
from streamer.events.layout import ADDED, MAX_TABLES, MAX_TEXT_BYTES, EventLayout
from streamer.model import is_unicode

#: The formats whose records may lack values of a row.
FORMATS: Final = ("debezium", "debezium_unwrapped", "maxwell", "canal", "dms", "wal2json", "supabase", "hasura", "sequin")
#: The formats whose records may lack the name of their table.
UNNAMED: Final = ("debezium_unwrapped",)
#: The rows that the updates and deletes of a table have: as much as the format shows, or all columns.
IDENTITIES: Final = ("default", "full")
_SHAPE: Final = '{FORMAT: {"tables": {TABLE: {"identity": "full"}}}}'
_SHAPE_UNNAMED: Final = '{"tables": {TABLE: {"identity": "full"}}, "table": TABLE, "prefix": "__"}'

Fault = tuple[tuple[str, ...], str]


def faults(options: Any, names: Collection[str | None]) -> Iterator[Fault]:
    """Yield the faults of the options for some formats, each with the names that lead to it.

    Args:
        names: the formats of events; None for a layout.
    """
    if not isinstance(options, Mapping):
        yield (), f"expected {_SHAPE}, not {type(options).__name__}"
        return
    for of, members in options.items():
        if of not in FORMATS:
            yield (str(of),), f"no format with options; expected one of {', '.join(FORMATS)}"
        elif of not in names and not {*names} & {*FORMATS}:
            yield (of,), f"expected the setting format: {of} next to it; a layout has whole_rows"
        elif of not in names:
            named = ", ".join(filter(None, names))
            yield (of,), f"events have the format {named}, so that only {named} can have options"
        elif (
            not isinstance(members, Mapping)
            or members.keys() - ({"tables", "table", "prefix"} if of in UNNAMED else {"tables"})
            or not isinstance(members.get("tables", {}), Mapping)
        ):
            yield (of,), f"expected {_SHAPE_UNNAMED if of in UNNAMED else _SHAPE}"
        else:
            if "table" in members and (members["table"] == "*" or not _is_name(members["table"])):
                yield (of, "table"), f"expected the name of one table, of 1 to {MAX_TEXT_BYTES:,} bytes"
            if "prefix" in members and not _is_name(members["prefix"]):
                yield (of, "prefix"), f"expected the prefix of the added fields, of 1 to {MAX_TEXT_BYTES:,} bytes"
            yield from _faults_of_tables(of, members.get("tables", {}))


def _is_name(table: Any) -> bool:
    return isinstance(table, str) and table != "" and is_unicode(table) and len(table.encode()) <= MAX_TEXT_BYTES


def _faults_of_tables(of: str, tables: Mapping[Any, Any]) -> Iterator[Fault]:
    if len(tables) > MAX_TABLES:
        yield (of, "tables"), f"{len(tables)} tables; at most {MAX_TABLES} are allowed"
    for table, members in tables.items():
        at = (of, "tables", str(table))
        if not _is_name(table):
            yield at, f"expected the name of a table, of 1 to {MAX_TEXT_BYTES:,} bytes"
        elif not isinstance(members, Mapping) or members.keys() != {"identity"}:
            yield at, 'expected {"identity": "full"}'
        elif members["identity"] not in IDENTITIES:
            yield (*at, "identity"), f"expected one of {', '.join(IDENTITIES)}, not {members['identity']!r:.80}"


def with_options(layout: EventLayout, name: str | None, options: Mapping[str, Any] | None) -> EventLayout:
    """Return the layout of a format with its options.

    Args:
        name: the format, if it was named.

    Raises:
        ConfigError: the options are invalid; `place` begins with `format_options`.
    """
    if options is None:
        return layout
    for steps, reason in faults(options, (name,)):
        raise ConfigError(reason, place=".".join(("format_options", *steps)))
    tables = tables_of({} if name is None else options.get(name, {}))
    if tables.unnamed is not None:
        # A change has `unnamed`, an empty text, if its row does not name its table.
        braced = tables.unnamed.replace("{", "{{").replace("}", "}}")
        layout = replace(layout, collection=("/collection", "{/unnamed}" + braced))
    return replace(layout, whole_rows=tables.whole or layout.whole_rows, added_prefix=tables.prefix)


@final
class Tables(NamedTuple):
    """Properties of tables.

    Attributes:
        whole: the tables whose records have whole rows.
        unnamed: the table of records that do not name theirs.
        prefix: the beginning of the names of members that are no columns of a row.
    """

    whole: tuple[str, ...] = ()
    unnamed: str | None = None
    prefix: str = ADDED


def tables_of(options: Mapping[str, Any]) -> Tables:
    """Return what the options of one format declare."""
    whole = (table for table, members in options.get("tables", {}).items() if members["identity"] == "full")
    return Tables(tuple(whole), options.get("table"), options.get("prefix", ADDED))
