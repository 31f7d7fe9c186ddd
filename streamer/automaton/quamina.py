"""Which patterns match an event? Quamina's API over this package's patterns (semantics.md section 5).

    add_pattern ── parse ── LivePatterns (memory, SQLite)          event ── Flattener ── leaves
                      │                                                                    │ values at the indexed paths
                      └──── index: (path, value) → patterns ───────────── candidates ◄─────┘
                                   the rest, always                            │ streamer.reference.patterns
                                                                            matches

A pattern is indexed under one field whose matchers are plain values only, outside of any `$or`: the one with the fewest. Such a
field is satisfied only by a leaf with one of these values, so a pattern that is not looked up cannot match.

Cost: a walk over the indexed paths of an event, a look-up for each value there, then an exact evaluation of each candidate.
Rejected: Quamina's automaton over all fields in sorted order; it belongs to the native core (ARCHITECTURE.md).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from streamer.automaton.flattener import Flattener, JsonFlattener, check_leaf
from streamer.automaton.names import check_name
from streamer.automaton.storage import LivePatterns, MemoryPatterns
from streamer.errors import ConfigError, PatternError
from streamer.locks import Lock
from streamer.model import BeyondFloat64, Dialect, Limits, Verdict
from streamer.reference.patterns import Leaf, evaluate_leaves, evaluate_pattern
from streamer.subscriptions.matchers import Equal, scalar_key
from streamer.subscriptions.patterns import Field, Pattern, parse_pattern

X = TypeVar("X", bound=Hashable)
Path = tuple[str, ...]
Key = tuple[Path, tuple[str, Any]]

JSON = "application/json"


class Quamina(Generic[X]):
    """Patterns under names, and which names an event matches.

    Safe to use from any number of threads, while others add and delete: writers hold a lock, a match holds it only to look its
    candidates up. A match sees what was added before it began, and may see what is added meanwhile.

    Args:
        dialect: `strict` is Quamina's, `eventbridge` that of EventBridge.
        media_type: of the events, where no flattener is given; only `application/json` is built in.
        flattener: reads events of another format.
        pattern_deletion: False refuses `delete_patterns`. It costs nothing here, so it is on unless switched off.
        pattern_storage: where the live patterns are kept; those that it already holds are loaded.
        limits: bounds on patterns and on JSON events.

    Raises:
        ConfigError: an unknown media type, or one beside a flattener.
        PatternError: a stored pattern that cannot be accepted.
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
        self._flattener: Flattener = JsonFlattener(limits) if flattener is None else flattener
        self._deletion = pattern_deletion
        self._patterns: _Patterns[X] = _Patterns(dialect, limits or Limits(), pattern_storage)

    def add_pattern(self, x: X, pattern: str | bytes | Mapping[str, Any]) -> None:
        """Add a pattern under the name *x*, which may have any number of them.

        Raises:
            PatternError: with the path in the pattern; nothing is added.
            TypeError: *x* is not hashable.
        """
        check_name(x)
        self._patterns.add(x, pattern)

    def delete_patterns(self, x: X) -> int:
        """Delete all patterns under the name *x*, and return how many there were; those of other names stay.

        Raises:
            ConfigError: it was made with `pattern_deletion=False`.
            TypeError: *x* is not hashable.
        """
        if not self._deletion:
            raise ConfigError("deletion is switched off: pattern_deletion=False")
        check_name(x)
        return self._patterns.delete(x)

    def matches_for_event(self, event: Any) -> list[X]:
        """Return the names with a pattern that matches the event, each once.

        Args:
            event: JSON as bytes, `str` or a `dict`; or what the flattener reads.

        Raises:
            EventError: it cannot be read.
        """
        if isinstance(self._flattener, JsonFlattener):
            return self._patterns.matches_of_value(self._flattener.read(event))
        return self._patterns.matches_of_leaves(self._flattener.flatten(event))

    def copy(self) -> Quamina[X]:
        """Return a matcher that shares the patterns, as Quamina's `Copy`: what is added to one is seen by both."""
        copied: Quamina[X] = Quamina.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self._patterns)


@dataclass(slots=True, eq=False)
class _Entry(Generic[X]):
    """A pattern in the index."""

    order: int
    x: X
    pattern: Pattern
    keys: list[Key] | None  # None: always a candidate


@dataclass(slots=True, eq=False)
class _Step:
    """A name in the trie of the indexed paths. The trie is not changed but made anew."""

    below: dict[str, _Step] = field(default_factory=dict)
    path: Path | None = None  # where an indexed path ends


@dataclass(slots=True, eq=False)
class _Index(Generic[X]):
    """The patterns, by name and by key. Made anew from the storage where a change of it was left half done."""

    order: Iterator[int] = field(default_factory=itertools.count)
    by_name: dict[X, dict[str, _Entry[X]]] = field(default_factory=dict)
    by_key: dict[Key, dict[_Entry[X], None]] = field(default_factory=dict)
    unkeyed: dict[_Entry[X], None] = field(default_factory=dict)
    paths: Counter[Path] = field(default_factory=Counter)
    trie: _Step | None = None  # None: to be made anew
    is_whole: bool = True

    def add(self, x: X, text: str, pattern: Pattern) -> None:
        entry = _Entry(next(self.order), x, pattern, _keys_of(pattern))
        self.by_name.setdefault(x, {})[text] = entry
        if entry.keys is None:
            self.unkeyed[entry] = None
            return
        for key in entry.keys:
            self.by_key.setdefault(key, {})[entry] = None
        self._count(entry.keys[0][0], +1)

    def delete(self, x: X) -> int:
        entries = self.by_name.pop(x, {})
        for entry in entries.values():
            if entry.keys is None:
                self.unkeyed.pop(entry, None)
                continue
            for key in entry.keys:
                self.by_key[key].pop(entry, None)
                if not self.by_key[key]:
                    del self.by_key[key]
            self._count(entry.keys[0][0], -1)
        return len(entries)

    def _count(self, path: Path, change: int) -> None:
        self.paths[path] += change
        if self.paths[path] == max(0, change):
            self.trie = None
        if not self.paths[path]:
            del self.paths[path]

    def indexed(self) -> _Step:
        trie = self.trie
        if trie is None:
            trie = _Step()
            for path in list(self.paths):
                step = trie
                for name in path:
                    step = step.below.setdefault(name, _Step())
                step.path = path
            self.trie = trie
        return trie


class _Patterns(Generic[X]):
    """What the copies of one `Quamina` share.

    A change goes to the storage, then to the index. Where it does not get to its end (an interrupt, a fork beside it) or another
    comes in between (by a signal handler), the index is made anew.
    """

    def __init__(self, dialect: Dialect, limits: Limits, storage: LivePatterns | None) -> None:
        self._dialect = dialect
        self._limits = limits
        self._lock = Lock()
        self._storage: LivePatterns = MemoryPatterns() if storage is None else storage
        self._index: _Index[X] = self._load()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._whole().by_name.values()))

    def add(self, x: X, source: str | bytes | Mapping[str, Any]) -> None:
        pattern = self._parse(source)
        text = _as_text(source)
        with self._lock:
            index = self._whole()
            if text not in index.by_name.get(x, ()):
                self._store(index, lambda: self._storage.add(x, text))
                index.add(x, text, pattern)
                self._changed(index)

    def delete(self, x: X) -> int:
        with self._lock:
            index = self._whole()
            if x not in index.by_name:
                return 0
            self._store(index, lambda: self._storage.delete(x))
            deleted = index.delete(x)
            self._changed(index)
            return deleted

    def matches_of_value(self, raw: Mapping[str, Any]) -> list[X]:
        with self._lock:
            trie = self._whole().indexed()
        entries = self._candidates(_values_at(trie, raw))
        return _names(entry for entry in entries if evaluate_pattern(entry.pattern, raw) is Verdict.TRUE)

    def matches_of_leaves(self, leaves: Iterable[Leaf | tuple[Any, ...]]) -> list[X]:
        by_path: dict[Path, list[Leaf]] = {}
        for leaf in map(check_leaf, leaves):
            by_path.setdefault(leaf.path, []).append(leaf)
        entries = self._candidates((path, leaf.value) for path, at_path in by_path.items() for leaf in at_path)
        return _names(entry for entry in entries if evaluate_leaves(entry.pattern, by_path))

    def _parse(self, source: str | bytes | Mapping[str, Any]) -> Pattern:
        return parse_pattern(source, dialect=self._dialect, limits=self._limits)

    def _load(self) -> _Index[X]:
        index: _Index[X] = _Index()
        for x, text in self._storage:
            index.add(x, text, self._parse(text))
        return index

    def _whole(self) -> _Index[X]:
        while not (index := self._index).is_whole:
            made = self._load()
            if self._index is index:
                self._index = made
        return index

    def _store(self, index: _Index[X], act: Callable[[], object]) -> None:
        index.is_whole = False
        try:
            act()
        except Exception:
            # Refused; an interrupt may come after it was done.
            index.is_whole = True
            raise

    def _changed(self, index: _Index[X]) -> None:
        # Another that was made meanwhile may or may not have seen the change.
        self._index.is_whole = self._index is index

    def _candidates(self, values: Iterable[tuple[Path, Any]]) -> list[_Entry[X]]:
        keys = {(path, scalar_key(value)) for path, value in values if not isinstance(value, BeyondFloat64)}
        with self._lock:
            index = self._whole()
            found = index.unkeyed.copy()
            for key in keys:
                found.update(index.by_key.get(key, ()))
        return sorted(found, key=lambda entry: entry.order)


def _keys_of(pattern: Pattern) -> list[Key] | None:
    """Return what the pattern is looked up by: one of these values must stand at the path; None where there is no such field."""
    keyed = [
        part
        for part in pattern.root.fields
        if isinstance(part, Field) and part.matchers and all(isinstance(matcher, Equal) for matcher in part.matchers)
    ]
    if not keyed:
        return None
    best = min(keyed, key=lambda part: len(part.matchers))
    return list(dict.fromkeys((best.path, matcher.key) for matcher in best.matchers if isinstance(matcher, Equal)))


def _values_at(trie: _Step, raw: Any) -> Iterator[tuple[Path, Any]]:
    pending = [(trie, raw)]
    while pending:
        step, value = pending.pop()
        if isinstance(value, Mapping):
            pending.extend((below, value[name]) for name, below in step.below.items() if name in value)
        elif isinstance(value, list | tuple):
            pending.extend((step, item) for item in value)
        elif step.path is not None:
            yield step.path, value


def _names(entries: Iterable[_Entry[X]]) -> list[X]:
    return list(dict.fromkeys(entry.x for entry in entries))


def _as_text(source: str | bytes | Mapping[str, Any]) -> str:
    if isinstance(source, str):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source).decode()
    return json.dumps(source, ensure_ascii=False, default=_json_value)


def _json_value(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise PatternError(f"give a pattern that holds {value} as JSON text")
