"""The next messages of one sink in memory: a window of the store.

At most `MOST_IN_MEMORY` messages of a sink are in memory, and a number and a time for each key that waits. The messages of a key
form a line; a line that fails waits without delaying the others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, TypeAlias, final

from streamer.service.delivery.spool.breaker import Terms
from streamer.service.store.rows import NEVER, Lane, Waiting
from streamer.service.store.store import Store

#: The most messages of a sink in memory, and the most bytes.
MOST_IN_MEMORY: Final = 2_000
MOST_BYTES_IN_MEMORY: Final = 8 * 1024 * 1024
#: The most of them that have the same key.
MOST_OF_A_KEY: Final = 100
#: The most keys of a sink that wait for another attempt. At this limit, no other key is begun until some are through.
MOST_BLOCKED: Final = 10_000
#: The most messages and bytes of one read.
PAGE: Final = 500
PAGE_BYTES: Final = 2 * 1024 * 1024

#: A key. A message without a key has its number instead, so that it is in a line by itself.
Name: TypeAlias = int | tuple[int]


def name_of(row: Waiting) -> Name:
    """Return the name of a message's line."""
    return (row.number,) if row.key is None else row.key


@final
@dataclass(slots=True, eq=False)
class Line:
    """The next messages of one key.

    Attributes:
        waiting: the messages in memory, in order, without those in flight.
        last: the number after which the store has more.
        has_more: whether the store may have more among the messages already read past.
    """

    name: Name
    waiting: deque[Waiting] = field(default_factory=deque)
    last: int = 0
    has_more: bool = False
    is_blocked: bool = False


@final
class Lines:
    """The lines of one sink: those that are ready for a request, and those that wait for a time.

    Attributes:
        messages, bytes: the messages in memory, including those in flight.
    """

    def __init__(self, store: Store, lane: Lane) -> None:
        self._store, self._lane = store, lane
        self._cursor = lane.first
        self._lines: dict[Name, Line] = {}
        self._ready: deque[Line] = deque()
        self._blocked: list[tuple[float, int, Line]] = []
        self._order = 0
        self.messages = self.bytes = 0
        self._additions, self._read_all = 0, -1

    def __len__(self) -> int:
        """Return the number of keys with messages in memory, in flight or waiting for a time."""
        return len(self._lines)

    @property
    def is_at_end(self) -> bool:
        """Whether all messages of the store were read."""
        return self._read_all == self._additions

    @property
    def is_idle(self) -> bool:
        """Whether there is no message to begin, now or later."""
        return not self.has_next and not self._blocked

    @property
    def has_next(self) -> bool:
        """Whether there is a message to begin now."""
        return bool(self._ready) or not self.is_at_end

    @property
    def blocked(self) -> int:
        """The number of keys that wait for another attempt."""
        return len(self._blocked)

    @property
    def is_stopped(self) -> bool:
        """Whether every key that waits does so until its dead letter is replayed or dropped."""
        return all(due == inf for due, _, _ in self._blocked)

    def more(self) -> None:
        """Note that the store has more messages; the thread that adds them calls it."""
        self._additions += 1

    def load(self, now: float, terms: Terms) -> None:
        """Read more messages from the store, as far as there is room."""
        while (
            not self.is_at_end
            and self.messages < MOST_IN_MEMORY
            and self.bytes < MOST_BYTES_IN_MEMORY
            and len(self._blocked) < MOST_BLOCKED
        ):
            # The result may lack messages that are added from here on.
            additions = self._additions
            rows = self._store.waiting(self._lane, self._cursor, PAGE, PAGE_BYTES)
            if not rows:
                self._read_all = additions
            for row in rows:
                self._cursor = row.number
                self._place(row, now, terms)

    def _place(self, row: Waiting, now: float, terms: Terms) -> None:
        name = name_of(row)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name)
            if row.due and (wait := _wait(row.due, terms)) > 0:
                # The schedule that the previous process stored.
                self.block(line, row.number, now + wait)
                return
            self._ready.append(line)
        elif line.is_blocked or line.has_more or len(line.waiting) >= MOST_OF_A_KEY:
            line.has_more = True
            return
        self._append(line, row)

    def _append(self, line: Line, row: Waiting) -> None:
        line.waiting.append(row)
        line.last = row.number
        self.messages += 1
        self.bytes += len(row.body)

    def _drop(self, row: Waiting) -> None:
        self.messages -= 1
        self.bytes -= len(row.body)

    def _has_message(self, line: Line) -> bool:
        """Return whether a line has a message. Read more from the store if it has none in memory."""
        if not line.waiting and line.has_more:
            if isinstance(line.name, tuple):
                after = self._store.waiting(self._lane, line.last, 1, 1)
                rows = [row for row in after if row.number == line.name[0]]
                line.has_more = False
            else:
                rows = self._store.waiting_of(self._lane, line.name, line.last, self._cursor, MOST_OF_A_KEY)
                line.has_more = len(rows) == MOST_OF_A_KEY
            for row in rows:
                self._append(line, row)
        if not line.waiting:
            del self._lines[line.name]
        return bool(line.waiting)

    def wake(self, now: float) -> None:
        """Make the lines ready whose time has come."""
        while self._blocked and self._blocked[0][0] <= now:
            _, _, line = heappop(self._blocked)
            line.is_blocked = False
            self._ready.append(line)

    def take(self, terms: Terms, alone: Collection[int]) -> tuple[list[Waiting], list[Line]]:
        """Return the messages of the next request, and their lines; both are empty if no line is ready.

        Args:
            alone: the numbers of messages that need a request each.
        """
        rows: list[Waiting] = []
        lines: list[Line] = []
        size = 0

        def fits(row: Waiting) -> bool:
            return not rows or (size + len(row.body) <= terms.batch_bytes and row.number not in alone)

        while self._ready and len(rows) < terms.batch:
            line = self._ready.popleft()
            if not self._has_message(line):
                continue
            if not fits(line.waiting[0]):
                self._ready.appendleft(line)
                break
            lines.append(line)
            while line.waiting and len(rows) < terms.batch and fits(line.waiting[0]):
                row = line.waiting.popleft()
                rows.append(row)
                size += len(row.body)
                if row.number in alone:
                    size = terms.batch_bytes
                    break
            if line.waiting:
                break
        return rows, lines

    def done(self, rows: Sequence[Waiting]) -> None:
        """Drop messages whose request has ended."""
        for row in rows:
            self._drop(row)

    def free(self, lines: Sequence[Line]) -> None:
        """Let lines continue with their next messages."""
        for line in lines:
            if line.waiting or line.has_more:
                self._ready.append(line)
            else:
                del self._lines[line.name]

    def put_back(self, rows: Sequence[Waiting], lines: Sequence[Line]) -> None:
        """Make messages whose request has ended the next ones of their lines again."""
        by_name = {line.name: line for line in lines}
        for row in reversed(rows):
            by_name[name_of(row)].waiting.appendleft(row)
            self.messages += 1
            self.bytes += len(row.body)
        self._ready.extendleft(reversed(lines))

    def block(self, line: Line, number: int, due: float) -> None:
        """Delay a line, from a message on; the store keeps the messages that memory drops."""
        self.done(line.waiting)
        line.waiting.clear()
        line.last, line.has_more, line.is_blocked = number - 1, True, True
        self._order += 1
        heappush(self._blocked, (due, self._order, line))

    def unblock(self, numbers: Collection[int]) -> None:
        """Let the keys that wait for these messages continue."""
        self._blocked = [(0.0 if line.last + 1 in numbers else due, order, line) for due, order, line in self._blocked]
        heapify(self._blocked)

    def evict(self, names: Iterable[Name], numbers: Collection[int]) -> None:
        """Drop messages of these lines that are not in flight. A key that waited for one of them continues."""
        for name in names:
            if (line := self._lines.get(name)) is not None:
                for row in [row for row in line.waiting if row.number in numbers]:
                    line.waiting.remove(row)
                    self._drop(row)
        self.unblock(numbers)


def _wait(due: int, terms: Terms) -> float:
    # A clock that was set back delays a message by at most the longest wait between two attempts.
    return inf if due == NEVER else min(due / 1000 - time.time(), terms.most)
