"""What the schema next to a payload of Debezium means for values: engines read them as the decoder does."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, cdc
from streamer.events.literal_json import written
from tests.parts import in_parts

CONNECT = "org.apache.kafka.connect.data."
TIMES = [
    f"{CONNECT}Date",
    f"{CONNECT}Time",
    f"{CONNECT}Timestamp",
    *(
        f"io.debezium.time.{name}"
        for name in ("Date", "Time", "MicroTime", "NanoTime", "Timestamp", "MicroTimestamp", "NanoTimestamp")
    ),
]
TEXTS = ["", "a", "YbI=", "YQ", "é", "{}", '{"k": ["v", 1.50]}', "[1, {}]", "{", "1 2", " 5 ", '"x"', "\N{GRINNING FACE}/\\"]


def encoded(rng: random.Random) -> str:
    raw = rng.randbytes(rng.choice([0, 1, 1, 2, 3, 4, 8, 9, 16, 40]))
    return base64.b64encode(rng.choice([raw, b"\x80" + bytes(len(raw)), b"\xff" * len(raw), bytes(len(raw)) + raw])).decode()


def column(rng: random.Random, depth: int = 0) -> tuple[dict[str, Any], Any]:
    """Return the schema of a column, and a value, which fits it most often."""
    schema, value = rng.choice([decimal, scaled, moment, moment, text, *([items, members, struct] if depth < 3 else [])])(
        rng, depth
    )
    return schema, rng.choice([None, 5, 1.5, True, "x", [1], {"scale": 1}, -(2**63)]) if rng.random() < 0.1 else value


def decimal(rng: random.Random, _: int) -> tuple[dict[str, Any], Any]:
    scale: Any = rng.choice(["0", "1", "2", "9", "30", "-2", 2, "x", None, "20001"])
    parameters = {} if scale is None else {"parameters": {"scale": scale, "connect.decimal.precision": "10"}}
    return {"type": "bytes", "name": f"{CONNECT}Decimal", **parameters}, encoded(rng)


def scaled(rng: random.Random, _: int) -> tuple[dict[str, Any], Any]:
    name = rng.choice([{"name": "io.debezium.data.VariableScaleDecimal"}, {}])
    value = {"scale": rng.choice([0, 1, 7, -3, 20_001, 1.0, "1"]), "value": encoded(rng)}
    return {"type": "struct", **name}, rng.choice([value, dict(reversed(value.items())), {**value, "more": 1}])


def moment(rng: random.Random, _: int) -> tuple[dict[str, Any], Any]:
    large = [1795342530123, 1795342530123456, 43_200_000_000_000, rng.randint(-(2**62), 2**62)]
    value = rng.choice([0, -1, 1, 86_399, 86_400, 20484, rng.randint(-(10**6), 3 * 10**6), *large])
    return {"type": "int64", "name": rng.choice(TIMES)}, value


def text(rng: random.Random, _: int) -> tuple[dict[str, Any], Any]:
    return {"type": "string", "name": rng.choice(["io.debezium.data.Json", "io.debezium.data.Enum"])}, rng.choice(TEXTS)


def items(rng: random.Random, depth: int) -> tuple[dict[str, Any], Any]:
    schema, value = column(rng, depth + 1)
    return {"type": "array", "items": schema}, [value] * rng.randint(0, 3)


def members(rng: random.Random, depth: int) -> tuple[dict[str, Any], Any]:
    schema, value = column(rng, depth + 1)
    return {"type": "map", "values": schema}, dict.fromkeys(rng.sample(TEXTS, 2), value)


def struct(rng: random.Random, depth: int) -> tuple[dict[str, Any], Any]:
    columns = {name: column(rng, depth + 1) for name in rng.sample("abc", rng.randint(1, 3))}
    fields = [{**schema, "field": name} for name, (schema, _) in columns.items()]
    return {"type": "struct", "fields": fields}, {name: value for name, (_, value) in columns.items()}


def spelt(rng: random.Random, record: Any) -> str:
    text = json.dumps(record, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1]))
    return text.replace("/", "\\/") if rng.random() < 0.2 else text


@in_parts(8, slow=0)
def test_values_are_read_as_the_decoder_reads_them(part: int, engine: Callable[..., Engine]) -> None:
    rng = random.Random(part)
    converted = 0
    for _ in range(40):
        columns = {f"c{number}": column(rng) for number in range(rng.randint(1, 8))}
        fields = [{**schema, "field": name} for name, (schema, _) in columns.items()]
        rows = [{"field": name, "type": "struct", "fields": fields} for name in ("before", "after")]
        row = {name: value for name, (_, value) in columns.items()}
        payload = {"op": "c", "before": None, "after": row, "source": {"connector": "postgresql", "schema": "s", "table": "t"}}
        record = spelt(rng, {"schema": {"type": "struct", "fields": rows}, "payload": payload})
        ((event, _),) = cdc.debezium.read(record)
        read = json.loads(json.dumps(event["data"]))
        converted += sum(read[name] != row[name] for name in row)
        for validation in ("full", "lazy"):
            e = engine(format="debezium", validation=validation)
            e.add_many({"id": name, "filters": [{"field": name, "op": "==", "value": value}]} for name, value in read.items())
            assert set(e.match_ids(record)) == set(read), (record, read)
    assert converted > 50


DOCUMENTS: list[Any] = [
    {"$oid": "599af247bb69cd89961c986d"},
    {"$numberLong": "250"},
    {"$numberInt": "-7"},
    {"$numberDouble": "1.5"},
    {"$numberDouble": "NaN"},
    {"$numberDecimal": "12.50"},
    {"$date": 1795342530123},
    {"$date": {"$numberLong": "1795342530123"}},
    {"$date": "2026-11-22T10:15:30.5Z"},
    {"$date": "2026-11-22T10:15:30+02:00"},
    {"$date": {"$numberLong": "999999999999999"}},
    {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}},
    {"$binary": {"base64": "AAEC", "subType": "00"}},
    {"$symbol": "s"},
    {"$timestamp": {"t": 1, "i": 2}},
    {"$regularExpression": {"pattern": "a", "options": ""}},
    {"a": {"$numberLong": "1"}, "$b": 2},
    5,
    "x",
    None,
    [],
]


@in_parts(4, slow=0)
def test_extended_json_is_read_as_the_decoder_reads_it(part: int, engine: Callable[..., Engine]) -> None:
    rng = random.Random(part)
    for _ in range(40):

        def value(depth: int = 0) -> Any:
            if depth < 3 and rng.random() < 0.3:
                return [value(depth + 1) for _ in range(2)] if rng.random() < 0.5 else {"in": value(depth + 1), "b": 1}
            return rng.choice(DOCUMENTS)

        document = {f"c{number}": value() for number in range(rng.randint(1, 6))}
        source = {"connector": "mongodb", "db": "d", "collection": "t"}
        record = spelt(rng, {"op": "c", "after": spelt(rng, document), "source": source})
        ((event, _),) = cdc.debezium.read(record)
        read = json.loads(json.dumps(event["data"]))
        e = engine(format="debezium")
        e.add_many({"id": name, "filters": [{"field": name, "op": "==", "value": each}]} for name, each in read.items())
        assert set(e.match_ids(record)) == set(read), (record, read)


@pytest.mark.parametrize(
    ("name", "value"),
    [("$numberLong", "x"), ("$numberLong", 5), ("$date", "yesterday"), ("$date", None), ("$oid", 1), ("$binary", "x")],
)
def test_a_value_that_cannot_be_read_stays_as_it_is(engine: Callable[..., Engine], name: str, value: Any) -> None:
    e = engine(format="debezium")
    e.add({"id": "s", "filters": [{"field": "v", "op": "==", "value": {name: value}}]})
    source = {"connector": "mongodb", "db": "d", "collection": "t"}
    assert e.match_ids({"op": "c", "after": json.dumps({"v": {name: value}}), "source": source}) == ["s"]


@pytest.mark.parametrize("scale", [101, 20_000, -101, -20_000])
def test_a_decimal_of_a_large_scale_stays_short(scale: int, engine: Callable[..., Engine]) -> None:
    column = {"scale": scale, "value": "ew=="}
    record = {"op": "c", "before": None, "after": {"id": 1, "n": [column], "m": column}, "source": {"schema": "s", "table": "t"}}
    (event,) = cdc.debezium.decode(json.dumps(record))
    assert len(written(event)) < 2 * len(json.dumps(record))
    e = engine(format="debezium")
    e.add({"id": "positive", "cel": "data.m > 0.0 || data.m == 0.0"})
    e.add({"id": "number", "filters": [{"field": "m", "op": ">", "value": -1}]})
    # A number beyond float64 satisfies no condition.
    assert sorted(e.match_ids(json.dumps(record))) == ([] if scale == -20_000 else ["number", "positive"])
