"""CEL's extension library sets: lists as sets, whose elements are equal as by `==`. An error is absorbed as by all and exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streamer.cel_eval.extensions.rows import Row, row
from streamer.cel_eval.values import Failure, Value

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run


def _contains(run: Run, items: list[Value], wanted: list[Value]) -> Value:
    return _any(run, wanted, items, False)


def _intersects(run: Run, one: list[Value], other: list[Value]) -> Value:
    return _any(run, one, other, True)


def _equivalent(run: Run, one: list[Value], other: list[Value]) -> Value:
    first = _contains(run, one, other)
    if first is False:
        return False
    second = _contains(run, other, one)
    return second if second is False or first is True else first


def _any(run: Run, items: list[Value], among: list[Value], decisive: bool) -> Value:
    """Return *decisive* if this is the membership of an item in *among*, else the first error, else the opposite."""
    error: Failure | None = None
    for item in items:
        run.charge(1)
        membership = run.is_member(item, among)
        if membership is decisive:
            return decisive
        if type(membership) is Failure:
            error = error or membership
    return not decisive if error is None else error


_SETS: Final = "list, list -> bool"
ROWS: Final[Mapping[str, Row]] = {
    "sets.contains": row(_contains, _SETS),
    "sets.equivalent": row(_equivalent, _SETS),
    "sets.intersects": row(_intersects, _SETS),
}
