"""Explain why a subscription matches an event or not. The reference evaluates it on either backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, final

from streamer.cel_eval import Program
from streamer.core.options import Options
from streamer.effort import EFFORT, TOO_COSTLY, TooCostlyError
from streamer.engine.explain_text import as_json, write
from streamer.engine.hints import hint, parts_of
from streamer.errors import SubscriptionError, UnknownSubscriptionError
from streamer.events.reading import EventSource, IgnoredEvent
from streamer.model import Event, Transition, Verdict
from streamer.reference.conditions import Condition, Part, conditions, size_of
from streamer.reference.transition import Outcome, find_outcome, mentions_before, old_side
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.groups import CompiledGroup, filters_in
from streamer.subscriptions.to_cel import subscription_to_cel

#: The other conditions are the same on both sides.
_OF_THE_DOCUMENT = ("filter", "pattern", "cel")
#: What a change costs at least: a record may have very many.
_UNITS_A_CHANGE: Final = 5


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
    subscription_id: str,
    read: Callable[[str], CompiledSubscription | None],
    event: EventSource,
    options: Options,
    tenant: str | None = None,
    collection: str | None = None,
) -> Explanation:
    """Return the result of one subscription for one event, with each step. Raises EventError and UnknownSubscriptionError.

    Args:
        read: returns the compiled subscription, as far as the answer has the units for it; None if there is none.
    """
    with EFFORT.bounded():
        EFFORT.spend_on_event(event)
        if (compiled := read(subscription_id)) is None:
            raise UnknownSubscriptionError(subscription_id)
        EFFORT.remaining -= compiled.cost
        try:
            changes = options.read_all(event, tenant, collection)
        except IgnoredEvent as ignored:
            return Explanation(subscription_id, False, None, True, Verdict.FALSE, (), note=note_of_ignored(ignored))
        judgement, united = deciding(compiled, changes, options)
        explanation = _explain(subscription_id, judgement, options)
        if united is None:
            return explanation
        return replace(explanation, transition=united.transition, certain=united.certain)


@final
class Judgement:
    """The result of a subscription for one event. Its conditions are evaluated once on each document.

    Attributes:
        compiled: the subscription.
        event: the event.
        outcome: the match, if there is one.
        verdict: the verdict of all conditions.
    """

    def __init__(self, compiled: CompiledSubscription, event: Event, options: Options) -> None:
        self.compiled, self.event, self._options = compiled, event, options
        self._rows: dict[bool, list[tuple[Condition, Part]]] = {}
        self.outcome: Outcome | None = None
        self.verdict = Verdict.UNKNOWN
        self._is_judged = False
        with suppress(TooCostlyError):
            EFFORT.spend(_UNITS_A_CHANGE)
            outcome, verdict = self._find_outcome(compiled), self._judge(event)
            self.outcome, self.verdict, self._is_judged = outcome, verdict, True

    @cached_property
    def old(self) -> Event | None:
        """The event before an update, if that decides the transition."""
        layout = self._options.layout
        return None if mentions_before(self.compiled, layout) else old_side(self.event, layout)

    @property
    def rows(self) -> list[tuple[Condition, Part]]:
        """The conditions with their results for the event."""
        return self._rows_of(self.event)

    @property
    def rows_before(self) -> list[tuple[Condition, Part]]:
        """The conditions with their results for `old`."""
        return [] if self.old is None else self._rows_of(self.old)

    def _rows_of(self, event: Event) -> list[tuple[Condition, Part]]:
        is_old = event is not self.event
        if is_old not in self._rows:
            self._rows[is_old] = conditions(self.compiled, event, budget=self._options.limits.cel_budget)
        return self._rows[is_old]

    def _judge(self, event: Event) -> Verdict:
        rows = self._rows_of(event)
        verdict = Verdict.all([condition.verdict for condition, _ in rows])
        if verdict is not Verdict.FALSE and any(condition.reason == TOO_COSTLY for condition, _ in rows):
            raise TooCostlyError
        return verdict

    def _find_outcome(self, compiled: CompiledSubscription) -> Outcome | None:
        return find_outcome(compiled, self.event, self._options.layout, self._options.soft_delete, self._judge)

    @cached_property
    def note(self) -> str | None:
        """A reason other than the conditions, if there is one."""
        if not self._is_judged:
            return TOO_COSTLY
        verdict, matched, subscription = self.verdict, self.outcome is not None, self.compiled.subscription
        if verdict is Verdict.TRUE and not matched:
            return f"the document is flagged as deleted by {self._options.soft_delete!r}"
        if verdict is Verdict.UNKNOWN and not matched and subscription.on_unknown == "skip":
            return "the event lacks a value that decides, and the subscription skips uncertain matches"
        if verdict is not Verdict.TRUE and matched and verdict is not Verdict.UNKNOWN:
            return "the document matched before, and the subscription has transitions"
        if not matched and self._would_leave():
            return "the document matched before the update: `transitions: true` would report a leave"
        return None

    def _would_leave(self) -> bool:
        """Return whether the subscription would have got a leave if it had `transitions`."""
        subscription = self.compiled.subscription
        if subscription.transitions or self.event.type != "update":
            return False
        try:
            outcome = self._find_outcome(replace(self.compiled, subscription=replace(subscription, transitions=True)))
        except TooCostlyError:
            return False
        return outcome is not None and outcome.transition == "leave"


def deciding(compiled: CompiledSubscription, changes: Sequence[Event], options: Options) -> tuple[Judgement, Outcome | None]:
    """Return the judgement of the change of a record that decides about a subscription, and the match of several changes.

    It is the first that matches for certain, else the first that matches, else the first of all.
    """
    first, *others = changes
    decisive = Judgement(compiled, first, options)
    united = decisive.outcome
    for change in others:
        judged = Judgement(compiled, change, options)
        if judged.outcome is None:
            continue
        united = judged.outcome if united is None else united | judged.outcome
        if decisive.outcome is None or (judged.outcome.certain and not decisive.outcome.certain):
            decisive = judged
    return decisive, united if others else None


def _explain(subscription_id: str, judged: Judgement, options: Options) -> Explanation:
    budget = options.limits.cel_budget
    outcome = judged.outcome

    def detailed(rows: Sequence[tuple[Condition, Part]], event: Event | None) -> tuple[Condition, ...]:
        return () if event is None else tuple(_detailed(condition, part, event, budget) for condition, part in rows)

    return Explanation(
        subscription_id=subscription_id,
        matched=outcome is not None,
        transition=outcome.transition if outcome is not None else None,
        certain=outcome.certain if outcome is not None else judged.note != TOO_COSTLY,
        verdict=judged.verdict,
        conditions=detailed(judged.rows, judged.event),
        before=detailed([row for row in judged.rows_before if row[0].kind in _OF_THE_DOCUMENT], judged.old),
        note=judged.note,
        cel=_cel(judged.compiled, options),
    )


def note_of_ignored(ignored: IgnoredEvent) -> str:
    return f"the event is ignored ({ignored.reason.value}): it matches no subscription"


def _detailed(condition: Condition, part: Part, event: Event, budget: int) -> Condition:
    """Return a condition with details: the operands that decided it, and a hint at the probable intention."""
    if isinstance(part, Program):
        condition = replace(condition, parts=parts_of(part, condition.verdict, event, budget))
    if isinstance(part, CompiledGroup):
        # Without the entries that were too costly.
        pairs = zip(condition.parts, part.entries, strict=False)
        return replace(condition, parts=tuple(_detailed(each, entry, event, budget) for each, entry in pairs))
    suggestion = hint(condition, part, event)
    return condition if suggestion is None else replace(condition, hint=suggestion)


def _cel(compiled: CompiledSubscription, options: Options) -> str | None:
    if compiled.omitted:
        return None
    try:
        # Each value is printed, and a step of a path for every step below it.
        filters = filters_in((*compiled.filters, *compiled.groups))
        EFFORT.spend(2 * size_of(compiled) + sum(len(each.path.names) ** 2 // 64 for each in filters))
        return subscription_to_cel(compiled.subscription, layout=options.layout, limits=options.limits, compiled=compiled)
    except (SubscriptionError, TooCostlyError):
        return None
