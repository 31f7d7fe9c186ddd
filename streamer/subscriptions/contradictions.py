"""Find out why a conjunction of clauses can never be satisfied.

Reported contradictions are proven. The converse is false: some contradictions, for example between two regular expressions, are
not detected. Patterns are excluded: their paths go through arrays, so two elements may satisfy two clauses.

Cost: quadratic in the conditions on one path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from streamer.subscriptions.atoms import (
    READABLE,
    Atom,
    Clause,
    Contains,
    IsKind,
    Kind,
    Mode,
    Not,
    Path,
    Range,
    Size,
    kind_of,
    value_clause,
)
from streamer.subscriptions.matchers import Absent, Equal, Prefix, Suffix
from streamer.subscriptions.normal_form import common_range

MISSING: Final = IsKind(frozenset({Kind.MISSING}))
_MAP: Final = IsKind(frozenset({Kind.MAP}))
_HAS_MEMBERS: Final = IsKind(frozenset({Kind.LIST, Kind.MAP}))
_SIZED: Final = frozenset({Kind.STRING, Kind.LIST, Kind.MAP})


def contradiction(clauses: Iterable[Clause]) -> str | None:
    """Return why *clauses* can never be satisfied together, or None if this is not proven."""
    on_path: defaultdict[Path, list[Clause]] = defaultdict(list)
    for clause in clauses:
        if clause.mode is Mode.VALUE or not clause.atoms:
            on_path[clause.path].append(_with_bools(clause))
        elif clause.mode is Mode.MEMBER:
            on_path[clause.path].append(value_clause(clause.path, [_HAS_MEMBERS]))
    for path, on_it in list(on_path.items()):
        if any(Kind.MISSING not in kinds_of(clause) for clause in on_it):
            # If a path has a value, then each of its prefixes is an object.
            for length in range(1, len(path.names)):
                parent = Path(path.root, path.names[:length])
                on_path[parent].append(value_clause(parent, [_MAP]))
    # Sorted, so that the same one of several contradictions is always reported.
    for path, on_it in sorted(on_path.items(), key=lambda item: (item[0].root.value, item[0].names)):
        reason = _conflict(on_it)
        if reason:
            return f"{path}: {reason}"
    return None


def _with_bools(clause: Clause) -> Clause:
    """Return the clause with each range of bools replaced by the bools in it."""
    bools = {atom for atom in clause.atoms if isinstance(atom, Range) and atom.kind is Kind.BOOL}
    within = {Equal(value) for atom in bools for value in (False, True) if _holds(atom, Equal(value))}
    return Clause(clause.path, clause.mode, clause.atoms - bools | within)


def _conflict(clauses: list[Clause]) -> str | None:
    """Return why no value satisfies all *clauses*, which are on one path, or None if this is not proven."""
    if not all(clause.atoms for clause in clauses):
        return "its condition is false for every value"
    kinds = frozenset(Kind).intersection(*map(kinds_of, clauses))
    if not kinds:
        return "its conditions require different types"
    for clause in clauses:
        if all(isinstance(atom, Equal) or atom == MISSING for atom in clause.atoms) and not any(
            all(_clause_holds(other, atom) for other in clauses) if isinstance(atom, Equal) else Kind.MISSING in kinds
            for atom in clause.atoms
        ):
            return "its conditions exclude one another"
    single = [next(iter(clause.atoms)) for clause in clauses if len(clause.atoms) == 1]
    sizes = [atom for atom in single if isinstance(atom, Size)]
    if sizes and max(size.least for size in sizes) > min(size.most for size in sizes):
        return "its sizes have no value in common"
    if (ranges := [atom for atom in single if isinstance(atom, Range)]) and common_range(ranges[0].kind, ranges) is None:
        return "its ranges have no value in common"
    prefixes = [atom.text for atom in single if isinstance(atom, Prefix) and not atom.ignore_case]
    longest = max(prefixes, key=len, default="")
    if not all(longest.startswith(prefix) for prefix in prefixes):
        return "its prefixes exclude one another"
    return None


def kinds_of(clause: Clause) -> frozenset[Kind]:
    """Return the kinds of value for which a clause in mode VALUE may be true."""
    return frozenset().union(*map(_kinds, clause.atoms))


def _kinds(atom: Atom) -> frozenset[Kind]:
    """Return the kinds of value for which an atom may be true, in mode VALUE."""
    match atom:
        case Equal(value=value):
            return frozenset({kind_of(value)})
        case Range(kind=kind):
            return frozenset({kind})
        case IsKind(kinds=kinds):
            return kinds
        case Contains(element=Equal(value=value)):
            return frozenset({Kind.LIST, Kind.STRING} if isinstance(value, str) else {Kind.LIST})
        case Size():
            return _SIZED
        case Not():
            return READABLE
        case Absent():
            return frozenset({Kind.MISSING})
        case _:
            return frozenset({Kind.STRING})


def _clause_holds(clause: Clause, scalar: Equal) -> bool:
    return any(_holds(atom, scalar) for atom in clause.atoms)


def _holds(atom: Atom, scalar: Equal) -> bool:
    """Return whether an atom may be true for a scalar; True if this is not computed here."""
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
        case Prefix(ignore_case=False):
            return isinstance(value, str) and value.startswith(atom.text)
        case Suffix(ignore_case=False):
            return isinstance(value, str) and value.endswith(atom.text)
        case Size() if isinstance(value, str):
            return atom.least <= len(value) <= atom.most
        case _:
            return kind in _kinds(atom)
