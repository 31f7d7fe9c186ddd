"""Locks that Ctrl-C, signal handlers, finalizers and `fork` leave free.

```
with lock:      taken and released in C: no signal is handled between taking it and the body, nor between the body and release
    ...         a signal handler or a finalizer that comes by here, in this thread, goes in too: it never waits for itself
fork            the child finds every lock free but those of the thread that forked, which continues there
```

What a lock guards must bear two things. In a forked child the change of another thread may stand half done. And wherever Python
runs code within the body (a call, a loop, an allocation), the same thread may make another change in between. So a change is
built aside and put in place in one step, after a look whether what it was built of still stands. Python looks for signals after
calls and at the end of loops, never between a comparison and an assignment.

CPython 3.14 as it first came out also looks for signals between taking a lock and the body (its issue 148874).
"""

from __future__ import annotations

# Before a fork it takes its own lock, which an import may need: it must do so after `NO_FORK` was taken, so import it first.
import logging as _  # noqa: F401
import os
from functools import partial
from threading import RLock
from typing import Final

from streamer.living import Living

_locks: Final[Living[RLock]] = Living()

#: The most rebuilds of a change if the same thread has made another in between; then it is an error.
TRIES: Final = 100


def Lock() -> RLock:  # noqa: N802  # named as in `threading`
    """Make a lock."""
    lock = RLock()
    _locks.add(lock)
    return lock


#: A fork waits no longer, in seconds: better a child that may hang than a fork that does.
LONGEST: Final = 30.0

#: Locked during work that a child could not continue, such as an import or a call of SQLite. Forks wait for it, so lock it
#: briefly, and do not wait while it is locked.
NO_FORK: Final = RLock()


def _free_others() -> None:
    for lock in _locks:
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    # Functions in C, which no signal can come before.
    wait = partial(NO_FORK.acquire, timeout=LONGEST)
    os.register_at_fork(before=wait, after_in_parent=NO_FORK.release, after_in_child=NO_FORK.release)
    os.register_at_fork(after_in_child=_free_others)
