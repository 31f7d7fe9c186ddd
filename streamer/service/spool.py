"""What was matched and waits for endpoints that may be slow, or down: attempts, their schedule, and what is given up.

```
the store ─► lines in memory, one a key ─► ready ─► [ a thread for each attempt ] ─► delivered: leaves the store
                      ▲                                        │
                      └──── due, as the store has it ◄─────────┴─► given up: a dead letter
```

Contract: of one key, one message is on its way to a sink at a time, or some that stand together in one request; the next one
leaves once those before it are delivered or given up. So a key keeps its order through failures and restarts, and one that fails
waits alone. Messages without a key have no order.

The store is the truth. In memory stands a window of it: for each sink so many messages as `MOST_HELD` says, and of each key that
waits a number and a time. One thread owns all of that; threads that attempt get a job, and hand back what came of it. What they
have delivered is deleted some at a time, in one commit: after a crash it is delivered again, with its ids.

A breaker for each endpoint opens when requests of `TRIP` different keys have failed in a row. Then one request at a time finds
out whether the endpoint is back. So an endpoint that is down costs a few messages an attempt, and not all of them all.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, Literal, TypeAlias, TypeVar, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service import faults, letters
from streamer.service.metrics import Counts, Gauges
from streamer.service.protocols import Endpoint, Outcome
from streamer.service.store.sqlite import NEVER, Changes, DeadLetter, Lane, Spooled, Store, Waiting, milliseconds

#: So much of a sink's messages is in memory.
MOST_HELD: Final = 2_000
MOST_HELD_BYTES: Final = 8 * 1024 * 1024
#: So many of them are of one key.
MOST_OF_A_KEY: Final = 100
#: So many keys of a sink wait for another attempt; where more would, no other key is begun until some are through.
MOST_BLOCKED: Final = 10_000
#: So many messages are read at once.
PAGE: Final = 500
PAGE_BYTES: Final = 2 * 1024 * 1024
#: Requests of so many keys fail in a row before an endpoint is taken for down.
TRIP: Final = 5
#: Threads that attempt, for all endpoints together.
MOST_THREADS: Final = 256
#: What came of attempts is put down after so long, in seconds, or when it is so many messages.
GATHER: Final = 0.02
MOST_GATHERED: Final = 1_000
#: How often one looks for what is due, in seconds.
TICK: Final = 0.05
#: How often the log says the same of one sink, in seconds.
QUIET: Final = 10.0
_LOGGER: Final = logging.getLogger("streamer.service")
_T = TypeVar("_T")


@final
@dataclass(frozen=True, slots=True)
class Terms:
    """How messages are delivered to one sink.

    Attributes:
        concurrency: requests at once.
        batch, batch_bytes: messages and bytes of a request; one message may have more bytes.
        first, most: seconds until the second attempt, and between attempts at most.
        attempts: after which a message is given up.
        on_exhausted: whether its key then goes on, or waits until the dead letter is replayed or dropped.
        bytes: room in the spool.
        when_full: whether sources wait for room, or the oldest messages become dead letters.
    """

    concurrency: int = 8
    batch: int = 1
    batch_bytes: int = 1024 * 1024
    first: float = 1.0
    most: float = 600.0
    attempts: int = 12
    on_exhausted: Literal["dead_letter", "block"] = "dead_letter"
    bytes: int = 1024**3
    when_full: Literal["pause", "dead_letter"] = "pause"

    def delay(self, attempts: int) -> float:
        """Return how long to wait after so many attempts: twice as long each time, and some random part less."""
        return min(self.first * 2.0 ** min(attempts - 1, 60), self.most) * random.uniform(0.5, 1.0)


#: A key; of a message without one its number, so that it stands alone.
_Name: TypeAlias = int | tuple[int]


def _name(row: Waiting) -> _Name:
    return (row.number,) if row.key is None else row.key


@final
@dataclass(slots=True, eq=False)
class _Line:
    """The messages of one key that are next.

    Attributes:
        waiting: those in memory, in order; none of what is on its way.
        last: the number after which the store has more.
        has_more: whether it may have, of what was passed by already.
    """

    name: _Name
    waiting: deque[Waiting] = field(default_factory=deque)
    last: int = 0
    has_more: bool = False
    is_blocked: bool = False


@final
class _Breaker:
    """Whether an endpoint is asked at all."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._failing: set[_Name] = set()
        self._trips = 0
        self.state: Literal["closed", "half_open", "open"] = "closed"
        self.until = 0.0

    def lets(self, now: float, flying: int) -> bool:
        """Tell whether one more request may begin."""
        if self.state == "closed":
            return flying < self._terms.concurrency
        if self.state == "open" and now >= self.until:
            self.state = "half_open"
        return self.state == "half_open" and flying == 0

    def good(self) -> bool:
        """Note that the endpoint answers; tell whether it did not before."""
        was, self.state, self._trips = self.state, "closed", 0
        self._failing.clear()
        return was != "closed"

    def bad(self, name: _Name, now: float, after: float | None) -> bool:
        """Note that a request of a key has failed; tell whether that opens it."""
        if self.state == "open":
            return False
        self._failing.add(name)
        if after is None and self.state == "closed" and len(self._failing) < TRIP:
            return False
        self._trips += 1
        wait = self._terms.delay(self._trips) if after is None else min(after, self._terms.most)
        was, self.state, self.until = self.state, "open", now + wait
        return was == "closed"


@final
class _Delivery:
    """One sink: its lines, and what is on its way. Its thread alone uses it."""

    def __init__(self, name: str, endpoint: Endpoint, terms: Terms, target: str, lane: Lane, store: Store) -> None:
        self.name, self.endpoint, self.terms, self.target, self.lane = name, endpoint, terms, target, lane
        self._store = store
        self.breaker = _Breaker(terms)
        self.is_gone = lane.gone is not None
        self.messages, self.bytes, self.matches = store.held(lane)
        self.flying: set[int] = set()
        self.requests = 0
        self.results: Counter[str] = Counter()
        self._cursor = lane.first
        self._lines: dict[_Name, _Line] = {}
        self._ready: deque[_Line] = deque()
        self._blocked: list[tuple[float, int, _Line]] = []
        self._order = 0
        self._held = self._held_bytes = 0
        self._alone: set[int] = set()
        self._additions, self._read_all = 0, -1
        self.settled_matches = self.settled_dead = self.settled_messages = self.settled_bytes = 0
        self._told = self._told_down = -inf
        self._is_told_down = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left that will be delivered without somebody's doing."""
        if self.requests or (self.is_gone is False and (self._ready or not self._is_at_end)):
            return False
        return self.is_gone or all(due == inf for due, _, _ in self._blocked)

    @property
    def blocked(self) -> int:
        """How many keys wait for another attempt."""
        return len(self._blocked)

    @property
    def _is_at_end(self) -> bool:
        return self._read_all == self._additions

    def more(self) -> None:
        """Learn that the store has more; the thread that adds calls it."""
        self._additions += 1

    def load(self, now: float) -> None:
        """Read on in the store, as far as there is room."""
        while (
            not (self._is_at_end or self.is_gone)
            and self._held < MOST_HELD
            and self._held_bytes < MOST_HELD_BYTES
            and len(self._blocked) < MOST_BLOCKED
        ):
            # What is added from here on may not be among them.
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
            line = self._lines[name] = _Line(name)
            if row.due and (wait := self._wait(row.due)) > 0:
                # The schedule of the process before this one.
                self._block(line, row.number, now + wait)
                return
            self._ready.append(line)
        elif line.is_blocked or line.has_more or len(line.waiting) >= MOST_OF_A_KEY:
            line.has_more = True
            return
        self._append(line, row)

    def _append(self, line: _Line, row: Waiting) -> None:
        line.waiting.append(row)
        line.last = row.number
        self._held += 1
        self._held_bytes += len(row.body)

    def _wait(self, due: int) -> float:
        # A clock that was set back makes nobody wait longer than between any two attempts.
        return inf if due == NEVER else min(due / 1000 - time.time(), self.terms.most)

    def _block(self, line: _Line, number: int, due: float) -> None:
        """Let a line wait, from a message on; the store has what it forgets."""
        for row in line.waiting:
            self._forget(row)
        line.waiting.clear()
        line.last, line.has_more, line.is_blocked = number - 1, True, True
        self._order += 1
        heappush(self._blocked, (due, self._order, line))

    def _forget(self, row: Waiting) -> None:
        self._held -= 1
        self._held_bytes -= len(row.body)

    def _filled(self, line: _Line) -> bool:
        """Tell whether a line has a message, and read more of the store where it has none in memory."""
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

    def take(self, now: float) -> tuple[list[Waiting], list[_Line]] | None:
        """Return messages for one request, and their lines; None where none may begin."""
        while self._blocked and self._blocked[0][0] <= now:
            _, _, line = heappop(self._blocked)
            line.is_blocked = False
            self._ready.append(line)
        if self.is_gone or not self.breaker.lets(now, self.requests):
            return None
        rows: list[Waiting] = []
        lines: list[_Line] = []
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
        self.flying.update(row.number for row in rows)
        return rows, lines

    def _fits(self, row: Waiting, size: int) -> bool:
        return size + len(row.body) <= self.terms.batch_bytes and row.number not in self._alone

    # What came of a request

    def done(self, rows: Sequence[Waiting], lines: Sequence[_Line], outcome: Outcome, changes: Changes, now: float) -> None:
        """Note what came of a request."""
        self.requests -= 1
        self.flying.difference_update(row.number for row in rows)
        for row in rows:
            self._forget(row)
        self.results["retried" if outcome.result == "later" else "refused" if outcome.result == "never" else outcome.result] += 1
        if outcome.result == "later":
            if self.breaker.bad(lines[0].name, now, outcome.after) and now - self._told_down > QUIET:
                self._told_down, self._is_told_down = now, True
                wait = self.breaker.until - now
                _LOGGER.warning(
                    "sinks.%s: does not answer as it should: %s; asked again in %.1f s", self.name, outcome.reason, wait
                )
            self._failed(rows, lines, outcome, changes, now)
            return
        if self.breaker.good() and self._is_told_down:
            self._is_told_down = False
            _LOGGER.info("sinks.%s: answers again", self.name)
        if outcome.result == "delivered":
            for row in rows:
                self._settle(row)
                changes.delivered.append(row.number)
                self.settled_matches += row.matches
            self._free(lines)
        elif outcome.result == "gone":
            self.is_gone = True
            changes.gone.append((self.name, self.target))
            _LOGGER.error(
                "sinks.%s: its endpoint wants no more (%s), so nothing is sent to it, and its messages wait; "
                "give it another url, or start with --enable %s",
                *(self.name, outcome.reason, self.name),
            )
            self._put_back(rows, lines)
        elif len(rows) > 1:
            # One of them may be to blame, and is found by sending each alone.
            self._alone.update(row.number for row in rows)
            self._put_back(rows, lines)
        else:
            self._bury(rows[0], outcome.code, outcome.reason, rows[0].attempts + 1, changes)
            self._free(lines)

    def _failed(self, rows: Sequence[Waiting], lines: Sequence[_Line], outcome: Outcome, changes: Changes, now: float) -> None:
        delay = self.terms.delay(1 + max(row.attempts for row in rows))
        if outcome.after is not None:
            delay = max(delay, min(outcome.after, self.terms.most))
        due = int((time.time() + delay) * 1000)
        for line in lines:
            left: Waiting | None = None
            is_over = False
            for row in rows:
                if _name(row) != line.name:
                    continue
                attempts = row.attempts + 1
                if attempts < self.terms.attempts:
                    changes.tried.append((attempts, due, row.number))
                elif self.terms.on_exhausted == "dead_letter":
                    self._bury(row, outcome.code, outcome.reason, attempts, changes)
                    continue
                elif not is_over:
                    is_over = True
                    changes.tried.append((attempts, NEVER, row.number))
                    changes.dead.append(
                        (row.number, _letter(self.name, row, outcome.code, outcome.reason, attempts, blocks=True))
                    )
                    self._tell(outcome.reason)
                left = left or row
            if left is None:
                self._free([line])
            else:
                self._block(line, left.number, inf if is_over else now + delay)

    def _free(self, lines: Sequence[_Line]) -> None:
        for line in lines:
            if line.waiting or line.has_more:
                self._ready.append(line)
            else:
                del self._lines[line.name]

    def _put_back(self, rows: Sequence[Waiting], lines: Sequence[_Line]) -> None:
        by_name = {line.name: line for line in lines}
        for row in reversed(rows):
            by_name[_name(row)].waiting.appendleft(row)
            self._held += 1
            self._held_bytes += len(row.body)
        self._ready.extendleft(reversed(lines))

    def _settle(self, row: Waiting) -> None:
        self._alone.discard(row.number)
        self.settled_messages += 1
        self.settled_bytes += len(row.body)

    def _bury(self, row: Waiting, code: str, reason: str, attempts: int, changes: Changes) -> None:
        self._settle(row)
        self.settled_dead += row.matches
        changes.dead.append((row.number, _letter(self.name, row, code, reason, attempts)))
        self._tell(reason)

    def _tell(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._told > QUIET:
            self._told = now
            _LOGGER.warning("sinks.%s: a message is given up, and a dead letter: %s", self.name, reason)

    def evict(self, size: int, changes: Changes) -> None:
        """Give up the oldest messages that are not on their way, of so many bytes."""
        given_up: set[int] = set()
        names: set[_Name] = set()
        after, freed = self.lane.first, 0
        while freed < size and (rows := self._store.waiting(self.lane, after, PAGE, PAGE_BYTES)):
            for row in rows:
                after = row.number
                if freed < size and row.number not in self.flying:
                    self._bury(row, "spool_full", "the spool was full", row.attempts, changes)
                    given_up.add(row.number)
                    names.add(_name(row))
                    freed += len(row.body)
        for name in names & self._lines.keys():
            line = self._lines[name]
            for row in [row for row in line.waiting if row.number in given_up]:
                line.waiting.remove(row)
                self._forget(row)
        # A key that waited for a message that is given up now goes on.
        self.unblock(*given_up)

    def unblock(self, *numbers: int) -> None:
        """Let the keys go on that wait for these messages."""
        wanted = frozenset(numbers)
        self._blocked = [(0.0 if line.last + 1 in wanted else due, order, line) for due, order, line in self._blocked]
        heapify(self._blocked)


def _letter(sink: str, row: Waiting, code: str, reason: str, attempts: int, *, blocks: bool = False) -> DeadLetter:
    return DeadLetter(
        source=row.source,
        partition=row.partition,
        position=row.position,
        part=row.part,
        stage="deliver",
        code=code,
        reason=reason,
        attempts=attempts,
        at=milliseconds(),
        size=len(row.body),
        record=row.body,
        sink=sink,
        message=row.message,
        matches=row.matches,
        key=row.key,
        spooled=row.number if blocks else None,
    )


@final
@dataclass(slots=True)
class _Asking:
    """Somebody who waits for room."""

    sizes: Mapping[str, int]
    granted: threading.Event = field(default_factory=threading.Event)


_Answer: TypeAlias = tuple[_Delivery, list[Waiting], list[_Line], Outcome | BaseException]


@final
class Spool:
    """Delivers what the store holds for its endpoints. `run` has a thread to itself; any other may call the rest.

    Args:
        dead_letter: the sink that gets a message about each dead letter; empty for none.

    Attributes:
        announce: is called with dead letters before they are put down, where that sink is not one of its own.
    """

    def __init__(self, store: Store, counts: Counts, dead_letter: str = "") -> None:
        self._store, self._counts = store, counts
        self.dead_letter = dead_letter
        self.announce: Callable[[Sequence[DeadLetter]], None] = lambda _: None
        self._deliveries: dict[str, _Delivery] = {}
        self._inbox: queue.SimpleQueue[_Answer | _Asking | Callable[[], None] | None] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[_Delivery, list[Waiting], list[_Line]] | None] = queue.SimpleQueue()
        self._lock = Lock()
        self._is_stopping = self._is_complete = self._is_over = self._is_running = False
        self._threads = 0
        self._asking: _Asking | None = None
        self._changes = Changes()
        self._touched: set[_Delivery] = set()
        self._since: float | None = None
        counts.gauges = self.gauges

    def add(self, name: str, endpoint: Endpoint, terms: Terms, target: str) -> None:
        """Deliver what is for a sink to an endpoint, from now on; one that had this name is taken out.

        Args:
            target: what changes when the endpoint is another one, and holds no secret. One that wanted no more is asked then.
        """
        lane = self._store.lane(name)
        if lane.gone is not None:
            if lane.target != target:
                self._store.enable(name)
            else:
                _LOGGER.error("sinks.%s: its endpoint wanted no more; give it another url, or start with --enable %s", name, name)
        delivery = _Delivery(name, endpoint, terms, target, lane, self._store)
        self._counts.found(delivery.matches)
        if delivery.messages:
            _LOGGER.info("sinks.%s: %d messages are in the spool", name, delivery.messages)
        # Who goes over it meanwhile goes over the one before.
        self._deliveries = {**self._deliveries, name: delivery}
        self._inbox.put(None)

    @property
    def sinks(self) -> Collection[str]:
        """The names of the sinks that it delivers to."""
        return self._deliveries.keys()

    def remove(self, name: str) -> None:
        """Deliver no more to a sink; what is on its way ends, and its messages stay in the store."""
        self._deliveries = {other: each for other, each in self._deliveries.items() if other != name}

    def enable(self, name: str) -> bool:
        """Deliver again to an endpoint that wanted no more; tell whether it was so."""
        return self._do(lambda: self._enable(name))

    def replay(self, letters: Sequence[DeadLetter]) -> None:
        """Put messages that were given up into the spool again; the letters are dropped. See `Store.respool`."""
        self._do(lambda: self._replay(letters))

    def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Drop dead letters, and what waits for them; return how many there were."""
        return self._do(lambda: self._drop(letters))

    def waits_for(self) -> dict[str, int]:
        """Return how many messages there are for each sink that has some."""
        return {name: each.messages for name, each in self._deliveries.items() if each.messages}

    def gauges(self) -> list[Gauges]:
        """Return what is to be seen of each sink now."""
        now = milliseconds()
        seen = []
        for name, each in self._deliveries.items():
            since = self._store.oldest(each.lane) if each.messages and not self._is_over else None
            state = "disabled" if each.is_gone else each.breaker.state
            age = 0.0 if since is None else max(now - since, 0) / 1000
            seen.append(Gauges(name, each.messages, each.bytes, age, each.blocked, state, dict(each.results)))
        return seen

    # Who fills it

    def await_room(self, sizes: Mapping[str, int]) -> None:
        """Wait until there is room for so many bytes for each sink; once it is stopping, there is."""
        if all(self._has_room(self._deliveries.get(name), size) for name, size in sizes.items()):
            return
        asking = _Asking(sizes)
        self._inbox.put(asking)
        while not asking.granted.wait(TICK * 5) and not self._is_over:
            pass

    def added(self, sizes: Mapping[str, tuple[int, int, int]]) -> None:
        """Learn that the store has more: of each sink the messages, their bytes and their matches."""
        for name, (messages, size, matches) in sizes.items():
            if (each := self._deliveries.get(name)) is None:
                continue
            with self._lock:
                each.messages += messages
                each.bytes += size
                each.matches += matches
                each.more()
        self._inbox.put(None)

    def complete(self) -> None:
        """Learn that nothing more will be added: it ends when all is delivered or given up."""
        self._is_complete = True
        self._inbox.put(None)

    def stop(self) -> None:
        """Begin no more attempts. It ends when those on their way have ended, and all was added."""
        self._is_stopping = True
        self._inbox.put(None)

    def _has_room(self, each: _Delivery | None, size: int) -> bool:
        return self._is_stopping or each is None or not each.bytes or each.bytes + size <= each.terms.bytes

    def _do(self, action: Callable[[], _T]) -> _T:
        """Do something in its own thread, if it has one by now."""
        if not self._is_running:
            return action()
        done: Future[_T] = Future()

        def run() -> None:
            try:
                done.set_result(action())
            except Exception as error:
                done.set_exception(error)

        self._inbox.put(run)
        while True:
            try:
                return done.result(TICK * 5)
            except TimeoutError:
                if self._is_over:
                    raise ServiceError("the service is ending") from None

    # Its own thread

    def run(self) -> None:
        """Deliver until all is delivered, or it is stopped. Raises ServiceError, and what an endpoint did not expect."""
        self._is_running = True
        try:
            looked = -inf
            while True:
                told = self._read_inbox()
                now = time.monotonic()
                self._settle_if_due(now)
                self._grant()
                if told or now - looked >= TICK:
                    looked = now
                    self._begin(now)
                if self._is_complete and self._has_ended():
                    break
            self._settle()
        finally:
            self._is_over = True
            for _ in range(self._threads):
                self._jobs.put(None)
            if self._asking is not None:
                self._asking.granted.set()

    def _has_ended(self) -> bool:
        if self._is_stopping:
            return not any(each.requests for each in self._deliveries.values())
        return all(each.is_done for each in self._deliveries.values())

    def _read_inbox(self) -> bool:
        """Wait for something for a while, and take all there is; tell whether there was something."""
        wait = TICK if self._since is None else max(self._since + GATHER - time.monotonic(), 0.0)
        try:
            item = self._inbox.get(timeout=wait) if wait else self._inbox.get_nowait()
        except queue.Empty:
            return False
        while True:
            if isinstance(item, _Asking):
                self._asking = item
            elif callable(item):
                item()
            elif item is not None:
                each, rows, lines, outcome = item
                if isinstance(outcome, BaseException):
                    raise outcome
                now = time.monotonic()
                each.done(rows, lines, outcome, self._changes, now)
                self._touched.add(each)
                if self._since is None and len(self._changes):
                    self._since = now
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return True

    def _begin(self, now: float) -> None:
        wanted = min(sum(each.terms.concurrency for each in self._deliveries.values()), MOST_THREADS)
        while self._threads < wanted:
            self._threads += 1
            threading.Thread(target=self._attempt, name=f"streamer-spool-{self._threads}", daemon=True).start()
        for each in self._deliveries.values():
            if self._is_stopping:
                return
            each.load(now)
            while (job := each.take(now)) is not None:
                self._jobs.put((each, *job))

    def _grant(self) -> None:
        asking = self._asking
        if asking is None:
            return
        for name, size in asking.sizes.items():
            each = self._deliveries.get(name)
            if each is not None and not self._has_room(each, size) and each.terms.when_full == "dead_letter":
                self._settle()
                self._touched.add(each)
                each.evict(each.bytes + size - each.terms.bytes, self._changes)
                self._settle()
            if not self._has_room(each, size):
                return
        self._asking = None
        asking.granted.set()

    def _settle_if_due(self, now: float) -> None:
        if self._since is not None and (now - self._since >= GATHER or len(self._changes) >= MOST_GATHERED):
            self._settle()

    def _settle(self) -> None:
        """Put down what came of attempts, in one commit."""
        self._since = None
        if not len(self._changes):
            return
        changes, self._changes = self._changes, Changes()
        self._settle_changes(changes)
        touched, self._touched = self._touched, set()
        for each in touched:
            with self._lock:
                each.messages -= each.settled_messages
                each.bytes -= each.settled_bytes
                each.matches -= each.settled_matches + each.settled_dead
            self._counts.delivered({each.name: each.settled_matches}, {each.name: each.settled_dead})
            each.settled_matches = each.settled_dead = each.settled_messages = each.settled_bytes = 0

    def _settle_changes(self, changes: Changes) -> None:
        dead = [letter for _, letter in changes.dead]
        about: list[Spooled] = []
        if dead and self.dead_letter in self._deliveries:
            about = letters.spooled(self.dead_letter, dead)
        elif dead:
            self.announce(dead)
        self._store.settle(changes, about)
        if about:
            self.added(tally(about))

    def _enable(self, name: str) -> bool:
        was = self._store.enable(name)
        if name in self._deliveries:
            self._deliveries[name].is_gone = False
        return was

    def _replay(self, letters: Sequence[DeadLetter]) -> None:
        self._settle()
        letters = self._left(letters)
        self._store.respool(letters)
        for letter in letters:
            if letter.sink in self._deliveries:
                if letter.spooled is not None:
                    self._deliveries[letter.sink].unblock(letter.spooled)
                else:
                    self._counts.found(letter.matches)
                    self.added({letter.sink: (1, len(letter.record), letter.matches)})

    def _drop(self, letters: Sequence[DeadLetter]) -> int:
        self._settle()
        letters = self._left(letters)
        count = self._store.drop([letter.id for letter in letters])
        for letter in letters:
            if letter.spooled is not None and letter.sink in self._deliveries:
                each = self._deliveries[letter.sink]
                each.unblock(letter.spooled)
                with self._lock:
                    each.messages, each.bytes, each.matches = (
                        each.messages - 1,
                        each.bytes - letter.size,
                        each.matches - letter.matches,
                    )
                self._counts.delivered({}, {letter.sink: letter.matches})
        return count

    def _left(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Return those that nobody has replayed or dropped since they were read."""
        return [each for letter in letters for each in self._store.letters(letter.id - 1, 1) if each.id == letter.id]

    # Threads that attempt

    def _attempt(self) -> None:
        while (job := self._jobs.get()) is not None:
            each, rows, lines = job
            self._inbox.put((each, rows, lines, _tried(each.endpoint.send, rows)))


def tally(spooled: Iterable[Spooled]) -> dict[str, tuple[int, int, int]]:
    """Return how many messages, bytes and matches there are for each sink."""
    sums: dict[str, tuple[int, int, int]] = {}
    for each in spooled:
        messages, size, matches = sums.get(each.sink, (0, 0, 0))
        sums[each.sink] = (messages + 1, size + len(each.body), matches + each.matches)
    return sums


def _tried(send: Callable[[Sequence[str], Sequence[bytes]], Outcome], rows: Sequence[Waiting]) -> Outcome | BaseException:
    try:
        faults.point("spool.taken")
        outcome = send([row.message for row in rows], [row.body for row in rows])
        faults.point("spool.answered")
        return outcome
    except BaseException as error:
        return error
