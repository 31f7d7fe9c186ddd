"""Evaluate the parts of a subscription for one event: together for a match, one by one for `explain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, final

from streamer.cel_eval import CelReason, Program
from streamer.cel_eval.program import Outcome, evaluate_cel
from streamer.cel_eval.times import format_timestamp
from streamer.cel_eval.values import Timestamp
from streamer.effort import EFFORT, TOO_COSTLY, TooCostlyError
from streamer.model import BeyondFloat64, Event, Limits, Verdict
from streamer.reference.filters import MISSING, Absence, combined, evaluate_filter, evaluate_group, read_field
from streamer.reference.patterns import evaluate_pattern, values_at
from streamer.reference.searches import REFUSED
from streamer.reference.stopwatch import CEL_TIME
from streamer.reference.topics import topic_matches
from streamer.subscriptions.cel_text import cel_path
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.groups import CompiledGroup, filters_in, joined
from streamer.subscriptions.matchers import AnythingBut, Matcher
from streamer.subscriptions.operands import type_name
from streamer.subscriptions.patterns import AllOf, AnyOf, Field, Pattern
from streamer.subscriptions.places import Place
from streamer.subscriptions.subscription import EVERY

CEL_BUDGET = Limits().cel_budget
#: The most values that the text of a condition shows.
SHOWN_VALUES: Final = 1_000
#: The most steps of a path for which the text of a filter is its CEL.
SHOWN_STEPS: Final = 32
#: What it costs to evaluate and to show a condition, and to read a path.
_UNITS_A_ROW, _UNITS_A_PATH = 15, 2
#: The variables of CEL that are documents.
_DOCUMENTS = ("data", "before", "envelope")
_SPENT = "the choice of array elements for its pattern takes more than its budget"

Part: TypeAlias = CompiledFilter | CompiledGroup | Field | AnyOf | Program | None
"""The part of a subscription that a condition shows; None for tenant, collection, types, topic, and a pattern as a whole."""

OnCelError: TypeAlias = Callable[[str, CelReason, str | None], None]
"""Takes the subscription's id, the reason and the reason in words."""


@final
class Values(dict[str, Any]):
    """The values that a condition on several paths read: each path as text, with its value or an `Absence`."""


@final
@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a subscription, with its result for one event.

    Attributes:
        kind: the part of the subscription.
        text: the condition, for people.
        place: the position of the condition in the subscription.
        seen: the value that it read, for a pattern the list of leaves; an `Absence` if there is none; `Values` for CEL and for
            alternatives of a pattern. Those of a group of filters are empty: its parts have the values.
        verdict: the result.
        reason: the reason for the verdict, if the value does not show it; for an error of CEL its fixed word and the details.
        parts: for CEL, the operands of its `&&` or `||`; for a group of filters, its entries.
        decided: for such a part, whether it is sufficient for the verdict of the whole.
        hint: the path that was probably meant, if the event has no value at a path, or one that is not searched.
    """

    kind: Literal["tenant", "collection", "types", "topic", "filter", "pattern", "cel"]
    text: str
    place: str
    seen: Any
    verdict: Verdict
    reason: str | None = None
    parts: tuple[Condition, ...] = ()
    decided: bool = False
    hint: str | None = None


def evaluate(
    compiled: CompiledSubscription, event: Event, *, budget: int = CEL_BUDGET, on_cel_error: OnCelError | None = None
) -> Verdict:
    """Return the verdict of all parts of a subscription together, for the event after the change."""
    # Drop searches that this thread refused before, for example in `explain` or a `Quamina`: they are not about this event.
    REFUSED.take()
    verdicts = []
    for verdict in _verdicts(compiled, event, budget, on_cel_error):
        verdicts.append(verdict)
        if verdict is Verdict.FALSE:
            break
    for reason, detail in REFUSED.take():
        if on_cel_error is not None:
            on_cel_error(compiled.id, reason, detail)
    return Verdict.all(verdicts)


def conditions(compiled: CompiledSubscription, event: Event, *, budget: int = CEL_BUDGET) -> list[tuple[Condition, Part]]:
    """Return each condition of a subscription with its result for an event, in the order of the subscription's members.

    If the answer has used its units, the last one stands for all others; its place is empty.
    """
    REFUSED.begin()
    rows: list[tuple[Condition, Part]] = [(each, None) for each in _conditions_of_parts(compiled, event)]
    count = len(rows) + len(compiled.filters) + len(compiled.groups) + (compiled.cel is not None) + compiled.omitted
    if compiled.pattern is not None:
        fields = len(compiled.pattern.root.fields)
        count += fields + (fields > 1)  # all fields together are a condition, too
    for condition, part in _conditions_on_documents(compiled, event, budget):
        rows.append((condition, part))
        if EFFORT.is_spent:
            break
    else:
        count = len(rows) + compiled.omitted
    if remaining := count - len(rows):
        text = f"more conditions: {remaining:,}"
        rows.append((Condition(rows[-1][0].kind, text, "", Values(), Verdict.UNKNOWN, TOO_COSTLY), None))
    return rows


def _conditions_on_documents(compiled: CompiledSubscription, event: Event, budget: int) -> Iterator[tuple[Condition, Part]]:
    for each in compiled.filters:
        yield _condition_of_filter(each, event), each
    for group in compiled.groups:
        yield _condition_of_group(group, event), group
    if compiled.pattern is not None:
        yield from _pattern_conditions(compiled.pattern, event)
    if compiled.cel is not None:
        yield condition_of_cel(compiled.cel, event, budget), compiled.cel


def _conditions_of_parts(compiled: CompiledSubscription, event: Event) -> Iterator[Condition]:
    yield Condition("tenant", f"tenant {compiled.tenant!r}", "tenant", event.tenant, _of_tenant(compiled, event))
    if compiled.collection is not None:
        verdict = _of_collection(compiled, event)
        text = f"collection {compiled.collection!r}"
        yield Condition("collection", text, "collection", _or_missing(event.collection), verdict)
    if compiled.types is not None:
        text = " or ".join(sorted(compiled.types))
        yield Condition("types", text, "types", _or_missing(event.type), _of_types(compiled, event))
    if compiled.topic is not None:
        text, verdict = str(compiled.topic), _of_topic(compiled, event)
        yield Condition("topic", text, "topic", _or_missing(event.topic), verdict, _why_refused())


def _condition_of_filter(condition: CompiledFilter, event: Event) -> Condition:
    steps = len(condition.path.names)
    text = _text_of(condition)
    try:
        EFFORT.spend(_UNITS_A_ROW + steps // 8 + len(text) // 1_000)
        verdict, actual = evaluate_filter(condition, event)
        reason = _why_error(condition, actual) if verdict is Verdict.ERROR else _why_refused()
    except TooCostlyError:
        actual = read_field(condition.path.root.value, condition.path.names, event).value
        verdict, reason = Verdict.UNKNOWN, TOO_COSTLY
    if condition.op.mentions_before:
        actual = _both(condition, event)
    return Condition("filter", text, condition.place, actual, verdict, reason)


#: The longest text of a group that repeats those of its entries, in characters.
_LONGEST_GROUP: Final = 1_000


def _condition_of_group(group: CompiledGroup, event: Event) -> Condition:
    """Return the result of a group, with that of each entry until the answer has used its units.

    Recursive: the depth of groups is bounded.
    """
    EFFORT.remaining -= _UNITS_A_ROW
    parts: list[Condition] = []
    for each in group.entries:
        of = _condition_of_filter(each, event) if isinstance(each, CompiledFilter) else _condition_of_group(each, event)
        parts.append(of)
        if EFFORT.is_spent:
            break
    texts = [part.text for part in parts]
    if remaining := len(group.entries) - len(parts):
        texts.append(f"more conditions: {remaining:,}")
    # The entries have their texts, too: one that is long would be there at each level.
    is_short = sum(map(len, texts)) <= _LONGEST_GROUP
    text = joined(group.op, texts if is_short else [f"conditions: {len(group.entries):,}"])
    if EFFORT.is_spent:
        return Condition("filter", text, group.place, Values(), Verdict.UNKNOWN, TOO_COSTLY, tuple(parts))
    verdict = combined(group.op, [part.verdict for part in parts])
    return Condition("filter", text, group.place, Values(), verdict, parts=marked(parts, verdict))


def marked(parts: Sequence[Condition], whole: Verdict) -> tuple[Condition, ...]:
    """Return the parts of a condition, those that are sufficient for its verdict marked as such."""
    agreeing = {part.verdict for part in parts} == {whole}
    return tuple(replace(part, decided=not agreeing and part.verdict is whole) for part in parts)


def condition_of_cel(program: Program, event: Event, budget: int) -> Condition:
    """Return the result of a program, with the value at each path that it reads."""
    try:
        EFFORT.spend(_UNITS_A_PATH * len(program.fields))
        outcome = _evaluate_cel(program, event, budget)
    except TooCostlyError:
        return Condition("cel", program.source, "cel", Values(), Verdict.UNKNOWN, TOO_COSTLY)
    reason = outcome.reason and f"{outcome.reason}: {outcome.detail}"
    return Condition("cel", program.source, "cel", _values_of_cel(program, event), outcome.verdict, reason)


def _evaluate_cel(program: Program, event: Event, budget: int) -> Outcome:
    """Return the outcome of a program, within *budget* and the remaining units of the answer. Raises TooCostlyError."""
    EFFORT.spend(1)
    most = min(budget, EFFORT.remaining)
    outcome = evaluate_cel(program, event, int(most))
    if outcome.reason is CelReason.BUDGET and most < budget:
        EFFORT.remaining = -1
        raise TooCostlyError
    # The evaluation is finished, so a cost beyond the remaining units is not an error.
    EFFORT.remaining = max(EFFORT.remaining - outcome.cost, 0)
    return outcome


# The parts, cheapest first


def _verdicts(compiled: CompiledSubscription, event: Event, budget: int, on_cel_error: OnCelError | None) -> Iterator[Verdict]:
    yield _of_tenant(compiled, event)
    yield _of_collection(compiled, event)
    yield _of_types(compiled, event)
    yield _of_topic(compiled, event)
    for condition in compiled.filters:
        yield evaluate_filter(condition, event)[0]
    for group in compiled.groups:
        yield evaluate_group(group, event)
    if compiled.pattern is not None:
        verdict = evaluate_pattern(compiled.pattern, event.raw, event.unknown)
        if verdict is Verdict.ERROR and on_cel_error is not None:
            on_cel_error(compiled.id, CelReason.PATTERN_BUDGET, _SPENT)
        yield verdict
    if compiled.cel is not None:
        began = time.perf_counter_ns()
        outcome = _evaluate_cel(compiled.cel, event, budget)
        CEL_TIME.add(time.perf_counter_ns() - began)
        if outcome.reason is not None and on_cel_error is not None:
            on_cel_error(compiled.id, outcome.reason, outcome.detail)
        yield outcome.verdict


def _of_tenant(compiled: CompiledSubscription, event: Event) -> Verdict:
    return Verdict.of(compiled.tenant in (EVERY, event.tenant))


def _of_collection(compiled: CompiledSubscription, event: Event) -> Verdict:
    return Verdict.of(compiled.collection is None or compiled.collection == event.collection)


def _of_types(compiled: CompiledSubscription, event: Event) -> Verdict:
    if compiled.types is None:
        return Verdict.TRUE
    return Verdict.UNKNOWN if "type" in event.unknown_parts else Verdict.of(event.type in compiled.types)


def _of_topic(compiled: CompiledSubscription, event: Event) -> Verdict:
    if compiled.topic is None:
        return Verdict.TRUE
    return Verdict.UNKNOWN if "topic" in event.unknown_parts else Verdict.of(topic_matches(compiled.topic, event.topic))


# Conditions for explain()


def _both(condition: CompiledFilter, event: Event) -> Values:
    """Return the values at the path of a filter in both documents."""
    names = condition.path.names
    return Values((cel_path(root, names), read_field(root, names, event).value) for root in ("before", "data"))


def _why_error(condition: CompiledFilter, actual: Any) -> str:
    if actual is MISSING:
        return "the field is missing, or a step of its path is not an object"
    if isinstance(actual, BeyondFloat64):
        return "a number beyond float64 cannot be read"
    return f"{condition.op.name!r} does not take {type_name(actual)} with this value"


def _why_refused() -> str | None:
    refused = REFUSED.take()
    return refused[-1][1] if refused else None


def _values_of_cel(program: Program, event: Event) -> Values:
    """Return the value at each path that a program reads."""
    strings = {"collection": event.collection, "tenant": event.tenant, "type": event.type, "topic": event.topic}
    values = Values()
    for root, *names in sorted(program.fields):
        value: Any
        if root in event.unknown_parts:
            value = Absence.UNKNOWN
        elif root in _DOCUMENTS:
            value = read_field(root, tuple(names), event).value
            if value is MISSING and not names:
                value = None  # CEL reads a missing document as null
        elif root == "ts":
            value = None if event.ts_ns is None else format_timestamp(Timestamp(event.ts_ns))
        else:
            value = strings[root] or ""
        values[cel_path(root, tuple(names))] = value
    return values


def size_of(compiled: CompiledSubscription) -> int:
    """Return the number of filters and values in a subscription: the cost to print all of it."""
    filters = filters_in((*compiled.filters, *compiled.groups))
    sizes = sum(1 + len(each.value) if isinstance(each.value, list) else 1 for each in filters)
    fields = [] if compiled.pattern is None else fields_of(compiled.pattern.root)
    matchers = (matcher for each in fields for matcher in each.matchers)
    return sizes + sum(len(each.matchers) if isinstance(each, AnythingBut) else 1 for each in matchers)


def _text_of(condition: CompiledFilter) -> str:
    """Return a filter as text, with only the first values of a long list."""
    value, more = condition.value, ""
    if isinstance(value, list) and len(value) > SHOWN_VALUES:
        more = f" {_more(len(value))}"
        condition = replace(condition, value=value[:SHOWN_VALUES])
    # CEL repeats each step of a path for every step below it, and ignores case by regexps.
    is_long = condition.op.mentions_before or condition.op.ignores_case or len(condition.path.names) > SHOWN_STEPS
    return f"{condition.in_words() if is_long else condition.to_cel()}{more}"


def _in_words(matchers: Sequence[Matcher]) -> str:
    """Return matchers as text, with only the first of many."""
    shown = [
        f"{replace(each, matchers=each.matchers[:SHOWN_VALUES])} {_more(len(each.matchers))}"
        if isinstance(each, AnythingBut) and len(each.matchers) > SHOWN_VALUES
        else str(each)
        for each in matchers[:SHOWN_VALUES]
    ]
    return " or ".join(shown) if len(matchers) <= SHOWN_VALUES else f"{' or '.join(shown)} {_more(len(matchers))}"


def _more(count: int) -> str:
    return f"(and {count - SHOWN_VALUES:,} more values)"


def _place(root: str, path: tuple[str, ...]) -> str:
    place = Place(None, root)
    for name in path:
        place = Place(place, name)
    return str(place)


def _pattern_conditions(pattern: Pattern, event: Event) -> Iterator[tuple[Condition, Part]]:
    """Yield a condition for each field and `$or` of a pattern, and one for the whole if only the choice of elements fails."""
    verdicts: list[Verdict] = []
    reason: str | None
    for part, alone in zip(pattern.root.fields, _parts_of(pattern), strict=True):
        verdict, reason = _verdict_of(alone, event)
        verdicts.append(verdict)
        if isinstance(part, Field):
            place = _place("pattern", part.path)
            actual: Any = _leaves_at(part.path, event)
            text = f"{_place('', part.path)}: {_in_words(part.matchers)}"
        else:
            actual = _leaves_of(part, event)
            place, text = "pattern.$or", f"any of {len(part.alternatives)} alternatives"
            if (path := _only_path(part)) is not None:
                place, text = _place("pattern", path), f"{_place('', path)}: {_in_words_of_choice(part)}"
        yield Condition("pattern", text, place, actual, verdict, reason), part
    apart = Verdict.all(verdicts)
    if len(verdicts) == 1 or apart is Verdict.FALSE or EFFORT.is_spent:
        return
    whole, reason = _verdict_of(pattern, event)
    if whole is not Verdict.ERROR and reason != TOO_COSTLY:
        known = "" if whole is Verdict.FALSE else ", as far as is known"
        reason = f"each part is true, but not for the same elements of the arrays{known}"
    if whole is not apart or reason == TOO_COSTLY:
        yield Condition("pattern", "all fields together", "pattern", Values(), whole, reason), None


def _parts_of(pattern: Pattern) -> Iterator[Pattern]:
    """Yield a pattern for each field and `$or`, always the same ones, so that what their evaluation needs is made once."""
    if len(pattern.root.fields) == 1:
        yield pattern
        return
    cache: dict[int, Pattern] = vars(pattern).setdefault("parts", {})
    for at, part in enumerate(pattern.root.fields):
        if at not in cache:
            cache[at] = replace(pattern, root=AllOf((part,)))
        yield cache[at]


def _only_path(choice: AnyOf) -> tuple[str, ...] | None:
    """Return the path of a choice between conditions on one field, as `all` makes; None for another `$or`."""
    paths = {part.path if isinstance(part, Field) else None for one in choice.alternatives for part in one.fields}
    return paths.pop() if len(paths) == 1 else None


def _in_words_of_choice(choice: AnyOf) -> str:
    shown = (
        " and ".join(_in_words(part.matchers) for part in one.fields if isinstance(part, Field))
        for one in choice.alternatives[:SHOWN_VALUES]
    )
    return " or ".join(shown)


def _verdict_of(pattern: Pattern, event: Event) -> tuple[Verdict, str | None]:
    """Return the verdict of a pattern, and the reason if the leaves do not show it."""
    try:
        EFFORT.spend(_UNITS_A_ROW)
        verdict = evaluate_pattern(pattern, event.raw, event.unknown)
        return verdict, _SPENT if verdict is Verdict.ERROR else _why_refused()
    except TooCostlyError:
        return Verdict.UNKNOWN, TOO_COSTLY


def _leaves_at(path: tuple[str, ...], event: Event) -> Any:
    """Return the leaves at a path, or an `Absence`."""
    try:
        EFFORT.spend(_UNITS_A_PATH + len(path))
        return values_at(event.raw, path) or MISSING
    except TooCostlyError:
        return Absence.UNKNOWN


def _leaves_of(choice: AnyOf, event: Event) -> Values:
    """Return the leaves at each path of a `$or`, as far as the budget of the answer allows."""
    leaves = Values()
    with suppress(TooCostlyError):
        EFFORT.spend(sum(len(field.path) for field in fields_of(AllOf((choice,)))))
        for path in sorted({field.path for field in fields_of(AllOf((choice,)))}):
            if EFFORT.is_spent:
                break
            leaves[_place("", path)] = _leaves_at(path, event)
    return leaves


def fields_of(root: AllOf) -> Iterator[Field]:
    pending: list[Field | AnyOf] = list(root.fields)
    while pending:
        part = pending.pop()
        if isinstance(part, Field):
            yield part
        else:
            pending.extend(inner for alternative in part.alternatives for inner in alternative.fields)


def _or_missing(value: str | None) -> Any:
    return MISSING if value is None else value
