"""Match patterns against events: leaves, values, arrays, unknowns (semantics.md sections 5 and 8).

A pattern matches if one leaf can be chosen for each of its fields, so that any two chosen leaves in the same array are in the
same element. Ignoring arrays would give a wrong answer:

    event    {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]}        leaves  a.b = 1, 3    a.c = 2, 4
    pattern  {"a": {"b": [1], "c": [4]}}                        1 and 4 exist, but in two elements: no match

So leaves are stored in *scopes*: the root is a scope, and so is each element of each array. A leaf is in the scope of the
innermost element around it, and the scopes form a tree:

    root ── array a ─┬─ element 0: b = 1, c = 2
                     └─ element 1: b = 3, c = 4

Invariant: within a scope, all leaves at one path are either in the scope itself or all in a single array of it, because member
names are unique. So one element of an array must satisfy all fields that have leaves in the array. Each element can be checked
separately, and a conjunction costs one visit to each scope, independent of the number of leaves.

Fields are bits of integers. Scopes with the same bits are one *shape*, so 10,000 equal elements cost no more than one. A `$or` is
multiplied out into conjunctions, and those that no choice of elements can satisfy are dropped early. Deciding patterns with `$or`
over arrays is NP-hard: they express satisfiability, with arrays as variables. So each conjunction that is tried costs one unit
per shape, and `BUDGET` bounds the units. The native core counts the same units.

An unknown is a leaf of unknown value, at each path at, above or below it, in the innermost known scope. Patterns are monotone:
one is true if the known leaves satisfy it, else unknown if known and unknown leaves together do, else false.

Rejected: enumerating choices of leaves, which is exponential in the fields (it is the oracle of the tests); and recursion over
the event, which would crash on a few hundred nested arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streamer.effort import EFFORT
from streamer.errors import EventCode, EventError
from streamer.events.layout import encode_pointer
from streamer.model import REST, BeyondFloat64, Pointer, Verdict
from streamer.reference.searches import may_search
from streamer.subscriptions.folding import simple_fold
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
    Scalar,
    Suffix,
    Wildcard,
    parse_address,
    scalar_key,
)
from streamer.subscriptions.patterns import AllOf, Field, Pattern
from streamer.subscriptions.regexps import compile_re2

BUDGET: Final = 1_000_000
"""Units that the choice of elements for one pattern and event may cost; past it the pattern is an error."""


class _SpentError(Exception):
    """The evaluation exceeded its budget."""


class Leaf(NamedTuple):
    """A scalar of an event.

    Attributes:
        path: the names from the root, without array positions.
        arrays: for each array around it, outermost first, a unique number of the array, and the index in it.
    """

    path: tuple[str, ...]
    value: Scalar
    arrays: tuple[tuple[Hashable, Hashable], ...] = ()


def values_at(raw: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the leaves of a JSON value at a path, in the order of the text, at the expense of the answer's budget."""
    values: list[Any] = []
    pending: list[tuple[Any, int]] = [(raw, 0)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, Mapping):
            if depth < len(path) and path[depth] in value:
                pending.append((value[path[depth]], depth + 1))
        elif isinstance(value, list | tuple):
            EFFORT.spend(len(value))
            pending.extend([(item, depth) for item in reversed(value)])
        elif depth == len(path):
            values.append(value)
    return values


def leaves(raw: Any) -> Iterator[Leaf]:
    """Yield the leaves of a JSON value in the order of the text."""
    arrays = 0
    pending: list[tuple[tuple[str, ...], Any, tuple[tuple[int, int], ...]]] = [((), raw, ())]
    while pending:
        path, value, position = pending.pop()
        if isinstance(value, Mapping):
            pending.extend([((*path, name), member, position) for name, member in value.items()][::-1])
        elif isinstance(value, list | tuple):
            pending.extend([(path, item, (*position, (arrays, i))) for i, item in enumerate(value)][::-1])
            arrays += 1
        else:
            yield Leaf(path, value, position)


# Values


def matches_value(matcher: Matcher, value: Scalar) -> bool:
    """Return whether a leaf satisfies a matcher; no leaf satisfies `Absent`."""
    match matcher:
        case Equal():
            return not isinstance(value, BeyondFloat64) and matcher.key == scalar_key(value)
        case Numeric():
            return _is_number(value) and _within(matcher, value)  # type: ignore[arg-type]
        case Exists():
            return True
        case Absent():
            return False
        case AnythingBut():
            return not any(matches_value(excluded, value) for excluded in matcher.matchers)
    return isinstance(value, str) and _matches_text(matcher, value)


def _matches_text(matcher: Prefix | Suffix | EqualsIgnoreCase | Wildcard | Regexp | Cidr, text: str) -> bool:
    match matcher:
        case Prefix():
            return _same(text[: len(matcher.text)], matcher.text, matcher.ignore_case)
        case Suffix():
            return _same(text[-len(matcher.text) :], matcher.text, matcher.ignore_case)
        case EqualsIgnoreCase():
            return _same(text, matcher.text, ignore_case=True)
        case Wildcard():
            return _matches_wildcard(matcher.pieces, text)
        case Regexp():
            encoded = text.encode()
            is_searched = may_search(matcher.source, matcher.size, encoded)
            return is_searched and compile_re2(matcher.re2).fullmatch(encoded) is not None
        case Cidr():
            address = parse_address(text)
            return address is not None and address.version == matcher.network.version and address in matcher.network


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _within(bounds: Numeric, number: int | float) -> bool:
    # Python compares int and float exactly, by mathematical value.
    low, high = bounds.low, bounds.high
    above = low is None or low < number or (bounds.low_inclusive and low == number)
    return above and (high is None or number < high or (bounds.high_inclusive and number == high))


def _same(one: str, other: str, ignore_case: bool) -> bool:
    # Simple folding keeps the number of code points, so texts of different lengths need not be folded.
    return one == other or (ignore_case and len(one) == len(other) and simple_fold(one) == simple_fold(other))


def _matches_wildcard(pieces: tuple[str, ...], text: str) -> bool:
    first, *rest = pieces
    if not rest:
        return text == first
    *middle, last = rest
    end = len(text) - len(last)
    if len(first) > end or not text.startswith(first) or not text.endswith(last):
        return False
    # The leftmost position is always correct, because it leaves the most text for the later pieces.
    at = len(first)
    for piece in middle:
        position = text.find(piece, at, end)
        if position < 0:
            return False
        at = position + len(piece)
    return True


# Patterns


def evaluate_pattern(pattern: Pattern, raw: Any, unknown: Iterable[Pointer] = ()) -> Verdict:
    """Return whether a pattern matches an event; ERROR if choosing array elements exceeds the budget.

    Args:
        raw: the event, as a JSON object.
        unknown: JSON Pointers to values that the event does not contain; values there in *raw* are ignored.
    """
    plan = _plan_of(pattern)
    view = _View(plan)
    unknown = tuple(unknown)
    EFFORT.spend(len(unknown))
    view.read(raw, _Unknown.tree(unknown))
    return view.verdict()


def evaluate_leaves(pattern: Pattern, by_path: Mapping[tuple[str, ...], Iterable[Leaf]]) -> bool:
    """Return whether a pattern matches an event, represented by its leaves, by their paths.

    Raises:
        EventError: bad_value, if the leaves at one path of one element are in two places, which is impossible in JSON.
    """
    plan = _plan_of(pattern)
    view = _View(plan)
    for path, node in plan.nodes.items():
        for leaf in by_path.get(path, ()):
            view.add_leaf(leaf, node)
    return view.verdict() is Verdict.TRUE


@dataclass(slots=True, eq=False)
class _Texts:
    """Whole texts, prefixes and suffixes, all with their case or all without it."""

    is_folded: bool
    whole: set[str] = field(default_factory=set)
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    longest: int = -1

    @classmethod
    def of(cls, matchers: Sequence[Prefix | Suffix | EqualsIgnoreCase], *, is_folded: bool) -> _Texts:
        if is_folded:
            EFFORT.spend(sum(len(matcher.text) for matcher in matchers) // 16)
        texts: dict[type, list[str]] = {Prefix: [], Suffix: [], EqualsIgnoreCase: []}
        for matcher in matchers:
            texts[type(matcher)].append(simple_fold(matcher.text) if is_folded else matcher.text)
        longest = max((len(text) for each in texts.values() for text in each), default=-1)
        return cls(is_folded, set(texts[EqualsIgnoreCase]), tuple(texts[Prefix]), tuple(texts[Suffix]), longest)

    def any_holds(self, text: str) -> bool:
        if self.longest < 0:
            return False
        EFFORT.spend((len(self.prefixes) + len(self.suffixes)) // 100)
        # A text may be much longer than these. One more character distinguishes it from a whole one.
        start, end = text[: self.longest + 1], text[-self.longest :]
        if self.is_folded:
            EFFORT.spend((len(start) + len(end)) // 16)
            start, end = simple_fold(start), simple_fold(end)
        return start in self.whole or start.startswith(self.prefixes) or end.endswith(self.suffixes)


@dataclass(slots=True, eq=False)
class _Alternatives:
    """The matchers of a field by kind, because there may be many; `matches_value` defines what each means."""

    equals: frozenset[tuple[str, Scalar]]
    texts: tuple[_Texts, _Texts]
    networks: dict[tuple[int, int], set[int]]  # by IP version and number of free bits: the bits that are not free
    excluding: list[_Alternatives]
    others: list[Matcher]

    @classmethod
    def of(cls, matchers: Sequence[Matcher]) -> _Alternatives:
        EFFORT.spend(len(matchers) // 4)
        equals, excluding = [], []
        networks: dict[tuple[int, int], set[int]] = {}
        exact: list[Prefix | Suffix | EqualsIgnoreCase] = []
        folded: list[Prefix | Suffix | EqualsIgnoreCase] = []
        others: list[Matcher] = []
        for matcher in matchers:
            match matcher:
                case Equal():
                    equals.append(matcher.key)
                case Prefix(ignore_case=False) | Suffix(ignore_case=False):
                    exact.append(matcher)
                case Prefix() | Suffix() | EqualsIgnoreCase():
                    folded.append(matcher)
                case Cidr():
                    network = matcher.network
                    free = network.max_prefixlen - network.prefixlen
                    networks.setdefault((network.version, free), set()).add(int(network.network_address) >> free)
                case AnythingBut():
                    EFFORT.spend(8)
                    excluding.append(cls.of(matcher.matchers))  # these do not nest
                case _:
                    others.append(matcher)
        texts = _Texts.of(exact, is_folded=False), _Texts.of(folded, is_folded=True)
        return cls(frozenset(equals), texts, networks, excluding, others)

    def any_holds(self, key: tuple[str, Scalar] | None, value: Scalar) -> bool:
        """Return whether a leaf satisfies one of the matchers; *key* is the key of its value, or None if it has none."""
        # Each of the others reads all of a text.
        length = len(value) if isinstance(value, str) else 0
        if self.others or self.excluding:
            EFFORT.spend(len(self.others) * (1 + length // 100) // 8 + len(self.excluding))
        return (
            key in self.equals
            # A regexp that exceeds its budget is counted, whatever the others find.
            or any(matches_value(matcher, value) for matcher in self.others)
            or (isinstance(value, str) and (any(each.any_holds(value) for each in self.texts) or self._is_in_network(value)))
            or any(not excluded.any_holds(key, value) for excluded in self.excluding)
        )

    def _is_in_network(self, text: str) -> bool:
        if not self.networks:
            return False
        EFFORT.spend(10)
        address = parse_address(text)
        return address is not None and any(
            version == address.version and int(address) >> free in fixed for (version, free), fixed in self.networks.items()
        )


@dataclass(slots=True, eq=False)
class _Node:
    """A name in the trie of the paths of a pattern."""

    children: dict[str, _Node] = field(default_factory=dict)
    ends: int = 0  # fields whose path ends here
    through: int = 0  # fields whose path ends here or below
    matchers: list[tuple[int, _Alternatives]] = field(default_factory=list)

    def satisfied_by(self, value: Scalar) -> int:
        """Return the fields that end here and are satisfied by a leaf with this value."""
        EFFORT.spend(len(self.matchers))
        key = None if isinstance(value, BeyondFloat64) else scalar_key(value)
        bits = 0
        for bit, alternatives in self.matchers:
            if alternatives.any_holds(key, value):
                bits |= bit
        return bits


@dataclass(slots=True, eq=False)
class _Plan:
    """Derived data of a pattern, computed once: the trie of its paths, and its tree over the bits of its fields."""

    trie: _Node
    nodes: dict[tuple[str, ...], _Node]  # the nodes at which a field ends, by path
    absent: int  # fields that a missing leaf satisfies, too
    never: int  # fields that no leaf satisfies, known or unknown
    tree: _And


@dataclass(slots=True, eq=False)
class _And:
    bits: int  # its own fields
    any_of: list[list[_And]]

    def holds(self, bits: int) -> bool:
        """Return whether the tree is true if these fields are satisfied."""
        return self.bits & ~bits == 0 and all(any(one.holds(bits) for one in alternatives) for alternatives in self.any_of)


def _plan_of(pattern: Pattern) -> _Plan:
    cache = vars(pattern)
    if "plan" not in cache:
        cache["plan"] = _make_plan(pattern)
    plan: _Plan = cache["plan"]
    return plan


def _make_plan(pattern: Pattern) -> _Plan:
    trie, nodes, absent, never, bit = _Node(), {}, 0, 0, 1

    def number(part: AllOf) -> _And:
        # Recursive over $or, which nests at most MAX_OR_DEPTH levels.
        nonlocal absent, never, bit
        tree = _And(0, [])
        EFFORT.spend(2)
        for each in part.fields:
            EFFORT.spend(3)
            if not isinstance(each, Field):
                tree.any_of.append([number(alternative) for alternative in each.alternatives])
                continue
            tree.bits |= bit
            if any(isinstance(matcher, Absent) for matcher in each.matchers):
                absent |= bit
            # A number beyond float64 equals no value. `all` is also true for a field without matchers.
            if all(isinstance(matcher, Equal) and isinstance(matcher.value, BeyondFloat64) for matcher in each.matchers):
                never |= bit
            # Each step changes as many bits as there are fields.
            EFFORT.spend(len(each.path) * (1 + bit.bit_length() // 4096) // 4)
            node = trie
            node.through |= bit
            for name in each.path:
                if name not in node.children:
                    node.children[name] = _Node()
                node = node.children[name]
                node.through |= bit
            node.ends |= bit
            node.matchers.append((bit, _Alternatives.of(each.matchers)))
            nodes[each.path] = node
            bit <<= 1
        return tree

    tree = number(pattern.root)
    return _Plan(trie, nodes, absent, never, tree)


class _Unknown:
    """A tree of JSON Pointers to unknown values."""

    __slots__ = ("below", "is_end")

    def __init__(self) -> None:
        self.below: dict[str, _Unknown] = {}
        self.is_end = False

    @classmethod
    def tree(cls, pointers: Iterable[Pointer]) -> _Unknown | None:
        root: _Unknown | None = None
        for pointer in pointers:
            root = unknown = root or cls()
            for token in pointer:
                unknown = unknown.below.setdefault(token, cls())
            unknown.is_end = True
        return root


@dataclass(slots=True, eq=False)
class _Scope:
    """The root or an element of an array, with the fields that the leaves in it satisfy, without those in its arrays."""

    sure: int = 0
    maybe: int = 0  # with unknown leaves
    arrays: dict[Hashable, dict[Hashable, _Scope]] = field(default_factory=dict)


class _Shape(NamedTuple):
    """The common content of scopes that are equal for the pattern."""

    sure: int
    maybe: int
    arrays: frozenset[tuple[int, frozenset[int]]]  # for each array the fields it may satisfy, and the shapes of its elements

    @property
    def reach(self) -> int:
        """The fields that leaves in the scope or in its arrays may satisfy."""
        return self.maybe | _union(reach for reach, _ in self.arrays)


class _View:
    """The part of an event that one pattern reads."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.root = _Scope()
        self.scopes = [self.root]  # outer ones first
        self.known = 0  # fields at whose path there is a known leaf
        self.unknown = 0  # fields at whose path there is an unknown leaf
        self.places: dict[tuple[int, int], tuple[str, Hashable]] = {}  # by scope and node: the array of the leaves, or a leaf

    # Reading

    def read(self, raw: Any, unknowns: _Unknown | None) -> None:
        """Read the values at the paths of the pattern."""
        arrays = 0
        pending: list[tuple[Any, _Node, _Scope, _Unknown | None]] = [(raw, self.plan.trie, self.root, unknowns)]
        while pending:
            value, node, scope, unknown = pending.pop()
            if unknown is not None and unknown.is_end:
                self._mark_unknown(scope, node.through)
            elif isinstance(value, Mapping):
                EFFORT.spend(4 + len(node.children))
                below = {} if unknown is None else unknown.below
                for name, child in node.children.items():
                    if name in value:
                        pending.append((value[name], child, scope, below.get(name)))
                    elif (beyond := below.get(REST) or below.get(name)) is not None:
                        self._read_unknown(beyond, child, scope)
                if unknown is not None:
                    self._mark_unknown(scope, node.ends)
            elif isinstance(value, list | tuple):
                EFFORT.spend(len(value))
                array, arrays = arrays, arrays + 1
                below = {} if unknown is None else dict(unknown.below)
                for i, item in enumerate(value):
                    # Compare the index as a pointer spells it: "01" is not an index.
                    inner = below.pop(str(i), None) if below else None
                    if inner is None and not isinstance(item, Mapping | list | tuple):
                        self._add_scalar(item, node, scope, array)
                    elif inner is not None or item:
                        pending.append((item, node, self._enter(scope, array, i), inner))
                for token, beyond in below.items():
                    self._read_unknown(beyond, node, self._enter(scope, array, token))
            else:
                if unknown is not None:
                    self._read_unknown(unknown, node, scope)
                if node.ends:
                    self._mark_known(scope, node, value)

    def _add_scalar(self, value: Scalar, node: _Node, scope: _Scope, array: int) -> None:
        """Add a scalar element. Elements that satisfy the same fields share a scope, because an event may have millions."""
        if node.ends:
            self.known |= node.ends
            satisfied = node.satisfied_by(value)
            if satisfied:
                element = self._enter(scope, array, ("satisfies", satisfied))
                element.sure = element.maybe = satisfied

    def _read_unknown(self, unknown: _Unknown, node: _Node, scope: _Scope) -> None:
        """Add an unknown below a value that the event lacks, so that a number may be a name or an index."""
        pending = [(unknown, node)]
        seen = set()
        while pending:
            unknown, node = pending.pop()
            if (id(unknown), id(node)) in seen:
                continue
            seen.add((id(unknown), id(node)))
            self._mark_unknown(scope, node.through if unknown.is_end else node.ends)
            for token, beyond in unknown.below.items():
                if token in node.children:
                    pending.append((beyond, node.children[token]))
                if token.isascii() and token.isdigit():
                    pending.append((beyond, node))

    def add_leaf(self, leaf: Leaf, node: _Node) -> None:
        """Add a leaf from a flattener at the path of *node*."""
        scope = self.root
        for array, index in leaf.arrays:
            if self.places.setdefault((id(scope), id(node)), ("array", array)) != ("array", array):
                raise _not_like_json(leaf)
            scope = self._enter(scope, array, index)
        if (id(scope), id(node)) in self.places:
            raise _not_like_json(leaf)
        self.places[id(scope), id(node)] = ("leaf", None)
        self._mark_known(scope, node, leaf.value)

    def _mark_known(self, scope: _Scope, node: _Node, value: Scalar) -> None:
        self.known |= node.ends
        satisfied = node.satisfied_by(value)
        scope.sure |= satisfied
        scope.maybe |= satisfied

    def _mark_unknown(self, scope: _Scope, fields: int) -> None:
        self.unknown |= fields
        scope.maybe |= fields & ~self.plan.never

    def _enter(self, scope: _Scope, array: Hashable, index: Hashable) -> _Scope:
        elements = scope.arrays.setdefault(array, {})
        inner = elements.get(index)
        if inner is None:
            inner = elements[index] = _Scope()
            self.scopes.append(inner)
        return inner

    # Deciding

    def verdict(self) -> Verdict:
        try:
            return self._verdict()
        except _SpentError:
            return Verdict.ERROR

    def _verdict(self) -> Verdict:
        absent, tree = self.plan.absent & ~self.known, self.plan.tree
        shapes, root = self._shapes()
        sure, maybe = absent & ~self.unknown, absent
        for shape in shapes:
            sure |= shape.sure
            maybe |= shape.maybe
        # Every field needs a leaf that satisfies it. That is also sufficient if no array leaves a choice.
        if not tree.holds(maybe):
            return Verdict.FALSE
        free = not any(len(elements) > 1 for shape in shapes for _, elements in shape.arrays)
        if tree.holds(sure):
            choice = _Choice(shapes, root, [shape.sure for shape in shapes], absent & ~self.unknown)
            if free or choice.conjunctions(tree):
                return Verdict.TRUE
        if self.unknown:
            choice = _Choice(shapes, root, [shape.maybe for shape in shapes], absent)
            if free or choice.conjunctions(tree):
                return Verdict.UNKNOWN
        return Verdict.FALSE

    def _shapes(self) -> tuple[list[_Shape], int]:
        """Return the shapes of all scopes, inner scopes before outer ones, and the index of the root's shape."""
        numbers: dict[_Shape, int] = {}
        of_scope: dict[int, int] = {}
        shapes: list[_Shape] = []
        EFFORT.spend(len(self.scopes))
        for scope in reversed(self.scopes):
            arrays = set()
            for elements in scope.arrays.values():
                # An element that satisfies no field is never chosen.
                inner = frozenset(
                    number for number in map(of_scope.__getitem__, map(id, elements.values())) if shapes[number].reach
                )
                if inner:
                    arrays.add((_union(shapes[number].reach for number in inner), inner))
            shape = _Shape(scope.sure, scope.maybe, frozenset(arrays))
            number = numbers.setdefault(shape, len(shapes))
            if number == len(shapes):
                shapes.append(shape)
            of_scope[id(scope)] = number
        return shapes, of_scope[id(self.root)]


class _Choice:
    """Decides which fields can be satisfied together by choosing one element in each array."""

    def __init__(self, shapes: list[_Shape], root: int, satisfied: list[int], free: int) -> None:
        self.shapes = shapes
        self.root = root
        self.satisfied = satisfied  # by shape
        self.free = free  # fields that are satisfied without a leaf
        self.possible: dict[int, bool] = {}
        self.remaining = BUDGET

    def conjunctions(self, tree: _And) -> set[int]:
        """Return the satisfied conjunctions of the disjunctive form, as bits of fields; recursive over `$or`."""
        choices = {tree.bits & ~self.free}
        for alternatives in tree.any_of:
            inner = {bits for alternative in alternatives for bits in self.conjunctions(alternative)}
            joined: set[int] = set()
            for bits in choices:
                if self._is_possible(bits):
                    EFFORT.spend(len(inner) * len(self.shapes))
                    self.remaining -= len(inner) * len(self.shapes)
                    if self.remaining < 0:
                        raise _SpentError
                    joined.update(bits | more for more in inner)
            choices = joined
        return {bits for bits in choices if self._is_possible(bits)}

    def _is_possible(self, fields: int) -> bool:
        known = self.possible.get(fields)
        if known is None:
            known = self.possible[fields] = self._choose(fields)
        return known

    def _choose(self, fields: int) -> bool:
        holds: list[bool] = []  # by shape: each of its arrays has an element with all fields that the array must satisfy
        for shape in self.shapes:
            holds.append(
                all(
                    not fields & reach or any(holds[element] and self._covers(element, fields & reach) for element in elements)
                    for reach, elements in shape.arrays
                )
            )
        return holds[self.root] and self._covers(self.root, fields)

    def _covers(self, number: int, fields: int) -> bool:
        missing = fields & ~self.satisfied[number]
        return missing == 0 or missing & ~_union(reach for reach, _ in self.shapes[number].arrays) == 0


def _union(sets: Iterable[int]) -> int:
    union = 0
    for each in sets:
        union |= each
    return union


def _not_like_json(leaf: Leaf) -> EventError:
    place = encode_pointer(leaf.path)
    return EventError(
        EventCode.BAD_VALUE, "a flattener gave one path of one element two places; put repeated names in an array", place=place
    )
