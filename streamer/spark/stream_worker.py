"""The workers' code for subscriptions that change while a stream runs: each batch of rows names its snapshot.

```
 one row: snapshot, path ─ broadcast, once a micro-batch ─┐
 events ──────────────────────────────────────────────────┴─ cross join ─► events, each with the same snapshot ─► matches
```

Invariant: rows of one Arrow batch are of one micro-batch, so its first row has the snapshot of all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from streamer.core.snapshot import read_directory
from streamer.errors import SnapshotError
from streamer.spark.functions import Carried
from streamer.spark.snapshot_cache import MOST_OPEN, Opened
from streamer.spark.versions import find
from streamer.spark.worker import Batches, Output, Pass, Tallies, match_rows, named

#: Columns in addition to an event's.
SNAPSHOT: Final = "snapshot"
PATH: Final = "_streamer_path"
REFUSED: Final = "_streamer_refused"

_SNAPSHOTS: Final[OrderedDict[tuple[str, str, str, str], Opened]] = OrderedDict()


def by_looking(path: str) -> Callable[[Batches], Batches]:
    """Return the function that finds the current snapshot: it returns a row for each input row, and there is one."""

    def look_for_snapshot(batches: Batches) -> Batches:
        for batch in batches:
            version = find(path)
            rows = batch.num_rows
            columns = {SNAPSHOT: [version.digest] * rows, PATH: [version.path] * rows, REFUSED: [version.refused] * rows}
            yield pa.RecordBatch.from_pydict(columns)

    return look_for_snapshot


def by_version(request: Pass, functions: Carried | None = None) -> Callable[[Batches], Batches]:
    """Return the function for `mapInArrow` that matches each batch of events against the snapshot that its rows name."""

    def match_by_version(batches: Batches) -> Batches:
        request.begin()
        output: Output | None = None
        tallies = Tallies()
        first = 0
        for batch in (named(request, each) for each in batches):
            if not batch.num_rows:
                continue
            snapshot = _snapshot(batch.column(PATH)[0].as_py(), batch.column(SNAPSHOT)[0].as_py(), request.backend, functions)
            output = Output(request, batch.schema)
            yield from match_rows(request, output, snapshot.engine, batch, tallies, meet=snapshot.meet, number=first.__add__)
            first += batch.num_rows
        if output is not None and request.want == "all":
            yield from tallies.rows(output)

    return match_by_version


def _snapshot(path: str, digest: str, backend: str, functions: Carried | None) -> Opened:
    key = (path, digest, backend, "" if functions is None else functions.key)
    opened = _SNAPSHOTS.get(key)
    if opened is None:
        opened = Opened(path, functions)
        # The file may have changed since the micro-batch began, unless it is kept as versions are. This check comes after
        # opening: before it, the file could be replaced in between.
        if read_directory(path).digest != digest:
            raise SnapshotError("it was replaced while a micro-batch read it; the batch is to be repeated", path=path)
        _SNAPSHOTS[key] = opened
        while len(_SNAPSHOTS) > MOST_OPEN:
            _SNAPSHOTS.popitem(last=False)
    _SNAPSHOTS.move_to_end(key)
    return opened
