"""Durations and sizes with their units: `24h`, `1h30m`, `PT15M`; `16MiB`, `64kB`.

A duration without a unit is refused: `30` would be seconds to one reader and milliseconds to the next. A bare size is in bytes.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from streamer.config.yaml import kind_of, leading_zero, shown

_MICROSECONDS: Final = {
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_UNITS: Final = list(_MICROSECONDS)
_PART: Final = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(us|µs|μs|ms|s|m|h|d|w)"
_DURATION: Final = re.compile(rf"(?:{_PART})+")
_ISO: Final = re.compile(r"P(?:[0-9.,]+[WD])*(?:T[0-9.,HMS]+)?")
_ISO_DURATION: Final = TypeAdapter(timedelta)
_EXPECTED: Final = "expected a duration such as 24h, 1h30m, 100ms or PT15M (units: w, d, h, m, s, ms, us)"

_SIZES: Final = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) *([kmg]?)(i?)b?", re.IGNORECASE)


def parse_duration(text: object) -> timedelta:
    """Return the duration in a text: positive, in whole microseconds.

    Args:
        text: numbers with units, from the largest to the smallest, or ISO 8601.

    Raises:
        ValueError: *text* is not a duration.
    """
    if isinstance(text, timedelta):
        duration = text
    elif isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"{_EXPECTED}, not {kind_of(text)}")
    elif not isinstance(text, str):
        raise ValueError(f"{_EXPECTED}; {text} has no unit")
    elif len(text) > 64:
        raise ValueError(f"{_EXPECTED}, not '{shown(text)}'")
    elif _ISO.fullmatch(text):
        try:
            duration = _ISO_DURATION.validate_python(text)
        except ValidationError:
            raise ValueError(f"{_EXPECTED}; '{text}' is not a duration of ISO 8601") from None
    else:
        duration = _with_units(text)
    if duration <= timedelta(0):
        raise ValueError("expected a duration above zero")
    return duration


def _with_units(text: str) -> timedelta:
    if not _DURATION.fullmatch(text):
        hint = "; it has no unit" if re.fullmatch(r"[0-9.]+", text) else ""
        raise ValueError(f"{_EXPECTED}, not '{shown(text)}'{hint}")
    total = Fraction(0)
    last = -1
    for number, unit in re.findall(_PART, text):
        unit = {"µs": "us", "μs": "us"}.get(unit, unit)
        if _UNITS.index(unit) <= last:
            raise ValueError(f"{_EXPECTED}; in '{text}' the unit {unit} comes too late or twice")
        last = _UNITS.index(unit)
        total += Fraction(number) * _MICROSECONDS[unit]
    if total.denominator != 1:
        raise ValueError(f"'{text}' is finer than a microsecond")
    try:
        return timedelta(microseconds=int(total))
    except OverflowError:
        raise ValueError(f"'{text}' is longer than {timedelta.max.days:,} days") from None


def format_duration(duration: timedelta) -> str:
    """Return a duration as text that `parse_duration` reads back."""
    rest = duration // timedelta(microseconds=1)
    parts = []
    # Days and weeks are for reading only: 24h is what people write.
    for unit in ("h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _MICROSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size(value: object) -> int:
    """Return a size in bytes.

    Args:
        value: a number of bytes, or a number with a unit: k, M, G are powers of 1,000 and Ki, Mi, Gi of 1,024, `B` may follow.

    Raises:
        ValueError: *value* is not a size.
    """
    expected = "expected a size such as 16MiB, 64kB or a number of bytes (k = 1,000, Ki = 1,024)"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{expected}, not {kind_of(value)}")
    if isinstance(value, str):
        if (reason := leading_zero(value)) is not None:
            raise ValueError(reason)
        match = _SIZE.fullmatch(value)
        if match is None or (match[3] and not match[2]):
            raise ValueError(f"{expected}, not '{shown(value)}'")
        exact = Fraction(match[1]) * (1024 if match[3] else 1000) ** " kmg".index(match[2].lower() or " ")
        if exact.denominator != 1:
            raise ValueError(f"{expected}; '{value}' is not a whole number of bytes")
        size = int(exact)
    else:
        size = value
    if size < 1:
        raise ValueError("expected at least one byte")
    return size


def format_size(size: int) -> str | int:
    """Return a size as `parse_size` reads it back: in the largest unit that divides it."""
    return next((f"{size // scale}{unit}" for unit, scale in _SIZES.items() if size % scale == 0), size)


def _duration(value: Any) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise PydanticCustomError("duration", "{reason}", {"reason": str(error)}) from None


def _size(value: Any) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise PydanticCustomError("size", "{reason}", {"reason": str(error)}) from None


Duration: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^([0-9.]+(us|µs|ms|s|m|h|d|w))+$|^P([0-9.,]+[WD])*(T[0-9.,HMS]+)?$",
            "examples": ["24h", "100ms"],
        }
    ),
]
"""A duration; written with units."""

Size: TypeAlias = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(format_size, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": "^[0-9.]+ *([kmgKMG]?[bB]?|[kmgKMG]i[bB]?)$"},
            ],
            "examples": ["16MiB", "64kB"],
        }
    ),
]
"""A number of bytes; written with units."""
