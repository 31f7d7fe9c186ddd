"""The parts of a set of subscriptions, as one file on every machine: the size of each, and the filter that guards it.

```
filters, one after another, in order of arrival       index, an Arrow file                        position of the index
│ bytes of a ShippedFilter │ ...                            │ part_number  tenant  collection  split  ...     │ 8 bytes
                                                       0     *       *           0      12
                                                       1     acme    orders      0      200000    sorted, so that a name is
                                                       2     acme    orders      1      199871    found in log2(n) looks
```

Under `grouped` each filter is followed by its part's compiled subscriptions: the bytes of a snapshot.

The file is mapped: a worker reads only the pages of the names and filters that it looks up. Rejected: filters in the closure of a
task (each task would unpickle all of them), and joining them to the events with Spark (a shuffle of the events, which the filters
should save).
"""

from __future__ import annotations

import os
import struct
import tempfile
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

import pyarrow as pa

from streamer.bloom import ShippedFilter
from streamer.engine.engine import Engine
from streamer.spark.snapshot_cache import travelled

#: Groups of the shuffle are `part_number * SALTS + salt`.
SALTS: Final = 4096
#: Bytes of filters that a process keeps open.
OPEN_BYTES: Final = 256 * 1024 * 1024
#: Replaces a name that is None: a filter is queried with the name that it was exported under.
ANY: Final = "any"

_INDEX: Final = pa.schema(
    {
        "tenant": pa.string(),
        "collection": pa.string(),
        "split": pa.int64(),
        "subscriptions": pa.int64(),
        "start": pa.int64(),
        "length": pa.int64(),
        "snapshot": pa.int64(),
    }
)
_FOOTER: Final = struct.Struct("<Q")


@final
class Writer:
    """Writes the file, with the parts in any order; keeps their names in memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: Final = open(path, "wb")  # noqa: SIM115  # closed by __exit__
        self._rows: Final[list[tuple[str, str, int, int, int, int, int]]] = []
        self._at = 0

    def add(self, tenant: str, collection: str, split: int, subscriptions: int, guard: bytes, snapshot: bytes = b"") -> None:
        """Write a part.

        Args:
            subscriptions: number of its subscriptions.
            guard: its filter; empty if it has none.
            snapshot: its compiled form; empty if it is compiled from texts.
        """
        self._rows.append((tenant, collection, split, subscriptions, self._at, len(guard), len(snapshot)))
        self._file.write(guard)
        self._file.write(snapshot)
        self._at += len(guard) + len(snapshot)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._file:
            if error is None:
                start = -(-self._at // 64) * 64
                self._file.write(bytes(start - self._at))
                self._rows.sort()
                columns = zip(*self._rows, strict=True) if self._rows else [()] * len(_INDEX)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, _INDEX, strict=True)]
                with pa.ipc.new_file(pa.PythonFile(self._file, "w"), _INDEX) as index:
                    index.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_INDEX))
                self._file.write(_FOOTER.pack(start))


@final
class Parts:
    """The file, mapped. It is not thread-safe; a worker runs one task at a time."""

    def __init__(self, path: str) -> None:
        with pa.memory_map(path) as file:
            self._data: Final = file.read_buffer()
        (start,) = _FOOTER.unpack(self._data[-_FOOTER.size :])
        index = pa.ipc.open_file(pa.BufferReader(self._data[start : -_FOOTER.size])).get_batch(0)
        self._names: Final = (index.column("tenant"), index.column("collection"))
        self._counts: Final = index.column("subscriptions")
        self._places: Final = (index.column("start"), index.column("length"))
        self._snapshots: Final = index.column("snapshot")
        self._ranges: dict[tuple[str, str], range] = {}
        self._open: Final[OrderedDict[int, tuple[ShippedFilter | None, int]]] = OrderedDict()
        self._open_bytes = 0

    def __len__(self) -> int:
        return len(self._counts)

    def numbers(self, tenant: str, collection: str) -> range:
        """Return the parts of one tenant (or `*`) and collection (or `*`); empty if there are no subscriptions to it."""
        name = (tenant, collection)
        present = self._ranges.get(name)
        if present is None:
            first = bisect_left(range(len(self)), name, key=self.name)
            end = first
            while end < len(self) and self.name(end) == name:
                end += 1
            if len(self._ranges) > 100_000:
                self._ranges.clear()
            present = self._ranges[name] = range(first, end)
        return present

    def name(self, part_number: int) -> tuple[str, str]:
        return self._names[0][part_number].as_py(), self._names[1][part_number].as_py()

    def subscriptions(self, part_number: int) -> int:
        """Return how many subscriptions a part has."""
        count: int = self._counts[part_number].as_py()
        return count

    def load(self, part_number: int, overrides: Mapping[str, Any]) -> Engine:
        """Open the subscriptions of a part that were compiled beforehand; *overrides* are as of `Engine.load`."""
        start, length = (place[part_number].as_py() for place in self._places)
        start += length
        # A separate map, of a file that loses its name at once: pages that events do not need stay out of memory.
        descriptor, path = tempfile.mkstemp(prefix="streamer-part-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._data[start : start + self._snapshots[part_number].as_py()])
            engine = Engine.load(path, **overrides)
        finally:
            os.unlink(path)
        engine.bloom.stop()
        return engine

    def may_match(self, part_number: int, events: pa.Array) -> pa.BooleanArray:
        """Query a part's filter: which of these events may match? All are of its own tenant and collection."""
        guard = self._filter(part_number)
        if guard is None:
            return pa.repeat(pa.scalar(True), len(events))
        tenant, collection = self.name(part_number)
        return guard.probe_arrow(events, tenant=label(tenant), collection=label(collection))

    def _filter(self, part_number: int) -> ShippedFilter | None:
        entry = self._open.get(part_number)
        if entry is None:
            start, length = (place[part_number].as_py() for place in self._places)
            data = self._data[start : start + length].to_pybytes()
            entry = self._open[part_number] = (ShippedFilter.load(data) if data else None, len(data))
            self._open_bytes += len(data)
            while self._open_bytes > OPEN_BYTES and len(self._open) > 1:
                self._open_bytes -= self._open.popitem(last=False)[1][1]
        self._open.move_to_end(part_number)
        return entry[0]


def label(name: str) -> str:
    """Return the name under which the filter of a part is exported and queried."""
    return ANY if name == "*" else name


def compiled(engine: Engine) -> bytes:
    """Return an engine as the bytes of a snapshot."""
    with tempfile.TemporaryDirectory(prefix="streamer-part-") as folder:
        path = Path(folder, "part")
        engine.save(path)
        return path.read_bytes()


_MAPPED: Final[OrderedDict[str, Parts]] = OrderedDict()


def mapped(name: str) -> Parts:
    """Return the parts that travel under a name, from this process's cache or from their file."""
    parts = _MAPPED.get(name)
    if parts is None:
        parts = _MAPPED[name] = Parts(travelled(name))
        while len(_MAPPED) > 2:
            _MAPPED.popitem(last=False)
    _MAPPED.move_to_end(name)
    return parts
