"""Evaluate the parts of an expression that do not read the event.

For example, `timestamp('2026-01-01')` is an error for every event.
"""

from __future__ import annotations

from typing import Any, Final, final

from streamer.cel_eval.evaluate import BudgetSpentError
from streamer.cel_eval.program import Program
from streamer.cel_eval.tree import Call, Chain, Ident, Index, Literal, Local, Macro, Method, Node, Step, Variable, children
from streamer.model import Event

#: An unknown value: the part reads the event, or takes too long.
OPEN: Final = object()

_BUDGET: Final = 10_000
_NOTHING: Final = Event(raw={}, tenant="", data={})


@final
class Constants:
    """The constant parts of one program. Cost: a walk over its tree, and an evaluation of each part that is read."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._constant: set[int] = set()
        self._values: dict[int, Any] = {}
        self._mark(program.tree)

    def _mark(self, node: Node | Step) -> bool:
        below = [self._mark(each) for each in children(node)]
        match node:
            case Ident(meaning=Variable() | Local()) | Macro():
                is_constant = False
            case Call(name=name) | Method(name=name):
                is_constant = all(below) and name not in self._program.calls
            case _:
                is_constant = all(below)
        if is_constant:
            self._constant.add(id(node))
        return is_constant

    def value(self, node: Node) -> Any:
        """Return the value of a node, or a `Failure`, if it is the same for every event; `OPEN` if unknown."""
        if id(node) not in self._constant:
            return OPEN
        if isinstance(node, Literal):
            return node.value
        if id(node) not in self._values:
            run = self._program.start(self._program.regexps, self._program.slots, _NOTHING, _BUDGET)
            try:
                self._values[id(node)] = run.evaluate(node)
            except BudgetSpentError:
                self._values[id(node)] = OPEN
        return self._values[id(node)]


def negative_index(node: Node) -> Index | None:
    """Return the step of a chain that indexes a value of the event with a negative number."""
    if isinstance(node, Chain) and isinstance(node.base, Ident) and isinstance(node.base.meaning, Variable):
        for step in node.steps:
            if isinstance(step, Macro | Method):
                return None
            if isinstance(step, Index) and isinstance(step.key, Literal) and type(step.key.value) is int and step.key.value < 0:
                return step
    return None
