"""The columns of results, as Spark types, and how to split one pass into its results.

```
outcomes   kind │ a match's columns │ event │ why an event was rejected │ counts │ columns that were kept
             0  │ e1, acme, ...     │       │                           │        │
             1  │                   │ {"a   │ malformed_json, ..., 4    │        │
             2  │     acme, orders  │       │                           │ 17 3 … │
```

One pass returns rows of three kinds, so that matches, rejected events and counts are computed once and not three times. Rejected:
an accumulator for the counts (Spark Connect has none, and a task that runs twice counts twice) and a second job for the rejected
events (it reads all input again, and may disagree if a source changed meanwhile).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from pyspark.sql import Column, DataFrame
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

from streamer.spark.compat import is_frame
from streamer.spark.structs import is_object, text_of
from streamer.spark.worker import COUNTS, EVENT, MATCH, MATCHES, REJECTED, REJECTION, RESERVED, TALLY, Pass, columns, inner

_TYPES: Final[dict[str, DataType]] = {
    "kind": ByteType(),
    "certain": BooleanType(),
    "position": LongType(),
    **dict.fromkeys(COUNTS, LongType()),
}
#: The name of the column of events for "each row is an event, with the columns as its members".
ROW: Final = "*"
#: Columns that every match has: Spark need not check each row for null there.
_EVERY_MATCH_HAS: Final = frozenset({"tenant", "subscription_id", "certain"})


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """The columns that a pass reads from a DataFrame.

    Attributes:
        events_frame: only these columns, under internal names (`EVENT`, `inner`): Spark looks up by name the columns that go to a
            worker, and reads a name with a dot as a member of a struct.
        event_type: string or binary; an input of another type is JSON here, as a string.
        carried: the columns that matches carry, under the requested names, as Spark's `select` has them.
    """

    events_frame: DataFrame
    event_type: DataType
    carried: tuple[StructField, ...]


def choose(events: DataFrame, event_col: str, keep: Sequence[str], *, reserved: Iterable[str] = ()) -> Choice:
    """Find the columns of a pass. Names are whole, dots included, and compared according to `spark.sql.caseSensitive`.

    Args:
        event_col: a column; or `ROW`.
        taken: names that the result has in addition to those that it always has.

    Raises:
        ValueError: a column is missing or ambiguous, or a kept column has the name of a column of the result.
        TypeError: *events* is not a DataFrame, or a column cannot be an event, or *keep* is not a list of names.
    """
    if not is_frame(events):
        raise TypeError(f"events: expected a DataFrame, not {type(events).__name__}; spark.createDataFrame makes one")
    if isinstance(keep, str) or not isinstance(keep, Iterable) or not all(isinstance(name, str) for name in keep):
        raise TypeError(f"keep: expected names of columns in a list, not {keep!r}")
    if not isinstance(event_col, str):
        raise TypeError(f"event_col: expected the name of a column, not {event_col!r}")
    is_exact = is_case_sensitive(events)
    event, plain = _event_of(events, event_col)
    own = {folded(name, is_exact=is_exact) for name in (*RESERVED, *reserved)}
    if clashing := sorted(name for name in keep if folded(name, is_exact=is_exact) in own):
        raise ValueError(f"the result has columns {', '.join(clashing)} of its own; rename those to be kept")
    if len({folded(name, is_exact=is_exact) for name in keep}) < len(keep):
        raise ValueError("keep: a name stands twice")
    fields = {name: field_of(events, name) for name in keep}
    columns = [column(field.name).alias(name) for name, field in zip(inner(len(fields)), fields.values(), strict=True)]
    carried = tuple(StructField(name, field.dataType) for name, field in fields.items())
    return Choice(events.select(event.alias(EVENT), *columns), plain, carried)


def _event_of(events: DataFrame, event_col: str) -> tuple[Column, DataType]:
    """Return the column of events as JSON, and its type. Raises ValueError and TypeError."""
    if event_col == ROW:
        for field in events.schema.fields:
            # Two columns of one name would be a duplicate member.
            field_of(events, field.name)
        return text_of(F.struct(*(column(name) for name in events.columns)), events.schema, "row"), StringType()
    field = field_of(events, event_col)
    kind, value = field.dataType, column(field.name)
    if is_object(kind):
        return text_of(value, kind, field.name), StringType()
    if isinstance(kind, StringType | BinaryType):
        # Strings with a collation are returned as plain strings.
        return value, BinaryType() if isinstance(kind, BinaryType) else StringType()
    raise TypeError(
        f"column {event_col!r} is {kind.simpleString()}; an event is JSON as string or binary, a struct, a map or a variant"
    )


def is_case_sensitive(frame: DataFrame) -> bool:
    """Return whether names of columns differ by upper and lower case."""
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"


def field_of(frame: DataFrame, name: str) -> StructField:
    """Return the column of a name, dots included. Raises ValueError if it is missing or ambiguous."""
    is_exact, fields = is_case_sensitive(frame), frame.schema.fields
    matches = [field for field in fields if folded(field.name, is_exact=is_exact) == folded(name, is_exact=is_exact)]
    if not matches:
        raise ValueError(f"there is no column {name!r}; there are {', '.join(field.name for field in fields) or 'none'}")
    if len(matches) > 1:
        raise ValueError(f"column {name!r} may be any of {', '.join(field.name for field in matches)}; rename all but one")
    return matches[0]


def folded(name: str, *, is_exact: bool) -> str:
    """Return a form of a name that is equal for equal names."""
    return name if is_exact else name.lower()


def column(name: str) -> Column:
    """Return the column of exactly this name, which may contain dots."""
    return F.col("`" + name.replace("`", "``") + "`")


def result(request: Pass, choice: Choice, more: Sequence[StructField] = ()) -> StructType:
    """Return the schema of the result of a pass, with *more* kept columns."""
    types = {**_TYPES, "event": choice.event_type}
    names = columns(request.want, keep_event=request.keep_event)
    never_null: frozenset[str] = _EVERY_MATCH_HAS if request.want == "matches" else frozenset()
    fields = [StructField(name, types.get(name, StringType()), name not in never_null) for name in names]
    return StructType([*fields, *choice.carried, *more])


def matches_of(outcomes: DataFrame, *, keep_event: bool = False) -> DataFrame:
    """Return the matches of one pass: event_id, tenant, collection, type, subscription_id, gateway_id, transition, certain.

    Args:
        keep_event: with the event; it is null if the pass did not keep it.
    """
    names = [*MATCHES, *(("event",) if keep_event else ()), *_carried_columns(outcomes)]
    return outcomes.where(F.col("kind") == MATCH).select(*names)


def rejected_of(outcomes: DataFrame) -> DataFrame:
    """Return the rejected events of one pass: event, code, detail, position in bytes."""
    return outcomes.where(F.col("kind") == REJECTED).select(*REJECTION, *_carried_columns(outcomes))


def tallies_of(outcomes: DataFrame) -> DataFrame:
    """Return the counts of one pass by tenant and collection; both are null for events that were rejected or ignored.

    `events` were read; of these, `matched` match a subscription, `rejected` cannot be read, `ignored` have no matches whatever is
    subscribed (tombstones, heartbeats: semantics.md section 1), and a Bloom filter stopped `pruned`. `matches` are rows of the
    result, `shuffled` rows that a shuffle carried. Under cogroup an event counts once in `matched` for each part of the
    subscriptions in which it has a match, so that there it is an upper bound.
    """
    sums = [F.sum(name).alias(name) for name in COUNTS]
    return outcomes.where(F.col("kind") == TALLY).groupBy("tenant", "collection").agg(*sums)


def _carried_columns(outcomes: DataFrame) -> list[Column]:
    return [column(name) for name in outcomes.columns if name not in RESERVED]
