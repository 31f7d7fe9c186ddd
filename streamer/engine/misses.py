"""Find near misses: the subscriptions that an event fails by one condition, and the conditions that fail for many events.

The reference evaluates them on either backend. Each operand of `&&` in an expression counts as a condition.

Cost: for one event, the conditions of each examined subscription, whose number is bounded. For many events, the conditions of one
subscription for each event, in constant memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, final, overload

from streamer import effort
from streamer.cel_eval import Program
from streamer.cel_eval.operands import compared, operands
from streamer.core.options import Options
from streamer.core.protocol import Selection
from streamer.effort import EFFORT, TooCostlyError
from streamer.engine.explain import Judgement, deciding
from streamer.engine.explain_text import on_one_line, outcome_of, row_as_json
from streamer.engine.hints import hint
from streamer.errors import UnknownSubscriptionError
from streamer.events.reading import EventSource, IgnoredEvent
from streamer.model import Event, Verdict
from streamer.reference.conditions import Condition, Part, condition_of_cel
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.groups import CompiledGroup
from streamer.subscriptions.matchers import Equal
from streamer.subscriptions.patterns import Field
from streamer.subscriptions.subscription import EVERY

if TYPE_CHECKING:
    from streamer.engine.engine import Engine

#: The most values of a list, and the most characters of a text, that are compared.
_VALUES, _CHARACTERS = 100, 200
#: The largest distance.
_FAR: Final = 1.0
#: The verdicts of a condition that prevents a match.
FAILS: Final = (Verdict.FALSE, Verdict.ERROR)


@final
@dataclass(frozen=True, slots=True)
class NearMiss:
    """A subscription that an event fails by one condition; `str()` prints it.

    Attributes:
        condition: the condition that failed, with the value of the event.
        held: the number of other conditions, which are all true or unknown.
        distance: the distance from the value to one that would match, from 0 to 1; 1 also if it is unknown.
    """

    subscription_id: str
    condition: Condition
    held: int
    distance: float

    def to_dict(self) -> dict[str, Any]:
        """Return the near miss as plain JSON values; event values are shortened texts, as `str()` prints them."""
        return {
            "subscription_id": self.subscription_id,
            "condition": row_as_json(self.condition),
            "held": self.held,
            "distance": self.distance,
        }

    def __str__(self) -> str:
        return f"{self.subscription_id!r}: {on_one_line(self.condition.text)}: {outcome_of(self.condition)}"


@final
class NearMisses(Sequence[NearMiss]):
    """The nearest misses of one event, nearest first.

    Attributes:
        examined: the number of examined subscriptions.
        complete: whether all subscriptions for the event's tenant and collection were examined.
    """

    def __init__(self, found: Sequence[NearMiss] = (), examined: int = 0, *, complete: bool = True) -> None:
        self._misses = tuple(found)
        self.examined = examined
        self.complete = complete

    def __len__(self) -> int:
        return len(self._misses)

    @overload
    def __getitem__(self, index: int) -> NearMiss: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NearMiss]: ...
    def __getitem__(self, index: int | slice) -> NearMiss | Sequence[NearMiss]:
        return self._misses[index]

    def __repr__(self) -> str:
        more = "" if self.complete else ", and there are more"
        return f"<NearMisses: {[miss.subscription_id for miss in self]}; {self.examined} examined{more}>"


def near_misses(
    engine: Engine,
    event: EventSource,
    n: int,
    tenant: str | None,
    collection: str | None,
    max_subscriptions: int,
    among: Iterator[str] | None = None,
) -> NearMisses:
    """Return the near misses of an event; see `Engine.near_misses`.

    Args:
        among: the ids of the subscriptions to examine, all for the event's tenant and collection; by default all of the engine.
    """
    options = engine._options
    with EFFORT.bounded():
        EFFORT.spend_on_event(event)
        try:
            changes = options.read_all(event, tenant, collection)
        except IgnoredEvent:
            return NearMisses()
        return _near_misses(engine, changes, n, max_subscriptions, _ids(engine, changes) if among is None else among)


def _near_misses(engine: Engine, changes: Sequence[Event], n: int, max_subscriptions: int, ids: Iterator[str]) -> NearMisses:
    options = engine._options
    misses: list[tuple[NearMiss, Part, Event]] = []
    examined, is_complete = 0, False
    for subscription_id in islice(ids, max_subscriptions):
        if (compiled := engine._compiled(subscription_id)) is None:
            examined += 1
            continue  # another thread has removed it
        if compiled.omitted or compiled.cost > EFFORT.to_read:
            break
        EFFORT.remaining -= compiled.cost
        judged, _ = deciding(compiled, changes, options)
        rows = list(operands_of(judged, options))
        failed = [row for row in rows if row[0].verdict in FAILS]
        if not EFFORT.is_spent and len(failed) == 1 and judged.outcome is None:
            condition, part = failed[0]
            near = _distance(condition, part, judged.event, options)
            misses.append((NearMiss(subscription_id, condition, len(rows) - 1, near), part, judged.event))
            misses = sorted(misses, key=lambda each: each[0].distance)[:n]
        if EFFORT.is_spent:
            break
        examined += 1
    else:
        is_complete = next(ids, None) is None
    nearest = [replace(miss, condition=hinted(miss.condition, part, event)) for miss, part, event in misses]
    return NearMisses(nearest, examined, complete=is_complete)


def _ids(engine: Engine, changes: Sequence[Event]) -> Iterator[str]:
    """Yield the ids of all subscriptions for the tenants and the collections of some events."""
    names = [
        (tenant, collection)
        for event in changes
        for tenant in (event.tenant, EVERY)
        for collection in (event.collection or EVERY, EVERY)
    ]
    for tenant, collection in dict.fromkeys(names):
        yield from engine._core.ids(Selection(tenant=tenant, collection=collection))


def operands_of(judged: Judgement, options: Options) -> Iterator[tuple[Condition, Part]]:
    """Yield each condition of a judgement, and each operand of an expression's `&&` as a condition."""
    for condition, part in judged.rows:
        programs = _conjuncts(part) if isinstance(part, Program) and not EFFORT.is_spent else ()
        if len(programs) < 2:
            yield condition, part
        else:
            budget = options.limits.cel_budget
            yield from ((condition_of_cel(program, judged.event, budget), program) for program in programs)


def hinted(condition: Condition, part: Part, event: Event) -> Condition:
    """Return a condition with a hint at the probable intention, unless it is one in CEL."""
    return condition if isinstance(part, Program) else replace(condition, hint=hint(condition, part, event))


@lru_cache(maxsize=256)
def _conjuncts(program: Program) -> Sequence[Program]:
    joined = operands(program)
    return joined[1] if joined is not None and joined[0] == "&&" else (program,)


# How near


def _distance(condition: Condition, part: Part, event: Event, options: Options) -> float:
    """Return the distance of a condition; also `_FAR` if it would be too costly."""
    with suppress(TooCostlyError):
        match part:
            case Program():
                sides = compared(part, event, int(min(options.limits.cel_budget, max(EFFORT.remaining, 0))))
                return _FAR if sides is None else _apart(*sides)
            case CompiledGroup(op="any", entries=entries):
                each_part = zip(condition.parts, entries, strict=False)
                return min(_distance(each, entry, event, options) for each, entry in each_part)
            case CompiledFilter():
                return _apart(condition.seen, part.value)
            case Field() if isinstance(condition.seen, list):
                values = list(islice((each.value for each in part.matchers if isinstance(each, Equal)), _VALUES))
                return min((_apart(actual, values) for actual in condition.seen[:_VALUES]), default=_FAR)
    return _FAR


def _apart(actual: Any, wanted: Any) -> float:
    """Return the distance of two values, from 0 to 1: for numbers by their size, for texts by their spelling."""
    if isinstance(wanted, list):
        return min((_apart(actual, each) for each in wanted[:_VALUES]), default=_FAR)
    if isinstance(actual, bool) or isinstance(wanted, bool):
        return _FAR
    if isinstance(actual, int | float) and isinstance(wanted, int | float):
        size = abs(actual) + abs(wanted)
        return float(min(abs(actual - wanted) / size, _FAR)) if size else 0.0
    if isinstance(actual, str) and isinstance(wanted, str):
        one, other = actual[:_CHARACTERS], wanted[:_CHARACTERS]
        EFFORT.spend(5 + len(one) * len(other) // 20)
        return _FAR - SequenceMatcher(None, one, other).ratio()
    return _FAR


# Over many events


@dataclass(slots=True)
class Row:
    """The results of a condition for many events.

    Attributes:
        alone: the number of events for which it was the only failed condition.
        verdicts: the number of events by verdict.
    """

    condition: Condition
    alone: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    @property
    def held(self) -> int:
        return self.verdicts[Verdict.TRUE]

    @property
    def failed(self) -> int:
        """The number of events for which it was false or an error."""
        return sum(self.verdicts[verdict] for verdict in FAILS)

    @property
    def unknown(self) -> int:
        return self.verdicts[Verdict.UNKNOWN]


@final
@dataclass(frozen=True, slots=True)
class Nearest:
    """An event that does not match, with the conditions that failed and their values.

    Attributes:
        number: the number of the event, as passed to `see`.
        distance: the sum of the distances of the failed conditions; see `NearMiss`.
    """

    number: int
    failed: Sequence[str]
    distance: float


@final
class Survey:
    """Collects the results of one subscription for many events. Not thread-safe.

    Attributes:
        rows: the conditions, in the order of the subscription's members.
        nearest: the events that were nearest to a match, at most `SHOWN`, nearest first.
        seen: the number of events that were read.
        matched: the number of events that matched.
        costly: the number of events that were too costly to evaluate.
        ignored: the number of events that were ignored, because they are not changes.
    """

    SHOWN: Final = 3
    #: The units that each event may use; events that need more share the units of one answer.
    EACH: Final = 2_000

    def __init__(self, engine: Engine, subscription_id: str) -> None:
        """Start a survey of a subscription. Raises UnknownSubscriptionError."""
        compiled = engine._compiled(subscription_id)
        if compiled is None:
            raise UnknownSubscriptionError(subscription_id)
        self._options, self._compiled = engine._options, compiled
        self._rows: dict[tuple[str, str], Row] = {}
        self.id = subscription_id
        self.nearest: list[Nearest] = []
        self.seen = self.matched = self.costly = self.ignored = 0
        self._remaining: float = effort.UNITS

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def see(self, number: int, event: EventSource, tenant: str | None = None, collection: str | None = None) -> None:
        """Evaluate one event. Raises EventError."""
        try:
            changes = self._options.read_all(event, tenant, collection)
        except IgnoredEvent:
            self.seen += 1
            self.ignored += 1
            return
        self.seen += 1
        with EFFORT.bounded(self.EACH + self._remaining):
            self._see(number, deciding(self._compiled, changes, self._options)[0])
            self._remaining = max(min(self._remaining, EFFORT.remaining), 0)

    def _see(self, number: int, judged: Judgement) -> None:
        rows = list(operands_of(judged, self._options))
        failed = [row for row in rows if row[0].verdict in FAILS]
        for condition, _ in rows:
            if not condition.place:
                continue  # it stands for conditions that were too costly
            row = self._rows.setdefault((condition.place, condition.text), Row(condition))
            row.verdicts[condition.verdict] += 1
        if judged.outcome is not None:
            self.matched += 1
            return
        if EFFORT.is_spent:
            self.costly += 1
            return
        if len(failed) == 1:
            only = failed[0][0]
            self._rows[only.place, only.text].alone += 1
        if failed:
            distances = [_distance(condition, part, judged.event, self._options) for condition, part in failed]
            near = Nearest(number, [f"{on_one_line(each.text)}: {outcome_of(each)}" for each, _ in failed], sum(distances))
            self.nearest = sorted([*self.nearest, near], key=lambda each: (len(each.failed), each.distance))[: self.SHOWN]

    def to_dict(self) -> dict[str, Any]:
        """Return the survey as plain JSON values."""
        return {
            "subscription_id": self.id,
            "events": self.seen,
            "matched": self.matched,
            "too_costly": self.costly,
            "ignored": self.ignored,
            "conditions": [
                {
                    "place": row.condition.place,
                    "text": row.condition.text,
                    **{verdict.value: row.verdicts[verdict] for verdict in Verdict},
                    "failed_alone": row.alone,
                }
                for row in self.rows
            ],
            "nearest": [{"event": each.number, "failed": list(each.failed), "distance": each.distance} for each in self.nearest],
        }
