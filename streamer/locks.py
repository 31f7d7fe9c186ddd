"""A lock that survives `fork`."""

from __future__ import annotations

import os
import threading
from typing import Final, final

from streamer.living import Living


@final
class Lock:
    """A `threading.Lock` that is free again in a forked child, whoever held it in the parent.

    For state that is consistent whenever the lock is taken or whenever it is not: what another thread was about to
    change is, in the child, either changed or not.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: Final[Living[Lock]] = Living()


def _free_all() -> None:
    for lock in _locks:
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
