"""Find the part of an expression that an index can use to narrow its subscription, although cel-python evaluates the whole.

```
is_vip(data.user) && data.kind == 'order' && data.n % 2 == 0
                     ────────────────────
```

The part consists of the operands of the outermost `&&` that call no function of the user, and that cel-python evaluates exactly
as the contract defines. The native core gets their text, and lowers it like any other expression.

Invariant: if the whole is true on cel-python, each of these operands is true by the contract. So an index that finds every event
for which they are true loses no match. Budgets and clocks can only end an evaluation without a match, and only the whole program
decides about an event with unknowns.

Cost: a walk over the tree and another parse of that part when a subscription is added.

Rejected: parts of an `||`, and operands of an inner `&&`, whose text would have to be reassembled, with brackets. Arithmetic,
conversions and times: cel-python's may differ (testdata/known_failures_portable.toml), and a difference loses a match.
"""

from __future__ import annotations

from typing import Any, Final

from streamer.cel_eval.parse import parse
from streamer.cel_eval.program import Program
from streamer.cel_eval.tree import (
    At,
    Call,
    Chain,
    Has,
    Ident,
    Index,
    ListLiteral,
    Literal,
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
    children,
)
from streamer.errors import CelError
from streamer.model import Limits

#: Functions that the portable evaluator leaves to the contract's own code, and two tests of strings with only one meaning.
_FUNCTIONS: Final = frozenset({"size", "contains", "matches", "type", "dyn", "startsWith", "endsWith"})
#: A longer expression is not split, because it would be parsed twice when it is added.
MAX_LENGTH: Final = 2048
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_PLAIN: Final = (Literal, Paren, ListLiteral, MapLiteral, Logic, Ternary, Has, Chain, Select, Index, Macro)


def narrowing(program: Program) -> str | None:
    """Return a condition that is true for every event for which a program of the portable evaluator is true; None if unknown."""
    source, tree = program.source, program.tree
    if not (isinstance(tree, Logic) and tree.op == "&&"):
        return source if _is_plain(tree) else None
    if len(source) > MAX_LENGTH:
        return None
    starts = [0, *(_offset(source, _first(operand)) for operand in tree.operands[1:])]
    conjuncts = []
    for operand, start, end in zip(tree.operands, starts, [*starts[1:], None], strict=True):
        text = source[start:end]
        # A comment could contain another `&&`.
        if _is_plain(operand) and "//" not in text:
            text = (text if end is None else text[: text.rindex("&&")]).strip()
            # A wrong split would lose matches, so parse the text again and compare.
            if _says(text, operand):
                conjuncts.append(text)
    return " && ".join(conjuncts) or None


def _says(text: str, node: Node) -> bool:
    try:
        return _signature(parse(text, Limits())) == _signature(node)
    except CelError:
        return False


def _signature(root: Node) -> list[tuple[Any, ...]]:
    """Return the content of a tree, without positions and the resolution of its names."""
    content: list[tuple[Any, ...]] = []
    pending: list[Node | Step] = [root]
    while pending:
        node = pending.pop()
        below = children(node)
        content.append((type(node), len(below), *_own(node)))
        pending.extend(below)
    return content


def _own(node: Node | Step) -> tuple[Any, ...]:
    match node:
        case Literal(value=value):
            return type(value), repr(value)
        case Ident():
            return node.name, node.rooted
        case Unary():
            return node.op, node.count
        case Operation():
            return tuple(op for op, _, _ in node.rest)
        case Logic():
            return (node.op,)
        case Call() | Has() | Select() | Method():
            return (node.name,)
        case Macro():
            return node.name, [name for _, name in node.names], node.condition is None, node.result is None
        case _:
            return ()


def _first(node: Node) -> At:
    """Return the beginning of a node's text; an operator has its own position."""
    while not isinstance(node, Literal):
        match node:
            case Operation():
                node = node.first
            case Chain():
                node = node.base
            case _:
                break
    return node.at


def _is_plain(root: Node) -> bool:
    pending: list[Node | Step] = [root]
    while pending:
        node = pending.pop()
        match node:
            case Call(name=name) | Method(name=name):
                is_plain = name in _FUNCTIONS
            case Unary(op=op):
                is_plain = op == "!"
            case Operation(rest=rest):
                is_plain = all(op in _RELATIONS for op, _, _ in rest)
            case Ident(name=name):
                # `ts` is the only part of the event that is a time.
                is_plain = name != "ts"
            case _:
                is_plain = isinstance(node, _PLAIN)
        if not is_plain:
            return False
        pending.extend(children(node))
    return True


def _offset(source: str, at: At) -> int:
    line, column = at
    start = 0
    for _ in range(line - 1):
        start = source.index("\n", start) + 1
    return start + column - 1
