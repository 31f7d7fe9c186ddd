"""Access keys: an event can match a subscription only if it contains one of the subscription's keys.

    {"filters": [{"field": "status", "op": "in", "value": ["paid", "open"]}]}     keys data.status = "paid", data.status = "open"
    {"data": {"status": "paid"}}                                                  carries data.status = "paid", a candidate
    {"data": {"status": "sent"}}                                                  carries data.status = "sent", not one

From each conjunction, one clause is chosen whose atoms all have keys, and these become keys of the subscription. If a
conjunction has no such clause, the whole subscription is *unkeyed*: it may match any event.

| kind of place | condition | its keys | probes of an event's value |
|---|---|---|---|
| `equal` | `==`, `in`, a topic or type in full | the value | itself |
| `fold` | equal but for case | the text, case folded | itself, folded |
| `range36` … `range60` | `<` … between two numbers | buckets (buckets.py) | its bucket of that size |
| `prefix1` `2` `4` `8` `16` | prefix, wildcard | its first 1, 2, 4, 8 or 16 characters | its own first ones |
| `suffix1` … `suffix16` | suffix, wildcard | its last ones | its own last ones |
| `iprefix1` …, `isuffix1` … | these but for case | the same, folded | the same, folded |
| `gram` | `contains`, wildcard | its first three characters | every three in a row, of at most 64 |
| `element` | `contains` | the value | each scalar in the list |
| `words1` … `words4` | topic pattern of AMQP, NATS | its first words, up to a wildcard | its own first words |
| `lastwords1` … `lastwords4` | topic pattern of AMQP, NATS | its last words | its own last words |
| `levels1` … `levels4`, `lastlevels1` … | topic pattern of MQTT | its first, last levels | its own |
| `net4-8` `-16` `-24` `-32`, `net6-16` … `-64` `-128` | CIDR | its first bits | its own, if it is an address |

An event is probed only for the kinds that a partition's keys use at a path. Conditions that exclude few events have no keys:
negations, `exists`, regexps, orderings of strings and booleans, and very short texts. Nor has equality with a list or an object,
whose key would be its whole text.

Invariant (the Bloom contract, semantics.md 9.1): an event that a keyed subscription matches, certainly or not, contains
one of its keys, or has an unknown at a keyed path. Keys are made from the value, never from its spelling. Otherwise `1` and
`1.0` would be different keys, and a subscription to `1` would lose an event with `1.0`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias, final

from streamer.events.places import resolve
from streamer.model import REST, BeyondFloat64, Event, Pointer, TopicDialect
from streamer.subscriptions.atoms import Atom, Clause, Contains, InTopic, Kind, Mode, Path, Range, Root
from streamer.subscriptions.buckets import SHIFTS, bounds, bucket, buckets
from streamer.subscriptions.folding import simple_fold
from streamer.subscriptions.matchers import (
    Cidr,
    Equal,
    EqualsIgnoreCase,
    Prefix,
    Scalar,
    Suffix,
    Wildcard,
    parse_address,
    scalar_key,
)
from streamer.subscriptions.normal_form import Conjunction, NormalForm
from streamer.subscriptions.topics import SYNTAX, TopicPattern, split_words

LENGTHS: Final = (1, 2, 4, 8, 16)
WORDS: Final = (1, 2, 3, 4)
NETS: Final = {4: (8, 16, 24, 32), 6: (16, 32, 48, 64, 128)}
GRAM: Final = 3
#: A longer text has too many grams to probe, so it may match any key.
LONGEST_FOR_GRAMS: Final = 64

EQUAL: Final = "equal"
FOLD: Final = "fold"
GRAMS: Final = "gram"
ELEMENT: Final = "element"


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A path, the mode to read it, and a kind of key. Events are probed at the places that the keys of a partition use."""

    path: Path
    mode: Mode
    kind: str = EQUAL


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A key at a place.

    Attributes:
        tag: the kind of the place, or the type of the value if the kind allows scalars of all types.
        value: text, or a bool, or None.
    """

    place: Place
    tag: str
    value: str | bool | None

    @staticmethod
    def equal(path: Path, mode: Mode, value: Scalar) -> Key:
        """Return the key of an equality."""
        return Key(Place(path, mode), *_scalar(value))

    def __str__(self) -> str:
        return f"{self.place.path} {_phrase(self)}"

    def to_bytes(self) -> bytes:
        """Encode for hashing: UTF-8 JSON of root, mode, names, tag and value; equal keys have equal bytes in every process."""
        parts = [self.place.path.root.value, self.place.mode.value, self.place.path.names, self.tag, self.value]
        return _encode(parts).encode()

    @staticmethod
    def from_bytes(encoded: bytes) -> Key:
        """Return the key that `to_bytes` encoded. Raises ValueError."""
        try:
            root, mode, names, tag, value = _decode(encoded.decode())
            place = _place(root, mode, tuple(names), tag)
        except (TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"this is not an access key: {error}") from None
        return Key(place, tag, value)


# Many keys have the same place.
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode: Final = json.JSONDecoder().decode


@lru_cache(maxsize=256)
def _place(root: str, mode: str, names: tuple[str, ...], tag: str) -> Place:
    return Place(Path(Root(root), names), Mode(mode), _kind_of_tag(tag))


#: Tag and value of a key.
Probe: TypeAlias = tuple[str, str | bool | None]

#: The selectivity of keys; a smaller rank excludes more events. For example, a boolean key passes about half of all events.
_EXACT, _NARROW, _WIDE, _HALF, _TYPE = range(5)

#: What CEL reads as a map, whose fields may be an error.
_DOCUMENTS = (Root.DATA, Root.BEFORE, Root.ENVELOPE)

#: Prefers fields of the document to parts of the envelope.
_PREFERENCE = {Root.DATA: 0, Root.EVENT: 0, Root.BEFORE: 1, Root.ENVELOPE: 1, Root.TOPIC: 2, Root.TYPE: 3}


def access_keys(form: NormalForm) -> frozenset[Key] | None:
    """Return the keys of a subscription, or None if it is unkeyed. Every event that it matches contains one of them."""
    keys: set[Key] = set()
    for conjunction in form.conjunctions:
        choice = _choose(conjunction)
        if choice is None:
            return None
        keys |= choice[1]
    return frozenset(keys)


def _choose(conjunction: Conjunction) -> tuple[Clause, frozenset[Key]] | None:
    candidates = []
    for clause in conjunction.clauses:
        made = clause_keys(clause)
        if made is not None:
            rank, keys = made
            path = clause.path
            order = (rank, _PREFERENCE[path.root], len(keys), path.root.value, clause.mode.value, path.names)
            candidates.append((order, clause, keys))
    if not candidates:
        return None
    least = min(order for order, _, _ in candidates)
    tied = [(clause, keys) for order, clause, keys in candidates if order == least]
    # Encoding keys takes longer than the rest, so it only breaks ties.
    return tied[0] if len(tied) == 1 else min(tied, key=lambda each: sorted(key.to_bytes() for key in each[1]))


def clause_keys(clause: Clause) -> tuple[int, frozenset[Key]] | None:
    """Return the rank and the keys of a clause, or None if one of its atoms has no keys."""
    # A clause without atoms is false, but unknown if its path is. An empty set of keys would not record the path.
    if not clause.atoms:
        return None
    worst = _EXACT
    keys: set[Key] = set()
    places: dict[str, Place] = {}
    for atom in clause.atoms:
        made = _atom_keys(atom)
        if made is None:
            return None
        rank, probes = made
        worst = max(worst, rank)
        for tag, value in probes:
            if tag not in places:
                places[tag] = Place(clause.path, clause.mode, _kind_of_tag(tag))
            keys.add(Key(places[tag], tag, value))
    return (_TYPE if clause.path.root is Root.TYPE else worst), frozenset(keys)


def _atom_keys(atom: Atom) -> tuple[int, list[Probe]] | None:
    """Return the rank and the keys of an atom, or None if it has none. Every value that satisfies it has one of the keys."""
    match atom:
        case Equal(value):
            return _rank(value), [_scalar(value)]
        case EqualsIgnoreCase(text):
            return _EXACT, [(FOLD, simple_fold(text))]
        case Range(kind=Kind.NUMBER, low=low, high=high):
            return _WIDE, [(f"range{shift}", str(number)) for shift, number in buckets(low, high)]
        case Prefix(text, ignore_case):
            return _end("prefix", text, ignore_case)
        case Suffix(text, ignore_case):
            return _end("suffix", text, ignore_case)
        case Wildcard(pieces):
            return _wildcard(pieces)
        case Contains(Equal(str() as text)):
            return None if len(text) < GRAM else (_WIDE, [(GRAMS, text[:GRAM]), _element(text)])
        case Contains(Equal(value)):
            return max(_NARROW, _rank(value)), [_element(value)]
        case InTopic(pattern):
            return _topic(pattern)
        case Cidr(network):
            length = max((n for n in NETS[network.version] if n <= network.prefixlen), default=None)
            if length is None:
                return None
            return _NARROW, [_net(network.version, network.max_prefixlen, length, int(network.network_address))]
        case _:
            return None


def _rank(value: Scalar) -> int:
    return _HALF if value is None or isinstance(value, bool) else _EXACT


def _scalar(value: Scalar) -> Probe:
    kind, value = scalar_key(value)
    if kind == "number":
        # One spelling for each number: Python's shortest form that reads back as the same double, or an integer's digits.
        return kind, repr(int(value) if isinstance(value, float) and value.is_integer() else value)
    assert not isinstance(value, int | float | BeyondFloat64) or isinstance(value, bool), "a filter's numbers are within float64"
    return kind, value


def _element(value: Scalar) -> Probe:
    tag, value = _scalar(value)
    return f"{ELEMENT}-{tag}", value


def _end(end: str, text: str, ignore_case: bool) -> tuple[int, list[Probe]]:
    length = max(n for n in LENGTHS if n <= len(text))
    if ignore_case:
        text = simple_fold(text)
    part = text[:length] if end == "prefix" else text[-length:]
    return (_WIDE if length < 4 else _NARROW), [(f"{'i' * ignore_case}{end}{length}", part)]


def _wildcard(pieces: tuple[str, ...]) -> tuple[int, list[Probe]] | None:
    first, *middle = pieces
    if not middle:
        return _EXACT, [_scalar(first)]
    last = middle.pop()
    if first or last:
        return _end("prefix", first, False) if len(first) >= len(last) else _end("suffix", last, False)
    longest = max(middle, key=len, default="")
    return None if len(longest) < GRAM else (_WIDE, [(GRAMS, longest[:GRAM])])


def _topic(pattern: TopicPattern) -> tuple[int, list[Probe]] | None:
    literal = [word if isinstance(word, str) else None for word in pattern.words]
    first, last = literal.index(None), literal[::-1].index(None)
    length = min(max(first, last), WORDS[-1])
    if length == 0:
        return None
    noun = "levels" if pattern.dialect == "mqtt" else "words"
    tag, part = (noun, literal[:length]) if first >= last else (f"last{noun}", literal[-length:])
    return _NARROW, [(f"{tag}{length}", SYNTAX[pattern.dialect].separator.join(word for word in part if word is not None))]


def _net(version: int, width: int, length: int, address: int) -> Probe:
    return f"net{version}-{length}", str(address >> (width - length))


# Keys of an event


def event_keys(event: Event, places: Iterable[Place]) -> frozenset[Key] | None:
    """Return the keys of *event* at *places*, or None if it may have others, so that it must pass."""
    keys: set[Key] = set()
    unknowns = [_omit_arrays(event.raw, pointer) for pointer in event.unknown]
    kinds: dict[tuple[Path, Mode], list[Place]] = {}
    for place in places:
        kinds.setdefault((place.path, place.mode), []).append(place)
    for (path, mode), wanted in kinds.items():
        if unknowns and _touched(event, path, unknowns):
            return None
        values = list(_values(event, path, mode))
        for place in wanted:
            if unknowns and mode is Mode.VALUE and path.root in _DOCUMENTS and _is_error(place.kind, values):
                return None
            for value in values:
                probes = _probes(place.kind, value)
                if probes is None:
                    return None
                keys.update(Key(place, tag, part) for tag, part in probes)
    return frozenset(keys)


def _is_error(kind: str, values: list[Any]) -> bool:
    """Return whether a filter on the value may be an error. In an event with unknowns, such an error counts as unknown."""
    if not values or isinstance(values[0], BeyondFloat64):
        return True
    (value,) = values
    if kind == ELEMENT:
        return not isinstance(value, list) or any(isinstance(item, BeyondFloat64) for item in value)
    if isinstance(value, list | Mapping):
        return True
    if kind == EQUAL:
        return False
    if kind.startswith("range"):
        return isinstance(value, bool) or not isinstance(value, int | float)
    return not isinstance(value, str)


def _probes(kind: str, value: Any) -> Iterable[Probe] | None:
    """Return the probes of a kind for a value, or None if there are too many."""
    if isinstance(value, list):
        if kind != ELEMENT:
            return ()
        return [_element(item) for item in value if not isinstance(item, list | Mapping | BeyondFloat64)]
    # A number beyond float64 equals no other number, so no key can match it.
    if isinstance(value, Mapping | BeyondFloat64) or kind == ELEMENT:
        return ()
    if kind == EQUAL:
        return (_scalar(value),)
    if kind.startswith("range"):
        return _number_prober(kind)(value) if isinstance(value, int | float) and not isinstance(value, bool) else ()
    if not isinstance(value, str):
        return ()
    if kind == GRAMS and len(value) > LONGEST_FOR_GRAMS:
        return None
    return _text_prober(kind)(value)


_TextProber: TypeAlias = Callable[[str], Iterable[Probe]]


@lru_cache(maxsize=64)
def _number_prober(kind: str) -> Callable[[int | float], Iterable[Probe]]:
    shift = int(kind.removeprefix("range"))
    return lambda number: ((kind, str(bucket(number, shift))),)


@lru_cache(maxsize=64)
def _text_prober(kind: str) -> _TextProber:
    """Return the function that makes the probes of a kind for a text."""
    if kind == FOLD:
        return lambda text: ((FOLD, simple_fold(text)),)
    if kind == GRAMS:
        return lambda text: [(GRAMS, text[at : at + GRAM]) for at in range(len(text) - GRAM + 1)]
    name = kind.rstrip("0123456789")
    length = int(kind[len(name) :])
    match name:
        case "prefix":
            return lambda text: ((kind, text[:length]),) if len(text) >= length else ()
        case "suffix":
            return lambda text: ((kind, text[-length:]),) if len(text) >= length else ()
        case "iprefix":
            return lambda text: ((kind, simple_fold(text[:length])),) if len(text) >= length else ()
        case "isuffix":
            return lambda text: ((kind, simple_fold(text[-length:])),) if len(text) >= length else ()
        case "words" | "levels":
            return partial(_word_probes, kind, slice(None, length), length)
        case "lastwords" | "lastlevels":
            return partial(_word_probes, kind, slice(-length, None), length)
        case _:
            return partial(_net_probes, int(name[3]), length)


def _word_probes(kind: str, which: slice, length: int, topic: str) -> Iterable[Probe]:
    dialect: TopicDialect = "mqtt" if "levels" in kind else "amqp"
    words = split_words(topic, dialect)
    return ((kind, SYNTAX[dialect].separator.join(words[which])),) if len(words) >= length else ()


def _net_probes(version: int, length: int, text: str) -> Iterable[Probe]:
    address = parse_address(text)
    if address is None or address.version != version:
        return ()
    return (_net(version, address.max_prefixlen, length, int(address)),)


def _touched(event: Event, path: Path, unknowns: list[Pointer]) -> bool:
    """Return whether an unknown equals, contains or lies below a path."""
    base: Pointer | None
    match path.root:
        case Root.EVENT:
            base = ()
        case Root.DATA:
            base = event.data_at
        case Root.BEFORE:
            base = event.before_at
        case Root.ENVELOPE:
            base = event.envelope_at
        case part:
            return part.value in event.unknown_parts
    if base is None:
        return False
    place = base + path.names
    return any(_meets(unknown, place, event.raw) for unknown in unknowns)


def _meets(unknown: Pointer, place: Pointer, raw: Mapping[str, Any]) -> bool:
    """Return whether an unknown of an event equals, contains or lies below a place."""
    if unknown[-1:] != (REST,):
        return unknown[: len(place)] == place[: len(unknown)]
    at, below = unknown[:-1], place[len(unknown) - 1 :]
    container = resolve(raw, at)[1] or {}
    return at[: len(place)] == place[: len(at)] and not (below and below[0] in container)


def _omit_arrays(raw: Any, pointer: Pointer) -> Pointer:
    """Return the names in a pointer without array positions, up to the first step that the event lacks."""
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


def _values(event: Event, path: Path, mode: Mode) -> Iterator[Any]:
    """Yield the values at a path in a mode."""
    start: Any = {
        Root.DATA: event.data,
        Root.BEFORE: event.before,
        Root.EVENT: event.raw,
        Root.ENVELOPE: event.envelope,
        Root.TYPE: event.type,
        Root.TOPIC: event.topic,
    }[path.root]
    if start is None:
        return
    # Depth first, without recursion: an event may be deeper than Python's stack.
    pending: list[tuple[Any, int]] = [(start, 0)]
    names = path.names
    while pending:
        value, depth = pending.pop()
        if isinstance(value, list) and mode is Mode.LEAF:
            pending.extend((item, depth) for item in value)
        elif depth < len(names):
            if isinstance(value, Mapping) and names[depth] in value:
                pending.append((value[names[depth]], depth + 1))
        elif mode is Mode.MEMBER:
            # Iterating over a mapping yields its names.
            yield from value if isinstance(value, list | Mapping) else ()
        elif mode is Mode.VALUE or not isinstance(value, Mapping):
            yield value


_SCALAR_TAGS: Final = frozenset({"string", "number", "bool", "null"})
KINDS: Final = frozenset(
    {EQUAL, FOLD, GRAMS, ELEMENT}
    | {f"range{shift}" for shift in SHIFTS}
    | {f"{end}{n}" for end in ("prefix", "suffix", "iprefix", "isuffix") for n in LENGTHS}
    | {f"{end}{n}" for end in ("words", "lastwords", "levels", "lastlevels") for n in WORDS}
    | {f"net{version}-{n}" for version, lengths in NETS.items() for n in lengths}
)
"""Every kind of place."""


def _kind_of_tag(tag: str) -> str:
    if tag in _SCALAR_TAGS:
        return EQUAL
    if tag.startswith("element-") and tag.removeprefix("element-") in _SCALAR_TAGS:
        return ELEMENT
    if tag not in KINDS or tag in (EQUAL, ELEMENT):
        raise ValueError(f"this is not an access key: unknown kind {tag!r}")
    return tag


def _phrase(key: Key) -> str:
    """Return a key as text, without its path."""
    shown = key.value if key.tag.endswith("number") else json.dumps(key.value, ensure_ascii=False)
    kind = key.place.kind
    if kind == EQUAL:
        return f"= {shown}"
    if kind.startswith("range"):
        low, high = bounds(int(str(key.value)), int(kind.removeprefix("range")))
        return f"from {low:.7g} to {high:.7g}"
    if kind.startswith("net"):
        return f"in {kind} {key.value}"
    word = {
        FOLD: "is, but for case,",
        GRAMS: "includes",
        ELEMENT: "holds",
        "prefix": "begins",
        "iprefix": "begins, but for case,",
        "suffix": "ends",
        "isuffix": "ends, but for case,",
        "words": "begins",
        "lastwords": "ends",
        "levels": "begins",
        "lastlevels": "ends",
    }[kind.rstrip("0123456789")]
    return f"{word} {shown}"
