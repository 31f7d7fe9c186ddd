"""Nobody has all subscriptions: each collection's are compiled where its events come together.

```
subscriptions ─► count by (tenant, collection) ─► split the large ones ─► one Bloom filter a part ─► a file on every machine
events ─► locate, ask the filters of the parts that they can match ─► count by part ─► salt the hot ones

what passes       (group, 1, event) ─┐  repartition by group,   ┌──────────────── group: part and salt ───────────────┐
                                     ├─ sort by group, kind ──► │ 0 {"id": "a", ...}  0 {"id": "b"...  1 event  1 ... │
each subscription (group, 0, text) ──┘                          │    compiled once,       then the events stream past │
                                                                └─────────────────────────────────────────────────────┘
```

A *part* is a slice of the subscriptions of one (tenant, collection), either of which may be `*`. A subscription is in one part;
an event goes to each part that it can match: those of (tenant, collection), (tenant, every), (every, collection), (every,
every), as the engine's own partitions are asked. So subscriptions to every collection are compiled once and not in each
collection. Replicating them would cost their number times that of the collections. Routing an event to up to four parts costs
what the filters of these let pass.

Invariant: a row's group follows from the row alone, never from its place in a task. The salt is a hash of the event, the split
a hash of the subscription's id. So a shuffle that is computed again after a worker was lost gives every row to its group again.
Each group checks that as many subscriptions came as were counted; where the subscriptions or the events changed between the
passes, the job fails rather than lose a match.

A part that is salted is much of the work, and Spark's hash sends two of its groups to one task now and then. So Spark is asked
where each of some salts would go, and those are taken that go to different partitions.

Cost: subscriptions are read three times and parsed lightly each time, events twice. An event is shuffled once for each part
whose filter lets it pass. The subscriptions of a part are shuffled and compiled once for each salt. A worker holds the
subscriptions of one part and a batch of events. The driver holds a count for each part that events touch, and one row at a time
of the parts' filters, which go to a file.

Rejected: `cogroup().applyInArrow`. It hands over both sides of a group as tables, so that all events of a group are in memory
at once, and starts an Arrow stream for each of them. One sorted shuffle of both kinds is this join as a stream. Salts by a
running number: they change when a task is run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, ByteType, LongType, StringType, StructField, StructType

from streamer import _backend
from streamer.core.snapshot import read_texts
from streamer.errors import BulkSubscriptionError, SubscriptionError
from streamer.spark import schema
from streamer.spark.broadcast import Held
from streamer.spark.compat import texts_frame
from streamer.spark.files import Kept, carry, keep, new_file
from streamer.spark.grouped import by_parts
from streamer.spark.groups import (
    BODY,
    GROUP,
    KIND,
    PART,
    SALTED,
    TOLD,
    Salts,
    Split,
    build_parts,
    by_groups,
    carry_subscriptions,
    name_subscriptions,
    route,
    split_subscriptions,
    told,
    touch,
    untold,
)
from streamer.spark.parts import SALTS, Writer
from streamer.spark.worker import EVENT, Pass, by_reading, inner

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Bad subscriptions that are told of one by one.
MOST_ERRORS: Final = 1000
#: Salts that a hot part can have, among which those are chosen whose groups go to different partitions.
TRIED: Final = 128


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupOptions:
    """Numbers that cogroup goes by.

    Attributes:
        subscriptions_per_task: a (tenant, collection) with more is split, each event going to all of its parts whose filters
            let it pass.
        events_per_task: a part with more events is salted: they go to several tasks, to each of which its subscriptions go too.
        fp_rate: share of the events that nobody wants which a filter lets pass.
        partitions: of the shuffle; by default `spark.sql.shuffle.partitions`, which adaptive execution joins where they are
            small.
        prune: False lets all events pass to the parts of their tenant and collection, filters or not.

    Raises:
        ValueError: numbers that cannot be.
    """

    subscriptions_per_task: int = 200_000
    events_per_task: int = 500_000
    fp_rate: float = 0.01
    partitions: int | None = None
    prune: bool = True

    def __post_init__(self) -> None:
        for name in ("subscriptions_per_task", "events_per_task", "partitions"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}: expected an integer from 1, not {value!r}")
        if not 1e-9 <= self.fp_rate < 1:
            raise ValueError(f"fp_rate: expected a share from 1e-9 to less than 1, not {self.fp_rate!r}")


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` found out, by which a pass is planned.

    Attributes:
        texts: the subscriptions, in a column `text`.
        options: of `Engine`.
        parts: the file with the parts and their filters, which Spark carries.
        grouped: the parts are in it compiled, and events stay where they lie; there are then no salts, and none is *touched*.
        splits: (tenant, collection) of which there is more than one part.
        salts: how many tasks a part's events go to, where it is more than one.
        touched: parts to which events go: bit by bit, lowest first.
    """

    texts: DataFrame
    options: dict[str, Any]
    numbers: CogroupOptions
    parts: Kept
    grouped: bool
    splits: tuple[Split, ...]
    salts: Salts
    touched: bytes


def texts_of(spark: SparkSession, held: Held) -> DataFrame:
    """Return the subscriptions of a snapshot in a column `text`."""
    directory = held.directory
    texts = [text.decode() for text in read_texts(directory, range(len(directory.sections)))]
    return texts_frame(spark, texts)


def prepare(
    chosen: schema.Chosen,
    texts: DataFrame,
    options: dict[str, Any],
    numbers: CogroupOptions,
    backend: _backend.Backend,
    *,
    grouped: bool = False,
) -> Prepared:
    """Look through subscriptions and events: four jobs, none of which fetches either.

    Args:
        grouped: events stay where they lie (grouped.py): they are not looked through.

    Raises:
        SubscriptionError: subscriptions that cannot be accepted, or an id that stands twice.
    """
    spark = texts.sparkSession
    # Events are validated in full where they are routed; a part's engine needs no filter of its own behind that of the part.
    options = {**options, "validation": "full", "bloom": {"enabled": False}}
    named = texts.mapInArrow(name_subscriptions(options, backend), "tenant string, collection string, id string, error string")
    # One job for what is hoped to be all: the few collections that are large, and none that cannot be read.
    counted = named.groupBy("tenant", "collection").agg(F.count("*").alias("count"), F.count("error").alias("errors"))
    large = counted.where((F.col("count") > numbers.subscriptions_per_task) | (F.col("errors") > 0)).collect()
    if any(row["errors"] for row in large):
        _refuse_bad([row["error"] for row in named.where("error is not null").limit(MOST_ERRORS).collect()])
    twice = named.groupBy("id").count().where("count > 1").limit(MOST_ERRORS).collect()
    _refuse_bad([told(SubscriptionError(f"its id is there {row['count']} times", subscription_id=row["id"])) for row in twice])
    splits = tuple((row["tenant"], row["collection"], -(-row["count"] // numbers.subscriptions_per_task)) for row in large)
    parts = _ship_parts(spark, texts, options, numbers, splits, backend, whole=grouped)
    if grouped:
        return Prepared(texts, options, numbers, parts, grouped, splits, {}, b"")
    asked = Pass(EVENT, (), False, "matches", False, backend)
    counted = chosen.given.select(EVENT).mapInArrow(
        touch(asked, options, parts.name, prune=numbers.prune), f"{PART} bigint, events bigint"
    )
    touched = bytearray()
    hot = []
    events = F.sum("events").alias("events")
    partitions = _partitions(spark, numbers)
    where = F.when(F.col("events") > numbers.events_per_task, _partitions_of_salts(partitions)).alias("partitions")
    for row in counted.groupBy(PART).agg(events).select(PART, "events", where).toLocalIterator():
        part_number, found = row[PART], row["events"]
        touched.extend(bytes(max(0, part_number // 8 + 1 - len(touched))))
        touched[part_number // 8] |= 1 << part_number % 8
        if row["partitions"] is not None:
            hot.append((min(-(-found // numbers.events_per_task), SALTS), part_number, row["partitions"]))
    return Prepared(texts, options, numbers, parts, grouped, splits, spread(hot), bytes(touched))


def _partitions(spark: SparkSession, numbers: CogroupOptions) -> int:
    """Return how many partitions the shuffle has before adaptive execution joins the small ones.

    Where it turns out to have others, nothing but the balance suffers.
    """
    if numbers.partitions is not None:
        return numbers.partitions
    # Some platforms have `auto` there.
    told = str(spark.conf.get("spark.sql.shuffle.partitions"))
    return int(told) if told.isdecimal() else 200


def _partitions_of_salts(partitions: int) -> Column:
    """Return the partitions that the groups of a part with the first `TRIED` salts go to: Spark's own hash says it."""
    every = F.sequence(F.lit(0), F.lit(TRIED - 1))
    return F.transform(every, lambda salt: F.pmod(F.hash(F.col(PART) * SALTS + salt), F.lit(partitions)))


def spread(hot: Iterable[tuple[int, int, Sequence[int]]]) -> dict[int, range]:
    """Choose the salts of hot parts, so that as few as can be share a partition of the shuffle.

    Args:
        hot: of each, how many salts it has, its number, and the partitions of the salts that it can begin with.
    """
    load: Counter[int] = Counter()
    salts = {}
    for count, part_number, partitions in sorted(hot, reverse=True):

        def shared(start: int, partitions: Sequence[int] = partitions, count: int = count) -> int:
            added = Counter(partitions[start : start + count])
            return sum((load[each] + number) ** 2 - load[each] ** 2 for each, number in added.items())

        # Where there are more than were tried, chance balances them well enough.
        start = min(range(max(1, len(partitions) - count + 1)), key=shared)
        load.update(partitions[start : start + count])
        salts[part_number] = range(start, start + count)
    return salts


def plan(prepared: Prepared, chosen: schema.Chosen, asked: Pass) -> DataFrame:
    """Plan one pass over events; no job is run."""
    result = schema.result(asked, chosen)
    if asked.want == "rejected":
        return chosen.given.mapInArrow(by_reading(asked, prepared.options), result)
    if prepared.grouped:
        numbers = prepared.numbers
        run = by_parts(asked, prepared.options, prepared.parts.name, numbers.subscriptions_per_task, prune=numbers.prune)
        return chosen.given.mapInArrow(run, result)
    # Every row of the shuffle: a group, what kind of row it is, what it carries. Only under `all` are there others than
    # subscriptions and events.
    kept = [StructField(name, field.dataType) for name, field in zip(inner(len(chosen.kept)), chosen.kept, strict=True)]
    carried = [*([StructField(TOLD, BinaryType())] if asked.want == "all" else []), *kept]
    shuffled = _routed(prepared, chosen, asked, carried).union(_copies(prepared, asked.backend, carried))
    by = () if prepared.numbers.partitions is None else (prepared.numbers.partitions,)
    sorted_ = shuffled.repartition(*by, GROUP).sortWithinPartitions(GROUP, KIND)
    as_text = isinstance(chosen.event_type, StringType)
    return sorted_.mapInArrow(by_groups(asked, prepared.options, prepared.parts.name, as_text=as_text), result)


def _routed(prepared: Prepared, chosen: schema.Chosen, asked: Pass, carried: Sequence[StructField]) -> DataFrame:
    """Return events as rows of the shuffle: one for each part whose filter lets an event pass."""
    numbers = [StructField(GROUP, LongType()), StructField(SALTED, LongType()), StructField(KIND, ByteType())]
    routed = chosen.given.mapInArrow(
        route(asked, prepared.options, prepared.parts.name, prepared.salts, prune=prepared.numbers.prune),
        StructType([*numbers, StructField(BODY, BinaryType()), *carried]),
    )
    salt = F.when(F.col(SALTED) > 1, F.pmod(F.xxhash64(BODY), F.col(SALTED))).otherwise(0)
    group = (F.col(GROUP) + salt).alias(GROUP)
    return routed.select(group, KIND, BODY, *(field.name for field in carried))


def _copies(prepared: Prepared, backend: _backend.Backend, carried: Sequence[StructField]) -> DataFrame:
    """Return subscriptions as rows of the shuffle: one for each salt of their part."""
    held = prepared.texts.mapInArrow(
        carry_subscriptions(prepared.options, backend, prepared.parts.name, prepared.splits, prepared.salts, prepared.touched),
        f"{GROUP} bigint, {SALTED} bigint, {BODY} binary",
    )
    every_salt = F.explode(F.sequence(F.lit(0).cast("bigint"), F.col(SALTED) - 1)).alias("salt")
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in carried]
    return held.select(GROUP, BODY, every_salt).select(
        (F.col(GROUP) + F.col("salt")).alias(GROUP), F.lit(0).cast("tinyint").alias(KIND), BODY, *nulls
    )


def _ship_parts(
    spark: SparkSession,
    texts: DataFrame,
    options: dict[str, Any],
    numbers: CogroupOptions,
    splits: tuple[Split, ...],
    backend: _backend.Backend,
    *,
    whole: bool,
) -> Kept:
    """Make the parts and their filters on the cluster, and let them travel as a file. Raises SubscriptionError."""
    placed = texts.mapInArrow(
        split_subscriptions(options, backend, splits), "tenant string, collection string, split bigint, text string"
    )
    by = ["tenant", "collection", "split"]
    made = (
        placed.repartition(*by)
        .sortWithinPartitions(*by)
        .mapInArrow(
            build_parts(options, backend, numbers.fp_rate if numbers.prune else None, whole=whole),
            "tenant string, collection string, split bigint, subscriptions bigint, filter binary, snapshot binary, error string",
        )
    )
    errors = []
    path = new_file()
    try:
        with Writer(path) as writer:
            # A row at a time, so that the driver never holds them all. It asks for one partition after another; the shuffle
            # before it has them made side by side.
            for row in made.repartition(*by).toLocalIterator(prefetchPartitions=True):
                if row["error"] is not None:
                    errors.append(row["error"])
                    continue
                filter_, snapshot = (bytes(row[name] or b"") for name in ("filter", "snapshot"))
                writer.add(row["tenant"], row["collection"], row["split"], row["subscriptions"], filter_, snapshot)
        _refuse_bad(errors)
        return carry(spark, keep(path, "parts"))
    finally:
        path.unlink(missing_ok=True)


def _refuse_bad(errors: Sequence[str]) -> None:
    if errors:
        raise BulkSubscriptionError([untold(error) for error in errors])
