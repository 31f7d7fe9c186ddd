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

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary

from streamer.core.snapshot import Directory, read_directory, read_texts, verify
from streamer.engine.engine import Engine
from streamer.errors import SnapshotError
from streamer.locks import Lock
from streamer.spark import schema
from streamer.spark.compat import add_file
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
@dataclass(frozen=True, slots=True)
class Held:
    """A snapshot that was copied to where nobody else writes, and verified there.

    Attributes:
        directory: of the copy.
        name: of the copy, which says what its bytes are.
        bytes: how many it has.
    """

    directory: Directory
    name: str
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class Broadcast:
    """A snapshot that every worker of a session can open.

    Attributes:
        digest: of what it holds, options included.
        name: of its file, among those that Spark carries.
        subscriptions: how many it holds.
        bytes: how many the file has.
        options: of `Engine`, with which its events are read.
        guards: name of the file with a portable Bloom filter for each section; None where none was asked for.
        functions: what its expressions for cel-python may call; no file holds these.
    """

    digest: str
    name: str
    subscriptions: int
    bytes: int
    options: dict[str, Any]
    guards: str | None = None
    functions: Carried | None = None


#: What this process holds, by digest: what is equal is held once.
_HELD: Final[dict[str, Held]] = {}
#: What each session carries already, by name; weakly, so that a session may end.
_CARRIED: Final[WeakKeyDictionary[SparkSession, dict[str, Broadcast]]] = WeakKeyDictionary()
_LOCK: Final = Lock()
#: How Spark says that it has a file of this name, over Connect and else.
_THERE: Final = ("ARTIFACT_ALREADY_EXISTS", "was already registered with a different path")


@cache
def _folder() -> Path:
    """Where files lie that are carried: workers may ask the driver for them as long as it lives."""
    return Path(_kept().name)


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="streamer-spark-")


def new_file() -> Path:
    """Return a new file in the folder, which `name_by_bytes` takes."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=_folder())
    os.close(descriptor)
    return Path(name)


def name_by_bytes(path: Path, ending: str) -> str:
    """Name a file of the folder by its bytes, and return the name."""
    with open(path, "rb") as file:
        name = f"streamer-{hashlib.file_digest(file, 'sha256').hexdigest()}.{ending}"
    os.replace(path, _folder() / name)
    return name


def carry(spark: SparkSession, name: str) -> None:
    """Let a file that is kept travel to all workers of a session, classic or Connect."""
    try:
        add_file(spark, str(_folder() / name))
    except Exception as error:
        # Another process of this session has added it; what has this name has these bytes.
        if not any(words in str(error) for words in _THERE):
            raise


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
            if directory.digest not in _HELD:
                size = path.stat().st_size
                name = name_by_bytes(path, "snapshot")
                _HELD[directory.digest] = Held(replace(directory, path=str(_folder() / name)), name, size)
            return _HELD[directory.digest]
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

    Spark cannot take a file back: each stays with driver and workers until they end.

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
    directory, name = held.directory, held.name
    if isinstance(source, Engine):
        functions = carried_functions(source._options.cel_functions)
    else:
        check(directory.path, functions)
    with _LOCK:
        carried = _CARRIED.setdefault(spark, {})
        if name not in carried:
            carry(spark, name)
            options = {key: value for key, value in directory.engine_options().items() if key != "default"}
            carried[name] = Broadcast(directory.digest, name, directory.subscriptions, held.bytes, options)
        if prune and carried[name].guards is None:
            path = new_file()
            _write_guards(path, directory, functions)
            guards = name_by_bytes(path, "guards")
            carry(spark, guards)
            carried[name] = replace(carried[name], guards=guards)
        return replace(carried[name], guards=carried[name].guards if prune else None, functions=functions)


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
        sifting = None if shipped.guards is None else sieve(asked, shipped.options, shipped.guards)
        run = by_snapshot(asked, shipped.name, sifting, shipped.functions)
    return chosen.given.mapInArrow(run, schema.result(asked, chosen))
