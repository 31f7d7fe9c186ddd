"""Every decoder reads JSON as RFC 8259 has it, and what is none is an error that says where and what was expected."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, get_args

import pytest

from streamer import _backend, cdc
from streamer.config.schema.encoded import SourceFormat
from streamer.errors import EventCode, EventError
from streamer.service.connectors.formats import Decoder, decoder

pytestmark = pytest.mark.usefixtures("backend")

FORMATS = [name for name in get_args(SourceFormat) if name != "json"]
CANAL = {"type": "INSERT", "database": "d", "table": "t", "sqlType": {"n": 3}}
DYNAMODB = {"eventName": "INSERT", "tableName": "t"}
MONGODB = {"operationType": "insert", "ns": {"db": "d", "coll": "c"}}
DEBEZIUM = {"op": "c", "source": {"table": "t"}}
#: Python reads each of these as a number, in a text.
NO_NUMBERS = ["1_000", "١٢", " 7", "7 ", "7\n", "+7", "007", ".5", "5.", "inf", "nan", "NaN", "Infinity", "0x10", "1e", "", "--1"]


def decoding(name: Any) -> Decoder:
    found = decoder(name)
    assert found is not None
    return found


def refused(name: Any, record: bytes) -> EventError:
    with pytest.raises(EventError) as error:
        decoding(name)(record)
    assert error.value.reason.startswith(f"{name}: ")
    return error.value


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("record", "code", "offset", "reason"),
    [
        (b'{"a": 1,\n "b" 2}', "malformed_json", 14, "expected ':'"),
        (b'{"a": 1} x', "malformed_json", 9, "expected the text to end after the value"),
        (b'{"op": ', "malformed_json", 7, "expected a value, but the text ends"),
        (b'{"a": NaN}', "malformed_json", 6, "expected a value"),
        (b'{"a": -Infinity}', "malformed_json", 7, "expected a digit"),
        (b'{"a": 1_000}', "malformed_json", 7, "expected ',' or '}'"),
        ('{"ä": ١}'.encode(), "malformed_json", 7, "expected a value"),
        (b'\xef\xbb\xbf{"a": 1}', "malformed_json", 0, "expected a value"),
        (b'{"a": "\xff"}', "bad_utf8", 7, "invalid UTF-8"),
        (b'{"a": "\\ud83d"}', "lone_surrogate", 7, "half of a surrogate pair"),
        (b"[" * 5000, "too_deep", 512, "nested deeper than 512 levels"),
        (b'{"a":' * 100_000, "too_deep", 2560, "nested deeper than 512 levels"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_is_no_json_says_where_and_what_was_expected(
    name: SourceFormat, record: bytes, code: str, offset: int, reason: str
) -> None:
    error = refused(name, record)
    assert (error.code, error.offset, error.reason) == (EventCode(code), offset, f"{name}: {reason}")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig"])
def test_a_record_is_utf_8(name: SourceFormat, encoding: str) -> None:
    error = refused(name, json.dumps({**DEBEZIUM, **MONGODB, "__op": "c", "__table": "t"}).encode(encoding))
    assert error.code in (EventCode.BAD_UTF8, EventCode.MALFORMED_JSON)
    assert error.offset is not None


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("record", [b"5", b'"x"', b"true", b"[[]]"])
def test_what_is_no_object_is_named_as_json_names_it(name: SourceFormat, record: bytes) -> None:
    error = refused(name, record)
    assert re.search(r"object, not (a number|a string|a boolean|an array)$", error.reason), error.reason
    assert error.place in ("", "/0")


@pytest.mark.parametrize(
    ("name", "record", "place"),
    [
        ("debezium", {**DEBEZIUM, "after": '{"id": 1_0}'}, "/after"),
        (
            "cloudevents",
            {"specversion": "1.0", "id": "a", "source": "s", "type": "t", "datacontenttype": "application/json"}
            | {"data_base64": base64.b64encode(b'{"id": 1_0}').decode()},
            "/data_base64",
        ),
        (
            "wal2json",
            {"action": "I", "schema": "s", "table": "t", "columns": [{"name": "j", "type": "json", "value": '{"id": 1_0}'}]},
            "/columns/0/value",
        ),
    ],
)
def test_json_in_a_text_says_where_in_it(name: SourceFormat, record: dict[str, Any], place: str) -> None:
    error = refused(name, json.dumps(record).encode())
    assert (error.place, error.offset) == (place, None)
    assert error.reason == f"{name}: the JSON in it, at byte 8: expected ',' or '}}'"


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_number_in_a_text_is_one_of_json(text: str) -> None:
    image = {"n": {"N": text}, "ns": {"NS": ["1", text]}}
    at = "/dynamodb/NewImage"
    for name, record, place in (
        ("canal", {**CANAL, "data": [{"n": "1"}, {"n": text}]}, "/data/1/n"),
        ("dynamodb", {**DYNAMODB, "dynamodb": {"NewImage": {"n": image["n"]}}}, f"{at}/n/N"),
        ("dynamodb", {"Records": [{**DYNAMODB, "dynamodb": {"NewImage": {"ns": image["ns"]}}}]}, f"/Records/0{at}/ns/NS/1"),
    ):
        error = refused(name, json.dumps(record).encode())
        assert (error.place, repr(text) in error.reason) == (place, True), error
        assert "expected" in error.reason


@pytest.mark.parametrize("text", [text for text in NO_NUMBERS if text not in ("NaN", "Infinity")])  # words of Extended JSON
def test_a_number_of_mongodb_that_is_none_stays_as_it_is(text: str) -> None:
    for value in ({"$numberDecimal": text}, {"$date": {"$numberLong": text}}, {"$date": text}):
        ((event, _),) = decoding("mongodb")(json.dumps({**MONGODB, "fullDocument": {"n": value, "m": 1}}).encode(), None)
        assert json.loads(event)["data"] == {"n": value, "m": 1}


@pytest.mark.parametrize("text", ["0", "-7", "12.50", "1E+5", "1e-7", "18446744073709551615"])
def test_each_number_of_json_is_one_in_a_text(text: str) -> None:
    for name, record in (
        ("canal", {**CANAL, "data": [{"n": text}]}),
        ("dynamodb", {**DYNAMODB, "dynamodb": {"NewImage": {"n": {"N": text}}}}),
        ("mongodb", {**MONGODB, "fullDocument": {"n": {"$numberDecimal": text}}}),
    ):
        ((event, _),) = decoding(name)(json.dumps(record).encode())
        assert json.loads(event)["data"] == {"n": json.loads(text)}


def test_an_error_in_a_batch_says_in_which_record() -> None:
    good = {**DYNAMODB, "dynamodb": {"NewImage": {}}}
    for bad, place in (
        (5, "/Records/1"),
        ({}, "/Records/1/eventName"),
        ({**good, "eventName": "x"}, "/Records/1/eventName"),
        ({"eventName": "INSERT"}, "/Records/1/eventSourceARN"),
        ({**good, "dynamodb": 5}, "/Records/1/dynamodb"),
        ({**good, "dynamodb": {"NewImage": {"a/b": 5}}}, "/Records/1/dynamodb/NewImage/a~1b"),
    ):
        assert refused("dynamodb", json.dumps({"Records": [good, bad]}).encode()).place == place


def test_a_date_of_mongodb_has_a_zone() -> None:
    """Without one it was a time of the zone that this machine is in."""
    for text in ("2026-11-22T10:15:30", "2026-11-22", "20261122T101530Z"):
        at = {"$date": text}
        ((event, _),) = decoding("mongodb")(json.dumps({**MONGODB, "fullDocument": {"at": at}}).encode(), None)
        assert json.loads(event)["data"] == {"at": at}
        assert refused("mongodb", json.dumps({**MONGODB, "wallTime": at}).encode()).place == "/wallTime"


@pytest.mark.parametrize("name", FORMATS)
def test_a_tombstone_is_ignored_by_every_format(name: SourceFormat) -> None:
    for record in (b"", b"null", b" null\n", b"\t"):
        ((event, key),) = decoding(name)(record, b"k")
        assert (event.strip() in (b"", b"null") or json.loads(event)["type"] == "ignore", key) == (True, "k")
    # Python takes these for white space, JSON does not.
    for record in (b"\x0bnull", b"null\x0c", b"\x0c"):
        assert refused(name, record).code is EventCode.MALFORMED_JSON


def test_what_is_no_json_says_so_without_a_service_too() -> None:
    for decode in (cdc.canal.decode, cdc.dynamodb.decode, cdc.mongodb.decode, cdc.debezium.decode, cdc.cloudevents.decode):
        for message in ('{"a": 1,}', "\udc00", '"\udc00"'):
            with pytest.raises(EventError) as error:
                decode(message)
            assert error.value.offset is not None


@pytest.mark.parametrize(
    ("record", "code", "offset"),
    [
        (b'{"a": [' + b"1," * 100_000 + b"x]}", EventCode.MALFORMED_JSON, 200_007),
        (b'{"\xc3\xa9": "' + b"x" * 100_000, EventCode.MALFORMED_JSON, 7),
        (b'{"a": "' + b"x" * 100_000 + b'\xff"}', EventCode.BAD_UTF8, 100_007),
        (b'{"a": [NaN' + b", 1" * 100_000 + b"]}", EventCode.MALFORMED_JSON, None),
        (b'{"a": "\\ud83d' + b"x" * 100_000 + b'"}', EventCode.MALFORMED_JSON, None),
    ],
)
def test_a_long_record_that_is_no_json_is_refused_without_a_second_reading(
    record: bytes, code: EventCode, offset: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(text: bytes, *, max_bytes: int) -> None:
        assert len(text) > max_bytes, "the reader of events takes a second for a million bytes"
        raise EventError(EventCode.TOO_LONG, "too long")

    # The native core reads each record once.
    monkeypatch.setattr(_backend, "BACKEND", "reference")
    monkeypatch.setattr("streamer.events.json.parse", explain)
    error = refused("canal", record)
    assert (error.code, error.offset, error.reason) == (code, offset, "canal: expected JSON in UTF-8, as RFC 8259 has it")
