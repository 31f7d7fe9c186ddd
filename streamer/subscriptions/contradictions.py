"""Find out why a conjunction of clauses can never be satisfied.

Reported contradictions are proven. The converse is false: some contradictions, for example between two regular expressions, are
not detected. The clauses of a pattern on one path are about one leaf, because a pattern makes one choice of array elements.

Cost: linear in the conditions, except that each scalar of a list is checked against each condition on its path that is not a
list, for example `startsWith`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import takewhile
from typing import Final, TypeAlias

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
from streamer.subscriptions.folding import simple_fold
from streamer.subscriptions.matchers import Absent, Equal, EqualsIgnoreCase, Prefix, Suffix, Wildcard
from streamer.subscriptions.normal_form import common_range

_Affix: TypeAlias = tuple[str, bool]
"""The start or end of a text, and whether case is ignored."""

MISSING: Final = IsKind(frozenset({Kind.MISSING}))
_MAP: Final = IsKind(frozenset({Kind.MAP}))
_HAS_MEMBERS: Final = IsKind(frozenset({Kind.LIST, Kind.MAP}))
#: What `_holds` compares with a scalar; of any other atom only the kinds count.
_COMPARED: Final = (Equal, Range, Not, Prefix, Suffix, EqualsIgnoreCase, Size)
_SIZED: Final = frozenset({Kind.STRING, Kind.LIST, Kind.MAP})


def contradiction(clauses: Iterable[Clause]) -> str | None:
    """Return why *clauses* can never be satisfied together, or None if this is not proven."""
    on_path: defaultdict[Path, list[Clause]] = defaultdict(list)
    on_leaf: defaultdict[Path, list[Clause]] = defaultdict(list)
    for clause in clauses:
        if clause.mode is Mode.VALUE or not clause.atoms:
            on_path[clause.path].append(_with_bools(clause))
        elif clause.mode is Mode.LEAF:
            on_leaf[clause.path].append(_with_bools(clause))
        elif clause.mode is Mode.MEMBER:
            on_path[clause.path].append(value_clause(clause.path, [_HAS_MEMBERS]))
    # Sorted, so that the same one of several contradictions is always reported.
    ordered = sorted(on_path.items(), key=_place)
    for path in _parents(ordered):
        on_path[path].append(value_clause(path, [_MAP]))
    for path, on_it in (*ordered, *sorted(on_leaf.items(), key=_place)):
        reason = _conflict(on_it)
        if reason:
            return f"{path}: {reason}"
    return None


def _place(item: tuple[Path, list[Clause]]) -> tuple[str, tuple[str, ...]]:
    return item[0].root.value, item[0].names


def _parents(ordered: list[tuple[Path, list[Clause]]]) -> set[Path]:
    """Return which of some paths in order are objects, because a value lies below them. Each step of a path is visited once."""
    objects: set[Path] = set()
    around: list[Path] = []  # the paths that the current one begins with, shortest first
    for path, clauses in ordered:
        while around and (path.root, path.names[: len(around[-1].names)]) != (around[-1].root, around[-1].names):
            around.pop()
        if any(Kind.MISSING not in kinds_of(clause) for clause in clauses):
            # What is around one that was found, was found with it.
            objects.update(takewhile(lambda other: other not in objects, reversed(around)))
        if path.names:
            around.append(path)
    return objects


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
    single = [next(iter(clause.atoms)) for clause in clauses if len(clause.atoms) == 1]
    sizes = [atom for atom in single if isinstance(atom, Size)]
    if sizes and max(size.least for size in sizes) > min(size.most for size in sizes):
        return "its sizes have no value in common"
    if (ranges := [atom for atom in single if isinstance(atom, Range)]) and common_range(ranges[0].kind, ranges) is None:
        return "its ranges have no value in common"
    starts, ends = ([found for atom in single if (found := affix(atom)) is not None] for affix in (_start, _end))
    if not _are_nested(starts):
        return "its prefixes exclude one another"
    if not _are_nested([(text[::-1], ignore_case) for text, ignore_case in ends]):
        return "its suffixes exclude one another"
    if _are_too_long([atom for atom in single if isinstance(atom, EqualsIgnoreCase)], [*starts, *ends]):
        return "its conditions exclude one another"
    if Kind.MISSING not in kinds and _has_no_scalar(clauses, kinds):
        return "its conditions exclude one another"
    return None


def _start(atom: Atom) -> _Affix | None:
    """Return the start of every text for which an atom is true, if it has one."""
    match atom:
        case Prefix(text, ignore_case):
            return text, ignore_case
        case EqualsIgnoreCase(text):
            return text, True
        case Wildcard((first, _, *_)):
            return first, False
        case _:
            return None


def _end(atom: Atom) -> _Affix | None:
    """Return the end of every text for which an atom is true, if it has one."""
    match atom:
        case Suffix(text, ignore_case):
            return text, ignore_case
        case EqualsIgnoreCase(text):
            return text, True
        case Wildcard((_, *_, last)):
            return last, False
        case _:
            return None


def _are_nested(starts: list[_Affix]) -> bool:
    """Return whether a text can begin with all of these."""
    exact = [text for text, ignore_case in starts if not ignore_case]
    for texts in (exact, [simple_fold(text) for text, _ in starts]):
        longest = max(texts, key=len, default="")
        if not all(longest.startswith(text) for text in texts):
            return False
    return True


def _are_too_long(equal: list[EqualsIgnoreCase], affixes: list[_Affix]) -> bool:
    """Return whether a text that equals one of *equal* is shorter than another one or than an affix."""
    return bool(equal) and min(len(atom.text) for atom in equal) < max(len(text) for text, _ in affixes)


def _has_no_scalar(clauses: list[Clause], kinds: frozenset[Kind]) -> bool:
    """Return whether one of the clauses on one path lists all its scalars, and none of these satisfies all clauses.

    Such a scalar is in every list, so the shortest one suffices.
    """
    lists = [clause.atoms for clause in clauses if all(isinstance(atom, Equal) or atom == MISSING for atom in clause.atoms)]
    if not lists:
        return False
    excluded: set[Atom] = set()
    others: list[tuple[frozenset[Atom], list[Atom]]] = []
    for clause in clauses:
        match [*clause.atoms] if len(clause.atoms) == 1 else []:
            case [Not(atoms=atoms)]:
                excluded.update(atoms)
            case _ if any(isinstance(atom, _COMPARED) for atom in clause.atoms):
                others.append((clause.atoms, [atom for atom in clause.atoms if not isinstance(atom, Equal)]))
    return not any(
        isinstance(atom, Equal)
        and kind_of(atom.value) in kinds
        and atom not in excluded
        and all(atom in atoms or any(_holds(other, atom) for other in rest) for atoms, rest in others)
        for atom in min(lists, key=len)
    )


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
        case Contains():
            return frozenset({Kind.LIST, Kind.STRING})
        case Size():
            return _SIZED
        case Not():
            return READABLE
        case Absent():
            return frozenset({Kind.MISSING})
        case _:
            return frozenset({Kind.STRING})


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
        case Prefix() | Suffix() | EqualsIgnoreCase():
            return isinstance(value, str) and _text_holds(atom, value)
        case Size() if isinstance(value, str):
            return atom.least <= len(value) <= atom.most
        case _:
            return kind in _kinds(atom)


def _text_holds(atom: Prefix | Suffix | EqualsIgnoreCase, text: str) -> bool:
    operand = atom.text
    if isinstance(atom, EqualsIgnoreCase) or atom.ignore_case:
        operand, text = simple_fold(operand), simple_fold(text)
    if isinstance(atom, Prefix):
        return text.startswith(operand)
    return text.endswith(operand) if isinstance(atom, Suffix) else text == operand
