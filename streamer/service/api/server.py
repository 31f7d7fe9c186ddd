"""A socket, TLS, and an event loop in a thread of its own, next to the pipeline."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final, final

from uvicorn.config import Config
from uvicorn.server import ServerState

from streamer.config.schema.api import Api
from streamer.errors import ServiceError
from streamer.quiet import Quiet
from streamer.service.api.app import App
from streamer.service.api.connections import maker
from streamer.service.connectors.protocols import Busy

#: How long requests in progress may take once the service ends, in seconds.
_DRAIN: Final = 2.0
#: How long the latest accepted connections may take to send a request if another server continues, in seconds.
_GRACE: Final = 0.05
#: The connections that wait to be accepted, and those that are accepted at once: the door counts them only then.
_BACKLOG: Final = 1024
_ACCEPTED: Final = 16
#: Errors of the system that prevent accepting: too many open files, or too little memory.
_FULL: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
#: The interval between log lines about that, in seconds. The server tries again each second.
_INTERVAL: Final = 60.0
_LOGGER: Final = logging.getLogger("streamer.service.api")


@final
class Server:
    """Serves an application until it is closed. It listens from the beginning, and answers once it is started.

    Args:
        before: the current server; at the same address, this one takes over its connections that were not accepted yet.

    Attributes:
        port: its port.
        url: its URL.

    Raises:
        ServiceError: it cannot listen there, or the certificate cannot be used.
    """

    def __init__(self, app: App, section: Api, before: Server | None = None) -> None:
        self._app, self._section = app, section
        self._tls = Certificates(section) if section.tls.certificate is not None else None
        same = before is not None and (before._section.address, before._section.port) == (section.address, section.port)
        self._socket: socket.socket = before._socket.dup() if before is not None and same else _listening(section)
        self.port = int(self._socket.getsockname()[1])
        host = f"[{section.address}]" if ":" in section.address else section.address
        self.url = f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._grace = 0.0
        self._quiet = Quiet(_INTERVAL)
        self._is_over = asyncio.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamer-api", daemon=True)

    @property
    def is_started(self) -> bool:
        """Whether it answers."""
        return self._begun.is_set()

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._begun.wait()

    def call(self, action: Callable[[], None]) -> None:
        """Call a function on the event loop, and wait for it."""
        done: Future[None] = Future()

        def act() -> None:
            try:
                action()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            act()  # it has ended already
        done.result()

    def close(self, *, gives_way: bool = False) -> None:
        """Finish the current requests within 2 s, and stop.

        Args:
            gives_way: whether another server continues. If so, connections that were just accepted are answered, too.
        """
        self._grace = _GRACE if gives_way else 0.0
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._is_over.set)
            except RuntimeError:
                pass  # it has ended already
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            _LOGGER.error("the API ended: %s", type(error).__name__)
        finally:
            self._begun.set()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log errors of asyncio; a failure to accept connections at most once a minute."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _FULL:
            loop.default_exception_handler(context)
        elif self._quiet.due() is not None:
            _LOGGER.error("cannot accept connections, so clients wait: %s", error.strerror)

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        limits = self._section.limits
        config = Config(
            self._app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, round(limits.idle_time.total_seconds())),
            h11_max_incomplete_event_size=limits.head,
        )
        config.load()
        # A message that is not HTTP is only counted, and not logged.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        state = ServerState()
        state.default_headers = _headers()
        tls = None if self._tls is None else self._tls.context
        handshake = None if tls is None else limits.head_time.total_seconds()
        self._app.begin()
        make = maker(self._app.door, config, state, loop)
        loop.set_exception_handler(self._failed)
        server = await loop.create_server(make, sock=self._socket, ssl=tls, ssl_handshake_timeout=handshake, backlog=_ACCEPTED)
        # asyncio uses one limit for both, and would accept a thousand at once.
        self._socket.listen(_BACKLOG)
        self._begun.set()
        while not self._is_over.is_set():
            try:
                await asyncio.wait_for(self._is_over.wait(), 1)
            except TimeoutError:
                state.default_headers = _headers()
                if self._tls is not None:
                    self._tls.look()
        # A connection that was accepted by now is registered while the server is open; a closed server would leave it hanging.
        loop.remove_reader(self._socket)
        await asyncio.sleep(self._grace)
        server.close()
        self._app.end()
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(list(state.tasks), timeout=_DRAIN)
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()


def _listening(section: Api) -> socket.socket:
    """Return a socket that listens. Raises ServiceError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            section.address, section.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Unless a socket's protocol is TCP explicitly, asyncio delays small answers by 40 ms for the peer's acknowledgement.
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        where = f"{section.address}, port {section.port}"
        refusal = Busy if error.errno == errno.EADDRINUSE else ServiceError
        raise refusal(f"api: cannot listen at {where}: {error.strerror or error}") from None
    return listening


def _headers() -> list[tuple[bytes, bytes]]:
    return [(b"date", formatdate(usegmt=True).encode())]


@final
class Certificates:
    """The certificates of a server, read again when their files change.

    Raises:
        ServiceError: they cannot be used.
    """

    def __init__(self, section: Api) -> None:
        assert section.tls.certificate is not None
        self._files = (section.tls.certificate, section.tls.key or section.tls.certificate)
        self._last_marks = self._marks()
        self.context = _context(*self._files)

    def look(self) -> None:
        """Load the files if they have changed; if they are invalid, log that and keep the current ones."""
        if (marks := self._marks()) == self._last_marks:
            return
        self._last_marks = marks
        try:
            # Loaded separately first, because a key without its certificate would be useless.
            _context(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ServiceError) as error:
            _LOGGER.error("%s; the previous certificate stays in use", error)
            return
        _LOGGER.info("the certificate was reloaded")

    def _marks(self) -> list[tuple[int, int, int]]:
        try:
            return [(status.st_ino, status.st_mtime_ns, status.st_size) for status in map(os.stat, self._files)]
        except OSError:
            return []


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # Without this, OpenSSL would prompt for a password on a terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ServiceError(f"api.tls: {certificate}, {key}: {reason}") from None
    return context
