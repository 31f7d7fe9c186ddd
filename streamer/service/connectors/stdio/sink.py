"""Standard output. A file is on the disk when it is flushed; the reader of a pipe is responsible for accepted lines."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final, final

from streamer.errors import ServiceError
from streamer.service.connectors.protocols import Outcome, SinkGone, failed

#: Errors of a sync of a pipe, a terminal or a socket, which cannot be synced.
_NO_FILE: Final = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)


@final
class Stdout:
    """Writes lines to standard output, past Python's buffer."""

    def check(self) -> None:
        """See `Sink`."""
        if sys.stdout is None or sys.stdout.closed:
            raise ServiceError("standard output is closed")

    def open(self) -> None:
        """See `Sink`."""
        self.check()
        sys.stdout.flush()
        self._file = sys.stdout.fileno()

    def write(self, messages: Sequence[bytes]) -> None:
        """See `Sink`."""
        rest = memoryview(b"".join(messages))
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BrokenPipeError:
            raise SinkGone("standard output: its reader went away") from None
        except OSError as error:
            raise failed("standard output", error) from error

    def flush(self) -> Sequence[tuple[int, Outcome]]:
        """See `Sink`."""
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise failed("standard output", error) from error
        return ()

    def close(self) -> None:
        """See `Sink`."""
