"""Find the patterns that match an event: Quamina's API for this package's patterns (semantics.md section 5).

    add_pattern ── Live ──┬─ index: native core, or reference      event ── JSON, or the leaves of a Flattener ── index ── names
                          └─ LivePatterns (memory, SQLite)

On the native backend the index is an engine of the core (streamer/automaton/native.py), so a match costs what `Engine.match_ids`
costs. On the reference it is plain Python (streamer/automaton/reference_patterns.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from streamer import _backend
from streamer.automaton.flattener import Flattener, JsonFlattener
from streamer.automaton.live import Index, Live
from streamer.automaton.names import check_name
from streamer.automaton.reference_patterns import PatternIndex
from streamer.automaton.storage import LivePatterns, MemoryPatterns
from streamer.errors import ConfigError, PatternError
from streamer.model import Dialect, Limits
from streamer.subscriptions.patterns import parse_pattern

X = TypeVar("X", bound=Hashable)

JSON = "application/json"


class Quamina(Generic[X]):
    """Find the names of the patterns that match an event.

    Thread-safe: any number of threads can match while others add and delete. A change uses a lock. On the native backend, a match
    uses none, and waits only during a change. A match finds every pattern that was added before it began, and may find later
    ones.

    If an event exceeds the budget of a pattern or a regexp, the pattern does not match that event, as in an engine (semantics.md
    3.23, 5.10); this class does not count such cases.

    Args:
        dialect: `strict` is Quamina's, `eventbridge` that of EventBridge.
        media_type: the media type of the events, if there is no flattener; only `application/json` is built in.
        flattener: reads events of another format.
        pattern_deletion: False refuses `delete_patterns`. Deletion is free, so it is on by default.
        pattern_storage: stores the live patterns; the patterns in it are loaded.
        limits: the limits of patterns and of JSON events; `max_subscription_bytes` is the limit of the JSON text of a pattern,
            and `allow_unindexed` has no effect here.

    Raises:
        ConfigError: the media type is unknown, or set together with a flattener.
        PatternError: a stored pattern is invalid.
    """

    def __init__(
        self,
        dialect: Dialect = "strict",
        media_type: str | None = None,
        flattener: Flattener | None = None,
        pattern_deletion: bool = True,
        pattern_storage: LivePatterns | None = None,
        limits: Limits | None = None,
    ) -> None:
        if dialect not in ("strict", "eventbridge"):
            raise ConfigError(f"dialect must be 'strict' or 'eventbridge', not {dialect!r}")
        if flattener is not None and media_type is not None:
            raise ConfigError("give either a media type or a flattener")
        if media_type not in (None, JSON):
            raise ConfigError(f"media type {media_type!r} is not built in, only {JSON!r}; give a flattener")
        self._deletion = pattern_deletion
        self._limits = limits or Limits()
        self._check = partial(parse_pattern, dialect=dialect, limits=self._limits)
        self._flattener = flattener
        events = self._limits
        if type(flattener) is JsonFlattener:
            self._flattener, events = None, flattener.limits
        storage = MemoryPatterns() if pattern_storage is None else pattern_storage
        self._live: Live[X, Index[X]] = Live(partial(_make_index, dialect, self._limits, events), storage)

    def add_pattern(self, x: X, pattern: str | bytes | Mapping[str, Any]) -> None:
        """Add a pattern under the name *x*. A name can have any number of patterns.

        Raises:
            PatternError: the pattern is invalid; the error has the path in it, and the matcher is unchanged.
            TypeError: *x* is not hashable.
        """
        check_name(x)
        text = _as_text(pattern, self._check)
        size, most = len(text.encode()), self._limits.max_subscription_bytes
        if size > most:
            raise PatternError(f"{size} bytes of JSON text; at most {most} are allowed (limits.max_subscription_bytes)")
        self._live.add(x, text)

    def delete_patterns(self, x: X) -> int:
        """Delete all patterns under the name *x*, and return their number; patterns of other names stay.

        Raises:
            ConfigError: the matcher was made with `pattern_deletion=False`.
            TypeError: *x* is not hashable.
        """
        if not self._deletion:
            raise ConfigError("deletion is switched off: pattern_deletion=False")
        check_name(x)
        return self._live.delete(x)

    def matches_for_event(self, event: Any) -> list[X]:
        """Return the names with a pattern that matches the event, each once, in the order in which their patterns were added.

        Args:
            event: JSON as bytes, `str` or a `dict`; or the input of the flattener.

        Raises:
            EventError: the event cannot be read.
        """
        index = self._live.current
        if not index.is_whole:
            index = self._live.whole()
        if self._flattener is None:
            return index.match_event(event)
        return index.match_fields(self._flattener.flatten(event))

    def copy(self) -> Quamina[X]:
        """Return a matcher that shares the patterns, like Quamina's `Copy`: both find patterns that are added to one."""
        copied: Quamina[X] = Quamina.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self._live.whole())


def _make_index(dialect: Dialect, limits: Limits, events: Limits) -> Index[Any]:
    # Imported on use, so that a test may change the backend, and because the native core may be missing.
    if _backend.BACKEND == "native":
        from streamer.automaton.native import NativeIndex

        return NativeIndex(dialect, limits, events)
    return PatternIndex(dialect, limits, events)


def _as_text(source: str | bytes | Mapping[str, Any], check: Callable[[Any], object]) -> str:
    """Return a pattern as text for the storage. Raises PatternError."""
    try:
        if isinstance(source, str):
            source.encode()
            return source
        if isinstance(source, bytes | bytearray | memoryview):
            return bytes(source).decode()
    except UnicodeError:
        pass
    # Check mappings, and texts that are not valid Unicode, here. The index checks all other texts.
    check(source)
    return json.dumps(source, ensure_ascii=False, default=_json_value)


def _json_value(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise PatternError(f"pass a pattern that contains {value} as JSON text")
