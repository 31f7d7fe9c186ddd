"""Regexps for the decimal numbers in a range, as JSON writes them without an exponent.

> 100      1[0-9]{2} with a rest above zero, 2 to 9 and two digits, or four digits and more

A number of more digits before its point is greater, so each length has an alternative. In the length of a bound, digits are
compared from the left: as long as they are equal to those of the bound, the next digit decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, final

_FRACTION: Final = r"(?:\.[0-9]+)?"


def range_regexps(low: float | None, low_inclusive: bool, high: float | None, high_inclusive: bool) -> list[str]:
    """Return regexps for the numbers in a range: one for those from zero, and one for those with a minus."""
    bottom, top = (None if each is None else Decimal(repr(each)) for each in (low, high))
    zero = (Decimal(0), True)
    regexps = []
    if top is None or top >= 0:
        start = (bottom, low_inclusive) if bottom is not None and bottom >= 0 else zero
        regexps.append(_magnitude(*start, top, high_inclusive))
    if bottom is None or bottom <= 0:
        start = (-top, high_inclusive) if top is not None and top <= 0 else zero
        regexps.append("-" + negative if (negative := _magnitude(*start, bottom and -bottom, low_inclusive)) else "")
    return [each for each in regexps if each]


def _magnitude(low: Decimal, low_inclusive: bool, high: Decimal | None, high_inclusive: bool) -> str:
    """Return a regexp for the numbers without a sign in a range; empty if there are none."""
    shortest, bottom = _digits(low)
    if high is None:
        same = _Length(shortest, low_inclusive, False).rest(0, bottom, None)
        return _one_of([each for each in (same, rf"[1-9][0-9]{{{shortest},}}{_FRACTION}") if each is not None])
    longest, top = _digits(high)
    if shortest == longest:
        return _Length(shortest, low_inclusive, high_inclusive).rest(0, bottom, top) or ""
    between = rf"[1-9][0-9]{{{shortest},{longest - 2}}}{_FRACTION}" if longest - shortest > 1 else None
    alternatives = (
        _Length(shortest, low_inclusive, False).rest(0, bottom, None),
        between,
        _Length(longest, False, high_inclusive).rest(0, None, top),
    )
    return _one_of([each for each in alternatives if each is not None]) if longest > shortest else ""


def _digits(value: Decimal) -> tuple[int, str]:
    """Return how many digits a number has before its point, and all its digits."""
    whole, _, fraction = format(abs(value), "f").partition(".")
    return len(whole), whole + fraction.rstrip("0")


def _one_of(regexps: Sequence[str]) -> str:
    return regexps[0] if len(regexps) == 1 else f"(?:{'|'.join(regexps)})"


@final
@dataclass(frozen=True, slots=True)
class _Length:
    """The numbers with as many digits before the point as a bound.

    Attributes:
        whole: how many digits stand before the point.
    """

    whole: int
    low_inclusive: bool
    high_inclusive: bool

    def rest(self, at: int, low: str | None, high: str | None) -> str | None:
        """Return a regexp for the digits from a position; None if no number continues so.

        Args:
            low: the digits of the lower bound, if all digits before the position are equal to its own.
            high: likewise.
        """
        if low is not None and at >= max(len(low), self.whole) and self.low_inclusive:
            low = None
        if at > 0 and high is None and low is None:
            return self._any(at)
        if high is not None and at >= max(len(high), self.whole):
            # Only zeros make the number equal to the bound.
            is_equal = self.high_inclusive and low is None
            return (r"(?:\.0+)?" if at == self.whole else "0*") if is_equal else None
        if low is not None and at >= max(len(low), self.whole) and high is None:
            return (r"\." if at == self.whole else "") + "[0-9]*[1-9][0-9]*"
        longer = self._longer(at, low, high)
        if at < self.whole or not self._may_end(at, low, high):
            return _one_of(longer) if longer else None
        return f"(?:{'|'.join(longer)})?" if longer else ""

    def _any(self, at: int) -> str:
        if at > self.whole:
            return "[0-9]*"
        return (rf"[0-9]{{{self.whole - at}}}" if at < self.whole else "") + _FRACTION

    def _may_end(self, at: int, low: str | None, high: str | None) -> bool:
        is_above = low is None or (not low[at:].strip("0") and self.low_inclusive)
        is_below = high is None or bool(high[at:].strip("0")) or self.high_inclusive
        return is_above and is_below

    def _longer(self, at: int, low: str | None, high: str | None) -> list[str]:
        """Return regexps for the next digit and what follows it."""
        least = int(low[at : at + 1] or "0") if low is not None else int(at == 0 and self.whole > 1)
        most = int(high[at : at + 1] or "0") if high is not None else 9
        if least == most:
            ways = [(least, least, low, high)]
        else:
            ways = [(least, least, low, None)] if low is not None else []
            start, stop = least + (low is not None), most - (high is not None)
            ways += [(start, stop, None, None)] if start <= stop else []
            ways += [(most, most, None, high)] if high is not None and least < most else []
        point = r"\." if at == self.whole else ""
        regexps = []
        for first, last, lower, upper in ways:
            digit = str(first) if first == last else f"[{first}-{last}]"
            if (rest := self.rest(at + 1, lower, upper)) is not None:
                regexps.append(f"{point}{digit}{rest}")
        return regexps
