"""Check the value of a filter: it must be plain JSON, and of a type that its operator accepts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Final, final

import re2

from streamer.cel_eval.regexps import MAX_SIZE, compile_regexp, regexp_error, regexp_size, too_large
from streamer.errors import SubscriptionError
from streamer.model import INT64_MIN, UINT64_MAX, BeyondFloat64, Limits, is_unicode, type_of

#: The deepest nesting of lists and objects in a value. A filter is printed as CEL, which reads 64 levels of brackets.
MAX_VALUE_DEPTH: Final = 32

#: The limit of a CEL expression, so that a filter can be written as one.
MAX_REGEXP_BYTES: Final = 16 * 1024

#: The most values, more than 16 MiB of JSON text can contain. Objects may contain a list twice, which contains a list twice, etc.
MAX_VALUES: Final = 8 * 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class Operand:
    """The operand of an operator.

    Attributes:
        expected: its description, for errors.
        types: the JSON types that it accepts, as JSON Schema calls them.
        element: the description of each element, if the value is a list.
    """

    expected: str
    types: tuple[str, ...]
    element: Operand | None = None

    def check(self, value: Any, place: str) -> None:
        """Raise SubscriptionError, with the place, if the operator does not accept *value*."""
        if _json_type(value) not in self.types:
            raise SubscriptionError(f"expected {self.expected}, not {type_name(value)}", place=place)
        if self.element is not None:
            one_of_each = {type(item): item for item in value}
            if all(_json_type(item) in self.element.types for item in one_of_each.values()):
                return
            for index, item in enumerate(value):
                self.element.check(item, f"{place}[{index}]")


NOTHING: Final = Operand("no value", ("null",))
ANYTHING: Final = Operand("a value", ("string", "number", "boolean", "null", "array", "object"))
BOOLEAN: Final = Operand("true or false", ("boolean",))
TEXT: Final = Operand("a string", ("string",))
#: The text of an operator on other values, too, that ignores case.
FOLDED: Final = Operand("a string with 'ignore_case'", ("string",))
#: A regexp: see `compile_operand`.
REGEXP: Final = Operand("a string", ("string",))
ORDERED: Final = Operand("a string, a number or a boolean", ("string", "number", "boolean"))
SCALAR: Final = Operand("a string, a number, a boolean or null", (*ORDERED.types, "null"))
#: A list; each element is an alternative of the subscription.
SCALARS: Final = Operand("a list of strings, numbers, booleans or nulls", ("array",), SCALAR)


def _json_type(value: Any) -> str:
    """Return the JSON type of a value from `json_value`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def json_value(value: Any, *, place: str, spend: Callable[[float], None]) -> Any:
    """Return a copy of a JSON value, made of dict, list and scalars only, after checking it.

    Args:
        spend: takes the units that it costs to read a list or an object, before it is read.

    Raises:
        SubscriptionError: a number exceeds float64 or 64 bits, a string has a lone surrogate, a type is not JSON, or the value is
            nested deeper than `MAX_VALUE_DEPTH` or has more than `MAX_VALUES` values.
    """
    values = 0

    def enter(members: Sized, place: str) -> None:
        nonlocal values
        values += len(members)
        if values >= MAX_VALUES:
            raise SubscriptionError(f"more than {MAX_VALUES} values in one another", place=place)
        spend(1 + len(members) // 3)

    return _json_value(value, place, 0, enter)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a scalar that needs neither a copy nor a further check: nearly every element of a long list."""
    kind = type(value)
    return (
        (kind is str and value.isascii())
        or (kind is int and INT64_MIN <= value <= UINT64_MAX)
        or (kind is float and math.isfinite(value))
    )


def _json_value(value: Any, place: str, depth: int, enter: Callable[[Sized, str], None]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        check_text(value, place=place)
        return str.__str__(value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= UINT64_MAX:
            raise SubscriptionError("expected an integer of 64 bits", place=place)
        return int.__int__(value)
    if isinstance(value, BeyondFloat64) or (isinstance(value, float) and not math.isfinite(value)):
        shown = value.text if isinstance(value, BeyondFloat64) else float.__repr__(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
        raise SubscriptionError(f"expected a number within float64, not {shown}", place=place)
    if isinstance(value, float):
        return float.__float__(value)
    if depth == MAX_VALUE_DEPTH and isinstance(value, list | tuple | Mapping):
        raise SubscriptionError(f"nested deeper than {MAX_VALUE_DEPTH} levels", place=place)
    if isinstance(value, list | tuple):
        enter(value, place)
        return [
            item if _is_plain(item) else _json_value(item, f"{place}[{at}]", depth + 1, enter) for at, item in enumerate(value)
        ]
    if isinstance(value, Mapping):
        enter(value, place)
        for name in value:
            if not isinstance(name, str):
                raise SubscriptionError(f"expected member names that are strings, not {type_name(name)}", place=place)
            check_text(name, place=place)
        return {name: _json_value(item, f"{place}.{name}", depth + 1, enter) for name, item in value.items()}
    raise SubscriptionError(no_json(value), place=place)


def no_json(value: object) -> str:
    """Return the error for a value of a type that JSON does not have, and how to convert it."""
    return f"expected a JSON value, not {type_of(value)}; default= of the engine converts what JSON does not have"


def check_text(text: str, *, place: str) -> None:
    """Refuse a text with a lone surrogate, which UTF-8 cannot encode."""
    if not is_unicode(text):
        raise SubscriptionError("a lone surrogate in a string", place=place)


def type_name(value: Any) -> str:
    """Return the name of a value's JSON type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float | BeyondFloat64):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else type_of(value)


def compile_operand(source: str, place: str, limits: Limits | None = None) -> tuple[Any, int]:
    """Return the compiled RE2 expression of a filter, and its size. Raises SubscriptionError."""
    most = MAX_SIZE if limits is None else limits.max_regexp_size
    length = len(source.encode())
    if length > MAX_REGEXP_BYTES:
        reason = f"a regular expression of {length} bytes; at most {MAX_REGEXP_BYTES} are allowed"
        raise SubscriptionError(reason, place=place)
    if (size := regexp_size(source)) > most:
        raise SubscriptionError(too_large(size, most), place=place)
    try:
        return compile_regexp(source), size
    except re2.error as error:
        raise SubscriptionError(regexp_error(error), place=place) from None
