"""Names and values that are used as written, but were probably meant as in another language.

    {"data": {"status": {"$in": ["paid"]}}}      a name of MongoDB, which a document may have
    {"field": "name", "op": "==", "value": "pa*"}    a text with a star in it
    timestamp('2026-01-01')                      a text that is not a timestamp: an error for every event

A slip in a pattern is reported with the whole pattern as it was probably meant. Findings depend only on the subscription, as in
mistakes.py, whose list includes them. Cost: linear in the subscription; CEL is parsed only if its text looks odd.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

from streamer.cel_eval.constants import OPEN, Constants, negative_index
from streamer.cel_eval.program import compile_cel
from streamer.cel_eval.tree import (
    Chain,
    Ident,
    ListLiteral,
    Literal,
    Method,
    Node,
    Operation,
    Step,
    Variable,
    children,
    constant_path,
)
from streamer.cel_eval.values import Failure
from streamer.errors import CelError, PatternError
from streamer.events.layout import EventLayout
from streamer.model import Dialect, EventType, FilterOperator, Limits
from streamer.subscriptions.cel_text import cel_literal, cel_path
from streamer.subscriptions.patterns import is_choice, parse_pattern
from streamer.subscriptions.places import Place

#: Longer texts are left out of messages.
_LONGEST: Final = 200

# Texts

#: A star at the beginning or end of a name, or next to a separator; `A*`, `5*` and `**bold**` are texts.
_STARRED: Final = re.compile(r"^\*[./:_@-]?\w\w|\w\w[./:_@-]?\*$|[./:_-]\*[./:_-]")
#: Wildcards of SQL's LIKE; `100%` is a text.
_LIKE: Final = re.compile(r"%?[^\W\d]{2,}%|%[^\W\d]{2,}%?")


def glob_of(text: Any) -> str | None:
    """Return a text with wildcards in the syntax of a shell; None if it has none."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    if _LIKE.fullmatch(text) is not None:
        return text.replace("%", "*")
    starred = "*" in text and "**" not in text and "\\" not in text and _STARRED.search(text) is not None
    return text if starred and re.search(r"[^\W\d]", text) is not None else None


class _Like(NamedTuple):
    """The meaning of a text with wildcards: an operator of filters, the method of CEL, and its operand."""

    op: FilterOperator
    method: str
    operand: str


def _like(glob: str) -> _Like:
    pieces = glob.split("*")
    texts = [piece for piece in pieces if piece]
    if len(texts) == 1 and len(pieces) <= 3:
        match bool(pieces[0]), bool(pieces[-1]):
            case True, False:
                return _Like("starts_with", "startsWith", texts[0])
            case False, True:
                return _Like("ends_with", "endsWith", texts[0])
        return _Like("contains", "contains", texts[0])
    return _Like("matches", "matches", "^" + ".*".join(map(re.escape, pieces)) + "$")


_AS_IT_STANDS: Final = "is compared as written, without wildcards"

# Filters

#: MongoDB's operators, with the equivalent operators of filters.
_MONGO: Final[Mapping[str, FilterOperator]] = {
    "$eq": "==",
    "$ne": "!=",
    "$gt": ">",
    "$gte": ">=",
    "$lt": "<",
    "$lte": "<=",
    "$in": "in",
    "$nin": "not in",
    "$regex": "matches",
    "$exists": "exists",
}
#: Hasura's operators, each with the one of MongoDB that means the same in a filter or a pattern.
_HASURA: Final = {"_neq": "$ne"} | {f"_{name}": f"${name}" for name in "and or not eq gt gte lt lte in nin regex".split()}
_ENDS: Final[Mapping[str, tuple[bool, bool]]] = {
    "starts_with": (False, True),
    "ends_with": (True, False),
    "contains": (True, True),
}


def slip_of_filter(condition: Mapping[str, Any], root: str, path: Sequence[str]) -> str | None:
    """Return the odd part of a filter's value and its probable meaning."""
    op, value = condition["op"], condition.get("value")
    if op == "==" and isinstance(value, Mapping) and len(value) == 1 and _of_hasura(name := next(iter(value))) in _MONGO:
        meant = f'"op": {_quoted(_MONGO[_of_hasura(name)])}, "value": {_short(value[name])}'
        return f"this is an object with a member {_quoted(name)}; probably meant: {meant}"
    if op in _ENDS and (glob := glob_of(value)) is not None:
        return f"{_quoted(value)} {_AS_IT_STANDS}; probably meant: {_quoted(_bare(op, glob))}"
    values = value if op in ("in", "not in") and isinstance(value, list) else [value] if op in ("==", "!=") else []
    for each in values:
        if (glob := glob_of(each)) is not None:
            like = _like(glob)
            if op == "==":
                meant = f'"op": {_quoted(like.op)}, "value": {_quoted(like.operand)}'
            else:
                negated = "" if op == "in" else "!"
                text = f"{negated}{cel_path(root, tuple(path))}.{like.method}({cel_literal(like.operand)})"
                meant = f'"cel": {_quoted(text)}'
            return f"{_quoted(each)} {_AS_IT_STANDS}; probably meant: {meant}"
    return None


def _of_hasura(name: str) -> str:
    """Return MongoDB's name of an operator of Hasura, and any other name as it is."""
    return _HASURA.get(name, name)


def _bare(op: str, glob: str) -> str:
    """Return a text without stars at the ends at which the operator allows any characters anyway."""
    at_start, at_end = _ENDS[op]
    text = glob.removeprefix("*") if at_start else glob
    return text.removesuffix("*") if at_end else text


# Patterns

#: MongoDB's comparisons, with the equivalent operators in an array of values.
_AS_ELEMENTS: Final[Mapping[str, str]] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<=", "$eq": "="}
#: Operators of MongoDB that cannot be part of a document, unlike `$oid` and `$date`.
_NOT_OF_DOCUMENTS: Final = frozenset({*_MONGO, "$and", "$nor", "$not", "$elemMatch", "$all", "$size", "$type", "$or"})
_DOTTED: Final = re.compile(r"[^\W\d][\w-]*(?:\.[^\W\d][\w-]*)+")
#: A step into a list, as other languages write it.
_OF_LISTS: Final = re.compile(r"\*+|[0-9]{1,2}|\[(?:\*|[0-9]{0,9})\]")
_INDEXED: Final = re.compile(r"([^\[\]*]+)\[(?:\*|[0-9]{0,9})\]")
#: Operators whose names hardly any field has.
_OPERATORS: Final = frozenset({"anything-but", "equals-ignore-case", "numeric"})

Steps = tuple[str | int, ...]


def slip_of_pattern(pattern: Mapping[str, Any], dialect: Dialect, layout: EventLayout) -> tuple[str, str] | None:
    """Return the place of the first slip in a pattern and its description; None for a pattern without one."""
    pending: list[tuple[Steps, Mapping[str, Any]]] = [((), pattern)]
    while pending:
        path, node = pending.pop()
        below: list[tuple[Steps, Mapping[str, Any]]] = []
        for name, value in node.items():
            here = (*path, name)
            if isinstance(value, Mapping):
                below.append((here, value))
            elif is_choice(name, value, dialect):
                below += [((*here, at), each) for at, each in enumerate(value)]
                continue
            slip = _odd_name(node, name, dialect)
            if slip is None and not isinstance(value, Mapping):
                slip = _odd_type(here, value, layout) or _odd_values(value)
                if slip is not None:
                    slip = slip[0], {**node, name: slip[1]}
            if slip is not None:
                odd, new = slip
                return str(_place(here)), f"{odd}; probably meant: {_meant(pattern, path, new, dialect)}"
        pending += below[::-1]
    return None


def _place(path: Steps) -> Place:
    place = Place(None, "pattern")
    for step in path:
        place = Place(place, step)
    return place


def _odd_name(node: Mapping[str, Any], name: str, dialect: Dialect) -> tuple[str, Any] | None:
    """Return the oddity of a name and the replacement of its object, which is None if it cannot be derived."""
    value, alone = node[name], len(node) == 1
    if name in _NOT_OF_DOCUMENTS:
        if name == "$or" and dialect != "strict":
            return "this `$or` is a name like others, since it has fewer than two objects without operators", None
        return f"{_quoted(name)} is a name like others, and no operator", _of_mongo(name, value) if alone else None
    if name in _HASURA:
        return f"{_quoted(name)} is a name like others, and no operator", _of_mongo(_HASURA[name], value) if alone else None
    if name in _OPERATORS and not isinstance(value, Mapping):
        return f"{_quoted(name)} is a name here, since an operator stands in an array", [
            {name: _operand(name, value)}
        ] if alone else None
    if _OF_LISTS.fullmatch(name):
        return f"{_quoted(name)} is a name like others, and a path of a pattern leaves arrays out", value if alone else None
    if (indexed := _INDEXED.fullmatch(name)) is not None:
        return f"{_quoted(name)} is a name, brackets and all, and a path of a pattern leaves arrays out", _renamed(
            node, name, (indexed[1],)
        )
    if len(name) <= _LONGEST and _DOTTED.fullmatch(name):
        return f"{_quoted(name)} is one name, dots and all", _renamed(node, name, tuple(name.split(".")))
    return None


def _renamed(node: Mapping[str, Any], name: str, names: tuple[str, ...]) -> Any:
    if names[0] in node:
        return None
    value = node[name]
    for each in reversed(names[1:]):
        value = {each: value}
    return {(names[0] if known == name else known): (value if known == name else member) for known, member in node.items()}


def _of_mongo(name: str, value: Any) -> Any:
    """Return the array of values that is equivalent to an operator of MongoDB, or None if there is none."""
    if not isinstance(value, list):
        return None
    if name in ("$in", "$eq", "$all"):
        return value
    if name in ("$ne", "$nin"):
        return [{"anything-but": value}]
    if name in _AS_ELEMENTS and len(value) == 1:
        return [{"numeric": [_AS_ELEMENTS[name], value[0]]}]
    if name in ("$regex", "$exists") and len(value) == 1:
        return [{name[1:].replace("regex", "regexp"): value[0]}]
    return None


def _operand(name: str, value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _odd_type(here: Steps, value: Any, layout: EventLayout) -> tuple[str, Any] | None:
    """Return the oddity of a pattern's types, if events of the layout have none of them."""
    if here not in layout.pointers("type") or not value or not all(isinstance(each, str) for each in value):
        return None
    words = layout.type_words
    if not words or any(each in words for each in value):
        return None
    meant = [word for each in value for word in words if word == each.lower() or layout.event_type(word) == each.lower()]
    return f"events never have this type; the types of this layout are {', '.join(map(_quoted, words))}", meant or list(words)


def _odd_values(values: Any) -> tuple[str, Any] | None:
    for at, each in enumerate(values):
        if (glob := glob_of(each)) is not None:
            return f"{_quoted(each)} {_AS_IT_STANDS}", [*values[:at], {"wildcard": glob}, *values[at + 1 :]]
        if isinstance(each, Mapping) and len(each) == 1:
            ((name, operand),) = each.items()
            if name in ("prefix", "suffix") and (glob := glob_of(operand)) is not None:
                bare = _bare("starts_with" if name == "prefix" else "ends_with", glob)
                instead = {name: bare} if "*" not in bare else {"wildcard": glob}
                return f"{_quoted(operand)} {_AS_IT_STANDS}", [
                    *values[:at],
                    instead,
                    *values[at + 1 :],
                ]
    return None


def _meant(pattern: Mapping[str, Any], path: Steps, new: Any, dialect: Dialect) -> str:
    """Return the text of a pattern with another value at a path, abbreviated if it is long or would be invalid."""
    short = "{...}"
    if new is None or len(path) > 32:
        return short
    whole: Any = new
    for length in range(len(path) - 1, -1, -1):
        outer: Any = pattern
        for step in path[:length]:
            outer = outer[step]
        step = path[length]
        whole = {**outer, step: whole} if isinstance(step, str) else [*outer[:step], whole, *outer[step + 1 :]]
    try:
        text = json.dumps(whole, ensure_ascii=False, allow_nan=False)
        if len(text) > _LONGEST:
            return short
        parse_pattern(text, dialect=dialect, limits=Limits())
    except (PatternError, RecursionError, TypeError, ValueError):
        return short
    return text


# CEL

_TYPES: Final = get_args(EventType)
#: Expressions that may have a slip: only these are parsed, and then the tree decides.
_ODD_CEL: Final = re.compile(
    r"""
    \[\s*-                                                              # an index before the first
    | [*%]['"] | ['"][*%] | [./:_-]\*[./:_-]                              # texts with wildcards
    | (?<![.\w])type\s*(?:[!=]=\s*(['"])(?!(?:insert|update|delete)?\1)|in\b)   # another type
    | ['"]\s*[!=]=\s*type\b
    | \btimestamp\s*\(\s*(['"])(?!\d{4}-\d\d-\d\d[Tt][\d:.]+(?:[Zz]|[+-]\d\d:\d\d)\2)   # no RFC 3339
    | \b(?:duration|int|uint|double|bool)\s*\(\s*['"-]                   # a conversion of a constant
    | [/%]\s*0(?![.\d])                                                  # a division by zero
    """,
    re.VERBOSE,
)
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?")


def slips_of_cel(source: str) -> Iterator[str]:
    """Yield a description of each oddity in an expression, with its line and column."""
    if _ODD_CEL.search(source) is None:
        return
    try:
        program = compile_cel(source, Limits())
    except (CelError, RecursionError):
        # The expression calls functions of its engine, or exceeds the default limits.
        return
    constants = Constants(program)
    pending: list[Node | Step] = [program.tree]
    while pending:
        node = pending.pop()
        said = None
        value = OPEN if isinstance(node, Step) else constants.value(node)
        match node:
            case Literal():
                pass
            case _ if isinstance(value, Failure):
                said = _failing(node, value, constants)
            case Operation():
                said = _odd_comparison(node)
            case Chain():
                if (step := negative_index(node)) is not None:
                    yield _at(_odd_index(node), step.at)
                said = _odd_test(node)
        if said is not None:
            yield _at(said, node.at)
        pending += children(node)[::-1]


def _at(said: str, at: tuple[int, int]) -> str:
    return f"{said} (line {at[0]}, column {at[1]})"


def _failing(node: Node | Step, failure: Failure, constants: Constants) -> str | None:
    """Return why a constant is an error, unless a part of it is."""
    if any(not isinstance(each, Step) and isinstance(constants.value(each), Failure) for each in children(node)):
        return None
    hint = ""
    name, args = getattr(node, "name", None), getattr(node, "args", [])
    text = args[0].value if len(args) == 1 and isinstance(args[0], Literal) else None
    if name == "timestamp" and isinstance(text, str) and (date := _DATE.fullmatch(text)) is not None:
        time = date[2] or "00:00:00"
        whole = f"{date[1]}T{time}{':00' if len(time) == 5 else ''}Z"
        hint = f"; probably meant: timestamp({cel_literal(whole)})"
    return f"an error for every event: {failure.detail}{hint}"


def _odd_index(node: Chain) -> str:
    path = constant_path(node) or ()
    shown = cel_path(path[0], path[1:]) if path else "data"
    return f"an error for every event: there is no element before the first; probably meant: {shown}[size({shown}) - 1]"


def _odd_comparison(node: Operation) -> str | None:
    if len(node.rest) != 1 or node.rest[0][0] not in ("==", "!=", "in"):
        return None
    (_, _, right), left = node.rest[0], node.first
    for one, other in ((left, right), (right, left)):
        texts = [each.value for each in (other.items if isinstance(other, ListLiteral) else [other]) if isinstance(each, Literal)]
        if isinstance(one, Ident) and one.meaning == Variable("type"):
            for text in texts:
                if isinstance(text, str) and text not in ("", *_TYPES):
                    near = [word for word in _TYPES if word == text.lower()] or _TYPES
                    return f"`type` is never {cel_literal(text)}; probably meant: {' or '.join(map(cel_literal, near))}"
        elif constant_path(one) is not None:
            for text in texts:
                if (glob := glob_of(text)) is not None:
                    like = _like(glob)
                    meant = f"{like.method}({cel_literal(like.operand)})"
                    return f"{cel_literal(text)} {_AS_IT_STANDS}; probably meant: {meant}"
    return None


def _odd_test(node: Chain) -> str | None:
    last = node.steps[-1]
    ops = {"startsWith": "starts_with", "endsWith": "ends_with", "contains": "contains"}
    if not isinstance(last, Method) or last.name not in ops or len(last.args) != 1 or not isinstance(last.args[0], Literal):
        return None
    text = last.args[0].value
    if (glob := glob_of(text)) is None:
        return None
    meant = f"{last.name}({cel_literal(_bare(ops[last.name], glob))})"
    return f"{cel_literal(text)} {_AS_IT_STANDS}; probably meant: {meant}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else "..."


def _quoted(text: object) -> str:
    return json.dumps(text, ensure_ascii=False)
