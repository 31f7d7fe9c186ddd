"""The options of a format: properties of its tables that a record does not show.

```python
{"debezium": {"tables": {"shop.orders": {"identity": "full"}}}}     # ALTER TABLE shop.orders REPLICA IDENTITY FULL
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from streamer.errors import ConfigError
from streamer.events.layout import MAX_TABLES, MAX_TEXT_BYTES, EventLayout
from streamer.model import is_unicode

#: The formats whose records may lack values of a row.
FORMATS: Final = ("debezium", "maxwell", "dms", "wal2json", "supabase", "hasura", "sequin")
#: The rows that the updates and deletes of a table have: as much as the format shows, or all columns.
IDENTITIES: Final = ("default", "full")
_SHAPE: Final = '{FORMAT: {"tables": {TABLE: {"identity": "full"}}}}'

Fault = tuple[tuple[str, ...], str]


def faults(options: Any, name: str | None) -> Iterator[Fault]:
    """Yield the faults of the options for a format, each with the names that lead to it."""
    if not isinstance(options, Mapping):
        yield (), f"expected {_SHAPE}, not {type(options).__name__}"
        return
    for of, members in options.items():
        if of not in FORMATS:
            yield (str(of),), f"no format with options; expected one of {', '.join(FORMATS)}"
        elif name not in FORMATS:
            yield (of,), f"expected the setting format: {of} next to it; a layout has whole_rows"
        elif of != name:
            yield (of,), f"events have the format {name}, so that only {name} can have options"
        elif (
            not isinstance(members, Mapping) or members.keys() - {"tables"} or not isinstance(members.get("tables", {}), Mapping)
        ):
            yield (of,), f"expected {_SHAPE}"
        else:
            yield from _faults_of_tables(of, members.get("tables", {}))


def _faults_of_tables(of: str, tables: Mapping[Any, Any]) -> Iterator[Fault]:
    if len(tables) > MAX_TABLES:
        yield (of, "tables"), f"{len(tables)} tables; at most {MAX_TABLES} are allowed"
    for table, members in tables.items():
        at = (of, "tables", str(table))
        if not isinstance(table, str) or not table or not is_unicode(table) or len(table.encode()) > MAX_TEXT_BYTES:
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
    for steps, reason in faults(options, name):
        raise ConfigError(reason, place=".".join(("format_options", *steps)))
    tables = {} if name is None else options.get(name, {}).get("tables", {})
    whole = tuple(table for table, members in tables.items() if members["identity"] == "full")
    return replace(layout, whole_rows=whole) if whole else layout
