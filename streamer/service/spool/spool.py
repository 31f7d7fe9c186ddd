"""Who fills the spool, the thread that owns it, and the threads that attempt."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias, TypeVar, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service import faults, letters
from streamer.service.metrics import Counts, Gauges
from streamer.service.protocols import Endpoint, Outcome
from streamer.service.spool.breaker import Terms
from streamer.service.spool.delivery import Delivery, Line
from streamer.service.store.sqlite import Changes, DeadLetter, Spooled, Store, Waiting, milliseconds

#: Threads that attempt, for all endpoints together.
MOST_THREADS: Final = 256
#: What came of attempts is put down after so long, in seconds, or when it is so many messages.
GATHER: Final = 0.02
MOST_GATHERED: Final = 1_000
#: How often one looks for what is due, in seconds.
TICK: Final = 0.05
_LOGGER: Final = logging.getLogger("streamer.service")
_T = TypeVar("_T")


@final
@dataclass(slots=True)
class _Asking:
    """Somebody who waits for room."""

    sizes: Mapping[str, int]
    granted: threading.Event = field(default_factory=threading.Event)


_Answer: TypeAlias = tuple[Delivery, list[Waiting], list[Line], Outcome | BaseException]


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
        self._deliveries: dict[str, Delivery] = {}
        self._inbox: queue.SimpleQueue[_Answer | _Asking | Callable[[], None] | None] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[Delivery, list[Waiting], list[Line]] | None] = queue.SimpleQueue()
        self._lock = Lock()
        self._is_stopping = self._is_complete = self._is_over = self._is_running = False
        self._threads = 0
        self._asking: _Asking | None = None
        self._changes = Changes()
        self._touched: set[Delivery] = set()
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
        delivery = Delivery(name, endpoint, terms, target, lane, self._store)
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

    def _has_room(self, each: Delivery | None, size: int) -> bool:
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
