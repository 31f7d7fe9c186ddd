"""The conditions of a subscription on one value: clauses on a path, each an OR of atoms (see normal_form.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, final

from streamer.model import BeyondFloat64
from streamer.subscriptions.matchers import (
    Absent,
    Cidr,
    Equal,
    EqualsIgnoreCase,
    Prefix,
    Regexp,
    Suffix,
    Wildcard,
)
from streamer.subscriptions.topics import TopicPattern


class Root(Enum):
    """The start of a path: a part of the event, the raw event as patterns see it, or the element that a macro of CEL is about."""

    DATA = "data"
    BEFORE = "before"
    EVENT = "event"
    TYPE = "type"
    TOPIC = "topic"
    COLLECTION = "collection"
    TENANT = "tenant"
    ENVELOPE = "envelope"
    ELEMENT = "element"


class Mode(Enum):
    """The values that a path yields.

    VALUE is the one value at the path, by the rules of CEL. LEAF is every leaf at it, through arrays, by the rules of patterns.
    MEMBER is every value that CEL's macros iterate over: the elements of a list, or the names of an object. CHANGED is whether
    the value before the change differs. Only conditions in CEL use MEMBER and CHANGED; keys of the native core also use MEMBER.
    """

    VALUE = "value"
    LEAF = "leaf"
    MEMBER = "member"
    CHANGED = "changed"


class Kind(Enum):
    """The kind of value at a path. BEYOND is a number beyond float64, or a path that goes through one: reading it is an error."""

    MISSING = "missing"
    NULL = "null"
    BOOL = "bool"
    NUMBER = "number"
    BEYOND = "beyond"
    STRING = "string"
    LIST = "list"
    MAP = "map"


PRESENT = frozenset(Kind) - {Kind.MISSING}
READABLE = PRESENT - {Kind.BEYOND}


def kind_of(value: Any) -> Kind:
    """Return the kind of a JSON value."""
    if value is None:
        return Kind.NULL
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int | float):
        return Kind.NUMBER
    if isinstance(value, str):
        return Kind.STRING
    if isinstance(value, BeyondFloat64):
        return Kind.BEYOND
    return Kind.MAP if isinstance(value, Mapping) else Kind.LIST


@final
@dataclass(frozen=True, slots=True)
class Path:
    root: Root
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "".join([self.root.value, *map(_step, self.names)])


def _step(name: str) -> str:
    return f".{name}" if name.isidentifier() and name.isascii() else f"[{Equal(name)}]"


@final
@dataclass(frozen=True, slots=True)
class Range:
    """The value is of this kind and lies between two bounds; a bound that is None is open."""

    kind: Kind
    low: Any = None
    low_inclusive: bool = False
    high: Any = None
    high_inclusive: bool = False

    def __str__(self) -> str:
        low = "" if self.low is None else f"{'>=' if self.low_inclusive else '>'} {Equal(self.low)}"
        high = "" if self.high is None else f"{'<=' if self.high_inclusive else '<'} {Equal(self.high)}"
        return " and ".join(filter(None, (low, high)))


@final
@dataclass(frozen=True, slots=True)
class IsKind:
    """The value is of one of these kinds."""

    kinds: frozenset[Kind]

    def __str__(self) -> str:
        if self.kinds == PRESENT:
            return "present"
        return "is " + " or ".join(kind.value for kind in Kind if kind in self.kinds)


@final
@dataclass(frozen=True, slots=True)
class Contains:
    """The value is a string with this substring, or a list with an element equal to it; case may be ignored in both."""

    element: Equal | EqualsIgnoreCase

    def __str__(self) -> str:
        return f"contains {self.element}"


@final
@dataclass(frozen=True, slots=True)
class Matches:
    """The value is a string that contains a match of this RE2 expression."""

    expression: str

    def __str__(self) -> str:
        return f"matches {self.expression!r}"


@final
@dataclass(frozen=True, slots=True)
class Size:
    """The value is a string, a list or an object of this size, in characters, elements or members."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"has a size from {self.least} to {self.most}"


@final
@dataclass(frozen=True, slots=True)
class InTopic:
    """The value is a topic that this pattern matches; the pattern has a wildcard."""

    pattern: TopicPattern

    def __str__(self) -> str:
        return f"like {self.pattern}"


@final
@dataclass(frozen=True, slots=True)
class Not:
    """The value exists and satisfies none of these atoms. In mode VALUE, it must also be readable."""

    atoms: frozenset[Atom]

    def __str__(self) -> str:
        return "not (" + " or ".join(sorted(map(_phrase, self.atoms))) + ")"


Atom: TypeAlias = (
    Equal
    | Prefix
    | Suffix
    | EqualsIgnoreCase
    | Wildcard
    | Regexp
    | Cidr
    | Range
    | IsKind
    | Contains
    | Matches
    | Size
    | InTopic
    | Absent
    | Not
)


def _phrase(atom: Atom) -> str:
    """Return an atom as text, without its path."""
    match atom:
        case Equal():
            return f"= {atom}"
        case Absent():
            return "absent"
        case _:
            return str(atom)


@final
@dataclass(frozen=True, slots=True)
class Clause:
    """A condition on one path: any of its atoms is true. Without atoms, it is always false."""

    path: Path
    mode: Mode
    atoms: frozenset[Atom]

    def __str__(self) -> str:
        any_leaf = " any leaf" if self.mode is Mode.LEAF else ""
        return f"{self.path}{any_leaf} {' or '.join(sorted(map(_phrase, self.atoms))) or 'never'}"


def value_clause(path: Path, atoms: Iterable[Atom]) -> Clause:
    """Return the clause on the one value at *path*."""
    return Clause(path, Mode.VALUE, frozenset(atoms))
