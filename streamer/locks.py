"""Locks that Ctrl-C, signal handlers, finalizers and `fork` leave free.

```
with lock:      acquired and released in C: Python runs no signal handler between the acquisition, the body and the release
    ...         a signal handler or finalizer that runs here, in this thread, can enter the lock again: it never deadlocks
fork            in the child, all locks are free, except those of the thread that forked, which continues there
```

Data behind a lock must allow for two cases. In a forked child, a change by another thread may be incomplete. And whenever Python
runs code in the body (a call, a loop, an allocation), the same thread may make another change. So build a change separately,
check that the data it is based on is still current, and then assign it in one step. Python checks for signals after calls and at
the end of loops, never between a comparison and an assignment.

The first release of CPython 3.14 also checks for signals between acquiring a lock and the body (its issue 148874).
"""

from __future__ import annotations

# `logging` acquires its own lock before a fork, which an import may need. It must do so after `NO_FORK` is acquired, and handlers
# run in reverse order of registration, so import it first.
import logging as _  # noqa: F401
import os
from functools import partial
from threading import RLock
from typing import Final

from streamer.living import Living

_locks: Final[Living[RLock]] = Living()

#: The most times that a change is rebuilt because the same thread has made another one meanwhile; then it is an error.
TRIES: Final = 100


def Lock() -> RLock:  # noqa: N802  # named as in `threading`
    """Return a new lock."""
    lock = RLock()
    _locks.add(lock)
    return lock


#: The longest time that a fork waits for `NO_FORK`, in seconds: a child that may hang is better than a fork that hangs.
LONGEST: Final = 30.0

#: Locked during work that a child could not continue, such as an import or a call of SQLite. Forks wait for it, so lock it
#: briefly, and do not wait while it is locked.
NO_FORK: Final = RLock()


def _free_others() -> None:
    for lock in _locks:
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    # These are functions in C, so no signal handler can run before them.
    wait = partial(NO_FORK.acquire, timeout=LONGEST)
    os.register_at_fork(before=wait, after_in_parent=NO_FORK.release, after_in_child=NO_FORK.release)
    os.register_at_fork(after_in_child=_free_others)
