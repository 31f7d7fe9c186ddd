"""Files that travel to the workers of a session, and are removed after their last use.

```
 new_file ─► bytes ─► keep: named by its bytes ─► carry ─► Spark's list of files ─► a copy on each machine that runs a task
                                                    │ counts its uses
                       the last use ends ─► release ─► off Spark's list ─► deleted on the driver
                                                                        └► deleted on a machine by the next task of ours there
```

Invariant: a file's name identifies its content, to the byte, and a removed name is never used again: equal bytes get another
number at their end the next time. So a late task that deletes removed files never deletes a file that is in use again.

Spark has no call to remove a file. Its list of files is reached through the driver's JVM; if that is not allowed, as over Spark
Connect, each file stays until the session ends.
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
from streamer.spark.snapshot_cache import Listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Removed files that workers delete: the last ones of an application.
MOST_GONE: Final = 32
#: Spark's errors for an existing file of this name, over Connect and without it.
_THERE: Final = ("ARTIFACT_ALREADY_EXISTS", "was already registered with a different path")


@final
class StoredFile:
    """A file of the driver that may travel; it is deleted with the last reference to this object.

    Attributes:
        path: its path, in a folder of its own.
        name: its name, which identifies its bytes.
        key: hash of its bytes, and the ending of its name.
        is_gone: whether it was removed; its name is not used again.
    """

    __slots__ = ("__weakref__", "is_gone", "key", "name", "path")

    def __init__(self, path: Path, key: tuple[str, str]) -> None:
        self.path: Final = path
        self.name: Final = path.name
        self.key: Final = key
        self.is_gone = False
        # Not at exit, because then the whole folder is deleted.
        finalize(self, shutil.rmtree, path.parent, ignore_errors=True).atexit = False


@final
@dataclass(slots=True)
class _Carried:
    """A file that Spark carries."""

    stored: StoredFile
    #: An object that must live as long as the file.
    owner: object
    uses: int = 0
    sessions: WeakSet[Any] = field(default_factory=WeakSet)


#: The files by hash and ending.
_STORED: Final[WeakValueDictionary[tuple[str, str], StoredFile]] = WeakValueDictionary()
#: How many files were removed so far: the number in names that are used again.
_REMOVALS: Final = [0]
#: The files of each application, by name; weakly, so that an application may end.
_CARRIED: Final[WeakKeyDictionary[Any, dict[str, _Carried]]] = WeakKeyDictionary()
_GONE: Final[WeakKeyDictionary[Any, deque[Listed]]] = WeakKeyDictionary()
_LOCK: Final = Lock()


@cache
def folder() -> Path:
    """Return the folder of carried files: workers may fetch them from the driver as long as it lives."""
    return Path(_temporary().name)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="streamer-spark-")


def new_file() -> Path:
    """Return a new file in the folder, which `keep` takes."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=folder())
    os.close(descriptor)
    return Path(name)


def keep(path: Path, ending: str) -> StoredFile:
    """Name a file of the folder by its bytes; equal files are kept once."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with _LOCK:
        stored = _STORED.get((digest, ending))
        if stored is not None:
            path.unlink()
            return stored
        again = f"-{_REMOVALS[0]}" if _REMOVALS[0] else ""
        # In a folder of its own, so that deleting one file never deletes a later one.
        target = Path(tempfile.mkdtemp(dir=folder()), f"streamer-{digest}{again}.{ending}")
        os.replace(path, target)
        stored = _STORED[digest, ending] = StoredFile(target, (digest, ending))
        return stored


def carry(spark: SparkSession, stored: StoredFile, owner: object = None) -> StoredFile:
    """Ship a file to all workers of a session, classic or Connect; `release` ends this use of it.

    Args:
        owner: lives as long as the file travels.

    Returns:
        The file; under another name if it was removed before.
    """
    if stored.is_gone:
        path = new_file()
        shutil.copyfile(stored.path, path)
        stored = keep(path, stored.key[1])
    with _LOCK:
        use = _CARRIED.setdefault(_application(spark), {}).setdefault(stored.name, _Carried(stored, owner))
        if spark not in use.sessions:
            try:
                add_file(spark, str(stored.path))
            except Exception as error:
                # Another process of this session has added it; a file of this name has these bytes.
                if not any(words in str(error) for words in _THERE):
                    raise
            use.sessions.add(spark)
        use.uses += 1
    return stored


def release(spark: SparkSession, *files: StoredFile | None) -> None:
    """End a use of files; the last use of a file removes it, as far as Spark allows it."""
    with _LOCK:
        for each in files:
            if each is not None:
                _release(spark, each)


def _release(spark: SparkSession, stored: StoredFile) -> None:
    carried = _CARRIED.get(_application(spark), {})
    use = carried.get(stored.name)
    if use is None:
        return
    use.uses -= 1
    if use.uses > 0:
        return
    cached = take_back(spark, stored.name)
    if cached is None:
        return
    del carried[stored.name]
    stored.is_gone = True
    _REMOVALS[0] += 1
    # From now on, equal bytes become a new file.
    if _STORED.get(stored.key) is stored:
        del _STORED[stored.key]
    _GONE.setdefault(_application(spark), deque(maxlen=MOST_GONE)).append(Listed(stored.name, cached))


def gone(spark: SparkSession) -> tuple[Listed, ...]:
    """Return the latest removed files, whose copies the workers delete."""
    with _LOCK:
        return tuple(_GONE.get(_application(spark), ()))


def _application(spark: SparkSession) -> Any:
    """Return the object that shares files: sessions of one context share them, unless Spark is set to isolate artifacts."""
    return spark if is_connect(spark) else spark.sparkContext
