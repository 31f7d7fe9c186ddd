"""Split the subscriptions over the workers: each collection's are compiled on the worker that gets its events.

```
subscriptions ─► count by (tenant, collection) ─► split the large ones ─► one Bloom filter a part ─► a file on every machine
events ─► locate, query the filters of the parts that they can match ─► count by part ─► salt the hot ones

what passes       (group, 1, event) ─┐  repartition by group,   ┌──────────────── group: part and salt ───────────────┐
                                     ├─ sort by group and kind  │ 0 {"id": "a", ...}  0 {"id": "b"...  1 event  1 ... │
each subscription (group, 0, text) ──┘  in one number ────────► │    compiled once,       then the events stream past │
                                                                └─────────────────────────────────────────────────────┘
```

A *part* is a slice of the subscriptions of one (tenant, collection), either of which may be `*`. A subscription is in one part;
an event goes to each part that it can match: those of (tenant, collection), (tenant, every), (every, collection), (every,
every), just like an engine looks into its partitions. So subscriptions to every collection are compiled once and not in each
collection. Replicating them would cost their number times the number of collections. Routing an event to up to four parts costs
only the events that the filters of these parts let pass.

Invariant: a row's group follows from the row alone, never from its place in a task. The salt is a hash of the event, the split
a hash of the subscription's id. So a shuffle that is computed again after a worker was lost gives every row to its group again.
Each group checks that it received as many subscriptions as were counted. If the subscriptions or the events changed between the
passes, the job fails rather than lose a match.

A *hot* part gets many events. Hot parts that fit into a worker together are matched *in place*, like under broadcast: the cluster
compiles a snapshot of them, and their events stay where they are. That costs a second look at all events, so it is done only if
these parts get a large enough share of the events. A hot part that does not fit is salted. Salted groups are much of the work,
and Spark's hash sometimes sends two of them to one task. So the plan computes with Spark's hash the partition of each of some
salts, and picks salts that go to different partitions.

Cost: subscriptions are read three times and parsed lightly each time; events are read twice, or three times if some are matched
in place. An event is shuffled once for each part whose filter lets it pass. The subscriptions of a part are shuffled and compiled
once for each salt. A worker keeps the subscriptions of one part, or of the parts that are matched in place, and a batch of
events. The driver keeps a count for each part that events touch, and one row at a time of a file's contents: the parts' filters,
and the snapshot of the hot parts.

Rejected: `cogroup().applyInArrow`. It hands over both sides of a group as tables, so that all events of a group are in memory
at once, and starts an Arrow stream for each of them. One sorted shuffle of both kinds is this join as a stream. Also
rejected: a running number as the salt, because it changes when a task is run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from streamer import _backend
from streamer.core.snapshot import read_directory, read_texts
from streamer.errors import BulkSubscriptionError, StreamerError, SubscriptionError
from streamer.spark import schema
from streamer.spark.broadcast import Copy
from streamer.spark.cogroup_worker import (
    BODY,
    CHANGED,
    KEY,
    KIND_BITS,
    KINDS,
    NOTE,
    PART,
    SALTED,
    SPLIT_SCHEMA,
    Salts,
    Split,
    as_note,
    build_parts,
    build_snapshot,
    by_groups,
    carry_subscriptions,
    name_subscriptions,
    of_note,
    route,
    split_subscriptions,
    splits_in,
    touch,
)
from streamer.spark.compat import texts_frame
from streamer.spark.files import StoredFile, carry, keep, new_file, release
from streamer.spark.parts import SALTS, Parts, Writer
from streamer.spark.pregrouped import by_parts
from streamer.spark.worker import EVENT, Pass, by_reading, by_snapshot, inner

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Bad subscriptions that are reported one by one.
MOST_ERRORS: Final = 1000
#: The least share of all events that must go to the parts that are matched in place. A second look at an event costs about a
#: fourth of a shuffle of it.
LEAST_SHARE: Final = 0.25
#: The number of candidate salts of a hot part. Those whose groups go to different partitions are chosen.
TRIED: Final = 128


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupOptions:
    """The limits and settings of cogroup.

    Attributes:
        subscriptions_per_task: a (tenant, collection) with more is split; each event goes to all of its parts whose filters let
            it pass.
        events_per_task: a part with more events is hot. If it is not matched in place, it is salted: its events go to several
            tasks, and its subscriptions to each of these tasks.
        subscriptions_in_place: hot parts with at most this many subscriptions together travel to every machine, and their events
            stay where they are.
        fp_rate: share of the events without a match that a filter lets pass.
        partitions: number of partitions of the shuffle; by default `spark.sql.shuffle.partitions`; adaptive execution joins small
            ones.
        prune: False sends all events to the parts of their tenant and collection, without the filters.

    Raises:
        ValueError: a number is out of range.
    """

    subscriptions_per_task: int = 200_000
    events_per_task: int = 500_000
    subscriptions_in_place: int = 200_000
    fp_rate: float = 0.01
    partitions: int | None = None
    prune: bool = True

    def __post_init__(self) -> None:
        least = {"subscriptions_per_task": 1, "events_per_task": 1, "subscriptions_in_place": 0, "partitions": 1}
        for name, at_least in least.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < at_least):
                raise ValueError(f"{name}: expected an integer from {at_least}, not {value!r}")
        if not 1e-9 <= self.fp_rate < 1:
            raise ValueError(f"fp_rate: expected a share from 1e-9 to less than 1, not {self.fp_rate!r}")


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """The results of `prepare`, from which a pass is planned.

    Attributes:
        texts: the subscriptions, in a column `text`.
        options: options of `Engine`.
        parts: the file with the parts and their filters, which Spark carries.
        grouped: the file contains the parts compiled, and events stay where they are; *salts* and *touched* are then empty.
        splits: each (tenant, collection) that has more than one part.
        in_place: parts whose events stay where they are, although other parts' events move.
        snapshot: the file with the subscriptions of these parts.
        salts: the number of tasks for the events of a part, for parts with more than one.
        touched: parts to which events are sent: bit by bit, lowest first.
    """

    texts: DataFrame
    options: dict[str, Any]
    numbers: CogroupOptions
    parts: StoredFile
    grouped: bool
    splits: tuple[Split, ...]
    in_place: frozenset[int] = frozenset()
    snapshot: StoredFile | None = None
    salts: Salts = field(default_factory=dict)
    touched: bytes = b""

    def take_back(self, spark: SparkSession) -> None:
        """Release the files of this job; those without another use are removed, as far as Spark allows it."""
        release(spark, self.parts, self.snapshot)


def texts_of(spark: SparkSession, copy: Copy) -> DataFrame:
    """Return the subscriptions of a snapshot in a column `text`."""
    directory = copy.directory
    texts = [text.decode() for text in read_texts(directory, range(len(directory.sections)))]
    return texts_frame(spark, texts)


def prepare(
    choice: schema.Choice,
    texts: DataFrame,
    options: dict[str, Any],
    numbers: CogroupOptions,
    backend: _backend.Backend,
    *,
    grouped: bool = False,
) -> Prepared:
    """Count subscriptions and events, in four jobs that run on the cluster.

    Args:
        grouped: events stay where they are (grouped.py), so they are not counted.

    Raises:
        SubscriptionError: subscriptions are invalid, or an id occurs twice.
    """
    spark = texts.sparkSession
    # Routing validates events in full; the part's filter has run already, so the part's engine needs none.
    options = {**options, "validation": "full", "bloom": {"enabled": False}}
    named = texts.mapInArrow(name_subscriptions(options, backend), "tenant string, collection string, id string, error string")
    # One job in the usual case: a few large collections, and every subscription is readable.
    counted = named.groupBy("tenant", "collection").agg(F.count("*").alias("count"), F.count("error").alias("errors"))
    large = counted.where((F.col("count") > numbers.subscriptions_per_task) | (F.col("errors") > 0)).collect()
    if any(row["errors"] for row in large):
        _refuse_bad([row["error"] for row in named.where("error is not null").limit(MOST_ERRORS).collect()])
    twice = named.groupBy("id").count().where("count > 1").limit(MOST_ERRORS).collect()
    _refuse_bad([as_note(SubscriptionError(f"its id is there {row['count']} times", subscription_id=row["id"])) for row in twice])
    splits = tuple((row["tenant"], row["collection"], -(-row["count"] // numbers.subscriptions_per_task)) for row in large)
    placed = texts.mapInArrow(split_subscriptions(options, backend, splits), SPLIT_SCHEMA)
    fp_rate = numbers.fp_rate if numbers.prune else None
    parts = _ship_parts(placed, options, fp_rate, backend, whole=grouped)
    prepared = Prepared(texts, options, numbers, parts, grouped, splits)
    if grouped:
        return prepared
    request = Pass(EVENT, (), False, "matches", False, backend)
    counted = choice.events_frame.select(EVENT).mapInArrow(
        touch(request, options, parts.name, prune=numbers.prune), f"{PART} bigint, events bigint"
    )
    touched = bytearray()
    hot: list[Hot] = []
    read = 0
    events = F.sum("events").alias("events")
    is_hot = F.col("events") > numbers.events_per_task
    where = F.when(is_hot, _partitions_of_salts(_partitions(spark, numbers))).alias("partitions")
    for row in counted.groupBy(PART).agg(events).select(PART, "events", where).toLocalIterator():
        part_number, events_of_part = row[PART], row["events"]
        if part_number is None:
            read = events_of_part
            continue
        touched.extend(bytes(max(0, part_number // 8 + 1 - len(touched))))
        touched[part_number // 8] |= 1 << part_number % 8
        if row["partitions"] is not None:
            hot.append(Hot(events_of_part, part_number, row["partitions"]))
    shipped = Parts(str(parts.path))
    if in_place := parts_in_place(hot, shipped, numbers.subscriptions_in_place, read):
        count = sum(map(shipped.subscriptions, in_place))
        local = placed.mapInArrow(splits_in(parts.name, in_place), SPLIT_SCHEMA)
        prepared = replace(prepared, in_place=in_place, snapshot=_ship_snapshot(local, count, options, backend))
    salts = spread(
        (min(-(-each.events // numbers.events_per_task), SALTS), each.part_number, each.partitions)
        for each in hot
        if each.part_number not in in_place
    )
    for part_number in in_place:
        touched[part_number // 8] &= ~(1 << part_number % 8)
    return replace(prepared, salts=salts, touched=bytes(touched))


@final
@dataclass(frozen=True, slots=True, order=True)
class Hot:
    """A part with more events than one task gets.

    Attributes:
        partitions: the partitions of the shuffle that its groups with the first salts go to.
    """

    events: int
    part_number: int
    partitions: Sequence[int]


def parts_in_place(hot: Iterable[Hot], parts: Parts, most: int, read: int) -> frozenset[int]:
    """Choose the parts that are matched in place: the hottest that have at most *most* subscriptions together.

    The result is empty if these parts get too few of the *read* events: matching in place looks at all events a second time.
    """
    numbers, events = [], 0
    for each in sorted(hot, reverse=True):
        size = parts.subscriptions(each.part_number)
        if size <= most:
            most -= size
            numbers.append(each.part_number)
            events += each.events
    return frozenset(numbers if events >= LEAST_SHARE * read else ())


def _partitions(spark: SparkSession, numbers: CogroupOptions) -> int:
    """Return how many partitions the shuffle has before adaptive execution joins the small ones.

    If the real number differs, only the balance suffers.
    """
    if numbers.partitions is not None:
        return numbers.partitions
    # Some platforms have `auto` there.
    setting = str(spark.conf.get("spark.sql.shuffle.partitions"))
    return int(setting) if setting.isdecimal() else 200


def _partitions_of_salts(partitions: int) -> Column:
    """Return the partitions of a part's groups for the first `TRIED` salts, by Spark's own hash."""
    every = F.sequence(F.lit(0), F.lit(TRIED - 1))
    return F.transform(every, lambda salt: F.pmod(F.hash(F.col(PART) * SALTS + salt), F.lit(partitions)))


def spread(hot: Iterable[tuple[int, int, Sequence[int]]]) -> dict[int, range]:
    """Choose the salts of hot parts, so that as few as possible share a partition of the shuffle.

    Args:
        hot: for each part, its number of salts, its own number, and the partitions of the salts that it can begin with.
    """
    load: Counter[int] = Counter()
    salts = {}
    for count, part_number, partitions in sorted(hot, reverse=True):

        def shared(start: int, partitions: Sequence[int] = partitions, count: int = count) -> int:
            added = Counter(partitions[start : start + count])
            return sum((load[each] + number) ** 2 - load[each] ** 2 for each, number in added.items())

        # With more salts than were tried, chance balances them well enough.
        start = min(range(max(1, len(partitions) - count + 1)), key=shared)
        load.update(partitions[start : start + count])
        salts[part_number] = range(start, start + count)
    return salts


def plan(prepared: Prepared, choice: schema.Choice, request: Pass) -> DataFrame:
    """Plan one pass over events; no job is run."""
    result = schema.result(request, choice)
    if request.want == "rejected":
        return choice.events_frame.mapInArrow(by_reading(request, prepared.options), result)
    numbers = prepared.numbers
    if prepared.grouped:
        run = by_parts(request, prepared.options, prepared.parts.name, numbers.subscriptions_per_task, prune=numbers.prune)
        return choice.events_frame.mapInArrow(run, result)
    # Every row of the shuffle: its group and kind in one key, what it carries. Only under `all` are there others than
    # subscriptions and events.
    own_fields = [
        StructField(name, field.dataType) for name, field in zip(inner(len(choice.carried)), choice.carried, strict=True)
    ]
    carried = [*([StructField(NOTE, BinaryType())] if request.want == "all" else []), *own_fields]
    shuffled = _routed(prepared, choice, request, carried).union(_copies(prepared, request.backend, carried))
    by = () if numbers.partitions is None else (numbers.partitions,)
    # The group itself is hashed, as `_partitions_of_salts` does.
    sorted_ = shuffled.repartition(*by, F.shiftright(KEY, KIND_BITS)).sortWithinPartitions(KEY)
    as_text = isinstance(choice.event_type, StringType)
    shuffled_matches = sorted_.mapInArrow(by_groups(request, prepared.options, prepared.parts.name, as_text=as_text), result)
    if prepared.snapshot is None:
        return shuffled_matches
    in_place = by_snapshot(request, prepared.snapshot.name, functions=prepared.options.get("cel_functions"), counting=False)
    return choice.events_frame.mapInArrow(in_place, result).union(shuffled_matches)


def _routed(prepared: Prepared, choice: schema.Choice, request: Pass, carried: Sequence[StructField]) -> DataFrame:
    """Return events as rows of the shuffle: one for each part whose filter lets an event pass."""
    numbers = [StructField(KEY, LongType()), StructField(SALTED, LongType())]
    routed = choice.events_frame.mapInArrow(
        route(
            request,
            prepared.options,
            prepared.parts.name,
            prepared.salts,
            prune=prepared.numbers.prune,
            in_place=prepared.in_place,
        ),
        StructType([*numbers, StructField(BODY, BinaryType()), *carried]),
    )
    salt = F.when(F.col(SALTED) > 1, F.pmod(F.xxhash64(BODY), F.col(SALTED))).otherwise(0)
    return routed.select(_salted(salt), BODY, *(field.name for field in carried))


def _salted(salt: Column) -> Column:
    """Return the key of a row in the group with this salt, by its key in the first."""
    return (F.col(KEY) + salt * KINDS).alias(KEY)


def _copies(prepared: Prepared, backend: _backend.Backend, carried: Sequence[StructField]) -> DataFrame:
    """Return subscriptions as rows of the shuffle: one for each salt of their part."""
    copies = prepared.texts.mapInArrow(
        carry_subscriptions(prepared.options, backend, prepared.parts.name, prepared.splits, prepared.salts, prepared.touched),
        f"{KEY} bigint, {SALTED} bigint, {BODY} binary",
    )
    every_salt = F.explode(F.sequence(F.lit(0).cast("bigint"), F.col(SALTED) - 1)).alias("salt")
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in carried]
    return copies.select(KEY, BODY, every_salt).select(_salted(F.col("salt")), BODY, *nulls)


def _ship_parts(
    placed: DataFrame, options: dict[str, Any], fp_rate: float | None, backend: _backend.Backend, *, whole: bool
) -> StoredFile:
    """Make the parts and their filters on the cluster, and let them travel as a file. Raises SubscriptionError."""
    by = ["tenant", "collection", "split"]
    made = (
        placed.repartition(*by)
        .sortWithinPartitions(*by)
        .mapInArrow(
            build_parts(options, backend, fp_rate, whole=whole),
            "tenant string, collection string, split bigint, subscriptions bigint, filter binary, snapshot binary, error string",
        )
    )
    errors = []
    path = new_file()
    try:
        with Writer(path) as writer:
            # One row at a time, so that the driver never has all rows in memory. It fetches one partition after another; the
            # shuffle before it computes them in parallel.
            for row in made.repartition(*by).toLocalIterator(prefetchPartitions=True):
                if row["error"] is not None:
                    errors.append(row["error"])
                    continue
                filter_, snapshot = (bytes(row[name] or b"") for name in ("filter", "snapshot"))
                writer.add(row["tenant"], row["collection"], row["split"], row["subscriptions"], filter_, snapshot)
        _refuse_bad(errors)
        return carry(placed.sparkSession, keep(path, "parts"))
    finally:
        path.unlink(missing_ok=True)


def _ship_snapshot(placed: DataFrame, count: int, options: dict[str, Any], backend: _backend.Backend) -> StoredFile:
    """Compile these subscriptions in one task of the cluster, and ship them as a snapshot.

    Raises:
        StreamerError: their number differs from *count*.
    """
    # Without a filter, because the events of all workers use this snapshot.
    made = placed.repartition(1).mapInArrow(build_snapshot({**options, "bloom": {}}, backend), "snapshot binary")
    path = new_file()
    try:
        with path.open("wb") as file:
            for row in made.toLocalIterator():
                file.write(row["snapshot"])
        if (came := read_directory(path).subscriptions) != count:
            raise StreamerError(f"{came} subscriptions came, {count} were counted: they changed; {CHANGED}")
        return carry(placed.sparkSession, keep(path, "snapshot"))
    finally:
        path.unlink(missing_ok=True)


def _refuse_bad(errors: Sequence[str]) -> None:
    if errors:
        raise BulkSubscriptionError([of_note(error) for error in errors])
