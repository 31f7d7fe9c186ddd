"""Recognise a rule of another language in what an engine refuses, and name the command that translates it.

    {"id": "a", "cel": {"==": [{"var": "status"}, "paid"]}}
    cel: expected a string, not an object; this looks like a JSONLogic rule: `streamer import jsonlogic FILE` translates it

A hint never changes what is accepted: it only completes an error, from the part of the subscription that the error is about. Both
backends return the same errors, so one table serves both. Cost: nothing for a good subscription; for a bad one, a search in at
most `_MOST_NODES` values and `_LONGEST` characters of each text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, final

from streamer.errors import DuplicateSubscriptionError, SubscriptionError
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.parse import MEMBERS
from streamer.subscriptions.subscription import Subscription

_MOST_NODES: Final = 1000
_LONGEST: Final = 2000


@final
class _Language(NamedTuple):
    """A language, the kind of `streamer import` for it, and how it is recognised: by a name in JSON, or by a text."""

    name: str
    kind: str
    in_json: Callable[[Any, Any], bool] | None = None
    in_text: re.Pattern[str] | None = None


def _names(*names: str) -> Callable[[Any, Any], bool]:
    known = frozenset(names)
    return lambda name, _: name in known


def _prefixed(sign: str, names: str) -> Callable[[Any, Any], bool]:
    return _names(*(sign + name for name in names.split()))


def _is_elasticsearch(name: Any, value: Any) -> bool:
    inner = {"query": _QUERIES, "bool": _CLAUSES}.get(name)
    return inner is not None and isinstance(value, Mapping) and not inner.isdisjoint(value)


def _is_jsonlogic(name: Any, value: Any) -> bool:
    arguments = value if isinstance(value, list) else [value]
    return name in _LOGIC and any(isinstance(each, Mapping) and "var" in each for each in arguments)


_CLAUSES: Final = frozenset("must should filter must_not".split())
_QUERIES: Final = frozenset(
    "bool exists ids match match_all match_phrase multi_match prefix query_string range regexp term terms wildcard".split()
)
_LOGIC: Final = frozenset("== === != !== > >= < <= ! !! and or if in var missing cat + - * / % some all none filter map".split())
_COMPARED: Final = r"(?:not\.)?(?:eq|neq|gt|gte|lt|lte|like|ilike|match|imatch|in|is|isdistinct|cs|cd|ov|fts)\."

#: What no importer reads: a root of this package, which only CEL has before a dot.
_OURS: Final = re.compile(r"\b(?:data|before|envelope)\s*\.")
_LITERAL: Final = re.compile(r"""(?:'(?:[^'\\]|\\.)*')+|(?:"(?:[^"\\]|\\.)*")+""", re.DOTALL)
#: Members that may contain a rule as text, in place of those of a subscription.
_OF_RULES: Final = re.compile("(?i)(?:sql|where|query|rule|expression|condition|filter|cesql)s?")
_STEP: Final = re.compile(r'\[([0-9]+)\]|\[("(?:[^"\\]|\\.)*")\]|\.?([A-Za-z_][A-Za-z0-9_]*)')

#: The first that recognises a part is named. None of these texts is CEL, and only refused ones are looked at.
LANGUAGES: Final = (
    _Language("an EventBridge rule", "eventbridge", _names("EventPattern", "event_pattern", "detail-type", "eventPattern")),
    _Language("an SNS filter policy", "sns", _names("FilterPolicy", "FilterPolicyScope", "filter_policy")),
    _Language(
        "a MongoDB query",
        "mongo",
        _prefixed(
            "$",
            "and or nor not eq ne gt gte lt lte in nin exists regex elemMatch all size type mod expr where",
        ),
    ),
    _Language(
        "a Hasura expression",
        "hasura",
        _prefixed(
            "_",
            "and or not exists eq neq gt gte lt lte in nin like nlike ilike nilike similar regex iregex is_null contains has_key",
        ),
    ),
    _Language("a JSONLogic rule", "jsonlogic", _is_jsonlogic),
    _Language("an Elasticsearch query", "", _is_elasticsearch),
    _Language(
        "a filter of Supabase (PostgREST)",
        "supabase",
        in_text=re.compile(rf"[?&]?\s*(?:[\w.>\-]+=\s*{_COMPARED}|(?:not\.)?(?:and|or)=?\([\w.]+\.{_COMPARED})"),
    ),
    # With `==`, `&&` or `||` it is CEL with a word of another language, for which CEL's errors have hints.
    _Language(
        "a CloudEvents SQL expression",
        "cesql",
        in_text=re.compile(r"(?is)(?!.*(?:==|&&|\|\|)).*\bEXISTS\s+(?!select\b)[a-z0-9]+\b(?!\s*[.(])"),
    ),
    _Language(
        "an SQL condition",
        "sql",
        in_text=re.compile(
            r"""(?isx) (?! .* (?: == | && | \|\| ) ) (?: \s*SELECT\s.*\sFROM\s | .* (?:
              \sIS\s+(?:NOT\s+)?NULL\b | \sBETWEEN\s.+\sAND\s | \sI?LIKE\s+' | \sIN\s*\(\s*(?:'[^']*'|[\d.]+)\s*[,)] | <>
              | [^=!<>]=\s*'[^']*'\s*(?:$|;|\)|AND\b|OR\b) | [^=!<>]=\s*[\w.'-]+\s+(?:AND|OR)\s ) )"""
        ),
    ),
)

#: Operators in other languages, in small letters without signs, with the operator of filters; or words for what has none.
_OPERATORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("eq", "equals", "equal", "equalto", "is"), "=="),
    **dict.fromkeys(("ne", "neq", "notequals", "notequal", "notequalto", "anythingbut", "isnot"), "!="),
    **dict.fromkeys(("gt", "greaterthan", "greater", "after"), ">"),
    **dict.fromkeys(("gte", "ge", "greaterthanorequal", "greaterthanorequals", "greaterthanorequalto", "min"), ">="),
    **dict.fromkeys(("lt", "lessthan", "less", "before"), "<"),
    **dict.fromkeys(("lte", "le", "lessthanorequal", "lessthanorequals", "lessthanorequalto", "max"), "<="),
    **dict.fromkeys(("in", "oneof", "anyof", "isin"), "in"),
    **dict.fromkeys(("nin", "notin", "noneof", "isnotin"), "not in"),
    **dict.fromkeys(("contains", "has", "includes", "substring", "haselement", "cs"), "contains"),
    **dict.fromkeys(("startswith", "prefix", "beginswith", "hasprefix"), "starts_with"),
    **dict.fromkeys(("endswith", "suffix", "hassuffix"), "ends_with"),
    **dict.fromkeys(("matches", "regex", "regexp", "match", "similar", "rlike", "~", "=~", "~="), "matches"),
    **dict.fromkeys(("exists", "present", "ispresent", "defined", "isdefined"), "exists"),
    **dict.fromkeys(("notexists", "missing", "absent", "isabsent"), "'exists' with the value false"),
    **dict.fromkeys(("isnull", "null"), "'==' with the value null"),
    **dict.fromkeys(("isnotnull", "notnull"), "'!=' with the value null"),
    **dict.fromkeys(("like", "wildcard", "glob"), "'starts_with', 'ends_with', 'contains' or 'matches'"),
    **dict.fromkeys(("notlike", "nlike", "notcontains", "notmatches", "notregex", "!~"), "`cel`, with `!` before the condition"),
    "ilike": "'==', 'starts_with', 'ends_with', 'contains' or 'matches' with \"ignore_case\": true",
    "equalsignorecase": "'==' with \"ignore_case\": true",
    **dict.fromkeys(("iregex", "imatch", "~*"), "'matches' with \"ignore_case\": true"),
    **dict.fromkeys(("between", "range"), "two filters, '>=' and '<='"),
    **dict.fromkeys(("and", "or", "not", "&&", "||", "!"), "a group in place of the filter: 'any', 'all' or 'not'"),
}
#: Names that patterns of this package have, too.
_OF_PATTERNS: Final = frozenset(("$or", "detail-type"))
#: Members of a filter in other languages.
_MEMBERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("column", "attribute", "property", "key", "path", "name", "fact"), "field"),
    **dict.fromkeys(("operator", "operation", "comparison", "comparator", "condition"), "op"),
    **dict.fromkeys(("values", "val", "operand", "pattern"), "value"),
}


def with_hint(error: SubscriptionError, source: Any) -> SubscriptionError:
    """Complete an error with a hint, if its part of a subscription is written as in another language, and return the error.

    Args:
        source: the refused subscription as it was given: an object, a mapping, or a text.
    """
    if isinstance(error, DuplicateSubscriptionError):
        return error
    member, part = _part(source, error.place)
    if (language := _language(member, part)) is not None:
        # The hint replaces a long list of what is possible.
        reason = error.reason.partition("; expected one of")[0]
        error.reason = f"{reason}; this looks like {language.name}: {_advice(language)}"
    elif member == "filters" and (match := _UNKNOWN.match(error.reason)) is not None:
        name = match[2]
        known = _MEMBERS if match[1] == "member" else _OPERATORS
        if (meant := known.get(name.lower()) or known.get(re.sub("[^a-z]", "", name.lower()))) is not None:
            is_name = meant in OPERATORS or known is _MEMBERS
            error.reason = f"unknown {match[1]} {match[2]!r}; {f'did you mean {meant!r}?' if is_name else f'write {meant}'}"
    error.args = (error.reason,)
    return error


_UNKNOWN: Final = re.compile("unknown (operator|member) '([^']*)';")


def _advice(language: _Language) -> str:
    if not language.kind:
        return "write it by hand: docs/coming-from/elasticsearch-percolator.md lists the equivalents"
    return f"`streamer import {language.kind} FILE` translates it"


def _part(source: Any, place: str) -> tuple[str, Any]:
    """Return the member of a subscription at which an error is, and its value; without a member, those that are unknown."""
    members = _read(source)
    if not isinstance(members, Mapping):
        return "", members
    member = re.split(r"[.\[]", place, maxsplit=1)[0]
    if member not in ("filters", "cel", "pattern"):
        # A rule of another language may stand in place of a subscription.
        return "", {name: value for name, value in islice(members.items(), _MOST_NODES) if name not in MEMBERS}
    value = _read(members.get(member))
    if member == "pattern":
        return member, _member_at(value, place.removeprefix(member))
    at = re.match(r"filters\[([0-9]+)\]", place)
    return member, value[int(at[1])] if at and isinstance(value, list | tuple) and int(at[1]) < len(value) else value


def _member_at(value: Any, place: str) -> dict[str, Any]:
    """Return the member at which an error is, by its name; other names of a pattern may be those of fields."""
    innermost: dict[str, Any] = {}
    for index, quoted, word in _STEP.findall(place):
        try:
            step = int(index) if index else json.loads(quoted) if quoted else word
            value = value[step]
        except (LookupError, TypeError, ValueError):
            break
        # `{"var": "a"}` is an argument of JSONLogic: the name of the rule stands before it.
        if isinstance(step, str) and step != "var":
            innermost = {step: value}
    return innermost


def _read(source: Any) -> Any:
    """Return the value of JSON, and the members of an object of this package."""
    if isinstance(source, Subscription):
        return {name: getattr(source, name) for name in ("filters", "cel", "pattern")}
    if isinstance(source, bytes | bytearray):
        source = bytes(source[: 4 * _LONGEST]).decode("utf-8", "replace")
    if isinstance(source, str) and source.lstrip().startswith(("{", "[")) and len(source) < 4 * _LONGEST:
        try:
            return json.loads(source)
        except (ValueError, RecursionError):
            return source
    return source


def _language(member: str, part: Any) -> _Language | None:
    is_pattern = member == "pattern"
    names = [each for each in part.items() if each[0] not in _OF_PATTERNS] if is_pattern else [*_named(part)]
    texts = [] if is_pattern else [text for text in _texts(member, part) if not _OURS.search(text)]
    for language in LANGUAGES:
        if language.in_json is not None and any(language.in_json(name, value) for name, value in names):
            return language
        if language.in_text is not None and any(language.in_text.match(text) for text in texts):
            return language
    return None


def _named(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield each member in a part, at any depth."""
    pending = [part]
    for _ in range(_MOST_NODES):
        if not pending:
            return
        value = pending.pop()
        if isinstance(value, Mapping):
            for name, item in islice(value.items(), _MOST_NODES):
                yield name, item
                pending.append(item)
        elif isinstance(value, list | tuple):
            pending += value[:_MOST_NODES]


def _texts(member: str, part: Any) -> Iterator[str]:
    """Yield the texts that stand in place of a condition: not those that a condition compares with."""
    if isinstance(part, Mapping) and not member:
        part = [value for name, value in part.items() if isinstance(name, str) and _OF_RULES.fullmatch(name)]
    values = part if isinstance(part, list | tuple) else [part]
    # What stands in quotes is a value, whatever its words are.
    yield from (_LITERAL.sub("''", each[:_LONGEST]) for each in islice(values, _MOST_NODES) if isinstance(each, str))
