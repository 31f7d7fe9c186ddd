"""What `match_events` gives is an object whose parts stay, and what it needed is given back when it is closed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import Engine, StreamerError

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark import SparkFiles

from streamer.spark import SparkMatches, files, match_batches, match_events, publish
from streamer.spark.snapshot_cache import travelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.later_on_the_reference

EVENTS = [json.dumps({"id": f"e{n}", "collection": "c", "data": {"n": n}}) for n in range(12)]


def engine(name: str) -> Engine:
    """Return one of which no other test has shipped an equal."""
    made = Engine()
    made.add_many(
        {"id": f"{name} {n}", "gateway_id": "g", "collection": "c", "filters": [{"field": "n", "op": ">=", "value": n}]}
        for n in range(4)
    )
    return made


def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(text,) for text in [*EVENTS, "{"]], "value string").coalesce(1)


def contents(result: SparkMatches) -> tuple[Any, ...]:
    counted = Counter((row.event_id, row.subscription_id) for row in result.matches.where("gateway_id = 'g'").collect())
    counts = {row.collection: (row.events, row.matches, row.rejected) for row in result.tallies.collect()}
    return counted, [row.code for row in result.rejected.collect()], counts


def carried(suffix: str = "") -> set[str]:
    """Return what Spark holds on this machine, where driver and workers are one, and what the driver keeps to send."""
    there = [*Path(SparkFiles.getRootDirectory()).rglob(f"streamer-*{suffix}"), *files.folder().rglob(f"streamer-*{suffix}")]
    return {str(path) for path in there}


@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_matches_rejected_events_and_counts_are_the_same_apart_and_of_one_pass(
    spark: SparkSession, backend: str, strategy: Any
) -> None:
    subscribed = engine("one pass")
    wanted = Counter((json.loads(text)["id"], match.subscription_id) for text in EVENTS for match in subscribed.match(text))
    expected = (wanted, ["malformed_json"], {"c": (12, wanted.total(), 0), None: (1, 0, 1)})
    with match_events(events(spark), subscribed, strategy=strategy) as result:
        assert contents(result) == expected
        assert contents(result.persist()) == expected
        for frame in (result.matches, result.rejected, result.tallies):
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert "InMemoryTableScan" in plan


def test_it_is_no_dataframe_and_says_which_part_is_one(spark: SparkSession) -> None:
    result = match_events(events(spark), engine("none"))
    for name in ("where", "collect", "columns", "write"):
        with pytest.raises(AttributeError, match=rf"'{name}' is of DataFrames: `\.matches` is one"):
            getattr(result, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = result.nothing
    assert repr(result) == "<SparkMatches: broadcast, since the engine is on the driver already>"


@pytest.mark.parametrize("how", [{"strategy": "broadcast", "prune": True}, {"strategy": "cogroup"}])
def test_files_that_no_result_needs_are_removed(spark: SparkSession, backend: str, how: dict[str, Any]) -> None:
    """Those of an equal set of subscriptions when the last result of them is closed; what comes after is shipped anew."""
    subscribed = engine(f"taken back {how}")
    before = carried()
    with match_events(events(spark), subscribed, **how) as result:
        count = result.matches.count()
        files_of_result = carried() - before
        # On the driver and with Spark: a snapshot and its filters, or the parts.
        assert len(files_of_result) == (4 if how["strategy"] == "broadcast" else 2)
        with match_events(events(spark), subscribed, **how) as another:
            assert another.matches.count() == count
        if how["strategy"] == "broadcast":
            assert carried() - before == files_of_result
        assert result.matches.count() == count
    assert carried() == before
    result.close()
    late = match_events(events(spark), subscribed, **how)
    assert late.matches.count() == count
    assert not carried() & files_of_result
    late.close()
    assert carried() == before


def test_what_is_computed_too_late_says_so(spark: SparkSession) -> None:
    """As a worker says it that looks for the file."""
    before = carried()
    with match_events(events(spark), engine("too late")) as result:
        (name,) = {Path(path).name for path in carried() - before}
        assert travelled(name).endswith(name)
    with pytest.raises(StreamerError, match=f"{name} is not on this machine: the result of match_events was closed"):
        travelled(name)
    with pytest.raises(StreamerError, match="this result was closed"):
        _ = result.matches


def test_a_stream_carries_the_snapshot_of_its_last_batch_alone(spark: SparkSession, backend: str, tmp_path: Path) -> None:
    counted: list[int] = []
    matcher = match_batches(tmp_path, lambda frame, _: counted.append(frame.count()))
    before = carried(".snapshot")
    for number in range(3):
        publish(engine(f"version {number}, {backend}"), tmp_path)
        for again in range(1 + number % 2):
            matcher(events(spark), 2 * number + again)
            assert len({Path(path).name for path in carried(".snapshot") - before}) == 1
    assert len(set(counted)) == 1
