"""Tables by name, of any catalog and format: read, and written by streams; the format decides how often a row can appear.

| format | a micro-batch that Spark repeats is written |
|---|---|
| Delta | once: the transaction has the stream and the batch (`txnAppId`, `txnVersion`), and a second one has no effect |
| Iceberg | once: its snapshot has both in its summary, which is checked before |
| any other | again |

Invariant: the mark of a batch is committed with its rows, or neither is. So neither a `MERGE` nor a key is needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from pyspark.sql import functions as F  # noqa: N812

from streamer.errors import ConfigError
from streamer.spark.schema import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

log: Final = logging.getLogger("streamer.spark")

_PART: Final = r"`(?:[^`]|``)+`|\w+"
#: `orders`, `shop.orders`, ``catalog.`my db`.orders``.
NAME: Final = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")
#: Delta by its path, as SQL has it.
_BY_PATH: Final = re.compile(r"delta\.`(?P<path>(?:[^`]|``)*[/:](?:[^`]|``)*)`", re.I)
#: In the summary of Iceberg's snapshots.
_STREAM, _BATCH = "streamer.stream", "streamer.batch"


def parts_of(name: str) -> list[str]:
    """Return the parts of a table's name, without quotes. Raises ConfigError for an invalid name."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"expected a name as catalog.schema.table, with backquotes around odd parts, not {name!r}", place="table"
        )
    parts = re.findall(_PART, name)
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]


def of_path(path: str) -> str:
    """Return the name of a Delta table that has only a path."""
    path = path if "/" in path or ":" in path else f"./{path}"
    return f"delta.`{path.replace('`', '``')}`"


def path_of(name: str) -> str | None:
    """Return the path in the name of a Delta table; None for other names."""
    match = _BY_PATH.fullmatch(name)
    return None if match is None else match["path"].replace("``", "`")


def full_name(spark: SparkSession, parts: list[str]) -> list[str]:
    """Return catalog, schemas and table of a name's parts, in lower case: one list for all names of one table."""
    if len(parts) == 1:
        parts = [spark.catalog.currentDatabase(), *parts]
    if len(parts) == 2 or not _is_catalog(spark, parts[0]):
        parts = [spark.catalog.currentCatalog(), *parts]
    return [part.lower() for part in parts]


def _is_catalog(spark: SparkSession, name: str) -> bool:
    return name.lower() == "spark_catalog" or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def read_table(spark: SparkSession, name: str, options: Mapping[str, str] | None = None, *, stream: bool = False) -> DataFrame:
    """Return a table as a DataFrame. Raises Spark's errors."""
    reader: Any = (spark.readStream if stream else spark.read).options(**(options or {}))
    path = path_of(name)
    frame: DataFrame = reader.table(name) if path is None else reader.format("delta").load(path)
    return frame


def active(name: str) -> DataFrame:
    """Return a table of the active session. Raises ConfigError without an active session."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError(f"{name} may be a table, but no Spark session is active", place="events")
    return read_table(spark, name)


def is_table(spark: SparkSession, name: str) -> bool:
    """Return whether a table exists."""
    path = path_of(name)
    if path is None:
        return spark.catalog.tableExists(name)
    try:
        spark.read.format("delta").load(path).schema  # noqa: B018  # reads the table's log
    except Exception as error:
        if "DELTA_TABLE_NOT_FOUND" in str(error) or "PATH_NOT_FOUND" in str(error) or "DELTA_PATH_DOES_NOT_EXIST" in str(error):
            return False
        raise
    return True


def format_of(spark: SparkSession, name: str) -> str:
    """Return the format of an existing table, for example `delta`."""
    if path_of(name) is not None:
        return "delta"
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Provider'").collect()
    return str(rows[-1]["data_type"]).lower() if rows else ""


def replace_table(frame: DataFrame, name: str, *, by: Sequence[str] = (), options: Mapping[str, str] | None = None) -> None:
    """Replace all rows of a table by these; an existing table keeps its partitioning.

    Raises:
        ConfigError: the table has other columns.
    """
    spark = frame.sparkSession
    if path_of(name) is not None:
        _save(_writer(frame, "overwrite", by, options), name)
    elif not is_table(spark, name):
        create_table(frame, name, by=by, options=options)
    elif format_of(spark, name) in ("delta", "iceberg"):
        frame.writeTo(name).options(**(options or {})).overwrite(F.lit(True))
    else:
        # In place of `saveAsTable`, which cannot replace such a table in Delta's catalog.
        there = spark.table(name).columns
        if sorted(there) != sorted(frame.columns):
            raise ConfigError(
                f"{name} has the columns {', '.join(there)}; the rows have {', '.join(frame.columns)}", place="table"
            )
        writer = frame.select(*map(column, there)).write.options(**(options or {}))
        writer.option("partitionOverwriteMode", "static").insertInto(name, overwrite=True)


def create_table(frame: DataFrame, name: str, *, by: Sequence[str] = (), options: Mapping[str, str] | None = None) -> None:
    """Make a table of these rows, in its catalog's default format. Raises Spark's error if it exists."""
    _save(_writer(frame, "errorifexists", by, options), name)


def _writer(frame: DataFrame, mode: str, by: Sequence[str], options: Mapping[str, str] | None) -> DataFrameWriter:
    writer = frame.write.mode(mode).options(**(options or {}))
    return writer.partitionBy(*by) if by else writer


def _save(writer: DataFrameWriter, name: str) -> None:
    path = path_of(name)
    if path is None:
        writer.saveAsTable(name)
    else:
        writer.format("delta").save(path)


@final
@dataclass(slots=True)
class TableWriter:
    """Adds each micro-batch to a table; see `write_to_table`."""

    table: str
    by: Sequence[str] = ()
    app_id: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    _format: str | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch.

        Raises:
            ConfigError: the table is of Delta or Iceberg, and the stream's id is unknown.
        """
        spark = frame.sparkSession
        if self._format is None:
            self._format = self._prepared(frame)
        if self._format == "delta":
            writer = _writer(frame, "append", self.by if path_of(self.table) is not None else (), self.options)
            marks = {"txnAppId": self._stream(spark), "txnVersion": str(batch_id)}
            _save(writer.format("delta").options(**marks), self.table)
        elif self._format == "iceberg":
            stream = self._stream(spark)
            if self._is_written(spark, stream, batch_id):
                log.info("%s has batch %s already", self.table, batch_id)
                return
            marks = {f"snapshot-property.{_STREAM}": stream, f"snapshot-property.{_BATCH}": str(batch_id)}
            frame.writeTo(self.table).options(**self.options, **marks).append()
        else:
            partitioned = [each.name for each in spark.catalog.listColumns(self.table) if each.isPartition]
            _save(_writer(frame, "append", partitioned, self.options).format(self._format), self.table)

    def _prepared(self, frame: DataFrame) -> str:
        """Return the table's format; create a missing table without rows, so that each batch is written in one way."""
        spark = frame.sparkSession
        if path_of(self.table) is not None:
            return "delta"
        if not is_table(spark, self.table):
            _save(_writer(frame.limit(0), "ignore", self.by, self.options), self.table)
        table_format = format_of(spark, self.table)
        if table_format not in ("delta", "iceberg"):
            log.warning("%s is a table of %s: a micro-batch that is repeated is written again", self.table, table_format)
        return table_format

    def _stream(self, spark: SparkSession) -> str:
        """Return a name of this stream that is valid as long as its checkpoint."""
        try:
            context: Any = spark.sparkContext
            query = context.getLocalProperty("sql.streaming.queryId")
        except Exception:
            # Spark Connect does not return the id of the stream.
            query = None
        if query is None and self.app_id is None:
            reason = "the stream has no name by which a repeated batch is recognized; pass one, and another with a new checkpoint"
            raise ConfigError(reason, place="app_id")
        return "-".join(filter(None, (self.app_id or "streamer", query)))

    def _is_written(self, spark: SparkSession, stream: str, batch_id: int) -> bool:
        # An Iceberg catalog caches a table for a while.
        spark.catalog.refreshTable(self.table)
        summaries = spark.table(f"{self.table}.snapshots").where(F.col(f"summary.`{_STREAM}`") == stream)
        (row,) = summaries.agg(F.max(F.col(f"summary.`{_BATCH}`").cast("bigint")).alias("last")).collect()
        return row["last"] is not None and row["last"] >= batch_id


def write_to_table(table: str, *, app_id: str | None = None, partition_by: Sequence[str] = (), **options: str) -> TableWriter:
    """Return a function for `foreachBatch` that adds each micro-batch's matches to a table.

        events.writeStream.foreachBatch(match_batches("subscriptions", write_to_table("shop.matches"))).start()

    A table of Delta or Iceberg gets each micro-batch once, however often Spark repeats it; a table of another format may get it
    again. A missing table is created, in the format of its catalog or `spark.sql.sources.default`.

    Args:
        table: `table`, `schema.table` or `catalog.schema.table`; a table of Delta may be ``delta.`/its/path` ``, too.
        app_id: distinguishes two writes of one stream into one table. Over Spark Connect, which hides the stream's id, it names
            the stream, and a new checkpoint needs a new one: its batches count from 0 again, and would be mistaken for batches
            that were written.
        partition_by: columns, for a table that is created.
        options: options of the writer.

    Raises:
        ConfigError: *table* is not a name of a table.
    """
    if path_of(table) is None:
        parts_of(table)
    return TableWriter(table, tuple(partition_by), app_id, options)
