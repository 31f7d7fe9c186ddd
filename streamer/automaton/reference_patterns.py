"""The index of patterns of the reference backend.

A pattern is indexed under one field that has only plain values and is outside of any `$or`: the field with the fewest values.
Only a leaf with one of these values satisfies the field, so a pattern whose values are not in the event cannot match.

Cost: a walk over the indexed paths of an event, a look-up for each value there, then an exact evaluation of each candidate.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, final

from streamer.automaton.flattener import JsonFlattener, check_leaf
from streamer.locks import Lock
from streamer.model import BeyondFloat64, Dialect, Limits, Verdict
from streamer.reference.patterns import Leaf, evaluate_leaves, evaluate_pattern
from streamer.subscriptions.matchers import Equal, scalar_key
from streamer.subscriptions.patterns import Field, Pattern, parse_pattern

X = TypeVar("X", bound=Hashable)
Path = tuple[str, ...]
Key = tuple[Path, tuple[str, Any]]


@dataclass(slots=True, eq=False)
class _Entry(Generic[X]):
    """A pattern in the index."""

    order: int
    x: X
    pattern: Pattern
    keys: list[Key] | None  # None: always a candidate


@dataclass(slots=True, eq=False)
class _Step:
    """A name in the trie of the indexed paths. The trie is immutable: a change builds a new one."""

    below: dict[str, _Step] = field(default_factory=dict)
    path: Path | None = None  # the indexed path that ends here


@final
class PatternIndex(Generic[X]):
    """Patterns by name and by key; see `streamer.automaton.live.Index`.

    Args:
        limits: the limits of patterns.
        events: the limits of events.
    """

    def __init__(self, dialect: Dialect, limits: Limits, events: Limits) -> None:
        self.is_whole = True
        self._dialect: Final[Dialect] = dialect
        self._limits = limits
        self._json = JsonFlattener(events)
        self._lock = Lock()
        self._order = itertools.count()
        self._by_name: dict[X, dict[str, _Entry[X]]] = {}
        self._by_key: dict[Key, dict[_Entry[X], None]] = {}
        self._unkeyed: dict[_Entry[X], None] = {}
        self._paths: Counter[Path] = Counter()
        self._trie: _Step | None = None  # None: must be rebuilt

    def __len__(self) -> int:
        return sum(map(len, self._by_name.copy().values()))

    def holds(self, x: X, text: str) -> bool:
        return text in self._by_name.get(x, ())

    def count(self, x: X) -> int:
        return len(self._by_name.get(x, ()))

    def add(self, pairs: Iterable[tuple[X, str]]) -> None:
        for x, text in pairs:
            pattern = parse_pattern(text, dialect=self._dialect, limits=self._limits)
            with self._lock:
                if not self.holds(x, text):
                    self._add(x, text, pattern)

    def discard(self, x: X, text: str) -> None:
        with self._lock:
            entries = self._by_name.get(x, {})
            if text in entries:
                self._remove([entries.pop(text)])
                if not entries:
                    del self._by_name[x]

    def delete(self, x: X) -> None:
        with self._lock:
            self._remove(self._by_name.pop(x, {}).values())

    def match_event(self, event: Any) -> list[X]:
        raw = self._json.read(event)
        with self._lock:
            trie = self._indexed()
        entries = self._candidates(_values_at(trie, raw))
        return _names(entry for entry in entries if evaluate_pattern(entry.pattern, raw) is Verdict.TRUE)

    def match_fields(self, fields: Iterable[Leaf | tuple[Any, ...]]) -> list[X]:
        by_path: dict[Path, list[Leaf]] = {}
        for leaf in map(check_leaf, fields):
            by_path.setdefault(leaf.path, []).append(leaf)
        entries = self._candidates((path, leaf.value) for path, at_path in by_path.items() for leaf in at_path)
        return _names(entry for entry in entries if evaluate_leaves(entry.pattern, by_path))

    def _add(self, x: X, text: str, pattern: Pattern) -> None:
        entry = _Entry(next(self._order), x, pattern, _keys_of(pattern))
        self._by_name.setdefault(x, {})[text] = entry
        if entry.keys is None:
            self._unkeyed[entry] = None
            return
        for key in entry.keys:
            self._by_key.setdefault(key, {})[entry] = None
        self._count(entry.keys[0][0], +1)

    def _remove(self, entries: Iterable[_Entry[X]]) -> None:
        for entry in entries:
            if entry.keys is None:
                self._unkeyed.pop(entry, None)
                continue
            for key in entry.keys:
                self._by_key[key].pop(entry, None)
                if not self._by_key[key]:
                    del self._by_key[key]
            self._count(entry.keys[0][0], -1)

    def _count(self, path: Path, change: int) -> None:
        self._paths[path] += change
        if self._paths[path] == max(0, change):
            self._trie = None
        if not self._paths[path]:
            del self._paths[path]

    def _indexed(self) -> _Step:
        trie = self._trie
        if trie is None:
            trie = _Step()
            for path in list(self._paths):
                step = trie
                for name in path:
                    step = step.below.setdefault(name, _Step())
                step.path = path
            self._trie = trie
        return trie

    def _candidates(self, values: Iterable[tuple[Path, Any]]) -> list[_Entry[X]]:
        keys = {(path, scalar_key(value)) for path, value in values if not isinstance(value, BeyondFloat64)}
        with self._lock:
            candidates = self._unkeyed.copy()
            for key in keys:
                candidates.update(self._by_key.get(key, ()))
        return sorted(candidates, key=lambda entry: entry.order)


def _keys_of(pattern: Pattern) -> list[Key] | None:
    """Return the keys of a pattern, or None without such a field. Every matching event has one of the values at the path."""
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
