"""Connections that cannot stay for ever, nor keep others out.

```
head ──────────► body ──────────► answered ──────────► idle ──► head …
head_time        body_time        idle_time for each   idle_time
                                  64 KiB that are taken
```

uvicorn has a deadline for `idle` alone: who sends a byte now and then, or none, stays. Here each part has one, and there are
bounds of connections in all and from each peer. Where one is met, the connection that has waited longest without a whole request
gives way to the new one: a thousand slow ones cannot keep a good one out, which has its whole request there at once.
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

#: One address of IPv6 is a network of so many bits to who has it.
_NETWORK: Final = 64


@final
class Door:
    """The connections there are. One event loop uses it.

    Attributes:
        refused: how many were closed, by why: `head_time`, `body_time`, `unread`, `connections`.
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
        """Let one in, another out where there are too many; False where all of them have requests that are answered."""
        peers = self._peers.setdefault(connection.peer, {})
        if len(peers) >= self.limits.connections_of_a_peer:
            # Those of a peer are few, and the oldest come first.
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
        """Note that one waits for its peer, from now on."""
        if connection in self._peers.get(connection.peer, ()):
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def works(self, connection: Connection) -> None:
        """Note that one has a whole request."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Forget one."""
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
        # It would name whole paths, with what a query says.
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
            # uvicorn closes it if nothing comes.
            self._cancel()
            self._phase = None
            self._door.waits(self)
        else:
            self._look()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: its peer does not take what is sent."""
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
        """Answer what is no HTTP, as all that cannot be done is answered."""
        self._say(Problem("bad-request", "this is not HTTP, or its head is too long"))

    def _look(self) -> None:
        """See which part of a request is coming now."""
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
        # The application answers a body that is too slow; this is for one that nobody waits for.
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
        """Answer a request that never came to the application, and close."""
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
            pass  # an answer is under way, and ends here
        self.transport.close()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def maker(door: Door, config: Config, state: ServerState, loop: asyncio.AbstractEventLoop) -> Callable[[], Connection]:
    """Return what makes a protocol of each connection."""
    return lambda: Connection(door, config, state, loop)


def _peer(name: Any) -> str:
    """Return who counts as one peer."""
    host = str(name[0]) if isinstance(name, tuple) and name else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address), _NETWORK), strict=False))
    return host
