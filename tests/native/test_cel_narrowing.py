"""An index narrows a subscription by parts of an expression that cel-python evaluates, and loses no match."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from streamer import Engine
from streamer.cel_eval import Functions, ProgramCache, evaluate_cel
from streamer.cel_eval.narrowing import MAX_LENGTH, narrowing
from streamer.errors import CelError, SubscriptionError
from streamer.events.layout import EventLayout
from streamer.events.reading import read_event
from streamer.model import Limits, Verdict
from tests.native.test_cel_lowering import Conditions

pytestmark = pytest.mark.usefixtures("backend")
LIMITS = Limits()
FUNCTIONS = {"yes": lambda *given: True, "same": lambda given: given, "odd": lambda given: given % 2 == 1}


def programs() -> ProgramCache:
    return ProgramCache(functions=Functions(FUNCTIONS), evaluator="portable")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("data.a == 1", "data.a == 1"),
        ("data.a == 1 || data.b.exists(x, x in [1, 2])", "data.a == 1 || data.b.exists(x, x in [1, 2])"),
        ("yes(data.u) && data.k == 'o && p' && data.n % 2 == 0", "data.k == 'o && p'"),
        ("-1 < data.n && odd(data.n) && data.s.startsWith('a')", "-1 < data.n && data.s.startsWith('a')"),
        ("data.a==1&&!data.b\n  &&\n data.c in [1,2] && data.l.exists(x, odd(x))", "data.a==1 && !data.b && data.c in [1,2]"),
        ("has(data.a.b) && (data.c || odd(data.d)) && data.`x-y`[0] != 'é' && yes()", "has(data.a.b) && data.`x-y`[0] != 'é'"),
        ("(data.a == 1 && data.b) && yes(data)", "(data.a == 1 && data.b)"),
        ("size(data.l) > 2 && before.a != data.a && yes()", "size(data.l) > 2 && before.a != data.a"),
        ("type(data.n) == int && dyn(data.n) in {1: 2} && yes()", "type(data.n) == int && dyn(data.n) in {1: 2}"),
        (
            "(data.a ? data.b : data.c) && data.s.matches(r'^\\w') && yes()",
            "(data.a ? data.b : data.c) && data.s.matches(r'^\\w')",
        ),
        # A comment, a function, what cel-python computes.
        ("data.a == 1 && // && data.b\n yes() && data.c == 3", "data.c == 3"),
        ("yes(data)", None),
        ("data.a == 1 || yes(data)", None),
        ("ts > timestamp(0) && data.a + 1 == 2 && -data.a < 0 && int(data.s) == 1 && duration(data.d) == duration('1s')", None),
        ("data.t == ts && timestamp(data.t).getHours() == 1 && string(data.a) == '1' && data.l.map(x, x * 2) == []", None),
        (".data.a == 1 && .data.b == 2 && yes()", ".data.a == 1"),
        ("data.a == 1 && data.s != '" + "x" * MAX_LENGTH + "'", None),
    ],
)
def test_the_operands_that_mean_the_same_everywhere_narrow(source: str, expected: str | None) -> None:
    assert narrowing(programs().compile(source, LIMITS)) == expected


def test_no_function_is_called_for_an_event_that_the_other_operands_exclude() -> None:
    asked: list[Any] = []
    engine = Engine(cel_functions={"note": lambda value: asked.append(value) or True})
    engine.add({"id": "s", "cel": "note(data.n) && data.kind == 'order' && data.n < 10", "cel_evaluator": "portable"})
    for kind, number, found in (("order", 3, ["s"]), ("order", 30, []), ("other", 4, []), (None, 5, [])):
        data = {"n": number} if kind is None else {"n": number, "kind": kind}
        assert engine.match_ids({"data": data}) == found
    assert asked == [3]
    plan = engine.plan("s")
    assert (plan.cost, plan.evaluator, plan.cel is not None) == ("keyed", "portable", True)
    assert "data.kind == 'order'" in str(plan)
    assert "evaluated by cel-python on candidates" in str(plan)
    # What an unknown may hide is for the whole expression.
    (match,) = engine.match({"data": {"n": 3}, "unknown": ["/data/kind"]})
    assert not match.certain


def test_what_is_narrowed_can_be_looked_up() -> None:
    """`allow_unindexed` and the cost class look at what narrows an expression, not at how it came in."""
    e = Engine(cel_functions=FUNCTIONS, cel_evaluator="portable", limits=Limits(allow_unindexed=False))
    with pytest.raises(SubscriptionError, match="allow_unindexed"):
        e.add({"id": "odd", "cel": "odd(data.n)"})
    e.add_many({"id": f"s{n}", "cel": f"odd(data.n) && data.k == {n}"} for n in range(20))
    assert e.match_ids({"data": {"n": 3, "k": 7}}) == ["s7"]


def test_a_side_before_the_change_is_narrowed_like_the_side_after() -> None:
    engine = Engine(cel_functions=FUNCTIONS)
    engine.add({"id": "s", "cel": "yes() && data.a == 1", "cel_evaluator": "portable", "transitions": True})
    engine.add({"id": "b", "cel": "yes() && before.a == 1", "cel_evaluator": "portable", "transitions": True})
    told = {}
    for old, new in ((1, 1), (1, 2), (2, 1), (2, 2)):
        found = engine.match({"type": "update", "data": {"a": new}, "before": {"a": old}})
        told[old, new] = {match.subscription_id: match.transition for match in found}
    assert told == {(1, 1): {"s": "stay", "b": None}, (1, 2): {"s": "leave", "b": None}, (2, 1): {"s": "enter"}, (2, 2): {}}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 115), marks=pytest.mark.integration)])
def test_random_expressions_match_what_cel_python_says_of_them(seeds: range) -> None:
    counted = Counter[str]()
    for seed in seeds:
        conditions, cache = Conditions(seed), programs()
        made = []
        while len(made) < 15:
            operands = [
                conditions.condition(conditions.random.choice((0, 0, 1))) for _ in range(conditions.random.choice((1, 2, 3)))
            ]
            if conditions.random.random() < 0.8:
                operands.append(conditions.random.choice(("yes(data)", "same(type) != ''", "odd(data.a) || yes()")))
                conditions.random.shuffle(operands)
            source = " && ".join(operand if len(operands) == 1 else f"({operand})" for operand in operands)
            try:
                made.append(cache.compile(source, LIMITS))
            except CelError:
                continue
        counted["narrowed"] += sum(narrowing(program) is not None for program in made)
        counted["whole"] += sum(narrowing(program) is None for program in made)
        engine = Engine(cel_functions=FUNCTIONS, cel_evaluator="portable")
        engine.add_many([{"id": str(at), "cel": program.source} for at, program in enumerate(made)])
        for _ in range(8):
            event = conditions.event()
            read = read_event(event, layout=EventLayout(), default_tenant="default", limits=LIMITS)
            matched = {match.subscription_id: match.certain for match in engine.match(event)}
            for at, program in enumerate(made):
                verdict = evaluate_cel(program, read, LIMITS.cel_budget).verdict
                what = f"seed {seed}: {program.source!r}, narrowed by {narrowing(program)!r}, on {event!r}: {verdict}"
                assert (str(at) in matched) == (verdict in (Verdict.TRUE, Verdict.UNKNOWN)), what
                counted[verdict.value] += 1
    assert min(counted.values()) > len(seeds) / 5, json.dumps(counted)
