"""Evaluate a filter directly, and return the value that it read (semantics.md sections 3, 4 and 8).

Each operator implements in Python the CEL expression that `CompiledFilter.to_cel()` prints; a property test compares the two.
Reading a path gives a `Reading`: a value, or the reason why there is none.

A number beyond float64 exists (`exists`), but reading it is an error, also as a step of a longer path. An unknown (a pointer in
the event's `unknown`) hides the values at and below it. If the document lacks a value above an unknown, that value is unknown,
too. An unknown that ends in `REST` hides the members that the object there lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, final

from streamer.effort import EFFORT
from streamer.model import REST, BeyondFloat64, Event, FilterGroupOperator, Pointer, Verdict
from streamer.reference.searches import may_search
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.folding import folded
from streamer.subscriptions.groups import CompiledGroup

TRUE, FALSE, ERROR, UNKNOWN = Verdict.TRUE, Verdict.FALSE, Verdict.ERROR, Verdict.UNKNOWN


class Absence(Enum):
    """The reason why a path has no value."""

    MISSING = "missing"
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return f"<{self.value}>"


MISSING: Final = Absence.MISSING


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a path.

    Attributes:
        present: whether every step exists: TRUE, FALSE (also if an earlier step is not an object), UNKNOWN, or ERROR if an
            earlier step is a number beyond float64.
        value: the value, or an `Absence` unless *present* is TRUE and the value is known.
        verdict: TRUE if CEL could read the value, else ERROR or UNKNOWN.
        on_the_way: whether each step but the last leads to an object.
    """

    present: Verdict
    value: Any
    verdict: Verdict
    on_the_way: bool = True


def evaluate_filter(condition: CompiledFilter, event: Event) -> tuple[Verdict, Any]:
    """Return the verdict of a filter for one event, and the value of its field (an `Absence` if there is none)."""
    # Each step of a path is compared with all pointers to unknown values.
    EFFORT.spend((len(condition.path.names) * (1 + len(event.unknown))) // 8)
    now = read_field(condition.path.root.value, condition.path.names, event)
    if condition.op.mentions_before:
        EFFORT.spend(5)
        then = read_field("before", condition.path.names, event)
        return _CHANGES[condition.op.name](condition, now, then), now.value
    if condition.op.name == "exists":
        if not condition.value:
            return now.present.negate(), now.value
        return (now.present if now.on_the_way or now.present is not FALSE else ERROR), now.value
    if now.verdict is not TRUE:
        return now.verdict, now.value
    actual = now.value
    if condition.op.ignores_case and condition.regexp is None:
        EFFORT.spend(len(actual) // 200 if isinstance(actual, str | list) else 0)
        actual = folded(actual)
    return _COMPARISONS[condition.op.name](condition, actual), now.value


def evaluate_group(group: CompiledGroup, event: Event) -> Verdict:
    """Return the verdict of a group of filters for one event."""
    return combined(
        group.op,
        [
            evaluate_filter(each, event)[0] if isinstance(each, CompiledFilter) else evaluate_group(each, event)
            for each in group.entries
        ],
    )


def combined(op: FilterGroupOperator, verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a group whose entries have these verdicts."""
    if op == "not":
        return verdicts[0].negate()
    return Verdict.any(verdicts) if op == "any" else Verdict.all(verdicts)


def read_field(root: str, names: tuple[str, ...], event: Event) -> Reading:
    """Read the value at a path of `data`, `before` or `envelope`."""
    document, at, unknown = event.document(root)
    return read(document, names, at, unknown)


def read(document: Mapping[str, Any] | None, path: tuple[str, ...], at: Pointer | None, unknown: tuple[Pointer, ...]) -> Reading:
    """Read the value at a path of member names in a document, which is at the pointer *at* of the event."""
    value: Any = MISSING if document is None else document
    known = 0
    if at is None or not unknown:
        at = None
        while known < len(path) and type(value) is dict:
            value, known = value.get(path[known], MISSING), known + 1
    for depth in range(known, len(path) + 1):
        place = None if at is None else at + path[:depth]
        if place is not None and any(each == place[: len(each)] for each in unknown):
            # The event does not report whether a hidden value exists, so its presence is unknown, too.
            return Reading(UNKNOWN, Absence.UNKNOWN, UNKNOWN)
        has_unknown_below = place is not None and any(place == each[: len(place)] for each in unknown)
        if value is MISSING:
            if has_unknown_below or (place is not None and (*place[:-1], REST) in unknown):
                return Reading(UNKNOWN, Absence.UNKNOWN, UNKNOWN)
            # Without a document, `data` is null in CEL, so even a test of the first step is an error.
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
    """Return whether *side* has the value and *other* does not."""
    return Verdict.all([_is(side, condition.value), _is(other, condition.value).negate()])


_CHANGES: Final[Mapping[str, Callable[[CompiledFilter, Reading, Reading], Verdict]]] = {
    "changed": _changed,
    "changed_to": lambda condition, now, then: _became(condition, now, then),
    "changed_from": lambda condition, now, then: _became(condition, then, now),
}


def _is(reading: Reading, value: Any) -> Verdict:
    """Return whether the value is present and equal to *value*."""
    return Verdict.all([reading.present, equal(reading.value, value) if reading.verdict is TRUE else reading.verdict])


def _strictly(*verdicts: Verdict) -> Verdict:
    """Return the verdict of an operator whose operands may be unreadable: an unknown has priority over an error."""
    return next((verdict for verdict in (UNKNOWN, ERROR) if verdict in verdicts), TRUE)


def _member(item: Any, items: list[Any], units: int) -> Verdict:
    EFFORT.spend(units)
    if not isinstance(item, list | Mapping | BeyondFloat64):
        # Python's `==` is true of all equal scalars, and of true and 1. So it can only exclude candidates, which is fast.
        items = [each for each in items if each == item or type(each) is BeyondFloat64]
    return Verdict.any([equal(item, candidate) for candidate in items])


def equal(one: Any, other: Any) -> Verdict:
    """Return whether two JSON values are equal by the rules of CEL's `==`: by mathematical value, false between types.

    An element that cannot be read gives ERROR, unless another pair of elements differs.
    """
    verdict = TRUE
    pairs = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        if isinstance(a, BeyondFloat64) or isinstance(b, BeyondFloat64):
            verdict = ERROR
            continue
        kind = _kind(a)
        if kind != _kind(b):
            return FALSE
        if kind == "list":
            if len(a) != len(b):
                return FALSE
            EFFORT.spend(len(a))
            pairs.extend(zip(a, b, strict=True))
        elif kind == "map":
            if a.keys() != b.keys():
                return FALSE
            EFFORT.spend(len(a))
            pairs.extend((a[name], b[name]) for name in a)
        elif a != b:
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


# The operators, for values that CEL can read


def _contains(condition: CompiledFilter, actual: Any) -> Verdict:
    if isinstance(actual, list):
        return _member(condition.compared, actual, len(actual))
    return _CONTAINS_TEXT(condition, actual)


def _text(holds: Callable[[str, str], bool]) -> Callable[[CompiledFilter, Any], Verdict]:
    """Return an operator on two texts; it gives ERROR for any other values."""

    def compare(condition: CompiledFilter, actual: Any) -> Verdict:
        value = condition.compared
        return Verdict.of(holds(actual, value)) if isinstance(actual, str) and isinstance(value, str) else ERROR

    return compare


def _has(actual: str, value: str) -> bool:
    EFFORT.spend(len(actual) // 2_000)
    return value in actual


_CONTAINS_TEXT: Final = _text(_has)


def _matches(condition: CompiledFilter, actual: Any) -> Verdict:
    if not isinstance(actual, str):
        return ERROR
    EFFORT.spend(len(actual) // 200 + condition.size // 4)
    is_searched = may_search(condition.value, condition.size, actual.encode())
    return Verdict.of(is_searched and condition.regexp.search(actual) is not None)


def _order(holds: Callable[[Any, Any], bool]) -> Callable[[CompiledFilter, Any], Verdict]:
    """Return an operator that orders two values of one kind: numbers by value, strings by code points, false before true."""

    def compare(condition: CompiledFilter, actual: Any) -> Verdict:
        value = condition.compared
        if _kind(actual) != _kind(value) or _kind(actual) not in ("bool", "number", "string"):
            return ERROR
        return Verdict.of(holds(actual, value))

    return compare


_COMPARISONS: Final[Mapping[str, Callable[[CompiledFilter, Any], Verdict]]] = {
    "==": lambda condition, seen: equal(seen, condition.compared),
    "!=": lambda condition, seen: equal(seen, condition.compared).negate(),
    ">": _order(lambda seen, value: seen > value),
    ">=": _order(lambda seen, value: seen >= value),
    "<": _order(lambda seen, value: seen < value),
    "<=": _order(lambda seen, value: seen <= value),
    # The values of a subscription are scalars, so searching them is fast.
    "in": lambda condition, seen: _member(seen, condition.compared, len(condition.compared) // 16),
    "not in": lambda condition, seen: _member(seen, condition.compared, len(condition.compared) // 16).negate(),
    "contains": _contains,
    "starts_with": _text(str.startswith),
    "ends_with": _text(str.endswith),
    "matches": _matches,
}
"""By the operator's name. `exists`, and operators on the document before, do not compare one value."""
