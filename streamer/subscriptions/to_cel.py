"""Print a whole subscription as one CEL expression (docs/cel.md, "A subscription as CEL").

```
{"types": ["insert"], "topic": "orders.#", "filters": [..], "cel": "data.n > 1"}
    type in ['insert'] && topic != '' && (topic + '.').matches('^orders\\\\.(?:[^.]*\\\\.)*$') && .. && (data.n > 1)
```

A pattern becomes a choice of an element in each array of the path, so that conditions on one array apply to one element:

```
{"data": {"l": {"a": [1], "b": [2]}}}
    type(data) == map && has(data.l) && (type(data.l) == list ? data.l : [data.l]).exists(x1,
        type(x1) == map && has(x1.a) && .. && type(x1) == map && has(x1.b) && ..)
```

Invariant: a printed expression is true for the same events as the subscription; a part that CEL cannot express is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from streamer.errors import PatternError, SubscriptionError
from streamer.events.layout import EventLayout
from streamer.model import BeyondFloat64, Limits, TopicDialect
from streamer.subscriptions.cel_text import cel_literal, cel_path, present, regexp_of
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.groups import CompiledGroup, cel_within, parse_entry
from streamer.subscriptions.matchers import Equal, Matcher, Numeric, Prefix, Regexp, Suffix, Wildcard
from streamer.subscriptions.normal_form import distribute
from streamer.subscriptions.parse import EVENT_TYPES, named, parse_subscription
from streamer.subscriptions.patterns import Field, Pattern, parse_pattern
from streamer.subscriptions.places import Place
from streamer.subscriptions.subscription import Subscription
from streamer.subscriptions.topics import SYNTAX, TopicPattern, Wild, parse_topic

#: A subscription without conditions.
EVERYTHING: Final = "true"

#: The most characters of all filters: the CEL of one repeats each step of its path for every step below it.
MAX_LENGTH: Final = 1 << 24

#: One word of a topic, as a regexp.
_WORD: Final = {
    "amqp": "[^.]*",
    "mqtt": r"[^/+#\x00]*",
    # A topic never contains a token `*` or `>`; a longer token may contain them.
    "nats": r"(?:[^.*>\x00 \t\n\f\r][^.\x00 \t\n\f\r]*|[*>][^.\x00 \t\n\f\r]+)",
}

#: The documents, whose paths patterns and CEL share.
_DOCUMENTS: Final = ("data", "before")


def subscription_to_cel(
    subscription: Subscription,
    *,
    layout: EventLayout | None = None,
    array_depth: int | None = None,
    topic_dialect: TopicDialect = "amqp",
    limits: Limits | None = None,
    compiled: CompiledSubscription | None = None,
) -> str:
    """Return all conditions of a subscription as CEL; see `Subscription.to_cel`. If it was compiled, it is not parsed again."""
    limits = limits if limits is not None else Limits()
    subscription = parse_subscription(subscription) if compiled is None else subscription
    try:
        parsed = compiled or _parsed(subscription, topic_dialect, limits)
        parts = list(_parts(parsed, layout if layout is not None else EventLayout(), array_depth, limits))
    except SubscriptionError as error:
        raise named(error, subscription.id) from None
    return " && ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts) or EVERYTHING


class _Parsed(NamedTuple):
    """What is printed of a compiled subscription. CEL is printed as written."""

    subscription: Subscription
    filters: Sequence[CompiledFilter | CompiledGroup]
    groups: Sequence[CompiledGroup]
    pattern: Pattern | None
    topic: TopicPattern | None


def _parsed(subscription: Subscription, topic_dialect: TopicDialect, limits: Limits) -> _Parsed:
    entries = [parse_entry(each, place=f"filters[{at}]", limits=limits) for at, each in enumerate(subscription.filters)]
    pattern, topic = subscription.pattern, subscription.topic
    return _Parsed(
        subscription,
        entries,
        (),
        None if pattern is None else parse_pattern(pattern, dialect=subscription.dialect, limits=limits, place="pattern"),
        None if topic is None else parse_topic(topic, subscription.topic_dialect or topic_dialect),
    )


def _parts(parsed: CompiledSubscription | _Parsed, layout: EventLayout, array_depth: int | None, limits: Limits) -> Iterator[str]:
    subscription = parsed.subscription
    if subscription.types is not None:
        yield f"type in {cel_literal(list(subscription.types))}"
    if subscription.collection not in (None, "*"):
        yield f"collection == {cel_literal(subscription.collection)}"
    if parsed.topic is not None:
        yield _topic(parsed.topic)
    budget = MAX_LENGTH
    for each in (*parsed.filters, *parsed.groups):
        if (text := cel_within(each, budget)) is None:
            reason = f"the CEL of the filters up to this one has more than {MAX_LENGTH:,} characters"
            raise SubscriptionError(reason, place=each.place)
        yield text
        budget -= len(text)
    if parsed.pattern is not None:
        alternatives = distribute(parsed.pattern.root, limits.max_conjunctions)
        if alternatives is None:
            raise _refusal(f"more than {limits.max_conjunctions} alternatives of $or (limits.max_conjunctions)", ())
        types = EVENT_TYPES if subscription.types is None else subscription.types
        printer = _Printer(layout, array_depth, can_be_delete="delete" in types and _has_types(layout))
        yield " || ".join(f"({printer.conjunction(fields)})" for fields in alternatives)
    if subscription.cel is not None:
        yield subscription.cel


def _has_types(layout: EventLayout) -> bool:
    return bool(layout.pointers("type")) or layout.to_dict().get("type") is not None


def _topic(pattern: TopicPattern) -> str:
    if pattern.dialect == "amqp" and all(word is Wild.MANY for word in pattern.words):
        # In CEL, a missing topic is the empty text.
        raise SubscriptionError("it matches the empty key, which CEL cannot distinguish from a missing topic", place="topic")
    literal = pattern.literal()
    if literal is not None:
        return f"topic == {cel_literal(literal)}"
    # Add a separator after each word, so that '#' is any number of such pairs.
    separator, word = SYNTAX[pattern.dialect].separator, _WORD[pattern.dialect]
    end = regexp_of(separator)
    wild = {Wild.ONE: f"{word}{end}", Wild.MANY: f"(?:{word}{end})*"}
    regexp = "".join(f"{regexp_of(each)}{end}" if isinstance(each, str) else wild[each] for each in pattern.words)
    is_said = f"topic != '' && (topic + {cel_literal(separator)}).matches({cel_literal(f'^{regexp}$')})"
    hides = pattern.dialect == "mqtt" and not isinstance(pattern.words[0], str)
    return f"{is_said} && !topic.startsWith('$')" if hides else is_said


@final
@dataclass(slots=True)
class _Node:
    """A step of the paths of one conjunction: the fields that end here, and the further steps."""

    fields: list[Field] = field(default_factory=list)
    children: dict[str, _Node] = field(default_factory=dict)


@final
class _Printer:
    def __init__(self, layout: EventLayout, array_depth: int | None, *, can_be_delete: bool) -> None:
        self._layout = layout
        self._array_depth = array_depth
        self._can_be_delete = can_be_delete
        self._numbers = itertools.count(1)

    def conjunction(self, fields: Sequence[Field]) -> str:
        """Return the CEL of fields that must all be true, under one choice of array elements."""
        roots: dict[str, _Node] = {}
        for each in fields:
            document, names = self._place(each)
            node = roots.setdefault(document, _Node())
            for name in names:
                node = node.children.setdefault(name, _Node())
            node.fields.append(each)
        return " && ".join(self._below(document, node) for document, node in roots.items())

    def _place(self, condition: Field) -> tuple[str, tuple[str, ...]]:
        """Return the document that contains a field, and its path there."""
        if self._array_depth is None:
            raise _refusal("CEL does not recurse, and arrays nest to any depth; array_depth sets the depth", condition.path)
        for document in _DOCUMENTS:
            pointers = self._layout.pointers(document)
            if len(pointers) != 1 or condition.path[: len(pointers[0])] != pointers[0] or len(condition.path) == len(pointers[0]):
                continue
            if document == "data" and self._can_be_delete:
                reason = "for a delete without data, CEL sees the document before, a pattern none; name types without 'delete'"
                raise _refusal(reason, condition.path)
            return document, condition.path[len(pointers[0]) :]
        raise _refusal("CEL sees only what lies in data or before", condition.path)

    def _below(self, value: str, node: _Node) -> str:
        """Return the conditions on the members of an object as CEL."""
        steps = []
        for name, child in node.children.items():
            member = cel_path(value, (name,))
            steps.append(f"{present(value, (name,))} && {self._elements(member, child, self._array_depth or 0)}")
        return " && ".join(steps)

    def _elements(self, value: str, node: _Node, depth: int) -> str:
        """Return the condition on a value, or on an element of it if it is an array, as CEL."""
        if depth == 0:
            conditions = [self._leaf(value, condition) for condition in node.fields]
            return " && ".join([*conditions, *([self._below(value, node)] if node.children else [])])
        element = f"x{next(self._numbers)}"
        inner = self._elements(element, node, depth - 1)
        return f"(type({value}) == list ? {value} : [{value}]).exists({element}, {inner})"

    def _leaf(self, value: str, condition: Field) -> str:
        equal = [
            each.value for each in condition.matchers if isinstance(each, Equal) and not isinstance(each.value, BeyondFloat64)
        ]
        printed = [f"{value} in {cel_literal(equal)}"] if equal else []
        printed += [f"({_matcher(value, each, condition)})" for each in condition.matchers if not isinstance(each, Equal)]
        return f"({' || '.join(printed)})" if printed else "false"


def _matcher(value: str, matcher: Matcher, condition: Field) -> str:
    is_text = f"type({value}) == string && {value}"
    match matcher:
        case Prefix(text, False):
            return f"{is_text}.startsWith({cel_literal(text)})"
        case Suffix(text, False):
            return f"{is_text}.endsWith({cel_literal(text)})"
        case Wildcard((whole,)):
            return f"{value} == {cel_literal(whole)}"
        case Wildcard((start, "")) if start:
            return f"{is_text}.startsWith({cel_literal(start)})"
        case Wildcard(("", end)) if end:
            return f"{is_text}.endsWith({cel_literal(end)})"
        case Wildcard(pieces):
            return f"{is_text}.matches({cel_literal('(?s)^' + '.*'.join(map(regexp_of, pieces)) + '$')})"
        case Regexp(re2=regexp):
            return f"{is_text}.matches({cel_literal(f'^(?:{regexp})$')})"
        case Numeric(low, low_inclusive, high, high_inclusive):
            bounds = [f"{value} {'>=' if low_inclusive else '>'} {cel_literal(low)}"] if low is not None else []
            bounds += [f"{value} {'<=' if high_inclusive else '<'} {cel_literal(high)}"] if high is not None else []
            return " && ".join([f"type({value}) in [int, uint, double]", *bounds])
        case _:
            raise _refusal(f"CEL cannot express {matcher} with the meaning that it has in a pattern", condition.path)


def _refusal(reason: str, path: Sequence[str]) -> PatternError:
    place = Place(None, "pattern")
    for name in path:
        place = Place(place, name)
    return PatternError(reason, place=str(place))
