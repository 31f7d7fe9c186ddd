"""Records of every format, with each bad value in each place: events that messages can be made of, or an EventError."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from streamer import cdc
from streamer.config.schema import SourceFormat
from streamer.core.options import Options
from streamer.errors import EventError
from streamer.service.formats import decoder
from streamer.service.messages import EventParts

COLUMN = {"name": "id", "type": "integer", "value": 1}
STAMP = {"$timestamp": {"t": 1, "i": 1}}
IMAGE = {"id": {"N": "42"}, "map": {"M": {"a": {"S": "x"}}}, "list": {"L": [{"BOOL": True}]}}
CHANGE = {"ApproximateCreationDateTime": 1.5, "Keys": {"id": {"N": "42"}}, "NewImage": IMAGE}
GOOD: dict[SourceFormat, list[Any]] = {
    "wal2json": [
        {"action": "U", "schema": "s", "table": "t", "columns": [COLUMN], "identity": [COLUMN], "pk": [{"name": "id"}]},
        {"action": "B", "columns": [COLUMN], "pk": [{"name": "id"}]},
    ],
    "dynamodb": [{"Records": [{"eventName": "MODIFY", "tableName": "t", "dynamodb": CHANGE}]}],
    "mongodb": [
        {"operationType": "update", "ns": {"db": "d", "coll": "c"}, "documentKey": {"_id": "k"}, "clusterTime": STAMP},
        {"operationType": "drop", "documentKey": {"_id": {"$oid": "k"}}},
    ],
    "canal": [
        {"type": "UPDATE", "database": "d", "table": "t", "pkNames": ["id"], "data": [{"id": "1"}], "old": [{"id": "0"}]},
        {"type": "QUERY", "data": [{"id": 1}], "pkNames": ["id"]},
    ],
}
BAD = [
    *("null", "true", "-1", "1.5", "1e308", "1e400", "9" * 5000, '""', '"x"', '"\\ud800"', '"-1e400"', "NaN"),
    *("[]", "{}", "[[]]", "[null]", "[{}]", "[1]", '["id"]', '[{"name":[]}]', '{"id":[]}', '{"$date":1e308}', '{"N":"1e999"}'),
    *("[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000),
]


@pytest.mark.parametrize("name", GOOD)
def test_no_record_of_a_format_ends_the_service(name: SourceFormat) -> None:
    """A record is read again whenever the service is started, so one that ended it would end it for good."""
    parts = EventParts(Options.checked(layout=cdc.LAYOUT, default_tenant="acme"))
    read = 0
    for record in GOOD[name]:
        for place in _places(record):
            for bad in BAD:
                text = json.dumps(_put(record, place, "HERE")).replace('"HERE"', bad)
                try:
                    for event, key in decoder(name)(text.encode()):  # type: ignore[misc]
                        json.loads(b'{"a":1%b}' % parts.attributes(event, key, "acme"))
                        read += 1
                except EventError:
                    continue
    assert read > 20


def test_an_integer_may_have_more_digits_than_python_reads() -> None:
    parts = EventParts(Options.checked(default_tenant="acme"))
    event = b'{"id":"a","data":{"amount":%b}}' % (b"9" * 5000)
    assert parts.attributes(event, None, None) == b',"partitionkey":"a","tenant":"acme"'


@pytest.mark.parametrize("given", [1e308, -1e308, float("inf"), float("nan"), 10**400])
def test_a_time_that_is_no_number_of_milliseconds_is_none(given: float) -> None:
    record = {"eventName": "MODIFY", "tableName": "t", "dynamodb": CHANGE | {"ApproximateCreationDateTime": given}}
    (event,) = cdc.dynamodb.decode(record)
    assert isinstance(event.get("ts"), int | None)


def _places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield at
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield from _places(member, (*at, name))


def _put(value: Any, place: tuple[str | int, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _put(value[place[0]], place[1:], new)
    return copy
