"""CloudEvents SQL: its conformance tests, and random expressions against a naive evaluator that follows the specification.

The conformance tests are those of cloudevents/spec (`cesql/cesql_tck`, Apache-2.0). A case whose result is no boolean is compared
with that result in the expression.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import pytest
import yaml

from streamer import Engine, SubscriptionError
from streamer.importing import import_rules
from tests.conformance.table import TESTDATA

FOLDER = TESTDATA.parent.parent / "shared" / "authorities" / "cesql-tck"
EVENT = {"specversion": "1.0", "id": "id", "source": "/source", "type": "type"}
MAX = 2**31 - 1


def passes(engine: Callable[..., Engine], rule: str, *events: dict[str, Any]) -> list[bool]:
    """Which events pass an expression, by its translation."""
    made = engine(format="cloudevents")
    made.add(import_rules("cesql", rule).subscriptions[0])
    return [made.matches_any(event) for event in events]


# --- the conformance tests --------------------------------------------------------------------------------------------


class Loader(yaml.SafeLoader):
    """Keeps a time as text, as it is in an event."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class Case(NamedTuple):
    name: str
    expression: str
    result: Any
    error: str | None
    event: dict[str, Any]


def cases() -> Iterator[Case]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for each in yaml.load(path.read_text("utf-8"), Loader)["tests"]:
            event = each.get("event") or EVENT | each.get("eventOverrides", {})
            yield Case(f"{path.stem}: {each['name']}", str(each["expression"]), each.get("result"), each.get("error"), event)


CASES = list(cases())

#: The expressions that are an error for every event, and so are refused.
ALWAYS_AN_ERROR = {
    *("ABC(", "CONCAT_WS()", "x LIKE 123", "missing / 0", "missing % 0", "5 / 0", "5 % 0"),
    *("true and (1 != 1 / 0)", "false or (1 != 1 / 0)", "INT('ABC')", "BOOL('ABC')", "ABS(-2147483648)"),
    *("LEFT('abc', -2)", "RIGHT('abc', -2)", "SUBSTRING('abcdef', 10)", "SUBSTRING('abcdef', -10)"),
    *("SUBSTRING('abcdef', 10, 10)", "SUBSTRING('abcdef', -10, 10)"),
}


@pytest.mark.skipif(not CASES, reason=f"no conformance tests in {FOLDER.parent.name}/{FOLDER.name} beside the checkout")
def test_every_conformance_test_has_the_result_of_the_specification(engine: Callable[..., Engine]) -> None:
    wrong: list[Any] = []
    refused = set()
    for case in CASES:
        is_boolean = isinstance(case.result, bool)
        rule = case.expression if is_boolean else f"({case.expression}) = {_literal(case.result)}"
        try:
            answer = passes(engine, rule, case.event)[0]
        except SubscriptionError:
            refused.add(case.expression)
            assert case.error is not None
            continue
        if answer is not (case.error is None and case.result is not False):
            wrong.append((case, answer))
    assert wrong == []
    assert refused == ALWAYS_AN_ERROR
    # The page of the documentation has these numbers.
    assert (len(CASES), len(refused)) == (275, len(ALWAYS_AN_ERROR))


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + ("" if value is None else value).replace("'", "\\'") + "'"


# --- random expressions -----------------------------------------------------------------------------------------------

TEXTS = [
    *(
        "",
        "a",
        "abc",
        "ab",
        "a\nb",
        "a%b",
        "a_b",
        "ä€😀",
        "it's",
        "\\",
        "a\\b",
        "true",
        "TRUE",
        "tRuE",
        "False",
        "K",
        "5",
        "-5",
        "+05",
    ),
    *("007", "0", "-0", "1", "10", " 5", "5.0", "1e3", "0x5", "1_0", "５", "+", "--5", "2147483647", "2147483648", "-2147483648"),
    *("99999999999999999999", "1" * 300),
]
#: Those that an expression can contain.
SPELLED = [each for each in TEXTS if len(each) < 100 and not each.endswith("\\")]
NUMBERS = [0, 1, -1, 2, 5, 10, 46341, MAX, -MAX - 1]
PATTERNS = [
    "",
    "%",
    "_",
    "a%",
    "%b",
    "%b%",
    "a_b",
    "a\\%b",
    "a\\_b",
    "5%",
    "_",
    "__",
    "tru_",
    "%e",
    "-%",
    "a%b%",
    "a\\b",
    "abc",
    "5",
    "true",
]
REQUIRED = ["id", "source", "type", "specversion"]
OPTIONAL = ["subject", "ext", "n1", "2b"]
BINDS = {"logic": 0, "compare": 1, "+": 2, "-": 2, "*": 3, "/": 3, "%": 3, "in": 4, "like": 5, "unary": 6, "atom": 7}
KINDS = {"LENGTH": "s", "CONCAT": "s*", "CONCAT_WS": "ss*", "INT": "a", "BOOL": "a", "STRING": "a", "ABS": "i"}

#: A node: what it is, and its parts.
Node = tuple[Any, ...]


def node(r: random.Random, kind: str, depth: int) -> Node:
    """A random expression, mostly of a type: a boolean, an integer, a string, or any."""
    if r.random() < 0.15:
        kind = r.choice("bis")
    if depth <= 0 or r.random() < 0.2:
        if kind == "b" and r.random() < 0.3:
            return "exists", r.choice(REQUIRED + OPTIONAL)
        if r.random() < 0.6:
            return "attribute", r.choice(REQUIRED + OPTIONAL * 3)
        return "constant", r.choice({"b": [True, False], "i": NUMBERS}.get(kind, SPELLED))
    if kind == "i":
        if r.random() < 0.3:
            return r.choice([("minus", node(r, "i", depth - 1)), call(r, r.choice(["LENGTH", "INT", "ABS"]), depth)])
        return "computed", r.choice("+-*/%"), node(r, "i", depth - 1), node(r, "i", depth - 1)
    if kind != "b":
        return call(r, r.choice(["CONCAT", "CONCAT_WS", "STRING"]), depth)
    what = r.choice(["logic"] * 4 + ["compare"] * 4 + ["like", "in", "in", "not", "exists", "call"])
    if what == "logic":
        return "logic", r.choice(["AND", "OR", "XOR"]), [node(r, "b", depth - 1) for _ in range(r.choice([2, 2, 2, 3]))]
    if what == "compare":
        op = r.choice(["=", "=", "!=", "<>", "<", "<=", ">", ">="])
        return "compare", op, node(r, r.choice("bis"), depth - 1), node(r, r.choice("bis"), depth - 1)
    if what == "like":
        return "like", node(r, "s", depth - 1), r.choice(PATTERNS), r.random() < 0.3
    if what == "in":
        left = ("attribute", r.choice(REQUIRED + OPTIONAL)) if r.random() < 0.7 else node(r, r.choice("bis"), 1)
        items = [
            node(r, r.choice("bis"), 0) if r.random() < 0.2 else ("constant", r.choice(SPELLED + NUMBERS))
            for _ in range(r.randrange(1, 4))
        ]
        return "in", left, items, r.random() < 0.3
    if what == "call":
        return call(r, "BOOL", depth)
    return ("not", node(r, "b", depth - 1)) if what == "not" else ("exists", r.choice(REQUIRED + OPTIONAL))


def call(r: random.Random, name: str, depth: int) -> Node:
    kinds = KINDS[name].replace("s*", "s" * r.randrange(3)).replace("a", r.choice("bis"))
    return "call", name, [node(r, kind, depth - 1) for kind in kinds]


def text(r: random.Random, n: Node, least: int = 0) -> str:
    """A node as a text, with the parentheses that it needs behind an operator, and now and then with more."""
    binds, written = _text(r, n)
    return f"({written})" if binds < least or r.random() < 0.05 else written


def _text(r: random.Random, n: Node) -> tuple[int, str]:
    word: Callable[[str], str] = r.choice([str.upper, str.lower, str.title])
    negated = word("NOT ") if n[-1] is True else ""
    match n:
        case "constant", value:
            return 7, word(str(value)) if isinstance(value, bool) else _literal(value)
        case "attribute", name:
            return 7, name
        case "exists", name:
            return 7, f"{word('EXISTS')} {name}"
        case "call", name, arguments:
            return 7, f"{word(name)}({', '.join(text(r, each) for each in arguments)})"
        case "not", inner:
            return 6, f"{word('NOT')} {text(r, inner, 6)}"
        case "minus", inner:
            return 6, f"- {text(r, inner, 6)}" if inner[0] == "constant" else f"-{text(r, inner, 6)}"
        case "like", inner, pattern, _:
            return 5, f"{text(r, inner, 5)} {negated}{word('LIKE')} {_literal(pattern)}"
        case "in", inner, items, _:
            return 4, f"{text(r, inner, 4)} {negated}{word('IN')} ({','.join(text(r, each) for each in items)})"
        case "logic", op, parts:
            return 0, f" {word(op)} ".join(text(r, each, 1) for each in parts)
        case kind, op, x, y:
            binds = BINDS[kind] if kind == "compare" else BINDS[op]
            space = r.choice(["", " "])
            return binds, f"{text(r, x, binds)}{space}{op}{space}{text(r, y, binds + 1)}"
    raise AssertionError(n)


class Fails(Exception):
    """The evaluation of an expression has an error."""


def evaluated(n: Node, event: dict[str, Any]) -> Any:
    """The value of an expression, as the specification has it. Raises Fails."""
    match n:
        case "constant", value:
            return value
        case "attribute", name:
            if event.get(name) is None:
                raise Fails
            return event[name]
        case "exists", name:
            return event.get(name) is not None
        case "not", x:
            return not as_boolean(evaluated(x, event))
        case "minus", x:
            return within(-as_integer(evaluated(x, event)))
        case "like", x, pattern, negated:
            return fits(as_string(evaluated(x, event)), pattern) is not negated
        case "in", x, items, negated:
            value = evaluated(x, event)
            return any(value == as_type_of(value, evaluated(each, event)) for each in items) is not negated
        case "logic", op, parts:
            return joined(op, parts, event)
        case "compare", op, x, y:
            return compared(op, evaluated(x, event), evaluated(y, event))
        case "computed", op, x, y:
            return within(computed(op, as_integer(evaluated(x, event)), as_integer(evaluated(y, event))))
        case "call", name, arguments:
            return called(name, [evaluated(each, event) for each in arguments])
    raise AssertionError(n)


def joined(op: str, parts: list[Node], event: dict[str, Any]) -> bool:
    value = as_boolean(evaluated(parts[0], event))
    for each in parts[1:]:
        if op == "XOR":
            value = value != as_boolean(evaluated(each, event))
        elif value is (op == "AND"):
            value = as_boolean(evaluated(each, event))
    return value


def compared(op: str, x: Any, y: Any) -> bool:
    if op in ("=", "!=", "<>"):
        return (as_type_of(y, x) == y) is (op == "=")
    x, y = as_integer(x), as_integer(y)
    return bool({"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op])


def computed(op: str, x: int, y: int) -> int:
    if op in "/%":
        if y == 0:
            raise Fails
        quotient = abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
        return quotient if op == "/" else x - quotient * y
    return {"+": x + y, "-": x - y, "*": x * y}[op]


def called(name: str, values: list[Any]) -> Any:
    if name in ("INT", "BOOL", "STRING"):
        return {"INT": as_integer, "BOOL": as_boolean, "STRING": as_string}[name](values[0])
    if name == "ABS":
        return within(abs(as_integer(values[0])))
    texts = [as_string(each) for each in values]
    if name == "LENGTH":
        return len(texts[0])
    return "".join(texts) if name == "CONCAT" else texts[0].join(texts[1:])


def within(number: int) -> int:
    if not -MAX - 1 <= number <= MAX:
        raise Fails
    return number


def as_type_of(sample: Any, value: Any) -> Any:
    kinds = {bool: as_boolean, int: as_integer, str: as_string}
    return kinds[type(sample)](value)


def as_string(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def as_boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise Fails
        return value.lower() == "true"
    return value != 0


def as_integer(value: Any) -> int:
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not digits or set(digits) - set("0123456789") or len(digits) > 1000:
            raise Fails
        return within(int(value))
    return int(value)


def fits(value: str, pattern: str) -> bool:
    if pattern == "":
        return value == ""
    if pattern[0] == "%":
        return any(fits(value[at:], pattern[1:]) for at in range(len(value) + 1))
    if pattern[:2] in ("\\%", "\\_"):
        return value[:1] == pattern[1] and fits(value[1:], pattern[2:])
    return value != "" and pattern[0] in ("_", value[0]) and fits(value[1:], pattern[1:])


def event_of(r: random.Random) -> dict[str, Any]:
    optional = {name: r.choice([r.choice(TEXTS), r.choice(NUMBERS), r.choice([True, False]), None]) for name in OPTIONAL}
    texts = {name: r.choice(TEXTS) for name in ("id", "source", "type") if r.random() < 0.8}
    return EVENT | texts | {name: value for name, value in optional.items() if r.random() < 0.8}


def is_true(n: Node, event: dict[str, Any]) -> bool:
    try:
        return evaluated(n, event) is True
    except Fails:
        return False


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions_have_the_results_of_a_naive_evaluator(engine: Callable[..., Engine], seed: int) -> None:
    r = random.Random(seed)
    made = engine(format="cloudevents")
    nodes: dict[str, Node] = {}
    events = [event_of(r) for _ in range(30)]
    refused = 0
    while len(nodes) < 80:
        n = node(r, "b", r.choice([1, 2, 2, 3]))
        rule = text(r, n)
        imported = import_rules("cesql", json.dumps({"id": rule, "rule": rule}), on_error="skip")
        if imported.refused:
            if "bytes" not in imported.refused[0].reason:
                assert not any(is_true(n, event) for event in events), str(imported.refused)
            refused += 1
            continue
        nodes[rule] = n
        made.add(imported.subscriptions[0], replace=True)
    matched = 0
    for event in events:
        expected = {rule for rule, n in nodes.items() if is_true(n, event)}
        assert set(made.match_ids(event)) ^ expected == set(), event
        matched += len(expected)
    assert refused < 100
    assert matched > 150


# --- what is refused, and how rules are translated ---------------------------------------------------------------------

REFUSED = [
    ("", "column 1", "expected a value"),
    ("type =", "column 7", "expected a value"),
    ("type = 'a' type", "column 12", "expected an operator or the end, not 'type'"),
    ("type == 'a'", "column 7", "expected a value, not \"= 'a'\""),
    ("(type = 'a'", "column 12", "expected ')'"),
    ("type = 'a", "column 8", "this text has no end"),
    ("data.amount > 5", "column 5", "'.' is not part of the language"),
    ("my_name = 'a'", "column 1", "expected the name of an attribute, of letters and digits, not \"my_name = 'a'\""),
    ("EXISTS 5", "column 8", "expected the name of an attribute"),
    ("type LIKE source", "column 11", "expected a text in quotes behind LIKE"),
    ("type IN ()", "column 10", "expected a value"),
    ("type IN 'a'", "column 9", "expected '('"),
    ("n = 2147483648", "column 5", "an integer is from -2147483648 to 2147483647"),
    ("n = -2147483649", "column 6", "an integer is from"),
    ("a AND b OR c", "column 9", "AND and OR without parentheses"),
    ("a XOR b AND c", "column 9", "XOR and AND without parentheses"),
    ("type = 'it''s'", "column 8", "write a quote in it as \\'"),
    ("type = 'a\\\\'", "column 8", "no \\ at its end"),
    ("LOWER(type) = 'a'", "column 1", "CEL has no such function"),
    ("type = 'a' AND SUBSTRING(subject, 2) = 'b'", "column 16", "CEL has no such function"),
    ("NOW() = 1", "column 1", "there is no function NOW"),
    ("LENGTH(type, 'a') = 1", "column 1", "there is no function LENGTH of 2 arguments"),
    ("CONCAT_WS() = ''", "column 1", "there is no function CONCAT_WS of 0 arguments"),
    ("type", "", "an expression of type string passes for no event; compare its value"),
    ("LENGTH(type)", "", "an expression of type integer"),
    ("1 / 0 = 1", "", "this divides by zero at column 3, so the expression is an error for every event"),
    ("2147483647 + 1 = 0", "", "2147483648 has more than 32 bits at column 12"),
    ("'a' = 1", "", "'a' is not of type integer at column 5"),
    ("LEFT('abc', -1) = 'abc'", "", "LEFT: -1 is negative at column 1"),
    ("(" * 10_000 + "TRUE" + ")" * 10_000, "column 33", "nested deeper than 32 levels"),
    ("NOT " * 8_000 + "TRUE", "column 1", "nested deeper than 32 levels"),
    ("a + " * 5_000 + "1 = 1", "column", "its CEL has more than 65536 bytes"),
    ("a OR " * 4_000 + "b", "column 1", "its CEL has more than 65536 bytes"),
    ("a = 'x' OR " * 100_000 + "b", "", "at most 32768 are allowed"),
]


@pytest.mark.parametrize(("rule", "place", "reason"), REFUSED, ids=lambda value: value[:30])
def test_a_rule_that_cannot_be_translated_is_refused_at_its_place(rule: str, place: str, reason: str) -> None:
    (error,) = import_rules("cesql", json.dumps({"id": "r", "rule": rule}), on_error="skip").refused
    assert error.place.removeprefix("line 1: ").startswith(place)
    assert reason in error.reason


TRANSLATED = {
    "subject = 'a'": "envelope.subject == 'a'",
    "source LIKE '/eu/%' AND type LIKE '%.new'": "envelope.source.startsWith('/eu/') && envelope.type.endsWith('.new')",
    "type = 'a' OR type IN ('b', 'c')": "envelope.type == 'a' || envelope.type in ['b', 'c']",
    "sequence = 5": "envelope.sequence == 5 || envelope.sequence.matches('^[+]?0*5$')",
    "EXISTS subject": "envelope.subject != null",
    "tier = 'gold' OR subject = 'a'": "envelope.tier == 'gold' || (envelope.tier != null && envelope.subject == 'a')",
    "vip": "envelope.vip == true",
    "TRUE AND type = 'a'": "envelope.type == 'a'",
    "EXISTS id": None,
    "false": "false",
}


@pytest.mark.parametrize("rule", TRANSLATED)
def test_a_rule_becomes_cel_that_a_person_would_write(rule: str) -> None:
    assert import_rules("cesql", rule).subscriptions[0].cel == TRANSLATED[rule]


def test_an_error_before_or_is_not_absorbed_by_what_follows(engine: Callable[..., Engine]) -> None:
    """CEL's `||` would be true."""
    events = [EVENT | {"subject": "a"}, EVENT | {"subject": "a", "tier": "tin"}, EVENT | {"tier": "gold"}]
    assert passes(engine, "tier = 'gold' OR subject = 'a'", *events) == [False, True, True]
    assert passes(engine, "NOT EXISTS tier OR tier = 'gold'", *events) == [True, False, True]


def test_many_operands_and_deep_nesting_stay_exact(engine: Callable[..., Engine]) -> None:
    rule = " OR ".join(f"subject = 'v{number}'" for number in range(400))
    assert passes(engine, rule, EVENT | {"subject": "v399"}, EVENT | {"subject": "v400"}) == [True, False]
    # Too many conditions would be needed to exclude errors, so `?:` does that.
    rule = "a0 = 'x'"
    for number in range(1, 12):
        rule = f"({rule} {'OR' if number % 2 else 'AND'} a{number} = 'x')"
    event = EVENT | {f"a{number}": "y" for number in range(12)}
    events = [event, event | {"a11": "x"}, event | {"a11": "x", "a1": None}, event | {"a10": "x", "a9": "x"}]
    assert passes(engine, rule, *events) == [False, True, False, True]


def test_rules_of_a_file_are_numbered_and_comments_are_left_out() -> None:
    found = import_rules("cesql", '# orders\n\ntype = \'a\'\n{"id": "b", "rule": "type = \'b\'"}\n').subscriptions
    assert [each.id for each in found] == ["cesql-1", "b"]
