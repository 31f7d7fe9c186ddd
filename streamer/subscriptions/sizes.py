"""How many conditions one subscription has, as far as it was read, how many it may have (semantics.md section 2), and what it
costs to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, final

from streamer.effort import EFFORT, TooCostlyError
from streamer.errors import SubscriptionError
from streamer.model import Limits
from streamer.subscriptions.operands import SCALARS
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.subscription import Filter

SizeName: TypeAlias = Literal["conditions", "alternatives"]

#: The units that it takes to read each of these.
UNITS: Final[Mapping[SizeName, int]] = {"conditions": 6, "alternatives": 1}
#: What it takes to compile a regexp, in addition to its length.
REGEXP_UNITS: Final = 50


@final
class Size:
    """Counts what the limits bound, before the cost of it is paid.

    Attributes:
        cost: the units that it takes to read what was counted. An answer with fewer units is too costly.
    """

    def __init__(self, limits: Limits) -> None:
        self._counts = {"conditions": 0, "alternatives": 0}
        self._most = {"conditions": limits.max_conditions, "alternatives": limits.max_alternatives}
        self.cost = 0

    def grow(self, what: SizeName, more: int) -> str | None:
        """Add *more* of these; if there are too many, return the error with the number and the limit."""
        self._counts[what] += more
        found, most = self._counts[what], self._most[what]
        self.spend(UNITS[what] * more)
        return None if found <= most else f"{found} {what}, with these; at most {most} are allowed (limits.max_{what})"

    def spend(self, units: int) -> None:
        """Count units of reading. Raises TooCostlyError if the current answer has fewer."""
        self.cost += units
        if self.cost > EFFORT.left:
            raise TooCostlyError

    def add_filters(self, filters: Sequence[Filter | Mapping[str, Any]]) -> None:
        """Note filters whose members were checked. Raises SubscriptionError."""
        if (reason := self.grow("conditions", len(filters))) is not None:
            raise SubscriptionError(reason, place="filters")
        for at, each in enumerate(filters):
            if not isinstance(each, Filter) or not isinstance(each.value, list | tuple):
                continue
            if OPERATORS[each.op].operand is SCALARS and (reason := self.grow("alternatives", len(each.value))) is not None:
                raise SubscriptionError(reason, place=f"filters[{at}].value")
