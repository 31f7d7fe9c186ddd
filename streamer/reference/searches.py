"""The budget of searches: which texts are searched for the regexps of filters and patterns (semantics.md section 4).

A byte of a text may take a step for each state of a regexp that a text keeps alive, so a large regexp in a long text may take
minutes. Such a text is not searched, and does not match.
"""

from __future__ import annotations

import threading
from typing import Final, final

BUDGET: Final = 1_000_000
"""Units that the search of one text for one regexp may cost."""

_MOST_TOLD: Final = 200


@final
class Refused(threading.local):
    """The searches that this thread has refused.

    Kept for the thread and not handed up from every condition that may search, where nothing else depends on it.
    """

    def __init__(self) -> None:
        self._details: list[str] = []

    def add(self, detail: str) -> None:
        """Keep one, in words."""
        self._details.append(detail)
        # Nobody may ever ask: a `Quamina` does not.
        del self._details[:-1000]

    def take(self) -> list[str]:
        """Return those since this was last called."""
        details, self._details = self._details, []
        return details


REFUSED = Refused()


def may_search(source: str, size: int, text: bytes) -> bool:
    """Tell whether the search of a text costs at most the budget; if not, keep that in `REFUSED`.

    Args:
        source: the regexp as it was given.
        size: its size (docs/cel-cost.md).
    """
    if (len(text) + 15) // 16 * size <= BUDGET:
        return True
    start = source if len(source) <= _MOST_TOLD else f"{source[:_MOST_TOLD]}..."
    REFUSED.add(f"a text of {len(text)} bytes is not searched for a regular expression of size {size}: {start}")
    return False
