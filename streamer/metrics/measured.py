"""What metrics and histories read of an engine, so that they need not know the engine itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from streamer.bloom.manager import Name, Reason
from streamer.bloom.options import BloomOptions
from streamer.bloom.state import FilterState
from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.core.protocol import Core


class Filters(Protocol):
    """The state of an engine's Bloom filters."""

    def filters(self) -> Sequence[FilterState]:
        """Return the state of each."""

    @property
    def options(self) -> BloomOptions:
        """What they are kept by."""

    @property
    def rebuilds(self) -> Mapping[tuple[Name, Reason], int]:
        """How many rebuilds there were."""

    @property
    def failures(self) -> Mapping[Name, int]:
        """How many of them failed."""

    @property
    def saturated(self) -> frozenset[Name]:
        """Those that pass too much at any size."""


class Reloaded(Protocol):
    """How the last attempt to take a configuration went."""

    @property
    def good(self) -> bool:
        """Whether the last configuration was applied."""

    @property
    def good_at(self) -> float:
        """Time of the last successful attempt, in seconds since the epoch."""


class Measured(Protocol):
    """An engine, of which `streamer.Engine` is the one there is."""

    _cel_errors: ErrorLog
    _core: Core
    _programs: ProgramCache

    @property
    def bloom(self) -> Filters:
        """Its Bloom filters."""

    @property
    def last_reload(self) -> Reloaded | None:
        """How the last attempt to take a configuration went; None for one made without."""
