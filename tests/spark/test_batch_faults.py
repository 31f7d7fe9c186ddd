"""Workers die, and only what may match is sent: asked of Spark itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import Engine, StreamerError

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark.sql import functions as F  # noqa: N812

from streamer.spark import CogroupOptions, cogroup, cogroup_worker, match_events
from streamer.spark.cogroup import Hot, parts_in_place
from streamer.spark.parts import Parts, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

#: What runs in a worker, by strategy and by where a plan takes it from.
PLACES = {
    "matching": ("broadcast", "streamer.spark.broadcast.by_snapshot"),
    "routing": ("cogroup", "streamer.spark.cogroup.route"),
    "groups": ("cogroup", "streamer.spark.cogroup.by_groups"),
    "counting": ("cogroup", "streamer.spark.cogroup.touch"),
    "building": ("cogroup", "streamer.spark.cogroup.build_parts"),
    "in place": ("cogroup", "streamer.spark.cogroup.by_snapshot"),
}


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """A task sees many batches, so that it can die between two of them."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "16")
    yield
    spark.conf.set(name, before or "10000")


def numbers() -> Engine:
    """Each number that ends in a digit under 5 is wanted by two, in nine collections, and by one everywhere."""
    engine = Engine()
    for n in range(450):
        filters = [{"field": "n", "op": "in", "value": [n, n + 1]}]
        engine.add(
            {"id": f"s{n}", "collection": f"c{n % 9}", "filters": filters} if n % 10 else {"id": f"s{n}", "filters": filters}
        )
    return engine


def numbered(spark: SparkSession, count: int) -> tuple[DataFrame, list[str]]:
    texts = [json.dumps({"id": n, "collection": f"c{n % 9}", "data": {"n": n // 2}}) for n in range(count)]
    return spark.createDataFrame([(text,) for text in texts], "value string").repartition(3), texts


def pairs(matches: DataFrame) -> list[tuple[str, str]]:
    return sorted((row.event_id, row.subscription_id) for row in matches.collect())


def expected(engine: Engine, texts: list[str]) -> list[tuple[str, str]]:
    return sorted((str(json.loads(text)["id"]), match.subscription_id) for text in texts for match in engine.match(text))


def dying(make: Callable[..., Any], marker: str, after: int) -> Callable[..., Any]:
    """Make what a worker runs as *make* does, and let the first task that comes so far be killed, without a word."""

    def made(*args: Any, **kwargs: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        run = make(*args, **kwargs)

        def dies(batches: Iterator[Any]) -> Iterator[Any]:
            for n, batch in enumerate(batches):
                if n == after:
                    try:
                        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        pass
                    else:
                        os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        return lambda batches: run(dies(batches))

    return made


def die_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, marker: Path, place: str, after: int) -> None:
    strategy, where = PLACES[place]
    module, _, name = where.rpartition(".")
    make = getattr(__import__(module, fromlist=[name]), name)
    monkeypatch.setattr(where, dying(make, str(marker), after))
    engine = numbers()
    events, texts = numbered(spark, 600)
    # Without filters every part is hot, so that some have room in place and some have none.
    prune = place != "in place"
    options = CogroupOptions(subscriptions_per_task=20, events_per_task=50, subscriptions_in_place=100, prune=prune)
    result = match_events(events, engine, strategy=strategy, cogroup_options=options)  # type: ignore[arg-type]
    assert pairs(result.matches) == expected(engine, texts)
    assert marker.exists(), "nobody died"


@pytest.mark.parametrize("place", ["matching", "routing", "groups"])
def test_a_killed_worker_costs_no_match_and_doubles_none(
    spark: SparkSession, small_batches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    die_once(spark, monkeypatch, tmp_path / "died", place, after=2)


@pytest.mark.integration
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("place", list(PLACES))
def test_workers_may_be_killed_anywhere(
    spark: SparkSession, small_batches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, after: int
) -> None:
    die_once(spark, monkeypatch, tmp_path / "died", place, after)


def shuffled(matches: DataFrame) -> tuple[int, int]:
    """Rows and bytes that the shuffle of an executed plan wrote, as Spark counted them."""
    measured = []

    def walk(node: Any) -> None:
        name = node.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            walk(node.executedPlan())
        elif name.endswith("QueryStageExec"):
            walk(node.plan())
        else:
            if name == "ShuffleExchangeExec" and "_streamer_key#" in node.outputPartitioning().toString():
                metrics = node.metrics()
                measured.append((metrics.apply("shuffleRecordsWritten").value(), metrics.apply("dataSize").value()))
            children = node.children()
            for at in range(children.size()):
                walk(children.apply(at))

    walk(matches._jdf.queryExecution().executedPlan())  # type: ignore[operator]
    (shuffle,) = measured
    return shuffle


def test_pruned_events_never_reach_the_shuffle(spark: SparkSession, backend: str) -> None:
    """Of 2,000 events ten can be wanted; the shuffle has these, what else the filter lets pass, and the subscriptions."""
    engine = Engine()
    engine.add_many(
        {"id": f"s{n}", "collection": "orders", "filters": [{"field": "n", "op": "==", "value": n}]} for n in range(0, 2000, 200)
    )
    # No event is of this collection, so that nobody needs its subscriptions.
    engine.add_many({"id": f"t{n}", "collection": "others"} for n in range(500))
    texts = [json.dumps({"id": n, "collection": "orders", "data": {"n": n, "text": "x" * 200}}) for n in range(2000)]
    events = spark.createDataFrame([(text,) for text in texts], "value string")
    result = match_events(events, engine, strategy="cogroup", cogroup_options=CogroupOptions(fp_rate=0.001))
    assert len(result.matches.collect()) == 10
    rows, size = shuffled(result.matches)
    assert 20 <= rows <= 20 + 20, "ten events, ten subscriptions, and what chance lets pass"
    unpruned = match_events(events, engine, strategy="cogroup", cogroup_options=CogroupOptions(prune=False))
    assert len(unpruned.matches.collect()) == 10
    all_rows, all_bytes = shuffled(unpruned.matches)
    assert all_rows == 2010
    assert size * 20 < all_bytes


def test_hot_collections_are_salted_and_large_ones_are_split(spark: SparkSession) -> None:
    """One collection has nine tenths of events and subscriptions; no group has more of either than was asked for."""
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": "hot" if n % 10 else f"c{n}", "types": ["insert"]} for n in range(100))
    texts = [json.dumps({"id": n, "collection": "hot" if n % 10 else "cold", "type": "insert"}) for n in range(400)]
    events = spark.createDataFrame([(text,) for text in texts], "value string").repartition(2)
    options = CogroupOptions(subscriptions_per_task=30, events_per_task=100, subscriptions_in_place=0)
    result = match_events(events, engine, strategy="cogroup", cogroup_options=options)
    assert len(result.matches.collect()) == 360 * 90
    rows, _ = shuffled(result.matches)
    # 90 subscriptions in three parts, 360 events to each of these, in four salts.
    assert rows == 3 * 360 + 4 * 90


@pytest.mark.parametrize(("room", "events_sent"), [(50, 40), (49, 400)])
def test_events_of_a_hot_part_stay_where_they_lie_if_it_has_room(spark: SparkSession, room: int, events_sent: int) -> None:
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": "cold" if n < 5 else "hot", "types": ["insert"]} for n in range(55))
    texts = [json.dumps({"id": n, "collection": "hot" if n % 10 else "cold", "type": "insert"}) for n in range(400)]
    events = spark.createDataFrame([(text,) for text in texts], "value string").repartition(2)
    options = CogroupOptions(events_per_task=100, subscriptions_in_place=room)
    result = match_events(events, engine, strategy="cogroup", cogroup_options=options)
    assert len(result.matches.collect()) == 360 * 50 + 40 * 5
    rows, _ = shuffled(result.matches)
    # Without room the hot part has four salts.
    assert rows == events_sent + 5 + (0 if events_sent == 40 else 4 * 50)


def losing_one(parts_name: str, part_numbers: frozenset[int]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    pick = cogroup_worker.splits_in(parts_name, part_numbers)
    return lambda batches: (batch.slice(1) for batch in pick(batches))


def test_subscriptions_that_change_before_hot_parts_are_compiled_fail_the_call(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": "hot", "types": ["insert"]} for n in range(50))
    texts = [json.dumps({"id": n, "collection": "hot", "type": "insert"}) for n in range(40)]
    events = spark.createDataFrame([(text,) for text in texts], "value string")
    monkeypatch.setattr(cogroup, "splits_in", losing_one)
    with pytest.raises(StreamerError, match=r"4\d subscriptions came, 50 were counted: they changed; they must be the same"):
        match_events(events, engine, strategy="cogroup", cogroup_options=CogroupOptions(events_per_task=10))


def test_few_events_are_not_worth_a_second_look_at_all(tmp_path: Path) -> None:
    with Writer(tmp_path / "parts") as writer:
        for n, subscriptions in enumerate([10, 20, 30]):
            writer.add("default", f"c{n}", 0, subscriptions, b"")
    parts = Parts(str(tmp_path / "parts"))
    hot = [Hot(100, 0, ()), Hot(300, 1, ()), Hot(200, 2, ())]
    assert parts_in_place(hot, parts, most=50, read=2000) == {1, 2}
    assert parts_in_place(hot, parts, most=49, read=1600) == {0, 1}, "the hottest first, then what has room"
    assert parts_in_place(hot, parts, most=50, read=2001) == frozenset()
    assert parts_in_place(hot, parts, most=0, read=600) == frozenset()


def test_the_salts_of_hot_parts_are_no_two_in_one_task(spark: SparkSession) -> None:
    """Three collections have two salts each, and the shuffle has eight partitions."""
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": f"hot{n}", "types": ["insert"]} for n in range(3))
    texts = [json.dumps({"id": n, "collection": f"hot{n % 3}", "type": "insert"}) for n in range(450)]
    events = spark.createDataFrame([(text,) for text in texts], "value string")
    options = CogroupOptions(events_per_task=100, subscriptions_in_place=0, partitions=8)
    matches = match_events(events, engine, strategy="cogroup", cogroup_options=options).matches
    assert matches.count() == 450
    assert matches.select(F.spark_partition_id()).distinct().count() == 6
