"""Find the fields, collections and types in subscriptions that real events never have, and values of another kind.

```
subscriptions ─► their paths, as a tree for each collection ─► events cross out the paths that they have ─► the rest
                                                                         └─► some names that they have: suggestions
```

The trees of documents and envelopes are walked only by member names, as filters and CEL do (semantics.md 3.1). The tree of whole
events is walked through arrays, as patterns do (5.4). A branch that has occurred is removed, so later events cost less.

Invariant: a path is in its tree and not marked as seen only if no event had it. The number of other stored names affects only
suggestions.

Memory: the paths of subscriptions, and at most `MAX_NAMES` names. Time: for each event, one parse and one walk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from streamer.cel_eval.operands import likely_paths
from streamer.core.lint import Finding, FindingCode
from streamer.core.protocol import StoredForm
from streamer.engine import value_kinds
from streamer.engine.hints import MAX_FIELD, MAX_FIELDS, nearest
from streamer.engine.lint import each_stored
from streamer.engine.value_kinds import Values, fields_of_pattern, mismatch
from streamer.errors import EventError
from streamer.events.places import resolve
from streamer.events.reading import EventSource, IgnoredEvent
from streamer.model import REST, Dialect, Event, Pointer
from streamer.subscriptions.cel_text import cel_path
from streamer.subscriptions.filters import parse_path
from streamer.subscriptions.groups import placed_filters
from streamer.subscriptions.subscription import EVERY

if TYPE_CHECKING:
    from streamer.engine.engine import Engine

#: Names of fields and of collections that are kept for suggestions, over all collections.
MAX_NAMES: Final = 100_000
#: Search at most this many suggestions: each costs up to some milliseconds.
MAX_SUGGESTIONS: Final = 1_000
#: Compile expressions of at most this many characters in all, to find the kinds of values that they need.
MAX_SOURCE: Final = 200_000
#: Longer names are shortened in messages, and never suggested.
_SHOWN: Final = 80

Steps: TypeAlias = tuple[str, ...]
_Condition: TypeAlias = tuple[str, str, str | None, value_kinds.Needed, Values]
"""Its place in the subscription, its path, its path in CEL, the kind of value that it needs with a literal, and the values."""


@final
@dataclass(slots=True)
class _Node:
    """A name that subscriptions use, with the names below it that events have not had so far."""

    is_present: bool = False
    pending: dict[str, _Node] = field(default_factory=dict)

    def ask(self, path: Steps) -> None:
        node = self
        for name in path:
            node = node.pending.setdefault(name, _Node())

    def at(self, path: Steps) -> _Node | None:
        """Return the node at a path, or None if events have had all paths there."""
        node: _Node | None = self
        for name in path:
            node = None if node is None else node.pending.get(name)
        return node

    def lacks(self, path: Steps) -> bool:
        """Return whether no event has had a path so far."""
        node = self.at(path)
        return node is not None and not node.is_present

    def cross_out(self, value: Any, *, through_lists: bool) -> None:
        """Mark the paths below this name that a value has."""
        stack: list[tuple[_Node, Any]] = [(self, value)]
        while stack:
            node, value = stack.pop()
            if through_lists and isinstance(value, list):
                stack.extend((node, inner) for inner in value if isinstance(inner, dict | list))
            elif isinstance(value, dict):
                few, many = (node.pending, value) if len(node.pending) < len(value) else (value, node.pending)
                for name in [name for name in few if name in many]:
                    below = node.pending[name]
                    below.is_present = True
                    if not below.pending:
                        del node.pending[name]
                    elif isinstance(value[name], dict | list):
                        stack.append((below, value[name]))

    def cross_out_unknown(self, path: Steps) -> None:
        """Mark a path whose value is unknown, and every path below it."""
        node: _Node | None = self
        for name in path[:-1]:
            node = None if node is None else node.pending.get(name)
            if node is None:
                return
            node.is_present = True
        if node is not None:
            node.pending.pop(path[-1], None)


@final
@dataclass(slots=True)
class _Part:
    """The fields in a part of events that subscriptions use, and the fields that events have.

    Attributes:
        fields: their paths.
        values: the values that events have at these paths.
        names: some names in events, as one object that has them all.
    """

    fields: _Node = field(default_factory=_Node)
    values: Values = field(default_factory=Values)
    names: dict[str, Any] = field(default_factory=dict)

    def ask(self, path: Steps) -> None:
        self.fields.ask(path)
        self.values.ask(path)

    def lack(self, path: Pointer, document: Any, within: int = 0) -> None:
        """Mark a field as one that events have, whose value this event does not carry. A path of *within* names is no field."""
        if len(path) > within and path[-1] != REST:
            self.fields.cross_out_unknown(path)
        there, placeholder = resolve(document, path)
        if there and placeholder is not None:
            # It may be of another kind than the value.
            self.values.forget(path)


@final
@dataclass(slots=True)
class _Uses:
    """What subscriptions to one collection, or to every collection, use, and what its events have.

    Attributes:
        events: number of events.
        types: the types of the events.
        documents: `data` and `before` alike, for filters and CEL; a list is stored as a list.
        envelope: the record without its documents, for the same.
        whole: events for patterns, with the names in lists as if they were in an object.
    """

    events: int = 0
    types: set[str] = field(default_factory=set)
    documents: _Part = field(default_factory=_Part)
    envelope: _Part = field(default_factory=_Part)
    whole: _Part = field(default_factory=_Part)

    def part(self, root: str | None) -> _Part:
        """Return the part that paths with a root are in; None is the whole event."""
        return self.whole if root is None else self.envelope if root == "envelope" else self.documents


@final
class Occurrences:
    """Examines events, and then reports fields, collections and types of subscriptions that none of them has. Not thread-safe.

    Attributes:
        events: number of examined events, without ignored ones.
    """

    def __init__(self, engine: Engine) -> None:
        """Collect the fields that the subscriptions of an engine use."""
        self._engine = engine
        self._options = engine._options
        layout = self._options.layout
        self.places = [pointer for part in ("data", "before") for pointer in layout.pointers(part)]
        self._uses: dict[str | None, _Uses] = {}
        self._collections: dict[str, None] = {}
        self._name_budget = MAX_NAMES
        self.events = 0
        self._source_budget = MAX_SOURCE
        for _, members in each_stored(engine):
            uses = self._uses.setdefault(_collection(members), _Uses())
            for _, root, path in _paths(members):
                uses.part(root).ask(path)

    def see(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> None:
        """Examine one event. Raises EventError."""
        try:
            changes = self._options.read_all(event, tenant, collection)
        except IgnoredEvent:
            return
        self.events += 1
        for read in changes:
            self._see(read)

    def _see(self, read: Event) -> None:
        name = read.collection
        if name is not None and len(name) <= _SHOWN and name not in self._collections and self._name_budget:
            self._collections[name] = None
            self._name_budget -= 1
        for each in {None, name}:
            if (uses := self._uses.get(each)) is not None:
                self._cross_out(uses, read)

    def _cross_out(self, uses: _Uses, event: Event) -> None:
        uses.events += 1
        if event.type is not None:
            uses.types.add(event.type)
        documents = [each for each in (event.data, event.before) if each is not None]
        for document in documents:
            self._see_part(uses.documents, document, through_lists=False)
        if event.envelope is not None:
            self._see_part(uses.envelope, event.envelope, through_lists=False)
        self._see_part(uses.whole, event.raw, through_lists=True)
        # A name in one document counts as a field of the other, too.
        for node in filter(None, map(uses.whole.fields.at, self.places)):
            for document in documents:
                node.cross_out(document, through_lists=True)
        for pointer in event.unknown:
            for at, side in ((event.data_at, event.data), (event.before_at, event.before)):
                if at is not None and pointer[: len(at)] == at:
                    uses.documents.lack(pointer[len(at) :], side)
                    uses.whole.lack(pointer, event.raw, within=len(at))
        for pointer in event.envelope_unknown:
            uses.envelope.lack(pointer[len(event.envelope_at or ()) :], event.envelope)

    def _see_part(self, part: _Part, value: Any, *, through_lists: bool) -> None:
        part.values.see(value, through_lists=through_lists)
        if part.fields.pending:
            part.fields.cross_out(value, through_lists=through_lists)
            self._keep_names(part.names, value, through_lists=through_lists)

    def _keep_names(self, names: dict[str, Any], value: Any, *, through_lists: bool) -> None:
        """Store the names in a value, outer ones first; the work is bounded."""
        level: list[tuple[dict[str, Any], Any]] = [(names, value)]
        looks = MAX_FIELDS
        while level and looks > 0 and self._name_budget:
            below: list[tuple[dict[str, Any], Any]] = []
            for into, each in level:
                members = each.items() if isinstance(each, dict) else ()
                for name, inner in islice(members, max(looks, 0)):
                    if name not in into:
                        if not self._name_budget or len(name) > MAX_FIELD or len(into) >= MAX_FIELDS:
                            continue
                        self._name_budget -= 1
                        into[name] = [] if isinstance(inner, list) and not through_lists else None
                    objects = _objects_in(inner, looks) if through_lists else [inner] if isinstance(inner, dict) else []
                    looks -= 1 + len(objects)
                    if objects and not isinstance(into[name], dict):
                        into[name] = {}
                    below.extend((into[name], each) for each in objects)
            level = below

    def findings(self) -> Iterator[Finding]:
        """Yield findings about missing fields, in order of adding; the result is empty without events."""
        if not self.events:
            return
        suggestions = _Suggestions(self)
        for stored, members in each_stored(self._engine):
            for reason in self._of(stored, members, suggestions):
                yield Finding(FindingCode.NOT_IN_EVENTS, members["id"], reason)

    def _of(self, stored: StoredForm, members: Mapping[str, Any], suggestions: _Suggestions) -> Iterator[str]:
        name = _collection(members)
        uses = self._uses.get(name)
        if uses is None:
            return  # another thread has added it
        if not uses.events:
            yield f"collection: {_quoted(name or '')} is in none of {_count(self.events)}{suggestions.of_collection(name or '')}"
            return
        events = _count(uses.events) + ("" if name is None else f" of {_quoted(name)}")
        for index, event_type in enumerate(members.get("types", ())):
            if event_type not in uses.types:
                yield f"types[{index}]: {event_type!r} is the type of none of {events}"
        is_debezium = self._options.layout.format == "debezium"
        read: frozenset[Steps] | None = None
        for place, root, path in _paths(members):
            part = uses.part(root)
            if not part.fields.lacks(path):
                continue
            if place == "cel":
                if read is None:
                    read = self._fields(stored)
                if (root or "", *path) not in read:
                    continue
            shown = cel_path(*(_rooted(path) if root is None else (root, path)))
            instead = _in_text(root, path, part.values, is_debezium=is_debezium) or suggestions.of_field(name, root, path)
            yield f"{place}: {_cut(shown)} is in none of {events}{instead}"
        for place, shown, in_cel, needed, values in self._kinds(stored, members, uses):
            if (reason := mismatch(_cut(shown), in_cel, needed, values, is_debezium=is_debezium)) is not None:
                yield f"{place}: {reason}"

    def _kinds(self, stored: StoredForm, members: Mapping[str, Any], uses: _Uses) -> Iterator[_Condition]:
        """Yield the conditions that need one kind of value."""

        def values(root: str, path: Steps) -> Values:
            return uses.part(root).values.ask(path)

        for place, root, path, condition in _filters(members):
            # In a group a condition need not be true.
            if "." not in place and (needed := value_kinds.of_filter(condition)) is not None:
                shown = cel_path(root, path)
                yield place, shown, shown, needed, values(root, path)
        source = members.get("cel", "")
        if len(source) <= self._source_budget and any(values(root, tuple(path)).kind for root, *path in likely_paths(source)):
            self._source_budget -= len(source)
            compiled = self._engine._compile(stored)
            for root, path, needed in value_kinds.of_expression(compiled, self._options.limits, values):
                shown = cel_path(root, path)
                yield "cel", shown, shown, needed, values(root, path)
        for path, needed in value_kinds.of_pattern(*_pattern(members)):
            yield "pattern", cel_path(*_rooted(path)), self._in_cel(path), needed, uses.whole.values.ask(path)

    def _in_cel(self, path: Steps) -> str | None:
        """Return a path of a pattern as CEL writes it; None outside of the documents."""
        for part in ("data", "before"):
            for at in self._options.layout.pointers(part):
                if len(path) > len(at) and path[: len(at)] == at:
                    return cel_path(part, path[len(at) :])
        return None

    def _fields(self, stored: StoredForm) -> frozenset[Steps]:
        """Return the paths that the expression of a subscription reads."""
        program = self._engine._compile(stored).cel
        return frozenset() if program is None else program.fields


def not_in_events(engine: Engine, events: Iterable[EventSource], tenant: str | None, collection: str | None) -> Iterator[Finding]:
    """Yield findings about fields, collections and types that no event has; events that cannot be read are skipped."""
    occurrences: Occurrences | None = None
    for event in events:
        occurrences = occurrences or Occurrences(engine)
        with suppress(EventError):
            occurrences.see(event, tenant, collection)
    if occurrences is not None:
        yield from occurrences.findings()


class _Suggestions:
    """Finds the names in events that are most similar to a missing one; each is searched once, and the total is bounded."""

    def __init__(self, occurrences: Occurrences) -> None:
        self._occurrences = occurrences
        self._cache: dict[tuple[str | None, str | None, Steps], str] = {}

    def of_collection(self, name: str) -> str:
        """Return the end of a sentence about a missing collection: a similar collection that exists."""
        return self._looked_up((None, None, (name,)), lambda: self._near_collection(name))

    def of_field(self, collection: str | None, root: str | None, path: Steps) -> str:
        """Return the end of a sentence about a missing field: the name that events have instead, or the reason for none."""
        names = self._occurrences._uses[collection].part(root).names
        if root is None:
            return self._looked_up((collection, root, path), lambda: _near_field(path, names, self._occurrences.places))
        return self._looked_up((collection, root, path), lambda: _instead(root, path, names))

    def _looked_up(self, key: tuple[str | None, str | None, Steps], look: Callable[[], str]) -> str:
        if key not in self._cache:
            if len(self._cache) == MAX_SUGGESTIONS:
                return ""
            self._cache[key] = look()
        return self._cache[key]

    def _near_collection(self, name: str) -> str:
        near = get_close_matches(name[:_SHOWN], self._occurrences._collections, 1)
        return f"; {_quoted(near[0])} is" if near else ""


def _near_field(path: Steps, names: Mapping[str, Any], places: Iterable[Pointer]) -> str:
    """Return the end of a sentence with a similar name; for a path in a document, only names in the document count."""
    at = max((place for place in places if len(path) > len(place) and path[: len(place)] == place), key=len, default=())
    document: Any = names
    for name in at:
        document = document.get(name) if isinstance(document, Mapping) else None
    near = nearest(path[len(at) :], document)
    return "" if near is None else f"; {cel_path(*_rooted((*at, *near)))} is"


def _rooted(path: Steps) -> tuple[str, Steps]:
    return path[0], path[1:]


def _instead(root: str, path: Steps, names: Mapping[str, Any]) -> str:
    value: Any = names
    for depth, name in enumerate(path):
        if isinstance(value, list):
            return f": {cel_path(root, path[:depth])} is a list; a pattern or CEL's exists() looks into it"
        if not isinstance(value, Mapping) or name not in value:
            break
        value = value[name]
    near = nearest(path, names)
    return "" if near is None else f"; {cel_path(root, near)} is"


def _in_text(root: str | None, path: Steps, values: Values, *, is_debezium: bool) -> str | None:
    """Return the end of a sentence about a missing path that leads into a text with JSON."""

    def shown(steps: Steps) -> str:
        return _cut(cel_path(*(_rooted(steps) if root is None else (root, steps))))

    return value_kinds.inside_text(shown, path, values, is_debezium=is_debezium)


def _objects_in(value: Any, most: int) -> list[dict[str, Any]]:
    """Return the value itself if it is an object, or some of the objects in it if it is an array."""
    objects, pending = [], [value]
    for each in pending:
        if isinstance(each, dict):
            objects.append(each)
        elif isinstance(each, list):
            pending.extend(each[: max(most - len(pending), 0)])
    return objects


def _collection(members: Mapping[str, Any]) -> str | None:
    name = members.get("collection")
    return None if name == EVERY else name


def _paths(members: Mapping[str, Any]) -> Iterator[tuple[str, str | None, Steps]]:
    """Yield the place, the root (None is the whole event) and the path of each field that a subscription uses."""
    for place, root, path, _ in _filters(members):
        yield f"{place}.field", root, path
    for root, *names in sorted(likely_paths(members.get("cel", ""))):
        yield "cel", root, tuple(names)
    for path in dict.fromkeys(path for path, _, _ in fields_of_pattern(*_pattern(members))):
        yield "pattern", None, path


def _filters(members: Mapping[str, Any]) -> Iterator[tuple[str, str, Steps, Mapping[str, Any]]]:
    """Yield the place of each filter, the root and the path of its field, and the filter."""
    for place, condition in placed_filters(members.get("filters", ())):
        yield place, condition.get("root", "data"), parse_path(condition["field"]), condition


def _pattern(members: Mapping[str, Any]) -> tuple[Mapping[str, Any], Dialect]:
    """Return the pattern of a subscription, empty without one, and its dialect."""
    pattern = members.get("pattern")
    tree = json.loads(pattern) if isinstance(pattern, str | bytes) else pattern
    return tree or {}, members.get("dialect", "eventbridge")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}..."


def _count(events: int) -> str:
    return f"{events:,} event{'' if events == 1 else 's'}"
