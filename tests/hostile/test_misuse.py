"""Wrong use of the API is told in words, and leaves the engine as it was."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import pytest

from streamer import (
    BulkSubscriptionError,
    ConfigError,
    DuplicateSubscriptionError,
    Engine,
    EventError,
    Ignored,
    Limits,
    StreamerError,
    Subscription,
    UnknownSubscriptionError,
)
from streamer.automaton import Quamina, TopicMatcher

pytestmark = pytest.mark.usefixtures("time_limit")

SURROGATE = "\ud800"


@pytest.fixture
def filled(engine: Callable[..., Engine]) -> Engine:
    """An engine with three subscriptions to every event."""
    filled = engine()
    filled.add_many({"id": name, "gateway_id": "g"} for name in "abc")
    return filled


def failing() -> Iterator[dict[str, Any]]:
    """A generator that fails after its first subscription."""
    yield {"id": "x"}
    raise RuntimeError("the source went away")


@pytest.mark.parametrize("name", ["add_many", "apply"])
def test_a_source_that_fails_changes_nothing(filled: Engine, name: str) -> None:
    with pytest.raises(RuntimeError, match="the source went away"):
        getattr(filled, name)(failing())
    assert list(filled) == ["a", "b", "c"]
    filled.add({"id": "x"})


@pytest.mark.parametrize("name", ["add_many", "apply", "match_batch"])
@pytest.mark.parametrize("one", ["{}", b"{}", {"id": "x"}, Subscription(id="x")], ids=["str", "bytes", "dict", "Subscription"])
def test_one_is_not_taken_for_several(filled: Engine, name: str, one: Any) -> None:
    with pytest.raises(TypeError, match="several"):
        getattr(filled, name)(one)
    assert list(filled) == ["a", "b", "c"]


def test_a_source_may_change_the_engine_that_reads_it(filled: Engine) -> None:
    def source() -> Iterator[Subscription]:
        for subscription in filled.subscriptions():
            filled.remove(subscription.id)
            yield subscription

    assert filled.add_many(source()).added == ("a", "b", "c")
    assert filled.apply(filled.subscriptions()).unchanged == ("a", "b", "c")


def test_a_source_may_add_what_it_yields(filled: Engine) -> None:
    def source() -> Iterator[dict[str, str]]:
        filled.add({"id": "x"})
        yield {"id": "x"}

    with pytest.raises(BulkSubscriptionError) as raised:
        filled.add_many(source())
    assert isinstance(raised.value.errors[0], DuplicateSubscriptionError)
    assert list(filled) == ["a", "b", "c", "x"]


def test_an_engine_may_change_while_it_is_iterated(filled: Engine) -> None:
    for name in filled:
        filled.remove(name)
        filled.add({"id": name * 2})
    assert list(filled) == ["aa", "bb", "cc"]


def test_matches_do_not_change_while_they_are_iterated(filled: Engine) -> None:
    matches = filled.match(b"{}")
    seen = []
    for match in matches:
        filled.remove(match.subscription_id)
        seen.append(match.subscription_id)
    assert sorted(seen) == sorted(matches.ids()) == ["a", "b", "c"]
    assert not filled.match(b"{}")


def test_ids_that_look_alike_are_different(filled: Engine) -> None:
    names = ["é", "e\u0301", "\u212b", "Å", "ﬁ", "fi", " a", "a ", "A", "a\0", "1", "01", "x" * 100_000, "x" * 100_001]
    filled.add_many({"id": name} for name in names)
    assert len(filled) == 3 + len(names)
    assert sorted(filled.match_ids(b"{}")) == sorted(["a", "b", "c", *names])
    for name in names:
        assert filled.remove(name).removed == (name,)


@pytest.mark.parametrize("name", ["x", 5, None, SURROGATE], ids=["str", "int", "None", "surrogate"])
def test_an_id_that_is_not_held_is_told(filled: Engine, name: Any) -> None:
    assert name not in filled
    assert filled.get(name) is None
    assert not filled.remove(name)
    assert not filled.remove_many(ids=[name])
    for ask in (filled.plan, lambda name: filled.explain(b"{}", name)):
        with pytest.raises(UnknownSubscriptionError):
            ask(name)


@pytest.mark.parametrize("criterion", ["gateway_id", "tenant", "collection"])
@pytest.mark.parametrize("value", ["x", "\0", SURROGATE])
def test_a_criterion_that_nothing_meets_selects_nothing(filled: Engine, criterion: str, value: str) -> None:
    assert filled.subscriptions(**{criterion: value}) == []
    assert not filled.remove_many(**{criterion: value})
    assert len(filled) == 3


MATCHING: list[Callable[..., Any]] = [
    Engine.match,
    Engine.match_ids,
    Engine.match_count,
    Engine.matches_any,
    lambda engine, event, *names: engine.match(event, *names),
    lambda engine, event, *names: engine.match_ids(event, *names),
    lambda engine, event, *names: engine.match_count(event, *names),
    lambda engine, event, *names: engine.matches_any(event, *names),
    lambda engine, event, *names: engine.match_batch([event], *names),
    lambda engine, event, *names: list(engine.match_jsonl(event, *names)),
]


@pytest.mark.parametrize("match", MATCHING)
def test_names_that_no_event_can_have_are_told(filled: Engine, match: Callable[..., Any]) -> None:
    for wrong in (5, b"t", ["t"], object()):
        for names in ((wrong, None), (None, wrong)):
            with pytest.raises(TypeError, match="is a string"):
                match(filled, b"{}", *names)
    for names in ((SURROGATE, None), (None, SURROGATE)):
        with pytest.raises(EventError, match="surrogate"):
            match(filled, b"{}", *names)


@pytest.mark.parametrize(
    "options",
    [
        {"layout": 5},
        {"format": 5},
        {"format": "nope"},
        {"format": "debezium", "layout": {}},
        {"layout": {"data": 5}},
        {"layout": {"preset": []}},
        {"layout": {"unknown_member": "/x"}},
        {"layout": {"data": "/x" * 65}},
        {"layout": {"before": "/data", "data": "/data/x"}},
        {"default_tenant": 5},
        {"default_tenant": ""},
        {"default_tenant": "*"},
        {"default_tenant": SURROGATE},
        {"validation": "some"},
        {"validation": []},
        {"limits": 5},
        {"limits": {"max_depth": "3"}},
        {"soft_delete": 5},
        {"soft_delete": ""},
        {"soft_delete": "a..b"},
        {"soft_delete": "a" * 5000},
        {"cache_size": 0},
        {"cache_size": "many"},
        {"default": 5},
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_told_with_its_place(engine: Callable[..., Engine], options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        engine(**options)
    assert str(raised.value).isprintable() or SURROGATE in str(options)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "limits",
    [{"max_depth": 0}, {"max_depth": "x"}, {"max_event_bytes": -1}, {"max_cel_depth": 65}, {"max_conjunctions": True}],
    ids=str,
)
def test_a_limit_that_cannot_be_is_told_with_its_place(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        Limits(**limits)
    assert raised.value.place == f"limits.{next(iter(limits))}"


def test_a_default_that_fails_or_never_ends_is_a_bad_event(engine: Callable[..., Engine]) -> None:
    def fail(value: object) -> Any:
        raise ZeroDivisionError

    event = {"data": {"a": object()}}
    for default, code in ((fail, "bad_value"), (lambda value: value, "too_deep"), (lambda value: [value], "too_deep")):
        with pytest.raises(EventError) as raised:
            engine(default=default).match(event)
        assert raised.value.code == code
        bad, good = engine(default=default).match_batch([event, {}])
        assert isinstance(bad, EventError)
        assert not isinstance(good, EventError)


def test_a_batch_of_anything_is_answered_in_its_places(filled: Engine) -> None:
    results = filled.match_batch([None, b"{}", 5, "{}", object(), {}, b"", [], SURROGATE])
    ignored = [None if isinstance(result, EventError) else result.ignored for result in results]
    assert [isinstance(result, EventError) for result in results] == [False, False, True, False, True, False, False, True, True]
    assert ignored == [Ignored.NULL, None, None, None, None, None, Ignored.EMPTY, None, None]
    assert [result.index for result in results if isinstance(result, EventError)] == [2, 4, 7, 8]


def test_threads_that_add_the_same_id_all_but_one_are_told(engine: Callable[..., Engine]) -> None:
    shared = engine()
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def add() -> None:
        barrier.wait()
        for number in range(50):
            try:
                shared.add({"id": f"s{number}"})
                outcomes.append("added")
            except DuplicateSubscriptionError:
                outcomes.append("told")

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("added"), outcomes.count("told")) == (50, 350)
    assert len(shared) == shared.match_count(b"{}") == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_an_engine_works_on_in_a_forked_child(filled: Engine) -> None:
    filled.match_ids(b"{}")
    child = os.fork()
    if child == 0:
        # Nothing of pytest must run here.
        good = False
        try:
            filled.add({"id": "child"})
            good = sorted(filled.match_ids(b"{}")) == ["a", "b", "c", "child"] and bool(filled.remove("a"))
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(filled.match_ids(b"{}")) == ["a", "b", "c"]


def nested(depth: int) -> dict[str, Any]:
    """An object in an object, *depth* times."""
    return reduce(lambda inner, _: {"a": inner}, range(depth), {"a": [1]})


@pytest.mark.parametrize("depth", [10, 500])
def test_an_engine_with_deep_parts_pickles(filled: Engine, depth: int) -> None:
    filled.add(Subscription(id="pattern", pattern=nested(depth)))
    filled.add(Subscription(id="labels", labels=nested(depth)))
    copy = pickle.loads(pickle.dumps(filled))
    assert list(copy) == list(filled)
    found = copy.get("labels")
    assert found is not None
    assert found.labels is not None


def test_what_does_not_pickle_is_told_by_pickle(engine: Callable[..., Engine]) -> None:
    broken = engine(default=partial(str, threading.Lock()))
    broken.add({"id": "s"})
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(broken)
    assert broken.match_ids(b"{}") == ["s"]


def test_a_broken_pickle_is_told() -> None:
    errors: list[StreamerError] = [
        BulkSubscriptionError([DuplicateSubscriptionError("twice", subscription_id="s", index=3)]),
        UnknownSubscriptionError(SURROGATE),
    ]
    for error in errors:
        assert repr(pickle.loads(pickle.dumps(error))) == repr(error)


@pytest.mark.parametrize("key", [5, b"a", ["a"]], ids=str)
def test_a_routing_key_is_a_string(key: Any, backend: str) -> None:
    with pytest.raises(TypeError, match="routing key"):
        TopicMatcher[str]().match(key)


def test_wrong_patterns_are_told_by_quamina(backend: str) -> None:
    quamina = Quamina[str]()
    for pattern in (None, 5, b"\xff", "{", "[]", '{"a":[' + "[" * 100_000, nested(100_000), SURROGATE):
        with pytest.raises(StreamerError):
            quamina.add_pattern("x", pattern)  # type: ignore[arg-type]
    assert len(quamina) == 0
    with pytest.raises(TypeError, match="hashable"):
        quamina.add_pattern([], '{"a":[1]}')  # type: ignore[type-var]
    for event in (None, 5, b"\xff", "{", b"[" * 100_000):
        with pytest.raises(EventError):
            quamina.matches_for_event(event)
