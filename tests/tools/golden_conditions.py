"""Random conditions on the columns of golden records: in SQL, as filters and in CEL, with one meaning.

A condition is a tree of lists, so that a file can contain it: `["leaf", column, operator, indexes of values]`, `["and", a, b]`,
`["or", a, b]`, `["not", a]`, `["changed", column]` and `["changed_to", column, index]`.

SQL's null is an error in CEL where both compare it by order, and a value where both compare it for equality. So `!=` is
`IS DISTINCT FROM` here, and `<` is `<`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tests.tools.golden_columns import COLUMNS, UNREADABLE, Configuration, Decimal

Condition = list[Any]

FRAGMENTS: Final = ("a", "b", "h", "é", "\U0001f600", "", "x", "yyy", '"', "'", "0")
#: Members of a JSON document, in SQL and in CEL, and of an hstore.
MEMBERS: Final = ("1", "1.5", '"1"')
#: The columns of which `changed` is the same in every mode.
CHANGING: Final = ("i2", "i4", "i8", "b", "t", "v", "c", "u", "e", "z", "q")
_ORDER: Final = ("<", "<=", ">", ">=")
_TEXT: Final = ("starts_with", "ends_with", "contains")
_NUMBERS_WITHOUT_ORDER: Final = ("f4", "f8")
_ELEMENTS: Final = {"ta": (("'a'::text", "a"), ("'b'::text", "b")), "ia": (("1", 1), ("2", 2))}


class Unreadable(Exception):
    """A configuration writes the values of a condition in a shape that no condition reads."""


class Written(NamedTuple):
    """A condition for a configuration: in CEL, and as filters if it is one or several that are all required."""

    cel: str
    filters: list[dict[str, Any]] | None


def generate(rng: random.Random) -> Condition:
    """Return a random condition: mostly of one column."""
    draw = rng.random()
    if draw < 0.06:
        return ["changed", rng.choice(CHANGING)]
    if draw < 0.1:
        column = rng.choice(CHANGING)
        return ["changed_to", column, rng.randrange(len(COLUMNS[column].values))]
    if draw < 0.2:
        return ["and", _leaf(rng), _leaf(rng)]
    if draw < 0.26:
        return ["or", _leaf(rng), _leaf(rng)]
    return ["not", _leaf(rng)] if draw < 0.32 else _leaf(rng)


def each_once(rng: random.Random) -> Iterator[Condition]:
    """Yield a condition for each column and operator."""
    for name in COLUMNS:
        for operator in _operators(name):
            yield _of(rng, name, operator)
    # A large value that a statement leaves as it is is not in the record.
    yield from (["leaf", "big", "starts_with", [FRAGMENTS.index(each)]] for each in ("x", "yyy", ""))
    for name in CHANGING:
        yield ["changed", name]


def _operators(column: str) -> list[str]:
    kind = COLUMNS[column]
    names = [each for each in (*kind.operators.split(), *kind.more.split()) if each != "member"]
    if column in ("j", "jb"):
        names += ["member", "text"]
    elif column in _ELEMENTS:
        names.append("element")
    elif column == "h":
        names.append("member")
    return names if "NOT NULL" in kind.type else [*names, "null", "not_null"]


def _leaf(rng: random.Random) -> Condition:
    column = rng.choice(list(COLUMNS))
    return _of(rng, column, rng.choice(_operators(column)))


def _of(rng: random.Random, column: str, operator: str) -> Condition:
    count = len(COLUMNS[column].values)
    if operator in ("null", "not_null"):
        return ["leaf", column, operator, []]
    if operator in _TEXT:
        of_large = [index for index, each in enumerate(FRAGMENTS) if each in ("x", "yyy", "", "a")]
        return ["leaf", column, operator, [rng.choice(of_large) if column == "big" else rng.randrange(len(FRAGMENTS))]]
    if operator == "member":
        return ["leaf", column, operator, [rng.randrange(len(MEMBERS))]]
    if operator == "element":
        return ["leaf", column, operator, [rng.randrange(len(_ELEMENTS[column]))]]
    if operator in ("in", "not_in"):
        return ["leaf", column, operator, sorted(rng.sample(range(count), rng.randint(1, min(3, count))))]
    return ["leaf", column, operator, [rng.randrange(count)]]


def columns_of(condition: Condition) -> set[str]:
    """Return the columns that a condition mentions."""
    if condition[0] in ("leaf", "changed", "changed_to"):
        return {condition[1]}
    return set().union(*(columns_of(each) for each in condition[1:]))


def compares_before(condition: Condition) -> bool:
    """Return whether a condition compares a row with the one before."""
    return condition[0] in ("changed", "changed_to")


def to_sql(condition: Condition) -> str:
    """Return a condition in SQL; one on `changed` is of a join of the rows `o` (old) and `n` (new)."""
    kind = condition[0]
    if kind == "changed":
        return f"o.{condition[1]} IS DISTINCT FROM n.{condition[1]}"
    if kind == "changed_to":
        _, name, index = condition
        return f"o.{name} IS DISTINCT FROM n.{name} AND n.{name} IS NOT DISTINCT FROM {COLUMNS[name].values[index][0]}"
    if kind == "not":
        return f"NOT ({to_sql(condition[1])})"
    if kind in ("and", "or"):
        return f"({to_sql(condition[1])}) {kind.upper()} ({to_sql(condition[2])})"
    _, name, operator, indexes = condition
    return _leaf_sql(name, operator, indexes)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _leaf_sql(name: str, operator: str, indexes: Sequence[int]) -> str:
    if operator in ("null", "not_null"):
        return f"{name} IS {'NOT ' if operator == 'not_null' else ''}NULL"
    if operator in _TEXT:
        text = _quoted(FRAGMENTS[indexes[0]])
        if operator == "contains":
            return f"position({text} in {name}) > 0"
        return f"starts_with({name}, {text})" if operator == "starts_with" else f"right({name}, length({text})) = {text}"
    if operator == "member" and name == "h":
        member = _quoted(MEMBERS[indexes[0]].strip('"'))
        return f"CASE WHEN exist(h, 'a') THEN (h -> 'a') IS NOT DISTINCT FROM {member} END"
    if operator == "member":
        return f"({name}::jsonb -> 'a') = {_quoted(MEMBERS[indexes[0]])}::jsonb"
    if operator == "element":
        return f"CASE WHEN {name} IS NOT NULL THEN array_position({name}, {_ELEMENTS[name][indexes[0]][0]}) IS NOT NULL END"
    literals = [COLUMNS[name].values[index][0] for index in indexes]
    if operator == "text":
        return f"{name}::text IS NOT DISTINCT FROM ({literals[0]})::text"
    if operator in ("in", "not_in"):
        return f"{'NOT ' if operator == 'not_in' else ''}COALESCE({name} IN ({', '.join(literals)}), false)"
    if operator in ("==", "!="):
        return f"{name} IS {'NOT ' if operator == '==' else ''}DISTINCT FROM {literals[0]}"
    if name in _NUMBERS_WITHOUT_ORDER:
        return f"CASE WHEN {name} NOT IN ('NaN', 'Infinity', '-Infinity') THEN {name} {operator} {literals[0]} END"
    return f'{name} COLLATE "C" {operator} {literals[0]}' if name in ("t", "v") else f"{name} {operator} {literals[0]}"


def write(condition: Condition, of: Configuration) -> Written:
    """Return a condition for the records of a configuration. Raises Unreadable."""
    kind = condition[0]
    if kind == "changed":
        name = condition[1]
        return Written(f"before.{name} != data.{name}", [{"field": name, "op": "changed"}])
    if kind == "changed_to":
        _, name, index = condition
        (value,) = _values(name, [index], of)
        cel = f"before.{name} != data.{name} && data.{name} == {literal(value)}"
        return Written(cel, [{"field": name, "op": "changed_to", "value": value}])
    if kind == "not":
        return Written(f"!({write(condition[1], of).cel})", None)
    if kind in ("and", "or"):
        one, other = write(condition[1], of), write(condition[2], of)
        both = None if kind == "or" or one.filters is None or other.filters is None else one.filters + other.filters
        return Written(f"({one.cel}) {'&&' if kind == 'and' else '||'} ({other.cel})", both)
    _, name, operator, indexes = condition
    return _write_leaf(name, operator, indexes, of)


def _write_leaf(name: str, operator: str, indexes: Sequence[int], of: Configuration) -> Written:
    if operator in ("null", "not_null"):
        return _both(name, "==" if operator == "null" else "!=", None)
    if operator in _TEXT:
        return _both(name, operator, FRAGMENTS[indexes[0]])
    if operator == "member":
        if name != "h" and not of.schemas:
            raise Unreadable
        member = json.loads(MEMBERS[indexes[0]]) if name != "h" else MEMBERS[indexes[0]].strip('"')
        _values(name, [0], of)
        return _both(f"{name}.a", "==", member)
    if operator == "element":
        return _both(name, "contains", _ELEMENTS[name][indexes[0]][1])
    if operator == "text" and of.schemas:
        raise Unreadable
    if of.decimal == "string" and name == "n" and operator not in _ORDER:
        # As a text it has zeros at the end that equal numbers lack.
        raise Unreadable
    values = _values(name, indexes, of)
    if operator in ("in", "not_in"):
        return _both(name, operator, values)
    (value,) = values
    if operator in _ORDER:
        if of.decimal == "string" and name in ("n", "n2"):
            # A text has another order than its number.
            return Written(f"double(data.{name}) {operator} double({literal(value)})", None)
        if isinstance(value, str) and (name == "ts" or (name == "tm" and of.time == "isostring")):
            return _in_time(name, operator, value)
    return _both(name, "==" if operator == "text" else operator, value)


def _in_time(name: str, operator: str, value: str) -> Written:
    """Return an order of times in text, whose fractions have few digits or none: exact for a prefix of whole seconds."""
    filters = [{"field": name, "op": operator, "value": value.removesuffix("Z")}]
    if "." in value or operator not in ("<", ">="):
        filters = []
    if name == "ts":
        return Written(f"timestamp(data.ts) {operator} timestamp({literal(value)})", filters or None)
    if not filters:
        raise Unreadable
    return Written(f"data.{name} {operator} {literal(filters[0]['value'])}", filters)


def _values(name: str, indexes: Sequence[int], of: Configuration) -> list[Any]:
    column = COLUMNS[name]
    found = [column.write(column.values[index][1], of) for index in indexes]
    if any(value is UNREADABLE for value in found):
        raise Unreadable
    return found


def _both(field: str, operator: str, value: Any) -> Written:
    wanted = literal(value)
    if operator in ("in", "not_in"):
        cel = f"data.{field} in {wanted}" if operator == "in" else f"!(data.{field} in {wanted})"
    elif operator in _TEXT:
        cel = f"data.{field}.{re.sub('_(.)', lambda found: found[1].upper(), operator)}({wanted})"
    else:
        cel = f"data.{field} {operator} {wanted}"
    return Written(cel, [{"field": field, "op": operator.replace("_in", " in"), "value": plain(value)}])


def literal(value: Any) -> str:
    """Return a value as a literal of CEL."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value for the JSON of a filter."""
    if isinstance(value, Decimal):
        return json.loads(str(value))
    return [plain(each) for each in value] if isinstance(value, list) else value
