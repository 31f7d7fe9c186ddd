"""`format` of the library strings: `'%s of %d'.format(['a', 1])`.

Every piece is charged before it is added, so the budget bounds the result. A loop formats nested values, which may be deeper than
Python's stack.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, final

from streamer.cel_eval import times
from streamer.cel_eval.extensions.rows import bad_value, charge_sorting
from streamer.cel_eval.values import (
    CelReason,
    CelType,
    Duration,
    Failure,
    OptionalValue,
    Timestamp,
    Value,
    from_key,
    read,
    type_name,
)

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

#: More digits after the point are refused.
MAX_PRECISION: Final = 1000
_DEFAULT_PRECISION: Final = 6

_PIECE: Final = re.compile(r"(?P<text>[^%]+|%%)|%(?P<precision>\.[0-9]*)?(?P<clause>[sdfebxXo])")
_INTEGER: Final = {"b": "b", "o": "o", "x": "x", "X": "X", "d": "d"}


def format_text(run: Run, text: str, args: list[Value]) -> Value:
    """Return *text* with the value of an argument in place of each clause."""
    run.charge_text(text)
    made = _Made(run)
    at = used = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            return bad_value(f"{text[at : at + 10]!r} is not a clause of format")
        at = piece.end()
        if piece["text"]:
            made.add("%" if piece["text"] == "%%" else piece["text"])
            continue
        precision = _precision(piece["precision"])
        if precision is None:
            return bad_value(f"the precision of a clause of format is 0 to {MAX_PRECISION}")
        if used == len(args):
            return Failure(CelReason.INDEX_OUT_OF_RANGE, f"format has no argument {used}; it has {len(args)}")
        failure = made.clause(piece["clause"], precision, read(args[used]))
        if failure is not None:
            return failure
        used += 1
    return "".join(made.pieces)


def _precision(written: str | None) -> int | None:
    if written is None:
        return _DEFAULT_PRECISION
    digits = written[1:].lstrip("0")
    if len(written) == 1 or len(digits) > 4 or int(digits or "0") > MAX_PRECISION:
        return None
    return int(digits or "0")


@final
class _Made:
    """The result so far."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._run.charge_text(piece)
        self.pieces.append(piece)

    def clause(self, clause: str, precision: int, value: Value) -> Failure | None:
        """Add the value of an argument."""
        if type(value) is Failure:
            return value
        match clause, value:
            case "s", _:
                return self._string(value)
            case "d", float():
                self.add(_double(value))
            case "b", bool():
                self.add(str(int(value)))
            case _, bool():
                return _refused(clause, value)
            case (("d" | "b" | "o" | "x" | "X"), int()):
                self.add(format(int(value), _INTEGER[clause]))
            case (("x" | "X"), str() | bytes()):
                self._run.charge_text(value, value)
                digits = (value.encode("utf-8") if isinstance(value, str) else value).hex()
                self.add(digits.upper() if clause == "X" else digits)
            case (("f" | "e"), int() | float()):
                number = float(value)
                self.add(format(number, f".{precision}{clause}") if math.isfinite(number) else _double(number))
            case _:
                return _refused(clause, value)
        return None

    def _string(self, value: Value) -> Failure | None:
        """Add a value as `%s` writes it."""
        # Values, and texts as they are.
        pending: list[tuple[bool, Any]] = [(False, value)]
        while pending:
            is_text, item = pending.pop()
            if is_text:
                self.add(item)
            elif isinstance(item, list):
                self._run.charge(len(item))
                pending.append((True, "]"))
                for index in range(len(item) - 1, -1, -1):
                    pending += [(False, item[index]), *([(True, ", ")] if index else [])]
                pending.append((True, "["))
            elif isinstance(item, dict):
                keys = [_scalar(from_key(key)) for key in item]
                charge_sorting(self._run, len(item), *keys)
                pending.append((True, "}"))
                entries = sorted(zip(keys, item.values(), strict=True), key=lambda entry: entry[0])
                for index in range(len(entries) - 1, -1, -1):
                    key, member = entries[index]
                    pending += [(False, member), (True, f"{', ' if index else ''}{key}: ")]
                pending.append((True, "{"))
            elif isinstance(item, bytes):
                self._run.charge_text(item)
                try:
                    self.add(item.decode("utf-8"))
                except UnicodeDecodeError:
                    return bad_value("the bytes are not UTF-8")
            else:
                read_item = read(item)
                if type(read_item) is Failure:
                    return read_item
                if type(read_item) is OptionalValue:
                    return _refused("s", read_item)
                self.add(_scalar(read_item))
        return None


def _scalar(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(int(value))
        case float():
            return _double(value)
        case Timestamp():
            whole, point, fraction = times.format_timestamp(value)[:-1].partition(".")
            return f"{whole}{point}{fraction.rstrip('0')}Z"
        case Duration(ns):
            seconds, rest = divmod(abs(ns), times.SECOND)
            return f"{_double(math.copysign(seconds + rest / 1e9, ns) if ns else 0.0)}s"
        case CelType(name):
            return name
        case _:
            return str(value)


def _double(value: float) -> str:
    """Return the fewest digits that read back as *value*, without an exponent."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    digits = format(Decimal(repr(value)), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


_TAKES: Final = {
    "s": "values",
    "d": "numbers",
    "f": "numbers",
    "e": "numbers",
    "b": "ints, uints and bools",
    "o": "ints and uints",
    "x": "ints, uints, strings and bytes",
    "X": "ints, uints, strings and bytes",
}


def _refused(clause: str, value: Value) -> Failure:
    return Failure(CelReason.NO_SUCH_OVERLOAD, f"%{clause} of format takes {_TAKES[clause]}, not {type_name(value)}")
