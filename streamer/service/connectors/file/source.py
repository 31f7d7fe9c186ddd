"""A file of JSON lines: read from its confirmed position, followed as it grows, through rotations.

```
orders.jsonl ───────────────►  a partition, with a name drawn when the file is first seen
   │ renamed to orders.jsonl.1    read to its end, then forgotten
   ▼
orders.jsonl, a new file ───►  another partition
```

A partition is one file's content, never a path: the store has its inode, a hash of its beginning, and the byte at which the last
confirmed line ends. Its name is random, and stored before the first read. So a message of a later file never has the id of an
earlier one, though inodes are reused.

The path is checked for another file every `poll`, once the end is reached. So a file that was rotated twice in that time, or
while the service was stopped, is not read. The log names files that could not be found.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from streamer.engine.foreign import LOOKS, foreign
from streamer.engine.lines import may_be_compressed, read_chunks
from streamer.errors import InputError, ServiceError
from streamer.service import faults
from streamer.service.connectors.lines import Lines
from streamer.service.connectors.protocols import NO_OTHERS, NOTHING, Batch, Begin, EndOfSource, Others, Progress, Wrong, failed

#: The number of a file's first bytes that identify it.
HEAD: Final = 1024
#: The bytes of one read. The lines of a read share two syncs and a commit, which cost as much as hundreds of lines.
CHUNK: Final = 1024 * 1024
#: The bytes of one read of compressed text: the reported progress is ahead of the decompressed text by at most this much.
_COMPRESSED: Final = 64 * 1024
#: The number of looks without new data after which a renamed file counts as ended: with logrotate's `create`, the writer switches
#: to the new file a while after it appears.
_LOOKS: Final = 20
_LOGGER: Final = logging.getLogger("streamer.service")


@final
@dataclass(slots=True)
class _Reading:
    """One file that is open, or whose content was compressed."""

    file: int
    partition: str
    inode: int
    lines: Lines
    offset: int  # the byte of the file to read next
    head: bytes = b""
    inflated: Iterator[bytes] | None = None
    skip: int = 0  # the decompressed bytes that were confirmed already
    is_ended: bool = False
    is_at_end: bool = False
    is_over: bool = False
    another_since: float | None = None

    def confirm(self) -> str:
        """Return the text that identifies this place."""
        return json.dumps(
            {
                "offset": self.lines.position,
                "inode": self.inode,
                "head": hashlib.sha256(self.head).hexdigest(),
                "head_bytes": len(self.head),
            }
        )


@final
class FileLines:
    """A file of JSON lines.

    Args:
        follow: wait for more at its end.
        poll: how often to look there, in seconds.
    """

    is_shared: Final = False
    down_since: Final = None

    def __init__(self, path: Path, *, follow: bool, poll: float, max_bytes: int, is_json: bool = True) -> None:
        self._path = path
        self._follow = follow
        self._poll = poll
        self._max_bytes = max_bytes
        self._is_json = is_json  # a line of another format may be an array
        self._reading: deque[_Reading] = deque()
        self._gone: deque[str] = deque()
        self._is_waiting = False
        self._passed = 0  # the bytes of files that were read to their ends

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """See `Source`."""
        if self._follow and not self._path.exists() and self._path.parent.is_dir():
            return
        with self._mapped():
            os.close(self._open(self._path))

    def open(self, confirmed: Mapping[str, str], begin: Begin, others: Others = NO_OTHERS) -> None:
        """See `Source`."""
        self._begin = begin
        self.check()
        places = {partition: json.loads(position) for partition, position in confirmed.items()}
        current = None
        if self._path.exists():
            with self._mapped():
                file = self._open(self._path)
            current = next((each for each in reversed(places) if _is_same(file, places[each])), None)
            self._look_for(file, 0 if current is None else places[current]["offset"], others)
            if current is None:
                os.close(file)
        for partition, place in places.items():
            if partition == current:
                continue
            if (older := self._find(place)) is None:
                _LOGGER.warning(
                    "%s: a file that was read up to byte %d is gone: it was rotated away", self._path, place["offset"]
                )
                self._gone.append(partition)
            else:
                self._resume(older, partition, place, is_ended=True)
        if current is not None:
            self._resume(file, current, places[current], is_ended=False)

    def _look_for(self, file: int, offset: int, others: Others) -> None:
        """Warn if the file was read further as another source."""
        for name, positions in others.positions.items():
            for place in (json.loads(position) for position in positions.values()):
                if "inode" in place and place["offset"] > offset and _is_same(file, place):
                    where = f"it is read from byte {offset} on, and was read up to byte {place['offset']} as source {name!r}"
                    _LOGGER.warning("%s: %s, which is not configured. %s", self._path, where, others.hint(name))

    def read(self, wait: float) -> Batch | None:
        """See `Source`."""
        if self._gone:
            return Batch(self._gone.popleft(), [], _nowhere, None, is_last=True)
        if not self._reading and not self._begin_path():
            time.sleep(min(wait, self._poll))
            return None
        reading = self._reading[0]
        with self._mapped():
            if reading.is_at_end and self._follow and not reading.is_ended:
                # The data at this offset may belong to another file.
                self._look(reading)
            chunk = self._chunk(reading)
            reading.is_at_end = not chunk
            if chunk:
                reading.another_since = None
                records, end = reading.lines.feed(chunk)
                return Batch(reading.partition, records, end, reading.confirm()) if records else None
            if reading.is_ended or not self._follow:
                return self._end(reading)
        time.sleep(min(wait, self._poll))
        return None

    def acknowledge(self, partition: str, confirm: str) -> None:
        """See `Source`."""

    def progress(self) -> Progress | None:
        """See `Source`. A rotated file counts with the one in its place; a compressed one counts its own bytes."""
        readings = tuple(self._reading)
        if not readings:
            return None
        try:
            path = os.stat(self._path)
        except OSError:
            path = None  # it is missing for a moment of a rotation
        read = end = self._passed
        try:
            for each in readings:
                is_cut = each.is_ended and path is not None and each.inode == path.st_ino
                size = each.offset if is_cut else os.fstat(each.file).st_size
                read, end = read + each.offset, end + max(size, each.offset)
        except OSError:
            return None  # it was closed
        if self._follow and path is not None and path.st_ino not in {each.inode for each in readings if not each.is_ended}:
            end += path.st_size
        return Progress(read, end, "bytes")

    def lost(self, partition: str) -> None:
        """See `Source`."""
        raise Wrong("another process reads it now; one process reads such a source")

    def close(self) -> None:
        """See `Source`."""
        for reading in self._reading:
            os.close(reading.file)
        self._reading.clear()

    def _end(self, reading: _Reading) -> Batch | None:
        """Return a last line without a newline, and close the file."""
        if reading.is_over:
            raise EndOfSource
        records, end = reading.lines.end()
        confirm = reading.confirm()
        if self._follow:
            os.close(reading.file)
            self._reading.popleft()
            self._passed += reading.offset
            return Batch(reading.partition, records, end, None, is_last=True)
        reading.is_over = True
        return Batch(reading.partition, records, end, confirm) if records else None

    def _chunk(self, reading: _Reading) -> bytes:
        if reading.inflated is None:
            offset, chunk = reading.offset, self._piece(reading, CHUNK)
            if offset == 0 and may_be_compressed(chunk):
                self._inflate(reading)
            else:
                if self._is_json and offset == 0 and (what := foreign(chunk[:LOOKS], is_all=True)):
                    raise ServiceError(f"{self._path}: {what}")
                if len(reading.head) < HEAD and offset == len(reading.head):
                    reading.head += chunk[: HEAD - len(reading.head)]
                return chunk
        assert reading.inflated is not None
        while chunk := next(reading.inflated, b""):
            if reading.skip >= len(chunk):
                reading.skip -= len(chunk)
                continue
            chunk, reading.skip = chunk[reading.skip :], 0
            return chunk
        return b""

    def _piece(self, reading: _Reading, size: int) -> bytes:
        piece = os.pread(reading.file, size, reading.offset)
        reading.offset += len(piece)
        return piece

    def _inflate(self, reading: _Reading) -> None:
        """Open a compressed file for reading as a whole. Raises ServiceError if it is to be followed."""
        if self._follow and not reading.is_ended:
            raise ServiceError(f"{self._path}: compressed, so it cannot be followed; set follow: false")
        reading.head = os.pread(reading.file, HEAD, 0)
        reading.offset, reading.skip = 0, reading.lines.position
        reading.inflated = read_chunks(iter(partial(self._piece, reading, _COMPRESSED), b""))

    def _look(self, reading: _Reading) -> None:
        """Check whether the path leads to another file, or to this one truncated."""
        now = time.monotonic()
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        if status.st_ino == reading.inode:
            size = os.fstat(reading.file).st_size
            if size >= reading.offset and os.pread(reading.file, len(reading.head), 0) == reading.head:
                return
            _LOGGER.info("%s: truncated; reading it again from its beginning", self._path)
            # The old content is gone, including the beginning of a line that was read.
            reading.lines, reading.inflated = Lines(self._max_bytes, reading.lines.position), iter(())
        else:
            # Its writer continues in the renamed file until it is notified, which is the last step of a rotation.
            if reading.another_since is None:
                reading.another_since = now
            if now - reading.another_since < self._poll * _LOOKS:
                return
            _LOGGER.info("%s: rotated; the new file is read from its beginning", self._path)
        faults.point("source.rotated")
        reading.is_ended = True

    def _begin_path(self) -> bool:
        """Open the file at the path as a new partition; return whether the path exists."""
        if not self._path.exists():
            if not self._is_waiting:
                _LOGGER.info("%s: the file does not exist yet", self._path)
                self._is_waiting = True
            return False
        self._is_waiting = False
        with self._mapped():
            file = self._open(self._path)
            reading = _Reading(file, secrets.token_hex(8), os.fstat(file).st_ino, Lines(self._max_bytes), 0)
            self._begin(reading.partition, reading.confirm())
        self._reading.append(reading)
        return True

    def _resume(self, file: int, partition: str, place: Mapping[str, Any], *, is_ended: bool) -> None:
        offset, head = place["offset"], os.pread(file, place["head_bytes"], 0)
        reading = _Reading(file, partition, place["inode"], Lines(self._max_bytes, offset), offset, head, is_ended=is_ended)
        if offset and may_be_compressed(head):
            self._inflate(reading)
        self._reading.append(reading)

    def _find(self, place: Mapping[str, Any]) -> int | None:
        """Open the file that was read up to a place, under the name that it was rotated to; None if it is not found."""
        for path in sorted(self._path.parent.glob(f"{_plain(self._path.name)}*")):
            try:
                if path != self._path and path.stat().st_ino == place["inode"] and path.is_file():
                    file = self._open(path)
                    if _is_same(file, place):
                        return file
                    os.close(file)
            except OSError:
                continue
        return None

    def _open(self, path: Path) -> int:
        # Opening a pipe would wait for a writer.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ServiceError(f"{path}: no file")
        return file

    def _mapped(self) -> _Mapped:
        return _Mapped(self._path)


@final
class _Mapped:
    """Raises one clear error for a failure of a file. It is used for each batch, so it is not a generator."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do not act; `__exit__` maps the error."""

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InputError):
            raise ServiceError(f"{self._path}: {error}") from None
        if isinstance(error, OSError):
            raise failed(self._path, error) from error


def _is_same(file: int, place: Mapping[str, Any]) -> bool:
    """Return whether a file is the one that was read up to a place, and still contains it."""
    status = os.fstat(file)
    if status.st_ino != place["inode"]:
        return False
    head = os.pread(file, place["head_bytes"], 0)
    if hashlib.sha256(head).hexdigest() != place["head"]:
        return False
    return status.st_size >= place["offset"] or may_be_compressed(head)


def _plain(name: str) -> str:
    """Return a glob pattern that matches exactly a name."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _nowhere(_: int) -> int:
    raise IndexError
