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

from tests.tools.golden_columns import Decimal
from tests.tools.golden_source import UNREADABLE, Column, Configuration, Source

Condition = list[Any]

FRAGMENTS: Final = ("a", "b", "h", "é", "\U0001f600", "", "x", "yyy", '"', "'", "0")
#: Members of a JSON document, in SQL and in CEL, and of an hstore.
MEMBERS: Final = ("1", "1.5", '"1"')
_ORDER: Final = ("<", "<=", ">", ">=")
_TEXT: Final = ("starts_with", "ends_with", "contains")
ELEMENTS: Final = {"ta": (("'a'::text", "a"), ("'b'::text", "b")), "ia": (("1", 1), ("2", 2))}


class Unreadable(Exception):
    """A configuration writes the values of a condition in a shape that no condition reads."""


class Written(NamedTuple):
    """A condition for a configuration: in CEL, and as filters if it is one or several that are all required."""

    cel: str
    filters: list[dict[str, Any]] | None


def generate(rng: random.Random, source: Source) -> Condition:
    """Return a random condition: mostly of one column."""
    draw = rng.random()
    if draw < 0.06:
        return ["changed", rng.choice(source.changing)]
    if draw < 0.1:
        column = rng.choice(source.changing)
        return ["changed_to", column, rng.randrange(len(source.columns[column].values))]
    if draw < 0.2:
        return ["and", _leaf(rng, source), _leaf(rng, source)]
    if draw < 0.26:
        return ["or", _leaf(rng, source), _leaf(rng, source)]
    return ["not", _leaf(rng, source)] if draw < 0.32 else _leaf(rng, source)


def each_once(rng: random.Random, source: Source) -> Iterator[Condition]:
    """Yield a condition for each column and operator."""
    for name, column in source.columns.items():
        for operator in _operators(column):
            yield _of(rng, name, column, operator)
    if "big" in source.columns:
        # A large value that a statement leaves as it is is not in the record.
        yield from (["leaf", "big", "starts_with", [FRAGMENTS.index(each)]] for each in ("x", "yyy", ""))
    for name in source.changing:
        yield ["changed", name]


def _operators(column: Column) -> list[str]:
    names = column.operators.split()
    return [*names, "null", "not_null"] if column.is_nullable() else names


def _leaf(rng: random.Random, source: Source) -> Condition:
    name = rng.choice(list(source.columns))
    column = source.columns[name]
    return _of(rng, name, column, rng.choice(_operators(column)))


def _of(rng: random.Random, name: str, column: Column, operator: str) -> Condition:
    count = len(column.values)
    if operator in ("null", "not_null"):
        return ["leaf", name, operator, []]
    if operator in _TEXT:
        of_large = [index for index, each in enumerate(FRAGMENTS) if each in ("x", "yyy", "", "a")]
        return ["leaf", name, operator, [rng.choice(of_large) if name == "big" else rng.randrange(len(FRAGMENTS))]]
    if operator in ("member", "element"):
        return ["leaf", name, operator, [rng.randrange(len(MEMBERS if operator == "member" else ELEMENTS[name]))]]
    if operator in ("in", "not_in"):
        return ["leaf", name, operator, sorted(rng.sample(range(count), rng.randint(1, min(3, count))))]
    return ["leaf", name, operator, [rng.randrange(count)]]


def columns_of(condition: Condition) -> set[str]:
    """Return the columns that a condition mentions."""
    if condition[0] in ("leaf", "changed", "changed_to"):
        return {condition[1]}
    return set().union(*(columns_of(each) for each in condition[1:]))


def compares_before(condition: Condition) -> bool:
    """Return whether a condition compares a row with the one before."""
    return condition[0] in ("changed", "changed_to")


def to_sql(condition: Condition, source: Source) -> str:
    """Return a condition in SQL; one on `changed` is of a join of the rows `o` (old) and `n` (new)."""
    kind = condition[0]
    if kind == "changed":
        return source.differs(f"o.{condition[1]}", f"n.{condition[1]}")
    if kind == "changed_to":
        _, name, index = condition
        value = source.columns[name].values[index][0]
        return f"{source.differs(f'o.{name}', f'n.{name}')} AND {source.same(f'n.{name}', value)}"
    if kind == "not":
        return f"NOT ({to_sql(condition[1], source)})"
    if kind in ("and", "or"):
        return f"({to_sql(condition[1], source)}) {kind.upper()} ({to_sql(condition[2], source)})"
    _, name, operator, indexes = condition
    return _leaf_sql(name, operator, indexes, source)


def _leaf_sql(name: str, operator: str, indexes: Sequence[int], source: Source) -> str:
    if operator in ("null", "not_null"):
        return f"{name} IS {'NOT ' if operator == 'not_null' else ''}NULL"
    if operator in _TEXT:
        quoted = FRAGMENTS[indexes[0]].replace("'", "''")
        return source.text(name, operator, f"'{quoted}'")
    if operator in ("member", "text", "element"):
        return source.special(name, operator, indexes[0])
    literals = [source.columns[name].values[index][0] for index in indexes]
    if operator in ("in", "not_in"):
        return f"{'NOT ' if operator == 'not_in' else ''}COALESCE({name} IN ({', '.join(literals)}), false)"
    if operator in ("==", "!="):
        return (source.same if operator == "==" else source.differs)(name, literals[0])
    return source.ordered(name, operator, literals[0])


def write(condition: Condition, of: Configuration, source: Source) -> Written:
    """Return a condition for the records of a configuration. Raises Unreadable."""
    kind = condition[0]
    if kind == "changed":
        name = condition[1]
        return Written(f"before.{name} != data.{name}", [{"field": name, "op": "changed"}])
    if kind == "changed_to":
        _, name, index = condition
        (value,) = _values(source.columns[name], [index], of)
        cel = f"before.{name} != data.{name} && data.{name} == {literal(value)}"
        return Written(cel, [{"field": name, "op": "changed_to", "value": value}])
    if kind == "not":
        return Written(f"!({write(condition[1], of, source).cel})", None)
    if kind in ("and", "or"):
        one, other = write(condition[1], of, source), write(condition[2], of, source)
        both = None if kind == "or" or one.filters is None or other.filters is None else one.filters + other.filters
        return Written(f"({one.cel}) {'&&' if kind == 'and' else '||'} ({other.cel})", both)
    _, name, operator, indexes = condition
    return _write_leaf(name, operator, indexes, of, source.columns[name])


def _write_leaf(name: str, operator: str, indexes: Sequence[int], of: Configuration, column: Column) -> Written:
    if operator in ("null", "not_null"):
        return _both(name, "==" if operator == "null" else "!=", None)
    if operator in _TEXT:
        return _both(name, operator, FRAGMENTS[indexes[0]])
    if operator == "member":
        if name != "h" and not of.schemas:
            raise Unreadable
        member = json.loads(MEMBERS[indexes[0]]) if name != "h" else MEMBERS[indexes[0]].strip('"')
        _values(column, [0], of)
        return _both(f"{name}.a", "==", member)
    if operator == "element":
        return _both(name, "contains", ELEMENTS[name][indexes[0]][1])
    if operator == "text" and of.schemas:
        raise Unreadable
    if of.decimal == "string" and column.kind == "numeric" and operator not in _ORDER:
        # As a text it has zeros at the end that equal numbers lack.
        raise Unreadable
    values = _values(column, indexes, of)
    if operator in ("in", "not_in"):
        return _both(name, operator, values)
    (value,) = values
    if column.kind == "moment":
        return Written(f"data.{name} != null && timestamp(data.{name}) {operator} timestamp({literal(value)})", None)
    if operator in _ORDER:
        if of.decimal == "string" and column.kind in ("numeric", "decimal"):
            # A text has another order than its number.
            return Written(f"double(data.{name}) {operator} double({literal(value)})", None)
        if isinstance(value, str) and (column.kind == "timestamp" or (column.kind == "time" and of.time == "isostring")):
            return _in_time(name, column, operator, value)
    return _both(name, "==" if operator == "text" else operator, value)


def _in_time(name: str, column: Column, operator: str, value: str) -> Written:
    """Return an order of times in text, whose fractions have few digits or none: exact for a prefix of whole seconds."""
    filters = [{"field": name, "op": operator, "value": value.removesuffix("Z")}]
    if "." in value or operator not in ("<", ">="):
        filters = []
    if column.kind == "timestamp":
        return Written(f"timestamp(data.{name}) {operator} timestamp({literal(value)})", filters or None)
    if not filters:
        raise Unreadable
    return Written(f"data.{name} {operator} {literal(filters[0]['value'])}", filters)


def _values(column: Column, indexes: Sequence[int], of: Configuration) -> list[Any]:
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
        return f"{value}u" if value.isdigit() and int(value) >= 2**63 else str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value for the JSON of a filter."""
    if isinstance(value, Decimal):
        return json.loads(str(value))
    return [plain(each) for each in value] if isinstance(value, list) else value
