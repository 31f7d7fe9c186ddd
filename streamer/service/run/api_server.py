"""The API of a service across configurations: its address may change, and its counts continue.

Its packages are an extra, which is imported only if a configuration has an API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from prometheus_client import CollectorRegistry

from streamer.config.schema.api import Api
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service.api import audit
from streamer.service.tenants.loading import Loading

if TYPE_CHECKING:
    from streamer.service.api.app import App
    from streamer.service.api.handlers import Handlers
    from streamer.service.api.oidc import Provider
    from streamer.service.api.server import Server
    from streamer.service.api.tokens import Token, Tokens
    from streamer.service.console.app import Console
    from streamer.service.tenants.gateways import Gateways
    from streamer.service.tenants.subscriptions import Subscriptions

_LOGGER: Final = logging.getLogger("streamer.service")


class _Parts(NamedTuple):
    """What the API serves once the service runs."""

    handlers: Callable[[], Handlers]
    registry: CollectorRegistry
    subscriptions: Subscriptions
    gateways: Gateways
    expiring: Callable[[], int]


@final
class Entrance:
    """The API server, if there is one. One thread changes it.

    It answers from the beginning. Until `open` is called, it reports the progress of the start.

    Args:
        loading: the progress.
        dev: whether to answer every request without tokens.
        sign_in: is called with an address at which the operator can sign in to the console, once; None to create none.

    Attributes:
        console: the pages; they continue when a later configuration enables them again.
        app: the application; None before the first configuration with an API.
        server: the server; None if the configuration has no API.
        gives_way: whether a server is ending, so that its requests must be answered now.
        is_open: whether it serves all routes.
    """

    def __init__(self, loading: Loading, *, dev: bool, sign_in: Callable[[str], None] | None) -> None:
        self._loading, self._dev, self.sign_in = loading, dev, sign_in
        self._lent: dict[str, Token] = {}
        self._parts: _Parts | None = None
        self.console: Console | None = None
        self.app: App | None = None
        self.server: Server | None = None
        self.gives_way = self.is_open = False

    def prepared(self, section: Api) -> Prepared:
        """Listen at the address of a section, next to the current server, without answering yet.

        Raises:
            ServiceError: it cannot listen there, or tokens or certificates cannot be used.
        """
        if not section.is_served and not self._dev:
            return Prepared(self, section, None, None)
        try:
            with needed("the API needs jinja2, starlette and uvicorn", "service"):
                from streamer.service.api.app import App
                from streamer.service.api.oidc import Provider
                from streamer.service.api.server import Server
                from streamer.service.api.tokens import Tokens
                from streamer.service.console.app import Console
        except ModuleNotFoundError as error:
            raise ServiceError(f"api: {error}") from None
        tokens = None if self._dev else Tokens(section.tokens.file, self._lent)
        try:
            provider = None if section.oidc is None or self._dev else Provider(section.oidc)
        except ModuleNotFoundError as error:
            raise ServiceError(f"api.oidc: {error}") from None
        if self.app is None:
            self.app = App(section, tokens, self._loading)
            self.console = Console(self.app, section, self._lent, dev=self._dev)
            if self.is_open:
                self._serve_all()
        log = audit.opened(section.audit.file)
        return Prepared(self, section, tokens, Server(self.app, section, self.server), log, provider)

    def open(
        self,
        handlers: Callable[[], Handlers],
        registry: CollectorRegistry,
        subscriptions: Subscriptions,
        gateways: Gateways,
        expiring: Callable[[], int],
    ) -> None:
        """Serve all routes.

        Args:
            handlers: creates the handlers, if there is an API, now or after a reload.
            expiring: counts the subscriptions whose lease ends soon, for a scrape.
        """
        self._parts = _Parts(handlers, registry, subscriptions, gateways, expiring)
        if self.app is not None:
            self._serve_all()
        self.is_open = True

    def _serve_all(self) -> None:
        from streamer.service.api.app import Opened
        from streamer.service.api.metrics import ApiCounts
        from streamer.service.api.streams import Streams

        assert self.app is not None
        assert self._parts is not None
        parts, streams = self._parts, Streams(self._parts.gateways.store)
        parts.gateways.listen(streams.post, streams.forget)
        opening = partial(self.app.open, Opened(parts.handlers(), streams))
        if self.server is None:
            opening()
        else:
            self.server.call(opening)
        parts.registry.register(ApiCounts(self.app, parts.subscriptions, parts.gateways, parts.expiring))

    def close(self) -> None:
        """Finish the current requests within 2 s, and stop; a second call has no effect."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if self.app is not None:
            self.app.close()
            audit.take(None)


@final
class Prepared:
    """A server that listens, but answers only after it has replaced the current one."""

    def __init__(
        self,
        entrance: Entrance,
        section: Api,
        tokens: Tokens | None,
        server: Server | None,
        log: logging.Handler | None = None,
        provider: Provider | None = None,
    ) -> None:
        self._provider = provider
        self._entrance, self._section, self._tokens, self._server, self._log = entrance, section, tokens, server, log

    def take(self) -> None:
        """Let the previous server finish its requests within 2 s; then answer."""
        entrance = self._entrance
        if entrance.server is not None:
            entrance.gives_way = True
            entrance.server.close(gives_way=self._server is not None)
            entrance.gives_way = False
        entrance.server = self._server
        if self._server is None:
            return
        audit.take(self._log)
        assert entrance.app is not None
        entrance.app.take(self._section, self._tokens, self._provider)
        entrance.app.console = entrance.console if self._section.console else None
        self._server.start()
        _LOGGER.info("api: %s", self._server.url)
        if self._section.console:
            assert entrance.console is not None
            entrance.console.take(self._section)
            _LOGGER.info("console: %s/console/", self._server.url)
            if entrance.sign_in is not None and self._tokens is not None:
                # A browser cannot connect to the wildcard address.
                url = self._server.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
                entrance.sign_in(f"{url}/console/sign-in?code={entrance.console.sessions.code()}")

    def cancel(self) -> None:
        """Stop listening."""
        if self._log is not None:
            self._log.close()
        if self._server is not None:
            self._server.close()
