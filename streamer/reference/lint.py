"""What is suspicious about one subscription: that it never matches, always matches, or is slow.

Every finding is proven from the normal form: a subscription that is reported never to match matches no event at all.
The converse does not hold: many a contradiction (between two regular expressions, say) is not looked for.

Cost: quadratic in the conditions on one path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from streamer.cel_eval import constant_verdict
from streamer.core.lint import Examined, FindingCode, remarked
from streamer.model import Limits, Verdict
from streamer.reference.patterns import matches_value
from streamer.subscriptions.atoms import (
    INDEXABLE,
    PRESENT,
    READABLE,
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
    kind_of,
)
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.matchers import Absent, Equal, EqualsIgnoreCase, Prefix, Regexp, Suffix, Wildcard
from streamer.subscriptions.normal_form import Conjunction, NormalForm, common_range, normal_form


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
    contradictions = [_contradiction(conjunction) for conjunction in form.conjunctions]
    if constant is not None and constant is not Verdict.TRUE:
        yield FindingCode.NEVER_MATCHES, f"cel: it is {'false' if constant is Verdict.FALSE else 'an error'} for every event"
    elif all(contradictions):
        yield FindingCode.NEVER_MATCHES, "; or ".join(sorted({str(reason) for reason in contradictions}))
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


def _contradiction(conjunction: Conjunction) -> str | None:
    """Say why no event satisfies a conjunction, or None where that is not proven."""
    on_path: defaultdict[Path, list[Clause]] = defaultdict(list)
    for clause in conjunction.clauses:
        if clause.mode is Mode.VALUE or not clause.atoms:
            on_path[clause.path].append(_with_bools(clause))
    for path, clauses in list(on_path.items()):
        if any(Kind.MISSING not in _kinds_of_clause(clause) for clause in clauses):
            # What stands below a name stands in an object.
            for length in range(1, len(path.names)):
                parent = Path(path.root, path.names[:length])
                on_path[parent].append(Clause(parent, Mode.VALUE, frozenset({IsKind(frozenset({Kind.MAP}))})))
    # Of several contradictions the same is told each time.
    for path, clauses in sorted(on_path.items(), key=lambda item: (item[0].root.value, item[0].names)):
        reason = _conflict(clauses)
        if reason:
            return f"{path}: {reason}"
    return None


def _with_bools(clause: Clause) -> Clause:
    """Return the clause with the bools that lie in a range of them in its place."""
    bools = {atom for atom in clause.atoms if isinstance(atom, Range) and atom.kind is Kind.BOOL}
    within = {Equal(value) for atom in bools for value in (False, True) if _holds(atom, Equal(value))}
    return Clause(clause.path, clause.mode, clause.atoms - bools | within)


def _conflict(clauses: list[Clause]) -> str | None:
    """Say why no value satisfies all *clauses*, which are on one path, or None where that is not proven."""
    if not all(clause.atoms for clause in clauses):
        return "no value satisfies its condition"
    kinds = frozenset(Kind).intersection(*map(_kinds_of_clause, clauses))
    if not kinds:
        return "its conditions ask for different types"
    finite = [clause for clause in clauses if all(isinstance(atom, Equal) for atom in clause.atoms)]
    for clause in finite:
        values = [atom for atom in clause.atoms if isinstance(atom, Equal)]
        if not any(all(_clause_holds(other, value) for other in clauses) for value in values):
            return "no value satisfies all its conditions"
    single = [next(iter(clause.atoms)) for clause in clauses if len(clause.atoms) == 1]
    if (ranges := [atom for atom in single if isinstance(atom, Range)]) and common_range(ranges[0].kind, ranges) is None:
        return "its ranges have no value in common"
    prefixes = [atom.text for atom in single if isinstance(atom, Prefix) and not atom.ignore_case]
    longest = max(prefixes, key=len, default="")
    if not all(longest.startswith(prefix) for prefix in prefixes):
        return "no text begins with all its prefixes"
    return None


def _kinds_of_clause(clause: Clause) -> frozenset[Kind]:
    return frozenset().union(*map(_kinds, clause.atoms))


def _kinds(atom: Atom) -> frozenset[Kind]:
    """Return the kinds of value for which an atom may hold, in mode VALUE."""
    match atom:
        case Equal(value=value):
            return frozenset({kind_of(value)})
        case Range(kind=kind):
            return frozenset({kind})
        case IsKind(kinds=kinds):
            return kinds
        case Contains(element=Equal(value=value)):
            return frozenset({Kind.LIST, Kind.STRING} if isinstance(value, str) else {Kind.LIST})
        case Not():
            return READABLE
        case Absent():
            return frozenset({Kind.MISSING})
        case _:
            return frozenset({Kind.STRING})


def _clause_holds(clause: Clause, scalar: Equal) -> bool:
    return any(_holds(atom, scalar) for atom in clause.atoms)


def _holds(atom: Atom, scalar: Equal) -> bool:
    """Tell whether an atom may hold for a scalar; True where that is not worked out here."""
    value, kind = scalar.value, kind_of(scalar.value)
    match atom:
        case Equal():
            return atom == scalar
        case Range():
            if kind is not atom.kind:
                return False
            above = atom.low is None or value > atom.low or (atom.low_inclusive and value == atom.low)
            below = atom.high is None or value < atom.high or (atom.high_inclusive and value == atom.high)
            return bool(above and below)
        case Not():
            return kind in READABLE and not any(inner == scalar for inner in atom.atoms)
        case Prefix() | Suffix() | EqualsIgnoreCase() | Wildcard() | Regexp():
            return matches_value(atom, value)
        case _:
            return kind in _kinds(atom)
