"""Match events in place if their tenants and collections are together already: cogroup without a shuffle of events.

```
part of the subscriptions ─► compiled on the cluster, once ─► a snapshot in the file of the parts, on every machine
                                                                    │ the worker opens a part when its events begin
 task    acme/orders  acme/orders  acme/orders │ acme/users  acme/users ─► matches
```

The grouping is not trusted, and a wrong one loses no match: the parts of an event are computed from the event, and a closed part
is opened again. This costs time, so it is counted: a task that reopens more parts than it has met ends with an error.

Invariant: the result of a task, that error included, depends only on its rows, in their order. So every part is closed at the end
of a task.

Cost: the driver passes the compiled subscriptions on, a part at a time, and each machine has the file of all of them. An event is
read twice, to find its tenant and collection, and to match it. Opening a part of 200,000 subscriptions takes 0.1 s; most of its
memory is the file's, mapped.

Rejected: Spark's own co-partitioning (`cogroup`, a join of bucketed tables). It works for bucketed tables and for a `repartition`
in the same plan, but not for a table of files by tenant and collection, or one that is clustered; and a group's events would be
in memory at once. Texts instead of compiled parts: compiling takes twenty times as long as opening.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from streamer.engine.engine import Engine
from streamer.errors import ConfigError
from streamer.spark.cogroup_worker import PART, Options, Router, Run, count_stopped, gathered, runs
from streamer.spark.parts import Parts, mapped
from streamer.spark.worker import (
    MOST_TALLIES,
    Batches,
    Number,
    Output,
    Pass,
    Tallies,
    count,
    match_rows,
    named,
    of_partition,
    refuse,
    rejections,
)

Name = tuple[str, str]

#: Names that stay open whatever their size: an event may match subscriptions of four (its tenant or `*`, its collection or `*`),
#: and at the border of two collections, two more.
LEAST_OPEN: Final = 6
#: Parts that may be opened again before their number is compared with the number of all parts.
AGAIN_UNASKED: Final = 100


def by_parts(request: Pass, options: Options, parts_name: str, most_open: int, *, prune: bool) -> Run:
    """Match events in place, each against the parts that it may match.

    Args:
        most_open: at most this many subscriptions are open in a worker, except for those of `LEAST_OPEN` names.
    """

    def match_by_parts(batches: Batches) -> Batches:
        request.begin()
        return gathered(_by_parts(request, options, mapped(parts_name), most_open, batches, prune=prune))

    return match_by_parts


def _by_parts(request: Pass, options: Options, parts: Parts, most_open: int, batches: Batches, *, prune: bool) -> Batches:
    router: Router | None = None
    output: Output | None = None
    tallies = Tallies()
    open_ = OpenParts(parts, options, most_open)
    first = 0
    for batch in (named(request, each) for each in batches):
        router = router or Router(options, parts, prune=prune)
        output = output or Output(request, batch.schema)
        events = batch.column(request.event_col)
        located, rejected = router.locate(events)
        number: Number = first.__add__
        if request.fail:
            refuse(request, router.engine, batch, rejected, number)
        numbers, picked = router.route(events, located)
        if request.want == "all":
            if rejected.num_rows:
                yield rejections(request, output, batch, rejected)
            count(tallies, located, rejected)
            count_stopped(tallies, located, picked)
        for run in runs(pa.record_batch({PART: numbers, "row": picked}), (PART,)):
            rows = run.column("row")
            engine = open_.engine(run.column(PART)[0].as_py(), partial(_row, first, rows))
            # Grouped events are mostly all of one collection.
            chunk = batch if len(rows) == batch.num_rows else batch.take(rows)
            yield from match_rows(request, output, engine, chunk, tallies, counting=False)
        if len(tallies) > MOST_TALLIES:
            yield from tallies.rows(output)
        first += batch.num_rows
    if output is not None and request.want == "all":
        yield from tallies.rows(output)


def _row(first: int, rows: pa.Array) -> int:
    return int(first + pc.min(rows).as_py())


@final
class OpenParts:
    """The open parts of a task; the least recently used are closed.

    Attributes:
        again: number of parts that were opened a second time.
    """

    def __init__(self, parts: Parts, options: Options, most: int) -> None:
        """Keep at most *most* subscriptions open, except for those of `LEAST_OPEN` names."""
        self._parts: Final = parts
        functions = options.get("cel_functions")
        self._engine_options: Final[dict[str, Any]] = {} if functions is None else {"cel_functions": functions}
        self._most: Final = most
        # The parts of one name are queried together, so they are open together.
        self._open: Final[OrderedDict[Name, dict[int, Engine]]] = OrderedDict()
        self._count = 0
        self._met: Final[set[int]] = set()
        self.again = 0

    def engine(self, part_number: int, row: Any = None) -> Engine:
        """Return a part's engine, and open it if necessary.

        Args:
            row: returns the row of the task that needs it.

        Raises:
            ConfigError: the task reopened more parts than it has met.
        """
        name = self._parts.name(part_number)
        engines = self._open.setdefault(name, {})
        self._open.move_to_end(name)
        if part_number not in engines:
            if part_number in self._met:
                self.again += 1
                if self.again > max(AGAIN_UNASKED, len(self._met)):
                    raise self._refused(name, row)
            self._met.add(part_number)
            self._count += self._parts.subscriptions(part_number)
            while self._count > self._most and len(self._open) > LEAST_OPEN:
                _, closed = self._open.popitem(last=False)
                self._count -= sum(map(self._parts.subscriptions, closed))
            engines[part_number] = self._parts.load(part_number, self._engine_options)
        return engines[part_number]

    def _refused(self, name: Name, row: Any) -> ConfigError:
        at = "" if row is None else f" at row {row():,}{of_partition()}, counted from 0"
        return ConfigError(
            f"the events do not come together by tenant and collection: {'/'.join(name)} came again{at}, and parts of the "
            f"subscriptions were opened {len(self._met) + self.again:,} times instead of {len(self._met):,}; sort them "
            "(sortWithinPartitions), or leave grouped out",
            place="grouped",
        )
