"""Query filters of MongoDB, and pipelines of change streams: https://www.mongodb.com/docs/manual/reference/operator/query/

{"a": 5}                        data.a == 5 || type(data.a) == list && 5 in data.a
{"a.b": 5}                      the same for data.a.b, and for the member b of each element of data.a
{"a": null}                     null, missing, or a list with a null
[{"$match": {"fullDocument.a": {"$exists": true}}}]   type != 'delete' && has(data.a)

An operator such as `$gt` is a condition on each value of a field (mongo_fields.py). `$ne`, `$nin` and `$not` negate the whole, so
they are also true if the field is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.importing.bounds import check_size
from streamer.importing.conditions import (
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
    subscription_parts,
)
from streamer.importing.mongo_fields import (
    Leaf,
    Read,
    check_bytes,
    in_elements,
    read_change,
    read_document,
    read_element,
    variable,
)
from streamer.importing.mongo_values import check_envelope, is_operators, value
from streamer.importing.regexps import from_pcre
from streamer.importing.rules import Rule, json_rules, refuse

_LOGIC: Final = ("$and", "$or", "$nor")
_ORDERS: Final = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
#: The types that a document in JSON shows; the others are numbers or texts there.
_TYPES: Final[Mapping[str | int, str]] = {
    "object": "object", "array": "list", "string": "string", "bool": "boolean", "null": "null", "number": "number",
    2: "string", 3: "object", 4: "list", 8: "boolean", 10: "null",
}  # fmt: skip
#: A date in an event of the format `mongodb`.
_DATE: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"
#: The beginning of a query as it is typed into MongoDB's shell: `db.orders.find({status: 'paid'})`, or its argument.
_SHELL: Final = re.compile(r"\s*(?:db\b|\[?\s*\{\s*['\w$])")


def rules(text: str) -> Iterator[Rule]:
    """Return the query filters, or the pipelines, of a file.

    Raises:
        SubscriptionError: the file is in JavaScript.
    """
    if _SHELL.match(text):
        refuse("expected JSON, not JavaScript. Print the query as JSON in the shell: EJSON.stringify({status: 'paid'})")
    return json_rules(text, _translate, _pipeline_rules)


def _pipeline_rules(document: Any) -> Iterator[Rule] | None:
    return iter([Rule("", lambda: _translate(document))]) if _is_pipeline(document) else None


def _is_pipeline(rule: Any) -> bool:
    return isinstance(rule, list) and any(isinstance(stage, dict) and "$match" in stage for stage in rule)


def _translate(rule: Any) -> Mapping[str, Any]:
    check_size(rule)
    check_bytes(rule)
    if not _is_pipeline(rule):
        return subscription_parts(_query(rule, read_document, ""))
    return subscription_parts(all_of(*(_stage(stage, f"[{index}]") for index, stage in enumerate(rule))))


def _stage(stage: Any, place: str) -> Condition:
    if not isinstance(stage, dict) or list(stage) != ["$match"]:
        refuse('expected a stage {"$match": ..}; a subscription selects changes, and does not reshape them', place)
    return _query(stage["$match"], read_change, f"{place}.$match")


def _query(query: Any, read: Read, place: str) -> Condition:
    if not isinstance(query, dict):
        refuse('expected an object, as {"status": "paid"}', place)
    prefix = f"{place}." if place else ""
    return all_of(*(_clause(name, operand, read, prefix + name) for name, operand in query.items() if name != "$comment"))


def _clause(name: str, operand: Any, read: Read, place: str) -> Condition:
    if name in _LOGIC:
        if not isinstance(operand, list) or not operand:
            refuse("expected a list of conditions", place)
        parts = [_query(each, read, f"{place}[{index}]") for index, each in enumerate(operand)]
        return all_of(*parts) if name == "$and" else any_of(*parts) if name == "$or" else Not(any_of(*parts))
    if name.startswith("$"):
        refuse(f"{name} cannot be translated; write this condition in CEL", place)
    if read is read_change:
        check_envelope(name, operand, place)
    if is_operators(operand):
        return read(name, lambda apply: _operators(operand, apply, place), place)
    leaf = _equal(operand, place)
    return read(name, lambda apply: apply(leaf), place)


def _operators(operators: dict[str, Any], apply: Callable[[Leaf], Condition], place: str) -> Condition:
    shown = [op for op in operators if op != "$options" or "$regex" not in operators]
    return all_of(*(_operator(op, operators, apply, f"{place}.{op}") for op in shown))


def _operator(op: str, operators: dict[str, Any], apply: Callable[[Leaf], Condition], place: str) -> Condition:
    operand = operators[op]
    match op:
        case "$eq" | "$ne" if isinstance(operand, dict) and "$regularExpression" in operand:
            refuse("MongoDB compares the regexp itself with the value; write `$regex`, or `$not` with it", place)
        case "$eq":
            return apply(_equal(operand, place))
        case "$ne":
            return Not(apply(_equal(operand, place)))
        case "$gt" | "$gte" | "$lt" | "$lte":
            return _ordered(op, operand, apply, place)
        case "$in":
            return _one_of(operand, apply, place)
        case "$nin":
            return Not(_one_of(operand, apply, place))
        case "$not" if is_operators(operand):
            return Not(_operators(operand, apply, place))
        case "$not" if isinstance(operand, dict) and "$regularExpression" in operand:
            return Not(apply(_equal(operand, place)))
        case "$exists" if isinstance(operand, int):
            exists = apply(Leaf(lambda path: Test(path, "exists")))
            return exists if operand else Not(exists)
        case "$type":
            return apply(_typed(operand, place))
        case "$size" if isinstance(operand, int | float) and not isinstance(operand, bool) and 0 <= operand == operand // 1:
            return apply(Leaf(lambda path: Test(path, "size", int(operand))))
        case "$all" if isinstance(operand, list):
            return _all(operand, apply, place)
        case "$elemMatch" if isinstance(operand, dict):
            return apply(Leaf(lambda path: _element(path, operand, place)))
        case "$regex" if isinstance(operand, str):
            return apply(_regexp(operand, operators.get("$options", ""), place))
        case "$not" | "$exists" | "$size" | "$all" | "$elemMatch" | "$regex" | "$options":
            refuse(f"this operand of {op} cannot be translated", place)
    raise SubscriptionError(f"{op} cannot be translated; write this condition in CEL", place=place)


def _equal(operand: Any, place: str) -> Leaf:
    if isinstance(operand, dict) and "$regularExpression" in operand:
        regexp = operand["$regularExpression"]
        if len(operand) > 1 or not isinstance(regexp, dict) or not isinstance(regexp.get("pattern"), str):
            refuse('expected {"$regularExpression": {"pattern": .., "options": ..}}', place)
        return _regexp(regexp["pattern"], regexp.get("options", ""), place)
    return _equal_to(value(operand, place))


def _equal_to(operand: Any) -> Leaf:
    return Leaf(lambda path: Test(path, "==", operand), lambda path: Test(path, "has_element", operand), missing=operand is None)


def _ordered(op: str, source: Any, apply: Callable[[Leaf], Condition], place: str) -> Condition:
    operand = value(source, place)
    if operand is None:
        # Null is equal to null, and neither less nor greater.
        return apply(_equal_to(None)) if op in ("$gte", "$lte") else NEVER
    if isinstance(operand, list | dict):
        refuse("expected a number, text, boolean or date: CEL has no order of lists and objects", place)
    order = _ORDERS[op]
    if isinstance(source, dict) and "$date" in source:
        return apply(in_elements(lambda path: AllOf((Test(path, order, operand), Test(path, "matches", _DATE)))))
    if isinstance(source, dict) and isinstance(operand, str):
        refuse("an event has ids and UUIDs as texts, whose order is another", place)
    return apply(in_elements(lambda path: Test(path, order, operand)))


def _one_of(operands: Any, apply: Callable[[Leaf], Condition], place: str) -> Condition:
    if not isinstance(operands, list):
        refuse("expected a list of values", place)
    conditions: list[Condition] = []
    values: list[Any] = []
    for index, each in enumerate(operands):
        if isinstance(each, dict) and "$regularExpression" in each:
            conditions.append(apply(_equal(each, f"{place}[{index}]")))
        else:
            values.append(value(each, f"{place}[{index}]"))
    if len(values) == 1:
        conditions.append(apply(_equal_to(values[0])))
    elif values:
        conditions.append(apply(in_elements(lambda path: Test(path, "in", values), missing=None in values)))
    return any_of(*conditions)


def _all(operands: list[Any], apply: Callable[[Leaf], Condition], place: str) -> Condition:
    places = [(each, f"{place}[{index}]") for index, each in enumerate(operands)]
    if not operands:
        return NEVER
    if not any(isinstance(each, dict) and "$elemMatch" in each for each in operands):
        return all_of(*(apply(_equal(each, at)) for each, at in places))
    for each, at in places:
        if not isinstance(each, dict) or list(each) != ["$elemMatch"]:
            refuse('expected either values, or {"$elemMatch": ..} each', at)
    return all_of(*(_operators(each, apply, at) for each, at in places))


def _typed(operand: Any, place: str) -> Leaf:
    names = operand if isinstance(operand, list) else [operand]
    for name in names or [None]:
        if not isinstance(name, str | int) or isinstance(name, bool) or name not in _TYPES:
            known = ", ".join(str(each) for each in _TYPES if isinstance(each, str))
            refuse(f"an event in JSON shows only the types {known}; integers and doubles are `number`, dates `string`", place)
    kinds = list(dict.fromkeys(_TYPES[name] for name in names))
    return in_elements(lambda path: Test(path, "type", kinds))


def _element(path: Path, operand: dict[str, Any], place: str) -> Condition:
    """Return a condition on a list: one element satisfies all of the operators, or all of a query."""
    name = variable(path)
    if is_operators(operand) and next(iter(operand)) not in _LOGIC:
        return AnyElement(path, name, _operators(operand, lambda leaf: leaf.own(Path((), name)), place))
    # MongoDB reads a list in the list as an object, too, whose names are its indexes.
    condition, members = _query(operand, read_element(name), place), Test(Path((), name), "type", ["object", "list"])
    return AnyElement(path, name, condition if _needs_a_member(condition) else all_of(members, condition))


def _needs_a_member(condition: Condition) -> bool:
    """Return whether a condition is certainly false for an element without members."""
    match condition:
        case Test() | AnyElement():
            return True
        case AllOf(parts):
            return any(map(_needs_a_member, parts))
        case AnyOf(parts):
            return all(map(_needs_a_member, parts))
    return False


def _regexp(pattern: str, options: Any, place: str) -> Leaf:
    if not isinstance(options, str) or not set(options) <= set("isu"):
        refuse("expected no options but `i` and `s`; write the others into the regexp", place)
    try:
        regexp = from_pcre(pattern, flags=options.replace("u", ""))
    except SubscriptionError as error:
        refuse(error.reason, f"{place}, {error.place}")
    return in_elements(lambda path: Test(path, "matches", regexp))
