"""The latest attempts to deliver to each endpoint, and their results: they show why messages do not arrive."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from streamer.locks import Lock
from streamer.service.connectors.protocols import Outcome
from streamer.service.store.rows import milliseconds, time_of

#: The most attempts of a sink, and the most sinks; the sinks without attempts for the longest time are dropped first.
MOST: Final = 100
MOST_SINKS: Final = 200
#: The messages of an attempt by which it can be found.
MOST_MARKS: Final = 100
#: The codes of a name without an address, and of one without an allowed address.
_UNREACHABLE: Final = ("unresolved", "forbidden_address")


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Attributes:
        at: when it ended, in milliseconds since the epoch.
        seconds: its duration.
        messages: the number of messages.
        first: the id of the first message.
        marks: half of the ids of the first `MOST_MARKS` messages, to save memory.
    """

    at: int
    seconds: float
    messages: int
    first: str
    outcome: Outcome
    marks: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def is_unreachable(self) -> bool:
        """Whether the name of the endpoint has no address, or no allowed address."""
        return self.outcome.code in _UNREACHABLE

    def members(self, *, is_all: bool) -> dict[str, Any]:
        """Return it as plain JSON; *is_all* includes the endpoint's answer, and whether its name exists.

        Other readers could find out with it which names the service's own network has.
        """
        if not is_all and self.is_unreachable:
            outcome = replace(self.outcome, code="unreachable", reason="its name leads to no address that may be connected to")
            return replace(self, seconds=0.0, outcome=outcome).members(is_all=False)
        members: dict[str, Any] = {
            "at": time_of(self.at),
            "duration_ms": round(self.seconds * 1000, 1),
            "messages": self.messages,
            "first_message": self.first,
            "result": self.outcome.result,
            "code": self.outcome.code,
            "reason": self.outcome.reason,
        }
        return members | {"answer": self.outcome.said.decode(errors="replace")} if is_all else members


@final
class Attempts:
    """The latest attempts of all sinks. Any thread may add and read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: OrderedDict[str, deque[Attempt]] = OrderedDict()
        self._failed: dict[str, Attempt] = {}

    def add(self, sink: str, ids: Sequence[str], outcome: Outcome, seconds: float) -> None:
        """Keep an attempt that has just ended."""
        marks = array("Q", [mark for each in ids[:MOST_MARKS] if (mark := _mark(each)) is not None])
        attempt = Attempt(milliseconds(), seconds, len(ids), ids[0] if ids else "", outcome, marks)
        with self._lock:
            if sink not in self._last:
                self._last[sink] = deque(maxlen=MOST)
                if len(self._last) > MOST_SINKS:
                    gone, _ = self._last.popitem(last=False)
                    self._failed.pop(gone, None)
            self._last.move_to_end(sink)
            self._last[sink].append(attempt)
            if outcome.result != "delivered":
                self._failed[sink] = attempt

    def last(self, sink: str, most: int = MOST) -> list[Attempt]:
        """Return the latest attempts of a sink, the newest first."""
        with self._lock:
            return list(reversed(self._last.get(sink, ())))[:most]

    def of(self, sink: str, message: str, most: int) -> list[Attempt]:
        """Return the latest kept attempts of a sink to deliver one message, the newest first."""
        mark = _mark(message)
        return [each for each in self.last(sink) if mark in each.marks][:most]

    def failed(self, sink: str) -> Attempt | None:
        """Return the latest kept attempt that failed."""
        return self._failed.get(sink)


def _mark(message: str) -> int | None:
    """Return half of an id; None for another text, such as the id of a test."""
    try:
        return int(message[:16], 16)
    except ValueError:
        return None
