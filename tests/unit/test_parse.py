"""Reading subscriptions from Python objects; JSON texts and their errors are in testdata/match/subscriptions.toml."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamer import Filter, PatternError, Subscription, SubscriptionError
from streamer.subscriptions.parse import MEMBERS, parse_subscription

MEMBERS_IN_FULL: dict[str, Any] = {
    "id": "s1",
    "gateway_id": "g1",
    "tenant": "acme",
    "collection": "orders",
    "types": ["insert", "update"],
    "filters": [{"field": "status", "op": "==", "value": None}, {"field": "a", "op": "changed"}],
    "cel": "data.amount > 100",
    "pattern": {"data": {"tags": [{"prefix": "vip"}]}},
    "topic": "orders.#",
    "topic_dialect": "amqp",
    "dialect": "strict",
    "on_unknown": "skip",
    "transitions": True,
    "labels": {"n": 1},
    "cel_evaluator": "portable",
}


def test_a_mapping_its_json_text_and_an_object_are_one_subscription() -> None:
    """All members, in every form."""
    assert set(MEMBERS_IN_FULL) == set(MEMBERS)
    text = json.dumps(MEMBERS_IN_FULL)
    read = parse_subscription(MEMBERS_IN_FULL)
    assert read == parse_subscription(text) == parse_subscription(text.encode()) == parse_subscription(bytearray(text.encode()))
    assert read == parse_subscription(read)
    assert read.filters == (Filter("status", "==", None), Filter("a", "changed"))


def test_a_subscription_reads_back_from_its_dict() -> None:
    """Also through JSON."""
    read = parse_subscription(MEMBERS_IN_FULL)
    assert parse_subscription(json.dumps(read.to_dict())) == read


def test_only_the_id_is_required() -> None:
    """All else has a default."""
    assert parse_subscription({"id": "s"}) == Subscription(id="s")


def test_filters_may_be_objects_mappings_and_tuples() -> None:
    """In a tuple as in a list."""
    given = Subscription(id="s", filters=(Filter("a", "in", (1, 2)), {"field": "b", "op": "changed"}))
    assert parse_subscription(given).filters == (Filter("a", "in", (1, 2)), Filter("b", "changed"))


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"id": "s", "types": {"insert"}}, "types"),
        ({"id": "s", "types": b"insert"}, "types"),
        ({"id": "s", "filters": iter(())}, "filters"),
        ({"id": "s", "filters": ["x"]}, "filters[0]"),
        ({"id": "s", "filters": [{"field": "a", "op": "changed", 1: 2}]}, "filters[0]"),
        ({"id": "s", "pattern": ["x"]}, "pattern"),
        ({"id": "s", "labels": [1]}, "labels"),
        ({"id": "s", "cel": b"true"}, "cel"),
        ({"id": "s", 7: 1}, ""),
        ({"id": "\ud800"}, "id"),
        ({"id": "s", "tenant": "\udfff"}, "tenant"),
        ({"id": "s", "transitions": 1}, "transitions"),
        (Subscription(id="s", on_unknown="drop"), "on_unknown"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_python_value_is_refused_with_its_place(source: Any, place: str) -> None:
    """Not only JSON can be wrong."""
    with pytest.raises(SubscriptionError) as caught:
        parse_subscription(source)
    assert caught.value.place == place


@pytest.mark.parametrize("source", [None, 7, ["x"], memoryview(b"{}")])
def test_what_is_no_subscription_at_all_is_refused(source: Any) -> None:
    """With its type."""
    with pytest.raises(SubscriptionError, match="expected an object"):
        parse_subscription(source)


def test_an_error_names_the_subscription_where_its_id_could_be_read() -> None:
    """Also for duplicates, where the last id counts."""
    for bad in ('{"id":"s7","types":[]}', '{"id":"s7","labels":{"a":1,"a":2}}', '{"id":"x","id":"s7"}'):
        with pytest.raises(SubscriptionError) as caught:
            parse_subscription(bad)
        assert caught.value.subscription_id == "s7"
    with pytest.raises(SubscriptionError) as caught:
        parse_subscription('{"id":7}')
    assert caught.value.subscription_id is None


def test_a_duplicate_in_a_pattern_is_an_error_of_the_pattern_and_one_beside_it_is_not() -> None:
    """`patterns` is no pattern."""
    with pytest.raises(PatternError):
        parse_subscription('{"id":"s","pattern":{"a":[{"b":1,"b":1}]}}')
    with pytest.raises(SubscriptionError) as caught:
        parse_subscription('{"id":"s","patterns":{"a":1,"a":1}}')
    assert not isinstance(caught.value, PatternError)


def test_the_deepest_text_is_read_without_recursion() -> None:
    """Labels are never looked into, however deep."""
    deep = '{"a":[' * 250 + "1" + "]}" * 250
    labels = parse_subscription(f'{{"id":"s","labels":{deep}}}').labels
    for _ in range(250):
        assert labels is not None
        labels = labels["a"][0]
    assert labels == 1
