"""Messages that were written with schemas: which schema, how the registry is asked, and what becomes of what cannot be read."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.config.schema.encoded import Format
from streamer.errors import EventError, ServiceError
from streamer.service.connectors import registry
from streamer.service.connectors.formats import Decoder, decoder
from streamer.service.connectors.protocols import Away
from streamer.service.connectors.registry import Messages
from tests.cdc.test_avro import DECIMAL, columns, encoded, named, unscaled
from tests.tools.registries import Stub

pytestmark = pytest.mark.usefixtures("backend")  # which reads the records

KEY = {"type": "record", "name": "Key", "namespace": "shop.orders", "fields": [{"name": "id", "type": "int"}]}
ORDERS = columns({"name": "amount", "type": ["null", DECIMAL]}, {"name": "day", "type": named("int", "io.debezium.time.Date")})
SOURCE = {"connector": "postgresql", "schema": "shop", "table": "orders"}


def row(number: int, amount: int, day: int = 0) -> dict[str, Any]:
    return {"id": number, "amount": unscaled(amount), "day": day}


def record(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + encoded(schema, value)


def change(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op}


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    made.add(1, json.dumps(KEY))
    made.add(2, json.dumps(ORDERS))
    yield made
    made.stop()


def messages(stub: Stub, encoding: str = "avro", **more: Any) -> Messages:
    return Messages(Format.model_validate({"name": "debezium", "encoding": encoding, "registry": {"url": stub.url}, **more}))


def decoding(stub: Stub, **more: Any) -> Decoder:
    found = decoder(more.get("name", "debezium"), messages=messages(stub, **more))
    assert found is not None
    return found


def test_a_change_and_its_key_are_read_by_their_schemas_which_are_asked_for_once(stub: Stub) -> None:
    decode = decoding(stub)
    key = record(1, KEY, {"id": 7})
    for _ in range(3):
        ((text, of),) = decode(record(2, ORDERS, change("u", row(7, 1000), row(7, 25010, 20484))), key)
        event = json.loads(text)
        assert event == {
            "type": "update",
            "collection": "shop.orders",
            "data": {"id": 7, "amount": 250.1, "day": "2026-01-31"},
            "before": {"id": 7, "amount": 10.0, "day": "1970-01-01"},
        }
        assert b'"amount":250.10' in text
        assert of == "7"
    assert stub.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_change_of_the_key_is_a_delete_and_an_insert(stub: Stub) -> None:
    found = decoding(stub)(record(2, ORDERS, change("u", row(7, 1), row(8, 1))), record(1, KEY, {"id": 8}))
    assert [(json.loads(text)["type"], key) for text, key in found] == [("delete", "7"), ("insert", "8")]


def test_a_schema_that_evolves_is_read_by_its_new_id(stub: Stub) -> None:
    decode = decoding(stub, name="json")
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    new = {"type": "record", "name": "Order", "fields": [*old["fields"], {"name": "note", "type": "string"}]}  # type: ignore[misc]
    stub.add(3, json.dumps(old))
    assert decode(record(3, old, {"id": 1})) == [(b'{"id":1}', None)]
    stub.add(4, json.dumps(new))
    assert decode(record(4, new, {"id": 1, "note": "n"})) == [(b'{"id":1,"note":"n"}', None)]
    assert decode(record(3, old, {"id": 2})) == [(b'{"id":2}', None)]


def test_a_message_may_name_its_schema_by_a_guid(stub: Stub) -> None:
    guid = uuid.UUID(int=5)
    stub.schemas[f"guids/{guid}"] = {"schema": json.dumps(KEY)}
    assert decoding(stub, name="json")(b"\1" + guid.bytes + encoded(KEY, {"id": 1})) == [(b'{"id":1}', None)]


def test_schemas_refer_to_others_which_are_read_with_them(stub: Stub) -> None:
    enum = {"type": "enum", "name": "shop.State", "symbols": ["NEW", "PAID"]}
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "state", "type": "shop.State"}]}
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "line", "type": "shop.Line"}]}
    stub.subjects["a/b", "3"] = {"schema": json.dumps(enum)}
    of_line = [{"name": "shop.State", "subject": "a/b", "version": 3}]
    stub.subjects["line", "1"] = {"schema": json.dumps(line), "references": of_line}
    stub.add(9, json.dumps(order), references=[{"name": "shop.Line", "subject": "line", "version": 1}, *of_line])
    assert decoding(stub, name="json")(b"\0\0\0\0\x09\x02") == [(b'{"line":{"state":"PAID"}}', None)]
    assert stub.asked == ["/schemas/ids/9", "/subjects/line/versions/1", "/subjects/a%2Fb/versions/3"]


def test_protobuf_and_json_schema_are_read_too(stub: Stub) -> None:
    stub.add(5, 'syntax = "proto3"; message Order { int64 id = 1; optional bytes raw = 2; }', "PROTOBUF")
    assert decoding(stub, name="json", encoding="protobuf")(b"\0\0\0\0\5\0\x08\x07") == [(b'{"id":7,"raw":null}', None)]
    stub.add(6, '{"type": "object"}', "JSON")
    assert decoding(stub, name="json", encoding="json_schema")(b'\0\0\0\0\6{"id": 7.10}') == [(b'{"id": 7.10}', None)]
    amount = {"title": "org.apache.kafka.connect.data.Decimal", "type": "number", "connect.parameters": {"scale": "2"}}
    properties = {
        "amount": {"oneOf": [{"type": "null"}, amount]},
        "days": {"type": "array", "items": {"$ref": "#/definitions/d"}},
    }
    definitions = {"d": {"type": "integer", "title": "org.apache.kafka.connect.data.Date"}}
    stub.add(7, json.dumps({"type": "object", "properties": properties, "definitions": definitions}), "JSON")
    ((text, _),) = decoding(stub, name="json", encoding="json_schema")(b'\0\0\0\0\7{"amount": "YbI=", "days": [0], "x": 1e400}')
    assert text == b'{"amount":250.10,"days":["1970-01-01"],"x":1e400}'


@pytest.mark.parametrize("key", [b"plain", b"\x00\x01", b'{"id": 7}', b"", None, "text"])
def test_a_key_without_a_schema_stays_as_it_is(stub: Stub, key: Any) -> None:
    ((_, of),) = decoding(stub)(record(2, ORDERS, change("c", None, row(7, 1))), key)
    assert of == "7"
    assert stub.asked == ["/schemas/ids/2"]


@pytest.mark.parametrize(
    ("schema", "value", "of"), [("string", "k", "k"), ("long", 5, "5"), (KEY, {"id": 5}, "5"), ("bytes", b"A", "QQ==")]
)
def test_a_key_of_an_event_is_text(stub: Stub, schema: Any, value: Any, of: str) -> None:
    stub.add(3, json.dumps(schema))
    assert decoding(stub, name="json")(record(1, KEY, {"id": 1}), record(3, schema, value)) == [(b'{"id":1}', of)]


def test_keys_may_be_written_otherwise_than_values(stub: Stub) -> None:
    number = (5).to_bytes(8, "big")
    decode = decoding(stub, name="json")
    with pytest.raises(EventError, match="the key: the registry has no schema of id 0: Schema not found; if keys"):
        decode(record(1, KEY, {"id": 1}), number)
    assert decoding(stub, name="json", key_encoding="json")(record(1, KEY, {"id": 1}), number) == [
        (b'{"id":1}', "\0\0\0\0\0\0\0\5")
    ]
    ((_, of),) = decoding(stub, encoding="json", key_encoding="avro")(
        b'{"op": "c", "after": {"id": 3}, "source": {"connector": "mysql", "db": "a", "table": "b"}}', record(1, KEY, {"id": 3})
    )
    assert of == "3"


@pytest.mark.parametrize("nothing", [b"null", b"", b" null "])
def test_a_tombstone_needs_no_schema(stub: Stub, nothing: bytes) -> None:
    assert decoding(stub)(nothing, b"k") == [(nothing, "k")]
    assert decoding(stub, name="json")(nothing, b"k") == [(nothing, "k")]
    assert not stub.asked


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"op": "c"}', "the value: expected avro behind byte 0 and the four bytes of a schema's id, not 0x7b226f7022"),
        (b"\0\0\0", "the value: expected avro behind byte 0 and the four bytes of a schema's id, not 3 bytes"),
        (b"\0\0\0\0\x63A", "the value: the registry has no schema of id 99: Schema not found"),
        (
            b"\1" + bytes(15) + b"\x63",
            "the value: the registry has no schema of id 00000000-0000-0000-0000-000000000063",
        ),
        (b"\0\0\0\0\2A", "avro: the record does not fit its schema: "),
        (b"\0\0\0\0\3A", "the value: the schema of id 3 is of the encoding protobuf; the source has encoding: avro"),
        (
            b"\0\0\0\0\4A",
            "the value: the schema of id 4 cannot be read: this is not an Avro schema: the type 'money' is not defined",
        ),
        (
            b"\0\0\0\0\5A",
            "the value: the schema of id 5 cannot be read: it is of the type 'XML'; expected AVRO, PROTOBUF or JSON",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_record(stub: Stub, message: bytes, reason: str) -> None:
    stub.add(3, 'syntax = "proto3"; message A {}', "PROTOBUF")
    stub.add(4, '"money"')
    stub.add(5, "<a/>", "XML")
    decode = decoding(stub)
    for _ in range(2):
        with pytest.raises(EventError) as error:
            decode(message)
        assert error.value.reason.startswith(reason)


def test_an_id_that_is_unknown_is_asked_for_again_after_a_while(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = decoding(stub, name="json")
    for _ in range(5):
        with pytest.raises(EventError, match="no schema of id 8"):
            decode(b"\0\0\0\0\x08\x02")
    assert stub.asked == ["/schemas/ids/8"]
    stub.add(8, json.dumps(KEY))
    now = registry.time.monotonic()
    monkeypatch.setattr(registry.time, "monotonic", lambda: now + registry.UNKNOWN)
    assert decode(b"\0\0\0\0\x08\x02") == [(b'{"id":1}', None)]


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (500, b"", Away, "answers /schemas/ids/2 with 500"),
        (503, b'{"error_code": 50003, "message": "no\\nleader"}', Away, "with 503: no leader"),
        (429, b"", Away, "with 429"),
        (404, b"<html>", Away, "with 404"),
        (401, b'{"error_code": 401, "message": "no"}', ServiceError, "with 401: no; check registry.user and registry.password"),
        (403, b"", ServiceError, "with 403; check registry.user"),
        (301, b"", ServiceError, "with 301"),
        (200, b"<html>", ServiceError, "expected JSON as the answer to /schemas/ids/2"),
    ],
)
def test_a_registry_that_fails_is_no_error_of_a_record(stub: Stub, status: int, body: bytes, kind: type, reason: str) -> None:
    decode = decoding(stub)
    message = record(2, ORDERS, change("c", None, row(7, 1)))
    stub.answer = status, body
    with pytest.raises(ServiceError) as error:
        decode(message)
    assert type(error.value) is kind
    assert reason in str(error.value)
    stub.answer = None
    assert decode(message)


def test_a_registry_that_cannot_be_reached_is_away(stub: Stub) -> None:
    made = messages(stub)
    stub.stop()
    with pytest.raises(Away, match=rf"the schema registry does not answer at {stub.url}: Connection refused"):
        made.check()
    stub.start()
    made.check()


def test_a_check_finds_a_wrong_url_a_wrong_password_and_a_missing_library(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub.user = f"Basic {base64.b64encode(b'me:secret-word').decode()}"
    with pytest.raises(ServiceError, match="with 401: Unauthorized"):
        messages(stub).check()
    secret = tmp_path / "password"
    secret.write_text("secret-word\n")
    section = {"url": f"{stub.url}/", "user": "me", "password": {"file": str(secret)}}
    messages(stub, registry=section).check()
    secret.unlink()
    with pytest.raises(ServiceError, match=r"registry.password: .*password: No such file"):
        messages(stub, registry=section).check()
    stub.user = None
    stub.answer = 404, b"<html>"
    with pytest.raises(ServiceError, match=r"there is no schema registry at .*/apis/ccompat/v7"):
        messages(stub).check()
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ServiceError, match=r"reading Avro needs fastavro: pip install 'streamer-engine\[registry\]'"):
        messages(stub).check()


def test_a_registry_with_a_certificate_is_trusted_by_its_ca_alone(tmp_path: Path) -> None:
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, capture_output=True, check=True)
    stub = Stub()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    stub._server.socket = context.wrap_socket(stub._server.socket, server_side=True)
    try:
        url = stub.url.replace("http:", "https:")
        messages(stub, registry={"url": url, "ca": str(certificate)}).check()
        with pytest.raises(ServiceError, match="its certificate is not trusted: self"):
            messages(stub, registry={"url": url}).check()
        with pytest.raises(ServiceError, match=r"ca: .*expected a certificate in PEM"):
            messages(stub, registry={"url": url, "ca": str(key)}).check()
    finally:
        stub.stop()


RECORDS = Path(__file__).parents[1] / "cdc" / "debezium_avro.jsonl"
REAL = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", [each for each in REAL if "value" in each], ids=lambda case: case["of"])
def test_records_of_the_real_debezium_are_what_the_statements_did(stub: Stub, case: dict[str, Any]) -> None:
    """Debezium 3.6.1 wrote them on PostgreSQL 15, with Apicurio's converter in the wire format of Confluent's.

    `default` is of a table whose deletes carry the key alone; `full_connect` of one with all columns, and of
    `time.precision.mode=connect`.
    """
    for each in REAL:
        if "schema" in each:
            stub.add(each["id"], each["schema"])
    found = decoding(stub)(base64.b64decode(case["value"]), base64.b64decode(case["key"]))
    assert [text.decode() for text, _ in found] == case["events"]
