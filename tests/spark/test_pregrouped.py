"""Events that come together by tenant and collection are matched where they lie; where they do not, nothing is lost unseen."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import ConfigError, Engine
from streamer.events.layout import EventLayout

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark.errors import PythonException

from streamer.spark import CogroupOptions, match_events, pregrouped
from streamer.spark.parts import Parts, Writer, compiled
from tests.spark.test_batch import SMALL, expected, frame, plan_of, random_engine, random_events, rejected, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.later_on_the_reference


def events_of(collections: list[str], each: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{collection}-{n}", "tenant": "acme", "collection": collection, "data": {"n": n}}
        for collection in collections
        for n in range(each)
    ]


def table(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    rows = [(event["tenant"], event["collection"], json.dumps(event)) for event in events]
    return spark.createDataFrame(rows, "tenant string, collection string, value string")


@pytest.mark.parametrize("prune", [False, True])
def test_random_sets_match_as_in_the_embedded_engine(spark: SparkSession, backend: str, prune: bool) -> None:
    """In any order, with `*`, transitions, unknowns, bad events and collections that are split; and no row is shuffled."""
    rng = random.Random(19)
    engine = random_engine(rng, 60)
    events = random_events(rng, 300)
    want = expected(engine, events)
    assert len(want) > 300, "too few matches to tell"
    source = frame(spark, events, 5).persist()
    for these in (source, source.coalesce(1).sortWithinPartitions("value")):
        result = match_events(
            these, engine, strategy="cogroup", grouped=True, keep=["n"], prune=prune, cogroup_options=SMALL, keep_event=True
        )
        assert rows_of(result.matches) == want
        assert {bytes(row.event) for row in result.matches.collect()} == {events[row[0]] for row in want}
        bad = result.rejected.select("n", "event", "code", "position").collect()
        assert Counter((row.n, bytes(row.event), row.code, row.position) for row in bad) == rejected(engine, events)
        with result.persist():
            assert rows_of(result.matches) == want
            (all_,) = result.tallies.groupBy().sum().collect()
        assert (all_["sum(events)"], all_["sum(matches)"]) == (len(events), want.total())
        assert (all_["sum(rejected)"], all_["sum(shuffled)"]) == (len(bad), 0)


@pytest.mark.parametrize("layout", ["repartition", "partitioned", "bucketed"])
def test_events_that_are_grouped_already_are_not_shuffled(spark: SparkSession, backend: str, tmp_path: Path, layout: str) -> None:
    engine = Engine()
    engine.add_many(
        {"id": f"{c}{n}", "tenant": "acme", "collection": c, "cel": f"data.n >= {n}"} for c in "abc" for n in range(9)
    )
    engine.add({"id": "every", "tenant": "*", "cel": "data.n == 3"})
    events = events_of(["a", "b", "c"], 12)
    source = table(spark, events)
    shuffles = 0
    if layout == "repartition":
        source = source.repartition("tenant", "collection").sortWithinPartitions("tenant", "collection")
        shuffles = 1
    elif layout == "partitioned":
        source.write.partitionBy("tenant", "collection").parquet(str(tmp_path / "events"))
        source = spark.read.parquet(str(tmp_path / "events"))
    else:
        source.write.bucketBy(2, "tenant", "collection").option("path", str(tmp_path / "events")).saveAsTable("grouped_events")
        source = spark.table("grouped_events")
    try:
        result = match_events(source, engine, strategy="cogroup", grouped=True)
        # One exchange is the repartition that the user asked for.
        assert plan_of(result.matches).count("Exchange ") == shuffles
        assert plan_of(match_events(source, engine, strategy="cogroup").matches).count("Exchange ") == shuffles + 1
        rows = Counter((row.event_id, row.subscription_id) for row in result.matches.collect())
        assert rows == Counter((event["id"], match.subscription_id) for event in events for match in engine.match(event))
    finally:
        spark.sql("drop table if exists grouped_events")


def test_a_task_that_opens_parts_again_and_again_says_what_came_again(spark: SparkSession, backend: str) -> None:
    """A few times is nothing; the row and its collection are named where it is too often."""
    names = [f"c{n}" for n in range(8)]
    engine = Engine()
    engine.add_many({"id": name, "tenant": "acme", "collection": name} for name in names)
    one = CogroupOptions(subscriptions_per_task=1)
    # Each of eight collections comes again in every batch, and six stay open.
    mixed = sorted(events_of(names, 40), key=lambda event: event["data"]["n"])
    options: dict[str, Any] = {"strategy": "cogroup", "grouped": True, "cogroup_options": one}
    conf = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(conf)
    spark.conf.set(conf, 8)
    try:
        few = match_events(table(spark, mixed[:80]).coalesce(1), engine, **options)
        assert few.matches.count() == 80
        assert match_events(table(spark, events_of(names, 40)).coalesce(1), engine, **options).matches.count() == 320
        many = match_events(table(spark, mixed).coalesce(1), engine, **options)
        with pytest.raises(PythonException) as caught:
            many.matches.collect()
    finally:
        spark.conf.set(conf, before)
    message = str(caught.value)
    # 8 are met in the first batch; the 101st that is opened again is one of the fourteenth batch, rows 104 to 111.
    wanted = (
        r"ConfigError: grouped: the events do not come together by tenant and collection: acme/c(\d) came again at row (\d+) "
    )
    hit = re.search(wanted + "of partition 0, counted from 0", message)
    assert hit is not None, message
    assert int(hit[2]) == 104 + int(hit[1])
    assert "opened 109 times instead of 8" in message


def test_broadcast_has_nothing_to_skip(spark: SparkSession, backend: str) -> None:
    engine = Engine()
    engine.add({"id": "s", "collection": "c"})
    result = match_events(frame(spark, [b'{"collection": "c"}'], 1), engine, grouped=True)
    assert (result.strategy, result.matches.count()) == ("broadcast", 1)


def test_parts_whose_turn_was_longest_ago_are_put_away(backend: str, tmp_path: Path) -> None:
    """At least as many names stay open as a batch at a boundary asks; beyond that, by how many subscriptions they hold."""
    with Writer(tmp_path / "parts") as writer:
        for name in "abcdefgh":
            engine = Engine(layout=EventLayout(), bloom={"enabled": False})
            engine.add_many({"id": f"{name}{n}", "collection": name} for n in range(3))
            writer.add("default", name, 0, 3, b"filter", compiled(engine))
    parts = Parts(str(tmp_path / "parts"))
    opened = pregrouped.OpenParts(parts, {}, most=1)
    for part_number in range(6):
        assert {each.id for each in opened.engine(part_number).subscriptions()} == {
            f"{'abcdefgh'[part_number]}{n}" for n in range(3)
        }
    for part_number in range(6):
        opened.engine(part_number)
    assert opened.again == 0
    opened.engine(6)
    opened.engine(1)
    assert opened.again == 0
    opened.engine(0)
    assert opened.again == 1
    roomy = pregrouped.OpenParts(parts, {}, most=24)
    for part_number in [*range(8), *range(8)]:
        roomy.engine(part_number)
    assert roomy.again == 0

    def open_in_turn() -> None:
        for part_number in [*range(8)] * 20:
            opened.engine(part_number)

    with pytest.raises(ConfigError, match="default/"):
        open_in_turn()
