"""Each decoder on records as its source's documentation has them, matched by engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from streamer import cdc
from streamer.errors import EventError

Matched = Callable[..., list[tuple[str, bool]]]


@pytest.fixture
def matched(engine: Callable[..., Any]) -> Matched:
    """Tell which of some filters match an event, and whether each is certain: `matched(event, amount="> 10")`."""

    def ask(event: cdc.ChangeEvent, *filters: tuple[str, str, Any], types: list[str] | None = None) -> list[tuple[str, bool]]:
        asked = engine(layout=cdc.LAYOUT)
        for field, op, value in filters:
            asked.add(
                {
                    "id": f"{field} {op} {value}",
                    "filters": [{"field": field, "op": op} | ({} if value is None else {"value": value})],
                }
            )
        if types:
            asked.add({"id": "types", "types": types})
        return sorted((match.subscription_id, match.certain) for match in asked.match(event))

    return ask


WAL2JSON_UPDATE = {
    "action": "U",
    "timestamp": "2026-11-22 10:15:30.123456+00",
    "schema": "public",
    "table": "orders",
    "columns": [
        {"name": "id", "type": "integer", "value": 7},
        {"name": "status", "type": "text", "value": "paid"},
        {"name": "amount", "type": "numeric(10,2)", "value": 12.5},
        {"name": "detail", "type": "jsonb", "value": '{"tags": ["a", "b"]}'},
    ],
    "identity": [{"name": "id", "type": "integer", "value": 7}],
}


def wal2json(*columns: str) -> cdc.wal2json.Decoder:
    return cdc.wal2json.Decoder({"public.orders": columns} if columns else None)


def test_wal2json_reads_columns_by_name() -> None:
    (event,) = wal2json("id", "status", "amount", "detail").decode(json.dumps(WAL2JSON_UPDATE))
    assert event == {
        "type": "update",
        "collection": "public.orders",
        "ts": 1795342530123,
        "data": {"id": 7, "status": "paid", "amount": 12.5, "detail": {"tags": ["a", "b"]}},
        "before": {"id": 7},
    }


def test_wal2json_of_a_key_alone_the_rest_before_is_unknown(matched: Matched) -> None:
    (event,) = wal2json("id", "status", "amount", "detail").decode(WAL2JSON_UPDATE)
    # Whether an amount over 10 enters or stays is not known.
    found = matched(event, ("status", "changed", None), ("amount", ">", 10), ("amount", ">", 20), ("id", "changed", None))
    assert found == [("amount > 10", False), ("status changed None", False)]


def test_wal2json_a_large_value_that_was_not_changed_is_unknown(matched: Matched) -> None:
    decoder = wal2json()
    insert = {
        **WAL2JSON_UPDATE,
        "action": "I",
        "columns": [*WAL2JSON_UPDATE["columns"], {"name": "note", "type": "text", "value": "long"}],
    }
    decoder.decode(insert)
    (event,) = decoder.decode(WAL2JSON_UPDATE)
    assert event["unknown"] == ["/data/note"]
    del event["before"]
    assert matched(event, ("note", "==", "long"), ("status", "==", "paid")) == [("note == long", False), ("status == paid", True)]


def test_wal2json_of_a_table_whose_columns_are_not_known_others_are_unknown(matched: Matched) -> None:
    (event,) = wal2json().decode(WAL2JSON_UPDATE)
    assert event["partial"] is True
    del event["before"]
    found = matched(event, ("note", "==", "long"), ("status", "==", "new"), ("status", "==", "paid"))
    assert found == [("note == long", False), ("status == paid", True)]


def test_wal2json_a_whole_row_before_tells_what_the_new_one_leaves_out(matched: Matched) -> None:
    others = [{"name": "amount", "value": 12.5}, {"name": "detail", "value": None}]
    old = [{"name": "id", "value": 7}, {"name": "status", "value": "new"}, {"name": "note", "value": "long"}, *others]
    (event,) = wal2json().decode({**WAL2JSON_UPDATE, "identity": old})
    assert event["data"]["note"] == "long"
    found = matched(event, ("note", "==", "long"), ("note", "changed", None), ("status", "changed", None))
    assert found == [("note == long", True), ("status changed None", True)]


def test_wal2json_a_deleted_row_is_known_by_its_key(matched: Matched) -> None:
    (event,) = wal2json().decode({"action": "D", "schema": "public", "table": "orders", "identity": [{"name": "id", "value": 7}]})
    assert matched(event, ("id", "==", 7), ("id", "==", 8), ("status", "==", "paid")) == [
        ("id == 7", True),
        ("status == paid", False),
    ]


@pytest.mark.parametrize("action", ["B", "C", "T", "M"])
def test_wal2json_what_is_no_change_is_ignored(engine: Callable[..., Any], action: str) -> None:
    asked = engine(layout=cdc.LAYOUT)
    asked.add({"id": "all"})
    (event,) = wal2json().decode({"action": action})
    assert asked.match(event).ignored == "type"


CANAL_UPDATE = {
    "data": [{"id": "7", "status": "paid", "amount": "12.50", "big": "123456789012345678901234567890", "note": None}],
    "database": "shop",
    "es": 1795342530000,
    "id": 3,
    "isDdl": False,
    "old": [{"status": "new"}],
    "pkNames": ["id"],
    "sqlType": {"id": -5, "status": 12, "amount": 3, "big": 3, "note": 12},
    "table": "orders",
    "ts": 1795342530456,
    "type": "UPDATE",
}


def test_canal_reads_each_row_with_its_numbers(matched: Matched) -> None:
    (event,) = cdc.canal.decode(json.dumps(CANAL_UPDATE))
    row = {"id": 7, "status": "paid", "amount": 12.5, "big": 1.2345678901234568e29, "note": None}
    before = {**row, "status": "new"}
    rest = {"data": row, "before": before, "partial": True}
    assert event == {"type": "update", "collection": "shop.orders", "ts": 1795342530000, **rest}
    found = matched(event, ("amount", ">", 10), ("status", "changed", None), ("amount", "changed", None))
    assert found == [("amount > 10", True), ("status changed None", True)]


def test_canal_one_message_may_tell_of_several_rows() -> None:
    rows = [{"id": "1"}, {"id": "2"}]
    events = cdc.canal.decode({**CANAL_UPDATE, "type": "DELETE", "data": rows, "old": None})
    assert [event["before"] for event in events] == [{"id": 1}, {"id": 2}]
    assert [event["type"] for event in events] == ["delete", "delete"]


def test_canal_changes_of_the_schema_are_ignored() -> None:
    assert cdc.canal.decode({**CANAL_UPDATE, "type": "ALTER", "isDdl": True, "data": None}) == [
        {"type": "ignore", "ignored": "a change of the schema"}
    ]


DYNAMODB_MODIFY = {
    "eventID": "c81e728d9d4c2f636f067f89cc14862c",
    "eventName": "MODIFY",
    "eventVersion": "1.1",
    "eventSource": "aws:dynamodb",
    "awsRegion": "eu-central-1",
    "dynamodb": {
        "ApproximateCreationDateTime": 1795342530,
        "Keys": {"Id": {"N": "101"}},
        "NewImage": {
            "Id": {"N": "101"},
            "Message": {"S": "This item has changed"},
            "Tags": {"SS": ["a", "b"]},
            "Paid": {"BOOL": True},
            "Address": {"M": {"City": {"S": "Ulm"}, "Geo": {"L": [{"N": "9.99"}, {"N": "48.4"}]}}},
            "Gone": {"NULL": True},
            "Raw": {"B": "aGVsbG8="},
        },
        "OldImage": {"Id": {"N": "101"}, "Message": {"S": "New item!"}},
        "SequenceNumber": "222",
        "SizeBytes": 59,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    },
    "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/ExampleTable/stream/2026-11-22T00:00:00.000",
}


def test_dynamodb_values_lose_their_types() -> None:
    (event,) = cdc.dynamodb.decode({"Records": [DYNAMODB_MODIFY]})
    assert event == {
        "id": "c81e728d9d4c2f636f067f89cc14862c",
        "type": "update",
        "collection": "ExampleTable",
        "ts": 1795342530000,
        "data": {
            "Id": 101,
            "Message": "This item has changed",
            "Tags": ["a", "b"],
            "Paid": True,
            "Address": {"City": "Ulm", "Geo": [9.99, 48.4]},
            "Gone": None,
            "Raw": "aGVsbG8=",
        },
        "before": {"Id": 101, "Message": "New item!"},
    }


def viewed(kind: str, *images: str) -> dict[str, Any]:
    change = DYNAMODB_MODIFY["dynamodb"]
    assert isinstance(change, dict)
    return {**DYNAMODB_MODIFY, "eventName": kind, "dynamodb": {name: change[name] for name in ("Keys", *images)}}


def test_dynamodb_what_a_stream_does_not_show_is_unknown(matched: Matched) -> None:
    ask = ("Message", "==", "other"), ("Id", "==", 101)
    (keys,), (old,), (new,) = (
        cdc.dynamodb.decode(viewed(*view)) for view in (("MODIFY",), ("MODIFY", "OldImage"), ("MODIFY", "NewImage"))
    )
    assert matched(keys, *ask) == matched(old, *ask) == [("Id == 101", True), ("Message == other", False)]
    assert matched(new, *ask) == [("Id == 101", True)]
    (removed,) = cdc.dynamodb.decode(viewed("REMOVE"))
    assert matched(removed, *ask) == [("Id == 101", True), ("Message == other", False)]


def test_dynamodb_takes_what_boto3_gives() -> None:
    change = {"Keys": {"Id": {"B": b"hello"}}, "ApproximateCreationDateTime": datetime(2026, 11, 22, tzinfo=UTC)}
    (event,) = cdc.dynamodb.decode({"eventName": "REMOVE", "tableName": "t", "dynamodb": change})
    assert event == {"type": "delete", "collection": "t", "ts": 1795305600000, "before": {"Id": "aGVsbG8="}}


MONGODB_UPDATE = {
    "_id": {"_data": "8263"},
    "operationType": "update",
    "clusterTime": {"$timestamp": {"t": 1795342530, "i": 1}},
    "wallTime": {"$date": "2026-11-22T10:15:30.456Z"},
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": {"$oid": "599af247bb69cd89961c986d"}},
    "updateDescription": {"updatedFields": {"status": "paid"}, "removedFields": [], "truncatedArrays": []},
    "fullDocument": {
        "_id": {"$oid": "599af247bb69cd89961c986d"},
        "status": "paid",
        "count": {"$numberLong": "9007199254740993"},
        "price": {"$numberDecimal": "12.50"},
        "at": {"$date": {"$numberLong": "1795342530456"}},
        "lines": [{"sku": "a", "n": {"$numberInt": "2"}}],
    },
}


def test_mongodb_extended_json_becomes_plain() -> None:
    (event,) = cdc.mongodb.decode(json.dumps(MONGODB_UPDATE))
    assert event == {
        "id": "8263",
        "type": "update",
        "collection": "shop.orders",
        "ts": 1795342530456,
        "data": {
            "_id": "599af247bb69cd89961c986d",
            "status": "paid",
            "count": 9007199254740993,
            "price": 12.5,
            "at": "2026-11-22T10:15:30.456Z",
            "lines": [{"sku": "a", "n": 2}],
        },
    }


def test_mongodb_without_the_document_its_id_alone_is_certain(matched: Matched) -> None:
    bare = {name: value for name, value in MONGODB_UPDATE.items() if name != "fullDocument"}
    (updated,) = cdc.mongodb.decode(bare)
    (deleted,) = cdc.mongodb.decode({**bare, "operationType": "delete"})
    ask = ("status", "==", "sent"), ("_id", "==", "599af247bb69cd89961c986d")
    assert matched(updated, *ask) == [("_id == 599af247bb69cd89961c986d", True), ("status == sent", False)]
    assert matched(deleted, *ask) == [("_id == 599af247bb69cd89961c986d", True), ("status == sent", False)]


def test_mongodb_other_operations_are_ignored() -> None:
    (event,) = cdc.mongodb.decode({"operationType": "drop", "ns": {"db": "shop", "coll": "orders"}})
    assert event == {"type": "ignore", "ignored": "the operation 'drop', which changes no document"}


DECODERS: dict[str, Callable[[Any], Any]] = {
    "canal": cdc.canal.decode,
    "dynamodb": cdc.dynamodb.decode,
    "mongodb": cdc.mongodb.decode,
    "wal2json": lambda message: wal2json().decode(message),
}
GOOD = {"canal": CANAL_UPDATE, "dynamodb": DYNAMODB_MODIFY, "mongodb": MONGODB_UPDATE, "wal2json": WAL2JSON_UPDATE}
BAD = [None, 5, "", "x", True, [], [[]], {}, {"a": 1}, {"N": "x"}, {"$date": "never"}, float("nan"), {"a": {"b": {}}}]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("text", [b"", b"[1]", b"{", b"\xff", b"[" * 200_000, b'{"a":NaN}', b"null"])
def test_what_is_no_message_is_an_event_error(name: str, text: bytes) -> None:
    with pytest.raises(EventError, match=name):
        DECODERS[name](text)


@pytest.mark.parametrize("name", DECODERS)
def test_a_member_of_another_type_is_an_event_error_that_says_where(name: str, engine: Callable[..., Any]) -> None:
    """Each place of a good message holds each bad value in turn: decoded to events that an engine takes, or an EventError."""
    asked = engine(layout=cdc.LAYOUT)
    reasons, codes = [], set()
    for place in places(GOOD[name]):
        for bad in BAD:
            try:
                events = DECODERS[name](put(GOOD[name], place, bad))
            except EventError as error:
                reasons.append(error.reason)
                continue
            for event in events:
                try:
                    asked.match(event)
                except EventError as error:
                    codes.add(str(error.code))
    assert len(reasons) > 20
    assert all(reason.startswith(name) for reason in reasons)
    assert codes <= {"bad_value", "wrong_type"}  # a part or value that no event has


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    members: list[tuple[Any, Any]] = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for key, member in members for place in ((*at, key), *places(member, (*at, key)))]


def put(value: Any, place: tuple[str | int, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = put(value[place[0]], place[1:], new)
    return copy
