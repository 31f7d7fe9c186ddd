"""The functions of cel-spec's standard library, `list.contains`, and the extensions (semantics.md section 4).

`FUNCTIONS[name](run, args)` takes values that are neither errors nor unknown; for an unsupported combination of types, it returns
`no_such_overload`. Each function charges its cost (docs/cel-cost.md) before the work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from streamer.cel_eval import times
from streamer.cel_eval.extensions import IMPLEMENTATIONS
from streamer.cel_eval.values import TYPES, CelReason, Duration, Failure, Timestamp, UInt, Value, no_overload
from streamer.model import INT64_MAX, INT64_MIN, UINT64_MAX

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

Function: TypeAlias = Callable[["Run", list[Value]], Value]


# --- strings, lists, maps ---------------------------------------------------------------------------------------------


def _size(run: Run, args: list[Value]) -> Value:
    match args:
        case [str() | bytes() as text]:
            run.charge_text(text)
            return len(text)
        case [list() | dict() as container]:
            return len(container)
        case _:
            return no_overload("size", args)


def _contains(run: Run, args: list[Value]) -> Value:
    match args:
        case [str() as text, str() as part]:
            run.charge_text(text, part)
            return part in text
        case [list() as items, item]:
            return run.is_member(item, items)
        case _:
            return no_overload("contains", args)


def _starts_with(run: Run, args: list[Value]) -> Value:
    match args:
        case [str() as text, str() as part]:
            run.charge_text(part)
            return text.startswith(part)
        case _:
            return no_overload("startsWith", args)


def _ends_with(run: Run, args: list[Value]) -> Value:
    match args:
        case [str() as text, str() as part]:
            run.charge_text(part)
            return text.endswith(part)
        case _:
            return no_overload("endsWith", args)


def _matches(run: Run, args: list[Value]) -> Value:
    match args:
        case [str() as text, str() as source]:
            regexp = run.regexp(source, text)
            return regexp if isinstance(regexp, Failure) else regexp.search(text) is not None
        case _:
            return no_overload("matches", args)


# --- conversions ------------------------------------------------------------------------------------------------------


def _int(run: Run, args: list[Value]) -> Value:
    match args:
        case [bool()]:
            return no_overload("int", args)
        case [int() as number]:
            return _in_int64(int(number))
        case [float() as number]:
            # cel-spec's test suite also refuses -2^63 itself, because that double may represent a smaller number.
            return int(number) if -(2.0**63) < number < 2.0**63 else _out_of_range("int", number)
        case [str() as text]:
            run.charge_text(text)
            # A number with more than 20 digits is out of range, except for leading zeros.
            match = re.fullmatch(r"([+-]?)0*([0-9]{1,20})", text)
            return _in_int64(int(match[1] + match[2])) if match else _bad_text("int", text)
        case [Timestamp(ns)]:
            return ns // times.SECOND
        case _:
            return no_overload("int", args)


def _uint(run: Run, args: list[Value]) -> Value:
    match args:
        case [bool()]:
            return no_overload("uint", args)
        case [int() as number]:
            return UInt(number) if 0 <= number <= UINT64_MAX else _out_of_range("uint", number)
        case [float() as number]:
            return UInt(number) if 0 <= number < 2.0**64 else _out_of_range("uint", number)
        case [str() as text]:
            run.charge_text(text)
            match = re.fullmatch(r"0*([0-9]{1,20})", text)
            if match is None:
                return _bad_text("uint", text)
            return UInt(match[1]) if int(match[1]) <= UINT64_MAX else _out_of_range("uint", text)
        case _:
            return no_overload("uint", args)


_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII
)


def _double(run: Run, args: list[Value]) -> Value:
    match args:
        case [bool()]:
            return no_overload("double", args)
        case [int() | float() as number]:
            return float(number)
        case [str() as text]:
            run.charge_text(text)
            if not _DECIMAL.fullmatch(text):
                return _bad_text("double", text)
            value = float(text)
            return _out_of_range("double", text) if math.isinf(value) and "n" not in text.lower() else value
        case _:
            return no_overload("double", args)


def _string(run: Run, args: list[Value]) -> Value:
    match args:
        case [bool() as truth]:
            return "true" if truth else "false"
        case [str() as text]:
            return text
        case [int() as number]:
            return str(int(number))
        case [float() as number]:
            return _format_double(number)
        case [bytes() as octets]:
            run.charge_text(octets)
            try:
                return octets.decode("utf-8")
            except UnicodeDecodeError:
                return Failure(CelReason.BAD_VALUE, "the bytes are not UTF-8")
        case [Timestamp() as moment]:
            return times.format_timestamp(moment)
        case [Duration() as span]:
            return times.format_duration(span)
        case _:
            return no_overload("string", args)


def _bytes(run: Run, args: list[Value]) -> Value:
    match args:
        case [bytes() as octets]:
            return octets
        case [str() as text]:
            run.charge_text(text)
            return text.encode("utf-8")
        case _:
            return no_overload("bytes", args)


_TRUTHS: Final = dict.fromkeys(("1", "t", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "false", "FALSE", "False"), False
)


def _bool(run: Run, args: list[Value]) -> Value:
    match args:
        case [bool() as truth]:
            return truth
        case [str() as text]:
            run.charge_text(text)
            return _TRUTHS.get(text, _bad_text("bool", text))
        case _:
            return no_overload("bool", args)


def _timestamp(run: Run, args: list[Value]) -> Value:
    match args:
        case [Timestamp() as moment]:
            return moment
        case [int() as seconds] if type(seconds) is int:
            return times.timestamp(seconds * times.SECOND)
        case [str() as text]:
            run.charge_text(text)
            return times.parse_timestamp(text)
        case _:
            return no_overload("timestamp", args)


def _duration(run: Run, args: list[Value]) -> Value:
    match args:
        case [Duration() as span]:
            return span
        case [str() as text]:
            run.charge_text(text)
            return times.parse_duration(text)
        case _:
            return no_overload("duration", args)


def _type(run: Run, args: list[Value]) -> Value:
    return TYPES[type(args[0])]


def _dyn(run: Run, args: list[Value]) -> Value:
    return args[0]


def _in_int64(number: int) -> Value:
    return number if INT64_MIN <= number <= INT64_MAX else _out_of_range("int", number)


def _out_of_range(name: str, value: object) -> Failure:
    return Failure(CelReason.OVERFLOW, f"{str(value)[:40]} is out of the range of {name}")


def _bad_text(name: str, text: str) -> Failure:
    return Failure(CelReason.BAD_VALUE, f"{text[:40]!r} does not spell a value of type {name}")


def _format_double(value: float) -> str:
    """Return the fewest digits that read back as *value*, with an exponent from 1e+06 on and below 1e-04, as in cel-cpp."""
    if not math.isfinite(value):
        return str(value)
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0"
    # value = 0.digits * 10 ** point
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    power = point - 1
    if power < -4 or power >= 6:
        return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{'-' if power < 0 else '+'}{abs(power):02}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


# --- parts of timestamps and durations --------------------------------------------------------------------------------


def _part(name: str) -> Function:
    def part(run: Run, args: list[Value]) -> Value:
        match args:
            case [Timestamp() as moment]:
                return times.timestamp_part(moment, name, "UTC")
            case [Timestamp() as moment, str() as zone]:
                run.charge_text(zone)
                return times.timestamp_part(moment, name, zone)
            case [Duration() as span] if name in PARTS_OF_DURATIONS:
                return times.duration_part(span, name)
            case _:
                return no_overload(name, args)

    return part


PARTS_OF_DURATIONS: Final = frozenset({"getHours", "getMinutes", "getSeconds", "getMilliseconds"})
PARTS_OF_TIMESTAMPS: Final = PARTS_OF_DURATIONS | {
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
}

FUNCTIONS: Final[Mapping[str, Function]] = {
    "size": _size,
    "contains": _contains,
    "startsWith": _starts_with,
    "endsWith": _ends_with,
    "matches": _matches,
    "int": _int,
    "uint": _uint,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
    "bool": _bool,
    "timestamp": _timestamp,
    "duration": _duration,
    "type": _type,
    "dyn": _dyn,
    **{name: _part(name) for name in sorted(PARTS_OF_TIMESTAMPS)},
    **IMPLEMENTATIONS,
}
