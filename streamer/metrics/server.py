"""An HTTP server for metrics and health probes, in its own thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, TypeAlias, final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

from streamer.metrics.address import parse_address
from streamer.metrics.collector import COLLECTIONS, register
from streamer.metrics.mirror import is_on, mirror

if TYPE_CHECKING:
    from streamer.metrics.measured import Measured


Response: TypeAlias = tuple[str, list[tuple[str, str]], bytes]
"""Status, headers and body."""

_TEXT = ("Content-Type", "text/plain; charset=utf-8")


@final
class Server:
    """Serves `/metrics` and `/healthz` until it is closed; a context manager.

    Attributes:
        port: the port that it listens on.
        url: the URL of the metrics.
    """

    def __init__(self, registry: CollectorRegistry, port: int, addr: str, close: Callable[[], None]) -> None:
        self._server = _HttpServer(addr, port, _pages(make_wsgi_app(registry)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="streamer-metrics", daemon=True)
        self._thread.start()
        self._close = close
        self.port = int(self._server.server_port)
        self.url = f"http://{f'[{addr}]' if ':' in addr else addr}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening, and wait for the server to end."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class _HttpServer(ThreadingMixIn, WSGIServer):
    """Handles each request in its own thread, so that a probe never waits for a scrape."""

    daemon_threads = True

    def __init__(self, addr: str, port: int, app: WSGIApplication) -> None:
        self.address_family, _, _, _, (host, *_) = socket.getaddrinfo(
            addr, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__((str(host), port), _Handler)
        self.set_app(app)


@final
class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Suppress the log line of each request."""


def _pages(metrics: WSGIApplication) -> WSGIApplication:
    """Return an application with the two pages. `prometheus_client` would return metrics for every path, also for probes."""

    def respond(environ: WSGIEnvironment) -> Response:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", [_TEXT, ("Allow", "GET, HEAD")], b"GET and HEAD are answered\n"
        if environ["PATH_INFO"] == "/healthz":
            return "200 OK", [_TEXT], b"ok\n"
        if environ["PATH_INFO"] != "/metrics":
            return "404 Not Found", [_TEXT], b"no such page; there are /metrics and /healthz\n"
        heads: list[tuple[str, list[tuple[str, str]]]] = []

        def begin(status: str, headers: list[tuple[str, str]], *_: object) -> Callable[[bytes], object]:
            heads.append((status, headers))
            return bytes  # what it returns wrote the body in old applications

        body = b"".join(metrics({**environ, "REQUEST_METHOD": "GET"}, begin))
        return *heads[0], body

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, headers, body = respond(environ)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def serve(
    engine: Measured,
    port: int,
    addr: str = "127.0.0.1",
    *,
    registry: CollectorRegistry | None = None,
    name: str | None = None,
    collections: int = COLLECTIONS,
    tenants: bool = False,
) -> Server:
    """Serve an engine's metrics; see `Engine.serve_metrics`."""
    try:
        parse_address(addr)
    except ValueError as error:
        # Python's own error would be a UnicodeError, or about an unknown service.
        raise OSError(f"cannot listen at {addr!r}: {error}") from None
    if registry is None:
        registry = CollectorRegistry()
        if not is_on():
            ProcessCollector(registry=registry)
    if is_on():
        # Every process reports the metrics of all processes.
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        close = mirror(engine, name=name, collections=collections, tenants=tenants).close
    else:
        close = register(engine, registry, name=name, collections=collections, tenants=tenants).close
    try:
        return Server(registry, port, addr, close)
    except (OSError, OverflowError) as error:
        close()
        # An invalid port does not raise OSError, and errors of a socket do not name it.
        reason = f"cannot listen at {addr}, port {port}: {getattr(error, 'strerror', None) or error}"
        raise OSError(getattr(error, "errno", None), reason) from None
    except BaseException:
        close()
        raise
