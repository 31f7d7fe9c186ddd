"""The same matches over DataFrames: `match_events` for those at hand, functions of SQL by `register`.

Needs PySpark 4 and pyarrow: `pip install 'streamer[spark]'`. Names are imported when they are first asked for: a worker imports
the package for what runs there, and needs no part of PySpark for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamer.spark.batch import SparkMatches, match_events
    from streamer.spark.broadcast import Broadcast, ship
    from streamer.spark.cogroup import CogroupOptions
    from streamer.spark.schema import matches_of, rejected_of, tallies_of
    from streamer.spark.sql import register

__all__ = [
    "Broadcast",
    "CogroupOptions",
    "SparkMatches",
    "match_events",
    "matches_of",
    "register",
    "rejected_of",
    "ship",
    "tallies_of",
]

_HOMES = {
    "Broadcast": "broadcast",
    "CogroupOptions": "cogroup",
    "SparkMatches": "batch",
    "match_events": "batch",
    "matches_of": "schema",
    "register": "sql",
    "rejected_of": "schema",
    "ship": "broadcast",
    "tallies_of": "schema",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
