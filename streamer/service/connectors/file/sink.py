"""A file that lines are appended to, and that is on the disk when it is flushed.

Opening it cuts off a torn last line, which a crash left without its end. That line was not confirmed, so it comes again. If the
path leads to another file, or to none, the next lines go to the file at the path: a rotation by rename loses no line.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.connectors.protocols import Busy, Outcome, failed

_LOGGER: Final = logging.getLogger("streamer.service")
_STEP: Final = 64 * 1024


@final
class FileAppender:
    """Appends to a file, which must have only this appender among all processes of Streamer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def check(self) -> None:
        """See `Sink`."""
        with self._mapped():
            if self._path.exists():
                self._check_kind(os.stat(self._path))
                file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                try:
                    self._lock(file, fcntl.LOCK_SH)
                    self._torn(file)
                finally:
                    os.close(file)
            elif not os.access(self._path.parent, os.W_OK | os.X_OK):
                raise ServiceError(f"{self._path}: its directory does not exist, or cannot be written")

    def open(self) -> None:
        """See `Sink`."""
        with self._mapped():
            self._file = self._opened()

    def write(self, messages: Sequence[bytes]) -> None:
        """See `Sink`."""
        with self._mapped():
            assert self._file is not None
            if not self._is_there():
                _LOGGER.info("%s: rotated; writing a new file", self._path)
                os.fsync(self._file)
                os.close(self._file)
                self._file = None
                self._file = self._opened()
            size, rest = os.fstat(self._file).st_size, memoryview(b"".join(messages))
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except OSError:
                # The next line would be appended to a partial one.
                os.ftruncate(self._file, size)
                raise

    def flush(self) -> Sequence[tuple[int, Outcome]]:
        """See `Sink`."""
        with self._mapped():
            assert self._file is not None
            os.fsync(self._file)
        return ()

    def close(self) -> None:
        """See `Sink`."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_there(self) -> bool:
        """Return whether the path still leads to the open file."""
        assert self._file is not None
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._file)
        return (status.st_dev, status.st_ino) == (mine.st_dev, mine.st_ino)

    def _opened(self) -> int:
        is_new = not self._path.exists()
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            self._check_kind(os.fstat(file))
            self._lock(file, fcntl.LOCK_EX)
            self._cut(file)
            if is_new:
                # Without this, a loss of power may leave the lines without a name that leads to them.
                directory = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
        except BaseException:
            os.close(file)
            raise
        return file

    def _check_kind(self, status: os.stat_result) -> None:
        """Raise ServiceError for a device or a pipe, which cannot be appended to and synced."""
        if not stat.S_ISREG(status.st_mode):
            raise ServiceError(f"{self._path}: no regular file")

    def _lock(self, file: int, how: int) -> None:
        """Lock a file until it is closed. Raises Busy."""
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{self._path}: another process of Streamer writes it") from None

    def _torn(self, file: int) -> tuple[int, int]:
        """Return the end of the last whole line, and the size. Raises ServiceError if the rest is not a message of a sink."""
        size = end = os.fstat(file).st_size
        while end:
            begin = max(end - _STEP, 0)
            newline = os.pread(file, end - begin, begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        # After a crash of the system there may be zeros in place of the last lines.
        if end < size and os.pread(file, 1, end) not in (b"{", b"\0"):
            raise ServiceError(
                f"{self._path}: its last line is cut off and not part of a message, so no sink has written this file"
            )
        return end, size

    def _cut(self, file: int) -> None:
        """Cut a torn last line off. Raises as `_torn`."""
        end, size = self._torn(file)
        if end < size:
            os.ftruncate(file, end)
            os.fsync(file)
            _LOGGER.warning("%s: cut off the last %d bytes, a line without an end", self._path, size - end)
            faults.point("sink.cut")

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failed(self._path, error) from error
