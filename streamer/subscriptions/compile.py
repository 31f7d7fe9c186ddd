"""Compile a subscription: each part is parsed by its own module, and then ready to be evaluated or lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from streamer.cel_eval import Program, ProgramCache
from streamer.effort import TooCostlyError
from streamer.errors import CelError, SubscriptionError
from streamer.model import CelEvaluator, Limits, TopicDialect
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.groups import CompiledGroup, compile_entry, placed_filters
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.parse import named, parse_subscription
from streamer.subscriptions.patterns import Pattern, parse_pattern
from streamer.subscriptions.sizes import Size
from streamer.subscriptions.subscription import EVERY, Filter, FilterGroup, Subscription
from streamer.subscriptions.topics import TopicPattern, parse_topic

_LIMITS = Limits()


@final
@dataclass(frozen=True, slots=True)
class CompiledSubscription:
    """A checked subscription with its parts parsed.

    Attributes:
        subscription: the subscription as the user wrote it, with its shape checked.
        tenant: a name, or `"*"` for every tenant.
        collection: a name; None for every collection.
        types: the accepted types; None for all.
        groups: the groups among its filters.
        cost: the units of an answer (`streamer.effort`) that it took to read it.
        omitted: how many filters, groups, patterns and expressions were not read, because the current answer has too few units.
        mentions_before: whether a filter or the CEL expression reads `before`, so that it is evaluated once (semantics.md 7.13).
            For a pattern, that depends on the layout: see `streamer.reference.transition.mentions_before`.
    """

    subscription: Subscription
    tenant: str
    collection: str | None
    types: frozenset[str] | None
    filters: tuple[CompiledFilter, ...]
    groups: tuple[CompiledGroup, ...]
    pattern: Pattern | None
    topic: TopicPattern | None
    cel: Program | None
    mentions_before: bool
    cost: float = 0
    omitted: int = 0

    @property
    def id(self) -> str:
        return self.subscription.id


def compile_subscription(
    source: Subscription | Mapping[str, Any] | bytes | str,
    *,
    default_tenant: str | None = "default",
    topic_dialect: TopicDialect = "amqp",
    limits: Limits = _LIMITS,
    programs: ProgramCache,
    default: Callable[[Any], Any] | None = None,
) -> CompiledSubscription:
    """Return a subscription with all its parts parsed, after checking it in full.

    Args:
        source: a `Subscription`, a mapping, or the JSON text of one.
        default_tenant: the tenant of a subscription without one; None if it must have one.
        topic_dialect: the dialect of a topic pattern that does not name one.
        limits: bounds on its regexps, its pattern and its CEL expression.
        programs: compiles equal CEL expressions once and shares them; it has the functions and the evaluator of the engine.
        default: converts values that JSON does not have, as in `json.dumps`.

    Raises:
        SubscriptionError: the first fault, with its place; PatternError and CelError for those parts.
    """
    subscription = parse_subscription(source, default=default)
    try:
        return _compile(subscription, default_tenant, topic_dialect, limits, programs)
    except SubscriptionError as error:
        raise named(error, subscription.id) from None


def _compile(
    subscription: Subscription, default_tenant: str | None, topic_dialect: TopicDialect, limits: Limits, programs: ProgramCache
) -> CompiledSubscription:
    tenant = subscription.tenant if subscription.tenant is not None else default_tenant
    if tenant is None:
        raise SubscriptionError(
            "expected a tenant, since the engine has no default tenant; '*' means every tenant", place="tenant"
        )
    size = Size(limits)
    checked = cast("Sequence[Filter | FilterGroup]", subscription.filters)  # by parse_subscription
    placed = list(placed_filters(checked))
    size.add_filters(placed)
    entries: list[CompiledFilter | CompiledGroup] = []
    pattern = topic = program = None
    omitted = 0
    for index, item in enumerate(checked):
        try:
            entries.append(compile_entry(item, f"filters[{index}]", limits, size))
        except TooCostlyError:
            omitted += 1
    if subscription.pattern is not None:
        try:
            pattern = parse_pattern(subscription.pattern, dialect=subscription.dialect, limits=limits, place="pattern", size=size)
        except TooCostlyError:
            omitted += 1
    if subscription.topic is not None:
        topic = parse_topic(subscription.topic, subscription.topic_dialect or topic_dialect)
    if subscription.cel is not None:
        try:
            size.spend(len(subscription.cel))
            program = _compile_cel(subscription.cel, subscription.cel_evaluator, limits, programs)
        except TooCostlyError:
            omitted += 1
    return CompiledSubscription(
        subscription=subscription,
        tenant=tenant,
        collection=None if subscription.collection == EVERY else subscription.collection,
        types=None if subscription.types is None else frozenset(subscription.types),
        filters=tuple(each for each in entries if isinstance(each, CompiledFilter)),
        groups=tuple(each for each in entries if isinstance(each, CompiledGroup)),
        pattern=pattern,
        topic=topic,
        cel=program,
        mentions_before=any(OPERATORS[item.op].mentions_before for _, item in placed)
        or (program is not None and program.mentions_before),
        cost=size.cost,
        omitted=omitted,
    )


def _compile_cel(source: str, evaluator: CelEvaluator | None, limits: Limits, programs: ProgramCache) -> Program:
    try:
        return programs.compile(source, limits, evaluator)
    except CelError as error:
        error.place = "cel"
        raise
