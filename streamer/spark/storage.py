"""Paths of every file system that Spark can use (`hdfs:`, `s3a:`, `abfss:`, `dbfs:`, ...), through Spark's own layer: Hadoop's.

```
s3a://bucket/versions/            a folder of this driver
   0000000002-b81d….snapshot        0000000002-b81d….snapshot     fetched once, while it is the same
   0000000003-77e6….snapshot   ─►   0000000003-77e6….snapshot     a bad one is fetched, too, and the one before it
```

So code that reads paths of this machine (versions.py, the engine) reads the fetched files, with all its guarantees. The layer is
in the driver's JVM, so Spark Connect and workers cannot use it.

Rejected: pyarrow's file systems (they use other credentials and settings than Spark's, and HDFS needs another library); the
source `binaryFile` (it keeps a file in memory twice, and lists a folder once for a query).
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from pyspark.sql import SparkSession

from streamer.core.snapshot import MAGIC, path_of, verify
from streamer.errors import ConfigError, SnapshotError
from streamer.locks import Lock
from streamer.spark.compat import is_connect
from streamer.spark.paths import local_path, on_driver
from streamer.spark.versions import ENDING, Version, is_good, next_name, versions_of

if TYPE_CHECKING:
    from streamer.engine.engine import Engine

Stamp: TypeAlias = tuple[int, int, str]
"""Bytes, time of the last change, and the tag of an object store: replacing a file changes one of these."""


@final
class Storage:
    """A path of a file system that is not this machine's.

    Raises:
        ConfigError: Spark cannot use the file system, or the session is one of Spark Connect.
        OSError: each method raises it if the path cannot be read or written; FileNotFoundError if it does not exist.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        if is_connect(spark):
            raise ConfigError(
                f"{text} is not on this machine, and Spark Connect has no way to it: mount it or copy it here, or give the "
                "subscriptions as a DataFrame, as spark.read.text or spark.read.parquet make it",
                place="subscriptions",
            )
        self.text: Final = text
        context: Any = spark.sparkContext
        self._new: Final = context._jvm.org.apache.hadoop.fs.Path
        try:
            path = self._new(text)
            self._files: Final = path.getFileSystem(context._jsc.hadoopConfiguration())
            self._path: Final = self._files.makeQualified(path)
        except Exception as error:
            raise ConfigError(f"{text}: Spark cannot read there: {_reason(error)}", place="subscriptions") from None

    def __str__(self) -> str:
        return self.text

    @property
    def url(self) -> str:
        """The place with its scheme and authority: the same text for all spellings of one place."""
        return str(self._path.toString()).rstrip("/")

    @property
    def name(self) -> str:
        return str(self._path.getName())

    def is_directory(self) -> bool:
        with self._as_os_errors():
            return bool(self._files.getFileStatus(self._path).isDirectory())

    def names(self) -> list[str]:
        """Return the names in a directory."""
        with self._as_os_errors():
            return [str(status.getPath().getName()) for status in self._files.listStatus(self._path)]

    def stamp(self, name: str = "") -> Stamp:
        """Return a stamp that differs between a file, here or of this directory, and its replacement."""
        with self._as_os_errors():
            status = self._files.getFileStatus(self._at(name))
            tag = ""
            # Only object stores have a tag.
            with suppress(Exception):
                tag = str(status.getEtag())
            return int(status.getLen()), int(status.getModificationTime()), tag

    def begins_with(self, wanted: bytes) -> bool:
        """Return whether a file begins with these bytes."""
        with self._as_os_errors():
            opened = self._files.open(self._path)
            try:
                return bytes(opened.readNBytes(len(wanted))) == wanted
            finally:
                opened.close()

    def is_snapshot(self) -> bool:
        """Return whether this is a snapshot, or a directory of versions."""
        if self.is_directory():
            return bool(versions_of(self.names()))
        return self.begins_with(MAGIC)

    def fetch(self, target: Path, name: str = "") -> None:
        """Copy a file, here or of this directory, to this machine."""
        with self._as_os_errors():
            self._files.copyToLocalFile(False, self._at(name), self._new(target.as_uri()), True)

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        """Provide a temporary copy of a file on this machine."""
        with tempfile.TemporaryDirectory(prefix="streamer-fetched-") as folder:
            path = Path(folder, self.name)
            self.fetch(path)
            yield path

    def add(self, source: Path, name: str) -> None:
        """Add a file of this machine to a directory, atomically; an existing file of this name stays."""
        with self._as_os_errors():
            draft, target = self._at(f".{name}.{os.getpid()}"), self._at(name)
            self._files.mkdirs(self._path)
            try:
                self._files.copyFromLocalFile(False, True, self._new(source.as_uri()), draft)
                if not self._files.rename(draft, target) and not self._files.exists(target):
                    raise OSError(errno.EIO, "it cannot be renamed", f"{self.text}/{name}")
            finally:
                with suppress(Exception):
                    self._files.delete(draft, False)

    def _at(self, name: str) -> Any:
        return self._new(self._path, name) if name else self._path

    @contextmanager
    def _as_os_errors(self) -> Iterator[None]:
        """Translate errors of the JVM to Python's."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            if "java.io.FileNotFoundException" in str(error):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.text) from None
            raise OSError(errno.EIO, _reason(error), self.text) from None


def storage(spark: SparkSession, path: str | os.PathLike[str]) -> Storage | None:
    """Return the place of a path; None for a path of this machine. Raises ConfigError."""
    text = path_of(path)
    return Storage(spark, text) if local_path(text) is None else None


#: The stamps of fetched files, by their local paths.
_STAMPS: Final[dict[Path, Stamp]] = {}
_LOCK: Final = Lock()


def mirrored(place: Storage) -> Path:
    """Return a path of this machine with the newest versions of a place, for `versions.find`.

    For a directory these are the last good one by name, and the bad ones after it; for a file, the file. A version is fetched if
    its stamp has changed, and deleted if it was deleted at the place.
    """
    folder = Path(_mirrors().name, hashlib.sha256(place.url.encode()).hexdigest())
    with _LOCK:
        folder.mkdir(exist_ok=True)
        try:
            if not place.is_directory():
                _fetch(place, folder / place.name, "")
                return folder / place.name
        except FileNotFoundError:
            if not (paths := [path for path in folder.iterdir() if not path.name.startswith(".")]) or len(paths) > 1:
                raise
            paths[0].unlink()
            return paths[0]
        wanted: list[str] = []
        for name in versions_of(place.names()):
            wanted.append(name)
            _fetch(place, folder / name, name)
            if is_good(folder / name):
                break
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink()
                _STAMPS.pop(path, None)
        if not wanted:
            raise SnapshotError(f"no file of the directory ends with {ENDING}", path=place.text, place="directory")
        return folder


def _fetch(place: Storage, path: Path, name: str) -> None:
    stamp = place.stamp(name)
    if _STAMPS.get(path) == stamp and path.exists():
        return
    draft = path.with_name(f".fetching.{path.name}")
    place.fetch(draft, name)
    os.replace(draft, path)
    _STAMPS[path] = stamp


def publish_to(source: Engine | str | os.PathLike[str], directory: str) -> Version:
    """Add a version to a directory through the active session; `versions.publish` defines the order and the errors."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError(f"{directory} is not on this machine, and no session of Spark is active to write it", place="directory")
    place = Storage(spark, directory)
    with tempfile.TemporaryDirectory(prefix="streamer-publish-") as folder:
        path = Path(folder, "new")
        if isinstance(source, str | os.PathLike):
            shutil.copyfile(on_driver(source), path)
        else:
            source.save(path)
        snapshot = verify(path)
        try:
            names = place.names()
        except FileNotFoundError:
            names = []
        name, is_there = next_name(names, snapshot.digest)
        if not is_there:
            place.add(path, name)
    return Version(snapshot.digest, f"{directory.rstrip('/')}/{name}", snapshot.subscriptions)


@cache
def _mirrors() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="streamer-mirror-")


def _reason(error: Exception) -> str:
    """Return the JVM's message on one line, without the stack trace."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() or java.getClass().getSimpleName()) if java is not None else str(error)
    return text.strip().partition("\n")[0]
