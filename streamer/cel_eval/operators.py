"""Operators on scalars: arithmetic with its overflow errors, orders, negation."""

from __future__ import annotations

import math
import operator
from typing import Final

from streamer.cel_eval import times
from streamer.cel_eval.values import CelReason, Duration, Failure, Timestamp, UInt, Value, no_overload
from streamer.model import INT64_MAX, INT64_MIN, UINT64_MAX

ORDERS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def invert(value: Value) -> Value:
    return not value if type(value) is bool else value


def negate(op: str, value: Value) -> Value:
    if op == "!" and type(value) is bool:
        return not value
    if op == "-" and type(value) is float:
        return -value
    if op == "-" and type(value) is int:
        return _in_range(-value, int)
    return no_overload(op, [value])


def _in_range(value: int, kind: type[int]) -> Value:
    if kind is UInt:
        return UInt(value) if 0 <= value <= UINT64_MAX else Failure(CelReason.OVERFLOW, "arithmetic beyond uint")
    return value if INT64_MIN <= value <= INT64_MAX else Failure(CelReason.OVERFLOW, "arithmetic beyond int")


def int_arithmetic(op: str, left: int, right: int, kind: type[int]) -> Value:
    if op in "/%":
        if right == 0:
            return Failure(CelReason.DIVISION_BY_ZERO, f"{op} by zero")
        # Toward zero, as in C; Python rounds down. A remainder overflows if its quotient does.
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        in_range = _in_range(quotient, kind)
        return in_range if op == "/" or type(in_range) is Failure else _in_range(left - quotient * right, kind)
    return _in_range(left + right if op == "+" else left - right if op == "-" else left * right, kind)


def double_arithmetic(op: str, left: float, right: float) -> Value:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right == 0:
            return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
        case "/":
            return left / right
        case _:
            return no_overload(op, [left, right])


def time_arithmetic(op: str, left: Value, right: Value) -> Value:
    match op, left, right:
        case ("+", Timestamp(one), Duration(other)) | ("+", Duration(one), Timestamp(other)):
            return times.timestamp(one + other)
        case "-", Timestamp(one), Duration(other):
            return times.timestamp(one - other)
        case ("-", Timestamp(one), Timestamp(other)) | ("-", Duration(one), Duration(other)):
            return times.duration(one - other)
        case "+", Duration(one), Duration(other):
            return times.duration(one + other)
        case _:
            return no_overload(op, [left, right])
