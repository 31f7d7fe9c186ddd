"""What is legal and large costs no more than its size: lists in events, what holds itself, and answers about them."""

from __future__ import annotations

import json
import math
import random
import re
import signal
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, Subscription, effort
from streamer.automaton import Quamina
from streamer.effort import EFFORT, TOO_COSTLY
from streamer.engine.misses import Survey
from streamer.errors import EventError, SubscriptionError
from streamer.model import Limits, Verdict
from streamer.reference.patterns import evaluate_pattern
from streamer.subscriptions.patterns import parse_pattern
from tests.parts import in_seeds

MakeEngine = Callable[..., Engine]
#: What one answer may cost here, a fifth of what users get, and elements that cost more.
UNITS, MANY = 50_000, 60_000


# Long lists


def parts(dice: random.Random, depth: int) -> Any:
    """An element of a long list: one of few scalars, lists and objects, spelled in several ways."""
    match dice.randrange(6 if depth else 3):
        case 0 | 1:
            return dice.choice([0, 1, 2, 1.0, "1", "é", None, True])
        case 2:
            return {name: dice.choice([0, 1, 2]) for name in dice.sample("xyz", dice.randrange(4))}
        case 3:
            return [parts(dice, depth - 1) for _ in range(dice.randrange(4))]
        case 4:
            return [parts(dice, 0) for _ in range(dice.choice([0, 1, 300]))] if dice.random() < 0.05 else []
        case _:
            return {name: parts(dice, depth - 1) for name in dice.sample("xyz", dice.randrange(1, 3))}


PATTERNS: list[dict[str, Any]] = [
    {"a": [2]},
    {"a": [{"anything-but": [0, 1, 2]}]},
    {"a": {"x": [2]}, "b": [1]},
    {"a": {"x": [0], "y": [1]}},
    {"a": {"x": [0], "y": [1], "z": [2]}},
    {"a": {"x": [0], "y": {"x": [1], "z": [2]}}},
    {"a": {"x": {"y": [0]}, "y": {"x": [1]}}, "b": {"x": [1], "z": [0]}},
    {"a": {"x": [0], "y": [{"exists": False}]}, "b": [1]},
    {"a": {"$or": [{"x": [0], "y": [1]}, {"z": [2], "x": [1]}]}},
    {"a": {"x": [77], "y": [1]}},
]


@in_seeds(4, 24)
@pytest.mark.parametrize("name", ["change", "document"])
def test_patterns_match_long_lists_as_the_evaluation_of_each_says(engine: MakeEngine, seed: int, name: str) -> None:
    dice = random.Random(seed)
    within = (lambda value: {"data": value}) if name == "change" else (lambda value: value)
    made = engine(format=name)
    sources = {f"p{at}": within(pattern) for at, pattern in enumerate(PATTERNS)}
    made.add_many(Subscription(id=name, pattern=source) for name, source in sources.items())
    parsed = {name: parse_pattern(source, dialect="eventbridge", limits=Limits()) for name, source in sources.items()}
    for _ in range(4):
        few = [parts(dice, 2) for _ in range(dice.choice([3, 20, 400]))]
        lists = [[dice.choice(few) for _ in range(dice.choice([2, 255, 258, 900]))] for _ in range(2)]
        event = within({"a": lists[0], "b": dice.choice([lists[1], 1, {"x": 1, "z": 0}])})
        if name == "change":
            event["type"] = "insert"
        separators = dice.choice([(",", ":"), (" , ", " : ")])
        text = json.dumps(event, separators=separators, ensure_ascii=dice.random() < 0.5)
        expected = {name for name, pattern in parsed.items() if evaluate_pattern(pattern, event) is Verdict.TRUE}
        assert {match.subscription_id for match in made.match(text)} == expected


@pytest.mark.later_on_the_reference
def test_long_lists_are_compared_as_short_ones_are(engine: MakeEngine) -> None:
    made = engine()
    made.add_many(
        [
            {"id": "holds 2", "filters": [{"field": "a", "op": "contains", "value": 2}]},
            {"id": "holds é", "filters": [{"field": "a", "op": "contains", "value": "é"}]},
            {"id": "holds [2]", "cel": "[2] in data.a"},
            {"id": "holds an object", "cel": "{'x': 2} in data.a"},
            {"id": "is [2]", "filters": [{"field": "a", "op": "==", "value": [2]}]},
            {"id": "is not [2]", "filters": [{"field": "a", "op": "!=", "value": [2]}]},
            {"id": "changed", "filters": [{"field": "a", "op": "changed"}]},
            {"id": "as before", "cel": "data.a == before.a"},
            {"id": "not as before", "cel": "data.a != before.a"},
        ]
    )

    def matched(now: str, before: str = "[]") -> set[str]:
        event = f'{{"type":"update","data":{{"a":{now}}},"before":{{"a":{before}}}}}'
        return {match.subscription_id for match in made.match(event)}

    ones = ",".join(["1"] * 50_000)
    apart = {"is not [2]", "changed", "not as before"}
    assert matched(f"[{ones}]") == apart
    assert matched(f"[{ones}, 2.0 ]") == apart | {"holds 2"}
    assert matched(f'[{ones},"\\u00e9"]') == apart | {"holds é"}
    assert matched(f"[{ones}, [ 2 ] ]") == apart | {"holds [2]"}
    assert matched(f'[{ones},{{"x":1,"x":2}}]') == apart | {"holds an object"}
    assert matched(f"[{ones}]", f"[{ones}]") == {"is not [2]", "as before"}
    assert matched(f"[{ones},1.0]", f"[{ones},1]") == {"is not [2]", "as before"}
    assert matched(f"[{ones},[1]]", f"[{ones},[2]]") == apart
    assert matched(f"[{ones}]", f"[{ones},1]") == apart
    # Nothing tells whether a number beyond float64 is another one.
    assert matched(f"[{ones},1e400]", f"[{ones},1e400]") == {"is not [2]"}
    assert matched(f"[{ones},1e400,1]", f"[{ones},1e400,2]") == apart


# What holds itself under a long name


def test_what_holds_itself_under_a_long_name_is_refused_before_it_is_written_out(engine: MakeEngine) -> None:
    made = engine()
    circle: dict[str, Any] = {}
    circle["x" * 1_000_000] = circle
    in_lists: list[Any] = []
    in_lists.append({"x" * 1_000_000: in_lists})
    tries: list[Callable[[], object]] = [
        lambda: made.match(circle),
        lambda: made.match({"type": "insert", "data": in_lists}),
        lambda: made.add(Subscription(id="a", pattern=circle)),
        lambda: made.add({"id": "a", "pattern": {"data": circle}}),
        lambda: made.add({"id": "a", "filters": [{"field": "a", "op": "==", "value": circle}]}),
        lambda: made.add({"id": "a", "filters": [{"field": "a", "op": "in", "value": in_lists}]}),
    ]
    for act in tries:
        tracemalloc.start()
        with pytest.raises((EventError, SubscriptionError), match=r"more than \d+ bytes|bytes of JSON text|longer than"):
            act()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 100_000_000


CIRCLES: dict[str, Callable[[], dict[str, Any]]] = {
    "an object": lambda: _within(lambda circle: {"x" * 1_000_000: circle}),
    "an object in another": lambda: _within(lambda circle: {"a": {"x" * 1_000_000: circle}}),
    "an alternative": lambda: _within(lambda circle: {"$or": [{"x" * 1_000_000: circle}, {"b": [1]}]}),
    "a name at each level": lambda: _nested(400, {"z": [1]}),
    "one text many times": lambda: {"a": ["x" * 1_000_000] * 1000},
    "one affix many times": lambda: {"a": [{"prefix": "x" * 1_000_000}] * 1000},
    "one exclusion many times": lambda: {"a": [{"anything-but": ["x" * 1_000_000] * 1000}]},
}


def _within(make: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle.update(make(circle))
    return circle


def _nested(levels: int, value: dict[str, Any], name: str = "x" * 1_000_000) -> dict[str, Any]:
    for _ in range(levels):
        value = {name: value}
    return value


@pytest.mark.parametrize("name", CIRCLES)
def test_a_pattern_is_refused_once_its_text_would_be_too_long(backend: str, name: str) -> None:
    pattern = CIRCLES[name]()
    reason = "more than the 4194304 bytes of JSON text that are allowed (limits.max_subscription_bytes)"
    tries: list[Callable[[], object]] = [
        lambda: Quamina(dialect="eventbridge").add_pattern("x", pattern),
        lambda: Engine().add(Subscription(id="a", pattern=pattern)),
        lambda: Subscription(id="a", pattern=pattern).to_cel(),
    ]
    for act in tries:
        tracemalloc.start()
        with pytest.raises(SubscriptionError, match=re.escape(reason)):
            act()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 50_000_000


# Answers about large subscriptions


LARGE = 20_000
VALUES: dict[str, dict[str, Any]] = {
    "in": {"filters": [{"field": "a", "op": "in", "value": list(range(LARGE))}]},
    "not in": {"filters": [{"field": "a", "op": "not in", "value": list(range(LARGE))}]},
    "pattern": {"pattern": {"data": {"a": list(range(LARGE))}}},
    "anything-but": {"pattern": {"data": {"a": [{"anything-but": list(range(LARGE))}]}}},
    "prefixes": {"pattern": {"data": {"a": [{"prefix": f"v{number}"} for number in range(LARGE)]}}},
    "wildcards": {"pattern": {"data": {"a": [{"wildcard": f"v{number}*v"} for number in range(LARGE)]}}},
}


@pytest.mark.parametrize("name", VALUES)
def test_answers_about_many_values_name_the_first_ones(engine: MakeEngine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "UNITS", 150_000)
    made = engine()
    made.add({"id": "s", **VALUES[name]})
    event = {"type": "insert", "data": {"a": -1}}
    told = made.explain(event, "s")
    assert told.verdict is (Verdict.TRUE if name in ("not in", "anything-but") else Verdict.FALSE)
    (text,) = [each.text for each in told.conditions if each.kind in ("filter", "pattern")]
    assert text.endswith(f"(and {LARGE - 1_000:,} more values)")
    assert len(text) < 50_000
    # Its text would take longer than the answer may.
    monkeypatch.setattr(effort, "UNITS", 40_000)
    assert made.explain(event, "s").cel is None
    plan = made.plan("s")
    assert sum(len(text) for conditions in plan.normal_form for text in conditions) < 50_000
    if plan.cost != "keyed" or name in ("prefixes", "wildcards"):
        return
    assert len(plan.bloom_keys) == LARGE
    assert plan.access_keys is not None
    assert len(plan.access_keys) == 1_001
    assert plan.access_keys[-1] == f"{TOO_COSTLY}: {LARGE - 1_000:,} more keys"
    assert f"{TOO_COSTLY}: {LARGE - 1_000:,} more keys" in str(plan)


def test_a_plan_has_a_bounded_number_of_conditions_in_words(engine: MakeEngine) -> None:
    """64 alternatives of 2,000 filters are 128,000 conditions."""
    made = engine()
    made.add(
        {
            "id": "s",
            "filters": [
                *({"field": f"f{number}", "op": "==", "value": number} for number in range(2_000)),
                {"any": [{"field": f"a{number}", "op": "==", "value": 1} for number in range(64)]},
            ],
        }
    )
    plan = made.plan("s")
    assert 64 < sum(map(len, plan.normal_form)) < 12_000
    assert {text for conditions in plan.normal_form for text in conditions if text.startswith(TOO_COSTLY)} <= {
        TOO_COSTLY,
        f"{TOO_COSTLY}: 1845 more conditions",
    }
    assert plan.cost == "keyed"
    assert made.lint() == []


def spent(act: Callable[[], object]) -> float:
    """Return the units of one answer."""
    with EFFORT.bounded(10**12):
        act()
        return 10**12 - EFFORT.remaining


#: A subscription, an event, and the units that an explanation takes at least.
WORK: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "filters": ({"filters": [{"field": f"f{n}", "op": "==", "value": 1} for n in range(1_000)]}, {}, 15_000),
    "groups": (
        {"filters": [{"any": [{"not": {"field": f"f{n}", "op": "==", "value": 1}} for n in range(1_000)]}]},
        {},
        15_000,
    ),
    "groups in groups": ({"filters": [_nested(16, {"field": "a", "op": "exists", "value": True}, "not")] * 100}, {}, 25_000),
    "one value of a filter": ({"filters": [{"field": "a", "op": "==", "value": [1] * 10_000}]}, {"a": 1}, 3_300),
    "steps": ({"filters": [{"field": ".".join(["a"] * 100), "op": "changed"} for _ in range(20)]}, {"a": 1}, 500),
    "a long text": ({"filters": [{"field": "a", "op": "contains", "value": "y"} for _ in range(50)]}, {"a": "x" * 80_000}, 2_000),
    "regexps": ({"filters": [{"field": "a", "op": "matches", "value": f"{n}+x"} for n in range(50)]}, {"a": "x" * 2_000}, 3_500),
    "cel": ({"cel": " && ".join(["data.a == 1"] * 500)}, {"a": 1}, 7_000),
    "fields": ({"pattern": {"data": {f"f{n}": [1] for n in range(200)}}}, {}, 3_000),
    "fields of $or": ({"pattern": {"$or": [{"data": {f"f{n}": [1]}} for n in range(200)]}}, {}, 3_000),
    "texts": ({"pattern": {"data": {"a": [{"prefix": f"{n}"} for n in range(1_000)]}}}, {"a": "x"}, 1_250),
    "folded texts": ({"pattern": {"data": {"a": [{"equals-ignore-case": "Ä" * 16_000}]}}}, {"a": "ä" * 16_000}, 2_000),
    "excluded texts": ({"pattern": {"data": {"a": [{"anything-but": {"suffix": ["x"] * 1_000}}]}}}, {"a": "y"}, 1_250),
    "exclusions": ({"pattern": {"data": {"a": [{"anything-but": [n]} for n in range(500)]}}}, {"a": [1] * 100}, 50_000),
    "networks": ({"pattern": {"data": {"a": [{"cidr": f"10.0.{n}.0/24"} for n in range(200)]}}}, {"a": ["::1"] * 500}, 6_000),
    "wildcards": ({"pattern": {"data": {"a": [{"wildcard": f"*{n}*"} for n in range(100)]}}}, {"a": "x" * 80_000}, 10_000),
    "regexps of a pattern": ({"pattern": {"data": {"a": [{"regexp": f"{n}x+"} for n in range(50)]}}}, {"a": "x"}, 2_500),
    "deep fields": ({"pattern": {"data": _nested(400, {f"f{n}": [1] for n in range(20)}, "a")}}, {}, 20 * 400 // 4),
}


@pytest.mark.parametrize("name", WORK)
def test_an_answer_counts_all_of_its_work(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    members, data, least = WORK[name]
    made = engine()
    made.add({"id": "s", **members})
    event = {"type": "insert", "data": data}
    units = spent(lambda: made.explain(event, "s"))
    assert units >= least
    assert spent(lambda: made.near_misses(event)) > least / 2
    monkeypatch.setattr(effort, "UNITS", least // 4)
    told = made.explain(event, "s")
    assert TOO_COSTLY in (told.note, *(condition.reason for condition in told.conditions))
    assert told.cel is None
    assert len(told.conditions) < 60


def test_conditions_beyond_the_budget_are_counted(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    made.add({"id": "s", "filters": [{"field": "a", "op": "!=", "value": n} for n in range(1_000)], "cel": "data.a == 1"})
    monkeypatch.setattr(effort, "UNITS", 12_000)
    told = made.explain({"type": "insert", "data": {"a": -1}}, "s")
    *conditions, last = told.conditions
    assert f"more conditions: {1_002 - len(conditions)}  unknown ({TOO_COSTLY})" in str(told)
    assert 200 < len(conditions) < 500
    assert conditions[-1].reason == TOO_COSTLY
    # The tenant is a condition, too.
    assert (last.text, last.place, last.reason) == (f"more conditions: {1_002 - len(conditions):,}", "", TOO_COSTLY)
    monkeypatch.setattr(effort, "UNITS", 5_000)
    told = made.explain({"type": "insert", "data": {"a": -1}}, "s")
    assert (told.verdict, told.certain, told.note) == (Verdict.UNKNOWN, False, TOO_COSTLY)
    assert 20 < len(told.conditions) < 100
    assert told.conditions[-1].text == f"more conditions: {1_003 - len(told.conditions):,}"
    assert made.near_misses({"type": "insert", "data": {"a": -1}}).examined == 0


def test_cheap_conditions_are_evaluated_next_to_costly_ones(engine: MakeEngine) -> None:
    made = engine()
    prefixes = {"data": {"a": [{"prefix": f"v{number}"} for number in range(90_000)]}}
    made.add({"id": "s", "filters": [{"field": "b", "op": "==", "value": 1}], "pattern": prefixes})
    for value, verdict in ((1, Verdict.UNKNOWN), (2, Verdict.FALSE)):
        told = made.explain({"type": "insert", "data": {"a": "v", "b": value}}, "s")
        _, cheap, others = told.conditions
        assert (cheap.text, cheap.verdict) == ("data.b == 1", Verdict.of(value == 1))
        assert (told.verdict, others.text, others.reason) == (verdict, "more conditions: 1", TOO_COSTLY)
        assert told.certain is (verdict is Verdict.FALSE)


LONG: dict[str, dict[str, Any]] = {
    "changed": {"op": "changed"},
    "changed_to": {"op": "changed_to", "value": 1},
    "changed_from": {"op": "changed_from", "value": 1},
    "exists": {"op": "exists", "value": True},
    "absent": {"op": "exists", "value": False},
    "==": {"op": "==", "value": 1},
    "envelope": {"op": "exists", "value": False, "root": "envelope"},
}


@pytest.mark.parametrize("name", LONG)
def test_long_paths_cost_no_more_than_their_length(engine: MakeEngine, name: str) -> None:
    made = engine()
    paths = [".".join([f"f{number}", *["s"] * 499]) for number in range(200)]
    began = time.process_time()
    made.add({"id": "s", "filters": [{"field": path, **LONG[name]} for path in paths]})
    made.explain({"type": "update", "data": {"f1": 1}, "before": {"f1": {"s": 1}}}, "s")
    made.match_ids({"type": "update", "data": {"f1": 1}, "before": {"f1": {"s": 1}}})
    # A clause for each step, or the CEL of each, took 5 s and more.
    assert time.process_time() - began < 2.5


def test_the_cel_of_long_paths_is_refused_once_it_is_too_long(backend: str) -> None:
    filters = [{"field": ".".join([f"f{number}", *["s"] * 499]), "op": "changed"} for number in range(200)]
    assert len(Subscription(id="s", filters=filters[:1]).to_cel()) > 1_000_000
    with pytest.raises(SubscriptionError, match="has more than 16,777,216 characters") as caught:
        Subscription(id="s", filters=filters).to_cel()
    assert re.fullmatch(r"filters\[\d+\]", caught.value.place or "")


LASTING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cel": ({"cel": "data.a.exists(x, data.a.exists(y, data.a.exists(z, x + y + z == -1)))"}, {"a": [1] * 3_000}),
    "filters": ({"filters": [{"field": f"f{n}", "op": "==", "value": 1} for n in range(9_000)]}, {}),
    "alternatives": (
        {"pattern": {"data": {"a": {"$or": [{"x": [n], "y": [n]} for n in range(40)]}}}},
        {"a": [{"x": n % 50, "y": (n + 1) % 50} for n in range(20_000)]},
    ),
}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no timers")
@pytest.mark.parametrize("name", LASTING)
def test_ctrl_c_ends_an_answer_at_once_and_changes_nothing(engine: MakeEngine, name: str) -> None:
    members, data = LASTING[name]
    made = engine()
    made.add({"id": "s", **members})
    event = {"type": "insert", "data": data}
    told = made.explain(event, "s")
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.05)
        began = time.process_time()
        with pytest.raises(KeyboardInterrupt):
            _ = [made.explain(event, "s") for _ in range(100)]
        assert time.process_time() - began < 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert EFFORT.remaining == math.inf
    assert made.explain(event, "s") == told


def test_hints_at_names_share_the_budget(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    made.add({"id": "s", "filters": [{"field": f"field{n}", "op": "==", "value": 1} for n in range(1000)]})
    monkeypatch.setattr(effort, "UNITS", 50_000)
    told = made.explain({"type": "insert", "data": {f"fields{n}": 1 for n in range(500)}}, "s")
    hints = [each.hint or "" for each in told.conditions[1:]]
    assert all(hint.startswith("there is no data.field") for hint in hints)
    assert 1 < sum("the event has" in hint for hint in hints) < 20
    assert told.verdict is Verdict.ERROR


def test_the_text_of_a_condition_is_as_long_as_its_path(engine: MakeEngine) -> None:
    made = engine()
    names = ["a"] * 500
    made.add({"id": "s", "filters": [{"field": ".".join(names), "op": "==", "value": 1}]})
    (_, condition) = made.explain({"type": "insert", "data": {}}, "s").conditions
    assert condition.text == f"data.{'.'.join(names)} == 1"


def test_near_misses_count_what_it_takes_to_read_a_subscription(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "UNITS", 25_000)
    made = engine()
    values = list(range(100))
    made.add_many({"id": f"s{n}", "filters": [{"field": "a", "op": "in", "value": values}]} for n in range(400))
    missed = made.near_misses({"type": "insert", "data": {"a": -1}})
    assert not missed.complete
    assert 100 < missed.examined < 300


def test_a_survey_stops_where_an_event_is_too_costly(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    made.add({"id": "s", "filters": [{"field": "a", "op": "contains", "value": 2}]})
    monkeypatch.setattr(effort, "UNITS", 5_000)
    survey = Survey(made, "s")
    short, long = {"type": "insert", "data": {"a": [1]}}, {"type": "insert", "data": {"a": [1] * 5_500}}
    for number, event in enumerate([long, long, long, short, long, short]):
        survey.see(number, event)
    # The first long one had what all share, and each of the others what each event has.
    assert (survey.seen, survey.matched, survey.costly) == (6, 0, 3)
    assert survey.to_dict()["too_costly"] == 3
    assert [near.number for near in survey.nearest] == [0, 3, 5]


# Answers about large events


def update(now: Any, before: Any) -> bytes:
    return json.dumps({"type": "update", "data": {"a": now}, "before": {"a": before}}).encode()


COSTLY: dict[str, tuple[dict[str, Any], Callable[[], bytes]]] = {
    "changed": ({"filters": [{"field": "a", "op": "changed"}]}, lambda: update([1] * MANY, [*[1] * (MANY - 1), 2])),
    "contains": ({"filters": [{"field": "a", "op": "contains", "value": 2}]}, lambda: update([1] * MANY, [])),
    "group": (
        {"filters": [{"any": [{"field": "b", "op": "==", "value": 1}, {"not": {"field": "a", "op": "contains", "value": 2}}]}]},
        lambda: update([1] * MANY, []),
    ),
    "equal": ({"filters": [{"field": "a", "op": "==", "value": [1]}]}, lambda: update([1], [1])),
    "pattern": ({"pattern": {"data": {"a": [2]}}}, lambda: update([1] * MANY, [])),
    "objects": ({"pattern": {"data": {"a": {"x": [2], "y": [1]}}}}, lambda: update([{"x": 1, "y": 2}] * MANY, [])),
    "programs": (
        {"cel": "data.a.exists(x, data.a.exists(y, data.a.exists(z, x + y + z == -1)))"},
        lambda: update(list(range(1000)), []),
    ),
}


@pytest.mark.parametrize("name", [name for name in COSTLY if name != "equal"])
def test_an_explanation_stops_where_it_is_too_costly(engine: MakeEngine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "UNITS", UNITS)
    made = engine()
    subscription, event = COSTLY[name]
    made.add({"id": "s", **subscription})
    told = made.explain(event(), "s")
    assert told.note == TOO_COSTLY
    assert (told.matched, told.certain, told.verdict) == (False, False, Verdict.UNKNOWN)
    assert TOO_COSTLY in {condition.reason for condition in told.conditions}
    assert TOO_COSTLY in str(told)
    # What is cheap is evaluated all the same.
    assert told.conditions[0].verdict is Verdict.TRUE
    missed = made.near_misses(event())
    assert (list(missed), missed.complete) == ([], False)


def test_an_explanation_that_is_not_costly_says_all(engine: MakeEngine) -> None:
    made = engine()
    subscription, event = COSTLY["equal"]
    made.add({"id": "s", **subscription})
    told = made.explain(event(), "s")
    assert (told.matched, told.certain, told.note) == (True, True, None)


def test_near_misses_keep_what_was_found_before_the_answer_was_too_costly(
    engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine()
    made.add({"id": "a", "filters": [{"field": "b", "op": "==", "value": 2}]})
    made.add({"id": "b", **COSTLY["contains"][0]})
    monkeypatch.setattr(effort, "UNITS", 100)
    missed = made.near_misses(b'{"type":"insert","data":{"b":1,"a":[' + b"1," * 200 + b"1]}}")
    assert ([miss.subscription_id for miss in missed], missed.examined, missed.complete) == (["a"], 1, False)
    # The next answer has all of its units again.
    assert made.near_misses(b'{"type":"insert","data":{"b":1,"a":[1]}}').complete


# Lint


def test_lint_compares_long_lists_in_linear_time(engine: MakeEngine, backend: str) -> None:
    made = engine()
    # Comparing each value with each other one would take minutes.
    length = 49_000 if backend == "native" else 10_000
    texts = [f"a text that is as long as some, {n:06}" for n in range(2 * length)]
    one, same = ({"field": "a", "op": op, "value": texts[:length]} for op in ("in", "not in"))
    other, next_to = ({"field": "a", "op": "in", "value": texts[start : start + length]} for start in (length, length - 1))
    made.add({"id": "apart", "filters": [one, other]})
    made.add({"id": "excluded", "filters": [one, same]})
    made.add({"id": "one in common", "filters": [one, next_to]})
    began = time.process_time()
    found = {each.subscription_id: each.reason for each in made.lint() if each.code == "never_matches"}
    assert time.process_time() - began < 10
    assert found == dict.fromkeys(("apart", "excluded"), "data.a: its conditions exclude one another")
