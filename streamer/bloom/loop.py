"""The thread that maintains an engine's filters.

It refers to the manager weakly, so that it does not keep an engine alive: it ends with the engine, at once. A forked child begins
its own thread.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from typing import Final, TypeAlias, final

from streamer.bloom.manager import Manager
from streamer.living import Living
from streamer.locks import Lock

logger = logging.getLogger("streamer.bloom")

#: Seconds between two looks, and how many times as long as a look the pause is at least.
PERIOD: Final = 5.0
PAUSE: Final = 50


#: Has a member once the thread must end. A queue and not an `Event`: the garbage collector may finalise a manager anywhere,
#: perhaps in this very thread while it has the event's lock; `put` of this queue may be called there.
End: TypeAlias = "queue.SimpleQueue[None]"


@final
class Loop:
    """Ticks a manager in the background once it was started. Thread-safe.

    Args:
        period: seconds between two ticks.
    """

    def __init__(self, manager: Manager, period: float = PERIOD) -> None:
        self._manager: Final = manager
        self._period: Final = period
        self._lock = Lock()
        self._end: End | None = None
        self._at_death: weakref.finalize[..., Manager] | None = None
        _loops.add(self)

    @property
    def is_running(self) -> bool:
        return self._end is not None

    def start(self) -> None:
        """Begin, if it has not begun yet."""
        end: End = queue.SimpleQueue()
        with self._lock:
            if self.is_running:
                return
            self._end = end
            try:
                self._begin(end)
            except BaseException:
                # An interrupt: the next write tries again.
                self.stop()
                raise

    def stop(self) -> None:
        """End; `start` may begin again."""
        with self._lock:
            end, self._end = self._end, None
            if end is not None:
                end.put(None)

    def _begin(self, end: End) -> None:
        at_death, self._at_death = self._at_death, None
        if at_death is not None:
            at_death.detach()
        # The queue outlives the manager for as long as the thread takes to see it.
        self._at_death = weakref.finalize(self._manager, end.put, None)
        work = (weakref.ref(self._manager), end, self._period)
        threading.Thread(target=_run, args=work, name="streamer-bloom", daemon=True).start()

    def _begin_in_child(self) -> None:
        if self._end is not None:
            self._end = queue.SimpleQueue()
            self._begin(self._end)


def _run(manager: weakref.ref[Manager], end: End, period: float) -> None:
    pause = period
    while not _has_ended(end, pause):
        held = manager()
        if held is None:
            return
        began = time.monotonic()
        try:
            held.tick()
        except Exception:
            # A defect must not end the watch over the others.
            logger.exception("looking after the filters failed")
        del held
        pause = max(period, PAUSE * (time.monotonic() - began))


def _has_ended(end: End, seconds: float) -> bool:
    """Wait up to *seconds* for the end."""
    try:
        end.get(timeout=seconds)
    except queue.Empty:
        return False
    return True


_loops: Final[Living[Loop]] = Living()


def _after_fork_in_child() -> None:
    # Only the thread that forked is in the child; locks of Python are free again there (streamer.locks).
    for loop in _loops:
        loop._begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
