"""Put numbers in buckets: a range becomes a few buckets, and a number is in one bucket of each size.

```
float64 as 64 bits in the order of numbers      sign | exponent 11 bits | mantissa 52 bits
shift 60   16 buckets: all from 2 to 2^256                    range60
shift 56   256: 16 powers of two                              range56
shift 52   4096: one power of two, 64 to 128                  range52
shift 48   16 parts of that, 100 to 104                       range48
shift 44, 40, 36                                              1/256, 1/4096, 1/65536 of a power of two

data.amount > 100    range48 100..104 … 124..128, range52 128..256 … , range56 2^16..2^32 … , range60 2^256.. …
amount 5000          is in range48 4864..5120, range52 4096..8192, range56 2..2^16, range60 2..2^256
```

Invariant: the order of two numbers is never reversed, whether they are int, uint or float. An integer is rounded to the nearest
float64. That may make two numbers equal, and so a bucket too large, but never reverses their order. So a number within the bounds
is in one of the buckets, and a number outside of all buckets is not within the bounds.

Cost: at most seven probes for a number, mostly two to four, because only sizes in use are probed. A range has 10 to 40 buckets,
most of them shared with other ranges of its field. Rejected: one bucket of the range's own size, which covers all numbers for a
range with one bound; a table of the bounds in use, which each filter would have to contain.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

#: The sizes of buckets, as the number of the 64 bits that are cut off; each size is 16 times the one before.
SHIFTS = (36, 40, 44, 48, 52, 56, 60)
#: The ends of a wide range are rounded to a sixteenth of a power of two.
_COARSEST_EDGE = 48
#: The most buckets of a range, in the finest size that serves it.
_PARTS = 16
_STEP = 16
_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def code(number: int | float) -> int:
    """Return 64 bits in the order of the numbers' values; equal numbers, such as `-0.0` and `0`, have equal bits."""
    bits: int
    # Adding zero turns -0.0 into 0.0.
    (bits,) = struct.unpack(">Q", struct.pack(">d", float(number) + 0.0))
    return bits ^ _ALL if bits & _SIGN else bits | _SIGN


def bucket(number: int | float, shift: int) -> int:
    """Return the bucket of this size that contains a number."""
    return code(number) >> shift


def buckets(low: int | float | None, high: int | float | None) -> Iterator[tuple[int, int]]:
    """Yield pairs of shift and bucket that together contain every number between two bounds; None is an open bound."""
    first = 0 if low is None else code(low)
    last = _ALL if high is None else code(high)
    if first > last:
        return
    fine = [shift for shift in SHIFTS if shift < _COARSEST_EDGE and (last >> shift) - (first >> shift) < _PARTS]
    start = fine[0] if fine else _COARSEST_EDGE
    first, last = first >> start, last >> start
    for shift in SHIFTS[SHIFTS.index(start) :]:
        # Whole buckets of the next size are left to that size; the parts at either end are handled here.
        while first <= last and (first % _STEP or shift == SHIFTS[-1]):
            yield shift, first
            first += 1
        while first <= last and last % _STEP != _STEP - 1:
            yield shift, last
            last -= 1
        if first > last:
            return
        first, last = first // _STEP, last // _STEP


def bounds(number: int, shift: int) -> tuple[float, float]:
    """Return the smallest and the largest number of a bucket, to show them."""
    return _number(number << shift), _number(((number + 1) << shift) - 1)


def _number(ordered: int) -> float:
    bits = ordered & ~_SIGN if ordered & _SIGN else ordered ^ _ALL
    (number,) = struct.unpack(">d", struct.pack(">Q", bits))
    # Beyond the largest number, the bits are infinity or NaN.
    return math.copysign(math.inf, number) if math.isnan(number) else number
