"""The native core reads the records of a source as the decoders of the reference do: the same events, keys and errors."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamer import EventError, _backend
from streamer.config.schema.encoded import SourceFormat
from streamer.events.format_options import Tables
from streamer.events.literal_json import parsed, written
from streamer.service.connectors.formats import Decoder, decoder
from tests.cdc.test_golden import CONFIGURATIONS, golden
from tests.parts import in_rounds
from tests.property.test_changes import RECORDS, mutated
from tests.property.test_typed import column, spelt
from tests.tools.golden_oracle import rows
from tests.tools.golden_source import Configuration, Source

pytestmark = pytest.mark.skipif("native" not in _backend.available(), reason="this compares the native core with the reference")

SOURCE = {"connector": "postgresql", "ts_ms": 1, "schema": "shop", "table": "orders"}
ROW = {"id": 7, "n": 1.5, "s": "", "j": "__debezium_unavailable_value", "big": {"scale": 1, "value": "AQ=="}, "gone": None}
MORE: dict[SourceFormat, list[Any]] = {
    "debezium": [
        {"before": {"id": 7, "j": "x"}, "after": ROW, "source": SOURCE, "op": "u", "ts_ms": 2},
        {"before": ROW, "after": None, "source": SOURCE, "op": "d"},
        {"before": None, "after": '{"_id": {"$oid": "5"}}', "source": {**SOURCE, "connector": "mongodb"}, "op": "u"},
        {"before": ROW, "after": ROW, "source": {**SOURCE, "connector": "yugabytedb"}, "op": "u"},
        {"before": {**ROW, "s": None}, "after": ROW, "source": {**SOURCE, "connector": "spanner"}, "op": "u"},
        {"before": ROW, "after": None, "source": {**SOURCE, "connector": "sqlserver"}, "op": "d"},
        {"after": ROW, "source": {**SOURCE, "connector": "cassandra", "ts_ms": 10**15}, "op": "d"},
    ],
    "debezium_unwrapped": [
        {**ROW, "__op": "u", "__table": "orders", "__db": "shop", "__source_ts_ms": 1, "__deleted": "false"},
        {**ROW, "__deleted": "true", "__table": "orders", "schema": {}, "payload": {"__op": "c"}},
        {**ROW, "__deleted": "false", "__table": "orders"},
        {**ROW, "_op": "u", "_schema": "shop", "_table": "orders", "_ts_ms": 5},
        {**ROW, "__op": "c", "_op": "d"},
        ROW,
    ],
    "cloudevents": [
        {"specversion": "1.0", "id": "a", "source": "s", "type": "t", "time": "2026-01-31T12:00:00.5Z", "data": {"id": 1}},
        [
            {"specversion": "1.0", "id": "a", "source": "s", "type": "t", "data": [1], "partitionkey": "k"},
            {
                "specversion": "1.0",
                "id": "b",
                "source": "s",
                "type": "t",
                "data_base64": "eyJhIjoxfQ==",
                "datacontenttype": "a/json",
            },
        ],
    ],
}
KEYS = (None, None, b'{"id":7}', b'{"id": 8}', b'{"id":7,"s":""}', b'{"n":1.50}', b"7", b"\xff", "text", b'{"gone":null}')
#: Values, in addition to those of `mutated`, that mean something to Debezium or CloudEvents.
WORDS = ("c", "d", "t", "m", "x", "BEGIN", "true", "1.0", "eyJhIjp9", "AA==", "1970-01-01", -0.0, 2**64, {"id": "é\n"})


def both(name: SourceFormat, **options: Any) -> tuple[Decoder, Decoder]:
    """Return the native decoder and the one of the reference."""
    found = []
    for backend in ("native", "reference"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_backend, "BACKEND", backend)
            made = decoder(name, **options)
            assert made is not None
            found.append(made)
    return found[0], found[1]


def answer(decode: Decoder, record: bytes, key: bytes | str | None) -> Any:
    """Return the events of a record with their keys, written in one way, or its error."""
    try:
        return [(canonical(event), own) for event, own in decode(record, key, "a.shop.orders/0")]
    except EventError as error:
        return error.code, error.place, error.offset


def canonical(event: bytes) -> str:
    value = parsed(event, "")
    if isinstance(value, dict) and "unknown" in value:
        value = value | {"unknown": sorted(value["unknown"])}
    return written(in_order(value))


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(each) for each in value] if isinstance(value, list) else value


def records(name: SourceFormat) -> list[Any]:
    cases = tomllib.loads((Path(__file__).parents[2] / "testdata/cdc/debezium.toml").read_text())["case"]
    told = [case["value"] for case in cases if case.get("format", "debezium") == name and case["value"].lstrip().startswith("{")]
    return [*MORE.get(name, ()), *([RECORDS[name]] if name in RECORDS else []), *map(json.loads, told)]


def with_words(rng: Random, record: Any) -> Any:
    """Return a record of which one more member has a word that means something."""
    if isinstance(record, dict) and record and rng.random() < 0.3:
        name = rng.choice([*record])
        inner = record[name]
        return {**record, name: with_words(rng, inner) if isinstance(inner, dict) else rng.choice(WORDS)}
    return record


OPTIONS: list[dict[str, Any]] = [
    *({}, {"envelope": True}, {"tables": Tables(("shop.orders",), "shop.unnamed")}, {"most": 1}, {"of_topics": True}),
    {"tables": Tables(prefix="_"), "envelope": True, "of_topics": True},
]


@in_rounds(500, 10_000)
@pytest.mark.parametrize("name", ["canal", "cloudevents", "debezium", "debezium_unwrapped", "dynamodb", "mongodb", "wal2json"])
def test_both_read_a_record_alike(name: SourceFormat, rounds: int) -> None:
    rng, good = Random(name), 0
    pairs = [both(name, **options) for options in OPTIONS]
    made = records(name)
    for number in range(rounds):
        record = made[number % len(made)]
        if number >= len(made):
            record = with_words(rng, mutated(rng, record, rng.choice((0.01, 0.03, 0.06))))
        text, key, pair = json.dumps(record).encode(), rng.choice(KEYS), rng.choice(pairs)
        found = answer(pair[0], text, key)
        assert found == answer(pair[1], text, key), (text, key, pairs.index(pair))
        good += isinstance(found, list) and bool(found)
    assert good > rounds / 10


@pytest.mark.parametrize(("source", "of"), CONFIGURATIONS)
def test_both_read_a_record_of_the_real_engine_alike(source: Source, of: Configuration) -> None:
    observed, _ = golden(source)
    native, reference = both("debezium" if of.deletes is None else "debezium_unwrapped")
    compared = 0
    for row in rows(source, observed, of):
        assert answer(native, row.text or b"", row.key) == answer(reference, row.text or b"", row.key), row
        compared += 1
    assert compared > 50


def test_both_read_values_with_their_schema_alike() -> None:
    rng = Random("schemas")
    whole, unwrapped = both("debezium"), both("debezium_unwrapped")
    for _ in range(300):
        columns = {f"c{number}": column(rng) for number in range(rng.randint(1, 8))}
        fields = [
            {**schema, "field": name} | ({"default": value} if rng.random() < 0.3 else {})
            for name, (schema, value) in columns.items()
        ]
        described = [{"field": name, "type": "struct", "fields": fields} for name in ("before", "after")]
        row = {name: value for name, (_, value) in columns.items()}
        payload = {"op": rng.choice("cud"), "before": {**row, "c0": 1}, "after": row, "source": SOURCE}
        added = {"__op": payload["op"], "__table": "orders"}
        for pair, record in (
            (whole, {"schema": {"type": "struct", "fields": described}, "payload": payload}),
            (unwrapped, {"schema": {"type": "struct", "fields": fields}, "payload": row | added}),
        ):
            text, key = spelt(rng, record).encode(), rng.choice([None, b'{"c0":1}', b'{"c1":1}'])
            assert answer(pair[0], text, key) == answer(pair[1], text, key), (text, key)


@pytest.mark.parametrize(
    "row", [{"a/b~op": 5}, {"a/b~op": "x"}, {"a/b~op": "c"}, {"a/b~op": "c", "a/b~table": 5}], ids=json.dumps
)
def test_both_name_the_place_of_a_field_with_any_prefix(row: dict[str, Any]) -> None:
    text = json.dumps(row).encode()
    native, reference = (answer(decode, text, None) for decode in both("debezium_unwrapped", tables=Tables(prefix="a/b~")))
    assert native == reference
    assert native[1] in ("/a~1b~0op", "/a~1b~0table")


MANY = {f"c{number}": "1" for number in range(60_000)}
FIELDS = [{"field": name, "type": "string", "optional": True, "default": "2"} for name in MANY]
STRUCTS = [{"field": name, "type": "struct", "fields": FIELDS} for name in ("before", "after")]
COLUMNS = [{"name": name, "type": "text", "value": "1"} for name in MANY]
ITEM = {name: {"S": "1"} for name in MANY}
STREAM = "arn:aws:dynamodb:eu-west-1:1:table/orders/stream/1"
DELETED = {"op": "d", "before": MANY, "after": None, "source": SOURCE}
WIDE: dict[str, tuple[SourceFormat, Any]] = {
    "canal": ("canal", {**RECORDS["canal"], "data": [MANY], "old": [MANY], "pkNames": [*MANY]}),
    "debezium": ("debezium", {"op": "u", "before": MANY, "after": MANY, "source": SOURCE}),
    "schema": ("debezium", {"schema": {"type": "struct", "fields": STRUCTS}, "payload": DELETED}),
    "debezium_unwrapped": ("debezium_unwrapped", {**MANY, "__op": "u", "__table": "orders"}),
    "dynamodb": (
        "dynamodb",
        {"eventName": "MODIFY", "eventSourceARN": STREAM, "dynamodb": {"Keys": ITEM, "NewImage": ITEM, "OldImage": ITEM}},
    ),
    "mongodb": (
        "mongodb",
        {"operationType": "insert", "ns": {"db": "a", "coll": "b"}, "documentKey": MANY, "fullDocument": MANY},
    ),
    "wal2json": (
        "wal2json",
        {"action": "U", "schema": "shop", "table": "orders", "columns": COLUMNS, "identity": COLUMNS, "pk": COLUMNS},
    ),
}


@pytest.mark.parametrize(("name", "is_twice"), [*((name, False) for name in WIDE), ("schema", True), ("wal2json", True)])
def test_a_wide_record_costs_no_more_than_its_size(name: str, is_twice: bool) -> None:
    """Keys, identities and names that come twice are looked up: comparing each column with each other takes 4 s and more."""
    of, record = WIDE[name]
    text, key = json.dumps(record).encode(), json.dumps(MANY).encode()
    if is_twice:
        text = text.replace(b'"c59999"', b'"c0"')
    for decode in both(of):
        began = time.thread_time()
        decode(text, key)
        assert time.thread_time() - began < 3
