"""The API of a service, from one configuration to the next: where it listens may change, and what it was asked goes on counting.

What it needs is an extra, imported where a configuration wants an API.
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
    """Where requests come in, if anywhere. One thread changes it.

    Args:
        handlers: makes what answers.
        dev: whether all is answered without tokens.
        sign_in: is told of an address at which the operator signs in to the console, once; None to make none.

    Attributes:
        console: the pages; they go on where another configuration wants them again.
        app: what answers; None as long as no configuration wanted an API.
        server: what listens; None where the configuration wants none.
        gives_way: whether a server ends, so that what it is asked must be answered now.
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
        """Listen as a section says, beside the one that listens now; nothing is answered yet.

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
        """Answer what is being answered, for 2 s at most, and stop."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if self.app is not None:
            self.app.close()


@final
class Prepared:
    """A server that listens, and answers nothing before it takes the other one's place."""

    def __init__(self, entrance: Entrance, section: Api, tokens: Tokens | None, server: Server | None) -> None:
        self._entrance, self._section, self._tokens, self._server = entrance, section, tokens, server

    def take(self) -> None:
        """Let the one before answer what it is answering, for 2 s at most; then answer."""
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
                # An address of all addresses is none to go to.
                url = self._server.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
                entrance.sign_in(f"{url}/console/sign-in?code={entrance.console.sessions.code()}")

    def cancel(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
