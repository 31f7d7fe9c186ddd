"""A number of a record has all of its digits in its event and in its key, whatever 64 bits hold (semantics.md 1.59)."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from streamer import cdc
from streamer.config.schema.encoded import SourceFormat
from streamer.errors import EventError
from streamer.events.literal_json import Number, number, written
from streamer.service.connectors.formats import Decoder, decoder

pytestmark = pytest.mark.usefixtures("backend")

BIG, BIGGER = "12345678901234567890123", "12345678901234567890124"
#: Numbers of which a float64 says less than their text.
SPELLED = [BIG, f"-{BIG}", "18446744073709551616", "-9223372036854775809", "0.1234567890123456789", "1e400", "12.50", "9" * 5000]
EXACT: list[tuple[SourceFormat, str]] = [
    ("debezium", '{"op":"c","source":{"table":"t"},"after":{"n":%s}}'),
    ("debezium", '{"op":"c","source":{"table":"t"},"after":"{\\"n\\":%s}"}'),
    ("debezium_unwrapped", '{"__op":"c","__table":"t","n":%s}'),
    ("cloudevents", '{"specversion":"1.0","id":"a","source":"t","type":"x","data":{"n":%s}}'),
    ("wal2json", '{"action":"I","schema":"s","table":"t","columns":[{"name":"n","type":"numeric","value":%s}]}'),
    ("canal", '{"type":"INSERT","database":"d","table":"t","sqlType":{"n":3},"data":[{"n":"%s"}]}'),
    ("dynamodb", '{"eventName":"INSERT","tableName":"t","dynamodb":{"NewImage":{"n":{"N":"%s"}}}}'),
    ("mongodb", '{"operationType":"insert","ns":{"db":"d","coll":"c"},"fullDocument":{"n":{"$numberDecimal":"%s"}}}'),
    ("mongodb", '{"operationType":"insert","ns":{"db":"d","coll":"c"},"fullDocument":{"n":%s}}'),
]


def decoding(name: SourceFormat) -> Decoder:
    found = decoder(name)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "record"), EXACT)
@pytest.mark.parametrize("text", SPELLED, ids=lambda text: text[:12])
def test_a_number_keeps_its_digits(name: SourceFormat, record: str, text: str, engine: Callable[..., Any]) -> None:
    ((event, _),) = decoding(name)((record % text).encode())
    assert f'"data":{{"n":{text}}}'.encode() in event
    asked = engine(layout=cdc.LAYOUT)
    asked.add({"id": "there", "filters": [{"field": "n", "op": "exists", "value": True}]})
    assert asked.match_ids(event) == ["there"]


@pytest.mark.parametrize(
    ("name", "record", "key"),
    [
        ("debezium", '{"op":"c","source":{"table":"t"},"after":{"id":%s}}', None),
        ("debezium", '{"op":"c","source":{"table":"t"},"after":{"nr":%s}}', '{"nr":%s}'),
        ("debezium", '{"op":"c","source":{"table":"t"},"after":{"nr":1}}', '{"schema":{},"payload":{"nr":%s}}'),
        ("debezium_unwrapped", '{"__op":"c","__table":"t","id":%s}', None),
        ("wal2json", '{"action":"I","schema":"s","table":"t","columns":[{"name":"n","value":%s}],"pk":[{"name":"n"}]}', None),
        ("canal", '{"type":"INSERT","database":"d","table":"t","sqlType":{"n":3},"data":[{"n":"%s"}],"pkNames":["n"]}', None),
        ("dynamodb", '{"eventName":"REMOVE","tableName":"t","dynamodb":{"Keys":{"n":{"N":"%s"}}}}', None),
    ],
)
def test_two_keys_beyond_64_bits_stay_two(name: SourceFormat, record: str, key: str | None) -> None:
    """As float64 they were one: what tells of two rows stood in one line, and a change of the key was none."""
    found = []
    for text in (BIG, BIGGER):
        ((_, own),) = decoding(name)((record % text if "%" in record else record).encode(), key and (key % text).encode())
        found.append(own)
    assert found == [BIG, BIGGER]


def test_a_change_of_a_key_beyond_64_bits_is_a_delete_and_an_insert() -> None:
    record = f'{{"op":"u","source":{{"table":"t"}},"before":{{"n":{BIG}}},"after":{{"n":{BIGGER}}}}}'
    (gone, one), (made, other) = decoding("debezium")(record.encode(), b'{"n":%s}' % BIGGER.encode())
    assert ([json.loads(each)["type"] for each in (gone, made)], one, other) == (["delete", "insert"], BIG, BIGGER)
    same = record.replace(BIGGER, f'{BIG},"a":2')
    ((event, key),) = decoding("debezium")(same.encode(), b'{"n":%s}' % BIG.encode())
    assert (json.loads(event)["type"], key) == ("update", BIG)


def test_a_blank_number_is_blank_however_it_is_spelled() -> None:
    record = b'{"op":"d","source":{"connector":"postgresql","table":"t"},"before":{"id":7,"price":0.00,"n":0}}'
    ((event, _),) = decoding("debezium")(record, b'{"id":7}')
    assert json.loads(event)["before"] == {"id": 7}


def test_to_a_program_a_number_is_the_float64_that_an_engine_reads(engine: Callable[..., Any]) -> None:
    (event,) = cdc.debezium.decode(f'{{"op":"c","source":{{"table":"t"}},"after":{{"n":{BIG},"f":12.50}}}}')
    assert event["data"] == {"n": 1.2345678901234568e22, "f": 12.5}
    asked = engine(layout=cdc.LAYOUT)
    asked.add({"id": "big", "filters": [{"field": "n", "op": ">", "value": 1e22}]})
    assert asked.match_ids(event) == ["big"]
    for copied in (copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert (copied, written(copied)) == (event, written(event))
    # As any number beyond float64 that a dict holds (1.58).
    (event,) = cdc.debezium.decode('{"op":"c","source":{"table":"t"},"after":{"n":1e400}}')
    with pytest.raises(EventError):
        asked.match(event)


def test_what_64_bits_hold_is_an_integer() -> None:
    assert [type(number(text)) for text in ("0", "-9223372036854775808", "18446744073709551615")] == [int] * 3
    assert [type(number(text)) for text in ("1.0", "1e2", "18446744073709551616")] == [Number] * 3


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -7, 1.5, 1e300, "", 'q"\\\n', "ä\u2028", [], {}, [[], {}], {"a": [1, {"b": None}]}, {"": [True, "x"]}],
)
def test_values_are_written_as_the_standard_library_writes_them(value: Any) -> None:
    for each in (value, [value, value], {"a": value, "b": value}):
        assert written(each) == json.dumps(each, ensure_ascii=False, separators=(",", ":"))
