"""How the reference finds and decides a subscription."""

from __future__ import annotations

from typing import Final

from streamer.core.estimate import Effort, alone
from streamer.core.plan import Plan, keys_in_words
from streamer.model import TOO_COSTLY, Limits
from streamer.reference.conditions import size_of
from streamer.reference.lint import found_by
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.keys import Key, access_keys
from streamer.subscriptions.normal_form import NormalForm, normal_form

#: A subscription with more values is planned without its form, which would take longer than an answer may.
_MOST_VALUES: Final = 10_000


def plan_of(compiled: CompiledSubscription, keys: frozenset[Key] | None, limits: Limits) -> Plan:
    """Plan a subscription as the reference runs it: by its access keys, then evaluated whole."""
    form = normal_form(compiled, limits) if size_of(compiled) <= _MOST_VALUES else None
    if form is not None:
        effort = alone(found_by(compiled, form, limits))
    else:
        effort = Effort.EVALUATED if keys is None else Effort.VERIFIED
    encoded, texts = keys_in_words(key.to_bytes() for key in keys or ())
    return Plan(
        subscription_id=compiled.subscription.id,
        tenant=compiled.tenant,
        collection=compiled.collection if compiled.collection is not None else "*",
        normal_form=((TOO_COSTLY,),) if form is None else _form_in_words(form),
        access_keys=None if keys is None else texts,
        bloom_keys=encoded,
        cel=compiled.cel.source if compiled.cel is not None else None,
        residual=(TOO_COSTLY,) if form is None else _residuals(form),
        cost="unkeyed" if keys is None else "keyed",
        effort=effort,
        decided_by="the reference" if not _is_portable(compiled) else "the reference, then cel-python on candidates",
        evaluator=None if compiled.cel is None else "portable" if _is_portable(compiled) else "native",
    )


def make_plan(compiled: CompiledSubscription, limits: Limits) -> Plan:
    """Plan a subscription that no engine has."""
    return plan_of(compiled, access_keys(normal_form(compiled, limits)), limits)


def _form_in_words(form: NormalForm) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted((*sorted(map(str, c.clauses)), *sorted(map(str, c.residuals))) for c in form.conjunctions))


def _residuals(form: NormalForm) -> tuple[str, ...]:
    return tuple(sorted({str(residual) for conjunction in form.conjunctions for residual in conjunction.residuals}))


def _is_portable(compiled: CompiledSubscription) -> bool:
    """Return whether cel-python evaluates the CEL part of a subscription."""
    return compiled.cel is not None and compiled.cel.is_portable
