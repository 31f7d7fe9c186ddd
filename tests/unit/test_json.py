"""The strict reader: what the table of cases cannot say, and that it accepts what another strict reader accepts."""

from __future__ import annotations

import json
import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import EventCode, EventError
from streamer.events.json import Pairs, parse, read
from streamer.model import BeyondFloat64

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=3), below, max_size=4), max_leaves=12
)
# What mutations put in: every token, its halves, and bytes that no token has.
TOKENS = rb'{ } [ ] , : " \ \u \ud83d \ude00 0 1 - . e E + true nul false NaN a "a":1 1e400 \n \x /'.split()
BYTES = [b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xef\xbb\xbf", b" ", b"\n", b"\x00", b"\x1f", b"\x7f", b"9" * 25, b""]
FRAGMENTS = st.sampled_from([*TOKENS, *BYTES])


@st.composite
def broken_texts(draw: st.DrawFn) -> bytes:
    """A JSON text with a few mistakes in it, or none."""
    text = bytearray(json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans())).encode())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 3))] = draw(FRAGMENTS)
    return bytes(text)


def refusal(text: bytes) -> EventError | None:
    try:
        parse(text)
    except EventError as error:
        return error
    return None


def has_beyond(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_beyond, value.values()))
    return isinstance(value, BeyondFloat64) or (isinstance(value, list) and any(map(has_beyond, value)))


@given(broken_texts())
def test_it_accepts_what_orjson_accepts_with_the_same_values(text: bytes) -> None:
    """Save for a literal beyond float64, which is valid JSON, and which orjson refuses."""
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        assert refusal(text) is not None or has_beyond(parse(text))
        return
    assert parse(text) == expected


@given(broken_texts())
def test_the_offset_is_the_first_byte_that_cannot_continue_any_json_text(text: bytes) -> None:
    error = refusal(text)
    if error is None:
        return
    assert error.offset is not None
    if error.code is EventCode.BAD_UTF8:
        text[: error.offset].decode()
        with pytest.raises(UnicodeDecodeError):
            text.decode()
    elif error.code is EventCode.MALFORMED_JSON:
        before = refusal(text[: error.offset])
        assert before is None or (before.code, before.offset) == (error.code, error.offset)
        if error.offset < len(text):
            through = refusal(text[: error.offset + 1])
            # Half a character more may be an ill-formed sequence of its own.
            assert through is not None
            assert through.offset == error.offset


@given(VALUES)
def test_what_json_writes_is_read_back(value: Any) -> None:
    def as_read(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: as_read(member) for name, member in value.items()}
        if isinstance(value, list):
            return [as_read(element) for element in value]
        is_far = type(value) is int and not -(2**63) <= value < 2**64
        return float(value) if is_far else value

    read_back = parse(json.dumps(value).encode())
    assert read_back == as_read(value)
    assert repr(read_back) == repr(as_read(value))


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("-0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", 2**63),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("-9223372036854775809", -(2.0**63)),
        ("1.0", 1.0),
        ("1e2", 100.0),
        ("-0.0", -0.0),
        ("1e400", BeyondFloat64("1e400")),
        ("-1E+400", BeyondFloat64("-1E+400")),
        ("9" * 5000, BeyondFloat64("9" * 5000)),
        ("1e-400", 0.0),
    ],
)
def test_a_number_has_the_kind_that_its_spelling_says(literal: str, value: object) -> None:
    read_value = parse(literal.encode())
    assert (type(read_value), repr(read_value)) == (type(value), repr(value))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 2_000_000,
        b'{"a":' * 500_000,
        b"9" * 2_000_000,
        b"0." + b"3" * 2_000_000,
        b'"' + b"\\u0041" * 300_000 + b'"',
        b'"' + "é".encode() * 1_000_000 + b"\xff",
        b"[" + b'"\\n",' * 200_000 + b"1]",
        b" " * 2_000_000,
    ],
    ids=["brackets", "objects", "digits", "fraction", "escapes", "bad utf-8", "strings", "spaces"],
)
def test_time_is_linear_in_the_text(text: bytes) -> None:
    started = time.process_time()
    refusal(text)
    assert time.process_time() - started < 5


def test_deep_texts_are_read_without_recursion() -> None:
    depth = 100_000
    value = parse(b"[" * depth + b"]" * depth, max_depth=depth)
    for _ in range(depth - 1):
        (value,) = value
    assert value == []


def test_the_last_duplicate_wins_in_the_place_of_the_first() -> None:
    assert list(parse(b'{"a":{"x":1},"b":2,"a":{"y":3}}').items()) == [("a", {"y": 3}), ("b", 2)]


def test_pairs_keep_all_duplicates() -> None:
    value = parse(b'{"a":1,"b":[{"c":2,"c":3}],"a":{}}', pairs=True)
    assert value == [("a", 1), ("b", [[("c", 2), ("c", 3)]]), ("a", [])]
    assert type(value) is type(value[2][1]) is Pairs
    assert type(value[1][1]) is list


def test_watched_members_have_their_offsets_in_bytes() -> None:
    document = read('{"é": 0, "a": {"b": [7, {"c": 8}]}}'.encode(), watch={"a": {"b": {"1": {"c": {}}}}, "z": {}})
    assert document.offsets == {(): 0, ("a",): 15, ("a", "b"): 21, ("a", "b", "1"): 25, ("a", "b", "1", "c"): 31}
    assert document.duplicate is None


def test_the_first_duplicate_of_a_watched_member_is_told() -> None:
    document = read(b'{"a":1,"b":{"c":1},"b":{"c":2},"a":2}', watch={"a": {}, "b": {"c": {}}})
    assert document.duplicate == (("b",), 19)
    assert document.value == {"a": 2, "b": {"c": 2}}
