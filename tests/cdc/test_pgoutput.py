"""The decoder of pgoutput and the native reader, on what a real server sent, and on what no server sends."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer import _backend, cdc
from streamer.cdc.pgoutput import Begin, Commit, Decoder
from streamer.errors import EventError
from tests.property.test_record_reader import canonical

GOLDEN = [json.loads(line) for line in (Path(__file__).parent / "pgoutput.jsonl").read_text(encoding="utf-8").splitlines()]
KEYS = {"shop.whole": ["id"]}.get


def golden() -> list[tuple[bytes, Any]]:
    """Return each message, and what it must come to."""
    found: list[tuple[bytes, Any]] = []
    for line in GOLDEN:
        wanted: Any
        if "begin" in line:
            wanted = Begin(**line["begin"])
        elif "commit" in line:
            wanted = Commit(**line["commit"])
        else:
            wanted = [(text.encode(), key) for text, key in line["events"]]
        found.append((bytes.fromhex(line["message"]), wanted))
    return found


def test_messages_of_a_real_server_come_to_these_events() -> None:
    decoder = Decoder(KEYS)
    for message, wanted in golden():
        assert decoder.read(message) == wanted


def test_every_event_is_one_line_that_an_engine_reads(engine: Callable[..., Any]) -> None:
    asked = engine(layout=cdc.LAYOUT)
    asked.add({"id": "all"})
    read = 0
    for _, wanted in golden():
        for text, _ in [] if isinstance(wanted, Begin | Commit) else wanted:
            assert b"\n" not in text
            assert (asked.match(text).ignored is None) == (not text.startswith(b'{"type":"ignore"'))
            read += 1
    assert read > 20


def test_the_golden_file_has_every_kind_of_message() -> None:
    assert {message[:1] for message, _ in golden()} == set(map(bytes, zip(b"BCRYIUDTM", strict=True)))


def test_what_is_no_change_is_an_event_that_is_ignored() -> None:
    decoder = Decoder(KEYS)
    for message, wanted in golden():
        events = decoder.decode(message)
        if isinstance(wanted, Begin | Commit) or not wanted:
            assert [event["type"] for event in events] == ["ignore"]
            assert events[0]["ignored"]
        else:
            assert [event["type"] for event in events] == [json.loads(text)["type"] for text, _ in wanted]


def events_of(table: str) -> list[Any]:
    texts = [text for line in GOLDEN for text, _ in line.get("events", ())]
    return [event for event in map(json.loads, texts) if event.get("collection") == table]


def test_null_is_never_made_up_of_what_is_not_carried() -> None:
    """Of a key that was, all other columns are written as null; of a large value that stayed there is nothing."""
    _, _, update, delete, insert, last = events_of("public.orders")
    assert (update["before"], update["unknown"]) == ({"id": 1}, ["/data/note"])
    assert "note" not in update["data"]
    assert (delete["type"], delete["before"]) == ("delete", {"id": 1})
    assert (insert["type"], insert["data"]["id"], insert["unknown"]) == ("insert", 2, ["/data/note"])
    assert (last["type"], last["before"]) == ("delete", {"id": 2})


def test_a_row_whose_transition_depends_on_a_value_that_is_not_carried_is_not_certain(engine: Callable[..., Any]) -> None:
    asked = engine(layout=cdc.LAYOUT)
    asked.add({"id": "paid", "filters": [{"field": "status", "op": "==", "value": "paid"}]})
    asked.add({"id": "noted", "filters": [{"field": "note", "op": "starts_with", "value": "x"}]})
    _, _, update, *_ = events_of("public.orders")
    assert sorted((match.subscription_id, match.certain) for match in asked.match(json.dumps(update))) == [
        ("noted", False),
        ("paid", False),
    ]


# What no server sends

DESCRIBED = b"R" + struct.pack(">I", 7) + b"public\0t\0d" + struct.pack(">H", 2)
DESCRIBED += b"\x01id\0" + struct.pack(">Ii", 23, -1) + b"\0v\0" + struct.pack(">Ii", 25, -1)
BEGUN = b"B" + struct.pack(">QqI", 1, 0, 1)


def value(text: bytes | None, kind: bytes = b"t") -> bytes:
    return b"n" if text is None else kind + struct.pack(">I", len(text)) + text


def inserted(*values: bytes) -> bytes:
    return b"I" + struct.pack(">I", 7) + b"N" + struct.pack(">H", len(values)) + b"".join(values)


class Native:
    """The native reader in the place of a decoder."""

    def __init__(self, *, has_envelope: bool = False) -> None:
        from streamer import _native

        self._reader = _native.RecordReader("pgoutput", envelope=has_envelope)

    def read(self, message: bytes) -> list[tuple[bytes, str | None]] | None:
        return self._reader.read(message)


@pytest.fixture(params=[Decoder, Native])
def reader(request: pytest.FixtureRequest) -> Any:
    if request.param is Native and "native" not in _backend.available():
        pytest.skip("there is no native core")
    return request.param


def described(made: Any, oid: int = 25) -> Any:
    """Return a reader of a stream that has described a table, whose second column has a type, and has begun a transaction."""
    made.read(DESCRIBED.replace(struct.pack(">Ii", 25, -1), struct.pack(">Ii", oid, -1)))
    made.read(BEGUN)
    return made


CUT = "bad_value at byte {}: pgoutput: the message is cut off"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"B" + b"\0" * 19, CUT.format(20)),
        (b"C" + b"\0" * 24, CUT.format(25)),
        (DESCRIBED[:-1], CUT.format(len(DESCRIBED) - 1)),
        (DESCRIBED.replace(b"d\0\x02", b"d\xff\xff"), CUT.format(len(DESCRIBED))),
        (b"R\0\0\0\x07public", CUT.format(11)),
        (b"Y\0\0\0\x07\xff\0m\0", "bad_utf8 at byte 5: pgoutput: invalid UTF-8"),
        (b"U\0\0\0\x07", CUT.format(5)),
        (inserted(value(b"1"), b"t\xff\xff\xff\xffa"), CUT.format(20)),
        (b"Z", "wrong_type at byte 0: pgoutput: a message that begins with byte 90 is unknown"),
        (
            b"S\0\0",
            "wrong_type at byte 0: pgoutput: a message that begins with byte 83 is of another protocol version;"
            " request version 1",
        ),
        (
            b"I\0\0\0\x08N\0\0",
            "bad_value at byte 1: pgoutput: a change of table 8, which no message described: read the stream from its beginning",
        ),
        (inserted(value(b"1")), "bad_value at byte 6: pgoutput: a row of 1 columns, but its table was described with 2"),
        (inserted(value(b"1"), value(b"a"))[:-1], "bad_value at byte 19: pgoutput: the message is cut off"),
        (inserted(value(b"1"), value(b"\xff")), "bad_utf8 at byte 19: pgoutput: invalid UTF-8"),
        (inserted(value(b"1}"), value(b"a")), "bad_value at /data/id: pgoutput: '1}' is not an integer"),
        (inserted(value(b"1"), value(b"a", b"b")), "bad_value at byte 14: pgoutput: a value is binary, which was not requested"),
        (
            inserted(value(b"1"), value(b"a", b"q")),
            "bad_value at byte 14: pgoutput: a value is byte 113, and n, t or u was expected",
        ),
        (b"D\0\0\0\x07N\0\0", "bad_value at byte 5: pgoutput: expected a row, marked K or O, not byte 78"),
        (b"U\0\0\0\x07X\0\0", "bad_value at byte 5: pgoutput: expected a row, marked N, not byte 88"),
    ],
)
def test_bad_bytes_say_what_is_wrong_and_where(reader: Any, message: bytes, said: str) -> None:
    made = described(reader())
    with pytest.raises(EventError) as caught:
        made.read(message)
    assert str(caught.value) == said


def test_a_change_outside_of_a_transaction_is_refused(reader: Any) -> None:
    made = reader()
    made.read(DESCRIBED)
    with pytest.raises(EventError, match="outside of a transaction"):
        made.read(inserted(value(b"1"), value(b"a")))


@pytest.mark.parametrize(
    ("oid", "texts"),
    [
        (16, [b"true", b""]),
        (20, [b"", b"-", b"1.5", b"1e3", b"0x1", b"\xd9\xa1"]),
        (1700, [b"", b"1,", b"nan", b".5", b"1e"]),
        (114, [b"", b'{"a":1},{"b":2}', b'"a', b"NaN", b"[" * 5000, b'{"a"}']),
        (
            1007,
            [b"", b"{", b"}", b"{1", b"{1}}", b"{1,,2}", b"{,1}", b"{1,}", b"{1}{2}", b"1", b"{x}", b"{{1}", b'{"1}', b"[0:1]"],
        ),
        (17, [b"\\xz", b"\\x1"]),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_in_its_place(reader: Any, oid: int, texts: list[bytes]) -> None:
    for text in texts:
        with pytest.raises(EventError) as caught:
            described(reader(), oid).read(inserted(value(b"1"), value(text)))
        assert caught.value.place == "/data/v", text


def test_no_bytes_end_the_decoder_otherwise_than_by_an_event_error() -> None:
    rng = random.Random(4711)
    messages = [message for message, _ in golden()]
    refused = without_place = 0
    for _ in range(300):
        made = Decoder(KEYS)
        for message in messages:
            damaged = bytearray(message)
            kind = rng.randrange(4)
            if kind == 0:
                del damaged[rng.randrange(len(damaged)) :]
            elif kind == 1:
                for _ in range(rng.randrange(1, 4)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            elif kind == 2:
                at = rng.randrange(len(damaged))
                damaged[at:at] = rng.randbytes(rng.randrange(1, 5))
            try:
                for event in made.decode(bytes(damaged)):
                    assert event["type"] in ("insert", "update", "delete", "ignore")
            except EventError as error:
                refused += 1
                without_place += error.offset is None and error.place is None and error.code not in ("bad_utf8", "too_deep")
    assert refused > 1000
    assert without_place == 0


@pytest.mark.parametrize(
    ("oid", "text", "json_"),
    [
        (17, b"\\x", '""'),
        (17, b"\\x00fFfe01", '"AP/+AQ=="'),
        (17, b"plain", '"plain"'),
        (1700, b"1e400", "1e400"),
        (1700, b"9" * 309, '"' + "9" * 309 + '"'),
        (1700, b"0." + b"1" * 400, "0." + "1" * 400),
        (114, b' {"a":\r\n1} ', ' {"a":  1} '),
        (1184, b"2026-11-22 10:15:30.5+05:30", '"2026-11-22T10:15:30.5+05:30"'),
        (1184, b"2026-11-22 10:15:30-00", '"2026-11-22T10:15:30Z"'),
        (1184, b"0044-03-15 10:00:00+00 BC", '"0044-03-15 10:00:00+00 BC"'),
        (1184, b"2026-11-22 10:15:30.+00", '"2026-11-22 10:15:30.+00"'),
        (1009, b'[2:3][1:1]={{"a\\"b"},{NULL}}', '[["a\\"b"],[null]]'),
        (1009, b"{}", "[]"),
        (1009, '{é,"\u2028"}'.encode(), '["é","\u2028"]'),
        (199, b'{"{\\"a\\": [1]}"}', '[{"a": [1]}]'),
        (4711, b"{1,2}", '"{1,2}"'),
    ],
)
def test_a_value_comes_to_this_json(reader: Any, oid: int, text: bytes, json_: str) -> None:
    ((event, _),) = described(reader(), oid).read(inserted(value(b"1"), value(text)))
    assert f'"v":{json_}}}'.encode() in event


@pytest.mark.parametrize(
    ("schema", "name", "text", "json_"),
    [
        (b"pg_catalog", b"numeric", b"1.50", "1.50"),
        (b"", b"_bool", b"{t}", "[true]"),
        (b"mine", b"numeric", b"1.50", '"1.50"'),
        (b"mine", b"_mood", b"{glad}", '["glad"]'),
        (b"mine", b"_mood", b"glad", '"glad"'),
    ],
)
def test_a_type_that_a_message_names_is_read_so(reader: Any, schema: bytes, name: bytes, text: bytes, json_: str) -> None:
    made = reader()
    made.read(b"Y" + struct.pack(">I", 99_999) + schema + b"\0" + name + b"\0")
    ((event, _),) = described(made, 99_999).read(inserted(value(b"1"), value(text)))
    assert f'"v":{json_}}}'.encode() in event


def test_a_table_that_is_described_again_has_the_later_columns(reader: Any) -> None:
    made = described(reader())
    made.read(DESCRIBED.replace(b"\0v\0", b"\0w\0"))
    ((event, key),) = made.read(inserted(value(b"1"), value(b"a")))
    assert (json.loads(event)["data"], key) == ({"id": 1, "w": "a"}, "1")


def test_the_descriptions_of_tables_are_bounded(reader: Any) -> None:
    made, many = reader(), reader()

    def describe(number: int) -> None:
        made.read(b"R" + struct.pack(">I", number) + b"s\0" + b"x" * (1 << 24) + b"\0d\0\0")

    def name(number: int) -> None:
        many.read(b"Y" + struct.pack(">I", number) + b"s\0t\0")

    # One that is described again takes the place of the former.
    for number in (0, 1, 2, 0, 2):
        describe(number)
    with pytest.raises(EventError, match="descriptions of tables of more than 67,108,864 bytes together: publish fewer tables"):
        describe(3)
    for number in range(100_000):
        name(number)
    with pytest.raises(EventError, match="more than 100,000 tables and types"):
        name(100_000)


def answer(made: Any, message: bytes) -> Any:
    """Return the events of a message with their keys, or its error."""
    try:
        found = made.read(message)
    except EventError as error:
        return error.code, error.place, error.offset
    changes = found if isinstance(found, list) else []
    return [(canonical(text), key) for text, key in changes if not text.startswith(b'{"type":"ignore"')]


@pytest.mark.skipif("native" not in _backend.available(), reason="this compares the native core with the reference")
def test_both_read_messages_alike_whole_and_damaged() -> None:
    rng = random.Random(815)
    messages = [message for message, _ in golden()]
    changes = refused = 0
    for number in range(60):
        native, reference = Native(has_envelope=True), Decoder(has_envelope=True)
        for message in messages:
            damaged = bytearray(message)
            if number:
                at = rng.randrange(len(damaged))
                kind = rng.randrange(5)
                if kind == 0:
                    del damaged[at:]
                elif kind == 1:
                    damaged[at] = rng.randrange(256)
                elif kind == 2:
                    damaged[at:at] = rng.randbytes(rng.randrange(1, 5))
            if not bytes(damaged).strip():
                continue
            found = answer(native, bytes(damaged))
            assert found == answer(reference, bytes(damaged)), bytes(damaged)
            changes += isinstance(found, list) and bool(found)
            refused += isinstance(found, tuple)
    assert changes > 100
    assert refused > 100
