"""Events that are structs, maps, variants or whole rows match as their JSON does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import Engine

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

import pyspark
from pyspark.sql import functions as F  # noqa: N812

from streamer.spark import match_batches, match_events, match_stream, matches_of, publish, rejected_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

STRATEGIES = ("broadcast", "cogroup")
HAS_VARIANTS = not pyspark.__version__.startswith("3.")

#: A column of each kind in SQL, the JSON that it stands for, and conditions that are true of it and false.
VALUES: dict[str, tuple[str, Any, list[str], list[str]]] = {
    "tiny": ("cast(7 as tinyint)", 7, ["data.tiny == 7"], ["data.tiny == 8"]),
    "big": ("9223372036854775807L", 2**63 - 1, ["data.big == 9223372036854775807"], ["data.big == 9223372036854775806"]),
    "price": ("cast('12.50' as decimal(38,18))", 12.5, ["data.price == 12.5", "data.price > 12"], ["data.price > 12.5"]),
    "whole": ("cast('18446744073709551615' as decimal(38,0))", 2**64 - 1, ["data.whole == 18446744073709551615u"], []),
    "zero": ("cast(0 as decimal(20,10))", 0, ["data.zero == 0"], ["data.zero > 0"]),
    "single": ("cast(0.1 as float)", 0.1, ["data.single == 0.1"], []),
    "double": ("1e300D", 1e300, ["data.double == 1e300"], []),
    "nan": ("cast('nan' as double)", "NaN", ["data.nan == 'NaN'"], ["data.nan > 0.0", "data.nan <= 0.0"]),
    "inf": ("cast('-inf' as float)", "-Infinity", ["data.inf == '-Infinity'"], ["data.inf < 0.0"]),
    "at": (
        "timestamp'2026-11-22 05:15:30.123456 America/New_York'",
        "2026-11-22T10:15:30.123456Z",
        ["timestamp(data.at) == timestamp('2026-11-22T10:15:30.123456Z')", "data.at > '2026-11-22T10:15:30.000000Z'"],
        ["timestamp(data.at) < timestamp('2026-11-22T10:15:30.123456Z')"],
    ),
    "local": ("timestamp_ntz'2026-11-22 10:15:30'", "2026-11-22T10:15:30.000000", ["data.local < '2026-11-23'"], []),
    "day": ("date'2026-11-22'", "2026-11-22", ["data.day == '2026-11-22'"], ["data.day > '2026-11-22'"]),
    "bytes": ("X'00FF41'", "AP9B", ["data.bytes == 'AP9B'"], []),
    "null": ("cast(null as string)", None, ["has(data.`null`)", "data.`null` == null"], ["!has(data.`null`)"]),
    "none": ("cast(null as struct<a: int>)", None, ["data.none == null"], ["has(data.none.a)"]),
    "deep": (
        "named_struct('a', named_struct('b', cast(null as int), 'c', array(1, null)))",
        {"a": {"b": None, "c": [1, None]}},
        ["data.deep.a.b == null", "data.deep.a.c == [1, null]"],
        ["data.deep.a.b == 0"],
    ),
    "map": ("map('x', 1, 'y', null)", {"x": 1, "y": None}, ["data.map.x == 1", "has(data.map.y)"], ["has(data.map.z)"]),
    "by_number": ("map(7, 'seven')", {"7": "seven"}, ["data.by_number['7'] == 'seven'"], []),
    "text": (r"'é\"\\\n'", 'é"\\\n', [r"""data.text == 'é"\\\n'"""], []),
    "a.b": ("true", True, ["data.`a.b`"], []),
}


def whole_event() -> dict[str, Any]:
    return {"id": "e1", "collection": "all", "type": "insert", "data": {name: value[1] for name, value in VALUES.items()}}


def subscriptions() -> list[dict[str, Any]]:
    wanted = [(f"{name} {at}", cel) for name, value in VALUES.items() for at, cel in enumerate([*value[2], *value[3]])]
    return [{"id": id_, "cel": cel} for id_, cel in wanted]


def engine_of(*documents: dict[str, Any], **options: Any) -> Engine:
    made = Engine(**options)
    made.add_many(documents)
    return made


def as_struct(spark: SparkSession) -> DataFrame:
    members = ", ".join(f"'{name}', {value[0]}" for name, value in VALUES.items())
    event = f"named_struct('id', 'e1', 'collection', 'all', 'type', 'insert', 'data', named_struct({members}))"
    return spark.sql(f"SELECT {event} AS value, 7 AS n UNION ALL SELECT null, 8")


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(row["subscription_id"] for row in frame.collect())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_a_struct_of_each_type_matches_as_its_json(spark: SparkSession, backend: str, strategy: Any, zone: str) -> None:
    engine = engine_of(*subscriptions())
    expected = Counter(each.subscription_id for each in engine.match(json.dumps(whole_event())))
    assert expected.keys() == {f"{name} {at}" for name, value in VALUES.items() for at in range(len(value[2]))}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        result = match_events(as_struct(spark), engine, keep=["n", "value"], keep_event=True, strategy=strategy)
        rows = result.matches.collect()
        assert Counter(row["subscription_id"] for row in rows) == expected
        # The row of null is ignored.
        assert {row["n"] for row in rows} == {7}
        assert json.loads(rows[0]["event"]) == whole_event()
        # The struct itself is a column that may be kept.
        assert rows[0]["value"]["data"]["big"] == 2**63 - 1
        assert result.rejected.count() == 0
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_a_row_may_be_the_event(spark: SparkSession, backend: str) -> None:
    """As of a table that Debezium's records are in, each part in a column."""
    row, source = "struct<id: bigint, status: string>", "struct<db: string, table: string, ts_ms: bigint>"
    table = spark.createDataFrame(
        [
            ((7, "new"), (7, "paid"), "u", ("shop", "orders", 1795342530123), 1795342530456, 0),
            (None, (8, "paid"), "c", ("shop", "orders", 1795342530123), None, 1),
            ((9, "paid"), None, "d", ("shop", "orders", 1795342530123), None, 2),
            # A heartbeat, and a word that Debezium has not.
            (None, None, None, None, 1795342530456, 3),
            (None, (9, "paid"), "x", ("shop", "orders", 1795342530123), None, 4),
        ],
        f"before {row}, after {row}, op string, source {source}, ts_ms bigint, offset int",
    )
    engine = engine_of(
        {"id": "paid", "collection": "orders", "filters": [{"field": "status", "op": "==", "value": "paid"}]},
        {"id": "became-paid", "filters": [{"field": "status", "op": "changed_to", "value": "paid"}]},
        {"id": "deleted", "types": ["delete"]},
        {"id": "of another column", "pattern": {"offset": [1]}},
        format="debezium",
    )
    rows = [row.asDict(recursive=True) for row in table.collect()]
    expected = Counter(
        (row["offset"], each.subscription_id, each.transition, each.certain) for row in rows[:4] for each in engine.match(row)
    )
    result = match_events(table, engine, event_col="*", keep=["offset"])
    got = Counter((row["offset"], row["subscription_id"], row["transition"], row["certain"]) for row in result.matches.collect())
    assert got == expected
    assert {"became-paid", "deleted", "of another column"} <= {each[1] for each in expected}
    (bad,) = result.rejected.collect()
    assert (bad["offset"], json.loads(bad["event"])["op"]) == (4, "x")


def test_a_map_and_a_variant_are_events(spark: SparkSession, backend: str) -> None:
    engine = engine_of({"id": "s", "pattern": {"data": {"n": [{"numeric": [">", 1]}]}}}, format="document")
    maps = spark.sql("SELECT map('data', map('n', 2, 'm', null)) AS value UNION ALL SELECT map('data', map('n', 1))")
    assert counted(match_events(maps, engine).matches) == {"s": 1}
    if HAS_VARIANTS:
        variants = spark.sql(
            """SELECT parse_json(text) AS value FROM VALUES ('{"data": {"n": 2.5}}'), ('{}'), ('[1]'), ('null') AS t(text)"""
        )
        result = match_events(variants, engine)
        assert counted(result.matches) == {"s": 1}
        assert [row["event"] for row in result.rejected.collect()] == ["[1]"]


def test_an_envelope_that_cannot_be_is_rejected_and_its_neighbours_match(spark: SparkSession, backend: str) -> None:
    rows = spark.sql(
        "SELECT named_struct('id', id, 'collection', collection, 'data', named_struct('n', id)) AS value "
        "FROM VALUES (1, 'orders'), (2, '*'), (3, 'orders'), (4, null) AS t(id, collection)"
    )
    outcomes = match_events(rows, engine_of({"id": "s", "collection": "orders"})).outcomes.persist()
    try:
        assert sorted(row["event_id"] for row in matches_of(outcomes).collect()) == ["1", "3"]
        assert [json.loads(row["event"])["id"] for row in rejected_of(outcomes).collect()] == [2]
    finally:
        outcomes.unpersist()


def test_streams_take_structs(spark: SparkSession, backend: str, tmp_path: Path) -> None:
    engine = engine_of(*subscriptions())
    publish(engine, tmp_path / "versions")
    as_struct(spark).write.parquet(str(tmp_path / "events"))
    schema = spark.read.parquet(str(tmp_path / "events")).schema
    incoming = spark.readStream.schema(schema).parquet(str(tmp_path / "events"))
    expected = Counter(each.subscription_id for each in engine.match(json.dumps(whole_event())))
    got: list[Counter[str]] = []
    matcher = match_batches(tmp_path / "versions", lambda frame, _: got.append(counted(frame)))
    for at, (frame, write) in enumerate(
        ((match_stream(incoming, tmp_path / "versions"), lambda frame, _: got.append(counted(frame))), (incoming, matcher))
    ):
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / f"checkpoint{at}"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert got == [expected] * 2


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("array(named_struct('id', 1))", "is array<struct<id:int>>; an event is JSON as string or binary, a struct"),
        ("1", "is int; an event is JSON"),
        ("named_struct('data', map(date'2026-11-22', 1))", r"'value.data' is map<date,int>; the names of an object are text"),
        ("named_struct('a', array(map(X'00', 1)))", r"'value.a\[\]' is map<binary,int>"),
        ("map('a', map(1.5D, 1))", r"'value\{\}' is map<double,int>"),
    ],
)
def test_what_no_json_stands_for_is_refused(spark: SparkSession, sql: str, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        match_events(spark.sql(f"SELECT {sql} AS value"), Engine())


def test_a_row_with_ambiguous_names_is_refused(spark: SparkSession) -> None:
    frame = spark.range(1).select(F.lit(1).alias("data"), F.lit(2).alias("DATA"))
    with pytest.raises(ValueError, match="column 'data' may be any of data, DATA"):
        match_events(frame, Engine(), event_col="*")
