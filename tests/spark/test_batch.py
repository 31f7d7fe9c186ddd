"""What the embedded engine says of each event is what Spark says, by either strategy, however the rows lie."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import BulkSubscriptionError, ConfigError, Engine, EventError, SnapshotError
from streamer.core.snapshot import read_directory
from tests.conformance.table import Case, load_all, load_known_failures
from tests.conformance.together import Found, by_format
from tests.generators import agreeing_event, agreeing_subscription, random_text

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark.errors import PythonException
from pyspark.sql import Observation

from streamer.spark import (
    CogroupOptions,
    broadcast,
    cogroup,
    files,
    match_batches,
    match_events,
    match_stream,
    matches_of,
    publish,
    register,
    rejected_of,
    tallies_of,
)
from streamer.spark.worker import Pass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What matches in a worker is tested on both backends elsewhere; what Spark does besides is the same on each.
pytestmark = pytest.mark.later_on_the_reference

STRATEGIES = ("broadcast", "cogroup")
#: So few that a small set is split, and a few events are salted.
SMALL = CogroupOptions(subscriptions_per_task=7, events_per_task=25, subscriptions_in_place=0)
#: Some of what is hot is matched where its events lie, the rest is salted.
IN_PLACE = replace(SMALL, subscriptions_in_place=20)
#: Every way of matching.
WAYS = {"broadcast": ("broadcast", None), "salted": ("cogroup", SMALL), "in place": ("cogroup", IN_PLACE)}

Row = tuple[Any, ...]


def expected(engine: Engine, events: list[bytes]) -> Counter[Row]:
    """The row for each match, by the embedded engine; `n` is which event it is of."""
    rows: Counter[Row] = Counter()
    for n, event in enumerate(events):
        try:
            matches = engine.match(event)
        except EventError:
            continue
        rows.update((n, match.subscription_id, match.gateway_id, match.transition, match.certain) for match in matches)
    return rows


def rejected(engine: Engine, events: list[bytes]) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for n, event in enumerate(events):
        try:
            engine.match(event)
        except EventError as error:
            rows[n, event, error.code.value, error.offset] += 1
    return rows


def frame(spark: SparkSession, events: list[bytes], partitions: int) -> DataFrame:
    rows = [(n, bytearray(event)) for n, event in enumerate(events)]
    return spark.createDataFrame(rows, "n int, value binary").repartition(partitions)


def plan_of(matches: DataFrame) -> str:
    frame: Any = matches
    return str(frame._jdf.queryExecution().executedPlan().toString())


def rows_of(matches: DataFrame) -> Counter[Row]:
    rows = matches.select("n", "subscription_id", "gateway_id", "transition", "certain").collect()
    return Counter(tuple(row) for row in rows)


def random_engine(rng: random.Random, size: int) -> Engine:
    engine = Engine()
    for n in range(size):
        engine.add_many([json.dumps(agreeing_subscription(rng, f"s{n}"))], on_error="skip")
    return engine


def random_events(rng: random.Random, number: int) -> list[bytes]:
    events = [random_text(rng, agreeing_event(rng)) for _ in range(number)]
    events[::50] = [event[: rng.randrange(len(event))] for event in events[::50]]
    return events


@pytest.mark.parametrize("way", WAYS)
def test_random_sets_match_as_in_the_embedded_engine(spark: SparkSession, backend: str, way: str) -> None:
    """Also with `*`, transitions, unknowns, bad events, splits, salts, and one event a partition in places."""
    strategy, numbers = WAYS[way]
    options: dict[str, Any] = {"strategy": strategy, "keep": ["n"], "cogroup_options": numbers}
    rng = random.Random(11)
    engine = random_engine(rng, 60)
    events = random_events(rng, 300)
    source = frame(spark, events, 7)
    result = match_events(source, engine, **options)
    assert ("match_by_snapshot" in plan_of(result.matches)) == (way != "salted")
    want = expected(engine, events)
    assert rows_of(result.matches) == want
    assert len(want) > 300, "too few matches to tell"
    bad = result.rejected.select("n", "event", "code", "position").collect()
    assert Counter((row.n, bytes(row.event), row.code, row.position) for row in bad) == rejected(engine, events)
    # Another order, and other partitions.
    again = match_events(source.orderBy("value").coalesce(2), engine, **options)
    assert rows_of(again.matches) == want


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_tenant_with_most_events_is_matched_right_however_spark_joins_and_cuts_partitions(
    spark: SparkSession, backend: str, adaptive: bool
) -> None:
    """Adaptive execution joins partitions to the size that it is told, and may cut a skewed one: a group must stay whole."""
    rng = random.Random(17)
    engine, events = Engine(), []
    for n in range(60):
        tenant = rng.choice(["large", "large", "large", "*", "small"])
        engine.add_many([json.dumps(agreeing_subscription(rng, f"s{n}") | {"tenant": tenant})], on_error="skip")
    for _ in range(400):
        tenant = "large" if rng.random() < 0.95 else rng.choice(["small", "nobody's"])
        events.append(random_text(rng, agreeing_event(rng) | {"tenant": tenant}))
    want = expected(engine, events)
    assert len(want) > 300, "too few matches to tell"
    settings = {
        "spark.sql.adaptive.enabled": str(adaptive).lower(),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1k",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1k",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        for strategy in STRATEGIES:
            result = match_events(frame(spark, events, 7), engine, strategy=strategy, keep=["n"], cogroup_options=SMALL)
            assert rows_of(result.matches) == want, strategy
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_every_match_has_is_never_null(spark: SparkSession, backend: str, strategy: Any) -> None:
    """And all else may be: an event needs no id, no collection and no type, a subscription no gateway."""
    engine = Engine()
    engine.add({"id": "s"})
    result = match_events(frame(spark, [b"{}"], 1), engine, strategy=strategy)
    assert {field.name for field in result.matches.schema if not field.nullable} == {"tenant", "subscription_id", "certain"}
    (row,) = result.matches.collect()
    assert (row.tenant, row.subscription_id, row.certain) == ("default", "s", True)
    assert (row.event_id, row.collection, row.type, row.gateway_id, row.transition) == (None,) * 5


def test_a_damaged_snapshot_is_refused_by_the_driver_and_spoils_no_good_one(
    spark: SparkSession, backend: str, tmp_path: Path
) -> None:
    """Both say that they hold the same, and what is carried is named by that."""
    engine = Engine()
    # The session keeps what another run of this test carried.
    engine.add({"id": f"damaged in the middle, {backend}", "collection": "c"})
    engine.save(tmp_path / "good")
    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "bad").write_bytes(whole.replace(b"in the middle", b"on the middle"))
    events = frame(spark, [b'{"collection": "c"}'], 1)
    with pytest.raises(SnapshotError, match="damaged") as caught:
        match_events(events, tmp_path / "bad", strategy="broadcast")
    assert caught.value.path == str(tmp_path / "bad")
    assert match_events(events, tmp_path / "good", strategy="broadcast").matches.count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batch_size_says_how_many_events_a_worker_matches_at_once(
    spark: SparkSession, backend: str, strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the workers by either strategy, of the call and of the engine, and changes nothing that matches."""
    recorded = []

    def heard(make: Any) -> Any:
        def made(request: Pass, how: Any, *rest: Any, **named: Any) -> Any:
            # Broadcast carries a file, cogroup the options.
            options = how if isinstance(how, dict) else read_directory(next(files.folder().glob(f"*/{how}"))).engine_options()
            recorded.append((request.batch_size, options["batch_size"]))
            return make(request, how, *rest, **named)

        return made

    monkeypatch.setattr(broadcast, "by_snapshot", heard(broadcast.by_snapshot))
    monkeypatch.setattr(cogroup, "by_groups", heard(cogroup.by_groups))
    rng = random.Random(13)
    subscriptions, events = list(random_engine(rng, 40).subscriptions()), random_events(rng, 60)
    engine = Engine(batch_size=9)
    engine.add_many(subscriptions)
    source = frame(spark, events, 2)
    for batch_size in (7, None):
        recorded.clear()
        result = match_events(source, engine, strategy=strategy, keep=["n"], batch_size=batch_size)
        assert set(recorded) == {(batch_size, 9)}
        assert rows_of(result.matches) == expected(engine, events)
    with pytest.raises(ValueError, match="batch_size"):
        match_events(source, engine, strategy=strategy, batch_size=0)


def table_of_cases() -> dict[str, list[Case]]:
    """Cases that one engine can hold together, by their options."""
    known = {(failure.file, failure.name) for failure in load_known_failures()}
    together: dict[str, list[Case]] = {}
    for case in load_all():
        if case.event is None or case.subscription_error is not None or (case.file, case.name) in known:
            continue
        # Arguments of `match` are not Spark's to give.
        if case.tenant is None and case.collection is None and "full" in case.validation:
            options = [case.layout.to_dict(), case.soft_delete, case.default_tenant, case.topic_dialect, repr(case.limits)]
            together.setdefault(json.dumps(options), []).append(case)
    return together


def alone(case: Case, tenant: str) -> tuple[dict[str, str], bytes]:
    """Give a case a tenant of its own, where it says nothing of any, so that its event meets its subscriptions alone."""
    event = case.event or b""
    if (
        case.event_error is not None
        or case.ignored is not None
        or b"tenant" in event
        or any("tenant" in text for text in case.subscriptions)
    ):
        return {}, event
    begin, rest = event.split(b"{", 1)
    comma = b"" if rest.lstrip().startswith(b"}") else b", "
    return {"tenant": tenant}, begin + b'{"tenant": "' + tenant.encode() + b'"' + comma + rest


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_table_of_cases_holds_on_spark(spark: SparkSession, backend: str, strategy: Any) -> None:
    """All cases that share their options are one run."""
    step = 1 if backend == "native" else 40
    cases = max(table_of_cases().values(), key=len)[::step]
    assert len(cases) > 2000 // step
    first = cases[0]
    engine = Engine(layout=first.layout, soft_delete=first.soft_delete, default_tenant=first.default_tenant, limits=first.limits)
    own: list[dict[str, str]] = []
    events = []
    for number, case in enumerate(cases):
        tenant, event = alone(case, f"case {number}")
        events.append(event)
        named = {}
        for text in case.subscriptions:
            probe = Engine(layout=first.layout, default_tenant=first.default_tenant, limits=first.limits)
            probe.add(text)
            (stored,) = probe.subscriptions()
            named[f"{number}/{stored.id}"] = stored.id
            engine.add({**stored.to_dict(), **tenant, "id": f"{number}/{stored.id}"})
        own.append(named)
    result = match_events(frame(spark, events, 3), engine, strategy=strategy, keep=["n"])
    got = rows_of(result.matches)
    assert got == expected(engine, events)
    ids: list[set[str]] = [set() for _ in cases]
    for n, subscription_id, *_ in got:
        if subscription_id in own[n]:
            ids[n].add(own[n][subscription_id])
    for case, got_ids in zip(cases, ids, strict=True):
        assert got_ids == (case.expect_ids or frozenset()), case.id
    codes = {row.n: (row.code, row.position) for row in result.rejected.select("n", "code", "position").collect()}
    for n, case in enumerate(cases):
        if case.event_error is None:
            assert n not in codes, case.id
        else:
            assert codes[n][0] == case.event_error["code"], case.id
            assert codes[n][1] == case.event_error.get("offset", codes[n][1]), case.id


@pytest.mark.slow
def test_the_cases_of_each_format_hold_on_spark(spark: SparkSession, backend: str) -> None:
    """One job matches the records of all formats."""
    formats = by_format()
    parts: list[DataFrame] = []
    for name, cases in formats.items():
        engine = Engine(format=name)
        engine.add_many(cases.subscriptions)
        rows = [(f"{name}/{number}", bytearray(event)) for number, event in enumerate(cases.events)]
        source = spark.createDataFrame(rows, "n string, value binary").coalesce(1)
        result = match_events(source, engine, strategy="broadcast", keep=["n"])
        parts.append(result.matches.selectExpr("n", "subscription_id", "transition", "certain"))
        parts.append(result.rejected.selectExpr("n", "null as subscription_id", "null as transition", "null as certain"))
    matches: dict[str, list[tuple[int, Found]]] = {name: [] for name in formats}
    bad: dict[str, set[int]] = {name: set() for name in formats}
    for row in reduce(lambda one, other: one.union(other), parts).collect():
        name, _, number = row.n.rpartition("/")
        if row.subscription_id is None:
            bad[name].add(int(number))
        else:
            matches[name].append((int(number), (row.subscription_id, row.transition, row.certain)))
    wrong = {name: cases.wrong(matches[name], bad[name]) for name, cases in formats.items()}
    assert not any(wrong.values()), wrong


ORDERS = [
    {"id": "de", "gateway_id": "g", "collection": "orders", "filters": [{"field": "country", "op": "==", "value": "DE"}]},
    {"id": "large", "collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 100}]},
    {"id": "any", "filters": [{"field": "country", "op": "==", "value": "DE"}]},
]
EVENTS = [
    '{"id": 1, "collection": "orders", "type": "insert", "data": {"country": "DE", "amount": 250}}',
    '{"id": "2", "collection": "users", "type": "delete", "data": {"country": "DE"}}',
    '{"id": 3, "collection": "orders", "data": {"country": "FR", "amount": 1}}',
    '{"collection": "orders", "data": tru}',
    None,
]
IDS = {("1", "de"), ("1", "large"), ("1", "any"), ("2", "any")}


def orders() -> Engine:
    engine = Engine()
    engine.add_many(ORDERS)
    return engine


def texts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(text,) for text in EVENTS], "value string")


def pairs(matches: DataFrame) -> set[tuple[str, str]]:
    return {(row.event_id, row.subscription_id) for row in matches.collect()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_subscriptions_come_in_any_form(spark: SparkSession, strategy: Any, tmp_path: Path) -> None:
    lines = tmp_path / "subscriptions.jsonl"
    lines.write_text("\n".join(map(json.dumps, ORDERS)) + "\n\n")
    snapshot = tmp_path / "engine.snapshot"
    orders().save(snapshot)
    columns = "id string, gateway_id string, collection string, filters array<struct<field:string,op:string,value:variant>>"
    members = spark.createDataFrame([(json.dumps(each),) for each in ORDERS], "text string")
    forms: dict[str, Any] = {
        "engine": orders(),
        "snapshot": snapshot,
        "lines": str(lines),
        "texts": members,
        "columns": members.selectExpr(f"inline(array(from_json(text, '{columns}')))"),
    }
    for name, form in forms.items():
        assert pairs(match_events(texts(spark), form, strategy=strategy).matches) == IDS, name


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_say_all_of_a_match_and_of_a_rejection(spark: SparkSession, backend: str, strategy: Any) -> None:
    result = match_events(texts(spark), orders(), strategy=strategy, keep_event=True)
    (row,) = result.matches.where("subscription_id = 'de'").collect()
    assert row.asDict() == {
        "event_id": "1",
        "tenant": "default",
        "collection": "orders",
        "type": "insert",
        "subscription_id": "de",
        "gateway_id": "g",
        "transition": "enter",
        "certain": True,
        "event": EVENTS[0],
    }
    bad = {row.event: (row.code, row.position) for row in result.rejected.collect()}
    assert bad == {EVENTS[3]: ("malformed_json", 36)}
    assert all(row.detail for row in result.rejected.collect())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_counts_add_up(spark: SparkSession, backend: str, strategy: Any) -> None:
    observation = Observation()
    result = match_events(texts(spark), orders(), strategy=strategy, observation=observation)
    assert pairs(result.matches) == IDS
    counts = observation.get
    assert (counts["events"], counts["rejected"], counts["ignored"], counts["matches"]) == (5, 1, 1, 4)
    outcomes = match_events(texts(spark), orders(), strategy=strategy).outcomes.persist()
    try:
        assert pairs(matches_of(outcomes)) == IDS
        assert rejected_of(outcomes).count() == 1
        tallies = {(row.tenant, row.collection): row for row in tallies_of(outcomes).collect()}
    finally:
        outcomes.unpersist()
    assert {name: (row.events, row.rejected, row.ignored, row.matches) for name, row in tallies.items()} == {
        ("default", "orders"): (2, 0, 0, 3),
        ("default", "users"): (1, 0, 0, 1),
        (None, None): (2, 1, 1, 0),
    }
    if strategy == "cogroup":
        # Of the orders one is sent to the part of its collection and to that of every collection; nobody can want the other.
        assert (tallies["default", "orders"].pruned, tallies["default", "orders"].shuffled) == (1, 2)
        assert (tallies["default", "users"].pruned, tallies["default", "users"].shuffled) == (0, 1)
    else:
        assert (tallies["default", "orders"].matched, tallies["default", "users"].matched) == (1, 1)


def test_counts_are_the_same_where_events_stay_in_place(spark: SparkSession, backend: str) -> None:
    rng = random.Random(12)
    engine, events = random_engine(rng, 60), random_events(rng, 300)
    source = frame(spark, events, 3)
    recorded = {}
    for way in ("salted", "in place"):
        outcomes = match_events(source, engine, strategy="cogroup", cogroup_options=WAYS[way][1]).outcomes.persist()
        try:
            rows = tallies_of(outcomes).collect()
            assert rejected_of(outcomes).count() == sum(rejected(engine, events).values())
            assert sum(row.matches for row in rows) == sum(expected(engine, events).values())
        finally:
            outcomes.unpersist()
        counts = ("events", "rejected", "ignored", "matches")
        recorded[way] = (
            {(row.tenant, row.collection): [row[name] for name in counts] for row in rows},
            sum(row.shuffled for row in rows),
        )
    assert recorded["salted"][0] == recorded["in place"][0]
    assert recorded["in place"][1] < recorded["salted"][1]


def test_files_of_parts_in_place_are_removed_too(spark: SparkSession) -> None:
    rng = random.Random(13)
    engine, events = random_engine(rng, 60), random_events(rng, 300)
    with match_events(frame(spark, events, 3), engine, strategy="cogroup", cogroup_options=IN_PLACE) as result:
        result.matches.count()
        before = {each.name for each in files.gone(spark)}
    gone = {each.name for each in files.gone(spark)} - before
    assert sorted(name.rpartition(".")[2] for name in gone) == ["parts", "snapshot"]


def test_filters_may_stop_events_before_a_snapshot_is_opened(spark: SparkSession, backend: str) -> None:
    rng = random.Random(12)
    engine = random_engine(rng, 30)
    events = random_events(rng, 100)
    result = match_events(frame(spark, events, 2), engine, strategy="broadcast", keep=["n"], prune=True)
    assert rows_of(result.matches) == expected(engine, events)
    observation = Observation()
    result = match_events(texts(spark), orders(), strategy="broadcast", prune=True, observation=observation)
    assert pairs(result.matches) == IDS
    counts = observation.get
    assert {name: counts[name] for name in ("events", "rejected", "ignored", "matches", "matched", "pruned")} == {
        "events": 5,
        "rejected": 1,
        "ignored": 1,
        "matches": 4,
        "matched": 2,
        "pruned": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_comes_of_nothing(spark: SparkSession, strategy: Any) -> None:
    """No events, no subscriptions, no subscriptions to what the events are of, partitions without a row."""
    none = texts(spark).limit(0)
    assert match_events(none, orders(), strategy=strategy).matches.collect() == []
    assert match_events(none, orders(), strategy=strategy).rejected.collect() == []
    assert match_events(texts(spark), Engine(), strategy=strategy).matches.collect() == []
    other = Engine()
    other.add({"id": "s", "collection": "others"})
    result = match_events(texts(spark).repartition(9), other, strategy=strategy)
    assert result.matches.collect() == []
    assert result.rejected.count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_bad_event_fails_the_job_only_with_on_error_fail(spark: SparkSession, strategy: Any) -> None:
    # Cogroup counts what can be read before, and does not fail there.
    result = match_events(texts(spark), orders(), strategy=strategy, on_error="fail")
    with pytest.raises(PythonException, match=r"malformed_json at byte 36.*on_error='reject'"):
        result.matches.collect()
    good = match_events(texts(spark).where("value like '%}}'"), orders(), strategy=strategy, on_error="fail")
    assert pairs(good.matches) == IDS


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bad_subscriptions_are_refused_before_anything_is_matched(spark: SparkSession, strategy: Any) -> None:
    bad = [*map(json.dumps, ORDERS), '{"id": "x", "collection": "c", "cel": "data.a >"}', '{"id": "y", "tenant": 7}', "{"]
    with pytest.raises(BulkSubscriptionError, match="bad subscription"):
        match_events(texts(spark), spark.createDataFrame([(text,) for text in bad], "s string"), strategy=strategy)
    twice = ['{"id": "x", "collection": "c"}', '{"id": "x", "collection": "d"}']
    with pytest.raises(BulkSubscriptionError, match="'x'"):
        match_events(texts(spark), spark.createDataFrame([(text,) for text in twice], "s string"), strategy=strategy)


@pytest.mark.slow
def test_auto_goes_by_size_and_says_why(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    subscriptions = spark.createDataFrame([(json.dumps(each),) for each in ORDERS], "text string")
    with caplog.at_level(logging.INFO, "streamer.spark"):
        small = match_events(texts(spark), subscriptions)
        large = match_events(texts(spark), subscriptions, broadcast_bytes=100)
    assert (small.strategy, large.strategy) == ("broadcast", "cogroup")
    assert "B of subscriptions, of at most 512 MiB" in small.reason
    assert "of subscriptions, more than 100 B" in large.reason
    assert large.reason in caplog.text
    assert pairs(small.matches) == pairs(large.matches) == IDS
    assert small.version is not None
    assert large.version is None


def test_what_cannot_be_is_refused_at_once(spark: SparkSession) -> None:
    events, engine = texts(spark), orders()
    with pytest.raises(ValueError, match="there is no column 'nothing'"):
        match_events(events, engine, event_col="nothing")
    with pytest.raises(ValueError, match="strategy: expected 'auto' or 'broadcast' or 'cogroup', not 'best'"):
        match_events(events, engine, strategy="best")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="column 'value' is array<string>; an event is JSON as string or binary, a struct, a map"):
        match_events(events.selectExpr("array(value) AS value"), engine)
    with pytest.raises(ValueError, match="columns certain of its own"):
        match_events(events.selectExpr("value", "1 AS certain"), engine, keep=["certain"])
    with pytest.raises(ConfigError, match=r"layout.*the engine has another one"):
        match_events(events, engine, format="debezium")
    with pytest.raises(TypeError, match="expected a DataFrame, an Engine or a path, not dict"):
        match_events(events, {})  # type: ignore[arg-type]
    assert pairs(match_events(events, engine, format="change").matches) == IDS


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [*STRATEGIES, "broadcast with filters"])
def test_a_bad_event_that_fails_the_job_is_reported_by_row_id_code_and_columns(
    spark: SparkSession, backend: str, strategy: str
) -> None:
    """Filters leave out most rows before the event is read; it is told by the row that it is of what was given."""
    lines = [json.dumps({"id": f"e{n}", "collection": "orders", "type": "insert" if n != 41 else "upsert"}) for n in range(60)]
    events = spark.createDataFrame([(n, line) for n, line in enumerate(lines)], "`kafka.offset` int, value string").coalesce(1)
    engine = Engine()
    engine.add({"id": "s", "collection": "orders", "filters": [{"field": "country", "op": "==", "value": "DE"}]})
    route, prune = ("broadcast", True) if " " in strategy else (strategy, None)
    options: Any = {"strategy": route, "prune": prune}
    result = match_events(events, engine, keep=["kafka.offset"], on_error="fail", **options)
    message = (
        r"bad_value at byte 46.*\(row 41 of partition 0, counted from 0, id 'e41', kafka.offset=41, on_error='reject' puts such"
    )
    for frame in (result.matches, result.rejected):
        with pytest.raises(PythonException, match=message):
            frame.collect()
    if strategy != "broadcast":
        return
    # What docs/spark.md says of it.
    spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
    try:
        with pytest.raises(PythonException, match=message) as caught:
            match_events(events, engine, keep=["kafka.offset"], on_error="fail", **options).matches.collect()
        assert "Traceback" not in str(caught.value)
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.udf.hideTraceback.enabled")


def test_a_source_of_another_kind_is_refused_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    events, engine = texts(spark), orders()
    with pytest.raises(TypeError, match=r"events: expected a DataFrame, not list; spark.createDataFrame makes one"):
        match_events(["{}"], engine)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected an Engine or the path of a snapshot, not DataFrame; engine.add_many"):
        register(spark, events)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"there is no option 'stratgy': is it 'strategy'\?"):
        match_events(events, engine, stratgy="cogroup")
    with pytest.raises(TypeError, match=r"there is no option 'stratgy': is it 'strategy'\?"):
        match_batches(tmp_path, lambda frame, batch: None, stratgy="cogroup")
    with pytest.raises(TypeError, match="there is no option 'wish': there are event_col, format, layout, "):
        match_events(events, engine, wish=1)


@pytest.mark.slow
def test_a_path_may_be_a_url_of_any_file_system_that_is_there(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    orders().save(path)
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(each) + "\n" for each in ORDERS))
    for url in (f"file://{path}", f"file:{path}", f"file://{tmp_path / 'lines.jsonl'}"):
        assert pairs(match_events(texts(spark), url).matches) == IDS
    assert pairs(match_stream(texts(spark), f"file://{path}")) == IDS
    with pytest.raises(ConfigError, match=r"s3a://bucket/a/snapshot is not on this machine.*use match_batches"):
        match_stream(texts(spark), "s3a://bucket/a/snapshot")
    # Its jar is not here.
    calls: list[Callable[[str], object]] = [
        lambda url: match_events(texts(spark), url),
        lambda url: match_batches(url, lambda frame, batch: None)(texts(spark), 0),
        lambda url: register(spark, url),
        lambda url: publish(orders(), url),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"s3a://bucket/a/snapshot: Spark cannot read there: .*S3AFileSystem"):
            call("s3a://bucket/a/snapshot")


def test_records_with_several_changes_are_matched_where_they_are(spark: SparkSession, backend: str) -> None:
    """A worker of cogroup has the subscriptions of one tenant, and the rows of a record may have several."""
    rows = '{"id": "1", "tenant": "a"}, {"id": "2", "tenant": "b"}'
    record = f'{{"type": "INSERT", "database": "shop", "table": "orders", "data": [{rows}]}}'
    layout = {"preset": "canal", "tenant": "/data/tenant"}
    both = spark.createDataFrame([(tenant, tenant) for tenant in "ab"], "id string, tenant string")
    result = match_events(frame(spark, [record.encode()], 1), both, layout=layout, broadcast_bytes=1)
    assert sorted(row.subscription_id for row in result.matches.collect()) == ["a", "b"]
    assert result.strategy == "broadcast"
    with pytest.raises(ConfigError, match="records with several changes"):
        match_events(frame(spark, [record.encode()], 1), both, layout=layout, strategy="cogroup")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_layout_of_ones_own(spark: SparkSession, backend: str, strategy: Any) -> None:
    events = spark.createDataFrame([('{"country": "DE"}',)], "doc string")
    subscriptions = spark.createDataFrame([(json.dumps(ORDERS[2]),)], "text string")
    result = match_events(events, subscriptions, event_col="doc", format="document", strategy=strategy, default_tenant="acme")
    assert [(row.tenant, row.subscription_id) for row in result.matches.collect()] == [("acme", "any")]


def test_sql_knows_who_wants_an_event(spark: SparkSession, backend: str) -> None:
    register(spark, orders(), "wanted_by")
    texts(spark).createOrReplaceTempView("events")
    rows = spark.sql("SELECT value, wanted_by(value) AS ids FROM events").collect()
    assert {row.value: None if row.ids is None else sorted(row.ids) for row in rows} == {
        EVENTS[0]: ["any", "de", "large"],
        EVENTS[1]: ["any"],
        EVENTS[2]: [],
        EVENTS[3]: None,
        # It is ignored, and matches nobody.
        None: [],
    }


def test_the_reference_can_be_the_backend(spark: SparkSession) -> None:
    assert pairs(match_events(texts(spark), orders(), strategy="broadcast", backend="reference").matches) == IDS
