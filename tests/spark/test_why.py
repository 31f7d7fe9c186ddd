"""What `explain_events` says of each event is what the embedded engine says of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import ConfigError, Engine, EventError, SubscriptionError, UnknownSubscriptionError
from streamer.model import Verdict
from tests.generators import agreeing_event, agreeing_subscription, random_text

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from streamer.spark import explain_events
from streamer.spark.why import COLUMNS, MOST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.later_on_the_reference

ORDERS = [
    {
        "id": "big",
        "collection": "orders",
        "filters": [{"field": "country", "op": "==", "value": "DE"}, {"field": "amount", "op": ">", "value": 100}],
    },
    {"id": "cheap", "collection": "orders", "cel": "data.amount < 10 && data.country == 'FR'"},
]
EVENTS = [
    '{"id": "e1", "collection": "orders", "type": "insert", "data": {"amount": 250, "country": "DE"}}',
    '{"id": "e2", "collection": "orders", "type": "insert", "data": {"amount": 20, "country": "DE"}}',
    '{"id": "e3", "collection": "orders", "type": "insert", "data": {"amount": 20, "country": "US"}}',
    '{"id": 4, "collection": "users", "data": {"amount": 250, "country": "DE"}}',
    '{"id": "e5", "collection": "orders"',
    None,
]


def filled() -> Engine:
    engine = Engine()
    engine.add_many(ORDERS)
    return engine


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(enumerate(EVENTS)), "n int, value string").repartition(2)


def verdicts(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_each_event_has_its_verdict_and_what_failed_first(events: DataFrame) -> None:
    rows = explain_events(events, filled(), "big", keep=["n"]).orderBy("n").collect()
    assert [row.event_id for row in rows] == ["e1", "e2", "e3", "4", None, None]
    assert [row.matched for row in rows] == [True, False, False, False, False, False]
    assert [row.verdict for row in rows] == ["true", "false", "false", "false", None, "false"]
    assert [row.failed for row in rows] == [0, 1, 2, 1, 0, 0]
    # An event of another collection is no near miss.
    assert [row.near_miss for row in rows] == [False, True, False, False, False, False]
    assert [row.place for row in rows] == [None, "filters[1]", "filters[0]", "collection", None, None]
    assert rows[1].condition == "data.amount > 100"
    assert rows[1].outcome == "false, saw 20"
    assert rows[3].outcome == 'false, saw "users"'
    assert rows[4].note.startswith("the event is rejected: malformed_json")
    assert rows[5].note == "the event is ignored (null): it matches no subscription"


def test_operands_of_an_expression_are_conditions_of_their_own(events: DataFrame) -> None:
    rows = explain_events(events, filled(), ["cheap"]).where("collection = 'orders'").orderBy("event_id").collect()
    assert [(row.failed, row.condition, row.near_miss) for row in rows] == [(2, "data.amount < 10", False)] * 3


def test_random_sets_are_explained_as_by_the_embedded_engine(spark: SparkSession, backend: str) -> None:
    rng = random.Random(3)
    engine = Engine()
    for n in range(30):
        engine.add_many([json.dumps(agreeing_subscription(rng, f"s{n}"))], on_error="skip")
    ids = [each.id for each in engine.subscriptions()]
    texts = [random_text(rng, agreeing_event(rng)) for _ in range(60)]
    texts[::20] = [text[: len(text) // 2] for text in texts[::20]]
    source = spark.createDataFrame([(n, bytearray(text)) for n, text in enumerate(texts)], "n int, value binary").repartition(3)
    matches = near = 0
    rows = explain_events(source, engine, ids, keep=["n"], keep_event=True).collect()
    assert len(rows) == len(texts) * len(ids)
    for row in rows:
        text = texts[row.n]
        assert bytes(row.event) == text
        if row.verdict is None:
            with pytest.raises(EventError) as caught:
                engine.explain(text, row.subscription_id)
            assert row.note == f"the event is rejected: {caught.value}"
            continue
        one = engine.explain(text, row.subscription_id)
        row_verdict = (row.matched, row.transition, row.certain, row.verdict, row.note)
        assert row_verdict == (one.matched, one.transition, one.certain, one.verdict.value, one.note)
        fails = [each for each in one.conditions if each.verdict in (Verdict.FALSE, Verdict.ERROR)]
        if fails and not one.matched:
            assert row.place == fails[0].place
        missed = {miss.subscription_id for miss in engine.near_misses(text, n=len(ids))}
        is_near = engine.near_misses(text, n=len(ids)).examined
        if is_near and row.near_miss:
            assert row.subscription_id in missed
        elif row.subscription_id in missed:
            assert row.near_miss
        matches += row.matched
        near += row.near_miss
    assert matches > 50, "too few matches to tell"
    assert near > 50, "too few near misses to tell"


def test_subscriptions_come_in_every_form(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    engine = filled()
    engine.save(tmp_path / "snapshot")
    lines = [json.dumps(each) for each in ORDERS]
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    expected = verdicts(explain_events(events, engine, ["big", "cheap"]))
    assert len(expected) == 12
    assert verdicts(explain_events(events, tmp_path / "snapshot", ["big", "cheap"])) == expected
    assert verdicts(explain_events(events, str(tmp_path / "lines.jsonl"), ["big", "cheap"])) == expected
    # What is wrong with others is not looked at.
    table = spark.createDataFrame([(line,) for line in [*lines, "{", '{"id": "x", "filters": 3}']], "text string")
    assert verdicts(explain_events(events, table, ["big", "cheap"])) == expected


def test_functions_travel_and_the_row_itself_is_an_event(spark: SparkSession, backend: str) -> None:
    engine = Engine(cel_functions={"is_vip": lambda n: n > 5}, layout={"data": "", "collection": None, "id": "/n"})
    engine.add({"id": "vip", "cel": "is_vip(data.n)", "cel_evaluator": "portable"})
    rows = spark.createDataFrame([(3,), (7,)], "n int")
    explained = explain_events(rows, engine, "vip", event_col="*", keep_event=True).orderBy("event_id").collect()
    assert [(row.event, row.matched) for row in explained] == [('{"n":3}', False), ('{"n":7}', True)]


def test_many_rows_carry_long_events_in_pieces(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.add_many({"id": f"s{n}"} for n in range(MOST))
    long = json.dumps({"data": {"text": "x" * 1_000_000}})
    frame = spark.createDataFrame([(long,)] * 3, "value string").repartition(1)
    rows = explain_events(frame, engine, [f"s{n}" for n in range(MOST)], keep_event=True)
    assert rows.selectExpr("sum(length(event)) as n", "count_if(matched) as m").first() == (3 * MOST * len(long), 3 * MOST)


def test_wrong_arguments_are_refused_at_once(events: DataFrame, spark: SparkSession) -> None:
    engine = filled()
    with pytest.raises(UnknownSubscriptionError, match="nobody"):
        explain_events(events, engine, ["big", "nobody"])
    table = spark.createDataFrame([('{"id": "bad", "filters": 3}',)], "text string")
    with pytest.raises(SubscriptionError, match="filters"):
        explain_events(events, table, "bad")
    for ids in ([], [f"s{n}" for n in range(MOST + 1)]):
        with pytest.raises(ValueError, match="expected 1 to 100 ids"):
            explain_events(events, engine, ids)
    with pytest.raises(TypeError, match="expected an id or a list of ids"):
        explain_events(events, engine, [7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="there is no column 'body'"):
        explain_events(events, engine, "big", event_col="body")
    with pytest.raises(ValueError, match="the result has columns outcome of its own"):
        explain_events(events.withColumnRenamed("n", "outcome"), engine, "big", keep=["outcome"])
    with pytest.raises(ConfigError, match="another one"):
        explain_events(events, engine, "big", default_tenant="other")
    with pytest.raises(TypeError, match="is it 'keep_event'"):
        explain_events(events, engine, "big", keep_events=True)


def test_a_stream_is_explained_as_it_comes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text("\n".join(filter(None, EVENTS)))
    rows = explain_events(spark.readStream.text(str(tmp_path / "in")), filled(), "big")
    query = rows.writeStream.format("memory").queryName("explained").trigger(availableNow=True).start()
    query.awaitTermination()
    explained = spark.sql("select * from explained")
    assert explained.columns == list(COLUMNS)
    assert sorted(row.matched for row in explained.collect()) == [False] * 4 + [True]
