"""An endpoint that messages are posted to over HTTP, signed as https://www.standardwebhooks.com says.

```
resolve once ─► judge each address (guard.py) ─► connect ─► TLS, for the name ─► one request at a time ─► kept for the next
```

No redirect is followed, and no proxy, .netrc or cookie is looked for: there is no code that would. An attempt has one deadline,
from connecting to the end of the head of the response, so an endpoint that sends a byte now and then does not keep it. The
system has limits of its own for looking a name up, and the thread of the attempt waits for that. Of a response no more is read
than `MOST_READ`.

http.client reads responses: it costs about half of what the asynchronous clients do, and needs nothing installed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, Protocol, final
from urllib.parse import urlsplit

from mmh3 import mmh3_x64_128_digest

from streamer.errors import ConfigError, ServiceError
from streamer.locks import Lock
from streamer.service.guard import Forbidden, Guard, Resolve, resolve
from streamer.service.protocols import Outcome
from streamer.version import VERSION

#: Bytes of a response, head and body, that are read at most.
MOST_READ: Final = 64 * 1024
#: Bytes of a response that who looks at attempts is shown.
MOST_SAID: Final = 512
#: How long the body of a response may take, in seconds, once its head has told how the attempt ended.
BODY: Final = 2.0
#: A connection that was idle for so long, in seconds, is not used again.
IDLE: Final = 30.0
#: So often a secret is read anew, in seconds.
FRESH: Final = 5.0
#: What does not get better by being sent again.
NEVER: Final = frozenset({400, 413, 415, 422})
GONE: Final = 410
#: What asks to be left alone for a time.
_PATIENCE: Final = frozenset({429, 503})
_PREFIX: Final = "whsec_"


def signing_key(secret: str) -> bytes:
    """Return the key that a secret `whsec_BASE64` says.

    Raises:
        ConfigError: it is none. The error does not repeat it.
    """
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise ConfigError(f"expected a secret of Standard Webhooks: {_PREFIX} and base64") from None
    if not 24 <= len(key) <= 64:
        raise ConfigError(f"expected a secret of Standard Webhooks: 24 to 64 bytes, not {len(key)}")
    return key


def signature(keys: Sequence[bytes], identity: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature a key, with a space between them."""
    signed = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    return " ".join("v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)


class Revealing(Protocol):
    """What knows a secret, and says it when it is used."""

    def reveal(self) -> str:
        """Return it. Raises ConfigError."""


@final
class Webhook:
    """Posts messages to one URL. Thread-safe: each thread that sends has a connection to itself meanwhile.

    Args:
        url: one that `streamer.config.schema.sinks.WebhookSink` takes.
        secrets: that requests are signed with; several while one takes another's place, none for no signature.
        timeout: of an attempt, in seconds.
        connect_timeout: of its connection alone.
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
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_tls else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secrets, self._guard, self._resolve, self._authority = tuple(secrets), guard, resolve, authority
        self._timeout, self._connect_timeout, self._in_batches = timeout, min(connect_timeout, timeout), in_batches
        self._lock = Lock()
        self._idle: list[_Connection] = []
        self._keys: tuple[float, list[bytes]] | None = None
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    def check(self) -> None:
        """See `Endpoint`."""
        try:
            self._signing()
            self._context()
        except (ConfigError, OSError) as error:
            raise ServiceError(str(error)) from None

    def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        """See `Endpoint`."""
        if self._in_batches:
            identity, kind = mmh3_x64_128_digest("".join(ids).encode()).hex(), "application/cloudevents-batch+json"
            body = b"[%b]" % b",".join(message.rstrip(b"\n") for message in messages)
        else:
            (identity,), (body,), kind = ids, messages, "application/cloudevents+json"
            body = body.rstrip(b"\n")
        now = int(time.time())
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "User-Agent": f"streamer/{VERSION}",
            "webhook-id": identity,
            "webhook-timestamp": str(now),
        }
        try:
            if keys := self._signing():
                headers["webhook-signature"] = signature(keys, identity, now, body)
            return self._attempt(headers, body)
        except ConfigError as error:
            return Outcome("later", "secret", str(error))
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
        except (http.client.HTTPException, ValueError) as error:
            # Its text may quote what the endpoint has sent.
            return Outcome("later", "bad_response", f"no response of HTTP: {type(error).__name__}")

    def close(self) -> None:
        """See `Endpoint`."""
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for each in idle:
            each.close()

    def _attempt(self, headers: dict[str, str], body: bytes) -> Outcome:
        deadline = time.monotonic() + self._timeout
        connection = self._kept()
        try:
            if connection is not None:
                try:
                    return self._post(connection, headers, body, deadline)
                except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                    # It was closed while it was idle. If the endpoint has seen the request all the same, the id tells.
                    connection.close()
            connection = self._connected(deadline)
            return self._post(connection, headers, body, deadline)
        except BaseException:
            if connection is not None:
                connection.close()
            raise

    def _post(self, connection: _Connection, headers: dict[str, str], body: bytes, deadline: float) -> Outcome:
        connection.wire.begin(deadline, MOST_READ)
        cut: ConnectionError | None = None
        try:
            connection.request("POST", self._target, body, headers)
        except ConnectionError as error:
            cut = error
        try:
            # Who wants no more of a body may have said why, as 413 does, before it hung up.
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            if cut is None:
                raise
            raise cut from None
        said = b""
        try:
            connection.wire.begin(min(deadline, time.monotonic() + BODY), connection.wire.left)
            said = response.read(MOST_READ + 1)[:MOST_SAID]
            # Whoever answers 101 speaks something else from there on.
            is_whole = cut is None and response.isclosed() and not response.will_close and response.status >= 200
        except (OSError, http.client.HTTPException, ValueError):
            # The head has told how it ended.
            is_whole = False
        if is_whole:
            self._keep(connection)
        else:
            response.close()
            connection.close()
        return replace(_outcome(response.status, response.getheader("Retry-After")), said=said)

    def _kept(self) -> _Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_alive():
                return connection
            connection.close()

    def _keep(self, connection: _Connection) -> None:
        connection.since = time.monotonic()
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connected(self, deadline: float) -> _Connection:
        """Return a new connection. Raises OSError."""
        until = min(deadline, time.monotonic() + self._connect_timeout)
        failed: OSError | None = None
        for family, address in self._guard.chosen(self._resolve(self._host, self._port)):
            if (left := until - time.monotonic()) <= 0:
                break
            plain = socket.socket(family, socket.SOCK_STREAM)
            try:
                plain.settimeout(left)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.connect(address)
                secured = plain
                if self._is_tls:
                    plain.settimeout(max(until - time.monotonic(), 0.001))
                    secured = self._context().wrap_socket(plain, server_hostname=self._host)
            except OSError as error:
                plain.close()
                failed = error
            except BaseException:
                plain.close()
                raise
            else:
                return _Connection(self._host, self._port, _Wire(secured), is_tls=self._is_tls)
        raise failed or TimeoutError

    def _signing(self) -> list[bytes]:
        """Return the keys, read anew now and then, so that a file that was changed is heeded. Raises ConfigError."""
        if not self._secrets:
            return []
        now, keys = time.monotonic(), self._keys
        if keys is None or now - keys[0] > FRESH:
            self._keys = keys = now, [signing_key(secret.reveal()) for secret in self._secrets]
        return keys[1]

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            context = ssl.create_default_context(cafile=self._authority)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
            self._tls = context
        return self._tls


@final
class _Wire:
    """A socket as http.client uses one, with a deadline and a bound on what is read of it."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._deadline = 0.0
        self.left = 0

    def begin(self, deadline: float, most: int) -> None:
        """Set when all must be over, and how many bytes may be read until then."""
        self._deadline, self.left = deadline, most

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self.limit()
            rest = rest[self.socket.send(rest) :]

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)

    def close(self) -> None:
        self.socket.close()


@final
class _Reader(io.RawIOBase):
    """One response of a wire, which stays open when it is closed."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wire = self._wire
        if wire.left <= 0:
            raise http.client.HTTPException("more than is read")
        wire.limit()
        count = wire.socket.recv_into(memoryview(buffer)[: wire.left])
        wire.left -= count
        return count


@final
class _Response(http.client.HTTPResponse):
    """What ends an attempt: interim responses before it, as 103, are passed over; http.client takes them for the end.

    The one that follows would be read as the answer to the next request of the connection.
    """

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:
            self.headers = None  # type: ignore[assignment]  # as before the first
            super().begin()


@final
class _Connection(http.client.HTTPConnection):
    """A connection that is made already, and never made again."""

    auto_open = 0
    response_class = _Response

    def __init__(self, host: str, port: int, wire: _Wire, *, is_tls: bool) -> None:
        super().__init__(host, port)
        # Else a port of its own would stand in the header Host.
        self.default_port = 443 if is_tls else 80
        self.wire = wire
        self.sock = wire
        self.since = time.monotonic()

    def is_alive(self) -> bool:
        """Tell whether it can be used again: an endpoint that closed it, or says what nobody asked, can be read."""
        if time.monotonic() - self.since > IDLE:
            return False
        ready = select.poll()
        ready.register(self.wire.socket, select.POLLIN)
        return not ready.poll(0)


def _outcome(status: int, patience: str | None) -> Outcome:
    if 200 <= status < 300:
        return Outcome("delivered", str(status))
    reason = f"HTTP status {status}"
    if status == GONE:
        return Outcome("gone", str(status), reason)
    if status in NEVER:
        return Outcome("never", str(status), reason)
    return Outcome("later", str(status), reason, _seconds(patience) if status in _PATIENCE else None)


def _seconds(patience: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Read Retry-After: seconds, or a date; None where it says neither."""
    text = (patience or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(parsedate_to_datetime(text).timestamp() - now(), 0.0)
    return None
