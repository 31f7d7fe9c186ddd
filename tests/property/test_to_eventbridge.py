"""`Subscription.to_eventbridge` prints a pattern that matches the same events, or refuses a part with its place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streamer import Engine, Subscription, SubscriptionError
from streamer.importing import import_rules


def printed(**members: Any) -> dict[str, Any]:
    return Subscription(id="s", **members).to_eventbridge(scalars=True)


def where(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"filters": [{"field": field, "op": op, "value": value}]}


@pytest.mark.parametrize(
    ("members", "pattern"),
    [
        ({}, {"source": [{"prefix": ""}]}),
        ({"collection": "*"}, {"source": [{"prefix": ""}]}),
        ({"collection": "shop"}, {"source": ["shop"]}),
        ({"topic": "order.paid"}, {"detail-type": ["order.paid"]}),
        ({"topic": "order.#"}, {"detail-type": ["order", {"prefix": "order."}]}),
        ({"topic": "#"}, {"detail-type": [{"prefix": ""}]}),
        ({"topic": "order/paid", "topic_dialect": "mqtt"}, {"detail-type": ["order/paid"]}),
        (where("a.b", "==", "x"), {"detail": {"a": {"b": ["x"]}}}),
        (where("a", "==", None), {"detail": {"a": [None]}}),
        (where("a", "!=", "x"), {"detail": {"a": [{"anything-but": ["x"]}]}}),
        (where("a", "in", ["x", 1, True]), {"detail": {"a": ["x", 1, True]}}),
        (where("a", "not in", [1, 2]), {"detail": {"a": [{"anything-but": [1, 2]}]}}),
        (where("a", "not in", []), {"detail": {"a": [{"exists": True}]}}),
        (where("a", ">", 1.5), {"detail": {"a": [{"numeric": [">", 1.5]}]}}),
        (where("a", "starts_with", "x"), {"detail": {"a": [{"prefix": "x"}]}}),
        (where("a", "ends_with", ""), {"detail": {"a": [{"suffix": ""}]}}),
        (where("a", "contains", "50*\\"), {"detail": {"a": [{"wildcard": "*50\\*\\\\*"}]}}),
        (where("a", "contains", ""), {"detail": {"a": [{"wildcard": "*"}]}}),
        (where("a", "exists", False), {"detail": {"a": [{"exists": False}]}}),
        (
            {"filters": [{"field": "n", "op": ">", "value": 1}, {"field": "n", "op": "<=", "value": 2}]},
            {"detail": {"n": [{"numeric": [">", 1, "<=", 2]}]}},
        ),
        ({"pattern": {"a": [{"shellstyle": "x*\\"}, {"exactly": "*"}]}}, {"a": [{"wildcard": "x*\\\\"}, "*"]}),
        ({"pattern": {"a": [{"cidr": "10.0.0.1/32"}, {"cidr": "10.0.0.0/8"}]}}, {"a": ["10.0.0.1", {"cidr": "10.0.0.0/8"}]}),
        ({"pattern": '{"a": [1], "$or": [{"b": [1]}, {"c": {"d": [{"exists": true}]}}]}'},) * 2,
        ({"pattern": {"detail": {"a": [1]}}, **where("b", "==", 2)}, {"detail": {"a": [1], "b": [2]}}),
    ],
)
def test_each_part_has_its_pattern(members: dict[str, Any], pattern: dict[str, Any]) -> None:
    if members == pattern:
        pattern = json.loads(pattern["pattern"])
    assert printed(**members) == pattern


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"cel": "data.a == 1"}, "cel: EventBridge has no expressions"),
        ({"types": ["insert"]}, "types: events of EventBridge have no type"),
        ({"topic": "order.*"}, "topic: EventBridge has no words"),
        ({"topic": "a/#", "topic_dialect": "mqtt"}, "topic: EventBridge has no words"),
        (where("a", "matches", "x"), "filters[0].op: EventBridge has no equal of 'matches'"),
        (where("a", "contains", 1), "filters[0].op: EventBridge has no equal of 'contains'"),
        (where("a", "changed_to", 1), "filters[0].op: EventBridge has no equal of 'changed_to'"),
        (where("a", "==", [1]), "filters[0].value: EventBridge compares no lists and objects"),
        (where("a", "in", []), "filters[0].value: EventBridge refuses an empty list"),
        (where("a", "!=", None), "filters[0].value: EventBridge excludes texts or numbers"),
        (where("a", "not in", ["x", 1]), "filters[0].value: EventBridge excludes texts or numbers"),
        (where("a", "<", "x"), "filters[0].value: EventBridge orders only numbers"),
        (where("a", "<", 5_000_000_001), "filters[0].value: EventBridge compares numbers of at most 5,000,000,000"),
        (where("a", "==", 0.1 + 0.2), "with at most 15 digits"),
        (where("/a.b", "==", 1), "filters[0]: EventBridge reads a dot in a name"),
        (
            {"filters": [*where("a", "<", 1)["filters"], *where("a", "<", 2)["filters"]]},
            "filters[1]: EventBridge has one condition",
        ),
        (
            {"filters": [*where("a", ">", 2)["filters"], *where("a", "<", 1)["filters"]]},
            "filters[1]: the bounds exclude every number",
        ),
        ({"filters": [*where("a", "==", 2)["filters"], *where("a.b", "<", 1)["filters"]]}, "one condition on 'detail.a.b'"),
        ({"collection": "x", "pattern": {"source": ["y"]}}, "collection: EventBridge has one condition on 'source'"),
        ({"pattern": {"a.b": [1]}}, 'pattern["a.b"]: EventBridge reads a dot in a name'),
        ({"pattern": {"a": ["x", {"regexp": "x"}]}}, "pattern.a[1].regexp: EventBridge has no regexps"),
        ({"pattern": {"a": [{"cidr": "0.0.0.0/0"}]}}, "pattern.a[0].cidr: EventBridge has networks"),
        ({"pattern": {"a": [{"cidr": "::ffff:1.2.3.4/32"}]}}, "pattern.a[0].cidr: EventBridge reads such an address as one"),
        ({"pattern": {"a": [{"equals-ignore-case": "é"}]}}, "EventBridge folds the case of letters beyond ASCII"),
        ({"pattern": {"a": [{"numeric": [">", 1e10]}]}}, "pattern.a[0].numeric: EventBridge compares numbers"),
        ({"pattern": {"a": [{"prefix": 1}]}}, "pattern.a[0].prefix: expected a string"),
        ({"pattern": {"a": []}, "dialect": "strict"}, "pattern.a: EventBridge refuses an empty array"),
        ({"pattern": {"a": [1], "$or": [{"a": [2]}, {"b": [1]}]}}, "pattern: 'a' stands twice"),
        ({"pattern": {"detail": {"$or": [{"a": [2]}, {"b": [1]}]}}, **where("a", "==", 1)}, "pattern: 'detail.a' stands twice"),
        ({"pattern": '{"a":' * 200 + "[1]" + "}" * 200}, "nested deeper than 100 levels"),
    ],
)
def test_a_part_that_eventbridge_cannot_express_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(SubscriptionError) as caught:
        printed(**members)
    assert message in str(caught.value)
    assert caught.value.subscription_id == "s"


def test_filters_need_the_promise_that_their_fields_are_scalars() -> None:
    with pytest.raises(SubscriptionError, match=r"filters\[0\]: a pattern looks into arrays"):
        Subscription(id="s", **where("a", "==", 1)).to_eventbridge()


SCALARS: list[Any] = ["x", "xy", "order", "", 1, 2.5, -3, 0, True, False, None]


def random_filter(chosen: random.Random, field: str) -> dict[str, Any]:
    text, number = chosen.choice(["x", "y", "ord", ""]), chosen.choice([1, 2.5, -3, 0])
    op, value = chosen.choice(
        [
            *(("==", each) for each in SCALARS),
            *(("!=", each) for each in (text, number)),
            *((each, text) for each in ("starts_with", "ends_with", "contains")),
            *((each, number) for each in (">", ">=", "<", "<=")),
            *(("exists", each) for each in (True, False)),
            ("in", chosen.sample(SCALARS, 3)),
            ("not in", [text, "z"]),
        ]
    )
    return {"field": field, "op": op, "value": value}


def random_subscription(chosen: random.Random, number: int) -> Subscription:
    fields = chosen.sample(["a", "b.c", "b.d", "e"], chosen.randrange(3))
    pattern: Mapping[str, Any] = {
        "resources": [chosen.choice(["r", {"prefix": "r"}, {"exists": False}])],
        "detail": {"l": {"m": ["x", {"anything-but": ["x", "xy"]}], "n": [{"numeric": [">", 0]}]}},
    }
    return Subscription(
        id=f"s{number}",
        collection=chosen.choice([None, "shop", "*"]),
        topic=chosen.choice([None, "order.#", "order.paid", "#"]),
        filters=[random_filter(chosen, each) for each in fields],
        pattern=pattern if chosen.random() < 0.3 else None,
    )


def random_event(chosen: random.Random) -> dict[str, Any]:
    inner = {name: chosen.choice(SCALARS) for name in "cd" if chosen.random() < 0.7}
    detail: dict[str, Any] = {name: chosen.choice(SCALARS) for name in "ae" if chosen.random() < 0.7}
    detail["b"] = inner if chosen.random() < 0.8 else chosen.choice(SCALARS)
    # Arrays stand where only patterns look.
    detail["l"] = [{"m": chosen.choice(SCALARS), "n": chosen.choice(SCALARS)} for _ in range(chosen.randrange(3))]
    event = {
        "source": chosen.choice(["shop", "other"]),
        "detail-type": chosen.choice(["order", "order.paid", "orders", ""]),
        "resources": chosen.sample(["r", "rs", "t"], chosen.randrange(3)),
        "detail": detail,
    }
    return {name: value for name, value in event.items() if name == "source" or chosen.random() < 0.9}


def test_a_printed_pattern_matches_the_same_events(engine: Callable[..., Engine]) -> None:
    """150 random subscriptions and 60 random events: printed, and imported again, they have the same matches."""
    chosen = random.Random(5)
    subscriptions = [random_subscription(chosen, number) for number in range(150)]
    rules = [{"Name": each.id, "EventPattern": json.dumps(each.to_eventbridge(scalars=True))} for each in subscriptions]
    e, again = engine(format="eventbridge"), engine(format="eventbridge")
    e.add_many(subscriptions)
    again.add_many(import_rules("eventbridge", json.dumps({"Rules": rules})).subscriptions)
    matched = 0
    for _ in range(60):
        event = json.dumps(random_event(chosen))
        ids = [sorted(match.subscription_id for match in each.match(event)) for each in (e, again)]
        assert ids[0] == ids[1], event
        matched += len(ids[0])
    assert 700 < matched < 8_000
