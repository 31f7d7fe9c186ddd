"""What a match returns: a lazy sequence that never changes."""

from __future__ import annotations

import dataclasses
import gc
import json
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable

import pytest

from streamer import Engine, EventError, Match, Matches, Subscription

MakeEngine = Callable[..., Engine]

EVENT = b'{"type": "insert", "data": {"a": 1}}'


@pytest.fixture
def seven(engine: MakeEngine) -> Engine:
    e = engine()
    e.add_many({"id": f"s{n}", "gateway_id": f"g{n % 2}" if n else None, "labels": {"n": n}} | {} for n in range(1, 8))
    return e


def test_matches_are_a_sequence(seven: Engine) -> None:
    matches = seven.match(EVENT)
    assert len(matches) == 7
    assert matches
    assert sorted(matches.ids()) == [f"s{n}" for n in range(1, 8)]
    assert [m.subscription_id for m in matches] == matches.ids()
    assert matches[0] == next(iter(matches))
    assert matches[-1] == list(matches)[-1]
    assert isinstance(matches[1:3], Matches)
    assert matches[1:3].ids() == matches.ids()[1:3]
    assert matches[::-1].ids() == matches.ids()[::-1]
    with pytest.raises(IndexError):
        matches[7]


def test_in_asks_for_an_id(seven: Engine) -> None:
    matches = seven.match(EVENT)
    assert "s3" in matches
    assert "s9" not in matches
    assert 3 not in matches


def test_in_is_false_of_what_is_no_id(seven: Engine) -> None:
    matches = seven.match(EVENT)
    assert [value in matches for value in ("s8", "\ud800", "s1\0", 1, None, b"s1")] == [False] * 6


def test_nothing_matched_is_false(engine: MakeEngine) -> None:
    matches = engine().match(EVENT)
    assert not matches
    assert list(matches) == []
    assert matches.by_gateway() == {}
    assert not engine().matches_any(EVENT)
    assert engine().match_count(EVENT) == 0
    assert repr(matches) == "<Matches: 0 []>"


def test_matches_group_by_gateway(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{"id": "a", "gateway_id": "g"}, {"id": "b"}, {"id": "c", "gateway_id": "g"}])
    groups = e.match(EVENT).by_gateway()
    assert {gateway: sorted(matches.ids()) for gateway, matches in groups.items()} == {"g": ["a", "c"], None: ["b"]}


def test_sorted_gives_the_order_of_adding(engine: MakeEngine) -> None:
    e = engine()
    ids = ["m", "z", "a", "k"]
    for at, name in enumerate(ids):
        e.add({"id": name, "tenant": "*" if at % 2 else "default", "filters": [{"field": "a", "op": "==", "value": 1}][: at % 3]})
    assert e.match(EVENT).sorted().ids() == ids
    e.replace({"id": "z"})
    e.remove("a")
    e.add({"id": "a"})
    assert e.match(EVENT).sorted().ids() == ["m", "z", "k", "a"]


def test_a_match_says_who_what_and_how(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "gateway_id": "g", "labels": {"team": "x"}})
    match = e.match(EVENT)[0]
    assert match == Match("s", "g", EVENT, "enter", True, {"team": "x"})
    assert match.event is EVENT


def test_a_match_is_what_its_class_makes_of_the_same_values(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{"id": "s", "gateway_id": "g", "labels": {"team": "x"}}, {"id": "t"}])
    for match in (*(matches := e.match(EVENT)), *map(matches.__getitem__, range(2))):
        values = {field.name: getattr(match, field.name) for field in dataclasses.fields(Match)}
        made = Match(**values)
        assert type(match) is Match
        assert match == made
        assert repr(match) == repr(made)
        assert pickle.loads(pickle.dumps(match)) == made
        assert dataclasses.replace(match, transition="leave") == dataclasses.replace(made, transition="leave")
        with pytest.raises(dataclasses.FrozenInstanceError):
            match.certain = False  # type: ignore[misc]
        match match:
            case Match(subscription_id, gateway_id, event, transition):
                assert (subscription_id, gateway_id, transition) in {("s", "g", "enter"), ("t", None, "enter")}
                assert event is EVENT
            case _:
                pytest.fail("no pattern matches it")
    assert hash(e.match(EVENT, collection="c").sorted()[1]) == hash(Match("t", None, None, "enter"))


@pytest.mark.parametrize("kept", [lambda matches: matches, lambda matches: matches[0], list], ids=["matches", "one", "all"])
def test_an_event_that_leads_to_its_own_matches_is_collected(engine: MakeEngine, kept: Callable[[Matches], object]) -> None:
    e = engine()
    e.add({"id": "s"})
    event: dict[str, object] = {"type": "insert", "data": {"a": 1}}
    kept_too: set[int] = set()
    gone = weakref.ref(kept_too)
    event["kept"] = [kept_too, kept(e.match(event))]
    del event, kept_too
    gc.collect()
    assert gone() is None


def test_matches_are_made_as_they_are_asked_for_and_iterators_go_on_by_themselves(seven: Engine) -> None:
    matches = seven.match(EVENT)
    one, other = iter(matches), iter(matches)
    assert [next(one).subscription_id, next(one).subscription_id] == matches.ids()[:2]
    seven.apply([])
    assert [each.subscription_id for each in one] == matches.ids()[2:]
    assert next(one, None) is None
    assert [each.subscription_id for each in other] == matches.ids()


def test_matches_do_not_change_when_the_engine_does(seven: Engine) -> None:
    matches = seven.match(EVENT)
    seven.apply([{"id": "other"}])
    assert len(matches) == 7
    assert {m.labels["n"] for m in matches if m.labels} == set(range(1, 8))
    assert seven.match_ids(EVENT) == ["other"]


def test_count_any_and_ids_agree_with_match(seven: Engine) -> None:
    assert seven.match_count(EVENT) == 7
    assert seven.matches_any(EVENT)
    assert sorted(seven.match_ids(EVENT)) == sorted(seven.match(EVENT).ids())


def test_matches_pickle_as_a_list(seven: Engine) -> None:
    matches = seven.match(EVENT)
    assert pickle.loads(pickle.dumps(matches)) == list(matches)


def test_the_repr_shows_the_first_few(seven: Engine) -> None:
    text = repr(seven.match(EVENT).sorted())
    assert text == "<Matches: 7 ['s1', 's2', 's3', 's4', 's5', ...]>"


def test_a_bad_event_is_an_error_everywhere(seven: Engine) -> None:
    for ask in (seven.match, seven.match_ids, seven.match_count, seven.matches_any):
        with pytest.raises(EventError) as raised:
            ask(b'{"a": ?}')
        assert raised.value.offset == 6
    with pytest.raises(EventError):
        seven.explain(b"[", "s1")


def test_every_kind_of_text_and_mapping_is_an_event(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "a", "op": "==", "value": 1}]})
    text = EVENT.decode()
    for event in (EVENT, text, bytearray(EVENT), memoryview(EVENT), {"data": {"a": 1}}):
        assert e.match_ids(event) == ["s"]


def test_the_lines_of_a_batch_say_what_its_matches_say(engine: MakeEngine) -> None:
    e = engine()
    e.add_many(
        [
            {"id": "s", "gateway_id": 'g"\n\u0001é', "labels": {"team": "x", "n": [1, 1.5, None, True], "é": {}}},
            {"id": "\u2028/", "labels": {}},
            b'{"id": "big", "labels": {"n": 1e400, "m": 1e5}}',
            Subscription(id="object", labels={"tuple": (1, 2)}),
            Subscription(id="other", labels=OrderedDict(a=1)),
            {"id": "unsure", "filters": [{"field": "b", "op": "==", "value": 1}]},
            {"id": "old", "transitions": True, "filters": [{"field": "a", "op": "==", "value": 2}]},
        ]
    )
    events = [
        EVENT,
        b"{",
        {"type": "update", "data": {"a": 1}, "before": {"a": 2}},
        None,
        b'{"type": "delete", "data": {"a": 2}}',
        {"type": "update", "data": {"a": 1}, "unknown": ["/data/b"]},
    ]
    batch = e.match_batch(events)
    lines = [json.loads(line) for line in batch.jsonl().splitlines()]
    told = [(line["row"], line["subscription_id"], line["gateway_id"], line["transition"], line["certain"]) for line in lines]
    expected = [
        (row, match.subscription_id, match.gateway_id, match.transition, match.certain)
        for row, result in enumerate(batch)
        if not isinstance(result, EventError)
        for match in result
    ]
    assert told == expected
    assert {row for row, *_ in told} == {0, 2, 4, 5}
    assert {transition for *_, transition, _ in told} >= {"enter", "stay"}
    assert {certain for *_, certain in told} == {True, False}
    labels = {line["subscription_id"]: line["labels"] for line in lines}
    assert labels == {
        "s": {"team": "x", "n": [1, 1.5, None, True], "é": {}},
        "\u2028/": {},
        "big": {"n": float("inf"), "m": 1e5},
        "object": {"tuple": [1, 2]},
        "other": {"a": 1},
        "unsure": None,
        "old": None,
    }
    assert batch.jsonl() == batch.jsonl()
    assert all(list(line) == ["row", "subscription_id", "gateway_id", "transition", "certain", "labels"] for line in lines)
    assert b"1e400" in batch.jsonl()


def test_a_batch_of_nothing_has_no_lines(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s"})
    assert e.match_batch([]).jsonl() == b""
