"""Explain why a subscription matches an event or not. The reference evaluates it on either backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, final

from streamer.core.options import Options
from streamer.engine.explain_text import as_json, write
from streamer.engine.hints import hint, parts_of
from streamer.errors import SubscriptionError
from streamer.events.reading import EventSource, IgnoredEvent
from streamer.model import Event, Transition, Verdict
from streamer.reference.conditions import Condition, conditions, evaluate, size_of
from streamer.reference.effort import EFFORT, TOO_COSTLY, TooCostlyError
from streamer.reference.searches import REFUSED
from streamer.reference.transition import Outcome, find_outcome, mentions_before, old_side
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.to_cel import subscription_to_cel

#: The other conditions are the same on both sides.
_OF_THE_DOCUMENT = ("filter", "pattern", "cel")


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of one subscription for one event; true if it matches, `str()` prints it.

    Attributes:
        subscription_id: the subscription.
        matched: whether a match is reported.
        transition: the transition of the match, if there is one.
        certain: False if the event lacks a value that the decision depends on.
        verdict: the result of all conditions together.
        conditions: each condition with the value of the event.
        before: each condition on the document before the update, if that decides the transition; else empty.
        note: a reason other than the conditions; None without one.
        cel: the whole subscription except its tenant as one CEL expression (docs/cel.md); None if CEL cannot express it,
            or if that would take too long.
    """

    subscription_id: str
    matched: bool
    transition: Transition | None
    certain: bool
    verdict: Verdict
    conditions: tuple[Condition, ...]
    before: tuple[Condition, ...] = ()
    note: str | None = None
    cel: str | None = None

    def __bool__(self) -> bool:
        return self.matched

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        if not self.matched:
            return f"{self.subscription_id!r} does not match"
        details = [self.transition or "", "" if self.certain else "not certain"]
        shown = ", ".join(filter(None, details))
        return f"{self.subscription_id!r} matches{f' ({shown})' if shown else ''}"

    def __str__(self) -> str:
        return self.text()

    def text(self, *, colour: bool = False) -> str:
        """Return the explanation as text in lines of at most 80 columns, unless a word is longer; *colour* is for terminals."""
        return write(self, colour=colour)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        return as_json(self)


def explain(
    compiled: CompiledSubscription,
    event: EventSource,
    options: Options,
    tenant: str | None = None,
    collection: str | None = None,
) -> Explanation:
    """Return the result of one subscription for one event, with each step. Raises EventError."""
    try:
        changes = options.read_all(event, tenant, collection)
    except IgnoredEvent as ignored:
        return Explanation(
            subscription_id=compiled.subscription.id,
            matched=False,
            transition=None,
            certain=True,
            verdict=Verdict.FALSE,
            conditions=(),
            note=note_of_ignored(ignored),
        )
    with EFFORT.bounded():
        change, outcome = deciding(compiled, changes, options)
        explanation = _explain(compiled, change, options)
        if outcome is None or len(changes) == 1:
            return explanation
        return replace(explanation, transition=outcome.transition, certain=outcome.certain)


def deciding(compiled: CompiledSubscription, changes: Sequence[Event], options: Options) -> tuple[Event, Outcome | None]:
    """Return the change of a record that decides about a subscription, and the match for the record, if there is one.

    It is the first that matches for certain, else the first that matches, else the first of all.
    """
    if len(changes) == 1:
        return changes[0], None
    found = [(change, outcome) for change in changes if (outcome := decide(compiled, change, options)[0]) is not None]
    if not found:
        return changes[0], None
    united = reduce(or_, (outcome for _, outcome in found))
    return next((change for change, outcome in found if outcome.certain), found[0][0]), united


def _explain(compiled: CompiledSubscription, read: Event, options: Options) -> Explanation:
    budget = options.limits.cel_budget
    outcome, verdict, note = decide(compiled, read, options)
    is_decided = note != TOO_COSTLY
    old = None if mentions_before(compiled, options.layout) else old_side(read, options.layout)
    before = [] if old is None else [row for row in _conditions(compiled, old, budget) if row.kind in _OF_THE_DOCUMENT]
    return Explanation(
        subscription_id=compiled.subscription.id,
        matched=outcome is not None,
        transition=outcome.transition if outcome is not None else None,
        certain=outcome.certain if outcome is not None else is_decided,
        verdict=verdict,
        conditions=tuple(_conditions(compiled, read, budget)),
        before=tuple(before),
        note=note,
        cel=_cel(compiled, options),
    )


def note_of_ignored(ignored: IgnoredEvent) -> str:
    return f"the event is ignored ({ignored.reason.value}): it matches nobody"


def decide(compiled: CompiledSubscription, event: Event, options: Options) -> tuple[Outcome | None, Verdict, str | None]:
    """Return the match of a subscription, if there is one; the verdict of all its conditions; and another reason, if there is
    one."""
    budget = options.limits.cel_budget
    REFUSED.begin()
    try:
        # Parsing the subscription has cost as much.
        EFFORT.spend(size_of(compiled))
        outcome = find_outcome(compiled, event, options.layout, options.soft_delete, budget=budget)
        verdict = evaluate(compiled, event, budget=budget)
    except TooCostlyError:
        return None, Verdict.UNKNOWN, TOO_COSTLY
    note = _note(compiled, verdict, outcome is not None, options)
    if outcome is None and note is None and _would_leave(compiled, event, options):
        note = "the document matched before the update: `transitions: true` would report a leave"
    return outcome, verdict, note


def _conditions(compiled: CompiledSubscription, event: Event, budget: int) -> Iterator[Condition]:
    """Yield each condition with details: the operands that decided it, and a hint at the probable intention."""
    for condition in conditions(compiled, event, budget=budget):
        if condition.kind == "cel" and compiled.cel is not None:
            condition = replace(condition, parts=parts_of(compiled.cel, condition.verdict, event, budget))
        yield replace(condition, hint=hint(condition, compiled, event))


def _would_leave(compiled: CompiledSubscription, event: Event, options: Options) -> bool:
    """Return whether the subscription would have got a leave if it had `transitions`."""
    if compiled.subscription.transitions or event.type != "update":
        return False
    asking = replace(compiled, subscription=replace(compiled.subscription, transitions=True))
    try:
        outcome = find_outcome(asking, event, options.layout, options.soft_delete, budget=options.limits.cel_budget)
    except TooCostlyError:
        return False
    return outcome is not None and outcome.transition == "leave"


def _cel(compiled: CompiledSubscription, options: Options) -> str | None:
    try:
        # The subscription is parsed again and printed.
        EFFORT.spend(2 * size_of(compiled))
        return subscription_to_cel(
            compiled.subscription, layout=options.layout, topic_dialect=options.topic_dialect, limits=options.limits
        )
    except (SubscriptionError, TooCostlyError):
        return None


def _note(compiled: CompiledSubscription, verdict: Verdict, matched: bool, options: Options) -> str | None:
    if verdict is Verdict.TRUE and not matched:
        return f"the document is flagged as deleted by {options.soft_delete!r}"
    if verdict is Verdict.UNKNOWN and not matched and compiled.subscription.on_unknown == "skip":
        return "the event does not carry enough to decide, and the subscription skips what is not certain"
    if verdict is not Verdict.TRUE and matched and verdict is not Verdict.UNKNOWN:
        return "the document matched before, and the subscription has transitions"
    return None
