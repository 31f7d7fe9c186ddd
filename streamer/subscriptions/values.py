"""Values of any depth that a subscription carries: a private copy, equality that tells `1`, `1.0` and `true` apart, JSON text.

All are loops, since labels are opaque and may be nested deeper than Python's stack, or in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from json.encoder import JSONEncoder, encode_basestring
from math import isfinite
from typing import Any, Final, TypeAlias

from streamer.model import INT64_MIN, UINT64_MAX, BeyondFloat64
from streamer.subscriptions.subscription import Filter, Subscription

Nodes: TypeAlias = list[tuple[str, Any]]
"""A value as a list; see `packed`."""

#: What is nested deeper is not written as JSON text: nothing would read it.
MAX_DEPTH: Final = 512
#: Nor what is longer.
MAX_BYTES: Final = 16 * 1024 * 1024
#: A list that holds another twice, which holds another twice, and so on, is short in memory only: so often it is written again.
MAX_REPEATED: Final = 100_000
#: Of a value that `plain_json` writes: what it is made of, and the characters of all its texts together.
MAX_PLAIN: Final = 1_000_000
MAX_PLAIN_TEXT: Final = MAX_BYTES
_PLAIN = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def private_copy(subscription: Subscription) -> Subscription:
    """Return a subscription that shares no container with what the caller may still change."""
    filters = tuple(
        replace(item, value=_copy(item.value)) if isinstance(item, Filter) else _copy(item) for item in subscription.filters
    )
    return replace(subscription, filters=filters, pattern=_copy(subscription.pattern), labels=_copy(subscription.labels))


def packed(subscription: Subscription) -> tuple[Subscription, Nodes, Nodes]:
    """Return a subscription as something that `pickle`, which recurses, can walk however deep its pattern and labels are."""
    return replace(subscription, pattern=None, labels=None), _nodes(subscription.pattern), _nodes(subscription.labels)


def unpacked(subscription: Subscription, pattern: Nodes, labels: Nodes) -> Subscription:
    """Undo `packed`."""
    return replace(subscription, pattern=_rebuilt(pattern), labels=_rebuilt(labels))


def _nodes(root: Any) -> Nodes:
    """List a value and what it holds: a scalar as itself, a container as its type and the positions of its members."""
    nodes: Nodes = []
    positions: dict[int, int] = {}
    pending = [root]

    def position(item: Any) -> int:
        if not isinstance(item, dict | list):
            pending.append(item)
            return len(pending) - 1
        if id(item) not in positions:
            positions[id(item)] = len(pending)
            pending.append(item)
        return positions[id(item)]

    if isinstance(root, dict | list):
        positions[id(root)] = 0
    at = 0
    while at < len(pending):
        item = pending[at]
        if isinstance(item, dict):
            nodes.append(("dict", [(name, position(member)) for name, member in item.items()]))
        elif isinstance(item, list):
            nodes.append(("list", [position(member) for member in item]))
        else:
            nodes.append(("value", item))
        at += 1
    return nodes


def _rebuilt(nodes: Nodes) -> Any:
    values = [{} if kind == "dict" else [] if kind == "list" else value for kind, value in nodes]
    for made, (kind, members) in zip(values, nodes, strict=True):
        if kind == "dict":
            made.update((name, values[at]) for name, at in members)
        elif kind == "list":
            made.extend(values[at] for at in members)
    return values[0]


def same_subscription(one: Subscription, other: Subscription) -> bool:
    """Tell whether two subscriptions say the same, member by member, numbers as spelled."""
    return _same(_members(one), _members(other))


def _members(subscription: Subscription) -> dict[str, Any]:
    filters = [(item.field, item.op, item.value) if isinstance(item, Filter) else item for item in subscription.filters]
    return {**subscription.to_dict(), "filters": filters}


def _copy(value: Any) -> Any:
    """Copy mappings as dicts, lists and tuples as lists; other values are taken as they are."""
    # With the original, so that no other object gets its id while this runs.
    copies: dict[int, tuple[Any, Any]] = {}
    pending: list[tuple[Any, Any]] = []

    def begin(item: Any) -> Any:
        if not isinstance(item, Mapping | list | tuple):
            return item
        if id(item) not in copies:
            made: Any = {} if isinstance(item, Mapping) else []
            copies[id(item)] = (item, made)
            pending.append((item, made))
        return copies[id(item)][1]

    result = begin(value)
    while pending:
        source, target = pending.pop()
        if isinstance(source, Mapping):
            target.update((name, begin(item)) for name, item in source.items())
        else:
            target.extend(begin(item) for item in source)
    return result


def _same(one: Any, other: Any) -> bool:
    compared: set[tuple[int, int]] = set()
    pending = [(one, other)]
    while pending:
        a, b = pending.pop()
        if a is b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            pairs = [(a[name], b[name]) for name in a]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            pairs = list(zip(a, b, strict=True))
        elif type(a) is type(b) and a == b:
            continue
        else:
            return False
        if (id(a), id(b)) not in compared:
            compared.add((id(a), id(b)))
            pending += pairs
    return True


def plain_json(value: Any) -> bytes | None:
    """Return what `write_json` returns as text, for a value of plain parts; None for any other, whatever is the matter.

    Ten times quicker: the standard library's encoder is compiled, but takes what JSON cannot say for something else.
    """
    pending = [value]
    left, text_left = MAX_PLAIN, MAX_PLAIN_TEXT
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is str:
            text_left -= len(item)
        elif kind is dict:
            for name in item:
                if type(name) is not str:
                    return None
                text_left -= len(name)
            pending.extend(item.values())
            left -= len(item)
        elif kind is list:
            pending.extend(item)
            left -= len(item)
        elif kind is int:
            if not INT64_MIN <= item <= UINT64_MAX:
                return None
        elif kind is not bool and item is not None and kind is not float:
            return None
        if left < 0 or text_left < 0:
            return None
    try:
        return _PLAIN.encode(value).encode()
    except (ValueError, RecursionError):
        return None


class TooLongError(ValueError):
    """A value's JSON text is longer than it may be."""


def write_json(value: Any, *, max_depth: int = MAX_DEPTH, max_bytes: int | None = MAX_BYTES) -> tuple[str, bool]:
    """Return a value as compact JSON text, and whether that says all of it: it would be read as an equal value of equal types.

    Raises:
        TooLongError: its text is longer than *max_bytes*.
        ValueError: JSON has no such value, it is nested deeper than *max_depth*, or the same objects come again too often.
    """
    out: list[str] = []
    is_exact = True
    size = measured = 0  # characters in out, and how many of its texts were measured
    seen: set[int] = set()
    repeated = 0

    def visit(container: Any) -> None:
        nonlocal repeated
        if id(container) in seen:
            repeated += 1
            if repeated > MAX_REPEATED:
                raise ValueError("the same objects again and again")
        seen.add(id(container))

    # What is still to be written: texts as they are, and values with their depth.
    pending: list[str | tuple[Any, int]] = [(value, 0)]
    while pending:
        next_ = pending.pop()
        if isinstance(next_, str):
            out.append(next_)
            continue
        item, depth = next_
        kind = type(item)
        if kind is str:
            out.append(_quoted(item))
        elif item is None or kind is bool:
            out.append("null" if item is None else "true" if item else "false")
        elif kind is int or kind is float:
            out.append(_number(item))
        elif kind is BeyondFloat64:
            out.append(item.text)
        elif isinstance(item, Mapping):
            visit(item)
            is_exact &= kind is dict
            pending.append("}")
            for at, (name, member) in enumerate(reversed(list(item.items()))):
                if not isinstance(name, str):
                    raise ValueError(f"a member name is a string, not {type(name).__name__}")
                is_exact &= type(name) is str
                comma = "" if at == len(item) - 1 else ","
                pending += [(member, depth + 1), f"{comma}{_quoted(name)}:"]
            pending.append("{")
        elif isinstance(item, list | tuple):
            visit(item)
            is_exact &= kind is list
            pending.append("]")
            for at in range(len(item) - 1, -1, -1):
                pending.append((item[at], depth + 1))
                if at:
                    pending.append(",")
            pending.append("[")
        elif isinstance(item, str):
            is_exact = False
            out.append(_quoted(str.__str__(item)))
        elif isinstance(item, int | float):
            is_exact = False
            out.append(_number(int.__int__(item) if isinstance(item, int) else float.__float__(item)))
        else:
            raise ValueError(f"{kind.__name__} is no JSON type")
        if depth > max_depth:
            raise ValueError(f"nested deeper than {max_depth} levels, or in itself")
        if max_bytes is not None and (len(out) - measured > 1000 or not pending):
            size += sum(map(len, out[measured:]))
            measured = len(out)
            if size > max_bytes:
                raise TooLongError(f"longer than {max_bytes} bytes as JSON")
    return "".join(out), is_exact


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a string with half of a surrogate pair") from None
    return encode_basestring(text)


def _number(value: int | float) -> str:
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is no JSON number")
        return repr(value)
    if not INT64_MIN <= value <= UINT64_MAX:
        raise ValueError("an integer beyond 64 bits")
    return str(value)
