"""How MongoDB finds the values that a condition of a query is about: through the lists on a path, and in the list at its end.

    a.b of {"a": {"b": [1, 2]}}             the list [1, 2], 1 and 2
    a.b of {"a": [{"b": 1}, {}, 5, [..]]}   1 and a missing value; other elements than objects are left out
    a.b of {"a": 5}                         a missing value

A `Leaf` is the condition on one value. It is true for a field if it is true for one of the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.importing.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyElement,
    AnyOf,
    Condition,
    Not,
    Path,
    Test,
    all_of,
    any_of,
)
from streamer.importing.rules import refuse

#: Each step of a path doubles the condition, since it may lead to a list.
_MOST_STEPS: Final = 6
#: CEL has at most 16 KiB (semantics.md 4.13).
_MOST_BYTES: Final = 16_384
_KIND: Final = Path((), "type")
#: Fields of a change that are never lists.
_NO_LISTS: Final = (("operationType",), ("ns", "db"), ("ns", "coll"))


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition on one value that a path leads to.

    Attributes:
        own: the condition on the value.
        element: true if the value is a list, and the condition is true for an element; None if elements are not compared.
        missing: whether a missing value satisfies it.
    """

    own: Callable[[Path], Condition]
    element: Callable[[Path], Condition] | None = None
    missing: bool = False


#: A condition on the values of a field, made of its leaves by a function that finds the values.
OfLeaves: TypeAlias = Callable[[Callable[[Leaf], Condition]], Condition]
#: A function that reads a field: its dotted path, the condition, and its place in the rule.
Read: TypeAlias = Callable[[str, OfLeaves, str], Condition]


def check_bytes(query: Any) -> None:
    """Check that a query is not certain to become CEL beyond its limit: three paths within each other may become gigabytes.

    Raises:
        SubscriptionError: it is.
    """
    if _least_bytes(query) > _MOST_BYTES:
        raise SubscriptionError("this query becomes more than 16 KiB of CEL; write shorter CEL, or several queries")


def _least_bytes(query: Any) -> int:
    match query:
        case dict():
            return sum(2 ** min(name.count("."), _MOST_STEPS) * (len(name) + _least_bytes(each)) for name, each in query.items())
        case list():
            return sum(map(_least_bytes, query))
        case str():
            return len(query)
    return 1


def in_elements(own: Callable[[Path], Condition], *, missing: bool = False) -> Leaf:
    """Return a leaf that is true for a value, or for an element of it if it is a list."""
    return Leaf(own, lambda path: AnyElement(path, (name := variable(path)), own(Path((), name))), missing)


def variable(path: Path) -> str:
    """Return a name for the elements of a list: `e`, or `e2` in the elements of `e`."""
    return f"e{int(path.root[1:] or 1) + 1}" if re.fullmatch(r"e\d*", path.root) else "e"


def read_document(field: str, condition: OfLeaves, place: str) -> Condition:
    """Read a field of a document, which is `data`."""
    return condition(lambda leaf: _reached(Path(steps(field, place)), leaf))


def read_element(name: str) -> Read:
    """Return a function that reads a field of an element of a list."""
    return lambda field, condition, place: condition(lambda leaf: _reached(Path(steps(field, place), name), leaf))


def read_change(field: str, condition: OfLeaves, place: str) -> Condition:
    """Read a field of a change event: its documents are `data` and `before`, and the others are in `envelope`."""
    first, *rest = names = steps(field, place)
    if first in ("fullDocument", "fullDocumentBeforeChange") and not rest:
        refuse(f"expected a field of {first}, or one next to it, such as operationType", place)
    if names in _NO_LISTS:
        return condition(lambda leaf: leaf.own(Path(names, "envelope")))
    if first == "documentKey" and rest:
        return condition(lambda leaf: _of_key(Path(names, "envelope"), leaf))
    if first == "fullDocumentBeforeChange":
        return condition(lambda leaf: _reached(Path(tuple(rest), "before"), leaf))
    if first != "fullDocument":
        return condition(lambda leaf: _reached(Path(names, "envelope"), leaf))
    on_documents = condition(lambda leaf: _reached(Path(tuple(rest)), leaf))
    # Our deletes have the last document in `data`; those of MongoDB have none.
    if _truth(condition(lambda leaf: ALWAYS if leaf.missing else NEVER)):
        return any_of(Test(_KIND, "==", "delete"), on_documents)
    return all_of(Test(_KIND, "!=", "delete"), on_documents)


def _of_key(path: Path, leaf: Leaf) -> Condition:
    """Return a condition on a value of a key: never a list, and an object with the text of an id if it is one."""
    conditions = [leaf.own(path), leaf.own(Path((*path.names, "$oid"), path.root))]
    return any_of(*conditions, *([Not(Test(path, "exists"))] if leaf.missing else []))


def _truth(condition: Condition) -> bool:
    """Return the truth of a condition that is made of constants."""
    match condition:
        case Not(inner):
            return not _truth(inner)
        case AllOf(parts):
            return all(map(_truth, parts))
        case AnyOf(parts):
            return any(map(_truth, parts))
    raise AssertionError(condition)


def steps(field: str, place: str) -> tuple[str, ...]:
    """Return the steps of a dotted path.

    Raises:
        SubscriptionError: it is none, is too long, or has an index of a list.
    """
    names = tuple(field.split("."))
    if not all(names) or any(name.startswith("$") for name in names):
        refuse("expected a dotted path without empty steps", place)
    if any(name.isdigit() for name in names):
        refuse("a step of digits is an index or a name; write this condition in CEL, as data.items[0] == 5", place)
    if len(names) > _MOST_STEPS:
        refuse(f"expected a path of at most {_MOST_STEPS} steps, since each may lead to a list", place)
    return names


def _reached(path: Path, leaf: Leaf) -> Condition:
    """Return a condition that is true if a leaf is true for a value that a path leads to."""
    conditions = [leaf.own(path)]
    if leaf.missing:
        conditions.append(_absent(path))
    if leaf.element is not None:
        conditions.append(leaf.element(path))
    name = variable(path)
    for length in range(1, len(path.names)):
        inner = _reached(Path(path.names[length:], name), leaf)
        conditions.append(AnyElement(Path(path.names[:length], path.root), name, inner))
    return any_of(*conditions)


def _absent(path: Path) -> Condition:
    """Return a condition that is true if a value is missing, other than in the elements of a list."""
    lists = [Not(Test(Path(path.names[:length], path.root), "type", ["list"])) for length in range(1, len(path.names))]
    objects = [] if path.root in ("data", "before", "envelope") else [Test(Path((), path.root), "type", ["object"])]
    return all_of(*objects, Not(Test(path, "exists")), *lists)
