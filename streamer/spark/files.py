"""Files that travel to the workers of a session, and are taken back when nothing needs them any more.

```
 new_file ─► bytes ─► keep: named by its bytes ─► carry ─► Spark's list of files ─► a copy on each machine that runs a task
                                                    │ counts its uses
                       the last use ends ─► release ─► off Spark's list ─► deleted on the driver
                                                                        └► deleted on a machine by the next task of ours there
```

Invariant: a file's name says what is in it, to the byte, and a name that was taken back is never given again: equal bytes have
another number at their end the next time. So a late task that deletes what is gone deletes nothing that is there anew.

Spark has no call that takes a file back. Its list of files is reached through the driver's JVM; where that is not allowed, as
over Spark Connect, each file stays until the session ends.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, finalize

from streamer.locks import Lock
from streamer.spark.compat import add_file, is_connect, take_back
from streamer.spark.opened import Listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Files of which workers are told that they are gone: the last ones of an application.
MOST_GONE: Final = 32
#: How Spark says that it has a file of this name, over Connect and else.
_THERE: Final = ("ARTIFACT_ALREADY_EXISTS", "was already registered with a different path")


@final
class Kept:
    """A file of the driver that may travel; it is deleted with the last reference to this object.

    Attributes:
        path: of it, in a folder of its own.
        name: of it, which says what its bytes are.
        key: hash of its bytes, and the ending of its name.
        is_gone: whether it was taken back; its name is not given again.
    """

    __slots__ = ("__weakref__", "is_gone", "key", "name", "path")

    def __init__(self, path: Path, key: tuple[str, str]) -> None:
        self.path: Final = path
        self.name: Final = path.name
        self.key: Final = key
        self.is_gone = False
        # When the process ends the whole folder goes.
        finalize(self, shutil.rmtree, path.parent, ignore_errors=True).atexit = False


@final
@dataclass(slots=True)
class _Carried:
    """A file that Spark carries."""

    kept: Kept
    #: What is to live as long.
    owner: object
    uses: int = 0
    sessions: WeakSet[Any] = field(default_factory=WeakSet)


#: By the hash and the ending of each.
_KEPT: Final[WeakValueDictionary[tuple[str, str], Kept]] = WeakValueDictionary()
#: How many files were taken back so far: the number of names that are given anew.
_TAKEN_BACK: Final = [0]
#: What each application carries, by name; weakly, so that it may end.
_CARRIED: Final[WeakKeyDictionary[Any, dict[str, _Carried]]] = WeakKeyDictionary()
_GONE: Final[WeakKeyDictionary[Any, deque[Listed]]] = WeakKeyDictionary()
_LOCK: Final = Lock()


@cache
def folder() -> Path:
    """Return where files lie that are carried: workers may ask the driver for them as long as it lives."""
    return Path(_temporary().name)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="streamer-spark-")


def new_file() -> Path:
    """Return a new file in the folder, which `keep` takes."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=folder())
    os.close(descriptor)
    return Path(name)


def keep(path: Path, ending: str) -> Kept:
    """Name a file of the folder by its bytes; what is equal is kept once."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with _LOCK:
        kept = _KEPT.get((digest, ending))
        if kept is not None:
            path.unlink()
            return kept
        again = f"-{_TAKEN_BACK[0]}" if _TAKEN_BACK[0] else ""
        # In a folder of its own, so that deleting one file never deletes a later one.
        target = Path(tempfile.mkdtemp(dir=folder()), f"streamer-{digest}{again}.{ending}")
        os.replace(path, target)
        kept = _KEPT[digest, ending] = Kept(target, (digest, ending))
        return kept


def carry(spark: SparkSession, kept: Kept, owner: object = None) -> Kept:
    """Let a file travel to all workers of a session, classic or Connect; `release` ends this use of it.

    Args:
        owner: lives as long as the file travels.

    Returns:
        The file; under another name where it was taken back before.
    """
    if kept.is_gone:
        path = new_file()
        shutil.copyfile(kept.path, path)
        kept = keep(path, kept.key[1])
    with _LOCK:
        held = _CARRIED.setdefault(_application(spark), {}).setdefault(kept.name, _Carried(kept, owner))
        if spark not in held.sessions:
            try:
                add_file(spark, str(kept.path))
            except Exception as error:
                # Another process of this session has added it; what has this name has these bytes.
                if not any(words in str(error) for words in _THERE):
                    raise
            held.sessions.add(spark)
        held.uses += 1
    return kept


def release(spark: SparkSession, *kept: Kept | None) -> None:
    """End a use of files; with the last use of one it is taken back, as far as Spark lets it."""
    with _LOCK:
        for each in kept:
            if each is not None:
                _release(spark, each)


def _release(spark: SparkSession, kept: Kept) -> None:
    carried = _CARRIED.get(_application(spark), {})
    held = carried.get(kept.name)
    if held is None:
        return
    held.uses -= 1
    if held.uses > 0:
        return
    cached = take_back(spark, kept.name)
    if cached is None:
        return
    del carried[kept.name]
    kept.is_gone = True
    _TAKEN_BACK[0] += 1
    # From now on equal bytes are another file.
    if _KEPT.get(kept.key) is kept:
        del _KEPT[kept.key]
    _GONE.setdefault(_application(spark), deque(maxlen=MOST_GONE)).append(Listed(kept.name, cached))


def gone(spark: SparkSession) -> tuple[Listed, ...]:
    """Return which files were taken back, the last ones: workers delete their copies."""
    with _LOCK:
        return tuple(_GONE.get(_application(spark), ()))


def _application(spark: SparkSession) -> Any:
    """Return what shares files: sessions of one context share them, unless Spark was told to keep artifacts apart."""
    return spark if is_connect(spark) else spark.sparkContext
