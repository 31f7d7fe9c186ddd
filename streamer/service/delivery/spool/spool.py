"""The spool: processes fill it, and one thread owns it. Another thread makes the attempts (`attempting.py`)."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from typing import Final, TypeAlias, TypeVar, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.connectors.protocols import Endpoint, Outcome
from streamer.service.delivery import dead_letters
from streamer.service.delivery.metrics import Counts, Gauges
from streamer.service.delivery.spool.attempting import Answer, Attempting
from streamer.service.delivery.spool.breaker import Terms
from streamer.service.delivery.spool.delivery import Delivery, Owner
from streamer.service.delivery.spool.history import STREAMS, History
from streamer.service.delivery.spool.lead import Lead
from streamer.service.delivery.spool.requests import Requests
from streamer.service.delivery.spool.results import Results
from streamer.service.delivery.spool.room import Request, Room
from streamer.service.delivery.spool.sharing import SHARED, Arrived, Sharing
from streamer.service.delivery.spool.sinks import Sinks, tally
from streamer.service.observed.attempts import Attempts
from streamer.service.store.rows import Changes, DeadLetter, Spooled, milliseconds
from streamer.service.store.store import Store

#: The interval between checks for due messages, in seconds.
TICK: Final = 0.05
_LOGGER: Final = logging.getLogger("streamer.service")
_T = TypeVar("_T")
#: Results, a thread that waits for room, an action of another thread, or None to check what is due.
_Item: TypeAlias = Sequence[Answer] | Request | Callable[[], None] | None


@final
class Spool:
    """Delivers the messages that the store has for its endpoints. `run` has a thread to itself; any other may call the rest.

    Args:
        dead_letter: the sink that gets a message about each dead letter; empty for none.

    Attributes:
        announce: is called with dead letters before they are stored, if that sink is not one of the spool's own.
        attempts: the latest attempts.
        tell: is called with the new messages of histories and their numbers, by the thread that added them.
    """

    def __init__(self, store: Store, counts: Counts, dead_letter: str = "") -> None:
        self._store, self._counts = store, counts
        self.dead_letter = dead_letter
        self.announce: Callable[[Sequence[DeadLetter]], None] = lambda _: None
        self.tell: Callable[[Sequence[Arrived]], None] = lambda _: None
        self.attempts = Attempts()
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._attempting = Attempting(self._inbox.put, self.attempts)
        self._sinks, self._lead = Sinks(), Lead(store)
        self._requests = Requests(self._sinks, self._attempting)
        self._results = Results(self._sinks, counts, self._store_results, self._step_back)
        self._room = Room(self._sinks, self._lead, self._results.evict)
        self._sharing = Sharing(store, counts, self._sinks, self._lead, self._room, self._results, self._requests)
        self._holding = Lock()
        self._is_stopping = self._is_complete = self._is_over = self._is_running = self._is_to_look = False
        counts.gauges = self.gauges

    # Its sinks

    def add(
        self, name: str, endpoint: Endpoint, terms: Terms, target: str, owner: Owner | None = None, *, again: bool = False
    ) -> None:
        """Deliver the messages of a sink to an endpoint from now on. It replaces the previous endpoint of this name.

        Args:
            target: identifies the endpoint, without secrets. If it changed, a disabled endpoint gets messages again.
            owner: the tenant whose own gateway it is.
            again: deliver again to a disabled endpoint in any case.
        """
        self._do(lambda: self._add(name, endpoint, terms, target, owner, again))

    def remove(self, name: str) -> None:
        """Stop deliveries to a sink. Requests in flight end, and its messages stay in the store."""
        self._do(lambda: self._sinks.remove(name))

    def clear(self, name: str) -> int | None:
        """Delete the messages of a removed sink. Return their number; None if the sink was not removed or never existed.

        Raises:
            ServiceError: requests to it are in flight, or the store failed.
        """
        has_it = self._sinks.get(name) is not None
        return self._do(lambda: None if has_it else self._clear(name))

    def add_history(self, name: str, owner: Owner, most_bytes: int, most_age: float) -> None:
        """Keep the messages of a sink for readers: at most *most_bytes* bytes, and for *most_age* seconds."""

        def add() -> None:
            if (before := self._sinks.histories.get(name)) is not None:
                before.most_bytes, before.most_age = most_bytes, most_age
                return
            self._sinks.put(History(name, self._store.lane(name), self._store, owner, most_bytes, most_age))

        self._do(add)

    def forget(self, name: str, delete: Callable[[], tuple[int, int, int]]) -> None:
        """Delete the messages of a tenant's gateway, and stop deliveries to it.

        Args:
            delete: deletes them in the store, and returns the number of messages, bytes and matches.
        """
        self._do(lambda: self._forget(name, delete))

    @property
    def sinks(self) -> Collection[str]:
        """The names of the sinks that the spool delivers to."""
        return self._sinks.deliveries.keys()

    @property
    def histories(self) -> Mapping[str, History]:
        """The histories, by the names of their sinks."""
        return self._sinks.histories

    def delivery(self, name: str) -> Delivery | None:
        """Return the delivery of a sink; other threads may only read it."""
        return self._sinks.deliveries.get(name)

    def enable(self, name: str) -> bool:
        """Deliver again to a disabled endpoint; return whether it was disabled."""
        return self._do(lambda: self._enable(name, self._sinks.deliveries.get(name)))

    def test(self, name: str, identity: str, message: bytes) -> Outcome | None:
        """Post a message to a sink, ahead of all waiting messages.

        Return None if the sink does not exist. Raises ServiceError if the service is ending.
        """
        delivery = self._sinks.deliveries.get(name)
        return None if delivery is None else self._attempting.once(delivery.endpoint, [identity], [message])

    def replay(self, letters: Sequence[DeadLetter]) -> None:
        """Return messages of dead letters to the spool; the letters are deleted. See `Store.respool`."""
        self._do(lambda: self._replay(letters))

    def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Delete dead letters, and the messages that wait for them. Return the number of letters."""
        return self._do(lambda: self._drop(letters))

    # Its numbers

    def waits_for(self) -> dict[str, int]:
        """Return the number of messages of each sink that has some."""
        return {name: each.messages for name, each in self._sinks.deliveries.items() if each.messages}

    def gauges(self) -> list[Gauges]:
        """Return the current numbers of each sink, if this process delivers."""
        return self._sinks.gauges(self.age) if self._lead.is_mine else []

    def used(self) -> float:
        """Return the used share of the room of the fullest sink; 0 if another process delivers."""
        return self._sinks.fullest() if self._lead.is_mine else 0.0

    def age(self, each: Delivery | History) -> float:
        """Return the age of the oldest message in seconds; 0 if there is none."""
        since = self._store.oldest(each.lane) if each.messages and not self._is_over else None
        return 0.0 if since is None else max(milliseconds() - since, 0) / 1000

    # Threads that fill it

    def await_room(self, sizes: Mapping[str, int]) -> None:
        """Wait until each sink has room for this many bytes. A spool that is stopping has room."""
        # Without a thread that delivers, room is never made.
        if self._room.has(sizes) or not self._is_running:
            return
        request = Request(sizes)
        self._inbox.put(request)
        while not request.granted.wait(TICK * 5) and not self._is_over:
            pass

    def hold(self, spooled: Sequence[Spooled], commit: Callable[[], Sequence[tuple[int, Spooled]]]) -> None:
        """Put messages into the spool and count them in one step.

        Args:
            commit: stores them; returns the messages whose sink still exists, with their numbers. The others are dropped.
        """
        with self._holding:
            stored = commit()
            self._count_stored(stored)
        if len(stored) < len(spooled):
            self._counts.drop(sum(each.matches for each in spooled) - sum(each.matches for _, each in stored))

    def _count_stored(self, stored: Sequence[tuple[int, Spooled]]) -> None:
        """Count the messages that this process has put into the store."""
        if not self._store.database.is_shared:
            self._count(stored)
            return
        of_histories = sum(each.matches for _, each in stored if each.sink in self._sinks.histories)
        self._counts.delivered({STREAMS: of_histories, SHARED: sum(each.matches for _, each in stored) - of_histories})
        self.look()

    def _count(self, stored: Sequence[tuple[int, Spooled]]) -> None:
        """Count new messages of the store."""
        histories = self._sinks.histories
        for name, (messages, size, matches) in tally(each for _, each in stored).items():
            if (each := self._sinks.deliveries.get(name)) is not None:
                self._sinks.add(each, messages, size, matches)
                self._room.check(each.owner)
            elif (history := histories.get(name)) is not None:
                with self._sinks.lock:
                    history.added(messages, size, matches)
                self._room.check(history.owner)
                self._counts.delivered({STREAMS: matches})
        if histories:
            arrived = [(history, number, each) for number, each in stored if (history := histories.get(each.sink)) is not None]
            for history, number, _ in arrived:
                history.last = number
            if arrived:
                self.tell(arrived)
        self._inbox.put(None)

    def look(self) -> None:
        """Read the messages that other processes have put into a shared store; the spool's thread does so soon."""
        if self._is_running and not self._is_to_look:
            self._is_to_look = True
            self._inbox.put(self._look)

    def complete(self) -> None:
        """Note that no more messages will be added: the spool ends when each is delivered or a dead letter."""
        self._is_complete = True
        self._inbox.put(None)

    def stop(self) -> None:
        """Begin no more attempts. The spool ends when requests in flight have ended, and all messages were added."""
        self._is_stopping = self._room.is_unlimited = True
        self._inbox.put(None)

    def _do(self, action: Callable[[], _T]) -> _T:
        """Run an action in the spool's thread, if it has started."""
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

    # The spool's thread

    def run(self) -> None:
        """Deliver until every message is delivered, or until `stop`. Raises ServiceError, and unexpected errors of endpoints."""
        self._is_running = True
        try:
            looked = -inf
            if self._store.database.is_shared:
                self._look()
            while True:
                has_items = self._read_inbox()
                now = time.monotonic()
                self._results.settle_if_due(now)
                self._room.grant()
                if has_items or now - looked >= TICK:
                    looked = now
                    self._begin(now)
                if self._is_complete and self._has_ended():
                    break
            self._results.settle()
            self._store.leave()
        finally:
            self._is_over = True
            self._attempting.end([each.endpoint for each in self._sinks.all_deliveries])
            self._room.end()

    def _has_ended(self) -> bool:
        if self._is_stopping or not self._lead.is_mine:
            return not any(each.requests for each in self._sinks.all_deliveries)
        return all(each.is_done for each in self._sinks.deliveries.values())

    def _read_inbox(self) -> bool:
        """Wait briefly for an item, then process all items of the inbox. Return whether there was one."""
        # Without a sink, no message becomes due.
        tick = TICK if self._sinks.deliveries or self._sinks.histories else None
        due_in = self._results.due_in
        try:
            item = self._inbox.get_nowait() if due_in == 0 else self._inbox.get(timeout=tick if due_in is None else due_in)
        except queue.Empty:
            return False
        while True:
            if isinstance(item, Request):
                self._room.request = item
            elif callable(item):
                item()
            elif item is not None:
                self._add_results(item)
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return True

    def _add_results(self, answers: Sequence[Answer]) -> None:
        now = time.monotonic()
        for each, endpoint, rows, lines, outcome in answers:
            self._requests.ended(each)
            if isinstance(outcome, BaseException):
                raise outcome
            self._results.add(each, endpoint, rows, lines, outcome, now)

    def _begin(self, now: float) -> None:
        if self._lead.is_mine:
            self._room.make()
            for history in self._sinks.histories.values():
                history.look(now)
            self._requests.begin(now, lambda: self._is_stopping)

    def _look(self) -> None:
        self._is_to_look = False
        if arrived := self._sharing.look(is_stopping=self._is_stopping):
            self.tell(arrived)

    def _step_back(self) -> None:
        self._lead.end()
        self._sharing.step_back()

    def _store_results(self, changes: Changes) -> None:
        dead = [letter for _, letter in changes.dead]
        about: list[Spooled] = []
        if dead and self.dead_letter in self._sinks.deliveries:
            about = dead_letters.spooled(self.dead_letter, dead)
        elif dead:
            self.announce(dead)
        if stored := self._store.settle(changes, about):
            self._count_stored(stored)

    def _add(self, name: str, endpoint: Endpoint, terms: Terms, target: str, owner: Owner | None, again: bool) -> None:
        lane = self._store.lane(name)
        if (before := self._sinks.deliveries.get(name) or self._sinks.removed.pop(name, None)) is not None:
            # A sink has one delivery for as long as the process runs, so its keys keep their order.
            if before.is_gone and (again or before.target != target):
                self._results.settle()
                self._enable(name, before)
            before.become(endpoint, terms, target)
            self._sinks.put(before)
            return
        if lane.gone is not None:
            if again or lane.target != target:
                self._store.enable(name)
            elif owner is None and self._lead.is_mine:
                _LOGGER.error("sinks.%s: its endpoint has answered 410; set another url, or start with --enable %s", name, name)
        delivery = Delivery(name, endpoint, terms, target, lane, self._store, owner)
        if self._lead.is_mine:
            self._sharing.begin(delivery)
        self._sinks.put(delivery)

    def _clear(self, name: str) -> int | None:
        self._results.settle()
        if (each := self._sinks.removed.get(name)) is not None:
            if each.requests:
                raise ServiceError(f"sinks.{name}: requests to it are in flight; try again once they have ended")
            del self._sinks.removed[name]
            if self._lead.is_mine:
                self._counts.drop(each.matches)
        return self._store.clear(name)

    def _forget(self, name: str, delete: Callable[[], tuple[int, int, int]]) -> None:
        self._results.settle()
        with self._holding:
            _, _, matches = delete()
            each = self._sinks.forget(name)
        if each is None:
            return
        each.forget()
        if isinstance(each, Delivery):
            each.endpoint.close()
            if self._lead.is_mine:
                self._counts.drop(matches)

    def _enable(self, name: str, delivery: Delivery | None) -> bool:
        was = self._store.enable(name)
        if delivery is not None:
            delivery.is_gone = False
        return was

    def _replay(self, letters: Sequence[DeadLetter]) -> None:
        self._results.settle()
        letters = [letter for letter in self._existing(letters) if letter.sink in self._sinks.deliveries]
        self._store.respool(letters)
        for letter in letters if self._lead.is_mine else ():
            each = self._sinks.deliveries[letter.sink]
            if letter.spooled is not None:
                each.lines.unblock([letter.spooled])
                continue
            self._counts.recover(letter.matches)
            self._sinks.add(each, 1, len(letter.record), letter.matches)
        self._inbox.put(None)

    def _drop(self, letters: Sequence[DeadLetter]) -> int:
        self._results.settle()
        letters = self._existing(letters)
        count = self._store.drop([letter.id for letter in letters])
        for letter in letters if self._lead.is_mine else ():
            each = self._sinks.deliveries.get(letter.sink) or self._sinks.removed.get(letter.sink)
            if letter.spooled is not None and each is not None:
                each.lines.unblock([letter.spooled])
                with self._sinks.lock:
                    each.change(-1, -letter.size, -letter.matches)
                self._counts.delivered({}, {each.label: letter.matches})
        return count

    def _existing(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Return the letters that still exist: others were replayed or dropped since they were read."""
        return [each for letter in letters for each in self._store.letters(letter.id - 1, 1) if each.id == letter.id]
