"""Filters of Supabase and PostgREST: https://docs.postgrest.org/en/stable/references/api/tables_views.html

status=eq.paid&amount=gt.100                            two conditions on the columns of a row
orders:status=eq.paid                                   with a table, which is the collection `public.orders`
/rest/v1/orders?or=(status.eq.paid,amount.gt.100)       a URL, whose %-escapes are decoded
{"event": "INSERT", "table": "orders", "filter": "status=eq.paid"}     what Realtime subscribes to

Each is a condition of PostgreSQL on the columns of the row, which is `data` (postgres.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import unquote, unquote_plus

from streamer.errors import SubscriptionError
from streamer.importing.conditions import Path, subscription_parts
from streamer.importing.postgres import (
    Truth,
    both,
    distinct,
    either,
    is_boolean,
    is_null,
    like,
    matches,
    negated,
    one_of,
    ordered,
)
from streamer.importing.rules import Rule, refuse, text_rules

_URL: Final = re.compile(r"(?:(?:https?://[^/?#]+)?(?:/rest/v1)?/|(?=\w+\?))(?P<table>[^/?#]+)(?:\?(?P<query>[^#]*))?")
#: The topics of older channels name a schema: `realtime:public:orders:status=eq.paid`.
_TABLE: Final = re.compile(r"(?:realtime:)?(?:(?P<schema>[A-Za-z_]\w*):)?(?P<table>[A-Za-z_][\w.]*):(?P<query>.*)", re.S)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_COLUMN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^.,()"]+')
_ITEM: Final = re.compile(r'("(?:[^"\\]|\\.)*"|[^,"]*)(,|\Z)', re.S)
#: An element of an array of PostgreSQL, as which Realtime reads a list: spaces around it are no part of it.
_ELEMENT: Final = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|(?!(?i:null)\s*(?:,|\Z))[^",\\{}\s](?:[^",\\{}]*[^",\\{}\s])?)\s*(,|\Z)', re.S
)
_TREE: Final = re.compile(r"(not\.)?(and|or)\(")
#: A value in a tree ends before a comma or bracket, but a list or a text in quotes may contain them.
_VALUE: Final = re.compile(r'\.((?:"(?:[^"\\]|\\.)*"|\((?:"(?:[^"\\]|\\.)*"|[^()"])*\)|[^,()"])*)', re.S)
_ORDERS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_EVENTS: Final = {"INSERT": ["insert"], "UPDATE": ["update"], "DELETE": ["delete"], "*": None}
_MOST_LEVELS: Final = 32
#: CEL has at most 16 KiB, and a condition at least 8 bytes.
_MOST_CONDITIONS: Final = 2_000
_COMMENT: Final = "#"


def rules(text: str) -> Iterator[Rule]:
    """Yield the filters of a file, one a line."""
    return text_rules(text, _translate, comment=_COMMENT)


def _translate(rule: Any) -> Mapping[str, Any]:
    if isinstance(rule, dict):
        return _channel(rule)
    if not isinstance(rule, str):
        refuse("expected a filter, as status=eq.paid", "")
    if (url := _URL.fullmatch(rule)) is not None:
        return _in_table(unquote(url["table"])) | _filters(url["query"] or "", is_url=True)
    if (table := _TABLE.fullmatch(rule)) is not None:
        return _in_table(table["table"], table["schema"]) | _filters(table["query"], is_url=False)
    return _filters(rule, is_url=False)


def _channel(rule: dict[str, Any]) -> dict[str, Any]:
    """Return what a channel of Realtime subscribes to."""
    if unknown := sorted(set(rule) - {"event", "schema", "table", "filter"}):
        refuse("expected `event`, `schema`, `table` and `filter`", unknown[0])
    if other := next((name for name, value in rule.items() if not isinstance(value, str)), None):
        refuse("expected a text", other)
    event = rule.get("event", "*")
    if event not in _EVENTS:
        refuse(f"expected one of {', '.join(_EVENTS)}", "event")
    types = _EVENTS[event]
    parts: dict[str, Any] = {"types": types} if types else {}
    if rule.get("table", "*") != "*":
        parts["collection"] = f"{rule.get('schema', 'public')}.{rule['table']}"
    return parts | (_realtime(rule["filter"]) if rule.get("filter") else {})


def _in_table(table: str, schema: str | None = None) -> dict[str, Any]:
    return {"collection": table if "." in table and not schema else f"{schema or 'public'}.{table}"}


def _realtime(condition_text: str) -> dict[str, Any]:
    """Read the filter of a channel: one condition, whose value may contain `&`."""
    name, _, condition = condition_text.partition("=")
    if re.search(r"&[^&=]+=(?:not\.)?[a-z]+\.", condition):
        refuse("a channel of Realtime has one filter; write a line without `event`, as orders:a=eq.1&b=eq.2", "filter")
    op, _, value = condition.partition(".")
    if op != "in":
        return dict(subscription_parts(_condition(name, condition, name).true))
    place = f"{name}, in"
    return dict(subscription_parts(one_of(Path((_column(name, name),)), _listed(value, place, _ELEMENT), place).true))


def _filters(query: str, *, is_url: bool) -> dict[str, Any]:
    truths = []
    parts = query.split("&") if query or not is_url else []
    if len(parts) > _MOST_CONDITIONS:
        refuse(f"expected at most {_MOST_CONDITIONS:,} conditions", "")
    for part in parts:
        name, separator, value = (unquote_plus(each) if is_url else each for each in part.partition("="))
        if not separator:
            refuse("expected a filter, as status=eq.paid", part[:80])
        if name in ("select", "order") and is_url and "!inner" not in value:
            continue
        truths.append(_parameter(name, value))
    return dict(subscription_parts(both(*truths).true))


def _parameter(name: str, value: str) -> Truth:
    if name in ("select", "order", "limit", "offset", "columns", "on_conflict"):
        refuse("this parameter selects no rows by their values; leave it out", name)
    if name in ("and", "or", "not.and", "not.or"):
        return _Tree(f"{name}{value}", name).read()
    return _condition(name, value, name)


def _condition(column: str, text: str, place: str, *, quoted: bool = False) -> Truth:
    """Read an operator and a value, such as `not.eq.paid`."""
    path = Path((_column(column, place),))
    op, separator, value = text.removeprefix("not.").partition(".")
    if not separator:
        refuse("expected an operator and a value, as eq.paid", place)
    if quoted and value.startswith('"') and op != "in":
        value = _unquoted(value)
    truth = _operator(path, op, value, f"{place}, {op[:40]}")
    return negated(truth) if text.startswith("not.") else truth


def _column(text: str, place: str) -> str:
    """Return the name of a column, which may stand in quotes."""
    if _QUOTED.fullmatch(text):
        return _unquoted(text)
    if not text or text in ("and", "or") or re.search(r'->|[().:/?"]', text):
        refuse("expected a column, in quotes if it has a `.` or `:`; JSON and other tables cannot be translated", place)
    return text


def _operator(path: Path, op: str, value: str, place: str) -> Truth:
    match op:
        case "eq":
            return one_of(path, [value], place)
        case "neq":
            return negated(one_of(path, [value], place))
        case "gt" | "gte" | "lt" | "lte":
            return ordered(path, _ORDERS[op], value, place)
        case "in":
            return one_of(path, _listed(value, place), place)
        case "is":
            return _is(path, value.lower(), place)
        case "isdistinct":
            return distinct(path, value, place)
        case "like" | "ilike":
            return like(path, value.replace("*", "%"), place, ignore_case=op == "ilike")
        case "match" | "imatch":
            return matches(path, value, place, ignore_case=op == "imatch")
    raise SubscriptionError("this operator cannot be translated; write this condition in CEL", place=place)


def _is(path: Path, value: str, place: str) -> Truth:
    match value:
        case "null" | "unknown":
            return is_null(path)
        case "not_null":
            return negated(is_null(path))
        case "true" | "false":
            return is_boolean(path, value == "true")
    raise SubscriptionError("expected null, not_null, true, false or unknown", place=place)


def _listed(value: str, place: str, one: re.Pattern[str] = _ITEM) -> list[str]:
    """Return the values of a list such as `(a,b,"c,d")`."""
    if not (value.startswith("(") and value.endswith(")")):
        refuse("expected a list, as in.(a,b)", place)
    items, at, text = [], 0, value[1:-1]
    while text:
        item = one.match(text, at)
        if item is None:
            refuse('expected values between commas, or in quotes, as in.(a,"b,c")', place)
        items.append(_unquoted(item[1]) if item[1].startswith('"') else item[1])
        at = item.end()
        if not item[2]:
            break
    return items


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.S)


class _Tree:
    """Reads `and(..)` and `or(..)`, whose parts are conditions such as `a.eq.5` and other trees."""

    def __init__(self, text: str, place: str) -> None:
        self._text = text
        self._at = 0
        self._conditions = 0
        self._place = place

    def read(self) -> Truth:
        truth = self._part(0)
        if self._at != len(self._text):
            self._refuse("expected the end")
        return truth

    def _part(self, level: int) -> Truth:
        tree = _TREE.match(self._text, self._at)
        if tree is None:
            return self._one()
        if level > _MOST_LEVELS:
            self._refuse(f"expected at most {_MOST_LEVELS} levels")
        self._at = tree.end()
        self._skip_spaces()
        parts = [self._part(level + 1)]
        while self._text.startswith(",", self._at):
            self._at += 1
            self._skip_spaces()
            parts.append(self._part(level + 1))
        if not self._text.startswith(")", self._at):
            self._refuse("expected `,` or `)`")
        self._at += 1
        self._skip_spaces()
        truth = both(*parts) if tree[2] == "and" else either(*parts)
        return negated(truth) if tree[1] else truth

    def _skip_spaces(self) -> None:
        while self._text.startswith((" ", "\t"), self._at):
            self._at += 1

    def _one(self) -> Truth:
        column = _COLUMN.match(self._text, self._at)
        value = _VALUE.match(self._text, column.end()) if column else None
        if column is None or value is None:
            self._refuse("expected a condition, as status.eq.paid")
        self._at = value.end()
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS:
            self._refuse(f"expected at most {_MOST_CONDITIONS:,} conditions")
        return _condition(column[0], value[1], f"{self._place}, {column[0]}", quoted=True)

    def _refuse(self, reason: str) -> NoReturn:
        refuse(f"{reason} at character {self._at + 1 - len(self._place)}", self._place)
