"""The current snapshot: the newest good one at a path, while other processes add new ones.

```
 subscriptions/                       subscriptions.snapshot            replaced: `engine.save(path)`
   0000000001-3f2a9c1e04b7.snapshot   .subscriptions.snapshot.versions/
   0000000002-b81d00c27aa1.snapshot     3f2a9c1e...  b81d00c2...        copies of good ones
   0000000003-77e6bd915c02.snapshot     current                         names the last of them, and its source file
   ▲ the last good one by name          ▲ used if the file itself is bad, missing, or half written
```

A path is a *file* that is replaced, or a *directory* of versions that are only ever added (`publish`). In both cases the returned
file does not change while a batch reads it.

Invariant: only verified files, with every checksum, are returned; a bad file never replaces a good one. A file is identified by
device, inode, size and time, and verified once: files of a directory by each process, a file by the first process that sees it.
This module does not import PySpark: it also runs in Spark's workers. Concurrency: any number of processes and threads can look at
one path at once; every write appears by link or rename.

Rejected: the time of a file as its order (a copy has a later one than its source); remembering the last good one only in memory
(a restarted worker would have none); hard links instead of copies (a program that writes into the file, as `cp` does, would write
into the copy).
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamer.core.snapshot import path_of, read_directory, verify
from streamer.errors import SnapshotError
from streamer.spark.paths import local_path, on_driver

if TYPE_CHECKING:
    from streamer.engine.engine import Engine

T = TypeVar("T")

log = logging.getLogger("streamer.spark")

#: The number of versions that are kept of a replaced file: running batches may still read the previous one.
MOST_VERSIONS: Final = 3
_CURRENT: Final = "current"
ENDING: Final = ".snapshot"
_NUMBERED: Final = re.compile(r"(\d+)(?:-.*)?\.snapshot")


@final
@dataclass(frozen=True, slots=True)
class Version:
    """A good snapshot.

    Attributes:
        digest: names its content (hex).
        path: a file with it that does not change.
        subscriptions: number of subscriptions.
        refused: number of newer, bad snapshots that were skipped.
    """

    digest: str
    path: str
    subscriptions: int
    refused: int = 0


def find(path: str | os.PathLike[str]) -> Version:
    """Return the newest good version at *path*; a process logs a bad one once.

    Raises:
        SnapshotError: none is good.
        ConfigError: the path is of another file system.
        OSError: the path cannot be read.
    """
    path = on_driver(path)
    return _in_directory(path) if path.is_dir() else _replaced(path)


def publish(source: Engine | str | os.PathLike[str], directory: str | os.PathLike[str]) -> Version:
    """Add an engine, or a snapshot file, to a directory of versions, as the newest; a missing directory is created.

    Publishing the newest version again has no effect. A directory of another file system, as `s3a://bucket/versions`, is written
    through the active session of Spark.

    Raises:
        SnapshotError: the file is not a good snapshot.
        ConfigError: Spark cannot use the directory's file system, or no session is active.
        OSError: the directory cannot be written.
    """
    if local_path(path_of(directory)) is None:
        from streamer.spark.storage import publish_to

        return publish_to(source, path_of(directory))
    directory = on_driver(directory)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".publish.", dir=directory)
    os.close(descriptor)
    try:
        if isinstance(source, str | os.PathLike):
            shutil.copyfile(on_driver(source), name)
            snapshot = verify(name)
        else:
            source.save(name)
            snapshot = read_directory(name)
        while True:
            named, is_there = next_name(os.listdir(directory), snapshot.digest)
            target = directory / named
            if is_there:
                return Version(snapshot.digest, str(target), snapshot.subscriptions)
            try:
                # A link refuses an existing name: a process that publishes at the same time uses the next number.
                os.link(name, target)
            except FileExistsError:
                continue
            return Version(snapshot.digest, str(target), snapshot.subscriptions)
    finally:
        with suppress(OSError):
            os.unlink(name)


def next_name(names: Iterable[str], digest: str) -> tuple[str, bool]:
    """Return the name of the newest version of a directory, for this digest, and whether it exists already."""
    numbers = [(int(match[1]), each) for each in names if (match := _NUMBERED.fullmatch(each))]
    last, newest = max(numbers, default=(0, ""))
    if newest.endswith(f"-{digest[:12]}{ENDING}"):
        return newest, True
    return f"{last + 1:010}-{digest[:12]}{ENDING}", False


def versions_of(names: Iterable[str]) -> list[str]:
    """Return the names in a directory that are versions, the newest first."""
    return sorted((name for name in names if name.endswith(ENDING) and not name.startswith(".")), reverse=True)


def is_good(path: Path) -> bool:
    """Return whether a file is a good snapshot; a bad one is logged once."""
    try:
        _verified(path)
    except SnapshotError:
        return False
    return True


def _in_directory(directory: Path) -> Version:
    names = versions_of(os.listdir(directory))
    first: SnapshotError | None = None
    for refused, name in enumerate(names):
        try:
            digest, subscriptions = _verified(directory / name)
        except SnapshotError as error:
            first = first or error
            continue
        return Version(digest, str(directory / name), subscriptions, refused)
    raise first or SnapshotError(f"no file of the directory ends with {ENDING}", path=str(directory), place="directory")


def _replaced(path: Path) -> Version:
    folder = path.parent / f".{path.name}.versions"
    last = _current(folder)
    try:
        status = path.stat()
        identity = _identity(path, status)
        if last is not None and last[0] == list(identity[1:]):
            return _version(folder / last[1])
        if (known := _errors.get(identity)) is not None:
            raise known.with_traceback(None)
        try:
            return _version(_keep(path, identity, folder))
        except SnapshotError as error:
            _refuse(path, identity, error)
            raise
    except (SnapshotError, FileNotFoundError) as error:
        if isinstance(error, FileNotFoundError):
            _log_once(path, "it does not exist")
        if last is None:
            raise
        return replace(_version(folder / last[1]), refused=1)


def _keep(path: Path, identity: Identity, folder: Path) -> Path:
    """Copy a file to the versions next to it, verify the copy, and make it current. Raises SnapshotError."""
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix=".keep.", dir=folder)
    except OSError as error:
        # Then the file is read in place, and Spark repeats a micro-batch during which it is replaced.
        _log_once(folder, f"good versions cannot be kept: {error.strerror or error}")
        verify(path)
        return path
    os.close(descriptor)
    try:
        shutil.copyfile(path, name)
        digest = verify(name).digest
        copy = folder / digest
        os.replace(name, copy)
        with open(name, "w", encoding="utf-8") as file:
            json.dump([list(identity[1:]), digest], file)
        os.replace(name, folder / _CURRENT)
    finally:
        with suppress(OSError):
            os.unlink(name)
    others = [each for each in folder.iterdir() if not each.name.startswith(".") and each.name not in (_CURRENT, digest)]
    for each in sorted(others, key=lambda each: each.stat().st_mtime_ns)[: -MOST_VERSIONS + 1]:
        with suppress(OSError):
            each.unlink()
    return copy


def _current(folder: Path) -> tuple[list[int], str] | None:
    """Return the identity of the last good file, and its digest."""
    try:
        identity, digest = json.loads((folder / _CURRENT).read_bytes())
    except (OSError, ValueError, TypeError):
        return None
    return (identity, digest) if (folder / digest).is_file() else None


def _version(path: Path) -> Version:
    snapshot = read_directory(path)
    return Version(snapshot.digest, str(path), snapshot.subscriptions)


# The bad files that this process has seen, and the messages that it has logged.
Identity = tuple[str, int, int, int, int]
_errors: dict[Identity, SnapshotError] = {}
_good: dict[Identity, tuple[str, int]] = {}
_logged: set[tuple[str, str]] = set()


def _identity(path: Path, status: os.stat_result) -> Identity:
    return str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _verified(path: Path) -> tuple[str, int]:
    identity = _identity(path, path.stat())
    if (known := _errors.get(identity)) is not None:
        raise known.with_traceback(None)
    if identity not in _good:
        try:
            snapshot = verify(path)
        except SnapshotError as error:
            _refuse(path, identity, error)
            raise
        _bounded(_good)[identity] = snapshot.digest, snapshot.subscriptions
    return _good[identity]


def _refuse(path: Path, identity: Identity, error: SnapshotError) -> None:
    _bounded(_errors)[identity] = error
    log.warning("%s is passed over: %s: %s", path, error.place, error.reason)


def _log_once(path: Path, reason: str) -> None:
    """Log a message about a path once."""
    if (str(path), reason) not in _logged:
        _logged.add((str(path), reason))
        log.warning("%s: %s", path, reason)


def _bounded(cache: dict[Identity, T]) -> dict[Identity, T]:
    if len(cache) >= 1000:
        cache.clear()
    return cache
