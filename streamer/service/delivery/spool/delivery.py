"""One sink of the spool: its next messages, its requests in flight, and their results.

The store is the truth. Memory has a window of it: at most `MOST_HELD` messages for each sink, and a number and a time for each
key that waits. The messages of a key form a line; a line that fails waits without delaying the others.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, TypeAlias, final

from streamer.quiet import Quiet
from streamer.service.connectors.protocols import Endpoint, Outcome
from streamer.service.delivery.dead_letters import undelivered
from streamer.service.delivery.spool.breaker import Breaker, Terms
from streamer.service.store.rows import NEVER, Changes, Lane, Waiting
from streamer.service.store.store import Store

#: The most messages of a sink in memory, and the most bytes.
MOST_HELD: Final = 2_000
MOST_HELD_BYTES: Final = 8 * 1024 * 1024
#: The most of them that have the same key.
MOST_OF_A_KEY: Final = 100
#: The most keys of a sink that wait for another attempt. At this limit, no other key is begun until some are through.
MOST_BLOCKED: Final = 10_000
#: The most messages and bytes of one read.
PAGE: Final = 500
PAGE_BYTES: Final = 2 * 1024 * 1024
#: The log repeats a message about one sink after this many seconds at the earliest.
QUIET: Final = 10.0
_LOGGER: Final = logging.getLogger("streamer.service")

#: The name in metrics of all webhooks of tenants' own gateways; other sinks have no colon in their name.
WEBHOOKS: Final = "gateways:webhook"

#: A key. A message without a key has its number instead, so that it is in a line by itself.
Name: TypeAlias = int | tuple[int]


def _name(row: Waiting) -> Name:
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
@dataclass(slots=True, eq=False)
class Owner:
    """A tenant, and the limits that its own gateways share.

    Attributes:
        most_bytes, most_requests: the limits of all of its gateways together.
        bytes: of their messages in the spool, including histories.
        requests: in flight.
    """

    tenant: str
    most_bytes: int
    most_requests: int
    bytes: int = 0
    requests: int = 0


@final
class Delivery:
    """One sink: its lines, and its requests in flight. Only the spool's thread uses it."""

    def __init__(
        self, name: str, endpoint: Endpoint, terms: Terms, target: str, lane: Lane, store: Store, owner: Owner | None = None
    ) -> None:
        self.name, self.endpoint, self.terms, self.target, self.lane, self.owner = name, endpoint, terms, target, lane, owner
        self.label = name if owner is None else WEBHOOKS
        self.is_forgotten = False
        # A failing endpoint of a tenant concerns the tenant; the operator's log has it at debug level only.
        self._where, self._level = (f"sinks.{name}", 0) if owner is None else (name, logging.DEBUG)
        self._store = store
        self.breaker = Breaker(terms)
        self.is_gone = lane.gone is not None
        self.messages = self.bytes = self.matches = 0
        self.change(*store.held(lane))
        self.flying: set[int] = set()
        self.requests = 0
        self.results: Counter[str] = Counter()
        self._cursor = lane.first
        self._lines: dict[Name, Line] = {}
        self._ready: deque[Line] = deque()
        self._blocked: list[tuple[float, int, Line]] = []
        self._order = 0
        self._held = self._held_bytes = 0
        self._alone: set[int] = set()
        self._stuck: set[int] = set()
        self._additions, self._read_all = 0, -1
        self.settled_matches = self.settled_dead = self.settled_messages = self.settled_bytes = 0
        self.delivered = self.dead = 0
        self._quiet = Quiet(QUIET)
        self._is_reported_down = False

    def become(self, endpoint: Endpoint, terms: Terms, target: str) -> None:
        """Deliver to another endpoint, or on other terms, from the next request on. Requests in flight end as they began."""
        if endpoint is not self.endpoint:
            self.endpoint.close()
        if (target, terms) != (self.target, self.terms):
            self.breaker = Breaker(terms)
        self.endpoint, self.terms, self.target = endpoint, terms, target

    def change(self, messages: int, size: int, matches: int) -> None:
        """Add to the numbers of messages, bytes and matches in the spool; negative values subtract."""
        self.messages += messages
        self.bytes += size
        self.matches += matches
        if self.owner is not None:
            self.owner.bytes += size

    def settled(self) -> tuple[int, int]:
        """Note that the results are in the store; return the matches that were delivered, and those of dead letters."""
        delivered, dead = self.settled_matches, self.settled_dead
        self.change(-self.settled_messages, -self.settled_bytes, -delivered - dead)
        self.settled_matches = self.settled_dead = self.settled_messages = self.settled_bytes = 0
        self.delivered, self.dead = self.delivered + delivered, self.dead + dead
        return delivered, dead

    @property
    def is_idle(self) -> bool:
        """Whether there is no message to begin, now or later."""
        return not self._ready and self._is_at_end and not self._blocked

    @property
    def state(self) -> str:
        """The state of its endpoint: `closed`, `half_open`, `open`, or `disabled` after 410."""
        return "disabled" if self.is_gone else self.breaker.state

    @property
    def is_done(self) -> bool:
        """Whether every message that can be delivered without intervention has been delivered."""
        is_off = self.is_gone or self.terms.is_paused
        if self.requests or (not is_off and (self._ready or not self._is_at_end)):
            return False
        return is_off or all(due == inf for due, _, _ in self._blocked)

    @property
    def blocked(self) -> int:
        """The number of keys that wait for another attempt."""
        return len(self._blocked)

    @property
    def stuck(self) -> int:
        """The number of messages that are retried because there is no room for their dead letters."""
        return len(self._stuck)

    @property
    def _is_at_end(self) -> bool:
        return self._read_all == self._additions

    def more(self) -> None:
        """Note that the store has more messages; the thread that adds them calls it."""
        self._additions += 1

    def load(self, now: float) -> None:
        """Read more messages from the store, as far as there is room."""
        while (
            not (self._is_at_end or self.is_gone)
            and self._held < MOST_HELD
            and self._held_bytes < MOST_HELD_BYTES
            and len(self._blocked) < MOST_BLOCKED
        ):
            # The result may lack messages that are added from here on.
            additions = self._additions
            rows = self._store.waiting(self.lane, self._cursor, PAGE, PAGE_BYTES)
            if not rows:
                self._read_all = additions
            for row in rows:
                self._cursor = row.number
                self._place(row, now)

    def _place(self, row: Waiting, now: float) -> None:
        name = _name(row)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name)
            if row.due and (wait := self._wait(row.due)) > 0:
                # The schedule that the previous process stored.
                self._block(line, row.number, now + wait)
                return
            self._ready.append(line)
        elif line.is_blocked or line.has_more or len(line.waiting) >= MOST_OF_A_KEY:
            line.has_more = True
            return
        self._append(line, row)

    def _append(self, line: Line, row: Waiting) -> None:
        line.waiting.append(row)
        line.last = row.number
        self._held += 1
        self._held_bytes += len(row.body)

    def _wait(self, due: int) -> float:
        # A clock that was set back delays a message by at most the longest wait between two attempts.
        return inf if due == NEVER else min(due / 1000 - time.time(), self.terms.most)

    def _block(self, line: Line, number: int, due: float) -> None:
        """Delay a line, from a message on; the store keeps the messages that memory drops."""
        for row in line.waiting:
            self._forget(row)
        line.waiting.clear()
        line.last, line.has_more, line.is_blocked = number - 1, True, True
        self._order += 1
        heappush(self._blocked, (due, self._order, line))

    def _forget(self, row: Waiting) -> None:
        self._held -= 1
        self._held_bytes -= len(row.body)

    def _filled(self, line: Line) -> bool:
        """Return whether a line has a message. Read more from the store if it has none in memory."""
        if not line.waiting and line.has_more:
            if isinstance(line.name, tuple):
                found = self._store.waiting(self.lane, line.last, 1, 1)
                rows = [row for row in found if row.number == line.name[0]]
                line.has_more = False
            else:
                rows = self._store.waiting_of(self.lane, line.name, line.last, self._cursor, MOST_OF_A_KEY)
                line.has_more = len(rows) == MOST_OF_A_KEY
            for row in rows:
                self._append(line, row)
        if not line.waiting:
            del self._lines[line.name]
        return bool(line.waiting)

    def take(self, now: float) -> tuple[list[Waiting], list[Line]] | None:
        """Return messages for one request, and their lines; None if no request may begin."""
        while self._blocked and self._blocked[0][0] <= now:
            _, _, line = heappop(self._blocked)
            line.is_blocked = False
            self._ready.append(line)
        if self.is_gone or self.terms.is_paused or not self.breaker.lets(now, self.requests):
            return None
        rows: list[Waiting] = []
        lines: list[Line] = []
        size = 0
        while self._ready and len(rows) < self.terms.batch:
            line = self._ready.popleft()
            if not self._filled(line):
                continue
            fits = not rows or self._fits(line.waiting[0], size)
            if not fits:
                self._ready.appendleft(line)
                break
            lines.append(line)
            while line.waiting and len(rows) < self.terms.batch and (not rows or self._fits(line.waiting[0], size)):
                row = line.waiting.popleft()
                rows.append(row)
                size += len(row.body)
                if row.number in self._alone:
                    size = self.terms.batch_bytes
                    break
            if line.waiting:
                break
        if not rows:
            return None
        self.requests += 1
        if self.owner is not None:
            self.owner.requests += 1
        self.flying.update(row.number for row in rows)
        return rows, lines

    def _fits(self, row: Waiting, size: int) -> bool:
        return size + len(row.body) <= self.terms.batch_bytes and row.number not in self._alone

    # Results of requests

    def done(
        self,
        endpoint: Endpoint,
        rows: Sequence[Waiting],
        lines: Sequence[Line],
        outcome: Outcome,
        changes: Changes,
        now: float,
    ) -> None:
        """Record the result of a request to an endpoint, which may have been replaced meanwhile."""
        self.requests -= 1
        if self.owner is not None:
            self.owner.requests -= 1
        if self.is_forgotten:
            return
        self.flying.difference_update(row.number for row in rows)
        for row in rows:
            self._forget(row)
        self.results["retried" if outcome.result == "later" else "refused" if outcome.result == "never" else outcome.result] += 1
        if endpoint is not self.endpoint and outcome.result in ("later", "gone"):
            # The result is about the replaced endpoint, so it does not count for the new one.
            self._put_back(rows, lines)
            return
        if outcome.result == "later":
            if self.breaker.bad(lines[0].name, now, outcome.after) and self._quiet.due("down") is not None:
                self._is_reported_down = True
                wait = self.breaker.until - now
                text = "%s: does not answer as it should: %s; retried in %.1f s"
                self._log(logging.WARNING, text, outcome.reason, wait)
            self._failed(rows, lines, outcome, changes, now)
            return
        if self.breaker.good(now) and self._is_reported_down:
            self._is_reported_down = False
            self._log(logging.INFO, "%s: answers again")
        if outcome.result == "delivered":
            for row in rows:
                self._settle(row)
                changes.delivered.append(row.number)
                self.settled_matches += row.matches
            self._free(lines)
        elif outcome.result == "gone":
            self.is_gone = True
            changes.gone.append((self.name, self.target))
            text = "%s: its endpoint is disabled after its answer (%s), and its messages wait"
            self._log(logging.ERROR, f"{text}; give it another url, or start with --enable %s", outcome.reason, self.name)
            self._put_back(rows, lines)
        elif len(rows) > 1:
            # One of them may be at fault; sending each by itself finds it.
            self._alone.update(row.number for row in rows)
            self._put_back(rows, lines)
        elif self._has_room(rows[0], outcome.reason, changes):
            self._bury(rows[0], outcome.code, outcome.reason, rows[0].attempts + 1, changes)
            self._free(lines)
        else:
            self._keep(rows[0], changes)
            self._block(lines[0], rows[0].number, now + self.terms.most)

    def _failed(self, rows: Sequence[Waiting], lines: Sequence[Line], outcome: Outcome, changes: Changes, now: float) -> None:
        delay = self.terms.delay(1 + max(row.attempts for row in rows))
        if outcome.after is not None:
            delay = max(delay, min(outcome.after, self.terms.most))
        due = int((time.time() + delay) * 1000)
        for line in lines:
            left: Waiting | None = None
            is_over = is_stuck = False
            for row in rows:
                if _name(row) != line.name:
                    continue
                attempts = row.attempts + 1
                if attempts < self.terms.attempts:
                    changes.tried.append((attempts, due, row.number))
                elif is_stuck or not (is_over or self._has_room(row, outcome.reason, changes)):
                    is_stuck = True
                    self._keep(row, changes)
                elif self.terms.on_exhausted == "dead_letter":
                    self._bury(row, outcome.code, outcome.reason, attempts, changes)
                    continue
                elif not is_over:
                    is_over = True
                    self._stuck.discard(row.number)
                    changes.tried.append((attempts, NEVER, row.number))
                    letter = undelivered(self.name, row, outcome.code, outcome.reason, attempts, waits=row.number)
                    changes.bury(row.number, letter)
                    self._tell(outcome.reason)
                left = left or row
            if left is None:
                self._free([line])
            else:
                wait = self.terms.most if is_stuck else delay
                self._block(line, left.number, inf if is_over else now + wait)

    def _free(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.waiting or line.has_more:
                self._ready.append(line)
            else:
                del self._lines[line.name]

    def _put_back(self, rows: Sequence[Waiting], lines: Sequence[Line]) -> None:
        by_name = {line.name: line for line in lines}
        for row in reversed(rows):
            by_name[_name(row)].waiting.appendleft(row)
            self._held += 1
            self._held_bytes += len(row.body)
        self._ready.extendleft(reversed(lines))

    def _settle(self, row: Waiting) -> None:
        self._alone.discard(row.number)
        self._stuck.discard(row.number)
        self.settled_messages += 1
        self.settled_bytes += len(row.body)

    def _has_room(self, row: Waiting, reason: str, changes: Changes) -> bool:
        return self._store.has_room(changes.dead_bytes + len(row.body) + len(reason))

    def _keep(self, row: Waiting, changes: Changes) -> None:
        """Keep retrying a message that has failed for good until there is room for its dead letter, so that it is not lost."""
        self._stuck.add(row.number)
        changes.tried.append((row.attempts, int((time.time() + self.terms.most) * 1000), row.number))
        if self._quiet.due("stuck") is not None:
            text = "%s: there is no room for dead letters, so %d failed messages wait, each with its key"
            self._log(logging.ERROR, f"{text}; streamer dead-letters shows, replays and drops them", len(self._stuck))

    def _bury(self, row: Waiting, code: str, reason: str, attempts: int, changes: Changes) -> None:
        self._settle(row)
        self.settled_dead += row.matches
        changes.bury(row.number, undelivered(self.name, row, code, reason, attempts))
        self._tell(reason)

    def _tell(self, reason: str) -> None:
        if self._quiet.due("given up") is not None:
            self._log(logging.WARNING, "%s: a message became a dead letter: %s", reason)

    def _log(self, level: int, text: str, *values: object) -> None:
        _LOGGER.log(self._level or level, text, self._where, *values)

    def evict(self, size: int, changes: Changes) -> int:
        """Evict the oldest messages that are not in flight, as dead letters, until *size* bytes are free. Return the freed bytes.

        If there is no room for dead letters, only messages of tenants' own gateways are evicted, and dropped, because these
        gateways must not block the sources.
        """
        given_up: set[int] = set()
        names: set[Name] = set()
        after, freed, reason = self.lane.first, 0, "the spool was full"
        has_room = True
        while (
            freed < size
            and (has_room or self.owner is not None)
            and (rows := self._store.waiting(self.lane, after, PAGE, PAGE_BYTES))
        ):
            for row in rows:
                after = row.number
                if freed >= size or row.number in self.flying:
                    continue
                has_room = has_room and self._has_room(row, reason, changes)
                if has_room:
                    self._bury(row, "spool_full", reason, row.attempts, changes)
                elif self.owner is not None and row.due != NEVER:
                    self._settle(row)
                    self.settled_dead += row.matches
                    changes.delivered.append(row.number)
                else:
                    continue
                given_up.add(row.number)
                names.add(_name(row))
                freed += len(row.body)
        for name in names & self._lines.keys():
            line = self._lines[name]
            for row in [row for row in line.waiting if row.number in given_up]:
                line.waiting.remove(row)
                self._forget(row)
        # A key that waited for one of these messages continues.
        self.unblock(*given_up)
        return freed

    def unblock(self, *numbers: int) -> None:
        """Let the keys that wait for these messages continue."""
        wanted = frozenset(numbers)
        self._blocked = [(0.0 if line.last + 1 in wanted else due, order, line) for due, order, line in self._blocked]
        heapify(self._blocked)
