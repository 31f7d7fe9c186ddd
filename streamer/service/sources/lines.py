"""Lines out of pieces of text, each with the byte at which it ends.

A line ends in LF or CRLF. Blank lines are passed over. One that is longer than an event may be is kept up to a bound, and refused
in its place; so an endless line costs time, and never memory.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final, final

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
        *ended, rest = chunk.split(b"\n")
        lines: list[Record] = []
        start = self.taken
        sizes: list[int] = []
        if ended:
            sizes = [len(piece) + 1 for piece in ended]
            sizes[0] += self._held
            first = self._whole(ended[0])
            if len(chunk) <= self._max_bytes and b"\r" not in chunk:
                lines = [first, *ended[1:]]
            else:
                lines = [first, *map(self._whole, ended[1:])]
            self.taken += sum(sizes)
        self._keep(rest)
        return _without_blanks(lines, start, sizes)

    def end(self) -> tuple[list[Record], Callable[[int], int]]:
        """Return the line that the text ends in, where no end of a line does."""
        start, size = self.taken, self._held
        lines = [self._whole(b"")] if size else []
        self.taken += size
        return _without_blanks(lines, start, [size])

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


def _without_blanks(lines: list[Record], start: int, sizes: list[int]) -> tuple[list[Record], Callable[[int], int]]:
    """Leave blank lines out; where each line ends is worked out when somebody asks."""
    ends: list[int] = []
    kept: list[int] | None = None
    # A blank line sorts before one that begins with any character past the space: most often one look at each is enough.
    whole = [line for line in lines if isinstance(line, bytes)]
    if len(whole) < len(lines) or min(whole, default=b"") <= b" \xff":
        kept = [at for at, line in enumerate(lines) if isinstance(line, Refused) or line.strip(b" \t\r")]
        lines = [lines[at] for at in kept]

    def end(at: int) -> int:
        if not ends:
            ends.extend(accumulate(sizes, initial=start))
        return ends[(at if kept is None else kept[at]) + 1]

    return lines, end
