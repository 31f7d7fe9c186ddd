"""The settings that may change while an engine or a service runs."""

from __future__ import annotations

from typing import Final

from streamer.config.loader import Place

#: The places whose values, or all values below, may change. Every other value decided how subscriptions were compiled and
#: indexed, or was used when the engine was made.
LIVE: Final[tuple[Place, ...]] = (
    ("matching", "batch_size"),
    ("matching", "bloom"),
    ("matching", "threads"),
    ("matching", "cel", "cache_size"),
    ("matching", "cel", "evaluation_timeout"),
    ("logging",),
    ("subscriptions",),
)
#: Settings that may also change while a service runs, because an engine does not use them.
SERVED: Final[tuple[Place, ...]] = (
    ("sources",),
    ("sinks",),
    ("routes",),
    ("delivery",),
    ("api",),
    ("service", "watch"),
    ("service", "history"),
    ("service", "match_counts"),
)


def is_live(place: Place) -> bool:
    """Return whether the value at a place may change while an engine runs."""
    return any(place[: len(live)] == live for live in LIVE)


def is_served(place: Place) -> bool:
    """Return whether the value at a place may change while a service runs."""
    return is_live(place) or any(place[: len(live)] == live for live in SERVED)
