"""Lines out of pieces of text, each with the byte at which it ends.

A line ends in LF or CRLF. Blank lines and a byte order mark are passed over. One that is longer than an event may be is kept up
to a bound, and refused in its place; so an endless line costs time, and never memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, cast, final

from streamer.engine.foreign import BOM
from streamer.errors import EventCode, EventError
from streamer.service.protocols import Record, Refused

#: So much of a line that is too long is kept.
KEPT: Final = 64 * 1024
#: So much is read at once.
CHUNK: Final = 256 * 1024


@final
class Lines:
    """Splits one text.

    Attributes:
        taken: how many bytes of whole lines were given out: where the next line begins.
    """

    def __init__(self, max_bytes: int, begin: int = 0) -> None:
        self._max_bytes = max_bytes
        self._begun: list[bytes] = []  # the line whose end has not come
        self._held = 0
        self.taken = begin

    @property
    def begun(self) -> int:
        """How many bytes there are of a line whose end has not come."""
        return self._held

    def feed(self, chunk: bytes) -> tuple[list[Record], Callable[[int], int]]:
        """Return the lines that a piece ends, and where each ends."""
        if not self.taken and not self._held and chunk.startswith(BOM):
            # Blanks in its place are no part of the event, and every place in the text stays.
            chunk = b" " * len(BOM) + chunk.removeprefix(BOM)
        pieces = chunk.split(b"\n")
        rest = pieces.pop()
        start, before = self.taken, self._held
        lines: list[Record] = []
        if pieces:
            self.taken += before + len(chunk) - len(rest)
            lines = [self._whole(pieces[0]), *pieces[1:]]
            if b"\r" in chunk or (len(chunk) > self._max_bytes and max(map(len, pieces)) > self._max_bytes):
                lines[1:] = map(self._whole, pieces[1:])
        self._keep(rest)
        return _without_blanks(lines, start, before, pieces)

    def end(self) -> tuple[list[Record], Callable[[int], int]]:
        """Return the line that the text ends in, where no end of a line does."""
        start, size = self.taken, self._held
        lines = [self._whole(b"")] if size else []
        self.taken += size
        # The line's end is not there.
        return _without_blanks(lines, start, size - 1, [b""])

    def _keep(self, rest: bytes) -> None:
        self._held += len(rest)
        # Two bytes more may be the line's end and tell that it is too long.
        if self._held <= self._max_bytes + 2 or not self._begun:
            self._begun.append(rest)
        else:
            self._begun = [b"".join(self._begun)[:KEPT]]

    def _whole(self, piece: bytes) -> Record:
        size = self._held + len(piece)
        if self._held:
            piece = b"".join((*self._begun, piece))
        self._begun, self._held = [], 0
        line = piece.removesuffix(b"\r")
        if size <= self._max_bytes + 1 and len(line) <= self._max_bytes:
            return line
        reason = f"the line is longer than the {self._max_bytes} bytes that are allowed"
        return Refused(EventError(EventCode.TOO_LONG, reason, offset=self._max_bytes), piece[:KEPT], size)


def _without_blanks(
    lines: list[Record], start: int, before: int, pieces: Sequence[bytes]
) -> tuple[list[Record], Callable[[int], int]]:
    """Leave blank lines out; where each line ends is worked out when somebody asks.

    Args:
        start: where the first line begins.
        before: how many of its bytes came earlier.
        pieces: what came of each line, but for its end.
    """
    ends: list[int] = []
    kept: list[int] | None = None
    # A blank line sorts before one that begins with any character past the space: most often one look at each is enough.
    try:
        has_blanks = min(cast("list[bytes]", lines), default=b"") <= b" \xff"
    except TypeError:
        # One of them was refused.
        has_blanks = True
    if has_blanks:
        kept = [at for at, line in enumerate(lines) if isinstance(line, Refused) or line.strip(b" \t\r")]
        lines = [lines[at] for at in kept]

    def end(at: int) -> int:
        if not ends:
            ends.extend(accumulate((len(piece) + 1 for piece in pieces), initial=start + before))
        return ends[(at if kept is None else kept[at]) + 1]

    return lines, end
