"""The API of a service across configurations: its address may change, and its counts continue.

Its packages are an extra, which is imported only if a configuration has an API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from prometheus_client import CollectorRegistry

from streamer.config.schema.api import Api
from streamer.errors import ServiceError
from streamer.extras import needed

if TYPE_CHECKING:
    from streamer.service.api.app import App
    from streamer.service.api.handlers import Handlers
    from streamer.service.api.server import Server
    from streamer.service.api.tokens import Token, Tokens
    from streamer.service.console.app import Console
    from streamer.service.gateways import Gateways
    from streamer.service.subscriptions import Subscriptions

_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Entrance:
    """The API server, if there is one. One thread changes it.

    Args:
        handlers: creates the handlers.
        dev: whether to answer every request without tokens.
        sign_in: is called with an address at which the operator can sign in to the console, once; None to create none.

    Attributes:
        console: the pages; they continue when a later configuration enables them again.
        app: the application; None before the first configuration with an API.
        server: the server; None if the configuration has no API.
        gives_way: whether a server is ending, so that its requests must be answered now.
    """

    def __init__(
        self,
        handlers: Callable[[], Handlers],
        registry: CollectorRegistry,
        subscriptions: Subscriptions,
        gateways: Gateways,
        *,
        dev: bool,
        sign_in: Callable[[str], None] | None,
    ) -> None:
        self._handlers, self._registry, self._subscriptions, self._gateways = handlers, registry, subscriptions, gateways
        self._dev, self.sign_in = dev, sign_in
        self._lent: dict[str, Token] = {}
        self.console: Console | None = None
        self.app: App | None = None
        self.server: Server | None = None
        self.gives_way = False

    def prepared(self, section: Api) -> Prepared:
        """Listen at the address of a section, next to the current server, without answering yet.

        Raises:
            ServiceError: it cannot listen there, or tokens or certificates cannot be used.
        """
        if section.tokens.file is None and not self._dev:
            return Prepared(self, section, None, None)
        try:
            with needed("the API needs jinja2, starlette and uvicorn", "service"):
                from streamer.service.api.app import App
                from streamer.service.api.metrics import ApiCounts
                from streamer.service.api.server import Server
                from streamer.service.api.streams import Streams
                from streamer.service.api.tokens import Tokens
                from streamer.service.console.app import Console
        except ModuleNotFoundError as error:
            raise ServiceError(f"api: {error}") from None
        tokens = None if section.tokens.file is None or self._dev else Tokens(section.tokens.file, self._lent)
        if self.app is None:
            streams = Streams(self._gateways.store)
            self._gateways.listen(streams.told, streams.forget)
            self.app = App(self._handlers(), section, tokens, streams)
            self.console = Console(self.app, section, self._lent, dev=self._dev)
            self._registry.register(ApiCounts(self.app, self._subscriptions, self._gateways))
        return Prepared(self, section, tokens, Server(self.app, section, self.server))

    def close(self) -> None:
        """Finish the current requests within 2 s, and stop."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if self.app is not None:
            self.app.close()


@final
class Prepared:
    """A server that listens, but answers only after it has replaced the current one."""

    def __init__(self, entrance: Entrance, section: Api, tokens: Tokens | None, server: Server | None) -> None:
        self._entrance, self._section, self._tokens, self._server = entrance, section, tokens, server

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
        assert entrance.app is not None
        entrance.app.take(self._section, self._tokens)
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
        if self._server is not None:
            self._server.close()
