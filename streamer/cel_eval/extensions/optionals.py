"""CEL's optional types: a value or none. `.?name`, `[?key]`, optMap and optFlatMap are syntax of the evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streamer.cel_eval.extensions.rows import Row, bad_value, readable, row
from streamer.cel_eval.times import EARLIEST
from streamer.cel_eval.values import NONE, Duration, Failure, OptionalValue, Timestamp, Value, no_overload, read

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

#: Methods whose argument is evaluated only if the optional has no value.
LAZY: Final = frozenset({"or", "orValue"})
#: Methods of an optional with a value that do not depend on unknowns in the value.
EARLY: Final = LAZY | {"hasValue", "value"}


def _of(run: Run, value: Value) -> Value:
    return OptionalValue(value)


def _none(run: Run) -> Value:
    return NONE


def _of_non_zero(run: Run, value: Value) -> Value:
    return NONE if _is_zero(value) else OptionalValue(value)


def _is_zero(value: Value) -> bool:
    match value:
        case Timestamp(ns):
            return ns == EARLIEST
        case Duration(ns):
            return ns == 0
        case OptionalValue():
            return not value.has_value
        case _:
            return value is None or value in (False, 0) or (isinstance(value, str | bytes | list | dict) and not value)


def _has_value(run: Run, optional: OptionalValue) -> Value:
    return optional.has_value


def _value(run: Run, optional: OptionalValue) -> Value:
    return optional.value if optional.has_value else bad_value("the optional has no value")


def _or_else(run: Run, optional: OptionalValue, other: Value) -> Value:
    return optional if optional.has_value else other


def _or_value(run: Run, optional: OptionalValue, other: Value) -> Value:
    return optional.value if optional.has_value else other


def _first(run: Run, items: list[Value]) -> Value:
    return _at(items, 0)


def _last(run: Run, items: list[Value]) -> Value:
    return _at(items, -1)


def _at(items: list[Value], index: int) -> Value:
    values = readable(items[index:][:1])
    if isinstance(values, Failure):
        return values
    return OptionalValue(values[0]) if values else NONE


def _unwrap(run: Run, items: list[Value]) -> Value:
    run.charge(len(items))
    for item in items:
        value = read(item)
        if type(value) is not OptionalValue:
            return value if type(value) is Failure else no_overload("unwrap", [value])
    return [item.value for item in items if item.has_value]


ROWS: Final[Mapping[str, Row]] = {
    "first": row(_first, "list -> optional_type"),
    "hasValue": row(_has_value, "optional_type -> bool"),
    "last": row(_last, "list -> optional_type"),
    "optional.none": row(_none, "-> optional_type"),
    "optional.of": row(_of, "dyn -> optional_type"),
    "optional.ofNonZeroValue": row(_of_non_zero, "dyn -> optional_type"),
    "optional.unwrap": row(_unwrap, "list -> list"),
    "or": row(_or_else, "optional_type, optional_type -> optional_type"),
    "orValue": row(_or_value, "optional_type, dyn -> dyn"),
    "unwrapOpt": row(_unwrap, "list -> list"),
    "value": row(_value, "optional_type -> dyn"),
}
