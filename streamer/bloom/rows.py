"""Query a shipped filter for the rows of an Arrow array: the answers of `ShippedFilter.ask`, without a Python object for each.

```
offsets │0│52│104│…      data │{"collection": …}{"collection": …}…        the array's buffers, queried by the core if installed
                                       │
bits    │1│0│1│…          row 17: an event with unknown values, queried here
```

Invariant: a row is False only if `ShippedFilter.ask` returns NO. An unreadable row is True: the matching engine reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streamer.bloom.answer import Answer
from streamer.errors import EventError
from streamer.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa

    from streamer import _native

Ask: TypeAlias = Callable[[bytes], Answer]
"""Asks for one event. Raises EventError."""

#: The rows per call, a multiple of 8: they are copied, and queried with the GIL released.
BLOCK: Final = 4096
#: The names of Arrow's types whose rows can be events; True if the type has 64-bit offsets.
_WIDE: Final = {"binary": False, "string": False, "large_binary": True, "large_string": True}


def probe(
    events: Any, ask: Ask | None, native: _native.ShippedFilter | None, tenant: str | None, collection: str | None
) -> pa.BooleanArray:
    """Return a boolean for each row: whether it may match.

    Args:
        events: an array, a chunked array, or any object that pyarrow converts to one.
        ask: the function of the filter; None if it always returns MAYBE.
        native: the same filter in the native core.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        TypeError: *events* is not an Arrow array, or its rows are not texts.
    """
    with needed("probe_arrow needs pyarrow", "arrow"):
        import pyarrow as pa
    if not isinstance(events, pa.Array | pa.ChunkedArray):
        if hasattr(events, "__arrow_c_array__"):
            events = pa.array(events)
        elif hasattr(events, "__arrow_c_stream__"):
            events = pa.chunked_array(events)
        else:
            raise TypeError(f"events is an array of Arrow, not {type(events).__name__}")
    if str(events.type) not in _WIDE:
        raise TypeError(f"events is an array of binary or string, not of {events.type}")
    if ask is None:
        return pa.array([True], pa.bool_()).take(pa.nulls(len(events), pa.int32()).fill_null(0))
    chunks = [events] if isinstance(events, pa.Array) else events.chunks
    answers = [
        _python(chunk, ask) if native is None else _native_rows(chunk, ask, native, tenant, collection) for chunk in chunks
    ]
    return answers[0] if len(answers) == 1 else pa.concat_arrays([pa.array([], pa.bool_()), *answers])


def _python(events: pa.Array, ask: Ask) -> pa.BooleanArray:
    import pyarrow as pa

    rows = _as_binary(events)
    return pa.array([row is None or _may_match(row, ask) for row in rows.to_pylist()], pa.bool_())


def _native_rows(
    events: pa.Array, ask: Ask, native: _native.ShippedFilter, tenant: str | None, collection: str | None
) -> pa.BooleanArray:
    import pyarrow as pa

    if len(events) == 0:
        return pa.array([], pa.bool_())
    wide = _WIDE[str(events.type)]
    valid, offsets, data = (None if buffer is None else memoryview(buffer).cast("B") for buffer in events.buffers())
    assert offsets is not None
    words = offsets.cast("q" if wide else "i")[events.offset : events.offset + len(events) + 1]
    bits, unknown = bytearray(), []
    for row in range(0, len(events), BLOCK):
        block = words[row : row + BLOCK + 1]
        part = memoryview(b"") if data is None else data[block[0] : max(block[0], block[-1])]
        passes, undecided = native.ask_rows(block.cast("B"), wide, part, valid, events.offset + row, tenant, collection)
        bits += passes
        unknown += [row + each for each in undecided]
    rows = _as_binary(events)
    for row in unknown:
        if _may_match(rows[row].as_py(), ask):
            bits[row // 8] |= 1 << row % 8
    return pa.BooleanArray.from_buffers(pa.bool_(), len(events), [None, pa.py_buffer(bytes(bits))])


def _as_binary(events: pa.Array) -> pa.Array:
    """Return the rows as bytes, because Arrow's strings may contain invalid UTF-8."""
    import pyarrow as pa

    return events.cast(pa.large_binary() if _WIDE[str(events.type)] else pa.binary())


def _may_match(event: bytes, ask: Ask) -> bool:
    try:
        return ask(event) is Answer.MAYBE
    except EventError:
        return True
