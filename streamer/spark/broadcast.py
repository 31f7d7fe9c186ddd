"""Every worker has all subscriptions within reach: a snapshot travels as a file, and each opens what it meets.

```
driver    engine ─► snapshot, named by its digest ─► addArtifacts
workers   rows ─► mapInArrow: match_arrow on the sections of the collections that come by ─► matches
```

Invariant: a file's name says what is in it, so a name is added once for a session, is the same for every worker, and a process
that has it open need not look again.

Cost: the file goes once to each machine, and its pages are shared by the machine's workers. There is no shuffle. Events are
read where they lie, in Arrow's buffers.

Portable Bloom filters, a file beside the snapshot, are asked first where `prune` says so: what they stop opens no section. It
is not the default here: there is no shuffle to spare, and the engine has filters of its own, which answer in less time than it
takes to read an event once more. Rejected: a broadcast variable (Spark Connect has none, it is pickled, and each Python process
would hold a copy of its own).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary

from streamer import _backend
from streamer.engine.engine import Engine
from streamer.engine.snapshot import Directory, read_directory, read_texts, verify
from streamer.spark import schema
from streamer.spark.functions import Carried, check
from streamer.spark.functions import carried as carried_functions
from streamer.spark.groups import LEASE, sieve
from streamer.spark.parts import Writer, label
from streamer.spark.worker import Pass, Want, by_reading, by_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


#: What each session carries already; weakly, so that a session may end.
_CARRIED: Final[WeakKeyDictionary[SparkSession, dict[str, Broadcast]]] = WeakKeyDictionary()
_LOCK: Final = threading.Lock()


@cache
def _folder() -> Path:
    """Where files lie that are carried: workers may ask the driver for them as long as it lives."""
    return Path(_kept().name)


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="streamer-spark-")


def carry(spark: SparkSession, path: str | os.PathLike[str], name: str) -> None:
    """Let a file travel to all workers of a session, classic or Connect, under a name that says what is in it."""
    named = _folder() / name
    if not named.exists():
        partial = _folder() / f"{name}.{os.getpid()}.{threading.get_ident()}"
        try:
            os.link(path, partial)
        except OSError:
            shutil.copyfile(path, partial)
        os.replace(partial, named)
    spark.addArtifacts(str(named), file=True)


def ship(
    spark: SparkSession, source: Engine | str | os.PathLike[str], *, prune: bool = False, functions: Carried | None = None
) -> Broadcast:
    """Make a snapshot known to all workers of a session, classic or Connect. Of what is known already nothing is sent.

    Spark cannot take a file back: each stays with driver and workers until they end.

    Args:
        source: an engine, of which a snapshot is made now, or a snapshot's path on the driver.
        prune: with a portable Bloom filter for each of its sections, which the driver compiles for that.
        functions: for a path; an engine has its own.

    Raises:
        SnapshotError: a file that is none, or damaged, or calls a function that is not given.
        ConfigError: a function that cannot travel.
        OSError: it cannot be read, or a copy of it cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="streamer-") as folder:
        if isinstance(source, Engine):
            functions = carried_functions(source._options.cel_functions)
            path = Path(folder) / "engine"
            source.save(path)
        else:
            path = Path(source)
            check(path, functions)
        directory = read_directory(path)
        name = f"streamer-{directory.digest}.snapshot"
        with _LOCK:
            carried = _CARRIED.setdefault(spark, {})
            if name not in carried:
                # A damaged file would keep this name from every good one for as long as the session lives.
                directory = verify(path)
                carry(spark, path, name)
                options = {key: value for key, value in directory.engine_options().items() if key != "default"}
                carried[name] = Broadcast(directory.digest, name, directory.subscriptions, path.stat().st_size, options)
            if prune and carried[name].guards is None:
                guards = f"streamer-{directory.digest}.guards"
                _write_guards(Path(folder) / guards, directory, functions)
                carry(spark, Path(folder) / guards, guards)
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


def plan(
    events: DataFrame,
    shipped: Broadcast,
    *,
    event_col: str = "value",
    want: Want = "all",
    on_error: str = "reject",
    keep: Sequence[str] = (),
    keep_event: bool = False,
    backend: _backend.Backend | None = None,
    batch_size: int | None = None,
) -> DataFrame:
    """Plan one pass over events, static or streaming; no job is run. See `match_events` for the arguments.

    Args:
        want: `all` for rows of every kind (`schema.matches_of` and its siblings take them apart), `matches` or `rejected` for
            these alone.
    """
    event_type, kept = schema.check_columns(events, event_col, keep)
    asked = Pass(event_col, tuple(keep), keep_event, want, on_error == "fail", backend or _backend.BACKEND, batch_size)
    if want == "rejected":
        run = by_reading(asked, shipped.options)
    else:
        sifting = None if shipped.guards is None else sieve(asked, shipped.options, shipped.guards)
        run = by_snapshot(asked, shipped.name, sifting, shipped.functions)
    given = events.select(*dict.fromkeys((event_col, *keep)))
    return given.mapInArrow(run, schema.outcomes(want, event_type, kept, keep_event=keep_event))
