"""Find the sink of a match: the first route that fits its gateway."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, final

from streamer.config.schema.service import Route
from streamer.terminal import quoted

#: The most gateways without a route that are logged, each once.
LOGGED: Final = 100
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Routes:
    """The routes of a configuration.

    Args:
        only: the sink of all matches, if there are no routes.
    """

    def __init__(self, routes: Sequence[Route], only: str | None) -> None:
        self._others = only
        self._named: dict[str, str] = {}
        for route in routes:
            if route.gateway == "*":
                self._others = route.sink
                break
            self._named.setdefault(route.gateway, route.sink)
        self._logged: set[str | None] = set()

    @property
    def only(self) -> str | None:
        """The sink of all gateways; None if there are several, or if some gateways have none."""
        return None if self._named else self._others

    def sink(self, gateway: str | None) -> str | None:
        """Return the name of a gateway's sink; None if it has none, which is logged once."""
        sink = self._others if gateway is None else self._named.get(gateway, self._others)
        if sink is None and gateway not in self._logged and len(self._logged) < LOGGED:
            self._logged.add(gateway)
            whose = "subscriptions without a gateway" if gateway is None else f"gateway {quoted(gateway)}"
            _LOGGER.warning("%s: no route; matches are dropped, and counted", whose)
        return sink
