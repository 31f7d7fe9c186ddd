"""Estimate the cost of a subscription for an event from its index, for `lint`, `plan`, the API and the console.

    country == "DE" && amount == 7              answered     the index decides it
    user == "u7" && net - tax > 50              verified     the arithmetic is evaluated for the events of one user
    country == "DE" && net - tax > 50           evaluated    the same for most events, if most subscriptions want "DE"

Each core reports the conditions by which its index finds an alternative, and the remaining work (`Access`). The estimate cannot
see events, so it assumes that their values are distributed like those in subscriptions: a condition that at least half of the
others at its place share does not narrow events down. A place with few conditions is too small a sample, so a condition there
counts as selective.

`!=`, `exists` and the like are true of every event that has the field. Most events have each field, unless many subscriptions
have a field of their own.

Invariant: the remaining work decides first. A subscription that its index answers is never slow, whatever others share.

Cost: linear in the conditions of all subscriptions.

Rejected: the index's own counters. They count the cost of past events, and a file that is only checked has had no events.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeAlias, final

#: A value that matches at a place in words, the bounds of a range, or None for any value.
Sought: TypeAlias = str | tuple[float, float] | None
#: The work that remains when an index has found an alternative: none, a choice of elements of a list, or an evaluation.
Rest: TypeAlias = Literal["nothing", "choice", "evaluation"]
#: An alternative: the rest, and places of an event, each with the values that match there; all places must match.
Access: TypeAlias = tuple[Rest, Sequence[tuple[str, Sequence[Sought]]]]

#: More subscriptions than this must share a condition for it to count as unselective; the index verifies up to this many singly.
_FEW: Final = 8
#: A number of places, each used by few subscriptions, that exceeds the fields of a document.
_MANY_PLACES: Final = 64
#: A condition that is true of this share of events does not narrow them down.
_MOST: Final = 0.5


class Effort(StrEnum):
    """The class of the cost of an event for a subscription."""

    ANSWERED = "answered"
    VERIFIED = "verified"
    EVALUATED = "evaluated"

    @property
    def words(self) -> str:
        """The meaning of the class."""
        return _WORDS[self]


_WORDS: Final = {
    Effort.ANSWERED: "the index decides it",
    Effort.VERIFIED: "it is evaluated for the events that its index lets through",
    Effort.EVALUATED: "it is evaluated for each event of its collection, or for most",
}


@final
@dataclass(slots=True)
class _Place:
    """The values that subscriptions look for at one place.

    Attributes:
        alternatives: the number of alternatives with a condition at the place.
        ends: the ends of ranges, in order once *is_sorted*.
    """

    alternatives: int = 0
    values: Counter[str] = field(default_factory=Counter)
    ends: list[float] = field(default_factory=list)
    is_sorted: bool = False

    def add(self, sought: Sequence[Sought]) -> None:
        self.alternatives += 1
        self.is_sorted = False
        for each in sought:
            if isinstance(each, str):
                self.values[each] += 1
            elif each is not None:
                self.ends += [end for end in each if math.isfinite(end)]

    def share(self, each: str | tuple[float, float]) -> float:
        """Return the share of the alternatives at this place that a value, or a range, has."""
        if isinstance(each, str):
            return self.values[each] / self.alternatives
        if not self.is_sorted:
            self.ends.sort()
            self.is_sorted = True
        low, high = each
        return (bisect_right(self.ends, high) - bisect_left(self.ends, low)) / max(len(self.ends), 1)


@final
class Estimate:
    """The subscriptions of one partition: add all, then get the effort of each."""

    def __init__(self) -> None:
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self._are_fields_rare: bool | None = None

    def add(self, alternatives: Iterable[Access]) -> None:
        """Count the conditions of a subscription."""
        self._are_fields_rare = None
        for _, conditions in alternatives:
            for place, sought in conditions:
                self._places[place].add(sought)

    def effort(self, alternatives: Iterable[Access]) -> Effort:
        """Return the effort of an added subscription: the one of its worst alternative."""
        efforts = {self._effort(*each) for each in alternatives}
        return next((each for each in (Effort.EVALUATED, Effort.VERIFIED) if each in efforts), Effort.ANSWERED)

    def _effort(self, rest: Rest, conditions: Sequence[tuple[str, Sequence[Sought]]]) -> Effort:
        if rest == "nothing":
            return Effort.ANSWERED
        if rest == "choice" or any(self._is_selective(place, sought) for place, sought in conditions):
            return Effort.VERIFIED
        return Effort.EVALUATED

    def _is_selective(self, name: str, sought: Sequence[Sought]) -> bool:
        """Return whether a condition is true for fewer than `_MOST` of all events."""
        place = self._places[name]
        if None in sought:
            return place.alternatives <= _FEW and self._has_rare_fields()
        return place.alternatives <= _FEW or sum(place.share(each) for each in sought if each is not None) < _MOST

    def _has_rare_fields(self) -> bool:
        if self._are_fields_rare is None:
            rare = sum(place.alternatives <= _FEW for place in self._places.values())
            self._are_fields_rare = rare > _MANY_PLACES
        return self._are_fields_rare


def alone(alternatives: Sequence[Access]) -> Effort:
    """Return the effort of a subscription as if there were no others."""
    estimate = Estimate()
    estimate.add(alternatives)
    return estimate.effort(alternatives)
