"""One sink of the spool: its requests in flight, and their results.

The store is the truth; `lines.py` has its next messages in memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, final

from streamer.service.connectors.protocols import Endpoint, Outcome
from streamer.service.delivery.dead_letters import undelivered
from streamer.service.delivery.spool.breaker import Breaker, Terms
from streamer.service.delivery.spool.lines import PAGE, PAGE_BYTES, Line, Lines, Name, name_of
from streamer.service.delivery.spool.log import DeliveryLog
from streamer.service.store.rows import NEVER, Changes, Lane, Waiting
from streamer.service.store.store import Store

#: The name in metrics of all webhooks of tenants' own gateways; other sinks have no colon in their name.
WEBHOOKS: Final = "gateways:webhook"


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
@dataclass(slots=True)
class _Results:
    """The results of requests that the store does not have yet: messages, their bytes, and their matches by result."""

    messages: int = 0
    bytes: int = 0
    delivered: int = 0
    dead: int = 0


@final
class Delivery:
    """One sink: its endpoint, its requests in flight, and its numbers. Only the spool's thread uses it.

    Attributes:
        label: its name in metrics.
        lines: its next messages.
        messages, bytes, matches: the contents of its lane of the store.
        flying: the numbers of the messages in flight.
        requests: the number of requests in flight.
        results: the number of requests, by result.
        delivered, dead: the matches that were delivered or became dead letters, since the start.
        is_gone: whether its endpoint is disabled after 410.
        is_forgotten: whether the results of requests in flight are ignored.
    """

    def __init__(
        self, name: str, endpoint: Endpoint, terms: Terms, target: str, lane: Lane, store: Store, owner: Owner | None = None
    ) -> None:
        self.name, self.endpoint, self.terms, self.target, self.lane, self.owner = name, endpoint, terms, target, lane, owner
        self.label = name if owner is None else WEBHOOKS
        self._store = store
        self.lines = Lines(store, lane)
        self.breaker = Breaker(terms)
        self.is_forgotten = False
        self.is_gone = lane.gone is not None
        self.messages = self.bytes = self.matches = 0
        self.change(*store.backlog(lane))
        self.flying: set[int] = set()
        self.requests = 0
        self.results: Counter[str] = Counter()
        # Messages that need a request each, and those that wait for room for their dead letters.
        self._alone: set[int] = set()
        self._stuck: set[int] = set()
        self._unsettled = _Results()
        self.delivered = self.dead = 0
        self._log = DeliveryLog(name, is_own=owner is not None)

    def become(self, endpoint: Endpoint, terms: Terms, target: str) -> None:
        """Deliver to another endpoint, or on other terms, from the next request on. Requests in flight end as they began."""
        if endpoint is not self.endpoint:
            self.endpoint.close()
        if (target, terms) != (self.target, self.terms):
            self.breaker = Breaker(terms)
        self.endpoint, self.terms, self.target = endpoint, terms, target

    def forget(self) -> None:
        """Ignore the results of requests in flight, and count no more messages."""
        self.is_forgotten = True
        self.change(-self.messages, -self.bytes, -self.matches)

    def change(self, messages: int, size: int, matches: int) -> None:
        """Add to the numbers of messages, bytes and matches in the spool; negative values subtract."""
        self.messages += messages
        self.bytes += size
        self.matches += matches
        if self.owner is not None:
            self.owner.bytes += size

    def settled(self) -> tuple[int, int]:
        """Note that the results are in the store; return the matches that were delivered, and those of dead letters."""
        results, self._unsettled = self._unsettled, _Results()
        self.change(-results.messages, -results.bytes, -results.delivered - results.dead)
        self.delivered, self.dead = self.delivered + results.delivered, self.dead + results.dead
        return results.delivered, results.dead

    @property
    def state(self) -> str:
        """The state of its endpoint: `closed`, `half_open`, `open`, or `disabled` after 410."""
        return "disabled" if self.is_gone else self.breaker.state

    @property
    def is_done(self) -> bool:
        """Whether every message that can be delivered without intervention has been delivered."""
        if self.requests:
            return False
        return self.is_gone or self.terms.is_paused or (not self.lines.has_next and self.lines.is_stopped)

    @property
    def stuck(self) -> int:
        """The number of messages that are retried because there is no room for their dead letters."""
        return len(self._stuck)

    def load(self, now: float) -> None:
        """Read more messages from the store, as far as there is room."""
        if not self.is_gone:
            self.lines.load(now, self.terms)

    def take(self, now: float) -> tuple[list[Waiting], list[Line]] | None:
        """Return messages for one request, and their lines; None if no request may begin."""
        self.lines.wake(now)
        if self.is_gone or self.terms.is_paused or not self.breaker.lets(now, self.requests):
            return None
        rows, lines = self.lines.take(self.terms, self._alone)
        if not rows:
            return None
        self.requests += 1
        if self.owner is not None:
            self.owner.requests += 1
        self.flying.update(row.number for row in rows)
        return rows, lines

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
        self.lines.done(rows)
        self.results["retried" if outcome.result == "later" else "refused" if outcome.result == "never" else outcome.result] += 1
        if endpoint is not self.endpoint and outcome.result in ("later", "gone"):
            # The result is about the replaced endpoint, so it does not count for the new one.
            self.lines.put_back(rows, lines)
            return
        if outcome.result == "later":
            if self.breaker.bad(lines[0].name, now, outcome.after):
                self._log.down(outcome.reason, self.breaker.until - now)
            self._failed(rows, lines, outcome, changes, now)
            return
        if self.breaker.good(now):
            self._log.up()
        if outcome.result == "delivered":
            for row in rows:
                self._settle(row)
                changes.delivered.append(row.number)
                self._unsettled.delivered += row.matches
            self.lines.free(lines)
        elif outcome.result == "gone":
            self.is_gone = True
            changes.gone.append((self.name, self.target))
            self._log.disabled(outcome.reason)
            self.lines.put_back(rows, lines)
        elif len(rows) > 1:
            # One of them may be at fault; sending each by itself finds it.
            self._alone.update(row.number for row in rows)
            self.lines.put_back(rows, lines)
        elif self._has_room(rows[0], outcome.reason, changes):
            self._bury(rows[0], outcome.code, outcome.reason, rows[0].attempts + 1, changes)
            self.lines.free(lines)
        else:
            self._keep(rows[0], changes)
            self.lines.block(lines[0], rows[0].number, now + self.terms.most)

    def _failed(self, rows: Sequence[Waiting], lines: Sequence[Line], outcome: Outcome, changes: Changes, now: float) -> None:
        delay = self.terms.delay(1 + max(row.attempts for row in rows))
        if outcome.after is not None:
            delay = max(delay, min(outcome.after, self.terms.most))
        due = int((time.time() + delay) * 1000)
        for line in lines:
            first: Waiting | None = None
            is_over = is_stuck = False
            for row in rows:
                if name_of(row) != line.name:
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
                    self._log.dead(outcome.reason)
                first = first or row
            if first is None:
                self.lines.free([line])
            else:
                wait = self.terms.most if is_stuck else delay
                self.lines.block(line, first.number, inf if is_over else now + wait)

    def _settle(self, row: Waiting) -> None:
        self._alone.discard(row.number)
        self._stuck.discard(row.number)
        self._unsettled.messages += 1
        self._unsettled.bytes += len(row.body)

    def _has_room(self, row: Waiting, reason: str, changes: Changes) -> bool:
        return self._store.has_room(changes.dead_bytes + len(row.body) + len(reason))

    def _keep(self, row: Waiting, changes: Changes) -> None:
        """Keep retrying a message that has failed for good until there is room for its dead letter, so that it is not lost."""
        self._stuck.add(row.number)
        changes.tried.append((row.attempts, int((time.time() + self.terms.most) * 1000), row.number))
        self._log.stuck(len(self._stuck))

    def _bury(self, row: Waiting, code: str, reason: str, attempts: int, changes: Changes) -> None:
        self._settle(row)
        self._unsettled.dead += row.matches
        changes.bury(row.number, undelivered(self.name, row, code, reason, attempts))
        self._log.dead(reason)

    def evict(self, size: int, changes: Changes) -> None:
        """Evict the oldest messages that are not in flight, as dead letters, until *size* bytes are free.

        If there is no room for dead letters, only messages of tenants' own gateways are evicted, and dropped, because these
        gateways must not block the sources.
        """
        evicted: set[int] = set()
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
                    self._unsettled.dead += row.matches
                    changes.delivered.append(row.number)
                else:
                    continue
                evicted.add(row.number)
                names.add(name_of(row))
                freed += len(row.body)
        self.lines.evict(names, evicted)
