"""Match Arrow arrays and tables of events into Arrow batches: the columns, and the code that both backends share.

```
pyarrow Array, polars Series ...  ──────────────────►  arrays of texts  ──►  core.match_arrow  ──►  ArrowMatches
                                                       (no copy)             native: buffers in, buffers out
pyarrow Table, DataFrame ...  ──►  JSON of each row ──►                      reference: a Python object for each row
```

pyarrow is imported on first use; to install it: `pip install 'streamer-engine[arrow]'`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, final

from streamer.core.arrow_rows import texts_of_rows
from streamer.errors import EventError, Ignored, shortened
from streamer.extras import needed
from streamer.model import type_of

if TYPE_CHECKING:
    import pyarrow as pa

    from streamer.model import Event, Match

#: A column with more bytes is a `large_string`, because the offsets of a `string` have 32 bits.
TEXT_LIMIT: Final = 2**31 - 1

MATCHES: Final = ("row", "subscription_id", "gateway_id", "transition", "certain")
EVENTS: Final = ("event_id", "tenant", "collection", "type")
REJECTED: Final = ("row", "code", "detail", "position")
IGNORED: Final = ("row", "reason")

Column: TypeAlias = tuple[str, bytes | None, bytes | None, bytes, int]
"""Kind of column, validity, offsets, data, and how many are null."""
Batch: TypeAlias = tuple[int, Sequence[Column]]
"""How many rows, and the columns."""


class ArrowExportable(Protocol):
    """An object with Arrow's PyCapsule interface; one with `__arrow_c_stream__` is accepted, too."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...


@final
@dataclass(frozen=True, slots=True)
class ArrowMatches:
    """The results for the events of an array, each a `pyarrow.RecordBatch`.

    A column of strings is a `large_string` if its text is longer than 2 GiB.

    Attributes:
        matches: `row` (int64, the position of the event), `subscription_id`, `gateway_id`, `transition` (strings), `certain`
            (bool): one row for each match, by event, in no promised order within one.
        events: `event_id`, `tenant`, `collection`, `type` (strings): one row for each examined event, in order; null if the event
            has none; all are null if it was rejected or ignored. An id that is an integer is its digits.
        rejected: `row` (int64), `code` (an `EventCode`), `detail` (strings), `position` (int64, byte offset in the event, null if
            unknown): one row for each event that cannot be read, in order.
        ignored: `row` (int64), `reason` (string, an `Ignored`): one row for each ignored event, in order. A null row is ignored.
    """

    matches: pa.RecordBatch
    events: pa.RecordBatch
    rejected: pa.RecordBatch
    ignored: pa.RecordBatch

    def join(self, events: pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray | ArrowExportable) -> pa.Table:
        """Return a row for each match: the columns of its event, then those of `matches` after `row`.

        Args:
            events: the events that were matched. Events that are one array become the column `event`.

        Raises:
            ValueError: a column of the events has the name of a column of matches.
            IndexError: there are fewer events than were matched.
        """
        pa = import_pyarrow()
        table = _table(events, pa)
        if used := sorted({*table.column_names} & {*MATCHES[1:]}):
            raise ValueError(f"the events and the matches have a column {used[0]!r}; rename that of the events")
        if len(table) < len(self.events):
            raise IndexError(f"{len(self.events)} events were matched, and these are {len(table)}")
        # Arrow takes no rows of views.
        schema = pa.schema([field.with_type(_without_views(field.type, pa)) for field in table.schema], table.schema.metadata)
        joined = table.cast(schema).take(self.matches["row"])
        for name in MATCHES[1:]:
            joined = joined.append_column(name, self.matches[name])
        return joined


def import_pyarrow() -> Any:
    """Return pyarrow. Raises ModuleNotFoundError, which names the package to install."""
    with needed("events from Arrow need pyarrow", "arrow"):
        import pyarrow
    return pyarrow


def read_arrays(events: pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray | ArrowExportable) -> list[pa.Array]:
    """Return *events* as arrays of binary or string.

    Rows of a table become their JSON. Views and dictionaries are converted to plain texts; other arrays are not copied.

    Raises:
        TypeError: *events* is not an Arrow array of texts, nor a table, or a column cannot be written as JSON.
        ValueError: an array to be converted is invalid.
    """
    pa = import_pyarrow()
    return [_plain(array, pa) for array in _arrays(events, pa)]


def _arrays(events: Any, pa: Any) -> list[Any]:
    if isinstance(events, pa.ChunkedArray):
        return list(events.chunks)
    if isinstance(events, pa.Array):
        return [events]
    if hasattr(events, "__arrow_c_stream__"):
        # A table is exported as arrays of structs.
        return list(pa.chunked_array(events).chunks)
    if hasattr(events, "__arrow_c_array__"):
        return [pa.array(events)]
    made = "pyarrow.array(events, pyarrow.binary()) makes one"
    raise TypeError(f"events are an Arrow array, not {type_of(events)}; {made}")


def _table(events: Any, pa: Any) -> Any:
    """Return events as a table; those of one array are its column `event`."""
    if isinstance(events, pa.Table):
        return events
    arrays = _arrays(events, pa)
    if arrays and pa.types.is_struct(arrays[0].type):
        return pa.Table.from_batches(map(pa.RecordBatch.from_struct_array, arrays))
    return pa.table({"event": pa.chunked_array(arrays, arrays[0].type if arrays else pa.binary())})


def _without_views(kind: Any, pa: Any) -> Any:
    """Return a type with plain texts in place of views."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type, pa)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_without_views(kind.value_type, pa)))
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)


def _plain(array: Any, pa: Any) -> Any:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    types = pa.types
    if types.is_binary(array.type) or types.is_string(array.type):
        return array
    if types.is_large_binary(array.type) or types.is_large_string(array.type):
        return array
    if types.is_null(array.type):
        return array.cast(pa.binary())
    if types.is_dictionary(array.type):
        array.validate(full=True)
        return _plain(array.dictionary_decode(), pa)
    if array.type in (pa.binary_view(), pa.string_view()):
        array.validate(full=True)
        return array.cast(pa.large_binary())
    if types.is_struct(array.type) or types.is_map(array.type):
        return texts_of_rows(array, pa)
    raise TypeError(f"events are a table, or an array of binary or string, not of {shortened(str(array.type))}")


@final
class Chunk(NamedTuple):
    """An Arrow array of texts, as the native core reads it; a missing buffer is None."""

    validity: Any
    offsets: Any
    data: Any
    offset: int
    length: int
    is_large: bool
    """Whether its offsets are of 64 bits."""


@final
class Columns(NamedTuple):
    """The results for the events of an array, as buffers; see `ArrowMatches`."""

    matches: Batch
    events: Batch
    rejected: Batch
    ignored: Batch
    addresses: tuple[int, int] | None
    """The lowest and the highest address that events were read at."""


def lend(arrays: Sequence[pa.Array]) -> list[Chunk]:
    """Return each array in the form that the native core reads."""
    types = import_pyarrow().types

    def is_large(array: Any) -> bool:
        return bool(types.is_large_binary(array.type) or types.is_large_string(array.type))

    def chunk(array: Any) -> Chunk:
        validity, offsets, data = array.buffers()
        return Chunk(validity, offsets, data, array.offset, len(array), is_large(array))

    return list(map(chunk, arrays))


def make_batches(*batches: tuple[Sequence[str], Batch]) -> list[pa.RecordBatch]:
    """Return a batch for each pair of names and columns, without copying the columns' buffers."""
    pa = import_pyarrow()
    return [_batch(pa, names, *batch) for names, batch in batches]


def _batch(pa: Any, names: Sequence[str], length: int, columns: Sequence[Column]) -> Any:
    kinds = {"int64": pa.int64(), "string": pa.string(), "large_string": pa.large_string(), "bool": pa.bool_()}
    arrays = []
    for kind, validity, offsets, data, nulls in columns:
        parts = [validity, data] if offsets is None else [validity, offsets, data]
        buffers = [None if part is None else pa.py_buffer(part) for part in parts]
        arrays.append(pa.Array.from_buffers(kinds[kind], length, buffers, nulls))
    return pa.RecordBatch.from_arrays(arrays, list(names))


def texts(arrays: Sequence[pa.Array]) -> Iterator[bytes | None]:
    """Yield each row as bytes.

    Raises:
        ValueError: an array has invalid buffers.
    """
    pa = import_pyarrow()
    for array in arrays:
        is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        # As binary, because UTF-8 is checked for each event.
        plain = array.view(pa.large_binary() if is_large else pa.binary())
        plain.validate(full=True)
        yield from (value.as_py() for value in plain)


@final
@dataclass(slots=True)
class Rows:
    """Builds batches row by row."""

    matches: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    rejected: list[tuple[Any, ...]] = field(default_factory=list)
    ignored: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, event: Event, matches: Sequence[Match]) -> None:
        """Add a valid event and its matches."""
        row = len(self.events)
        self.events.append((None if event.id is None else str(event.id), event.tenant, event.collection, event.type))
        self.matches += [(row, each.subscription_id, each.gateway_id, each.transition, each.certain) for each in matches]

    def reject(self, error: EventError) -> None:
        """Add a rejected event."""
        place = f"{shortened(error.place)}: " if error.place else ""
        self.rejected.append((len(self.events), error.code.value, place + error.reason, error.offset))
        self.events.append((None,) * len(EVENTS))

    def ignore(self, reason: Ignored) -> None:
        """Add an ignored event."""
        self.ignored.append((len(self.events), reason.value))
        self.events.append((None,) * len(EVENTS))

    def batches(self) -> ArrowMatches:
        """Return the batches."""
        pa = import_pyarrow()
        kinds = {"row": pa.int64(), "certain": pa.bool_(), "position": pa.int64()}

        def batch(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Any:
            columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(names)
            types = [kinds[name] if name in kinds else _string(column, pa) for name, column in zip(names, columns, strict=True)]
            return pa.RecordBatch.from_arrays(list(map(pa.array, columns, types)), list(names))

        return ArrowMatches(
            batch(MATCHES, self.matches),
            batch(EVENTS, self.events),
            batch(REJECTED, self.rejected),
            batch(IGNORED, self.ignored),
        )


def _string(column: Sequence[str | None], pa: Any) -> Any:
    size = sum(len(text.encode()) for text in column if text is not None)
    return pa.large_string() if size > TEXT_LIMIT else pa.string()
