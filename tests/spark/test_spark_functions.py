"""Functions in Python that subscriptions call reach the workers, or are refused before a task starts."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import BulkSubscriptionError, ConfigError, Engine, SnapshotError

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from streamer.spark import match_events, match_stream, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

VIP = {"id": "vip", "collection": "users", "cel": "is_vip(data.id)", "cel_evaluator": "portable"}
#: Another collection, whose sections are opened apart.
PLAIN = {"id": "plain", "collection": "orders", "cel": "data.id > 2"}
STRATEGIES = ("broadcast", "cogroup")


def by_sevens() -> Any:
    """A function inside another one, which pickle cannot write and PySpark can."""
    step = 7
    return lambda number: number % step == 0


def engine_with(function: Any) -> Engine:
    engine = Engine(cel_functions={"is_vip": function})
    engine.add_many([VIP, PLAIN])
    return engine


def events(spark: SparkSession) -> DataFrame:
    texts = [json.dumps({"id": n, "collection": c, "data": {"id": n}}) for n in range(10) for c in ("users", "orders")]
    return spark.createDataFrame([(text,) for text in texts], "value string").repartition(2)


def pairs(matches: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.subscription_id, int(row.event_id)) for row in matches.collect())


EXPECTED = [("plain", n) for n in range(3, 10)] + [("vip", 0), ("vip", 7)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_function_is_called_in_the_workers(spark: SparkSession, backend: str, strategy: Any) -> None:
    assert pairs(match_events(events(spark), engine_with(by_sevens()), strategy=strategy).matches) == EXPECTED


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_snapshots_and_lines_take_functions(spark: SparkSession, backend: str, tmp_path: Path, strategy: Any) -> None:
    engine_with(by_sevens()).save(tmp_path / "snapshot")
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, (VIP, PLAIN))))
    for name in ("snapshot", "lines.jsonl"):
        result = match_events(events(spark), tmp_path / name, strategy=strategy, cel_functions={"is_vip": by_sevens()})
        assert pairs(result.matches) == EXPECTED
    stream = match_stream(events(spark), tmp_path / "snapshot", cel_functions={"is_vip": by_sevens()})
    assert pairs(stream) == EXPECTED


def test_a_function_that_changed_is_another_one(spark: SparkSession, backend: str, tmp_path: Path) -> None:
    """Both runs open one snapshot, in one set of workers."""
    engine_with(by_sevens()).save(tmp_path / "snapshot")
    for limit in (3, 5):
        result = match_events(events(spark), tmp_path / "snapshot", cel_functions={"is_vip": lambda n, limit=limit: n < limit})
        assert [n for id_, n in pairs(result.matches) if id_ == "vip"] == list(range(limit))


def test_sql_calls_them_too(spark: SparkSession, backend: str) -> None:
    register(spark, engine_with(by_sevens()), "wanted_by_vip")
    events(spark).createOrReplaceTempView("changes_of_users")
    rows = spark.sql("select wanted_by_vip(value) as ids from changes_of_users").collect()
    assert sum("vip" in row.ids for row in rows) == 2


def test_a_missing_function_is_reported_before_a_task_starts(spark: SparkSession, backend: str, tmp_path: Path) -> None:
    engine_with(by_sevens()).save(tmp_path / "snapshot")
    (tmp_path / "lines.jsonl").write_text(json.dumps(VIP))
    for plan in (match_events, match_stream):
        with pytest.raises(SnapshotError, match="is_vip"):
            plan(events(spark), tmp_path / "snapshot")  # type: ignore[operator]
    with pytest.raises(BulkSubscriptionError, match="is_vip"):
        match_events(events(spark), tmp_path / "lines.jsonl")


def test_a_function_that_cannot_travel_is_refused(spark: SparkSession, backend: str) -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"cel_functions\['is_vip'\].*cannot travel"):
        match_events(events(spark), engine_with(lambda number: number > 3 and lock.locked()))
