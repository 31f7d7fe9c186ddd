"""Rules of JsonLogic: https://jsonlogic.com/operations.html

{"===": [{"var": "status"}, "paid"]}     a filter
{">": [{"var": "amount"}, 100]}          a filter
{"<": [{"var": "amount"}, 100]}          data.amount < 100 || data.amount in [null, false, true, '', []] || !(.. has(data.amount))
{"var": "tags"}                          two filters: not in [null, false, 0, ""], and != []

A missing variable is null, or its default. JavaScript then converts types. What it does with null, booleans and missing values is
translated: they are 0 and 1 in `<`, and so are an empty text and list. Any other text or list is neither less nor greater than a
number here: to read numbers in texts, each `>` would be a regexp and a conversion instead of a filter. `==` is refused but with
null, since no short condition lists the texts and lists that equal a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.importing.bounds import check_size
from streamer.importing.conditions import (
    ALWAYS,
    NEVER,
    AnyElement,
    Condition,
    Not,
    Test,
    all_of,
    any_of,
    contains_text,
    subscription_parts,
)
from streamer.importing.jsonlogic_values import Variable, is_number, is_same, literal, variable_of
from streamer.importing.rules import Rule, json_rules, refuse

_ORDERS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "<": (lt, ">"), "<=": (le, ">="), ">": (gt, "<"), ">=": (ge, "<="),
}  # fmt: skip
#: The most conditions of a subscription (semantics.md 2.11).
_MOST_CONDITIONS: Final = 20_000
#: What an order reads as 0 or 1.
_CONVERTED: Final[list[Any]] = [None, False, True, "", []]
_FALSY: Final = [None, False, 0, ""]


def rules(text: str) -> Iterator[Rule]:
    """Yield the rules of a file."""
    return json_rules(text, _translate)


def _translate(rule: Any) -> Mapping[str, Any]:
    check_size(rule)
    if not isinstance(rule, dict | bool):
        refuse('expected a rule, as {"===": [{"var": "status"}, "paid"]}', "")
    if _conditions(rule) > _MOST_CONDITIONS:
        refuse(f"this rule becomes more than {_MOST_CONDITIONS:,} conditions; write several rules", "")
    try:
        return subscription_parts(_truth(rule, "data", ""))
    except RecursionError:
        raise SubscriptionError("an `if` of this rule has more parts than CEL can nest; write several rules") from None


def _conditions(rule: Any) -> int:
    """Return how many conditions a rule becomes: the first of each two operands of `if` becomes two."""
    if isinstance(rule, list):
        return sum(map(_conditions, rule))
    if not isinstance(rule, dict):
        return 0
    count = 1
    for op, operands in rule.items():
        parts = [_conditions(each) for each in operands] if isinstance(operands, list) else [_conditions(operands)]
        count += sum(parts) + (len(parts) if op.startswith("missing") else 0)
        count += sum(parts[: len(parts) // 2 * 2 : 2]) if op in ("if", "?:") else 0
    return count


def _truth(rule: Any, root: str, place: str) -> Condition:
    """Return a condition that is true if the value of a rule is truthy."""
    if not isinstance(rule, dict):
        return ALWAYS if literal(rule, place) else NEVER
    op, argument = _operation(rule, place)
    place = f"{place}.{op}" if place else op
    operands = argument if isinstance(argument, list) else [argument]
    places = [f"{place}[{index}]" for index in range(len(operands))] if isinstance(argument, list) else [place]
    match op:
        case "and" | "or":
            parts = [_truth(each, root, at) for each, at in zip(operands, places, strict=True)]
            return all_of(*parts) if parts and op == "and" else any_of(*parts)
        case "if" | "?:":
            return _choice(list(zip(operands, places, strict=True)), root)
        case "!" | "!!":
            _expect(1, operands, place)
            if op == "!" and isinstance(operands[0], dict) and list(operands[0]) == ["var"]:
                return _falsy(variable_of(operands[0]["var"], root, f"{places[0]}.var"))
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
            variable = variable_of(argument, root, place)
            truthy = all_of(Test(variable.path, "not in", _FALSY), Test(variable.path, "!=", []))
            return _present_or(truthy, variable, bool(variable.default))
    raise SubscriptionError(f"`{op}` cannot be translated; write this condition in CEL", place=place)


def _operation(rule: dict[str, Any], place: str) -> tuple[str, Any]:
    if len(rule) != 1:
        refuse("expected an object with one operator", place)
    ((op, argument),) = rule.items()
    return op, argument


def _choice(rest: list[tuple[Any, str]], root: str) -> Condition:
    """Return the truth of `if`: pairs of a condition and a value, and the value if no condition is true."""
    result = _truth(rest[-1][0], root, rest[-1][1]) if len(rest) % 2 else NEVER
    pairs = rest[: len(rest) // 2 * 2]
    for (condition, at), (value, value_at) in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        test = _truth(condition, root, at)
        result = any_of(all_of(test, _truth(value, root, value_at)), all_of(Not(test), result))
    return result


def _operand(operand: Any, root: str, place: str) -> Any:
    """Return a variable or a literal."""
    if not isinstance(operand, dict):
        return literal(operand, place)
    op, path = _operation(operand, place)
    if op != "var":
        refuse(f"an operand that computes with `{op}` cannot be translated; write this condition in CEL", place)
    return variable_of(path, root, f"{place}.var")


def _present_or(condition: Condition, variable: Variable, if_missing: bool) -> Condition:
    """Return a condition on a variable, with a constant truth if it is missing."""
    if not if_missing or not variable.path.names:
        return condition
    return any_of(condition, Not(Test(variable.path, "exists")))


def _falsy(variable: Variable) -> Condition:
    falsy = any_of(Test(variable.path, "in", _FALSY), Test(variable.path, "==", []))
    return _present_or(falsy, variable, not variable.default)


def _pair(operands: list[Any], place: str) -> tuple[Variable, Any, bool]:
    """Return the variable and the literal of two operands, and whether the literal is the first."""
    first, second = operands
    if isinstance(first, Variable) == isinstance(second, Variable):
        refuse("expected a variable and a value; write other comparisons in CEL", place)
    return (first, second, False) if isinstance(first, Variable) else (second, first, True)


def _equal(op: str, operands: list[Any], place: str) -> Condition:
    variable, value, _ = _pair(operands, place)
    if isinstance(value, list):
        refuse("JavaScript finds no list equal to another", place)
    if len(op) == 2 and value is not None:
        refuse(f'`{op}` converts types, so that 1 equals "1", true and [1]; write `{op}=`, which does not', place)
    same = is_same(variable.default, value)
    if op.startswith("!"):
        return _present_or(Test(variable.path, "!=", value), variable, not same)
    return _present_or(Test(variable.path, "==", value), variable, same)


def _ordered(op: str, operands: list[Any], place: str) -> Condition:
    if len(operands) == 3 and op in ("<", "<="):
        return all_of(_ordered(op, operands[:2], place), _ordered(op, operands[1:], place))
    _expect(2, operands, place)
    variable, value, reversed_ = _pair(operands, place)
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse("expected a number: JavaScript converts other values", place)
    if variable.default is not None and not isinstance(variable.default, int | float):
        refuse("expected a default that is a number: JavaScript converts other values", place)
    compare, mirrored = _ORDERS[op]

    def holds(other: Any) -> bool:
        return compare(value, other or 0) if reversed_ else compare(other or 0, value)

    conditions: list[Condition] = [Test(variable.path, mirrored if reversed_ else op, value)]
    if converted := [each for each in _CONVERTED if holds(each)]:
        conditions.append(Test(variable.path, "in", converted))
    return _present_or(any_of(*conditions), variable, holds(variable.default))


def _member(needle: Any, haystack: Any, place: str) -> Condition:
    if isinstance(needle, Variable) and isinstance(haystack, list):
        if any(isinstance(each, list) for each in haystack):
            refuse("JavaScript finds no list equal to another", place)
        return _present_or(Test(needle.path, "in", haystack), needle, any(is_same(needle.default, each) for each in haystack))
    if not isinstance(haystack, Variable) or isinstance(needle, Variable):
        refuse("expected a variable and a list of values, or a value and a variable", place)
    if haystack.default is not None:
        refuse("a default cannot be translated here", place)
    if isinstance(needle, list | float) or needle == "":
        refuse("expected a text, an integer, a boolean or null", place)
    if isinstance(needle, str):
        return Test(haystack.path, "contains", needle)
    # JavaScript looks for its text in a text.
    text = {None: "null", True: "true", False: "false"}.get(needle) if not is_number(needle) else str(needle)
    return any_of(Test(haystack.path, "has_element", needle), contains_text(haystack.path, str(text)))


def _quantified(op: str, of: Any, rule: Any, places: list[str]) -> Condition:
    if not isinstance(of, Variable) or isinstance(of.default, list):
        refuse("expected a variable without a list as its default", places[0])
    name = f"e{int(of.path.root[1:] or 1) + 1}" if of.path.root != "data" else "e"
    truth = _truth(rule, name, places[1])
    if op == "all":
        # All elements of an empty list satisfy no rule.
        some = all_of(Test(of.path, "type", ["list"]), Not(Test(of.path, "size", 0)))
        return all_of(some, Not(AnyElement(of.path, name, Not(truth))))
    condition = AnyElement(of.path, name, truth)
    return condition if op == "some" else Not(condition)


def _lacks(key: Any, root: str, place: str) -> Condition:
    """Return a condition that is true if a variable is missing, null or an empty text."""
    variable = variable_of([key], root, place)
    return _present_or(Test(variable.path, "in", [None, ""]), variable, if_missing=True)


def _expect(count: int, operands: list[Any], place: str) -> None:
    if len(operands) != count:
        refuse(f"expected {count} operands", place)
