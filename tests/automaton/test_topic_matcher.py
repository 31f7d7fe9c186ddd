"""`TopicMatcher` and the reference of topics: RabbitMQ's rules, and that the two agree."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.automaton import TopicMatcher
from streamer.automaton.reference_topics import TopicTrie
from streamer.errors import SubscriptionError
from streamer.model import TopicDialect
from streamer.reference.topics import topic_matches
from streamer.subscriptions.topics import parse_topic

pytestmark = pytest.mark.usefixtures("backend")

WORDS = st.sampled_from(["", "a", "b", "*", "#", "a*"])
PATTERNS = st.lists(WORDS, max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["", "a", "b", "*", "#", "a*"]), max_size=5).map(".".join)


def plain(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """The rules, by recursion."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(plain(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and plain(pattern[1:], words[1:])


@given(st.lists(PATTERNS, max_size=6), KEYS)
def test_the_matcher_the_reference_and_the_rules_agree(patterns: list[str], key: str) -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    for pattern in patterns:
        matcher.bind(pattern, pattern)
    words = tuple(key.split(".")) if key else ()
    expected = {pattern for pattern in patterns if plain(tuple(pattern.split(".")) if pattern else (), words)}
    assert {pattern for pattern in patterns if topic_matches(parse_topic(pattern), key)} == expected
    found = matcher.match(key)
    assert set(found) == expected
    assert len(found) == len(expected)


@given(st.lists(st.tuples(PATTERNS, st.sampled_from("xy"), st.booleans()), max_size=15), KEYS)
def test_any_sequence_of_changes_leaves_what_a_plain_set_would_hold(changes: list[tuple[str, str, bool]], key: str) -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    bound: set[tuple[str, str]] = set()
    for pattern, x, bind in changes:
        if bind:
            assert matcher.bind(pattern, x) is ((pattern, x) not in bound)
            bound.add((pattern, x))
        else:
            assert matcher.unbind(pattern, x) is ((pattern, x) in bound)
            bound.discard((pattern, x))
    assert set(matcher.match(key)) == {x for pattern, x in bound if topic_matches(parse_topic(pattern), key)}
    for pattern, x in bound:
        matcher.unbind(pattern, x)
    bindings: Any = matcher._bindings
    assert not (bindings._root.below if isinstance(bindings, TopicTrie) else len(bindings.current)), "what is unbound is gone"


def test_a_name_bound_twice_is_reported_once() -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    assert matcher.bind("a.*", "x")
    assert not matcher.bind("a.*", "x")
    assert matcher.bind("a.#", "x")
    assert matcher.match("a.b") == ["x"]
    assert matcher.unbind("a.*", "x")
    assert matcher.match("a.b") == ["x"]
    assert not matcher.unbind("a.*", "x")
    assert not matcher.unbind("never.bound", "x")


def test_an_event_without_topic_matches_nothing() -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    matcher.bind("#", "x")
    assert matcher.match(None) == []
    assert matcher.match("") == ["x"]
    assert not topic_matches(parse_topic("#"), None)


@pytest.mark.parametrize("pattern", [None, 7, b"a", ["a"], "a.\ud800"])
def test_a_topic_pattern_is_a_well_formed_string(pattern: Any) -> None:
    with pytest.raises(SubscriptionError) as caught:
        TopicMatcher().bind(pattern, "x")
    assert caught.value.place == "topic"


def test_a_name_must_be_hashable() -> None:
    with pytest.raises(TypeError, match="hashable"):
        TopicMatcher().bind("a", [])


def test_many_hashes_and_a_long_key_are_compared_and_not_walked() -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    for at in range(200):
        matcher.bind(".".join(["#", "a"] * 500 + ["#", f"b{at}"]), f"b{at}")
    matcher.bind("a.*.#", "simple")
    key = ".".join(["a"] * 1023)
    if isinstance(matcher._bindings, TopicTrie):
        assert matcher._bindings._walk(key) is None
    assert matcher.match(key) == ["simple"]
    assert matcher.match(key + ".b7") == ["b7", "simple"]
    assert matcher.unbind("a.*.#", "simple")
    assert matcher.match(key + ".b7") == ["b7"]
    assert matcher.match(key + ".a.b7") == []


@pytest.mark.parametrize(("dialect", "separator", "every"), [("amqp", ".", "#"), ("mqtt", "/", "#"), ("nats", ".", ">")])
@pytest.mark.parametrize("words", [1_025, 100_000])
def test_a_topic_of_too_many_words_is_matched_by_no_pattern(
    dialect: TopicDialect, separator: str, every: str, words: int
) -> None:
    matcher: TopicMatcher[str] = TopicMatcher(topic_dialect=dialect)
    matcher.bind(every, "every")
    matcher.bind("a", "one")
    assert matcher.match(separator.join(["a"] * 1_024)) == ["every"]
    assert matcher.match(separator.join(["a"] * words)) == []
    assert matcher.match(separator.join(["\ud800"] * words)) == []
    with pytest.raises(SubscriptionError, match="at most 1024 are allowed"):
        matcher.bind(separator.join(["a"] * words), "long")


def test_threads_match_while_others_bind_and_unbind() -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    matcher.bind("a.#", "always")
    stop = threading.Event()
    wrong: list[list[str]] = []

    def match() -> None:
        while not stop.is_set():
            found = matcher.match("a.b.c")
            if "always" not in found:
                wrong.append(found)

    threads = [threading.Thread(target=match) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        matcher.bind(f"a.*.{'abc'[i % 3]}", "x")
        matcher.unbind(f"a.*.{'abc'[(i + 1) % 3]}", "x")
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
