"""Read a subscription as a user writes it: an object, a mapping, or JSON text (semantics.md section 2).

This module checks the name and type of every member, and JSON text for duplicate names. The modules `filters`, `patterns`,
`topics` and those of CEL parse the values of members; `compile` combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, final, get_args

from streamer.errors import EventError, PatternError, SubscriptionError
from streamer.events import json
from streamer.model import BeyondFloat64, CelEvaluator, Dialect, EventType, OnUnknown, TopicDialect
from streamer.subscriptions.filters import unknown_name
from streamer.subscriptions.groups import read_entry
from streamer.subscriptions.objects import converted, read_labels
from streamer.subscriptions.operands import check_text, type_name
from streamer.subscriptions.places import Place
from streamer.subscriptions.subscription import Filter, FilterGroup, Subscription

MEMBERS: Final[tuple[str, ...]] = tuple(member.name for member in fields(Subscription))
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)


@final
@dataclass(frozen=True, slots=True)
class Member:
    """The values that a member of a subscription allows.

    Attributes:
        read: checks a value and returns it as `Subscription` stores it; it gets the value's place for errors.
        schema: the part of these rules that a JSON Schema can express.
    """

    read: Callable[[Any, str], Any]
    schema: Mapping[str, Any]


def parse_subscription(
    source: Subscription | Mapping[str, Any] | bytes | str, *, default: Callable[[Any], Any] | None = None
) -> Subscription:
    """Return the subscription in *source*, with its shape and its labels checked.

    Args:
        source: a `Subscription`, a mapping, or the JSON text of one. A mapping or JSON omits an absent member; null is an error.
        default: converts values of filters, pattern and labels that JSON does not have, as in `json.dumps`.

    Raises:
        SubscriptionError: an unknown member, a wrong type, or a duplicate name, at `place`. For a duplicate in the pattern, it
            is a PatternError.
    """
    if isinstance(source, bytes | bytearray | str):
        source = _read_json(bytes(source) if not isinstance(source, str) else source)
    if isinstance(source, Subscription):
        members = {name: value for name in MEMBERS if (value := getattr(source, name)) is not None}
    elif isinstance(source, Mapping):
        members = dict(source)
    else:
        raise SubscriptionError(f"expected an object, not {type_name(source)}")
    try:
        if default is not None:
            members |= {name: converted(members[name], default, name) for name in _HAS_VALUES if name in members}
        return Subscription(**_read_members(members))
    except SubscriptionError as error:
        raise named(error, members.get("id")) from None


def named(error: SubscriptionError, subscription_id: Any) -> SubscriptionError:
    """Set the id of the subscription in an error, if it is a string, and return the error."""
    if isinstance(subscription_id, str):
        error.subscription_id = subscription_id
    return error


def _read_members(members: Mapping[str, Any]) -> dict[str, Any]:
    for name in members:
        if name not in READ:
            raise SubscriptionError(unknown_name(name, MEMBERS, "member"), place=name if isinstance(name, str) else "")
    if "id" not in members:
        raise SubscriptionError("expected a member 'id'", place="id")
    return {name: READ[name].read(value, name) for name, value in members.items()}


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise SubscriptionError(f"expected a string, not {type_name(value)}", place=place)
    check_text(value, place=place)
    return str.__str__(value)


def _name(value: Any, place: str) -> str:
    text = _text(value, place)
    if not text:
        raise SubscriptionError("expected a string that is not empty", place=place)
    return text


def _one_of(words: tuple[str, ...]) -> Member:
    def read(value: Any, place: str) -> str:
        text = _text(value, place)
        if text not in words:
            raise SubscriptionError(unknown_name(text, words, "value"), place=place)
        return text

    return Member(read, {"enum": list(words)})


_EVENT_TYPE: Final = _one_of(EVENT_TYPES)


def _types(value: Any, place: str) -> tuple[str, ...]:
    items = _items(value, place)
    if not items:
        raise SubscriptionError("expected at least one type; leave the member out for all", place=place)
    types = tuple(_EVENT_TYPE.read(item, f"{place}[{index}]") for index, item in enumerate(items))
    for index, name in enumerate(types):
        if name in types[:index]:
            raise SubscriptionError(f"{name!r} stands here twice", place=f"{place}[{index}]")
    return types


def _filters(value: Any, place: str) -> tuple[Filter | FilterGroup, ...]:
    return tuple(read_entry(item, place=f"{place}[{index}]") for index, item in enumerate(_items(value, place)))


def _items(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise SubscriptionError(f"expected a list, not {type_name(value)}", place=place)
    return value


def _pattern(value: Any, place: str) -> Any:
    if not isinstance(value, Mapping | str | bytes):
        raise PatternError(f"expected an object, not {type_name(value)}", place=place)
    return value


def _bool(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise SubscriptionError(f"expected true or false, not {type_name(value)}", place=place)
    return value


def _labels(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SubscriptionError(f"expected an object, not {type_name(value)}", place=place)
    return read_labels(value, place)


#: Members with values of any JSON type.
_HAS_VALUES: Final = ("filters", "pattern", "labels")

_TEXT: Final = Member(_text, {"type": "string"})
_NAME: Final = Member(_name, {"type": "string", "minLength": 1})

#: The rules for each member, by its name.
READ: Final[Mapping[str, Member]] = {
    "id": _NAME,
    "gateway_id": _TEXT,
    "tenant": _NAME,
    "collection": _NAME,
    "types": Member(_types, {"type": "array", "items": _EVENT_TYPE.schema, "minItems": 1, "uniqueItems": True}),
    "filters": Member(_filters, {"type": "array"}),
    "cel": _TEXT,
    "pattern": Member(_pattern, {"type": ["object", "string"]}),
    "topic": _TEXT,
    "topic_dialect": _one_of(get_args(TopicDialect)),
    "dialect": _one_of(get_args(Dialect)),
    "on_unknown": _one_of(get_args(OnUnknown)),
    "transitions": Member(_bool, {"type": "boolean"}),
    "labels": Member(_labels, {"type": "object"}),
    "cel_evaluator": _one_of(get_args(CelEvaluator)),
}


def _read_json(text: bytes | str) -> Any:
    try:
        # A str may contain a lone surrogate. As ill-formed UTF-8, the parser reports it with its offset.
        encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        if (value := json.ordinary(encoded)) is not None:
            return value
        tree = json.parse(encoded, pairs=True, long_integers=True)
    except EventError as error:
        raise SubscriptionError(f"{error.reason} ({error.code.value} at byte {error.offset})") from None
    return _plain(tree)


def _plain(tree: Any) -> Any:
    """Convert all `json.Pairs` to dicts and all `json.LongInteger` to numbers, and refuse duplicate names in an object.

    It is a loop instead of a recursion, because the text may be nested as deep as events.
    """
    root: list[Any] = [tree]
    top = Place(None, "")
    open_containers: list[tuple[Any, Place | None, bool]] = [(root, None, False)]
    while open_containers:
        container, place, in_labels = open_containers.pop()
        entries = list(container.items()) if isinstance(container, dict) else list(enumerate(container))
        for key, value in entries:
            if not isinstance(value, list | json.LongInteger):
                continue
            where = top if container is root else Place(place, key)
            is_label = in_labels or (place is top and key == "labels")
            if isinstance(value, json.Pairs):
                names = dict(value)
                if len(names) < len(value):
                    raise _duplicate(value, where, tree)
                container[key] = names
                open_containers.append((names, where, is_label))
            elif isinstance(value, list):
                open_containers.append((value, where, is_label))
            elif isinstance(value, json.LongInteger):
                container[key] = _integer(value.text) if is_label else json.number(value.text)
    return root[0]


def _integer(literal: str) -> int | BeyondFloat64:
    """Return an integer in a label with all its digits."""
    try:
        return int(literal)
    except ValueError:
        # Python refuses more than 4,300 digits, because its conversion takes quadratic time.
        return BeyondFloat64(literal)


def _duplicate(pairs: json.Pairs, place: Place, tree: Any) -> SubscriptionError:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            where = str(Place(place, name))
            in_pattern = where.startswith(("pattern.", "pattern["))
            error = (PatternError if in_pattern else SubscriptionError)(f"the name {name!r} stands here twice", place=where)
            return named(error, dict(tree).get("id") if isinstance(tree, json.Pairs) else None)
        seen.add(name)
    raise AssertionError("names are unique")
