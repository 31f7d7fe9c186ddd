"""An HTTP server of metrics, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

from streamer.metrics.address import parse_address
from streamer.metrics.collector import COLLECTIONS, register
from streamer.metrics.mirror import is_on, mirror

if TYPE_CHECKING:
    from streamer.engine.engine import Engine


@final
class Server:
    """Serves metrics until it is closed; a context manager.

    Attributes:
        port: where it listens.
        url: of the metrics.
    """

    def __init__(self, registry: CollectorRegistry, port: int, addr: str, close: Callable[[], None]) -> None:
        self._server, self._thread = start_http_server(port, addr, registry)
        self._close = close
        self.port = int(self._server.server_port)
        self.url = f"http://{f'[{addr}]' if ':' in addr else addr}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening, and wait until that is so."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    engine: Engine,
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
        # Python's own would be a UnicodeError, or speak of a service that is not known.
        raise OSError(f"cannot listen at {addr!r}: {error}") from None
    if registry is None:
        registry = CollectorRegistry()
        if not is_on():
            ProcessCollector(registry=registry)
    if is_on():
        # Any process tells of all.
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        close = mirror(engine, name=name, collections=collections, tenants=tenants).close
    else:
        close = register(engine, registry, name=name, collections=collections, tenants=tenants).close
    try:
        return Server(registry, port, addr, close)
    except (OSError, OverflowError) as error:
        close()
        # A port that cannot be is no OSError, and no error of a socket names it.
        reason = f"cannot listen at {addr}, port {port}: {getattr(error, 'strerror', None) or error}"
        raise OSError(getattr(error, "errno", None), reason) from None
    except BaseException:
        close()
        raise
