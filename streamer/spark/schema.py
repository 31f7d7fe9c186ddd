"""The columns of what comes out, in Spark's words, and how one pass is taken apart again.

```
outcomes   kind │ a match's columns │ event │ why an event was rejected │ counts │ columns that were kept
             0  │ e1, acme, ...     │       │                           │        │
             1  │                   │ {"a   │ malformed_json, ..., 4    │        │
             2  │     acme, orders  │       │                           │ 17 3 … │
```

One pass gives rows of three kinds, so that matches, rejected events and counts need not be worked out three times. Rejected: an
accumulator for the counts (Spark Connect has none, and a task that is run twice counts twice) and a second job for the rejected
(it reads everything again, and a source that changed meanwhile gives two truths).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from streamer.spark.worker import COUNTS, MATCH, MATCHES, REJECTED, REJECTION, RESERVED, TALLY, Want

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES: Final[dict[str, DataType]] = {
    "kind": ByteType(),
    "certain": BooleanType(),
    "position": LongType(),
    **dict.fromkeys(COUNTS, LongType()),
}
#: What every match has: Spark need not ask each row whether it is null there.
_EVERY_MATCH_HAS: Final = frozenset({"tenant", "subscription_id", "certain"})


def check_columns(events: DataFrame, event_col: str, keep: Sequence[str]) -> tuple[DataType, list[StructField]]:
    """Return the type of the events and the fields that are kept.

    Raises:
        ValueError: a column that is not there, or one to be kept whose name a column of the result has.
        TypeError: events that are neither text nor bytes, or *keep* that is no list of names.
    """
    if isinstance(keep, str) or not all(isinstance(name, str) for name in keep):
        raise TypeError(f"keep: expected names of columns in a list, not {keep!r}")
    fields = {field.name: field for field in events.schema.fields}
    for name in (event_col, *keep):
        if name not in fields:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(fields) or 'none'}")
    event_type = fields[event_col].dataType
    if not isinstance(event_type, StringType | BinaryType):
        found = event_type.simpleString()
        raise TypeError(f"column {event_col!r} is {found}; an event is JSON as string or binary (to_json makes it of a struct)")
    if taken := sorted(set(keep) & RESERVED):
        raise ValueError(f"the result has columns {', '.join(taken)} of its own; rename those to be kept")
    if len(set(keep)) < len(keep):
        raise ValueError("keep: a name stands twice")
    # Strings of a collation of their own come back as plain ones.
    plain: DataType = BinaryType() if isinstance(event_type, BinaryType) else StringType()
    return plain, [StructField(name, fields[name].dataType) for name in keep]


def outcomes(want: Want, event_type: DataType, kept: Sequence[StructField], *, keep_event: bool) -> StructType:
    """Return the schema of what a pass gives."""
    from streamer.spark.worker import columns

    types = {**_TYPES, "event": event_type}
    names = columns(want, keep_event=keep_event)
    never_null: frozenset[str] = _EVERY_MATCH_HAS if want == "matches" else frozenset()
    fields = [StructField(name, types.get(name, StringType()), name not in never_null) for name in names]
    return StructType([*fields, *kept])


def matches_of(outcomes: DataFrame, *, keep_event: bool = False) -> DataFrame:
    """Return the matches of one pass: event_id, tenant, collection, type, subscription_id, gateway_id, transition, certain.

    Args:
        keep_event: with the event; it is null where the pass was not told to keep it.
    """
    chosen = [*MATCHES, *(("event",) if keep_event else ()), *_kept(outcomes)]
    return outcomes.where(F.col("kind") == MATCH).select(*chosen)


def rejected_of(outcomes: DataFrame) -> DataFrame:
    """Return the rejected events of one pass: event, code, detail, position in bytes."""
    return outcomes.where(F.col("kind") == REJECTED).select(*REJECTION, *_kept(outcomes))


def tallies_of(outcomes: DataFrame) -> DataFrame:
    """Return the counts of one pass by tenant and collection; both are null for events that were rejected.

    `events` came in; of these `matched` match something, `rejected` cannot be read, `pruned` a Bloom filter stopped. `matches`
    are rows of the result, `shuffled` rows that a shuffle carried. Under cogroup an event counts once in `matched` for each
    part of the subscriptions in which it matches something, so that there it is an upper bound.
    """
    sums = [F.sum(name).alias(name) for name in COUNTS]
    return outcomes.where(F.col("kind") == TALLY).groupBy("tenant", "collection").agg(*sums)


def _kept(outcomes: DataFrame) -> list[str]:
    return [name for name in outcomes.columns if name not in RESERVED]
