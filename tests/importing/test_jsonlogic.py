"""Rules of JsonLogic mean the same as subscriptions: 8,000 answers of json-logic-js to random rules agree, on both backends.

The answers are recorded by jsonlogic_cases.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, StreamerError
from streamer.importing import import_rules
from tests.importing.answers import answers, matched, refusal, translation
from tests.importing.jsonlogic_cases import ANSWERS


def test_the_answers_of_json_logic_js_agree(engine: Callable[..., Engine]) -> None:
    first, *lines = ANSWERS.read_text("utf-8").splitlines()
    documents, cases = json.loads(first), list(map(json.loads, lines))
    rules = [case["rule"] for case in cases]
    found = answers(engine, "jsonlogic", rules, documents)
    given = ["".join("1" if each else "0" for each in row) for row in found]
    assert [case["rule"] for case, row in zip(cases, given, strict=True) if case["answers"] != row] == []
    assert len(rules) * len(documents) >= 8_000
    assert 0.2 < "".join(given).count("1") / (len(rules) * len(documents)) < 0.8


#: What the pages of jsonlogic.com describe, and what JavaScript does with values of other types.
DOCUMENTED: list[tuple[Any, Any, bool]] = [
    ({"===": [{"var": "a"}, 1]}, {"a": 1.0}, True),
    ({"===": [{"var": "a"}, 1]}, {"a": "1"}, False),
    ({"===": [{"var": "a"}, 1]}, {"a": True}, False),
    ({"!==": [{"var": "a"}, 1]}, {}, True),
    ({"!==": [{"var": "a"}, None]}, {}, False),
    ({"==": [{"var": "a"}, None]}, {}, True),
    ({"!=": [{"var": "a"}, None]}, {"a": 0}, True),
    ({"<": [{"var": "age"}, 18]}, {}, True),
    ({"<": [{"var": "age"}, 18]}, {"age": None}, True),
    ({">": [{"var": "age"}, 0]}, {"age": True}, True),
    ({"<": [{"var": "age"}, 18]}, {"age": ""}, True),
    ({"<": [{"var": "age"}, 18]}, {"age": []}, True),
    ({">=": [{"var": "age"}, 0]}, {"age": ""}, True),
    ({">": [{"var": "age"}, 0]}, {"age": ""}, False),
    ({"<": [-1, {"var": "age"}, 18]}, {"age": []}, True),
    ({"<": [{"var": "age"}, 18]}, {"age": "x"}, False),
    ({"<": [1, {"var": "temp"}, 100]}, {"temp": 37}, True),
    ({"<": [1, {"var": "temp"}, 100]}, {"temp": 100}, False),
    ({"<=": [1, {"var": "temp"}, 100]}, {"temp": 100}, True),
    ({"===": [{"var": ["z", 26]}, 26]}, {}, True),
    ({"===": [{"var": ["z", 26]}, 26]}, {"z": None}, False),
    ({"===": [{"var": "champ.name"}, "Fezzig"]}, {"champ": {"name": "Fezzig"}}, True),
    ({"var": "a"}, {"a": []}, False),
    ({"var": "a"}, {"a": {}}, True),
    ({"var": "a"}, {"a": "0"}, True),
    ({"var": "a"}, {"a": 0}, False),
    ({"!": [{"var": "a"}]}, {}, True),
    ({"!!": {"var": "a"}}, {"a": [0]}, True),
    ({"in": ["Spring", {"var": "city"}]}, {"city": "Springfield"}, True),
    ({"in": [{"var": "name"}, ["Bart", "Lisa"]]}, {"name": "Lisa"}, True),
    ({"in": ["vip", {"var": "tags"}]}, {"tags": ["vip"]}, True),
    ({"in": [5, {"var": "a"}]}, {"a": "15"}, True),
    ({"missing": ["a", "b"]}, {"a": "apple", "b": ""}, True),
    ({"!": {"missing": ["a", "b"]}}, {"a": "apple", "b": 0}, True),
    ({"missing_some": [1, ["a", "b"]]}, {"b": 1}, False),
    ({"if": [{"<": [{"var": "t"}, 0]}, False, {"<": [{"var": "t"}, 100]}, True, False]}, {"t": 55}, True),
    ({"all": [{"var": "a"}, {">": [{"var": ""}, 0]}]}, {"a": [1, 2]}, True),
    ({"all": [{"var": "a"}, {">": [{"var": ""}, 0]}]}, {"a": []}, False),
    ({"none": [{"var": "a"}, {">": [{"var": ""}, 0]}]}, {}, True),
    ({"some": [{"var": "pies"}, {"===": [{"var": "filling"}, "apple"]}]}, {"pies": [{"filling": "apple"}]}, True),
    (True, {}, True),
]


def test_documented_cases_agree(engine: Callable[..., Engine]) -> None:
    assert [(r, d) for r, d, expected in DOCUMENTED if matched(engine, "jsonlogic", r, d) != expected] == []


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"===": [{"var": "a.b"}, "x"]}, {"filters": [{"field": "a.b", "op": "==", "value": "x"}]}),
        ({">": [{"var": "a"}, 5]}, {"filters": [{"field": "a", "op": ">", "value": 5}]}),
        ({"in": ["x", {"var": "a"}]}, {"filters": [{"field": "a", "op": "contains", "value": "x"}]}),
        ({"!=": [{"var": "a"}, None]}, {"filters": [{"field": "a", "op": "!=", "value": None}]}),
        ({"!": {"var": ["a", 1]}}, {"cel": "data.a in [null, false, 0, ''] || data.a == []"}),
        ({"some": [{"var": "a"}, {">": [{"var": "q"}, 1]}]}, {"cel": "type(data.a) == list && data.a.exists(e, e.q > 1)"}),
    ],
)
def test_a_rule_becomes_the_shortest_condition(rule: Any, expected: Any) -> None:
    assert translation("jsonlogic", rule) == expected


@pytest.mark.parametrize(
    ("rule", "place", "reason"),
    [
        ({"and": [{"===": [{"var": "a"}, 1]}, {"==": [{"var": "b"}, 1]}]}, "and[1].==", "write `===`"),
        ({"!=": [{"var": "b"}, "x"]}, "!=", "write `!==`"),
        ({"===": [{"var": "a"}, [1]]}, "===", "no list equal"),
        ({"===": [{"var": "a"}, {"var": "b"}]}, "===", "other comparisons in CEL"),
        ({"===": [{"+": [1, 2]}, 3]}, "===[0]", "computes with `+`"),
        ({"===": [{"var": "a"}]}, "===", "expected 2 operands"),
        ({"<": [{"var": "a"}, "b"]}, "<", "expected a number"),
        ({"<": [{"var": ["a", "x"]}, 5]}, "<", "default that is a number"),
        ({"or": [{"+": [1, 2]}]}, "or[0].+", "write this condition in CEL"),
        ({"var": "a.0"}, "var", "step of digits"),
        ({"var": "a.length"}, "var", "JavaScript itself"),
        ({"var": ""}, "var", "whole document"),
        ({"var": {"if": [True, "a", "b"]}}, "var", "expected a path"),
        ({"in": [{"var": "a"}, "abc"]}, "in", "a variable and a list"),
        ({"in": [1.5, {"var": "a"}]}, "in", "expected a text, an integer"),
        ({"some": [[1, 2], {"var": ""}]}, "some[0]", "expected a variable"),
        ({"missing_some": [2, ["a", "b", "c"]]}, "missing_some", "cannot be translated"),
        ({"===": [{"var": "a"}, 2**53]}, "===[1]", "JavaScript rounds"),
        ({"and": [], "or": []}, "", "expected an object with one operator"),
        ("7", "", "expected a rule"),
        ('{"===": [{"var": "a"}, NaN]}', "===[1]", "finite number"),
    ],
)
def test_a_rule_without_an_exact_translation_is_refused_with_its_place(rule: Any, place: str, reason: str) -> None:
    message = refusal("jsonlogic", rule)
    assert message.startswith(f"{place}: " if place else "expected")
    assert reason in message


@pytest.mark.parametrize(
    "text",
    [
        '{"!": ' * 10_000 + "true" + "}" * 10_000,
        '{"and": [' * 200 + "true" + "]}" * 200,
        '{"if": [' * 45 + '{"var": "a"}' + ', {"var": "b"}, {"var": "c"}]}' * 45,
        json.dumps({"if": [{"===": [{"var": "a"}, 1]}, True] * 4_000}),
        json.dumps({"missing": ["a.b"] * 100_000}),
        '{"if": [' * 22 + '{"var": "a"}' + ', {"var": "b"}, {"var": "c"}]}' * 22,
        '{"var": "' + "a." * 500_000 + 'a"}',
        json.dumps({"or": [{"===": [{"var": "a"}, index]} for index in range(30_000)]}),
        r'{"===": [{"var": "\ud800"}, "\ud800"]}',
    ],
    ids=["not", "and", "if", "pairs", "missing", "doubled", "steps", "many", "surrogate"],
)
def test_a_hostile_rule_is_an_error(text: str) -> None:
    with pytest.raises(StreamerError):
        import_rules("jsonlogic", text)
