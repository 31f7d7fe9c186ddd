"""Access keys: values that an event must carry, or a subscription cannot match it.

    {"filters": [{"field": "status", "op": "in", "value": ["paid", "open"]}]}     keys data.status = "paid", data.status = "open"
    {"data": {"status": "paid"}}                                                  carries data.status = "paid", a candidate
    {"data": {"status": "sent"}}                                                  carries data.status = "sent", not one

Of each conjunction one clause is chosen whose atoms are all equalities, and each of its values becomes a key. Where a
conjunction has no such clause the whole subscription is *unkeyed*: it may match an event of which nothing is known.

Invariant (the Bloom contract, semantics.md section 9): an event that a keyed subscription matches, certainly or not, carries
one of its keys, or has a hole at a keyed path. Keys are made from the value, never from its spelling: made from the text, `1`
and `1.0` would be two keys, and a subscription to `1` would lose the event that says `1.0`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from streamer.model import BeyondFloat64, Event, Pointer
from streamer.subscriptions.matchers import Equal
from streamer.subscriptions.normal_form import Clause, Conjunction, Mode, NormalForm, Path, Root


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A path and how it is read. An event is asked for the values at the places that a partition's keys name."""

    path: Path
    mode: Mode


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A scalar at a place."""

    place: Place
    equal: Equal

    def __str__(self) -> str:
        return f"{self.place.path} = {self.equal}"

    def to_bytes(self) -> bytes:
        """Encode for hashing: UTF-8 JSON of root, mode, names, kind and value; equal keys have equal bytes in every process."""
        kind, value = self.equal.key
        if kind == "number":
            # One spelling for each number: Python's shortest form that reads back as the same double, or an integer's digits.
            value = repr(int(value) if isinstance(value, float) and value.is_integer() else value)
        parts = [self.place.path.root.value, self.place.mode.value, self.place.path.names, kind, value]
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()


#: Rather a field of the document than a part of the envelope: nearly every event has the type `update`.
_PREFERENCE = {Root.DATA: 0, Root.EVENT: 0, Root.BEFORE: 1, Root.TOPIC: 2, Root.TYPE: 3}


def access_clause(conjunction: Conjunction) -> Clause | None:
    """Choose the clause whose values serve as keys: the most telling root, then the fewest values; None if there is none."""
    # A clause without atoms has no key to tell of its place, where a hole makes it unknown.
    usable = [clause for clause in conjunction.clauses if clause.atoms and all(isinstance(atom, Equal) for atom in clause.atoms)]
    return min(usable, key=lambda clause: (_PREFERENCE[clause.path.root], len(clause.atoms), str(clause)), default=None)


def access_keys(form: NormalForm) -> frozenset[Key] | None:
    """Return the keys of a subscription, one of which every event that it matches carries; None if it is unkeyed."""
    keys: set[Key] = set()
    for conjunction in form.conjunctions:
        clause = access_clause(conjunction)
        if clause is None:
            return None
        place = Place(clause.path, clause.mode)
        keys.update(Key(place, atom) for atom in clause.atoms if isinstance(atom, Equal))
    return frozenset(keys)


def event_keys(event: Event, places: Iterable[Place]) -> frozenset[Key] | None:
    """Return the keys that *event* carries at *places*; None where a hole may hide one, so that nothing can be ruled out."""
    keys: set[Key] = set()
    holes = [_omit_arrays(event.raw, pointer) for pointer in event.unknown]
    for place in places:
        if holes and _touched(event, place.path, holes):
            return None
        values = list(_scalars(event, place))
        # A filter on what cannot be read is an error, and an error beside an unknown is an unknown: any hole may make it match.
        if holes and place.path.root is Root.DATA and (not values or isinstance(values[0], BeyondFloat64)):
            return None
        # No subscription asks for a number beyond float64: nothing equals it.
        keys.update(Key(place, Equal(value)) for value in values if not isinstance(value, BeyondFloat64))
    return frozenset(keys)


def _touched(event: Event, path: Path, holes: list[Pointer]) -> bool:
    """Tell whether a hole equals, contains or lies below a path."""
    base: Pointer | None
    match path.root:
        case Root.EVENT:
            base = ()
        case Root.DATA:
            base = event.data_at
        case Root.BEFORE:
            base = event.before_at
        case _:
            # The layout knows where type and topic stand; here it is enough that a hole may reach them.
            documents = [at for at in (event.data_at, event.before_at) if at]
            return not all(any(hole[: len(at)] == at for at in documents) for hole in holes)
    if base is None:
        return False
    place = base + path.names
    return any(hole[: len(place)] == place[: len(hole)] for hole in holes)


def _omit_arrays(raw: Any, pointer: Pointer) -> Pointer:
    """Return the names along a pointer without array positions, cut where the event does not carry its way any further."""
    names: list[str] = []
    at = raw
    for token in pointer:
        if isinstance(at, list):
            if not token.isdecimal() or int(token) >= len(at):
                break
            at = at[int(token)]
            continue
        if not isinstance(at, Mapping):
            break
        names.append(token)
        if token not in at:
            break
        at = at[token]
    return tuple(names)


def _scalars(event: Event, place: Place) -> Iterator[Any]:
    """Yield the scalars at a place."""
    start: Any = {
        Root.DATA: event.data,
        Root.BEFORE: event.before,
        Root.EVENT: event.raw,
        Root.TYPE: event.type,
        Root.TOPIC: event.topic,
    }[place.path.root]
    if start is None:
        return
    # Depth first, without recursion: an event may be deeper than Python's stack.
    pending: list[tuple[Any, int]] = [(start, 0)]
    names = place.path.names
    while pending:
        value, depth = pending.pop()
        if isinstance(value, list):
            if place.mode is Mode.LEAF:
                pending.extend((item, depth) for item in value)
        elif depth < len(names):
            if isinstance(value, Mapping) and names[depth] in value:
                pending.append((value[names[depth]], depth + 1))
        elif not isinstance(value, Mapping):
            yield value
