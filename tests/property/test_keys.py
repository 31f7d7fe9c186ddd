"""Every condition on one field with every value: what matches, certainly or not, carries a key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from streamer.bloom.guard import carried_keys
from streamer.cel_eval import ProgramCache
from streamer.events.layout import EventLayout
from streamer.events.reading import as_before, read_event
from streamer.model import Limits
from streamer.reference.transition import find_outcome
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.keys import access_keys
from streamer.subscriptions.normal_form import normal_form

NUMBERS: list[Any] = [0, -0.0, 1, 1.0, -1, 2.5, 99, 100, 100.5, 2**53, 2**53 + 1, 2**63, -(2**63), 1e300, -1e-300, 1.7e12]
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "Abc",
    "abcd",
    "xabc",
    "abcdefghijklmnopq",
    "STRAẞE",
    "straße",
    "10.1.2.3",
    "2001:db8::1",
    "K",
    "\u212a",
]
LONG = ["x" * 70 + "abc", "abc" + "x" * 61, "abc" + "x" * 62]
SCALARS: list[Any] = [*NUMBERS, *TEXTS, True, False, None]
VALUES: list[Any] = [
    *SCALARS,
    *LONG,
    [],
    {},
    {"b": 1},
    [[1]],
    *([value] for value in SCALARS),
    [1, "abc", None],
    [{"b": 1}, "ab"],
]


def filters() -> Iterator[dict[str, Any]]:
    for value in SCALARS:
        for op in ("==", "!=", "contains"):
            yield {"op": op, "value": value}
        yield {"op": "in", "value": [value, "abcd"]}
        yield {"op": "not in", "value": [value]}
        for op in ("changed_to", "changed_from"):
            yield {"op": op, "value": value}
        if value is not None:
            for op in ("<", "<=", ">", ">="):
                yield {"op": op, "value": value}
        if isinstance(value, str):
            yield {"op": "starts_with", "value": value}
            yield {"op": "ends_with", "value": value}
    yield {"op": "exists", "value": True}
    yield {"op": "exists", "value": False}
    yield {"op": "changed"}


def matchers() -> Iterator[Any]:
    yield from SCALARS
    for text in TEXTS:
        yield {"equals-ignore-case": text}
        yield {"anything-but": [text]}
        if text:
            for end in ("prefix", "suffix"):
                yield {end: text}
                yield {end: {"equals-ignore-case": text}}
        for wildcard in (f"{text}*", f"*{text}", f"*{text}*", f"{text}*{text}", f"a*{text}*c"):
            if "**" not in wildcard:
                yield {"wildcard": wildcard}
    for low, high in itertools.combinations(sorted(set(NUMBERS)), 2):
        yield {"numeric": [">", low, "<=", high]}
    for number in NUMBERS:
        yield from ({"numeric": [op, number]} for op in ("<", "<=", "=", ">", ">="))
    for net in ("10.0.0.0/8", "10.1.2.3/32", "10.1.2.0/23", "0.0.0.0/0", "8.0.0.0/5", "2001:db8::/32", "2001:db8::1/128", "::/0"):
        yield {"cidr": net}


def asked(name: str) -> Iterator[dict[str, Any]]:
    """Yield subscriptions with one condition of this sort."""
    match name:
        case "filters":
            yield from ({"filters": [{"field": "a", **each}]} for each in filters())
        case "patterns":
            yield from ({"pattern": {"data": {"a": [each]}}} for each in matchers())
        case "beside an unknown":
            # What is an error may match beside a condition that is not known; that one makes no key, so that the first does.
            other = {"field": "hidden", "op": "!=", "value": 1}
            yield from ({"filters": [{"field": "a", **each}, other]} for each in filters())


@pytest.mark.parametrize("sort", ["filters", "patterns", "beside an unknown"])
def test_what_matches_carries_a_key(sort: str) -> None:
    layout, programs, limits = EventLayout(), ProgramCache(10), Limits()
    documents = [{"a": value} for value in VALUES] + [{}, None]
    texts: list[Any] = [{"data": document} for document in documents]
    if sort == "beside an unknown":
        texts = [{"data": document, "unknown": ["/data/hidden"]} for document in documents]
        texts.append(b'{"data": {"a": 1e400}, "unknown": ["/data/hidden"]}')
        texts.append(b'{"data": {"a": [1, 1e400]}, "unknown": ["/data/hidden"]}')
    else:
        texts += [{"type": "update", "data": {}, "before": document} for document in documents if document is not None]
    events = [read_event(text, layout=layout, default_tenant="default", limits=limits) for text in texts]
    sides = [[event] if event.before is None else [event, as_before(event, layout)] for event in events]
    carried_by: dict[frozenset[Any], list[Any]] = {}
    keyed = stopped = 0
    for members in asked(sort):
        compiled = compile_subscription({"id": "s", "transitions": True, **members}, programs=programs)
        keys = access_keys(normal_form(compiled, limits))
        if keys is None:
            continue
        keyed += 1
        places = frozenset(key.place for key in keys)
        if places not in carried_by:
            carried_by[places] = [carried_keys(each, places) for each in sides]
        for event, carried in zip(events, carried_by[places], strict=True):
            passes = carried is None or not keys.isdisjoint(carried)
            stopped += not passes
            if not passes:
                assert find_outcome(compiled, event, layout) is None, f"{members} loses {event.raw}"
    assert keyed > 100
    assert stopped > 5 * keyed
