"""Every worker has all subscriptions within reach: a snapshot travels as a file, and each opens what it meets.

```
driver    engine, or a file ─► a copy, verified, named by its bytes ─► added to the session
workers   rows ─► mapInArrow: match_arrow on the sections of the collections that come by ─► matches
```

Invariant: a file's name says what is in it, to the byte. So a name is added once for a session, means one file on every worker,
and a process that has it open need not look again. All that is asked of a snapshot is asked of the copy: who replaces the file,
or writes into it, changes nothing of what was begun.

Cost: a snapshot is copied once by a process, and of equal subscriptions one copy is kept; it goes once to each machine, and its
pages are shared by the machine's workers. There is no shuffle. Events are read where they lie, in Arrow's buffers.

Portable Bloom filters, a file beside the snapshot, are asked first where `prune` says so: what they stop opens no section. It
is not the default here: there is no shuffle to spare, and the engine has filters of its own, which answer in less time than it
takes to read an event once more. Rejected: a broadcast variable (Spark Connect has none, it is pickled, and each Python process
would hold a copy of its own); naming files by the digest of their snapshots (two saves of one engine have one digest and, since
the seed of their hashes is random, different bytes, so that Spark refuses the second).
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
from streamer.spark.files import Kept, carry, keep, new_file, release
from streamer.spark.functions import Carried, check
from streamer.spark.functions import carried as carried_functions
from streamer.spark.groups import LEASE, sieve
from streamer.spark.parts import Writer, label
from streamer.spark.paths import on_driver
from streamer.spark.storage import storage
from streamer.spark.worker import Pass, by_reading, by_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Held:
    """A snapshot that was copied to where nobody else writes, and verified there.

    Attributes:
        directory: of the copy.
        file: the copy.
        bytes: how many it has.
    """

    directory: Directory
    file: Kept
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class Broadcast:
    """A snapshot that every worker of a session can open.

    Attributes:
        digest: of what it holds, options included.
        held: the copy that Spark carries.
        subscriptions: how many it holds.
        bytes: how many the file has.
        options: of `Engine`, with which its events are read.
        guards: the file with a portable Bloom filter for each section; None where none was asked for.
        functions: what its expressions for cel-python may call; no file holds these.
    """

    digest: str
    held: Held
    subscriptions: int
    bytes: int
    options: dict[str, Any]
    guards: Kept | None = None
    functions: Carried | None = None

    @property
    def name(self) -> str:
        """Of its file, among those that Spark carries."""
        return self.held.file.name

    def take_back(self, spark: SparkSession) -> None:
        """Say that nothing needs it any more: what was shipped for nothing else is taken back, as far as Spark lets it."""
        release(spark, self.held.file, self.guards)


#: What this process holds, by digest: what is equal is held once, as long as anything needs it.
_HELD: Final[WeakValueDictionary[str, Held]] = WeakValueDictionary()
#: The filters of each.
_GUARDS: Final[WeakKeyDictionary[Held, Kept]] = WeakKeyDictionary()
_LOCK: Final = Lock()


def hold(source: Engine | str | os.PathLike[str]) -> Held:
    """Copy a snapshot of this machine, or make one of an engine as it is now, and verify the copy.

    What is held already is not copied again.

    Raises:
        SnapshotError: a file that is none, or damaged.
        ConfigError: it is of another file system.
        OSError: it cannot be read, or a copy of it cannot be written.
    """
    if not isinstance(source, Engine):
        source = on_driver(source)
        if (known := _HELD.get(read_directory(source).digest)) is not None:
            return known
    path = new_file()
    try:
        if isinstance(source, Engine):
            source.save(path)
        else:
            shutil.copyfile(source, path)
        directory = verify(path)
        with _LOCK:
            if (held := _HELD.get(directory.digest)) is None:
                size = path.stat().st_size
                kept = keep(path, "snapshot")
                held = _HELD[directory.digest] = Held(replace(directory, path=str(kept.path)), kept, size)
            return held
    except SnapshotError as error:
        # Of the file that was named, instead of its copy.
        named = "" if isinstance(source, Engine) else os.fspath(source)
        raise SnapshotError(error.reason, path=named, place=error.place) from None
    finally:
        with suppress(OSError):
            path.unlink()


def hold_any(spark: SparkSession, source: Engine | str | os.PathLike[str]) -> Held:
    """Hold a snapshot that may be of any file system that Spark knows. Raises what `hold` and `Storage` do."""
    place = None if isinstance(source, Engine) else storage(spark, source)
    if place is None:
        return hold(source)
    with place.fetched() as path:
        try:
            return hold(path)
        except SnapshotError as error:
            raise SnapshotError(error.reason, path=place.text, place=error.place) from None


def ship(
    spark: SparkSession, source: Engine | Held | str | os.PathLike[str], *, prune: bool = False, functions: Carried | None = None
) -> Broadcast:
    """Make a snapshot known to all workers of a session, classic or Connect. Of what is known already nothing is sent.

    The file stays with driver and workers until they end, or until `take_back`.

    Args:
        source: an engine, of which a snapshot is made now; a snapshot that is held, or its path in any file system of Spark's.
        prune: with a portable Bloom filter for each of its sections, which the driver compiles for that.
        functions: for a snapshot; an engine has its own.

    Raises:
        SnapshotError: a file that is none, or damaged, or calls a function that is not given.
        ConfigError: a function that cannot travel.
        OSError: it cannot be read, or a copy of it cannot be written.
    """
    held = source if isinstance(source, Held) else hold_any(spark, source)
    directory = held.directory
    if isinstance(source, Engine):
        functions = carried_functions(source._options.cel_functions)
    else:
        check(directory.path, functions)
    guards = _guards(held, functions) if prune else None
    file = carry(spark, held.file, held)
    if file is not held.file:
        held = _HELD[directory.digest] = replace(held, directory=replace(directory, path=str(file.path)), file=file)
    if guards is not None:
        guards = _GUARDS[held] = carry(spark, guards)
    options = {key: value for key, value in directory.engine_options().items() if key != "default"}
    return Broadcast(directory.digest, held, directory.subscriptions, held.bytes, options, guards, functions)


def _guards(held: Held, functions: Carried | None) -> Kept:
    """Return the filters of a snapshot, which are made once."""
    with _LOCK:
        kept = _GUARDS.get(held)
        if kept is None:
            path = new_file()
            try:
                _write_guards(path, held.directory, functions)
                kept = _GUARDS[held] = keep(path, "guards")
            finally:
                path.unlink(missing_ok=True)
        return kept


def _write_guards(path: Path, directory: Directory, functions: Carried | None) -> None:
    """Write a filter for each section of a snapshot."""
    with Writer(path) as writer:
        for at, section in enumerate(directory.sections):
            engine = Engine.load(directory.path, collections=[], bloom={"enabled": False}, cel_functions=functions or {})
            engine.add_many(text.decode() for text in read_texts(directory, [at]))
            guard = engine.bloom.export(label(section.tenant), label(section.collection), lease=LEASE)
            writer.add(section.tenant, section.collection, 0, section.subscriptions, guard)


def plan(shipped: Broadcast, chosen: schema.Chosen, asked: Pass) -> DataFrame:
    """Plan one pass over events, static or streaming; no job is run."""
    if asked.want == "rejected":
        run = by_reading(asked, shipped.options)
    else:
        sifting = None if shipped.guards is None else sieve(asked, shipped.options, shipped.guards.name)
        run = by_snapshot(asked, shipped.name, sifting, shipped.functions)
    return chosen.given.mapInArrow(run, schema.result(asked, chosen))
