"""A regexp for a range accepts the decimal numbers in it, and no others."""

from __future__ import annotations

import random
import re
from decimal import Decimal

from streamer.importing.number_ranges import range_regexps

BOUNDS = [None, 0, 0.5, 0.05, 1, 1.25, 9, 9.99, 10, 12.5, 19, 99, 100, 105, 150, 999.9, 1000, 100_000, 5_000_000_000]


def written(chosen: random.Random) -> str:
    whole = str(chosen.choice([chosen.randrange(12), chosen.randrange(130), chosen.randrange(1100), 99_999, 5_000_000_000]))
    fraction = "." + "".join(chosen.choices("0012599", k=chosen.randrange(1, 4)))
    return chosen.choice(["", "", "-"]) + whole + chosen.choice(["", fraction])


def test_a_range_accepts_the_numbers_in_it() -> None:
    """1,000 random ranges, with 40 numbers each and the bounds themselves."""
    chosen = random.Random(3)
    inside = 0
    for _ in range(1000):
        low, high = (each if each is None else each * chosen.choice([1, -1]) for each in chosen.choices(BOUNDS, k=2))
        if low is not None and high is not None and low > high:
            low, high = high, low
        low_inclusive, high_inclusive = chosen.random() < 0.5, chosen.random() < 0.5
        regexps = [re.compile(each) for each in range_regexps(low, low_inclusive, high, high_inclusive)]
        bounds = [format(Decimal(repr(each)), "f") for each in (low, high) if each is not None]
        for text in [
            *(written(chosen) for _ in range(40)),
            *bounds,
            *(f"{each}0" for each in bounds if "." in each),
            "-0",
            "0.0",
        ]:
            value = Decimal(text)
            is_above = low is None or value > Decimal(repr(low)) or (low_inclusive and value == Decimal(repr(low)))
            is_below = high is None or value < Decimal(repr(high)) or (high_inclusive and value == Decimal(repr(high)))
            found = any(each.fullmatch(text) for each in regexps)
            assert found == (is_above and is_below), (low, low_inclusive, high, high_inclusive, text, regexps)
            inside += found
    assert 5_000 < inside < 40_000
