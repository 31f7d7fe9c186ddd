"""Print a whole subscription as one pattern of EventBridge (docs/coming-from/eventbridge.md).

```
{"collection": "shop", "topic": "order.#", "filters": [{"field": "total", "op": ">", "value": 100}]}
    {"source": ["shop"], "detail-type": ["order", {"prefix": "order."}], "detail": {"total": [{"numeric": [">", 100]}]}}
```

The events are those of the format `eventbridge`. A pattern looks into arrays, and a filter does not; a filter sees objects, and a
pattern only what is in them. So a filter has an equal pattern if its field is never an array or an object, which only the caller
knows.

Invariant: a printed pattern matches the same events as the subscription; a part that EventBridge cannot express is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Interface, ip_interface
from typing import Any, Final

from streamer.errors import PatternError, SubscriptionError
from streamer.model import BeyondFloat64, Dialect, Limits, TopicDialect
from streamer.subscriptions.atoms import Path, Root
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.groups import parse_entry
from streamer.subscriptions.parse import named, parse_subscription
from streamer.subscriptions.patterns import AllOf, Field, is_choice, parse_pattern
from streamer.subscriptions.places import Place
from streamer.subscriptions.subscription import EVERY, Subscription
from streamer.subscriptions.topics import Wild, parse_topic

#: EventBridge compares numbers of at most this size, with this many digits.
MOST: Final = 5_000_000_000
DIGITS: Final = 15
#: A pattern nests at most this deep.
MAX_DEPTH: Final = 100

_LOWER: Final = (">", ">=")
_UPPER: Final = ("<", "<=")


def subscription_to_eventbridge(
    subscription: Subscription, *, scalars: bool = False, topic_dialect: TopicDialect = "amqp"
) -> dict[str, Any]:
    """Return all conditions of a subscription as a pattern of EventBridge; see `Subscription.to_eventbridge`."""
    subscription = parse_subscription(subscription)
    try:
        return _printed(subscription, scalars, subscription.topic_dialect or topic_dialect)
    except SubscriptionError as error:
        raise named(error, subscription.id) from None


def repeated_path(tree: AllOf) -> str | None:
    """Return a path that stands twice in one alternative of a pattern; EventBridge would use only its last values."""
    try:
        _paths(tree)
    except _RepeatedError as error:
        return error.path
    return None


class _RepeatedError(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def _paths(tree: AllOf) -> set[str]:
    """Return the paths of a tree, as EventBridge joins their names."""
    seen: set[str] = set()
    for part in tree.fields:
        paths = {".".join(part.path)} if isinstance(part, Field) else set().union(*map(_paths, part.alternatives))
        if twice := seen & paths:
            raise _RepeatedError(min(twice))
        seen |= paths
    return seen


def _printed(subscription: Subscription, scalars: bool, topic_dialect: TopicDialect) -> dict[str, Any]:
    if subscription.types is not None:
        raise SubscriptionError("events of EventBridge have no type", place="types")
    if subscription.cel is not None:
        raise SubscriptionError("EventBridge has no expressions; use filters or a pattern", place="cel")
    pattern: dict[str, Any] = {}
    if subscription.pattern is not None:
        pattern = _Pattern(subscription.dialect).printed(subscription.pattern)
    if subscription.collection not in (None, EVERY):
        _add(pattern, ("source",), [subscription.collection], "collection")
    if subscription.topic is not None:
        _add(pattern, ("detail-type",), _topic(subscription.topic, topic_dialect), "topic")
    filters = []
    for at, source in enumerate(subscription.filters):
        if not isinstance(entry := parse_entry(source, place=f"filters[{at}]"), CompiledFilter):
            raise SubscriptionError("a group of filters is not translated; write a pattern with $or", place=entry.place)
        filters.append(entry)
    if filters and not scalars:
        reason = (
            "a pattern looks into arrays, and a filter does not; scalars=True promises that no field is an array or an object"
        )
        raise SubscriptionError(reason, place=filters[0].place)
    for each, values in _joined_ranges(filters):
        names = each.path.names
        _refuse_dots(names, each.place)
        if each.path.root is Root.ENVELOPE and names[0] == "detail":
            raise SubscriptionError("the envelope has no document; leave out `root`", place=f"{each.place}.root")
        _add(pattern, names if each.path.root is Root.ENVELOPE else ("detail", *names), values, each.place)
    if not pattern:
        # Every event on a bus has a source.
        return {"source": [{"prefix": ""}]}
    tree = parse_pattern(pattern, dialect="eventbridge", limits=Limits()).root
    if (twice := repeated_path(tree)) is not None:
        raise PatternError(f"{twice!r} stands twice, and EventBridge uses only the last values", place="pattern")
    return pattern


def _add(pattern: dict[str, Any], path: tuple[str, ...], values: list[Any], place: str) -> None:
    into: Any = pattern
    for name in path[:-1]:
        into = into.setdefault(name, {})
        if not isinstance(into, dict):
            break
    if not isinstance(into, dict) or path[-1] in into:
        raise SubscriptionError(f"EventBridge has one condition on {'.'.join(path)!r}, and another one stands there", place=place)
    into[path[-1]] = values


def _topic(text: str, dialect: TopicDialect) -> list[Any]:
    topic = parse_topic(text, dialect)
    if (literal := topic.literal()) is not None:
        return [literal]
    *words, last = topic.words
    if dialect == "amqp" and last is Wild.MANY and all(isinstance(word, str) for word in words):
        head = ".".join(word for word in words if isinstance(word, str))
        return [head, {"prefix": f"{head}."}] if words else [{"prefix": ""}]
    raise SubscriptionError(
        "EventBridge has no words; only a topic without wildcards, or with # at its end, has an equal", place="topic"
    )


# Filters


def _joined_ranges(filters: Iterable[CompiledFilter]) -> list[tuple[CompiledFilter, list[Any]]]:
    """Return each filter with its values in a pattern; a lower and an upper bound of one field are one condition."""
    joined: list[tuple[CompiledFilter, list[Any]]] = []
    lowest: dict[Path, list[Any]] = {}
    for each in filters:
        values = _values(each)
        (value, *_) = values
        if each.op.name in _LOWER and each.path not in lowest:
            lowest[each.path] = value["numeric"]
        elif each.op.name in _UPPER and len(bounds := lowest.get(each.path, ())) == 2:
            bounds += value["numeric"]
            if bounds[1] >= bounds[3]:
                raise SubscriptionError("the bounds exclude every number; EventBridge refuses such a range", place=each.place)
            continue
        joined.append((each, values))
    return joined


def _values(each: CompiledFilter) -> list[Any]:
    value, place = each.value, Place(Place(None, each.place), "value")
    if each.op.ignores_case:
        values = [_ignoring_case(each.op.name, one, place) for one in (value if isinstance(value, list) else [value])]
        if each.op.name in ("!=", "not in") and values:
            return [{"anything-but": {"equals-ignore-case": _excluded([one["equals-ignore-case"] for one in values], place)}}]
        if values:
            return values
    match each.op.name:
        case "==":
            return [_scalar(value, place)]
        case "in":
            if not value:
                raise _refusal("EventBridge refuses an empty list", place)
            return [_scalar(item, Place(place, at)) for at, item in enumerate(value)]
        case "not in" if not value:
            return [{"exists": True}]
        case "!=" | "not in":
            return [{"anything-but": _excluded(value if isinstance(value, list) else [value], place)}]
        case ">" | ">=" | "<" | "<=" as op:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _refusal("EventBridge orders only numbers", place)
            return [{"numeric": [op, _number(value, place)]}]
        case "starts_with":
            return [{"prefix": value}]
        case "ends_with":
            return [{"suffix": value}]
        case "contains" if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace("*", "\\*")
            return [{"wildcard": f"*{escaped}*" if value else "*"}]
        case "exists":
            return [{"exists": value}]
        case op:
            raise _refusal(f"EventBridge has no equal of {op!r}", Place(Place(None, each.place), "op"))


def _ignoring_case(op: str, value: Any, place: Place) -> Any:
    if not isinstance(value, str):
        if op == "in":
            return _scalar(value, place)
        raise _refusal("EventBridge excludes texts or numbers, not both, and no other values", place)
    matcher: Any = {"equals-ignore-case": value} if value or op in ("==", "!=", "in", "not in") else value
    if op in ("starts_with", "ends_with"):
        matcher = {"prefix" if op == "starts_with" else "suffix": matcher}
    elif op in ("contains", "matches"):
        raise _refusal(f"EventBridge has no equal of {op!r} that ignores case", Place(place.outer, "ignore_case"))
    _refuse_folding(matcher, place)
    return matcher


def _excluded(values: list[Any], place: Place) -> list[Any]:
    are_texts = {isinstance(each, str) for each in values}
    if len(are_texts) != 1 or any(each is None or isinstance(each, bool | list | dict) for each in values):
        raise _refusal("EventBridge excludes texts or numbers, not both, and no other values", place)
    return [_scalar(each, place) for each in values]


def _scalar(value: Any, place: Place) -> Any:
    if isinstance(value, list | dict):
        raise _refusal("EventBridge compares no lists and objects", place)
    is_number = isinstance(value, int | float | BeyondFloat64) and not isinstance(value, bool)
    return _number(value, place) if is_number else value


def _number(value: Any, place: Place) -> int | float:
    is_known = isinstance(value, int | float) and abs(value) <= MOST
    if not is_known or _has_many_digits(value):
        raise _refusal(f"EventBridge compares numbers of at most {MOST:,} with at most {DIGITS} digits", place)
    return value  # type: ignore[no-any-return]


def _has_many_digits(value: float) -> bool:
    return len(repr(value).lstrip("-0.").replace(".", "").partition("e")[0]) > DIGITS


# Patterns


def refuse_inexact(matcher: Any, place: Place) -> None:
    """Refuse a value or matcher of a pattern of EventBridge that EventBridge itself refuses, or compares in its own way.

    Raises:
        PatternError: with the place in the pattern.
    """
    if not isinstance(matcher, Mapping):
        if isinstance(matcher, int | float) and not isinstance(matcher, bool) and _has_many_digits(matcher):
            raise _refusal(f"EventBridge compares numbers of at most {DIGITS} digits", place)
        return
    ((name, operand),) = matcher.items()
    place = Place(place, name)
    if name == "cidr":
        _refuse_network(operand, place)
    elif name in ("numeric", "anything-but") and not isinstance(operand, Mapping):
        for each in operand if isinstance(operand, list | tuple) else [operand]:
            refuse_inexact(each, place)
    _refuse_folding(matcher, place)


def _refuse_network(text: str, place: Place) -> None:
    address = ip_interface(text)
    if address.network.prefixlen in (0, 128):
        raise _refusal("EventBridge has networks of fewer addresses than all and more than one", place)
    if isinstance(address, IPv6Interface) and address.ipv4_mapped is not None:
        raise _refusal("EventBridge reads such an address as one of IPv4; write it so", place)


class _Pattern:
    """Prints a pattern in the words of EventBridge."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def printed(self, source: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        parse_pattern(source, dialect=self._dialect, limits=Limits(max_depth=MAX_DEPTH), place="pattern")
        members = source if isinstance(source, Mapping) else json.loads(source)
        return self._object(members, Place(None, "pattern"))

    def _object(self, members: Mapping[str, Any], place: Place) -> dict[str, Any]:
        for name in members:
            _refuse_dots((name,), str(Place(place, name)))
        return {name: self._member(name, value, Place(place, name)) for name, value in members.items()}

    def _member(self, name: str, value: Any, place: Place) -> Any:
        if isinstance(value, Mapping):
            return self._object(value, place)
        if is_choice(name, value, "eventbridge"):
            if not is_choice(name, value, self._dialect):
                raise _refusal("in EventBridge this is a choice, not a name", place)
            return [self._object(each, Place(place, at)) for at, each in enumerate(value)]
        if not value:
            raise _refusal("EventBridge refuses an empty array", place)
        return [self._matcher(each, Place(place, at)) for at, each in enumerate(value)]

    def _matcher(self, matcher: Any, place: Place) -> Any:
        if not isinstance(matcher, Mapping):
            return _scalar(matcher, place)
        ((name, operand),) = matcher.items()
        place = Place(place, name)
        match name:
            case "exactly":
                return operand
            case "shellstyle":
                return {"wildcard": operand.replace("\\", "\\\\")}
            case "regexp":
                raise _refusal("EventBridge has no regexps", place)
            case "all":
                raise _refusal("EventBridge has no values that satisfy several conditions", place)
            case "numeric":
                return {name: [_number(each, place) if at % 2 else each for at, each in enumerate(operand)]}
            case "cidr":
                _refuse_network(operand, place)
                address = ip_interface(operand)
                return str(address.ip) if (address.version, address.network.prefixlen) == (4, 32) else dict(matcher)
            case "anything-but" if not isinstance(operand, Mapping):
                listed = list(operand) if isinstance(operand, list | tuple) else [operand]
                return {name: _excluded(listed, place)}
            case _:
                _refuse_folding(matcher, place)
                return dict(matcher)


def _refuse_folding(matcher: Any, place: Place) -> None:
    if "equals-ignore-case" in (text := json.dumps(matcher, ensure_ascii=False)) and not text.isascii():
        raise _refusal("EventBridge folds the case of letters beyond ASCII in its own way", place)


def _refuse_dots(names: Iterable[str], place: str) -> None:
    for name in names:
        if "." in name:
            raise PatternError("EventBridge reads a dot in a name as a step of the path, too", place=place)


def _refusal(reason: str, place: Place) -> PatternError:
    return PatternError(reason, place=str(place))
