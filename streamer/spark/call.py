"""The subscriptions of a call, in any accepted form, and the options with which their events are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamer.cel_eval import Functions
from streamer.core.options import Options
from streamer.core.snapshot import MAGIC
from streamer.engine.engine import Engine
from streamer.errors import ConfigError
from streamer.spark import broadcast, cogroup
from streamer.spark.compat import is_frame
from streamer.spark.functions import carried
from streamer.spark.paths import on_driver
from streamer.spark.storage import Storage, storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Subscriptions: TypeAlias = "DataFrame | Engine | str | os.PathLike[str]"


@final
@dataclass(frozen=True, slots=True)
class Call:
    """Subscriptions in the caller's form, and the options of their engine."""

    spark: SparkSession
    #: A path leads to JSON lines; a DataFrame has the subscriptions in a column `text`.
    source: DataFrame | Engine | broadcast.Copy | Path | Storage
    options: dict[str, Any]

    @classmethod
    def of(cls, spark: SparkSession, source: Subscriptions, options: dict[str, Any]) -> Self:
        """Check the subscriptions, and copy a snapshot so that it cannot change.

        Args:
            options: options of `Engine`, by name; an engine and a snapshot have their own, which must not differ.

        Raises:
            ConfigError: options are invalid, or differ from those of the engine or snapshot.
            SnapshotError: a snapshot is damaged.
            OSError: a path cannot be read.
            TypeError: a source has another type.
        """
        if options.get("default") is not None:
            raise ConfigError("events of a DataFrame are JSON already", place="default")
        if isinstance(source, Engine):
            stored = {name: getattr(source._options, name) for name in source._options.__dataclass_fields__ if name != "default"}
            _same(options, stored, "the engine")
            return cls(spark, source, _travelling(stored))
        if isinstance(source, str | os.PathLike):
            place: Path | Storage | None = storage(spark, source)
            if isinstance(place, Storage):
                is_snapshot = place.begins_with(MAGIC)
            else:
                place = on_driver(source)
                with open(place, "rb") as file:
                    is_snapshot = file.read(len(MAGIC)) == MAGIC
            if is_snapshot:
                copy = broadcast.copy_of_any(spark, source)
                stored = {name: value for name, value in copy.directory.engine_options().items() if name != "default"}
                # Files never contain functions.
                functions = options.pop("cel_functions", None)
                _same(options, stored, "the snapshot")
                stored["cel_functions"] = Functions(functions)
                return cls(spark, copy, _travelling(stored))
            Options.checked(**options)
            return cls(spark, place, _travelling(options))
        if not is_frame(source):
            raise TypeError(f"subscriptions: expected a DataFrame, an Engine or a path, not {type(source).__name__}")
        Options.checked(**options)
        return cls(spark, source, _travelling(options))

    def size(self) -> tuple[int, str]:
        """Return the approximate size of the texts in bytes, and a description of the source."""
        if isinstance(self.source, Engine):
            return 0, "the engine is on the driver already"
        if isinstance(self.source, broadcast.Copy):
            return self.source.bytes, "the file"
        if isinstance(self.source, Path | Storage):
            size = self.source.stat().st_size if isinstance(self.source, Path) else self.source.stamp()[0]
            # JSON lines shrink to about a fifth.
            return (size * 5, "the compressed file") if self.source.name.endswith((".gz", ".zst")) else (size, "the file")
        (row,) = self.source.agg(F.coalesce(F.sum(F.octet_length("text")), F.lit(0)).alias("bytes")).collect()
        return row["bytes"], "the DataFrame"

    def engine(self) -> Engine:
        """Return an engine on the driver with all subscriptions, which may be the caller's own. Raises SubscriptionError."""
        source = self.source
        if isinstance(source, Engine):
            return source
        if isinstance(source, broadcast.Copy):
            engine = Engine.load(source.directory.path, cel_functions=self.options.get("cel_functions") or {})
        else:
            engine = Engine(**self.options)
            if isinstance(source, Path):
                engine.add_jsonl(source)
            elif isinstance(source, Storage):
                with source.fetched() as path:
                    engine.add_jsonl(path)
            else:
                engine.add_many(row["text"] for row in source.toLocalIterator(prefetchPartitions=True))
        engine.bloom.stop()
        return engine

    def ship(self, *, prune: bool) -> broadcast.Broadcast:
        """Send the subscriptions to the workers as a snapshot. Raises SubscriptionError."""
        source = self.source if isinstance(self.source, broadcast.Copy) else self.engine()
        return broadcast.ship(self.spark, source, prune=prune, functions=self.options.get("cel_functions"))

    def texts(self) -> DataFrame:
        """Return the subscriptions for `cogroup.prepare`, in a column `text`."""
        source = broadcast.copy_of(self.source) if isinstance(self.source, Engine) else self.source
        if isinstance(source, Path | Storage):
            return self.spark.read.text(str(source)).where("trim(value) != ''").withColumnRenamed("value", "text")
        return cogroup.texts_of(self.spark, source) if isinstance(source, broadcast.Copy) else source


def _travelling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as an engine in a worker takes them. Raises ConfigError for a function that cannot travel."""
    # Each core of a machine has a worker of its own.
    options = {name: value for name, value in options.items() if name != "threads"}
    functions = carried(options.pop("cel_functions", None))
    return options if functions is None else {**options, "cel_functions": functions}


def _same(named: Mapping[str, Any], stored: Mapping[str, Any], whose: str) -> None:
    """Refuse options that are not those under which the subscriptions were accepted."""
    requested, original = Options.checked(**{**stored, **named}), Options.checked(**stored)
    for name in named:
        if getattr(requested, name) != getattr(original, name):
            raise ConfigError(f"{whose} has another one", place=name)
