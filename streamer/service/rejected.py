"""Records that were rejected, in the log: one line for each source and reason now and then, since each one would flood it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, final

from streamer.quiet import Quiet
from streamer.service.store.rows import DeadLetter
from streamer.terminal import printable

#: Seconds between two lines about one source and reason.
EVERY: Final = 10.0
#: Characters of a reason that a line has.
_REASON: Final = 120


@final
class Rejected:
    """Logs records that became dead letters. Threads add, and any may ask for what was left out.

    Args:
        log: takes the line and its arguments, as a logger does.
        number: returns the number that a letter has in the store; None if it is gone.
    """

    def __init__(self, log: Callable[..., Any], number: Callable[[DeadLetter], int | None]) -> None:
        self._log, self._number = log, number
        self._quiet = Quiet(EVERY)
        self._last: dict[Hashable, DeadLetter] = {}

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Log records that are in the store now, as far as they are due. Messages that were given up are others' to log."""
        rejected = [letter for letter in letters if letter.stage == "decode"]
        counts = Counter((letter.source, letter.code) for letter in rejected)
        self._last |= {(letter.source, letter.code): letter for letter in rejected}
        for key, count in counts.items():
            if (so_far := self._quiet.due(key, count)) is not None:
                self._tell(key, so_far)

    def rest(self, *, is_over: bool = False) -> None:
        """Log those that were left out and may be logged now; with *is_over* all of them."""
        for key, count in self._quiet.rest(is_over=is_over):
            self._tell(key, count)

    def _tell(self, key: Hashable, count: int) -> None:
        letter = self._last[key]
        number = self._number(letter)
        what = "1 record was" if count == 1 else f"{count:,} records were"
        # The code and the place of the error. What follows may quote the record, whose values do not belong into a log.
        reason = printable(letter.reason.partition(": ")[0][:_REASON])
        self._log(
            "sources.%s: %s rejected; for example the one at %s %s: %s; streamer dead-letters %s shows %s",
            *(letter.source, what, printable(letter.partition), letter.position, reason),
            *(("list", "them") if number is None else (f"show {number}", "it")),
        )
