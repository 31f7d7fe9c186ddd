"""How many conditions one subscription has, as far as it was read, how many it may have (semantics.md section 2), and what it
costs to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, final

from streamer.effort import EFFORT, TooCostlyError
from streamer.errors import SubscriptionError
from streamer.model import Limits
from streamer.subscriptions.operands import SCALARS
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.subscription import Filter

SizeName: TypeAlias = Literal["conditions", "alternatives"]

#: The units that it takes to read each of these.
UNITS: Final[Mapping[SizeName, float]] = {"conditions": 7, "alternatives": 1.5}
#: What it takes to compile a regexp, in addition to its length.
REGEXP_UNITS: Final = 50


@final
class Size:
    """Counts what the limits bound, before the cost of it is paid.

    Attributes:
        cost: the units that it takes to read what was counted.
    """

    def __init__(self, limits: Limits) -> None:
        self._counts = {"conditions": 0, "alternatives": 0}
        self._most = {"conditions": limits.max_conditions, "alternatives": limits.max_alternatives}
        self.cost: float = 0
        self._most_cost = EFFORT.to_read

    def grow(self, what: SizeName, more: int) -> str | None:
        """Add *more* of these, and what it takes to read them; if there are too many, return the error."""
        self.spend(UNITS[what] * more)
        return self.count(what, more)

    def count(self, what: SizeName, more: int) -> str | None:
        """Add *more* of these; if there are too many, return the error with the number and the limit."""
        self._counts[what] += more
        total, most = self._counts[what], self._most[what]
        return None if total <= most else f"{total} {what}, with these; at most {most} are allowed (limits.max_{what})"

    def spend(self, units: float) -> None:
        """Count units of reading. Raises TooCostlyError, and does not count them, if the current answer has fewer."""
        if self.cost + units > self._most_cost:
            raise TooCostlyError
        self.cost += units

    def add_filters(self, filters: Sequence[tuple[str, Filter]]) -> None:
        """Note filters whose members were checked, each with its place. Raises SubscriptionError."""
        if (reason := self.count("conditions", len(filters))) is not None:
            raise SubscriptionError(reason, place="filters")
        for place, each in filters:
            if not isinstance(each.value, list | tuple):
                continue
            if OPERATORS[each.op].operand is SCALARS and (reason := self.count("alternatives", len(each.value))) is not None:
                raise SubscriptionError(reason, place=f"{place}.value")
