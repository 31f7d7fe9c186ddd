"""How an engine finds and decides a subscription: what its author can do to make it cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

from streamer.cel_eval.narrowing import narrowing
from streamer.model import CelEvaluator, Limits
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.keys import access_keys
from streamer.subscriptions.normal_form import Residual, normal_form

CostClass = Literal["keyed", "indexed", "unkeyed"]

#: A range has a few dozen keys; more than this many of anything are counted, not printed.
SHOWN = 8

_COSTS = {
    "keyed": "judged only for events that carry one of its access keys",
    "indexed": "judged only for events with a value in its ranges, prefixes and the like",
    "unkeyed": "judged for every event of its partition; an equality in every alternative would give it a key",
}


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The way of one subscription through the engine; `str()` prints it as a small table.

    Attributes:
        subscription_id: the subscription.
        tenant: a name, or `"*"` for every tenant.
        collection: a name, or `"*"` for every collection.
        normal_form: its conjunctions, each as its conditions in text: all of any conjunction make it match.
        access_keys: values of which every matching event carries one, as text; None where nothing is so telling.
        bloom_keys: the same as the bytes that go into the collection's filter; empty where it is unkeyed.
        cel: the CEL program that runs on candidates, as written; None without one, or where clauses say all of it (native only).
        evaluator: what evaluates it; None where *cel* is None.
        residual: what is evaluated as written because no clause expresses it.
        cost: for which events it is judged: `keyed`, `indexed` (native only), `unkeyed`.
        decided_by: what judges it.
    """

    subscription_id: str
    tenant: str
    collection: str
    normal_form: tuple[tuple[str, ...], ...]
    access_keys: tuple[str, ...] | None
    bloom_keys: tuple[bytes, ...]
    cel: str | None
    residual: tuple[str, ...]
    cost: CostClass
    decided_by: str
    evaluator: CelEvaluator | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the plan as pairs of a heading, empty where it goes on, and a text."""

        def block(heading: str, lines: tuple[str, ...], none: str) -> Iterator[tuple[str, str]]:
            yield heading, lines[0] if lines else none
            yield from (("", line) for line in lines[1:SHOWN])
            if len(lines) > SHOWN:
                yield "", f"and {len(lines) - SHOWN} more"

        yield "partition", f"tenant {self.tenant!r}, collection {self.collection!r}"
        lines = []
        for at, conditions in enumerate(self.normal_form):
            first, *others = conditions or ("everything",)
            lines += [f"or {first}" if at else first, *(f"and {condition}" for condition in others)]
        yield from block("normal form", tuple(lines), "nothing: it never matches")
        yield from block("access keys", self.access_keys or (), "none" if self.access_keys is None else "none can match")
        yield from block("Bloom keys", tuple(key.decode() for key in self.bloom_keys), "none")
        yield "CEL", self.cel if self.cel is not None else "none"
        if self.evaluator == "portable":
            yield "", "evaluated by cel-python on candidates"
        yield from block("residual", self.residual, "none")
        yield "cost", f"{self.cost}: {_COSTS[self.cost]}"
        yield "decided by", self.decided_by

    def __str__(self) -> str:
        return "\n".join([f"plan of {self.subscription_id!r}", *(f"  {heading:12} {text}" for heading, text in self.rows())])


def make_plan(compiled: CompiledSubscription, limits: Limits) -> Plan:
    """Plan a subscription as the reference runs it: by access keys, then judged whole."""
    form = normal_form(compiled, limits)
    keys = access_keys(form)
    ordered = sorted(keys or (), key=str)
    residuals = {str(residual) for conjunction in form.conjunctions for residual in conjunction.residuals}
    return Plan(
        subscription_id=compiled.subscription.id,
        tenant=compiled.tenant,
        collection=compiled.collection if compiled.collection is not None else "*",
        normal_form=tuple(sorted((*sorted(map(str, c.clauses)), *sorted(map(str, c.residuals))) for c in form.conjunctions)),
        access_keys=None if keys is None else tuple(map(str, ordered)),
        bloom_keys=tuple(key.to_bytes() for key in ordered),
        cel=compiled.cel.source if compiled.cel is not None else None,
        residual=tuple(sorted(residuals)),
        cost="unkeyed" if keys is None else "keyed",
        decided_by="the reference" if not is_portable(compiled) else "the reference, then cel-python on candidates",
        evaluator=None if compiled.cel is None else "portable" if is_portable(compiled) else "native",
    )


def is_portable(compiled: CompiledSubscription) -> bool:
    """Tell whether cel-python evaluates the CEL part of a subscription."""
    return compiled.cel is not None and compiled.cel.is_portable


def native_plan(
    compiled: CompiledSubscription,
    limits: Limits,
    cost: Literal["keyed", "indexed", "unindexed"],
    lower: Callable[[str, int], tuple[list[list[str]], bool, list[str] | None]],
) -> Plan:
    """Plan a subscription as the native core runs it: by its index, then what is left of its CEL.

    Args:
        cost: how the core finds it.
        lower: tells what the index decides of an expression, in at most so many alternatives, whether that is all of it, and by
            which equality it finds each.
    """
    plan = replace(make_plan(compiled, limits), cost="unkeyed" if cost == "unindexed" else cost, decided_by="the native index")
    if compiled.cel is None:
        return plan
    portable = compiled.cel.is_portable
    if portable:
        plan = replace(plan, decided_by="the native index, then cel-python on candidates")
    lowered = narrowing(compiled.cel) if portable else compiled.cel.source
    if lowered is None:
        return plan
    written = str(Residual("cel", compiled.cel.source))
    alternatives, is_all, access = lower(lowered, max(1, limits.max_conjunctions // max(1, len(plan.normal_form))))
    others = [[condition for condition in conditions if condition != written] for conditions in plan.normal_form]
    rest = () if is_all and not portable else (written,)
    form = {(*sorted({*other, *alternative}), *rest) for other in others for alternative in alternatives}
    plan = replace(plan, normal_form=tuple(sorted(form)))
    if plan.access_keys is None and access is not None:
        plan = replace(plan, access_keys=tuple(sorted(set(access))))
    if portable:
        return plan
    if is_all:
        residual = tuple(text for text in plan.residual if text != written)
        return replace(plan, cel=None, evaluator=None, residual=residual)
    return replace(plan, decided_by="the native index, then its CEL natively")
