"""A slow, direct evaluation of the workloads' patterns, independent of Streamer: every matcher must find its matches."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from benchmarks.peers.generate import Pattern


@cache
def wildcard(text: str) -> re.Pattern[str]:
    """Compile a wildcard."""
    return re.compile(fnmatch.translate(text))


def leaves(value: Any) -> list[Any]:
    """Return every leaf of a value, arrays opened."""
    if isinstance(value, list):
        return [leaf for element in value for leaf in leaves(element)]
    return [] if isinstance(value, dict) else [value]


def holds(matcher: Any, found: list[Any]) -> bool:
    """Tell whether one matcher holds for any of the leaves."""
    if not isinstance(matcher, dict):
        return any(type(leaf) is not bool and leaf == matcher for leaf in found)
    ((operator, operand),) = matcher.items()
    texts = [leaf for leaf in found if isinstance(leaf, str)]
    match operator:
        case "exists":
            return bool(found) is operand
        case "prefix":
            return any(text.startswith(operand) for text in texts)
        case "wildcard":
            return any(wildcard(operand).match(text) for text in texts)
        case "equals-ignore-case":
            return any(text.lower() == operand.lower() for text in texts)
        case "anything-but":
            return any(leaf not in operand for leaf in found)
        case "numeric":
            _, low, _, high = operand
            return any(isinstance(leaf, int | float) and low < leaf < high for leaf in found)
    raise ValueError(operator)


def agrees(pattern: Pattern, value: Any) -> bool:
    """Tell whether a value is as a pattern wants it, in one and the same element of each array."""
    if isinstance(value, list):
        return any(agrees(pattern, element) for element in value)
    members = value if isinstance(value, dict) else {}
    for name, wanted in pattern.items():
        member = members.get(name, {})
        if isinstance(wanted, dict):
            if not agrees(wanted, member):
                return False
        elif not any(holds(matcher, leaves(member)) for matcher in wanted):
            return False
    return True


def matches(patterns: Iterable[Pattern], events: Iterable[str | bytes]) -> Iterator[list[int]]:
    """Yield, for each event, the numbers of the patterns that match it."""
    by_collection: dict[str | None, list[tuple[int, Pattern]]] = {}
    for number, pattern in enumerate(patterns):
        for collection in pattern.get("collection", [None]):
            by_collection.setdefault(collection, []).append((number, pattern))
    for text in events:
        event = json.loads(text)
        collections = {None, event.get("collection")}
        yield [
            number
            for collection in collections
            for number, pattern in by_collection.get(collection, ())
            if agrees(pattern, event)
        ]


def checksum(found: Iterable[Iterable[int]]) -> str:
    """Return a checksum of (event, pattern) pairs in any order, as every driver computes it."""
    total = 0
    for at, numbers in enumerate(found):
        for number in numbers:
            total += (at * 1_000_003 + number) * 0x9E37_79B9_7F4A_7C15
    return f"{total % 2**64:016x}"
