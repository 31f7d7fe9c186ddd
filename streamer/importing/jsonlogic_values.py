"""Operands of JsonLogic: variables, and literals that JavaScript and an event read alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

from streamer.importing.bounds import number
from streamer.importing.conditions import Path
from streamer.importing.rules import refuse

#: JavaScript finds these in every object, or in texts and lists.
_INHERITED: Final = frozenset(
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ __proto__ constructor hasOwnProperty isPrototypeOf "
    "length propertyIsEnumerable toLocaleString toString valueOf".split()
)
_SAFE_INTEGER: Final = 2**53


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a rule; the default is its value if it is missing."""

    path: Path
    default: Any


def literal(source: Any, place: str) -> Any:
    """Return a literal.

    Raises:
        SubscriptionError: it has operators, or a number that JavaScript rounds.
    """
    if isinstance(source, dict):
        refuse("expected a value without operators", place)
    if isinstance(source, list):
        return [literal(each, f"{place}[{index}]") for index, each in enumerate(source)]
    if isinstance(source, int | float) and not isinstance(source, bool):
        if abs(source) >= _SAFE_INTEGER:
            refuse("JavaScript rounds numbers of 2**53 and more; write this condition in CEL", place)
        return number(source, place)
    return source


def variable_of(operand: Any, root: str, place: str) -> Variable:
    """Return the variable that `var` names, in the document or in an element of a list.

    Raises:
        SubscriptionError: its path leads into a list, or to a property of JavaScript.
    """
    name, *default = operand if isinstance(operand, list) and operand else [operand]
    if len(default) > 1 or not (isinstance(name, str) or (name is None and root != "data")):
        refuse('expected a path, as {"var": "user.name"} or {"var": ["user.name", "default"]}', place)
    names = tuple(name.split(".")) if name else ()
    if not names and root == "data":
        refuse("the whole document cannot be compared; name a member", place)
    if any(each.isdigit() for each in names):
        refuse("a step of digits is an index or a name; write this condition in CEL, as data.items[0] == 5", place)
    if inherited := next((each for each in names if each in _INHERITED), None):
        refuse(f"JavaScript itself has a member {inherited!r}; write this condition in CEL", place)
    return Variable(Path(names, root), literal(default[0], place) if default else None)


def is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(value: Any, other: Any) -> bool:
    """Return whether JavaScript's `===` is true for two values without members."""
    if isinstance(value, list) or isinstance(other, list):
        return False
    same_type = (is_number(value) and is_number(other)) or type(value) is type(other)
    return same_type and bool(value == other)
