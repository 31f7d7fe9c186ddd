"""How many conditions one subscription has, as far as it was read, and how many it may have (semantics.md section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.model import Limits
from streamer.subscriptions.groups import placed_filters
from streamer.subscriptions.operands import SCALARS
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.subscription import Filter

SizeName: TypeAlias = Literal["conditions", "alternatives"]


@final
class Size:
    """Counts what the limits bound; before the cost of it is paid."""

    def __init__(self, limits: Limits) -> None:
        self._counts = {"conditions": 0, "alternatives": 0}
        self._most = {"conditions": limits.max_conditions, "alternatives": limits.max_alternatives}

    def grow(self, what: SizeName, more: int) -> str | None:
        """Add *more* of these; if there are too many, return the error with the number and the limit."""
        self._counts[what] += more
        found, most = self._counts[what], self._most[what]
        return None if found <= most else f"{found} {what}, with these; at most {most} are allowed (limits.max_{what})"

    def add_filters(self, filters: Sequence[Any]) -> None:
        """Note filters whose members were checked. Raises SubscriptionError."""
        placed = list(placed_filters(filters))
        if (reason := self.grow("conditions", len(placed))) is not None:
            raise SubscriptionError(reason, place="filters")
        for place, each in placed:
            if not isinstance(each, Filter) or not isinstance(each.value, list | tuple):
                continue
            if OPERATORS[each.op].operand is SCALARS and (reason := self.grow("alternatives", len(each.value))) is not None:
                raise SubscriptionError(reason, place=f"{place}.value")
