"""Split pieces of text into lines, each with the byte at which it ends.

A line ends in LF or CRLF. Blank lines and a byte order mark are skipped. A line longer than the limit for events is kept up to a
bound, and refused in its place; so an endless line costs time, but never memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, cast, final

from streamer.engine.foreign import BOM
from streamer.errors import EventCode, EventError
from streamer.service.connectors.protocols import Record, Refused

#: The bytes that are kept of a line that is too long.
MOST_REFUSED: Final = 64 * 1024
#: The bytes of one read.
CHUNK: Final = 256 * 1024


@final
class Lines:
    """Splits one text.

    Attributes:
        position: the number of bytes of the lines returned so far: the place of the next line.
    """

    def __init__(self, max_bytes: int, begin: int = 0) -> None:
        self._max_bytes = max_bytes
        self._begun: list[bytes] = []  # the line whose end was not read yet
        self._pending = 0
        self.position = begin

    @property
    def begun(self) -> int:
        """The number of bytes of a line whose end was not read yet."""
        return self._pending

    def feed(self, chunk: bytes) -> tuple[list[Record], Callable[[int], int]]:
        """Return the lines that a piece completes, and the end of each."""
        if not self.position and not self._pending and chunk.startswith(BOM):
            # Blanks replace it, so that it is not part of the event, and every place in the text stays the same.
            chunk = b" " * len(BOM) + chunk.removeprefix(BOM)
        pieces = chunk.split(b"\n")
        rest = pieces.pop()
        start, before = self.position, self._pending
        lines: list[Record] = []
        if pieces:
            self.position += before + len(chunk) - len(rest)
            lines = [self._whole(pieces[0]), *pieces[1:]]
            if b"\r" in chunk or (len(chunk) > self._max_bytes and max(map(len, pieces)) > self._max_bytes):
                lines[1:] = map(self._whole, pieces[1:])
        self._keep(rest)
        return _without_blanks(lines, start, before, pieces)

    def end(self) -> tuple[list[Record], Callable[[int], int]]:
        """Return the last line of a text that ends without a newline."""
        start, size = self.position, self._pending
        lines = [self._whole(b"")] if size else []
        self.position += size
        # This line lacks its newline.
        return _without_blanks(lines, start, size - 1, [b""])

    def _keep(self, rest: bytes) -> None:
        self._pending += len(rest)
        # Two bytes more may be the line's end, and show that it is too long.
        if self._pending <= self._max_bytes + 2 or not self._begun:
            self._begun.append(rest)
        else:
            self._begun = [b"".join(self._begun)[:MOST_REFUSED]]

    def _whole(self, piece: bytes) -> Record:
        size = self._pending + len(piece)
        if self._pending:
            piece = b"".join((*self._begun, piece))
        self._begun, self._pending = [], 0
        line = piece.removesuffix(b"\r")
        if size <= self._max_bytes + 1 and len(line) <= self._max_bytes:
            return line
        reason = f"the line is longer than the {self._max_bytes} bytes that are allowed"
        return Refused(EventError(EventCode.TOO_LONG, reason, offset=self._max_bytes), piece[:MOST_REFUSED], size)


def _without_blanks(
    lines: list[Record], start: int, before: int, pieces: Sequence[bytes]
) -> tuple[list[Record], Callable[[int], int]]:
    """Drop blank lines. The ends of lines are computed only when they are used.

    Args:
        start: the place of the first line.
        before: the number of its bytes that came earlier.
        pieces: the new part of each line, without its end.
    """
    ends: list[int] = []
    numbers: list[int] | None = None
    # A blank line sorts before one that begins with any character past the space: usually one comparison of each is enough.
    try:
        has_blanks = min(cast("list[bytes]", lines), default=b"") <= b" \xff"
    except TypeError:
        # One of them is a refused line.
        has_blanks = True
    if has_blanks:
        numbers = [at for at, line in enumerate(lines) if isinstance(line, Refused) or line.strip(b" \t\r")]
        lines = [lines[at] for at in numbers]

    def end(at: int) -> int:
        if not ends:
            ends.extend(accumulate((len(piece) + 1 for piece in pieces), initial=start + before))
        return ends[(at if numbers is None else numbers[at]) + 1]

    return lines, end
