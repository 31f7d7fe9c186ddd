"""An endpoint that receives messages by HTTP POST, signed as https://www.standardwebhooks.com specifies.

```
resolve once ─► judge each address (guard.py) ─► connect ─► TLS, for the name ─► one request at a time ─► kept for the next
```

There is no code that follows redirects, or that reads proxies, .netrc or cookies. An attempt has one deadline, from connecting to
the end of the head of the response, so an endpoint that sends a byte now and then cannot delay it. The system has its own timeout
for resolving a name; only the attempt waits for that, in a thread.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, TypeVar, cast, final
from urllib.parse import urlsplit

from mmh3 import mmh3_x64_128_digest

from streamer.errors import ConfigError, ServiceError
from streamer.service.connectors.protocols import Outcome
from streamer.service.connectors.trust import client_context
from streamer.service.connectors.webhook.connection import BadResponse, Connection, connected
from streamer.service.connectors.webhook.guard import Forbidden, Guard, Resolve, SocketAddress, resolve
from streamer.service.connectors.webhook.signing import Revealing, signature, signing_key
from streamer.version import VERSION

#: The interval at which a secret is read again, in seconds.
FRESH: Final = 5.0
#: Sending again does not help.
NEVER: Final = frozenset({400, 413, 415, 422})
GONE: Final = 410
#: The endpoint requests a delay.
_PATIENCE: Final = frozenset({429, 503})
_T = TypeVar("_T")


@final
class Webhook:
    """Posts messages to one URL. One event loop uses it; any thread may close it.

    Args:
        url: accepted by `streamer.config.schema.connectors.webhook.WebhookSink`.
        secrets: to sign requests with; several during a rotation, empty for no signature.
        timeout: the limit of an attempt, in seconds.
        connect_timeout: the limit of its connection, in seconds.
        in_batches: whether the body is a JSON array of messages, even of one.
        authority: certificates to trust in place of the system's.
    """

    def __init__(
        self,
        url: str,
        secrets: Sequence[Revealing] = (),
        guard: Guard = Guard(),  # noqa: B008 - it is immutable
        *,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        in_batches: bool = False,
        authority: Path | None = None,
        resolve: Resolve = resolve,
    ) -> None:
        parts = urlsplit(url)
        self._url = url
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_tls else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secrets, self._guard, self._resolve, self._authority = tuple(secrets), guard, resolve, authority
        self._timeout, self._connect_timeout, self._in_batches = timeout, min(connect_timeout, timeout), in_batches
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = "" if self._port == (443 if self._is_tls else 80) else f":{self._port}"
        kind = "cloudevents-batch+json" if in_batches else "cloudevents+json"
        self._head = (
            f"POST {self._target} HTTP/1.1\r\nHost: {host}{port}\r\nAccept-Encoding: identity\r\n"
            f"Content-Type: application/{kind}; charset=utf-8\r\nUser-Agent: streamer/{VERSION}\r\n"
        )
        self._idle: list[Connection] = []
        self._keys: tuple[float, list[bytes]] | None = None
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def check(self) -> None:
        """See `Endpoint`."""
        try:
            self._signing()
            self._context()
        except ConfigError as error:
            raise ServiceError(str(error)) from None

    async def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        """See `Endpoint`. The URL is checked each time, because a gateway may be older than the current rules."""
        if (reason := self._guard.refused(self._url)) is not None:
            return Outcome("later", "forbidden_url", reason)
        if self._in_batches:
            identity = mmh3_x64_128_digest("".join(ids).encode()).hex()
            body = b"[%b]" % b",".join(message.rstrip(b"\n") for message in messages)
        else:
            (identity,), (body,) = ids, messages
            body = body.rstrip(b"\n")
        now = int(time.time())
        head = f"{self._head}Content-Length: {len(body)}\r\nwebhook-id: {identity}\r\nwebhook-timestamp: {now}\r\n"
        try:
            if keys := self._signing():
                head += f"webhook-signature: {signature(keys, identity, now, body)}\r\n"
            return await self._attempt(b"%b\r\n%b" % (head.encode(), body))
        except ConfigError as error:
            return Outcome("later", "secret", str(error))
        except ServiceError as error:
            return Outcome("later", "tls", str(error))
        except Forbidden as error:
            return Outcome("later", "forbidden_address", str(error))
        except TimeoutError:
            return Outcome("later", "timeout", f"no response within {self._timeout:g} s")
        except ssl.SSLError as error:
            return Outcome("later", "tls", f"TLS: {error.reason or 'failed'}")
        except socket.gaierror as error:
            return Outcome("later", "unresolved", f"its name is not resolved: {error.strerror}")
        except OSError as error:
            return Outcome("later", "connection", f"the connection failed: {error.strerror or type(error).__name__}")
        except BadResponse:
            return Outcome("later", "bad_response", "the response is not HTTP")

    def close(self) -> None:
        """See `Endpoint`."""
        self._is_closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and all of its connections with it
                self._loop.call_soon_threadsafe(self._close_idle)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _attempt(self, request: bytes) -> Outcome:
        self._loop = asyncio.get_running_loop()
        deadline = time.monotonic() + self._timeout
        connection = self._idle_connection()
        try:
            if connection is not None:
                try:
                    return await self._post(connection, request, deadline)
                except (ConnectionError, ssl.SSLEOFError):
                    # It was closed while it was idle. If the endpoint has received the request after all, the id identifies the
                    # duplicate.
                    connection.close()
            connection = await self._connected(deadline)
            return await self._post(connection, request, deadline)
        except BaseException:
            if connection is not None:
                connection.close()
            raise

    async def _post(self, connection: Connection, request: bytes, deadline: float) -> Outcome:
        response = await connection.exchange(request, deadline)
        if response.is_whole and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        return _outcome(response.status, response.after, response.said)

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_alive:
                return connection
            connection.close()
        return None

    async def _connected(self, deadline: float) -> Connection:
        """Return a new connection. Raises OSError."""
        addresses, tls = await _in_thread(self._addresses)
        until = min(deadline, time.monotonic() + self._connect_timeout)
        failed: OSError | None = None
        for family, address in addresses:
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    return await connected(family, address, tls, self._host)
            except OSError as error:
                failed = error
            if time.monotonic() >= until:
                break
        raise failed or TimeoutError

    def _addresses(self) -> tuple[Sequence[SocketAddress], ssl.SSLContext | None]:
        """Return the allowed addresses, and the TLS context. Raises OSError; it may take as long as the system resolves names."""
        addresses = self._guard.passing(self._resolve(self._host, self._port))
        return addresses, self._context() if self._is_tls else None

    def _signing(self) -> list[bytes]:
        """Return the keys. They are read again every `FRESH` seconds, so that a changed file takes effect. Raises ConfigError."""
        if not self._secrets:
            return []
        now, keys = time.monotonic(), self._keys
        if keys is None or now - keys[0] > FRESH:
            self._keys = keys = now, [signing_key(secret.reveal()) for secret in self._secrets]
        return keys[1]

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = client_context(self._authority)
        return self._tls


async def _in_thread(action: Callable[[], _T]) -> _T:
    """Run a slow action in a daemon thread; a thread of an executor would keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def end(result: _T | None, error: Exception | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(cast(_T, result))

    def run() -> None:
        try:
            outcome: tuple[_T | None, Exception | None] = action(), None
        except Exception as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            loop.call_soon_threadsafe(end, *outcome)

    threading.Thread(target=run, name="streamer-resolve", daemon=True).start()
    return await done


def _outcome(status: int, patience: str | None, said: bytes) -> Outcome:
    code, reason = str(status), f"HTTP status {status}"
    if 200 <= status < 300:
        return Outcome("delivered", code, said=said)
    if status == GONE:
        return Outcome("gone", code, reason, said=said)
    if status in NEVER:
        return Outcome("never", code, reason, said=said)
    return Outcome("later", code, reason, _seconds(patience) if status in _PATIENCE else None, said)


def _seconds(patience: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Read Retry-After: seconds, or a date; None for any other text."""
    text = (patience or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(parsedate_to_datetime(text).timestamp() - now(), 0.0)
    return None
