"""How people are told a size: one way, in powers of 1,024, wherever this package prints one.

A configuration writes sizes so that they are read back exactly (`streamer/config/units.py`); these are rounded.
"""

from __future__ import annotations


def size_text(size: float) -> str:
    """Return a number of bytes in three digits and the unit that fits: `0 B`, `1.5 KiB`, `107 MiB`, `2.3 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        # What rounds to 1,024 of a unit is one of the next.
        if size < 1023.5:
            return f"{size:.0f} {unit}" if size >= 999.5 or unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.0f} GiB" if size >= 999.5 else f"{size:.3g} GiB"
