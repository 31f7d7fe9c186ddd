"""Plain Python values in and out: mappings as options, dicts and JSON of results, reading an engine like a mapping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer import BulkSubscriptionError, ConfigError, Engine, Filter, Match, Subscription, SubscriptionError

EngineMaker = Callable[..., Engine]
EVENT = {"collection": "orders", "type": "insert", "data": {"amount": 5}}
LABELS = {"owner": "é", "deep": [1, {"a": None}]}


@pytest.fixture
def three(engine: EngineMaker) -> Engine:
    made = engine()
    made.add_many(
        [
            Subscription(id="b", gateway_id="g", filters=[Filter("amount", ">", 1)], labels=LABELS),
            Subscription(id="a"),
            Subscription(id="c", collection="users"),
        ]
    )
    return made


def test_matches_become_dicts_and_lines_of_json(three: Engine) -> None:
    matches = three.match(EVENT).sorted()
    rows = [
        {"subscription_id": "b", "gateway_id": "g", "transition": "enter", "certain": True, "labels": LABELS},
        {"subscription_id": "a", "gateway_id": None, "transition": "enter", "certain": True, "labels": None},
    ]
    assert matches.to_dicts() == rows
    assert [match.to_dict() for match in matches] == rows
    assert list(map(json.loads, matches.jsonl().splitlines())) == rows
    assert matches.jsonl().endswith(b"\n")
    assert three.match({"collection": "x", "data": {}})[:0].jsonl() == b""


def test_a_line_is_that_of_a_batch_without_its_row(three: Engine) -> None:
    of_batch = three.match_batch([EVENT]).jsonl().splitlines()
    assert sorted(line.replace(b'"row":0,', b"") for line in of_batch) == sorted(three.match(EVENT).jsonl().splitlines())


def test_json_dumps_takes_results_and_subscriptions(three: Engine) -> None:
    matches = three.match(EVENT).sorted()
    given = {"matches": matches, "first": matches[0], "subscription": three["c"], "filter": Filter("a", "changed")}
    assert json.loads(json.dumps(given, default=streamer.json_default)) == {
        "matches": matches.to_dicts(),
        "first": matches[0].to_dict(),
        "subscription": {"id": "c", "collection": "users"},
        "filter": {"field": "a", "op": "changed"},
    }
    with pytest.raises(TypeError, match="expected a Match, Matches, Subscription or Filter, not set"):
        json.dumps({"x": set()}, default=streamer.json_default)


def test_ids_come_in_the_order_of_adding_if_you_ask_for_it(engine: EngineMaker) -> None:
    made = engine()
    names = [f"s{number * 7919 % 1000}" for number in range(1000)]
    made.add_many(
        {"id": name, "filters": [{"field": "amount", "op": ">", "value": -index % 5}]} for index, name in enumerate(names)
    )
    assert made.match_ids(EVENT, sorted=True) == names
    made.replace({"id": names[3]})
    assert made.match_ids(EVENT, sorted=True) == names
    assert made.match_ids(EVENT, None, "other", sorted=True) == names


def test_an_engine_reads_like_a_mapping(three: Engine) -> None:
    assert three["b"].gateway_id == "g"
    assert [name for name, _ in three.items()] == list(three) == ["b", "a", "c"]
    assert dict(three.items())["c"] == three.get("c") == three["c"]
    assert three.get("nobody") is None
    assert three.get("nobody", 5) == 5
    for unknown in ("nobody", "\ud800", 5):
        with pytest.raises(KeyError):
            three[unknown]  # type: ignore[index]


def test_good_rows_are_applied_and_bad_ones_keep_their_old_subscription(engine: EngineMaker) -> None:
    made = engine()
    made.add_many([{"id": "kept"}, {"id": "gone"}, {"id": "same"}])
    rows: list[Any] = [{"id": "kept", "cel": "1 +"}, {"id": "same"}, {"id": "new"}, {"id": "new"}, {"other": 1}, 5]
    with pytest.raises(BulkSubscriptionError):
        made.apply(rows)
    assert list(made) == ["kept", "gone", "same"]
    changes = made.apply(rows, on_error="skip")
    assert sorted(made) == ["kept", "new", "same"]
    assert (changes.added, changes.removed, set(changes.unchanged)) == (("new",), ("gone",), {"kept", "same"})
    assert [error.index for error in changes.errors] == [0, 3, 4, 5]
    assert made.apply([{"id": "new"}], on_error="skip").removed
    with pytest.raises(ValueError, match="on_error"):
        made.apply([], on_error="ignore")  # type: ignore[arg-type]


def test_the_first_of_two_rows_with_an_id_counts(engine: EngineMaker) -> None:
    made = engine()
    made.add({"id": "a"})
    changes = made.apply([{"id": "a", "collection": "new"}, {"id": "a", "cel": "1 +"}], on_error="skip")
    assert made["a"].collection == "new"
    assert (changes.replaced, [error.index for error in changes.errors]) == (("a",), [1])


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_file_is_applied(engine: EngineMaker, tmp_path: Path, on_error: Any) -> None:
    made = engine()
    made.add({"id": "gone"})
    file = tmp_path / "subscriptions.jsonl"
    file.write_text('{"id": "a"}\n\n{"id": "b"}\n')
    changes = made.apply_jsonl(file, on_error=on_error)
    assert (list(made), changes.removed, changes.errors) == (["a", "b"], ("gone",), ())


def test_errors_of_a_file_have_their_lines(engine: EngineMaker) -> None:
    made = engine()
    text = b'{"id": "a"}\n\n{"id": "b", "cel": "1 +"}\n{bad\n{"id": "c"}'
    with pytest.raises(BulkSubscriptionError) as raised:
        made.apply_jsonl(text)
    assert [error.index for error in raised.value.errors] == [2, 3]
    changes = made.apply_jsonl(text, on_error="skip")
    assert ([error.index for error in changes.errors], list(made)) == ([2, 3], ["a", "c"])


def test_options_are_mappings_too(engine: EngineMaker) -> None:
    made = engine(limits={"max_event_bytes": 10})
    with pytest.raises(streamer.EventError, match="too_long"):
        made.match(b'{"data": {"a": 1}}')
    for limits, place in (({"max_bytes": 1}, "limits.max_bytes"), ({"max_depth": "1"}, "limits.max_depth"), (5, "limits")):
        with pytest.raises(ConfigError) as raised:
            engine(limits=limits)
        assert raised.value.place == place


def test_a_configuration_is_a_mapping_too(engine: EngineMaker) -> None:
    made = engine.from_config({"matching": {"format": "document", "limits": {"max_depth": 3}}})  # type: ignore[attr-defined]
    made.add({"id": "a", "filters": [{"field": "x", "op": "==", "value": 1}]})
    assert made.match_ids({"x": 1}) == ["a"]
    assert made.config is not None
    with pytest.raises(ConfigError, match="matching"):
        engine.from_config({"matching": {"formats": "document"}})  # type: ignore[attr-defined]


@pytest.mark.parametrize("member", ["id", "gateway_id", "tenant", "collection", "cel", "topic"])
def test_a_text_of_another_type_is_refused_where_it_is_written(member: str) -> None:
    with pytest.raises(SubscriptionError, match="expected a string, not int") as raised:
        Subscription(**{"id": "a", member: 5})  # type: ignore[arg-type]
    assert raised.value.place == member


def test_a_subscription_is_made_from_its_members_and_shown_with_them() -> None:
    members = {"id": "a", "collection": "orders", "filters": [{"field": "x", "op": "==", "value": 1}]}
    made = Subscription.from_dict(members)
    assert made.to_dict() == members
    assert repr(made) == "Subscription(id='a', collection='orders', filters=(Filter(field='x', op='==', value=1),))"
    assert repr(Subscription(id="b")) == "Subscription(id='b')"
    with pytest.raises(SubscriptionError, match="unknown member"):
        Subscription.from_dict({"id": "a", "filter": []})


def test_dir_shows_every_public_name() -> None:
    assert set(dir(streamer)) == set(streamer.__all__)
    assert Match("a", None, b"").to_dict()["subscription_id"] == "a"
