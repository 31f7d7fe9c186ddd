"""Format a size or a time for people: one way, sizes in powers of 1,024, everywhere in this package.

A configuration writes both so that they are read back exactly (`streamer/config/units.py`); these are rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The shares whose percentiles are reported.
PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def format_size(size: float) -> str:
    """Return a number of bytes in three digits and the unit that fits: `0 B`, `1.5 KiB`, `107 MiB`, `2.3 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        # A size that rounds to 1,024 of a unit is shown in the next unit.
        if size < 1023.5:
            return f"{size:.0f} {unit}" if size >= 999.5 or unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.0f} GiB" if size >= 999.5 else f"{size:.3g} GiB"


def format_time(seconds: float) -> str:
    """Return a time in three digits and the unit that fits: `850 ns`, `12.3 µs`, `1.5 ms`, `2 s`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        # A time that rounds to 1,000 of a unit is shown in the next unit.
        if seconds >= 0.9995 * size:
            return f"{seconds / size:,.0f} {unit}" if seconds >= 999.5 * size else f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def format_percentiles(percentiles: Mapping[str, float]) -> str:
    """Return seconds by the names of percentiles: `p50 12.3 µs, p99 1.5 ms, p99.9 2 s`."""
    return ", ".join(f"{name} {format_time(seconds)}" for name, seconds in percentiles.items())
