"""Read the parts of a subscription that are Python objects: labels, and other types by way of `default=`.

Both functions are loops, because the objects may be nested deeper than Python's stack, or contain themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.model import BeyondFloat64, Limits, type_of
from streamer.subscriptions.operands import MAX_VALUES, check_text, no_json
from streamer.subscriptions.places import Place
from streamer.subscriptions.subscription import Filter, FilterGroup

#: The deepest nesting in a subscription, from 1 for the subscription itself: the same as in its JSON text.
MAX_DEPTH: Final = Limits().max_depth
#: The most bytes of the JSON text of labels.
MAX_LABELS_BYTES: Final = 16 * 1024 * 1024
#: Longer integers are kept as text, because Python's conversion takes quadratic time and so refuses them.
MAX_DIGITS: Final = 4300
_READABLE: Final = 10**MAX_DIGITS
#: After this many lists and objects, check whether they are the same ones repeated.
_MANY: Final = 10_000


def read_labels(labels: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a private copy of labels, made of JSON values, for matches, messages and snapshots.

    Raises:
        SubscriptionError: a number is not finite, a type is unknown, a string has a lone surrogate, a name is not a string, or
            the labels are nested deeper than `MAX_DEPTH`, contain themselves, or are longer than `MAX_LABELS_BYTES`.
    """
    result: dict[str, Any] = {}
    size, containers, is_checked = 0, 1, False
    # Pending work: source, copy, place, depth. The subscription itself is the first level.
    pending: list[tuple[Any, Any, Place, int]] = [(labels, result, Place(None, place), 2)]
    while pending:
        source, copy, at, depth = pending.pop()
        is_object = isinstance(source, Mapping)
        size += 2 + max(len(source) - 1, 0) + (len(source) if is_object else 0)
        for step, item in list(source.items()) if is_object else enumerate(source):
            where = Place(at, step)
            if is_object:
                if not isinstance(step, str):
                    raise SubscriptionError(f"expected member names that are strings, not {type_of(step)}", place=str(at))
                check_text(step, place=str(at))
                step = str.__str__(step)
                size += _length(step)
            made: Any
            if isinstance(item, Mapping | list | tuple):
                if depth >= MAX_DEPTH:
                    raise SubscriptionError(f"nested deeper than {MAX_DEPTH} levels, or in itself", place=place)
                made = {} if isinstance(item, Mapping) else []
                pending.append((item, made, where, depth + 1))
                containers += 1
                if containers > _MANY and not is_checked:
                    is_checked = True
                    _check_shared(labels, place)
            else:
                made, length = _label(item, where)
                size += length
            if size > MAX_LABELS_BYTES:
                raise SubscriptionError(f"more than {MAX_LABELS_BYTES} bytes of JSON text", place=place)
            if is_object:
                copy[step] = made
            else:
                copy.append(made)
    return result


def _check_shared(labels: Mapping[str, Any], place: str) -> None:
    """Refuse labels that contain themselves, or whose JSON text is too long even without its strings and long numbers.

    Each list and object is visited once, because a list may contain a list twice, which contains a list twice, and so on.
    Raises SubscriptionError.
    """
    # Keeps the original, so that its id is not reused meanwhile. The length is 0 until those of its members are known.
    lengths: dict[int, tuple[Any, int]] = {}
    pending: list[tuple[Any, list[Any] | None]] = [(labels, None)]
    while pending and len(lengths) * 2 <= MAX_LABELS_BYTES:
        source, values = pending.pop()
        if values is not None:
            # Brackets, commas, quotes and colons of names, and each value.
            length = 2 + max(len(values) - 1, 0) + (3 * len(values) if isinstance(source, Mapping) else 0)
            length += sum(lengths[id(each)][1] if id(each) in lengths else 1 for each in values)
            lengths[id(source)] = source, length
        elif id(source) in lengths:
            if not lengths[id(source)][1]:
                raise SubscriptionError(f"nested deeper than {MAX_DEPTH} levels, or in itself", place=place)
        else:
            lengths[id(source)] = source, 0
            values = list(source.values() if isinstance(source, Mapping) else source)
            pending.append((source, values))
            pending += [(each, None) for each in values if isinstance(each, Mapping | list | tuple)]
    if pending or lengths[id(labels)][1] > MAX_LABELS_BYTES:
        raise SubscriptionError(f"more than {MAX_LABELS_BYTES} bytes of JSON text", place=place)


def _label(value: Any, where: Place) -> tuple[Any, int]:
    """Return a scalar of labels as its own JSON type, and the length of its text."""
    if value is None or isinstance(value, bool):
        return value, 5 if value is False else 4
    if isinstance(value, str):
        check_text(value, place=str(where))
        return (text := str.__str__(value)), _length(text)
    if isinstance(value, int):
        return _integer(int.__int__(value), where)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SubscriptionError(f"expected a JSON number, not {float.__repr__(value)}", place=str(where))
        return (number := float.__float__(value)), len(repr(number))
    if isinstance(value, BeyondFloat64):
        return value, len(value.text)
    raise SubscriptionError(no_json(value), place=str(where))


def _integer(value: int, where: Place) -> tuple[int | BeyondFloat64, int]:
    # log10(2) is slightly more than 0.301.
    if (digits := value.bit_length() * 301 // 1000) > MAX_LABELS_BYTES:
        raise SubscriptionError(f"more than {MAX_LABELS_BYTES} bytes of JSON text", place=str(where))
    if abs(value) < _READABLE:
        return value, digits + 2
    # Decimal, unlike str(), writes integers of any length.
    return BeyondFloat64(text := str(Decimal(value))), len(text)


def _length(text: str) -> int:
    return len(encode_basestring(text).encode())


def converted(value: Any, default: Callable[[Any], Any], place: str) -> Any:
    """Return a copy in which *default* has converted values that JSON lacks. All other values are checked later, by the parser.

    Raises:
        SubscriptionError: *default* raises an error, or returns values to convert without end; `place` names the value.
    """
    copies: dict[int, tuple[Any, Any]] = {}
    pending: list[tuple[Any, Any, Place, int]] = []
    values = 0

    def begin(item: Any, where: Place, depth: int) -> Any:
        nonlocal values
        values += 1
        if depth > MAX_DEPTH or values > MAX_VALUES:
            raise SubscriptionError(
                f"nested deeper than {MAX_DEPTH} levels, or default() does not come to an end", place=str(where)
            )
        for _ in range(MAX_DEPTH):
            if item is None or isinstance(item, str | int | float | BeyondFloat64):
                return item
            if isinstance(item, Filter):
                return replace(item, value=begin(item.value, Place(where, "value"), depth + 1))
            if isinstance(item, FilterGroup):
                item = item._members()
            if isinstance(item, Mapping | list | tuple):
                if id(item) not in copies:
                    made: Any = {} if isinstance(item, Mapping) else []
                    # Keeps the original, so that its id is not reused meanwhile.
                    copies[id(item)] = (item, made)
                    pending.append((item, made, where, depth))
                return copies[id(item)][1]
            if depth == 0 and isinstance(item, bytes):
                return item  # a pattern may be text
            try:
                item = default(item)
            except Exception as error:
                # The caller's function may raise any exception.
                raise SubscriptionError(f"default() refused {type_of(item)}: {error}", place=str(where)) from error
        raise SubscriptionError("default() does not come to an end", place=str(where))

    result = begin(value, Place(None, place), 0)
    while pending:
        source, target, at, depth = pending.pop()
        if isinstance(source, Mapping):
            for name, item in list(source.items()):
                target[name] = begin(item, Place(at, name) if isinstance(name, str) else at, depth + 1)
        else:
            target.extend(begin(item, Place(at, index), depth + 1) for index, item in enumerate(tuple(source)))
    return result
