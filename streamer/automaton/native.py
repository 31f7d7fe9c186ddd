"""The index of the native backend: a `streamer._native.Matcher`, which is one engine for events without parts.

```
add     (name, text) ──► Matcher: parsed, indexed, under a number     match   event, leaves or key ──► names, straight from there
                              stores name → text → number
```
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, Generic, TypeVar, final

from streamer import _native
from streamer.automaton.flattener import JsonFlattener, Leaf, check_leaf
from streamer.automaton.live import Bindings
from streamer.model import BeyondFloat64, Dialect, Limits, TopicDialect
from streamer.reference.topics import is_in
from streamer.subscriptions.text import event_text
from streamer.subscriptions.topics import parse_topic

X = TypeVar("X", bound=Hashable)


@final
class Host:
    """The matcher's callbacks into Python, for unusual input and for error messages."""

    #: None, so that objects that JSON lacks are refused.
    default: Final = None

    def __init__(self, limits: Limits) -> None:
        self._json = JsonFlattener(limits)
        self._max_depth = limits.max_depth

    def encode(self, event: Any) -> bytes:
        """Return an event as JSON text. Raises EventError."""
        if isinstance(event, bytes | bytearray | memoryview):
            return bytes(event)
        return event_text(self._json.read(event), self._max_depth)

    def refuse(self, event: Any) -> None:
        """Raise EventError for an event without a value, which an engine would ignore."""
        self._json.read(event)

    def check(self, field: Any) -> Leaf:
        """Return a leaf of a flattener as a plain `Leaf`. Raises EventError."""
        leaf = check_leaf(field)
        return leaf._replace(arrays=tuple(map(tuple, leaf.arrays)))  # type: ignore[arg-type]

    def is_beyond_float(self, value: object) -> bool:
        """Return whether a value is a number outside of float64."""
        return isinstance(value, BeyondFloat64)

    def bare(self, _: bytes) -> None:
        """Ignore that an event has no type and document: events for patterns have neither."""

    def cel_error(self, *_: object) -> None:
        """Ignore an event that exceeded its budget: it does not match, and this class does not count it."""


@final
class _Entry(Generic[X]):
    """A name as it was first added, and the numbers of its texts."""

    __slots__ = ("numbers", "x")

    def __init__(self, x: X) -> None:
        self.x: Final = x
        self.numbers: dict[str, int] = {}


@final
class NativeIndex(Generic[X]):
    """See `streamer.automaton.live.Index`.

    Args:
        limits: the limits of patterns.
        events: the limits of events.
        topics: the dialect, if the texts are topic patterns.
    """

    def __init__(self, dialect: Dialect, limits: Limits, events: Limits, *, topics: TopicDialect | None = None) -> None:
        self.matcher: Final = _native.Matcher(
            Host(events),
            dialect=dialect,
            topic_dialect=topics or "amqp",
            max_depth=limits.max_depth,
            max_event_bytes=limits.max_event_bytes,
            max_conditions=limits.max_conditions,
            max_alternatives=limits.max_alternatives,
            max_pattern_states=limits.max_pattern_states,
            max_regexp_size=limits.max_regexp_size,
            max_conjunctions=limits.max_conjunctions,
            event_depth=events.max_depth,
            event_bytes=events.max_event_bytes,
        )
        self.is_whole = True
        self._topics = topics is not None
        self._entries: dict[X, _Entry[X]] = {}
        # The method of the core itself, so that no Python code runs between an event and its names.
        self.match_event = self.matcher.match_event
        self.match_fields = self.matcher.match_fields
        self.match_topic = self.matcher.match_topic

    def __len__(self) -> int:
        return len(self.matcher)

    def holds(self, x: X, text: str) -> bool:
        entry = self._entries.get(x)
        return entry is not None and text in entry.numbers

    def count(self, x: X) -> int:
        entry = self._entries.get(x)
        return 0 if entry is None else len(entry.numbers)

    def add(self, pairs: Iterable[tuple[X, str]]) -> None:
        # Use the first of equal names for all, so that the matcher can compare names by identity.
        names: dict[X, X] = {}
        new: dict[tuple[X, str], tuple[X, str]] = {}
        for x, text in pairs:
            if not self.holds(x, text):
                entry = self._entries.get(x)
                new.setdefault((x, text), (names.setdefault(x, x if entry is None else entry.x), text))
        numbers = self.matcher.add(list(new.values()), topics=self._topics)
        for (x, text), number in zip(new.values(), numbers, strict=True):
            entry = self._entries.get(x)
            if entry is None:
                entry = self._entries[x] = _Entry(x)
            entry.numbers[text] = number

    def discard(self, x: X, text: str) -> None:
        entry = self._entries.get(x)
        if entry is not None and text in entry.numbers:
            self.matcher.remove([entry.numbers.pop(text)])
            if not entry.numbers:
                del self._entries[x]

    def delete(self, x: X) -> None:
        if (entry := self._entries.pop(x, None)) is not None:
            self.matcher.remove(list(entry.numbers.values()))


@final
class NativeTopics(Bindings[X, NativeIndex[X]]):
    """Topic patterns, with the names that are bound to them."""

    def __init__(self, dialect: TopicDialect) -> None:
        super().__init__(lambda: NativeIndex("strict", Limits(), Limits(), topics=dialect))
        self._dialect: Final[TopicDialect] = dialect

    def match_topic(self, key: str) -> list[X]:
        """Return the names that are bound to a pattern that matches the key, each once."""
        index = self.current
        if not index.is_whole:
            index = self.whole()
        try:
            return index.match_topic(key)
        except UnicodeEncodeError:
            # The key has a lone surrogate, which the core cannot represent; only wildcards match it.
            bound = ((x, parse_topic(pattern, self._dialect)) for x, pattern in self.pairs())
            return list(dict.fromkeys(x for x, pattern in bound if is_in(pattern, key)))
