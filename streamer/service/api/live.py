"""Events as they come, for watchers: a few of them, and how many there are.

A watcher has a number and a filter, and checks ten times a second the events that are kept in any case
(`streamer.service.observed.events`). So watchers cost the pipeline no work, and faster events than they can be shown are left
out. One event loop owns all of this.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from starlette.types import Receive, Send

from streamer.service.api.problems import Problem
from streamer.service.api.tokens import Token, Tokens
from streamer.service.observed.events import LOOKED_AT, Events, Hit, ObservedEvent
from streamer.service.store.rows import time_of

#: The most watchers, and the most of one tenant.
MOST: Final = 50
MOST_OF_A_TENANT: Final = 10
#: The events that one watcher is shown in a second.
SHOWN: Final = 10
#: The intervals between checks for events, and between reports of counts, in seconds.
_LOOK: Final = 0.1
_TELL: Final = 1.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A watcher's filter.

    Attributes:
        tenant: the tenant of the events; None for all.
        outcome: `matched` or `unmatched`; None for both.
    """

    tenant: str | None
    collection: str | None = None
    gateway: str | None = None
    subscription: str | None = None
    outcome: str | None = None

    def has(self, event: ObservedEvent, *, is_all: bool) -> bool:
        """Return whether to show an event; *is_all* includes matches of subscriptions to every tenant's events."""
        if self.tenant not in (None, event.tenant) or self.collection not in (None, event.collection):
            return False
        hits = hits_of(event, is_all=is_all)
        if self.outcome is not None and bool(hits) != (self.outcome == "matched"):
            return False
        if self.gateway is None and self.subscription is None:
            return True
        return any(self.gateway in (None, hit.gateway) and self.subscription in (None, hit.id) for hit in hits)


def hits_of(event: ObservedEvent, *, is_all: bool) -> tuple[Hit, ...]:
    """Return the kept matches of an event; *is_all* includes those of subscriptions to every tenant's events."""
    return (*event.matched.own, *(event.matched.every if is_all else ()))


def shown(observed: ObservedEvent, *, is_all: bool) -> dict[str, Any]:
    """Return the report of an event; *is_all* includes subscriptions to every tenant's events."""
    matched, hits = observed.matched, hits_of(observed, is_all=is_all)
    event: dict[str, Any]
    try:
        event = {"event": json.loads(observed.text)}
    except (RecursionError, ValueError):
        # It is deeper than json reads, or has an integer of thousands of digits.
        event = {"text": observed.text.decode(errors="replace")}
    return {
        "number": observed.number,
        "at": time_of(observed.at),
        "source": observed.source,
        "partition": observed.partition,
        "position": str(observed.position),
        "tenant": observed.tenant,
        "collection": observed.collection,
        "type": observed.type,
        "ignored": observed.ignored,
        "size_bytes": len(observed.text),
        "matches": matched.own_count + (matched.every_count if is_all else 0),
        "more_matches": matched.more and (is_all or matched.own_count == LOOKED_AT),
        "matched_by": [hit._asdict() for hit in hits],
        **event,
    }


@final
class Watchers:
    """All watchers. One event loop uses it.

    Args:
        counts: returns the numbers of events read and matched since the start.
    """

    def __init__(self, events: Events, counts: Callable[[], tuple[int, int]]) -> None:
        self.events, self.counts = events, counts
        self.tokens: Tokens | None = None
        self._all: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def open(self, watched: Watched, token: Token) -> Watcher:
        """Return a watcher, to be served. Raises Problem if there are too many."""
        retry = {"Retry-After": "5"}
        if sum(each.token.tenant == token.tenant for each in self._all) >= MOST_OF_A_TENANT and token.tenant is not None:
            raise Problem("too-many", f"a tenant may watch {MOST_OF_A_TENANT} times at once", headers=retry)
        if len(self._all) >= MOST:
            raise Problem("busy", "too many watch", headers=retry)
        watcher = Watcher(self, watched, token)
        self._all[watcher] = None
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self._all.pop(watcher, None)

    def end(self) -> None:
        """End all watchers."""
        for watcher in self._all:
            watcher.end()


@final
class Watcher:
    """One watcher, with its cursor."""

    def __init__(self, all_of_them: Watchers, watched: Watched, token: Token) -> None:
        self._all, self._watched, self.token = all_of_them, watched, token
        self._is_over = asyncio.Event()
        latest = all_of_them.events.after(0)
        self._number = latest[-1].number if latest else 0
        self._omitted = self._sent = 0

    def end(self) -> None:
        """Finish the current send, and end."""
        self._is_over.set()

    async def serve(self, receive: Receive, send: Send, status: int, headers: Mapping[str, str]) -> None:
        """Send events until the client disconnects, or the watcher ends."""
        watching = asyncio.ensure_future(self._watch(receive))
        try:
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": raw})
            await send({"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": True})
            reported, before = -_TELL, self._all.counts()
            while not self._is_over.is_set():
                now = time.monotonic()
                text = self._text(now)
                if now - reported >= _TELL:
                    counts = self._all.counts()
                    text += self._rates(counts, before, now - reported if reported > 0 else _TELL)
                    reported, before = now, counts
                    if self._all.tokens is not None and not self._all.tokens.holds(self.token):
                        break
                if text:
                    await send({"type": "http.response.body", "body": text, "more_body": True})
                try:
                    await asyncio.wait_for(self._is_over.wait(), _LOOK)
                except TimeoutError:
                    continue
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()
            self._all.leave(self)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()

    def _text(self, now: float) -> bytes:
        """Return the events to show now, up to the limit."""
        latest = self._all.events.after(self._number)
        if not latest:
            return b""
        self._number = latest[-1].number
        is_all = self.token.tenant is None
        wanted = [event for event in latest if self._watched.has(event, is_all=is_all)]
        room = max(SHOWN - self._sent, 0)
        # The newest events show the current state best.
        sent = wanted[-room:] if room else []
        self._sent += len(sent)
        self._omitted += len(wanted) - len(sent)
        return b"".join(_event(b"event", shown(event, is_all=is_all), event.number) for event in sent)

    def _rates(self, counts: tuple[int, int], before: tuple[int, int], seconds: float) -> bytes:
        """Return the counts, and begin another second. Only the operator gets the totals of the service."""
        rates: dict[str, Any] = {"shown": self._sent, "left_out": self._omitted}
        if self.token.tenant is None:
            read, matched = (round((now - then) / seconds, 1) for now, then in zip(counts, before, strict=True))
            rates |= {"events_per_s": read, "events_matched_per_s": matched}
        self._sent = self._omitted = 0
        return _event(b"rates", rates)


def _event(kind: bytes, members: Mapping[str, Any], number: int | None = None) -> bytes:
    identity = b"" if number is None else b"id: %d\n" % number
    return b"event: %b\n%bdata: %b\n\n" % (kind, identity, json.dumps(members).encode())
