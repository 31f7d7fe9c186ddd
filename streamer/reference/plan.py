"""How the reference finds and decides a subscription."""

from __future__ import annotations

from streamer.core.plan import Plan
from streamer.model import Limits
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.keys import access_keys
from streamer.subscriptions.normal_form import normal_form


def make_plan(compiled: CompiledSubscription, limits: Limits) -> Plan:
    """Plan a subscription as the reference runs it: by access keys, then evaluated whole."""
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
        decided_by="the reference" if not _is_portable(compiled) else "the reference, then cel-python on candidates",
        evaluator=None if compiled.cel is None else "portable" if _is_portable(compiled) else "native",
    )


def _is_portable(compiled: CompiledSubscription) -> bool:
    """Return whether cel-python evaluates the CEL part of a subscription."""
    return compiled.cel is not None and compiled.cel.is_portable
