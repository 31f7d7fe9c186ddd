"""Functions that run in Spark's Python workers: batches of events in, batches of matches out, as Arrow, without an object a row.

```
batch of events ─► an engine of the sections met so far ─► matches, by row ─► take: event_id, tenant, ... ─► batch of matches
                        ▲ a new pair (tenant, collection): its section is opened, in place in the file
```

Only finding a file that travelled with the job needs pyspark. Each function that `mapInArrow` runs has its own name, because
Spark's pages and plans show it.

Invariant: the output of a task depends only on its rows, in their order, so a task may run again, or twice at once (speculation),
on any worker. A process keeps only a cache by digest from one task to the next.

Cost: a worker's memory is the sections that it met, one batch of Spark's (`spark.sql.execution.arrow.maxRecordsPerBatch`), and
65,536 matches, or those of one event that has more. It does not grow with the partition: the core stops after this many matches,
and the batch continues after that event. Columns that matches carry (`keep_event`, `keep`) are written in pieces of about
`BYTES_AT_ONCE`. Rejected: cutting batches by the number of matches of earlier events; a file that is sorted by tenant or
collection has no matches for a long time, and then a thousand for each event.
"""

from __future__ import annotations

import socket
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, Literal, TypeAlias, final

import pyarrow as pa
import pyarrow.compute as pc

from streamer import _backend
from streamer.core.arrow import ArrowMatches
from streamer.engine.engine import Engine
from streamer.errors import BackendError, EventCode, EventError, StreamerError, shortened
from streamer.events.layout import EventLayout
from streamer.spark.functions import Carried
from streamer.spark.snapshot_cache import Listed, Opened, opened, sweep

Want: TypeAlias = Literal["matches", "rejected", "all"]
Batches: TypeAlias = Iterator[pa.RecordBatch]
Number: TypeAlias = Callable[[int], int]
"""Maps a row of a batch to its row of the task."""

#: Kinds of rows.
MATCH: Final = 0
REJECTED: Final = 1
TALLY: Final = 2

MATCHES: Final = ("event_id", "tenant", "collection", "type", "subscription_id", "gateway_id", "transition", "certain")
REJECTION: Final = ("event", "code", "detail", "position")
COUNTS: Final = ("events", "matched", "matches", "rejected", "ignored", "pruned", "shuffled")
RESERVED: Final = frozenset({"kind", *MATCHES, *REJECTION, *COUNTS})

#: The name of the column of events in a worker's input.
EVENT: Final = "_streamer_event"

#: Rows of a result that are made at once, plus the rest of the last event's. Fewer cost more, because Spark's thread and the
#: worker then take turns on a core more often; more gain no speed.
ROWS_AT_ONCE: Final = 65_536
#: About the most bytes of texts that the matches of one batch carry; a single row may carry more.
BYTES_AT_ONCE: Final = 32 * 1024 * 1024
#: The counts are emitted after this many (tenant, collection) pairs.
MOST_TALLIES: Final = 10_000

_ARROW: Final[dict[str, pa.DataType]] = {
    "kind": pa.int8(),
    "certain": pa.bool_(),
    "position": pa.int64(),
    **dict.fromkeys(COUNTS, pa.int64()),
}


@final
@dataclass(frozen=True, slots=True)
class Pass:
    """The settings of one pass over the events.

    Attributes:
        event_col: the events' column.
        keep: columns that matches and rejected events carry.
        want: `matches`, `rejected` (matching is skipped), or `all`: both and counts; the column `kind` distinguishes them.
        fail: the first event that cannot be read ends the job.
        backend: the backend that a worker must run.
        batch_size: at most this many events are matched at once; None for the engine's setting, or else as many as make
            `ROWS_AT_ONCE` matches.
        gone: files of earlier jobs, of which this machine may have copies.
    """

    event_col: str
    keep: tuple[str, ...]
    keep_event: bool
    want: Want
    fail: bool
    backend: _backend.Backend
    batch_size: int | None = None
    gone: tuple[Listed, ...] = ()

    def begin(self) -> None:
        """Choose the backend for this task, and delete the `gone` files. Raises BackendError if it is missing."""
        choose_backend(self.backend)
        sweep(self.gone)


def columns(want: Want, *, keep_event: bool) -> tuple[str, ...]:
    """Return the names of the columns of a pass, without the kept columns."""
    if want == "matches":
        return (*MATCHES, "event") if keep_event else MATCHES
    if want == "rejected":
        return REJECTION
    return ("kind", *MATCHES, *REJECTION, *COUNTS)


def inner(count: int) -> list[str]:
    """Return the names of *count* kept columns in a worker's input."""
    return [f"_streamer_{n}" for n in range(count)]


def named(request: Pass, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rename the kept columns to their names in the result."""
    names = dict(zip(inner(len(request.keep)), request.keep, strict=True))
    return batch.rename_columns([names.get(name, name) for name in batch.schema.names])


def choose_backend(backend: _backend.Backend) -> None:
    """Make every engine of this process run on a backend from now on.

    Raises:
        BackendError: it is the native one and this worker has none.
    """
    if backend not in _backend.available():
        raise BackendError(
            f"the worker on {socket.gethostname()} has no native core: install a wheel of Streamer that has one there, "
            "or pass backend='reference' for the reference in Python, which is exact but slow"
        )
    # A worker runs one task at a time; engines read this when they are made.
    _backend.__dict__["BACKEND"] = backend


@final
class Output:
    """Puts columns together as Spark expects them for a pass; missing columns are null."""

    def __init__(self, request: Pass, schema: pa.Schema) -> None:
        types = {**_ARROW, "event": schema.field(request.event_col).type}
        names = columns(request.want, keep_event=request.keep_event)
        self._schema: Final = pa.schema(
            [
                *(pa.field(name, types.get(name, pa.string())) for name in names),
                *(schema.field(name).with_nullable(True) for name in request.keep),
            ]
        )

    def batch(self, rows: int, parts: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Return a batch of *rows* rows; *parts* without a column in the pass are left out."""
        arrays = []
        for field in self._schema:
            part = parts.get(field.name)
            if part is None:
                part = pa.nulls(rows, field.type)
            elif part.type != field.type:
                part = part.cast(field.type)
            arrays.append(part)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@final
class Tallies:
    """Counts by tenant and collection, of one task."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str | None, str | None], list[int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, name: str, tenants: pa.Array, collections: pa.Array, numbers: pa.Array | None = None) -> None:
        """Add to a count: one for each row, or a number for each."""
        if not len(tenants):
            return
        if numbers is None:
            numbers = repeated(1, len(tenants), pa.int64())
        table = pa.table({"tenant": tenants, "collection": collections, "number": numbers})
        summed = table.group_by(["tenant", "collection"]).aggregate([("number", "sum")])
        at = COUNTS.index(name)
        for row in summed.to_pylist():
            self._counts.setdefault((row["tenant"], row["collection"]), [0] * len(COUNTS))[at] += row["number_sum"]

    def take(self) -> list[list[Any]]:
        """Return the counts, each row as tenant, collection and numbers, and reset them."""
        counted, self._counts = self._counts, {}
        return [[*name, *numbers] for name, numbers in counted.items()]

    def merge(self, row: Sequence[Any]) -> None:
        """Add a row that `take` returned."""
        tenant, collection, *numbers = row
        counts = self._counts.setdefault((tenant, collection), [0] * len(COUNTS))
        self._counts[tenant, collection] = [a + b for a, b in zip(counts, numbers, strict=True)]

    def rows(self, output: Output) -> Batches:
        """Return the counts as rows of a pass, and reset them."""
        if counted := self.take():
            named = dict(zip(("tenant", "collection", *COUNTS), zip(*counted, strict=True), strict=True))
            parts = {name: pa.array(values, _ARROW.get(name, pa.string())) for name, values in named.items()}
            yield output.batch(len(counted), {"kind": repeated(TALLY, len(counted), pa.int8()), **parts})


def refuse(request: Pass, engine: Engine, batch: pa.RecordBatch, rejected: pa.RecordBatch, number: Number | None) -> None:
    """Raise the first of a batch's rejected events, if there is one, with its id and position.

    Args:
        number: returns the number in the task of a row of the batch; None if rows come from several tasks.
    """
    if not rejected.num_rows:
        return
    first = rejected.slice(0, 1).to_pylist()[0]
    at = first["row"]
    words = [] if number is None else [f"row {number(at):,}{of_partition()}, counted from 0"]
    if (own := _id_of(engine, batch.column(request.event_col).slice(at, 1))) is not None:
        words.append(f"id {shortened(own)!r}")
    words += [f"{name}={shortened(str(batch.column(name)[at].as_py()))}" for name in request.keep]
    reason = f"{first['detail']} ({', '.join([*words, ''])}on_error='reject' puts such events aside)"
    try:
        code = EventCode(first["code"])
    except ValueError:
        raise StreamerError(f"{first['code']}: {reason}") from None
    raise EventError(code, reason, offset=first["position"])


def _id_of(engine: Engine, event: pa.Array) -> str | None:
    """Return the id of a rejected event, if the id can be read."""
    layout = EventLayout(
        id=engine._options.layout.id,
        tenant=None,
        collection=None,
        type=None,
        ts=None,
        topic=None,
        data="/\0",
        before=None,
        unknown=None,
    )
    located, _ = Engine(layout=layout, limits=engine._options.limits).locate_arrow(event)
    own: str | None = located.column("event_id")[0].as_py()
    return own


def of_partition() -> str:
    """Return the DataFrame's partition of this task, as text."""
    try:
        from pyspark import TaskContext
    except ImportError:
        return ""
    task = TaskContext.get()
    return "" if task is None else f" of partition {task.partitionId()}"


def rejections(request: Pass, output: Output, batch: pa.RecordBatch, rejected: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows for rejected events; `row` is the position in the batch."""
    rows = rejected.column("row")
    parts = {
        "kind": repeated(REJECTED, len(rows), pa.int8()),
        "event": batch.column(request.event_col).take(rows),
        "code": rejected.column("code"),
        "detail": rejected.column("detail"),
        "position": rejected.column("position"),
        **{name: batch.column(name).take(rows) for name in request.keep},
    }
    return output.batch(len(rows), parts)


def matches(request: Pass, output: Output, batch: pa.RecordBatch, hits: pa.RecordBatch, events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows for matches; `row` is the position of the event in the batch."""
    rows = hits.column("row")
    parts = {
        "kind": repeated(MATCH, len(rows), pa.int8()),
        **{name: events.column(name).take(rows) for name in ("event_id", "tenant", "collection", "type")},
        **{name: hits.column(name) for name in ("subscription_id", "gateway_id", "transition", "certain")},
        **{name: batch.column(name).take(rows) for name in request.keep},
    }
    if request.keep_event:
        parts["event"] = batch.column(request.event_col).take(rows)
    return output.batch(len(rows), parts)


def pieces(request: Pass, batch: pa.RecordBatch, hits: pa.RecordBatch) -> Batches:
    """Cut matches into pieces that each carry about `BYTES_AT_ONCE` bytes."""
    names = (*request.keep, request.event_col) if request.keep_event else request.keep
    carried = [column for column in map(batch.column, dict.fromkeys(names)) if _may_be_long(column.type)]
    if not carried:
        yield hits
        return
    rows = hits.column("row")
    ends = pc.cumulative_sum(reduce(pc.add, [bytes_of(column).take(rows) for column in carried]))
    start, before = 0, 0
    while start < hits.num_rows:
        # The matches that end within the bound, and one at least.
        end = max(bisect_right(ends, before + BYTES_AT_ONCE, lo=start, key=lambda each: each.as_py()), start + 1)
        yield hits.slice(start, end - start)
        start, before = end, ends[end - 1].as_py()


def bytes_of(column: pa.Array) -> pa.Array:
    """Estimate the bytes of each value of a column, at any depth."""
    kind = column.type
    if _is_text(kind):
        return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
    if pa.types.is_struct(kind) and kind.num_fields:
        return reduce(pc.add, map(bytes_of, column.flatten()))
    if _is_list(kind):
        ends = column.offsets.cast(pa.int64())
        first = ends[0].as_py()
        inside = bytes_of(column.values.slice(first, ends[-1].as_py() - first))
        sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(inside)])
        at = pc.subtract(ends, first)
        return pc.subtract(sums.take(at[1:]), sums.take(at[:-1]))
    return repeated(8, len(column), pa.int64())


def _may_be_long(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_list(kind) or pa.types.is_struct(kind)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary))


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_map))


def match_some(engine: Engine, events: pa.Array, meet: Callable[[pa.RecordBatch], bool]) -> ArrowMatches:
    """Match events until there are `ROWS_AT_ONCE` matches; `ArrowMatches.events` has a row for each event that was examined."""
    while True:
        # At most this many, because each call looks at all events that it gets.
        result: ArrowMatches = engine.match_arrow(events.slice(0, ROWS_AT_ONCE), max_matches=ROWS_AT_ONCE)
        if not meet(result.events):
            return result


def match_rows(
    request: Pass,
    output: Output,
    engine: Engine,
    batch: pa.RecordBatch,
    tallies: Tallies,
    *,
    meet: Callable[[pa.RecordBatch], bool] = lambda met: False,
    number: Number | None = None,
    counting: bool = True,
) -> Batches:
    """Match the events of a batch, a few at once.

    Args:
        meet: gets the events that were matched (`ArrowMatches.events`), and returns whether the engine has loaded more
            subscriptions, so that they must be matched again.
        number: as of `refuse`.
        counting: also return rows for the events, and for the rejected among them, and not only for matches.
    """
    most = min(request.batch_size or engine._options.batch_size or ROWS_AT_ONCE, ROWS_AT_ONCE)
    start = 0
    while start < batch.num_rows:
        chunk = batch.slice(start, most)
        result = match_some(engine, chunk.column(request.event_col), meet)
        if request.fail:
            refuse(request, engine, chunk, result.rejected, number and partial(_after, number, start))
        start += result.events.num_rows
        for piece in pieces(request, chunk, result.matches):
            if piece.num_rows:
                yield matches(request, output, chunk, piece, result.events)
        if request.want == "all":
            if counting:
                if result.rejected.num_rows:
                    yield rejections(request, output, chunk, result.rejected)
                count(tallies, result.events, result.rejected)
            count_matches(tallies, result.events, result.matches)
            if len(tallies) > MOST_TALLIES:
                yield from tallies.rows(output)


def _after(number: Number, start: int, at: int) -> int:
    return number(start + at)


def count(tallies: Tallies, events: pa.RecordBatch, rejected: pa.RecordBatch) -> None:
    """Count the events of a batch, and the rejected and ignored among them, which have no tenant."""
    tenants, collections = events.column("tenant"), events.column("collection")
    tallies.add("events", tenants, collections)
    rows = rejected.column("row")
    tallies.add("rejected", tenants.take(rows), collections.take(rows))
    is_ignored = pc.and_not(pc.is_null(tenants), pc.is_in(pa.array(range(len(tenants)), pa.int64()), value_set=rows))
    tallies.add("ignored", tenants.filter(is_ignored), collections.filter(is_ignored))


def count_matches(tallies: Tallies, events: pa.RecordBatch, hits: pa.RecordBatch) -> None:
    """Count matches, and the events that have some."""
    counted = pc.value_counts(hits.column("row"))
    rows = counted.field("values")
    tenants, collections = events.column("tenant").take(rows), events.column("collection").take(rows)
    tallies.add("matched", tenants, collections)
    tallies.add("matches", tenants, collections, counted.field("counts"))


Sift: TypeAlias = Callable[[pa.RecordBatch, Tallies], pa.Array]
"""Counts the events of a batch that no subscription can match, and returns the rows of the others, in order."""


def by_snapshot(
    request: Pass,
    name: str,
    sieve: Callable[[], Sift] | None = None,
    functions: Carried | None = None,
    *,
    counting: bool = True,
) -> Callable[[Batches], Batches]:
    """Return the function that `mapInArrow` runs under broadcast.

    Args:
        sieve: makes the filter that drops events before the snapshot is queried and its sections are opened.
        counting: as of `match_rows`.
    """

    def match_by_snapshot(batches: Batches) -> Batches:
        request.begin()
        snapshot: Opened | None = None
        output: Output | None = None
        tallies = Tallies()
        sift = None if sieve is None else sieve()
        first = 0
        for batch in (named(request, each) for each in batches):
            if snapshot is None or output is None:
                # Only with the first event: an empty partition opens no file.
                snapshot, output = opened(name, request.backend, functions), Output(request, batch.schema)
            number: Number = first.__add__
            first += batch.num_rows
            if sift is not None:
                rows = sift(batch, tallies)
                batch, number = batch.take(rows), partial(_picked, number, rows)
            yield from match_rows(
                request, output, snapshot.engine, batch, tallies, meet=snapshot.meet, number=number, counting=counting
            )
        if output is not None and request.want == "all":
            yield from tallies.rows(output)

    return match_by_snapshot


def _picked(number: Number, rows: pa.Array, at: int) -> int:
    return number(rows[at].as_py())


def by_reading(request: Pass, options: Mapping[str, Any]) -> Callable[[Batches], Batches]:
    """Return the function that `mapInArrow` runs if the job needs only the rejected events."""

    def read_events(batches: Batches) -> Batches:
        request.begin()
        engine = Engine(**options)
        first = 0
        for batch in (named(request, each) for each in batches):
            _, rejected = engine.locate_arrow(batch.column(request.event_col))
            if request.fail:
                refuse(request, engine, batch, rejected, first.__add__)
            first += batch.num_rows
            if rejected.num_rows:
                yield rejections(request, Output(request, batch.schema), batch, rejected)

    return read_events


def repeated(value: int, times: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), times)
