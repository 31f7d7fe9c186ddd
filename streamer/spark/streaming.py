"""Streams: the same matches, while events arrive and subscriptions change.

```
                         ┌─ the current snapshot? queried once, broadcast ───┐
 source ─► micro-batch n ┤                                                   ├─► matches, each with its snapshot ─► sink
                         └─ events ──────────────────────────────────────────┘
```

The module offers two ways, with different guarantees:

- `match_stream` returns a streaming DataFrame, for any sink. Every worker must be able to read the snapshots.
- `match_batches` is for `foreachBatch`: it ships each new snapshot itself, may shuffle (`cogroup`), and also returns the rejected
  events.

Invariant: a micro-batch is matched against one snapshot, the newest good one at its start; a bad snapshot never replaces a good
one. Micro-batches share no state: there is no state store, and any number of tasks take part.

Delivery: Spark repeats a micro-batch that was cut off, with the same events and the same id, perhaps against a newer snapshot.
So a sink that is idempotent by batch id (Spark's file sink, Delta, `write_by_gateway`) gets each match exactly once; any other,
Kafka among them, at least once.

Rejected: looking up the snapshot in each task (two tasks of a batch could differ); a timer in the driver (a batch would begin
with the old one and its repeated tasks end with the new one); stream-stream joins with the subscriptions (all of them would be
state).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

from streamer.core.snapshot import path_of
from streamer.errors import ConfigError, StreamerError
from streamer.events.layout import EventLayout
from streamer.spark.paths import on_driver
from streamer.spark.versions import Version, find

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamer._backend import Backend
    from streamer.spark.result import SparkMatches

log = logging.getLogger("streamer.spark")

Write = Callable[["DataFrame", int], object]
"""Takes a DataFrame and the id of the micro-batch, as `foreachBatch` calls it."""

_OWNER: Final = "_streamer"


def match_stream(
    events_df: DataFrame,
    subscriptions_path: str | os.PathLike[str],
    *,
    event_col: str = "value",
    on_error: Literal["reject", "fail"] = "reject",
    keep: Sequence[str] = (),
    keep_event: bool = False,
    want: Literal["matches", "all"] = "matches",
    observation: str | None = None,
    backend: Backend | None = None,
    batch_size: int | None = None,
    cel_functions: Mapping[str, Callable[..., Any]] | None = None,
) -> DataFrame:
    """Match a streaming DataFrame against subscriptions that change while it runs; returns one of matches, for any sink.

    Every micro-batch is matched against the newest good snapshot that was at the path at its start; its digest is in the column
    `snapshot`. Driver and workers read the path, so it must be on shared storage; without shared storage, use `match_batches`,
    which ships the snapshots. The stream is stateless. A micro-batch that finds no good snapshot, now or earlier, fails.

    Args:
        events_df: from any source; a DataFrame that does not stream is one micro-batch.
        subscriptions_path: a snapshot that is replaced by rename (`engine.save(path)`), or a directory of versions (`publish`).
        event_col: the column with the events, or `*`, as of `match_events`.
        on_error: `reject` leaves out events that cannot be read (see *want*); `fail` ends the stream with the first.
        keep: columns that are carried into every match, under their names.
        keep_event: with a column `event`.
        want: `all` returns one pass with a column `kind`; take it apart with `matches_of`, `rejected_of` and `tallies_of`.
        observation: a name under which each progress of the query reports `matches`, and `refused` snapshots that were skipped;
            with *want* `all` also `events`, `matched`, `rejected`.
        backend: the backend that workers must run; None for the driver's.
        batch_size: at most this many events are matched at once in a worker, as of `match_events`.
        cel_functions: Python functions that cel-python expressions may call, in every later snapshot too.

    Raises:
        SnapshotError: there is no good snapshot at the path, or it calls a function that is missing.
        ConfigError: a function cannot travel to the workers, or the path is of another file system.
        OSError: the path cannot be read on this machine.
        ValueError: a column is missing, or the result needs its name, or *batch_size* is under 1.
        TypeError: a column does not contain events.
    """
    from pyspark.sql import functions

    from streamer import _backend
    from streamer.engine.arguments import check_positive
    from streamer.spark import schema
    from streamer.spark.functions import carried, check
    from streamer.spark.stream_worker import PATH, REFUSED, SNAPSHOT, by_looking, by_version
    from streamer.spark.worker import COUNTS, EVENT, MATCH, Pass

    if on_error not in ("reject", "fail"):
        raise ValueError(f"on_error: expected 'reject' or 'fail', not {on_error!r}")
    if batch_size is not None:
        check_positive("batch_size", batch_size)
    if want not in ("matches", "all"):
        raise ValueError(f"want: expected 'matches' or 'all', not {want!r}")
    choice = schema.choose(events_df, event_col, keep, reserved=(SNAPSHOT,))
    path = os.path.abspath(on_driver(subscriptions_path, "use match_batches, which reads it through Spark"))
    registry = carried(cel_functions)
    check(find(path).path, registry)
    request = Pass(
        event_col=EVENT,
        keep=(*keep, SNAPSHOT, *((REFUSED,) if observation else ())),
        keep_event=keep_event,
        want=want,
        fail=on_error == "fail",
        backend=backend or _backend.BACKEND,
        batch_size=batch_size,
    )
    # One row, which each micro-batch queries again, because it is planned again; all tasks of a batch see the broadcast value.
    now = f"{SNAPSHOT} string, {PATH} string, {REFUSED} bigint"
    versions = events_df.sparkSession.range(0, 1, 1, 1).mapInArrow(by_looking(path), now)
    rows = choice.events_frame.crossJoin(functions.broadcast(versions))
    fields = {each.name: each for each in versions.schema.fields}
    of_snapshot = [fields[name] for name in request.keep[len(keep) :]]
    result = rows.mapInArrow(by_version(request, registry), schema.result(request, choice, of_snapshot))
    if observation is not None:
        sums = [functions.max(REFUSED).alias("refused")]
        if want == "all":
            sums += [functions.coalesce(functions.sum(name), functions.lit(0)).alias(name) for name in COUNTS]
        else:
            sums.append(functions.count(functions.lit(MATCH)).alias("matches"))
        result = result.observe(observation, *sums).drop(REFUSED)
    return result


@final
@dataclass(slots=True)
class BatchWriter:
    """Writes each micro-batch to a folder of its own, `PATH/batch_id=N/`, once; see `write_by_gateway`."""

    path: str
    format: str = "parquet"
    by: Sequence[str] = ("gateway_id",)
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch.

        Raises:
            StreamerError: another stream wrote the folder, so its ids would be mistaken for this stream's.
        """
        folder = f"{self.path.rstrip('/')}/batch_id={batch_id}"
        if self._is_written(frame.sparkSession, folder):
            log.info("%s exists already", folder)
            return
        if self.by:
            # Rows of one gateway come together, or each task would write a file for each gateway; a hot one is split again.
            frame = frame.hint("rebalance", *self.by)
        writer = frame.write.mode("overwrite").format(self.format).options(**self.options)
        (writer.partitionBy(*self.by) if self.by else writer).save(folder)

    def _is_written(self, spark: SparkSession, folder: str) -> bool:
        """Return whether this stream has written the folder completely; the first call claims the path for the stream."""
        try:
            context: Any = spark.sparkContext
            query = context.getLocalProperty("sql.streaming.queryId")
            jvm = context._jvm
            path = jvm.org.apache.hadoop.fs.Path
            files = path(self.path).getFileSystem(context._jsc.hadoopConfiguration())
        except Exception:
            # Spark Connect does not return the id of the stream: then the folder is written again, with the same result.
            return False
        if query is None:
            return False
        mark = path(self.path, _OWNER)
        if not files.exists(mark):
            # By rename, because a mark that a killed driver left incomplete would also stop its own stream.
            draft = path(self.path, f"{_OWNER}.{query}")
            written = files.create(draft, True)
            try:
                written.write(bytearray(query.encode()))
            finally:
                written.close()
            files.rename(draft, mark)
        opened = files.open(mark)
        try:
            owner = bytes(opened.readNBytes(1000)).decode(errors="replace")
        finally:
            opened.close()
        if owner != query:
            reason = "a new checkpoint counts its batches from 0 again; give it a folder of its own"
            raise StreamerError(f"{self.path} contains the output of the stream {owner}, but this is {query}: {reason}")
        return bool(files.exists(path(folder, "_SUCCESS")))


def write_by_gateway(path: str | os.PathLike[str], *, file_format: str = "parquet", **options: str) -> BatchWriter:
    """Return a function for `foreachBatch` that writes each micro-batch's matches by gateway: `PATH/batch_id=N/gateway_id=G/`.

    A micro-batch that Spark repeats is written once: a complete folder stays, a partial one is replaced. A folder belongs to one
    stream, that is, to one checkpoint.

    Args:
        path: any path that Spark can write.
        file_format: `parquet`, `json`, ...
        options: as of `DataFrameWriter`.
    """
    return BatchWriter(os.fspath(path), file_format, ("gateway_id",), options)


@final
@dataclass(frozen=True, slots=True)
class Settled:
    """A written micro-batch.

    Attributes:
        version: the snapshot it was matched against.
        tallies: the counts of the events of each tenant and collection, as `tallies_of` has them.
        codes: number of rejected events for each reason.
        layout: the layout of the events.
        seconds: duration of the micro-batch.
    """

    id: int
    version: Version
    tallies: Sequence[Mapping[str, Any]]
    codes: Mapping[str, int]
    layout: EventLayout
    seconds: float


@final
class BatchMatcher:
    """Matches each micro-batch; see `match_batches`.

    Attributes:
        version: the snapshot of the last micro-batch.
        refused: how many snapshots were skipped so far, each once.
    """

    def __init__(
        self,
        subscriptions_path: str | os.PathLike[str],
        write: Write,
        *,
        rejected: Write | None = None,
        settled: Callable[[Settled], object] | None = None,
        **options: Any,
    ) -> None:
        from streamer.spark.batch import check_options

        check_options(options)
        self._path = path_of(subscriptions_path)
        self._write = write
        self._rejected = rejected
        self._settled = settled
        self._options = options
        self.version: Version | None = None
        self.refused = 0
        self._matches: SparkMatches | None = None

    def __call__(self, events: DataFrame, batch_id: int) -> None:
        """Match one micro-batch and write it; Spark calls this."""
        from pyspark.sql import functions

        from streamer.spark.batch import match_events
        from streamer.spark.storage import mirrored, storage

        began = time.monotonic()
        place = storage(events.sparkSession, self._path)
        before, version = self.version, find(self._path if place is None else mirrored(place))
        if before is None or before.digest != version.digest:
            log.info("batch %s: subscriptions are %s, %s of them", batch_id, version.digest, version.subscriptions)
            self.refused += version.refused
        elif version.refused > before.refused:
            self.refused += version.refused - before.refused
        self.version = version
        named = functions.lit(version.digest).alias("snapshot")
        result = match_events(events, version.path, **self._options)
        # Release the previous batch only now, so that the workers keep a snapshot that both use.
        if self._matches is not None:
            self._matches.close()
        self._matches = result
        if self._rejected is None and self._settled is None:
            self._write(result.matches.select("*", named), batch_id)
            return
        # One pass over the events, whose parts are selected below.
        result.persist()
        try:
            self._write(result.matches.select("*", named), batch_id)
            bad = result.rejected.select("*", named)
            if self._rejected is not None:
                self._rejected(bad, batch_id)
            if self._settled is not None:
                tallies = [row.asDict() for row in result.tallies.collect()]
                codes = {}
                if any(row["rejected"] for row in tallies):
                    codes = {row["code"]: row["count"] for row in bad.groupBy("code").count().collect()}
                self._settled(Settled(batch_id, version, tallies, codes, result.layout, time.monotonic() - began))
        finally:
            result.unpersist()


def match_batches(
    subscriptions_path: str | os.PathLike[str],
    write: Write,
    *,
    rejected: Write | None = None,
    settled: Callable[[Settled], object] | None = None,
    **options: Any,
) -> BatchMatcher:
    """Return a function for `foreachBatch` that matches each micro-batch against the snapshot that is current at its start.

        events.writeStream.foreachBatch(match_batches("subscriptions.snapshot", write_by_gateway("out"))).start()

    Each new snapshot travels to the workers with Spark's files, so that only the driver must be able to read the path. A bad
    snapshot is logged, counted and skipped, and the one before stays in use.

    Args:
        subscriptions_path: a snapshot that is replaced by rename, or a directory of versions (`publish`), in any file system
            of Spark's.
        write: called with the matches, which have a column `snapshot`, and the id of the micro-batch.
        rejected: called with the events that could not be read, and the id of the micro-batch; without it they are left out.
        settled: called after a micro-batch was written, with its counts. It may be called again for one that Spark repeats.
        options: as of `match_events`.

    Raises:
        ConfigError: Spark Connect of PySpark 3.5, where the tasks of a micro-batch find no file of their session.
        TypeError: an option is unknown.
    """
    from streamer.spark.compat import batches_have_files

    if not batches_have_files():
        raise ConfigError(
            "match_batches does not work over Spark Connect before PySpark 4: use match_stream, whose workers read the path",
            place="subscriptions",
        )
    return BatchMatcher(subscriptions_path, write, rejected=rejected, settled=settled, **options)
