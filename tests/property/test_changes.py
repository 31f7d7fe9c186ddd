"""Records with changes: both backends read each alike, and an engine with the format matches as one with the decoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from streamer import Engine, EventError, _backend, cdc
from streamer.bloom import Answer, ShippedFilter
from tests.parts import in_rounds

CANAL: dict[str, Any] = {
    "type": "UPDATE",
    "isDdl": False,
    "database": "shop",
    "table": "orders",
    "es": 1795342530000,
    "pkNames": ["id"],
    "sqlType": {"id": -5, "n": 3, "s": 12, "j": 12, "gone": 4},
    "mysqlType": {"id": "bigint", "j": "json"},
    "data": [{"id": "7", "n": "1.50", "s": "x", "j": '{"a": [1, "x"]}'}, {"id": "8", "n": "2", "s": None, "j": "3"}],
    "old": [{"n": "1"}, {"id": "9", "s": "x"}],
}
DYNAMODB: dict[str, Any] = {
    "Records": [
        {
            "eventID": "c81e",
            "eventName": "MODIFY",
            "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-11-22T00:00:00.000",
            "userIdentity": {"type": "Service"},
            "dynamodb": {
                "ApproximateCreationDateTime": 1795342530,
                "Keys": {"id": {"N": "7"}},
                "NewImage": {
                    "id": {"N": "7"},
                    "n": {"N": "1.5"},
                    "s": {"S": "x"},
                    "j": {"M": {"a": {"L": [{"N": "1"}, {"S": "x"}]}}},
                },
                "OldImage": {"id": {"N": "7"}, "n": {"NULL": True}, "s": {"SS": ["x", "y"]}, "j": {"BOOL": False}},
            },
        },
        {"eventName": "REMOVE", "tableName": "orders", "dynamodb": {"Keys": {"id": {"N": "8"}}, "OldImage": {"n": {"N": "2"}}}},
    ]
}
MONGODB: dict[str, Any] = {
    "_id": {"_data": "8263"},
    "operationType": "update",
    "ns": {"db": "shop", "coll": "orders"},
    "wallTime": {"$date": {"$numberLong": "1795342530456"}},
    "clusterTime": {"$timestamp": {"t": 1795342530, "i": 1}},
    "documentKey": {"id": {"$oid": "599af247bb69cd89961c986d"}},
    "fullDocument": {
        "id": {"$oid": "599af247bb69cd89961c986d"},
        "n": {"$numberDecimal": "1.5"},
        "s": "x",
        "j": {"a": [{"$numberInt": "1"}]},
    },
    "fullDocumentBeforeChange": {"id": 7, "n": {"$numberLong": "2"}, "s": {"$date": "2026-11-22T10:15:30Z"}},
    "updateDescription": {"updatedFields": {"s": "x"}, "removedFields": []},
}
WAL2JSON: dict[str, Any] = {
    "action": "U",
    "timestamp": "2026-11-22 10:15:30.123456+00",
    "schema": "shop",
    "table": "orders",
    "columns": [
        {"name": "id", "type": "integer", "value": 7},
        {"name": "n", "type": "numeric(10,2)", "value": "1.50"},
        {"name": "s", "type": "text", "value": "x"},
        {"name": "j", "type": "jsonb", "value": '{"a": [1, "x"]}'},
    ],
    "identity": [{"name": "id", "type": "integer", "value": 7}, {"name": "s", "type": "text", "value": "y"}],
    "pk": [{"name": "id", "type": "integer"}],
}
UNWRAPPED: dict[str, Any] = {
    "id": 7,
    "n": 1.5,
    "s": "x",
    "j": {"a": [1, "x"]},
    "gone": "__debezium_unavailable_value",
    "__op": "u",
    "__schema": "shop",
    "__table": "orders",
    "__source_ts_ms": 1795342530123,
    "__deleted": "false",
}
RECORDS = {"canal": CANAL, "dynamodb": DYNAMODB, "mongodb": MONGODB, "wal2json": WAL2JSON, "debezium_unwrapped": UNWRAPPED}
DECODERS: dict[str, Callable[[Any], list[cdc.ChangeEvent]]] = {
    "canal": cdc.canal.decode,
    "dynamodb": cdc.dynamodb.decode,
    "mongodb": cdc.mongodb.decode,
    "wal2json": cdc.wal2json.Decoder().decode,
    # An engine reads a row without a table, too.
    "debezium_unwrapped": lambda row: [event for event, _ in cdc.debezium.read_unwrapped(row, table="")],
}
#: What a place of a record may have instead.
VALUES = (
    *(
        None,
        True,
        7,
        1.5,
        -1,
        10**19,
        2**63,
        1e300,
        "",
        "x",
        "7",
        "1e5",
        "-0",
        "+1",
        "NaN",
        "8",
        "json",
        "id",
        "{",
        "[1]",
        [],
        {},
    ),
    *([None], {"a": 1}, {"N": "1"}, {"N": "x"}, {"S": 1}, {"M": {}}, {"$date": "never"}, {"$date": 5}, {"$numberLong": "5"}),
    *("INSERT", "UPDATE", "DELETE", "QUERY", "MODIFY", "REMOVE", "insert", "replace", "delete", "drop", "I", "U", "D", "B"),
    *("2026-11-22 10:15:30", "2026-11-22T10:15:30Z", "2026-11-22 10:15:30+05:30", "yesterday"),
    *({"id": "8", "n": "3"}, [{"id": "7"}], [{"name": "id", "type": "integer", "value": 8}], [{"name": "z", "value": "1"}]),
)
NAMES = ("id", "n", "s", "j", "gone", "name", "value", "type", "$date", "old", "pk", "Keys", "a/b~c")
SUBSCRIPTIONS: list[dict[str, Any]] = [
    *(
        {"id": f"{name} exists", "filters": [{"field": name, "op": "exists", "value": True}]}
        for name in ("id", "n", "s", "j", "gone", "z")
    ),
    {"id": "n > 1", "filters": [{"field": "n", "op": ">", "value": 1}], "transitions": True},
    {"id": "n == 2", "filters": [{"field": "n", "op": "==", "value": 2}], "transitions": True},
    {"id": "id", "filters": [{"field": "id", "op": "in", "value": [7, "7", 8]}], "transitions": True},
    {"id": "s", "filters": [{"field": "s", "op": "==", "value": "x"}], "on_unknown": "skip", "transitions": True},
    {"id": "s changed", "filters": [{"field": "s", "op": "changed"}]},
    {"id": "gone", "filters": [{"field": "gone", "op": "==", "value": None}]},
    {"id": "orders", "collection": "shop.orders"},
    {"id": "table", "collection": "orders"},
    {"id": "delete", "types": ["delete"]},
    {"id": "pattern", "pattern": {"data": {"s": ["x", {"exists": False}]}, "type": ["update"]}},
    {"id": "ts", "cel": "ts >= timestamp('2026-11-22T10:15:30Z')"},
    {"id": "j", "cel": "has(data.j.a) && 1 in data.j.a"},
    {"id": "before", "cel": "before.n != data.n"},
    {"id": "envelope", "cel": "has(envelope.pkNames) || envelope.userIdentity.type == 'Service' || envelope.schema == 'shop'"},
    {"id": "updated", "cel": "'s' in envelope.updateDescription.updatedFields"},
    {"id": "keys", "cel": "envelope.exists(name, name in ['data', 'old', 'columns', 'fullDocument', 'sqlType'])"},
    {"id": "portable", "cel": "data.n > 1 && envelope.size() > 0", "cel_evaluator": "portable"},
]


def mutated(rng: Random, value: Any, rate: float = 0.02) -> Any:
    """Return a record with some places changed, removed, doubled or added."""
    if isinstance(value, dict):
        members = {name: mutated(rng, member, rate) for name, member in value.items() if rng.random() > rate / 2}
        if rng.random() < rate:
            members[rng.choice(NAMES)] = rng.choice(VALUES)
        return members
    if isinstance(value, list):
        items = [mutated(rng, item, rate) for item in value if rng.random() > rate / 2]
        return items + items[:1] if rng.random() < rate else items
    return rng.choice(VALUES) if rng.random() < rate else value


def answers(engine: Engine, record: Any) -> Any:
    try:
        matches = engine.match(record)
    except EventError as error:
        return error.code, error.place
    return matches.ignored, sorted((each.subscription_id, str(each.transition), each.certain) for each in matches)


def engine_of(backend: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Engine:
    monkeypatch.setattr(_backend, "BACKEND", backend)
    engine = Engine(**options)
    engine.add_many(SUBSCRIPTIONS)
    return engine


@pytest.mark.skipif("native" not in _backend.available(), reason="this compares the native engine with the reference")
@pytest.mark.parametrize(
    ("name", "whole_rows"),
    [*((name, None) for name in RECORDS), *((name, "shop.orders") for name in ("wal2json", "debezium_unwrapped"))],
)
@in_rounds(100, 1_000)
def test_both_backends_read_a_record_alike(
    name: str, whole_rows: str | None, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(f"{name} {whole_rows}")
    layout = {"preset": name, "whole_rows": whole_rows}
    native, reference = (engine_of(backend, monkeypatch, layout=layout) for backend in ("native", "reference"))
    good, kinds = 0, set()
    for number in range(rounds):
        record = RECORDS[name] if number == 0 else mutated(rng, RECORDS[name], rng.choice((0.01, 0.03, 0.06)))
        text = json.dumps(record)
        found = answers(native, text)
        assert found == answers(reference, text), text
        good += isinstance(found[1], list) and len(found[1]) > 3
        kinds.add(found[0])
    assert good > rounds / 6
    assert len(kinds) >= (2 if name == "debezium_unwrapped" or rounds < 300 else 3), kinds


@in_rounds(50, 500)
@pytest.mark.parametrize("name", RECORDS)
def test_an_engine_with_the_format_matches_as_one_with_the_decoder(name: str, rounds: int, engine: Callable[..., Engine]) -> None:
    """A record matches the union of what its events match. Inserts stand for wal2json, whose decoder remembers columns."""
    rng = Random(f"decoder {name}")
    of_format, of_events = engine(format=name), engine(layout=cdc.LAYOUT)
    decode = DECODERS[name]
    without = [each for each in SUBSCRIPTIONS if "envelope" not in each.get("cel", "")]
    of_format.add_many(without)
    of_events.add_many(without)
    compared = 0
    for _ in range(rounds):
        record = mutated(rng, RECORDS[name])
        if name == "wal2json" and record.get("action") != "I":
            record["action"] = "I"
        found = answers(of_format, json.dumps(record))
        try:
            events = decode(json.dumps(record))
            each = [of_events.match(event) for event in events]
        except EventError:
            assert isinstance(found[1], str) or found[1] is None, record
            continue
        united: dict[str, tuple[set[str], bool]] = {}
        for match in (match for matches in each for match in matches):
            transitions, certain = united.get(match.subscription_id, (set(), False))
            united[match.subscription_id] = transitions | {str(match.transition)}, certain or match.certain
        expected = [
            (key, *words, certain) if len(words) == 1 else (key, "None", certain) for key, (words, certain) in united.items()
        ]
        assert found[1] == sorted(expected), record
        compared += bool(expected)
    assert compared > rounds / 10


@in_rounds(6, 100)
@pytest.mark.parametrize("name", RECORDS)
def test_each_way_of_matching_has_the_same_answers(name: str, rounds: int, engine: Callable[..., Engine]) -> None:
    e = engine(format=name)
    e.add_many(SUBSCRIPTIONS)
    rng = Random(f"ways {name}")
    records = [RECORDS[name], *(mutated(rng, RECORDS[name]) for _ in range(rounds))]
    texts = [json.dumps(record).encode() for record in records]
    lines = {result.line: result for result in e.match_jsonl(b"\n".join(texts))}
    for number, (text, batch) in enumerate(zip(texts, e.match_batch(texts), strict=True), 1):
        found = answers(e, text)
        if isinstance(batch, EventError):
            assert found == (batch.code, batch.place)
            continue
        assert found[1] == sorted((each.subscription_id, str(each.transition), each.certain) for each in batch)
        assert {each.subscription_id for each in lines[number].result} == {each.subscription_id for each in batch}
        ids = {each[0] for each in found[1]}
        assert set(e.match_ids(text)) == ids
        assert e.match_count(text) == len(ids)
        assert e.matches_any(text) is bool(ids)
        for subscription in SUBSCRIPTIONS:
            assert e.explain(text, subscription["id"]).matched is (subscription["id"] in ids), subscription


@in_rounds(5, 50)
@pytest.mark.parametrize("name", RECORDS)
def test_a_shipped_filter_keeps_every_record_that_matches(name: str, rounds: int, engine: Callable[..., Engine]) -> None:
    rng = Random(f"shipped {name}")
    collection = {"dynamodb": "orders"}.get(name, "shop.orders")
    stopped = 0
    elsewhere = [{"id": str(number), "filters": [{"field": "s", "op": "==", "value": number}]} for number in range(20)]
    for each in SUBSCRIPTIONS + elsewhere:
        e = engine(format=name)
        e.add({**each, "collection": collection})
        shipped = ShippedFilter.load(e.bloom.export("default", collection))
        for _ in range(rounds):
            text = json.dumps(mutated(rng, RECORDS[name]))
            try:
                matched = e.matches_any(text)
                answer = shipped.ask(text)
            except EventError:
                continue
            assert answer is Answer.MAYBE or not matched, (each, text)
            stopped += answer is Answer.NO
    assert stopped > 2 or rounds < 15


@in_rounds(10, 100)
@pytest.mark.parametrize("name", RECORDS)
def test_what_decides_about_a_record_is_shown_everywhere(name: str, rounds: int, engine: Callable[..., Engine]) -> None:
    """A subscription that matches one change of a record is no near miss of it, and its explanation is of that change."""
    e = engine(format=name)
    e.add_many(SUBSCRIPTIONS)
    rng = Random(f"shown {name}")
    seen = 0
    for record in [RECORDS[name], *(mutated(rng, RECORDS[name]) for _ in range(rounds))]:
        try:
            matches = {each.subscription_id: each for each in e.match(json.dumps(record))}
        except EventError:
            continue
        assert {miss.subscription_id for miss in e.near_misses(json.dumps(record), 100)} & matches.keys() == set(), record
        for key, match in matches.items():
            explanation = e.explain(json.dumps(record), key)
            assert (explanation.transition, explanation.certain) == (match.transition, match.certain), (key, record)
            seen += 1
    assert seen > rounds
