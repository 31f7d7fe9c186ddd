"""Records of every format, with each bad value in each place: events that messages can be made of, or an EventError."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import Config, Engine, cdc
from streamer.cdc.envelopes import WITH_ENVELOPE
from streamer.config.schema.encoded import SourceFormat
from streamer.core.options import Options
from streamer.errors import EventError
from streamer.events.format_options import Tables
from streamer.events.reading import IgnoredEvent
from streamer.service.connectors.formats import decoder
from streamer.service.delivery.messages import EventParts
from streamer.service.run.build import feed_of, of_engine

pytestmark = pytest.mark.usefixtures("backend")

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
GOLDEN = [
    pytest.param(case, case.get("format", file.stem), id=case["name"])
    for file in sorted((Path(__file__).parents[2] / "testdata/cdc").glob("*.toml"))
    for case in tomllib.loads(file.read_text())["case"]
]
for _case, _name in (param.values for param in GOLDEN):
    if "events" in _case and _case["value"].startswith(("{", "[", "\n")) and len(_case["value"]) < 800:  # type: ignore[union-attr,operator]
        GOOD.setdefault(_name, []).append(json.loads(_case["value"]))  # type: ignore[index,arg-type,call-overload]
BAD = [
    *("null", "true", "-1", "1.5", "1e308", "1e400", "9" * 5000, '""', '"x"', '"\\ud800"', '"-1e400"', "NaN"),
    *("[]", "{}", "[[]]", "[null]", "[{}]", "[1]", '["id"]', '[{"name":[]}]', '{"id":[]}', '{"$date":1e308}', '{"N":"1e999"}'),
    *("[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000, '{"a":' * 600 + "null" + "}" * 600),
]


@pytest.mark.parametrize("envelope", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", GOOD)
def test_no_record_of_a_format_ends_the_service(name: SourceFormat, envelope: bool) -> None:
    """A record is read again whenever the service is started, so one that ended it would end it for good."""
    if envelope and name not in WITH_ENVELOPE:
        return
    decode = decoder(name, envelope=envelope)
    parts = EventParts(Options.checked(layout=cdc.LAYOUT, default_tenant="acme"))
    read = 0
    for record in GOOD[name]:
        for place in _places(record):
            for bad in BAD:
                text = json.dumps(_put(record, place, "HERE")).replace('"HERE"', bad)
                try:
                    for event, key in decode(text.encode()):  # type: ignore[misc]
                        json.loads(b'{"a":1%b}' % parts.attributes(event, key, "acme"))
                        read += 1
                except (EventError, IgnoredEvent):
                    continue
    assert read > 20


ENVELOPES: list[tuple[SourceFormat, Any, list[str]]] = [
    (
        "debezium",
        {"op": "r", "after": {"id": 1}, "source": {"snapshot": "first", "schema": "s", "table": "t"}},
        ["envelope.op == 'r' && envelope.source.snapshot == 'first' && !has(envelope.after)"],
    ),
    (
        "debezium",
        {"schema": {}, "payload": {"op": "c", "after": {"id": 1}, "source": {"schema": "s", "table": "t"}}},
        ["envelope.op == 'c' && !has(envelope.schema) && !has(envelope.payload)"],
    ),
    (
        "cloudevents",
        [{"specversion": "1.0", "id": name, "source": "s", "type": "t", "subject": name, "data": {}} for name in "ab"],
        ["envelope.subject == 'a' && !has(envelope.data)", "envelope.subject == 'b'"],
    ),
    ("canal", GOOD["canal"][0], ["envelope.database == 'd' && !has(envelope.data) && envelope.pkNames == ['id']"]),
    ("dynamodb", GOOD["dynamodb"][0], ["envelope.eventName == 'MODIFY' && !has(envelope.dynamodb.Keys)"]),
    ("mongodb", GOOD["mongodb"][0], ["envelope.ns.coll == 'c'"]),
    ("wal2json", GOOD["wal2json"][0], ["envelope.pk[0].name == 'id' && !has(envelope.columns)"]),
]


@pytest.mark.parametrize(("name", "record", "conditions"), ENVELOPES)
def test_an_event_of_a_decoder_may_have_its_envelope(
    name: SourceFormat, record: Any, conditions: list[str], backend: str
) -> None:
    engine = Engine(layout=cdc.LAYOUT)
    engine.add_many({"id": condition, "cel": condition} for condition in conditions)
    with_it, without = decoder(name, envelope=True), decoder(name)
    assert with_it is not None
    assert without is not None
    found = with_it(json.dumps(record).encode())
    assert [engine.match_ids(event) for event, _ in found] == [
        # One condition is for all events of the record.
        [condition]
        for condition in (conditions if len(conditions) > 1 else conditions * len(found))
    ]
    bare = [({**json.loads(event), "envelope": None}, key) for event, key in without(json.dumps(record).encode())]
    assert [({**json.loads(event), "envelope": None}, key) for event, key in found] == bare


@pytest.mark.parametrize("name", WITH_ENVELOPE)
def test_a_record_that_is_no_change_has_no_envelope(name: SourceFormat) -> None:
    with_it, without = decoder(name, envelope=True), decoder(name)
    assert with_it is not None
    assert without is not None
    for record in [b"null", b"", *(json.dumps(record).encode() for record in GOOD.get(name, ())[1:2])]:
        found = with_it(record)
        if b'"ignore"' in found[0][0] or not found[0][0].strip():
            assert found == without(record)


@pytest.mark.parametrize(("case", "name"), GOLDEN)
def test_a_record_as_its_source_documents_it(case: dict[str, Any], name: SourceFormat, backend: str) -> None:
    """Each event is one that an engine takes, besides."""
    tables = Tables(unnamed=case.get("table"), prefix=case.get("prefix", "__"))
    decode = decoder(name, tables=tables, of_topics="partition" in case)
    assert decode is not None
    record, key = case["value"].encode(), case["key"].encode() if "key" in case else None
    partition = case.get("partition", "")
    if "error" in case:
        with pytest.raises(EventError) as refused:
            decode(record, key, partition)
        assert case["error"] in str(refused.value)
        return
    found = decode(record, key, partition)
    assert [(_as_read(event), key or "") for event, key in found] == [(_as_read(event), key) for event, key in case["events"]]
    engine = Engine(layout=cdc.LAYOUT)
    engine.add({"id": "all"})
    for event, _ in found:
        engine.match(event)


def _as_read(event: bytes | str) -> Any:
    """Return an event without the order of its members and of its unknown values."""
    read = json.loads(event.strip() or "null")
    return read and {**read, "unknown": sorted(read.get("unknown", ()))}


WHOLE: list[tuple[SourceFormat, dict[str, Any]]] = [
    ("debezium", {"op": "d", "before": {"id": 7, "note": None}, "source": {"schema": "shop", "table": "orders"}}),
    ("debezium_unwrapped", {"id": 7, "note": None, "__deleted": "true", "__schema": "shop", "__table": "orders"}),
    ("wal2json", {"action": "U", "schema": "shop", "table": "orders", "columns": [{"name": "note", "value": None}]}),
]


@pytest.mark.parametrize(("name", "record"), WHOLE)
def test_a_service_declares_tables_with_whole_rows(name: SourceFormat, record: dict[str, Any]) -> None:
    for identity in ("default", "full"):
        options = {name: {"tables": {"shop.orders": {"identity": identity}}}}
        config = Config.from_dict({"sources": {"a": {"type": "stdin", "format": name}}, "matching": {"format_options": options}})
        decode = feed_of("a", config.sources["a"], config).decode
        assert decode is not None
        ((event, _),) = decode(json.dumps(record).encode())
        engine = Engine(**of_engine(config).engine_options())
        engine.add_many(
            [
                {"id": "null", "filters": [{"field": "note", "op": "==", "value": None}], "on_unknown": "skip"},
                {"id": "missing", "filters": [{"field": "other", "op": "exists", "value": False}], "on_unknown": "skip"},
            ]
        )
        # The update shows its null; what it lacks may be a large value that was not changed.
        known = {"null"} if name == "wal2json" else set()
        assert set(engine.match_ids(event)) == ({"null", "missing"} if identity == "full" else known)


def test_a_row_that_does_not_name_its_table_is_of_the_declared_one() -> None:
    options = {"debezium_unwrapped": {"table": "shop.orders"}}
    source = {"type": "stdin", "format": "debezium_unwrapped"}
    config = Config.from_dict({"sources": {"a": source}, "matching": {"format_options": options}})
    decode = feed_of("a", config.sources["a"], config).decode
    assert decode is not None
    ((event, key),) = decode(b'{"id":7,"__op":"c"}')
    assert (json.loads(event)["collection"], key) == ("shop.orders", "7")


def test_a_key_that_names_no_columns_is_a_key_all_the_same() -> None:
    record = b'{"before":null,"after":{"id":1},"source":{"schema":"s","table":"t"},"op":"c"}'
    decode = decoder("debezium")
    assert decode is not None
    assert [decode(record, key)[0][1] for key in (b"[1]", b"7", b"\xff\x00", b"{", b"{}", "text", None)] == ["1"] * 7
    assert decode(record.replace(b'"id"', b'"nr"'), b"\xff\x00")[0][1] == "ff00"
    assert decode(record, b'{"id":null}')[0][1] == '{"id":null}'


def test_a_debezium_key_names_its_columns_however_long_it_is() -> None:
    decode = decoder("debezium")
    assert decode is not None
    row = {"nr": "x" * 5000, "amount": 1}
    record = {"before": None, "after": row, "source": {"schema": "s", "table": "t"}, "op": "c"}
    ((_, key),) = decode(json.dumps(record).encode(), json.dumps({"nr": row["nr"]}).encode())
    parts = EventParts(Options.checked(layout=cdc.LAYOUT, default_tenant="acme"))
    told = json.loads(b'{"a":1%b}' % parts.attributes(b'{"collection":"s.t","type":"insert"}', key, "acme"))
    assert (key, len(told["partitionkey"])) == (row["nr"], 64)


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
