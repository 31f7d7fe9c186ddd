"""Findings about one subscription: it never matches, or always matches; and the conditions by which an index would find it.

Every finding is proven from the normal form: if a subscription is reported as never matching, then it matches no event.
The converse is false: some contradictions, for example between two regular expressions, are not detected.

The reference has no index. `found_by` returns the conditions that the native core's index would use, so that `lint` reports the
same subscriptions as slow on both backends. The native core decides more of some expressions: indexes into lists, times, objects.

Cost: quadratic in the conditions on one path.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamer.cel_eval import constant_verdict
from streamer.core.estimate import Access, Rest, Sought
from streamer.core.lint import Examined, FindingCode, remarked
from streamer.model import Limits, Verdict
from streamer.subscriptions.atoms import (
    PRESENT,
    Atom,
    Clause,
    Contains,
    InTopic,
    IsKind,
    Kind,
    Mode,
    Not,
    Path,
    Range,
    Root,
    Size,
)
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.contradictions import contradiction
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.impossible import impossible, possible
from streamer.subscriptions.matchers import Absent, Equal, EqualsIgnoreCase, Prefix, Suffix, Wildcard
from streamer.subscriptions.normal_form import Conjunction, NormalForm, distribute, narrowed, normal_form
from streamer.subscriptions.subscription import EVERY


def examine(compiled: CompiledSubscription, limits: Limits) -> Examined:
    """Return the findings about one subscription, and how an index would find it."""
    subscription = compiled.subscription
    form = normal_form(compiled, limits)
    findings = tuple(_findings(compiled, form, limits))
    identity = (
        compiled.tenant,
        compiled.collection,
        subscription.gateway_id,
        subscription.on_unknown,
        subscription.transitions,
        form,
    )
    all_findings = findings if compiled.cel is None else (*findings, *remarked(compiled.cel.remarks))
    partition = (compiled.tenant, EVERY if compiled.collection is None else compiled.collection)
    return Examined(subscription.id, all_findings, identity, partition, found_by(compiled, form, limits))


def _findings(compiled: CompiledSubscription, form: NormalForm, limits: Limits) -> Iterable[tuple[str, str]]:
    constant = None if compiled.cel is None else constant_verdict(compiled.cel, limits.cel_budget)
    contradictions = [contradiction(conjunction.clauses) for conjunction in form.conjunctions]
    if constant is not None and constant is not Verdict.TRUE:
        yield FindingCode.NEVER_MATCHES, f"cel: it is {'false' if constant is Verdict.FALSE else 'an error'} for every event"
    elif all(contradictions):
        yield FindingCode.NEVER_MATCHES, "; or ".join(sorted({str(reason) for reason in contradictions}))
    elif (reason := impossible(compiled, form, limits)) is not None:
        yield FindingCode.NEVER_MATCHES, reason
    elif _asks_something(compiled) and any(_tautology(conjunction, constant) for conjunction in form.conjunctions):
        yield FindingCode.ALWAYS_MATCHES, "its conditions are true for every event"


def _asks_something(compiled: CompiledSubscription) -> bool:
    parts = (compiled.types, compiled.pattern, compiled.topic, compiled.cel)
    return bool(compiled.filters or compiled.groups) or any(part is not None for part in parts)


def _tautology(conjunction: Conjunction, constant: Verdict | None) -> bool:
    residuals = {residual for residual in conjunction.residuals if not (residual.part == "cel" and constant is Verdict.TRUE)}
    return not residuals and all(
        clause.mode is Mode.LEAF and {IsKind(PRESENT), Absent()} <= clause.atoms for clause in conjunction.clauses
    )


def found_by(compiled: CompiledSubscription, form: NormalForm, limits: Limits) -> list[Access]:
    """Return how an index finds each alternative of a subscription, and the rest to evaluate."""
    is_plain = compiled.cel is None and not compiled.groups
    of_cel, is_exact = ([frozenset[Clause]()], True) if is_plain else possible(compiled, form, limits)
    changed = [(f"{each.path} changed", ("yes",)) for each in compiled.filters if each.op.name == "changed"]
    # A pattern with too many alternatives is evaluated as a whole.
    is_cut = compiled.pattern is not None and distribute(compiled.pattern.root, limits.max_conjunctions) is None
    is_evaluated = is_cut or not is_exact or any(map(_excludes_tree, compiled.filters))
    trees = dict(_trees(compiled.filters))
    alternatives: list[Access] = []
    for conjunction in form.conjunctions:
        has_choice = any(residual.part == "pattern" for residual in conjunction.residuals)
        for alternative in of_cel:
            clauses = narrowed([*conjunction.clauses, *alternative])
            if all(clause.atoms for clause in clauses):
                rest: Rest = "choice" if has_choice else "nothing"
                if is_evaluated or any(_is_part(atom) for clause in clauses for atom in clause.atoms):
                    rest = "evaluation"
                alternatives.append((rest, [*changed, *_conditions(clauses, trees)]))
    return alternatives


def _excludes_tree(condition: CompiledFilter) -> bool:
    """Return whether a filter excludes a list or an object, which an index does not look up."""
    # An empty one is exact: all comparisons with one are the same condition, which is checked once.
    return (
        isinstance(condition.value, list | dict)
        and bool(condition.value)
        and condition.op.name in ("!=", "changed_to", "changed_from")
    )


def _trees(filters: Iterable[CompiledFilter]) -> Iterator[tuple[str, str]]:
    """Yield the places of whole lists and objects that filters require, each with the value in words."""
    for each in filters:
        if isinstance(each.value, list | dict) and each.op.name in ("==", "changed_to", "changed_from"):
            root = Root.BEFORE if each.op.name == "changed_from" else each.path.root
            yield _place(Path(root, each.path.names), Mode.VALUE), json.dumps(each.value, sort_keys=True)


def _is_part(atom: Atom) -> bool:
    """Return whether an index decides only a part of an atom."""
    return isinstance(atom, Not) and not all(isinstance(each, Equal) for each in atom.atoms)


def _place(path: Path, mode: Mode) -> str:
    return f"{path} {mode.value}"


def _conditions(clauses: Iterable[Clause], trees: Mapping[str, str]) -> Iterator[tuple[str, Sequence[Sought]]]:
    for clause in clauses:
        place = _place(clause.path, clause.mode)
        # A clause that matches a missing value does not reduce the candidates.
        if not any(
            isinstance(atom, Absent) or (isinstance(atom, IsKind) and Kind.MISSING in atom.kinds) for atom in clause.atoms
        ):
            # A clause has only the kind of a list or an object.
            yield place, (trees[place],) if place in trees else tuple(map(_sought, clause.atoms))


def _sought(atom: Atom) -> Sought:
    match atom:
        case IsKind() | Not() | Prefix(text="") | Suffix(text="") | Contains(element=Equal(value="") | EqualsIgnoreCase(text="")):
            return None
        case Wildcard(pieces=pieces) if not any(pieces):
            return None
        case InTopic(pattern=pattern) if not any(isinstance(word, str) for word in pattern.words):
            return None
        case Range(kind=Kind.NUMBER, low=low, high=high):
            return _between(low, high)
        case Range(kind=Kind.STRING, low=low, high=high):
            return _between(*(None if text is None else _position(text) for text in (low, high)))
        case Equal(value=bool()):
            return str(atom)
        case Equal(value=int() | float() as number):
            return _between(number, number)
        case Size(least=least, most=most):
            return _between(least, most if most < sys.maxsize else None)
        case _:
            return f"{type(atom).__name__} {atom}"


def _between(low: float | None, high: float | None) -> Sought:
    return None if low is None and high is None else (-math.inf if low is None else low, math.inf if high is None else high)


def _position(text: str) -> float:
    """Return the position of a text among all texts, from 0 to 1, by its first bytes."""
    return int.from_bytes(text.encode()[:6].ljust(6, b"\0"), "big") / 256**6
