"""Give every worker all subscriptions: a snapshot travels as a file, and each worker opens the sections that its events need.

```
driver    engine, or a file ─► a copy, verified, named by its bytes ─► added to the session
workers   rows ─► mapInArrow: match_arrow on the sections of the collections that occur ─► matches
```

Invariant: a file's name identifies its content, to the byte. So a session adds a name once, the name means the same file on every
worker, and a process that has it open need not look again. Everything is read from the copy: replacing the original file, or
writing into it, does not affect a job that has begun.

Cost: a process copies a snapshot once, and keeps one copy of equal subscriptions. The file goes once to each machine, and the
machine's workers share its pages. There is no shuffle. Events are read in place, in Arrow's buffers.

With `prune`, portable Bloom filters, a file next to the snapshot, run first: an event that they stop opens no section. This is
not the default: there is no shuffle to save, and the engine's own filters answer in less time than it takes to read an event a
second time. Rejected: a broadcast variable (Spark Connect has none, it is pickled, and each Python process would have its own
copy); naming files by the digest of their snapshots (two saves of one engine have one digest and, because the seed of their
hashes is random, different bytes, so that Spark refuses the second).
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary, WeakValueDictionary

from streamer.core.snapshot import Directory, read_directory, read_texts, verify
from streamer.engine.engine import Engine
from streamer.errors import SnapshotError
from streamer.locks import Lock
from streamer.spark import schema
from streamer.spark.cogroup_worker import LEASE, sieve
from streamer.spark.files import StoredFile, carry, keep, new_file, release
from streamer.spark.functions import Carried, check
from streamer.spark.functions import carried as carried_functions
from streamer.spark.parts import Writer, label
from streamer.spark.paths import on_driver
from streamer.spark.storage import storage
from streamer.spark.worker import Pass, by_reading, by_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Copy:
    """A verified copy of a snapshot, in a directory that only this process writes.

    Attributes:
        directory: directory of the copy.
        file: the copy.
        bytes: size of the copy in bytes.
    """

    directory: Directory
    file: StoredFile
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class Broadcast:
    """A snapshot that every worker of a session can open.

    Attributes:
        digest: digest of the contents, options included.
        copy: the copy that Spark carries.
        subscriptions: number of subscriptions.
        bytes: size of the file in bytes.
        options: options of `Engine`, for reading events.
        guards: the file with a portable Bloom filter for each section; None without `prune`.
        functions: Python functions that its cel-python expressions may call; files never contain them.
    """

    digest: str
    copy: Copy
    subscriptions: int
    bytes: int
    options: dict[str, Any]
    guards: StoredFile | None = None
    functions: Carried | None = None

    @property
    def name(self) -> str:
        """The name of its file, among the files that Spark carries."""
        return self.copy.file.name

    def take_back(self, spark: SparkSession) -> None:
        """Release the files of this job; those without another use are removed, as far as Spark allows it."""
        release(spark, self.copy.file, self.guards)


#: The copies of this process, by digest: one for equal contents, for as long as it is in use.
_COPIES: Final[WeakValueDictionary[str, Copy]] = WeakValueDictionary()
#: The filters of each copy.
_GUARDS: Final[WeakKeyDictionary[Copy, StoredFile]] = WeakKeyDictionary()
_LOCK: Final = Lock()


def copy_of(source: Engine | str | os.PathLike[str]) -> Copy:
    """Copy a snapshot of this machine, or make one of an engine's current state, and verify the copy.

    An existing copy is reused.

    Raises:
        SnapshotError: the file is not a snapshot, or it is damaged.
        ConfigError: it is of another file system.
        OSError: the file cannot be read, or the copy cannot be written.
    """
    if not isinstance(source, Engine):
        source = on_driver(source)
        if (known := _COPIES.get(read_directory(source).digest)) is not None:
            return known
    path = new_file()
    try:
        if isinstance(source, Engine):
            source.save(path)
        else:
            shutil.copyfile(source, path)
        directory = verify(path)
        with _LOCK:
            if (copy := _COPIES.get(directory.digest)) is None:
                size = path.stat().st_size
                stored = keep(path, "snapshot")
                copy = _COPIES[directory.digest] = Copy(replace(directory, path=str(stored.path)), stored, size)
            return copy
    except SnapshotError as error:
        # The message names the given file, not its copy.
        named = "" if isinstance(source, Engine) else os.fspath(source)
        raise SnapshotError(error.reason, path=named, place=error.place) from None
    finally:
        with suppress(OSError):
            path.unlink()


def copy_of_any(spark: SparkSession, source: Engine | str | os.PathLike[str]) -> Copy:
    """Copy and verify a snapshot on any file system that Spark can read. Raises the errors of `copy_of` and `Storage`."""
    place = None if isinstance(source, Engine) else storage(spark, source)
    if place is None:
        return copy_of(source)
    with place.fetched() as path:
        try:
            return copy_of(path)
        except SnapshotError as error:
            raise SnapshotError(error.reason, path=place.text, place=error.place) from None


def ship(
    spark: SparkSession, source: Engine | Copy | str | os.PathLike[str], *, prune: bool = False, functions: Carried | None = None
) -> Broadcast:
    """Ship a snapshot to all workers of a session, classic or Connect. A snapshot that they have is not sent again.

    The file stays with driver and workers until they end, or until `take_back`.

    Args:
        source: an engine, whose snapshot is made now; a copied snapshot, or its path in any file system of Spark's.
        prune: also ship a portable Bloom filter for each section, which the driver compiles.
        functions: for a snapshot; an engine has its own.

    Raises:
        SnapshotError: the file is not a snapshot, is damaged, or calls a function that is missing.
        ConfigError: a function cannot travel to the workers.
        OSError: the file cannot be read, or the copy cannot be written.
    """
    copy = source if isinstance(source, Copy) else copy_of_any(spark, source)
    directory = copy.directory
    if isinstance(source, Engine):
        functions = carried_functions(source._options.cel_functions)
    else:
        check(directory.path, functions)
    guards = _guards(copy, functions) if prune else None
    file = carry(spark, copy.file, copy)
    if file is not copy.file:
        copy = _COPIES[directory.digest] = replace(copy, directory=replace(directory, path=str(file.path)), file=file)
    if guards is not None:
        guards = _GUARDS[copy] = carry(spark, guards)
    options = {key: value for key, value in directory.engine_options().items() if key != "default"}
    return Broadcast(directory.digest, copy, directory.subscriptions, copy.bytes, options, guards, functions)


def _guards(copy: Copy, functions: Carried | None) -> StoredFile:
    """Return the filters of a snapshot, which are made once."""
    with _LOCK:
        stored = _GUARDS.get(copy)
        if stored is None:
            path = new_file()
            try:
                _write_guards(path, copy.directory, functions)
                stored = _GUARDS[copy] = keep(path, "guards")
            finally:
                path.unlink(missing_ok=True)
        return stored


def _write_guards(path: Path, directory: Directory, functions: Carried | None) -> None:
    """Write a filter for each section of a snapshot."""
    with Writer(path) as writer:
        for at, section in enumerate(directory.sections):
            engine = Engine.load(directory.path, collections=[], bloom={"enabled": False}, cel_functions=functions or {})
            engine.add_many(text.decode() for text in read_texts(directory, [at]))
            guard = engine.bloom.export(label(section.tenant), label(section.collection), lease=LEASE)
            writer.add(section.tenant, section.collection, 0, section.subscriptions, guard)


def plan(shipped: Broadcast, choice: schema.Choice, request: Pass) -> DataFrame:
    """Plan one pass over events, static or streaming; no job is run."""
    if request.want == "rejected":
        run = by_reading(request, shipped.options)
    else:
        sifting = None if shipped.guards is None else sieve(request, shipped.options, shipped.guards.name)
        run = by_snapshot(request, shipped.name, sifting, shipped.functions)
    return choice.events_frame.mapInArrow(run, schema.result(request, choice))
