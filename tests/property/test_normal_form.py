"""The normal form says what the reference says, and lint proves what it reports."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import re2

import streamer
from streamer import Engine
from streamer.cel_eval import ProgramCache
from streamer.core.lint import FindingCode
from streamer.events.layout import EventLayout
from streamer.events.reading import read_event
from streamer.model import BeyondFloat64, Event, Limits, Verdict
from streamer.reference.conditions import evaluate
from streamer.reference.patterns import leaves, matches_value
from streamer.reference.topics import topic_matches
from streamer.subscriptions.atoms import Atom, Clause, Contains, InTopic, IsKind, Kind, Matches, Mode, Not, Range, Root, kind_of
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.folding import simple_fold
from streamer.subscriptions.keys import access_keys, event_keys
from streamer.subscriptions.matchers import Absent, Equal, EqualsIgnoreCase
from streamer.subscriptions.normal_form import Conjunction, normal_form
from tests.generators import SCALARS, random_event, random_filter, random_subscription, random_text
from tests.parts import in_parts

MISSING = object()


def holds(atom: Atom, value: Any, mode: Mode) -> bool:
    """State an atom naively, for one value or MISSING."""
    kind = Kind.MISSING if value is MISSING else kind_of(value)
    match atom:
        case IsKind(kinds=kinds):
            return kind in kinds
        case Absent():
            return kind is Kind.MISSING
        case _ if kind is Kind.MISSING:
            return False
        case Not(atoms=atoms):
            if mode is Mode.VALUE and kind is Kind.BEYOND:
                return False
            return not any(holds(inner, value, mode) for inner in atoms)
        case Equal():
            return kind not in (Kind.LIST, Kind.MAP, Kind.BEYOND) and atom == Equal(value)
        case Range():
            if kind is not atom.kind:
                return False
            above = atom.low is None or value > atom.low or (atom.low_inclusive and value == atom.low)
            return above and (atom.high is None or value < atom.high or (atom.high_inclusive and value == atom.high))
        case Contains(element=element):
            if kind is Kind.LIST:
                return any(holds(element, item, mode) for item in value)
            if isinstance(element, EqualsIgnoreCase):
                return kind is Kind.STRING and simple_fold(element.text) in simple_fold(value)
            return kind is Kind.STRING and isinstance(element.value, str) and element.value in value
        case Matches(expression=expression):
            return kind is Kind.STRING and re2.search(expression, value) is not None
        case InTopic(pattern=pattern):
            return topic_matches(pattern, value)
        case _:
            return kind is Kind.STRING and matches_value(atom, value)


def values(clause: Clause, event: Event) -> Iterator[Any]:
    """Yield what a clause looks at: each leaf at the path, or the one value, or MISSING."""
    path = clause.path
    if clause.mode is Mode.LEAF:
        found = [leaf.value for leaf in leaves(event.raw) if leaf.path == path.names]
        yield from found or [MISSING]
        return
    roots = {Root.DATA: event.data, Root.BEFORE: event.before, Root.TYPE: event.type, Root.TOPIC: event.topic}
    value: Any = roots[path.root]
    if path.root in (Root.TYPE, Root.TOPIC) and value is None:
        value = MISSING
    for name in path.names:
        if isinstance(value, BeyondFloat64):
            break
        value = value[name] if isinstance(value, dict) and name in value else MISSING
    yield value


def satisfied(conjunction: Conjunction, event: Event) -> bool:
    return all(
        any(holds(atom, value, clause.mode) for value in values(clause, event) for atom in clause.atoms)
        for clause in conjunction.clauses
    )


def anywhere(rng: random.Random, name: str) -> dict[str, Any]:
    return random_subscription(rng, name) | {"collection": "*", "tenant": "*"}


def some_event(rng: random.Random, limits: Limits) -> Event:
    layout = EventLayout.preset("change")
    return read_event(random_text(rng, random_event(rng)), layout=layout, default_tenant="default", limits=limits)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 20))])
def test_the_normal_form_loses_no_match_and_is_exact_where_it_leaves_no_residual(seed: int) -> None:
    rng = random.Random(seed)
    limits, programs = Limits(), ProgramCache(1000)
    exact = matched = 0
    for _ in range(25):
        events = [some_event(rng, limits) for _ in range(8)]
        for number in range(10):
            compiled = compile_subscription(anywhere(rng, f"s{number}"), limits=limits, programs=programs)
            form = normal_form(compiled, limits)
            keys = access_keys(form)
            for event in events:
                expected = evaluate(compiled, event) is Verdict.TRUE
                holding = [conjunction for conjunction in form.conjunctions if satisfied(conjunction, event)]
                if expected:
                    matched += 1
                    assert holding, f"{form} loses {event.raw}"
                    if keys is not None:
                        carried = event_keys(event, {key.place for key in keys})
                        assert (carried or frozenset()) & keys, f"{keys} are not carried by {event.raw}"
                elif any(not conjunction.residuals for conjunction in holding):
                    raise AssertionError(f"{form} is satisfied by {event.raw}, which does not match")
                exact += not any(conjunction.residuals for conjunction in form.conjunctions)
    assert exact > 500
    assert matched > 200


#: Everything that conditions on one field may be asked: what the generators compare with, and what lies between.
HELD = [
    MISSING,
    *SCALARS,
    0.5,
    1.5,
    2.2,
    7,
    2**53 - 1,
    "aa",
    "abz",
    "pa",
    "z",
    [],
    [1],
    [2, "abc"],
    {},
    {"d": 1},
    BeyondFloat64("1e400"),
]


def crowded(rng: random.Random, name: str) -> dict[str, Any]:
    """Make a subscription with several conditions on one field, of few values, which often contradict one another."""
    field = rng.choice(["a", "a", "c.d"])
    values = rng.choice([[1, 2, 5], ["a", "ab", "abc"], [True, False]])
    ops = ["==", "!=", "<", "<=", ">", ">=", *(["starts_with"] if "a" in values else [])]
    conditions = [random_filter(rng) | {"field": field} for _ in range(rng.choice([0, 0, 1]))]
    conditions += [{"field": field, "op": rng.choice(ops), "value": rng.choice(values)} for _ in range(rng.choice([1, 2, 2, 3]))]
    if field == "c.d" and rng.random() < 0.3:
        conditions.append(random_filter(rng) | {"field": "c"})
    return {"id": name, "collection": rng.choice(["c", "c", "d", "*"]), "filters": conditions}


def sweep(held: list[Any]) -> Iterator[Event]:
    """Yield events with each value at each field of `crowded`, in each collection."""
    documents = [{"a": value, "c": value} for value in held] + [{"c": {"d": value}} for value in held]
    for document in documents:
        data = {name: value for name, value in document.items() if value is not MISSING}
        if data.get("c") == {"d": MISSING}:
            data["c"] = {}
        for collection in ("c", "d"):
            yield Event(raw={"data": data}, tenant="default", collection=collection, type="update", data=data, data_at=("data",))


@in_parts(60, slow=0)
def test_lint_raises_no_false_alarm(part: int, backend: str) -> None:
    """150 random sets a part: what it calls never matching matches nothing, and what it calls always matching everything."""
    rng = random.Random(part)
    limits, programs = Limits(), ProgramCache(1000)
    some, every = [some_event(rng, limits) for _ in range(60)], list(sweep(HELD))
    reported = dict.fromkeys(FindingCode, 0)
    for number in range(150):
        make, events = (anywhere, some) if number % 5 else (crowded, every)
        made = [make(rng, f"s{number}") for number in range(3)]
        if rng.random() < 0.3:
            made[2] = {**made[0], "id": "s2", "filters": rng.sample(held := made[0].get("filters") or [], len(held))}
        engine = Engine()
        engine.add_many(made)
        compiled = [compile_subscription(each, limits=limits, programs=programs) for each in made]
        by_id = {each.id: each for each in compiled}
        for finding in engine.lint():
            reported[finding.code] += 1
            subject = by_id[finding.subscription_id]
            if finding.code is FindingCode.NEVER_MATCHES:
                assert not any(evaluate(subject, event) is Verdict.TRUE for event in events), str(finding)
            elif finding.code is FindingCode.ALWAYS_MATCHES:
                its = [event for event in events if subject.collection in (None, event.collection)]
                assert all(evaluate(subject, event) is Verdict.TRUE for event in its), str(finding)
            elif finding.code is FindingCode.DUPLICATE:
                twin = by_id[finding.related[0]]
                wanted = [[evaluate(each, event) is Verdict.TRUE for event in events] for each in (subject, twin)]
                # An error matches as little as false: the core's normal form does not tell them apart.
                assert wanted[0] == wanted[1], str(finding)
    assert reported[FindingCode.NEVER_MATCHES] > 20
    assert reported[FindingCode.DUPLICATE] > 8


def filters(*conditions: tuple[str, str, Any]) -> dict[str, Any]:
    return {"filters": [streamer.Filter(field, op, value) for field, op, value in conditions]}


NEVER = [
    ("disjoint ranges", filters(("a", ">", 5), ("a", "<", 3))),
    ("ranges that only touch", filters(("a", ">", 5), ("a", "<=", 5))),
    ("disjoint ranges of text", filters(("a", ">", "b"), ("a", "<", "a"))),
    ("two equalities on one path", filters(("a", "==", 5), ("a", "==", 3))),
    ("an equality outside a range", filters(("a", "==", 5), ("a", "<", 3))),
    ("an equality that is excluded", filters(("a", "==", 5), ("a", "!=", 5.0))),
    ("a number that begins with a text", filters(("a", ">", 5), ("a", "starts_with", "x"))),
    ("two prefixes", filters(("a", "starts_with", "ab"), ("a", "starts_with", "ac"))),
    ("a bool that is neither", filters(("a", "<", True), ("a", ">", False))),
    ("present and absent", filters(("a", "exists", False), ("a", "==", 1))),
    ("a scalar with a member", filters(("a", "==", 5), ("a.b", "==", 3))),
    ("an absent object with a member", filters(("a", "exists", False), ("a.b", "==", 3))),
    ("an empty in", filters(("a", "in", []))),
    ("an empty array of leaves", {"pattern": {"a": []}, "dialect": "strict"}),
    ("CEL that is always an error", {"cel": "1 < 'a'"}),
    ("CEL that is an error beside anything", {"cel": "1 / 0 == 1"}),
    ("CEL that is always false", {"cel": "data.a == 1 && 1 == 'a'"}),
]


@pytest.mark.parametrize(("claim", "parts"), NEVER, ids=[claim for claim, _ in NEVER])
def test_lint_finds_what_can_never_match(claim: str, parts: dict[str, Any], backend: str) -> None:
    engine = Engine()
    engine.add({"id": "s", **parts})
    assert [finding.code for finding in engine.lint()][:1] == [FindingCode.NEVER_MATCHES], claim


OTHER = [
    (FindingCode.ALWAYS_MATCHES, {"cel": "true"}),
    (FindingCode.ALWAYS_MATCHES, {"cel": "data.a == 1 || true"}),
    (FindingCode.ALWAYS_MATCHES, {"pattern": {"a": [{"exists": True}, {"exists": False}]}}),
    (FindingCode.SLOW, {"cel": "data.a == data.b"}),
    (FindingCode.SLOW, {"cel": "has(data.a) && data.a + data.b > 1"}),
    (FindingCode.SLOW, filters(("a", "!=", [1]))),
    (FindingCode.SLOW, {"pattern": {"a": [{"anything-but": {"prefix": "x"}}]}}),
    (FindingCode.SPELLED_ARITHMETIC, {"cel": "data.a + 1 > 3"}),
    (FindingCode.LITERAL_COMPARISON, {"cel": "data.a == 3 || 1 == 'a'"}),
]


@pytest.mark.parametrize(("code", "parts"), OTHER)
def test_lint_finds(code: FindingCode, parts: dict[str, Any], backend: str) -> None:
    engine = Engine()
    engine.add({"id": "s", **parts})
    assert code in [finding.code for finding in engine.lint()]


HARMLESS = [
    {},
    {"collection": "orders"},
    filters(("a", ">=", 5), ("a", "<=", 5)),
    filters(("a", ">", 3), ("a", "<", 3.5)),
    filters(("a", "starts_with", "a"), ("a", "starts_with", "ab")),
    filters(("a", "exists", True), ("a.b", "==", 1)),
    filters(("a", "in", [1, 2]), ("a", "!=", 2)),
    {"pattern": {"data": {"a": [1], "b": [{"exists": False}]}}},
    {"pattern": {"data": {"a": [{"wildcard": "*x"}]}}},
    {"topic": "*.a"},
    # The index answers these, for whatever they let through.
    filters(("a", "!=", 1)),
    filters(("a", "exists", True)),
    filters(("a", "exists", False)),
    filters(("a", "not in", [1, 2])),
    {"cel": "has(data.a) || !(data.b == 1)"},
    {"pattern": {"data": {"a": [{"anything-but": "x"}]}}},
    {"pattern": {"data": {"a": ["x", {"wildcard": "*"}]}}},
    {"topic": "*.#"},
    # What few share, and a value of its own, are believed to be selective.
    filters(("country", "==", "DE")) | {"cel": "data.a == data.b"},
]


@pytest.mark.parametrize("parts", HARMLESS)
def test_lint_is_silent_where_nothing_is_wrong(parts: dict[str, Any], backend: str) -> None:
    engine = Engine()
    engine.add({"id": "s", **parts})
    assert engine.lint() == []


def test_lint_names_the_subscription_that_asks_for_the_same(backend: str) -> None:
    engine = Engine()
    engine.add({"id": "one", **filters(("a", "==", 1), ("b", "==", 2))})
    engine.add({"id": "two", **filters(("b", "==", 2.0), ("a", "==", 1.0))})
    engine.add({"id": "other gateway", "gateway_id": "g", **filters(("a", "==", 1), ("b", "==", 2))})
    (finding,) = engine.lint()
    assert (finding.code, finding.subscription_id, finding.related) == (FindingCode.DUPLICATE, "two", ("one",))


def test_a_number_beyond_float64_in_a_pattern_never_matches(backend: str) -> None:
    engine = Engine()
    engine.add(b'{"id": "s", "pattern": {"data": {"a": [1e400]}}}')
    assert [finding.code for finding in engine.lint()] == [FindingCode.NEVER_MATCHES]
    # What is probably meant is shown, though JSON in Python has no such number.
    engine.replace(b'{"id": "s", "pattern": {"a": [1e400]}}')
    assert {finding.code for finding in engine.lint()} == {FindingCode.NEVER_MATCHES, FindingCode.PROBABLE_MISTAKE}
