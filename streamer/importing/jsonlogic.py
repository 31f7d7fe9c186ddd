"""Rules of JsonLogic: https://jsonlogic.com/operations.html

{"===": [{"var": "status"}, "paid"]}     a filter
{">": [{"var": "amount"}, 100]}          a filter
{"<": [{"var": "amount"}, 100]}          data.amount < 100 || data.amount in [null, false, true] || !(.. has(data.amount))
{"var": "tags"}                          two filters: not in [null, false, 0, ""], and != []

A missing variable is null, or its default. JavaScript then converts types. What it does with null, booleans and missing values is
translated: they are 0 and 1 in `<`. A text or a list is neither less nor greater than a number here. `==` is refused but with
null, since no short condition lists the texts and lists that equal a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Final, NoReturn, final

from streamer.errors import SubscriptionError
from streamer.importing.bounds import check_size, number
from streamer.importing.conditions import (
    ALWAYS,
    NEVER,
    AnyElement,
    Condition,
    Not,
    Path,
    Test,
    all_of,
    any_of,
    contains_text,
    subscription_parts,
)
from streamer.importing.rules import Rule, json_rules

_ORDERS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "<": (lt, ">"), "<=": (le, ">="), ">": (gt, "<"), ">=": (ge, "<="),
}  # fmt: skip
_FALSY: Final = [None, False, 0, ""]
#: JavaScript finds these in every object, or in texts and lists.
_INHERITED: Final = frozenset(
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ __proto__ constructor hasOwnProperty isPrototypeOf "
    "length propertyIsEnumerable toLocaleString toString valueOf".split()
)
_SAFE_INTEGER: Final = 2**53


@final
@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of a rule; the default is its value if it is missing."""

    path: Path
    default: Any


def rules(text: str) -> Iterator[Rule]:
    """Yield the rules of a file."""
    return json_rules(text, _translate)


def _translate(rule: Any) -> Mapping[str, Any]:
    check_size(rule)
    if not isinstance(rule, dict | bool):
        _refuse('expected a rule, as {"===": [{"var": "status"}, "paid"]}', "")
    return subscription_parts(_truth(rule, "data", ""))


def _truth(rule: Any, root: str, place: str) -> Condition:
    """Return a condition that is true if the value of a rule is truthy."""
    if not isinstance(rule, dict):
        return ALWAYS if _literal(rule, place) else NEVER
    op, given = _operation(rule, place)
    place = f"{place}.{op}" if place else op
    operands = given if isinstance(given, list) else [given]
    places = [f"{place}[{index}]" for index in range(len(operands))] if isinstance(given, list) else [place]
    match op:
        case "and" | "or":
            parts = [_truth(each, root, at) for each, at in zip(operands, places, strict=True)]
            return all_of(*parts) if parts and op == "and" else any_of(*parts)
        case "if" | "?:":
            return _choice(list(zip(operands, places, strict=True)), root)
        case "!" | "!!":
            _expect(1, operands, place)
            truth = _truth(operands[0], root, places[0])
            return truth if op == "!!" else Not(truth)
        case "===" | "!==" | "==" | "!=":
            _expect(2, operands, place)
            return _equal(op, [_operand(each, root, at) for each, at in zip(operands, places, strict=True)], place)
        case "<" | "<=" | ">" | ">=":
            return _ordered(op, [_operand(each, root, at) for each, at in zip(operands, places, strict=True)], place)
        case "in":
            _expect(2, operands, place)
            return _member(_operand(operands[0], root, places[0]), _operand(operands[1], root, places[1]), place)
        case "some" | "all" | "none":
            _expect(2, operands, place)
            return _quantified(op, _operand(operands[0], root, places[0]), operands[1], places)
        case "missing":
            keys = operands[0] if operands and isinstance(operands[0], list) else operands
            return any_of(*(_lacks(key, root, place) for key in keys))
        case "missing_some" if len(operands) == 2 and operands[0] == 1 and isinstance(operands[1], list):
            return all_of(*(_lacks(key, root, places[1]) for key in operands[1])) if operands[1] else NEVER
        case "var":
            variable = _variable(given, root, place)
            truthy = all_of(Test(variable.path, "not in", _FALSY), Test(variable.path, "!=", []))
            return _present_or(truthy, variable, bool(variable.default))
    raise SubscriptionError(f"`{op}` cannot be translated; write this condition in CEL", place=place)


def _operation(rule: dict[str, Any], place: str) -> tuple[str, Any]:
    if len(rule) != 1:
        _refuse("expected an object with one operator", place)
    ((op, given),) = rule.items()
    return op, given


def _choice(rest: list[tuple[Any, str]], root: str) -> Condition:
    """Return the truth of `if`: pairs of a condition and a value, and the value if no condition is true."""
    chosen = _truth(rest[-1][0], root, rest[-1][1]) if len(rest) % 2 else NEVER
    pairs = rest[: len(rest) // 2 * 2]
    for (condition, at), (value, value_at) in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        test = _truth(condition, root, at)
        chosen = any_of(all_of(test, _truth(value, root, value_at)), all_of(Not(test), chosen))
    return chosen


def _operand(given: Any, root: str, place: str) -> Any:
    """Return a variable or a literal."""
    if not isinstance(given, dict):
        return _literal(given, place)
    op, path = _operation(given, place)
    if op != "var":
        _refuse(f"an operand that computes with `{op}` cannot be translated; write this condition in CEL", place)
    return _variable(path, root, f"{place}.var")


def _literal(given: Any, place: str) -> Any:
    if isinstance(given, dict):
        _refuse("expected a value without operators", place)
    if isinstance(given, list):
        return [_literal(each, f"{place}[{index}]") for index, each in enumerate(given)]
    if isinstance(given, int | float) and not isinstance(given, bool):
        if abs(given) >= _SAFE_INTEGER:
            _refuse("JavaScript rounds numbers of 2**53 and more; write this condition in CEL", place)
        return number(given, place)
    return given


def _variable(given: Any, root: str, place: str) -> _Variable:
    name, *default = given if isinstance(given, list) and given else [given]
    if len(default) > 1 or not (isinstance(name, str) or (name is None and root != "data")):
        _refuse('expected a path, as {"var": "user.name"} or {"var": ["user.name", "default"]}', place)
    names = tuple(name.split(".")) if name else ()
    if not names and root == "data":
        _refuse("the whole document is no value to compare; name a member", place)
    if any(each.isdigit() for each in names):
        _refuse("a step of digits is an index or a name; write this condition in CEL, as data.items[0] == 5", place)
    if inherited := next((each for each in names if each in _INHERITED), None):
        _refuse(f"JavaScript itself has a member {inherited!r}; write this condition in CEL", place)
    return _Variable(Path(names, root), _literal(default[0], place) if default else None)


def _present_or(condition: Condition, variable: _Variable, if_missing: bool) -> Condition:
    """Return a condition on a variable, with a constant truth if it is missing."""
    if not if_missing or not variable.path.names:
        return condition
    return any_of(condition, Not(Test(variable.path, "exists")))


def _pair(operands: list[Any], place: str) -> tuple[_Variable, Any, bool]:
    """Return the variable and the literal of two operands, and whether the literal is the first."""
    first, second = operands
    if isinstance(first, _Variable) == isinstance(second, _Variable):
        _refuse("expected a variable and a value; write other comparisons in CEL", place)
    return (first, second, False) if isinstance(first, _Variable) else (second, first, True)


def _equal(op: str, operands: list[Any], place: str) -> Condition:
    variable, literal, _ = _pair(operands, place)
    if isinstance(literal, list):
        _refuse("JavaScript finds no list equal to another", place)
    if len(op) == 2 and literal is not None:
        _refuse(f'`{op}` converts types, so that 1 equals "1", true and [1]; write `{op}=`, which does not', place)
    is_same = _is_same(variable.default, literal)
    if op.startswith("!"):
        return _present_or(Test(variable.path, "!=", literal), variable, not is_same)
    return _present_or(Test(variable.path, "==", literal), variable, is_same)


def _ordered(op: str, operands: list[Any], place: str) -> Condition:
    if len(operands) == 3 and op in ("<", "<="):
        return all_of(_ordered(op, operands[:2], place), _ordered(op, operands[1:], place))
    _expect(2, operands, place)
    variable, literal, reversed_ = _pair(operands, place)
    if isinstance(literal, bool) or not isinstance(literal, int | float):
        _refuse("expected a number: JavaScript converts other values", place)
    if variable.default is not None and not isinstance(variable.default, int | float):
        _refuse("expected a default that is a number: JavaScript converts other values", place)
    compare, mirrored = _ORDERS[op]

    def holds(value: Any) -> bool:
        return compare(literal, value or 0) if reversed_ else compare(value or 0, literal)

    found: list[Condition] = [Test(variable.path, mirrored if reversed_ else op, literal)]
    if converted := [value for value in (None, False, True) if holds(value)]:
        found.append(Test(variable.path, "in", converted))
    return _present_or(any_of(*found), variable, holds(variable.default))


def _member(needle: Any, haystack: Any, place: str) -> Condition:
    if isinstance(needle, _Variable) and isinstance(haystack, list):
        if any(isinstance(each, list) for each in haystack):
            _refuse("JavaScript finds no list equal to another", place)
        return _present_or(Test(needle.path, "in", haystack), needle, any(_is_same(needle.default, each) for each in haystack))
    if not isinstance(haystack, _Variable) or isinstance(needle, _Variable):
        _refuse("expected a variable and a list of values, or a value and a variable", place)
    if haystack.default is not None:
        _refuse("a default cannot be translated here", place)
    if isinstance(needle, list | float) or needle == "":
        _refuse("expected a text, an integer, a boolean or null", place)
    if isinstance(needle, str):
        return Test(haystack.path, "contains", needle)
    # JavaScript looks for its text in a text.
    text = {None: "null", True: "true", False: "false"}.get(needle) if not _is_number(needle) else str(needle)
    return any_of(Test(haystack.path, "has_element", needle), contains_text(haystack.path, str(text)))


def _quantified(op: str, of: Any, rule: Any, places: list[str]) -> Condition:
    if not isinstance(of, _Variable) or isinstance(of.default, list):
        _refuse("expected a variable without a list as its default", places[0])
    name = f"e{int(of.path.root[1:] or 1) + 1}" if of.path.root != "data" else "e"
    truth = _truth(rule, name, places[1])
    if op == "all":
        # All elements of an empty list satisfy no rule.
        some = all_of(Test(of.path, "type", ["list"]), Not(Test(of.path, "size", 0)))
        return all_of(some, Not(AnyElement(of.path, name, Not(truth))))
    found = AnyElement(of.path, name, truth)
    return found if op == "some" else Not(found)


def _lacks(key: Any, root: str, place: str) -> Condition:
    """Return a condition that is true if a variable is missing, null or an empty text."""
    variable = _variable([key], root, place)
    return _present_or(Test(variable.path, "in", [None, ""]), variable, if_missing=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(value: Any, other: Any) -> bool:
    """Return whether JavaScript's `===` is true for two values without members."""
    if isinstance(value, list) or isinstance(other, list):
        return False
    same_type = (_is_number(value) and _is_number(other)) or type(value) is type(other)
    return same_type and bool(value == other)


def _expect(count: int, operands: list[Any], place: str) -> None:
    if len(operands) != count:
        _refuse(f"expected {count} operands", place)


def _refuse(reason: str, place: str) -> NoReturn:
    raise SubscriptionError(reason, place=place)
