"""Delta's change data feed as change events: an update is one event, with the row before next to the row after.

```
id │ status │ _change_type     │ _commit_version
 7 │ new    │ update_preimage  │ 3      ─┐ same version, same key   {"id": "3:7", "collection": "orders", "type": "update",
 7 │ paid   │ update_postimage │ 3      ─┴─────────────────────────► "data": {"id": 7, "status": "paid"},
                                                                     "before": {"id": 7, "status": "new"}, "ts": ...}
 8 │ new    │ insert           │ 3      ───────────────────────────► {"id": "3:8", ..., "type": "insert", "data": ...}
```

Cost: one shuffle of the updates, by version and key; inserts and deletes stay where they are. Memory: for each pair one row
before and one after.

Invariant: each image is in exactly one event. An image without its pair is of a row whose key was changed: it becomes a delete,
or an insert, as in `cdc.debezium`. If a key has several images of one kind in one version, they cannot be paired: the event's
type states this, and the event is rejected when it is matched.

Delta puts a whole version of the table into one micro-batch, so that pairs of a stream arrive together. Rejected: a stateful join
of a stream (it keeps state although a micro-batch is complete); pairing neighbouring rows of a file (Delta does not guarantee
that they are neighbours).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from streamer.spark.schema import column, field_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KIND, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
BEFORE, AFTER = "update_preimage", "update_postimage"
#: Internal columns.
_ROW, _KEY, _BEFORES, _AFTERS = "_streamer_row", "_streamer_key_", "_streamer_befores", "_streamer_afters"


def changes_of(
    feed: DataFrame, key: str | Sequence[str], *, collection: str | Column, tenant: str | Column | None = None
) -> DataFrame:
    """Return the change events of a change data feed, as structs in a column `value`.

        feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 0).table("shop.orders")
        match_events(changes_of(feed, "id", collection="orders"), engine).matches

    A stream's micro-batches are such DataFrames, too: make events of each before it is matched.

        matcher = match_batches("subscriptions", write_to_table("shop.matches"))
        stream.writeStream.foreachBatch(lambda feed, number: matcher(changes_of(feed, "id", collection="orders"), number))

    Args:
        feed: rows with `_change_type`, `_commit_version` and `_commit_timestamp`. Every other column is of the row.
        key: the columns that identify a row of the table.
        collection: one for all events, or a column.
        tenant: one for all events, or a column; None for the engine's default.

    Returns:
        value, _commit_version, _commit_timestamp. An event's id is its version and its key, as `3:7`, its `ts` the time of the
        commit. An image that cannot be paired is an event that is rejected when it is matched; its type states the reason.

    Raises:
        ValueError: *feed* is not a change data feed, or is a stream, or a column of *key* is missing.
    """
    if feed.isStreaming:
        raise ValueError("feed: it streams; call changes_of on each micro-batch, within the function for foreachBatch")
    if missing := [name for name in (KIND, VERSION, TIME) if name not in feed.columns]:
        raise ValueError(f"feed: it has no column {', '.join(missing)}; read the table with the option readChangeFeed=true")
    names = [field_of(feed, name).name for name in ([key] if isinstance(key, str) else key)]
    if not names:
        raise ValueError("key: expected names of columns that identify rows")
    row = F.struct(*(column(name) for name in feed.columns if name not in (KIND, VERSION, TIME))).alias(_ROW)
    commit = [column(VERSION), column(TIME)]
    # Under internal names, because those of the key may be any. A row that moves to another tenant is not a pair: each tenant
    # sees its own part.
    own = {"tenant": F.lit(tenant).cast("string"), "collection": F.lit(collection).cast("string")}
    own |= {f"{at}": column(name) for at, name in enumerate(names)}
    changes = feed.select(column(KIND), *commit, row, *(value.alias(f"{_KEY}{name}") for name, value in own.items()))
    as_key = F.concat_ws(",", *(F.col(f"{_KEY}{at}").cast("string") for at in range(len(names))))

    def event(kind: Column, after: Column, before: Column) -> Column:
        parts = {
            "id": F.concat_ws(":", F.col(VERSION).cast("string"), as_key),
            "tenant": F.col(f"{_KEY}tenant"),
            "collection": F.col(f"{_KEY}collection"),
            "type": kind,
            "ts": F.unix_millis(F.col(TIME).cast("timestamp")),
            "data": after,
            "before": before,
        }
        return F.struct(*(part.alias(name) for name, part in parts.items())).alias("value")

    is_before, is_after, is_delete = (F.coalesce(F.col(KIND) == word, F.lit(False)) for word in (BEFORE, AFTER, "delete"))
    # An unknown word of Delta becomes the type of the event, which is then rejected.
    change_kind = F.coalesce(F.col(KIND), F.lit("null"))
    whole = changes.where(~(is_before | is_after))
    alone = whole.select(event(change_kind, F.when(~is_delete, F.col(_ROW)), F.when(is_delete, F.col(_ROW))), *commit)
    images = changes.where(is_before | is_after).groupBy(VERSION, TIME, *(f"{_KEY}{name}" for name in own))
    paired = images.agg(
        F.first(F.when(is_before, F.col(_ROW)), ignorenulls=True).alias(BEFORE),
        F.first(F.when(is_after, F.col(_ROW)), ignorenulls=True).alias(AFTER),
        F.count(F.when(is_before, 1)).alias(_BEFORES),
        F.count(F.when(is_after, 1)).alias(_AFTERS),
    )
    befores, afters = F.col(_BEFORES), F.col(_AFTERS)
    words = F.concat(
        befores.cast("string"), F.lit(" rows before an update and "), afters.cast("string"), F.lit(" after it have one key")
    )
    kind = (
        F.when((befores > 1) | (afters > 1), words).when(afters == 0, "delete").when(befores == 0, "insert").otherwise("update")
    )
    return alone.unionByName(paired.select(event(kind, F.col(AFTER), F.col(BEFORE)), *commit))
