"""A compiled CEL expression, and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from streamer.cel_eval.check import NO_FUNCTIONS, Arity, Remark, check
from streamer.cel_eval.evaluate import BudgetSpentError, Run
from streamer.cel_eval.parse import parse
from streamer.cel_eval.tree import Node
from streamer.cel_eval.unknowns import Partial
from streamer.cel_eval.values import UNKNOWN, CelReason, Failure, type_name
from streamer.model import Event, Limits, Verdict

Start: TypeAlias = Callable[[Mapping[str, Any], int, Event, int], Run]
"""Begins one evaluation: constant regexps, how many macro variables there are, the event, the budget."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A checked expression. Immutable, so any number of threads may evaluate it.

    Attributes:
        source: its text.
        tree: its syntax tree (`streamer.cel_eval.tree`), with names resolved.
        variables: the parts of the event that it reads: some of `data`, `before`, `collection`, `tenant`, `type`, `topic`, `ts`.
        fields: each path that it reads, such as `("data", "user", "country")`; for a computed path, its constant beginning.
        remarks: findings for a linter.
        calls: the registered Python functions that it calls.
        start: makes an evaluation; `Run`, or the one of the portable evaluator.
    """

    source: str
    tree: Node
    variables: frozenset[str]
    fields: frozenset[tuple[str, ...]]
    remarks: tuple[Remark, ...]
    regexps: Mapping[str, Any]
    slots: int
    calls: frozenset[str] = frozenset()
    start: Start = Run

    @property
    def is_portable(self) -> bool:
        """Whether cel-python computes its values."""
        return self.start is not Run

    @property
    def mentions_before(self) -> bool:
        """Whether it reads `before`, so that it is evaluated once, without transition (semantics.md 7.13)."""
        return "before" in self.variables


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a program.

    Attributes:
        verdict: true, false, error or unknown.
        reason: the reason for an error; None otherwise.
        detail: the reason in words.
        cost: the number of units used, even if it exceeds the budget.
    """

    verdict: Verdict
    reason: CelReason | None
    detail: str | None
    cost: int


def compile_cel(source: str, limits: Limits, functions: Mapping[str, Arity] = NO_FUNCTIONS, start: Start = Run) -> Program:
    """Return the program of an expression, after parsing and checking it.

    Args:
        functions: the registered Python functions, which take and return values of any type.
        start: makes an evaluation.

    Raises:
        CelError: a syntax error, an undeclared name, an unknown function, types that an operator or function does not take, a
            result that cannot be bool, a constant regexp that RE2 refuses, or an expression beyond the limits; with its place.
    """
    tree = parse(source, limits)
    checked = check(source, tree, functions)
    return Program(
        source,
        tree,
        frozenset(checked.variables),
        frozenset(checked.fields),
        tuple(checked.remarks),
        checked.regexps,
        checked.slots,
        frozenset(checked.calls),
        start,
    )


def evaluate_cel(program: Program, event: Event, budget: int) -> Outcome:
    """Return the outcome of a program for one event, within *budget* cost units (docs/cel-cost.md)."""
    run = program.start(program.regexps, program.slots, event, budget)
    try:
        value = run.evaluate(program.tree)
    except BudgetSpentError as spent:
        return Outcome(Verdict.ERROR, CelReason.BUDGET, str(spent) or f"stopped after {budget} cost units", run.cost)
    if type(value) is bool:
        return Outcome(Verdict.of(value), None, None, run.cost)
    if value is UNKNOWN or type(value) is Partial:
        return Outcome(Verdict.UNKNOWN, None, None, run.cost)
    if type(value) is Failure:
        return Outcome(Verdict.ERROR, value.reason, value.detail, run.cost)
    return Outcome(Verdict.ERROR, CelReason.NOT_BOOL, f"the result is {type_name(value)}, not bool", run.cost)


def constant_verdict(program: Program, budget: int) -> Verdict | None:
    """Return the program's verdict if it is the same for every event; None if it depends on the event, or is not proven.

    It is evaluated for an event whose parts are all unknown: the result applies to every event, because true and false absorb
    unknowns and any other unknown part stays unknown.
    """
    if program.calls or not program.variables <= {"data", "before", "envelope"}:
        return None
    anything = Event(
        raw={},
        tenant="",
        data={},
        before={},
        unknown=((),),
        data_at=("data",),
        before_at=("before",),
        envelope={},
        envelope_at=("envelope",),
        envelope_unknown=((),),
    )
    outcome = evaluate_cel(program, anything, budget)
    if outcome.verdict is Verdict.UNKNOWN or (outcome.reason is CelReason.BUDGET and program.variables):
        # The evaluation for another event may be cheaper.
        return None
    return outcome.verdict
