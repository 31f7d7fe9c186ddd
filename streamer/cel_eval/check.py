"""Check a tree: names, functions, overloads, and that the result can be bool (semantics.md section 4).

`data` and `before` are maps of `dyn`, so most types are known only during evaluation. Errors that are certain before that are
refused. Two literals of different types may still be compared, with the same meaning as for fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final
from typing import Literal as OneOf

import re2

from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.hints import NO_NOW, hint
from streamer.cel_eval.parse import MACROS, MACROS_OF_TWO, offset_of, shown
from streamer.cel_eval.regexps import compile_regexp, regexp_error
from streamer.cel_eval.tree import (
    At,
    Bind,
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
    OptionalIndex,
    OptionalItem,
    OptionalSelect,
    Paren,
    Select,
    Step,
    Ternary,
    Unary,
    Variable,
    constant_path,
)
from streamer.cel_eval.types import (
    BOOL,
    DYN,
    FUNCTIONS,
    INT,
    KEYS,
    LITERALS,
    METHODS,
    NUMERIC,
    OPERATORS,
    OPTIONAL,
    ORDERED,
    TYPE,
    VARIABLES,
    Type,
    comparable,
    extension_overloads,
    join,
    join_elements,
    list_of,
    map_of,
    resolve,
)
from streamer.cel_eval.values import TYPE_NAMES
from streamer.errors import CelError

Arity: TypeAlias = tuple[int, int | None]
"""How many arguments a function registered in Python takes, at least and at most; None: any number."""

NO_FUNCTIONS: Final[Mapping[str, Arity]] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class Remark:
    """An accepted expression that deserves a second look.

    Attributes:
        kind: `literal_comparison`: two literals of different types are compared. `spelled_arithmetic`: arithmetic between a field
            and an int literal, an error for an event that spells the number `1.0`.
    """

    kind: OneOf["literal_comparison", "spelled_arithmetic"]
    line: int
    column: int
    message: str


@final
@dataclass(slots=True)
class Checked:
    """The results of the checker."""

    variables: set[str] = field(default_factory=set)
    fields: set[tuple[str, ...]] = field(default_factory=set)
    remarks: list[Remark] = field(default_factory=list)
    regexps: dict[str, Any] = field(default_factory=dict)
    slots: int = 0
    calls: set[str] = field(default_factory=set)


def check(source: str, tree: Node, functions: Mapping[str, Arity] = NO_FUNCTIONS) -> Checked:
    """Resolve the names of *tree* in place and check its types.

    Args:
        source: the text that *tree* was parsed from.
        functions: the registered Python functions; a function called on a value gets it as its first argument.

    Raises:
        CelError: the expression is invalid; the error has line and column.
    """
    checker = _Checker(source, functions)
    result = checker.type_of(tree)
    if result.name not in ("bool", "dyn"):
        raise _error(f"the result must be a bool; this is {_a(result)}", tree.at)
    return checker.checked


def _error(reason: str, at: At) -> CelError:
    return CelError(reason, line=at[0], column=at[1], place="cel")


def _a(kind: Type) -> str:
    return f"{'an' if kind.name[0] in 'iuo' else 'a'} {kind}"


def _listed(kinds: Iterable[Type]) -> str:
    return " and ".join(map(str, kinds))


#: RE2 compiles about a million a second, and 16 KiB of source may contain hundreds of large regexps.
MAX_REGEXP_INSTRUCTIONS: Final = 250_000

#: Macros over an optional.
OF_OPTIONALS: Final = frozenset({"optMap", "optFlatMap"})

_ARITHMETIC: Final = frozenset("+-*/%")


def _is_literal(node: Node) -> bool:
    match node:
        case Literal():
            return True
        case Paren(inner=inner) | Unary(operand=inner):
            return _is_literal(inner)
        case ListLiteral(items=items):
            return all(map(_is_literal, items))
        case MapLiteral(entries=entries):
            return all(_is_literal(key) and _is_literal(value) for key, value in entries)
        case _:
            return False


def _is_int(node: Node | None) -> bool:
    literal = None if node is None else _unwrap(node)
    return isinstance(literal, Literal) and type(literal.value) is int


def _unwrap(node: Node) -> Node:
    while isinstance(node, Paren):
        node = node.inner
    return node


@final
class _Checker:
    def __init__(self, source: str, functions: Mapping[str, Arity]) -> None:
        self._source = source
        self.checked = Checked()
        self._registered = functions
        self._scope: list[tuple[str, Type]] = []
        self._instructions = 0

    def type_of(self, node: Node) -> Type:
        """Return the static type of *node*. It uses a table, as `Run.evaluate` does, to need fewer frames of the stack."""
        return _TYPE_OF[type(node)](self, node)

    def _types_of(self, nodes: Iterable[Node]) -> list[Type]:
        kinds: list[Type] = []
        for node in nodes:
            kinds.append(_TYPE_OF[type(node)](self, node))  # noqa: PERF401  a comprehension costs a frame more
        return kinds

    def _literal(self, node: Literal) -> Type:
        return LITERALS[type(node.value)]

    def _ident(self, node: Ident) -> Type:
        kind = self._name(node)
        if isinstance(node.meaning, Variable):
            self.checked.fields.add((node.name,))
        return kind

    def _paren(self, node: Paren) -> Type:
        return _TYPE_OF[type(node.inner)](self, node.inner)

    def _list_literal(self, node: ListLiteral) -> Type:
        return list_of(join_elements(self._types_of(node.items)))

    def _unary(self, node: Unary) -> Type:
        return self._resolve(node.op, OPERATORS["unary -" if node.op == "-" else "!"], [node.operand], node.at)

    def _logic(self, node: Logic) -> Type:
        for operand in node.operands:
            self._expect_bool(_TYPE_OF[type(operand)](self, operand), operand, f"an operand of {node.op}")
        return BOOL

    def _expect_bool(self, kind: Type, node: Node, what: str) -> None:
        if kind not in (BOOL, DYN):
            raise _error(f"{what} must be a bool; this is {_a(kind)}", node.at)

    # --- names

    def _name(self, node: Ident) -> Type:
        if not node.rooted:
            for slot in range(len(self._scope) - 1, -1, -1):
                name, kind = self._scope[slot]
                if name == node.name:
                    node.meaning = Local(slot)
                    return kind
        if node.name in VARIABLES:
            node.meaning = Variable(node.name)
            self.checked.variables.add(node.name)
            return VARIABLES[node.name]
        if node.name in TYPE_NAMES:
            node.meaning = TYPE_NAMES[node.name]
            return TYPE
        known = [*VARIABLES, *(name for name, _ in self._scope)]
        near = get_close_matches(node.name, known, n=1)
        meant = f"did you mean `{near[0]}`?" if near else f"a field of the document is written `data.{shown(node.name)}`"
        raise _error(f"undeclared name `{shown(node.name)}`; {self._hint(node.at) or meant}", node.at)

    def _hint(self, at: At) -> str | None:
        offset = offset_of(self._source, at)
        return hint(self._source[:offset], self._source[offset:])

    def _name_type(self, node: Chain) -> None:
        """Replace a chain such as `google.protobuf.Timestamp` by the name of its type."""
        base, names = node.base, [step.name for step in node.steps[:2] if isinstance(step, Select)]
        if isinstance(base, Ident) and not any(name == base.name for name, _ in self._scope):
            kind = TYPE_NAMES.get(".".join([base.name, *names]))
            if kind is not None and len(names) == 2:
                node.base, node.steps = Ident(base.at, kind.name), node.steps[2:]

    # --- operators

    def _resolve(self, name: str, overloads: list[Any], args: list[Node], at: At, target: Type | None = None) -> Type:
        kinds = self._types_of(args)
        if target is not None:
            kinds.insert(0, target)
        result = resolve(overloads, kinds)
        if result is None:
            counts = {len(params) for params, _ in overloads}
            if len(kinds) not in counts:
                actual, wanted = len(args), " or ".join(str(count - (target is not None)) for count in sorted(counts))
                raise _error(f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {actual}", at)
            raise _error(f"{name} does not take {_listed(kinds)}", at)
        return result

    def _map_literal(self, node: MapLiteral) -> Type:
        keys, values = [], []
        for key, value in node.entries:
            keys.append(_TYPE_OF[type(key)](self, key))
            if keys[-1] not in KEYS:
                raise _error(f"a key of a map is a bool, an int, a uint or a string; this is {_a(keys[-1])}", key.at)
            values.append(_TYPE_OF[type(value)](self, value))
        return map_of(join_elements(keys), join_elements(values))

    def _operation(self, node: Operation) -> Type:
        left_node: Node | None = node.first
        left = _TYPE_OF[type(node.first)](self, node.first)
        result = left
        for op, at, right_node in node.rest:
            right = _TYPE_OF[type(right_node)](self, right_node)
            literals = left_node is not None and _is_literal(left_node) and _is_literal(right_node)
            if op in _ARITHMETIC:
                result = self._arithmetic(op, at, left, right)
                if (left == DYN and _is_int(right_node)) or (right == DYN and _is_int(left_node)):
                    self._remark("spelled_arithmetic", at, f"`{op}` with an int literal fails if the event spells a double")
            else:
                self._compare(op, at, left, right, literals)
                result = BOOL
            # A computed value is not a literal.
            left, left_node = result, None
        return result

    def _remark(self, kind: Any, at: At, message: str) -> None:
        self.checked.remarks.append(Remark(kind, *at, message))

    def _arithmetic(self, op: str, at: At, left: Type, right: Type) -> Type:
        result = resolve(OPERATORS[op], [left, right])
        both_lists = left.name == right.name == "list"
        joined = join(left, right) if both_lists else result
        if joined is None:
            raise _error(f"{op} does not take {_listed([left, right])}", at)
        return joined

    def _compare(self, op: str, at: At, left: Type, right: Type, literals: bool) -> None:
        match op:
            case "in":
                if right.name not in ("list", "map", "dyn"):
                    raise _error(f"in looks into a list or a map, not into {_a(right)}", at)
                right = right.params[0] if right.params else DYN
                fits = comparable(left, right)
            case "==" | "!=":
                fits = comparable(left, right)
            case _:
                ordered = [Type(kind.name) for kind in (left, right)]
                known = {kind for kind in ordered if kind != DYN}
                fits = known <= ORDERED and (len(known) < 2 or known <= NUMERIC)
                # Without an order, the types' difference is irrelevant.
                literals = literals and ordered[0] != ordered[1]
        if not fits and not literals:
            raise _error(f"{op} does not compare {_listed([left, right])}", at)
        if literals and left != right and DYN not in (left, right):
            self._remark("literal_comparison", at, f"`{op}` compares literals of different types, {_listed([left, right])}")

    def _ternary(self, node: Ternary) -> Type:
        results = []
        for at, condition, then in node.branches:
            self._expect_bool(_TYPE_OF[type(condition)](self, condition), condition, "the condition before ?")
            results.append((at, _TYPE_OF[type(then)](self, then)))
        joined = _TYPE_OF[type(node.otherwise)](self, node.otherwise)
        for at, kind in reversed(results):
            both = join(kind, joined)
            if both is None:
                raise _error(f"the two sides of : have different types, {_listed([kind, joined])}", at)
            joined = both
        return joined

    # --- functions

    def _call(self, node: Call) -> Type:
        if node.name in self._registered:
            return self._call_registered(node.name, node.args, len(node.args), node.at)
        if node.name not in FUNCTIONS:
            raise _error(self._unknown_function(node.name, node.at), node.at)
        overloads = FUNCTIONS[node.name]
        if node.name in EXTENSIONS and EXTENSIONS[node.name].takes_many:
            if not node.args:
                raise _error(f"{node.name}() takes at least 1 argument, not 0", node.at)
            overloads = extension_overloads(node.name, len(node.args))
        result = self._resolve(f"{node.name}()", overloads, node.args, node.at)
        if node.name == "matches":
            self._constant_regexp(node.args[1])
        return result

    def _call_registered(self, name: str, args: list[Node], count: int, at: At) -> Type:
        least, most = self._registered[name]
        if count < least or (most is not None and count > most):
            wanted = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            plural = "" if wanted.split()[-1] == "1" else "s"
            raise _error(f"{name}() takes {wanted} argument{plural}, not {count}", at)
        self.checked.calls.add(name)
        self._types_of(args)
        return DYN

    def _unknown_function(self, name: str, at: At) -> str:
        if name == "now":
            return f"there is no now(): {NO_NOW}"
        if name == "has":
            return "has() takes one argument, a field, as in has(data.a)"
        if name in METHODS or name in MACROS or name in MACROS_OF_TWO:
            return f"`{name}` is called on a value, as in data.a.{name}(...)"
        return f"unknown function `{shown(name)}`{self._near(name, FUNCTIONS, at)}"

    def _near(self, name: str, known: Iterable[str], at: At) -> str:
        if meant := self._hint(at):
            return f"; {meant}"
        near = get_close_matches(name, [*known, *self._registered], n=1)
        if near:
            return f"; did you mean `{near[0]}`?"
        return "" if self._registered is NO_FUNCTIONS else "; one in Python is given to the engine: Engine(cel_functions={..})"

    def _constant_regexp(self, node: Node) -> None:
        node = _unwrap(node)
        if not isinstance(node, Literal):
            return
        if node.value in self.checked.regexps:
            return
        try:
            regexp = self.checked.regexps[node.value] = compile_regexp(node.value)
        except re2.error as error:
            raise _error(regexp_error(error), node.at) from None
        self._instructions += regexp.programsize
        if self._instructions > MAX_REGEXP_INSTRUCTIONS:
            raise _error("the regular expressions of this expression are too large together", node.at)

    def _has(self, node: Has) -> Type:
        kind = self._step_into(node.target)
        self._field(kind, node.name, node.at)
        path = constant_path(node.target)
        if path is not None:
            self.checked.fields.add((*path, node.name))
        return BOOL

    def _step_into(self, node: Node) -> Type:
        """Return the type of a node, if the expression reads only a part of its value."""
        if isinstance(node, Ident):
            return self._name(node)
        return self._chain(node, whole=False) if isinstance(node, Chain) else _TYPE_OF[type(node)](self, node)

    def _bind(self, node: Bind) -> Type:
        kind = _TYPE_OF[type(node.value)](self, node.value)
        node.slot = len(self._scope)
        self._scope.append((node.name, kind))
        self.checked.slots = max(self.checked.slots, len(self._scope))
        result = _TYPE_OF[type(node.result)](self, node.result)
        del self._scope[node.slot :]
        return result

    def _optional_item(self, node: OptionalItem) -> Type:
        kind = _TYPE_OF[type(node.inner)](self, node.inner)
        if kind not in (OPTIONAL, DYN):
            raise _error(f"`?` takes an optional, not {_a(kind)}", node.at)
        return DYN

    # --- chains

    def _chain(self, node: Chain, *, whole: bool = True) -> Type:
        self._name_type(node)
        kind = self._step_into(node.base)
        for step in node.steps:
            kind = self._step(kind, step)
        path = constant_path(node) if whole else None
        if path is not None:
            self.checked.fields.add(path)
        return kind

    def _step(self, kind: Type, step: Step) -> Type:
        match step:
            case Select():
                return self._field(kind, step.name, step.at)
            case Index():
                return self._index(kind, step)
            case OptionalSelect():
                self._field(kind, step.name, step.at)
                return OPTIONAL
            case OptionalIndex():
                self._index(kind, step)
                return OPTIONAL
            case Method():
                return self._method(kind, step)
            case Macro():
                return self._macro(kind, step)

    @staticmethod
    def _field(kind: Type, name: str, at: At) -> Type:
        if kind in (DYN, OPTIONAL):
            return kind
        if kind.name != "map":
            raise _error(f"{_a(kind)} has no fields, so no `{shown(name)}`", at)
        return kind.params[1]

    def _index(self, kind: Type, step: Index | OptionalIndex) -> Type:
        key = _TYPE_OF[type(step.key)](self, step.key)
        if kind == OPTIONAL:
            return OPTIONAL
        fits = {"list": key in (INT, DYN), "map": kind.name == "map" and comparable(key, kind.params[0]), "dyn": True}
        if not fits.get(kind.name, False):
            raise _error(f"[] does not take {_listed([kind, key])}", step.at)
        return DYN if kind == DYN else kind.params[-1]

    def _method(self, kind: Type, step: Method) -> Type:
        if step.name in self._registered:
            return self._call_registered(step.name, step.args, len(step.args) + 1, step.at)
        if step.name not in METHODS:
            known = [*METHODS, *MACROS, *MACROS_OF_TWO]
            if step.name in known:
                raise _error(f"{step.name}() takes a variable and an expression, as in data.list.{step.name}(x, ...)", step.at)
            raise _error(f"unknown function `{shown(step.name)}`{self._near(step.name, known, step.at)}", step.at)
        result = self._resolve(f"{step.name}()", METHODS[step.name], step.args, step.at, target=kind)
        if step.name == "matches":
            self._constant_regexp(step.args[0])
        return result

    def _macro(self, kind: Type, step: Macro) -> Type:
        two = len(step.names) == 2
        optional = step.name in OF_OPTIONALS
        match kind.name:
            case "dyn":
                kinds = [DYN] * len(step.names)
            case "optional_type" if optional:
                kinds = [DYN]
            case _ if optional:
                raise _error(f"{step.name}() is called on an optional, not on {_a(kind)}", step.at)
            case "list":
                kinds = [INT, kind.params[0]] if two else [kind.params[0]]
            case "map" if step.name != "sortBy":
                kinds = list(kind.params) if two else [kind.params[0]]
            case _ if step.name == "sortBy":
                raise _error(f"sortBy() goes over a list, not over {_a(kind)}", step.at)
            case _:
                raise _error(f"{step.name}() goes over a list or a map, not over {_a(kind)}", step.at)
        step.slot = len(self._scope)
        self._scope += [(name, variable) for (_, name), variable in zip(step.names, kinds, strict=True)]
        self.checked.slots = max(self.checked.slots, len(self._scope))
        if step.condition is not None:
            condition = _TYPE_OF[type(step.condition)](self, step.condition)
            self._expect_bool(condition, step.condition, f"the condition of {step.name}()")
        result = BOOL if step.result is None else _TYPE_OF[type(step.result)](self, step.result)
        del self._scope[step.slot :]
        match step.name:
            case "optMap" | "optFlatMap":
                if step.name == "optFlatMap" and result not in (OPTIONAL, DYN):
                    raise _error(f"the result of optFlatMap() must be an optional; this is {_a(result)}", step.at)
                return OPTIONAL
            case "filter" | "sortBy":
                return list_of(kinds[0])
            case "map" | "transformList":
                return list_of(result)
            case "transformMap":
                return map_of(kinds[0], result)
            case _:
                return BOOL


_TYPE_OF: Final[Mapping[type, Callable[[_Checker, Any], Type]]] = {
    Literal: _Checker._literal,
    Ident: _Checker._ident,
    Paren: _Checker._paren,
    ListLiteral: _Checker._list_literal,
    MapLiteral: _Checker._map_literal,
    Unary: _Checker._unary,
    Operation: _Checker._operation,
    Logic: _Checker._logic,
    Ternary: _Checker._ternary,
    Call: _Checker._call,
    Has: _Checker._has,
    Bind: _Checker._bind,
    OptionalItem: _Checker._optional_item,
    Chain: _Checker._chain,
}
