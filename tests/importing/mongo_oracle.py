"""MongoDB's matcher in plain Python, as its server does it: walk to each value, and compare it.

The walk is the one of `ElementPath` in the server: a list on the path is entered once, and its elements that are no objects are
left out. mongomock, the other authority of these tests, differs from the server in the cases that `mongomock_differs` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

MISSING = object()
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda a, b: a > b,
    "$gte": lambda a, b: a >= b,
    "$lt": lambda a, b: a < b,
    "$lte": lambda a, b: a <= b,
}


def matches(query: dict[str, Any], document: Any) -> bool:
    """Evaluate a query filter."""
    return all(_clause(name, given, document) for name, given in query.items())


def _clause(name: str, given: Any, document: Any) -> bool:
    match name:
        case "$and":
            return all(matches(each, document) for each in given)
        case "$or":
            return any(matches(each, document) for each in given)
        case "$nor":
            return not any(matches(each, document) for each in given)
    found = list(_values(document, name.split(".")))
    if not _is_operators(given):
        return any(_equal(each, given) for each, _ in found)
    return _operators(given, found)


def _is_operators(given: Any) -> bool:
    return isinstance(given, dict) and bool(given) and next(iter(given)).startswith("$")


def _values(document: Any, path: list[str]) -> Iterator[tuple[Any, bool]]:
    """Yield the values that a path leads to, each with whether it is an element of the list at its end."""
    value = document
    for index, name in enumerate(path):
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
        if isinstance(value, list) and index < len(path) - 1:
            for element in value:
                if isinstance(element, dict):
                    yield from _values(element, path[index + 1 :])
            return
    if isinstance(value, list):
        yield from ((element, True) for element in value)
    yield value, False


def _operators(given: dict[str, Any], found: list[tuple[Any, bool]]) -> bool:
    return all(_operator(op, operand, found) for op, operand in given.items())


def _operator(op: str, operand: Any, found: list[tuple[Any, bool]]) -> bool:
    match op:
        case "$ne":
            return not _operator("$eq", operand, found)
        case "$nin":
            return not _operator("$in", operand, found)
        case "$not":
            return not _operators(operand, found)
        case "$all":
            parts = [each if isinstance(each, dict) and "$elemMatch" in each else {"$eq": each} for each in operand]
            return bool(operand) and all(_operators(each, found) for each in parts)
        case "$exists":
            return any(value is not MISSING for value, _ in found) == bool(operand)
        case "$size" | "$elemMatch":
            return any(_of_list(op, value, operand) for value, is_element in found if not is_element and isinstance(value, list))
    return any(_single(op, value, operand) for value, _ in found)


def _of_list(op: str, value: list[Any], operand: Any) -> bool:
    if op == "$size":
        return bool(len(value) == operand)
    if _is_operators(operand) and next(iter(operand)) not in ("$and", "$or", "$nor"):
        return any(_operators(operand, [(element, False)]) for element in value)
    as_objects = (dict(zip(map(str, range(len(e))), e, strict=True)) if isinstance(e, list) else e for e in value)
    return any(matches(operand, element) for element in as_objects if isinstance(element, dict))


def _single(op: str, value: Any, operand: Any) -> bool:
    match op:
        case "$eq":
            return _equal(value, operand)
        case "$in":
            return any(_equal(value, each) for each in operand)
        case "$type":
            return value is not MISSING and _type(value) in (operand if isinstance(operand, list) else [operand])
        case "$regex":
            return isinstance(value, str) and re.search(operand, value) is not None
    if operand is None:
        return op in ("$gte", "$lte") and _equal(value, None)
    return value is not MISSING and _type(value) == _type(operand) and bool(_COMPARE[op](value, operand))


def _equal(value: Any, operand: Any) -> bool:
    if value is MISSING:
        return operand is None
    if _type(value) != _type(operand):
        return False
    if isinstance(value, list):
        return len(value) == len(operand) and all(map(_equal, value, operand))
    if isinstance(value, dict):
        return list(value) == list(operand) and all(map(_equal, value.values(), operand.values()))
    return bool(value == operand)


def _type(value: Any) -> str:
    names = {bool: "bool", str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "number")
