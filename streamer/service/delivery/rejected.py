"""Log rejected records: at intervals, one line for each source and reason, because a line for each record would flood the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, final

from streamer.quiet import Quiet
from streamer.service.store.rows import DeadLetter
from streamer.terminal import printable

#: The interval between two lines about one source and reason, in seconds.
EVERY: Final = 10.0
#: The most characters of a reason in a line.
_REASON: Final = 120


@final
class Rejected:
    """Logs records that became dead letters. Any thread may add, and log the suppressed ones.

    Args:
        log: a logger's method, which gets the line and its arguments.
        number: returns the number of a letter in the store; None if it was deleted.
    """

    def __init__(self, log: Callable[..., Any], number: Callable[[DeadLetter], int | None]) -> None:
        self._log, self._number = log, number
        self._quiet = Quiet(EVERY)
        self._last: dict[Hashable, DeadLetter] = {}

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Log stored records, as far as lines are due. Dead letters of messages are logged elsewhere."""
        rejected = [letter for letter in letters if letter.stage == "decode"]
        counts = Counter((letter.source, letter.code) for letter in rejected)
        self._last |= {(letter.source, letter.code): letter for letter in rejected}
        for key, count in counts.items():
            if (so_far := self._quiet.due(key, count)) is not None:
                self._tell(key, so_far)

    def rest(self, *, is_over: bool = False) -> None:
        """Log suppressed records if lines are due; with *is_over* all of them."""
        for key, count in self._quiet.rest(is_over=is_over):
            self._tell(key, count)

    def _tell(self, key: Hashable, count: int) -> None:
        letter = self._last[key]
        number = self._number(letter)
        # The code and the place of the error. The rest may quote the record, whose values do not belong into a log.
        reason = printable(letter.reason.partition(": ")[0][:_REASON])
        more = "" if count == 1 else f", and {count - 1:,} more in the last {EVERY:.0f} s"
        place = {"source": letter.source, "partition": letter.partition, "offset": letter.position}
        self._log(
            "sources.%s: the record at %s %s was rejected: %s%s; streamer dead-letters %s shows %s",
            *(letter.source, printable(letter.partition), letter.position, reason, more),
            *(("list", "them") if number is None else (f"show {number}", "it")),
            extra=place | {"code": letter.code, "reason": reason, "count": count, "dead_letter": number},
        )
