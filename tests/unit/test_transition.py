"""Judging a subscription; single cases are in testdata/match/transitions.toml and unknown.toml."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import pytest

from streamer.cel_eval import ProgramCache
from streamer.events.layout import EventLayout
from streamer.events.reading import read_event
from streamer.model import Event, Limits, Verdict
from streamer.reference.conditions import Condition, conditions, evaluate
from streamer.reference.filters import MISSING, Absence
from streamer.reference.transition import Outcome, find_outcome, mentions_before, old_side
from streamer.subscriptions.compile import CompiledSubscription, compile_subscription

CHANGE = EventLayout()
PROGRAMS = ProgramCache()


def compiled(**members: Any) -> CompiledSubscription:
    return compile_subscription({"id": "s", **members}, programs=PROGRAMS)


def event(layout: EventLayout = CHANGE, **members: Any) -> Event:
    return read_event(json.dumps(members), layout=layout, default_tenant="default", limits=Limits())


# Unknown values are worlds that cannot be told apart


def known_outcome(kind: str, new: dict[str, Any], old: dict[str, Any], transitions: bool) -> str | None:
    """What is reported where everything is known: the condition is a == 1, the flag is `gone`."""
    wants_new, wants_old = (document["a"] == 1 and not document["gone"] for document in (new, old))
    if kind == "insert":
        return "enter" if wants_new else None
    if kind == "delete":
        wants_last = wants_old if new["gone"] else wants_new
        return "leave" if wants_last else None
    if wants_new:
        return "stay" if wants_old else "enter"
    return "leave" if wants_old and transitions else None


def worlds(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents that one with unknowns (None) may be."""
    return [
        {"a": a, "gone": gone}
        for a in ([1, 2] if document["a"] is None else [document["a"]])
        for gone in ([True, False] if document["gone"] is None else [document["gone"]])
    ]


@pytest.mark.parametrize("transitions", [True, False])
@pytest.mark.parametrize("on_unknown", ["deliver", "skip"])
@pytest.mark.parametrize("kind", ["insert", "update", "delete"])
def test_what_is_reported_holds_in_every_world_that_the_event_allows(kind: str, on_unknown: str, transitions: bool) -> None:
    """A certain outcome is that of every world, nothing is lost under deliver, and skip reports only what every world does."""
    subscription = compiled(filters=[{"field": "a", "op": "==", "value": 1}], on_unknown=on_unknown, transitions=transitions)
    documents = [{"a": a, "gone": gone} for a in (1, 2, None) for gone in (True, False, None)]
    for new, old in itertools.product(documents, repeat=2):
        seen = event(
            type=kind,
            data={name: value for name, value in new.items() if value is not None},
            before={name: value for name, value in old.items() if value is not None},
            unknown=[f"/{at}/{name}" for at, doc in (("data", new), ("before", old)) for name in doc if doc[name] is None],
        )
        outcome = find_outcome(subscription, seen, CHANGE, "gone")
        possible = {known_outcome(kind, one, other, transitions) for one in worlds(new) for other in worlds(old)}
        if outcome is None:
            assert possible == {None} or (on_unknown == "skip" and len(possible) > 1), (new, old)
        elif outcome.certain:
            assert possible == {outcome.transition}, (new, old)
        else:
            assert outcome.transition in possible, (new, old)
            assert len(possible) > 1, (new, old)
            assert on_unknown == "deliver" or None not in possible, (new, old)


# The sides


def test_the_old_side_is_there_only_for_an_update_that_tells_of_it() -> None:
    """With `before`, or with an unknown in its place."""
    assert old_side(event(type="update", data={"a": 1}, before={"a": 2}), CHANGE) is not None
    assert old_side(event(type="update", data={"a": 1}, unknown=["/before"]), CHANGE) is not None
    assert old_side(event(type="update", data={"a": 1}, unknown=["/before/a"]), CHANGE) is not None
    assert old_side(event(type="update", data={"a": 1}, unknown=["/data/b"]), CHANGE) is None
    assert old_side(event(type="update", data={"a": 1}), CHANGE) is None
    assert old_side(event(type="insert", data={"a": 1}, before={"a": 2}), CHANGE) is None
    assert old_side(event(data={"a": 1}, before={"a": 2}), CHANGE) is None


def test_the_layout_says_which_patterns_mention_before() -> None:
    """Filters and CEL do so under every layout."""
    debezium = EventLayout.preset("debezium")
    pattern = compiled(pattern={"payload": {"before": {"a": [1]}}})
    assert mentions_before(pattern, debezium)
    assert not mentions_before(pattern, CHANGE)
    assert not mentions_before(pattern, EventLayout(before=None))
    for layout in (debezium, CHANGE):
        assert mentions_before(compiled(cel="before == null"), layout)
        assert mentions_before(compiled(filters=[{"field": "a", "op": "changed"}]), layout)
        assert not mentions_before(
            compiled(cel="data.before == 1", filters=[{"field": "before", "op": "exists", "value": True}]), layout
        )


def test_a_subscription_that_mentions_before_is_judged_once() -> None:
    """The verdict of the event as it stands, without transition."""
    subscription = compiled(cel="before.a == 1", transitions=True)
    assert find_outcome(subscription, event(type="update", data={}, before={"a": 1}), CHANGE) == Outcome(None)
    assert find_outcome(subscription, event(type="update", data={"a": 1}, before={}), CHANGE) is None


def test_the_budget_of_cel_is_for_each_side() -> None:
    """A side whose program is stopped does not match; the other does."""
    subscription = compiled(cel="data.a.all(x, x > 0)")
    seen = event(type="update", data={"a": [1]}, before={"a": [1] * 1000})
    assert find_outcome(subscription, seen, CHANGE) == Outcome("stay")
    judge = partial(evaluate, subscription, budget=100)
    assert find_outcome(subscription, seen, CHANGE, judge=judge) == Outcome("enter")


# What explain tells


def told(found: list[Condition]) -> list[tuple[str, str, Any, str]]:
    return [(each.kind, each.place, each.seen, each.verdict.value) for each in found]


def test_every_condition_is_told_with_what_it_saw() -> None:
    """In the order of a subscription's members, true or not."""
    subscription = compiled(
        tenant="acme",
        collection="orders",
        types=["update", "insert"],
        topic="a.*",
        filters=[{"field": "n", "op": ">", "value": 3}, {"field": "u.c", "op": "==", "value": "DE"}],
        pattern={"data": {"n": [4, 5], "x": [1]}},
        cel="data.n + data.z > 1",
    )
    seen = event(tenant="acme", collection="orders", type="delete", data={"n": 4}, unknown=["/data/u"])
    found = [condition for condition, _ in conditions(subscription, seen)]
    assert told(found) == [
        ("tenant", "tenant", "acme", "true"),
        ("collection", "collection", "orders", "true"),
        ("types", "types", "delete", "false"),
        ("topic", "topic", MISSING, "false"),
        ("filter", "filters[0]", 4, "true"),
        ("filter", "filters[1]", Absence.UNKNOWN, "unknown"),
        ("pattern", "pattern.data.n", [4], "true"),
        ("pattern", "pattern.data.x", MISSING, "false"),
        ("cel", "cel", {"data.n": 4, "data.z": MISSING}, "error"),
    ]
    assert [each.text for each in found[4:7]] == ["data.n > 3", "data.u.c == 'DE'", "data.n: 4 or 5"]
    assert found[-1].reason is not None
    assert found[-1].reason.startswith("no_such_field: ")
    assert evaluate(subscription, seen) is Verdict.FALSE


def test_an_expression_is_told_with_each_value_that_it_read() -> None:
    """Parts of the event as CEL sees them, names that need quotes, and what is not there."""
    cel = "data.`a-b` == 1 && has(data.u.c) && data.tags.exists(t, t == 'x') && before == null && topic == '' && ts != null"
    seen = event(type="update", ts=1_500, data={"a-b": 1, "tags": ["x"]}, unknown=["/data/u", "/topic"])
    (*_, (found, _)) = conditions(compiled(cel=cel), seen)
    assert found.seen == {
        "before": None,
        "data.`a-b`": 1,
        "data.tags": ["x"],
        "data.u.c": Absence.UNKNOWN,
        "topic": Absence.UNKNOWN,
        "ts": "1970-01-01T00:00:01.500Z",
    }


def test_alternatives_of_a_pattern_are_told_with_each_value_that_they_read() -> None:
    """The leaves at each path of any alternative."""
    subscription = compiled(pattern={"data": {"$or": [{"a": [1]}, {"b.c": [2], "a": [3]}]}})
    (*_, (found, _)) = conditions(subscription, event(data={"a": [4, 5]}))
    assert told([found]) == [("pattern", "pattern.$or", {"data.a": [4, 5], 'data["b.c"]': MISSING}, "false")]


@pytest.mark.parametrize(
    ("op", "value", "document", "reason"),
    [
        ("==", 1, {}, "the field is missing"),
        ("<", 1, {"a": "x"}, "'<' does not take a string"),
        ("contains", "x", {"a": {}}, "'contains' does not take an object"),
    ],
)
def test_an_error_of_a_filter_says_why(op: str, value: Any, document: dict[str, Any], reason: str) -> None:
    """A field that is missing, or of another type."""
    (_, (found, _)) = conditions(compiled(filters=[{"field": "a", "op": op, "value": value}]), event(data=document))
    assert found.verdict is Verdict.ERROR
    assert found.reason is not None
    assert found.reason.startswith(reason)


def test_fields_that_match_in_different_elements_are_told_as_a_condition_of_their_own() -> None:
    """Each field alone is true, the whole is not."""
    subscription = compiled(pattern={"data": {"a": {"b": [1], "c": [4]}}})
    found = [condition for condition, _ in conditions(subscription, event(data={"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}))]
    assert told(found[1:]) == [
        ("pattern", "pattern.data.a.b", [1, 3], "true"),
        ("pattern", "pattern.data.a.c", [2, 4], "true"),
        ("pattern", "pattern", {}, "false"),
    ]
    assert "same elements" in (found[-1].reason or "")
    assert len(conditions(subscription, event(data={"a": [{"b": 1, "c": 4}]}))) == 3


def test_conditions_and_verdict_agree() -> None:
    """The conditions together are the verdict."""
    subscription = compiled(filters=[{"field": "a", "op": "==", "value": 1}], pattern={"data": {"b": [1]}}, cel="data.c == 1")
    values: list[Any] = [1, 2, None, "unknown"]
    for a, b, c in itertools.product(values, repeat=3):
        document = {"a": a, "b": b, "c": c}
        seen = event(
            data={name: value for name, value in document.items() if value not in (None, "unknown")},
            unknown=[f"/data/{name}" for name, value in document.items() if value == "unknown"],
        )
        assert evaluate(subscription, seen) is Verdict.all([each.verdict for each, _ in conditions(subscription, seen)])
