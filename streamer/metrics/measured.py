"""The part of an engine that metrics and histories read, as protocols, so that they need not import the engine."""

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
        """Return the state of each filter."""

    @property
    def options(self) -> BloomOptions:
        """The options of the filters."""

    @property
    def rebuilds(self) -> Mapping[tuple[Name, Reason], int]:
        """The number of rebuilds, by filter and reason."""

    @property
    def failures(self) -> Mapping[Name, int]:
        """The number of failed rebuilds, by filter."""

    @property
    def saturated(self) -> frozenset[Name]:
        """The filters that pass too many events at any size."""


class Reloaded(Protocol):
    """The result of the last attempt to apply a configuration."""

    @property
    def good(self) -> bool:
        """Whether the last configuration was applied."""

    @property
    def good_at(self) -> float:
        """The time of the last successful attempt, in seconds since the epoch."""


class Measured(Protocol):
    """An engine; `streamer.Engine` is the only implementation."""

    _cel_errors: ErrorLog
    _core: Core
    _programs: ProgramCache

    @property
    def bloom(self) -> Filters:
        """Its Bloom filters."""

    @property
    def last_reload(self) -> Reloaded | None:
        """The result of the last attempt to apply a configuration; None for an engine without one."""
