"""One form for everything a user can write: an OR of conjunctions, each an AND of clauses.

    filters, pattern, topic, types          {"filters": [{"field": "status", "op": "in", "value": ["paid", "open"]}],
          │                                  "topic": "orders.#"}
          ▼
    NormalForm ─ OR ─ Conjunction ─ AND ─ Clause(data.status, VALUE, {= "open", = "paid"})
                                          Clause(topic, VALUE, {topic orders.#})
                                          Residual(...)

A clause asks one path and holds if any of its atoms does. What cannot be put so stays as a `Residual` of the conjunction,
with its text.

Invariant: an event that a subscription matches, or may match for lack of a value, satisfies every clause of one of its
conjunctions, save where the value is not known. Where a conjunction has no residual the converse holds too: the lowering is
exact or it says that it is not. Errors survive: a filter on a missing field is an error, so no match, and its atoms hold for
no missing value.

Cost: the product of the alternatives of every `$or`, at most `Limits.max_conjunctions`; past that the `$or` stays as a residual.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, final

from streamer.model import BeyondFloat64, Limits
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.filters import CHANGES, CompiledFilter
from streamer.subscriptions.matchers import (
    Absent,
    AnythingBut,
    Cidr,
    Equal,
    EqualsIgnoreCase,
    Exists,
    Matcher,
    Numeric,
    Prefix,
    Regexp,
    Suffix,
    Wildcard,
)
from streamer.subscriptions.patterns import AllOf, Field, Pattern
from streamer.subscriptions.topics import ANY_WORDS, ONE_WORD, TopicPattern


class Root(Enum):
    """Where a path begins: a part of the event, or the raw event as patterns see it."""

    DATA = "data"
    BEFORE = "before"
    EVENT = "event"
    TYPE = "type"
    TOPIC = "topic"


class Mode(Enum):
    """What a path yields: the one value at it as CEL sees it, or every leaf at it, through arrays, as patterns see it."""

    VALUE = "value"
    LEAF = "leaf"


class Kind(Enum):
    """What stands at a path. BEYOND is a number that no float64 holds, or what a path asks below one: reading it is an error."""

    MISSING = "missing"
    NULL = "null"
    BOOL = "bool"
    NUMBER = "number"
    BEYOND = "beyond"
    STRING = "string"
    LIST = "list"
    MAP = "map"


PRESENT = frozenset(Kind) - {Kind.MISSING}
READABLE = PRESENT - {Kind.BEYOND}


def kind_of(value: Any) -> Kind:
    """Return the kind of a JSON value."""
    if value is None:
        return Kind.NULL
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int | float):
        return Kind.NUMBER
    if isinstance(value, str):
        return Kind.STRING
    if isinstance(value, BeyondFloat64):
        return Kind.BEYOND
    return Kind.MAP if isinstance(value, Mapping) else Kind.LIST


@final
@dataclass(frozen=True, slots=True)
class Path:
    root: Root
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "".join([self.root.value, *(f".{name}" if name.isidentifier() else f"[{name!r}]" for name in self.names)])


@final
@dataclass(frozen=True, slots=True)
class Range:
    """The value is of this kind and lies between two bounds; a bound that is None is open."""

    kind: Kind
    low: Any = None
    low_inclusive: bool = False
    high: Any = None
    high_inclusive: bool = False

    def __str__(self) -> str:
        low = "" if self.low is None else f"{'>=' if self.low_inclusive else '>'} {Equal(self.low)}"
        high = "" if self.high is None else f"{'<=' if self.high_inclusive else '<'} {Equal(self.high)}"
        return " and ".join(filter(None, (low, high)))


@final
@dataclass(frozen=True, slots=True)
class IsKind:
    """The value is of one of these kinds."""

    kinds: frozenset[Kind]

    def __str__(self) -> str:
        if self.kinds == PRESENT:
            return "present"
        return "is " + " or ".join(kind.value for kind in Kind if kind in self.kinds)


@final
@dataclass(frozen=True, slots=True)
class Contains:
    """The value is a string with this substring, or a list with an element equal to it."""

    element: Equal

    def __str__(self) -> str:
        return f"contains {self.element}"


@final
@dataclass(frozen=True, slots=True)
class Matches:
    """The value is a string in which this RE2 expression is found."""

    expression: str

    def __str__(self) -> str:
        return f"matches {self.expression!r}"


@final
@dataclass(frozen=True, slots=True)
class InTopic:
    """The value is a routing key that this topic pattern matches."""

    pattern: TopicPattern

    def __str__(self) -> str:
        return f"like {self.pattern}"


@final
@dataclass(frozen=True, slots=True)
class Not:
    """The value is there and none of these atoms holds for it. As CEL sees it, it must also be one that can be read."""

    atoms: frozenset[Atom]

    def __str__(self) -> str:
        return "not (" + " or ".join(sorted(map(_phrase, self.atoms))) + ")"


Atom: TypeAlias = (
    Equal
    | Prefix
    | Suffix
    | EqualsIgnoreCase
    | Wildcard
    | Regexp
    | Cidr
    | Range
    | IsKind
    | Contains
    | Matches
    | InTopic
    | Absent
    | Not
)

#: Atoms that an index can look up; the others can only be checked on a candidate.
INDEXABLE = (
    Equal,
    Range,
    Matches,
    InTopic,
    Prefix,
    Suffix,
    EqualsIgnoreCase,
    Wildcard,
    Regexp,
    Cidr,
)


def _phrase(atom: Atom) -> str:
    """Print an atom as what comes after its path."""
    match atom:
        case Equal():
            return f"= {atom}"
        case Absent():
            return "absent"
        case _:
            return str(atom)


@final
@dataclass(frozen=True, slots=True)
class Clause:
    """A condition on one path: any of its atoms holds. Without atoms it never holds."""

    path: Path
    mode: Mode
    atoms: frozenset[Atom]

    def __str__(self) -> str:
        any_leaf = " any leaf" if self.mode is Mode.LEAF else ""
        return f"{self.path}{any_leaf} {' or '.join(sorted(map(_phrase, self.atoms))) or 'never'}"


@final
@dataclass(frozen=True, slots=True)
class Residual:
    """A condition that no clause expresses; it is evaluated as written, on candidates.

    Attributes:
        part: the member of the subscription it comes from: `filters[2]`, `pattern` or `cel`.
        text: the condition as text, the same for the same condition.
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
        clauses.add(_value_clause(Path(Root.TYPE), [Equal(kind) for kind in compiled.types]))
    if compiled.topic is not None:
        clauses.add(_value_clause(Path(Root.TOPIC), [_topic_atom(compiled.topic)]))
    for condition in compiled.filters:
        lowered, rest = _lower_filter(condition)
        clauses.update(lowered)
        residuals.update(rest)
    clauses = _narrowed(clauses)
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


def _value_clause(path: Path, atoms: Iterable[Atom]) -> Clause:
    return Clause(path, Mode.VALUE, frozenset(atoms))


def _topic_atom(topic: TopicPattern) -> Atom:
    wild = {ONE_WORD, ANY_WORDS} & set(topic.words)
    return InTopic(topic) if wild else Equal(str(topic))


_RANGES: Mapping[str, tuple[str, bool]] = {"<": ("high", False), "<=": ("high", True), ">": ("low", False), ">=": ("low", True)}


def _lower_filter(condition: CompiledFilter) -> tuple[list[Clause], list[Residual]]:
    """Lower one filter as semantics.md section 3 states it."""
    path = Path(Root.DATA, condition.path)
    value = condition.value
    op = str(condition.op)

    def clause(*atoms: Atom) -> list[Clause]:
        return [_value_clause(path, atoms)]

    compares_container = isinstance(value, dict | list) and op not in ("in", "not in")
    # Printed only where it is needed: it may be long.
    residual = [Residual("filters", condition.to_cel())] if compares_container or condition.op in CHANGES else []
    if compares_container:
        # Equality with a container, and what `changed_to` and `changed_from` make of it.
        return (clause(IsKind(frozenset({kind_of(value)}))) if op == "==" else []), residual
    match op:
        case "==":
            return clause(Equal(value)), []
        case "!=":
            return clause(Not(frozenset({Equal(value)}))), []
        case "<" | "<=" | ">" | ">=":
            side, inclusive = _RANGES[op]
            return clause(Range(kind_of(value), **{side: value, f"{side}_inclusive": inclusive})), []
        case "in":
            return clause(*(Equal(item) for item in value)), []
        case "not in":
            return clause(Not(frozenset(Equal(item) for item in value))), []
        case "contains":
            return clause(Contains(Equal(value))), []
        case "exists":
            return clause(IsKind(PRESENT if value else frozenset({Kind.MISSING}))), []
        case "starts_with" | "ends_with" if value == "":
            return clause(IsKind(frozenset({Kind.STRING}))), []
        case "starts_with":
            return clause(Prefix(value)), []
        case "ends_with":
            return clause(Suffix(value)), []
        case "matches":
            return clause(Matches(value)), []
        case "changed":
            return [], residual
        case "changed_to":
            return clause(Equal(value)), residual
        case "changed_from":
            return [_value_clause(Path(Root.BEFORE, condition.path), [Equal(value)])], residual
        case _:
            raise AssertionError(f"operator {op!r} has no lowering")


def _narrowed(clauses: Iterable[Clause]) -> set[Clause]:
    """Put ranges of one value together: an index looks up what lies between two bounds, not what lies beyond each.

    Where nothing lies between them they stay as they are: nobody knows of an unknown value that it lies in none of them, and
    a range without values has no keys by which it would be looked for.
    """
    kept: set[Clause] = set()
    ranges: dict[tuple[Path, Kind], list[Clause]] = {}
    for clause in clauses:
        match list(clause.atoms):
            case [Range(kind=Kind.NUMBER | Kind.STRING as kind)]:
                ranges.setdefault((clause.path, kind), []).append(clause)
            case _:
                kept.add(clause)
    for (path, of), same in ranges.items():
        both = common_range(of, [atom for clause in same for atom in clause.atoms if isinstance(atom, Range)])
        kept.update(same if both is None else [_value_clause(path, [both])])
    return kept


def common_range(kind: Kind, ranges: Sequence[Range]) -> Range | None:
    """Return the range of what lies in all of them, None where that is nothing."""
    # Of equal bounds the one that leaves the bound out is the narrower.
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
    """Lower a pattern to its alternatives, each with a residual where array consistency may decide."""
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
    """Print a pattern so that patterns which differ only in order print the same."""
    texts = []
    for part in root.fields:
        if isinstance(part, Field):
            texts.append(f"{'.'.join(map(repr, part.path))}: [{', '.join(sorted(map(str, part.matchers)))}]")
        else:
            texts.append(f"$or: [{', '.join(sorted(map(_pattern_text, part.alternatives)))}]")
    return f"{{{', '.join(sorted(texts))}}}"


def distribute(root: AllOf, limit: int) -> list[tuple[Field, ...]] | None:
    """Multiply out every `$or`; None where more than *limit* alternatives would come of it."""
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
    # Only an array that holds two chosen leaves can make them inconsistent, and it stands below a name that both paths have.
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
