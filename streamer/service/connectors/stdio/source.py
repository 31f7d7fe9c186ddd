"""Standard input. It cannot be read again, so it has no position to return to: records in flight are lost with the process."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import select
import stat
import sys
import termios
from collections.abc import Iterator, Mapping
from itertools import chain
from struct import Struct
from typing import Final, final

from streamer.engine.foreign import LOOKS, foreign
from streamer.engine.lines import may_be_compressed, read_chunks
from streamer.errors import InputError, ServiceError
from streamer.service.connectors.lines import CHUNK, Lines
from streamer.service.connectors.protocols import NO_OTHERS, NOTHING, Batch, Begin, EndOfSource, Others, Progress, Wrong

_LOGGER: Final = logging.getLogger("streamer.service")
_INT: Final = Struct("i")


@final
class StdinLines:
    """JSON lines of standard input, plain, gzip or zstd. Each run is a partition of its own."""

    is_shared: Final = False
    down_since: Final = None

    def __init__(self, *, max_bytes: int, is_json: bool = True) -> None:
        self._lines = Lines(max_bytes)
        self._partition = secrets.token_hex(8)
        self._inflated: Iterator[bytes] | None = None
        self._is_begun = False
        self._offset = 0  # bytes of the input, as they are: compressed or not
        self._is_json = is_json  # a line of another format may be an array

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """See `Source`."""
        if sys.stdin is None or sys.stdin.closed:
            raise ServiceError("standard input is closed")

    def open(self, confirmed: Mapping[str, str], begin: Begin, others: Others = NO_OTHERS) -> None:
        """See `Source`."""
        self.check()
        if sys.stdin.isatty():
            _LOGGER.warning("reading from the terminal, one JSON object a line; Ctrl-D ends it")
        _LOGGER.warning(
            "standard input cannot be read again: if this process dies, lines that it has read and not delivered are lost"
        )
        self._ready = select.poll()
        self._ready.register(sys.stdin.fileno(), select.POLLIN)

    def read(self, wait: float) -> Batch | None:
        """See `Source`."""
        # Reads of compressed text do not wait for `poll`, because the decompressor may still have data from earlier reads.
        if self._inflated is None and not self._ready.poll(wait * 1000):
            return None
        try:
            chunk = next(self._inflated, b"") if self._inflated is not None else self._read()
        except (InputError, OSError) as error:
            raise ServiceError(f"standard input: {error}") from None
        if chunk:
            records, end = self._lines.feed(chunk)
        else:
            records, end = self._lines.end()
            if not records:
                raise EndOfSource
        return Batch(self._partition, records, end, None)

    def _read(self) -> bytes:
        chunk = self._piece()
        if self._is_begun or not may_be_compressed(chunk):
            if self._is_json and not self._is_begun and (what := foreign(chunk[:LOOKS], is_all=True)):
                raise ServiceError(f"standard input: {what}")
            self._is_begun = True
            return chunk
        self._inflated = read_chunks(chain([chunk], iter(self._piece, b"")))
        return next(self._inflated, b"")

    def _piece(self) -> bytes:
        piece = os.read(sys.stdin.fileno(), CHUNK)
        self._offset += len(piece)
        return piece

    def acknowledge(self, partition: str, confirm: str) -> None:
        """See `Source`."""

    def progress(self) -> Progress | None:
        """See `Source`. A pipe shows only what its writer could write so far; None for an input that shows nothing."""
        if sys.stdin is None or sys.stdin.closed:
            return None
        file = sys.stdin.fileno()
        try:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode):
                waiting = status.st_size - os.lseek(file, 0, os.SEEK_CUR)
            else:
                (waiting,) = _INT.unpack(fcntl.ioctl(file, termios.FIONREAD, bytes(_INT.size)))
        except OSError:
            return None
        return Progress(self._offset, self._offset + max(waiting, 0), "bytes")

    def lost(self, partition: str) -> None:
        """See `Source`."""
        raise Wrong("another process reads it now; one process reads such a source")

    def close(self) -> None:
        """See `Source`."""
