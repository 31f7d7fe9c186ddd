"""What an error of an event says: the same words on both backends, whether the event is bytes, text or a mapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, EventLayout
from streamer.errors import EventError

MakeEngine = Callable[..., Engine]

TEXTS = {
    "{": "malformed_json at byte 1: expected a member name in double quotes, but the text ends",
    '{"a": tru}': "malformed_json at byte 9: expected 'true'",
    '{"a": tr': "malformed_json at byte 8: expected 'true', but the text ends",
    "nul": "malformed_json at byte 3: expected 'null', but the text ends",
    '{"a": [': "malformed_json at byte 7: expected a value, but the text ends",
    '{"a": -': "malformed_json at byte 7: expected a digit, but the text ends",
    '{"a"': "malformed_json at byte 4: expected ':', but the text ends",
    '{"a": [1': "malformed_json at byte 8: expected ',' or ']', but the text ends",
    '{"\\u00': "malformed_json at byte 6: expected four hexadecimal digits, but the text ends",
    '{"a": "abc': "malformed_json at byte 10: the string does not end, but the text ends",
    '{"a": "\\x"}': "malformed_json at byte 8: unknown escape in a string",
    '{"a": "\\': "malformed_json at byte 8: unknown escape in a string, but the text ends",
    '{"a": "\\u12"}': "malformed_json at byte 11: expected four hexadecimal digits",
    '{"a": "\\ud83d"}': "lone_surrogate at byte 7: half of a surrogate pair",
    '{"data": {"a": ' + "[" * 600: "too_deep at byte 525: nested deeper than 512 levels",
    "17": "not_an_object at byte 0: an event is a JSON object, not a number",
    '{"collection": 1}': "wrong_type at byte 15 at /collection: collection is a string, not a number",
    '{"data": [1]}': "wrong_type at byte 9 at /data: data is an object or null, not a list",
    '{"type": "gone \\"away\\""}': 'bad_value at byte 9 at /type: type is one of insert, update, delete, not "gone \\"away\\""',
    '{"unknown": 1.5}': "wrong_type at byte 12 at /unknown: unknown is a list of JSON Pointers, not a number",
    '{"unknown": [true]}': "wrong_type at byte 12 at /unknown/0: a member of unknown is a JSON Pointer, not a boolean",
    '{"unknown": ["a"]}': "bad_pointer at byte 12 at /unknown/0: \"a\": a JSON Pointer is empty or begins with '/'",
    f'{{"unknown": ["{"ä" * 99}"]}}': f'bad_pointer at byte 12 at /unknown/0: "{"ä" * 80}...": '
    "a JSON Pointer is empty or begins with '/'",
}


def message(engine: Engine, event: Any) -> str:
    """Return what an engine says of an event that it refuses."""
    with pytest.raises(EventError) as caught:
        engine.match_ids(event)
    return str(caught.value)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:24])
def test_a_bad_text_is_told_in_the_same_words(engine: MakeEngine, text: str) -> None:
    e = engine()
    assert message(e, text) == TEXTS[text]
    assert message(e, text.encode()) == TEXTS[text]


@pytest.mark.parametrize(
    ("ts", "words"),
    [
        ("2026-02-30T12:00:00Z", "this date or time does not exist"),
        ("2026-01-31T24:00:00Z", "this date or time does not exist"),
        ("2026-01-31T12:00:60Z", "this date or time does not exist"),
        ("0000-01-01T00:00:00Z", "this date or time does not exist"),
        ("2026-13-01T12:00:00Z", "a month is 01 to 12"),
        ("2026-01-31T12:00:00+24:00", "a time offset is at most 23:59"),
        ("today", "expected RFC 3339, as 2026-01-31T12:00:00.5Z"),
    ],
)
def test_a_bad_time_is_told_in_the_same_words(engine: MakeEngine, ts: str, words: str) -> None:
    e = engine(layout=EventLayout(ts_format="rfc3339"))
    assert message(e, {"ts": ts}) == f"bad_timestamp at /ts: {words}"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"collection": 1}, "wrong_type at /collection: collection is a string, not a number"),
        ({"unknown": [True]}, "wrong_type at /unknown/0: a member of unknown is a JSON Pointer, not a boolean"),
        ({"unknown": ["a"]}, "bad_pointer at /unknown/0: \"a\": a JSON Pointer is empty or begins with '/'"),
    ],
    ids=["collection", "unknown", "pointer"],
)
def test_a_bad_mapping_is_told_in_the_same_words(engine: MakeEngine, event: dict[str, Any], words: str) -> None:
    assert message(engine(), event) == words
