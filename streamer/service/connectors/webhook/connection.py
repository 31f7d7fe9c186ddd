"""A connection to an endpoint: one request of HTTP/1.1 at a time, its response, and whether it can be used again.

At most `MOST_READ` bytes of a response are read, and its body may take at most `BODY` seconds: the head has the result of the
request. httptools parses it: http.client and h11 cost about five times as much.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final, final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

#: The most bytes of a response that are read, head and body together.
MOST_READ: Final = 64 * 1024
#: The bytes of a response that the view of attempts shows.
MOST_SAID: Final = 512
#: The longest wait for the body of a response after its head, in seconds.
BODY: Final = 2.0
#: A connection that was idle for this many seconds is not used again.
IDLE: Final = 30.0
_SWITCHING: Final = 101


class BadResponse(Exception):
    """The answer is not a response of HTTP, or too long."""


class Closed(ConnectionError):
    """The endpoint closed the connection before it answered."""


@final
@dataclass(frozen=True, slots=True)
class Response:
    """The part of a response that was read.

    Attributes:
        after: the header `Retry-After`.
        said: the beginning of its body.
        is_whole: whether it was read to its end, and another request may follow.
    """

    status: int
    after: str | None
    said: bytes
    is_whole: bool


@final
class Connection(asyncio.Protocol):
    """One connection. All its code runs in its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = 0.0
        self._is_lost = False
        self._transport: Any = None
        self._answered: asyncio.Future[Response] | None = None

    async def exchange(self, request: bytes, deadline: float) -> Response:
        """Send a request, and return its response. The connection is closed after a response that is not whole.

        Args:
            deadline: the time by which the head of the response must arrive, by `time.monotonic`.

        Raises:
            TimeoutError: it did not.
            BadResponse: the answer is not a response.
            OSError: the connection broke.
        """
        self._parser = HttpResponseParser(self)
        self._remaining, self._deadline = MOST_READ, deadline
        self._status, self._said = 0, b""
        self._after: str | None = None
        self._is_complete = self._has_more = self._is_last = self._is_timed = False
        answered: asyncio.Future[Response] = self._loop.create_future()
        self._answered = answered
        self._timer = self._loop.call_at(deadline, self._late)
        try:
            self._transport.write(request)
            return await answered
        finally:
            self._timer.cancel()
            self._answered = None
            self._since = time.monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether it can be used again. It cannot if there is data to read: the endpoint closed it, or sent unexpected data."""
        if self._is_lost or self._transport.is_closing() or time.monotonic() - self._since > IDLE:
            return False
        ready = select.poll()
        ready.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not ready.poll(0)

    def close(self) -> None:
        """Close it at once, even during a request."""
        self._transport.abort()

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answered is None or self._answered.done():
            self.close()
            return
        try:
            self._parser.feed_data(data[: self._remaining])
        except HttpParserUpgrade:
            # After status 101 the endpoint uses another protocol.
            self._end(is_whole=False)
        except HttpParserError:
            self._end(is_whole=False)
        else:
            self._remaining -= len(data)
            if self._is_complete:
                self._end(is_whole=not (self._is_last or self._has_more) and self._remaining >= 0)
            elif self._remaining <= 0:
                self._end(is_whole=False)
            elif self._status and not self._is_timed:
                self._is_timed = True
                self._timer.cancel()
                self._timer = self._loop.call_at(min(self._deadline, time.monotonic() + BODY), self._late)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        if self._answered is not None and not self._answered.done():
            self._end(is_whole=False, otherwise=error or Closed())

    def _late(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._end(is_whole=False, otherwise=TimeoutError())

    def _end(self, *, is_whole: bool, otherwise: Exception | None = None) -> None:
        """Set the result from the head; without a head, an error."""
        assert self._answered is not None
        if self._status:
            self._answered.set_result(Response(self._status, self._after, self._said, is_whole))
        else:
            self._answered.set_exception(otherwise or BadResponse())

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._has_more = self._is_complete
        if not self._has_more:
            self._after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after" and not self._has_more:
            self._after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # Responses before the final one, such as 103, are skipped.
        if not self._has_more and (status >= 200 or status == _SWITCHING):
            self._status = status

    def on_body(self, body: bytes) -> None:
        if not self._has_more and len(self._said) < MOST_SAID:
            self._said += body[: MOST_SAID - len(self._said)]

    def on_message_complete(self) -> None:
        if self._status and not self._is_complete:
            self._is_complete, self._is_last = True, not self._parser.should_keep_alive()


async def connected(family: int, address: Any, tls: ssl.SSLContext | None, name: str) -> Connection:
    """Connect to a numeric address.

    Args:
        tls: verifies that the server is the host *name*; None for a connection without TLS.

    Raises:
        OSError: it cannot be reached, or TLS failed.
    """
    loop = asyncio.get_running_loop()
    plain = socket.socket(family, socket.SOCK_STREAM)
    try:
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(plain, address)
        _, connection = await loop.create_connection(Connection, sock=plain, ssl=tls, server_hostname=name if tls else None)
    except BaseException:
        plain.close()
        raise
    return connection
