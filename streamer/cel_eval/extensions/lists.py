"""CEL's extension library lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from streamer.cel_eval.extensions.rows import Row, bad_value, charge_sorting, out_of_range, readable, row
from streamer.cel_eval.values import NUMBERS, ORDERED, CelReason, Failure, OptionalValue, Value, no_overload, read, type_name

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run


def _slice(run: Run, items: list[Value], start: int, end: int) -> Value:
    for index in (start, end):
        if not 0 <= index <= len(items):
            return out_of_range(index, len(items), "list")
    if start > end:
        return Failure(CelReason.INDEX_OUT_OF_RANGE, f"a part of a list from {start} to {end}")
    run.charge(end - start)
    return items[start:end]


def _flatten(run: Run, items: list[Value], depth: int = 1) -> Value:
    if depth < 0:
        return bad_value(f"flatten to a depth of {depth}")
    made: list[Value] = []
    # The lists may be deeper than Python's stack.
    pending = [iter(items)]
    while pending:
        for item in pending[-1]:
            run.charge(1)
            if type(item) is list and len(pending) <= depth:
                pending.append(iter(item))
                break
            made.append(item)
        else:
            pending.pop()
    return made


def _range(run: Run, count: int) -> Value:
    run.charge(max(0, count))
    return list(range(count))


def _distinct(run: Run, items: list[Value]) -> Value:
    made: list[Value] = []
    scalars: set[tuple[str, Any]] = set()
    containers: list[Value] = []
    for item in items:
        run.charge(1)
        value = read(item)
        if type(value) is Failure:
            return value
        if type(value) in (list, dict, OptionalValue):
            known = run.is_member(value, containers)
            if type(known) is Failure:
                return known
            if known is False:
                containers.append(value)
        else:
            if isinstance(value, str | bytes):
                run.charge_text(value)
            scalar = ("number" if type(value) in NUMBERS else type_name(value), value)
            # NaN differs from itself; a set would find the same object.
            known = value == value and scalar in scalars
            scalars.add(scalar)
        if known is False:
            made.append(item)
    return made


def _sort(run: Run, items: list[Value]) -> Value:
    return sorted_by(run, "sort", items, items)


def sorted_by(run: Run, name: str, items: list[Value], keys: list[Value]) -> Value:
    """Return *items* in the order of their *keys*, which have one type that has an order."""
    values = readable(keys)
    if isinstance(values, Failure):
        return values
    for value in values:
        if type(value) not in ORDERED or type(value) is not type(values[0]):
            return no_overload(name, [values[0], value])
        if value != value:
            return bad_value("NaN has no order")
    charge_sorting(run, len(values), *(value for value in values if isinstance(value, str | bytes)))
    order = sorted(range(len(values)), key=values.__getitem__)
    return [items[index] for index in order]


ROWS: Final[Mapping[str, Row]] = {
    "distinct": row(_distinct, "list -> list"),
    "flatten": row(_flatten, "list -> list", "list, int -> list"),
    "lists.range": row(_range, "int -> list"),
    "slice": row(_slice, "list, int, int -> list"),
    "sort": row(_sort, "list -> list"),
}
