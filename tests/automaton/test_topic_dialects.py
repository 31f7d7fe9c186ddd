"""The dialects of topics against the protocols' own rules: every short pattern on every short topic, on both backends.

The oracles are written from MQTT 5 (section 4.7), the documentation of NATS with its ADR-6, and AMQP 0-9-1 as RabbitMQ has it.
They know nothing of Streamer: a pattern and a topic are texts there.
"""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import Engine
from streamer.automaton import TopicMatcher
from streamer.errors import ConfigError, SubscriptionError
from streamer.model import TopicDialect
from streamer.reference.topics import topic_matches
from streamer.subscriptions.topics import parse_topic

pytestmark = pytest.mark.usefixtures("backend")

DIALECTS: tuple[TopicDialect, ...] = get_args(TopicDialect)


def amqp_is(text: str, *, pattern: bool) -> bool:
    return True


def amqp(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return amqp(pattern[1:], words) or (bool(words) and amqp(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and amqp(pattern[1:], words[1:])


def mqtt_is(text: str, *, pattern: bool) -> bool:
    """[MQTT-4.7.1-1] to [MQTT-4.7.3-2]; a filter that begins with `$share/` is a shared subscription (4.8.2)."""
    if not text or "\0" in text:
        return False
    if not pattern:
        return "+" not in text and "#" not in text
    *levels, last = text.split("/")
    plain = [level for level in levels if level != "+"] + [last] * (last not in ("+", "#"))
    return not any("+" in level or "#" in level for level in plain) and not text.startswith("$share/")


def mqtt(pattern: list[str], levels: list[str]) -> bool:
    """A `#` is the parent and any number of levels below it."""
    if pattern == ["#"]:
        return True
    if not pattern or not levels:
        return not pattern and not levels
    return pattern[0] in ("+", levels[0]) and mqtt(pattern[1:], levels[1:])


def nats_is(text: str, *, pattern: bool) -> bool:
    """A token is any characters but white space; `*` and `>` are wildcards as whole tokens alone, as nats-server has it."""
    tokens = text.split(".")
    if pattern:
        tokens = [token for token in tokens[:-1] if token != "*"] + [tokens[-1]] * (tokens[-1] not in ("*", ">"))
    return all(token and token not in ("*", ">") and not set(token) & set(" \t\n\f\r\0") for token in tokens)


def nats(pattern: list[str], tokens: list[str]) -> bool:
    if pattern == [">"]:
        return bool(tokens)
    if not pattern or not tokens:
        return not pattern and not tokens
    return pattern[0] in ("*", tokens[0]) and nats(pattern[1:], tokens[1:])


def split(text: str, dialect: TopicDialect) -> list[str]:
    if dialect == "amqp" and not text:
        return []
    return text.split("/" if dialect == "mqtt" else ".")


IS: dict[TopicDialect, Callable[..., bool]] = {"amqp": amqp_is, "mqtt": mqtt_is, "nats": nats_is}
WANTS: dict[TopicDialect, Callable[[list[str], list[str]], bool]] = {"amqp": amqp, "mqtt": mqtt, "nats": nats}


def wanted(pattern: str, topic: str, dialect: TopicDialect) -> bool:
    """Whether a pattern, which is one, matches a topic."""
    if not IS[dialect](topic, pattern=False):
        return False
    # [MQTT-4.7.2-1]
    if dialect == "mqtt" and topic[0] == "$" and pattern[0] in "+#":
        return False
    return WANTS[dialect](split(pattern, dialect), split(topic, dialect))


def texts(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        for letters in product(alphabet, repeat=length):
            yield "".join(letters)


#: Letters of patterns and of topics, and how many of them at most.
ALPHABETS: dict[TopicDialect, tuple[tuple[str, int], tuple[str, int]]] = {
    "amqp": (("a.*#", 4), ("ab.*#", 4)),
    "mqtt": (("a/+#$", 4), ("a/+$b", 4)),
    "nats": (("a.*>", 6), ("ab.>", 5)),
}


@pytest.mark.parametrize("dialect", ["amqp", "mqtt", pytest.param("nats", marks=pytest.mark.integration)])
def test_every_short_pattern_wants_of_every_short_topic_what_the_protocol_says(dialect: TopicDialect) -> None:
    of_patterns, of_topics = ALPHABETS[dialect]
    matcher: TopicMatcher[str] = TopicMatcher(topic_dialect=dialect)
    patterns = []
    for pattern in texts(*of_patterns):
        if IS[dialect](pattern, pattern=True):
            matcher.bind(pattern, pattern)
            patterns.append(pattern)
            continue
        with pytest.raises(SubscriptionError, match="expected") as caught:
            matcher.bind(pattern, pattern)
        assert caught.value.place == "topic"
    found = 0
    for topic in texts(*of_topics):
        # Check once whether the text is a topic, not for each of thousands of patterns.
        asked = patterns if IS[dialect](topic, pattern=False) else []
        expected = {pattern for pattern in asked if wanted(pattern, topic, dialect)}
        assert set(matcher.match(topic)) == expected, topic
        found += len(expected)
    assert len(patterns) > 50
    assert found > 400


def test_all_dialects_live_in_one_engine(engine: Any, backend: str) -> None:
    """Each subscription wants of each topic what its own dialect says, found by an index and by its filters."""
    e = engine()
    held: dict[str, tuple[str, TopicDialect]] = {}
    for dialect in DIALECTS:
        for pattern in texts("a./+*#>$", 3):
            if IS[dialect](pattern, pattern=True) and (backend == "native" or random.Random(pattern).random() < 0.3):
                held[f"{dialect} {pattern}"] = (pattern, dialect)
    added = e.add_many({"id": name, "topic": pattern, "topic_dialect": dialect} for name, (pattern, dialect) in held.items())
    assert len(added.added) == len(held)
    for topic in texts("a./+*$", 3):
        expected = {name for name, (pattern, dialect) in held.items() if wanted(pattern, topic, dialect)}
        assert set(e.match_ids(json.dumps({"topic": topic}).encode())) == expected, topic


WORDS = st.sampled_from(["", "a", "b", "ab", "$a", "*", "+", "#", ">", "a*", "é"])


@st.composite
def asked(draw: st.DrawFn) -> tuple[TopicDialect, list[str], str]:
    """A dialect, patterns of it, and a text that may be a topic."""
    dialect = draw(st.sampled_from(DIALECTS))
    texts = st.lists(WORDS, max_size=6).map(("/" if dialect == "mqtt" else ".").join)
    patterns = draw(st.lists(texts, max_size=8))
    return dialect, [pattern for pattern in patterns if IS[dialect](pattern, pattern=True)], draw(texts)


@given(asked())
def test_the_matcher_the_reference_and_the_protocols_agree(given: tuple[TopicDialect, list[str], str]) -> None:
    dialect, patterns, topic = given
    matcher: TopicMatcher[str] = TopicMatcher(topic_dialect=dialect)
    for pattern in patterns:
        matcher.bind(pattern, pattern)
    expected = {pattern for pattern in patterns if wanted(pattern, topic, dialect)}
    assert {pattern for pattern in patterns if topic_matches(parse_topic(pattern, dialect), topic)} == expected
    assert set(matcher.match(topic)) == expected
    for pattern in patterns:
        assert str(parse_topic(pattern, dialect)) == (pattern if dialect == "amqp" else f"{pattern} ({dialect})")
        matcher.unbind(pattern, pattern)
    assert matcher.match(topic) == []


# Options


def test_an_unknown_dialect_is_refused_with_those_there_are(engine: Any) -> None:
    for make in (lambda: engine(topic_dialect="kafka"), lambda: TopicMatcher(topic_dialect="kafka")):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="expected 'amqp', 'mqtt' or 'nats', not 'kafka'") as caught:
            make()
        assert caught.value.place == "topic_dialect"


def test_snapshots_and_pickles_keep_the_dialects(engine: Any, tmp_path: Path) -> None:
    e = engine(topic_dialect="mqtt")
    e.add_many([{"id": "engine's", "topic": "a/#"}, {"id": "own", "topic": "a.>", "topic_dialect": "nats"}])
    e.save(tmp_path / "held.snap")
    for kept in (e, pickle.loads(pickle.dumps(e)), Engine.load(tmp_path / "held.snap")):
        assert kept.match_ids(b'{"topic":"a/b"}') == ["engine's"]
        assert kept.match_ids(b'{"topic":"a.b"}') == ["own"]
        assert [each.topic_dialect for each in kept.subscriptions()] == [None, "nats"]
        assert kept.add({"id": "new", "topic": "+"}) is not None
        assert set(kept.match_ids(b'{"topic":"a.b"}')) == {"own", "new"}
        kept.remove("new")
    with pytest.raises(ConfigError, match="topic_dialect"):
        Engine.load(tmp_path / "held.snap", topic_dialect="nats")


def test_a_snapshot_without_a_dialect_is_amqps(engine: Any, tmp_path: Path) -> None:
    """So are those that earlier versions wrote, and they read this one."""
    e = engine()
    e.add({"id": "s", "topic": "a.#"})
    e.save(tmp_path / "held.snap")
    assert b"topic_dialect" not in (tmp_path / "held.snap").read_bytes()
    assert Engine.load(tmp_path / "held.snap").match_ids(b'{"topic":"a"}') == ["s"]


def test_plan_and_explain_name_the_dialect(engine: Any) -> None:
    e = engine(topic_dialect="mqtt")
    e.add({"id": "s", "topic": "sport/+/#"})
    assert "like sport/+/# (mqtt)" in str(e.plan("s"))
    explained = str(e.explain(b'{"topic":"sport"}', "s"))
    assert "sport/+/# (mqtt)" in explained
    assert [finding.code for finding in e.lint()] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_printed_as_cel_is_true_of_the_same_topics(engine: Any, dialect: TopicDialect) -> None:
    (letters_of_patterns, _), (letters_of_topics, _) = ALPHABETS[dialect]
    e = engine(topic_dialect=dialect)
    for pattern in texts(letters_of_patterns, 3):
        if IS[dialect](pattern, pattern=True) and pattern.strip("#."):
            e.add({"id": pattern, "topic": pattern})
    held = list(e.subscriptions())
    printed = engine()
    for each in held:
        printed.add({"id": each.id, "cel": each.to_cel(topic_dialect=dialect)})
    for topic in texts(letters_of_topics, 3):
        event = json.dumps({"topic": topic}).encode()
        found = set(printed.match_ids(event))
        # In CEL a topic that is missing is the empty text.
        assert found == {name for name in e.match_ids(event) if topic or name}, topic


# Hostile


@pytest.mark.parametrize(("dialect", "one", "many"), [("amqp", "*", "#"), ("mqtt", "+", "#"), ("nats", "*", ">")])
def test_long_topics_and_patterns_of_wildcards_take_no_time(engine: Any, dialect: TopicDialect, one: str, many: str) -> None:
    separator = "/" if dialect == "mqtt" else "."
    e = engine(topic_dialect=dialect)
    e.add_many({"id": str(n), "topic": separator.join([one] * n + [many])} for n in range(200))
    e.add({"id": "most", "topic": separator.join([one] * 1023 + [many])})
    began = time.perf_counter()
    for topic in ("a" * 1_000_000, separator.join(["a"] * 100_000), separator.join(["a"] * 1_024), "\0" * 100_000):
        found = e.match_ids(json.dumps({"topic": topic}).encode())
        if separator not in topic:
            is_topic = "\0" not in topic or dialect == "amqp"
            assert set(found) == (set() if not is_topic else {"0"} if dialect == "nats" else {"0", "1"})
        elif len(topic) > 3_000:
            assert found == []
        else:
            assert len(found) == 201
    assert time.perf_counter() - began < 10
