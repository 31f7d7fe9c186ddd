"""Filters: conditions on one field of `data`, and the CEL expression that each means (semantics.md section 3).

With `P(x)` for `type(x) == map && has(x.a) && type(x.a) == map && has(x.a.b)`, the filters on `a.b` are:

| op | CEL |
|---|---|
| `==` `!=` `<` `<=` `>` `>=` | `data.a.b == v`, and so on |
| `in`, `not in` | `data.a.b in [v, w]`, `!(data.a.b in [v, w])` |
| `contains`, `starts_with`, `ends_with`, `matches` | `data.a.b.contains(v)`, `.startsWith(v)`, `.endsWith(v)`, `.matches(v)` |
| `exists` true | `has(data.a) && has(data.a.b)`: an error where a step on the way is not an object |
| `exists` false | `!(P(data))`: true where a step on the way is not an object, or there is no document |
| `changed` | `P(data) && P(before) ? before.a.b != data.a.b : P(data) || P(before)` |
| `changed_to` | `P(data) && data.a.b == v && !(P(before) && before.a.b == v)` |
| `changed_from` | `P(before) && before.a.b == v && !(P(data) && data.a.b == v)` |

So for `changed`, `changed_to` and `changed_from` a field below a scalar, a list or null is absent, on either side, and
nothing but a number that no float64 holds is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from itertools import count
from typing import Any, Final, final

import re2

from streamer.cel_eval.regexps import MAX_SIZE, compile_regexp, regexp_error, regexp_size, too_large
from streamer.errors import SubscriptionError
from streamer.events.layout import decode_pointer
from streamer.model import INT64_MAX, INT64_MIN, UINT64_MAX, BeyondFloat64, Limits, is_unicode
from streamer.subscriptions.subscription import Filter


class Operator(StrEnum):
    """What a filter asks of its field."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    IN = "in"
    NOT_IN = "not in"
    CONTAINS = "contains"
    EXISTS = "exists"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    MATCHES = "matches"
    CHANGED = "changed"
    CHANGED_TO = "changed_to"
    CHANGED_FROM = "changed_from"


OPERATORS: Final[tuple[str, ...]] = tuple(operator.value for operator in Operator)

ORDERINGS: Final = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL})
CHANGES: Final = frozenset({Operator.CHANGED, Operator.CHANGED_TO, Operator.CHANGED_FROM})

#: Lists and objects in a value may be nested so deep; CEL reads 64 levels of brackets, and a filter is printed as CEL.
MAX_VALUE_DEPTH: Final = 32

#: A filter on a path prints as CEL that names each step again for every step below it: quadratic in the steps.
MAX_FIELD_BYTES: Final = 4096
MAX_FIELD_STEPS: Final = 512

#: As long as a CEL expression may be, so that a filter may be written as one.
MAX_REGEXP_BYTES: Final = 16 * 1024

#: More values than 16 MiB of JSON text can hold: a list may hold another twice, which holds another twice, and so on.
MAX_VALUES: Final = 8 * 1024 * 1024

_MEMBERS = ("field", "op", "value")
#: Operators of other languages, which by their spelling alone would be taken for something else.
_SLIPS = {"=": "==", "===": "==", "<>": "!=", "!==": "!="}
_TEXT_FUNCTIONS = {
    Operator.CONTAINS: "contains",
    Operator.STARTS_WITH: "startsWith",
    Operator.ENDS_WITH: "endsWith",
    Operator.MATCHES: "matches",
}


@final
@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A filter that was checked.

    Attributes:
        path: member names from `data` down, at least one.
        op: the operator.
        value: None for `changed`; a list for `in` and `not in`; a bool for `exists`.
        place: where it stands in its subscription, as `filters[0]`.
        regexp: the compiled RE2 expression of `matches`; else None.
        size: that of the regexp (docs/cel-cost.md).
    """

    path: tuple[str, ...]
    op: Operator
    value: Any
    place: str = "filters[0]"
    regexp: Any = field(default=None, compare=False, repr=False)
    size: int = field(default=0, compare=False, repr=False)

    def to_cel(self) -> str:
        """Print the CEL expression that this filter means exactly (see the table at the top of this module)."""
        here, there = cel_path("data", self.path), cel_path("before", self.path)
        match self.op:
            case Operator.EXISTS if self.value:
                return " && ".join(_has("data", self.path[: i + 1]) for i in range(len(self.path)))
            case Operator.EXISTS:
                return f"!({present('data', self.path)})"
            case Operator.CHANGED:
                now, then = present("data", self.path), present("before", self.path)
                return f"{now} && {then} ? {there} != {here} : ({now}) || ({then})"
            case Operator.CHANGED_TO:
                return self._changed(("data", here), ("before", there))
            case Operator.CHANGED_FROM:
                return self._changed(("before", there), ("data", here))
            case Operator.NOT_IN:
                return f"!({here} in {cel_literal(self.value)})"
            case Operator.CONTAINS | Operator.STARTS_WITH | Operator.ENDS_WITH | Operator.MATCHES:
                return f"{here}.{_TEXT_FUNCTIONS[self.op]}({cel_literal(self.value)})"
            case _:
                return f"{here} {self.op} {cel_literal(self.value)}"

    def _changed(self, has_it: tuple[str, str], has_it_not: tuple[str, str]) -> str:
        literal = cel_literal(self.value)
        (one, value), (other, other_value) = has_it, has_it_not
        return (
            f"{present(one, self.path)} && {value} == {literal} && !({present(other, self.path)} && {other_value} == {literal})"
        )


def read_filter(source: Filter | Mapping[str, Any], *, place: str = "filters[0]") -> Filter:
    """Check the members of a filter, their types and that a value is there where the operator needs one.

    Raises:
        SubscriptionError: with the place of the member at fault.
    """
    if isinstance(source, Filter):
        members: Mapping[str, Any] = {"field": source.field, "op": source.op}
        if source.op != Operator.CHANGED or source.value is not None:
            members = {**members, "value": source.value}
    elif isinstance(source, Mapping):
        members = source
    else:
        raise SubscriptionError(f"expected an object, not {type_name(source)}", place=place)
    for name in members:
        if name not in _MEMBERS:
            where = f"{place}.{name}" if isinstance(name, str) else place
            raise SubscriptionError(unknown_name(name, _MEMBERS, "member"), place=where)
    for name in ("field", "op"):
        if name not in members:
            raise SubscriptionError(f"expected a member {name!r}", place=f"{place}.{name}")
        if not isinstance(members[name], str):
            raise SubscriptionError(f"expected a string, not {type_name(members[name])}", place=f"{place}.{name}")
    if members["op"] not in OPERATORS:
        raise SubscriptionError(unknown_name(members["op"], OPERATORS, "operator"), place=f"{place}.op")
    if members["op"] == Operator.CHANGED:
        if "value" in members:
            raise SubscriptionError("'changed' takes no value", place=f"{place}.value")
    elif "value" not in members:
        raise SubscriptionError(f"{members['op']!r} needs a value", place=f"{place}.value")
    return Filter(members["field"], str(members["op"]), members.get("value"))


def parse_filter(
    source: Filter | Mapping[str, Any], *, place: str = "filters[0]", limits: Limits | None = None
) -> CompiledFilter:
    """Check a filter in full and return it ready to be evaluated or lowered.

    Raises:
        SubscriptionError: with the place of what is wrong, as `filters[0].value[3]`.
    """
    given = read_filter(source, place=place)
    path = parse_path(given.field, place=f"{place}.field")
    op = Operator(given.op)
    where = f"{place}.value"
    value = json_value(given.value, place=where)
    regexp, size = None, 0
    match op:
        case Operator.CHANGED | Operator.EQUAL | Operator.NOT_EQUAL | Operator.CHANGED_TO | Operator.CHANGED_FROM:
            pass
        case Operator.EXISTS:
            _expect(isinstance(value, bool), value, "true or false", where)
        case Operator.STARTS_WITH | Operator.ENDS_WITH:
            _expect(isinstance(value, str), value, "a string", where)
        case Operator.MATCHES:
            _expect(isinstance(value, str), value, "a string", where)
            regexp, size = _compile_regexp(value, where, MAX_SIZE if limits is None else limits.max_regexp_size)
        case Operator.IN | Operator.NOT_IN:
            _expect(isinstance(value, list), value, "a list of strings, numbers, booleans or nulls", where)
            for index, item in enumerate(value):
                _expect(_is_scalar_or_null(item), item, "a string, a number, a boolean or null", f"{where}[{index}]")
        case Operator.CONTAINS:
            _expect(_is_scalar_or_null(value), value, "a string, a number, a boolean or null", where)
        case _:
            _expect(_is_scalar_or_null(value) and value is not None, value, "a string, a number or a boolean", where)
    return CompiledFilter(path, op, value, place, regexp, size)


def parse_path(text: str, *, place: str = "filters[0].field") -> tuple[str, ...]:
    """Split a dotted path (`user.country`) or a JSON Pointer (`/a.b/c`) into member names.

    Only a pointer can name a member `""`, as RFC 6901 has it; in a dotted path an empty step is a slip.
    """
    check_text(text, place=place)
    size = len(text.encode())
    if size > MAX_FIELD_BYTES:
        raise SubscriptionError(f"a path of {size} bytes; at most {MAX_FIELD_BYTES} are allowed", place=place)
    if text.startswith("/"):
        try:
            names = decode_pointer(text)
        except ValueError as error:
            raise SubscriptionError(str(error), place=place) from None
    else:
        names = tuple(text.split("."))
        if "" in names:
            what = "the path is empty" if text == "" else f"an empty step in {text!r}"
            raise SubscriptionError(f"{what}; expected member names with dots between them, or a JSON Pointer", place=place)
    if len(names) > MAX_FIELD_STEPS:
        raise SubscriptionError(f"a path of {len(names)} steps; at most {MAX_FIELD_STEPS} are allowed", place=place)
    return names


def json_value(value: Any, *, place: str) -> Any:
    """Return a copy of a JSON value, built of dict, list and scalars only, and check it.

    Raises:
        SubscriptionError: a number outside float64 or 64 bits, a lone surrogate, another type, deeper than `MAX_VALUE_DEPTH`, or
            more than `MAX_VALUES`.
    """
    return _json_value(value, place, 0, count())


def _json_value(value: Any, place: str, depth: int, values: Iterator[int]) -> Any:
    if next(values) >= MAX_VALUES:
        raise SubscriptionError(f"more than {MAX_VALUES} values in one another", place=place)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        check_text(value, place=place)
        return str(value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= UINT64_MAX:
            raise SubscriptionError("expected an integer of 64 bits", place=place)
        return int(value)
    if isinstance(value, BeyondFloat64) or (isinstance(value, float) and not math.isfinite(value)):
        shown = value.text if isinstance(value, BeyondFloat64) else repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
        raise SubscriptionError(f"expected a number that a float64 holds, not {shown}", place=place)
    if isinstance(value, float):
        return float(value)
    if depth == MAX_VALUE_DEPTH and isinstance(value, list | tuple | Mapping):
        raise SubscriptionError(f"nested deeper than {MAX_VALUE_DEPTH} levels", place=place)
    if isinstance(value, list | tuple):
        return [_json_value(item, f"{place}[{index}]", depth + 1, values) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise SubscriptionError(f"expected member names that are strings, not {type_name(name)}", place=place)
            check_text(name, place=place)
        return {name: _json_value(item, f"{place}.{name}", depth + 1, values) for name, item in value.items()}
    raise SubscriptionError(f"expected a JSON value, not {type(value).__name__}", place=place)


def check_text(text: str, *, place: str) -> None:
    """Refuse half a surrogate pair, which no UTF-8 text can hold."""
    if not is_unicode(text):
        raise SubscriptionError("a lone surrogate in a string", place=place)


def type_name(value: Any) -> str:
    """Name the JSON type of a value, for messages."""
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
    return "a list" if isinstance(value, list | tuple) else type(value).__name__


def unknown_name(name: Any, known: tuple[str, ...], kind: str) -> str:
    """Say that a name is unknown, with the nearest that is known, or all of them."""
    if not isinstance(name, str):
        return f"a {kind} is named by a string, not {type_name(name)}"
    shown = name if len(name) <= 60 else f"{name[:60]}..."
    nearest = [_SLIPS[name]] if name in _SLIPS else get_close_matches(shown, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"expected one of {', '.join(map(repr, known))}"
    return f"unknown {kind} {shown!r}; {hint}"


def _expect(holds: bool, value: Any, expected: str, place: str) -> None:
    if not holds:
        raise SubscriptionError(f"expected {expected}, not {type_name(value)}", place=place)


def _is_scalar_or_null(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _compile_regexp(source: str, place: str, most: int) -> tuple[Any, int]:
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


# Printing as CEL

_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_QUOTABLE = re.compile(r"[a-zA-Z0-9_.\-/ ]+")
_RESERVED = frozenset(
    "as break const continue else false for function if import in let loop namespace "
    "null package return true var void while".split()
)
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def cel_literal(value: Any) -> str:
    """Print a JSON value as CEL; numbers read back as the same value of the same type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}u" if value > INT64_MAX else str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return "'" + "".join(map(_escape, value)) + "'"
    if isinstance(value, list):
        return "[" + ", ".join(map(cel_literal, value)) + "]"
    return "{" + ", ".join(f"{cel_literal(name)}: {cel_literal(item)}" for name, item in value.items()) + "}"


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _name(name: str) -> str | None:
    """Print a member name for use after a dot; None where not even quotes can hold it."""
    if _IDENTIFIER.fullmatch(name) and name not in _RESERVED:
        return name
    return f"`{name}`" if _QUOTABLE.fullmatch(name) else None


def cel_path(root: str, path: tuple[str, ...]) -> str:
    """Print a path as CEL reads it, from a part of the event: ``data.user.`content-type` ``."""
    printed = root
    for name in path:
        plain = _name(name)
        printed += f".{plain}" if plain is not None else f"[{cel_literal(name)}]"
    return printed


def _has(root: str, path: tuple[str, ...]) -> str:
    parent, plain = cel_path(root, path[:-1]), _name(path[-1])
    if plain is not None:
        return f"has({parent}.{plain})"
    # `in` would ask a list for an element; null makes it the error that `has` is.
    return f"{cel_literal(path[-1])} in (type({parent}) == map ? {parent} : null)"


def present(root: str, path: tuple[str, ...]) -> str:
    steps = []
    for i in range(len(path)):
        parent, plain = cel_path(root, path[:i]), _name(path[i])
        has = f"has({parent}.{plain})" if plain is not None else f"{cel_literal(path[i])} in {parent}"
        steps.append(f"type({parent}) == map && {has}")
    return " && ".join(steps)
