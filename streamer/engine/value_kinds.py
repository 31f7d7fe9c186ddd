"""Find conditions on numbers whose field is always text in real events, on text whose field is always a number, and the like.

```
data.amount > 100        "amount": "YbI="         a decimal in base64
data.price > 100         "price": "250.10"        a number as text
data.day == "2026-01-31" "day": 20484             days since 1970
data.j.k == "v"          "j": "{\\"k\\": \\"v\\"}"      JSON in a text
```

Such a condition is valid and never true. A source writes values like these by its settings, so the finding names the setting, or
the condition that would work.

Memory: the paths of subscriptions, with one value each. Time: a walk over each event, along the paths of subscriptions.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Literal, TypeAlias, final

from streamer.events.timestamps import parse_rfc3339
from streamer.model import Dialect, Limits
from streamer.subscriptions import atoms
from streamer.subscriptions.atoms import Atom, Clause, Mode, Range, Root
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.contradictions import kinds_of
from streamer.subscriptions.impossible import possible
from streamer.subscriptions.matchers import Equal
from streamer.subscriptions.normal_form import normal_form
from streamer.subscriptions.patterns import is_choice

Steps: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["number", "text"]
Needed: TypeAlias = tuple[Kind, Any]
"""The kind of value that a condition needs, and a value that it names, or None."""

_EPOCH: Final = date(1970, 1, 1)
#: The most characters of a value that a message shows.
_SHOWN: Final = 40
#: The most bytes of a decimal: more than any database's column of money or measures has.
_DECIMAL_BYTES: Final = 17
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?").fullmatch
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?").fullmatch
_DATE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})([T ].*)?", re.DOTALL).fullmatch
#: Units of a time since 1970, by the least number that a time of this century has in them: the name, and how many make a day.
_UNITS: Final = (
    (10**18, "nanoseconds", 86_400 * 10**9),
    (10**15, "microseconds", 86_400 * 10**6),
    (10**12, "milliseconds", 86_400_000),
    (946_684_800, "seconds", 86_400),
    (10_957, "days", 1),
)
_KINDS: Final[Mapping[frozenset[atoms.Kind], Kind]] = {
    frozenset({atoms.Kind.NUMBER}): "number",
    frozenset({atoms.Kind.STRING}): "text",
}
#: The roots of paths of filters and CEL.
_ROOTS: Final = (Root.DATA, Root.BEFORE, Root.ENVELOPE)
#: The operators of filters that compare a value with the field's value.
_COMPARE: Final = frozenset(("==", "in", "<", "<=", ">", ">=", "changed_to", "changed_from"))
_OF_TEXT: Final = frozenset(("starts_with", "ends_with", "matches"))
_OF_TEXT_IN_PATTERNS: Final = frozenset(("prefix", "suffix", "equals-ignore-case", "wildcard", "regexp", "shellstyle"))


@final
@dataclass(slots=True)
class Values:
    """A field that subscriptions use, and the values that events have there.

    Attributes:
        first: the first value that is not null.
        kind: the kind of all values; None without any, or if they differ or are neither numbers nor text.
        in_list: whether a value was an element of a list.
        is_open: whether further values can change the kind.
        has_json: whether `first` is text with an object in JSON in it; None if this was not examined.
    """

    first: Any = None
    kind: Kind | None = None
    in_list: bool = False
    is_open: bool = True
    has_json: bool | None = None
    below: dict[str, Values] = field(default_factory=dict)

    def ask(self, path: Steps) -> Values:
        """Return the field at a path below this one; from now on its values are examined."""
        node = self
        for name in path:
            node = node.below.setdefault(name, Values())
        return node

    def see(self, document: Any, *, through_lists: bool) -> None:
        """Examine the values of a document at this field."""
        stack: list[tuple[Values, Any, bool]] = [(self, document, False)]
        while stack:
            node, value, in_list = stack.pop()
            if isinstance(value, list) and through_lists:
                stack.extend((node, each, True) for each in value)
            elif isinstance(value, dict) and node.below:
                few, many = (node.below, value) if len(node.below) < len(value) else (value, node.below)
                stack.extend((node.below[name], value[name], in_list) for name in few if name in many)
            elif node is not self and node.is_open and value is not None:
                node._saw(value, in_list)

    def forget(self, path: Steps) -> None:
        """Make the values at a path useless, and those below it: one of them stands for a value that the event does not carry."""
        node: Values | None = self
        for name in path:
            node = None if node is None else node.below.get(name)
        if node is not None:
            node.kind, node.is_open, node.below = None, False, {}

    def _saw(self, value: Any, in_list: bool) -> None:
        kind = kind_of(value)
        if self.first is None:
            self.first, self.kind = value, kind
        elif kind != self.kind:
            self.kind = None
        self.in_list |= in_list
        self.is_open = self.kind is not None


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a value of an event or a condition; None for others than numbers and text."""
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else None


def of_filter(condition: Mapping[str, Any]) -> Needed | None:
    """Return the kind of value that a filter needs, and one value that it names; None if it does not need one kind."""
    op, value = condition["op"], condition.get("value")
    if op in _OF_TEXT:
        return "text", None
    return _one_kind(value if op == "in" else [value]) if op in _COMPARE else None


def of_pattern(pattern: Mapping[str, Any], dialect: Dialect) -> Iterator[tuple[Steps, Needed]]:
    """Yield each path of a pattern that needs one kind of value, with the kind and one value that the pattern names."""
    for path, matchers, is_required in fields_of_pattern(pattern, dialect):
        # Of alternatives, another one may be true.
        if is_required and isinstance(matchers, list) and (needed := _one_kind(map(_of_matcher, matchers))) is not None:
            yield path, needed


def fields_of_pattern(pattern: Mapping[str, Any], dialect: Dialect) -> Iterator[tuple[Steps, Any, bool]]:
    """Yield each field of a pattern: its path, its matchers, and whether it is in no `$or`, so that each match needs it."""
    pending: list[tuple[Steps, Mapping[str, Any], bool]] = [((), pattern, True)]
    for path, each, is_required in pending:
        for name, value in each.items():
            if isinstance(value, Mapping):
                pending.append(((*path, name), value, is_required))
            elif name == "$or" and is_choice(name, value, dialect):
                pending.extend((path, alternative, False) for alternative in value)
            else:
                yield (*path, name), value, is_required


def _of_matcher(matcher: Any) -> Any:
    """Return the value that a matcher names, or another of the kind that it needs; None if it needs no certain kind."""
    if not isinstance(matcher, Mapping):
        return matcher
    ((name, operand),) = matcher.items() if len(matcher) == 1 else (("", None),)
    if name == "numeric":
        return next((each for each in operand if kind_of(each) == "number"), None) if isinstance(operand, list) else operand
    return "" if name in _OF_TEXT_IN_PATTERNS and isinstance(operand, str) else None


def of_expression(
    compiled: CompiledSubscription, limits: Limits, values: Callable[[str, Steps], Values]
) -> Iterator[tuple[str, Steps, Needed]]:
    """Yield what prevents an expression from being true, if events have values of other kinds in each of its alternatives.

    Args:
        values: returns the values at a path, by its root.

    Yields:
        root and path of a value, the kind that it must be of, and a literal.
    """
    by_clause: dict[Clause, Needed] = {}
    for alternative in possible(compiled, normal_form(compiled, limits), limits)[0]:
        for clause in sorted(alternative, key=_place):
            kind = _KINDS.get(kinds_of(clause))
            if kind is None or clause.mode is not Mode.VALUE or clause.path.root not in _ROOTS:
                continue
            if values(*_place(clause)).kind not in (None, kind):
                by_clause[clause] = kind, next(filter(None, map(_literal, clause.atoms)), None)
                break
        else:
            return
    for clause, needed in by_clause.items():
        yield *_place(clause), needed


def _place(clause: Clause) -> tuple[str, Steps]:
    return clause.path.root.value, clause.path.names


def _literal(atom: Atom) -> Any:
    match atom:
        case Equal():
            return atom.value
        case Range():
            return atom.low if atom.high is None else atom.high
    return None


def _one_kind(values: Any) -> Needed | None:
    items = list(values) if isinstance(values, Iterable) and not isinstance(values, str | Mapping) else []
    kinds = {kind_of(each) for each in items}
    kind = kinds.pop() if len(kinds) == 1 else None
    return None if kind is None else (kind, items[0])


def mismatch(shown: str, in_cel: str | None, needed: Needed, values: Values, *, is_debezium: bool) -> str | None:
    """Return what is wrong with a condition; None if the events have a value of the kind that it needs, or no kind.

    Args:
        shown: the path.
        in_cel: the path as CEL writes it; None if it has none.
        is_debezium: whether Debezium wrote the events.
    """
    wanted, literal = needed
    if values.kind is None or values.kind == wanted:
        return None
    if wanted == "number":
        hint = _hint_of_text(None if values.in_list else in_cel, values.first)
        setting = "; Debezium writes numbers with decimal.handling.mode=double" if is_debezium and hint == _DECIMAL else ""
        return f"this condition needs a number, and {shown} is text in the events, such as {_cut(values.first)}{hint}{setting}"
    hint = _hint_of_number(values.first, literal)
    return f"this condition needs text, and {shown} is a number in the events, such as {_cut(values.first)}{hint}"


_DECIMAL: Final = ": it may be a decimal in base64"


def _hint_of_text(in_cel: str | None, value: str) -> str:
    if len(value) > _SHOWN:
        return ""
    if _NUMBER(value):
        return "" if in_cel is None else f": double({in_cel}) in CEL reads it"
    with suppress(ValueError):
        parse_rfc3339(value)
        return "" if in_cel is None else f": timestamp({in_cel}) in CEL reads it"
    return _DECIMAL if is_decimal(value) else ""


def _hint_of_number(value: float, literal: Any) -> str:
    if not isinstance(literal, str) or len(literal) > _SHOWN:
        return ""
    if _NUMBER(literal):
        return f": compare it with {literal}, without quotes"
    unit = next((each for each in _UNITS if value >= each[0]), None)
    if unit is None or (dated := _DATE(literal)) is None:
        return ""
    with suppress(ValueError):
        days = (date.fromisoformat(dated[1]) - _EPOCH).days
        return f": it may be {unit[1]} since 1970, of which {dated[1]} is {days * unit[2]}"
    return ""


def is_decimal(text: str) -> bool:
    """Return whether a text may be a decimal as Debezium and Kafka Connect write it: a few bytes in base64."""
    # Without these characters it may as well be a word.
    if not text or text.isalnum() or not _BASE64(text):
        return False
    try:
        return len(base64.b64decode(text, validate=True)) <= _DECIMAL_BYTES
    except (binascii.Error, ValueError):
        return False


def inside_text(shown: Callable[[Steps], str], path: Steps, root: Values, *, is_debezium: bool) -> str | None:
    """Return the end of a sentence about a missing path that leads into a text with JSON; None if it does not.

    Args:
        shown: returns a path as CEL writes it.
        root: the values of the document.
    """
    node = root
    for depth, name in enumerate(path[:-1], 1):
        if (below := node.below.get(name)) is None:
            return None
        node = below
        if node.kind == "text" and node.has_json is None:
            node.has_json = _is_object(node.first)
        if node.kind == "text" and node.has_json:
            setting = "; it is read as JSON if the record has its schema" if is_debezium else ""
            return f": {shown(path[:depth])} is text, with JSON in it{setting}"
    return None


def _is_object(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _cut(value: Any) -> str:
    text = json.dumps(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
