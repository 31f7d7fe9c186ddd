"""The syntax tree of a CEL expression, close to the text: macros are nodes, and never expanded.

Chains are flat: `a && b && c` is one `Logic`, `1 + 2 - 3` one `Operation`, `a.b[0].c()` one `Chain`, `a ? b : c ? d : e`
one `Ternary`. So a tree is only as deep as its brackets, calls, unary operators and ternaries, which the parser limits,
and every walk may recurse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

At: TypeAlias = tuple[int, int]
"""Line and column, both from 1, the column in characters."""


@final
@dataclass(slots=True, eq=False)
class Literal:
    at: At
    value: Any


@final
@dataclass(slots=True, eq=False)
class Ident:
    """A name. The checker sets *meaning* to its meaning: a `Variable`, a `Local` or a `CelType`.

    *rooted* is whether it has a leading dot, so that it is never the variable of a macro.
    """

    at: At
    name: str
    rooted: bool = False
    meaning: Any = None


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A part of the event: `data`, `before`, `type`..."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class Local:
    """The variable of a macro, by the number of macro variables around it."""

    slot: int


@final
@dataclass(slots=True, eq=False)
class Paren:
    at: At
    inner: Node


@final
@dataclass(slots=True, eq=False)
class ListLiteral:
    at: At
    items: list[Node]


@final
@dataclass(slots=True, eq=False)
class MapLiteral:
    at: At
    entries: list[tuple[Node, Node]]


@final
@dataclass(slots=True, eq=False)
class Unary:
    """`!` or `-`, written *count* times."""

    at: At
    op: str
    count: int
    operand: Node


@final
@dataclass(slots=True, eq=False)
class Operation:
    """Operators of one precedence, from left to right: relations, `+ -`, or `* / %`."""

    first: Node
    rest: list[tuple[str, At, Node]]

    @property
    def at(self) -> At:
        return self.rest[0][1]


@final
@dataclass(slots=True, eq=False)
class Logic:
    """`&&` or `||` with two or more operands."""

    at: At
    op: str
    operands: list[Node]


@final
@dataclass(slots=True, eq=False)
class Ternary:
    """`condition ? then : ...`: the branches in order, then the value of the last else."""

    branches: list[tuple[At, Node, Node]]
    otherwise: Node

    @property
    def at(self) -> At:
        return self.branches[0][0]


@final
@dataclass(slots=True, eq=False)
class Call:
    at: At
    name: str
    args: list[Node]


@final
@dataclass(slots=True, eq=False)
class Has:
    """`has(target.name)`."""

    at: At
    target: Node
    name: str


@final
@dataclass(slots=True, eq=False)
class Bind:
    """`cel.bind(name, value, result)`. The checker sets *slot*."""

    at: At
    name: str
    value: Node
    result: Node
    slot: int = -1


@final
@dataclass(slots=True, eq=False)
class OptionalItem:
    """`?value` in a list or after the key of a map: left out if the optional has no value."""

    at: At
    inner: Node


@final
@dataclass(slots=True, eq=False)
class Select:
    at: At
    name: str


@final
@dataclass(slots=True, eq=False)
class Index:
    at: At
    key: Node


@final
@dataclass(slots=True, eq=False)
class OptionalSelect:
    """`.?name`."""

    at: At
    name: str


@final
@dataclass(slots=True, eq=False)
class OptionalIndex:
    """`[?key]`."""

    at: At
    key: Node


@final
@dataclass(slots=True, eq=False)
class Method:
    at: At
    name: str
    args: list[Node]


@final
@dataclass(slots=True, eq=False)
class Macro:
    """`all`, `exists`, `exists_one`, `filter`, `map`, `sortBy`, `transformList`, `transformMap` over the preceding value, and
    `optMap` and `optFlatMap`, over an optional.

    *names* are one or two variables, with their places; *condition* and *result* are None if the macro has none. The checker sets
    the *slot* of the first variable.
    """

    at: At
    name: str
    names: list[tuple[At, str]]
    condition: Node | None
    result: Node | None
    slot: int = -1


Step: TypeAlias = Select | Index | OptionalSelect | OptionalIndex | Method | Macro


@final
@dataclass(slots=True, eq=False)
class Chain:
    """A value and the steps applied to it: `.name`, `[key]`, `.method(..)`, `.macro(..)`."""

    base: Node
    steps: list[Step]

    @property
    def at(self) -> At:
        return self.base.at


Node: TypeAlias = (
    Literal
    | Ident
    | Paren
    | ListLiteral
    | MapLiteral
    | OptionalItem
    | Unary
    | Operation
    | Logic
    | Ternary
    | Call
    | Has
    | Bind
    | Chain
)


def constant_path(node: Node) -> tuple[str, ...] | None:
    """Return the constant path, from a part of the event, at the beginning of a resolved *node*; None without one."""
    base, steps = (node.base, node.steps) if isinstance(node, Chain) else (node, [])
    if not isinstance(base, Ident) or not isinstance(base.meaning, Variable):
        return None
    path = [base.name]
    for step in steps:
        if isinstance(step, Select):
            path.append(step.name)
        elif isinstance(step, Index) and isinstance(step.key, Literal) and isinstance(step.key.value, str):
            path.append(step.key.value)
        else:
            break
    return tuple(path)


def children(node: Node | Step) -> list[Node | Step]:
    """Return the direct children of *node*, in the order of the text."""
    match node:
        case Paren() | OptionalItem():
            return [node.inner]
        case Bind():
            return [node.value, node.result]
        case ListLiteral():
            return list(node.items)
        case MapLiteral():
            return [part for entry in node.entries for part in entry]
        case Unary():
            return [node.operand]
        case Operation():
            return [node.first, *(operand for _, _, operand in node.rest)]
        case Logic():
            return list(node.operands)
        case Ternary():
            return [*(part for _, condition, then in node.branches for part in (condition, then)), node.otherwise]
        case Call() | Method():
            return list(node.args)
        case Has():
            return [node.target]
        case Chain():
            return [node.base, *node.steps]
        case Index() | OptionalIndex():
            return [node.key]
        case Macro():
            return [part for part in (node.condition, node.result) if part is not None]
        case _:
            return []
