"""Lower a CEL expression to clauses, and prove that a subscription never matches because of its expression.

    data.n > 100 && data.n < 50                        data.n > 100 and data.n < 50                    contradictory
    data.n == 1 && (data.s == 'a' || 1 / 0 > 1)        data.n = 1 and data.s = 'a'

An expression becomes alternatives, each an AND of clauses (atoms.py). As in crates/streamer-core/src/cel/lower/mod.rs, there are
two questions for each node: for which events is it TRUE, and for which FALSE?

Invariant: every event with the wanted value satisfies all clauses of one alternative. Other events may satisfy them, too. So if
all alternatives are contradictory, that is a proof that no event matches; the converse proves neither.

The reference checks every expression, the native core only those that its own lowering suspects.

Cost: a walk over the tree; alternatives multiply. The lowering stops without a result if there are more alternatives than a part
of `Limits.max_conjunctions`, or more than `_MAX_WORK` clauses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final, get_args

from streamer.cel_eval.constants import OPEN, Constants, negative_index
from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.extensions.optionals import LAZY
from streamer.cel_eval.narrowing import narrowing
from streamer.cel_eval.program import Program, compile_cel
from streamer.cel_eval.tree import (
    Call,
    Chain,
    Has,
    Ident,
    Index,
    ListLiteral,
    Literal,
    Local,
    Logic,
    Macro,
    MapLiteral,
    Method,
    Node,
    Operation,
    Paren,
    Select,
    Step,
    Ternary,
    Unary,
    Variable,
)
from streamer.cel_eval.values import CelType, Failure, UInt
from streamer.errors import CelError
from streamer.model import EventType, Limits
from streamer.subscriptions.atoms import (
    PRESENT,
    READABLE,
    Atom,
    Clause,
    Contains,
    IsKind,
    Kind,
    Matches,
    Mode,
    Not,
    Path,
    Range,
    Root,
    Size,
    kind_of,
    value_clause,
)
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.contradictions import MISSING, contradiction
from streamer.subscriptions.groups import cel_within
from streamer.subscriptions.matchers import Equal, Prefix, Suffix
from streamer.subscriptions.normal_form import NormalForm
from streamer.subscriptions.subscription import EVERY

Kinds: TypeAlias = frozenset[Kind]
Alternatives: TypeAlias = list[frozenset[Clause]]
"""An OR of ANDs; without any it is true of no event."""

_MAX_WORK: Final = 20_000
_ANY: Final[Alternatives] = [frozenset()]
_NONE: Final[Alternatives] = []

_BOOL: Final = frozenset({Kind.BOOL})
_NUMBER: Final = frozenset({Kind.NUMBER})
_STRING: Final = frozenset({Kind.STRING})
_LIST: Final = frozenset({Kind.LIST})
_MAP: Final = frozenset({Kind.MAP})

_MIRRORED: Final[Mapping[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_OPPOSITE: Final[Mapping[str, str]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_KINDS_OF_TYPES: Final[Mapping[str, Kinds]] = {
    "bool": _BOOL,
    "string": _STRING,
    "list": _LIST,
    "map": _MAP,
    "null_type": frozenset({Kind.NULL}),
}
_TEXTS: Final[Mapping[str, Root]] = {
    "type": Root.TYPE,
    "topic": Root.TOPIC,
    "collection": Root.COLLECTION,
    "tenant": Root.TENANT,
}
_DOCUMENTS: Final[Mapping[str, Root]] = {"data": Root.DATA, "before": Root.BEFORE, "envelope": Root.ENVELOPE}


def impossible(compiled: CompiledSubscription, form: NormalForm, limits: Limits) -> str | None:
    """Return the reason why the expression prevents every match, or None if that is not proven.

    Args:
        form: the other parts of the subscription.
        limits: only `max_conjunctions` applies.
    """
    alternatives = _lowered(compiled, form, limits)[0]
    if alternatives is None:
        return None
    if not alternatives:
        return f"{_impossible_part(compiled, limits)}: it is true for no event"
    parts = _parts(compiled)
    reasons = set()
    for conjunction in form.conjunctions:
        for alternative in alternatives:
            reason = contradiction([*conjunction.clauses, *parts, *alternative])
            if reason is None:
                return None
            reasons.add(reason)
    return "; or ".join(sorted(reasons))


def _impossible_part(compiled: CompiledSubscription, limits: Limits) -> str:
    """Return which part is true for no event, if the groups of filters or the expression is."""
    program = _plain(compiled.cel, limits)
    is_cel = program is not None and not _Lowering(program, limits.max_conjunctions).set(program.tree, True)
    return "cel" if is_cel else "filters"


def possible(compiled: CompiledSubscription, form: NormalForm, limits: Limits) -> tuple[Alternatives, bool]:
    """Return clauses for the events for which the expression is true, and whether no other events satisfy them."""
    alternatives, is_exact = _lowered(compiled, form, limits)
    return (_ANY, False) if alternatives is None else (alternatives, is_exact)


def _lowered(compiled: CompiledSubscription, form: NormalForm, limits: Limits) -> tuple[Alternatives | None, bool]:
    program = _plain(compiled.cel, limits)
    if compiled.groups:
        program = _whole(compiled, program, limits)
    if program is None:
        return None, False
    lowering = _Lowering(program, limits.max_conjunctions // max(len(form.conjunctions), 1))
    alternatives = lowering.set(program.tree, True)
    is_all = compiled.cel is None or not compiled.cel.is_portable
    return (None, False) if lowering.is_exhausted else (alternatives, lowering.is_exact and is_all)


def _plain(program: Program | None, limits: Limits) -> Program | None:
    """Return the part of an expression that calls no Python function, or None if there is no such part."""
    if program is None or not program.is_portable:
        return program
    source = narrowing(program)
    try:
        return None if source is None else compile_cel(source, limits)
    except CelError:
        return None


def _whole(compiled: CompiledSubscription, program: Program | None, limits: Limits) -> Program | None:
    """Return the groups of filters and the expression as one expression; None if it is too long."""
    parts = [] if program is None else [program.source]
    for group in compiled.groups:
        if (text := cel_within(group, limits.max_cel_bytes - sum(map(len, parts)))) is None:
            return None
        parts.append(text)
    try:
        return compile_cel(" && ".join(f"({part}\n)" for part in parts), limits)
    except CelError:
        return None


def _parts(compiled: CompiledSubscription) -> list[Clause]:
    """Return the clauses that all events satisfy, by the subscription's partition and the contract."""
    parts = [value_clause(Path(Root.TENANT), [Equal(compiled.tenant)])] if compiled.tenant != EVERY else []
    if compiled.collection is not None:
        parts.append(value_clause(Path(Root.COLLECTION), [Equal(compiled.collection)]))
    if compiled.types is None:
        parts.append(value_clause(Path(Root.TYPE), [*map(Equal, get_args(EventType)), MISSING]))
    return parts


@final
@dataclass(frozen=True, slots=True)
class _Text:
    """A part of the event that CEL reads as a string: it is empty if the event lacks the part."""

    root: Root


@final
class _Lowering:
    def __init__(self, program: Program, limit: int) -> None:
        # Lower than the limit of the native core, which counts some alternatives separately that are one here.
        self._limit = max(limit // 4, 1)
        self.is_exhausted = False
        #: Whether only events with the wanted value satisfy the clauses.
        self.is_exact = True
        #: Whether the current node is inside a macro.
        self._is_inside = False
        self._work = 0
        self._constants = Constants(program)

    def set(self, node: Node, wanted: bool) -> Alternatives:
        """Return clauses that all events satisfy for which a condition is *wanted*. Recursive: the parser limits the depth."""
        if self.is_exhausted or self._work > _MAX_WORK:
            self.is_exhausted = True
            return _ANY
        value = self._constants.value(node)
        alternatives = self._set(node, wanted) if value is OPEN else _ANY if value is wanted else _NONE
        self._work += 1 + sum(1 + len(each) for each in alternatives)
        return alternatives

    def _set(self, node: Node, wanted: bool) -> Alternatives:
        match node:
            case Paren():
                return self.set(node.inner, wanted)
            case Call(name="dyn", args=[argument]):
                return self.set(argument, wanted)
            case Unary(op="!"):
                return self.set(node.operand, wanted ^ (node.count % 2 == 1))
            case Logic():
                return self._logic(node, wanted)
            case Ternary():
                whole = self.set(node.otherwise, wanted)
                for _, condition, then in reversed(node.branches):
                    consequence = self._and(self.set(condition, True), self.set(then, wanted))
                    whole = self._or(consequence, self._and(self.set(condition, False), whole))
                return whole
            case Operation(rest=[(op, _, right)]):
                clauses = self._comparison(op, node.first, right, wanted)
            case Has():
                clauses = _has(node, wanted)
            case Call(name="matches", args=[target, text]):
                clauses = _text_test(target, "matches", text, wanted)
            case Chain(steps=[*steps, Macro() as step]):
                clauses = self._any_element(node.base, steps, step, wanted)
            case Chain():
                clauses = _chain(node, wanted)
            case _:
                clauses = None
        if clauses is None:
            self.is_exact = False
            return self._value_of(node)
        self.is_exact = self.is_exact and not _says_more(node, clauses, wanted)
        return clauses

    def _any_element(self, base: Node, steps: Sequence[Step], step: Macro, wanted: bool) -> Alternatives | None:
        """Return the condition of a macro as clauses on any element of a list, or any name of an object."""
        is_one = wanted if step.name in ("exists", "exists_one") else step.name == "all" and not wanted
        path = _path(base, steps)
        # A clause cannot name the elements of a list in a list.
        if self._is_inside or not is_one or not isinstance(path, Path) or not path.names or len(step.names) != 1:
            return None
        assert step.condition is not None
        self._is_inside = True
        alternatives = self.set(step.condition, wanted)
        self._is_inside = False
        self.is_exact = self.is_exact and step.name != "exists_one"
        clause_sets = []
        for alternative in alternatives:
            of_element = [clause for clause in alternative if clause.path.root is Root.ELEMENT]
            # Clauses may be satisfied by different elements.
            self.is_exact = self.is_exact and len(of_element) == 1 and not of_element[0].path.names
            clauses = {_of_element(path, clause) for clause in of_element}
            clause_sets.append(
                frozenset({*(alternative - {*of_element}), *(clauses or {value_clause(path, [IsKind(_LIST | _MAP)])})})
            )
        return clause_sets

    def _logic(self, node: Logic, wanted: bool) -> Alternatives:
        every = wanted == (node.op == "&&")
        whole = _ANY if every else _NONE
        for operand in node.operands:
            one = self.set(operand, wanted)
            whole = self._and(whole, one) if every else self._or(whole, one)
            self._work += len(whole)
        return whole

    def _and(self, one: Alternatives, other: Alternatives) -> Alternatives:
        if len(one) * len(other) > self._limit:
            self.is_exhausted = True
            return _ANY
        return [left | right for left in one for right in other]

    def _or(self, one: Alternatives, other: Alternatives) -> Alternatives:
        both = list(one)
        for alternative in other:
            at = next((at for at, known in enumerate(both) if _are_on_one_value(known, alternative)), None)
            if at is None:
                both.append(alternative)
                continue
            # Join two conditions on one value in one clause.
            (known,), (new,) = both[at], alternative
            both[at] = frozenset({Clause(known.path, known.mode, known.atoms | new.atoms)})
        if len(both) > self._limit:
            self.is_exhausted = True
            return _ANY
        return both

    # Comparisons

    def _comparison(self, op: str, left: Node, right: Node, wanted: bool) -> Alternatives | None:
        """Return the clauses of a comparison, or None if clauses cannot express it."""
        if op == "!=":
            op, wanted = "==", not wanted
        if op == "in":
            listed = _unwrap(right)
            place = _read(right)
            if wanted and isinstance(place, Path) and isinstance(value := _constant(left), bool | int | float | str):
                return [frozenset({Clause(place, Mode.MEMBER, frozenset({Equal(value)}))})]
            values = [_constant(item) for item in listed.items] if isinstance(listed, ListLiteral) else [OPEN]
            return None if any(value is OPEN for value in values) else _equality(_read(left), values, wanted)
        if op not in _MIRRORED:
            return None
        if (alternatives := _special(op, left, right, wanted)) is not None:
            return alternatives
        one, other = _read(left), _read(right)
        if isinstance(one, Path) and isinstance(other, Path):
            return _difference(one, other) if op == "==" and not wanted else None
        if (one is None) == (other is None):
            return None
        if one is None:
            one, right, op = other, left, _MIRRORED[op]
        value = _constant(right)
        if value is OPEN:
            return None
        if op == "==":
            return _equality(one, [value], wanted)
        if not isinstance(one, Path) or not isinstance(value, bool | int | float | str):
            return None
        op = op if wanted else _OPPOSITE[op]
        side = "low" if op[0] == ">" else "high"
        bounds: dict[str, Any] = {side: value, f"{side}_inclusive": op.endswith("=")}
        return _clause(one, [Range(kind_of(value), **bounds)])

    # The fields that an expression with a value has read

    def _value_of(self, node: Node) -> Alternatives:
        clauses: list[Clause] = []
        return [frozenset(clauses)] if self._strict(node, READABLE, clauses) else _NONE

    def _strict(self, node: Node, kinds: Kinds, clauses: list[Clause]) -> bool:
        """Add clauses for the fields that a value reads, with their kinds. Return False if it is an error for every event."""
        if isinstance(self._constants.value(node), Failure) or negative_index(node) is not None:
            return False
        match node:
            case Paren():
                return self._strict(node.inner, kinds, clauses)
            case ListLiteral():
                return self._all(node.items, READABLE, clauses)
            case MapLiteral():
                keys, values = [key for key, _ in node.entries], [value for _, value in node.entries]
                return self._all(keys, _BOOL | _NUMBER | _STRING, clauses) and self._all(values, READABLE, clauses)
            case Unary():
                return self._strict(node.operand, _BOOL if node.op == "!" else _NUMBER, clauses)
            case Operation():
                is_good = self._strict(node.first, _operand_kinds(node.rest[0][0]), clauses)
                for op, _, operand in node.rest:
                    of = _LIST | _MAP if op == "in" else _operand_kinds(op)
                    is_good = self._strict(operand, of, clauses) and is_good
                return is_good
            case Ternary():
                return self._strict(node.branches[0][1], _BOOL, clauses)
            case Call():
                return self._all(node.args, kinds if node.name == "dyn" else _ARGUMENTS.get(node.name, READABLE), clauses)
            case Has():
                return self._strict(node.target, _MAP, clauses)
            case Chain():
                return self._strict_chain(node, kinds, clauses)
            case _:
                return True

    def _all(self, nodes: Iterable[Node], kinds: Kinds, clauses: list[Clause]) -> bool:
        return all(self._strict(node, kinds, clauses) for node in nodes)

    def _strict_chain(self, node: Chain, kinds: Kinds, clauses: list[Clause]) -> bool:
        named = next((at for at, step in enumerate(node.steps) if _name_of(step) is None), len(node.steps))
        if named < len(node.steps):
            step = node.steps[named]
            # For a step into a list, the native core only has the kind of any leaf, so it does not suspect the expression.
            kinds = _TARGETS.get(step.name, READABLE) if isinstance(step, Method) else frozenset(Kind)
        path, is_good = _path(node.base, node.steps[:named]), True
        if path is not None:
            if isinstance(path, Path):
                clauses.append(value_clause(path, [IsKind(kinds)]))
        elif not isinstance(node.base, Ident):
            is_good = self._strict(node.base, READABLE, clauses)
        for step in node.steps[named:]:
            match step:
                case Index():
                    is_good = self._strict(step.key, READABLE, clauses) and is_good
                case Method() if step.name not in LAZY:
                    of = READABLE if step.name == "contains" or step.name in EXTENSIONS else _STRING
                    is_good = self._all(step.args, of, clauses) and is_good
        return is_good


_ARGUMENTS: Final[Mapping[str, Kinds]] = {
    "size": _STRING | _LIST | _MAP,
    **dict.fromkeys(("matches", "bytes", "duration"), _STRING),
    **dict.fromkeys(("int", "uint", "double", "timestamp"), _NUMBER | _STRING),
    "string": _STRING | _NUMBER | _BOOL,
    "bool": _BOOL | _STRING,
}
_TARGETS: Final[Mapping[str, Kinds]] = {
    "size": _STRING | _LIST | _MAP,
    "contains": _STRING | _LIST,
    **dict.fromkeys(("startsWith", "endsWith", "matches"), _STRING),
}


def _operand_kinds(op: str) -> Kinds:
    match op:
        case "<" | "<=" | ">" | ">=":
            return _NUMBER | _BOOL | _STRING
        case "+":
            return _NUMBER | _STRING | _LIST
        case "-" | "*" | "/" | "%":
            return _NUMBER
        case _:
            return READABLE


# Reading fields


def _unwrap(node: Node) -> Node:
    while True:
        match node:
            case Paren():
                node = node.inner
            case Call(name="dyn", args=[argument]):
                node = argument
            case _:
                return node


def _name_of(step: Step) -> str | None:
    match step:
        case Select():
            return step.name
        case Index(key=Literal(value=str() as name)):
            return name
        case _:
            return None


def _read(node: Node) -> Path | _Text | None:
    """Return the part of the event that a node reads; None for a whole document, and for any other expression."""
    part = _path(node, [])
    return part if isinstance(part, _Text) or (part is not None and (part.names or part.root is Root.ELEMENT)) else None


def _path(base: Node, steps: Sequence[Step]) -> Path | _Text | None:
    """Return the path to a document or to a field in it, or a part of the event that is a text."""
    node = _unwrap(base)
    if isinstance(node, Chain):
        steps = [*node.steps, *steps]
        node = _unwrap(node.base)
    if isinstance(node, Ident) and isinstance(node.meaning, Local):
        below = tuple(name for name in map(_name_of, steps) if name is not None)
        return Path(Root.ELEMENT, below) if len(below) == len(steps) else None
    if not isinstance(node, Ident) or not isinstance(node.meaning, Variable):
        return None
    name = node.meaning.name
    if name in _TEXTS:
        return None if steps else _Text(_TEXTS[name])
    names = tuple(name for name in map(_name_of, steps) if name is not None)
    return Path(_DOCUMENTS[name], names) if name in _DOCUMENTS and len(names) == len(steps) else None


def _constant(node: Node) -> Any:
    """Return the constant of a node if it can occur in an event, else OPEN."""
    match _unwrap(node):
        case Literal(value=bytes()):
            return OPEN
        case Literal(value=UInt() as value):
            return int(value)
        case Literal(value=value):
            return value
        case ListLiteral(items=items):
            values = [_constant(item) for item in items]
            return OPEN if any(value is OPEN for value in values) else values
        case _:
            return OPEN


# Clauses


def _of_element(path: Path, clause: Clause) -> Clause:
    """Return a clause on one element of the list at *path* as a clause on any element; a path inside it goes through lists."""
    mode = Mode.LEAF if clause.path.names else Mode.MEMBER
    return Clause(Path(path.root, (*path.names, *clause.path.names)), mode, clause.atoms)


def _says_more(node: Node, alternatives: Alternatives, wanted: bool) -> bool:
    """Return whether a condition means more than an index decides: a list that differs from a constant, or a negated text."""
    match node:
        case Operation(rest=[(op, _, right)]) if wanted is (op != "!="):
            # The clauses have only the kind of a list, but an index looks up the whole list.
            return False
        case Operation(rest=[(op, _, right)]):
            compared = [_constant(node.first), _constant(right)]
            if op == "in":
                compared = compared[1] if isinstance(compared[1], list) else []
            # An empty list is exact: all comparisons with one are the same condition, which is checked once.
            return any(isinstance(value, list) and value for value in compared)
        case Call(name="matches") | Chain(steps=[*_, Method()]):
            return any(
                isinstance(atom, IsKind) for alternative in alternatives for clause in alternative for atom in clause.atoms
            )
        case _:
            return False


def _clause(path: Path, atoms: Iterable[Atom]) -> Alternatives:
    return [frozenset({value_clause(path, atoms)})]


def _is(path: Path, kinds: Kinds) -> Alternatives:
    return _clause(path, [IsKind(kinds)])


def _are_on_one_value(one: frozenset[Clause], other: frozenset[Clause]) -> bool:
    if not len(one) == len(other) == 1:
        return False
    (left,), (right,) = one, other
    return left.path == right.path and left.mode is right.mode


def _equality(read: Path | _Text | None, values: Sequence[Any], wanted: bool) -> Alternatives | None:
    """Return the clauses for equality with one of *values* or, if it is not *wanted*, with none of them."""
    if isinstance(read, _Text):
        texts = [Equal(value) for value in values if isinstance(value, str)]
        missing = [MISSING] if ("" in values) == wanted else []
        if wanted:
            return _clause(Path(read.root), [*texts, *missing]) if texts else _NONE
        return _clause(Path(read.root), [Not(frozenset(texts)), *missing])
    if read is None:
        return None
    if wanted:
        atoms = [IsKind(_LIST) if isinstance(value, list) else Equal(value) for value in values]
        return _clause(read, atoms) if atoms else _NONE
    others = frozenset(Equal(value) for value in values if not isinstance(value, list))
    return _clause(read, [Not(others)]) if others else _is(read, READABLE)


def _difference(one: Path, other: Path) -> Alternatives | None:
    """Return the clauses for a field that exists before and after the change, with different values."""
    if one.names != other.names or {one.root, other.root} != {Root.DATA, Root.BEFORE}:
        return None
    changed = Clause(Path(Root.DATA, one.names), Mode.CHANGED, frozenset({Equal(True)}))
    return [frozenset({changed, *(value_clause(path, [IsKind(READABLE)]) for path in (one, other))})]


def _has(node: Has, wanted: bool) -> Alternatives | None:
    target = _path(node.target, [])
    if not isinstance(target, Path):
        return None
    path = Path(target.root, (*target.names, node.name))
    return _is(path, PRESENT) if wanted else [frozenset({value_clause(target, [IsKind(_MAP)]), value_clause(path, [MISSING])})]


def _special(op: str, left: Node, right: Node, wanted: bool) -> Alternatives | None:
    """Return the clauses for a comparison of `size(data.a)` with a number, or of `type(data.a)` with a type."""
    for one, other, sign in ((left, right, op), (right, left, _MIRRORED[op])):
        one, other = _unwrap(one), _unwrap(other)
        if isinstance(other, Literal) and type(other.value) is int and (path := _sized(one)) is not None:
            return _sizes(path, sign, other.value, wanted)
        if op == "==" and isinstance(other, Ident) and isinstance(other.meaning, CelType) and isinstance(one, Call):
            kinds = _KINDS_OF_TYPES.get(other.meaning.name)
            typed = _read(one.args[0]) if one.name == "type" and kinds is not None else None
            if isinstance(typed, Path) and kinds is not None:
                return _is(typed, kinds if wanted else READABLE - kinds)
    return None


def _sized(node: Node) -> Path | None:
    match node:
        case Call(name="size", args=[argument]):
            path = _path(argument, [])
        case Chain(steps=[*steps, Method(name="size", args=[])]):
            path = _path(node.base, steps)
        case _:
            return None
    return path if isinstance(path, Path) and path.names else None


def _sizes(path: Path, op: str, bound: int, wanted: bool) -> Alternatives:
    if not wanted and op != "==":
        op, wanted = _OPPOSITE[op], True
    within = {
        "==": [(bound, bound)] if wanted else [(0, bound - 1), (bound + 1, sys.maxsize)],
        "<": [(0, bound - 1)],
        "<=": [(0, bound)],
        ">": [(bound + 1, sys.maxsize)],
        ">=": [(bound, sys.maxsize)],
    }[op]
    atoms = [Size(max(least, 0), most) for least, most in within if least <= most and most >= 0]
    return _clause(path, atoms) if atoms else _NONE


def _chain(node: Chain, wanted: bool) -> Alternatives | None:
    *before, last = node.steps
    if _name_of(last) is not None:
        flag = _path(node.base, node.steps)
        return _clause(flag, [Equal(wanted)]) if isinstance(flag, Path) else None
    if not isinstance(last, Method) or len(last.args) != 1:
        return None
    target = Chain(node.base, before) if before else node.base
    if last.name == "contains":
        path, value = _read(target), _constant(last.args[0])
        if isinstance(path, Path) and value is not OPEN:
            if isinstance(value, list) or not wanted:
                return _is(path, _LIST | _STRING if isinstance(value, str) else _LIST)
            return _clause(path, [Contains(Equal(value))])
    return _text_test(target, last.name, last.args[0], wanted)


def _text_test(target: Node, name: str, argument: Node, wanted: bool) -> Alternatives | None:
    """Return the clauses for a string function with a constant argument, such as `startsWith`."""
    read, text = _read(target), _constant(argument)
    if not isinstance(text, str) or read is None:
        return None
    atom: Atom = IsKind(_STRING)
    match name:
        case "startsWith" if text and wanted:
            atom = Prefix(text)
        case "endsWith" if text and wanted:
            atom = Suffix(text)
        case "contains" if wanted:
            atom = Contains(Equal(text))
        case "matches" if wanted:
            atom = Matches(text)
        case "startsWith" | "endsWith" | "contains" | "matches":
            pass
        case _:
            return None
    if isinstance(read, Path):
        return _clause(read, [atom])
    # A missing part is read as an empty text, which begins and ends only with the empty text.
    may_be_empty = not isinstance(atom, Prefix | Suffix) and not (name == "contains" and text and wanted)
    return _clause(Path(read.root), [atom, *([MISSING] if may_be_empty else [])])
