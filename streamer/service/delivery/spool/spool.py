"""The spool: processes fill it, and one thread owns it. Another thread makes the attempts (`attempting.py`).

If several processes share a store, each fills the spool, and one *leads*: only the leader attempts, so that a key has one attempt
at a time. The store records the leader, for `LEASE` seconds at a time. A process that stops releases the lease. If a leader dies
or stalls, another process follows once the lease has expired, and the old leader can no longer record its attempts (`Fenced`). A
new leader starts from the contents of the store only.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeVar, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.connectors.protocols import Endpoint, Outcome
from streamer.service.delivery import dead_letters
from streamer.service.delivery.metrics import Counts, Gauges
from streamer.service.delivery.spool.attempting import Answer, Attempting, Job
from streamer.service.delivery.spool.breaker import Terms
from streamer.service.delivery.spool.delivery import WEBHOOKS, Delivery, Owner
from streamer.service.delivery.spool.history import STREAMS, History
from streamer.service.observed.attempts import Attempts
from streamer.service.store.database import Fenced
from streamer.service.store.rows import Changes, DeadLetter, Spooled, milliseconds
from streamer.service.store.store import Store

#: The most requests in flight to all endpoints together, and the most of them to tenants' own gateways.
MOST_REQUESTS: Final = 256
MOST_OWN: Final = 192
#: A tenant over its limit is cut by this additional fraction of the limit, so that it is not cut for each message.
_PARTS: Final = 32
#: Results of attempts are committed after this many seconds, or once there are this many messages.
GATHER: Final = 0.02
MOST_GATHERED: Final = 1_000
#: The interval between checks for due messages, in seconds.
TICK: Final = 0.05
#: A process leads for this many seconds unless it renews the lease. It stops attempting a margin earlier, because clocks drift.
LEASE: Final = 10.0
_MARGIN: Final = 2.0
#: The interval between counts of messages that other processes added, in seconds.
_COUNT: Final = 5.0
#: The name of a shared spool in metrics. A process counts its messages as delivered once they are in it.
SHARED: Final = "spool"
_LOGGER: Final = logging.getLogger("streamer.service")
_T = TypeVar("_T")


@final
@dataclass(slots=True)
class _Asking:
    """A thread that waits for room."""

    sizes: Mapping[str, int]
    granted: threading.Event = field(default_factory=threading.Event)


#: Stands for messages that are in the store; a reader reads them there.
_ANYTHING: Final = Spooled("", None, "", 0, "", "", 0, 0, b"")


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
        self.tell: Callable[[Sequence[tuple[History, int, Spooled]]], None] = lambda _: None
        self.attempts = Attempts()
        self._deliveries: dict[str, Delivery] = {}
        self._removed: dict[str, Delivery] = {}
        self._histories: dict[str, History] = {}
        self._inbox: queue.SimpleQueue[Sequence[Answer] | _Asking | Callable[[], None] | None] = queue.SimpleQueue()
        self._attempting = Attempting(self._inbox.put, self.attempts)
        self._lock, self._holding = Lock(), Lock()
        self._full: set[Owner] = set()
        self._flying = self._own_flying = self._turns = 0
        self._is_stopping = self._is_complete = self._is_over = self._is_running = False
        self._asking: _Asking | None = None
        self._changes = Changes()
        self._touched: set[Delivery] = set()
        self._since: float | None = None
        self._leads_until = -inf
        self._ending: list[Delivery] = []
        self._generation: int | None = None
        self._is_to_look = False
        self._counted: dict[str, float] = {}
        counts.gauges = self.gauges

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
        self._do(lambda: self._remove(name))

    def clear(self, name: str) -> int | None:
        """Delete the messages of a removed sink. Return their number; None if the sink was not removed or never existed.

        Raises:
            ServiceError: requests to it are in flight, or the store failed.
        """
        is_mine = name in self._deliveries or name in self._histories
        return self._do(lambda: None if is_mine else self._clear(name))

    def add_history(self, name: str, owner: Owner, most_bytes: int, most_age: float) -> None:
        """Keep the messages of a sink for readers: at most *most_bytes* bytes, and for *most_age* seconds."""

        def add() -> None:
            if (before := self._histories.get(name)) is not None:
                before.most_bytes, before.most_age = most_bytes, most_age
                return
            made = History(name, self._store.lane(name), self._store, owner, most_bytes, most_age)
            self._histories = {**self._histories, name: made}

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
        return self._deliveries.keys()

    @property
    def histories(self) -> Mapping[str, History]:
        """The histories, by the names of their sinks."""
        return self._histories

    def delivery(self, name: str) -> Delivery | None:
        """Return the delivery of a sink; other threads may only read it."""
        return self._deliveries.get(name)

    def enable(self, name: str) -> bool:
        """Deliver again to a disabled endpoint; return whether it was disabled."""
        return self._do(lambda: self._enable(name, self._deliveries.get(name)))

    def test(self, name: str, identity: str, message: bytes) -> Outcome | None:
        """Post a message to a sink, ahead of all waiting messages.

        Return None if the sink does not exist. Raises ServiceError if the service is ending.
        """
        delivery = self._deliveries.get(name)
        return None if delivery is None else self._attempting.once(delivery.endpoint, [identity], [message])

    def replay(self, letters: Sequence[DeadLetter]) -> None:
        """Return messages of dead letters to the spool; the letters are deleted. See `Store.respool`."""
        self._do(lambda: self._replay(letters))

    def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Delete dead letters, and the messages that wait for them. Return the number of letters."""
        return self._do(lambda: self._drop(letters))

    def waits_for(self) -> dict[str, int]:
        """Return the number of messages of each sink that has some."""
        return {name: each.messages for name, each in self._deliveries.items() if each.messages}

    def gauges(self) -> list[Gauges]:
        """Return the current numbers of each sink, if this process delivers."""
        if not self._leads:
            return []
        gauges = []
        own: list[Delivery] = []
        for name, each in self._deliveries.items():
            if each.owner is None:
                age = self.age(each)
                gauges.append(
                    Gauges(name, each.messages, each.bytes, age, each.blocked, each.stuck, each.state, dict(each.results))
                )
            else:
                own.append(each)
        if own:
            results: Counter[str] = Counter()
            for each in own:
                results.update(each.results)
            messages, size, blocked, stuck = (
                sum(getattr(each, part) for each in own) for part in ("messages", "bytes", "blocked", "stuck")
            )
            gauges.append(Gauges(WEBHOOKS, messages, size, max(map(self.age, own)), blocked, stuck, None, results))
        if histories := list(self._histories.values()):
            messages, size = sum(each.messages for each in histories), sum(each.bytes for each in histories)
            gauges.append(Gauges(STREAMS, messages, size, max(map(self.age, histories)), 0, 0, None, {}))
        return gauges

    def used(self) -> float:
        """Return the used share of the room of the fullest sink; 0 if another process delivers."""
        configured = [each for each in self._deliveries.values() if each.owner is None] if self._leads else []
        return max((each.bytes / each.terms.bytes for each in configured), default=0.0)

    def age(self, each: Delivery | History) -> float:
        """Return the age of the oldest message in seconds; 0 if there is none."""
        since = self._store.oldest(each.lane) if each.messages and not self._is_over else None
        return 0.0 if since is None else max(milliseconds() - since, 0) / 1000

    # Threads that fill it

    def await_room(self, sizes: Mapping[str, int]) -> None:
        """Wait until each sink has room for this many bytes. A spool that is stopping has room."""
        fits = all(self._has_room(self._deliveries.get(name), size) for name, size in sizes.items())
        if fits and all(owner.bytes + size <= owner.most_bytes for owner, size in self._of_owners(sizes).items()):
            return
        if not self._is_running:
            return  # without a thread that delivers, room is never made
        asking = _Asking(sizes)
        self._inbox.put(asking)
        while not asking.granted.wait(TICK * 5) and not self._is_over:
            pass

    def hold(self, spooled: Sequence[Spooled], commit: Callable[[], Sequence[tuple[int, Spooled]]]) -> None:
        """Put messages into the spool and count them in one step.

        Args:
            commit: stores them; returns the messages whose sink still exists, with their numbers. The others are dropped.
        """
        with self._holding:
            stored = commit()
            self._have_learned(stored)
        if len(stored) < len(spooled):
            self._counts.drop(sum(each.matches for each in spooled) - sum(each.matches for _, each in stored))

    def _have_learned(self, stored: Sequence[tuple[int, Spooled]]) -> None:
        """Count the messages that this process has put into the store."""
        if not self._store.database.is_shared:
            self._learn(stored)
            return
        of_histories = sum(each.matches for _, each in stored if each.sink in self._histories)
        self._counts.delivered({STREAMS: of_histories, SHARED: sum(each.matches for _, each in stored) - of_histories})
        self.look()

    def look(self) -> None:
        """Read the messages that other processes have put into a shared store; the spool's thread does so soon."""
        if self._is_running and not self._is_to_look:
            self._is_to_look = True
            self._inbox.put(self._look)

    def _learn(self, stored: Sequence[tuple[int, Spooled]]) -> None:
        """Count new messages of the store."""
        histories = self._histories
        for name, (messages, size, matches) in tally(each for _, each in stored).items():
            if (each := self._deliveries.get(name)) is not None:
                with self._lock:
                    each.change(messages, size, matches)
                    each.more()
                self._look_at(each.owner)
            elif (history := histories.get(name)) is not None:
                with self._lock:
                    history.added(messages, size, matches)
                self._look_at(history.owner)
                self._counts.delivered({STREAMS: matches})
        if histories:
            arrived = [(history, number, each) for number, each in stored if (history := histories.get(each.sink)) is not None]
            for history, number, _ in arrived:
                history.last = number
            if arrived:
                self.tell(arrived)
        self._inbox.put(None)

    def _look_at(self, owner: Owner | None) -> None:
        if owner is not None and owner.bytes > owner.most_bytes:
            self._full.add(owner)

    def _of_owners(self, sizes: Mapping[str, int]) -> Counter[Owner]:
        """Return the number of bytes for each tenant's own gateways."""
        found: Counter[Owner] = Counter()
        for name, size in sizes.items():
            each = self._deliveries.get(name) or self._histories.get(name)
            if each is not None and each.owner is not None:
                found[each.owner] += size
        return found

    def complete(self) -> None:
        """Note that no more messages will be added: the spool ends when each is delivered or a dead letter."""
        self._is_complete = True
        self._inbox.put(None)

    def stop(self) -> None:
        """Begin no more attempts. The spool ends when requests in flight have ended, and all messages were added."""
        self._is_stopping = True
        self._inbox.put(None)

    def _has_room(self, each: Delivery | None, size: int) -> bool:
        return self._is_stopping or each is None or not each.bytes or each.bytes + size <= each.terms.bytes

    def _add(self, name: str, endpoint: Endpoint, terms: Terms, target: str, owner: Owner | None, again: bool) -> None:
        lane = self._store.lane(name)
        if (before := self._deliveries.get(name) or self._removed.pop(name, None)) is not None:
            # A sink has one delivery for as long as the process runs, so its keys keep their order.
            if before.is_gone and (again or before.target != target):
                self._settle()
                self._enable(name, before)
            before.become(endpoint, terms, target)
            self._deliveries = {**self._deliveries, name: before}
            return
        if lane.gone is not None:
            if again or lane.target != target:
                self._store.enable(name)
            elif owner is None and self._leads:
                _LOGGER.error("sinks.%s: its endpoint has answered 410; set another url, or start with --enable %s", name, name)
        delivery = Delivery(name, endpoint, terms, target, lane, self._store, owner)
        if self._leads:
            self._found(delivery)
        # A thread that iterates over the mapping meanwhile has the previous one.
        self._deliveries = {**self._deliveries, name: delivery}

    def _found(self, delivery: Delivery) -> None:
        self._counts.found(delivery.matches)
        if delivery.messages and delivery.owner is None:
            _LOGGER.info("sinks.%s: %d messages are in the spool", delivery.name, delivery.messages)

    def _remove(self, name: str) -> None:
        if (each := self._deliveries.get(name)) is not None:
            self._removed[name] = each
            self._deliveries = _without(self._deliveries, name)

    def _clear(self, name: str) -> int | None:
        self._settle()
        if (each := self._removed.get(name)) is not None:
            if each.requests:
                raise ServiceError(f"sinks.{name}: requests to it are in flight; try again once they have ended")
            del self._removed[name]
            if self._leads:
                self._counts.drop(each.matches)
        return self._store.clear(name)

    def _forget(self, name: str, delete: Callable[[], tuple[int, int, int]]) -> None:
        self._settle()
        with self._holding:
            _, _, matches = delete()
            history, each = self._histories.get(name), self._deliveries.get(name)
            self._histories = _without(self._histories, name)
            self._deliveries = _without(self._deliveries, name)
        if history is not None:
            history.forget()
        elif each is not None:
            each.is_forgotten = True
            each.change(-each.messages, -each.bytes, -each.matches)
            each.endpoint.close()
            if self._leads:
                self._counts.drop(matches)

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
                orders = self._read_inbox()
                now = time.monotonic()
                self._settle_if_due(now)
                self._grant()
                if orders or now - looked >= TICK:
                    looked = now
                    self._begin(now)
                if self._is_complete and self._has_ended():
                    break
            self._settle()
            self._store.leave()
        finally:
            self._is_over = True
            self._attempting.end([each.endpoint for each in (*self._deliveries.values(), *self._removed.values())])
            if self._asking is not None:
                self._asking.granted.set()

    def _has_ended(self) -> bool:
        if self._is_stopping or not self._leads:
            return not any(each.requests for each in (*self._deliveries.values(), *self._removed.values()))
        return all(each.is_done for each in self._deliveries.values())

    def _read_inbox(self) -> bool:
        """Wait briefly for an item, then process all items of the inbox. Return whether there was one."""
        wait = TICK if self._since is None else max(self._since + GATHER - time.monotonic(), 0.0)
        try:
            # Without a sink, no message becomes due.
            item = (
                self._inbox.get(timeout=wait if self._deliveries or self._histories else None)
                if wait
                else self._inbox.get_nowait()
            )
        except queue.Empty:
            return False
        while True:
            if isinstance(item, _Asking):
                self._asking = item
            elif callable(item):
                item()
            elif item is not None:
                self._done(item)
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return True

    def _done(self, answers: Sequence[Answer]) -> None:
        now = time.monotonic()
        for each, endpoint, rows, lines, outcome in answers:
            self._flying -= 1
            self._own_flying -= each.owner is not None
            if isinstance(outcome, BaseException):
                raise outcome
            each.done(endpoint, rows, lines, outcome, self._changes, now)
            self._touched.add(each)
        if self._since is None and len(self._changes):
            self._since = now

    # With several processes

    @property
    def _leads(self) -> bool:
        """Whether this process delivers."""
        return not self._store.database.is_shared or (self._generation is not None and time.monotonic() < self._leads_until)

    def _look(self) -> None:
        """Renew or begin this process's lead, and read messages that other processes have put into the store."""
        self._is_to_look = False
        if not self._is_stopping:
            now = time.monotonic()
            generation = self._store.lead(LEASE)
            if generation is not None:
                self._leads_until = now + LEASE - _MARGIN
            if generation != self._generation:
                # A new generation: this process stalled, or another one changed data that only the store has.
                if self._generation is not None:
                    self._step_back()
                if generation is not None:
                    self._begin_to_lead(generation)
        arrived: list[tuple[History, int, Spooled]] = []
        for name, mark, last in self._store.lasts():
            each = self._deliveries.get(name) or self._histories.get(name)
            # A different mark belongs to another process's lane of this name; this process will forget the name.
            if each is not None and each.lane.mark == mark and last > each.lane.last:
                after, each.lane.last = each.lane.last, last
                if isinstance(each, Delivery):
                    self._more(each, after)
                else:
                    each.last = last
                    arrived.append((each, 0, _ANYTHING))
                self._recount(each)
        if self._asking is not None:
            for name in self._asking.sizes:
                if (each := self._deliveries.get(name)) is not None:
                    self._recount(each)
        if arrived:
            self.tell(arrived)

    def _begin_to_lead(self, generation: int) -> None:
        """Deliver from the contents of the store only."""
        _LOGGER.info("this process now delivers the messages in the spool")
        self._generation = generation
        self._begin_anew()
        for each in self._deliveries.values():
            self._found(each)

    def _step_back(self) -> None:
        """Stop deliveries, because another process delivers, or will."""
        _LOGGER.info("this process no longer delivers the messages in the spool")
        self._generation = None
        # The next leader counts these messages as found again.
        self._counts.delivered({SHARED: sum(each.matches for each in self._deliveries.values())})
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Read each sink's numbers from the store again.

        Requests in flight end, and their results are ignored; no sink begins a request before its old ones have ended.
        """
        self._changes, self._since = Changes(), None
        self._touched.clear()
        deliveries = {}
        for name, before in self._deliveries.items():
            before.is_forgotten = True
            self._ending.append(before)
            before.change(-before.messages, -before.bytes, -before.matches)
            lane = self._store.lane(name, anew=True)
            deliveries[name] = Delivery(name, before.endpoint, before.terms, before.target, lane, self._store, before.owner)
        self._deliveries = deliveries

    def _more(self, each: Delivery, after: int) -> None:
        """Count the messages of a lane after a number."""
        if self._leads:
            messages, size, matches = self._store.held(each.lane, after)
            self._counts.found(matches)
            with self._lock:
                each.change(messages, size, matches)
            each.more()
            if each.bytes > each.terms.bytes and each.terms.when_full == "dead_letter":
                self._evict(each, each.bytes - each.terms.bytes)
            self._look_at(each.owner)

    def _recount(self, each: Delivery | History) -> None:
        """Count the messages of a sink that another process delivers to or trims, at most once in `_COUNT` seconds."""
        now = time.monotonic()
        if (isinstance(each, History) or not self._leads) and now - self._counted.get(each.name, -inf) >= _COUNT:
            self._counted[each.name] = now
            messages, size, matches = self._store.held(each.lane)
            each.change(messages - each.messages, size - each.bytes, matches - each.matches)
            if isinstance(each, History):
                each.find()
            self._look_at(each.owner)

    def _begin(self, now: float) -> None:
        if not self._leads:
            return
        while self._full:
            self._make_room(self._full.pop())
        for history in self._histories.values():
            history.look(now)
        # A key has one message in flight at a time, including requests that this process has forgotten.
        self._ending = [each for each in self._ending if each.requests]
        ending = {each.name for each in self._ending}
        jobs: list[Job] = []
        # If requests are scarce, another sink is the first to get some each time.
        each_of = list(self._deliveries.values())
        self._turns = (self._turns + 1) % max(len(each_of), 1)
        for each in each_of[self._turns :] + each_of[: self._turns]:
            if self._is_stopping:
                break
            if each.is_idle or each.name in ending:
                continue
            each.load(now)
            while self._may_begin(each) and (job := each.take(now)) is not None:
                self._flying += 1
                self._own_flying += each.owner is not None
                jobs.append((each, each.endpoint, *job))
        if jobs:
            self._attempting.begin(jobs)

    def _may_begin(self, each: Delivery) -> bool:
        if each.owner is None:
            return self._flying < MOST_REQUESTS
        return self._own_flying < MOST_OWN and each.owner.requests < each.owner.most_requests and self._flying < MOST_REQUESTS

    def _grant(self) -> None:
        asking = self._asking
        if asking is None:
            return
        for name, size in asking.sizes.items():
            each = self._deliveries.get(name)
            if each is not None and not self._has_room(each, size) and each.terms.when_full == "dead_letter":
                if not self._leads:
                    # The leader makes room.
                    continue
                self._evict(each, each.bytes + size - each.terms.bytes)
            # A tenant's endpoint never blocks the sources: its messages in flight, which cannot be evicted, may exceed the limit.
            if each is not None and each.owner is None and not self._has_room(each, size):
                return
        if self._leads:
            for owner, size in self._of_owners(asking.sizes).items():
                self._make_room(owner, size)
        self._asking = None
        asking.granted.set()

    def _make_room(self, owner: Owner, size: int = 0) -> None:
        """Make room among a tenant's own messages: first from the histories of streams, then from waiting messages."""
        if owner.bytes + size <= owner.most_bytes:
            return
        left = max(owner.most_bytes - size - owner.most_bytes // _PARTS, 0)
        histories = [each for each in self._histories.values() if each.owner is owner]
        for history in sorted(histories, key=lambda each: each.bytes, reverse=True):
            while owner.bytes > left and history.cut(milliseconds(), owner.bytes - left):
                pass
        waiting = [each for each in self._deliveries.values() if each.owner is owner]
        for each in sorted(waiting, key=lambda each: each.bytes, reverse=True):
            if owner.bytes > left:
                self._evict(each, owner.bytes - left)

    def _evict(self, each: Delivery, size: int) -> None:
        self._settle()
        self._touched.add(each)
        each.evict(size, self._changes)
        self._settle()

    def _settle_if_due(self, now: float) -> None:
        if self._since is not None and (now - self._since >= GATHER or len(self._changes) >= MOST_GATHERED):
            self._settle()

    def _settle(self) -> None:
        """Store the results of attempts in one commit."""
        self._since = None
        if not len(self._changes):
            return
        changes, self._changes = self._changes, Changes()
        try:
            self._settle_changes(changes)
        except Fenced:
            self._step_back()
            return
        touched, self._touched = self._touched, set()
        for each in touched:
            with self._lock:
                delivered, given_up = each.settled()
            self._counts.delivered({each.label: delivered}, {each.label: given_up})

    def _settle_changes(self, changes: Changes) -> None:
        dead = [letter for _, letter in changes.dead]
        about: list[Spooled] = []
        if dead and self.dead_letter in self._deliveries:
            about = dead_letters.spooled(self.dead_letter, dead)
        elif dead:
            self.announce(dead)
        stored = self._store.settle(changes, about)
        if stored:
            self._have_learned(stored)

    def _enable(self, name: str, delivery: Delivery | None) -> bool:
        was = self._store.enable(name)
        if delivery is not None:
            delivery.is_gone = False
        return was

    def _replay(self, letters: Sequence[DeadLetter]) -> None:
        self._settle()
        letters = [letter for letter in self._left(letters) if letter.sink in self._deliveries]
        self._store.respool(letters)
        for letter in letters if self._leads else ():
            each = self._deliveries[letter.sink]
            if letter.spooled is not None:
                each.unblock(letter.spooled)
                continue
            self._counts.found(letter.matches)
            with self._lock:
                each.change(1, len(letter.record), letter.matches)
                each.more()
        self._inbox.put(None)

    def _drop(self, letters: Sequence[DeadLetter]) -> int:
        self._settle()
        letters = self._left(letters)
        count = self._store.drop([letter.id for letter in letters])
        for letter in letters if self._leads else ():
            each = self._deliveries.get(letter.sink) or self._removed.get(letter.sink)
            if letter.spooled is not None and each is not None:
                each.unblock(letter.spooled)
                with self._lock:
                    each.change(-1, -letter.size, -letter.matches)
                self._counts.delivered({}, {each.label: letter.matches})
        return count

    def _left(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Return the letters that still exist: others were replayed or dropped since they were read."""
        return [each for letter in letters for each in self._store.letters(letter.id - 1, 1) if each.id == letter.id]


def tally(spooled: Iterable[Spooled]) -> dict[str, tuple[int, int, int]]:
    """Return the number of messages, bytes and matches of each sink."""
    sums: dict[str, tuple[int, int, int]] = {}
    for each in spooled:
        messages, size, matches = sums.get(each.sink, (0, 0, 0))
        sums[each.sink] = (messages + 1, size + len(each.body), matches + each.matches)
    return sums


def _without(several: Mapping[str, _T], name: str) -> dict[str, _T]:
    """Return a new mapping without a name, because other threads iterate over the previous one."""
    return {other: each for other, each in several.items() if other != name}
