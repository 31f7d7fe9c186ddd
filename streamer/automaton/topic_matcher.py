"""Find the topic patterns that match a topic (semantics.md section 6).

On the native backend, a `TopicMatcher` is a facade for the core, with the same index of topics as for subscriptions; on the
reference, it is a trie of words in Python.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar, get_args

from streamer import _backend
from streamer.automaton.names import check_name
from streamer.automaton.reference_topics import TopicTrie
from streamer.errors import ConfigError
from streamer.model import TopicDialect
from streamer.subscriptions.topics import MAX_WORDS, count_words, parse_topic

X = TypeVar("X", bound=Hashable)


class TopicMatcher(Generic[X]):
    """Find the names that are bound to topic patterns, like the queues of a topic exchange in RabbitMQ, or clients of a broker.

    Thread-safe. On the native backend, the patterns for one key have the same budget as for an event (semantics.md 6.10): a
    pattern beyond it does not match.

    Args:
        topic_dialect: the dialect of the patterns: `amqp`, `mqtt` or `nats`.

    Raises:
        ConfigError: the dialect is unknown.
    """

    def __init__(self, *, topic_dialect: TopicDialect = "amqp") -> None:
        if topic_dialect not in get_args(TopicDialect):
            raise ConfigError(f"expected 'amqp', 'mqtt' or 'nats', not {topic_dialect!r}", place="topic_dialect")
        self._dialect: TopicDialect = topic_dialect
        self._bindings: _Bindings[X] = _make_bindings(topic_dialect)

    def bind(self, pattern: str, x: X) -> bool:
        """Bind *x* to a topic pattern, and return whether the binding is new.

        Raises:
            SubscriptionError: *pattern* is not a topic pattern.
            TypeError: *x* is not hashable.
        """
        parse_topic(pattern, self._dialect)
        check_name(x)
        return self._bindings.add(x, pattern)

    def unbind(self, pattern: str, x: X) -> bool:
        """Unbind *x* from a topic pattern, and return whether it was bound. Other bindings of *x* stay."""
        parse_topic(pattern, self._dialect)
        check_name(x)
        return self._bindings.discard(x, pattern)

    def match(self, key: str | None) -> list[X]:
        """Return the names with a pattern that matches the topic (in AMQP: the routing key), each once.

        The result is empty for None, an event without topic, for a text that is not a topic in the dialect, and for a topic of
        more than 1,024 words (levels, tokens; semantics.md 6.8).

        Raises:
            TypeError: *key* is not a string.
        """
        if key is None:
            return []
        if not isinstance(key, str):
            raise TypeError(f"a routing key is a string, not {type(key).__name__}")
        # A key with more words has at least this many separators, so a shorter key need not be counted.
        if len(key) >= MAX_WORDS and count_words(key, self._dialect) > MAX_WORDS:
            return []
        return self._bindings.match_topic(key)


class _Bindings(Protocol[X]):
    def add(self, x: X, pattern: str) -> bool: ...
    def discard(self, x: X, pattern: str) -> bool: ...
    def match_topic(self, key: str) -> list[X]: ...


def _make_bindings(dialect: TopicDialect) -> _Bindings[Any]:
    # Imported on use, so that a test may change the backend, and because the native core may be missing.
    if _backend.BACKEND == "native":
        from streamer.automaton.native import NativeTopics

        return NativeTopics(dialect)
    return TopicTrie(dialect)
