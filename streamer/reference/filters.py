"""Evaluate a filter directly, with the value that it saw (semantics.md sections 3, 4 and 8).

Each operator says by hand what the expression printed by `CompiledFilter.to_cel()` says in CEL; a property test holds the two
together. Reading a path gives a `Reading`: a value, or why there is none.

A number that no float64 holds is there (`exists`), but to read it is an error, also on the way to a field below it. An unknown (a
pointer in the event's `unknown`) hides what it covers. Where the document ends above an unknown, what lies on the way to it is
unknown too. An unknown that ends in `REST` hides what the object there lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, final

from streamer.model import REST, BeyondFloat64, Event, Pointer, Verdict
from streamer.reference.effort import EFFORT
from streamer.reference.searches import may_search
from streamer.subscriptions.filters import CompiledFilter

TRUE, FALSE, ERROR, UNKNOWN = Verdict.TRUE, Verdict.FALSE, Verdict.ERROR, Verdict.UNKNOWN


class Absence(Enum):
    """Why no value was seen."""

    MISSING = "missing"
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return f"<{self.value}>"


MISSING: Final = Absence.MISSING


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """What stands at a path.

    Attributes:
        present: whether every step is there: TRUE, FALSE also if a step on the way is not an object, UNKNOWN, or ERROR where
            a step on the way is a number that cannot be read.
        value: the value; an `Absence` unless *present* is TRUE and the value is known.
        verdict: TRUE if CEL could read the value, else ERROR or UNKNOWN.
        on_the_way: whether each step but the last leads to an object.
    """

    present: Verdict
    value: Any
    verdict: Verdict
    on_the_way: bool = True


def evaluate_filter(condition: CompiledFilter, event: Event) -> tuple[Verdict, Any]:
    """Return what is known of a filter for one event, and the value seen at its field (an `Absence` where there is none)."""
    now = read(event.data, condition.path, event.data_at, event.unknown)
    if condition.op.mentions_before:
        then = read(event.before, condition.path, event.before_at, event.unknown)
        return _CHANGES[condition.op.name](condition, now, then), now.value
    if condition.op.name == "exists":
        if not condition.value:
            return now.present.negate(), now.value
        return (now.present if now.on_the_way or now.present is not FALSE else ERROR), now.value
    if now.verdict is not TRUE:
        return now.verdict, now.value
    return _COMPARISONS[condition.op.name](condition, now.value), now.value


def read(document: Mapping[str, Any] | None, path: tuple[str, ...], at: Pointer | None, unknown: tuple[Pointer, ...]) -> Reading:
    """Follow a path of member names into a document that stands at the pointer *at*."""
    value: Any = MISSING if document is None else document
    for depth in range(len(path) + 1):
        place = None if at is None else at + path[:depth]
        if place is not None and any(each == place[: len(each)] for each in unknown):
            # What is hidden is known to be present only where the source said so, and it did not.
            return Reading(UNKNOWN, Absence.UNKNOWN, UNKNOWN)
        has_unknown_below = place is not None and any(place == each[: len(place)] for each in unknown)
        if value is MISSING:
            if has_unknown_below or (place is not None and (*place[:-1], REST) in unknown):
                return Reading(UNKNOWN, Absence.UNKNOWN, UNKNOWN)
            # Without a document the first step has nothing to be asked of, as in CEL, where `data` is null then.
            return Reading(FALSE, MISSING, ERROR, on_the_way=depth > 0)
        if depth == len(path):
            if isinstance(value, BeyondFloat64):
                return Reading(TRUE, value, ERROR)
            return Reading(TRUE, value, UNKNOWN if has_unknown_below else TRUE)
        if isinstance(value, BeyondFloat64):
            return Reading(ERROR, MISSING, ERROR, on_the_way=False)
        if not isinstance(value, Mapping):
            return Reading(FALSE, MISSING, ERROR, on_the_way=False)
        value = value.get(path[depth], MISSING)
    raise AssertionError("the loop ends at the last step")


def _changed(_: CompiledFilter, now: Reading, then: Reading) -> Verdict:
    both = Verdict.all([now.present, then.present])
    if both is TRUE:
        readable = _strictly(now.verdict, then.verdict)
        return equal(then.value, now.value).negate() if readable is TRUE else readable
    return both if both is not FALSE else Verdict.any([now.present, then.present])


def _became(condition: CompiledFilter, side: Reading, other: Reading) -> Verdict:
    """Whether one side has the value, and the other has it not."""
    return Verdict.all([_is(side, condition.value), _is(other, condition.value).negate()])


_CHANGES: Final[Mapping[str, Callable[[CompiledFilter, Reading, Reading], Verdict]]] = {
    "changed": _changed,
    "changed_to": lambda condition, now, then: _became(condition, now, then),
    "changed_from": lambda condition, now, then: _became(condition, then, now),
}


def _is(reading: Reading, value: Any) -> Verdict:
    """Whether the value is present and equal to *value*."""
    return Verdict.all([reading.present, equal(reading.value, value) if reading.verdict is TRUE else reading.verdict])


def _strictly(*verdicts: Verdict) -> Verdict:
    """What an operator makes of its operands: an unknown beats an error."""
    return next((verdict for verdict in (UNKNOWN, ERROR) if verdict in verdicts), TRUE)


def _member(item: Any, items: list[Any], units: int) -> Verdict:
    EFFORT.spend(units)
    # Python's equality holds of all that are equal here, and of true and 1 besides; what is not among them is told at once.
    if not isinstance(item, list | Mapping | BeyondFloat64) and item not in items:
        return ERROR if any(type(each) is BeyondFloat64 for each in items) else FALSE
    return Verdict.any([equal(item, candidate) for candidate in items])


def equal(one: Any, other: Any) -> Verdict:
    """Compare two JSON values as CEL's `==` does: by mathematical value, false between types.

    An element that cannot be read makes an error, unless another pair already tells the two apart.
    """
    verdict = TRUE
    pairs = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        if isinstance(a, BeyondFloat64) or isinstance(b, BeyondFloat64):
            verdict = ERROR
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return FALSE
            EFFORT.spend(len(a))
            pairs.extend(zip(a, b, strict=True))
        elif isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return FALSE
            EFFORT.spend(len(a))
            pairs.extend((a[name], b[name]) for name in a)
        elif _kind(a) != _kind(b) or (not isinstance(a, list | Mapping) and a != b):
            return FALSE
    return verdict


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) else "map"


# What each operator makes of a value that CEL can read


def _contains(condition: CompiledFilter, seen: Any) -> Verdict:
    if isinstance(seen, list):
        return _member(condition.value, seen, len(seen))
    return _text(lambda seen, value: value in seen)(condition, seen)


def _text(holds: Callable[[str, str], bool]) -> Callable[[CompiledFilter, Any], Verdict]:
    """Compare two texts; of anything else it is an error."""

    def compare(condition: CompiledFilter, seen: Any) -> Verdict:
        value = condition.value
        return Verdict.of(holds(seen, value)) if isinstance(seen, str) and isinstance(value, str) else ERROR

    return compare


def _matches(condition: CompiledFilter, seen: Any) -> Verdict:
    if not isinstance(seen, str):
        return ERROR
    is_searched = may_search(condition.value, condition.size, seen.encode())
    return Verdict.of(is_searched and condition.regexp.search(seen) is not None)


def _order(holds: Callable[[Any, Any], bool]) -> Callable[[CompiledFilter, Any], Verdict]:
    """Order two values of one kind: numbers by mathematical value, strings by code points, false before true."""

    def compare(condition: CompiledFilter, seen: Any) -> Verdict:
        value = condition.value
        if _kind(seen) != _kind(value) or _kind(seen) not in ("bool", "number", "string"):
            return ERROR
        return Verdict.of(holds(seen, value))

    return compare


_COMPARISONS: Final[Mapping[str, Callable[[CompiledFilter, Any], Verdict]]] = {
    "==": lambda condition, seen: equal(seen, condition.value),
    "!=": lambda condition, seen: equal(seen, condition.value).negate(),
    ">": _order(lambda seen, value: seen > value),
    ">=": _order(lambda seen, value: seen >= value),
    "<": _order(lambda seen, value: seen < value),
    "<=": _order(lambda seen, value: seen <= value),
    # The values of a subscription are scalars, and so quickly looked through.
    "in": lambda condition, seen: _member(seen, condition.value, len(condition.value) // 16),
    "not in": lambda condition, seen: _member(seen, condition.value, len(condition.value) // 16).negate(),
    "contains": _contains,
    "starts_with": _text(str.startswith),
    "ends_with": _text(str.endswith),
    "matches": _matches,
}
"""By the operator's name; `exists`, and what looks at the document before, are no comparisons of one value."""
