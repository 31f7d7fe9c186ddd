"""Functions that run in Spark's Python workers under cogroup: name, split, build, route, match. cogroup.py has the picture.

Each function here returns the function for a `mapInArrow`. Events are never made Python objects; subscriptions are, to compile
their text, and to check one that names `*` or is odd.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamer import _backend
from streamer.bloom.shipping import LONGEST_LEASE
from streamer.engine.engine import Engine
from streamer.errors import BulkSubscriptionError, InternalError, StreamerError, SubscriptionError
from streamer.events.layout import EventLayout
from streamer.spark.parts import SALTS, Parts, compiled, label, mapped
from streamer.spark.worker import (
    MOST_TALLIES,
    REJECTED,
    ROWS_AT_ONCE,
    Batches,
    Output,
    Pass,
    Sift,
    Tallies,
    choose_backend,
    count,
    inner,
    match_rows,
    named,
    refuse,
    repeated,
)

Split: TypeAlias = tuple[str, str, int]
"""A tenant, a collection, and how many parts it has."""
Salts: TypeAlias = Mapping[int, range]
"""The salts of each part that is salted; another has the salt 0."""
Run: TypeAlias = Callable[[Batches], Batches]
Options: TypeAlias = Mapping[str, Any]

#: Columns of the shuffle, in addition to kept columns, which may have any other name.
PART: Final = "_streamer_part"
SALTED: Final = "_streamer_salts"
KEY: Final = "_streamer_key"
BODY: Final = "_streamer_body"
NOTE: Final = "_streamer_note"

#: Kinds of rows in the shuffle, in the order in which a group has them.
SUBSCRIPTION: Final = 0
EVENT: Final = 1
#: Rows that are only passed on: rejected events, and counts, in groups of their own.
BAD_EVENT: Final = 2
COUNT: Final = 3
#: A row's key is its group, and its kind in the lowest bits: Spark sorts by one number without looking at the rows.
KIND_BITS: Final = 2
KINDS: Final = 1 << KIND_BITS
BAD_EVENTS: Final = (-1 * SALTS, 64)
COUNTED: Final = -2 * SALTS

#: The schema of the rows that `split_subscriptions` makes.
SPLIT_SCHEMA: Final = "tenant string, collection string, split bigint, text string"
#: Bytes of a snapshot in one row: Spark Connect carries messages of at most 128 MiB.
PIECE_BYTES: Final = 8 * 1024 * 1024
#: A filter is used only in the run that it was made for.
LEASE: Final = LONGEST_LEASE
CHANGED: Final = "they must be the same from the call of match_events until its result is computed; persist or write them first"


# Subscriptions


def name_subscriptions(options: Options, backend: _backend.Backend) -> Run:
    """From texts, return tenant, collection and id, or the error: `tenant, collection, id, error`."""

    def name_texts(batches: Batches) -> Batches:
        names = Names(options, backend)
        for batch in batches:
            yield pa.record_batch(names.of(batch.column("text")), names=["tenant", "collection", "id", "error"])

    return name_texts


def split_subscriptions(options: Options, backend: _backend.Backend, splits: Sequence[Split]) -> Run:
    """From texts, return the valid ones, each with its split: `SPLIT_SCHEMA`."""

    def split_texts(batches: Batches) -> Batches:
        names, parts_of = Names(options, backend), _parts_of(splits)
        for batch in batches:
            tenant, collection, id_, error = names.of(batch.column("text"))
            split = _split(tenant, collection, id_, parts_of)
            yield pa.record_batch(
                [tenant, collection, split, batch.column("text")], names=["tenant", "collection", "split", "text"]
            ).filter(pc.is_null(error))

    return split_texts


def splits_in(parts_name: str, part_numbers: frozenset[int]) -> Run:
    """From the rows of `split_subscriptions`, return those in these parts."""

    def pick_texts(batches: Batches) -> Batches:
        parts = mapped(parts_name)
        places = {(*parts.name(number), number - parts.numbers(*parts.name(number))[0]) for number in part_numbers}
        for batch in batches:
            names = zip(*(batch.column(name).to_pylist() for name in ("tenant", "collection", "split")), strict=True)
            yield batch.filter(pa.array([name in places for name in names], pa.bool_()))

    return pick_texts


def carry_subscriptions(
    options: Options,
    backend: _backend.Backend,
    parts_name: str,
    splits: Sequence[Split],
    salts: Salts,
    touched: bytes,
) -> Run:
    """From texts, return those whose part gets events: key in the part's first group, number of groups, `body`."""
    only = range(1)

    def carry_texts(batches: Batches) -> Batches:
        names, parts_of, parts = Names(options, backend), _parts_of(splits), mapped(parts_name)
        for batch in batches:
            tenant, collection, id_, _ = names.of(batch.column("text"))
            split = _split(tenant, collection, id_, parts_of)
            numbers = []
            places: dict[tuple[Any, ...], int | None] = {}
            for place in zip(tenant.to_pylist(), collection.to_pylist(), split.to_pylist(), strict=True):
                if place not in places:
                    places[place] = _part_number(parts, *place, touched)
                numbers.append(places[place])
            met = pa.array(numbers, pa.int64())
            ranges = [only if part_number is None else salts.get(part_number, only) for part_number in numbers]
            rows = pa.record_batch(
                {
                    KEY: _keys(met, pa.array([each.start for each in ranges], pa.int64()), SUBSCRIPTION),
                    SALTED: pa.array(map(len, ranges), pa.int64()),
                    BODY: batch.column("text").cast(pa.binary()),
                }
            )
            yield rows.filter(pc.is_valid(met))

    return carry_texts


def _keys(part_numbers: pa.Array, salts: pa.Array, kind: int) -> pa.Array:
    """Return the keys of rows of a kind in the groups of these parts with these salts; null if the part is null."""
    return pc.add(pc.multiply(pc.add(pc.multiply(part_numbers, SALTS), salts), KINDS), kind)


def _part_number(parts: Parts, tenant: str | None, collection: str | None, split: int, touched: bytes) -> int | None:
    """Return the part of a subscription; None if the part gets no events."""
    if tenant is None or collection is None:
        raise StreamerError(f"the subscriptions changed: one cannot be read any more; {CHANGED}")
    numbers = parts.numbers(tenant, collection)
    if split >= len(numbers):
        raise StreamerError(f"the subscriptions changed: {tenant}/{collection} was not there; {CHANGED}")
    part_number = numbers[split]
    return part_number if part_number // 8 < len(touched) and touched[part_number // 8] >> part_number % 8 & 1 else None


class Names:
    """Reads tenant, collection and id of subscriptions: natively if ordinary, with the engine's own errors if odd."""

    _LAYOUT: Final = EventLayout(type=None, ts=None, topic=None, data="/\0", before=None, unknown=None)

    def __init__(self, options: Options, backend: _backend.Backend) -> None:
        choose_backend(backend)
        self._default: Final[str | None] = options.get("default_tenant", "default")
        # Read as if they were events, because this also reads tenant and collection without the rest.
        self._reader: Final = Engine(layout=self._LAYOUT, default_tenant=self._default)
        #: Checks one odd subscription at a time.
        self._checker: Final = Engine(**options)

    def of(self, texts: pa.Array) -> list[pa.Array]:
        """Return tenant, collection (`*` for every one), id and error; either the error is null, or the other three are."""
        events, rejected = self._reader.locate_arrow(texts)
        odd = set(rejected.column("row").to_pylist())
        odd.update(pc.indices_nonzero(pc.is_null(events.column("event_id"))).to_pylist())
        tenants, ids = events.column("tenant"), events.column("event_id")
        collections = events.column("collection").fill_null("*")
        errors = pa.nulls(len(texts), pa.string())
        if odd:
            read = {row: self._read(texts[row].as_py()) for row in odd}
            columns = [tenants.to_pylist(), collections.to_pylist(), ids.to_pylist(), errors.to_pylist()]
            for row, values in read.items():
                for column, value in zip(columns, values, strict=True):
                    column[row] = value
            tenants, collections, ids, errors = (pa.array(column, pa.string()) for column in columns)
        return [tenants, collections, ids, errors]

    def _read(self, text: str | None) -> tuple[str | None, str | None, str | None, str | None]:
        try:
            if text is None:
                raise SubscriptionError("expected JSON text, not null")
            self._checker.apply([text])
        except BulkSubscriptionError as bulk:
            return None, None, None, as_note(bulk.errors[0])
        except SubscriptionError as error:
            return None, None, None, as_note(error)
        (subscription,) = self._checker.subscriptions()
        tenant = subscription.tenant if subscription.tenant is not None else self._default
        return tenant, subscription.collection if subscription.collection is not None else "*", subscription.id, None


def as_note(error: SubscriptionError) -> str:
    """Return an error as text, for `of_note` on the driver."""
    return json.dumps({"reason": error.reason, "place": error.place, "subscription_id": error.subscription_id})


def of_note(text: str) -> SubscriptionError:
    return SubscriptionError(**json.loads(text))


def _parts_of(splits: Sequence[Split]) -> dict[tuple[str, str], int]:
    return {(tenant, collection): parts for tenant, collection, parts in splits}


def _split(tenants: pa.Array, collections: pa.Array, ids: pa.Array, parts_of: Mapping[tuple[str, str], int]) -> pa.Array:
    """Return the split of each subscription: a hash of its id, which is the same in every process."""
    if not parts_of:
        return repeated(0, len(ids), pa.int64())
    named = zip(tenants.to_pylist(), collections.to_pylist(), ids.to_pylist(), strict=True)
    return pa.array(
        [zlib.crc32((id_ or "").encode()) % parts_of.get((tenant, collection), 1) for tenant, collection, id_ in named],
        pa.int64(),
    )


def build_parts(options: Options, backend: _backend.Backend, fp_rate: float | None, *, whole: bool = False) -> Run:
    """From texts sorted by part, compile each part and return its filter, or the errors of its subscriptions.

    The columns are tenant, collection, split, subscriptions, filter, snapshot, error.

    Args:
        whole: also return the compiled part, as a snapshot.
    """
    names = ["tenant", "collection", "split", "subscriptions", "filter", "snapshot", "error"]
    types = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.binary(), pa.binary(), pa.string()]

    def built(part: tuple[str, str, int], texts: list[str]) -> list[tuple[Any, ...]]:
        engine = Engine(**options)
        try:
            engine.add_many(texts)
        except BulkSubscriptionError as bulk:
            return [(*part, 0, None, None, as_note(error)) for error in bulk.errors[: BulkSubscriptionError.SHOWN]]
        data = b""
        if fp_rate is not None:
            data = engine.bloom.export(label(part[0]), label(part[1]), lease=LEASE, fp_rate=fp_rate)
        return [(*part, len(texts), data, compiled(engine) if whole else None, None)]

    def build_filters(batches: Batches) -> Batches:
        choose_backend(backend)
        part: tuple[str, str, int] | None = None
        texts: list[str] = []
        rows: list[tuple[Any, ...]] = []
        size = 0

        def flushed() -> pa.RecordBatch:
            arrays = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
            rows.clear()
            return pa.record_batch(arrays, names=names)

        for batch in batches:
            for run_ in runs(batch, ("tenant", "collection", "split")):
                key = tuple(run_.column(name)[0].as_py() for name in ("tenant", "collection", "split"))
                if part is not None and key != part:
                    rows += built(part, texts)
                    texts = []
                    size += len(rows[-1][4] or b"") + len(rows[-1][5] or b"") + 100
                    if size > ROWS_AT_ONCE * 16:
                        yield flushed()
                        size = 0
                part = key
                texts += run_.column("text").to_pylist()
        if part is not None:
            rows += built(part, texts)
        if rows:
            yield flushed()

    return build_filters


def build_snapshot(options: Options, backend: _backend.Backend, piece_bytes: int = PIECE_BYTES) -> Run:
    """From all texts, return one snapshot, in pieces: `snapshot`."""

    def compile_texts(batches: Batches) -> Batches:
        choose_backend(backend)
        engine = Engine(**options)
        for batch in batches:
            engine.add_many(batch.column("text").to_pylist())
        data = compiled(engine)
        for start in range(0, len(data), piece_bytes):
            yield pa.record_batch({"snapshot": pa.array([data[start : start + piece_bytes]], pa.binary())})

    return compile_texts


# Events


class Router:
    """Computes the parts that each event of a batch goes to.

    Args:
        unasked: parts that get all events of their tenant and collection, without their filters.
    """

    def __init__(self, options: Options, parts: Parts, *, prune: bool, unasked: frozenset[int] = frozenset()) -> None:
        self.engine: Final = Engine(**options)
        self._parts: Final = parts
        self._prune: Final = prune
        self._unasked: Final = unasked

    def locate(self, events: pa.Array) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the result of `Engine.locate_arrow`."""
        located: tuple[pa.RecordBatch, pa.RecordBatch] = self.engine.locate_arrow(events)
        return located

    def route(self, events: pa.Array, located: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return pairs of a part's number and a row of the batch: one pair for each part that may match the row."""
        table = pa.table(
            {
                "tenant": located.column("tenant"),
                "collection": located.column("collection"),
                "row": pa.array(range(len(events)), pa.int64()),
            }
        )
        together = table.group_by(["tenant", "collection"]).aggregate([("row", "list")])
        rows_of: dict[tuple[str, str], list[pa.Array]] = {}
        lists = together.column("row_list").combine_chunks()
        for at, (tenant, collection) in enumerate(
            zip(together.column("tenant").to_pylist(), together.column("collection").to_pylist(), strict=True)
        ):
            if tenant is None:
                # These events are rejected or ignored.
                continue
            rows = lists[at].values
            for t in (tenant, "*"):
                for c in (collection, "*") if collection is not None else ("*",):
                    if self._parts.numbers(t, c):
                        rows_of.setdefault((t, c), []).append(rows)
        numbers, passing = [], []
        for (tenant, collection), lists_ in rows_of.items():
            rows = pa.concat_arrays(lists_)
            texts: pa.Array | None = None
            for part_number in self._parts.numbers(tenant, collection):
                passed = rows
                if self._prune and part_number not in self._unasked:
                    texts = events.take(rows) if texts is None else texts
                    passed = rows.filter(self._parts.may_match(part_number, texts))
                if len(passed):
                    numbers.append(repeated(part_number, len(passed), pa.int64()))
                    passing.append(passed)
        empty = pa.array([], pa.int64())
        return pa.concat_arrays([empty, *numbers]), pa.concat_arrays([empty, *passing])


def sieve(request: Pass, options: Options, parts_name: str) -> Callable[[], Sift]:
    """Return the factory of the sieve for `by_snapshot`: the parts' filters, which here are the sections of a snapshot."""

    def made() -> Sift:
        router = Router(options, mapped(parts_name), prune=True)

        def sift(batch: pa.RecordBatch, tallies: Tallies) -> pa.Array:
            events = batch.column(request.event_col)
            located, _ = router.locate(events)
            _, picked = router.route(events, located)
            stopped = _stopped(located, picked)
            if request.want == "all":
                for name in ("events", "pruned"):
                    tallies.add(name, located.column("tenant").filter(stopped), located.column("collection").filter(stopped))
            # The part that matches the rest reports rejected and ignored events.
            return pc.indices_nonzero(pc.invert(stopped)).cast(pa.int64())

        return sift

    return made


def touch(request: Pass, options: Options, parts_name: str, *, prune: bool) -> Run:
    """Count the events that go to each part: `part_number, events`; the row with null counts all events that were read."""

    def touch_parts(batches: Batches) -> Batches:
        request.begin()
        router: Router | None = None
        counts: dict[int | None, int] = {}
        for batch in batches:
            router = router or Router(options, mapped(parts_name), prune=prune)
            counts[None] = counts.get(None, 0) + batch.num_rows
            events = batch.column(request.event_col)
            numbers, _ = router.route(events, router.locate(events)[0])
            counted = pc.value_counts(numbers)
            for part_number, number in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
                counts[part_number] = counts.get(part_number, 0) + number
        if counts:
            yield pa.record_batch({PART: pa.array(counts.keys(), pa.int64()), "events": pa.array(counts.values(), pa.int64())})

    return touch_parts


def route(request: Pass, options: Options, parts_name: str, salts: Salts, *, prune: bool, in_place: frozenset[int]) -> Run:
    """Send events to the parts that may match them: key in the part's first group, number of groups, `body` [, `NOTE`], kept.

    Args:
        in_place: parts that are matched in place: their events are counted here, and not sent.
    """
    local_parts = pa.array(sorted(in_place), pa.int64())

    def route_events(batches: Batches) -> Batches:
        request.begin()
        router: Router | None = None
        tallies = Tallies()
        first = 0
        input_schema: pa.Schema | None = None

        def rows(
            batch: pa.RecordBatch | None,
            keys: pa.Array,
            salted: pa.Array,
            picked: pa.Array,
            notes: pa.Array | None,
        ) -> pa.RecordBatch:
            parts = {KEY: keys, SALTED: salted}
            if batch is None:
                parts[BODY] = pa.nulls(len(keys), pa.binary())
            else:
                parts[BODY] = batch.column(request.event_col).take(picked).cast(pa.binary())
            if request.want == "all":
                parts[NOTE] = pa.nulls(len(keys), pa.binary()) if notes is None else notes
            assert input_schema is not None
            for name, own in zip(request.keep, inner(len(request.keep)), strict=True):
                parts[own] = (
                    pa.nulls(len(keys), input_schema.field(name).type) if batch is None else batch.column(name).take(picked)
                )
            return pa.record_batch(parts)

        def counts() -> Batches:
            totals = pa.array([json.dumps(row).encode() for row in tallies.take()], pa.binary())
            if len(totals):
                keys = repeated(COUNTED * KINDS + COUNT, len(totals), pa.int64())
                yield rows(None, keys, repeated(1, len(totals), pa.int64()), keys, totals)

        for batch in (named(request, each) for each in batches):
            router = router or Router(options, mapped(parts_name), prune=prune, unasked=in_place)
            input_schema = batch.schema
            events = batch.column(request.event_col)
            located, rejected = router.locate(events)
            if request.fail:
                refuse(request, router.engine, batch, rejected, first.__add__)
            first += batch.num_rows
            numbers, wanted = router.route(events, located)
            sent = pc.invert(pc.is_in(numbers, value_set=local_parts))
            numbers, picked = numbers.filter(sent), wanted.filter(sent)
            if len(numbers):
                first_salts, salted = (repeated(number, len(numbers), pa.int64()) for number in (0, 1))
                for part_number, each in salts.items():
                    of_part = pc.equal(numbers, part_number)
                    first_salts = pc.if_else(of_part, each.start, first_salts)
                    salted = pc.if_else(of_part, len(each), salted)
                yield rows(batch, _keys(numbers, first_salts, EVENT), salted, picked, None)
            if request.want == "all":
                if rejected.num_rows:
                    refusals = pa.array(
                        [json.dumps(row).encode() for row in rejected.drop_columns("row").to_pylist()], pa.binary()
                    )
                    first_group, groups = BAD_EVENTS
                    keys = repeated(first_group * KINDS + BAD_EVENT, len(refusals), pa.int64())
                    yield rows(batch, keys, repeated(groups, len(refusals), pa.int64()), rejected.column("row"), refusals)
                count(tallies, located, rejected)
                tallies.add("shuffled", located.column("tenant").take(picked), located.column("collection").take(picked))
                count_stopped(tallies, located, wanted)
                if len(tallies) > MOST_TALLIES:
                    yield from counts()
        if input_schema is not None:
            yield from counts()

    return route_events


def count_stopped(tallies: Tallies, located: pa.RecordBatch, picked: pa.Array) -> None:
    """Count the readable events that no part gets."""
    tenants, collections = located.column("tenant"), located.column("collection")
    stopped = _stopped(located, picked)
    tallies.add("pruned", tenants.filter(stopped), collections.filter(stopped))


def _stopped(located: pa.RecordBatch, picked: pa.Array) -> pa.BooleanArray:
    """Return whether each event is readable but was not picked."""
    rows = pa.array(range(located.num_rows), pa.int64())
    return pc.and_(pc.is_valid(located.column("tenant")), pc.invert(pc.is_in(rows, value_set=pc.unique(picked))))


# Subscriptions and events together


def by_groups(request: Pass, options: Options, parts_name: str, *, as_text: bool) -> Run:
    """Match events group by group, from rows sorted by key: in each group the subscriptions come first."""

    def match_by_groups(batches: Batches) -> Batches:
        request.begin()
        return gathered(_by_groups(request, options, mapped(parts_name), batches, as_text=as_text))

    return match_by_groups


def _by_groups(request: Pass, options: Options, parts: Parts, batches: Batches, *, as_text: bool) -> Batches:
    group: int | None = None
    texts: list[str] = []
    engine: Engine | None = None
    # Salts of one part often come one after another.
    compiled: tuple[int, Engine] | None = None
    output: Output | None = None
    tallies = Tallies()
    for batch in (named(request, each) for each in batches):
        events = batch.column(BODY).cast(pa.string()) if as_text else batch.column(BODY)
        table = pa.record_batch({request.event_col: events, **{name: batch.column(name) for name in request.keep}})
        output = output or Output(request, table.schema)
        start = 0
        for run in runs(batch.select([KEY]), (KEY,)):
            end = start + run.num_rows
            this, kind = divmod(run.column(KEY)[0].as_py(), KINDS)
            rows = table.slice(start, run.num_rows)
            if this != group:
                group, texts, engine = this, [], None
            if kind == SUBSCRIPTION:
                if engine is not None:
                    raise InternalError("a subscription after the events of its group")
                texts += batch.column(BODY).slice(start, run.num_rows).cast(pa.string()).to_pylist()
            elif kind == EVENT:
                if engine is None:
                    part_number = this // SALTS
                    if len(texts) != (expected := parts.subscriptions(part_number)):
                        name = "/".join(parts.name(part_number))
                        changed = f"{len(texts)} subscriptions came, {expected} were counted: these or the events changed"
                        raise StreamerError(f"{name}: {changed}; {CHANGED}")
                    if compiled is None or compiled[0] != part_number:
                        compiled = None
                        made = Engine(**options)
                        made.add_many(texts)
                        compiled = (part_number, made)
                    texts, engine = [], compiled[1]
                yield from match_rows(request, output, engine, rows, tallies, counting=False)
            else:
                notes = [json.loads(each) for each in batch.column(NOTE).slice(start, run.num_rows).to_pylist()]
                if kind == COUNT:
                    for row in notes:
                        tallies.merge(row)
                else:
                    columns = {name: pa.array([row[name] for row in notes]) for name in ("code", "detail", "position")}
                    parts_ = {
                        "kind": repeated(REJECTED, len(notes), pa.int8()),
                        "event": rows.column(request.event_col),
                        **columns,
                    }
                    yield output.batch(len(notes), {**parts_, **{name: rows.column(name) for name in request.keep}})
            start = end
    if output is not None and request.want == "all":
        yield from tallies.rows(output)


def runs(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Cut a batch at each change of any of these columns."""
    ends: set[int] = set()
    for name in names:
        ends.update(pc.run_end_encode(batch.column(name)).run_ends.to_pylist())
    start = 0
    for end in sorted(ends):
        yield batch.slice(start, end - start)
        start = end


def gathered(batches: Iterable[pa.RecordBatch]) -> Batches:
    """Put small batches together: each costs Spark as much as some hundred rows."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_AT_ONCE // 8 or len(pending) >= 1000:
            yield pa.concat_batches(pending)
            pending, rows = [], 0
    if pending:
        yield pa.concat_batches(pending)
