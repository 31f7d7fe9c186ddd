"""Static types of expressions, as far as the checker derives them, and the overloads of operators and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.extensions.rows import NUMBER as NUMBER_NAME
from streamer.cel_eval.functions import PARTS_OF_DURATIONS, PARTS_OF_TIMESTAMPS
from streamer.cel_eval.values import TYPES


@final
@dataclass(frozen=True, slots=True)
class Type:
    """A type; a list has one parameter, a map two. *nullable*: the value may also be null."""

    name: str
    params: tuple[Type, ...] = ()
    nullable: bool = False

    def __str__(self) -> str:
        shown = f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name
        return f"{shown} or null" if self.nullable else shown


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
TYPE: Final = Type("type")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")
DURATION: Final = Type("google.protobuf.Duration")
OPTIONAL: Final = Type("optional_type")
#: Any of the three types of numbers, as a parameter.
NUMBER: Final = Type(NUMBER_NAME)

LITERALS: Final[Mapping[type, Type]] = {kind: Type(value.name) for kind, value in TYPES.items()}
NUMERIC: Final = frozenset({INT, UINT, DOUBLE})
ORDERED: Final = NUMERIC | {BOOL, STRING, BYTES, TIMESTAMP, DURATION}
KEYS: Final = frozenset({BOOL, INT, UINT, STRING, DYN})

VARIABLES: Final[Mapping[str, Type]] = {
    "data": Type("map", (STRING, DYN), nullable=True),
    "before": Type("map", (STRING, DYN), nullable=True),
    "collection": STRING,
    "tenant": STRING,
    "type": STRING,
    "topic": STRING,
    "ts": Type(TIMESTAMP.name, nullable=True),
    "envelope": Type("map", (STRING, DYN), nullable=True),
}
"""The parts of an event, as an expression sees them (semantics.md section 4)."""


#: The known depth of a list in a list in a list...; deeper types are `dyn`. A chain of macros is one level of the source, however
#: deep its result is, and types are compared and hashed by recursion.
MAX_TYPE_DEPTH: Final = 16


def list_of(element: Type) -> Type:
    return Type("list", (_bounded(element),))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, _bounded(value)))


def _bounded(kind: Type) -> Type:
    return kind if _depth(kind) < MAX_TYPE_DEPTH else DYN


def _depth(kind: Type) -> int:
    return 1 + max(map(_depth, kind.params), default=0)


def join(one: Type, other: Type) -> Type | None:
    """Return the common type of two types, or None: for example, `1` and `'a'` have none, and `1` and `1.0` have none."""
    if DYN in (one, other):
        return DYN
    if NULL in (one, other):
        kind = other if one == NULL else one
        return replace(kind, nullable=kind != NULL) if _may_be_null(kind) else None
    if one.name != other.name:
        return None
    params = [join(*pair) for pair in zip(one.params, other.params, strict=True)]
    known = tuple(param for param in params if param is not None)
    return None if len(known) < len(params) else Type(one.name, known, nullable=one.nullable or other.nullable)


def _may_be_null(kind: Type) -> bool:
    # cel-spec allows null in place of a timestamp or a duration, because these are messages in Protobuf.
    return kind.nullable or kind.name in (NULL.name, TIMESTAMP.name, DURATION.name)


def join_elements(types: Sequence[Type]) -> Type:
    """Return the type of the elements of a literal: `dyn` if they differ."""
    joined = types[0] if types else DYN
    for kind in types[1:]:
        joined = join(joined, kind) or DYN
    return joined


def comparable(one: Type, other: Type) -> bool:
    """Return whether comparing two types makes sense: equal types, or numbers of any kind, also inside containers."""
    if DYN in (one, other) or {one, other} <= NUMERIC:
        return True
    if NULL in (one, other):
        return _may_be_null(other if one == NULL else one)
    return one.name == other.name and all(comparable(*pair) for pair in zip(one.params, other.params, strict=True))


# --- overloads --------------------------------------------------------------------------------------------------------

Overload = tuple[tuple[Type, ...], Type]

_ANY_LIST: Final = list_of(DYN)
_ANY_MAP: Final = map_of(DYN, DYN)


def _same(*kinds: Type) -> list[Overload]:
    return [((kind, kind), kind) for kind in kinds]


def _from(result: Type, *kinds: Type) -> list[Overload]:
    return [((kind,), result) for kind in (result, *kinds)]


OPERATORS: Final[Mapping[str, list[Overload]]] = {
    "+": [
        *_same(INT, UINT, DOUBLE, STRING, BYTES, DURATION),
        ((TIMESTAMP, DURATION), TIMESTAMP),
        ((DURATION, TIMESTAMP), TIMESTAMP),
        ((_ANY_LIST, _ANY_LIST), _ANY_LIST),
    ],
    "-": [*_same(INT, UINT, DOUBLE, DURATION), ((TIMESTAMP, TIMESTAMP), DURATION), ((TIMESTAMP, DURATION), TIMESTAMP)],
    "*": _same(INT, UINT, DOUBLE),
    "/": _same(INT, UINT, DOUBLE),
    "%": _same(INT, UINT),
    "unary -": [((INT,), INT), ((DOUBLE,), DOUBLE)],
    "!": [((BOOL,), BOOL)],
}

_SIZE: Final[list[Overload]] = [((kind,), INT) for kind in (STRING, BYTES, _ANY_LIST, _ANY_MAP)]
_TEXTS: Final[list[Overload]] = [((STRING, STRING), BOOL)]


def extension_overloads(name: str, count: int) -> list[Overload]:
    """Return the overloads of an extension function for a number of arguments."""
    return [(tuple(map(_named, params)), _named(result)) for params, result in EXTENSIONS[name].overloads(count)]


def _named(name: str) -> Type:
    return _ANY_LIST if name == "list" else Type(name)


_EXTENSIONS: Final = {name: extension_overloads(name, 1) for name in EXTENSIONS}

FUNCTIONS: Final[Mapping[str, list[Overload]]] = {
    "size": _SIZE,
    "matches": _TEXTS,
    "int": _from(INT, UINT, DOUBLE, STRING, TIMESTAMP),
    "uint": _from(UINT, INT, DOUBLE, STRING),
    "double": _from(DOUBLE, INT, UINT, STRING),
    "string": _from(STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION),
    "bytes": _from(BYTES, STRING),
    "bool": _from(BOOL, STRING),
    "timestamp": _from(TIMESTAMP, STRING, INT),
    "duration": _from(DURATION, STRING),
    "type": [((DYN,), TYPE)],
    "dyn": [((DYN,), DYN)],
    **{name: overloads for name, overloads in _EXTENSIONS.items() if "." in name},
}

METHODS: Final[Mapping[str, list[Overload]]] = {
    "size": _SIZE,
    "contains": [*_TEXTS, ((_ANY_LIST, DYN), BOOL)],
    "startsWith": _TEXTS,
    "endsWith": _TEXTS,
    "matches": _TEXTS,
    **{
        name: [
            ((TIMESTAMP,), INT),
            ((TIMESTAMP, STRING), INT),
            *([((DURATION,), INT)] if name in PARTS_OF_DURATIONS else []),
        ]
        for name in sorted(PARTS_OF_TIMESTAMPS)
    },
    **{name: overloads for name, overloads in _EXTENSIONS.items() if "." not in name},
}


def resolve(overloads: Sequence[Overload], args: Sequence[Type]) -> Type | None:
    """Return the type of the result: None if no overload accepts *args*, `dyn` if it depends on the value of a `dyn`."""
    plain = [replace(arg, nullable=False) for arg in args]
    results = {result for params, result in overloads if len(params) == len(args) and all(map(_takes, params, plain))}
    return None if not results else results.pop() if len(results) == 1 else DYN


def _takes(param: Type, arg: Type) -> bool:
    if param == NUMBER:
        return arg in NUMERIC or arg == DYN
    return param == DYN or (arg != NULL and join(param, arg) is not None)
