"""Subscriptions of a DataFrame: members as JSON text, variants or structs, whole ones in a column, and what is no member."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from streamer import BulkSubscriptionError, Engine

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark.errors import AnalysisException

from streamer.spark import match_events
from streamer.spark.members import texts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

FILTERS = [{"field": "n", "op": ">", "value": 12345678901234567890}, {"field": "tags", "op": "contains", "value": "it's"}]
LABELS = {"team": "x", "weight": 1.50, "of": {"a": [1, None]}}
WHOLE = {
    "id": "s",
    "gateway_id": "g",
    "collection": "orders",
    "types": ["insert", "update"],
    "filters": FILTERS,
    "pattern": {"data": {"country": ["DE", "FR"]}},
    "labels": LABELS,
    "transitions": True,
}
AS_JSON = ("types", "filters", "pattern", "labels")
COLUMNS = "id string, gateway_id string, collection string, types string, filters string, pattern string, labels string"


def as_row(document: dict[str, Any]) -> tuple[Any, ...]:
    """A row of COLUMNS and `transitions`, in which members that are no texts are JSON."""
    names = [each.split()[0] for each in COLUMNS.split(", ")]
    values = [document.get(name) for name in names]
    as_text = [json.dumps(v) if n in AS_JSON and v is not None else v for n, v in zip(names, values, strict=True)]
    return (*as_text, document.get("transitions"))


def rows(spark: SparkSession, *documents: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(documents), f"{COLUMNS}, transitions boolean")


def stored(frame: DataFrame, **options: Any) -> list[dict[str, Any]]:
    """What an engine holds of the subscriptions of a DataFrame."""
    engine = Engine()
    engine.add_many(row["text"] for row in texts_of(frame, **options).collect())
    return [each.to_dict() for each in engine.subscriptions()]


def of(document: dict[str, Any]) -> dict[str, Any]:
    engine = Engine()
    engine.add(document)
    (subscription,) = engine.subscriptions()
    return subscription.to_dict()


def test_members_may_be_json_text_and_nulls_are_omitted(spark: SparkSession) -> None:
    """Numbers keep their digits, whatever the session says of nulls."""
    spark.conf.set("spark.sql.jsonGenerator.ignoreNullFields", "false")
    try:
        subscriptions = stored(rows(spark, as_row(WHOLE), as_row({"id": "bare"})))
    finally:
        spark.conf.unset("spark.sql.jsonGenerator.ignoreNullFields")
    # A pattern stays the text that it was.
    assert subscriptions == [of({**WHOLE, "pattern": json.dumps(WHOLE["pattern"])}), of({"id": "bare"})]
    assert "12345678901234567890" in texts_of(rows(spark, as_row(WHOLE))).collect()[0]["text"]


def test_members_may_be_variants(spark: SparkSession) -> None:
    texts = rows(spark, as_row({**WHOLE, "filters": FILTERS[1:]}), as_row({"id": "bare"}))
    try:
        frame = texts.selectExpr("id", "collection", *(f"parse_json({name}) AS {name}" for name in AS_JSON))
    except AnalysisException:
        pytest.skip("this Spark has no variants")
    nulls = texts.limit(1).selectExpr("'null' AS id", "collection", *(f"parse_json('null') AS {name}" for name in AS_JSON))
    want = {name: value for name, value in WHOLE.items() if name not in ("gateway_id", "transitions")}
    assert stored(frame.union(nulls)) == [
        of({**want, "filters": FILTERS[1:]}),
        of({"id": "bare"}),
        of({"id": "null", "collection": "orders"}),
    ]
    whole = spark.createDataFrame([(json.dumps(WHOLE),)], "text string").selectExpr("parse_json(text) AS whole")
    (subscription,) = stored(whole)
    assert subscription["labels"] == LABELS


def test_members_may_be_structs(spark: SparkSession) -> None:
    kinds = {
        "types": "array<string>",
        "filters": "array<struct<field: string, op: string, value: string>>",
        "pattern": "struct<data: struct<country: array<string>>>",
        "labels": "struct<team: string, none: string>",
    }
    document = {**WHOLE, "filters": FILTERS[1:], "labels": {"team": "x"}}
    frame = rows(spark, as_row(document)).selectExpr(
        "id", *(f"from_json({name}, '{kind}') AS {name}" for name, kind in kinds.items())
    )
    want = of({name: document[name] for name in ("id", *kinds)})
    assert stored(frame) == [want]
    # A column of whole subscriptions, among others.
    whole = frame.selectExpr("struct(*) AS `the.whole`", "1 AS version")
    assert stored(whole, subscription_col="the.whole") == [want]


def test_a_text_is_one_member_and_no_more(spark: SparkSession) -> None:
    """What is not one JSON value never becomes members of its own, as another tenant would be."""
    for text in (
        '[], "tenant": "*"',
        '[]], "tenant": "*", "labels": {"a": [1]}',
        '[{"field": "n", "op": ">", "value": 1}',
        '\'a", "tenant": "*\'',
        "[] []",
        "[] // comment",
        "",
        "no",
    ):
        frame = rows(spark, ("a", None, None, None, text, None, None, None))
        with pytest.raises(BulkSubscriptionError, match=r"subscription 'a'|malformed_json"):
            stored(frame)


def test_one_column_may_have_them_whole(spark: SparkSession, backend: str) -> None:
    frame = spark.createDataFrame([(json.dumps(WHOLE), 7)], "body string, version int")
    assert stored(frame, subscription_col="BODY") == [of(WHOLE)]
    events = spark.createDataFrame([('{"id": "e", "collection": "orders", "data": {"n": 1}}',)], "value string")
    plain = spark.createDataFrame([(json.dumps({"id": "s", "collection": "orders"}), 7)], "body string, version int")
    for strategy in ("broadcast", "cogroup"):
        result = match_events(events, plain, subscription_col="body", strategy=strategy)  # type: ignore[arg-type]
        assert [row["subscription_id"] for row in result.matches.collect()] == ["s"]
    with pytest.raises(ValueError, match="there is no column 'whole'; there are body, version"):
        match_events(events, plain, subscription_col="whole")
    with pytest.raises(TypeError, match="subscription_col: only a DataFrame has columns, not Engine"):
        match_events(events, Engine(), subscription_col="whole")


def test_columns_that_are_not_members_are_reported(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    frame = spark.createDataFrame([("a", "orders", 7, "me")], "ID string, collection string, version int, `changed by` string")
    with caplog.at_level(logging.WARNING, "streamer.spark"):
        assert stored(frame) == [of({"id": "a", "collection": "orders"})]
    assert "columns that are not members are left out: 'version', 'changed by'" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "streamer.spark"):
        assert stored(frame, extra="ignore") == [of({"id": "a", "collection": "orders"})]
    assert caplog.text == ""
    with pytest.raises(ValueError, match="no members are 'version', 'changed by'; there are id, "):
        texts_of(frame, extra="forbid")
    with pytest.raises(ValueError, match="extra: expected 'warn' or 'ignore' or 'forbid', not 'allow'"):
        match_events(frame, frame, extra="allow")  # type: ignore[arg-type]


def test_a_column_whose_name_was_mistyped_never_makes_a_subscription_wider(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", "[]")], "id string, filter string")
    with pytest.raises(ValueError, match="column 'filter' is not a member: is it 'filters'"):
        texts_of(frame)
    assert stored(frame, extra="ignore") == [of({"id": "a"})]
    # With the member there, a name that is like it is one among others.
    assert stored(frame.selectExpr("id", "filter", "'[]' AS filters")) == [of({"id": "a"})]
