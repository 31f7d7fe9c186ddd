"""Parsing patterns: what the table of cases cannot hold, as mappings, hostile sizes, and how patterns print and pickle."""

from __future__ import annotations

import copy
import json
import pickle
import random
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import PatternError
from streamer.model import BeyondFloat64, Dialect, Limits, Verdict
from streamer.reference.patterns import evaluate_pattern
from streamer.subscriptions.folding import simple_fold
from streamer.subscriptions.matchers import AnythingBut, Equal, Numeric, parse_address, parse_network
from streamer.subscriptions.patterns import AllOf, AnyOf, Field, Pattern, parse_pattern


def parsed(source: Any, dialect: Dialect = "eventbridge", **limits: int) -> Pattern:
    return parse_pattern(source, dialect=dialect, limits=Limits(**limits))


def refused(source: Any, dialect: Dialect = "eventbridge", **limits: int) -> PatternError:
    with pytest.raises(PatternError) as caught:
        parsed(source, dialect, **limits)
    str(caught.value).encode()
    return caught.value


def test_a_pattern_is_a_tree_of_paths_from_the_root() -> None:
    pattern = parsed('{"a":{"b":[1],"$or":[{"c":["x"]},{"d":{"e":[null]}}]}}')
    assert pattern.root == AllOf(
        (
            Field(("a", "b"), (Equal(1),)),
            AnyOf((AllOf((Field(("a", "c"), (Equal("x"),)),)), AllOf((Field(("a", "d", "e"), (Equal(None),)),)))),
        )
    )


@pytest.mark.parametrize(
    "source",
    ['{"a":[1,"x",true,null,2.5]}', b'{"a":[1]}', {"a": (1, 2)}, MappingProxyType({"a": [MappingProxyType({"prefix": "x"})]})],
)
def test_text_bytes_and_mappings_are_accepted(source: Any) -> None:
    assert isinstance(parsed(source), Pattern)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"a": [float("nan")]}, "a[0]"),
        ({"a": [float("inf")]}, "a[0]"),
        ({"a": [2**64]}, "a[0]"),
        ({"a": [-(2**63) - 1]}, "a[0]"),
        ({"a": [{"numeric": ["=", float("nan")]}]}, "a[0].numeric[1]"),
        ({"a": [{"anything-but": [2**70]}]}, 'a[0]["anything-but"][0]'),
        ({"a": ["\ud800"]}, "a[0]"),
        ({"\ud800": ["x"]}, '["\\ud800"]'),
        ({"a": [{"prefix": "\ud800"}]}, "a[0].prefix"),
        ({1: ["x"]}, ""),
        ({"a": [{1: "x"}]}, "a[0]"),
        ({"a": [b"x"]}, "a[0]"),
        ({"a": [{"x"}]}, "a[0]"),
        ({"a": {"b": object()}}, "a.b"),
        ({"a": [object()]}, "a[0]"),
        ("{\ud800", ""),
        (b"\xff", ""),
        (None, ""),
        (7, ""),
        ([("a", [1])], ""),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(source: Any, place: str) -> None:
    assert refused(source).place == place


def test_the_place_begins_with_that_of_the_pattern() -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern({"a.b": {}}, dialect="strict", limits=Limits(), place="pattern")
    assert caught.value.place == 'pattern["a.b"]'


def test_hostile_depth_is_an_error_and_no_crash() -> None:
    deep: dict[str, Any] = {"a": [1]}
    for _ in range(100_000):
        deep = {"a": deep}
    assert "deeper" in refused(deep).reason
    endless: dict[str, Any] = {}
    endless["a"] = endless
    assert "deeper" in refused(endless).reason
    assert "too_deep" in refused('{"a":' * 100_000).reason
    assert "too_deep" in refused("[" * 100_000).reason
    cycle: dict[str, Any] = {"b": [1]}
    cycle["$or"] = [cycle, cycle]
    assert "deeper" in refused(cycle).reason
    while deep.keys() == {"a"} and isinstance(deep["a"], dict):  # taken apart by hand: freeing it recurses
        deep = deep["a"]


def test_what_is_shared_a_million_times_is_refused_before_it_is_built() -> None:
    shared: Any = {"x": [1]}
    for _ in range(60):
        shared = {"a": shared, "b": shared}
    began = time.thread_time()
    assert "max_pattern_states" in refused(shared, max_pattern_states=10_000).reason
    assert time.thread_time() - began < 2


def test_long_names_and_many_members_take_no_quadratic_time() -> None:
    long = {"n" * 1_000_000: {f"m{i}": [1] for i in range(20_000)}}
    began = time.thread_time()
    assert len(parsed(long).root.fields) == 20_000
    assert time.thread_time() - began < 5


def test_ten_thousand_wildcards_on_one_path_are_accepted_and_match() -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=20)) for _ in range(40_000)]
    wildcards = [f"*{a}*{b}*{c}*{d}*" for a, b, c, d in zip(*[iter(words)] * 4, strict=True)]
    pattern = parsed({"a": [{"wildcard": each} for each in wildcards]})
    assert evaluate_pattern(pattern, {"a": "-".join(words[-4:])}) is Verdict.TRUE
    assert evaluate_pattern(pattern, {"a": "-".join(words[-4:][::-1])}) is Verdict.FALSE


def test_a_thousand_regexps_on_one_path_are_accepted_and_match() -> None:
    pattern = parsed({"a": [{"regexp": f"[a-z]{{1,50}}x{i}|\\p{{L}}+-{i}"} for i in range(1000)]})
    assert evaluate_pattern(pattern, {"a": "abcx999"}) is Verdict.TRUE
    assert evaluate_pattern(pattern, {"a": "é-999"}) is Verdict.TRUE
    assert evaluate_pattern(pattern, {"a": "1-999"}) is Verdict.FALSE


SOURCES = [
    '{"a": [1, 1.5, "é", true, null, 1e400]}',
    '{"a": [{"prefix": "x"}, {"suffix": {"equals-ignore-case": "Y"}}, {"equals-ignore-case": "z"}]}',
    '{"a": [{"wildcard": "a*\\\\*\\\\\\\\*"}, {"regexp": "a.c"}, {"cidr": "10.0.0.0/8"}, {"cidr": "::/0"}]}',
    '{"a": [{"numeric": ["=", 1]}, {"numeric": ["<", 1]}, {"numeric": [">=", 1, "<", 2.5]}]}',
    '{"a": [{"exists": true}, {"exists": false}, {"anything-but": ["a", "b"]}, {"anything-but": [1]}]}',
    '{"a": [{"anything-but": {"prefix": ["a", "b"]}}, {"anything-but": {"wildcard": ["a*\\\\*"]}}]}',
]


@pytest.mark.parametrize("source", SOURCES)
def test_matchers_print_as_a_pattern_spells_them(source: str) -> None:
    pattern = parsed(source)
    (each,) = pattern.root.fields
    assert isinstance(each, Field)
    again = parsed(f'{{"a": [{", ".join(map(str, each.matchers))}]}}')
    assert again == pattern


@pytest.mark.parametrize("source", [*SOURCES, '{"$or": [{"a": [1]}, {"b": [{"exists": false}]}]}'])
def test_patterns_pickle_compare_and_hash(source: str) -> None:
    pattern = parsed(source)
    evaluate_pattern(pattern, {"a": 1})
    for again in (pickle.loads(pickle.dumps(pattern)), copy.deepcopy(pattern)):
        assert again == pattern
        assert hash(again) == hash(pattern)
        assert "plan" not in vars(again)
        assert evaluate_pattern(again, {"a": 1}) is evaluate_pattern(pattern, {"a": 1})


def test_the_most_alternatives_nested_print_compare_and_pickle() -> None:
    source: Any = {"z": [1]}
    for _ in range(64):
        source = {"$or": [source, {"y": [1]}]}
    pattern = parsed(source)
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert hash(pattern) == hash(parsed(json.dumps(source)))
    assert repr(pattern)
    assert evaluate_pattern(pattern, {"y": 1}) is Verdict.TRUE
    assert evaluate_pattern(pattern, {"x": 1}) is Verdict.FALSE


def test_equal_matchers_are_equal_by_value_and_kind() -> None:
    assert Equal(1) == Equal(1.0)
    assert hash(Equal(1)) == hash(Equal(1.0))
    assert Equal(1) != Equal(True)
    assert Equal(0) != Equal(False)
    assert Equal(1) != Equal("1")
    assert Equal(None) != Equal(False)
    assert Equal(BeyondFloat64("1e400")) != Equal("1e400")
    assert Equal(2**53 + 1) != Equal(float(2**53))
    assert AnythingBut((Equal(1),)) != AnythingBut((Equal(True),))
    assert Numeric(1, True, 1, True) == Numeric(1.0, True, 1.0, True)


@given(st.text(max_size=12), st.text(max_size=12))
def test_folding_keeps_the_length_and_is_done_once(one: str, other: str) -> None:
    assert len(simple_fold(one)) == len(one)
    assert simple_fold(simple_fold(one)) == simple_fold(one)
    assert simple_fold(one + other) == simple_fold(one) + simple_fold(other)


def test_folding_is_that_of_casefolding_txt_for_every_character() -> None:
    # Where the full folding is one character it is the simple one (status C). Elsewhere (F) the simple one is its own, or S.
    for code in range(0x110000):
        if not 0xD800 <= code <= 0xDFFF:
            char = chr(code)
            if len(char.casefold()) == 1 and simple_fold(char) != char.casefold():
                assert code in range(0xA7CB, 0xA7DD) or code in range(0x10D50, 0x10D66) or code == 0x1C89, hex(code)
    one_to_one = {0x1E9E: 0xDF, 0x1F88: 0x1F80, 0x1FAF: 0x1FA7, 0x1FBC: 0x1FB3, 0x1FFC: 0x1FF3, 0xFB05: 0xFB06, 0x1FD3: 0x390}
    itself = [0xDF, 0x130, 0x149, 0x1F0, 0x390, 0x587, 0x1E96, 0x1E9A, 0x1F50, 0x1F80, 0x1FB3, 0x1FB7, 0xFB00, 0xFB06, 0xFB17]
    assert {code: ord(simple_fold(chr(code))) for code in one_to_one} == one_to_one
    assert [code for code in itself if ord(simple_fold(chr(code))) != code] == []


@pytest.mark.parametrize(
    "text",
    [
        "1.2.3.4\n",
        "1.2.3.4 ",
        "+1.2.3.4",
        "1.2.3.４",
        "1.2.3.4%1",
        "::1%lo",
        "1" * 100,
        "",
        ":",
        ":::",
        "::1:",
        "0:0:0:0:0:0:0:0:0",
    ],
)
def test_only_an_address_is_an_address(text: str) -> None:
    assert parse_address(text) is None
    assert parse_network(f"{text}/0") is None


def test_a_mapping_that_lies_about_its_members_is_not_trusted() -> None:
    class Twice(dict[str, Any]):
        def items(self) -> Any:
            return [("a", [1]), ("a", [2])]

    assert isinstance(Twice(), Mapping)
    assert refused(Twice(a=[1])).place == "a"
