"""Records as sources have them: decoded, matched and explained by the API; and the examples that one may begin with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streamer import EventLayout, cdc
from streamer.core.options import Options
from streamer.errors import EventError
from streamer.events.layout import WITH_CHANGES
from streamer.service.api.decoding import FORMATS, Records, examples
from tests.service.api import Api, running

pytestmark = [pytest.mark.later_on_the_reference, pytest.mark.usefixtures("backend")]

#: Records that tell of no change, and what is said of them.
NO_CHANGES = [
    ("debezium", b"null", "a tombstone"),
    ("debezium", b"", "a tombstone"),
    ("debezium", b'{"schema":{},"payload":null}', "a tombstone"),
    ("debezium", b'{"source":{"schema":"s","table":"t"},"op":"t"}', "a truncate"),
    ("debezium", b'{"op":"m","source":{"schema":"","table":""},"message":{"prefix":"p","content":"eA=="}}', "a message"),
    ("debezium", b'{"ts_ms":1795342530456}', "a heartbeat"),
    ("debezium", b'{"status":"BEGIN","id":"571:53195829","ts_ms":1}', "a transaction"),
    ("debezium", b'{"source":{},"ddl":"ALTER TABLE t","tableChanges":[]}', "the schema"),
    ("debezium_unwrapped", b'{"__op":"t","__table":"t"}', "a truncate"),
    ("wal2json", b'{"action":"T","schema":"s","table":"t"}', "a truncate"),
    ("wal2json", b'{"action":"B","xid":7}', "the begin of a transaction"),
    ("wal2json", b'{"action":"M","prefix":"p","content":"x"}', "a message"),
    ("mongodb", b'{"operationType":"invalidate"}', "'invalidate', which changes no document"),
    ("canal", b'{"type":"ALTER","isDdl":true}', "the schema"),
    ("canal", b'{"type":"QUERY"}', "'QUERY', which changes no row"),
    ("cloudevents", b"[]", "a batch of no events"),
    ("dynamodb", b'{"Records":[]}', "a batch of no events"),
    ("json", b"null", "a tombstone"),
]


CANAL_ROWS = '{{"type": "INSERT", "database": "s", "table": "o", "data": [{}]}}'
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    """A service that reads Debezium, with a subscription to orders that are paid."""
    source = {"type": "file", "path": str(tmp_path / "in.jsonl"), "format": "debezium", "poll": "5ms"}
    with running(tmp_path, sources={"orders": source}) as api:
        paid = {"gateway_id": "billing", "filters": [{"field": "status", "op": "==", "value": "paid"}]}
        for name, collection in (("paid", "public.orders"), ("paid-mongo", "shop.orders")):
            assert api.ask("PUT", f"/v1/subscriptions/{name}", paid | {"collection": collection}).status == 201
        yield api


def record(name: str, at: int = 0) -> bytes:
    return [each["record"] for each in examples() if each["format"] == name][at].encode()


def decoded(api: Api, query: str, body: Any) -> Any:
    reply = api.ask("POST", f"/v1/decode?{query}", body, headers={"Content-Type": "application/json"})
    assert reply.status == 200, reply.body
    return reply.json


@pytest.mark.parametrize(("name", "given", "said"), NO_CHANGES)
def test_what_is_no_change_is_said_in_words(name: Any, given: bytes, said: str) -> None:
    for layout in (cdc.LAYOUT, EventLayout()):
        (one,) = Records(Options.checked(layout=layout, default_tenant="acme")).events(name, given, None)
        assert one.text == b""
        assert said in (one.ignored or "")


@pytest.mark.parametrize("example", examples(), ids=lambda each: f"{each['format']}: {each['name']}")
def test_each_example_is_a_record_that_is_read(example: dict[str, Any]) -> None:
    name = example["format"]
    layout = EventLayout.preset(example["layout"]) if name == "json" else cdc.LAYOUT
    found = Records(Options.checked(layout=layout, default_tenant="acme")).events(name, example["record"].encode(), None)
    if "no change" in example["name"]:
        assert [each.text for each in found] == [b""]
        assert all(each.ignored for each in found)
    else:
        assert all(each.ignored is None for each in found)
        assert (len(found) > 1) == ("two" in example["name"])


def test_every_format_and_every_preset_has_an_example() -> None:
    assert {each["format"] for each in examples()} == set(FORMATS)
    assert {each.get("layout") for each in examples()} - {None} == set(EventLayout.PRESETS) - {*WITH_CHANGES}


def test_the_examples_are_listed(api: Api) -> None:
    told = {each["format"]: each["examples"] for each in api.ask("GET", "/v1/formats").json["items"]}
    assert set(told) == set(FORMATS)
    assert [json.loads(each["record"])["type"] for each in told["json"]] == ["insert", "update", "delete"]
    assert all(told.values())


def test_where_the_operator_chose_a_layout_events_are_as_it_has_them(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, matching={"layout": {"preset": "maxwell"}}) as api:
        (told,) = api.ask("GET", "/v1/formats").json["items"]
        assert told["format"] == "json"
        assert [json.loads(each["record"])["database"] for each in told["examples"]] == ["shop"]
        refused = api.ask("POST", "/v1/decode?format=debezium", {})
        assert (refused.kind, "matching.layout" in refused.json["detail"]) == ("bad-request", True)


def test_a_record_is_decoded_to_its_events_with_their_keys(api: Api) -> None:
    told = decoded(api, "format=debezium", record("debezium", 1))
    (one,) = told["events"]
    assert one["event"]["collection"] == "public.orders"
    assert (one["event"]["data"]["status"], one["event"]["before"]["status"]) == ("paid", "new")
    assert (one["key"], one["ignored"], told["count"], told["note"]) == ("1", None, 1, None)
    two = decoded(api, "format=canal", record("canal"))
    assert [each["key"] for each in two["events"]] == ["1", "2"]
    assert len(decoded(api, "format=canal&limit=1", record("canal"))["events"]) == 1
    moved = record("debezium", 1).replace(b'"after": {"id": 1', b'"after": {"id": 2')
    assert len(decoded(api, "format=debezium&key=%7B%22id%22:2%7D", moved)["events"]) == 2
    big = b'{"collection": "orders", "data": {"n": 12345678901234567890123, "f": 1.10}}'
    assert b"12345678901234567890123" in api.ask("POST", "/v1/decode", big, headers={"Content-Type": "application/json"}).body


def test_a_record_is_matched_explained_and_nearly_missed(api: Api) -> None:
    given = record("debezium", 1)
    (one,) = api.ask("POST", "/v1/match?format=debezium", json.loads(given)).json["matches"]
    assert (one["id"], one["transition"]) == ("paid", "enter")
    (one,) = api.ask("POST", "/v1/explain?format=debezium", {"event": json.loads(given)}).json["matches"]
    assert one["id"] == "paid"
    new = json.loads(record("debezium", 0))
    (miss,) = api.ask("POST", "/v1/near-misses?format=debezium", new).json["near_misses"]
    assert (miss["id"], miss["condition"]["seen"]) == ("paid", '"new"')
    told = api.ask("POST", "/v1/explain?format=debezium", {"event": new, "id": "paid"}).json
    assert told["matched"] is False
    mongo = api.ask("POST", "/v1/explain?format=mongodb", {"event": json.loads(record("mongodb"))}).json
    assert [each["id"] for each in mongo["matches"]] == ["paid-mongo"]


def test_what_is_no_change_matches_nothing_and_says_what_it_is(api: Api) -> None:
    given = json.loads(record("debezium", 3))
    for path, body in (("match", given), ("explain", {"event": given})):
        told = api.ask("POST", f"/v1/{path}?format=debezium", body).json
        assert (told["matches"], told["ignored"]) == ([], "a truncate")
    assert api.ask("POST", "/v1/near-misses?format=debezium", given).json["complete"] is True
    refused = api.ask("POST", "/v1/explain?format=debezium", {"event": given, "id": "paid"})
    assert (refused.kind, "a truncate" in refused.json["detail"]) == ("event", True)
    assert api.ask("POST", "/v1/explain?format=debezium", {"event": None}).json["ignored"].startswith("a tombstone")


def test_of_several_events_one_is_asked_about(api: Api) -> None:
    given = json.loads(record("canal"))
    for path, body in (("match", given), ("near-misses", given), ("explain", {"event": given})):
        refused = api.ask("POST", f"/v1/{path}?format=canal", body)
        assert (refused.kind, "2 events" in refused.json["detail"]) == ("event", True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("canal", CANAL_ROWS),
        ("cloudevents", "[{}]"),
        ("dynamodb", '{{"Records": [{}]}}'),
    ],
    ids=["canal", "cloudevents", "dynamodb"],
)
def test_a_record_of_too_many_events_is_refused_before_any_is_made(api: Api, name: str, text: str) -> None:
    body = text.format(",".join(["{}"] * 300_000)).encode()
    for path in ("decode", "match", "explain", "near-misses"):
        before = time.process_time()
        asked = b'{"event": %b}' % body if path == "explain" else body
        reply = api.ask("POST", f"/v1/{path}?format={name}", asked, headers=JSON)
        assert (reply.status, reply.kind) == (422, "event"), reply
        assert f"{name}: the record has 300,000 events: expected at most 1,000" in str(reply.json)
        # To make them takes thirty times as long.
        assert time.process_time() - before < 3
    assert api.ask("POST", f"/v1/decode?format={name}", text.format("").encode(), headers=JSON).status == 200


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_a_record_is_read_once(name: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it comes to: changes, none, or too many of them."""
    records = Records(Options.checked(layout=cdc.LAYOUT, default_tenant="acme"))
    given = [
        *(text for other, text, _ in NO_CHANGES if other == name),
        *(each["record"].encode() for each in examples() if each["format"] == name),
    ]
    many = {"canal": CANAL_ROWS, "cloudevents": "[{}]", "dynamodb": '{{"Records": [{}]}}'}.get(name, "")
    given.append(many.format(",".join(["{}"] * 5000)).encode())
    # What is looked at twice is the text of an event, and never the record.
    read, loads = [], json.loads
    monkeypatch.setattr("streamer.events.literal_json.json.loads", lambda text, **how: (read.append(text), loads(text, **how))[1])
    for text in given:
        with suppress(EventError):
            records.events(name, text, None)
        assert read.count(text.decode()) <= 1
    assert read or backend == "native"  # natively Python reads no record


def test_what_cannot_be_decoded_says_where(api: Api) -> None:
    source = {"schema": "public", "table": "orders"}
    for given, place in (
        ({"op": "x", "source": source}, "/op"),
        ({"op": "c", "source": source, "after": [1]}, "/after"),
        ({"id": 7}, "/op"),
        ({"op": "c", "source": {}}, "/source/table"),
    ):
        refused = api.ask("POST", "/v1/decode?format=debezium", given)
        assert (refused.kind, refused.json["errors"][0]["place"]) == ("event", place)
    torn = api.ask("POST", "/v1/decode?format=debezium", b'{"op": ', headers={"Content-Type": "application/json"})
    assert torn.kind == "event"
    assert torn.json["errors"] == [
        {"code": "malformed_json", "offset": 7, "reason": "debezium: expected a value, but the text ends"}
    ]
    assert api.ask("POST", "/v1/decode?format=nosuch", {}).kind == "bad-request"
    assert api.ask("POST", "/v1/decode?format=json", {"collection": 5}).json["errors"][0]["place"] == "/collection"


def test_a_deep_record_is_refused_and_ends_nothing(api: Api) -> None:
    deep = b'{"op":"c","source":{"schema":"s","table":"t"},"after":{"a":%b1%b}}' % (b'{"a":' * 900, b"}" * 900)
    for name in FORMATS:
        for given in (deep, b"[" * 100_000, b'{"a":' * 100_000):
            reply = api.ask("POST", f"/v1/decode?format={name}", given, headers={"Content-Type": "application/json"})
            assert reply.kind == "event", name


def test_a_service_of_events_as_they_are_says_what_a_source_would_read_otherwise(tmp_path: Path, backend: str) -> None:
    with running(tmp_path) as api:
        assert "before" in decoded(api, "format=debezium", record("debezium", 2))["note"]
        assert decoded(api, "format=debezium", record("debezium", 0))["note"] is None
        assert decoded(api, "format=debezium", record("debezium", 3))["events"][0]["ignored"] == "a truncate"
        assert decoded(api, "", b'{"collection": "orders"}')["note"] is None


def test_decoding_needs_the_scope_to_read(api: Api) -> None:
    token = api.make_token("acme", "consume")
    assert api.ask("POST", "/v1/decode", {}, token=token).kind == "not-allowed"
    assert api.ask("GET", "/v1/formats", token=token).kind == "not-allowed"
    with pytest.raises(EventError):
        Records(Options.checked(layout=cdc.LAYOUT, default_tenant="acme")).events("debezium", b"{}", None)
