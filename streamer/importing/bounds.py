"""Check a rule in JSON before it is translated: its size, how deep it nests, and which numbers an event can equal."""

from __future__ import annotations

import math
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.model import INT64_MAX

#: CEL nests at most 64 levels deep (semantics.md 4.14), and a level of a rule becomes one or two of them.
_MOST_LEVELS: Final = 48
#: The most conditions of a subscription (semantics.md 2.11), each of which is an object.
_MOST_OBJECTS: Final = 20_000


def check_size(rule: Any) -> None:
    """Check that a rule is not certain to become a subscription beyond the limits, which would take long to find out.

    Raises:
        SubscriptionError: it nests too deep, or has too many objects.
    """
    level, objects = [rule], 0
    for _ in range(_MOST_LEVELS):
        objects += sum(isinstance(value, dict) for value in level)
        if objects > _MOST_OBJECTS:
            raise SubscriptionError(
                f"this rule has more than {_MOST_OBJECTS:,} objects, the most that a subscription can express"
            )
        level = [child for value in level for child in children(value)]
        if not level:
            return
    raise SubscriptionError(f"this rule nests deeper than {_MOST_LEVELS} levels, the most that CEL can express")


def children(value: Any) -> list[Any]:
    """Return the values in an object or a list."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def number(value: float, place: str) -> int | float:
    """Return a number of a rule, which is exact in an event, too.

    Raises:
        SubscriptionError: it is NaN, an infinity, or an integer beyond 64 bits.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise SubscriptionError("expected a finite number, since JSON has no other", place=place)
    if isinstance(value, int) and not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise SubscriptionError(f"expected an integer of at most 64 bits, not {str(value)[:30]}", place=place)
    return value
