"""Percentiles of durations in constant memory.

Durations are counted in buckets of about 6 %: the bucket of *n* nanoseconds is its bit length and the four bits below the
first. A list of all durations would be exact, and grow with the stream.
"""

from __future__ import annotations

from collections import Counter
from typing import final

from streamer.sizes import PERCENTILES


@final
class Histogram:
    """Counts durations; not for several threads at once."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        """Count one duration."""
        shift = max(nanoseconds.bit_length() - 5, 0)
        self._buckets[nanoseconds >> shift << shift] += 1
        self.count += 1

    def percentile(self, share: float) -> int:
        """Return the nanoseconds that *share* (0 to 1) of all durations do not exceed, at most 6 % too low; 0 for none."""
        wanted = share * self.count
        total = 0
        last = 0
        for last in sorted(self._buckets):
            total += self._buckets[last]
            if total >= wanted:
                break
        return last

    def percentiles(self) -> dict[str, float]:
        """Return the reported percentiles, by name, in seconds."""
        return {name: self.percentile(share) / 1e9 for name, share in PERCENTILES.items()}
