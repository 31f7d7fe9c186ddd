"""Snapshots that a worker's process keeps open, from one task to the next: a cache by a file's content.

```
batch of events ─► met(tenant, collection)? ─► its section is opened, in place in the file ─► the engine has it, too
```
"""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import pyarrow as pa

from streamer import _backend
from streamer.core.snapshot import Directory, read_directory, read_head, read_texts, sections_of
from streamer.engine.engine import Engine
from streamer.errors import StreamerError
from streamer.spark.functions import Carried

#: Snapshots that a process keeps open: the current one, and the one before for tasks that still use it.
MOST_OPEN: Final = 2


@final
class Opened:
    """A snapshot in this process, with only those sections open whose tenant and collection occurred.

    One engine contains them all, so that an event queries it once. The native core opens a section itself, with its compiled
    image in place in the file; if the process compiles everything (the reference, portable CEL), a section is added with the
    first event of its tenant and collection. It is not thread-safe; a worker runs one task at a time.
    """

    def __init__(self, path: str, functions: Carried | None = None) -> None:
        options: dict[str, Any] = {} if functions is None else {"cel_functions": functions}
        self._directory: Directory | None = None
        if _backend.BACKEND == "native" and not read_head(path).is_portable:
            self.engine = Engine.load(path, **options)
        else:
            self._directory = read_directory(path)
            self.engine = Engine.load(path, collections=[], **options)
        # Only `meet` changes it, so the filters need no upkeep.
        self.engine.bloom.stop()
        self._met: set[tuple[str, str | None]] = set()
        self._added: set[int] = set()
        # Spark collects garbage after every task; the present objects stay, and need not be scanned each time.
        gc.freeze()

    def meet(self, events: pa.RecordBatch) -> bool:
        """Open the sections that these events can match; return whether any was closed before."""
        if self._directory is None:
            return False
        pairs = pa.table({"t": events.column("tenant"), "c": events.column("collection")}).group_by(["t", "c"]).aggregate([])
        named = zip(pairs.column("t").to_pylist(), pairs.column("c").to_pylist(), strict=True)
        # A rejected or ignored event has no tenant.
        new = {pair for pair in named if pair[0] is not None} - self._met
        if not new:
            return False
        # Events without a collection see the sections for every one.
        wanted = [
            at for at in sections_of(self._directory, [(t, "*" if c is None else c) for t, c in new]) if at not in self._added
        ]
        if wanted:
            self.engine.add_many(text.decode() for text in read_texts(self._directory, wanted))
            self.engine.bloom.stop()
            self._added.update(wanted)
        self._met |= new
        return bool(wanted)


_OPENED: Final[OrderedDict[tuple[str, str, str], Opened]] = OrderedDict()


def opened(name: str, backend: str, functions: Carried | None = None) -> Opened:
    """Return the snapshot that travels under a name, from this process's cache or from its file."""
    key = (name, backend, "" if functions is None else functions.key)
    snapshot = _OPENED.get(key)
    if snapshot is None:
        snapshot = _OPENED[key] = Opened(travelled(name), functions)
        while len(_OPENED) > MOST_OPEN:
            _OPENED.popitem(last=False)
    _OPENED.move_to_end(key)
    return snapshot


def travelled(name: str) -> str:
    """Return the path of a file that was added to the session. Raises StreamerError if it was removed."""
    from pyspark import SparkFiles

    path = SparkFiles.get(name)
    if not os.path.exists(path):
        reason = "is not on this machine: the result of match_events was closed; compute everything before that"
        raise StreamerError(f"{name} {reason}")
    return path


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """A removed file.

    Attributes:
        name: its name.
        cached: the name of the copy that executors of a machine share, in addition to their own.
    """

    name: str
    cached: str


def sweep(files: Iterable[Listed]) -> None:
    """Delete this machine's copies of removed files."""
    for listed in files:
        from pyspark import SparkFiles

        # Another worker of the machine may have deleted the file already.
        with suppress(OSError):
            os.unlink(SparkFiles.get(listed.name))
        for root in filter(None, os.environ.get("SPARK_EXECUTOR_DIRS", "").split(",")):
            for copy in Path(root).glob(f"spark-*/{listed.cached}"):
                with suppress(OSError):
                    copy.unlink()
