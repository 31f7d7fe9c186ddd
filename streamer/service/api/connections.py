"""Connections with deadlines, so that they can neither stay for ever nor keep others out.

```
head ──────────► body ──────────► answered ──────────► idle ──► head …
head_time        body_time        idle_time for each   idle_time
                                  64 KiB that the client reads
```

uvicorn has a deadline only for `idle`: a client that sends a byte now and then, or no byte, could stay. Here each part has one,
and the numbers of connections in all and from each peer are bounded. At a bound, the connection that has waited longest without a
whole request is closed in favour of the new one. So a thousand slow clients cannot keep out a good one, whose whole request
arrives at once.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from streamer.config.schema.api import ApiLimits
from streamer.service.api.problems import MEDIA_TYPE, Problem

#: The bits of an IPv6 network that counts as one peer, because one client usually has such a network.
_NETWORK: Final = 64


@final
class Door:
    """The open connections. One event loop uses it.

    Attributes:
        refused: the number of closed connections, by cause: `head_time`, `body_time`, `unread`, `connections`.
    """

    def __init__(self, limits: ApiLimits) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self._peers: dict[str, dict[Connection, None]] = {}
        self._waiting: dict[Connection, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, connection: Connection) -> bool:
        """Admit a connection, and close another one at a bound; False if all of them have requests in progress."""
        peers = self._peers.setdefault(connection.peer, {})
        if len(peers) >= self.limits.connections_of_a_peer:
            # A peer has few connections, in order of age.
            self._let_out(next((each for each in peers if each in self._waiting), None))
        if self._count >= self.limits.connections:
            self._let_out(next(iter(self._waiting), None))
        if len(peers) >= self.limits.connections_of_a_peer or self._count >= self.limits.connections:
            self.refused["connections"] += 1
            if not peers:
                self._peers.pop(connection.peer, None)
            return False
        self._peers.setdefault(connection.peer, peers)[connection] = None
        self._count += 1
        self.waits(connection)
        return True

    def waits(self, connection: Connection) -> None:
        """Note that a connection waits for its peer from now on."""
        if connection in self._peers.get(connection.peer, ()):
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def works(self, connection: Connection) -> None:
        """Note that a connection has a whole request."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Remove a connection."""
        self._waiting.pop(connection, None)
        peers = self._peers.get(connection.peer, {})
        if connection in peers:
            del peers[connection]
            self._count -= 1
            if not peers:
                del self._peers[connection.peer]

    def _let_out(self, connection: Connection | None) -> None:
        if connection is not None:
            self.refused["connections"] += 1
            self.leave(connection)
            connection.transport.abort()


@final
class Connection(H11Protocol):
    """One connection, with deadlines."""

    def __init__(self, door: Door, config: Config, state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, state, {}, loop)
        # It would log whole paths, with the values of a query.
        self.access_log = False
        self.peer = ""
        self._door = door
        self._phase: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.peer = _peer(transport.get_extra_info("peername"))
        if self._door.admit(self):
            self._enter("head")
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._cancel()
        self._phase = None
        if self._unread is not None:
            self._unread.cancel()
        self._door.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """See `H11Protocol`."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            # uvicorn closes it if it stays idle.
            self._cancel()
            self._phase = None
            self._door.waits(self)
        else:
            self._look()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: its peer does not read."""
        super().pause_writing()
        seconds = self._door.limits.idle_time.total_seconds()
        self._unread = self.loop.call_later(seconds, self._end, "unread")

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        """Answer a message that is not HTTP with a problem, as all other refusals."""
        self._say(Problem("bad-request", "this is not HTTP, or its head is too long"))

    def _look(self) -> None:
        """Check which part of a request is expected now."""
        if self.transport.is_closing():
            return
        state = self.conn.their_state
        phase = "head" if state is h11.IDLE else "body" if state is h11.SEND_BODY else None
        if phase != self._phase:
            self._enter(phase)

    def _enter(self, phase: str | None) -> None:
        self._cancel()
        self._phase = phase
        if phase is None:
            self._door.works(self)
            return
        limits = self._door.limits
        # The application answers a body that is too slow; this deadline is for bodies that no handler reads.
        seconds = limits.head_time.total_seconds() if phase == "head" else limits.body_time.total_seconds() + 1
        self._deadline = self.loop.call_later(seconds, self._end, f"{phase}_time")
        if phase == "head":
            self._door.waits(self)

    def _end(self, why: str) -> None:
        if self.transport.is_closing():
            return
        self._door.refused[why] += 1
        if why == "head_time":
            self._say(Problem("too-slow", "the head of a request did not come in time"))
        else:
            self.transport.abort()

    def _say(self, problem: Problem) -> None:
        """Answer a request that did not reach the application, and close."""
        body = problem.body()
        headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
        try:
            events: list[Any] = [
                h11.Response(status_code=problem.status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ]
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # an answer is in progress, and ends here
        self.transport.close()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def maker(door: Door, config: Config, state: ServerState, loop: asyncio.AbstractEventLoop) -> Callable[[], Connection]:
    """Return a function that makes a protocol for each connection."""
    return lambda: Connection(door, config, state, loop)


def _peer(name: Any) -> str:
    """Return the name under which an address counts as one peer."""
    host = str(name[0]) if isinstance(name, tuple) and name else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address), _NETWORK), strict=False))
    return host
