"""The portable evaluator: evaluate expressions with cel-python, within the limits of the contract, with Python functions.

```
text ─ our parser, checker, limits ─► tree ─► Evaluation ─┬─ names, fields, && ||, ==, <, in, macros, unknowns: the contract's
                                                          ├─ arithmetic, conversions, texts, times: cel-python's functions
                                                          └─ is_vip(..): the user's
```

`Evaluation` is a `celpy.Evaluator` that walks our tree instead of cel-python's. cel-python computes the values. Steps are counted
as in the other evaluators (docs/cel-cost.md), so a budget stops it inside nested macros. Unknown values, absent fields and errors
mean the same as in the other evaluators.

Invariant: values that the contract refuses never reach a function of cel-python, because the contract's own function runs first.
cel-python's regular expression for durations takes exponential time, and pendulum, which reads its dates, accepts almost any text
as a date.

Cost: about ten microseconds for each function and operator; the walk is the reference's, at half a microsecond per step. So a
step counts ten times as much as natively. A budget of 100 ms is used up after about 50 ms on a current machine. On a slow
machine, or for a slow function of the user, a clock ends the evaluation (`Evaluation.spent`).

Rejected: cel-python's own walk. It does not count steps. A bracket needs fifty frames of Python's stack, so that twenty brackets
overflow it. Both sides of `&&` and every element of `exists` are always evaluated. It lacks unknown values, quoted field names,
and macros with two variables. `data.a != 1` is an error if `a` is a string. testdata/known_failures_portable.toml lists the
remaining differences, each case with its reason. Rejected, too: only a clock, without higher units, because the result of a slow
program would depend on the machine. Rejected, too: wall-clock time, which continues while a thread waits for the GIL or a
processor, so that other load could silently lose a match.

Importing this module imports cel-python, which takes a third of a second: it happens when the first such expression is compiled.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, final

from lark import Token, Tree

from streamer.cel_eval import times
from streamer.cel_eval.evaluate import BudgetSpentError, Run
from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.functions import FUNCTIONS
from streamer.cel_eval.program import Program, compile_cel
from streamer.cel_eval.registered import Functions
from streamer.cel_eval.runs import Runs
from streamer.cel_eval.types import DYN, LITERALS, METHODS, OPERATORS, list_of, map_of, resolve
from streamer.cel_eval.types import FUNCTIONS as CALLS
from streamer.cel_eval.values import CelReason, Duration, Failure, Timestamp, UInt, Value, no_overload
from streamer.extras import needed
from streamer.model import Event, Limits

with needed("the portable evaluator needs cel-python", "portable"):
    from celpy import celtypes
    from celpy.evaluation import Activation, CELEvalError, Evaluator

#: Functions that use the contract's own code: those on lists, maps and types, because these values are not cel-python's here;
#: `matches`, whose regexps have a cost and a memory limit, and for which cel-python would use the same RE2; `string`, because
#: cel-python writes `True`; and the extensions, which cel-python does not have.
OURS: Final = frozenset({"size", "contains", "matches", "type", "dyn", "string", *EXTENSIONS})

#: The cost of a step of the walk in native units: it takes this many times as long as a native step.
UNIT: Final = 10
#: The additional cost of cel-python's operators and functions, in steps of the walk: about their time beyond that of a step.
OPERATION: Final = 15
CALL: Final = 50
#: The additional cost of a function of the user.
OF_USER: Final = 10
#: The number of steps between two readings of the clock, which is also read before each function of the user.
STRIDE: Final = 2000

#: The processor time of this thread, in nanoseconds.
clock = time.thread_time_ns

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ACTIVATION: Final = Activation()
_NO_TREE: Final[Tree[Any]] = Tree("expr", [])


def compile_portable(source: str, limits: Limits, functions: Functions, runs: Runs) -> Program:
    """Return the program of an expression for the portable evaluator. Raises CelError, as `compile_cel` does.

    Args:
        runs: counts its evaluations.
    """
    return compile_cel(source, limits, functions.arities, partial(Evaluation, functions, runs))


@final
class Evaluation(Run, Evaluator):
    """One evaluation of one program. Not thread-safe."""

    def __init__(
        self, functions: Functions, runs: Runs, regexps: Mapping[str, Any], slots: int, event: Event, budget: int
    ) -> None:
        self._most = budget // UNIT
        Run.__init__(self, regexps, slots, event, min(self._most, STRIDE))
        Evaluator.__init__(self, _NO_TREE, _ACTIVATION)
        self._functions = functions
        self._runs = runs
        # A tenth of a microsecond per unit, as natively.
        self._timeout = 100 * budget
        self._began = self._checked_at = clock()
        self._younger = gc.get_count()[2]

    def visit(self, tree: Any) -> Any:
        """Evaluate our tree instead of cel-python's."""
        return Run.evaluate(self, tree)

    def evaluate(self, node: Any = None) -> Any:
        """Return the value of a program, and count the time of the evaluation."""
        began = time.perf_counter_ns()
        try:
            return Run.evaluate(self, node)
        finally:
            self.cost *= UNIT
            self._runs.add(time.perf_counter_ns() - began)

    def charge_bulk(self, units: int) -> None:
        """Count work that takes as long here as natively."""
        self.charge(-(-units // UNIT))

    def spent(self) -> None:
        """Extend the budget up to the next reading of the clock, unless the whole budget or the time is used up."""
        if self.cost > self._most:
            raise BudgetSpentError
        self._look()
        self.budget = min(self._most, self.cost + STRIDE)

    def _look(self) -> None:
        now = clock()
        # A collection of all of Python's objects takes long if the process has many, and runs in whichever thread made the last
        # one: its time is not the expression's. It sets the number of younger collections since the last one back to 0.
        before, self._younger = self._younger, gc.get_count()[2]
        if self._younger < before:
            self._began += now - self._checked_at
            self._checked_at = now
        # The time up to the next reading may be as long as since the last one.
        if 2 * now - self._checked_at - self._began > self._timeout:
            raise BudgetSpentError(f"stopped after {(now - self._began) / 1e6:.3g} ms of the processor's time")
        self._checked_at = now

    def called(self, name: str, args: list[Value]) -> Value:
        """Call a function of the user, of the contract, or of cel-python."""
        if name in self._functions:
            self._look()
            self.charge(OF_USER)
            return self._functions.call(self, name, args)
        if name in OURS:
            return FUNCTIONS[name](self, args)
        if not _takes(name, *map(type, args)):
            return no_overload(name, args)
        self.charge(CALL)
        # The contract's function also charges for texts.
        expected = FUNCTIONS[name](self, args)
        if type(expected) is Failure:
            return expected
        if name == "timestamp" and type(args[0]) is int:
            # cel-python's function does not accept seconds.
            return times.timestamp(args[0] * times.SECOND)
        if type(args[0]) is str and (written := _WRITTEN.get(name)) is not None:
            # Use the canonical text, because cel-python reads neither `t` and `z` nor the duration `0`.
            args = [written(expected)]
        try:
            result = self.function_eval(Token("IDENT", name), [_to_celpy(arg) for arg in args])
        except Exception as error:
            return Failure(CelReason.BAD_VALUE, f"{name}(): {error}")
        return _failure(name, result) if isinstance(result, CELEvalError) else _from_celpy(result)

    def computed(self, op: str, left: Value, right: Value) -> Value:
        """Compute with cel-python's operator."""
        if type(left) is type(right) is float and right == 0:
            # cel-python has only one infinity and no NaN.
            return Run.computed(self, op, left, right)
        return self._operate(op, f"_{op}_", [left, right])

    def negated(self, op: str, value: Value) -> Value:
        """Negate with cel-python's operator."""
        return self._operate("!" if op == "!" else "unary -", f"{op}_", [value])

    def _operate(self, op: str, name: str, operands: list[Value]) -> Value:
        if not _takes(op, *map(type, operands)):
            return no_overload(op.removeprefix("unary "), operands)
        self.charge(OPERATION)
        try:
            return _from_celpy(self.activation.resolve_function(name)(*map(_to_celpy, operands)))
        except ZeroDivisionError:
            return Failure(CelReason.DIVISION_BY_ZERO, f"{op} by zero")
        except (ValueError, OverflowError) as error:
            return Failure(CelReason.OVERFLOW, f"{op}: {error}")
        except TypeError:
            return no_overload(op, operands)


_TYPES: Final = {**LITERALS, list: list_of(DYN), dict: map_of(DYN, DYN)}


@lru_cache(maxsize=4096)
def _takes(name: str, *kinds: type) -> bool:
    """Return whether an operator or a function accepts these types by the contract; cel-python accepts all that Python does."""
    overloads = OPERATORS.get(name) or [*CALLS.get(name, ()), *METHODS.get(name, ())]
    return resolve(overloads, [_TYPES[kind] for kind in kinds]) is not None


def _failure(name: str, error: CELEvalError) -> Failure:
    # The arguments of the error are its text, the raised class, and that class's arguments.
    text, kind, *details = (*error.args, None)
    words = f"{name}(): {text}: {details[0]}"[:200]
    if kind is not ValueError:
        return Failure(CelReason.NO_SUCH_OVERLOAD, words)
    is_range = "overflow" in str(details[0]) or "range" in str(details[0])
    return Failure(CelReason.OVERFLOW if is_range else CelReason.BAD_VALUE, words)


_WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {"timestamp": times.format_timestamp, "duration": times.format_duration}


def _timestamp(value: Timestamp) -> celtypes.TimestampType:
    return celtypes.TimestampType(_EPOCH + value.ns // 1000 * _MICROSECOND)


def _duration(value: Duration) -> celtypes.DurationType:
    return celtypes.DurationType(value.ns // 1000 * _MICROSECOND)


# Bypass the constructors of cel-python's numbers, whose checks are redundant here: each takes 5 µs.
_TO_CELPY: Final[Mapping[type, Callable[[Any], Any]]] = {
    bool: celtypes.BoolType,
    int: partial(int.__new__, celtypes.IntType),
    UInt: partial(int.__new__, celtypes.UintType),
    float: partial(float.__new__, celtypes.DoubleType),
    str: celtypes.StringType,
    bytes: celtypes.BytesType,
    Timestamp: _timestamp,
    Duration: _duration,
}


def _to_celpy(value: Value) -> Any:
    return _TO_CELPY[type(value)](value)


def _from_celpy(value: Any) -> Value:
    match value:
        case celtypes.BoolType() | bool():
            return bool(value)
        case celtypes.UintType():
            return UInt(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str.__str__(value)
        case bytes():
            return bytes(value)
        case datetime():
            return times.timestamp(datetime.__sub__(value, _EPOCH) // _MICROSECOND * 1000)
        case timedelta():
            return times.duration(timedelta(value.days, value.seconds, value.microseconds) // _MICROSECOND * 1000)
        case _:
            return value
