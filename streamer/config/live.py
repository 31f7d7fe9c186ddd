"""What of a configuration may change while an engine runs."""

from __future__ import annotations

from typing import Final

from streamer.config.loader import Place

#: The places whose values, or all values below, may change. Everything else decides how subscriptions were compiled and indexed,
#: or what was opened when the engine was made.
LIVE: Final[tuple[Place, ...]] = (
    ("matching", "batch_size"),
    ("matching", "bloom"),
    ("matching", "threads"),
    ("matching", "cel", "cache_size"),
    ("matching", "cel", "evaluation_timeout"),
    ("logging",),
)


def is_live(place: Place) -> bool:
    """Tell whether the value at a place may change while an engine runs."""
    return any(place[: len(live)] == live for live in LIVE)
