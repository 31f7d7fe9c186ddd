"""Evaluate a checked expression for one event (semantics.md sections 4 and 8), and count cost units (docs/cel-cost.md).

Errors and unknowns are values. A strict operator evaluates every operand; its result is unknown if one is unknown, else the first
error. `&&`, `||`, `all` and `exists` absorb both; `or` and `orValue` evaluate their argument only for an optional without value.
Only the end of the budget is an exception, because no operator absorbs it.

An event may have unknown values, which its source left out. A map or list with an unknown value somewhere below is a `Partial`. A
select or an index continues into it; `has`, `in` and `type()` use its known parts. For every other operator, it is unknown as a
whole.

Recursion is bounded by the depth of the tree, which the parser limits; values, which may be deeper, are compared with a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, final

import re2

from streamer.cel_eval.extensions.lists import sorted_by
from streamer.cel_eval.extensions.optionals import EARLY, LAZY
from streamer.cel_eval.functions import FUNCTIONS
from streamer.cel_eval.operators import ORDERS, double_arithmetic, int_arithmetic, invert, negate, time_arithmetic
from streamer.cel_eval.regexps import compile_regexp, regexp_error, regexp_size
from streamer.cel_eval.tree import (
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
    Ternary,
    Unary,
    Variable,
)
from streamer.cel_eval.unknowns import MISSING, Partial, below, content, is_optional, result_or_none, select, some, variables
from streamer.cel_eval.values import (
    KEYS,
    NONE,
    NUMBERS,
    ORDERED,
    UNKNOWN,
    CelReason,
    Failure,
    OptionalValue,
    UInt,
    Unknown,
    Value,
    as_key,
    from_key,
    no_overload,
    read,
    utf8_length,
)
from streamer.model import REST, Event

#: The cost of compiling a regexp that is not constant, as string work: the memory that RE2 may use for it.
REGEXP_BYTES: Final = 64 * 1024
#: The longest text of such a regexp: parsing it may take a hundred times as long as reading its bytes.
_REGEXP_TEXT_BYTES: Final = 1024
_REGEXP_UNITS: Final = REGEXP_BYTES // 16
#: The approximate size that RE2 reaches with this memory; larger regexps are refused, so they do not cost more.
_LARGEST_REGEXP: Final = 5_400
#: The additional cost per unit of its size, chosen so that the budget of 100 ms is just enough for the largest.
_UNITS_OF_SIZE: Final = 224
_LARGEST_CHARGED_SIZE: Final = 4_096


class BudgetSpentError(Exception):
    """The program has used up its cost units, or another resource, which the text names."""


def _small_regexp(source: str) -> Any:
    # Do not parse a longer text: an event may contain 16 MiB of it, and the cache would keep it.
    if utf8_length(source) > _REGEXP_TEXT_BYTES:
        return Failure(CelReason.BAD_REGEXP, f"a regular expression of more than {_REGEXP_TEXT_BYTES} bytes")
    return _compiled(source)


@lru_cache(maxsize=256)
def _compiled(source: str) -> Any:
    try:
        return compile_regexp(source, REGEXP_BYTES)
    except re2.error as error:
        return Failure(CelReason.BAD_REGEXP, regexp_error(error))


class Run:
    """One evaluation of one program. A subclass may replace the computations on values (`streamer.cel_eval.portable`)."""

    __slots__ = ("_constant_regexps", "_locals", "_new_regexps", "budget", "cost", "variables")

    def __init__(self, regexps: Mapping[str, Any], slots: int, event: Event, budget: int) -> None:
        self.cost = 0
        self.budget = budget
        self._constant_regexps = regexps
        self._new_regexps: set[str] = set()
        self._locals: list[Value] = [None] * slots
        self.variables = variables(event)

    # --- cost

    def charge(self, units: int) -> None:
        """Count work before it is done."""
        self.cost += units
        if self.cost > self.budget:
            self.spent()

    def spent(self) -> None:
        """End the evaluation, because it used more than `budget`; or extend the budget (the portable evaluator)."""
        raise BudgetSpentError

    def charge_bulk(self, units: int) -> None:
        """Count work in native code: string work, regexps."""
        self.charge(units)

    def charge_text(self, *texts: str | bytes) -> None:
        """Count string work for all of *texts*: a unit per 16 bytes, rounded up."""
        self.charge_bulk(-(-sum(map(utf8_length, texts)) // 16))

    def regexp(self, source: str, text: str) -> Any:
        """Return a compiled regexp to look for in *text*, or a `Failure`.

        The search is charged: a step for each byte and each state that may be active. Compiling a regexp that is not constant is
        charged, too, once per evaluation.
        """
        constant = self._constant_regexps.get(source)
        if constant is not None:
            size = regexp_size(source)
        else:
            # A text that is too long is refused before it is parsed, so its size is not needed.
            size = min(regexp_size(source), _LARGEST_REGEXP) if utf8_length(source) <= _REGEXP_TEXT_BYTES else 0
        self.charge_bulk(-(-utf8_length(text) // 16) * size)
        if constant is not None:
            return constant
        if source not in self._new_regexps:
            self.charge_bulk(_REGEXP_UNITS + _UNITS_OF_SIZE * min(size, _LARGEST_CHARGED_SIZE))
            self._new_regexps.add(source)
        return _small_regexp(source)

    # --- nodes

    def evaluate(self, node: Node) -> Value:
        """Return the value of *node*, a `Partial`, a `Failure` or `UNKNOWN`.

        The methods for nodes call each other through the table, which needs half the frames of Python's stack: each of 64 levels
        of brackets may contain a chain of every operator.
        """
        return _EVALUATE[type(node)](self, node)

    def _operands(self, nodes: list[Node]) -> list[Value] | Value:
        """Return the values of all operands, or the result of a strict operator if one is an error or unknown."""
        values: list[Value] = []
        for node in nodes:
            values.append(_EVALUATE[type(node)](self, node))  # noqa: PERF401  a comprehension costs a frame more
        return _strict(values) or values

    def _literal(self, node: Literal) -> Value:
        self.charge(1)
        return node.value

    def _ident(self, node: Ident) -> Value:
        self.charge(1)
        meaning = node.meaning
        if type(meaning) is Local:
            return read(self._locals[meaning.slot])
        return self.variables[meaning.name] if type(meaning) is Variable else meaning

    def _paren(self, node: Paren) -> Value:
        return _EVALUATE[type(node.inner)](self, node.inner)

    def _list_literal(self, node: ListLiteral) -> Value:
        self.charge(1)
        values = self._operands(node.items)
        if type(values) is not list:
            return values
        return [
            value.value if type(item) is OptionalItem else value
            for item, value in zip(node.items, values, strict=True)
            if type(item) is not OptionalItem or value.has_value
        ]

    def _map_literal(self, node: MapLiteral) -> Value:
        self.charge(1)
        values = self._operands([part for entry in node.entries for part in entry])
        if type(values) is not list:
            return values
        made: dict[Any, Value] = {}
        for (_, written), key, value in zip(node.entries, values[::2], values[1::2], strict=True):
            if type(written) is OptionalItem and not value.has_value:
                continue
            if type(key) not in KEYS:
                return Failure(CelReason.BAD_KEY, "a key of a map is a bool, an int, a uint or a string")
            self._charge_key(key)
            if as_key(key) in made:
                return Failure(CelReason.BAD_KEY, f"a map has the key {key!r} twice")
            made[as_key(key)] = value.value if type(written) is OptionalItem else value
        return made

    def _optional_item(self, node: OptionalItem) -> Value:
        value = _EVALUATE[type(node.inner)](self, node.inner)
        if _strict([value]) is None and type(value) is not OptionalValue:
            return no_overload("?", [value])
        return value

    def _bind(self, node: Bind) -> Value:
        self.charge(1)
        # An error or an unknown is the value of the name: it decides nothing if the result absorbs it.
        self._locals[node.slot] = _EVALUATE[type(node.value)](self, node.value)
        return _EVALUATE[type(node.result)](self, node.result)

    def _charge_key(self, key: Value) -> None:
        if type(key) is str:
            self.charge_text(key)

    def _unary(self, node: Unary) -> Value:
        self.charge(node.count)
        value = _EVALUATE[type(node.operand)](self, node.operand)
        for _ in range(node.count):
            if (stopped := _strict([value])) is not None:
                return stopped
            value = self.negated(node.op, value)
        return value

    def _logic(self, node: Logic) -> Value:
        self.charge(len(node.operands) - 1)
        absorbing = node.op == "||"
        undecided: Value = not absorbing
        for operand in node.operands:
            value = _EVALUATE[type(operand)](self, operand)
            if value is absorbing:
                return absorbing
            if value is UNKNOWN or type(value) is Partial:
                undecided = UNKNOWN
            elif type(value) is not bool and type(undecided) is bool:
                undecided = value if type(value) is Failure else no_overload(node.op, [value])
        return undecided

    def _ternary(self, node: Ternary) -> Value:
        for _, condition, then in node.branches:
            self.charge(1)
            value = _EVALUATE[type(condition)](self, condition)
            if value is True:
                return _EVALUATE[type(then)](self, then)
            if value is not False:
                return _strict([value]) or no_overload("?:", [value])
        return _EVALUATE[type(node.otherwise)](self, node.otherwise)

    def _operation(self, node: Operation) -> Value:
        self.charge(len(node.rest))
        left = _EVALUATE[type(node.first)](self, node.first)
        for op, _, operand in node.rest:
            left = self._binary(op, left, _EVALUATE[type(operand)](self, operand))
        return left

    def _binary(self, op: str, left: Value, right: Value) -> Value:
        if op == "in" and type(right) is Partial:
            return _strict([left]) or self._in_partial(left, right)
        stopped = _strict([left, right])
        if stopped is not None:
            return stopped
        match op:
            case "==":
                return self.equal(left, right)
            case "!=":
                return invert(self.equal(left, right))
            case "in":
                return self._in(left, right)
            case "<" | "<=" | ">" | ">=":
                return self._order(op, left, right)
            case _:
                return self._arithmetic(op, left, right)

    def _call(self, node: Call) -> Value:
        self.charge(1)
        if node.name in ("type", "dyn"):
            value = _EVALUATE[type(node.args[0])](self, node.args[0])
            if type(value) is Partial:
                return self.called("type", [value.value]) if node.name == "type" else value
            return _strict([value]) or self.called(node.name, [value])
        args = self._operands(node.args)
        return self.called(node.name, args) if type(args) is list else args

    def _has(self, node: Has) -> Value:
        self.charge(1)
        target = content(_EVALUATE[type(node.target)](self, node.target))
        if target is NONE:
            return False
        if type(target) is Partial:
            return self._in_partial(node.name, target) if type(target.value) is dict else no_overload("has()", [target.value])
        if (stopped := _strict([target])) is not None:
            return stopped
        return node.name in target if type(target) is dict else no_overload(f"has(.{node.name})", [target])

    # --- chains

    def _chain(self, node: Chain) -> Value:
        self.charge(len(node.steps))
        value = _EVALUATE[type(node.base)](self, node.base)
        for step in node.steps:
            match step:
                case Select() if not is_optional(value):
                    value = select(value, step.name)
                case Select() | OptionalSelect():
                    inner = content(value)
                    value = NONE if inner is NONE else result_or_none(select(inner, step.name), inner)
                case Index() | OptionalIndex():
                    key = _EVALUATE[type(step.key)](self, step.key)
                    value = self._index(value, key) if type(step) is Index and not is_optional(value) else self._find(value, key)
                case Method() if (early := self._early(step.name, value)) is not MISSING:
                    value = early
                case Method():
                    args = [value]
                    for arg in step.args:
                        args.append(_EVALUATE[type(arg)](self, arg))  # noqa: PERF401  a frame less
                    stopped = _strict(args)
                    value = self.called(step.name, args) if stopped is None else stopped
                case Macro(name="optMap" | "optFlatMap"):
                    value = self._optional_macro(step, value)
                case Macro():
                    stopped = _strict([value])
                    value = self._macro(step, value) if stopped is None else stopped
        return value

    def _index(self, value: Value, key: Value) -> Value:
        container, unknowns = (value.value, value.unknowns) if type(value) is Partial else (value, {})
        stopped = _strict([container, key])
        if stopped is not None:
            return stopped
        if type(container) is dict and (type(key) in KEYS or type(key) is float):
            self._charge_key(key)
            return below(container.get(as_key(key), MISSING), unknowns, key)
        if type(container) is not list or type(key) not in NUMBERS or key != key // 1:
            return no_overload("[]", [container, key])
        if not 0 <= key < len(container):
            return Failure(CelReason.INDEX_OUT_OF_RANGE, f"index {int(key)} of a list of {len(container)}")
        return below(container[int(key)], unknowns, str(int(key)))

    def _find(self, value: Value, key: Value) -> Value:
        """Return `value[?key]`, an optional."""
        inner = content(value)
        if inner is NONE:
            return _strict([key]) or NONE
        return result_or_none(self._index(inner, key), inner, key)

    def _early(self, name: str, value: Value) -> Value:
        """Return the result of a method of an optional that needs neither its arguments nor the unknowns; else MISSING."""
        if name not in EARLY or not (is_optional(value) or (name in LAZY and _strict([value]) is not None)):
            return MISSING
        inner = content(value)
        if inner is NONE:
            return MISSING
        if not is_optional(value):
            return _strict([value])
        return True if name == "hasValue" else value if name == "or" else inner

    def _optional_macro(self, macro: Macro, value: Value) -> Value:
        if not is_optional(value):
            return _strict([value]) or no_overload(macro.name, [value])
        inner = content(value)
        if inner is NONE:
            return NONE
        self.charge(1)
        self._locals[macro.slot] = inner
        assert macro.result is not None
        result = _EVALUATE[type(macro.result)](self, macro.result)
        if result is UNKNOWN or type(result) is Failure:
            return result
        if macro.name == "optMap":
            return some(result)
        return result if is_optional(result) else _strict([result]) or no_overload(macro.name, [result])

    def _macro(self, macro: Macro, over: Value) -> Value:
        if type(over) is list:
            entries: Iterable[tuple[Value, Value]] = enumerate(over)
        elif type(over) is dict and macro.name != "sortBy":
            entries = ((from_key(key), value) for key, value in over.items())
        else:
            return no_overload(macro.name, [over])
        one, fold = len(macro.names) == 1, _Fold(macro)
        for key, value in entries:
            self.charge(1)
            # One variable is the element of a list, the key of a map; two are index and element, key and value.
            first = value if one and type(over) is list else key
            self._locals[macro.slot] = first
            if not one:
                self._locals[macro.slot + 1] = value
            condition = True if macro.condition is None else _EVALUATE[type(macro.condition)](self, macro.condition)
            if fold.stops_at(condition):
                return condition
            if condition is True:
                fold.add(key, first, first if macro.result is None else _EVALUATE[type(macro.result)](self, macro.result))
        return fold.outcome(self)

    # --- comparison

    def equal(self, one: Value, other: Value) -> bool | Failure:
        """Return whether values are equal: numbers by mathematical value, containers depth first, up to the first difference."""
        error: Failure | None = None
        pairs: list[Iterator[tuple[Value, Value]]] = [iter([(one, other)])]
        while pairs:
            pair = next(pairs[-1], None)
            if pair is None:
                pairs.pop()
                continue
            if len(pairs) > 1:
                self.charge(1)
            if pair[1] is MISSING:
                return False
            left, right = read(pair[0]), read(pair[1])
            if type(left) is Failure or type(right) is Failure:
                error = error or (left if type(left) is Failure else right)
            elif type(left) is list and type(right) is list:
                if len(left) != len(right):
                    return False
                pairs.append(zip(left, right, strict=True))
            elif type(left) is dict and type(right) is dict:
                if len(left) != len(right):
                    return False
                pairs.append(self._entries(left, right))
            elif type(left) is OptionalValue and type(right) is OptionalValue:
                if left.has_value is not right.has_value:
                    return False
                if left.has_value:
                    pairs.append(iter([(left.value, right.value)]))
            elif not self._equal_scalars(left, right):
                return False
        return True if error is None else error

    def _entries(self, left: dict[Any, Value], right: dict[Any, Value]) -> Iterator[tuple[Value, Value]]:
        for key, value in left.items():
            self._charge_key(key)
            yield value, right.get(key, MISSING)

    def _equal_scalars(self, left: Value, right: Value) -> bool:
        if type(left) is not type(right):
            return type(left) in NUMBERS and type(right) in NUMBERS and bool(left == right)
        if isinstance(left, str | bytes):
            self._charge_shorter(left, right)
        return bool(left == right)

    def _charge_shorter(self, left: str | bytes, right: str | bytes) -> None:
        self.charge_bulk(-(-min(utf8_length(left), utf8_length(right)) // 16))

    def is_member(self, item: Value, items: list[Value]) -> Value:
        """Return whether *item* is in a list; an unreadable element is an error, unless another element is equal."""
        error: Failure | None = None
        for element in items:
            self.charge(1)
            is_equal = self.equal(item, element)
            if is_equal is True:
                return True
            if type(is_equal) is Failure:
                error = error or is_equal
        return False if error is None else error

    def _in(self, item: Value, container: Value) -> Value:
        if type(container) is list:
            return self.is_member(item, container)
        if type(container) is dict and (type(item) in KEYS or type(item) is float):
            self._charge_key(item)
            return as_key(item) in container
        return no_overload("in", [item, container])

    def _in_partial(self, key: Value, partial: Partial) -> Value:
        """Return whether a map with unknowns has a member; UNKNOWN only if the source may have left out this member."""
        if type(partial.value) is not dict:
            return UNKNOWN if type(partial.value) is list else no_overload("in", [key, partial.value])
        if type(key) is str and key in partial.unknowns and (partial.unknowns[key] is None or key not in partial.value):
            return UNKNOWN
        if type(key) is str and REST in partial.unknowns and key not in partial.value:
            return UNKNOWN
        return self._in(key, partial.value)

    def _order(self, op: str, left: Value, right: Value) -> Value:
        order = ORDERED.get(type(left))
        if order is None or order != ORDERED.get(type(right)):
            return no_overload(op, [left, right])
        if isinstance(left, str | bytes):
            self._charge_shorter(left, right)
        return ORDERS[op](left, right)

    # --- arithmetic

    def _arithmetic(self, op: str, left: Value, right: Value) -> Value:
        kinds = (type(left), type(right))
        if op == "+" and kinds in ((str, str), (bytes, bytes)):
            self.charge_text(left, right)
            return left + right
        if op == "+" and kinds == (list, list):
            self.charge(len(left) + len(right))
            return left + right
        return self.computed(op, left, right)

    # --- computations on values: scalars, and arguments that are neither errors nor unknown

    def computed(self, op: str, left: Value, right: Value) -> Value:
        """Return the result of `+ - * / %` for two numbers, or for timestamps and durations."""
        kinds = (type(left), type(right))
        if kinds == (float, float):
            return double_arithmetic(op, left, right)
        if kinds in ((int, int), (UInt, UInt)):
            return int_arithmetic(op, int(left), int(right), kinds[0])
        return time_arithmetic(op, left, right)

    def negated(self, op: str, value: Value) -> Value:
        """Return `!value` or `-value`."""
        return negate(op, value)

    def called(self, name: str, args: list[Value]) -> Value:
        """Return a function's result; the function charges for its work."""
        return FUNCTIONS[name](self, args)


@final
class _Fold:
    """Combines the conditions and results of a macro, one element after the other."""

    __slots__ = ("_count", "_items", "_keys", "_members", "_name", "_stopped")

    def __init__(self, macro: Macro) -> None:
        self._name = macro.name
        self._stopped: Value = None
        self._count = 0
        self._items: list[Value] = []
        self._keys: list[Value] = []
        self._members: dict[Any, Value] = {}

    def stops_at(self, condition: Value) -> bool:
        """Add the condition of an element, and return whether it decides the macro."""
        if type(condition) is bool:
            return self._name in ("all", "exists") and condition is (self._name == "exists")
        self._note(_strict([condition]) or no_overload(self._name, [condition]))
        return False

    def add(self, key: Value, element: Value, result: Value) -> None:
        """Add the result for an element whose condition is true."""
        stopped = _strict([result])
        if stopped is not None:
            self._note(stopped)
        self._count += 1
        if self._name == "transformMap":
            self._members[as_key(key)] = result
        elif self._name == "sortBy":
            self._items.append(element)
            self._keys.append(result)
        elif self._name in ("filter", "map", "transformList"):
            self._items.append(result)

    def _note(self, stopped: Value) -> None:
        if self._stopped is None or stopped is UNKNOWN:
            self._stopped = stopped

    def outcome(self, run: Run) -> Value:
        """Return the value of the macro after the last element."""
        if self._stopped is not None:
            return self._stopped
        match self._name:
            case "all" | "exists":
                return self._name == "all"
            case "exists_one" | "existsOne":
                return self._count == 1
            case "transformMap":
                return self._members
            case "sortBy":
                return sorted_by(run, "sortBy", self._items, self._keys)
            case _:
                return self._items


# --- reading ----------------------------------------------------------------------------------------------------------


def _strict(values: Iterable[Value]) -> Failure | Unknown | None:
    """Return UNKNOWN if an operand of a strict operator is unknown, else the first error, else None."""
    failure = None
    for value in values:
        if value is UNKNOWN or type(value) is Partial:
            return UNKNOWN
        if failure is None and type(value) is Failure:
            failure = value
    return failure


_EVALUATE: Final[Mapping[type, Callable[[Run, Any], Value]]] = {
    Literal: Run._literal,
    Ident: Run._ident,
    Paren: Run._paren,
    ListLiteral: Run._list_literal,
    MapLiteral: Run._map_literal,
    Unary: Run._unary,
    Logic: Run._logic,
    Ternary: Run._ternary,
    Operation: Run._operation,
    Call: Run._call,
    Has: Run._has,
    Bind: Run._bind,
    OptionalItem: Run._optional_item,
    Chain: Run._chain,
}
