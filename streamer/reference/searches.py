"""The budgets for regexps of filters and patterns, and for topic patterns (semantics.md sections 3 and 6).

Each byte of a text may take a step for every active state of a regexp, so searching a long text for a large regexp may take
minutes. Such a text is not searched, and does not match. A topic pattern is cheap, but there may be many.
"""

from __future__ import annotations

import threading
from typing import Final, final

from streamer.cel_eval.values import CelReason
from streamer.subscriptions.topics import MAX_WORDS

BUDGET: Final = 1_000_000
"""Units that the search of one text for one regexp may cost."""

TOPIC_BUDGET: Final = 100_000_000
"""Units that the topic patterns of one event may cost together."""

_MOST_SHOWN: Final = 200


@final
class Refused(threading.local):
    """The searches that this thread has refused, and the cost of the topic patterns for its event.

    They are thread-local, so that conditions need no extra result.
    """

    def __init__(self) -> None:
        self._details: list[tuple[CelReason, str]] = []
        self._spent = 0

    def begin(self) -> None:
        """Reset the state for another event."""
        self._details, self._spent = [], 0

    def add(self, reason: CelReason, detail: str) -> None:
        """Record a refused search."""
        self._details.append((reason, detail))
        # Bound the list, because some callers, such as `Quamina`, never clear it.
        del self._details[:-1000]

    def take(self) -> list[tuple[CelReason, str]]:
        """Return the refused searches since the last call, and clear them."""
        details, self._details = self._details, []
        return details

    def spend(self, units: int) -> bool:
        """Charge a topic pattern to the event, and return whether its budget allows that."""
        allowed = self._spent + units <= TOPIC_BUDGET
        self._spent += units if allowed else 0
        return allowed


REFUSED = Refused()


def may_search(source: str, size: int, text: bytes) -> bool:
    """Return whether searching a text is within the budget; if not, record that in `REFUSED`.

    Args:
        source: the regexp as the user wrote it.
        size: its size (docs/cel-cost.md).
    """
    if (len(text) + 15) // 16 * size <= BUDGET:
        return True
    start = source if len(source) <= _MOST_SHOWN else f"{source[:_MOST_SHOWN]}..."
    detail = f"a text of {len(text)} bytes is not searched for a regular expression of size {size}: {start}"
    REFUSED.add(CelReason.REGEXP_BUDGET, detail)
    return False


def may_look(pattern: int, key: int) -> bool:
    """Return whether matching a topic pattern with `#` is within the budget; if not, record that in `REFUSED`.

    Args:
        pattern: the number of words of the pattern.
        key: the number of words of the routing key.
    """
    if key > MAX_WORDS:
        detail = f"a key of more than {MAX_WORDS} words is matched by no topic pattern with '#' or '>'"
    elif not REFUSED.spend(units := pattern * ((key + 63) // 64)):
        detail = f"a topic pattern of {pattern} words is not looked at for a key of {key}: {units} units are too many"
    else:
        return True
    REFUSED.add(CelReason.TOPIC_BUDGET, detail)
    return False
