"""Values of Avro become values of events, exactly, by the schema that wrote them."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from streamer.cdc import avro, debezium
from streamer.errors import EventError
from streamer.events import connect
from streamer.events.literal_json import written

DECIMAL = {"type": "bytes", "connect.name": connect.DECIMAL, "connect.parameters": {"scale": "2"}}
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **more}


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_logical_types(each) for name, each in schema.items() if name != "logicalType"}
    return [without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


def encoded(schema: Any, value: Any) -> bytes:
    """Write a value as it is in the bytes: an integer for a date, bytes for a decimal."""
    file = BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical_types(schema)), value)
    return file.getvalue()


def unscaled(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


def entry(key: Any, value: Any) -> dict[str, Any]:
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    return {"type": "record", "name": "MapEntry", "namespace": "io.confluent.connect.avro", "fields": fields}


HUGE = 10**60 + 7
VALUES: list[tuple[Any, Any, str]] = [
    # A number is exact, of any size.
    (DECIMAL, unscaled(25010), "250.10"),
    (DECIMAL, unscaled(-1), "-0.01"),
    (DECIMAL, unscaled(HUGE), f"{HUGE}"[:-2] + "." + f"{HUGE}"[-2:]),
    (["null", DECIMAL], None, "null"),
    (["null", DECIMAL], unscaled(5), "0.05"),
    ([DECIMAL, "null"], unscaled(5), "0.05"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, unscaled(-1500), "-1.500"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9}, unscaled(15), "15"),
    (
        {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
        b"\xff\xff\xff\x9c",
        "-1.00",
    ),
    (VARIABLE, {"scale": 9, "value": unscaled(HUGE)}, f"{HUGE}"[:-9] + "." + f"{HUGE}"[-9:]),
    # Dates and times are text.
    (named("int", "io.debezium.time.Date"), 20484, '"2026-01-31"'),
    (named("int", "org.apache.kafka.connect.data.Date", logicalType="date"), -1, '"1969-12-31"'),
    ({"type": "int", "logicalType": "date"}, 20484, '"2026-01-31"'),
    (named("long", "io.debezium.time.MicroTimestamp"), 1767225600000001, '"2026-01-01T00:00:00.000001Z"'),
    (named("long", "io.debezium.time.NanoTimestamp"), 1767225600000000001, '"2026-01-01T00:00:00.000000001Z"'),
    (named("long", "io.debezium.time.Timestamp"), -1, '"1969-12-31T23:59:59.999Z"'),
    (named("long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis"), 0, '"1970-01-01T00:00:00Z"'),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1767225600500000, '"2026-01-01T00:00:00.5Z"'),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 5, '"1970-01-01T00:00:00.000000005Z"'),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 0, '"1970-01-01T00:00:00Z"'),
    (named("int", "io.debezium.time.Time"), 45_296_007, '"12:34:56.007"'),
    (named("long", "io.debezium.time.MicroTime"), 1, '"00:00:00.000001"'),
    (named("long", "io.debezium.time.NanoTime"), 86_400_000_000_000, '"24:00:00"'),
    ({"type": "long", "logicalType": "time-micros"}, 0, '"00:00:00"'),
    (named("string", "io.debezium.time.ZonedTimestamp"), "2026-01-01T00:00:00Z", '"2026-01-01T00:00:00Z"'),
    # Beyond the years 1 to 9999 a number stays what it is.
    (named("int", "io.debezium.time.Date"), 2**31 - 1, "2147483647"),
    (named("long", "io.debezium.time.MicroTimestamp"), 2**63 - 1, "9223372036854775807"),
    ({"type": "long", "logicalType": "timestamp-micros"}, -(2**63), "-9223372036854775808"),
    # What Debezium and Avro name otherwise.
    (named("string", "io.debezium.data.Json"), '{"a": [1.10]}', '{"a":[1.10]}'),
    (named("string", "io.debezium.data.Json"), "no JSON", '"no JSON"'),
    (named("string", "io.debezium.data.Uuid"), "00000000-0000-0000-0000-000000000001", '"00000000-0000-0000-0000-000000000001"'),
    (named("string", "io.debezium.data.Enum", **{"connect.parameters": {"allowed": "a,b"}}), "b", '"b"'),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", '"B"'),
    ({"type": "string", "logicalType": "uuid"}, "00000000-0000-0000-0000-000000000001", '"00000000-0000-0000-0000-000000000001"'),
    ("bytes", b"\x00\xff", '"AP8="'),
    (named("bytes", "io.debezium.data.Bits"), b"\x05", '"BQ=="'),
    ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", '"AP8="'),
    # Numbers have the digits that they need, and text stands for what JSON has no number for.
    ("float", 0.1, "0.1"),
    ("float", 16777216.0, "16777216.0"),
    ("float", 3.4028234663852886e38, "3.4028235e+38"),
    ("float", float("nan"), '"NaN"'),
    ("double", 0.1, "0.1"),
    ("double", float("-inf"), '"-Infinity"'),
    ("double", float("inf"), '"Infinity"'),
    ("long", 2**63 - 1, "9223372036854775807"),
    ("boolean", True, "true"),
    ("null", None, "null"),
    ("string", "ü", '"ü"'),
    # In arrays, maps, records.
    ({"type": "array", "items": ["null", DECIMAL]}, [unscaled(1), None], "[0.01,null]"),
    ({"type": "array", "items": named("int", "io.debezium.time.Date")}, [0], '["1970-01-01"]'),
    ({"type": "map", "values": ["null", "bytes"]}, {"a": b"\x00", "b": None}, '{"a":"AA==","b":null}'),
    ({"type": "array", "items": entry(["null", "string"], ["null", "int"])}, [{"key": "a", "value": 1}], '{"a":1}'),
    ({"type": "array", "items": entry("int", "bytes")}, [{"key": 1, "value": b"\x00"}], '[[1,"AA=="]]'),
    (
        {"type": "record", "name": "a.b.R", "fields": [{"name": "x", "type": DECIMAL}, {"name": "y", "type": "int"}]},
        {"x": unscaled(1), "y": 2},
        '{"x":0.01,"y":2}',
    ),
]


@pytest.mark.parametrize(("schema", "value", "text"), VALUES)
def test_a_value_is_what_its_schema_says(schema: Any, value: Any, text: str) -> None:
    read, _ = avro.reader(json.dumps(schema))
    assert written(read(encoded(schema, value))) == text


def test_decimals_are_those_of_pythons_decimal() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 7}
    read, _ = avro.reader(json.dumps(schema))
    for number in (0, 1, -1, 127, 128, -128, -129, 255, 10**7, -(10**7), 2**64, -(2**64), 10**39):
        assert Decimal(written(read(encoded(schema, unscaled(number))))) == Decimal(number).scaleb(-7)


def test_a_union_tells_of_which_type_a_value_is() -> None:
    date, timestamp = named("int", "io.debezium.time.Date"), named("long", "io.debezium.time.Timestamp")
    schema = ["null", date, timestamp, "bytes", "string"]
    read, _ = avro.reader(json.dumps(schema))
    assert [read(each) for each in (b"\x00", b"\x02\x00", b"\x04\x00", b"\x06\x02A", b"\x08\x02A")] == [
        *(None, "1970-01-01", "1970-01-01T00:00:00Z", "QQ==", "A")
    ]


def test_a_named_type_is_found_in_its_namespace_and_converted_wherever_it_is_named() -> None:
    value = {"type": "record", "name": "Value", "fields": [{"name": "at", "type": named("int", "io.debezium.time.Date")}]}
    schema = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "other", "type": ["null", "shop.orders.Value"]},
        ],
    }
    read, _ = avro.reader(json.dumps(schema))
    assert read(b"\x02\x00\x02\x02\x02\x04") == {
        "before": {"at": "1970-01-01"},
        "after": {"at": "1970-01-02"},
        "other": {"at": "1970-01-03"},
    }


def test_a_type_may_be_in_itself() -> None:
    fields = [{"name": "raw", "type": "bytes"}, {"name": "next", "type": ["null", "Node"]}]
    read, _ = avro.reader(json.dumps({"type": "record", "name": "Node", "fields": fields}))
    assert read(b"\x02A\x02\x02B\x00") == {"raw": "QQ==", "next": {"raw": "Qg==", "next": None}}


def test_a_schema_refers_to_others() -> None:
    customer = {"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "of", "type": "Country"}]}
    country = {"type": "enum", "name": "Country", "namespace": "shop", "symbols": ["DE", "FR"]}
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "by", "type": "shop.Customer"}]}
    read, _ = avro.reader(json.dumps(order), [json.dumps(country), json.dumps(customer)])
    assert read(b"\x02") == {"by": {"of": "FR"}}
    with pytest.raises(ValueError, match=r"this is not an Avro schema: the type 'shop\.Customer' is not defined"):
        avro.reader(json.dumps(order))


ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "record", "reason"),
    [
        (ROW, b"\x02", "avro: the record does not fit its schema: it ends too early"),
        (ROW, b"\x02\x06ab", "avro: the record does not fit its schema: it ends too early"),
        (ROW, b"\x02\x02a\x00", "avro: the record does not fit its schema: 1 bytes follow after its last value"),
        (ROW, b"\x02\x02\xff", "avro: the record does not fit its schema: 'utf-8' codec can't decode"),
        (["null", "int"], b"\x08", "avro: the record does not fit its schema: it names a type or a symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08", "avro: the record does not fit its schema: it names a type"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "avro: the record does not fit its schema"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "avro: the record does not fit its schema"),
        ("string", b"\x01", "avro: the record does not fit its schema"),
        ("long", b"\xff" * 20, "avro: the record does not fit its schema"),
    ],
)
def test_a_record_that_does_not_fit_its_schema_is_an_error_of_the_record(schema: Any, record: bytes, reason: str) -> None:
    read, _ = avro.reader(json.dumps(schema))
    with pytest.raises(EventError) as error:
        read(record)
    assert error.value.reason.startswith(reason)


def test_a_record_nests_no_deeper_than_python_follows() -> None:
    read, _ = avro.reader(json.dumps({"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}))
    with pytest.raises(EventError, match="does not fit its schema"):
        read(b"\x02" * 1_000_000)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "Expecting value"),
        ("{}", "this is not an Avro schema"),
        ('"money"', "the type 'money' is not defined"),
        ('{"type": "record", "name": "R"}', "this is not an Avro schema"),
        ('{"type": "array", "items": "null"}', "an array of values without bytes may have any length"),
        ('{"type": "array", "items": ' * 300 + '"int"' + "}" * 300, "nested too deep"),
    ],
)
def test_what_is_no_schema_says_so(schema: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        avro.reader(schema)


def columns(*fields: dict[str, Any]) -> dict[str, Any]:
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, *fields]}
    of_source = [{"name": name, "type": "string"} for name in ("connector", "schema", "table")]
    source = {"type": "record", "name": "Source", "namespace": "io.debezium", "fields": of_source}
    members = [
        {"name": "before", "type": ["null", value], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop.orders", "fields": members}


@pytest.mark.parametrize(
    ("column", "raw", "carried"),
    [
        # What Debezium writes for a column that PostgreSQL has not sent with a delete.
        ({"name": "x", "type": ["null", "string"], "default": None}, None, False),
        ({"name": "x", "type": {"type": "string", "connect.default": "new"}, "default": "new"}, "new", False),
        ({"name": "x", "type": ["int", "null"], "default": 7}, 7, False),
        ({"name": "x", "type": {**DECIMAL, "connect.default": "\u0001"}, "default": "\u0001"}, unscaled(1), False),
        ({"name": "x", "type": named("long", "io.debezium.time.MicroTimestamp"), "default": 5}, 5, False),
        ({"name": "x", "type": named("int", "io.debezium.time.Time")}, 0, False),
        ({"name": "x", "type": named("int", "io.debezium.time.Date")}, 0, False),
        ({"name": "x", "type": DECIMAL}, unscaled(0), False),
    ],
)
def test_a_delete_of_postgresql_carries_no_column_that_is_blank_or_its_default(
    column: dict[str, Any], raw: Any, carried: bool
) -> None:
    schema = columns(column)
    read, beside = avro.reader(json.dumps(schema))
    source = {"connector": "postgresql", "schema": "shop", "table": "orders"}
    value = read(encoded(schema, {"before": {"id": 1, "x": raw}, "after": None, "source": source, "op": "d"}))
    payload = value if beside is None else {"schema": beside, "payload": value}
    ((event, key),) = debezium.read(payload, {"id": 1})
    assert ("x" in event["before"], event["before"]["id"], key) == (carried, 1, [1])
