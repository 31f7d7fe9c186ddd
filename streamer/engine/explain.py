"""Why does a subscription match an event, or why not? Told by the reference, whichever backend runs."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from streamer.core.options import Options
from streamer.errors import SubscriptionError
from streamer.events.reading import EventSource, IgnoredEvent
from streamer.model import BeyondFloat64, Transition, Verdict
from streamer.reference.conditions import Condition, Values, conditions, evaluate
from streamer.reference.filters import Absence
from streamer.reference.searches import REFUSED
from streamer.reference.transition import find_outcome, mentions_before, old_side
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.to_cel import subscription_to_cel

#: Longer values are cut when they are printed, and so are longer lists of paths.
SHOWN, SHOWN_PATHS = 60, 8

#: The other conditions are the same on both sides.
_OF_THE_DOCUMENT = ("filter", "pattern", "cel")

_SIGNS = {Verdict.TRUE: "✓", Verdict.FALSE: "✗", Verdict.ERROR: "!", Verdict.UNKNOWN: "?"}


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """What one subscription makes of one event; true if it matches, `str()` prints it.

    Attributes:
        subscription_id: the subscription.
        matched: whether a match is reported.
        transition: that of the match.
        certain: False where the event lacks a value that the decision needed.
        verdict: what is known of all conditions together.
        conditions: each condition with the value seen.
        before: each condition on the document as it came out before the update, where that decides the transition; else empty.
        note: what decided beside the conditions; None if they say it all.
        cel: the whole subscription but its tenant as one CEL expression (docs/cel.md); None where CEL cannot say it.
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
        table = list(_table([*self.conditions, *self.before]))
        now, before = table[: len(self.conditions)], table[len(self.conditions) :]
        lines = [self.headline, *now, *(["before the update:", *before] if before else [])]
        if self.note is not None:
            lines.append(self.note)
        return "\n".join(lines)


def explain(
    compiled: CompiledSubscription,
    event: EventSource,
    options: Options,
    tenant: str | None = None,
    collection: str | None = None,
) -> Explanation:
    """Judge one subscription on one event and keep each step. Raises EventError."""
    try:
        read = options.read(event, tenant, collection)
    except IgnoredEvent as ignored:
        return Explanation(
            subscription_id=compiled.subscription.id,
            matched=False,
            transition=None,
            certain=True,
            verdict=Verdict.FALSE,
            conditions=(),
            note=f"the event is ignored ({ignored.reason.value}): it matches nobody",
        )
    budget = options.limits.cel_budget
    REFUSED.begin()
    outcome = find_outcome(compiled, read, options.layout, options.soft_delete, budget=budget)
    old = None if mentions_before(compiled, options.layout) else old_side(read, options.layout)
    before = [] if old is None else [row for row in conditions(compiled, old, budget=budget) if row.kind in _OF_THE_DOCUMENT]
    verdict = evaluate(compiled, read, budget=budget)
    return Explanation(
        subscription_id=compiled.subscription.id,
        matched=outcome is not None,
        transition=outcome.transition if outcome is not None else None,
        certain=outcome.certain if outcome is not None else True,
        verdict=verdict,
        conditions=tuple(conditions(compiled, read, budget=budget)),
        before=tuple(before),
        note=_note(compiled, verdict, outcome is not None, options),
        cel=_cel(compiled, options),
    )


def _cel(compiled: CompiledSubscription, options: Options) -> str | None:
    try:
        return subscription_to_cel(compiled.subscription, layout=options.layout, limits=options.limits)
    except SubscriptionError:
        return None


def _note(compiled: CompiledSubscription, verdict: Verdict, matched: bool, options: Options) -> str | None:
    if verdict is Verdict.TRUE and not matched:
        return f"the document is flagged as deleted by {options.soft_delete!r}"
    if verdict is Verdict.UNKNOWN and not matched and compiled.subscription.on_unknown == "skip":
        return "the event does not carry enough to decide, and the subscription skips what is not certain"
    if verdict is not Verdict.TRUE and matched and verdict is not Verdict.UNKNOWN:
        return "the document matched before, and the subscription asks for transitions"
    return None


def _table(rows: Sequence[Condition]) -> Iterator[str]:
    lines = [(row, _on_one_line(row.place), _on_one_line(row.text)) for row in rows]
    places = max((len(place) for _, place, _ in lines), default=0)
    texts = min(max((len(text) for _, _, text in lines), default=0), SHOWN)
    for row, place, text in lines:
        reason = f" ({_on_one_line(row.reason)})" if row.reason else ""
        shown = _on_one_line(_show(row.seen))
        seen = f", saw {shown}" if shown else ""
        yield f"  {_SIGNS[row.verdict]} {place:{places}}  {text:{texts}}  {row.verdict.value}{reason}{seen}"


def _on_one_line(text: str) -> str:
    """Escape what would disturb a line or a terminal; the line breaks of an expression become spaces."""
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _show(seen: Any) -> str:
    if not isinstance(seen, Values):
        return show_value(seen)
    shown = [f"{path} = {show_value(value)}" for path, value in itertools.islice(seen.items(), SHOWN_PATHS)]
    return ", ".join([*shown, *(["..."] if len(seen) > SHOWN_PATHS else [])])


def show_value(value: Any) -> str:
    """Print a value seen as short JSON, or as `<missing>` or `<unknown>`."""
    if isinstance(value, Absence):
        return repr(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=_spelled)
    except RecursionError:
        text = "<nested too deep to show>"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _spelled(value: Any) -> Any:
    return value.text if isinstance(value, BeyondFloat64) else repr(value)
