"""Split an expression at `&&` and `||`, to show which part of it decided."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from streamer.cel_eval.evaluate import BudgetSpentError
from streamer.cel_eval.program import Program
from streamer.cel_eval.tree import (
    Chain,
    Has,
    Ident,
    Logic,
    Node,
    Operation,
    Paren,
    children,
    constant_path,
)
from streamer.model import Event

_TRIPLE: Final = r'"{3}(?:[^\\]|\\[\s\S])*?"{3}' + r"|'{3}(?:[^\\]|\\[\s\S])*?'{3}"
_SINGLE: Final = r'"(?:[^"\\\n\r]|\\[^\n\r])*"' + r"|'(?:[^'\\\n\r]|\\[^\n\r])*'"
_RAW: Final = r"""[rR](?:"{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')"""
#: Tokens: literals and comments, which are skipped as a whole, brackets, and the two operators.
_TOKEN: Final = re.compile(rf"{_RAW}|{_TRIPLE}|{_SINGLE}|`[^`\n\r]+`|//[^\n\r]*|\w+|&&|\|\||[()\[\]{{}}]|[\s\S]")
#: A path from a document, outside of strings and comments; the name of a method is not part of it.
_NAME: Final = r"\s*\.\s*(?:[_a-zA-Z]\w*|`[^`\n\r]+`)(?!\w|\s*\()" + r"|\s*\[\s*(?:'[^'\\\n\r]*'|\"[^\"\\\n\r]*\")\s*\]"
_PATH: Final = re.compile(
    rf"{_RAW}|{_TRIPLE}|{_SINGLE}|//[^\n\r]*|(?<![.\w])(?P<root>data|before|envelope)(?P<names>(?:{_NAME})+)|[\w`]+", re.ASCII
)
_NAMED: Final = re.compile(r"""\.\s*([_a-zA-Z]\w*)|`([^`]+)`|'([^']*)'|"([^"]*)\"""", re.ASCII)


def likely_paths(source: str) -> set[tuple[str, ...]]:
    """Return the probable paths in documents that an expression reads, a hundred times faster than by compiling it.

    A path that is also among the `fields` of its program is certain.
    """
    return {
        (match["root"], *("".join(name) for name in _NAMED.findall(match["names"])))
        for match in _PATH.finditer(source)
        if match["root"]
    }


def operands(program: Program) -> tuple[str, list[Program]] | None:
    """Return `&&` or `||` and its operands, if an expression is such an operation; None for any other.

    Each operand is a program that can be evaluated, whose `source` is the text of the operand and whose `fields` are its own. An
    expression in brackets is split, too.
    """
    tree, text = program.tree, program.source.strip()
    while isinstance(tree, Paren):
        if not (text.startswith("(") and text.endswith(")")):
            return None  # there is a comment outside the brackets
        tree, text = tree.inner, text[1:-1].strip()
    if not isinstance(tree, Logic):
        return None
    texts = _split(text, tree.op)
    if len(texts) != len(tree.operands):
        return None
    pairs = zip(texts, tree.operands, strict=True)
    return tree.op, [replace(program, source=part, tree=node, fields=_fields(node, program)) for part, node in pairs]


def compared(program: Program, event: Event, budget: int) -> tuple[Any, Any] | None:
    """Return the values of both sides of a relation for an event; None if an expression is not a relation."""
    tree = program.tree
    while isinstance(tree, Paren):
        tree = tree.inner
    if not isinstance(tree, Operation) or len(tree.rest) != 1:
        return None
    run = program.start(program.regexps, program.slots, event, budget)
    try:
        return run.evaluate(tree.first), run.evaluate(tree.rest[0][2])
    except BudgetSpentError:
        return None


def _split(text: str, op: str) -> list[str]:
    """Return the parts of a text between an operator that is outside of brackets."""
    depth, begin, parts = 0, 0, []
    for token in _TOKEN.finditer(text):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        elif token[0] == op and not depth:
            parts.append(text[begin : token.start()].strip())
            begin = token.end()
    return [*parts, text[begin:].strip()]


def _fields(root: Node, program: Program) -> frozenset[tuple[str, ...]]:
    """Return the paths of a program that a part of it reads."""
    return program.fields & {path[: length + 1] for path in _paths(root) for length in range(len(path))}


def _paths(root: Node) -> Iterator[tuple[str, ...]]:
    pending: list[object] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Has):
            yield from ((*path, node.name) for path in _paths(node.target))
        elif isinstance(node, Chain | Ident) and (path := constant_path(node)) is not None:
            yield path
        pending.extend(children(node))  # type: ignore[arg-type]  # of a node, nodes and steps
