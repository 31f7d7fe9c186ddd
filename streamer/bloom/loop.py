"""The thread that maintains an engine's filters.

It has only a weak reference to the manager, so that it does not keep an engine alive: it ends at once with the engine. A forked
child starts its own thread.
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

#: The seconds between two ticks, and the least length of the pause as a multiple of the duration of a tick.
PERIOD: Final = 5.0
PAUSE: Final = 50


#: A queue that gets an item when the thread must end. It is not an `Event`, because the garbage collector may finalise a manager
#: anywhere, even in this thread while it has the lock of the event; `put` of this queue is safe there.
End: TypeAlias = "queue.SimpleQueue[None]"


@final
class Loop:
    """Ticks a manager in the background after `start`. Thread-safe.

    Args:
        period: the seconds between two ticks.
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
        """Start the thread, if it is not running."""
        end: End = queue.SimpleQueue()
        with self._lock:
            if self.is_running:
                return
            self._end = end
            try:
                self._begin(end)
            except BaseException:
                # For example, an interrupt: the next write tries again.
                self.stop()
                raise

    def stop(self) -> None:
        """End the thread; `start` may start another one."""
        with self._lock:
            end, self._end = self._end, None
            if end is not None:
                end.put(None)

    def _begin(self, end: End) -> None:
        at_death, self._at_death = self._at_death, None
        if at_death is not None:
            at_death.detach()
        # The queue outlives the manager until the thread has read the item.
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
        alive = manager()
        if alive is None:
            return
        began = time.monotonic()
        try:
            alive.tick()
        except Exception:
            # A defect must not stop the maintenance of the other filters.
            logger.exception("looking after the filters failed")
        del alive
        pause = max(period, PAUSE * (time.monotonic() - began))


def _has_ended(end: End, seconds: float) -> bool:
    """Wait up to *seconds*, and return whether the thread must end."""
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
