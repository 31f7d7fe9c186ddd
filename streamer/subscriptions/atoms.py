"""What a subscription asks of one value: clauses on a path, each an OR of atoms (see normal_form.py)."""

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
    ELEMENT = "element"


class Mode(Enum):
    """What a path yields.

    VALUE is the one value at it as CEL sees it, LEAF every leaf at it, through arrays, as patterns see it. MEMBER is what CEL's
    macros go through: the elements of the list at it, or the names of the object. CHANGED is whether the value before was
    another. Only conditions in CEL have these two, and keys of the native core the former.
    """

    VALUE = "value"
    LEAF = "leaf"
    MEMBER = "member"
    CHANGED = "changed"


class Kind(Enum):
    """What stands at a path. BEYOND is a number that no float64 holds, or what a path asks below one: reading it is an error."""

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
    """The value is a string with this substring, or a list with an element equal to it."""

    element: Equal

    def __str__(self) -> str:
        return f"contains {self.element}"


@final
@dataclass(frozen=True, slots=True)
class Matches:
    """The value is a string in which this RE2 expression is found."""

    expression: str

    def __str__(self) -> str:
        return f"matches {self.expression!r}"


@final
@dataclass(frozen=True, slots=True)
class Size:
    """The value is a string of so many characters, a list of so many elements, or an object of so many members."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"has a size from {self.least} to {self.most}"


@final
@dataclass(frozen=True, slots=True)
class InTopic:
    """The value is a topic that this pattern matches, which has a wildcard."""

    pattern: TopicPattern

    def __str__(self) -> str:
        return f"like {self.pattern}"


@final
@dataclass(frozen=True, slots=True)
class Not:
    """The value is there and none of these atoms holds for it. As CEL sees it, it must also be one that can be read."""

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
    """Print an atom as what comes after its path."""
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
    """A condition on one path: any of its atoms holds. Without atoms it never holds."""

    path: Path
    mode: Mode
    atoms: frozenset[Atom]

    def __str__(self) -> str:
        any_leaf = " any leaf" if self.mode is Mode.LEAF else ""
        return f"{self.path}{any_leaf} {' or '.join(sorted(map(_phrase, self.atoms))) or 'never'}"


def value_clause(path: Path, atoms: Iterable[Atom]) -> Clause:
    """Return the clause on the one value at *path*."""
    return Clause(path, Mode.VALUE, frozenset(atoms))
