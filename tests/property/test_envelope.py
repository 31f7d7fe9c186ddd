"""The envelope, which is the record without its documents, in CEL and in filters, on both backends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from streamer import Engine, EventError, EventLayout, Filter, SubscriptionError, _backend
from streamer.bloom import Answer, ShippedFilter
from tests.generators import OPERANDS
from tests.parts import in_rounds

NAMES = ("a", "op", "data", "before", "meta")
VALUES = (1, 2, "x", "", None, True, [1, "x"], [], {"a": 1}, {"a": {"op": "x"}}, 1.5)
LAYOUTS = (
    {"preset": "change"},
    {"preset": "debezium"},
    {"preset": "cloudevents"},
    {"preset": "dms"},
    {"preset": "document"},
    {"preset": "change", "envelope": ["/meta", ""]},
    {"preset": "change", "envelope": "/meta/a"},
    {"preset": "change", "envelope": ["/meta/0", "/a"]},
    {"preset": "change", "envelope": "/meta/0/a"},
    {"preset": "change", "envelope": ["/before", "/data/a", "/meta"]},
    {"preset": "change", "envelope": None},
    {"preset": "change", "data": "/meta/data", "before": "/meta/before"},
    {"preset": "change", "data": ["/data", "/meta/data"], "before": "/a/before", "envelope": ["/meta", ""]},
    {"preset": "change", "data": "", "before": None, "envelope": "/meta"},
    {"preset": "change", "before_holds": "partial"},
    {"preset": "change", "before_holds": "changed"},
)
ROOTS = ("envelope", "envelope", "envelope.meta", "envelope.a", "data", "before", "envelope.data")
TESTS = (
    "{} == 1",
    "{} == 'x'",
    "{} != 'x'",
    "{} > 1",
    "{} == null",
    "{} in [1, 'x']",
    "{} == {{'a': 1}}",
    "{} == []",
    "size({}) > 1",
    "size({}) == 0",
    "'x' in {}",
    "'a' in {}",
    "{}.exists(e, e == 'x')",
    "{}.all(e, e != 2)",
    "{}.startsWith('x')",
    "type({}) == string",
    "{} == data.a",
    "{} != before.op",
)


def path(rng: Random) -> str:
    names = rng.choices(NAMES, k=rng.choice((0, 1, 1, 1, 2)))
    return ".".join((rng.choice(ROOTS), *names))


def condition(rng: Random, depth: int = 0) -> str:
    chance = rng.random()
    if depth < 2 and chance < 0.35:
        word = rng.choice((" && ", " || "))
        return f"({condition(rng, depth + 1)}{word}{condition(rng, depth + 1)})"
    if chance < 0.45:
        return f"!({condition(rng, depth + 1)})"
    if chance < 0.55:
        return f"has({path(rng)}.{rng.choice(NAMES)})"
    return rng.choice(TESTS).format(path(rng))


#: The operators that read one document.
OPERATORS = [op for op in OPERANDS if not op.startswith("changed")]
#: What some operators are compared with, so that it is often met.
MET: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("==", "!="), VALUES),
    **dict.fromkeys(("<", "<=", ">", ">="), (1, 1.5, 2, "x", "", True)),
    **dict.fromkeys(("in", "not in"), ([1, "x"], ["", None, True], [2], [])),
    "contains": (1, "x", ""),
    **dict.fromkeys(("starts_with", "ends_with", "matches"), ("x", "", "^x?$")),
}


def filter_of(rng: Random) -> Filter:
    op = rng.choice(OPERATORS)
    operand = rng.choice(MET[op]) if op in MET and rng.random() < 0.8 else OPERANDS[op](rng)
    names = rng.choices((*NAMES, "type"), k=rng.choice((1, 1, 2, 3)))
    return Filter(rng.choice((".".join(names), "".join(f"/{name}" for name in names))), op, operand, "envelope")


def conditions_of(rng: Random) -> dict[str, Any]:
    """Make the conditions of a subscription: CEL, filters on the envelope, or both."""
    if rng.random() < 0.5:
        return {"cel": condition(rng)}
    filters = [filter_of(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    return {"filters": filters} if rng.random() < 0.8 else {"filters": filters, "cel": condition(rng)}


def value(rng: Random, depth: int = 0) -> Any:
    if depth < 3 and rng.random() < 0.4:
        return {name: value(rng, depth + 1) for name in rng.sample(NAMES, rng.randint(0, 4))}
    return rng.choice(VALUES)


def event(rng: Random) -> dict[str, Any]:
    made = {name: value(rng) for name in rng.sample(NAMES, rng.randint(1, 5))}
    for name in ("data", "before", "payload", "after", "metadata", "meta"):
        if rng.random() < 0.4:
            made[name] = {each: value(rng, 1) for each in rng.sample(NAMES, rng.randint(0, 4))}
            if name == "meta" and rng.random() < 0.3:
                made[name] = [made[name], value(rng)]
    if rng.random() < 0.8:
        made["type"] = rng.choice(("insert", "update", "update", "delete"))
    if rng.random() < 0.3:
        steps = ("", "/meta", "/meta/a", "/a", "/a/op", "/data", "/data/a", "/before/a", "/op", "/meta/data/a")
        made["unknown"] = rng.sample(steps, rng.randint(1, 3))
    return made


def both(
    conditions: Mapping[str, Mapping[str, Any]], layout: EventLayout, events: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> list[list[Any]]:
    answers = []
    for backend in ("native", "reference"):
        monkeypatch.setattr(_backend, "BACKEND", backend)
        engine = Engine(layout=layout, default_tenant="t")
        for name, parts in conditions.items():
            # Of some conditions the type is wrong.
            with suppress(SubscriptionError):
                engine.add({"id": name, **parts, "transitions": name.endswith("t")})
        found: list[Any] = []
        for each in events:
            try:
                matches = engine.match(each)
            except EventError as error:
                found.append((error.code, error.place))
            else:
                found.append(sorted((match.subscription_id, match.transition, match.certain) for match in matches))
        answers.append(found)
    return answers


@in_rounds(1, 10)
@pytest.mark.parametrize("members", LAYOUTS, ids=json.dumps)
def test_both_backends_read_the_same_envelope(members: dict[str, Any], rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(f"envelope {members}")
    layout = EventLayout.from_dict(members)
    matched = 0
    for _ in range(rounds):
        conditions = {f"{at}{'t' if at % 3 == 0 else ''}": conditions_of(rng) for at in range(60)}
        events = [json.dumps(event(rng)).encode() for _ in range(60)]
        native, reference = both(conditions, layout, events, monkeypatch)
        for each, one, other in zip(events, native, reference, strict=True):
            assert one == other, (each, {name: conditions[name] for name in {pair[0] for pair in {*one} ^ {*other}}})
        matched += sum(len(found) for found in native if isinstance(found, list))
    assert matched > 10 * rounds


@in_rounds(2, 10)
@pytest.mark.parametrize("members", LAYOUTS, ids=json.dumps)
def test_a_filter_means_the_expression_that_it_prints(
    members: dict[str, Any], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the index decides: the reference evaluates the two by hand and as a program."""
    rng = Random(f"printed {members}")
    layout = EventLayout.from_dict(members)
    matched = 0
    for _ in range(rounds):
        filters = {str(at): [filter_of(rng) for _ in range(rng.choice((1, 1, 2)))] for at in range(60)}
        written = {name: {"filters": each} for name, each in filters.items()}
        printed = {name: {"cel": " && ".join(f"({one.to_cel()})" for one in each)} for name, each in filters.items()}
        events = [json.dumps(event(rng)).encode() for _ in range(40)]
        answers = [*both(written, layout, events, monkeypatch), *both(printed, layout, events, monkeypatch)]
        for each, *found in zip(events, *answers, strict=True):
            differ = {pair[0] for one in found for pair in {*one} ^ {*found[0]}}
            assert not differ, (each, {name: printed[name] for name in differ})
        matched += sum(len(found) for found in answers[0] if isinstance(found, list))
    # Without an envelope only the absence of a field is true.
    assert matched > 3 * rounds


@pytest.mark.parametrize("op", OPERATORS)
def test_a_filter_is_indexed_like_the_expression_that_it_prints(engine: Callable[..., Engine], op: str, backend: str) -> None:
    """It has the keys and the cost of this expression, and the clauses of a filter on `data`. The reference indexes no CEL."""
    rng = Random(op)
    for _ in range(20):
        given = Filter("a.b", op, OPERANDS[op](rng), "envelope")
        e = engine()
        e.add({"id": "filter", "filters": [given]})
        e.add({"id": "data", "filters": [Filter("a.b", op, given.value)]})
        e.add({"id": "cel", "cel": given.to_cel()})
        plan, of_data = e.plan("filter").to_dict(), e.plan("data").to_dict()
        assert json.loads(re.sub(r"\bdata\b", "envelope", json.dumps(of_data))) | {"subscription_id": "filter"} == plan
        if backend == "native" and given.value is not False:
            of_cel = e.plan("cel").to_dict()
            assert of_cel["cel"] is None
            assert all(of_cel[part] == plan[part] for part in ("access_keys", "bloom_keys", "cost", "effort"))


@in_rounds(4, 40)
def test_a_shipped_filter_keeps_every_event_that_matches(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "BACKEND", "native")
    rng = Random("shipped")
    stopped = 0
    for members in LAYOUTS * rounds:
        engine = Engine(layout=EventLayout.from_dict(members), default_tenant="t")
        for at in range(3):
            with suppress(SubscriptionError):
                engine.add({"id": str(at), **conditions_of(rng), "transitions": True})
        guard = ShippedFilter.load(engine.bloom.export("t", None))
        for _ in range(40):
            each = json.dumps(event(rng)).encode()
            with suppress(EventError):
                if engine.match(each):
                    assert guard.ask(each) is not Answer.NO, (each, list(engine))
                else:
                    stopped += guard.ask(each) is Answer.NO
    assert stopped > 8 * rounds
