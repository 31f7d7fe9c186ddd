"""The log of one delivery: an endpoint that fails and recovers, and messages that become dead letters."""

from __future__ import annotations

import logging
from typing import Final, final

from streamer.quiet import Quiet

#: The log repeats a message about one sink after this many seconds at the earliest.
QUIET: Final = 10.0
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class DeliveryLog:
    """Logs the events of one sink, each kind at most once in `QUIET` seconds.

    Args:
        is_own: whether it is a tenant's own gateway. Its failures concern the tenant, so the operator's log has them at debug
            level only.
    """

    def __init__(self, name: str, *, is_own: bool) -> None:
        self._name = name
        self._where, self._level = (name, logging.DEBUG) if is_own else (f"sinks.{name}", 0)
        self._quiet = Quiet(QUIET)
        self._is_reported_down = False

    def down(self, reason: str, wait: float) -> None:
        """Log that the endpoint fails."""
        if self._quiet.due("down") is not None:
            self._is_reported_down = True
            self._write(logging.WARNING, "%s: does not answer as it should: %s; retried in %.1f s", reason, wait)

    def up(self) -> None:
        """Log that the endpoint answers again, if the log has that it failed."""
        if self._is_reported_down:
            self._is_reported_down = False
            self._write(logging.INFO, "%s: answers again")

    def disabled(self, reason: str) -> None:
        """Log that the endpoint is disabled after its answer."""
        text = "%s: its endpoint is disabled after its answer (%s), and its messages wait"
        self._write(logging.ERROR, f"{text}; give it another url, or start with --enable %s", reason, self._name)

    def stuck(self, messages: int) -> None:
        """Log that failed messages wait, because there is no room for their dead letters."""
        if self._quiet.due("stuck") is not None:
            text = "%s: there is no room for dead letters, so %d failed messages wait, each with its key"
            self._write(logging.ERROR, f"{text}; streamer dead-letters shows, replays and drops them", messages)

    def dead(self, reason: str) -> None:
        """Log that a message became a dead letter."""
        if self._quiet.due("given up") is not None:
            self._write(logging.WARNING, "%s: a message became a dead letter: %s", reason)

    def _write(self, level: int, text: str, *values: object) -> None:
        _LOGGER.log(self._level or level, text, self._where, *values)
