"""Columns are found by their whole names, and compared as the session says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import Engine

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from streamer.spark import match_events, match_stream, matches_of, publish, rejected_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

STRATEGIES = ("broadcast", "cogroup")
GOOD, BAD = '{"id": "e1", "collection": "c"}', '{"id": "e2"'
#: A name of columns that Spark would take for a member of a struct, one with its quotes, and names of the shuffle's own kind.
KEEP = ("kafka.offset", "a`b.c", "body", "slot", "group")


@pytest.fixture
def engine() -> Engine:
    made = Engine()
    made.add({"id": "s"})
    return made


@pytest.fixture
def is_exact(spark: SparkSession) -> Iterator[None]:
    """The session tells upper from lower case."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


def frame(spark: SparkSession, event_col: str, *names: str) -> DataFrame:
    fields = [StructField(event_col, StringType()), *(StructField(name, IntegerType()) for name in names)]
    rows = [(event, *range(10 * n, 10 * n + len(names))) for n, event in enumerate((GOOD, BAD))]
    return spark.createDataFrame(rows, StructType(fields))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_name_may_have_dots_and_quotes(spark: SparkSession, backend: str, engine: Engine, strategy: Any) -> None:
    events = frame(spark, "body.json", *KEEP)
    result = match_events(events, engine, event_col="body.json", keep=(*KEEP, "body.json"), strategy=strategy)
    ways = {"alone": (result.matches, result.rejected), "one pass": (matches_of(result.outcomes), rejected_of(result.outcomes))}
    for matches, rejected in ways.values():
        (match,) = matches.collect()
        assert (match["event_id"], *(match[name] for name in KEEP), match["body.json"]) == ("e1", *range(5), GOOD)
        (row,) = rejected.collect()
        assert (row["event"], *(row[name] for name in KEEP), row["body.json"]) == (BAD, *range(10, 15), BAD)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_column_may_hold_structs(spark: SparkSession, backend: str, engine: Engine, strategy: Any) -> None:
    """As Kafka's headers do."""
    headers = [[("trace", bytearray(b"\x00\xff")), ("empty", None)], [("of a bad one", bytearray(b"1"))]]
    events = spark.createDataFrame(
        [(GOOD, headers[0], {"a": [1]}), (BAD, headers[1], None), (GOOD, None, {}), (GOOD, [], {"b": None})],
        "value string, headers array<struct<key: string, value: binary>>, map map<string, array<int>>",
    ).repartition(2)
    result = match_events(events, engine, keep=["headers", "map"], strategy=strategy)
    for matches, rejected in ((result.matches, result.rejected), (matches_of(result.outcomes), rejected_of(result.outcomes))):
        rows = [(row["headers"] and [tuple(each) for each in row["headers"]], row["map"]) for row in matches.collect()]
        assert sorted(rows, key=str) == sorted([(headers[0], {"a": [1]}), (None, {}), ([], {"b": None})], key=str)
        (bad,) = rejected.collect()
        assert ([tuple(each) for each in bad["headers"]], bad["map"]) == (headers[1], None)


def test_a_stream_takes_such_names(spark: SparkSession, backend: str, engine: Engine, tmp_path: Path) -> None:
    publish(engine, tmp_path)
    (match,) = match_stream(frame(spark, "body.json", *KEEP), tmp_path, event_col="Body.JSON", keep=KEEP).collect()
    assert (match["event_id"], *(match[name] for name in KEEP)) == ("e1", *range(5))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_case_makes_no_difference_where_the_session_sees_none(
    spark: SparkSession, backend: str, engine: Engine, strategy: Any
) -> None:
    """A kept column has the name by which it was asked for, as of `select`."""
    events = frame(spark, "Value", "Offset")
    result = match_events(events, engine, event_col="VALUE", keep=["offset", "value"], strategy=strategy)
    assert result.matches.columns[-2:] == ["offset", "value"]
    assert [(row.offset, row.value) for row in result.matches.collect()] == [(0, GOOD)]


def test_case_makes_a_difference_where_the_session_sees_one(
    spark: SparkSession, backend: str, engine: Engine, is_exact: None
) -> None:
    events = frame(spark, "value", "n", "N", "Event_ID")
    with pytest.raises(ValueError, match="there is no column 'VALUE'; there are value, n, N, Event_ID"):
        match_events(events, engine, event_col="VALUE")
    (row,) = match_events(events, engine, keep=["N", "n", "Event_ID"], strategy="broadcast").matches.collect()
    assert (row["N"], row["n"], row["Event_ID"], row["event_id"]) == (1, 0, 2, "e1")


def test_ambiguous_names_are_refused(spark: SparkSession, engine: Engine, tmp_path: Path) -> None:
    publish(engine, tmp_path)
    with pytest.raises(ValueError, match="column 'n' may be any of n, N; rename all but one"):
        match_events(frame(spark, "value", "n", "N"), engine, keep=["n"])
    with pytest.raises(ValueError, match="columns Event_ID of its own"):
        match_events(frame(spark, "value", "Event_ID"), engine, keep=["Event_ID"])
    with pytest.raises(ValueError, match="keep: a name stands twice"):
        match_events(frame(spark, "value", "n"), engine, keep=["n", "N"])
    with pytest.raises(ValueError, match="columns Snapshot of its own"):
        match_stream(frame(spark, "value", "Snapshot"), tmp_path, keep=["Snapshot"])
