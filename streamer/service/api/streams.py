"""Streams of matches: server-sent events of a gateway without a URL, resumed by `Last-Event-ID`.

```
commit ──► history, in the store ◄── pages, each read once for all streams ◄─┐ behind
   └─────► tail, in memory: the latest messages, encoded once ◄──────────────┤
                                                             a stream is a cursor
```

Contract: a stream sends each message of its history after its cursor, in order, once. If some of them are gone it sends an event
`reset` in their place. So a client that sends back the last id that it saw either misses no message, or gets a `reset`. It may
get the last messages twice, with the same ids.

A stream has no queue of its own, only a number, and the bytes that its connection has not accepted (64 KiB). A slow stream falls
behind the tail and reads pages; one that accepts no bytes for `api.limits.idle_time` is closed. The rejected alternative was a
queue for each stream: with a thousand of them, memory is unbounded, or messages are lost.

One event loop owns all of this. The thread that commits posts messages of open histories to the loop. If too many bytes wait
there, it only posts the names of the histories.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias, final

from starlette.types import Receive, Send

from streamer.config.schema.api import Api
from streamer.errors import ServiceError
from streamer.service.api.problems import Problem
from streamer.service.api.tokens import Token, Tokens
from streamer.service.delivery.spool import History
from streamer.service.store.gateways import Pages
from streamer.service.store.rows import Spooled
from streamer.service.store.store import Store

#: The most bytes of a tail, and of all tails together.
MOST_OF_A_TAIL: Final = 1024**2
MOST_OF_TAILS: Final = 64 * 1024**2
#: The messages of a page, the bytes of one, and the bytes of all kept pages.
PAGE: Final = 256
MOST_OF_A_PAGE: Final = 512 * 1024
MOST_OF_PAGES: Final = 16 * 1024**2
#: The bytes that are sent at once, unless a message has more.
MOST_AT_ONCE: Final = 128 * 1024
#: The most bytes in flight from the thread that commits to the loop.
MOST_POSTED: Final = 16 * 1024**2
#: The interval between checks for due heartbeats and revoked tokens, in seconds.
TICK: Final = 1.0
#: The wait after the store could not be read, in seconds.
_AGAIN: Final = 1.0
#: The range of a client's delay before it reconnects, in milliseconds, so that clients do not come all at once.
_RETRY: Final = (1000, 3000)
_ID: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,14})")
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")
_HEARTBEAT: Final = b":\n\n"
_LOGGER: Final = logging.getLogger("streamer.service.api")

Entry: TypeAlias = tuple[int, bytes]
"""The number of a message, and its text as an event."""


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a stream.

    Attributes:
        last_id: the last id that the client saw; None if it sent none.
        is_new: whether to send only later messages, if the client sent no id.
    """

    history: History
    last_id: str | None
    is_new: bool


@final
class _Tail:
    """The latest messages of a history: all of them after the number *after*, up to *end*.

    Attributes:
        streams: its readers.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.streams: dict[Stream, None] = {}
        self.after = self.end = 0
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._texts: dict[int, tuple[bytes, int, int]] = {}

    def add(self, number: int, body: bytes, most: int) -> None:
        """Add a committed message."""
        if number <= self.end:
            return
        if number != self.end + 1:
            self.begin(number - 1)
        text = encoded(self.history, number, body)
        self._entries.append((number, text))
        self._size += len(text)
        self.end = number
        self._texts.clear()
        while self._size > most and self._entries:
            self.after, gone = self._entries.popleft()
            self._size -= len(gone)

    def begin(self, after: int) -> None:
        """Drop all messages, and contain all later ones from a number on."""
        self._entries.clear()
        self._texts.clear()
        self._size, self.after, self.end = 0, after, after

    def text(self, cursor: int) -> tuple[bytes, int, int]:
        """Return the text after a number, as much as is sent at once; the last number, and the number of messages.

        Streams at the same number share one text.
        """
        if (text := self._texts.get(cursor)) is None:
            entries = list(takewhile(lambda each: each[0] > cursor, reversed(self._entries)))
            text = self._texts[cursor] = joined(entries[::-1])
        return text


def encoded(history: History, number: int, body: bytes) -> bytes:
    """Return a message as an event. Newlines in its JSON can only be white space, because it was parsed."""
    return b"id: %b\ndata: %b\n\n" % (id_of(history, number).encode(), body.rstrip(b"\n").translate(_SPACES))


def id_of(history: History, number: int) -> str:
    """Return the id of a message."""
    return f"{history.mark}-{number - history.lane.first}"


def joined(entries: Sequence[Entry]) -> tuple[bytes, int, int]:
    """Return the texts of some entries, as much as is sent at once; the number of the last, and the number of entries."""
    size = 0
    for count, (_, text) in enumerate(entries, 1):
        size += len(text)
        if size >= MOST_AT_ONCE:
            entries = entries[:count]
            break
    return b"".join(text for _, text in entries), entries[-1][0], len(entries)


@final
class Stream:
    """One client, with its cursor. Its hub creates it, and it leaves the hub at its end."""

    def __init__(self, hub: Streams, tail: _Tail, cursor: int, missed: str | None, token: Token, tenant: str | None) -> None:
        self._hub, self._tail, self._cursor, self._missed = hub, tail, cursor, missed
        self.history, self.token, self.tenant = tail.history, token, tenant
        self._waker: asyncio.Future[None] | None = None
        self._why: str | None = None
        self._sent_at = time.monotonic()
        self._is_due = False

    def wake(self) -> None:
        """Check for messages."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def end(self, why: str) -> None:
        """Finish the current send, and end."""
        self._why = self._why or why
        self.wake()

    def beat(self, now: float, interval: float) -> None:
        """Send a comment if the stream was silent for *interval* seconds."""
        if now - self._sent_at >= interval:
            self._is_due = True
            self.wake()

    async def serve(self, receive: Receive, send: Send, status: int, headers: Mapping[str, str]) -> None:
        """Send events until the client disconnects, or the stream ends."""
        watching = asyncio.ensure_future(self._watch(receive))
        try:
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": raw})
            text: bytes | None = b"retry: %d\n\n" % random.randint(*_RETRY)
            while text is not None:
                await send({"type": "http.response.body", "body": text, "more_body": True})
                self._sent_at, self._is_due = time.monotonic(), False
                text = await self._next()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()
            self._hub.leave(self, self._why or "client")

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end("client")

    async def _next(self) -> bytes | None:
        """Return the next bytes to send; None at the end."""
        history, tail = self.history, self._tail
        while self._why is None:
            if self._missed is not None or self._cursor < history.first:
                return self._reset()
            if tail.after <= self._cursor < tail.end:
                text, self._cursor, count = tail.text(self._cursor)
                self._hub.messages += count
                return text
            if self._cursor < history.last:
                entries = await self._hub.read(history, self._cursor)
                if self._cursor < history.first:
                    continue  # a cut during the read left a gap
                if entries and entries[0][0] != self._cursor + 1:
                    # Numbers have no gaps: another process has cut the history, and this one has not noticed yet.
                    self._missed, self._cursor = id_of(history, self._cursor), entries[0][0] - 1
                    continue
                if entries:
                    text, self._cursor, count = joined(entries)
                    self._hub.messages += count
                    return text
                await self._wait(_AGAIN)
                continue
            if self._is_due:
                return _HEARTBEAT
            await self._wait(None)
        return None

    def _reset(self) -> bytes:
        """Return a `reset` event for missing messages, and continue with the oldest existing one."""
        missed = id_of(self.history, self._cursor) if self._missed is None else self._missed
        self._missed, self._cursor = None, max(self._cursor, self.history.first)
        body = json.dumps({"after": missed[:100], "reason": "the history that follows this id is gone"})
        return b"event: reset\nid: %b\ndata: %b\n\n" % (id_of(self.history, self._cursor).encode(), body.encode())

    async def _wait(self, seconds: float | None) -> None:
        self._waker = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            if seconds is None:
                await self._waker
            else:
                await asyncio.wait_for(self._waker, seconds)
        self._waker = None


@final
class Streams:
    """All streams. One event loop uses it, but any thread may call `post` and `forget`.

    Attributes:
        ended: the number of ended streams, by cause: `client`, `deleted`, `off`, `revoked`, `stopped`.
        messages: the number of messages sent.
    """

    def __init__(self, store: Store) -> None:
        self._section = Api()
        self._tokens: Tokens | None = None
        self._pages = Pages(store)
        self._pool = ThreadPoolExecutor(1, "streamer-streams")
        self._tails: dict[str, _Tail] = {}
        self._of_tenants: Counter[str | None] = Counter()
        self._cached: OrderedDict[tuple[str, int], list[Entry]] = OrderedDict()
        self._page_bytes = 0
        self._reading: dict[tuple[str, int], asyncio.Future[list[Entry]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._posted = self._consumed = 0
        self._is_over = False
        self.ended: Counter[str] = Counter()
        self.messages = 0

    def __len__(self) -> int:
        return sum(self._of_tenants.values())

    def take(self, section: Api, tokens: Tokens | None) -> None:
        """Apply another section; only while no event loop uses it."""
        self._section, self._tokens = section, tokens

    def begin(self) -> None:
        """Begin on the running loop; the streams of an earlier loop have ended."""
        self._loop, self._is_over = asyncio.get_running_loop(), False
        self._tails, self._of_tenants, self._reading, self._consumed = {}, Counter(), {}, self._posted
        self._looking = asyncio.ensure_future(self._look())

    def open(self, wanted: Wanted, token: Token, tenant: str | None) -> Stream:
        """Return a stream, to be served. Raises Problem if there are too many."""
        limits, quotas = self._section.limits, self._section.quotas
        retry = {"Retry-After": "5"}
        if self._is_over or wanted.history.is_forgotten:
            raise Problem("unknown", "no such gateway")
        if self._of_tenants[tenant] >= quotas.streams:
            raise Problem("too-many", f"a tenant may have {quotas.streams:,} streams at once", headers=retry)
        if len(self) >= limits.streams:
            raise Problem("busy", "there are too many streams", headers=retry)
        history = wanted.history
        tail = self._tails.get(history.name)
        if tail is None:
            # The tail is registered before its end is read, so that the thread that commits skips no message.
            tail = self._tails[history.name] = _Tail(history)
            tail.begin(history.last)
        cursor, missed = _place(wanted)
        stream = Stream(self, tail, cursor, missed, token, tenant)
        tail.streams[stream] = None
        self._of_tenants[tenant] += 1
        return stream

    def leave(self, stream: Stream, why: str) -> None:
        """Remove a stream."""
        self.ended[why] += 1
        self._of_tenants[stream.tenant] -= 1
        if not self._of_tenants[stream.tenant]:
            del self._of_tenants[stream.tenant]
        tail = stream._tail
        tail.streams.pop(stream, None)
        if not tail.streams and self._tails.get(stream.history.name) is tail:
            del self._tails[stream.history.name]

    # From other threads

    def post(self, committed: Sequence[tuple[History, int, Spooled]]) -> None:
        """Post committed messages to the loop."""
        posted = [(history, number, each.body) for history, number, each in committed if history.name in self._tails]
        if not posted:
            return
        size = sum(len(body) for _, _, body in posted)
        if self._posted - self._consumed + size > MOST_POSTED:
            # Too many bytes wait: streams read these messages from the store.
            posted, size = [(history, 0, b"") for history in {id(each[0]): each[0] for each in posted}.values()], 0
        self._posted += size
        self._call(self._take, posted, size)

    def forget(self, history: History, why: str) -> None:
        """End the streams of a gateway."""
        self._call(self._forget, history, why)

    def _call(self, action: Any, *values: Any) -> None:
        if self._loop is not None:
            # A closed loop has no streams.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(action, *values)

    # On the loop

    def _take(self, posted: Sequence[tuple[History, int, bytes]], size: int) -> None:
        self._consumed += size
        most = min(MOST_OF_A_TAIL, MOST_OF_TAILS // max(len(self._tails), 1))
        touched: dict[_Tail, None] = {}
        for history, number, body in posted:
            tail = self._tails.get(history.name)
            if tail is not None and tail.history is history:
                if number:
                    tail.add(number, body, most)
                touched[tail] = None
        for tail in touched:
            for stream in tail.streams:
                stream.wake()

    def _forget(self, history: History, why: str) -> None:
        tail = self._tails.get(history.name)
        if tail is not None and tail.history is history:
            if history.is_forgotten:
                del self._tails[history.name]
            for stream in tail.streams:
                stream.end(why)

    async def read(self, history: History, cursor: int) -> list[Entry]:
        """Return some entries after a number, from the store; empty if it cannot be read."""
        first = history.lane.first
        after = first + (cursor - first) // PAGE * PAGE
        last = after + PAGE
        while True:
            try:
                entries = await self._page(history, after, last)
            except (OSError, ServiceError):
                _LOGGER.error("a stream waits: the store cannot be read")
                return []
            if entries and entries[-1][0] > cursor:
                return [each for each in entries if each[0] > cursor]
            if entries and entries[-1][0] < last:
                after = entries[-1][0]
            elif last < history.last:
                after, last = last, last + PAGE
            else:
                return []

    async def _page(self, history: History, after: int, last: int) -> list[Entry]:
        """Return the entries after a number and up to another, or fewer. Concurrent calls for the same page share one read."""
        key = (history.mark, after)
        if (entries := self._cached.get(key)) is not None:
            self._cached.move_to_end(key)
            return entries
        if (reading := self._reading.get(key)) is None:
            assert self._loop is not None
            reading = self._reading[key] = self._loop.run_in_executor(self._pool, self._read, history, after, last)
            reading.add_done_callback(lambda done: self._keep(key, last, done))
        return await asyncio.shield(reading)

    def _read(self, history: History, after: int, last: int) -> list[Entry]:
        rows = self._pages.read(history.lane, after, last, MOST_OF_A_PAGE)
        return [(number, encoded(history, number, body)) for number, body in rows]

    def _keep(self, key: tuple[str, int], last: int, done: asyncio.Future[list[Entry]]) -> None:
        del self._reading[key]
        if done.cancelled() or done.exception() is not None:
            return
        entries = done.result()
        size = sum(len(text) for _, text in entries)
        if entries and (entries[-1][0] == last or size >= MOST_OF_A_PAGE):
            # It is complete, and never changes.
            self._cached[key] = entries
            self._page_bytes += size
            while self._page_bytes > MOST_OF_PAGES:
                _, gone = self._cached.popitem(last=False)
                self._page_bytes -= sum(len(text) for _, text in gone)

    async def _look(self) -> None:
        interval = self._section.limits.heartbeat.total_seconds()
        while True:
            await asyncio.sleep(min(TICK, interval))
            now = time.monotonic()
            streams = [stream for tail in list(self._tails.values()) for stream in tail.streams]
            valid: dict[Token, bool] = {}
            for stream in streams:
                if self._tokens is not None:
                    if stream.token not in valid:
                        valid[stream.token] = self._tokens.holds(stream.token)
                    if not valid[stream.token]:
                        stream.end("revoked")
                stream.beat(now, interval)

    def end(self) -> None:
        """End all streams, and open no more."""
        self._is_over = True
        self._looking.cancel()
        for tail in self._tails.values():
            for stream in tail.streams:
                stream.end("stopped")

    def close(self) -> None:
        """Close the store's reader."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pages.close()


def _place(wanted: Wanted) -> tuple[int, str | None]:
    """Return the first cursor of a stream, and the id after which messages are missing; None if they are all there."""
    history, last_id = wanted.history, wanted.last_id
    if not last_id:
        return (history.last if wanted.is_new else history.first), None
    match = _ID.fullmatch(last_id)
    if match is not None and match[1] == history.mark:
        number = history.lane.first + int(match[2])
        if history.first <= number <= history.last:
            return number, None
    # The id of another history, or of a deleted message: the stream sends all existing messages.
    return history.first, last_id
