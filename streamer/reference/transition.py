"""Decide whether a subscription wants an event, with which transition, and how certain that is (semantics.md sections 7 and 8).

A *side* is the result of the subscription's condition on one document: `new` for the event after the change, `old` for the event
before it. It is `yes` (true), `no` (false or an error) or `unsure` (unknown). A document that the `soft_delete` field flags
counts as absent, so its side is `no`; if the flag is unknown, a `yes` becomes `unsure`.

| event | new | old | reported |
|---|---|---|---|
| subscription mentions `before` | yes | | without transition |
| | unsure | | without transition, not certain |
| insert | yes | | enter |
| | unsure | | enter, not certain |
| delete (`new` is the last document) | yes | | leave, to every subscription |
| | unsure | | leave, not certain, to every subscription |
| update with `before` | yes | yes | stay |
| | yes | no | enter |
| | yes | unsure | enter, not certain, also to `skip` |
| | unsure | yes | stay, not certain |
| | unsure | no, unsure | enter, not certain |
| | no | yes | leave, if the subscription wants `transitions` |
| | no | unsure | leave, not certain, if the subscription wants `transitions` |
| update without `before`, or no type | yes | | without transition |
| | unsure | | without transition, not certain |

Other combinations are not reported. A subscription with `on_unknown: skip` gets only the uncertain row marked "also to `skip`",
because there the new document certainly matches. A `delete` whose last document is flagged is not reported, because the document
was absent already. But the event may set the flag itself: if it has `before`, `before` is evaluated in place of that document. A
condition on `before` reads it as the event has it, flagged or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial
from typing import TypeAlias, final

from streamer.events.layout import EventLayout
from streamer.events.reading import as_before
from streamer.model import Event, Transition, Verdict
from streamer.reference.conditions import evaluate, fields_of
from streamer.reference.filters import MISSING, Absence, read
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.filters import parse_path

Judge: TypeAlias = Callable[[Event], Verdict]
"""Returns the verdict of a subscription for an event, or for the same event before the change."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """A match of a subscription.

    Attributes:
        transition: None if the event lacks the information, or the subscription mentions `before`.
        certain: False if the event lacks a value that the match or its transition depends on.
    """

    transition: Transition | None
    certain: bool = True

    def __or__(self, other: Outcome) -> Outcome:
        """Return the outcome for two changes of one record."""
        transition = self.transition if self.transition == other.transition else None
        return Outcome(transition, self.certain or other.certain)


class Side(Enum):
    """Whether the subscription wants one document."""

    YES = "yes"
    NO = "no"
    UNSURE = "unsure"


def find_outcome(
    compiled: CompiledSubscription,
    event: Event,
    layout: EventLayout,
    soft_delete: str | None = None,
    judge: Judge | None = None,
) -> Outcome | None:
    """Return the match of a subscription, or None if it does not want the event (see the table at the top of this module).

    Its topic is charged to the budget of the current event, which `REFUSED.begin()` in this thread has started.

    Args:
        soft_delete: the dotted path of the field of `data` that flags a document as deleted.
        judge: evaluates the subscription; by default `evaluate`.
    """
    judge = judge if judge is not None else partial(evaluate, compiled)
    new = _side(judge, event, soft_delete)
    if mentions_before(compiled, layout):
        return _report(compiled, new, None)
    match event.type:
        case "insert":
            return _report(compiled, new, "enter")
        case "delete":
            flagged = _is_flagged(event, soft_delete)
            if flagged is not Verdict.FALSE and event.tells_of_before:
                old = _side(judge, as_before(event, layout), soft_delete)
                last = _wants(judge, event)
                new = old if flagged is Verdict.TRUE or last is old else Side.UNSURE
            return _report(compiled, new, "leave")
        case "update" if (before := old_side(event, layout)) is not None:
            return _compare(compiled, new, _side(judge, before, soft_delete))
        case _:
            return _report(compiled, new, None)


def old_side(event: Event, layout: EventLayout) -> Event | None:
    """Return the event before an update, or None if it has neither `before` nor an unknown in its place."""
    return as_before(event, layout) if event.type == "update" and event.tells_of_before else None


def mentions_before(compiled: CompiledSubscription, layout: EventLayout) -> bool:
    """Return whether a subscription reads `before`: in a filter, in CEL, or in its pattern, by the pointers of the layout."""
    if compiled.mentions_before or compiled.pattern is None:
        return compiled.mentions_before
    pointers = layout.pointers("before")
    return any(field.path[: len(pointer)] == pointer for field in fields_of(compiled.pattern.root) for pointer in pointers)


def _side(judge: Judge, event: Event, soft_delete: str | None) -> Side:
    flagged = _is_flagged(event, soft_delete)
    if flagged is Verdict.TRUE:
        return Side.NO
    side = _wants(judge, event)
    return Side.UNSURE if side is Side.YES and flagged is Verdict.UNKNOWN else side


def _wants(judge: Judge, event: Event) -> Side:
    """Return the side of one document without regard to its soft-delete flag."""
    return {Verdict.TRUE: Side.YES, Verdict.UNKNOWN: Side.UNSURE}.get(judge(event), Side.NO)


def _report(compiled: CompiledSubscription, side: Side, transition: Transition | None) -> Outcome | None:
    if side is Side.UNSURE and compiled.subscription.on_unknown == "deliver":
        return Outcome(transition, certain=False)
    return Outcome(transition) if side is Side.YES else None


def _compare(compiled: CompiledSubscription, new: Side, old: Side) -> Outcome | None:
    if new is not Side.NO:
        outcome = _report(compiled, new, "stay" if old is Side.YES else "enter")
        return replace(outcome, certain=False) if outcome and old is Side.UNSURE else outcome
    return _report(compiled, old, "leave") if compiled.subscription.transitions else None


def _is_flagged(event: Event, soft_delete: str | None) -> Verdict:
    """Return whether the document has the soft-delete flag: any value except missing, null, false, 0 or ""."""
    if soft_delete is None:
        return Verdict.FALSE
    reading = read(event.data, _path_of_flag(soft_delete), event.data_at, event.unknown)
    if reading.value is Absence.UNKNOWN:
        return Verdict.UNKNOWN
    value = reading.value
    return Verdict.of(
        not (value is MISSING or value is None or value == "" or (isinstance(value, bool | int | float) and not value))
    )


@lru_cache(maxsize=16)
def _path_of_flag(soft_delete: str) -> tuple[str, ...]:
    return parse_path(soft_delete, place="soft_delete")
