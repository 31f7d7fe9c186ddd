"""Matching over DataFrames: `match_events` for batches, `match_stream` for streams, `register` for functions of SQL.

Needs PySpark 3.5 or later and pyarrow: `pip install 'streamer-engine[spark]'`. Names are imported on first use: a worker imports
the package for its own code, which needs no part of PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamer.extras import needed
from streamer.late import late

if TYPE_CHECKING:
    from streamer.spark.batch import match_events
    from streamer.spark.broadcast import Broadcast, ship
    from streamer.spark.changes import changes_of
    from streamer.spark.cogroup import CogroupOptions
    from streamer.spark.result import SparkMatches
    from streamer.spark.schema import matches_of, rejected_of, tallies_of
    from streamer.spark.sql import register
    from streamer.spark.streaming import match_batches, match_stream, write_by_gateway
    from streamer.spark.tables import write_to_table
    from streamer.spark.versions import publish
    from streamer.spark.why import explain_events

__all__ = [
    "Broadcast",
    "CogroupOptions",
    "SparkMatches",
    "changes_of",
    "explain_events",
    "match_batches",
    "match_events",
    "match_stream",
    "matches_of",
    "publish",
    "register",
    "rejected_of",
    "ship",
    "tallies_of",
    "write_by_gateway",
    "write_to_table",
]

_HOMES = {
    "Broadcast": "broadcast",
    "CogroupOptions": "cogroup",
    "SparkMatches": "result",
    "changes_of": "changes",
    "explain_events": "why",
    "match_batches": "streaming",
    "match_events": "batch",
    "match_stream": "streaming",
    "matches_of": "schema",
    "publish": "versions",
    "register": "sql",
    "rejected_of": "schema",
    "ship": "broadcast",
    "tallies_of": "schema",
    "write_by_gateway": "streaming",
    "write_to_table": "tables",
}

_late = late(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    with needed("streamer.spark needs PySpark", "spark"):
        return _late(name)
