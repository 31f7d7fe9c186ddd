"""Near misses: which subscriptions an event fails by one condition, and which condition fails over many events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, EventError, UnknownSubscriptionError
from streamer.engine.misses import Survey

MakeEngine = Callable[..., Engine]

EVENT = {"collection": "orders", "type": "insert", "data": {"amount": 95, "status": "payd", "tags": ["vim"], "n": 1}}


def filters(*conditions: tuple[str, str, Any]) -> list[dict[str, Any]]:
    return [{"field": field, "op": op, "value": value} for field, op, value in conditions]


@pytest.fixture
def e(engine: MakeEngine) -> Engine:
    made = engine()
    made.add_many(
        [
            {"id": "matches", "collection": "orders"},
            {"id": "far", "collection": "orders", "filters": filters(("amount", ">", 9_000))},
            {"id": "near", "collection": "orders", "filters": filters(("amount", ">", 100), ("n", "==", 1))},
            {"id": "spelled", "filters": filters(("status", "==", "paid"))},
            {"id": "listed", "filters": filters(("status", "in", ["sent", "open"]))},
            {"id": "cel", "cel": "data.n == 1 && (data.amount >= 96)"},
            {"id": "pattern", "pattern": {"data": {"tags": ["vip"], "n": [1]}}},
            {"id": "by two", "filters": filters(("amount", ">", 100), ("n", "==", 2))},
            {"id": "by two of cel", "cel": "data.amount > 100 && data.n == 2"},
            {"id": "missing", "filters": filters(("amuont", ">", 1))},
            {"id": "other collection", "collection": "users", "filters": filters(("n", "==", 2))},
            {"id": "other tenant", "tenant": "acme", "filters": filters(("n", "==", 2))},
            {"id": "every tenant", "tenant": "*", "types": ["delete"]},
        ]
    )
    return made


def test_what_fails_by_one_condition_is_named_nearest_first(e: Engine) -> None:
    found = e.near_misses(EVENT, 20)
    assert [miss.subscription_id for miss in found][:4] == ["cel", "near", "spelled", "pattern"]
    assert {miss.subscription_id for miss in found} == {
        "cel", "near", "spelled", "pattern", "listed", "far", "missing", "every tenant",
    }  # fmt: skip
    assert (found.examined, found.complete) == (11, True)
    assert [miss.distance for miss in found] == sorted(miss.distance for miss in found)
    near = next(miss for miss in found if miss.subscription_id == "near")
    assert (near.condition.text, near.condition.seen, near.held) == ("data.amount > 100", 95, 3)
    assert str(near) == "'near': data.amount > 100: false, saw 95"
    assert str(found[0]) == "'cel': (data.amount >= 96): false, saw data.amount = 95"
    missing = next(miss for miss in found if miss.subscription_id == "missing")
    assert "the event has data.amount" in str(missing)


def test_so_many_are_returned_and_so_many_examined(e: Engine) -> None:
    assert [miss.subscription_id for miss in e.near_misses(EVENT, 2)] == ["cel", "near"]
    bounded = e.near_misses(EVENT, 20, max_subscriptions=3)
    assert (bounded.examined, bounded.complete) == (3, False)
    assert e.near_misses(EVENT, max_subscriptions=11).complete
    for wrong in ({"n": 0}, {"max_subscriptions": 0}):
        with pytest.raises(ValueError, match="expected at least 1"):
            e.near_misses(EVENT, **wrong)


def test_near_misses_of_each_event_are_no_matches_and_fail_by_one_condition_in_explain(e: Engine) -> None:
    e.add({"id": "leaves", "filters": filters(("n", "==", 2)), "transitions": True})
    for event in (EVENT, {"data": {}}, {**EVENT, "type": "update", "before": {"n": 2}}, {**EVENT, "tenant": "acme"}):
        matched = e.match_ids(event)
        for miss in e.near_misses(event, 20):
            assert miss.subscription_id not in matched
            told = e.explain(event, miss.subscription_id)
            failed = [row for row in told.conditions if row.verdict.value in ("false", "error")]
            assert len(failed) == 1
            assert miss.condition.text in failed[0].text
            assert miss.condition.verdict is failed[0].verdict


def test_an_event_that_cannot_be_read_or_is_ignored_has_none(e: Engine) -> None:
    assert list(e.near_misses(None)) == []
    with pytest.raises(EventError):
        e.near_misses(b"{")


def test_a_survey_counts_how_each_condition_came_out(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "collection": "orders", "filters": filters(("n", "==", 1)), "cel": "data.amount > 100 && data.x == 1"})
    survey = Survey(e, "s")
    documents = [{"n": 1, "amount": amount, "x": 1} for amount in (50, 99, 101)] + [{"n": 2, "amount": 1, "x": 1}, {"n": 1}]
    events: list[Any] = [None, *({"collection": "orders", "data": data} for data in documents)]
    for number, event in enumerate([*events, {"collection": "orders", "data": {"n": 1, "x": 1}, "unknown": ["/data/amount"]}], 1):
        survey.see(number, event)
    told = survey.to_dict()
    json.dumps(told)
    assert (told["events"], told["matched"], told["ignored"]) == (7, 2, 1)
    counts = {
        row["text"]: (row["true"], row["false"], row["error"], row["unknown"], row["failed_alone"]) for row in told["conditions"]
    }
    assert counts == {
        "tenant 'default'": (6, 0, 0, 0, 0),
        "collection 'orders'": (6, 0, 0, 0, 0),
        "data.n == 1": (5, 1, 0, 0, 0),
        "data.amount > 100": (1, 3, 1, 1, 2),
        "data.x == 1": (5, 0, 1, 0, 0),
    }
    assert [each["event"] for each in told["nearest"]] == [3, 2, 5]
    assert told["nearest"][0]["failed"] == ["data.amount > 100: false, saw data.amount = 99"]
    with pytest.raises(UnknownSubscriptionError):
        Survey(e, "none")


def test_a_survey_holds_no_more_after_more_events(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": filters(("n", "==", -1))})
    survey = Survey(e, "s")
    for number in range(1, 301):
        survey.see(number, {"data": {"n": number}})
    assert (len(survey.rows), [each.number for each in survey.nearest]) == (2, [1, 2, 3])
