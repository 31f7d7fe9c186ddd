"""Values of any depth in a subscription: a private copy, and equality that distinguishes `1`, `1.0` and `true`.

All functions are loops, because the values may be nested deeper than Python's stack, or contain themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from streamer.subscriptions.subscription import Filter, FilterGroup, Subscription

Nodes: TypeAlias = list[tuple[str, Any]]
"""A value as a list; see `packed`."""


def private_copy(subscription: Subscription) -> Subscription:
    """Return a copy of a parsed subscription that shares no containers with the caller's objects."""
    return replace(subscription, filters=_copies(subscription.filters), pattern=_copy(subscription.pattern))


def _copies(entries: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        replace(item, filters=_copies(item.filters)) if isinstance(item, FilterGroup) else replace(item, value=_copy(item.value))
        for item in entries
    )


def packed(subscription: Subscription) -> tuple[Subscription, Nodes, Nodes]:
    """Return a subscription in a flat form, because `pickle` recurses, and its pattern and labels may be very deep."""
    return replace(subscription, pattern=None, labels=None), _nodes(subscription.pattern), _nodes(subscription.labels)


def unpacked(subscription: Subscription, pattern: Nodes, labels: Nodes) -> Subscription:
    """Return the subscription in the flat form that `packed` made."""
    return replace(subscription, pattern=_rebuilt(pattern), labels=_rebuilt(labels))


def _nodes(root: Any) -> Nodes:
    """Return a value and its members as a list: a scalar as itself, a container as its type and its members' positions."""
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
    """Return whether two subscriptions are equal, member by member, numbers as spelled."""
    return _same(_members(one), _members(other))


def _members(subscription: Subscription) -> dict[str, Any]:
    return {**subscription.to_dict(), "filters": _entries(subscription.filters)}


def _entries(entries: Iterable[Any]) -> list[Any]:
    return [
        (item.field, item.op, item.value, item.root, item.ignore_case)
        if isinstance(item, Filter)
        else (item.op, _entries(item.filters))
        if isinstance(item, FilterGroup)
        else item
        for item in entries
    ]


def _copy(value: Any) -> Any:
    """Return a copy with mappings as dicts, lists and tuples as lists, and subclasses of strings and numbers as plain ones."""
    # Keeps the original, so that its id is not reused meanwhile.
    copies: dict[int, tuple[Any, Any]] = {}
    pending: list[tuple[Any, Any]] = []

    def begin(item: Any) -> Any:
        if not isinstance(item, Mapping | list | tuple):
            return _scalar(item)
        if id(item) not in copies:
            made: Any = {} if isinstance(item, Mapping) else []
            copies[id(item)] = (item, made)
            pending.append((item, made))
        return copies[id(item)][1]

    result = begin(value)
    while pending:
        source, target = pending.pop()
        if isinstance(source, Mapping):
            target.update((_scalar(name), begin(item)) for name, item in source.items())
        else:
            target.extend(begin(item) for item in source)
    return result


def _scalar(value: Any) -> Any:
    """Return an instance of a subclass, such as a member of an Enum, as a plain string or number; other values as they are."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


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
