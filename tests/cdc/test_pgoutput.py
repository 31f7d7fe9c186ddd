"""The decoder of pgoutput on what a real server sent, and on what no server sends."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer import cdc
from streamer.cdc.pgoutput import Begin, Commit, Decoder
from streamer.errors import EventError

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


def decoder(oid: int = 25) -> Decoder:
    made = Decoder()
    made.read(DESCRIBED.replace(struct.pack(">Ii", 25, -1), struct.pack(">Ii", oid, -1)))
    made.read(BEGUN)
    return made


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "bad_value at byte 0: pgoutput: the message is cut off"),
        (b"Z", "wrong_type at byte 0: pgoutput: a message that begins with byte 90 is unknown"),
        (
            b"S\0\0",
            "wrong_type at byte 0: pgoutput: a message that begins with byte 83 is of another protocol version;"
            " request version 1",
        ),
        (b"I\0\0\0\x08N\0\0", "bad_value at byte 1: pgoutput: a change of table 8, which no message described"),
        (inserted(value(b"1")), "bad_value at byte 6: pgoutput: a row of 1 columns, but its table was described with 2"),
        (inserted(value(b"1"), value(b"a"))[:-1], "bad_value at byte 19: pgoutput: the message is cut off"),
        (inserted(value(b"1"), value(b"\xff")), "bad_utf8: pgoutput: invalid UTF-8"),
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
def test_bad_bytes_say_what_is_wrong_and_where(message: bytes, said: str) -> None:
    made = decoder()
    with pytest.raises(EventError) as caught:
        made.read(message)
    assert str(caught.value) == said


def test_a_change_outside_of_a_transaction_is_refused() -> None:
    made = Decoder()
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
def test_a_value_that_is_not_of_its_type_is_refused_in_its_place(oid: int, texts: list[bytes]) -> None:
    for text in texts:
        with pytest.raises(EventError) as caught:
            decoder(oid).read(inserted(value(b"1"), value(text)))
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
