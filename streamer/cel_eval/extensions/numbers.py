"""CEL's extension library math."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from streamer.cel_eval.extensions.rows import Row, bad_value, readable, row
from streamer.cel_eval.values import NUMBERS, CelReason, Failure, UInt, Value, no_overload
from streamer.model import INT64_MIN

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

_BITS: Final = 64
_ALL_BITS: Final = 2**_BITS - 1


def _extreme(name: str, is_better: Callable[[Value, Value], bool]) -> Callable[..., Value]:
    """Return `math.greatest` or `math.least`: the first of the numbers than which no other is better."""

    def choose(run: Run, *args: Value) -> Value:
        numbers: list[Value] | Failure = list(args)
        if type(args[0]) is list:
            run.charge(len(args[0]))
            numbers = readable(args[0])
        if isinstance(numbers, Failure):
            return numbers
        if not numbers:
            return bad_value(f"{name} of an empty list")
        best = numbers[0]
        for number in numbers:
            if type(number) not in NUMBERS:
                return no_overload(name, [number])
            if number != number and len(numbers) > 1:
                return bad_value("NaN has no order")
            if is_better(number, best):
                best = number
        return best

    return choose


def _whole(compute: Callable[[float], float]) -> Callable[..., Value]:
    def rounded(run: Run, number: float) -> Value:
        # Infinities and NaN are whole already. The sign of a zero stays.
        return math.copysign(compute(number), number) if math.isfinite(number) else number

    return rounded


def _round(number: float) -> float:
    whole = math.trunc(number)
    return whole + math.copysign(1, number) if abs(number - whole) >= 0.5 else whole


def _absolute(run: Run, number: Value) -> Value:
    if type(number) is int and number == INT64_MIN:
        return Failure(CelReason.OVERFLOW, "arithmetic beyond int")
    return number if type(number) is UInt else abs(number)


def _sign(run: Run, number: Value) -> Value:
    return number if number != number else type(number)((number > 0) - (number < 0))


def _square_root(run: Run, number: Value) -> Value:
    return math.sqrt(number) if not number < 0 else math.nan


def _bits(compute: Callable[[int, int], int]) -> Callable[..., Value]:
    def combined(run: Run, one: int, other: int) -> Value:
        return type(one)(compute(int(one), int(other)))

    return combined


def _bit_not(run: Run, number: int) -> Value:
    return UInt(_ALL_BITS - number) if type(number) is UInt else ~number


def _shift(compute: Callable[[int, int], int]) -> Callable[..., Value]:
    def shifted(run: Run, number: int, by: int) -> Value:
        if by < 0:
            return bad_value(f"a shift by {by} bits")
        bits = compute(int(number) & _ALL_BITS, by) & _ALL_BITS if by < _BITS else 0
        return UInt(bits) if type(number) is UInt else bits - (bits >> (_BITS - 1) << _BITS)

    return shifted


_DOUBLE: Final = "double -> double"
_NUMBERS: Final = ("int -> int", "uint -> uint", _DOUBLE)
_PAIRS: Final = ("int, int -> int", "uint, uint -> uint")
_SHIFTS: Final = ("int, int -> int", "uint, int -> uint")
_ONE_OR_LIST: Final = ("list -> dyn", *_NUMBERS)

ROWS: Final[Mapping[str, Row]] = {
    "math.abs": row(_absolute, *_NUMBERS),
    "math.bitAnd": row(_bits(operator.and_), *_PAIRS),
    "math.bitNot": row(_bit_not, "int -> int", "uint -> uint"),
    "math.bitOr": row(_bits(operator.or_), *_PAIRS),
    "math.bitShiftLeft": row(_shift(operator.lshift), *_SHIFTS),
    "math.bitShiftRight": row(_shift(operator.rshift), *_SHIFTS),
    "math.bitXor": row(_bits(operator.xor), *_PAIRS),
    "math.ceil": row(_whole(math.ceil), _DOUBLE),
    "math.floor": row(_whole(math.floor), _DOUBLE),
    "math.greatest": row(_extreme("math.greatest", operator.gt), *_ONE_OR_LIST, takes_many=True),
    "math.isFinite": row(lambda run, number: math.isfinite(number), "double -> bool"),
    "math.isInf": row(lambda run, number: math.isinf(number), "double -> bool"),
    "math.isNaN": row(lambda run, number: math.isnan(number), "double -> bool"),
    "math.least": row(_extreme("math.least", operator.lt), *_ONE_OR_LIST, takes_many=True),
    "math.round": row(_whole(_round), _DOUBLE),
    "math.sign": row(_sign, *_NUMBERS),
    "math.sqrt": row(_square_root, "double -> double", "int -> double", "uint -> double"),
    "math.trunc": row(_whole(math.trunc), _DOUBLE),
}
