"""A function for SQL: which subscriptions does this value want?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamer import _backend
from streamer.core.arrow import ArrowMatches
from streamer.engine.engine import Engine
from streamer.spark import broadcast
from streamer.spark.compat import lists_udf
from streamer.spark.functions import Carried, carried
from streamer.spark.snapshot_cache import Opened, opened
from streamer.spark.worker import choose_backend, match_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(
    spark: SparkSession,
    subscriptions: Engine | str | os.PathLike[str],
    name: str = "streamer_match",
    *,
    backend: _backend.Backend | None = None,
    cel_functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Register a function of SQL that returns the ids of the matching subscriptions of an event, null for an unreadable event.

    ```sql
    SELECT value, streamer_match(value) AS wanted_by FROM events
    ```

    Its argument is a string; cast binary to one. It has the subscriptions of the moment: register again for later ones. A worker
    has the lists of about 65,536 matches at once, whatever the engine's `batch_size` is.

    Args:
        subscriptions: an engine, or the path of a snapshot on the driver.
        name: name of the function.
        backend: as of `match_events`.
        cel_functions: Python functions that the snapshot's cel-python expressions may call; an engine has its own.

    Returns:
        The function, for columns of DataFrames.

    Raises:
        TypeError: *subscriptions* has another type.
        SnapshotError: the file is not a snapshot, is damaged, or calls a function that is missing.
        ConfigError: a function cannot travel, or a path is of another file system.
    """
    if not isinstance(subscriptions, Engine | str | os.PathLike):
        raise TypeError(
            f"subscriptions: expected an Engine or the path of a snapshot, not {type(subscriptions).__name__}; "
            "engine.add_many takes the texts of a DataFrame"
        )
    shipped = broadcast.ship(spark, subscriptions, functions=carried(cel_functions))
    function = _function(shipped.name, backend or _backend.BACKEND, shipped.functions)
    return spark.udf.register(name, function)


def _function(file: str, backend: _backend.Backend, functions: Carried | None) -> Any:
    def ids(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        choose_backend(backend)
        for events in arrays:
            yield from ids_of(opened(file, backend, functions), events)

    return lists_udf(ids)


def ids_of(snapshot: Opened, events: pa.Array) -> Iterator[pa.ListArray]:
    """Yield lists of ids for a few events at a time: null if the event was rejected, empty if it was ignored."""
    start = 0
    while start < len(events):
        result = match_some(snapshot.engine, events.slice(start), snapshot.meet)
        start += result.events.num_rows
        yield _lists(result)


def _lists(result: ArrowMatches) -> pa.ListArray:
    # Matches come by event: the number of matches of each gives the end of its list.
    counted = pc.value_counts(result.matches.column("row"))
    numbers = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    ends: list[int | None] = list(accumulate((numbers.get(row, 0) for row in range(result.events.num_rows)), initial=0))
    # A null offset makes the list that begins there null; it is empty.
    for row in result.rejected.column("row").to_pylist():
        ends[row] = None
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), result.matches.column("subscription_id"))
