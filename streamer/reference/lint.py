"""What is suspicious about one subscription: that it never matches, always matches, or is slow.

Every finding is proven from the normal form: a subscription that is reported never to match matches no event at all.
The converse does not hold: many a contradiction (between two regular expressions, say) is not looked for.

Cost: quadratic in the conditions on one path.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamer.cel_eval import constant_verdict
from streamer.core.lint import Examined, FindingCode, remarked
from streamer.model import Limits, Verdict
from streamer.subscriptions.atoms import INDEXABLE, PRESENT, Atom, InTopic, IsKind, Mode
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.contradictions import contradiction
from streamer.subscriptions.impossible import impossible
from streamer.subscriptions.matchers import Absent, Wildcard
from streamer.subscriptions.normal_form import Conjunction, NormalForm, normal_form


def examine(compiled: CompiledSubscription, limits: Limits) -> Examined:
    """Look at one subscription."""
    subscription = compiled.subscription
    form = normal_form(compiled, limits)
    found = tuple(_found(compiled, form, limits))
    identity = (
        compiled.tenant,
        compiled.collection,
        subscription.gateway_id,
        subscription.on_unknown,
        subscription.transitions,
        form,
    )
    return Examined(subscription.id, found if compiled.cel is None else (*found, *remarked(compiled.cel.remarks)), identity)


def _found(compiled: CompiledSubscription, form: NormalForm, limits: Limits) -> Iterable[tuple[str, str]]:
    constant = None if compiled.cel is None else constant_verdict(compiled.cel, limits.cel_budget)
    contradictions = [contradiction(conjunction.clauses) for conjunction in form.conjunctions]
    if constant is not None and constant is not Verdict.TRUE:
        yield FindingCode.NEVER_MATCHES, f"cel: it is {'false' if constant is Verdict.FALSE else 'an error'} for every event"
    elif all(contradictions):
        yield FindingCode.NEVER_MATCHES, "; or ".join(sorted({str(reason) for reason in contradictions}))
    elif (reason := impossible(compiled, form, limits)) is not None:
        yield FindingCode.NEVER_MATCHES, reason
    elif _asks_something(compiled) and any(_tautology(conjunction, constant) for conjunction in form.conjunctions):
        yield FindingCode.ALWAYS_MATCHES, "its conditions hold for every event"
    elif _asks_something(compiled) and not all(map(_indexable, form.conjunctions)):
        yield FindingCode.SLOW, "no index can narrow it down: it is evaluated for every event of its collection"


def _asks_something(compiled: CompiledSubscription) -> bool:
    parts = (compiled.types, compiled.pattern, compiled.topic, compiled.cel)
    return bool(compiled.filters) or any(part is not None for part in parts)


def _indexable(conjunction: Conjunction) -> bool:
    return any(all(map(_narrows_down, clause.atoms)) for clause in conjunction.clauses)


def _narrows_down(atom: Atom) -> bool:
    match atom:
        case InTopic(pattern=pattern):
            return any(isinstance(word, str) for word in pattern.words)
        case Wildcard(pieces=pieces):
            return any(pieces)
        case _:
            return isinstance(atom, INDEXABLE)


def _tautology(conjunction: Conjunction, constant: Verdict | None) -> bool:
    residuals = {residual for residual in conjunction.residuals if not (residual.part == "cel" and constant is Verdict.TRUE)}
    return not residuals and all(
        clause.mode is Mode.LEAF and {IsKind(PRESENT), Absent()} <= clause.atoms for clause in conjunction.clauses
    )
