"""A job's inputs and outputs: files, tables and Kafka, as the command line names them."""

from __future__ import annotations

import glob
import os
import posixpath
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

from streamer.core.snapshot import MAGIC, read_directory
from streamer.engine.engine import Engine
from streamer.errors import ConfigError
from streamer.spark.job.failures import Bad, diagnose
from streamer.spark.paths import URL, local_path
from streamer.spark.storage import Storage, mirrored
from streamer.spark.tables import NAME, create_table, full_name, is_table, of_path, parts_of, read_table, replace_table
from streamer.spark.versions import ENDING, find

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KAFKA: Final = re.compile(r"kafka://(?P<brokers>[^/\s]+)/(?P<topic>[^/\s]+)")
#: A file of lines that is larger is not read twice: Spark starts in less time.
_LOOKED_AT: Final = 16 * 1024 * 1024
_MAGIC: Final = frozenset("*?[{")
#: Schemes of one store, by their other names.
_STORES: Final = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss", "wasb": "wasbs"}
#: HDFS's default ports.
_PORTS: Final = {"hdfs": ":8020"}
#: The name under which Databricks mounts its store among the files of a machine.
_MOUNTED: Final = "dbfs"
_TABLE: Final = "table:/"
#: Endings of files, whatever their content: `events.csv` is never a table of a schema `events`.
_PACKED: Final = (".gz", ".zst", ".bz2", ".lz4", ".snappy")
_FILES: Final = (".parquet", ".jsonl", ".json", ".ndjson", ".csv", ".txt", ".avro", ".orc", *_PACKED)


class Format(StrEnum):
    """The kind of a place."""

    parquet = "parquet"
    jsonl = "jsonl"
    kafka = "kafka"
    #: A table by its name, in any format.
    table = "table"
    #: A Delta table by its path.
    delta = "delta"


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A place as the user named it, with its format.

    Attributes:
        text: as the user wrote it.
        format: None if only a look at the place can show it.
        options: of Spark's source or sink.
    """

    text: str
    format: Format | None
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    @property
    def address(self) -> str:
        """The text that `Address` reads: the place's own, or `table:/` and the parts of a name."""
        return _TABLE + "/".join(parts_of(self.text)) if self.format is Format.table else self.text

    @property
    def table(self) -> str | None:
        """The name of the table; None if the place is not one."""
        return self.text if self.format is Format.table else of_path(self.text) if self.format is Format.delta else None

    @property
    def name(self) -> str:
        """The name of a table without its schema."""
        return parts_of(self.text)[-1] if self.format is Format.table else self.text.rstrip("/").rpartition("/")[2]

    @property
    def kafka(self) -> tuple[str, str]:
        """Brokers and topic."""
        match = _KAFKA.fullmatch(self.text)
        if match is None:
            raise Bad(f"{self.text}: expected kafka://BROKER[:PORT][,BROKER...]/TOPIC")
        return match["brokers"], match["topic"]


def place(text: str, format: Format | None = None, options: Mapping[str, str] | None = None) -> Place:  # noqa: A002
    """Read a place. Raises Bad if it is invalid."""
    if not text.strip():
        raise Bad("a place with no name")
    if text.startswith("kafka:") or format is Format.kafka:
        made = Place(text, Format.kafka, options or {})
        _ = made.kafka
        return made
    if format is Format.table and not NAME.fullmatch(text):
        raise Bad(f"{text}: expected the name of a table, as catalog.schema.table")
    return Place(text, format or (Format.table if is_name(text) else _by_name(text)), options or {})


def shown(address: str) -> str:
    """Return the place of an address, as a user writes it."""
    return address.removeprefix(_TABLE).replace("/", ".") if address.startswith(_TABLE) else address


def is_name(text: str) -> bool:
    """Return whether a place names a table: `schema.table`, and no existing file or ending of files."""
    return "." in text and NAME.fullmatch(text) is not None and not text.lower().endswith(_FILES) and not os.path.lexists(text)


@final
@dataclass(frozen=True, slots=True)
class Address:
    """A place's location, in one form for all its spellings: links, `..`, `file:` or another scheme of the same store.

    Attributes:
        root: scheme and authority; both empty for this machine, or for a file system that Spark treats as this machine.
        names: those of the folders down to it, and its own; names of a place that is read may be patterns.
    """

    root: tuple[str, str]
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Address:
        """Read the text of a place."""
        local = local_path(text)
        if local is not None:
            names = _names(os.path.realpath(local))
            return cls((_MOUNTED, ""), names[1:]) if names[:1] == (_MOUNTED,) else cls(("", ""), names)
        url = URL.fullmatch(text)
        assert url is not None
        scheme = url["scheme"].lower()
        authority = (url["authority"] or "").lower().removesuffix(_PORTS.get(scheme, ":"))
        return cls((_STORES.get(scheme, scheme), authority), _names(posixpath.normpath(url["path"] or "/")))

    @classmethod
    def all_of(cls, pattern: str) -> set[Address]:
        """Read the text of an input place as a pattern of Hadoop's, or a wider one if Python has no such pattern."""
        # An escaped character becomes any character, a choice any text; braces around a slash or braces any number of folders.
        plain = re.sub(r"\\.", "?", re.sub(r"\{[^{}/]*\}", "*", pattern)).replace("[^", "[!")
        before, brace, _ = plain.partition("{")
        address = cls.of(before + "*" if brace else before)
        if address.root != ("", "") or not glob.has_magic(before):
            return {address}
        # A hit may be a link to another place.
        return {address, *map(cls.of, glob.iglob("/" + "/".join(address.names)))}

    def overlap(self, other: Address) -> Literal["is", "holds", "lies in"] | None:
        """Return how this place relates to another; None if they do not overlap."""
        (scheme, authority), (other_scheme, other_authority) = self.root, other.root
        # A missing authority means the default one, which may be equal to any other.
        if scheme != other_scheme or (authority and other_authority and authority != other_authority):
            return None
        if not all(name == each or fnmatchcase(name, each) for name, each in zip(self.names, other.names, strict=False)):
            return None
        if len(self.names) == len(other.names):
            return "is"
        return "holds" if len(self.names) < len(other.names) else "lies in"


def _names(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _by_name(text: str) -> Format | None:
    name = text.rstrip("/").lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    if name.endswith(".parquet"):
        return Format.parquet
    if name.endswith((".jsonl", ".json", ".ndjson")):
        return Format.jsonl
    if os.path.isdir(text):
        inside = {
            _by_name(entry.name)
            for entry in os.scandir(text)
            if not entry.name.startswith((".", "_")) and (entry.is_file() or "=" not in entry.name)
        }
        if len(inside - {None}) == 1:
            return next(iter(inside - {None}))
    return None


def read(spark: SparkSession, source: Place, *, stream: bool, keep: Sequence[str] = (), feed: bool = False) -> DataFrame:
    """Return the events of a place; those of JSON lines and Kafka are in a column `value`.

    Args:
        keep: the columns to keep; Kafka's headers are included if they are among them.
        feed: read the changes of a table.

    Raises:
        Bad: the place's format is unknown, or the place does not exist.
    """
    if source.table is not None:
        options = {"readChangeFeed": "true", **source.options} if feed else source.options
        return read_table(spark, source.table, options, stream=stream)
    reader = spark.readStream if stream else spark.read
    for name, value in source.options.items():
        reader = reader.option(name, value)
    if source.format is Format.kafka:
        brokers, topic = source.kafka
        reader = reader.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
        if "startingOffsets" not in source.options and "startingTimestamp" not in source.options:
            reader = reader.option("startingOffsets", "earliest")
        if "headers" in keep and "includeHeaders" not in source.options:
            reader = reader.option("includeHeaders", "true")
        return reader.load()
    if source.format is None:
        local = local_path(source.text)
        if local is not None and not _MAGIC.intersection(local) and not os.path.exists(local) and not exists(spark, source):
            raise Bad(f"--events {source}: no such file or directory")
        raise Bad(f"--events {source}: its name does not show its format; set --events-format parquet or jsonl")
    if source.format is Format.parquet:
        # A stream must know the columns before there is a file; a batch finds them by itself.
        return (reader.schema(spark.read.parquet(source.text).schema) if stream else reader).parquet(source.text)
    # As bytes: text that is not UTF-8 must be reported, not repaired. Lines end as JSON lines do, and blank lines are skipped.
    lines = reader.text(source.text, lineSep="\n").selectExpr("cast(value as binary) as value")
    return lines.where(r"length(value) > 0 and not (length(value) < 64 and trim(both ' \t\r' from cast(value as string)) = '')")


def check_subscriptions(path: str, options: Mapping[str, Any]) -> None:
    """Check subscriptions as far as this machine can, before Spark starts; lines are read if they are not many.

    Args:
        options: of `Engine`, for lines.

    Raises:
        Bad: the subscriptions do not exist.
        StreamerError: a snapshot is damaged, or subscriptions are bad.
        OSError: the subscriptions cannot be read.
    """
    local = local_path(path)
    if local is None:
        # Spark itself checks paths of other file systems.
        return
    if os.path.isdir(local) and is_snapshot(local):
        find(local)
    elif is_read_here(path):
        if is_snapshot(local):
            read_directory(local)
        elif os.path.getsize(local) <= _LOOKED_AT:
            Engine(**options, bloom={"enabled": False}).add_jsonl(local)
    elif not os.path.exists(local) and not _MAGIC.intersection(local):
        raise Bad(f"--subscriptions {path}: no such file or directory")


def read_subscriptions(spark: SparkSession, path: str) -> DataFrame | str:
    """Return subscriptions that were checked as `match_events` takes them: a path that the driver reads, or a DataFrame."""
    name = path.rstrip("/").lower()
    local = local_path(path)
    if local is not None:
        if os.path.isdir(local) and is_snapshot(local):
            return find(local).path
        if is_read_here(path):
            return local
    elif snapshots_elsewhere(spark, path):
        return find(mirrored(Storage(spark, path))).path
    if _by_name(local or path) is Format.jsonl or name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        return spark.read.text(path, lineSep="\n").where(r"trim(both ' \t\r' from value) != ''")
    return spark.read.parquet(path)


def snapshots_elsewhere(spark: SparkSession, path: str) -> bool:
    """Return whether subscriptions outside this machine are a snapshot, or a directory of versions."""
    if _MAGIC.intersection(path):
        return False
    try:
        return Storage(spark, path).is_snapshot()
    except ConfigError as error:
        raise Bad(f"--subscriptions {error.reason}") from None
    except FileNotFoundError:
        raise Bad(f"--subscriptions {path}: no such file or directory") from None


def is_read_here(path: str) -> bool:
    """Return whether subscriptions are a file that the driver reads itself: a snapshot, or lines."""
    local = local_path(path)
    return local is not None and os.path.isfile(local) and not path.lower().endswith(".parquet")


def is_snapshot(path: str) -> bool:
    """Return whether a path of the driver is a snapshot, or a directory of versions."""
    if os.path.isdir(path):
        return any(entry.endswith(ENDING) for entry in os.listdir(path))
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return path.endswith(ENDING)


def qualified(spark: SparkSession, text: str) -> str:
    """Return a place with its scheme and authority, as Spark resolves it; unchanged if Spark cannot resolve it.

    Args:
        text: as of `Place.address`.
    """
    if text.startswith("kafka:"):
        return text
    try:
        if text.startswith(_TABLE):
            return _TABLE + "/".join(full_name(spark, text.removeprefix(_TABLE).split("/")))
        context: Any = spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(text)
        return str(path.getFileSystem(context._jsc.hadoopConfiguration()).makeQualified(path).toString())
    except Exception:
        return text


def exists(spark: SparkSession, target: Place) -> bool:
    """Return whether a place exists; False if this cannot be checked, as for Kafka and over Spark Connect."""
    if target.format is Format.kafka:
        return False
    if target.format is Format.table:
        return is_table(spark, target.text)
    try:
        context: Any = spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(target.text)
        return bool(path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path))
    except Exception:
        return False


def check_writable(spark: SparkSession, target: Place) -> None:
    """Refuse a place that cannot be written, if that shows before the first write; over Spark Connect it does not.

    Raises:
        Bad: Spark has no such file system, or the folder that it would be made in cannot be written.
    """
    if target.format in (Format.kafka, Format.table):
        return
    try:
        context: Any = spark.sparkContext
        jvm, configuration = context._jvm, context._jsc.hadoopConfiguration()
    except Exception:
        return
    try:
        path = jvm.org.apache.hadoop.fs.Path(target.text)
        files = path.getFileSystem(configuration)
        uri = files.makeQualified(path).toUri()
    except Exception as error:
        raise Bad(f"{target}: Spark cannot write there: {diagnose(error)[1]}") from None
    if uri.getScheme() != "file":
        return
    folder = Path(uri.getPath())
    while not folder.exists():
        folder = folder.parent
    if folder.is_file() and str(folder) == uri.getPath():
        # The file is replaced, or refused because it exists.
        folder = folder.parent
    try:
        # Only a real write shows whether it is possible: permissions do not show a read-only mount, or /proc.
        os.rmdir(tempfile.mkdtemp(prefix=".streamer-", dir=folder))
    except OSError as error:
        raise Bad(f"{target}: {folder} cannot be written: {error.strerror or error}") from None


def write(frame: DataFrame, target: Place, *, by: Sequence[str] = (), overwrite: bool = False) -> None:
    """Write rows to a place. Raises Spark's errors."""
    if target.format is Format.kafka:
        to_kafka(frame, target)
        return
    if target.table is not None:
        put = replace_table if overwrite else create_table
        put(frame, target.table, by=by, options=target.options)
        return
    if target.format is Format.jsonl:
        frame = for_json(frame)
    writer = frame.write.mode("overwrite" if overwrite else "errorifexists").options(**target.options)
    if by:
        writer = writer.partitionBy(*by)
    if target.format is Format.jsonl:
        writer.json(target.text)
    else:
        writer.parquet(target.text)


def to_kafka(frame: DataFrame, target: Place) -> None:
    """Send each row as a JSON object.

    A match's key is its gateway, so that a gateway's matches keep their order. A rejected event has no key, because its gateway
    is unknown, and goes to any partition.
    """
    brokers, topic = target.kafka
    key = "cast(gateway_id as string)" if "gateway_id" in frame.columns else "cast(null as string)"
    rows = for_json(frame).selectExpr(f"{key} as key", "to_json(struct(*)) as value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", brokers).option("topic", topic).options(**target.options).save()


def for_json(frame: DataFrame) -> DataFrame:
    """Return rows whose event is text in JSON, for matches; bytes would become base64, as they do for rejected events.

    A matched event is well-formed UTF-8; a rejected event may be anything, and base64 preserves it.
    """
    if "subscription_id" not in frame.columns or "event" not in frame.columns:
        return frame
    return frame.withColumn("event", frame["event"].cast("string"))
