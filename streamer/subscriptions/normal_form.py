"""Lower all parts of a subscription to one form: an OR of conjunctions, each an AND of clauses.

    filters, pattern, topic, types          {"filters": [{"field": "status", "op": "in", "value": ["paid", "open"]}],
          │                                  "topic": "orders.#"}
          ▼
    NormalForm ─ OR ─ Conjunction ─ AND ─ Clause(data.status, VALUE, {= "open", = "paid"})
                                          Clause(topic, VALUE, {topic orders.#})
                                          Residual(...)

A clause tests the value at one path, and is true if any of its atoms is. A condition that clauses cannot express stays as a
`Residual` of the conjunction, with its text.

Invariant: an event that a subscription matches, or may match because a value is unknown, satisfies every clause of one of its
conjunctions, except at unknown values. If a conjunction has no residual, the converse is true, too: the conjunction is exact.
Errors survive: a filter on a missing field is an error and so not a match, and no atom of a filter is true for a missing value.

Cost: the product of the alternatives of every `$or`, at most `Limits.max_conjunctions`; beyond that, the `$or` becomes a
residual.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from streamer.model import BeyondFloat64, Limits
from streamer.subscriptions.atoms import PRESENT, Atom, Clause, InTopic, IsKind, Kind, Mode, Not, Path, Range, Root, value_clause
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.matchers import Absent, AnythingBut, Equal, Exists, Matcher, Numeric
from streamer.subscriptions.patterns import AllOf, Field, Pattern
from streamer.subscriptions.topics import TopicPattern


@final
@dataclass(frozen=True, slots=True)
class Residual:
    """A condition that no clause expresses; it is evaluated as written, on candidates.

    Attributes:
        part: the member of the subscription that it comes from: `filters[2]`, `pattern` or `cel`.
        text: the condition as text; equal conditions have equal texts.
    """

    part: str
    text: str

    def __str__(self) -> str:
        return f"{self.part}: {self.text}"


@final
@dataclass(frozen=True, slots=True)
class Conjunction:
    clauses: frozenset[Clause]
    residuals: frozenset[Residual] = frozenset()

    def __str__(self) -> str:
        return " and ".join([*sorted(map(str, self.clauses)), *sorted(map(str, self.residuals))]) or "everything"


@final
@dataclass(frozen=True, slots=True)
class NormalForm:
    """A subscription as an OR of conjunctions; equal subscriptions have equal normal forms."""

    conjunctions: frozenset[Conjunction]

    def __str__(self) -> str:
        return "\n or ".join(sorted(map(str, self.conjunctions))) or "nothing"


def normal_form(compiled: CompiledSubscription, limits: Limits) -> NormalForm:
    """Lower all parts of a subscription except tenant and collection, which choose its partition."""
    clauses: set[Clause] = set()
    residuals: set[Residual] = set()
    if compiled.types is not None:
        clauses.add(value_clause(Path(Root.TYPE), [Equal(kind) for kind in compiled.types]))
    if compiled.topic is not None:
        clauses.add(value_clause(Path(Root.TOPIC), [_topic_atom(compiled.topic)]))
    for condition in compiled.filters:
        lowered = condition.lower()
        clauses.update(lowered.clauses)
        if not lowered.is_exact:
            residuals.add(Residual("filters", condition.in_words()))
    residuals.update(Residual("filters", group.in_words()) for group in compiled.groups)
    clauses = narrowed(clauses)
    if compiled.cel is not None:
        residuals.add(Residual("cel", compiled.cel.source))
    alternatives = [Conjunction(frozenset(), frozenset())]
    if compiled.pattern is not None:
        alternatives = _lower_pattern(compiled.pattern, limits)
    return NormalForm(
        frozenset(
            Conjunction(frozenset(clauses | alternative.clauses), frozenset(residuals | alternative.residuals))
            for alternative in alternatives
        )
    )


def _topic_atom(topic: TopicPattern) -> Atom:
    # A pattern without a wildcard matches only the topic with the same text, so it is an equality.
    literal = topic.literal()
    return InTopic(topic) if literal is None else Equal(literal)


def narrowed(clauses: Iterable[Clause]) -> set[Clause]:
    """Join ranges on one value: an index can look up one range with two bounds better than two ranges with one bound each.

    If the ranges have no value in common, they stay as they are. An unknown value may lie in any of them, so the conjunction may
    still match an event with one, and an empty range would have no keys to find it.
    """
    joined: set[Clause] = set()
    ranges: dict[tuple[Path, Kind], list[Clause]] = {}
    for clause in clauses:
        match list(clause.atoms):
            case [Range(kind=Kind.NUMBER | Kind.STRING as kind)]:
                ranges.setdefault((clause.path, kind), []).append(clause)
            case _:
                joined.add(clause)
    for (path, of), same in ranges.items():
        both = common_range(of, [atom for clause in same for atom in clause.atoms if isinstance(atom, Range)])
        joined.update(same if both is None else [value_clause(path, [both])])
    return joined


def common_range(kind: Kind, ranges: Sequence[Range]) -> Range | None:
    """Return the intersection of ranges, or None if it is empty."""
    # If two bounds are equal, the exclusive one is narrower.
    lows = [(each.low, not each.low_inclusive) for each in ranges if each.low is not None]
    highs = [(each.high, each.high_inclusive) for each in ranges if each.high is not None]
    if lows and highs:
        (least, is_out), (most, is_in) = max(lows), min(highs)
        if least > most or (least == most and (is_out or not is_in)):
            return None
    low, is_open = max(lows, default=(None, True))
    high, is_closed = min(highs, default=(None, False))
    return Range(kind, low, not is_open, high, is_closed)


def _lower_pattern(pattern: Pattern, limits: Limits) -> list[Conjunction]:
    """Lower a pattern to its alternatives, each with a residual if array consistency may decide."""
    alternatives = distribute(pattern.root, limits.max_conjunctions)
    if alternatives is None:
        required = [_leaf_clause(part) for part in pattern.root.fields if isinstance(part, Field)]
        return [Conjunction(frozenset(required), frozenset({Residual("pattern", _pattern_text(pattern.root))}))]
    lowered = []
    for fields in alternatives:
        residual = {Residual("pattern", _pattern_text(pattern.root))} if _share_an_array(fields) else set()
        lowered.append(Conjunction(frozenset(map(_leaf_clause, fields)), frozenset(residual)))
    return lowered


def _pattern_text(root: AllOf) -> str:
    """Return a pattern as text, in a canonical order: patterns that differ only in order have equal texts."""
    texts = []
    for part in root.fields:
        if isinstance(part, Field):
            texts.append(f"{'.'.join(map(repr, part.path))}: [{', '.join(sorted(map(str, part.matchers)))}]")
        else:
            texts.append(f"$or: [{', '.join(sorted(map(_pattern_text, part.alternatives)))}]")
    return f"{{{', '.join(sorted(texts))}}}"


def distribute(root: AllOf, limit: int) -> list[tuple[Field, ...]] | None:
    """Return the alternatives of a pattern with every `$or` multiplied out, or None if there are more than *limit*."""
    parts: list[list[tuple[Field, ...]]] = []
    for part in root.fields:
        if isinstance(part, Field):
            parts.append([(part,)])
            continue
        options: list[tuple[Field, ...]] = []
        for alternative in part.alternatives:
            distributed = distribute(alternative, limit)
            if distributed is None:
                return None
            options += distributed
            if len(options) > limit:
                return None
        parts.append(options)
    count = 1
    for part_options in parts:
        count *= len(part_options)
        if count > limit:
            return None
    return [tuple(itertools.chain.from_iterable(choice)) for choice in itertools.product(*parts)]


def _share_an_array(fields: Sequence[Field]) -> bool:
    # Two leaves can be inconsistent only if they are in one array, and then both paths begin with the same name.
    firsts = [field.path[0] for field in fields if not _only_absence(field)]
    return len(firsts) != len(set(firsts))


def _only_absence(field: Field) -> bool:
    return all(isinstance(matcher, Absent) for matcher in field.matchers)


def _leaf_clause(field: Field) -> Clause:
    atoms = (_lower_matcher(matcher) for matcher in field.matchers)
    possible = frozenset(atom for atom in atoms if not (isinstance(atom, Equal) and isinstance(atom.value, BeyondFloat64)))
    return Clause(Path(Root.EVENT, field.path), Mode.LEAF, possible)


def _lower_matcher(matcher: Matcher) -> Atom:
    match matcher:
        case Numeric() as numeric:
            if numeric.low is not None and numeric.low == numeric.high:
                return Equal(numeric.low)
            return Range(Kind.NUMBER, numeric.low, numeric.low_inclusive, numeric.high, numeric.high_inclusive)
        case Exists():
            return IsKind(PRESENT)
        case AnythingBut(matchers=matchers):
            return Not(frozenset(_lower_matcher(inner) for inner in matchers))
        case _:
            return matcher
