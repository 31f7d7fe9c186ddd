"""Print the conditions of a subscription as a WHERE clause for PostgreSQL (docs/coming-from/sql.md).

    data.status == 'paid' && data.amount > 100        "status" IS NOT DISTINCT FROM 'paid'::text AND "amount" > 100
    data.user.country == 'DE'                         "user" -> 'country' = '"DE"'::jsonb

Both languages have a third result, which spreads in the same way: an error in CEL, null in SQL. `false && error` is false, as
`FALSE AND NULL` is. So each part of an expression becomes SQL that is true, false and null if the part is true, false and an
error, and a `!` before it needs no special case.

Invariant: the clause is true for exactly the rows whose document matches. The document of a row has a member for each column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, final

from streamer.cel_eval.program import compile_cel
from streamer.cel_eval.tree import (
    Call,
    Chain,
    Has,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Method,
    Node,
    Operation,
    Paren,
    Unary,
    constant_path,
)
from streamer.cel_eval.values import CelType
from streamer.errors import CelError, SubscriptionError
from streamer.model import Limits
from streamer.subscriptions.groups import filters_in, parse_entry
from streamer.subscriptions.parse import named, parse_subscription
from streamer.subscriptions.subscription import Subscription

#: Regular expressions that mean the same in RE2, after `(?s)`, and in PostgreSQL.
SAME_REGEXP: Final = re.compile(
    r"\^?(?:(?:[A-Za-z0-9 _@/:,;=<>!\"'#%&~`-]|[^\x00-\x7f]|\.|\\[!-/:-@\[-`{-~]"
    r"|\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ @/.])+\])[*+?]?)*\$?"
)
_MAX_NAME_BYTES: Final = 63
_RELATIONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: The name in `jsonb_typeof` of each type of CEL that JSON has.
_TYPES: Final = {"string": "string", "bool": "boolean", "list": "array", "map": "object", "null_type": "null"}
_NUMBERS: Final = {"int", "uint", "double"}


def subscription_to_sql(subscription: Subscription) -> str:
    """Return the filters and the CEL of a subscription as a condition of PostgreSQL; see `Subscription.to_sql`."""
    subscription = parse_subscription(subscription)
    try:
        return " AND ".join(_parts(subscription)) or "TRUE"
    except SubscriptionError as error:
        raise named(error, subscription.id) from None


def _parts(subscription: Subscription) -> list[str]:
    for name, advice in (
        ("types", "a row has no type of change"),
        ("topic", "a row has no topic"),
        ("pattern", "patterns look into arrays at any depth; write filters"),
    ):
        if getattr(subscription, name) is not None:
            raise SubscriptionError(f"SQL cannot express it: {advice}", place=name)
    parts = []
    for at, each in enumerate(subscription.filters):
        place = f"filters[{at}]"
        try:
            entry = parse_entry(each, place=place)
            if (folded := next((one for one in filters_in([entry]) if one.op.ignores_case), None)) is not None:
                reason = "SQL cannot express it exactly: PostgreSQL folds case by the rules of a collation"
                raise SubscriptionError(reason, place=f"{folded.place}.ignore_case")
            parts.append(_condition(compile_cel(entry.to_cel(), Limits()).tree))
        except CelError as error:
            raise SubscriptionError(error.reason, place=place) from None
    if subscription.cel is not None:
        parts.append(_condition(compile_cel(subscription.cel, Limits()).tree))
    return [f"({part})" if len(parts) > 1 and " OR " in part else part for part in parts]


@final
@dataclass(frozen=True, slots=True)
class _Field:
    """A column, or a member of a `jsonb` column.

    Attributes:
        sql: for a member, an expression that is null if there is no such member.
        is_column: whether it is the column itself, whose values are of the column's type.
    """

    sql: str
    is_column: bool

    def of_type(self, kind: str, expression: Callable[[str], str]) -> str:
        """Return an expression over the value as SQL, which is null if the value is of another type."""
        if self.is_column:
            return expression(self.sql)
        value = {"string": f"({self.sql} #>> '{{}}')", "number": f"({self.sql})::numeric", "boolean": f"({self.sql})::boolean"}[
            kind
        ]
        return f"CASE WHEN jsonb_typeof({self.sql}) = '{kind}' THEN {expression(value)} END"


def _refused(node: Node, reason: str) -> CelError:
    return CelError(f"SQL cannot express it exactly: {reason}", line=node.at[0], column=node.at[1], place="cel")


def _condition(node: Node) -> str:
    """Return SQL that is true, false or null if an expression is true, false or an error."""
    match node:
        case Paren(inner=inner):
            return _condition(inner)
        case Literal(value=bool(value)):
            return "TRUE" if value else "FALSE"
        case Unary(op="!", count=count, operand=operand):
            sql = _condition(operand)
            return sql if count % 2 == 0 else f"NOT ({sql})"
        case Logic(op=op, operands=operands):
            return _logic(op, [_condition(each) for each in operands])
        case Operation(first=first, rest=[(op, _, second)]):
            return _relation(node, op, _bare(first), _bare(second))
        case Has():
            return _has(node)
        case Chain(steps=[*_, Method(name=name, args=[argument])]):
            return _method(node, name, _bare(argument))
        case Ident() | Chain():
            return _field(node).of_type("boolean", str)
        case _:
            raise _refused(
                node,
                "only comparisons of fields with constants, `in`, has, startsWith, endsWith, contains and matches are supported",
            )


def _logic(op: str, parts: Sequence[str]) -> str:
    if op == "||":
        return " OR ".join(f"({part})" for part in parts)
    # Every column is there, so a guard is often true.
    rest = [part for part in parts if part != "TRUE"]
    return " AND ".join(f"({part})" for part in rest) if len(rest) > 1 else "".join(rest) or "TRUE"


def _relation(node: Node, op: str, one: Node, other: Node) -> str:
    if op == "in":
        return _type_in(node, one, other) if isinstance(one, Call) else _member(node, _field(one), other)
    if op not in _RELATIONS:
        raise _refused(node, "arithmetic overflows and rounds otherwise")
    if isinstance(one, Call) and op in ("==", "!="):
        is_type = _is_type(one, [other])
        return is_type if op == "==" else f"NOT ({is_type})"
    if _is_constant(one):
        one, other, op = other, one, _SWAPPED[op]
    if not _is_constant(other):
        return _columns(node, op, _field(one), _field(other))
    field, value = _field(one), _constant(other)
    if op in ("==", "!="):
        return _equality(other, op, field, value)
    if isinstance(value, str):
        return field.of_type("string", lambda text: f'{text} COLLATE "C" {op} {_literal(other, value)}')
    if value is None or isinstance(value, list | dict):
        raise _refused(node, "only numbers, texts and booleans have an order")
    kind = "boolean" if isinstance(value, bool) else "number"
    return field.of_type(kind, lambda number: f"{number} {op} {_literal(other, value)}")


def _equality(node: Node, op: str, field: _Field, value: Any) -> str:
    if not field.is_column:
        return f"{field.sql} {'=' if op == '==' else '<>'} {_json(node, value)}"
    if value is None:
        return f"{field.sql} IS {'NOT ' if op == '!=' else ''}NULL"
    return f"{field.sql} IS {'NOT ' if op == '==' else ''}DISTINCT FROM {_literal(node, value)}"


def _columns(node: Node, op: str, one: _Field, other: _Field) -> str:
    if op not in ("==", "!=") or not (one.is_column and other.is_column):
        raise _refused(node, "two fields can only be compared with == and !=, and if both are columns")
    return f"{one.sql} IS {'NOT ' if op == '==' else ''}DISTINCT FROM {other.sql}"


def _member(node: Node, field: _Field, items: Node) -> str:
    """Return `field in [..]`."""
    if not isinstance(items, ListLiteral):
        raise _refused(node, "expected a list of constants after `in`")
    values = [(each, _constant(each)) for each in items.items]
    if not field.is_column:
        # Without a member it is null, also for an empty list.
        return (
            f"{field.sql} IN ({', '.join(_json(each, value) for each, value in values)})"
            if values
            else f"{field.sql} <> {field.sql}"
        )
    wanted = ", ".join(_literal(each, value) for each, value in values if value is not None)
    if len({_kind(value) for _, value in values if value is not None}) > 1:
        raise _refused(node, "a column has one type, and this list has several")
    is_null = any(value is None for _, value in values)
    if not wanted:
        return f"{field.sql} IS NULL" if is_null else "FALSE"
    return (
        f"({field.sql} IS NULL OR {field.sql} IN ({wanted}))"
        if is_null
        else f"({field.sql} IS NOT NULL AND {field.sql} IN ({wanted}))"
    )


def _has(node: Has) -> str:
    path = _whole_path(node.target)
    if path is None or path[0] != "data":
        raise _refused(node, "expected a field of data")
    if len(path) == 1:
        _name(node, node.name)
        return "TRUE"
    parent = _of_path(node, path[1:])
    return f"CASE WHEN jsonb_typeof({parent.sql}) = 'object' THEN {parent.sql} ? {_quoted(node, node.name)} END"


def _type_in(node: Node, call: Call, kinds: Node) -> str:
    if not isinstance(kinds, ListLiteral):
        raise _refused(node, "expected a list of types after `in`")
    return _is_type(call, kinds.items)


def _is_type(call: Call, kinds: Sequence[Node]) -> str:
    names = {each.meaning.name if isinstance(each, Ident) and isinstance(each.meaning, CelType) else "" for each in kinds}
    if call.name != "type" or not (names == _NUMBERS or (len(names) == 1 and names <= _TYPES.keys())):
        raise _refused(call, "expected type(..) == and string, bool, list, map or null_type, or type(..) in [int, uint, double]")
    kind = "number" if names == _NUMBERS else _TYPES[names.pop()]
    path = _whole_path(call.args[0])
    if path == ("data",):
        return "TRUE" if kind == "object" else "FALSE"
    field = _field(call.args[0])
    if not field.is_column:
        return f"jsonb_typeof({field.sql}) = '{kind}'"
    return f"COALESCE(jsonb_typeof(to_jsonb({field.sql})), 'null') = '{kind}'"


def _method(node: Chain, name: str, argument: Node) -> str:
    field = _field(Chain(node.base, node.steps[:-1]))
    text = _constant(argument)
    if not isinstance(text, str) or name not in ("startsWith", "endsWith", "contains", "matches"):
        raise _refused(node, "only startsWith, endsWith, contains and matches are supported, with a text")
    if name == "matches":
        return field.of_type("string", lambda value: f"{value} ~ {_literal(node, _regexp(node, text))}")
    wanted = _literal(node, text)
    if name == "startsWith":
        return field.of_type("string", lambda value: f"starts_with({value}, {wanted})")
    if name == "endsWith":
        return field.of_type("string", lambda value: f"right({value}, {len(text)}) = {wanted}")
    if field.is_column:
        return f"position({wanted} IN {field.sql}) > 0"
    is_in_text = f"position({wanted} IN ({field.sql} #>> '{{}}')) > 0"
    is_element = f"{field.sql} @> {_json(node, [text])}"
    return f"CASE jsonb_typeof({field.sql}) WHEN 'string' THEN {is_in_text} WHEN 'array' THEN {is_element} END"


def _regexp(node: Node, text: str) -> str:
    same = text.removeprefix("(?s)")
    if not SAME_REGEXP.fullmatch(same):
        raise _refused(node, "this regular expression may mean something else in PostgreSQL")
    # Without `(?s)` a dot is no newline in RE2.
    return same if same != text else re.sub(r"\\.|\[[^\]]*\]|\.", lambda match: r"[^\n]" if match[0] == "." else match[0], text)


def _whole_path(node: Node) -> tuple[str, ...] | None:
    """Return the path that a node reads, if all of its steps are constant names."""
    path = constant_path(node)
    return None if path is not None and isinstance(node, Chain) and len(node.steps) != len(path) - 1 else path


def _field(node: Node) -> _Field:
    path = _whole_path(node)
    if path is None or path[0] != "data" or len(path) == 1:
        raise _refused(node, "expected a field of data")
    return _of_path(node, path[1:])


def _of_path(node: Node, names: Sequence[str]) -> _Field:
    column = _name(node, names[0])
    if len(names) == 1:
        return _Field(column, is_column=True)
    return _Field(f"({' -> '.join([column, *(_quoted(node, name) for name in names[1:])])})", is_column=False)


def _name(node: Node, name: str) -> str:
    if not 0 < len(name.encode()) <= _MAX_NAME_BYTES or "\0" in name:
        raise _refused(node, f"the name of a column has 1 to {_MAX_NAME_BYTES} bytes, and no NUL")
    return '"' + name.replace('"', '""') + '"'


def _is_constant(node: Node) -> bool:
    match node:
        case Literal():
            return True
        case Unary(op="-", operand=Literal()):
            return True
        case ListLiteral(items=items):
            return all(map(_is_constant, items))
        case MapLiteral(entries=entries):
            return all(_is_constant(part) for entry in entries for part in entry)
        case _:
            return False


def _constant(node: Node) -> Any:
    match _bare(node):
        case Literal(value=value) if value is None or isinstance(value, bool | int | float | str):
            return value
        case Unary(op="-", count=1, operand=Literal(value=int(value) | float(value))):
            return -value
        case ListLiteral(items=items):
            return [_constant(each) for each in items]
        case MapLiteral(entries=entries) if all(isinstance(_constant(name), str) for name, _ in entries):
            return {_constant(name): _constant(value) for name, value in entries}
        case _:
            raise _refused(node, "expected a constant of JSON")


def _kind(value: Any) -> str:
    return "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else type(value).__name__


def _literal(node: Node, value: Any) -> str:
    """Return a number, text or boolean. A text has its type, or PostgreSQL would read it as the type of the column."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return f"{_quoted(node, value)}::text"
        case int():
            return str(int(value))
        case float() if isfinite(value):
            return repr(value)
        case _:
            raise _refused(node, "a column is compared with a number, a text, a boolean or null")


def _json(node: Node, value: Any) -> str:
    return f"{_quoted(node, json.dumps(value, ensure_ascii=False))}::jsonb"


def _quoted(node: Node, text: str) -> str:
    if "\0" in text or "\\u0000" in text:
        raise _refused(node, "PostgreSQL has no text with NUL")
    return "'" + text.replace("'", "''") + "'"


def _bare(node: Node) -> Node:
    while isinstance(node, Paren):
        node = node.inner
    return node
