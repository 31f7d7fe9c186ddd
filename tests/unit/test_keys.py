"""Access keys: exact bytes, buckets that lose no number, and which condition of several makes the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.cel_eval import ProgramCache
from streamer.model import Limits
from streamer.subscriptions.buckets import SHIFTS, bounds, bucket, buckets, code
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.keys import Key, access_keys
from streamer.subscriptions.normal_form import normal_form

numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(2**53 - 4, 2**53 + 4),
    st.integers(-20, 20),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, 2**63 - 1, 2**63]),
)


@given(numbers, numbers)
def test_codes_are_in_the_order_of_the_numbers(one: int | float, other: int | float) -> None:
    if one <= other:
        assert code(one) <= code(other)
    if one == other:
        assert code(one) == code(other)


@given(st.one_of(st.none(), numbers), st.one_of(st.none(), numbers), numbers)
def test_a_number_within_the_bounds_lies_in_a_bucket_of_the_range(
    low: int | float | None, high: int | float | None, number: int | float
) -> None:
    held = set(buckets(low, high))
    if (low is None or low <= number) and (high is None or number <= high):
        assert any((shift, bucket(number, shift)) in held for shift in SHIFTS)
    assert len(held) <= 110


@given(numbers, st.sampled_from(SHIFTS))
def test_a_bucket_is_printed_with_what_it_holds(number: int | float, shift: int) -> None:
    low, high = bounds(bucket(number, shift), shift)
    assert low <= float(number) <= high


@pytest.mark.parametrize(
    ("low", "high", "stopped"), [(100, None, 95), (None, 5, 5.5), (18, 25, 26.5), (1.7e12, 1.7e12 + 1e5, 1.7001e12)]
)
def test_a_range_prunes(low: float | None, high: float | None, stopped: float) -> None:
    held = set(buckets(low, high))
    assert not any((shift, bucket(stopped, shift)) in held for shift in SHIFTS)
    assert len({shift for shift, _ in held}) <= 4


def keys_of(**members: Any) -> list[bytes] | None:
    form = normal_form(compile_subscription({"id": "s", **members}, programs=ProgramCache(10)), Limits())
    keys = access_keys(form)
    return None if keys is None else sorted(key.to_bytes() for key in keys)


def condition(op: str, value: Any, field: str = "a") -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


#: Bytes are shipped: one that changes is a match lost at the other end.
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"filters": [condition("==", 1.0)]}, [b'["data","value",["a"],"number","1"]']),
        (
            {"filters": [condition("in", [True, None])]},
            [b'["data","value",["a"],"bool",true]', b'["data","value",["a"],"null",null]'],
        ),
        ({"filters": [condition("starts_with", "vip-1")]}, [b'["data","value",["a"],"prefix4","vip-"]']),
        ({"filters": [condition("ends_with", "ü9")]}, ['["data","value",["a"],"suffix2","ü9"]'.encode()]),
        (
            {"filters": [condition("contains", "gold")]},
            [b'["data","value",["a"],"element-string","gold"]', b'["data","value",["a"],"gram","gol"]'],
        ),
        ({"filters": [condition("contains", 7)]}, [b'["data","value",["a"],"element-number","7"]']),
        ({"pattern": {"a": [{"wildcard": "*.example.org"}]}}, [b'["event","leaf",["a"],"suffix8","mple.org"]']),
        ({"pattern": {"a": [{"wildcard": "*gold*"}]}}, [b'["event","leaf",["a"],"gram","gol"]']),
        ({"pattern": {"a": [{"equals-ignore-case": "STRAẞE"}]}}, ['["event","leaf",["a"],"fold","straße"]'.encode()]),
        ({"pattern": {"a": [{"prefix": {"equals-ignore-case": "VIP"}}]}}, [b'["event","leaf",["a"],"iprefix2","vi"]']),
        ({"pattern": {"a": [{"cidr": "10.1.0.0/20"}]}}, [b'["event","leaf",["a"],"net4-16","2561"]']),
        ({"pattern": {"a": [{"numeric": [">=", 1, "<", 1.01]}]}}, None),
        ({"topic": "orders.*.paid"}, [b'["topic","value",[],"words1","orders"]']),
        ({"topic": "orders/+/paid", "topic_dialect": "mqtt"}, [b'["topic","value",[],"levels1","orders"]']),
        ({"topic": "+/paid/late", "topic_dialect": "mqtt"}, [b'["topic","value",[],"lastlevels2","paid/late"]']),
        ({"topic": "orders/#", "topic_dialect": "mqtt"}, [b'["topic","value",[],"levels1","orders"]']),
        ({"topic": "orders.paid.>", "topic_dialect": "nats"}, [b'["topic","value",[],"words2","orders.paid"]']),
        ({"topic": "orders/paid", "topic_dialect": "mqtt"}, [b'["topic","value",[],"string","orders/paid"]']),
        ({"topic": "#.paid.late"}, [b'["topic","value",[],"lastwords2","paid.late"]']),
        ({"topic": "orders.paid"}, [b'["topic","value",[],"string","orders.paid"]']),
    ],
)
def test_the_bytes_of_a_key_never_change(members: dict[str, Any], expected: list[bytes] | None) -> None:
    made = keys_of(**members)
    if expected is None:
        # All of one size, the finest at which sixteen are enough.
        assert made is not None
        assert made[0].startswith(b'["event","leaf",["a"],"range')
        assert len(made) <= 16
    else:
        assert made == expected


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"filters": [condition("!=", 1)]},
        {"filters": [condition("exists", True)]},
        {"filters": [condition("contains", "ab")]},
        {"filters": [condition("matches", "abc")]},
        {"filters": [condition(">", "m")]},
        {"filters": [condition(">", False)]},
        {"pattern": {"a": [{"wildcard": "*"}]}},
        {"pattern": {"a": [{"cidr": "0.0.0.0/0"}]}},
        {"pattern": {"a": [{"prefix": "abc"}, {"exists": False}]}},
        {"topic": "#"},
        {"topic": "+/#", "topic_dialect": "mqtt"},
        {"topic": ">", "topic_dialect": "nats"},
        {"topic": "*.a.#"},
        {"cel": "data.a == 1"},
    ],
)
def test_what_prunes_little_stays_unkeyed(members: dict[str, Any]) -> None:
    assert keys_of(**members) is None


@pytest.mark.parametrize(
    ("members", "tag"),
    [
        ({"filters": [condition("==", "x"), condition(">", 5, "b")], "types": ["insert"]}, b'"string","x"'),
        ({"filters": [condition("==", True), condition(">", 5, "b")]}, b'"range'),
        ({"filters": [condition("==", True)], "topic": "a.#"}, b'"words1","a"'),
        ({"filters": [condition("==", True)], "types": ["insert"]}, b'"bool",true'),
        ({"filters": [condition("starts_with", "ab"), condition("starts_with", "abcd", "b")]}, b'"prefix4"'),
        ({"filters": [condition("in", [1, 2]), condition("==", 1, "b")]}, b'["b"],"number","1"'),
    ],
)
def test_the_most_telling_condition_makes_the_key(members: dict[str, Any], tag: bytes) -> None:
    made = keys_of(**members)
    assert made is not None
    assert tag in made[0]


def test_a_key_is_read_back_from_its_bytes() -> None:
    for members in ({"filters": [condition("contains", "gold")]}, {"topic": "a.*"}, {"filters": [condition(">", 5)]}):
        for encoded in keys_of(**members) or ():
            assert Key.from_bytes(encoded).to_bytes() == encoded


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"[]",
        b"7",
        b'["x","value",[],"string","a"]',
        b'["data","value",["a"],"equal","a"]',
        b'["data","value",["a"],"later1","a"]',
    ],
)
def test_bytes_that_are_no_key_are_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Key.from_bytes(encoded)
