"""Boolean expressions of Hasura over PostgreSQL: https://hasura.io/docs/2.0/queries/postgres/filters/

{"status": {"_eq": "paid"}, "amount": {"_gt": 100}}     two filters
{"_not": {"status": {"_eq": "paid"}}}                   another text; not null, as in SQL
- table: {schema: public, name: orders}                 metadata, in YAML or JSON: hasura_metadata.py
  select_permissions: [..]

Each is a condition of PostgreSQL on the columns of the row, which is `data` (postgres.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.importing.aws import refuse_unresolved
from streamer.importing.bounds import check_size
from streamer.importing.conditions import Path, subscription_parts
from streamer.importing.hasura_metadata import permission_rules
from streamer.importing.postgres import Truth, both, either, is_null, like, matches, negated, one_of, ordered
from streamer.importing.rules import Rule, is_yaml, json_rules, refuse, wrapped_rule

_LOGIC: Final = ("_and", "_or", "_not", "_exists")
_ORDERS: Final = {"_gt": ">", "_gte": ">=", "_lt": "<", "_lte": "<="}
_TEXTS: Final[Mapping[str, Callable[[Path, str, str], Truth]]] = {
    "_like": like,
    "_nlike": lambda path, text, place: negated(like(path, text, place)),
    "_ilike": lambda path, text, place: like(path, text, place, ignore_case=True),
    "_nilike": lambda path, text, place: negated(like(path, text, place, ignore_case=True)),
    "_regex": matches,
    "_nregex": lambda path, text, place: negated(matches(path, text, place)),
    "_iregex": lambda path, text, place: matches(path, text, place, ignore_case=True),
    "_niregex": lambda path, text, place: negated(matches(path, text, place, ignore_case=True)),
}


def rules(text: str) -> Iterator[Rule]:
    """Return the boolean expressions of a file, or the select permissions of metadata.

    Raises:
        SubscriptionError: the file is neither JSON nor YAML.
    """
    if is_yaml(text):
        from streamer.importing.template_yaml import read_template

        document = read_template(text)
        return permission_rules(document, _translate) or iter([wrapped_rule("", document, _translate)])
    return json_rules(text, _translate, lambda document: permission_rules(document, _translate))


def _translate(rule: Any, place: str = "") -> Mapping[str, Any]:
    refuse_unresolved(rule, place)
    check_size(rule)
    return subscription_parts(_expression(rule, place).true)


def _expression(rule: Any, place: str) -> Truth:
    if not isinstance(rule, dict):
        refuse('expected an object, as {"status": {"_eq": "paid"}}', place)
    prefix = f"{place}." if place else ""
    return both(*(_clause(name, operand, prefix + name) for name, operand in rule.items()))


def _clause(name: str, argument: Any, place: str) -> Truth:
    word = f"_{name[1:]}" if name.startswith("$") else name
    match word:
        case "_and" | "_or":
            parts = argument if isinstance(argument, list) else [argument]
            places = [f"{place}[{index}]" for index in range(len(parts))] if isinstance(argument, list) else [place]
            conditions = [_expression(each, at) for each, at in zip(parts, places, strict=True)]
            return both(*conditions) if word == "_and" else either(*conditions)
        case "_not":
            return negated(_expression(argument, place))
        case "_exists":
            refuse("_exists queries another table, which an event does not have", place)
    if not name or name.startswith("$"):
        refuse(f"expected a column or one of {', '.join(_LOGIC)}", place)
    path = Path((name,))
    if not isinstance(argument, dict):
        return _operator(path, "_eq", argument, place)
    return both(*(_operator(path, op, operand, f"{place}.{op}") for op, operand in argument.items()))


def _operator(path: Path, op: str, operand: Any, place: str) -> Truth:
    word = f"_{op[1:]}" if op.startswith("$") else op
    if word == "_is_null" and isinstance(operand, bool):
        return is_null(path) if operand else negated(is_null(path))
    _check(operand, place)
    if word in ("_in", "_nin") and isinstance(operand, list):
        for index, each in enumerate(operand):
            _check_scalar(each, f"{place}[{index}]")
        return one_of(path, operand, place) if word == "_in" else negated(one_of(path, operand, place))
    if not word.startswith("_") or word in _LOGIC:
        refuse("relationships and JSON cannot be translated: an event has only the columns of its row", place)
    if word in ("_eq", "_ne", "_neq"):
        _check_scalar(operand, place)
        return one_of(path, [operand], place) if word == "_eq" else negated(one_of(path, [operand], place))
    if word in _ORDERS:
        _check_scalar(operand, place)
        return ordered(path, _ORDERS[word], operand, place)
    if word in _TEXTS and isinstance(operand, str):
        return _TEXTS[word](path, operand, place)
    raise SubscriptionError(f"{op} with this operand cannot be translated; write this condition in CEL", place=place)


def _check(operand: Any, place: str) -> None:
    if operand is None:
        refuse("Hasura refuses a comparison with null; write `_is_null`", place)
    if isinstance(operand, str) and operand.lower().startswith("x-hasura-"):
        refuse("a session variable has no value in an event; write a rule for each user or tenant", place)


def _check_scalar(operand: Any, place: str) -> None:
    _check(operand, place)
    if isinstance(operand, list | dict):
        refuse("expected a text, a number or a boolean; write other comparisons in CEL", place)
