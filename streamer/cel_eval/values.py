"""CEL values as Python objects, and the other results of an expression.

| CEL | Python | |
|---|---|---|
| null, bool, string, bytes | None, bool, str, bytes | |
| int | int | in int64 |
| uint | `UInt` | also an int of an event that is outside of int64 |
| double | float | |
| list, map | list, dict | the event's own, never changed; a map's key `true` is a `BoolKey`, since in Python `True == 1` |
| timestamp, duration | `Timestamp`, `Duration` | whole nanoseconds |
| type | `CelType` | |
| optional | `OptionalValue` | |

Errors and unknowns are values too (`Failure`, `UNKNOWN`), because `||`, `&&` and the macros absorb them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, TypeAlias, final

from streamer.model import INT64_MAX, BeyondFloat64


class CelReason(StrEnum):
    """The reason why the evaluation of a CEL program ended in an error; also the label of its counter."""

    NO_SUCH_FIELD = "no_such_field"
    """A member or key that the map does not have."""
    INDEX_OUT_OF_RANGE = "index_out_of_range"
    """An index below 0 or past the end of the list."""
    NO_SUCH_OVERLOAD = "no_such_overload"
    """An operator or function on types that it does not take, as `1 < 'a'` or a member of a string."""
    DIVISION_BY_ZERO = "division_by_zero"
    """`/` or `%` of ints or uints by zero."""
    OVERFLOW = "overflow"
    """Arithmetic, or a conversion of a number, past the range of its type, timestamps and durations included."""
    BAD_VALUE = "bad_value"
    """A conversion of a text that does not spell such a value; an unknown time zone."""
    BAD_REGEXP = "bad_regexp"
    """`matches` with a regexp, not constant, that RE2 refuses."""
    BAD_KEY = "bad_key"
    """A map with a key twice, or with a key that is not bool, int, uint or string."""
    BEYOND_FLOAT64 = "beyond_float64"
    """The expression read a number that is beyond float64, such as `1e400`."""
    NOT_BOOL = "not_bool"
    """The program's result is not bool."""
    FUNCTION = "function"
    """A function registered in Python raised an exception, or returned a value without a type in CEL."""
    BUDGET = "budget"
    """The program used up its cost units and was stopped."""
    PATTERN_BUDGET = "pattern_budget"
    """Outside of CEL: the choice of array elements for a pattern with `$or` takes more than its budget."""
    REGEXP_BUDGET = "regexp_budget"
    """Outside of CEL: the search of a filter's or a pattern's regexp in a text takes more than its budget."""
    TOPIC_BUDGET = "topic_budget"
    """Outside of CEL: the topic patterns of an event take more than their budget, or its key is too long."""


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """An error: its reason, and the details in words."""

    reason: CelReason
    detail: str


class Unknown(Enum):
    """The type of `UNKNOWN`: the event lacks a value that the expression needs (semantics.md section 8)."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


@final
class UInt(int):
    """A CEL uint, 0 to 2^64-1. It equals the int and the double of the same value."""

    __slots__ = ()


class BoolKey(Enum):
    """A bool as a key of a map."""

    FALSE = False
    TRUE = True


@final
@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since the epoch, from 0001-01-01 to 9999-12-31, UTC."""

    ns: int


@final
@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """Nanoseconds, in int64."""

    ns: int


@final
@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value or none, as `data.?a` returns it."""

    value: Any
    has_value: bool = True


NONE: Final = OptionalValue(None, False)


@final
@dataclass(frozen=True, slots=True)
class CelType:
    """A type as a value, such as `int` or `type(data.a)`."""

    name: str


Value: TypeAlias = Any
"""A CEL value, a `Failure` or `UNKNOWN`."""

TYPES: Final[Mapping[type, CelType]] = {
    bool: CelType("bool"),
    int: CelType("int"),
    UInt: CelType("uint"),
    float: CelType("double"),
    str: CelType("string"),
    bytes: CelType("bytes"),
    list: CelType("list"),
    dict: CelType("map"),
    type(None): CelType("null_type"),
    CelType: CelType("type"),
    Timestamp: CelType("google.protobuf.Timestamp"),
    Duration: CelType("google.protobuf.Duration"),
    OptionalValue: CelType("optional_type"),
}

TYPE_NAMES: Final = {kind.name: kind for kind in TYPES.values()}

NUMBERS: Final = frozenset({int, UInt, float})

#: The types of the keys of a map.
KEYS: Final = frozenset({bool, int, UInt, str})

ORDERED: Final[Mapping[type, str]] = {
    int: "number",
    UInt: "number",
    float: "number",
    bool: "bool",
    str: "string",
    bytes: "bytes",
    Timestamp: "timestamp",
    Duration: "duration",
}
"""The types that have an order, each with the name of that order; numbers have one together."""


def read(value: Any) -> Value:
    """Return a value from an event or a container as a CEL value."""
    if type(value) is int and value > INT64_MAX:
        return UInt(value)
    if type(value) is BeyondFloat64:
        return Failure(CelReason.BEYOND_FLOAT64, f"{value.text} is beyond float64")
    return value


def as_key(value: Value) -> Any:
    """Return the form of *value* as a key of a dict."""
    return BoolKey(value) if type(value) is bool else value


def from_key(key: Any) -> Value:
    """Return the value of a key that `as_key` made."""
    return key.value if type(key) is BoolKey else key


def type_name(value: Value) -> str:
    """Return the name of the type of *value*, for messages."""
    return TYPES[type(value)].name


def no_overload(name: str, args: list[Value]) -> Failure:
    """Return the error for an operator or function that does not support the types of its arguments."""
    return Failure(CelReason.NO_SUCH_OVERLOAD, f"{name} does not take {', '.join(map(type_name, args)) or 'no arguments'}")


def utf8_length(value: str | bytes) -> int:
    """Return the number of bytes of a string in UTF-8, or of bytes."""
    if isinstance(value, bytes) or value.isascii():
        return len(value)
    return len(value.encode("utf-8"))
